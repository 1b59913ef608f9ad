"""Transactions over SQL and over Kudu's client, and changes through the memcached door, of the same lists at the same time, with the
server killed now and then: what each saw is explained by the isolation that it asked for.

HISTORIES=500 for the long run; SEED to begin elsewhere.
"""

import contextlib
import os
import random
import threading
import time

import psycopg
import pytest
from conftest import Server
from isolation import ABORTED, COMMITTED, READ_COMMITTED, SERIALIZABLE, SNAPSHOT, UNKNOWN, Transaction, anomalies
from kudu_java import Histories as KuduClients
from psycopg import errors
from pymemcache.client.base import Client as Memcached
from pymemcache.exceptions import MemcacheServerError, MemcacheUnexpectedCloseError

HISTORIES = int(os.environ.get("HISTORIES", 16))
SEED = int(os.environ.get("SEED", 0))
LISTS = 4
CLIENTS = 6
TRANSACTIONS = 12
KILL_EVERY = 3  # histories of a kind

ISOLATION = {READ_COMMITTED: "read committed", SNAPSHOT: "repeatable read", SERIALIZABLE: "serializable"}

# A list is a row: in a table of two tablets, or of the bucket that memcached's clients share. Each has several ways to the
# same row, which the server executes differently.
TABLE, BUCKET = "lists", "default.kv"
APPEND = {
    TABLE: [
        "update lists set v = v || %(value)s where k = %(key)s",
        "update lists set v = v || %(value)s where k + 0 = %(key)s",
        "insert into lists (k, v) values (%(key)s, %(value)s) on conflict (k) do update set v = lists.v || excluded.v",
    ],
    BUCKET: [
        "update default.kv set value = convert_to(convert_from(value, 'UTF8') || %(value)s, 'UTF8') where key = %(key)s::bytea",
        "update default.kv set value = convert_to(convert_from(value, 'UTF8') || %(value)s, 'UTF8') where encode(key, 'hex') = encode(%(key)s::bytea, 'hex')",
    ],
}
READ = {
    TABLE: [
        "select k, v from lists where k = %(key)s",
        "select k, v from lists where k between %(key)s and %(key)s + 1",
        "select k, v from lists where k / 10 = %(key)s / 10",
        "select k, v from lists where k = %(key)s for update",
    ],
    BUCKET: [
        "select key, value from default.kv where key = %(key)s::bytea",
        "select key, value from default.kv where length(key) = length(%(key)s::bytea) and key >= %(key)s::bytea",
    ],
}


class Numbers:
    """Values that nobody else appends, and names."""

    def __init__(self):
        self.last, self.lock = 0, threading.Lock()

    def next(self):
        with self.lock:
            self.last += 1
            return self.last


