"""Money that goes from account to account, by SQL, by Kudu's client and through the memcached door at the same time, with the server killed
now and then: whoever looks sees all of it, and every transfer that was acknowledged is there as a whole.

HISTORIES=500 for the long run; SEED to begin elsewhere.
"""

import contextlib
import itertools
import os
import random
import threading
from collections import Counter

import psycopg
import pytest
from conftest import Server
from kudu_java import Histories as KuduClients
from psycopg import errors
from pymemcache.exceptions import MemcacheServerError, MemcacheUnexpectedCloseError

HISTORIES = int(os.environ.get("HISTORIES", 6))
SEED = int(os.environ.get("SEED", 0))
ACCOUNTS, EACH = 6, 1000
CLIENTS, STEPS = 6, 15
BUCKET = "default.kv"
# Balances are texts of a bucket, which all doors write.
BALANCE = f"select convert_from(value, 'UTF8')::bigint from {BUCKET} where key = %s::bytea"
ADD = f"update {BUCKET} set value = convert_to((convert_from(value, 'UTF8')::bigint + %s)::text, 'UTF8') where key = %s::bytea"
ALL = f"select sum(convert_from(value, 'UTF8')::bigint) from {BUCKET} where key between %s::bytea and %s::bytea"
REFUSED = (errors.SerializationFailure, errors.DeadlockDetected, errors.LockNotAvailable)


