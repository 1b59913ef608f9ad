"""Tables in a bucket of an S3-compatible server: they come back from it, also where requests fail in between; it has one owner."""

import pathlib
import socket
import struct
import subprocess
import time
import urllib.request

import adbc_driver_flightsql.dbapi
import kudu_frames
import psycopg
import pytest
import versitygw
from conftest import ORIBI, Server
from couchbase.exceptions import CouchbaseException, DocumentNotFoundException
from couchbase_sdk import SHORT, cluster_of
from pymemcache.exceptions import MemcacheServerError

STORE = "s3://tables/some/prefix"


@pytest.fixture
def gateway(folder):
    started = versitygw.Gateway(folder / "s3")
    yield started
    started.stop()


@pytest.fixture
def endpoint(gateway, monkeypatch):
    for name, value in versitygw.KEYS.items():
        monkeypatch.setenv(name, value)
    # Rows do not leave the machine by way of a proxy.
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://192.0.2.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)

    def use(port):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")

    use(gateway.port)
    return use


def oribi(*arguments):
    return subprocess.run([ORIBI, *map(str, arguments)], capture_output=True, text=True)


def metric(server, name):
    page = urllib.request.urlopen(f"http://127.0.0.1:{server.ports['http']}/metrics").read().decode()
    return next(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name + " "))


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


def fill(connection, first, upto):
    rows = f"generate_series({first}, {upto}) as g(i)"
    connection.execute(f"insert into t select i, i % 100, repeat('v', 500) from {rows}")


def figures(connection):
    return connection.execute("select count(*), sum(id), sum(n), sum(length(v)) from t").fetchone()


def test_the_doctor_finds_nothing(gateway, endpoint):
    done = oribi("doctor", "--store", STORE)
    assert done.returncode == 0, done.stderr
    assert "exactly one has won" in done.stdout
    assert list((gateway.folder / "tables").glob("some/prefix/doctor/*/*")) == []


def test_what_the_store_refuses_is_said(gateway, endpoint, monkeypatch):
    done = oribi("doctor", "--store", "s3://no-such-bucket")
    assert done.returncode == 1 and "NoSuchBucket" in done.stderr
    done = oribi("doctor", "--store", "gs://tables")
    assert done.returncode == 1 and "is neither s3://" in done.stderr
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    done = oribi("doctor", "--store", STORE)
    assert done.returncode == 1 and "403" in done.stderr, done.stderr
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://192.0.2.1:9000")
    done = oribi("doctor", "--store", STORE)
    assert done.returncode == 1 and "is beyond loopback" in done.stderr
    endpoint(gateway.port)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    done = oribi("doctor", "--store", STORE)
    assert done.returncode == 1 and "needs the variable AWS_SECRET_ACCESS_KEY" in done.stderr


def test_tables_come_back_from_the_bucket(gateway, endpoint, folder):
    server = Server(folder / "data", "--store", STORE, "--store-cache", "8KiB", "--memory", "128MiB")
    connection = server.sql()
    connection.execute("create table t (id bigint primary key, n int, v text)")
    for first in range(1, 60_001, 5_000):
        fill(connection, first, first + 4_999)
    connection.execute("update t set n = n + 1 where id % 3 = 0")
    connection.execute("delete from t where id % 10 = 7")
    before = figures(connection)
    server.restart()
    assert figures(server.sql()) == before
    assert metric(server, "oribi_store_fetches_total") > 0
    # All was read, of which the folder keeps what it may.
    objects = (gateway.folder / "tables/some/prefix/tables").rglob("*.parquet")
    assert sum(path.stat().st_size for path in objects) > 16 << 10
    wait_until(lambda: metric(server, "oribi_store_cache_used_bytes") <= 8 << 10)
    assert metric(server, "oribi_store_evictions_total") > 0
    # Killed, with files that nobody has told of.
    fill(server.sql(), 200_001, 205_000)
    before = figures(server.sql())
    server.kill()
    server.start()
    assert figures(server.sql()) == before
    # Another folder is refused, until the tables are restored to it.
    done = oribi("serve", "--data", folder / "other", "--store", STORE, "--postgres", "127.0.0.1:0", "--http", "off",
                 "--memcached", "off", "--couchbase", "off", "--kudu-master", "off", "--kudu-tserver", "off", "--flight", "off")
    assert done.returncode == 1 and "belongs to another owner" in done.stderr, done.stderr
    assert server.stop() == 0, server.log_text()
    done = oribi("restore", "--store", STORE, "--data", folder / "found")
    assert done.returncode == 0, done.stderr
    found = Server(folder / "found")
    assert figures(found.sql()) == before
    assert found.stop() == 0


