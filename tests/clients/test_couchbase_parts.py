"""Parts of documents through the Couchbase Python SDK: every lookup and every mutation that it offers."""

from datetime import timedelta

import pytest
from couchbase import exceptions as ex
from couchbase import subdocument as sd
from couchbase.durability import DurabilityLevel, ServerDurability
from couchbase.options import GetOptions, LookupInOptions, MutateInOptions, UpsertOptions
from couchbase.subdocument import LookupInMacro, StoreSemantics
from couchbase.transcoder import RawBinaryTranscoder, RawJSONTranscoder

from couchbase_sdk import cluster, collection, key, module_server  # noqa: F401

HOUR = timedelta(hours=1)


def value(collection, key):
    return collection.get(key).content_as[dict]


def test_lookups(collection, key):
    document = {"n": 1, "o": {"deep": {"er": "x"}}, "a": [1, [2, 3], {"b": None}], "esc`d": 1}
    cas = collection.upsert(key, document).cas
    found = collection.lookup_in(
        key,
        [
            sd.get("n"),
            sd.get("o.deep.er"),
            sd.get("a[1][0]"),
            sd.get("a[-1].b"),
            sd.exists("o.deep"),
            sd.exists("o.none"),
            sd.count("a"),
            sd.count("o"),
            sd.get("none"),
            sd.get("n.none"),
        ],
    )
    assert found.cas == cas
    assert found.content_as[int](0) == 1
    assert found.content_as[str](1) == "x"
    assert found.content_as[int](2) == 2
    assert found.content_as[lambda v: v](3) is None
    assert found.exists(4) and not found.exists(5)
    assert (found.content_as[int](6), found.content_as[int](7)) == (3, 1)
    with pytest.raises(ex.PathNotFoundException):
        found.content_as[int](8)
    with pytest.raises(ex.PathMismatchException):
        found.content_as[int](9)
    with pytest.raises(ex.DocumentNotFoundException):
        collection.lookup_in(key + "absent", [sd.get("n")])
    with pytest.raises(ex.InvalidArgumentException):
        collection.lookup_in(key, [sd.get(f"p{i}") for i in range(17)])
    whole = collection.lookup_in(key, [sd.get_full()])
    assert whole.content_as[dict](0) == document


def test_what_is_known_of_a_document(collection, key):
    stored = collection.upsert(key, b'{"a": 1}', UpsertOptions(transcoder=RawJSONTranscoder(), expiry=HOUR))
    macros = [
        LookupInMacro.document(),
        LookupInMacro.expiry_time(),
        LookupInMacro.cas(),
        LookupInMacro.seq_no(),
        LookupInMacro.last_modified(),
        LookupInMacro.is_deleted(),
        LookupInMacro.value_size_bytes(),
        LookupInMacro.rev_id(),
    ]
    found = collection.lookup_in(key, [sd.get(macro, xattr=True) for macro in macros])
    known = found.content_as[dict](0)
    assert known["exptime"] == found.content_as[int](1) > 0
    assert int(found.content_as[str](2), 16) == stored.cas
    assert int(found.content_as[str](3), 16) == stored.mutation_token().sequence_number
    assert int(found.content_as[str](4)) > 0
    assert found.content_as[bool](5) is False
    assert found.content_as[int](6) == 8
    assert known["datatype"] == ["json"] and known["flags"] == 0x2000000


def test_each_mutation(collection, key):
    collection.upsert(key, {"o": {"gone": 1, "old": 1}, "a": [2], "u": [1], "n": 5})
    done = collection.mutate_in(
        key,
        [
            sd.insert("o.new", 1),
            sd.upsert("o.old", "x"),
            sd.replace("n", 6),
            sd.remove("o.gone"),
            sd.array_append("a", 3, 4),
            sd.array_prepend("a", 1),
            sd.array_insert("a[1]", 1.5),
            sd.array_addunique("u", 2),
            sd.counter("c", 10),
            sd.increment("c", 5),
            sd.decrement("c", 1),
            sd.upsert("p.q.r", 1, create_parents=True),
            sd.array_append("made.list", 1, create_parents=True),
        ],
    )
    assert value(collection, key) == {
        "o": {"new": 1, "old": "x"},
        "a": [1, 1.5, 2, 3, 4],
        "u": [1, 2],
        "n": 6,
        "c": 14,
        "p": {"q": {"r": 1}},
        "made": {"list": [1]},
    }
    assert done.cas == collection.get(key).cas == done.mutation_token().sequence_number
    assert [done.content_as[int](i) for i in (8, 9, 10)] == [10, 15, 14]


