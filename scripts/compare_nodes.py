"""The 22 queries of TPC-H in turns: by an owner alone, by the same owner with compute nodes that get a part of each query, or of those
that they get by default, and, with --spark, by Spark on the files of the owner's tables. The answers are held against DuckDB's; prints medians, their sums and what small queries take."""

import argparse
import contextlib
import math
import os
import pathlib
import statistics
import tempfile
import time

import versitygw
from conftest import Server
from tpch import KEYS, QUERIES, SHARES, assert_same_answer, change_a_tenth, compute_nodes, generate, load_duckdb, load_folder

# As an owner has it that is told nothing: what reads fewer rows it executes itself.
DEFAULT_ROWS_MIN = 2_000_000

SMALL = {
    "one row": "select * from orders where o_orderkey = 7",
    "count of 25 rows": "select count(*) from nation",
    "count of orders": "select count(*) from orders where o_totalprice > 0",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--nodes", type=int, default=2, help="compute nodes beside the owner")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="2GiB", help="of each process")
    parser.add_argument("--s3", action="store_true", help="the tables are in a bucket: of a versitygw that is started for it")
    parser.add_argument("--changed", action="store_true", help="a tenth of the rows is changed before, and not flushed")
    parser.add_argument("--spark", action="store_true", help="Spark too, as local[2]")
    options = parser.parse_args()
    if options.nodes < 2:
        parser.error("--nodes: nothing is shared out over fewer than two")
    if options.spark and (options.s3 or options.changed):
        parser.error("--spark: it reads what is in a folder's files, and all of it")
    with tempfile.TemporaryDirectory(prefix="oribi-compare-nodes-") as folder, contextlib.ExitStack() as ends:
        compare(pathlib.Path(folder), options, ends)


def compare(folder, options, ends):
    files = generate(folder / "tpch", options.scale)
    load_folder(folder / "data", files)
    duck = load_duckdb(files)
    store = bucket(folder, ends) if options.s3 else []
    flags = ["--memory", options.memory, "--flush-quiet-ms", "86400000", *store]
    owner = Server(folder / "data", *flags, *SHARES)
    ends.callback(owner.kill)
    if options.changed:
        change_a_tenth(owner, duck)
    answers = {number: duck.execute(query).fetchall() for number, query in QUERIES.items()}
    duck.close()
    sql = ends.enter_context(owner.sql())
    ends.enter_context(compute_nodes(owner, options.nodes, options.memory, *store))

    def oribi(nodes, rows_min=1):
        def prepare():
            sql.execute(f"set oribi.nodes = '{nodes}'")
            sql.execute(f"set oribi.nodes_rows_min = '{rows_min}'")

        return prepare, lambda query: sql.execute(query).fetchall()

    # What is done before a query, and what executes it.
    ways = {"alone": oribi("off"), f"{options.nodes} nodes": oribi("on")}
    print_small(ways)
    ways["by default"] = oribi("on", DEFAULT_ROWS_MIN)
    if options.spark:
        ways["Spark"] = spark(folder / "data", ends)
    print_queries(measure(ways, answers, options.rounds), list(ways))


def bucket(folder, ends):
    gateway = versitygw.Gateway(folder / "s3")
    ends.callback(gateway.stop)
    os.environ.update(versitygw.KEYS, AWS_ENDPOINT_URL=f"http://127.0.0.1:{gateway.port}")
    return ["--store", "s3://tables/tpch"]


def spark(data, ends):
    """The way of Spark, on the files of tables without changes: one folder is a table, and its first column tells of which."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "8g")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    session = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "ERROR").getOrCreate()
    ends.callback(session.stop)
    tables = {key.split(",")[0]: table for table, key in KEYS.items()}
    for folder in {path.parent for path in data.rglob("*.parquet")}:
        frame = session.read.parquet(str(folder), pathGlobFilter="*.parquet")
        frame.createOrReplaceTempView(tables[frame.columns[0]])
    return lambda: None, lambda query: [tuple(row) for row in session.sql(query).collect()]


def timed(way, query):
    prepare, execute = way
    prepare()
    begin = time.perf_counter()
    rows = execute(query)
    return time.perf_counter() - begin, rows


def measure(ways, answers, rounds):
    """Seconds of each query each way, those of the first round left out, as it warms up."""
    times = {number: {way: [] for way in ways} for number in QUERIES}
    for turn in range(rounds + 1):
        for number, query in QUERIES.items():
            for way in list(ways) if turn % 2 else reversed(ways):
                taken, rows = timed(ways[way], query)
                if turn > 0:
                    times[number][way].append(taken)
                assert_same_answer(f"query {number}, {way}", rows, answers[number])
    return times


def print_small(ways):
    """Milliseconds of small queries. The last goes over nodes because it is told to; the others stay with the owner all the same."""
    print(f"{'':18}" + "".join(f"{way + ' ms':>12}" for way in ways))
    for name, query in SMALL.items():
        times = {way: [] for way in ways}
        for _ in range(200):
            for name_of_way, way in ways.items():
                times[name_of_way].append(timed(way, query)[0])
        print(f"{name:18}" + "".join(f"{statistics.median(each) * 1000:12.2f}" for each in times.values()), flush=True)


def print_queries(times, ways):
    first, *others = ways
    print(f"{'query':>5}" + "".join(f"{way + ' s':>12}" for way in ways) + "".join(f"{other + ' / ' + first:>18}" for other in others))
    medians = {number: [statistics.median(each) for each in of.values()] for number, of in times.items()}
    for number, row in medians.items():
        print(f"{number:5}" + "".join(f"{each:12.3f}" for each in row) + "".join(f"{each / row[0]:18.2f}" for each in row[1:]))
    sums = [sum(column) for column in zip(*medians.values())]
    print(f"{'sum':>5}" + "".join(f"{each:12.3f}" for each in sums) + "".join(f"{each / sums[0]:18.2f}" for each in sums[1:]))
    means = [math.exp(statistics.mean(math.log(row[i] / row[0]) for row in medians.values())) for i in range(1, len(ways))]
    print(f"{'geometric mean':{5 + 12 * len(ways)}}" + "".join(f"{each:18.2f}" for each in means))


main()