def has_met_a_fault(connection, servers):
    """If not, there is something more to be written to the store."""
    connection.execute("update t set n = n + 0 where id = 1")
    time.sleep(0.3)
    return sum(metric(server, "oribi_store_retries_total") for server in servers) > 0


def test_faults_in_between_change_nothing(gateway, endpoint, folder):
    meddler = versitygw.Meddler(gateway.port, 10)
    endpoint(meddler.port)
    server = Server(folder / "data", "--store", STORE, "--store-cache", "64KiB", "--memory", "64MiB", "--flush-quiet-ms", "50")
    connection = server.sql()
    connection.execute("create table t (id bigint primary key, n int, v text)")
    for first in range(1, 30_001, 1_000):
        fill(connection, first, first + 999)
        connection.execute("update t set n = n + 1 where id %% 7 = 0 and id < %s", (first,))
    before = figures(connection)
    wait_until(lambda: has_met_a_fault(connection, [server]))
    assert metric(server, "oribi_store_failures_total") == 0
    server.kill()
    server.start()
    assert figures(server.sql()) == before
    assert server.stop() == 0, server.log_text()
    meddler.close()


SHARED = [
    "select count(*), sum(id), sum(n), sum(length(v)) from t",
    "select n, count(*), sum(id), min(v) from t group by n order by n",
    "select count(*), sum(t.id), sum(u.id) from t join u on t.n = u.n where u.id % 3 = 0",
    "select u.n, count(*), sum(t.n + u.id) from t join u on t.id = u.id group by u.n order by u.n",
    "select count(*) from t where id not in (select id from u)",
]


def test_compute_nodes_read_the_bucket_by_themselves(gateway, endpoint, folder):
    """And answer as the owner does alone, while requests fail in between."""
    meddler = versitygw.Meddler(gateway.port, 20)
    endpoint(meddler.port)
    owner = Server(folder / "data", "--store", STORE, "--nodes", "127.0.0.1:0", "--nodes-rows-min", "1",
                   "--memory", "128MiB", "--flush-quiet-ms", "50")  # fmt: skip
    connection = owner.sql()
    # Of one file with one row group there would be nothing to share.
    connection.execute("create table t (id bigint primary key, n int, v text) partition by hash (id) partitions 4")
    connection.execute("create table u (id bigint primary key, n int) partition by hash (id) partitions 4")
    for first in range(1, 80_001, 5_000):
        fill(connection, first, first + 4_999)
    connection.execute("insert into u select i * 3, i % 100 from generate_series(1, 5000) as g(i)")
    connection.execute("update t set n = n + 1 where id % 7 = 0")
    connection.execute("delete from t where id % 10 = 7")
    nodes = [
        Server(folder / name, "--store", STORE, "--store-cache", "64KiB", "--owner", f"127.0.0.1:{owner.ports['nodes']}",
               "--nodes", "127.0.0.1:0", "--node", name)
        for name in ("a", "b")
    ]  # fmt: skip
    wait_until(lambda: connection.execute(f"explain {SHARED[0]}").fetchone()[0].startswith("nodes: 2 ("))
    for turn in range(3):
        # Files come and go meanwhile, and some rows are in memory.
        fill(connection, 100_001 + 1_000 * turn, 101_000 + 1_000 * turn)
        connection.execute("update t set n = n - 1 where id %% 11 = %s", (turn,))
        for statement in SHARED:
            shared = connection.execute(statement).fetchall()
            connection.execute("set oribi.nodes = 'off'")
            assert shared == connection.execute(statement).fetchall(), statement
            connection.execute("set oribi.nodes = 'on'")
    assert metric(owner, "oribi_exchange_queries_total") > 0
    assert all(metric(node, "oribi_store_fetches_total") > 0 for node in nodes)
    wait_until(lambda: has_met_a_fault(connection, [owner, *nodes]))
    for server in [*nodes, owner]:
        assert server.stop() == 0, server.log_text()
    meddler.close()


