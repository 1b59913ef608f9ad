"""The memcached door with pymemcache, unmodified, and the same rows through SQL."""

import datetime
import json
import threading
import time

import pytest
from pymemcache.client.base import Client, PooledClient
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError
from pymemcache.serde import pickle_serde


def test_every_operation_of_the_client(server):
    cache = server.memcached()
    assert cache.set("k", b"one", expire=100, flags=7, noreply=False)
    assert cache.get("k") == b"one"
    assert cache.get("absent") is None
    assert not cache.add("k", b"two", noreply=False)
    assert cache.add("added", b"a", noreply=False)
    assert cache.replace("k", b"two", noreply=False)
    assert not cache.replace("absent", b"x", noreply=False)
    assert cache.append("k", b"!", noreply=False) and cache.prepend("k", b"?", noreply=False)
    assert cache.get("k") == b"?two!"
    value, cas = cache.gets("k")
    assert cache.cas("k", b"three", cas, noreply=False) is True
    assert cache.cas("k", b"four", cas, noreply=False) is False
    assert cache.cas("absent", b"four", cas, noreply=False) is None
    assert cache.set_many({"a": b"1", "b": b"2", "c": b"3"}, noreply=False) == []
    assert cache.get_many(["a", "b", "z", "c"]) == {"a": b"1", "b": b"2", "c": b"3"}
    assert set(cache.gets_many(["a", "z"])) == {"a"}
    assert cache.incr("a", 41) == 42 and cache.decr("a", 50) == 0 and cache.incr("absent", 1) is None
    assert cache.touch("b", 100, noreply=False) and not cache.touch("absent", 100, noreply=False)
    assert cache.delete("b", noreply=False) and not cache.delete("b", noreply=False)
    assert cache.delete_many(["a", "c"], noreply=False)
    assert cache.version().startswith(b"1.6.18")
    assert cache.stats()[b"cmd_set"] > 0 and b"item_size_max" in cache.stats("settings")
    assert cache.flush_all(noreply=False)
    assert cache.get("k") is None
    cache.quit()


def test_objects_go_through_the_clients_own_encoding(server):
    cache = server.memcached(serde=pickle_serde)
    value = {"a": [1, 2.5, None], "b": "ü" * 1000}
    assert cache.set("object", value, noreply=False)
    assert cache.get("object") == value
    assert cache.get_many(["object"]) == {"object": value}


def test_refusals_are_errors_of_the_client(server):
    cache = server.memcached()
    with pytest.raises(MemcacheServerError, match="object too large"):
        cache.set("large", b"x" * 2_000_000, noreply=False)
    cache.set("word", b"x", noreply=False)
    with pytest.raises(MemcacheClientError, match="non-numeric"):
        cache.incr("word", 1)


def test_documents_survive_a_restart_and_a_kill(server):
    cache = server.memcached()
    documents = {f"k{i}": bytes([i]) * i for i in range(200)}
    cache.set_many(documents, noreply=False)
    _, cas = cache.gets("k7")
    server.restart()
    cache = server.memcached()
    assert cache.get_many(documents) == documents
    assert cache.cas("k7", b"new", cas, noreply=False) is True
    # Written through the operating system before it was answered: a killed process loses nothing.
    server.kill()
    server.start()
    assert server.memcached().get("k7") == b"new"


def test_documents_expire(server):
    cache = server.memcached()
    cache.set("short", b"x", expire=1, noreply=False)
    cache.set("long", b"x", expire=100, noreply=False)
    assert cache.get("short") == b"x"
    deadline = time.monotonic() + 30
    while cache.get("short") is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert cache.get("long") == b"x"
    with server.sql() as sql:
        assert sql.execute("select count(*) from default.kv").fetchone() == (1,)


