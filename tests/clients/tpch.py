"""TPC-H in both databases: Oribi under test, and DuckDB, whose answers count as right."""

import contextlib
import csv
import datetime
import decimal
import io
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


# Of an owner that is to share queries out, whatever they read; and where it listens to nodes.
SHARES_ALL = ["--nodes-rows-min", "1"]
SHARES = ["--nodes", "127.0.0.1:0", *SHARES_ALL]


def compute_node(owner, name, memory, *store):
    """A process over the owner's folder or, with the flag `--store`, with one of its own."""
    data = owner.data.with_name(name) if store else owner.data
    there = f"127.0.0.1:{owner.ports['nodes']}"
    return Server(data, *store, "--owner", there, "--nodes", "127.0.0.1:0", "--node", name, "--memory", memory)


@contextlib.contextmanager
def compute_nodes(owner, count, memory, *store):
    """So many [compute nodes](compute_node), two at least, of a server that [shares](SHARES) queries of these tables out by now."""
    nodes = [compute_node(owner, f"node{number}", memory, *store) for number in range(count)]
    try:
        with owner.sql() as sql:
            while not sql.execute(f"explain {QUERIES[1]}").fetchone()[0].startswith(f"nodes: {count} ("):
                time.sleep(0.1)
        yield nodes
    finally:
        for node in nodes:
            node.kill()


def change_a_tenth(server, duck):
    """Updates a twentieth of orders and lineitem, deletes a twentieth, and puts most of that back, changed."""
    with server.sql() as connection:
        for statement in [
            "update orders set o_totalprice = o_totalprice + 1, o_orderpriority = '1-URGENT' where o_orderkey % 20 = 3",
            "update lineitem set l_quantity = l_quantity + 1, l_discount = 0.06 where l_orderkey % 20 = 3",
            "update lineitem set l_extendedprice = l_extendedprice * 2 where l_orderkey in "
            "(select o_orderkey from orders where o_orderkey % 20 = 3 and o_orderpriority = '1-URGENT')",
        ]:
            ours = connection.execute(statement).rowcount
            assert ours == duck.execute(statement).fetchone()[0], statement
        for table, key in [("orders", "o_orderkey"), ("lineitem", "l_orderkey")]:
            duck.execute(f"create or replace table moved as select * from {table} where {key} % 20 = 7")
            delete = f"delete from {table} where {key} % 20 = 7"
            assert connection.execute(delete).rowcount == duck.execute(delete).fetchone()[0]
            duck.execute(f"delete from moved where {key} % 100 = 27")
            duck.execute(f"insert into {table} select * from moved")
            lines = io.StringIO()
            csv.writer(lines).writerows(duck.execute("select * from moved").fetchall())
            with connection.cursor().copy(f"copy {table} from stdin (format csv)") as copy:
                copy.write(lines.getvalue())


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