def test_a_store_that_is_down_is_named_and_nothing_is_lost(gateway, endpoint, folder):
    server = Server(folder / "data", "--store", STORE, "--memory", "128MiB", "--flush-quiet-ms", "100")
    connection = server.sql()
    connection.execute("create table t (id bigint primary key, n int, v text)")
    gateway.stop()
    fill(connection, 1, 8_000)
    wait_until(lambda: metric(server, "oribi_store_failing_seconds") > 0)
    assert figures(connection)[0] == 8_000
    gateway.start()
    wait_until(lambda: metric(server, "oribi_store_failing_seconds") == 0)
    assert server.stop() == 0, server.log_text()
    assert "which is tried again" in server.log_text()
    server.start()
    assert figures(server.sql())[0] == 8_000


def test_a_file_in_parts_and_a_crowd_of_files(gateway, endpoint, folder):
    """Of more than 8 MiB, and more than a page of a list has."""
    server = Server(folder / "data", "--store", STORE, "--store-cache", "1MiB", "--memory", "128MiB")
    connection = server.sql()
    connection.execute("create table t (id bigint primary key, v text)")
    rows = "generate_series(1, 30000) as g(i)"
    noise = " || ".join(f"md5((i * {n})::text)" for n in range(2, 22))
    connection.execute(f"insert into t select i, {noise} from {rows}")
    figures = "select count(*), sum(length(v)), min(md5(v)), max(md5(v)) from t"
    before = connection.execute(figures).fetchone()
    server.restart()
    assert server.sql().execute(figures).fetchone() == before
    assert max(path.stat().st_size for path in (gateway.folder / "tables").rglob("*.parquet")) > 9 << 20
    assert server.stop() == 0, server.log_text()


def binary_get(server, key):
    with socket.create_connection(("127.0.0.1", server.ports["memcached"])) as client:
        client.sendall(struct.pack(">BBHBBHIIQ", 0x80, 0, len(key), 0, 0, 0, len(key), 0, 0) + key)
        return struct.unpack(">BBHBBHIIQ", client.recv(24, socket.MSG_WAITALL))[5]


def test_rows_that_the_store_has_lost_are_not_absent_by_any_door(folder):
    server = Server(folder / "data", "--store", f"file://{folder}/store", "--store-cache", "1")
    server.memcached().set("k", "v")
    server.sql().execute("create table t (k bigint primary key, v text)")
    server.sql().execute("insert into t values (1, 'v')")
    server.restart()
    assert server.memcached().get("k") == b"v" and binary_get(server, b"k") == 0 and binary_get(server, b"z") == 1
    server.restart()
    for where in ("store", "data"):
        for path in pathlib.Path(folder / where).rglob("*.parquet"):
            path.unlink()
    wait_until(lambda: metric(server, "oribi_store_cache_used_bytes") == 0)
    with pytest.raises(MemcacheServerError):
        server.memcached().get("k")
    assert binary_get(server, b"k") == 0x84
    for statement in ("select v from t where k = 1", "select v from t", "update t set v = 'w' where k = 1"):
        with pytest.raises(psycopg.Error) as error:
            server.sql().execute(statement)
        assert error.value.sqlstate == "XX001" and "the store has lost tables/" in str(error.value)
    with cluster_of(server) as cluster, pytest.raises(CouchbaseException) as error:
        cluster.bucket("default").default_collection().get("k", timeout=SHORT)
    assert not isinstance(error.value, DocumentNotFoundException)
    with adbc_driver_flightsql.dbapi.connect(f"grpc://127.0.0.1:{server.ports['flight']}") as flight:
        with pytest.raises(adbc_driver_flightsql.dbapi.Error, match="the store has lost tables/"):
            flight.cursor().execute("select v from t").fetchall()
    with kudu_frames.connect(server) as client:
        # Of the server of tablets, which is the master too.
        client.sendall(kudu_frames.scan(kudu_frames.tablet(client, "t")))
        assert b"the store has lost tables/" in kudu_frames.receive(client)
    server.kill()
