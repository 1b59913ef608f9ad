"""One setting of the exchange against another, over an owner and compute nodes: see scripts/bench-exchange."""

import argparse
import math
import pathlib
import statistics
import tempfile
import time
import urllib.request

from conftest import Server
from tpch import QUERIES, SHARES, compute_nodes, generate, load_folder

# Of these nearly all rows change their places, and there are nearly as many groups: of numbers alone, and with texts.
SHUFFLES = {
    "shuffle": """select count(*), sum(lines), sum(total) from (
        select l_partkey, l_suppkey, count(*) as lines, sum(o_totalprice) as total
        from lineitem join orders on l_orderkey = o_orderkey group by l_partkey, l_suppkey) as groups""",
    "texts": """select count(*), sum(lines), max(line), max(ordered) from (
        select l_partkey, l_suppkey, count(*) as lines, max(l_comment) as line, max(o_comment) as ordered
        from lineitem join orders on l_orderkey = o_orderkey group by l_partkey, l_suppkey) as groups""",
}
TPCH = {f"Q{number}": text for number, text in QUERIES.items()}
TEXTS = TPCH | SHUFFLES


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--nodes", type=int, default=3, help="compute nodes beside the owner")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--query", choices=TEXTS, action="append", help="may be given again")
    parser.add_argument("--memory", default="2GiB", help="of each process")
    parser.add_argument("--base", default="oribi.exchange_local=loopback_compressed")
    parser.add_argument("--new", default="oribi.exchange_local=handover")
    options = parser.parse_args()
    if options.nodes < 2:
        parser.error("--nodes: nothing is shared out over fewer than two")
    with tempfile.TemporaryDirectory(prefix="oribi-bench-exchange-") as folder:
        folder = pathlib.Path(folder)
        load_folder(folder / "data", generate(folder / "tpch", options.scale))
        owner = Server(folder / "data", "--memory", options.memory, *SHARES)
        with compute_nodes(owner, options.nodes, options.memory) as nodes, owner.sql() as sql:
            table = measure(sql, [owner, *nodes], options)
        owner.kill()
    report(table, options)


COUNTERS = ["handed_over_bytes", "sent_bytes", "encoding_nanoseconds"]


def counters(servers):
    """What the processes have counted together."""
    sums = dict.fromkeys(COUNTERS, 0.0)
    for server in servers:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.ports['http']}/metrics") as page:
            lines = [line.split() for line in page.read().decode().splitlines()]
        for name in COUNTERS:
            sums[name] += sum(float(line[1]) for line in lines if line[:1] == [f"oribi_exchange_{name}_total"])
    return sums


def measure(sql, servers, options):
    """Of each query its times and counters with either setting, who is first changing from round to round."""
    ways = {"base": options.base.split("="), "new": options.new.split("=")}
    names = options.query or list(TEXTS)
    table = {query: {way: [] for way in ["base", "new", "base counters", "new counters"]} for query in names}
    answers = {}
    # Between machines rows are compressed, and that is what handing over saves.
    sql.execute("set oribi.exchange_compression = 'lz4'")
    for round_number in range(-1, options.rounds):
        order = list(ways) if round_number % 2 else list(ways)[::-1]
        for query in names:
            for way in order:
                name, value = ways[way]
                sql.execute(f"set {name} = '{value}'")
                before = counters(servers)
                begin = time.perf_counter()
                rows = sorted(map(str, sql.execute(TEXTS[query]).fetchall()))
                taken = time.perf_counter() - begin
                assert answers.setdefault(query, rows) == rows, f"{query} has another answer with {name} = {value}"
                # The first round warms up.
                if round_number >= 0:
                    table[query][way].append(taken)
                    after = counters(servers)
                    table[query][f"{way} counters"].append({name: after[name] - before[name] for name in COUNTERS})
    return table


def report(table, options):
    print(f"base: {options.base}, new: {options.new}, scale {options.scale}, {options.nodes} nodes, {options.rounds} rounds")
    heads = ["handed MiB", "sent MiB", "enc. ms"] * 2
    print(f"{'':51}{'new:':33}base:")
    print(f"{'query':>8} {'avg s':>8} {'base s':>8} {'delta':>8} {'stddev':>8} {'base':>8}" + "".join(f"{head:>11}" for head in heads))
    ratios, sums = [], [0.0, 0.0]
    for query, times in table.items():
        new, base = statistics.mean(times["new"]), statistics.mean(times["base"])
        print(
            f"{query:>8} {new:8.3f} {base:8.3f} {new / base - 1:8.2%} {spread(times['new']):8.2%} {spread(times['base']):8.2%}"
            + told(times["new counters"]) + told(times["base counters"])
        )  # fmt: skip
        if query in TPCH:
            ratios.append(new / base)
            sums = [sums[0] + new, sums[1] + base]
    if ratios:
        geometric = math.exp(statistics.mean(map(math.log, ratios)))
        print(f"average {sums[0] / sums[1] - 1:+.2%}, geometric mean {geometric - 1:+.2%}")


def told(counted):
    mean = {name: statistics.mean(counts[name] for counts in counted) for name in COUNTERS}
    figures = [mean["handed_over_bytes"] / 2**20, mean["sent_bytes"] / 2**20, mean["encoding_nanoseconds"] / 1e6]
    return "".join(f"{figure:11.1f}" for figure in figures)


def spread(times):
    return statistics.stdev(times) / statistics.mean(times) if len(times) > 1 else 0.0


main()
