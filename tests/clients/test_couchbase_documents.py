"""Whole documents through the Couchbase Python SDK: every operation that it offers."""

import random
import time
from datetime import datetime, timedelta, timezone

import pytest
from couchbase import exceptions as ex
from couchbase.durability import ClientDurability, DurabilityLevel, PersistTo, PersistToExtended, ReplicateTo, ServerDurability
from couchbase.kv_range_scan import PrefixScan
from couchbase.options import (
    DecrementOptions,
    DeltaValue,
    GetAndLockOptions,
    GetAndTouchOptions,
    GetOptions,
    IncrementOptions,
    InsertOptions,
    RemoveOptions,
    ReplaceOptions,
    SignedInt64,
    TouchOptions,
    UpsertMultiOptions,
    UpsertOptions,
)
from couchbase.transcoder import JSONTranscoder, LegacyTranscoder, RawBinaryTranscoder, RawJSONTranscoder, RawStringTranscoder

from couchbase_sdk import SHORT, cluster, collection, key, module_server  # noqa: F401

HOUR = timedelta(hours=1)


def expiry(collection, key):
    return collection.get(key, GetOptions(with_expiry=True)).expiry_time


def test_upsert_insert_replace_get_remove(collection, key):
    with pytest.raises(ex.DocumentNotFoundException):
        collection.get(key)
    with pytest.raises(ex.DocumentNotFoundException):
        collection.replace(key, 1)
    first = collection.insert(key, {"n": 1, "text": "grüße"})
    with pytest.raises(ex.DocumentExistsException):
        collection.insert(key, {"n": 2})
    found = collection.get(key)
    assert found.content_as[dict] == {"n": 1, "text": "grüße"} and found.cas == first.cas
    second = collection.replace(key, {"n": 2})
    assert second.cas != first.cas
    third = collection.upsert(key, [1, 2])
    assert collection.get(key).content_as[list] == [1, 2]
    token = third.mutation_token()
    assert token.sequence_number == third.cas and token.bucket_name == "default"
    collection.remove(key)
    with pytest.raises(ex.DocumentNotFoundException):
        collection.remove(key)


def test_a_cas_that_came_too_late_changes_nothing(collection, key):
    old = collection.upsert(key, 1).cas
    new = collection.upsert(key, 2).cas
    with pytest.raises(ex.CasMismatchException):
        collection.replace(key, 3, ReplaceOptions(cas=old))
    with pytest.raises(ex.CasMismatchException):
        collection.remove(key, RemoveOptions(cas=old))
    assert collection.get(key).value == 2
    newer = collection.replace(key, 3, ReplaceOptions(cas=new)).cas
    collection.remove(key, RemoveOptions(cas=newer))
    with pytest.raises(ex.DocumentNotFoundException):
        collection.replace(key, 4, ReplaceOptions(cas=newer))


def test_exists(collection, key):
    assert not collection.exists(key).exists
    cas = collection.upsert(key, 1).cas
    found = collection.exists(key)
    assert found.exists and found.cas == cas


def test_many_at_a_time(collection, key):
    keys = [f"{key}-{i}" for i in range(200)]
    documents = {k: {"i": i, "pad": "x" * i} for i, k in enumerate(keys)}
    assert collection.upsert_multi(documents).all_ok
    found = collection.get_multi(keys + [f"{key}-absent"])
    assert not found.all_ok and len(found.results) == 200
    assert all(found.results[k].value == documents[k] for k in keys)
    assert isinstance(found.exceptions[f"{key}-absent"], ex.DocumentNotFoundException)
    assert not collection.insert_multi({keys[0]: 1, f"{key}-new": 1}).all_ok
    assert collection.replace_multi({k: 7 for k in keys[:10]}).all_ok
    assert all(r.exists for r in collection.exists_multi(keys).results.values())
    assert collection.touch_multi(keys[:10], HOUR).all_ok
    locked = collection.get_and_lock_multi(keys[:10], timedelta(seconds=30))
    assert locked.all_ok
    collection.unlock_multi({k: r.cas for k, r in locked.results.items()})
    assert collection.upsert_multi({k: 8 for k in keys[:10]}).all_ok
    assert collection.remove_multi(keys).all_ok
    counters = [f"{key}-counter-{i}" for i in range(10)]
    binary = collection.binary()
    assert binary.increment_multi(counters).all_ok and binary.decrement_multi(counters).all_ok
    assert collection.upsert_multi({k: "b" for k in keys[:3]}, UpsertMultiOptions(transcoder=RawStringTranscoder())).all_ok
    assert binary.append_multi({k: "c" for k in keys[:3]}).all_ok
    assert binary.prepend_multi({k: "a" for k in keys[:3]}).all_ok
    assert collection.get(keys[0], GetOptions(transcoder=RawStringTranscoder())).value == "abc"


