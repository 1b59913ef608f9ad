"""The Arrow Flight SQL door, as ADBC, pyarrow and polars see it."""

import datetime
import decimal
import socket
import struct
import threading
import time
import uuid

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi as dbapi
import adbc_driver_manager
import polars
import pyarrow
import pyarrow.compute
import pytest
from conftest import Server
from pyarrow import flight

D = decimal.Decimal

CREATE = """
create table things (
    id bigint primary key, tiny tinyint, small smallint, plain integer, price numeric(15,2), ratio real,
    exact double precision, name text, raw bytea, day date, moment timestamp, tag uuid, doc json, flag boolean
)
"""

INSERT = f"insert into things values ({', '.join(f'${n}' for n in range(1, 15))})"

TAG = uuid.UUID("12345678-1234-5678-1234-567812345678")

ROW = (
    2**62,
    -3,
    -7,
    70_000,
    D("-12345.67"),
    0.5,
    1e-300,
    "naïve 'quoted' \\ \n text",
    b"\x00\xff\\",
    datetime.date(1969, 12, 31),
    datetime.datetime(2024, 2, 29, 23, 59, 59, 123456),
    TAG,
    '{"a": [1, null, "x"]}',
    True,
)


def uri(server):
    return f"grpc://127.0.0.1:{server.ports['flight']}"


def connect(server, autocommit=True, **options):
    return dbapi.connect(uri(server), autocommit=autocommit, **options)


@pytest.fixture
def db(server):
    with connect(server) as connection:
        yield connection


def query(connection, sql, parameters=None):
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall()


def execute(connection, sql, parameters=None):
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)


def failing(sqlstate):
    return pytest.raises(dbapi.Error, match=f"{sqlstate}: ")


def test_every_type_goes_in_and_comes_out(server, db):
    execute(db, CREATE)
    parameters = [TAG.bytes if value is TAG else value for value in ROW]
    execute(db, INSERT, parameters)
    execute(db, "insert into things (id) values ($1)", (1,))
    with db.cursor() as cursor:
        cursor.execute("select * from things order by id")
        table = cursor.fetch_arrow_table()
    storage = table.schema.field("tag").type
    assert storage == pyarrow.uuid() or storage == pyarrow.binary(16)
    types = {name: table.schema.field(name).type for name in ("price", "moment", "day", "raw", "name", "tiny", "flag")}
    assert types == {
        "price": pyarrow.decimal128(15, 2),
        "moment": pyarrow.timestamp("us"),
        "day": pyarrow.date32(),
        "raw": pyarrow.binary(),
        "name": pyarrow.string(),
        "tiny": pyarrow.int8(),
        "flag": pyarrow.bool_(),
    }
    null, row = (tuple(row.values()) for row in table.to_pylist())
    assert null == (1,) + (None,) * 13
    assert tuple(uuid.UUID(bytes=value) if isinstance(value, bytes) and len(value) == 16 else value for value in row) == ROW
    with server.sql() as postgres:
        assert postgres.execute("select name, price, tag from things where id > 1").fetchone() == (ROW[7], ROW[4], TAG)


def test_statements_are_executed_when_they_are_asked_for(db):
    """A cursor that nobody reads has done its work, and sees what was there then."""
    execute(db, "create table t (id bigint primary key, v bigint)")
    with db.cursor() as cursor:
        cursor.execute("insert into t values (1, 1), (2, 2)")
        cursor.execute("insert into t values (3, 3) returning v")
        assert cursor.fetchall() == [(3,)]
    with db.cursor() as early:
        early.execute("select count(*), sum(v) from t")
        execute(db, "delete from t where id = 1")
        assert early.fetchall() == [(3, 6)]
    with db.cursor() as cursor:
        cursor.adbc_statement.set_sql_query("update t set v = v + 1")
        assert cursor.adbc_statement.execute_update() == 2
    assert query(db, "select id, v from t order by id") == [(2, 3), (3, 4)]


