"""Latency of point reads through the memcached door: on an idle server, and while queries of TPC-H run back to back on
the same server through the PostgreSQL door; with --nodes they are executed by compute nodes. The two take turns; prints
medians of the rounds and their ratio."""

import argparse
import contextlib
import json
import pathlib
import statistics
import tempfile
import threading

import psycopg
from conftest import Server, run_oribi
from tpch import QUERIES, SHARES, compute_nodes, generate, load_folder

QUANTILES = ("p50", "p90", "p99", "p99.9", "max")


class Scans:
    """Sessions that run the queries one after the other until they are told to stop."""

    def __init__(self, server, sessions):
        self.stopped, self.queries = threading.Event(), 0
        self.connections = [server.sql() for _ in range(sessions)]
        self.threads = [threading.Thread(target=self.run, args=(each,)) for each in self.connections]

    def run(self, connection):
        while not self.stopped.is_set():
            for query in QUERIES.values():
                # The query that runs when the round ends is cancelled, so that no other round pays for it.
                with contextlib.suppress(psycopg.errors.QueryCanceled):
                    connection.execute(query).fetchall()
                if self.stopped.is_set():
                    return
                self.queries += 1

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for connection, thread in zip(self.connections, self.threads):
            connection.cancel()
            thread.join()
            connection.close()


def point_reads(server, options, *flags):
    """One run of the load generator; its report."""
    report = run_oribi(
        "perf", "kv", "--json", "--host", f"127.0.0.1:{server.ports['memcached']}", "--protocol", options.protocol,
        "--num-items", options.items, "--min-size", 512, "--max-size", 512, "--set-pct", options.set_pct,
        "--batch-size", options.batch, "--server-pid", server.process.pid, *flags,
    )  # fmt: skip
    return json.loads(report)


def alternate(server, options):
    """Reports of the idle and of the busy rounds."""
    idle, busy = [], []
    measure = ("--no-population", "--duration", options.seconds)
    for _ in range(options.rounds):
        idle.append(point_reads(server, options, *measure))
        with Scans(server, options.sessions) as scans:
            report = point_reads(server, options, *measure)
            busy.append(report | {"queries": scans.queries})
    return idle, busy


def print_table(idle, busy):
    def median(reports, name):
        return statistics.median(report["batch_latency_us"][name] for report in reports)

    print(f"{'latency of a batch':>20}{'idle µs':>10}{'busy µs':>10}{'ratio':>7}")
    for name in QUANTILES:
        quiet, loaded = median(idle, name), median(busy, name)
        print(f"{name:>20}{quiet:10,.0f}{loaded:10,.0f}{loaded / quiet:7.2f}")
    rates = [statistics.median(report["operations_per_second"] for report in reports) for reports in (idle, busy)]
    print(f"{'operations/s':>20}{rates[0]:10,.0f}{rates[1]:10,.0f}{rates[1] / rates[0]:7.2f}")
    queries = sum(report["queries"] for report in busy) / sum(report["seconds"] for report in busy)
    print(f"beside {queries:.1f} queries of TPC-H a second")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1, help="of TPC-H")
    parser.add_argument("--nodes", type=int, default=0, help="compute nodes on this machine that execute the queries; two at least")
    parser.add_argument("--sessions", type=int, default=1, help="that run queries")
    parser.add_argument("--protocol", default="binary")
    parser.add_argument("--batch", type=int, default=1, help="operations in a batch")
    parser.add_argument("--set-pct", type=int, default=0)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--memory", default="4GiB")
    parser.add_argument("--json", type=pathlib.Path, help="file to write all results into")
    options = parser.parse_args()
    if options.nodes == 1:
        parser.error("--nodes: nothing is shared out over fewer than two")
    with tempfile.TemporaryDirectory(prefix="oribi-bench-isolation-") as folder:
        folder = pathlib.Path(folder)
        load_folder(folder / "data", generate(folder / "tpch", options.scale))
        flags = SHARES if options.nodes else []
        server = Server(folder / "data", "--memory", options.memory, "--log", "warn", *flags)
        try:
            point_reads(server, options, "--operations", 0)
            with compute_nodes(server, options.nodes, options.memory) if options.nodes else contextlib.nullcontext():
                idle, busy = alternate(server, options)
        finally:
            # Nobody wants the data: no need to wait until they are flushed.
            server.kill()
    print_table(idle, busy)
    if options.json:
        options.json.write_text(json.dumps({"idle": idle, "busy": busy}, indent=1) + "\n")


if __name__ == "__main__":
    main()
