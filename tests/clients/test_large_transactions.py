"""Transactions of more rows than the server has memory for: they see what they have written, are undone to any point, and are there as a
whole or not at all, also if the server is killed."""

import threading

import psycopg
import pytest

from conftest import Server

ROWS = 300_000
# Of so little a transaction has 4 MiB in memory: some 15,000 rows.
FLAGS = ["--memory", "64MiB"]


@pytest.fixture
def small(tmp_path):
    server = Server(tmp_path / "data", *FLAGS)
    yield server
    server.kill()


def connect(server, **options):
    return psycopg.connect(host="127.0.0.1", port=server.ports["postgres"], dbname="oribi", user="oribi", **options)


def count(connection, where="true"):
    return connection.execute(f"select count(*), coalesce(sum(v), 0) from t where {where}").fetchone()


def fill(connection, first, rows, v):
    with connection.cursor().copy("copy t from stdin") as copy:
        for k in range(first, first + rows):
            copy.write_row((k, v))


def test_a_block_of_many_times_its_memory_is_seen_whole_by_itself_and_then_by_all(small):
    with connect(small) as block, connect(small, autocommit=True) as other:
        other.execute("create table t (k bigint primary key, v int)")
        other.execute("insert into t select g, 1 from generate_series(0, 999) g(g)")
        block.execute("update t set v = 2 where k < 500")
        fill(block, 1000, ROWS, 3)
        assert count(block) == (ROWS + 1000, 3 * ROWS + 500 + 1000)
        block.execute("savepoint s")
        for k in range(0, 100_000, 10_000):
            block.execute("update t set v = v + 10 where k >= %s and k < %s", (k, k + 1000))
        block.execute("delete from t where k between 200000 and 200999")
        assert count(block, "k < 100000")[0] == 100_000
        assert count(block, "v > 10") == (10_000, 9000 * 13 + 500 * 12 + 500 * 11)
        block.execute("rollback to savepoint s")
        assert count(block) == (ROWS + 1000, 3 * ROWS + 500 + 1000)
        assert block.execute("select v from t where k = 150000").fetchone() == (3,)
        block.execute("delete from t where k between 200000 and 200999")
        block.execute("insert into t values (5, 0) on conflict (k) do update set v = 7")
        assert count(other) == (1000, 1000), "nobody else sees any of it"
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("set lock_timeout = '50ms'")
            other.execute("update t set v = 0 where k = 150000")
            other.execute("insert into t values (150000, 0)")
        other.execute("insert into t values (-1, 0)")

        # Whoever counts sees all of it or nothing.
        seen, done = [], threading.Event()

        def watch():
            with connect(small, autocommit=True) as watching:
                while not done.is_set():
                    seen.append(count(watching))

        watcher = threading.Thread(target=watch)
        watcher.start()
        block.commit()
        done.set()
        watcher.join()
        before, after = (1001, 1000), (ROWS + 1, 3 * (ROWS - 1000) + 1500 + 5)
        assert set(seen) <= {before, after}, seen
        assert count(other) == after
    small.kill()
    small.start()
    with connect(small) as again:
        assert count(again) == after
        assert again.execute("select v from t where k = 150000").fetchone() == (3,)
        assert again.execute("select v from t where k = 200500").fetchone() is None


def test_a_block_that_ends_otherwise_leaves_nothing(small):
    with connect(small, autocommit=True) as other:
        other.execute("create table t (k bigint primary key, v int)")
        with connect(small) as block:
            fill(block, 0, 50_000, 1)
            assert count(block) == (50_000, 50_000)
            with pytest.raises(psycopg.errors.UniqueViolation):
                fill(block, 49_000, 50_000, 1)
            block.rollback()
        assert count(other)[0] == 0
        fill(other, 0, 100, 1)
        block = connect(small)
        fill(block, 1000, 50_000, 1)
        small.kill()
        small.start()
    with connect(small, autocommit=True) as again:
        assert count(again)[0] == 100
        assert not list((small.data / "transactions").iterdir())
        fill(again, 1000, 1000, 1)


def test_what_must_stay_in_memory_is_refused_by_name(small):
    with connect(small, autocommit=True) as other:
        other.execute("create table t (k bigint primary key, v int)")
    with connect(small) as block:
        block.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="statement_bytes_max.*serializable"):
            fill(block, 0, 50_000, 1)


def test_one_statement_of_a_block_changes_more_than_its_memory(small):
    with connect(small, autocommit=True) as other:
        other.execute("create table t (k bigint primary key, v int)")
        fill(other, 0, ROWS, 1)
        with connect(small) as block:
            assert block.execute("update t set v = v + 1").rowcount == ROWS
            block.execute("savepoint s")
            assert block.execute("update t set v = v + k where k % 2 = 0").rowcount == ROWS // 2
            assert count(block)[1] == 2 * ROWS + sum(range(0, ROWS, 2))
            block.execute("rollback to savepoint s")
            # What it writes changes nothing of what it looks for.
            assert block.execute("update t set v = v + 1 where v <= (select max(v) from t)").rowcount == ROWS
            assert block.execute("delete from t where k % 3 = 0").rowcount == ROWS // 3
            left = (ROWS - ROWS // 3, 3 * (ROWS - ROWS // 3))
            assert count(block) == left
            assert count(other) == (ROWS, ROWS)
        assert count(other) == left
    small.kill()
    small.start()
    with connect(small) as again:
        assert count(again) == left


def test_a_block_that_makes_alters_and_empties_tables_fills_them_with_any_number_of_rows(small):
    with connect(small, autocommit=True) as other:
        other.execute("create table emptied (k bigint primary key, v int)")
        other.execute("insert into emptied select g, 1 from generate_series(0, 999) g(g)")
        with connect(small) as block:
            # As a dump is restored by `psql -1`.
            block.execute("create table t (k bigint not null, v int)")
            fill(block, 0, ROWS, 1)
            block.execute("alter table t add primary key (k)")
            block.execute("alter table t add column more int")
            block.execute("update t set more = v + 1")
            block.execute("truncate emptied")
            block.execute("insert into emptied select k, v from t")
            block.execute("savepoint s")
            block.execute("create table undone as select * from t")
            block.execute("drop table emptied")
            block.execute("alter table t drop column more")
            block.execute("rollback to savepoint s")
            assert count(block) == (ROWS, ROWS)
            assert other.execute("select count(*) from emptied").fetchone() == (1000,)
            with pytest.raises(psycopg.errors.UndefinedTable):
                other.execute("select * from t")
        check_filled(other)
    small.kill()
    small.start()
    assert not list((small.data / "transactions").iterdir())
    with connect(small, autocommit=True) as again:
        check_filled(again)


def check_filled(other):
    assert other.execute("select count(*), sum(more), max(k) from t").fetchone() == (ROWS, 2 * ROWS, ROWS - 1)
    assert other.execute("select count(*), sum(v) from emptied").fetchone() == (ROWS, ROWS)
    with pytest.raises(psycopg.errors.UniqueViolation):
        other.execute("insert into t values (7, 0, 0)")
    with pytest.raises(psycopg.errors.UndefinedTable):
        other.execute("select * from undone")