def test_errors_have_sqlstates(db):
    for sql, sqlstate in [
        ("select * from nothing", "42P01"),
        ("selec 1", "42601"),
        ("select 1; select 2", "42601"),
        ("select 1 / (1 - length('a'))", "22012"),
        ("begin", "0A000"),
        ("set search_path = a", "0A000"),
        ("copy t from stdin", "42P01"),
    ]:
        with failing(sqlstate):
            query(db, sql)
    execute(db, "create table t (id bigint primary key)")
    execute(db, "insert into t values (1)")
    with failing("23505"):
        execute(db, "insert into t values (1)")
    with failing("0A000"):
        execute(db, "copy t from stdin")
    # One that comes in the middle of the rows.
    execute(db, "insert into t select generate_series from generate_series(2, 100000)")
    with failing("22012"):
        query(db, "select 1 / (99999 - id) from t")
    assert query(db, "select count(*) from t") == [(100_000,)]


def test_statements_are_prepared_and_bound(db):
    execute(db, "create table t (id bigint primary key, name text, price numeric(8,2), at timestamp)")
    rows = [(n, f"name {n}", D(n) / 4, datetime.datetime(2024, 1, 1 + n % 28)) for n in range(1000)]
    with db.cursor() as cursor:
        cursor.executemany("insert into t values ($1, $2, $3, $4)", rows)
    assert query(db, "select count(*), sum(price) from t") == [(1000, sum(row[2] for row in rows))]
    assert query(db, "select name, price from t where id = $1", (7,)) == [("name 7", D("1.75"))]
    assert query(db, "select count(*) from t where price < $1 and at = $2", (D("20.5"), rows[3][3])) == [(3,)]
    # All of them or none.
    with failing("23505"), db.cursor() as cursor:
        cursor.executemany("insert into t values ($1, $2, $3, $4)", [(2000, "a", None, None), (1, "b", None, None)])
    assert query(db, "select count(*) from t where id = 2000") == [(0,)]
    with failing("22P02"):
        query(db, "select * from t where id = $1", ("seven",))
    with failing("08P01"):
        query(db, "select * from t where id = $1", (1, 2))
    with failing("08P01"):
        query(db, "select * from t where id = $1")
    with db.cursor() as cursor:
        parameters = cursor.adbc_prepare("select * from t where id = $1 and name = $2")
        assert [field.type for field in parameters] == [pyarrow.int64(), pyarrow.string()]
        schema = cursor.adbc_execute_schema("select id, price from t")
        assert schema.types == [pyarrow.int64(), pyarrow.decimal128(8, 2)]


def test_what_there_is_can_be_asked_for(db):
    execute(db, "create schema shop")
    execute(db, "create table shop.orders (region text, id bigint, total numeric(10,2) not null, primary key (region, id))")
    execute(db, "create table plain (id integer primary key)")
    objects = db.adbc_get_objects(depth="all").read_all().to_pylist()
    assert [catalog["catalog_name"] for catalog in objects] == ["oribi"]
    tables = {
        (schema["db_schema_name"], table["table_name"]): table
        for schema in objects[0]["catalog_db_schemas"]
        for table in schema["db_schema_tables"]
    }
    orders = tables["shop", "orders"]
    assert [column["column_name"] for column in orders["table_columns"]] == ["region", "id", "total"]
    assert ("public", "plain") in tables and orders["table_type"] == "TABLE"
    only = db.adbc_get_objects(depth="tables", db_schema_filter="sh%", table_name_filter="o_ders").read_all().to_pylist()
    assert [t["table_name"] for s in only[0]["catalog_db_schemas"] for t in s["db_schema_tables"]] == ["orders"]
    schema = db.adbc_get_table_schema("orders", db_schema_filter="shop")
    assert schema.field("total").type == pyarrow.decimal128(10, 2)
    assert db.adbc_get_table_types() == ["TABLE"]
    assert db.adbc_get_info()["vendor_name"] == "Oribi"


