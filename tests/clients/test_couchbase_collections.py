"""Buckets are schemas and collections are tables; users come in with their password; other doors see the same rows."""

from datetime import timedelta

import pytest
from couchbase import exceptions as ex
from couchbase import subdocument as sd
from couchbase.diagnostics import PingState, ServiceType
from couchbase.options import GetOptions, InsertOptions, PingOptions, ReplaceOptions, UpsertOptions, WaitUntilReadyOptions
from couchbase.transcoder import RawBinaryTranscoder

from conftest import Server
from couchbase_sdk import SHORT, cluster, cluster_of, collection, key, module_server  # noqa: F401


@pytest.fixture(scope="module")
def tables(module_server):
    """Statements that have made the tables of this module."""
    statements = [
        "create schema shop",
        "create table shop.orders (id bigint primary key, total numeric(12,2), note text, until timestamp) "
        "with (expires_at = 'until')",
        'create table shop."crm.people" (id text primary key, name text not null, age int)',
    ]
    with module_server.sql() as sql:
        for statement in statements:
            sql.execute(statement)
    return module_server


def test_a_bucket_that_is_no_schema_is_refused(cluster):
    with pytest.raises(ex.CouchbaseException) as refused:
        cluster.bucket("nothing").default_collection().get("k")
    assert isinstance(refused.value, (ex.BucketNotFoundException, ex.UnAmbiguousTimeoutException, ex.AuthenticationException))


def test_typed_rows_are_documents(tables, cluster):
    orders = cluster.bucket("shop").collection("orders")
    orders.upsert("42", {"total": 12.5, "note": "first"})
    assert orders.get("42").content_as[dict] == {"id": 42, "total": 12.5, "note": "first", "until": None}
    with tables.sql() as sql:
        assert sql.execute("select total, note from shop.orders where id = 42").fetchall()[0][1] == "first"
        sql.execute("update shop.orders set note = 'second' where id = 42")
    found = orders.get("42")
    assert found.content_as[dict]["note"] == "second"
    orders.replace("42", {"note": "third"}, ReplaceOptions(cas=found.cas))
    with pytest.raises(ex.CasMismatchException):
        orders.replace("42", {"note": "late"}, ReplaceOptions(cas=found.cas))
    orders.mutate_in("42", [sd.upsert("note", "fourth")])
    assert orders.lookup_in("42", [sd.get("note")]).content_as[str](0) == "fourth"
    with pytest.raises(ex.DocumentExistsException):
        orders.insert("42", {}, InsertOptions())
    with pytest.raises(ex.CouchbaseException):
        orders.upsert("42", {"no_such_column": 1})
    with pytest.raises(ex.CouchbaseException):
        orders.upsert("not a number", {})
    with pytest.raises(ex.CouchbaseException):
        orders.binary().append("42", "x")
    assert orders.exists("42").exists
    locked = orders.get_and_lock("42", timedelta(seconds=30))
    orders.unlock("42", locked.cas)
    orders.remove("42")
    with pytest.raises(ex.DocumentNotFoundException):
        orders.get("42")


def test_the_expiry_of_a_row_is_its_column(tables, cluster):
    orders = cluster.bucket("shop").collection("orders")
    orders.upsert("7", {"note": "x"}, UpsertOptions(expiry=timedelta(hours=1)))
    expires = orders.get("7", GetOptions(with_expiry=True)).expiry_time
    assert expires is not None
    orders.upsert("7", {"note": "y"}, UpsertOptions(preserve_expiry=True))
    assert orders.get("7", GetOptions(with_expiry=True)).expiry_time == expires
    with tables.sql() as sql:
        assert sql.execute("select until from shop.orders where id = 7").fetchone()[0] is not None


