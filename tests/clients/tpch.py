"""TPC-H in both databases: Oribi under test, and DuckDB, whose answers count as right."""

import contextlib
import datetime
import decimal
import math
import pathlib
import time
import urllib.request

import duckdb

from conftest import ROOT, Server, run_oribi

QUERIES = {n: (ROOT / f"crates/server/queries/q{n}.sql").read_text() for n in range(1, 23)}
SCHEMA = (ROOT / "crates/server/queries/schema.sql").read_text()
KEYS = {
    "region": "r_regionkey",
    "nation": "n_nationkey",
    "supplier": "s_suppkey",
    "customer": "c_custkey",
    "part": "p_partkey",
    "partsupp": "ps_partkey,ps_suppkey",
    "orders": "o_orderkey",
    "lineitem": "l_orderkey,l_linenumber",
}


def generate(folder, scale):
    run_oribi("generate", "--scale", scale, "--out", folder)
    return {table: folder / f"{table}.parquet" for table in KEYS}


def load_duckdb(files):
    duck = duckdb.connect()
    for table, path in files.items():
        duck.execute(f"create table {table} as select * from '{path}'")
    return duck


def load_folder(data, files, tables=KEYS):
    """Imports into a folder that nobody serves: straight to SSTables."""
    for table in tables:
        run_oribi("import", table, files[table], "--primary-key", KEYS[table], "--data", data)


# Of an owner that is to share queries out, whatever they read.
SHARES = ["--nodes", "127.0.0.1:0", "--nodes-rows-min", "1"]


@contextlib.contextmanager
def compute_nodes(owner, count, memory):
    """So many compute nodes, two at least, of a server that [shares](SHARES) queries of these tables out by now."""
    nodes = [
        Server(
            owner.data, "--owner", f"127.0.0.1:{owner.ports['nodes']}", "--nodes", "127.0.0.1:0",
            "--node", f"node{number}", "--memory", memory,
        )
        for number in range(count)
    ]  # fmt: skip
    try:
        with owner.sql() as sql:
            while not sql.execute(f"explain {QUERIES[1]}").fetchone()[0].startswith(f"nodes: {count} ("):
                time.sleep(0.1)
        yield nodes
    finally:
        for node in nodes:
            node.kill()


def normal(value):
    """A value as both databases can agree on it: numbers as floats, dates as text."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float, decimal.Decimal)):
        return float(value)
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    return value


def order(row):
    return [(value is None, f"{value:.1f}" if isinstance(value, float) else str(value)) for value in row]


def same(ours, theirs):
    if isinstance(ours, float) and isinstance(theirs, float):
        # An average of decimals has six digits behind the point here, and is a binary double there.
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-6)
    return ours == theirs


def assert_same_answer(name, ours, theirs):
    ours = sorted(([normal(v) for v in row] for row in ours), key=order)
    theirs = sorted(([normal(v) for v in row] for row in theirs), key=order)
    assert len(ours) == len(theirs), f"{name}: {len(ours)} rows, DuckDB has {len(theirs)}"
    for i, (mine, other) in enumerate(zip(ours, theirs)):
        assert len(mine) == len(other) and all(map(same, mine, other)), f"{name}, row {i}:\n{mine}\n{other}"


def assert_same_answers(server, duck):
    """All 22 queries, on both."""
    with server.sql() as connection:
        for number, query in QUERIES.items():
            started = time.monotonic()
            ours = connection.execute(query).fetchall()
            print(f"query {number}: {len(ours)} rows in {time.monotonic() - started:.2f} s")
            assert_same_answer(f"query {number}", ours, duck.execute(query).fetchall())


def metric(server, name):
    """The value of a metric without labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.ports['http']}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.split(" ")[0] == name:
                return float(line.split(" ")[1])
    raise KeyError(name)


def sstables(data):
    return sorted(str(path) for path in pathlib.Path(data).rglob("*.parquet"))