def command(name, value=b""):
    """A command of Flight SQL: a protobuf `Any`, which has lengths below 128 here."""
    url = f"type.googleapis.com/arrow.flight.protocol.sql.{name}".encode()
    return bytes([0x0A, len(url)]) + url + bytes([0x12, len(value)]) + value


def text(field, value):
    return bytes([field << 3 | 2, len(value)]) + value.encode()


def test_keys_and_types_as_other_drivers_ask_for_them(server, db):
    execute(db, "create schema shop")
    execute(db, "create table shop.orders (region text, id bigint, primary key (region, id))")
    with flight.connect(uri(server)) as client:

        def ask(name, value=b""):
            info = client.get_flight_info(flight.FlightDescriptor.for_command(command(name, value)))
            table = client.do_get(info.endpoints[0].ticket).read_all()
            assert table.schema == info.schema
            return table.to_pylist()

        keys = ask("CommandGetPrimaryKeys", text(2, "shop") + text(3, "orders"))
        assert [(key["column_name"], key["key_sequence"], key["key_name"]) for key in keys] == [
            ("region", 1, "orders_pkey"),
            ("id", 2, "orders_pkey"),
        ]
        assert ask("CommandGetExportedKeys", text(3, "orders")) == []
        assert ask("CommandGetImportedKeys", text(3, "orders")) == []
        types = {row["type_name"] for row in ask("CommandGetXdbcTypeInfo")}
        assert {"bigint", "numeric", "timestamp", "json"} <= types
        assert [row["catalog_name"] for row in ask("CommandGetCatalogs")] == ["oribi"]
        assert {"public", "shop"} <= {row["db_schema_name"] for row in ask("CommandGetDbSchemas")}
        names = {action.type for action in client.list_actions()}
        assert {"BeginTransaction", "CancelFlightInfo", "CreatePreparedStatement"} <= names
        schema = client.get_schema(flight.FlightDescriptor.for_command(command("CommandStatementQuery", text(1, "select 1::bigint as n"))))
        assert schema.schema == pyarrow.schema([("n", pyarrow.int64())])
        for bad in (b"", b"\xff\xff", command("CommandStatementSubstraitPlan"), command("Nonsense")):
            with pytest.raises((flight.FlightError, pyarrow.ArrowException)):
                client.get_flight_info(flight.FlightDescriptor.for_command(bad))
        for ticket in (b"", b"garbage", command("TicketStatementQuery", text(1, "nothing"))):
            with pytest.raises((flight.FlightError, pyarrow.ArrowException, KeyError)):
                client.do_get(flight.Ticket(ticket)).read_all()
        # A ticket holds once.
        info = client.get_flight_info(flight.FlightDescriptor.for_command(command("CommandStatementQuery", text(1, "select 1"))))
        assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 1
        with pytest.raises(KeyError, match="34000"):
            client.do_get(info.endpoints[0].ticket).read_all()


def test_transactions_are_committed_and_rolled_back(server, db):
    execute(db, "create table t (id bigint primary key, v bigint)")
    with connect(server, autocommit=False) as other:
        execute(other, "insert into t values (1, 1)")
        assert query(other, "select count(*) from t") == [(1,)]
        assert query(db, "select count(*) from t") == [(0,)]
        other.commit()
        assert query(db, "select count(*) from t") == [(1,)]
        execute(other, "insert into t values (2, 2)")
        with other.cursor() as cursor:
            cursor.executemany("insert into t values ($1, $1)", [(n,) for n in range(3, 10)])
        execute(other, "savepoint s")
        execute(other, "delete from t")
        execute(other, "rollback to s")
        assert query(other, "select count(*) from t") == [(9,)]
        other.rollback()
        assert query(other, "select count(*) from t") == [(1,)]
        with failing("23505"):
            execute(other, "insert into t values (1, 1)")
        with failing("25P02"):
            execute(other, "select 1")
        other.rollback()
        execute(other, "set search_path = public")
        execute(other, "create table made (id bigint primary key)")
        other.commit()
    assert query(db, "select count(*) from made") == [(0,)]


