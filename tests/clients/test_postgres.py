"""The PostgreSQL door, as psycopg and psql see it."""

import datetime
import decimal
import os
import shutil
import subprocess
import uuid

import psycopg
import pytest
from conftest import cancelling
from psycopg import errors
from psycopg.rows import dict_row

D = decimal.Decimal

CREATE = """
create table things (
    id bigint primary key, small smallint, plain integer, price numeric(15,2), ratio real, exact double precision,
    name text, raw bytea, day date, moment timestamp, tag uuid, doc json, flag boolean
)
"""

ROW = (
    2**62,
    -7,
    70_000,
    D("-12345.67"),
    0.5,
    1e-300,
    "naïve 'quoted' \\ \n text",
    b"\x00\xff\\",
    datetime.date(1969, 12, 31),
    datetime.datetime(2024, 2, 29, 23, 59, 59, 123456),
    uuid.UUID("12345678-1234-5678-1234-567812345678"),
    {"a": [1, None, "x"]},
    True,
)

INSERT = "insert into things values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"


def adapted(row):
    return tuple(psycopg.types.json.Json(v) if isinstance(v, dict) else v for v in row)


@pytest.fixture
def db(server):
    with server.sql() as connection:
        yield connection


@pytest.mark.parametrize("binary", [False, True])
def test_every_type_goes_in_and_comes_out(db, binary):
    db.execute(CREATE)
    db.cursor(binary=binary).execute(INSERT, adapted(ROW))
    db.execute("insert into things (id) values (%s)", (1,))
    rows = db.cursor(binary=binary).execute("select * from things order by id").fetchall()
    assert rows == [(1,) + (None,) * 12, ROW]


def test_parameters_meet_columns_of_other_types(db):
    db.execute("create table t (id bigint primary key, price numeric(10,2), ratio double precision, name text)")
    db.execute("insert into t values (%s, %s, %s, %s)", (1, 5, 7, "one"))
    db.execute("insert into t values (%b, %b, %b, %b)", (2, D("2.50"), D("0.25"), "two"))
    rows = db.execute("select * from t order by id").fetchall()
    assert rows == [(1, D("5.00"), 7.0, "one"), (2, D("2.50"), 0.25, "two")]
    by_price = db.execute("select id from t where price < %b and name in (%s, %s)", (D("2.501"), "one", "two"))
    assert by_price.fetchall() == [(2,)]


def test_prepared_statements_are_used_again_and_replanned(db):
    db.execute("create table t (id bigint primary key, n int)")
    for i in range(20):
        db.execute("insert into t values (%s, %s)", (i, i * i), prepare=True)
    for i in range(20):
        assert db.execute("select n from t where id = %s", (i,), prepare=True).fetchone() == (i * i,)
    db.execute("alter table t add column more text default 'x'")
    assert db.execute("select n from t where id = %s", (4,), prepare=True).fetchone() == (16,)
    # More statements than the client keeps prepared: it deallocates the oldest.
    db.prepare_max = 5
    for i in range(30):
        assert db.execute(f"select {i} + %s", (1,), prepare=True).fetchone() == (i + 1,)


@pytest.mark.parametrize("prepare", [True, False])
@pytest.mark.parametrize("back", ["set search_path to a", "reset search_path", "discard all"])
def test_statements_are_about_the_schema_that_holds(server, prepare, back):
    """Tenants by schema, and statements that are prepared once for all of them."""
    with server.sql(options="-csearch_path=a") as db:
        for schema in "ab":
            db.execute(f"create schema {schema}")
            db.execute(f"create table {schema}.t (id bigint primary key, n text)")

        def run(sql, *values):
            return db.execute(sql, values, prepare=prepare)

        def use(tenant):
            run("delete from t where id > 0")
            run("insert into t values (%s, %s)", 1, tenant)
            run("insert into t values (%s, %s)", 2, tenant)
            run("insert into t values (%s, %s) on conflict (id) do update set n = excluded.n", 2, tenant + "2")
            run("insert into t select 3, %s", tenant)
            with db.cursor().copy("copy t from stdin") as copy:
                copy.write_row((4, tenant))
            run("update t set n = %s where id = %s", tenant + "1", 1)
            run("update t set n = n || %s where id < 4", "!")
            assert run("select n from t where id = %s", 1).fetchone() == (tenant + "1!",)
            assert run("select n from t where id + 0 = %s", 1).fetchone() == (tenant + "1!",)
            with db.cursor().copy("copy t to stdout") as copy:
                assert b"".join(copy).count(tenant.encode()) == 4
            run("delete from t where id = %s", 1)
            run("delete from t where n = %s", tenant + "!")
            return run("select id, n from t order by id").fetchall()

        assert use("a") == [(2, "a2!"), (4, "a")]
        db.execute("set search_path to b")
        assert use("b") == [(2, "b2!"), (4, "b")]
        db.execute(back)
        assert run("select id, n from t order by id").fetchall() == [(2, "a2!"), (4, "a")]
        assert use("a") == [(2, "a2!"), (4, "a")]
        assert db.execute("select id, n from b.t order by id").fetchall() == [(2, "b2!"), (4, "b")]