def test_sql_and_memcached_see_the_same_documents(server):
    cache = server.memcached()
    cache.set("greeting", b"hello", flags=5, noreply=False)
    with server.sql() as sql:
        row = sql.execute("select key, value, flags, expires_at, cas from default.kv").fetchone()
        assert row[:4] == (b"greeting", b"hello", 5, None)
        assert cache.gets("greeting")[1] == str(row[4]).encode()
        sql.execute("update default.kv set value = 'bye'::bytea where key = 'greeting'::bytea")
        assert cache.get("greeting") == b"bye"
        sql.execute("delete from default.kv where key = 'greeting'::bytea")
        assert cache.get("greeting") is None


def test_a_value_that_sql_made_longer_than_the_limit_is_a_document_like_any_other(server):
    cache = server.memcached()
    value = b"x" * 2_000_000
    with server.sql() as sql:
        sql.execute("insert into default.kv (key, value, flags) values (%s, %s, 0)", [b"long", value])
    assert cache.get("long") == value
    assert cache.raw_command("mg long T100 s t").startswith(b"HD s2000000 t100")
    assert cache.touch("long", 100, noreply=False)
    assert cache.raw_command("md long I").startswith(b"HD")


def test_an_expiry_beyond_all_calendars_is_never(server):
    cache = server.memcached()
    cache.set("eternal", b"x", expire=2**63 - 1, noreply=False)
    cache.set("last", b"x", expire=253_402_300_799, noreply=False)
    with server.sql() as sql:
        rows = dict(sql.execute("select convert_from(key, 'UTF8'), expires_at from default.kv").fetchall())
    assert rows == {"eternal": None, "last": datetime.datetime(9999, 12, 31, 23, 59, 59)}


def test_rows_are_json_under_their_path(server):
    cache = server.memcached()
    with server.sql() as sql:
        sql.execute(
            "create table orders (region text, id bigint, total numeric(12,2) not null, status text default 'new', "
            "placed timestamp, primary key (region, id))"
        )
        assert cache.get("public/orders/eu/42") is None
        assert cache.set("public/orders/eu/42", '{"total": 12.5, "placed": "2024-01-02T03:04:05"}', noreply=False)
        row = sql.execute("select * from orders").fetchone()
        assert [str(value) for value in row] == ["eu", "42", "12.50", "new", "2024-01-02 03:04:05"]
        sql.execute("update orders set status = 'paid' where id = 42")
        assert json.loads(cache.get("public/orders/eu/42")) == {
            "region": "eu",
            "id": 42,
            "total": 12.5,
            "status": "paid",
            "placed": "2024-01-02T03:04:05",
        }
        with pytest.raises(MemcacheClientError, match='column "total"'):
            cache.set("public/orders/eu/43", '{"total": "many"}', noreply=False)
        with pytest.raises(MemcacheClientError, match="primary key has 2 columns"):
            cache.get("public/orders/42")
        assert not cache.add("public/orders/eu/42", '{"total": 1}', noreply=False)
        assert cache.delete("public/orders/eu/42", noreply=False)
        assert sql.execute("select count(*) from orders").fetchone() == (0,)


def test_counters_are_exact_under_contention(server):
    pool = PooledClient(("127.0.0.1", server.ports["memcached"]), max_pool_size=8)
    pool.set("n", b"0", noreply=False)
    pool.set("list", b"", noreply=False)

    def work(name):
        for _ in range(100):
            pool.incr("n", 1)
            while True:
                value, cas = pool.gets("list")
                if pool.cas("list", value + name, cas, noreply=False):
                    break

    threads = [threading.Thread(target=work, args=(name,)) for name in (b"a", b"b", b"c", b"d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pool.get("n") == b"400"
    assert sorted(pool.get("list")) == sorted(b"abcd" * 100)
    pool.close()


def test_a_hundred_connections_are_served(server):
    clients = [server.memcached() for _ in range(100)]
    for i, client in enumerate(clients):
        client.set(f"k{i}", str(i), noreply=False)
    for i, client in enumerate(clients):
        assert client.get(f"k{99 - i}") == str(99 - i).encode()
    assert isinstance(clients[0], Client)
