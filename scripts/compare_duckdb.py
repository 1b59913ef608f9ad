"""Imports the same Parquet files into Oribi and into DuckDB tables with the same primary keys, then runs the 22 queries
on both in turns, or with --changes updates and deletes of many rows, once each; prints times, ratios and the peak memory
of the import."""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import duckdb
from conftest import ORIBI, Server
from tpch import KEYS, QUERIES, SCHEMA, assert_same_answer, generate


def timed(run):
    started = time.monotonic()
    result = run()
    return time.monotonic() - started, result


def import_oribi(data, files, memory):
    """Seconds, and the largest resident set of an import in MiB."""
    seconds, peak = 0, 0
    for table, key in KEYS.items():
        command = [ORIBI, "import", table, str(files[table]), "--primary-key", key]
        command += ["--data", str(data), "--memory", memory]
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0, table
        seconds += time.monotonic() - started
        peak = max(peak, usage.ru_maxrss / 1024)
    return seconds, peak


def import_duckdb(path, files):
    duck = duckdb.connect(str(path))
    duck.execute(SCHEMA)

    def insert():
        for table, file in files.items():
            duck.execute(f"insert into {table} select * from '{file}'")
        duck.execute("checkpoint")

    seconds, _ = timed(insert)
    return seconds, duck


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--memory", default="512MiB", help="budget of Oribi's import")
    parser.add_argument("--serve-memory", default="2GiB", help="budget of Oribi's server")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--runs", type=int, default=3, help="of each query")
    what.add_argument("--changes", action="store_true", help="update and delete rows in place of the queries")
    options = parser.parse_args()
    # Several times the data: nothing of it is to stay behind.
    with tempfile.TemporaryDirectory(prefix="oribi-compare-") as folder:
        compare(pathlib.Path(folder), options)


def compare(folder, options):
    files = generate(folder / "tpch", options.scale)
    ours, peak = import_oribi(folder / "data", files, options.memory)
    theirs, duck = import_duckdb(folder / "duck.db", files)
    print(f"import: {ours:.1f} s, peak {peak:.0f} MiB with --memory {options.memory}; DuckDB {theirs:.1f} s")

    # The first queries would share the disk, and a processor, with what is still to be written of both imports.
    os.sync()
    server = Server(folder / "data", "--memory", options.serve_memory, "--log", "warn")
    try:
        if options.changes:
            compare_changes(server, duck)
        else:
            compare_queries(server, duck, options.runs)
    finally:
        server.stop()


# A tenth of all rows, scattered; as many others; most rows of a range of keys. Once each, and none twice: the rows are in
# files alone before.
CHANGES = {
    "update a tenth": "update lineitem set l_quantity = l_quantity + 1 where l_orderkey % 10 = 3",
    "delete a tenth": "delete from lineitem where l_orderkey % 10 = 4",
    "update a range": "update lineitem set l_quantity = l_quantity + 1 "
    "where l_orderkey between {} and {} and l_orderkey % 10 not in (3, 4)",
}


def compare_changes(server, duck):
    """Every change leaves the same rows behind in both."""
    left = "select count(*), sum(l_quantity), sum(l_orderkey) from lineitem"
    (keys,) = duck.execute("select max(l_orderkey) from lineitem").fetchone()
    print(f"{'':16} {'rows':>8} {'s':>8} {'DuckDB s':>9} {'ratio':>6}")
    with server.sql() as connection:
        for name, change in CHANGES.items():
            change = change.format(keys // 10, keys // 10 + keys * 9 // 1000)
            mine, changed = timed(lambda: connection.execute(change).rowcount)
            other, _ = timed(lambda: duck.execute(change))
            assert_same_answer(name, connection.execute(left).fetchall(), duck.execute(left).fetchall())
            print(f"{name:16} {changed:8} {mine:8.2f} {other:9.2f} {mine / other:6.1f}", flush=True)


def compare_queries(server, duck, runs):
    print(f"{'query':>5} {'ms':>9} {'DuckDB ms':>10} {'ratio':>6}")
    totals = [0, 0]
    with server.sql() as connection:
        for number, query in QUERIES.items():
            times = [[], []]
            for _ in range(runs):
                seconds, mine = timed(lambda: connection.execute(query).fetchall())
                times[0].append(seconds)
                seconds, other = timed(lambda: duck.execute(query).fetchall())
                times[1].append(seconds)
            assert_same_answer(f"query {number}", mine, other)
            medians = [statistics.median(each) * 1000 for each in times]
            totals = [total + median for total, median in zip(totals, medians)]
            print(f"{number:5} {medians[0]:9.1f} {medians[1]:10.1f} {medians[0] / medians[1]:6.2f}")
    print(f"total {totals[0]:9.1f} {totals[1]:10.1f} {totals[0] / totals[1]:6.2f}")


if __name__ == "__main__":
    main()