def test_expiry_is_set_shown_and_kept(collection, key):
    collection.upsert(key, 1, UpsertOptions(expiry=HOUR))
    left = expiry(collection, key).replace(tzinfo=timezone.utc) - datetime.now(timezone.utc)
    assert timedelta(minutes=58) < left <= HOUR
    before = expiry(collection, key)
    collection.upsert(key, 2, UpsertOptions(preserve_expiry=True))
    assert expiry(collection, key) == before
    collection.replace(key, 3, ReplaceOptions(preserve_expiry=True))
    assert expiry(collection, key) == before
    collection.replace(key, 4)
    assert expiry(collection, key) is None
    # Beyond thirty days it is a moment, which the SDK works out by itself.
    collection.touch(key, timedelta(days=400))
    left = expiry(collection, key).replace(tzinfo=timezone.utc) - datetime.now(timezone.utc)
    assert timedelta(days=399) < left <= timedelta(days=400)
    collection.touch(key, timedelta(0))
    assert expiry(collection, key) is None
    collection.insert(key + "2", 1, InsertOptions(expiry=HOUR))
    assert expiry(collection, key + "2") is not None
    # What keeps the expiry of nothing has none.
    collection.upsert(key + "3", 1, UpsertOptions(preserve_expiry=True))
    assert expiry(collection, key + "3") is None


def test_what_has_expired_is_gone(collection, key):
    collection.upsert(key, 1, UpsertOptions(expiry=timedelta(seconds=1)))
    deadline = time.monotonic() + 30
    while collection.exists(key).exists:
        assert time.monotonic() < deadline
    with pytest.raises(ex.DocumentNotFoundException):
        collection.get(key)
    collection.insert(key, 2)


def test_get_and_touch(collection, key):
    with pytest.raises(ex.DocumentNotFoundException):
        collection.get_and_touch(key, HOUR)
    collection.upsert(key, {"a": 1})
    found = collection.get_and_touch(key, HOUR, GetAndTouchOptions())
    assert found.content_as[dict] == {"a": 1}
    assert expiry(collection, key) is not None
    assert collection.get(key).cas == found.cas
    with pytest.raises(ex.DocumentNotFoundException):
        collection.touch(key + "absent", HOUR, TouchOptions())


def test_get_with_projections(collection, key):
    collection.upsert(key, {"name": "a", "address": {"city": "b", "zip": 1}, "tags": ["x", "y"]}, UpsertOptions(expiry=HOUR))
    some = collection.get(key, GetOptions(project=["name", "address.city"]))
    assert some.content_as[dict] == {"name": "a", "address": {"city": "b"}}
    both = collection.get(key, GetOptions(project=["name"], with_expiry=True))
    assert both.content_as[dict] == {"name": "a"} and both.expiry_time is not None
    # More than a request may look up: the SDK takes the whole.
    many = {f"m{i}": i for i in range(40)}
    collection.upsert(key, many)
    some = collection.get(key, GetOptions(project=[f"m{i}" for i in range(20)]))
    assert some.content_as[dict] == {f"m{i}": i for i in range(20)}