def test_a_transaction_outlives_its_connection_and_not_its_silence(folder):
    server = Server(folder / "data", "--flight-silence-ms", "1500")
    with flight.connect(uri(server)) as client:
        execute_by(client, "create table t (id bigint primary key)")
        handle = begin(client)
        execute_by(client, "insert into t values (1)", handle)
    with flight.connect(uri(server)) as client:
        execute_by(client, "insert into t values (2)", handle)
        savepoint = act(client, "BeginSavepoint", "ActionBeginSavepointRequest", field(1, handle) + text(2, "s"))
        savepoint = value_of(savepoint)
        execute_by(client, "insert into t values (3)", handle)
        act(client, "EndSavepoint", "ActionEndSavepointRequest", field(1, savepoint) + b"\x10\x02")
        act(client, "EndTransaction", "ActionEndTransactionRequest", field(1, handle) + b"\x10\x01")
        with pytest.raises(KeyError, match="25P01"):
            execute_by(client, "insert into t values (4)", handle)
        silent = begin(client)
        execute_by(client, "insert into t values (5)", silent)
        deadline = time.monotonic() + 60
        with server.sql() as postgres:
            # Its lock is gone with it.
            postgres.execute("set lock_timeout = '60s'")
            postgres.execute("insert into t values (5)")
            assert time.monotonic() < deadline
            assert [row[0] for row in postgres.execute("select id from t order by id").fetchall()] == [1, 2, 5]
        with pytest.raises(KeyError, match="25P01"):
            execute_by(client, "insert into t values (6)", silent)


def field(number, value):
    return bytes([number << 3 | 2, len(value)]) + value


def act(client, action, request, value):
    return [bytes(result.body) for result in client.do_action((action, command(request, value)))]


def value_of(results):
    """The first field of the message in an `Any`, which is bytes."""
    (answer,) = results
    url = answer[1]
    message = answer[2 + url + 2 :]
    return message[2 : 2 + message[1]]


def begin(client):
    return value_of(act(client, "BeginTransaction", "ActionBeginTransactionRequest", b""))


def execute_by(client, sql, transaction=None):
    value = text(1, sql) + (field(2, transaction) if transaction else b"")
    client.get_flight_info(flight.FlightDescriptor.for_command(command("CommandStatementQuery", value)))


def test_batches_are_ingested(server, db):
    table = pyarrow.table(
        {
            "id": pyarrow.array(range(50_000), pyarrow.int64()),
            "word": pyarrow.array(["odd", "even"] * 25_000).dictionary_encode(),
            "at": pyarrow.array([datetime.datetime(2024, 1, 1)] * 50_000, pyarrow.timestamp("ns", "Asia/Kolkata")),
            "price": pyarrow.array([D("1.25")] * 50_000, pyarrow.decimal128(10, 2)),
        }
    )
    keyed = table.replace_schema_metadata({"primary_key": "id"})
    with db.cursor() as cursor:
        assert cursor.adbc_ingest("keyless", table.slice(0, 10), mode="create") == 10
        assert cursor.adbc_ingest("keyless", table.slice(0, 10), mode="append") == 10
        assert query(db, "select count(*), count(distinct id) from keyless") == [(20, 10)]
        cursor.execute("drop table keyless")
        with failing("42P01"):
            cursor.adbc_ingest("t", table, mode="append")
        assert cursor.adbc_ingest("t", keyed, mode="create") == 50_000
        with failing("42P07"):
            cursor.adbc_ingest("t", keyed, mode="create")
        with failing("23505"):
            cursor.adbc_ingest("t", table.slice(49_990), mode="append")
        more = pyarrow.table({"price": [D("2.5")], "id": [-1]})
        assert cursor.adbc_ingest("t", more, mode="append") == 1
        expected = [(50_001, D("62502.50"), 25_000, datetime.datetime(2024, 1, 1))]
        sums = "select count(*), sum(price), count(word) filter (where word = 'odd'), max(at) from t"
        assert query(db, sums) == expected
        # What is refused in the middle leaves nothing, and the table that was there.
        twice = pyarrow.concat_tables([keyed, keyed])
        with failing("23505"):
            cursor.adbc_ingest("t", twice, mode="replace")
        assert query(db, sums) == expected
        with failing("23505"):
            cursor.adbc_ingest("other", twice, mode="create_append")
        with failing("42P01"):
            query(db, "select * from other")
        assert cursor.adbc_ingest("t", keyed.slice(0, 10), mode="replace") == 10
        assert cursor.adbc_ingest("t", keyed.slice(10, 10), mode="create_append") == 10
        assert query(db, "select count(*) from t") == [(20,)]
        with failing("42804"):
            cursor.adbc_ingest("t", pyarrow.table({"id": [True]}), mode="append")
        with failing("42703"):
            cursor.adbc_ingest("t", pyarrow.table({"none": [1]}), mode="append")
        with failing("0A000"):
            cursor.adbc_ingest("t", pyarrow.table({"id": [[1]]}), mode="append")
        with failing("23502"):
            cursor.adbc_ingest("t", pyarrow.table({"word": ["a"]}), mode="append")