class Client(threading.Thread):
    def __init__(self, bank, number):
        super().__init__()
        self.bank, self.number = bank, str(number)
        self.random = random.Random(f"{bank.name} {number}")
        self.connection = self.failure = None
        # What was moved, by whether that is known.
        self.committed, self.unknown = [], []

    def run(self):
        try:
            for _ in range(STEPS):
                self.step()
                self.bank.one_is_done()
        except Exception as failure:  # reported by the test
            self.failure = failure
            self.bank.one_is_done(STEPS)
        if self.connection is not None:
            self.connection.close()

    def transfer(self):
        source, target = self.random.sample(self.bank.accounts, 2)
        return source, target, self.random.randint(1, 50)

    def saw(self, total):
        assert total == ACCOUNTS * EACH, (self.bank.name, type(self).__name__, total)

    def lost(self):
        """The server was killed."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        self.bank.is_up.wait()


class SqlClient(Client):
    def step(self):
        try:
            if self.connection is None:
                self.connection = self.bank.server.sql(prepare_threshold=2)
                self.connection.execute("set lock_timeout = '5s'")
            try:
                self.random.choice([self.move, self.move, self.look, self.look_twice])()
            except REFUSED:
                self.connection.execute("rollback")
        except psycopg.OperationalError:
            self.lost()

    def move(self):
        source, target, amount = moved = self.transfer()
        level = self.random.choice(["read committed", "repeatable read", "serializable"])
        self.connection.execute(f"begin isolation level {level}")
        if self.random.random() < 0.3:
            self.connection.execute("savepoint s")
            self.connection.execute(ADD, (7, target))
            self.connection.execute("rollback to s")
        self.connection.execute(ADD, (-amount, source))
        self.connection.execute(ADD, (amount, target))
        if self.random.random() < 0.1:
            self.connection.execute("rollback")
            return
        self.unknown.append(moved)
        try:
            self.connection.execute("commit")
        except REFUSED:
            self.unknown.pop()
            raise
        self.committed.append(self.unknown.pop())

    def look(self):
        self.saw(self.connection.execute(ALL, self.bank.ends).fetchone()[0])

    def look_twice(self):
        """Account by account, at one moment."""
        self.connection.execute("begin isolation level repeatable read")
        balances = [self.connection.execute(BALANCE, (account,)).fetchone()[0] for account in self.bank.accounts]
        self.connection.execute("commit")
        self.saw(sum(balances))


class KuduClient(Client):
    def ask(self, command):
        return self.bank.kudu.ask(self.number, command)

    def step(self):
        said = self.move() if self.random.random() < 0.6 else self.look()
        if said != "done":
            self.bank.is_up.wait()

    def move(self):
        source, target, amount = moved = self.transfer()
        commands = ["begin", f"add {BUCKET} {source.decode()} {-amount}", f"add {BUCKET} {target.decode()} {amount}"]
        for command in commands:
            said, _ = self.ask(command)
            if said == "aborted":
                return said
        said, _ = self.ask(self.random.choice(["commit"] * 9 + ["rollback"]))
        if said == "committed":
            self.committed.append(moved)
        elif said == "unknown":
            self.unknown.append(moved)
        return "done"

    def look(self):
        first, last = (end.decode() for end in self.bank.ends)
        said, rows = self.ask(f"scan {BUCKET} {first} {last}")
        if said != "rows":
            return said
        balances = [int(row.split("=")[1]) for row in rows.split()]
        assert len(balances) == ACCOUNTS, (self.bank.name, rows)
        self.saw(sum(balances))
        return "done"


class KeyValueClient(Client):
    """Writes a balance as it read it, if nobody has changed it since."""

    def step(self):
        try:
            if self.connection is None:
                self.connection = self.bank.server.memcached()
            account = self.random.choice(self.bank.accounts)
            balance, cas = self.connection.gets(account)
            self.connection.cas(account, balance, cas)
        except (OSError, MemcacheUnexpectedCloseError):
            self.lost()
        except MemcacheServerError:
            pass  # a row that a transaction has locked


class Bank:
    """Clients of accounts that are their own."""

    def __init__(self, server, kudu, number, kinds, kill):
        self.server, self.kudu, self.name = server, kudu, f"{SEED} {number}"
        self.accounts = [b"%06d" % (10 * number + n) for n in range(ACCOUNTS)]
        self.ends = (self.accounts[0], self.accounts[-1])
        self.done, self.lock = 0, threading.Condition()
        self.is_up = threading.Event()
        self.is_up.set()
        self.kill_after = random.Random(self.name).randint(1, CLIENTS * STEPS - CLIENTS) if kill else None
        self.clients = [kinds[n % len(kinds)](self, n) for n in range(CLIENTS)]

    def one_is_done(self, steps=1):
        with self.lock:
            self.done += steps
            self.lock.notify_all()

    def run(self):
        with contextlib.closing(self.server.memcached()) as cache:
            for account in self.accounts:
                assert cache.set(account, b"%d" % EACH, noreply=False)
        for client in self.clients:
            client.start()
        if self.kill_after is not None:
            with self.lock:
                self.lock.wait_for(lambda: self.done >= self.kill_after)
            self.is_up.clear()
            self.server.kill()
            self.server.start()
            self.is_up.set()
        for client in self.clients:
            client.join()
        failures = [client.failure for client in self.clients if client.failure]
        assert not failures, (self.name, failures)
        self.check()

    def check(self):
        """The balances are what was acknowledged, and of the rest any part."""
        committed = [moved for client in self.clients for moved in client.committed]
        unknown = [moved for client in self.clients for moved in client.unknown]
        with self.server.sql() as db:
            found = {account: db.execute(BALANCE, (account,)).fetchone()[0] for account in self.accounts}
        parts = (part for n in range(len(unknown) + 1) for part in itertools.combinations(unknown, n))
        assert any(self.balances([*committed, *part]) == found for part in parts), (self.name, found, committed, unknown)

    def balances(self, moved):
        balances = Counter(dict.fromkeys(self.accounts, EACH))
        for source, target, amount in moved:
            balances[source] -= amount
            balances[target] += amount
        return dict(balances)


KINDS = {
    "sql": [SqlClient],
    "kudu": [KuduClient],
    "all": [SqlClient, KuduClient, KeyValueClient],
}


@pytest.mark.parametrize("kind", KINDS)
def test_transfers_are_whole(folder, kind):
    server = Server(folder / "data")
    # Started again, it is where Kudu's clients look for it.
    server.flags = [f"--{door}=127.0.0.1:{server.ports[door]}" for door in ("kudu-master", "kudu-tserver")]
    kudu = KuduClients(server, folder) if KuduClient in KINDS[kind] else None
    outcomes = Counter()
    for number in range(HISTORIES):
        bank = Bank(server, kudu, number, KINDS[kind], kill=number % 3 == 1)
        bank.run()
        for client in bank.clients:
            outcomes[type(client).__name__] += len(client.committed)
    if kudu is not None:
        kudu.close()
    assert server.stop() == 0, server.log_text()
    print(kind, dict(outcomes))
    assert sum(outcomes.values()) > HISTORIES * CLIENTS