def test_locks(collection, key):
    with pytest.raises(ex.DocumentNotFoundException):
        collection.get_and_lock(key, timedelta(seconds=10))
    cas = collection.upsert(key, {"a": 1}).cas
    locked = collection.get_and_lock(key, timedelta(seconds=30))
    assert locked.content_as[dict] == {"a": 1} and locked.cas != cas
    # Others read it, without a cas that they could use.
    assert collection.get(key).cas == 2**64 - 1
    for change in [
        lambda: collection.get_and_lock(key, timedelta(seconds=10), GetAndLockOptions(timeout=SHORT)),
        lambda: collection.upsert(key, 1, UpsertOptions(timeout=SHORT)),
        lambda: collection.remove(key, RemoveOptions(timeout=SHORT)),
        lambda: collection.touch(key, HOUR, TouchOptions(timeout=SHORT)),
        lambda: collection.replace(key, 1, ReplaceOptions(cas=cas, timeout=SHORT)),
    ]:
        # Whether the SDK had sent it when its time was over is not the question.
        timeouts = (ex.AmbiguousTimeoutException, ex.UnAmbiguousTimeoutException)
        with pytest.raises((ex.DocumentLockedException, ex.CasMismatchException, *timeouts)):
            change()
    with pytest.raises((ex.DocumentLockedException, ex.CasMismatchException)):
        collection.unlock(key, cas)
    assert collection.get(key).content_as[dict] == {"a": 1}
    collection.unlock(key, locked.cas)
    assert collection.get(key).cas == cas
    with pytest.raises(ex.DocumentNotLockedException):
        collection.unlock(key, locked.cas)
    # Whoever holds the lock changes the document, and that ends the lock.
    locked = collection.get_and_lock(key, timedelta(seconds=30))
    collection.replace(key, {"a": 2}, ReplaceOptions(cas=locked.cas))
    collection.upsert(key, {"a": 3})
    with pytest.raises(ex.DocumentNotFoundException):
        collection.unlock(key + "absent", locked.cas)


def test_a_lock_ends_by_itself(collection, key):
    collection.upsert(key, 1)
    locked = collection.get_and_lock(key, timedelta(seconds=1))
    # The SDK tries until it is free.
    collection.upsert(key, 2, UpsertOptions(timeout=timedelta(seconds=20)))
    with pytest.raises(ex.CasMismatchException):
        collection.replace(key, 3, ReplaceOptions(cas=locked.cas))


def test_counters(collection, key):
    binary = collection.binary()
    no_initial = IncrementOptions(initial=SignedInt64(-1))
    with pytest.raises(ex.DocumentNotFoundException):
        binary.increment(key, no_initial)
    assert binary.increment(key, IncrementOptions(initial=SignedInt64(10), expiry=HOUR)).content == 10
    assert expiry(collection, key) is not None
    up = binary.increment(key, IncrementOptions(delta=DeltaValue(5)))
    assert up.content == 15 and up.mutation_token().sequence_number == up.cas
    assert binary.decrement(key, DecrementOptions(delta=DeltaValue(20))).content == 0
    assert collection.get(key).value == 0
    collection.upsert(key, "text")
    with pytest.raises(ex.DeltaInvalidException):
        binary.increment(key)
    assert binary.decrement(key + "2", DecrementOptions(initial=SignedInt64(3))).content == 3


def test_append_and_prepend(collection, key):
    binary = collection.binary()
    with pytest.raises(ex.DocumentNotFoundException):
        binary.append(key, "x")
    raw = RawBinaryTranscoder()
    collection.upsert(key, b"b", UpsertOptions(transcoder=raw, expiry=HOUR))
    binary.append(key, b"c")
    binary.prepend(key, b"a")
    assert collection.get(key, GetOptions(transcoder=raw)).value == b"abc"
    assert expiry(collection, key) is not None


@pytest.mark.parametrize(
    "transcoder, value",
    [
        (JSONTranscoder(), {"a": [1, None, True, 1.5, "ä"]}),
        (RawJSONTranscoder(), b'{"raw": true}'),
        (RawStringTranscoder(), "grüße"),
        (RawBinaryTranscoder(), bytes(range(256))),
        (LegacyTranscoder(), {"pickled": (1, 2)}),
        (LegacyTranscoder(), b"bytes"),
        (LegacyTranscoder(), "text"),
    ],
)
def test_transcoders(collection, key, transcoder, value):
    collection.upsert(key, value, UpsertOptions(transcoder=transcoder))
    found = collection.get(key, GetOptions(transcoder=transcoder)).value
    assert (list(found["pickled"]) == [1, 2]) if isinstance(value, dict) and "pickled" in value else found == value


@pytest.mark.parametrize("size", [0, 31, 33, 4096, 1 << 20, 19 << 20])
@pytest.mark.parametrize("fill", [b"a", None])
def test_sizes_compressed_or_not(collection, key, size, fill):
    raw = RawBinaryTranscoder()
    value = fill * size if fill else bytes((i * 2654435761 >> 16) & 255 for i in range(min(size, 1 << 16))) * (size >> 16 or 1)
    collection.upsert(key, value, UpsertOptions(transcoder=raw))
    assert collection.get(key, GetOptions(transcoder=raw)).value == value
    collection.remove(key)


