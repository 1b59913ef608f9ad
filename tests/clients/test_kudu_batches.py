"""The batching client (`oribi perf loadgen`) against the Kudu door: a server that is killed, SQL beside a load; and the same
beside Kudu's own client."""

import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import ORIBI
from kudu_cli import kudu  # noqa: F401

THREADS = 3


def oribi_loadgen(cli, rows, *flags):
    """Loads a table that stays; returns what was printed."""
    done = subprocess.run(
        [ORIBI, "perf", "loadgen", "--master", cli.master, f"--num-threads={THREADS}", f"--num-rows-per-thread={rows}"]
        + ["--keep-auto-table", "--show-first-n-errors=3", *flags],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kudu_loadgen(cli, rows, *flags):
    return cli.loadgen(
        f"-num_threads={THREADS}", f"-num_rows_per_thread={rows}", "-keep_auto_table=true", "-show_first_n_errors=3", *flags
    )


def table_being_loaded(sql, load, least=1000):
    """The name of the table that a load has made, once it has so many rows or the load is done."""
    tables = "select table_name from information_schema.tables where table_name like 'loadgen_auto%'"
    while True:
        was_done = load.done()
        for (name,) in sql.execute(tables).fetchall():
            table = f'"default".{name}'
            if was_done or sql.execute(f"select count(*) from {table}").fetchone()[0] >= least:
                return table
        assert not was_done, load.result()
        time.sleep(0.02)


def test_a_load_goes_on_after_the_server_was_killed(kudu):  # noqa: F811
    server, rows = kudu.server, 50_000
    # Started again, it is where clients look for it.
    server.flags = [f"--kudu-master={kudu.master}", f"--kudu-tserver={kudu.tserver}"]
    with ThreadPoolExecutor() as threads:
        # Inserts: a row that was applied twice would be an error.
        load = threads.submit(oribi_loadgen, kudu, rows, "--flush-per-n-rows=20", "--timeout-ms=120000")
        for kill in range(2):
            with server.sql() as sql:
                table = table_being_loaded(sql, load, least=1000 + kill * THREADS * rows // 4)
            server.kill()
            time.sleep(2)
            server.start()
        printed = load.result()
    assert f"rows total: {THREADS * rows}" in printed
    with server.sql() as sql:
        # Of each thread the key is one sequence, and the values are another one, two numbers a row.
        as_it_was_made = f"int_val = 2 * key - key / {rows} * {rows} and string_val like (int_val + 1) || '.%'"
        found = sql.execute(
            f"select count(*), count(distinct key), sum(key), count(*) filter (where {as_it_was_made}) from {table}"
        ).fetchone()
    total = THREADS * rows
    assert found == (total, total, sum(range(total)), total)


@pytest.mark.parametrize(
    "loadgen, flags",
    [
        (
            oribi_loadgen,
            [f"--table-num-range-partitions={THREADS}", "--table-num-hash-partitions=1", "--flush-per-n-rows=50"],
        ),
        # Kudu's own client sends several batches of a tablet at a time, unless each waits for the one before it.
        (
            kudu_loadgen,
            [f"-table_num_range_partitions={THREADS}", "-table_num_hash_partitions=1", "-flush_per_n_rows=50", "-buffers_num=1"],
        ),
    ],
    ids=["our client", "Kudu's client"],
)
def test_sql_sees_of_each_thread_what_it_wrote_first(kudu, loadgen, flags):  # noqa: F811
    # The keys of a thread are one sequence and one tablet.
    rows, seen = 20_000, {}
    with ThreadPoolExecutor() as threads, kudu.server.sql() as sql:
        load = threads.submit(loadgen, kudu, rows, *flags)
        table = table_being_loaded(sql, load, least=0)
        while sum(seen.values()) < THREADS * rows:
            was_done = load.done()
            query = f"select key / {rows}, count(*), max(key % {rows}), sum(key % {rows}) from {table} group by 1"
            found = sql.execute(query).fetchall()
            for thread, count, last, total in found:
                assert (last, total) == (count - 1, count * (count - 1) // 2), f"thread {thread}: {found}"
                assert count >= seen.get(thread, 0)
                seen[thread] = count
            assert not was_done or sum(seen.values()) == THREADS * rows, load.result()
        printed = load.result()
    assert re.search(r"rows total: (\d+)", printed).group(1) == str(THREADS * rows)