def test_executemany_and_pipelines(db):
    db.execute("create table t (id bigint primary key, name text)")
    with db.cursor() as cursor:
        cursor.executemany("insert into t values (%s, %s)", [(i, f"n{i}") for i in range(500)])
        assert cursor.rowcount == 500
    with db.pipeline():
        found = [db.execute("select name from t where id = %s", (i,)) for i in range(50)]
    assert [cursor.fetchone() for cursor in found] == [(f"n{i}",) for i in range(50)]
    with pytest.raises(errors.UndefinedTable):
        with db.pipeline():
            db.execute("select 1")
            db.execute("select * from nowhere")
    assert db.execute("select count(*) from t").fetchone() == (500,)


@pytest.mark.parametrize("binary", [False, True])
def test_statements_about_one_row_in_a_pipeline(db, binary):
    """Writes and reads of one row arrive together; each sees those before it, and an error only ends its own series."""
    db.execute("create table t (id int, part text, n bigint not null default 7, raw bytea, price numeric(8,2), "
               "doc json, at timestamp, primary key (id, part))")
    at = datetime.datetime(2024, 2, 29, 12, 0, 0, 5)
    with db.pipeline() as pipeline:
        answers = []

        def run(sql, *parameters):
            answers.append(db.cursor(binary=binary).execute(sql, parameters, prepare=True))

        for i in (1, 300, 70_000):
            run("insert into t values (%s, %s, %s, %b, %s, %s, %s)", i, "p", i, b"\0\xff", D("1.25"), '{"a": 1}', at)
            run("select * from t where id = %s and part = %s", i, "p")
            run("update t set n = %s, raw = %s, price = null where id = %s and part = 'p'", i + 1, b"", i)
            run("select n, raw, price from t where part = %s and id = %s", "p", i)
            run("insert into t (id, part, n) values (%s, %s, %s) on conflict (id, part) do update set n = excluded.n",
                i, "p", -i)
            run("insert into t (id, part) values (%s, 'p') on conflict do nothing", i)
            pipeline.sync()
            run("select n from t where id = %s and part = 'p'", i)
            run("delete from t where id = %s and part = %s", i, "p")
            run("delete from t where id = %s and part = %s", i, "p")
            run("select n from t where id = %s and part = 'p'", i)
            pipeline.sync()
    for i in (1, 300, 70_000):
        counts = [cursor.rowcount for cursor in answers[:10]]
        rows = [cursor.fetchall() for cursor in answers[:10] if cursor.description]
        assert counts == [1, 1, 1, 1, 1, 0, 1, 1, 0, 0]
        assert rows == [[(i, "p", i, b"\0\xff", D("1.25"), {"a": 1}, at)], [(i + 1, b"", None)], [(-i,)], []]
        del answers[:10]
    with pytest.raises(errors.UniqueViolation):
        with db.pipeline():
            db.execute("insert into t (id, part) values (1, 'p')")
            db.execute("insert into t (id, part) values (1, 'p')")
    assert db.execute("select id from t").fetchall() == []
    db.execute("insert into t (id, part) values (1, 'p')")
    with pytest.raises(errors.NotNullViolation):
        db.execute("update t set n = %s where id = 1 and part = 'p'", (None,))
    assert db.execute("select id, n from t").fetchall() == [(1, 7)]