class Client(threading.Thread):
    connection = None

    def __init__(self, history, number):
        super().__init__()
        self.history, self.server, self.number = history, history.server, str(number)
        self.random = random.Random(f"{history.name} {number}")
        self.transactions, self.failure = [], None

    def run(self):
        try:
            for _ in range(TRANSACTIONS):
                self.attempt()
        except Exception as failure:  # reported by the test
            self.failure = failure
        self.disconnect()

    def attempt(self):
        transaction = Transaction(f"T{self.history.numbers.next()}", outcome=ABORTED)
        transaction.began = time.monotonic_ns()
        self.execute(transaction)
        transaction.ended = time.monotonic_ns()
        self.transactions.append(transaction)
        self.history.one_is_done()

    def disconnect(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def choose(self, of=(TABLE, BUCKET)):
        table = self.random.choice([table for table in of if table in self.history.tables])
        return table, self.random.choice(self.history.keys[table])


class SqlClient(Client):
    def execute(self, transaction):
        try:
            if self.connection is None:
                self.connection = self.server.sql(prepare_threshold=2)
            self.connection.execute("set lock_timeout = '5s'")
            self.connection.execute(f"set default_transaction_isolation = '{ISOLATION[self.history.level]}'")
            try:
                if self.random.random() < 0.2:
                    self.step_by_itself(transaction)
                else:
                    self.block(transaction)
            except (errors.SerializationFailure, errors.DeadlockDetected, errors.LockNotAvailable):
                transaction.outcome = ABORTED
                self.connection.execute("rollback")
        except psycopg.OperationalError:
            # The server was killed: of a COMMIT on its way nobody knows.
            self.disconnect()
            self.history.wait_for_server()

    def step_by_itself(self, transaction):
        transaction.outcome = UNKNOWN
        self.step(transaction)
        transaction.outcome = COMMITTED

    def block(self, transaction):
        self.connection.execute("begin")
        for _ in range(self.random.randint(1, 4)):
            if self.random.random() < 0.15:
                self.undone_step(transaction)
            else:
                self.step(transaction)
        if self.random.random() < 0.1:
            self.connection.execute("rollback")
        else:
            transaction.outcome = UNKNOWN
            self.connection.execute("commit")
            transaction.outcome = COMMITTED

    def undone_step(self, transaction):
        """What is rolled back to a savepoint is seen by nobody."""
        self.connection.execute("savepoint s")
        self.step(Transaction("undone"))
        self.connection.execute("rollback to s")

    def step(self, transaction):
        table, key = self.choose()
        if self.random.random() < 0.5:
            value = self.history.numbers.next()
            # Noted first: whatever becomes of the answer, the statement may have been executed.
            transaction.steps.append(("append", (table, key), value))
            statement = self.random.choice(APPEND[table])
            self.connection.execute(statement, {"key": key, "value": f",{value}"})
        else:
            statement = self.random.choice(READ[table])
            rows = self.connection.execute(statement, {"key": key}).fetchall()
            for found, text in rows:
                found = (table, bytes(found) if table == BUCKET else found)
                if found[1] in self.history.keys[table]:
                    transaction.steps.append(("read", found, values(text)))


class KeyValueClient(Client):
    """Each operation is a transaction of its own."""

    def execute(self, transaction):
        try:
            if self.connection is None:
                self.connection = self.server.memcached()
            self.operation(transaction)
        except (OSError, MemcacheUnexpectedCloseError):
            self.disconnect()
            self.history.wait_for_server()
        except MemcacheServerError:
            transaction.outcome = ABORTED  # a row that a transaction has locked

    def operation(self, transaction):
        _, key = self.choose([BUCKET])
        if self.random.random() < 0.5:
            value = self.history.numbers.next()
            transaction.steps.append(("append", (BUCKET, key), value))
            transaction.outcome = UNKNOWN
            assert self.connection.append(key, f",{value}", noreply=False)
        else:
            text = self.connection.get(key)
            transaction.steps.append(("read", (BUCKET, key), values(text)))
        transaction.outcome = COMMITTED


class KuduClient(Client):
    """Kudu's client, whose transactions change rows, and see what others have committed: it locks what it reads in one. Or it looks at
    all lists of a moment, by itself."""

    def execute(self, transaction):
        if self.random.random() < 0.2 and TABLE in self.history.tables:
            return self.look(transaction)
        if self.ask("begin")[0] == "begun" and self.steps(transaction):
            if self.random.random() < 0.1:
                self.ask("rollback")
                return
            transaction.outcome = UNKNOWN
            if self.ask("commit")[0] == "committed":
                transaction.outcome = COMMITTED

    def ask(self, command):
        answer = self.history.kudu.ask(self.number, command)
        if answer[0] in ("aborted", "unknown"):
            self.history.wait_for_server()
        return answer

    def steps(self, transaction):
        """False once one was not made; the transaction is over then."""
        for _ in range(self.random.randint(1, 4)):
            table, key = self.choose()
            name = key.decode() if table == BUCKET else key
            value = self.history.numbers.next()
            does = self.random.choice(["append", "read"])
            said, text = self.ask(f"{does} {table} {name} {value}")
            if said != "is":
                return False
            transaction.steps.append(("read", (table, key), values(text)))
            if does == "append":
                transaction.steps.append(("append", (table, key), value))
        return True

    def look(self, transaction):
        keys = self.history.keys[TABLE]
        said, rows = self.ask(f"scan {TABLE} {keys[0]} {keys[-1]}")
        if said == "rows":
            for row in rows.split():
                key, text = row.split("=")
                transaction.steps.append(("read", (TABLE, int(key)), values(text)))
            assert len(transaction.steps) == LISTS, (self.history.name, rows)
            transaction.outcome = COMMITTED


def values(text):
    text = text if isinstance(text, str) else bytes(text).decode()
    return [int(value) for value in text.split(",")[1:]]


class History:
    """Clients of lists that are their own, until each has made its transactions."""

    def __init__(self, server, kudu, number, level, tables, kinds, kill):
        self.server, self.kudu = server, kudu
        self.name, self.level, self.tables = f"{SEED} {number}", level, tables
        self.keys = {TABLE: [10 * number + i for i in range(LISTS)], BUCKET: [b"%06d" % (10 * number + i) for i in range(LISTS)]}
        self.numbers = Numbers()
        self.done, self.lock = 0, threading.Condition()
        self.is_up = threading.Event()
        self.is_up.set()
        self.kill_after = random.Random(self.name).randint(1, CLIENTS * TRANSACTIONS - CLIENTS) if kill else None
        self.clients = [kinds[i % len(kinds)](self, i) for i in range(CLIENTS)]

    def one_is_done(self):
        with self.lock:
            self.done += 1
            self.lock.notify_all()

    def wait_for_server(self):
        self.is_up.wait()

    def run(self):
        self.make_lists()
        for client in self.clients:
            client.start()
        if self.kill_after is not None:
            self.kill()
        for client in self.clients:
            client.join()
        failures = [client.failure for client in self.clients if client.failure]
        assert not failures, (self.name, failures)
        transactions = [transaction for client in self.clients for transaction in client.transactions]
        return transactions, anomalies(transactions, self.lists(), self.level)

    def make_lists(self):
        with self.server.sql() as db:
            for key in self.keys[TABLE]:
                db.execute("insert into lists (k, v) values (%s, '')", [key])
        with contextlib.closing(self.server.memcached()) as cache:
            for key in self.keys[BUCKET]:
                assert cache.set(key, b"", noreply=False)

    def kill(self):
        with self.lock:
            self.lock.wait_for(lambda: self.done >= self.kill_after)
        self.is_up.clear()
        self.server.kill()
        self.server.start()
        self.is_up.set()

    def lists(self):
        with self.server.sql() as db:
            rows = db.execute("select k, v from lists").fetchall()
            found = {(TABLE, key): values(text) for key, text in rows if key in self.keys[TABLE]}
            rows = db.execute("select key, value from default.kv").fetchall()
            return found | {(BUCKET, bytes(k)): values(text) for k, text in rows if bytes(k) in self.keys[BUCKET]}


KINDS = {
    "sql": ([TABLE], [SqlClient]),
    "sql over two tables": ([TABLE, BUCKET], [SqlClient]),
    "key-value": ([BUCKET], [KeyValueClient]),
    "mixed": ([TABLE, BUCKET], [SqlClient, SqlClient, KeyValueClient]),
    "kudu": ([TABLE], [KuduClient]),
    "kudu and sql": ([TABLE, BUCKET], [KuduClient, SqlClient]),
    "kudu and key-value": ([BUCKET], [KuduClient, KeyValueClient]),
    "all": ([TABLE, BUCKET], [SqlClient, KuduClient, KeyValueClient]),
}


@pytest.mark.parametrize("level", ISOLATION)
def test_histories_are_isolated(folder, level):
    server = Server(folder / "data")
    # Started again, it is where Kudu's clients look for it.
    server.flags = [f"--{door}=127.0.0.1:{server.ports[door]}" for door in ("kudu-master", "kudu-tserver")]
    with server.sql() as db:
        columns = "k int primary key, v text not null, touched bigint"
        db.execute(f"create table lists ({columns}) partition by hash (k) partitions 2")
    kudu = KuduClients(server, folder)
    outcomes = []
    for number in range(HISTORIES):
        tables, kinds = KINDS[list(KINDS)[number % len(KINDS)]]
        kill = number // len(KINDS) % KILL_EVERY == 1
        history = History(server, kudu, number, level, tables, kinds, kill)
        transactions, found = history.run()
        assert found == [], (f"SEED={SEED}", number, found)
        outcomes += [transaction.outcome for transaction in transactions]
    kudu.close()
    assert server.stop() == 0, server.log_text()
    print({outcome: outcomes.count(outcome) for outcome in set(outcomes)})
    # The histories are worth something: transactions were committed, and met others.
    assert outcomes.count(COMMITTED) > len(outcomes) / 5
    assert level == READ_COMMITTED or ABORTED in outcomes