def test_too_large_a_value_is_refused_and_the_connection_goes_on(collection, key):
    raw = RawBinaryTranscoder()
    collection.upsert(key, b"small", UpsertOptions(transcoder=raw))
    # Once compressed to a fraction of it, and once as it is.
    for value in [b"x" * (21 << 20), random.Random(7).randbytes(21 << 20)]:
        with pytest.raises(ex.CouchbaseException, match="too_large|too large|ec=104"):
            collection.upsert(key, value, UpsertOptions(transcoder=raw))
    assert collection.get(key, GetOptions(transcoder=raw)).value == b"small"


def test_keys(collection, key):
    for name in ["a/b/c", "default/kv/x", "ключ", " ", "k" * 246]:
        collection.upsert(name, {"key": name})
        assert collection.get(name).content_as[dict] == {"key": name}
    with pytest.raises((ex.InvalidArgumentException, ex.CouchbaseException)):
        collection.upsert("k" * 251, 1)


@pytest.mark.parametrize(
    "level",
    [DurabilityLevel.MAJORITY, DurabilityLevel.MAJORITY_AND_PERSIST_TO_ACTIVE, DurabilityLevel.PERSIST_TO_MAJORITY],
)
def test_durable_writes(collection, key, level):
    durable = ServerDurability(level)
    collection.upsert(key, 1, UpsertOptions(durability=durable))
    collection.replace(key, 2, ReplaceOptions(durability=durable))
    collection.insert(key + "2", 2, InsertOptions(durability=durable))
    assert collection.binary().increment(key + "3", IncrementOptions(initial=SignedInt64(1), durability=durable)).content == 1
    with pytest.raises(ex.DocumentExistsException):
        collection.insert(key, 2, InsertOptions(durability=durable))
    assert collection.get(key).value == 2
    collection.remove(key, RemoveOptions(durability=durable))
    assert not collection.exists(key).exists


def test_durability_that_the_client_observes(collection, key):
    persisted = ClientDurability(replicate_to=ReplicateTo.NONE, persist_to=PersistToExtended.ACTIVE)
    collection.upsert(key, 1, UpsertOptions(durability=persisted))
    collection.remove(key, RemoveOptions(durability=persisted))
    # There is no second copy, and the SDK knows from the cluster map.
    with pytest.raises(ex.DurabilityImpossibleException):
        collection.upsert(key, 1, UpsertOptions(durability=ClientDurability(replicate_to=ReplicateTo.ONE, persist_to=PersistTo.NONE)))


def test_replicas_are_the_document_itself(collection, key):
    collection.upsert(key, {"a": 1})
    assert collection.get_any_replica(key).content_as[dict] == {"a": 1}
    assert [r.content_as[dict] for r in collection.get_all_replicas(key)] == [{"a": 1}]
    with pytest.raises(ex.DocumentUnretrievableException):
        collection.get_any_replica(key + "absent")
    assert collection.get_all_replicas_multi([key]).all_ok and collection.get_any_replica_multi([key]).all_ok


def test_scans_are_refused(collection):
    with pytest.raises(ex.FeatureUnavailableException):
        list(collection.scan(PrefixScan("a")))


def test_data_structures_of_the_sdk(collection, key):
    numbers = collection.couchbase_list(key + "list")
    numbers.append(2)
    numbers.prepend(1)
    assert list(numbers) == [1, 2] and numbers.size() == 2 and numbers.index_of(2) == 1
    numbers.set_at(0, 7)
    numbers.remove_at(1)
    assert numbers.get_at(0) == 7
    words = collection.couchbase_map(key + "map")
    words.add("one", 1)
    assert words.get("one") == 1 and words.exists("one") and words.size() == 1
    words.remove("one")
    some = collection.couchbase_set(key + "set")
    some.add("a")
    some.add("a")
    assert some.size() == 1 and some.contains("a")
    some.remove("a")
    queue = collection.couchbase_queue(key + "queue")
    queue.push(1)
    queue.push(2)
    assert queue.pop() == 1 and queue.size() == 1