def test_what_messages_count_is_bounded(db):
    """Columns as in PostgreSQL, parameters as many as sixteen bits count."""
    numbers = ", ".join(f"{i} as c{i}" for i in range(1664))
    assert db.execute(f"select {numbers}").fetchone() == tuple(range(1664))
    with db.cursor().copy(f"copy (select {numbers}) to stdout") as copy:
        assert b"".join(copy).count(b"\t") == 1663
    more = numbers + ", 1664 as more"
    many = ", ".join(["1"] * 40_000)
    for sql in (f"select {more}", f"copy (select {more}) to stdout", f"select {many}", f"copy (select {many}) to stdout"):
        with pytest.raises(errors.TooManyColumns):
            db.execute(sql)
    columns = ", ".join(f"c{i} int" for i in range(1, 1600))
    with pytest.raises(errors.TooManyColumns):
        db.execute(f"create table wide (id int primary key, {columns}, more int)")
    db.execute(f"create table wide (id int primary key, {columns})")
    with pytest.raises(errors.TooManyColumns):
        db.execute("alter table wide add column more int")
    with db.cursor().copy("copy wide from stdin") as copy:
        copy.write_row(range(1600))
    assert db.execute("select * from wide where id = 0").fetchone() == tuple(range(1600))
    for sql in (f"copy wide (id{', c1' * 15_000}) from stdin", "copy wide (id, c1, c1) to stdout"):
        with pytest.raises(errors.DuplicateColumn):
            db.execute(sql)
    db.execute("create table t (id int primary key, n int)")
    values = [(i, i) for i in range(32_767)]
    inserted = db.execute("insert into t values " + ", ".join(["(%s, %s)"] * len(values)), [v for row in values for v in row])
    assert inserted.rowcount == len(values)


def test_copy_in_and_out(db):
    db.execute("create table t (id bigint primary key, name text, price numeric(8,2))")
    rows = [(i, None if i % 7 == 0 else f"tab\there, \"quote\" \\ {i}", D(i) / 4) for i in range(20_000)]
    with db.cursor().copy("copy t from stdin") as copy:
        for row in rows:
            copy.write_row(row)
    with db.cursor().copy("copy (select * from t order by id) to stdout") as copy:
        copy.set_types(["int8", "text", "numeric"])
        assert list(copy.rows()) == rows
    with db.cursor().copy("copy (select * from t where id < 2 order by id) to stdout (format csv, header)") as copy:
        text = b"".join(copy).decode()
    assert text == 'id,name,price\n0,,0.00\n1,"tab\there, ""quote"" \\ 1",0.25\n'
    with db.cursor().copy("copy t (id, name) from stdin (format csv)") as copy:
        copy.write("100000,one\n100001,\"two\nlines\"\n")
    assert db.execute("select name, price from t where id > 99999 order by id").fetchall() == [
        ("one", None),
        ("two\nlines", None),
    ]


def test_a_copy_that_fails_copies_nothing(db):
    db.execute("create table t (id bigint primary key)")
    with pytest.raises(errors.InvalidTextRepresentation) as caught:
        with db.cursor().copy("copy t from stdin") as copy:
            copy.write("1\n2\nthree\n")
    assert 'line 3: column "id"' in str(caught.value)
    with pytest.raises(ZeroDivisionError):
        with db.cursor().copy("copy t from stdin") as copy:
            copy.write("1\n")
            copy.write(f"{1 // 0}\n")
    assert db.execute("select count(*) from t").fetchone() == (0,)


def test_errors_have_their_sqlstate(db):
    db.execute("create table t (id bigint primary key, n int not null, small smallint)")
    db.execute("insert into t values (1, 1)")
    cases = [
        ("selec 1", errors.SyntaxError),
        ("select * from nowhere", errors.UndefinedTable),
        ("select nothing from t", errors.UndefinedColumn),
        ("select no_such_function(1)", errors.UndefinedFunction),
        ("create table t (id bigint primary key)", errors.DuplicateTable),
        ("drop table nowhere", errors.UndefinedTable),
        ("create table nowhere.t (id bigint primary key)", errors.InvalidSchemaName),
        ("insert into t values (1, 2)", errors.UniqueViolation),
        ("insert into t values (2, null)", errors.NotNullViolation),
        ("insert into t (id, n) values (3, 'many')", errors.InvalidTextRepresentation),
        ("insert into t values (3, 1, 70000)", errors.NumericValueOutOfRange),
        ("select 1 / 0", errors.DivisionByZero),
    ]
    for sql, expected in cases:
        with pytest.raises(expected):
            db.execute(sql)
    with pytest.raises(errors.UndefinedTable) as caught:
        db.execute("select 1\nfrom nowhere")
    assert int(caught.value.diag.statement_position) == 15
    assert db.execute("select count(*) from t").fetchone() == (1,)