@pytest.mark.parametrize(
    "spec, error",
    [
        (sd.insert("n", 1), ex.PathExistsException),
        (sd.replace("none", 1), ex.PathNotFoundException),
        (sd.remove("none"), ex.PathNotFoundException),
        (sd.upsert("x.y.z", 1), ex.PathNotFoundException),
        (sd.upsert("n.x", 1), ex.PathMismatchException),
        (sd.array_append("n", 1), ex.PathMismatchException),
        (sd.array_addunique("u", 1), ex.PathExistsException),
        (sd.array_insert("u[7]", 1), ex.PathNotFoundException),
        (sd.counter("t", 1), ex.PathMismatchException),
        (sd.upsert("a..b", 1), ex.PathInvalidException),
    ],
)
def test_a_mutation_that_fails_changes_nothing(collection, key, spec, error):
    before = {"n": 1, "u": [1], "t": "text"}
    collection.upsert(key, before)
    with pytest.raises(error):
        collection.mutate_in(key, [sd.upsert("done", 1), spec])
    assert value(collection, key) == before


def test_store_semantics(collection, key):
    with pytest.raises(ex.DocumentNotFoundException):
        collection.mutate_in(key, [sd.upsert("a", 1)])
    upsert = MutateInOptions(store_semantics=StoreSemantics.UPSERT)
    collection.mutate_in(key, [sd.upsert("a.b", 1)], upsert)
    collection.mutate_in(key, [sd.upsert("c", 2)], upsert)
    assert value(collection, key) == {"a": {"b": 1}, "c": 2}
    insert = MutateInOptions(store_semantics=StoreSemantics.INSERT)
    with pytest.raises(ex.DocumentExistsException):
        collection.mutate_in(key, [sd.upsert("a", 1)], insert)
    collection.mutate_in(key + "2", [sd.upsert("a", 1)], insert)
    assert value(collection, key + "2") == {"a": 1}
    cas = collection.get(key).cas
    collection.mutate_in(key, [sd.upsert("d", 1)], MutateInOptions(cas=cas))
    with pytest.raises(ex.CasMismatchException):
        collection.mutate_in(key, [sd.upsert("d", 2)], MutateInOptions(cas=cas))


def test_expiry_and_durability(collection, key):
    def expiry():
        return collection.get(key, GetOptions(with_expiry=True)).expiry_time

    collection.upsert(key, {"a": 1})
    collection.mutate_in(key, [sd.upsert("a", 2)], MutateInOptions(expiry=HOUR))
    before = expiry()
    assert before is not None
    collection.mutate_in(key, [sd.upsert("a", 3)], MutateInOptions(preserve_expiry=True))
    assert expiry() == before
    for level in [DurabilityLevel.MAJORITY, DurabilityLevel.PERSIST_TO_MAJORITY]:
        collection.mutate_in(key, [sd.upsert("a", 4)], MutateInOptions(durability=ServerDurability(level)))
    assert value(collection, key) == {"a": 4}
    collection.lookup_in(key, [sd.get("a")], LookupInOptions(timeout=HOUR))


def test_what_is_no_json_has_no_parts(collection, key):
    collection.upsert(key, b"\x00\x01", UpsertOptions(transcoder=RawBinaryTranscoder()))
    with pytest.raises(ex.DocumentNotJsonException):
        collection.mutate_in(key, [sd.upsert("a", 1)])
    found = collection.lookup_in(key, [sd.get("a")])
    with pytest.raises(ex.DocumentNotJsonException):
        found.content_as[int](0)


def test_extended_attributes_of_users_are_refused_by_name(collection, key):
    collection.upsert(key, {"a": 1})
    for refused in [
        lambda: collection.mutate_in(key, [sd.upsert("mine", 1, xattr=True)]),
        lambda: collection.lookup_in(key, [sd.get("mine", xattr=True)]),
    ]:
        with pytest.raises(ex.UnsupportedOperation):
            refused()
    assert value(collection, key) == {"a": 1}


def test_transactions_are_refused_at_once_and_leave_nothing(cluster, collection, key):
    new = key + "-new"
    cas = collection.upsert(key, {"a": 1}).cas
    for what in (
        lambda context: context.replace(context.get(collection, key), {"a": 2}),
        lambda context: context.remove(context.get(collection, key)),
        lambda context: context.insert(collection, new, {"a": 3}),
    ):
        with pytest.raises(ex.TransactionFailed, match="unsupported_operation"):
            cluster.transactions.run(what)
    assert collection.get(key).cas == cas and value(collection, key) == {"a": 1}
    assert not collection.exists(new).exists


def test_replicas_are_the_document_itself(collection, key):
    collection.upsert(key, {"a": 1})
    assert collection.lookup_in_any_replica(key, [sd.get("a")]).content_as[int](0) == 1
    assert [r.content_as[int](0) for r in collection.lookup_in_all_replicas(key, [sd.get("a")])] == [1]
