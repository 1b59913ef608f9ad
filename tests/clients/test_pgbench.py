"""pgbench as PostgreSQL ships it: it makes its tables without keys, fills them, adds the keys, and its transactions keep their sums."""

import pathlib
import subprocess

import pytest

PGBENCH = next(iter(sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/pgbench"))), None)

pytestmark = pytest.mark.skipif(PGBENCH is None, reason="pgbench is not installed")


def pgbench(server, *options):
    address = ["-h", "127.0.0.1", "-p", server.ports["postgres"], "-U", "oribi"]
    command = [str(word) for word in [PGBENCH, *address, *options, "oribi"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ERROR" not in done.stderr, done.stderr
    return done.stdout


def sums(db):
    queries = [("abalance", "accounts"), ("tbalance", "tellers"), ("bbalance", "branches"), ("delta", "history")]
    return [db.execute(f"select coalesce(sum({c}), 0)::bigint from pgbench_{t}").fetchone()[0] for c, t in queries]


# Rows that the client sends, and rows that the server makes.
@pytest.mark.parametrize("steps", ["dtgvp", "dtGvp"])
def test_pgbench_as_it_is(server, steps):
    pgbench(server, "-i", "-I", steps)
    with server.sql() as db:
        counts = [db.execute(f"select count(*) from pgbench_{t}").fetchone()[0] for t in ("accounts", "tellers", "branches")]
        assert counts == [100_000, 10, 1]
        keys = "select table_name, column_name from information_schema.key_column_usage order by 1"
        in_pgbench = [row for row in db.execute(keys).fetchall() if row[0].startswith("pgbench")]
        assert in_pgbench == [("pgbench_accounts", "aid"), ("pgbench_branches", "bid"), ("pgbench_tellers", "tid")]
        before = 0
        for mode in ("simple", "extended", "prepared"):
            told = pgbench(server, "-M", mode, "-c", 8, "-j", 2, "-T", 3)
            assert "number of failed transactions: 0" in told, told
            # The history is that of this run: pgbench empties it before each.
            accounts, tellers, branches, history = sums(db)
            assert accounts == tellers == branches == before + history
            before = accounts
            done = int(told.split("number of transactions actually processed: ")[1].split()[0].split("/")[0])
            assert db.execute("select count(*) from pgbench_history").fetchone() == (done,)
    server.restart()
    with server.sql() as db:
        assert sums(db)[:3] == [before] * 3
    # Over what is there.
    pgbench(server, "-i", "-I", steps)
    with server.sql() as db:
        assert sums(db) == [0] * 4
