"""Clients of both doors hammer the same rows, and every answer is explained by some order of the writes.

HAMMER_SECONDS=60 for the long run.
"""

import os
import random
import threading
import time

import psycopg
from history import Operation, explain

SECONDS = float(os.environ.get("HAMMER_SECONDS", 5))
ROWS = [f"row{i}" for i in range(4)]


# A row is (value, token) or ABSENT. The token is what `gets` and the column `cas` show; it changes with each write and
# is unknown (None) until somebody has seen it.
ABSENT = "absent"


def read(value, token=None):
    """Answered `value` (ABSENT for a miss), and `token` if it was asked for."""

    def apply(state):
        if value == ABSENT or state == ABSENT:
            return state if value == state else None
        if state[0] != value or (token is not None and state[1] not in (None, token)):
            return None
        return (value, token) if token is not None else state

    return apply


def write(value):
    return lambda state: (value, None)


def delete(found):
    return lambda state: ABSENT if (state != ABSENT) == found else None


def update(value, changed):
    """SQL's UPDATE by key, to a constant."""

    def apply(state):
        if (state != ABSENT) != changed:
            return None
        return (value, None) if changed else state

    return apply


def increment(by, result):
    """memcached's incr: answers the new value, or None for a miss."""

    def apply(state):
        if state == ABSENT:
            return state if result is None else None
        return (result, None) if result == state[0] + by else None

    return apply


def increment_by_sql(changed):
    def apply(state):
        if state == ABSENT:
            return state if not changed else None
        return (state[0] + 1, None) if changed else None

    return apply


def compare_and_swap(token, value, outcome):
    def apply(state):
        if outcome == "not found":
            return state if state == ABSENT else None
        if state == ABSENT:
            return None
        if outcome == "stored":
            return (value, None) if state[1] == token else None
        return state if state[1] != token else None

    return apply


class Client(threading.Thread):
    def __init__(self, server, number, deadline):
        super().__init__()
        self.server, self.number, self.deadline = server, number, deadline
        self.random = random.Random(number)
        self.history = {row: [] for row in ROWS}
        self.values = 0
        self.failure = None
        self.retries = 0

    def run(self):
        try:
            self.work()
        except Exception as failure:  # reported by the test
            self.failure = failure

    def value(self):
        """A value that nobody else writes, with room for increments."""
        self.values += 1
        return (self.number * 1_000_000 + self.values) * 1_000_000

    def note(self, row, began, apply, text):
        looks = text.split()[0] in ("get", "gets", "select", "scan")
        operation = Operation(began, time.monotonic_ns(), apply, f"client {self.number}: {text}", looks)
        self.history[row].append(operation)


class CacheClient(Client):
    def work(self):
        cache = self.server.memcached()
        while time.monotonic() < self.deadline:
            row = self.random.choice(ROWS)
            kind = self.random.choice(["get", "get", "set", "incr", "cas", "delete"])
            began = time.monotonic_ns()
            if kind == "get":
                got = cache.get(row)
                self.note(row, began, read(ABSENT if got is None else int(got)), f"get {row} = {got}")
            elif kind == "set":
                value = self.value()
                assert cache.set(row, str(value), noreply=False)
                self.note(row, began, write(value), f"set {row} {value}")
            elif kind == "incr":
                result = cache.incr(row, 1, noreply=False)
                self.note(row, began, increment(1, result), f"incr {row} = {result}")
            elif kind == "delete" and self.random.random() < 0.3:
                found = cache.delete(row, noreply=False)
                self.note(row, began, delete(found), f"delete {row} = {found}")
            elif kind == "cas":
                got, token = cache.gets(row)
                seen = read(ABSENT) if got is None else read(int(got), int(token))
                self.note(row, began, seen, f"gets {row} = {got} {token}")
                if got is not None:
                    value, began = self.value(), time.monotonic_ns()
                    answer = cache.cas(row, str(value), token, noreply=False)
                    outcome = {True: "stored", False: "exists", None: "not found"}[answer]
                    swap = compare_and_swap(int(token), value, outcome)
                    self.note(row, began, swap, f"cas {row} {token} {value} = {outcome}")
        cache.close()


class SqlClient(Client):
    def work(self):
        with self.server.sql() as connection:
            while time.monotonic() < self.deadline:
                row = self.random.choice(ROWS)
                kind = self.random.choice(["select", "select", "select all", "update", "increment"])
                began = time.monotonic_ns()
                try:
                    self.statement(connection, row, kind, began)
                except psycopg.errors.SerializationFailure:
                    self.retries += 1  # nothing was done

    def statement(self, connection, row, kind, began):
        if kind == "select":
            # Prepared after a few executions, and then answered by key.
            query = "select value, cas from default.kv where key = %s"
            got = connection.execute(query, [row.encode()]).fetchone()
            seen = read(ABSENT) if got is None else read(int(got[0]), got[1])
            self.note(row, began, seen, f"select {row} = {got}")
        elif kind == "select all":
            # A scan; the rows are read at one snapshot.
            rows = connection.execute("select key, value, cas from default.kv").fetchall()
            found = {bytes(key).decode(): (int(value), cas) for key, value, cas in rows}
            for each in ROWS:
                seen = read(*found[each]) if each in found else read(ABSENT)
                self.note(each, began, seen, f"scan {each} = {found.get(each)}")
        elif kind == "update":
            value = self.value()
            query = "update default.kv set value = %s where key = %s"
            changed = connection.execute(query, [str(value).encode(), row.encode()]).rowcount
            self.note(row, began, update(value, changed == 1), f"update {row} {value} = {changed}")
        else:
            query = (
                "update default.kv set value = convert_to(cast(cast(convert_from(value, 'UTF8') as bigint) + 1 as text), 'UTF8') "
                "where key = %s"
            )
            changed = connection.execute(query, [row.encode()]).rowcount
            self.note(row, began, increment_by_sql(changed == 1), f"increment {row} = {changed}")


def test_every_answer_is_explained_by_some_order_of_the_writes(server):
    deadline = time.monotonic() + SECONDS
    clients = [CacheClient(server, n, deadline) for n in (1, 2, 3)] + [SqlClient(server, n, deadline) for n in (4, 5)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    failures = [client.failure for client in clients if client.failure]
    assert not failures, failures
    for row in ROWS:
        history = [operation for client in clients for operation in client.history[row]]
        stuck = explain(history, ABSENT)
        assert stuck is None, "\n".join(f"{op.began} {op.ended} {op.text}" for op in stuck)
        writes = sum(not operation.looks for operation in history)
        print(f"{row}: {len(history)} operations, {writes} of them writes")
        assert len(history) > 20 and writes > 5, "the clients did next to nothing"


def test_the_checker_finds_an_answer_that_no_order_explains():
    lost = [
        Operation(0, 1, write(1), "set 1"),
        Operation(2, 3, write(2), "set 2"),
        Operation(4, 5, read(1), "get 1, long after set 2"),
    ]
    assert explain(lost, ABSENT) is not None
    overlapping = [*lost[:1], Operation(2, 6, write(2), "set 2"), lost[2]]
    assert explain(overlapping, ABSENT) is None
    swaps = [
        Operation(0, 1, write(1), "set 1"),
        Operation(2, 3, read(1, 77), "gets 1"),
        Operation(4, 5, write(2), "set 2"),
        Operation(6, 7, compare_and_swap(77, 3, "stored"), "cas with a stale token"),
    ]
    assert explain(swaps, ABSENT) is not None
