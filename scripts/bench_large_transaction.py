"""A transaction of many rows under little memory: how long its statements and its commit take, the server's memory, and what readers
beside it wait for, before, while its rows come and while it is committed."""

import argparse
import pathlib
import tempfile
import threading
import time

import psycopg

from conftest import Server

BASE_ROWS = 100_000


def connect(server, **options):
    return psycopg.connect(host="127.0.0.1", port=server.ports["postgres"], dbname="oribi", user="oribi", **options)


class Reader(threading.Thread):
    """Reads rows by their keys, one after the other, and notes how long each took in the phase in which it was."""

    def __init__(self, server, phases):
        super().__init__(daemon=True)
        self.connection, self.phases, self.took = connect(server, autocommit=True), phases, {}

    def run(self):
        k = 0
        while (phase := self.phases[-1]) != "end":
            k = (k + 7919) % BASE_ROWS
            begun = time.perf_counter()
            row = self.connection.execute("select v from t where k = %s", (k,), prepare=True).fetchone()
            self.took.setdefault(phase, []).append(time.perf_counter() - begun)
            assert row == (1,), row
            time.sleep(0.001)


def percentile(times, share):
    times = sorted(times)
    return times[min(int(len(times) * share), len(times) - 1)] * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--statement", choices=["copy", "select"], default="copy")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oribi-large-") as folder:
        server = Server(pathlib.Path(folder) / "data", "--memory", options.memory)
        with connect(server, autocommit=True) as other, connect(server) as block:
            other.execute("create table t (k bigint primary key, v int)")
            other.execute(f"insert into t select g, 1 from generate_series(0, {BASE_ROWS - 1}) g(g)")
            phases = ["alone"]
            readers = [Reader(server, phases) for _ in range(options.readers)]
            for reader in readers:
                reader.start()
            time.sleep(5)
            seconds = {}

            def phase(name, work):
                phases.append(name)
                begun = time.perf_counter()
                work()
                seconds[name] = time.perf_counter() - begun

            def rows():
                if options.statement == "select":
                    first, last = BASE_ROWS, BASE_ROWS + options.rows - 1
                    block.execute(f"insert into t select g, 2 from generate_series({first}, {last}) g(g)")
                    return
                with block.cursor().copy("copy t from stdin") as copy:
                    for first in range(BASE_ROWS, BASE_ROWS + options.rows, 10_000):
                        last = min(first + 10_000, BASE_ROWS + options.rows)
                        copy.write("".join(f"{k}\t2\n" for k in range(first, last)))

            phase("rows", rows)
            assert other.execute("select count(*) from t").fetchone() == (BASE_ROWS,)
            phase("commit", block.commit)
            found = other.execute("select count(*) from t").fetchone()
            assert found == (BASE_ROWS + options.rows,), found
            phases.append("end")
            print(f"{options.rows} rows, {options.memory}: {server.memory_kib() >> 10} MiB at most")
            for name in ["alone", "rows", "commit"]:
                took = [time for reader in readers for time in reader.took.get(name, [])]
                took = took or [0]
                text = f"{len(took)} reads, p50 {percentile(took, 0.5):.2f} ms, p99 {percentile(took, 0.99):.2f} ms"
                print(f"{name:7} {seconds.get(name, 5):7.1f} s  {text}, most {max(took) * 1000:.1f} ms")
        server.stop()


main()
