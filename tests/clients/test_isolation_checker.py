"""The checker of histories finds the anomalies that it is there for, and nothing in histories that have none."""

import itertools
import random

import pytest
from isolation import ABORTED, READ_COMMITTED, SERIALIZABLE, SNAPSHOT, UNKNOWN, Transaction, anomalies

LEVELS = [READ_COMMITTED, SNAPSHOT, SERIALIZABLE]


def append(key, value):
    return ("append", key, value)


def read(key, *values):
    return ("read", key, list(values))


def overlapping(*steps, outcomes=()):
    """Transactions that all run at the same time."""
    names = [f"T{n}" for n in range(1, len(steps) + 1)]
    made = [Transaction(name, 0, 10, steps=list(of)) for name, of in zip(names, steps)]
    for transaction, outcome in zip(made, outcomes):
        transaction.outcome = outcome
    return made


# Each with the lists at the end, and the weakest level that excludes it.
PLANTED = {
    "a dirty read": (
        overlapping([append("x", 1)], [read("x", 1)], outcomes=[ABORTED]),
        {"x": []},
        READ_COMMITTED,
    ),
    "an aborted write that stays": (overlapping([append("x", 1)], outcomes=[ABORTED]), {"x": [1]}, READ_COMMITTED),
    "a lost write": (overlapping([append("x", 1)]), {"x": []}, READ_COMMITTED),
    "half a transaction after a crash": (
        overlapping([append("x", 1), append("y", 2)], outcomes=[UNKNOWN]),
        {"x": [1], "y": []},
        READ_COMMITTED,
    ),
    "a read in the middle of a transaction": (
        overlapping([append("x", 1), append("x", 2)], [read("x", 1)]),
        {"x": [1, 2]},
        READ_COMMITTED,
    ),
    "own writes that are not seen": (overlapping([append("x", 1), read("x")]), {"x": [1]}, READ_COMMITTED),
    "writes in two orders": (
        overlapping([append("x", 1), append("y", 1)], [append("x", 2), append("y", 2)]),
        {"x": [1, 2], "y": [2, 1]},
        READ_COMMITTED,
    ),
    "information that flows in a circle": (
        overlapping([append("x", 1), read("y", 2)], [append("y", 2), read("x", 1)]),
        {"x": [1], "y": [2]},
        READ_COMMITTED,
    ),
    "a read that moves": (
        overlapping([append("x", 1)], [read("x"), read("x", 1)]),
        {"x": [1]},
        SNAPSHOT,
    ),
    "a lost update": (
        overlapping([read("x"), append("x", 1)], [read("x"), append("x", 2)]),
        {"x": [1, 2]},
        SNAPSHOT,
    ),
    "a read of half a transaction": (
        overlapping([append("x", 1), append("y", 1)], [read("x", 1), read("y")]),
        {"x": [1], "y": [1]},
        SNAPSHOT,
    ),
    "a long fork": (
        overlapping([append("x", 1)], [append("y", 1)], [read("x", 1), read("y")], [read("x"), read("y", 1)]),
        {"x": [1], "y": [1]},
        SNAPSHOT,
    ),
    "a stale read": (
        [Transaction("T1", 0, 1, steps=[append("x", 1)]), Transaction("T2", 2, 3, steps=[read("x")])],
        {"x": [1]},
        SNAPSHOT,
    ),
    "write skew": (
        overlapping([read("x"), read("y"), append("x", 1)], [read("x"), read("y"), append("y", 1)]),
        {"x": [1], "y": [1]},
        SERIALIZABLE,
    ),
    "the read-only transaction that sees too much": (
        [
            Transaction("T1", 0, 9, steps=[read("x"), read("y"), append("x", 1)]),
            Transaction("T2", 1, 3, steps=[append("y", 1)]),
            Transaction("T3", 4, 6, steps=[read("x"), read("y", 1)]),
        ],
        {"x": [1], "y": [1]},
        SERIALIZABLE,
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name):
    transactions, final, weakest = PLANTED[name]
    for level in LEVELS:
        found = anomalies(transactions, final, level)
        excluded = LEVELS.index(level) >= LEVELS.index(weakest)
        assert bool(found) == excluded, (level, found)


def test_a_serial_history_has_none():
    """And shuffled by nothing but time: every transaction reads what those before it left."""
    for seed in range(200):
        rng = random.Random(seed)
        lists, made, value = {key: [] for key in "xyz"}, [], itertools.count()
        for number in range(12):
            transaction = Transaction(f"T{number}", 2 * number, 2 * number + 1)
            if rng.random() < 0.2:
                transaction.outcome = rng.choice([ABORTED, UNKNOWN])
            stays = transaction.outcome != ABORTED and (transaction.outcome != UNKNOWN or rng.random() < 0.5)
            work = {key: list(of) for key, of in lists.items()}
            for _ in range(rng.randint(1, 4)):
                key = rng.choice("xyz")
                if rng.random() < 0.5:
                    work[key].append(next(value))
                    transaction.steps.append(append(key, work[key][-1]))
                else:
                    transaction.steps.append(read(key, *work[key]))
            if stays:
                lists = work
            made.append(transaction)
        rng.shuffle(made)
        assert anomalies(made, lists, SERIALIZABLE) == [], seed