def test_a_large_result_streams_within_memory(folder):
    """Ten million rows, of which the server has no more at a time than it has room for."""
    server = Server(folder / "data", "--memory", "128MiB")
    with connect(server) as db, db.cursor() as cursor:
        cursor.execute("select generate_series as n, 'row ' || generate_series as t from generate_series(1, 10000000)")
        rows = total = 0
        for batch in cursor.fetch_record_batch():
            rows += batch.num_rows
            total += pyarrow.compute.sum(batch.column(0)).as_py()
        assert (rows, total) == (10_000_000, 10_000_000 * 10_000_001 // 2)
        peak = server.memory_kib()
        assert peak < 600_000, f"{peak} KiB"


def test_who_goes_away_or_cancels_leaves_nothing_running(server, db):
    endless = "select count(*) from generate_series(1, 100000000000) a(n) where n % 7 = 3"

    def busy():
        return float(next(line.split()[1] for line in metrics(server) if line.startswith("oribi_query_unread_bytes ")))

    with connect(server) as other, other.cursor() as cursor:
        thread = threading.Thread(target=lambda: (time.sleep(1), cursor.adbc_cancel()))
        thread.start()
        with pytest.raises(dbapi.Error):
            cursor.execute(endless)
            cursor.fetchall()
        thread.join()
    with flight.connect(uri(server)) as client:
        long = "select generate_series from generate_series(1, 100000000)"
        info = client.get_flight_info(flight.FlightDescriptor.for_command(command("CommandStatementQuery", text(1, long))))
        reader = client.do_get(info.endpoints[0].ticket)
        reader.read_chunk()
        assert cancel(client, info)
        with pytest.raises((flight.FlightError, pyarrow.ArrowException), match="57014"):
            while True:
                reader.read_chunk()
        info = client.get_flight_info(flight.FlightDescriptor.for_command(command("CommandStatementQuery", text(1, long))))
        reader = client.do_get(info.endpoints[0].ticket)
        reader.read_chunk()
    deadline = time.monotonic() + 60
    while busy() > 0:
        assert time.monotonic() < deadline, "the statement of a client that has gone goes on"
        time.sleep(0.1)
    assert query(db, "select 1") == [(1,)]


def cancel(client, info):
    serialized = info.serialize()
    request = b"\x0a" + varint(len(serialized)) + serialized
    (answer,) = client.do_action(("CancelFlightInfo", request))
    return bytes(answer.body) == b"\x08\x01"


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out + bytes([number]))


def metrics(server):
    with socket.create_connection(("127.0.0.1", server.ports["http"])) as http:
        http.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        return b"".join(iter(lambda: http.recv(1 << 16), b"")).decode().splitlines()


