"""Rounds in which a compute node is killed, frozen, added or stopped, or the owner is killed, while sessions run queries of TPC-H
and rows move from memory to files and files become one. Every answer must be DuckDB's, no query may take longer than --seconds-max, and
after each round the nodes must be taken again and the next query must end without an error. The errors of others are told in the end."""

import argparse
import collections
import contextlib
import pathlib
import random
import signal
import tempfile
import threading
import time

import psycopg
from conftest import Server
from tpch import QUERIES, SHARES_ALL, assert_same_answer, compute_node, generate, load_duckdb, load_folder, metric
from versitygw import free_port

NODES = 2


class Sessions:
    """Threads that run queries at random and hold their answers against what is right."""

    def __init__(self, cluster, answers, count):
        self.cluster, self.answers = cluster, answers
        self.wrong, self.errors, self.longest, self.queries = [], collections.Counter(), 0.0, 0
        self.ends = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(seed,)) for seed in range(count)]
        self.threads.append(threading.Thread(target=self.move_rows))
        for thread in self.threads:
            thread.start()

    def run(self, seed):
        choose, sql = random.Random(seed), None
        while not self.ends.is_set():
            number = choose.choice(list(self.answers))
            begin = time.monotonic()
            try:
                sql = sql or self.cluster.owner.sql()
                rows = sql.execute(QUERIES[number]).fetchall()
                assert_same_answer(f"query {number}", rows, self.answers[number])
            except (psycopg.Error, KeyError) as error:
                # An owner that begins again has no port yet.
                self.errors[f"{getattr(error, 'sqlstate', None)}: {str(error).splitlines()[0]}"] += 1
                if sql is not None and sql.broken:
                    sql = None
                time.sleep(0.1)
            except AssertionError as error:
                self.wrong.append(str(error))
            self.longest = max(self.longest, time.monotonic() - begin)
            self.queries += 1

    def move_rows(self):
        """Changes that change nothing, so that the owner flushes and compacts."""
        turn, sql = 0, None
        while not self.ends.is_set():
            try:
                sql = sql or self.cluster.owner.sql()
                sql.execute(f"update lineitem set l_quantity = l_quantity + 0 where l_orderkey % 50 = {turn % 50}")
                turn += 1
            except (psycopg.Error, KeyError):
                sql = None
            time.sleep(0.2)


class Cluster:
    def __init__(self, data, memory):
        self.memory, self.names = memory, 0
        # The nodes look for an owner that comes back where it was.
        self.owner = Server(data, "--nodes", f"127.0.0.1:{free_port()}", *SHARES_ALL, "--memory", memory, "--flush-quiet-ms", "100")
        self.nodes = [self.new_node() for _ in range(NODES)]
        self.told = {"retries": 0.0, "flushes": 0.0, "compactions": 0.0}

    def new_node(self):
        self.names += 1
        return compute_node(self.owner, f"node{self.names}", self.memory)

    def wait(self, count):
        with self.owner.sql() as sql:
            end = time.monotonic() + 60
            while not (told := sql.execute(f"explain {QUERIES[1]}").fetchone()[0]).startswith(f"nodes: {count} ("):
                assert time.monotonic() < end, f"not {count} nodes within 60 s: {told}"
                time.sleep(0.05)

    def kill_a_node(self, choose):
        self.nodes.pop(choose.randrange(NODES)).kill()
        self.nodes.append(self.new_node())

    def freeze_a_node(self, choose):
        node = choose.choice(self.nodes)
        node.process.send_signal(signal.SIGSTOP)
        time.sleep(choose.choice([0.5, 2, 5, 30]))
        node.process.send_signal(signal.SIGCONT)

    def add_a_node(self, choose):
        self.nodes.append(self.new_node())
        self.wait(NODES + 1)
        time.sleep(choose.uniform(0, 2))
        assert self.nodes.pop(choose.randrange(NODES)).stop() == 0

    def kill_the_owner(self, _choose):
        self.count()
        self.owner.kill()
        self.owner.start()

    def count(self):
        """What the owner has counted, before it is gone."""
        names = {"retries": "exchange_retries", "flushes": "engine_flushes", "compactions": "engine_compactions"}
        for name, counter in names.items():
            # What has not happened is not among the metrics.
            with contextlib.suppress(KeyError):
                self.told[name] += metric(self.owner, f"oribi_{counter}_total")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--sessions", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--memory", default="512MiB", help="of each process")
    parser.add_argument("--seconds-max", type=float, default=60, help="that a query may take")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="oribi-soak-nodes-") as folder:
        folder = pathlib.Path(folder)
        files = generate(folder / "tpch", options.scale)
        load_folder(folder / "data", files)
        with load_duckdb(files) as duck:
            answers = {number: duck.execute(query).fetchall() for number, query in QUERIES.items()}
        soak(Cluster(folder / "data", options.memory), answers, options)


def soak(cluster, answers, options):
    choose = random.Random(options.seed)
    cluster.wait(NODES)
    sessions, done = Sessions(cluster, answers, options.sessions), collections.Counter()
    try:
        for turn in range(options.rounds):
            deeds = [cluster.kill_a_node, cluster.freeze_a_node, cluster.add_a_node]
            deed = cluster.kill_the_owner if turn % 10 == 9 else choose.choice(deeds)
            time.sleep(choose.uniform(0.2, 2))
            deed(choose)
            done[deed.__name__] += 1
            cluster.wait(NODES)
            number = choose.choice(list(answers))
            with cluster.owner.sql() as sql:
                assert_same_answer(f"query {number}", sql.execute(QUERIES[number]).fetchall(), answers[number])
            print(f"{turn + 1}: {deed.__name__}, {sessions.queries} queries, longest {sessions.longest:.1f} s", flush=True)
    finally:
        sessions.ends.set()
        for thread in sessions.threads:
            thread.join()
        cluster.count()
        print(dict(done), f"{sessions.queries} queries, longest {sessions.longest:.1f} s, {cluster.told}")
        print(f"{len(sessions.wrong)} wrong answers", *sessions.wrong, sep="\n")
        print(f"{sum(sessions.errors.values())} errors", *(f"{count} x {error}" for error, count in sessions.errors.items()), sep="\n")
        for server in Server.made:
            server.kill()
    assert not sessions.wrong and sessions.longest < options.seconds_max


main()