def test_range_partitions_come_and_go(server):
    create = """
    create table metrics (host text, at bigint, n bigint, primary key (host, at))
    partition by hash (host) partitions 2, range (at) (partition values < 10, partition 10 <= values < 20)
    """
    insert = "insert into metrics values (%s, %s, %s)"
    with server.sql() as db:
        db.execute(create)
        for at in range(20):
            db.execute(insert, (f"h{at % 3}", at, at))
        with pytest.raises(errors.CheckViolation, match="no partition of table"):
            db.execute(insert, ("h", 20, 0))
        db.execute("alter table metrics drop range partition values < 10")
        db.execute("alter table metrics add range partition 20 <= values")
        db.execute(insert, ("h", 20, 20))
        with pytest.raises(errors.DuplicateTable):
            db.execute("alter table metrics add range partition 20 <= values")
    server.kill()
    server.start()
    with server.sql() as db:
        shown = db.execute("show range partitions metrics").fetchall()
        assert shown == [("10 <= VALUES < 20",), ("20 <= VALUES",)]
        assert db.execute("select at from metrics order by at").fetchall() == [(at,) for at in range(10, 21)]


def test_cancel_stops_a_query(db):
    endless = """
        select count(*) from generate_series(1, 100000) a(value), generate_series(1, 100000) b(value)
        where a.value * b.value % 7 = 3
    """

    with cancelling(db), pytest.raises(errors.QueryCanceled):
        db.execute(endless)
    assert db.execute("select 1").fetchone() == (1,)


def test_rows_come_in_portions(db):
    rows = db.cursor().stream("select value from generate_series(1, 50000) as g(value)", size=1000)
    assert sum(value for (value,) in rows) == 50_000 * 50_001 // 2


def test_a_block_without_autocommit(server):
    with psycopg.connect(f"host=127.0.0.1 port={server.ports['postgres']} user=ada dbname=shop") as connection:
        connection.execute("create table t (id bigint primary key)")
        connection.commit()
        connection.execute("insert into t values (1)")
        connection.commit()
        assert connection.execute("select count(*) from t").fetchone() == (1,)
        connection.rollback()
        connection.execute("insert into t values (2)")
        connection.rollback()
        assert connection.execute("select count(*) from t").fetchone() == (1,)
    assert connection.closed


def test_an_error_says_that_a_change_of_partitions_before_it_stands(db):
    """Of several statements in one message, a change of partitions is no part of their transaction; others of the catalog are."""
    db.execute("create table t (id bigint primary key)")
    db.execute("create table p (id bigint primary key) partition by range (id) (partition values < 10)")
    with pytest.raises(errors.UndefinedColumn) as raised:
        db.execute("insert into t values (1); alter table p add range partition 10 <= values; insert into t values (2); select nope")
    assert "and what came before it stand" in raised.value.diag.message_hint
    with pytest.raises(errors.UndefinedColumn) as raised:
        db.execute("create table v (id bigint primary key); insert into v values (1); drop table t; select nope")
    assert raised.value.diag.message_hint is None
    with pytest.raises(errors.UndefinedTable):
        db.execute("select * from v")
    db.execute("create table u (id bigint primary key); alter table u add column n bigint")
    with pytest.raises(errors.UniqueViolation) as raised:
        db.execute("insert into t values (3); insert into t values (1)")
    assert raised.value.diag.message_hint is None
    assert db.execute("select id from t order by id").fetchall() == [(1,)]
    assert db.execute("select id, n from u").fetchall() == []


def test_columns_are_called_as_in_postgres(db):
    row = db.cursor(row_factory=dict_row).execute("select count(*), 1 as one, now() is null, 'x'::text").fetchone()
    assert row == {"count": 1, "one": 1, "?column?": False, "text": "x"}


def test_json_functions_and_lists(db):
    assert db.execute("select '{\"a\": [1, 2]}'::json").fetchone() == ({"a": [1, 2]},)
    assert db.cursor(binary=True).execute("select array[1, 2, null], array['a b', 'c']").fetchone() == (
        [1, 2, None],
        ["a b", "c"],
    )