def test_settings_come_as_headers(server):
    with connect(server) as db:
        execute(db, "create schema shop")
        execute(db, "create table shop.orders (id bigint primary key)")
        with failing("42P01"):
            query(db, "select count(*) from orders")
    header = adbc_driver_flightsql.DatabaseOptions.RPC_CALL_HEADER_PREFIX.value
    with connect(server, db_kwargs={f"{header}x-oribi-search-path": "shop"}) as db:
        assert query(db, "select count(*) from orders") == [(0,)]
        assert query(db, "select id from orders where id = $1", (1,)) == []
    with connect(server, db_kwargs={f"{header}x-oribi-statement-timeout": "200"}) as db, failing("57014"):
        query(db, "select count(*) from generate_series(1, 100000000000) a(n) where n % 7 = 3")
    with connect(server, db_kwargs={f"{header}x-oribi-timezone": "nowhere"}) as db, failing("22023"):
        query(db, "select 1")


def test_who_may_come_in(folder):
    (folder / "password").write_text("pass:word\n")
    server = Server(folder / "data", "--flight-user", "ada", "--flight-password-file", str(folder / "password"))
    with connect(server, db_kwargs={"username": "ada", "password": "pass:word"}) as db:
        assert query(db, "select current_user") == [("ada",)]
    with failing("28P01"), connect(server, db_kwargs={"username": "ada", "password": "other"}) as db:
        query(db, "select 1")
    with failing("28000"), connect(server) as db:
        query(db, "select 1")
    with flight.connect(uri(server)) as client:
        token = client.authenticate_basic_token("ada", "pass:word")
        options = flight.FlightCallOptions(headers=[token])
        sql = flight.FlightDescriptor.for_command(command("CommandStatementQuery", text(1, "select 1")))
        assert client.get_flight_info(sql, options).schema.names
        for ask in (lambda: client.get_flight_info(sql), lambda: list(client.do_action(("BeginTransaction", b"")))):
            with pytest.raises(flight.FlightUnauthenticatedError):
                ask()


def test_others_are_refused_and_the_server_goes_on(folder):
    server = Server(folder / "data", "--flight-connections-max", "3")
    address = ("127.0.0.1", server.ports["flight"])
    with socket.create_connection(address) as http:
        http.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert http.recv(1000).startswith(b"HTTP/1.1 505")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for garbage in (b"\xff" * 100, struct.pack(">I", 2**31) * 20, b"\0\0\0\x04\0\0\0\0\0" + b"\x7f" * 50):
        with socket.create_connection(address) as client:
            client.sendall(preface + garbage)
            client.settimeout(30)
            while client.recv(1000):
                pass
    connections = [connect(server) for _ in range(3)]
    assert [query(connection, "select 1") for connection in connections] == [[(1,)]] * 3
    with failing("53300"), connect(server) as db:
        query(db, "select 1")
    connections.pop().close()
    deadline = time.monotonic() + 30
    while True:
        try:
            with connect(server) as db:
                assert query(db, "select 1") == [(1,)]
            break
        except dbapi.Error:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    for connection in connections:
        connection.close()
    assert "panicked" not in server.log_text()


def test_polars_reads_and_writes(server, db):
    execute(db, "create table t (id bigint primary key, name text)")
    frame = polars.DataFrame({"id": [1, 2, 3], "name": ["one", "two", None]})
    assert frame.write_database("t", db, engine="adbc", if_table_exists="append") == 3
    assert polars.read_database("select * from t order by id", db).equals(frame)
    with adbc_driver_flightsql.connect(uri(server)) as database, adbc_driver_manager.AdbcConnection(database) as connection:
        with adbc_driver_manager.AdbcStatement(connection) as statement:
            statement.set_sql_query("select count(*) from t")
            stream, _ = statement.execute_query()
            assert pyarrow.RecordBatchReader.from_stream(stream).read_all().to_pylist() == [{"count": 3}]