def test_collections_of_scopes(tables, cluster):
    bucket = cluster.bucket("shop")
    people = bucket.scope("crm").collection("people")
    people.upsert("ann", {"name": "Ann", "age": 30})
    assert people.get("ann").content_as[dict] == {"id": "ann", "name": "Ann", "age": 30}
    many = {f"p{i}": {"name": f"P{i}"} for i in range(100)}
    assert people.upsert_multi(many).all_ok
    with tables.sql() as sql:
        assert sql.execute('select count(*) from shop."crm.people"').fetchone()[0] == 101


@pytest.mark.parametrize("scope, name", [("crm", "nobody"), ("nowhere", "people"), ("_default", "nothing")])
def test_collections_that_are_no_tables_are_refused(tables, cluster, scope, name):
    missing = cluster.bucket("shop").scope(scope).collection(name)
    with pytest.raises((ex.CollectionNotFoundException, ex.ScopeNotFoundException, ex.UnAmbiguousTimeoutException)):
        missing.get("k", GetOptions(timeout=SHORT))


def test_a_schema_without_a_default_collection_says_so(tables, cluster):
    default = cluster.bucket("shop").default_collection()
    with pytest.raises((ex.CollectionNotFoundException, ex.UnAmbiguousTimeoutException)):
        default.get("k", GetOptions(timeout=SHORT))


def test_memcached_and_sql_see_the_same_documents(module_server, collection, key):
    raw = RawBinaryTranscoder()
    collection.upsert(key, b"from couchbase", UpsertOptions(transcoder=raw))
    memcached = module_server.memcached()
    assert memcached.get(key) == b"from couchbase"
    assert memcached.set(key, b"from memcached", noreply=False)
    with module_server.sql() as sql:
        row = sql.execute("select value from default.kv where key = %s", [key.encode()]).fetchone()
    assert bytes(row[0]) == b"from memcached"
    # A lock binds memcached's clients too.
    locked = collection.get_and_lock(key, timedelta(seconds=30), transcoder=raw)
    with pytest.raises(Exception, match="locked"):
        memcached.set(key, b"nobody may", noreply=False)
    collection.unlock(key, locked.cas)
    assert memcached.set(key, b"anybody may", noreply=False)


def test_ping_and_diagnostics(cluster, module_server):
    bucket = cluster.bucket("default")
    cluster.wait_until_ready(timedelta(seconds=20), WaitUntilReadyOptions(service_types=[ServiceType.KeyValue]))
    report = bucket.ping(PingOptions(service_types=[ServiceType.KeyValue]))
    endpoints = report.endpoints[ServiceType.KeyValue]
    assert endpoints and all(endpoint.state == PingState.OK for endpoint in endpoints)
    assert cluster.diagnostics().endpoints


def test_users_come_in_with_their_password(folder):
    secret = folder / "password"
    secret.write_text("s3cret, with = signs\n")
    server = Server(folder / "data", "--couchbase-user", "ann", "--couchbase-password-file", str(secret))
    try:
        with cluster_of(server, "ann", "s3cret, with = signs") as cluster:
            collection = cluster.bucket("default").default_collection()
            collection.upsert("k", 1)
            assert collection.get("k").value == 1
        for user, password in [("ann", "wrong"), ("bob", "s3cret, with = signs"), ("ann", "")]:
            with pytest.raises((ex.AuthenticationException, ex.UnAmbiguousTimeoutException)):
                with cluster_of(server, user, password) as cluster:
                    cluster.bucket("default").default_collection().get("k", GetOptions(timeout=SHORT))
    finally:
        assert server.stop() == 0


def test_documents_survive_a_restart(folder):
    server = Server(folder / "data")
    try:
        with cluster_of(server) as cluster:
            collection = cluster.bucket("default").default_collection()
            cas = collection.upsert("k", {"a": 1}).cas
        server.restart()
        with cluster_of(server) as cluster:
            found = cluster.bucket("default").default_collection().get("k")
            assert found.content_as[dict] == {"a": 1} and found.cas == cas
    finally:
        assert server.stop() == 0