def test_settings_reach_client_and_server(server):
    with server.sql(application_name="here") as db:
        assert db.info.server_version == 150000
        assert db.info.parameter_status("application_name") == "here"
        assert db.info.parameter_status("server_version").startswith("15.0 (Oribi ")
        db.execute("set application_name = 'there'")
        assert db.info.parameter_status("application_name") == "there"
        assert db.execute("show application_name").fetchone() == ("there",)
        assert db.execute("select version()").fetchone()[0].startswith("PostgreSQL 15.0 (Oribi ")


def test_typeinfo_is_found_in_the_catalog(db):
    assert psycopg.types.TypeInfo.fetch(db, "uuid").oid == 2950
    assert psycopg.types.TypeInfo.fetch(db, "nothing_of_the_kind") is None


def psql(server, *commands, status=0):
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed")
    arguments = [argument for command in commands for argument in ("-c", command)]
    done = subprocess.run(
        ["psql", "-X", "-h", "127.0.0.1", "-p", str(server.ports["postgres"]), "-U", "ada", "-d", "oribi", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PAGER": "cat"},
    )
    assert done.returncode == status and "ERROR" not in done.stderr, done.stderr
    return done.stdout


def test_psql_describes(server):
    psql(
        server,
        "create schema shop",
        "create table orders (id bigint, line int, price numeric(15,2) not null, status text default 'new',"
        " primary key (id, line))",
        "create table shop.items (sku text primary key)",
    )
    for command in [r"\d", r"\dt", r"\dt+", r"\d+"]:
        lines = psql(server, command).splitlines()
        assert "orders | table | ada" in lines[3] and "items" not in lines[3], lines
    described = psql(server, r"\d orders")
    assert "price  | numeric(15,2) |           | not null |" in described
    assert "status | text          |           |          | 'new'::text" in described
    assert '"orders_pkey" PRIMARY KEY, btree (id, line)' in described
    assert "Access method: oribi" in psql(server, r"\d+ shop.items")
    assert "| orders_pkey | index | ada   | orders" in psql(server, r"\di")
    assert [line.split("|")[0].strip() for line in psql(server, r"\dn").splitlines()[3:6]] == ["default", "public", "shop"]
    assert psql(server, r"\l").splitlines()[3].startswith(" oribi | ada   | UTF8")
    assert "Superuser" in psql(server, r"\du")
    assert "(0 rows)" in psql(server, r"\df")
    for command in [r"\dn+", r"\l+", r"\dv", r"\ds", r"\dm", r"\dp", r"\db", r"\dx", r"\dT", r"\dD", r"\dO", r"\dt *.*"]:
        psql(server, command)
    assert psql(server, r"\d nowhere", status=1) == ""


def test_psql_shows_where_an_error_is(server):
    done = subprocess.run(
        ["psql", "-X", "-h", "127.0.0.1", "-p", str(server.ports["postgres"]), "-U", "ada", "-d", "oribi"]
        + ["-v", "VERBOSITY=verbose", "-c", "select * from nowhere"],
        capture_output=True,
        text=True,
    )
    assert 'ERROR:  42P01: relation "nowhere" does not exist\nLINE 1: select * from nowhere\n                      ^' in done.stderr


def test_limits_are_parameters(db):
    db.execute("create table numbered (id bigint primary key)")
    db.execute("insert into numbered select n from generate_series(1, 10) as g(n)")
    paged = "select id from numbered order by id limit %s offset %s"
    for binary in [False, True]:
        cursor = db.cursor(binary=binary)
        for limit, offset, ids in [(2, 3, [4, 5]), (None, 8, [9, 10]), (3, None, [1, 2, 3]), (70_000, 9, [10]), (0, 0, [])]:
            assert [row[0] for row in cursor.execute(paged, (limit, offset), prepare=True)] == ids
        assert cursor.execute("select id from numbered order by id limit %s", ("2",)).fetchall() == [(1,), (2,)]
        with pytest.raises(psycopg.Error) as refused:
            cursor.execute(paged, (-1, 0))
        assert refused.value.sqlstate == "2201W"
        with pytest.raises(psycopg.Error) as refused:
            cursor.execute(paged, (1, -1))
        assert refused.value.sqlstate == "2201X"
    fetched = db.execute("select id from numbered order by id offset %s rows fetch first (%s) rows only", (1, 2))
    assert fetched.fetchall() == [(2,), (3,)]
    after = db.execute("select id from numbered where id > %s order by id limit %s", (4, 1))
    assert after.fetchall() == [(5,)]
