"""Hit rate of the row cache for point readers, before, while and after SQL scans the whole table, which is several times
the cache. Readers pick keys by Zipf's law. Prints the rates."""

import argparse
import bisect
import itertools
import pathlib
import random
import socket
import tempfile
import threading
import urllib.request

from conftest import Server, run_oribi

SCAN = "select count(*), max(value), min(key) from default.kv"
BATCH = 200


def file_reads(server):
    url = f"http://127.0.0.1:{server.ports['http']}/metrics"
    with urllib.request.urlopen(url) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("oribi_engine_file_reads_total"))


class Reader:
    """Gets in batches, of keys as `oribi perf kv` names them."""

    def __init__(self, server, items, exponent):
        self.server, self.random = server, random.Random(1)
        self.weights = list(itertools.accumulate(1 / rank**exponent for rank in range(1, items + 1)))
        self.items = list(range(items))
        self.random.shuffle(self.items)
        self.socket = socket.create_connection(("127.0.0.1", server.ports["memcached"]))
        self.answers = self.socket.makefile("rb")

    def key(self):
        return self.items[bisect.bisect(self.weights, self.random.random() * self.weights[-1])]

    def read(self, gets):
        """Hit rate of the row cache over so many gets."""
        before = file_reads(self.server)
        for _ in range(gets // BATCH):
            self.socket.sendall(b"".join(b"mg %020d v\r\n" % self.key() for _ in range(BATCH)))
            for _ in range(BATCH):
                status, size = self.answers.readline().split()[:2]
                assert status == b"VA", status
                self.answers.read(int(size) + 2)
        return 1 - (file_reads(self.server) - before) / (gets // BATCH * BATCH)


def scan_until(server, stop, scans):
    with server.sql() as sql:
        while not stop.is_set():
            sql.execute(SCAN).fetchall()
            scans.append(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=500_000, help="of 512 bytes")
    parser.add_argument("--memory", default="96MiB", help="budget of the server: the cache is what is left of it")
    parser.add_argument("--exponent", type=float, default=0.99)
    parser.add_argument("--gets", type=int, default=300_000, help="in each phase")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oribi-bench-hit-rate-") as folder:
        server = Server(pathlib.Path(folder) / "data", "--memory", options.memory, "--log", "warn")
        try:
            run_oribi("perf", "kv", "--host", f"127.0.0.1:{server.ports['memcached']}", "--num-items", options.items,
                      "--min-size", 512, "--max-size", 512, "--operations", 0)  # fmt: skip
            reader, stop, scans = Reader(server, options.items, options.exponent), threading.Event(), []
            reader.read(options.gets)
            before = reader.read(options.gets)
            scanner = threading.Thread(target=scan_until, args=(server, stop, scans))
            scanner.start()
            during = reader.read(options.gets)
            stop.set()
            scanner.join()
            after = reader.read(options.gets)
        finally:
            server.kill()
    print(f"hit rate before {before:.2%}, while {len(scans)} scans ran {during:.2%}, after {after:.2%}")


if __name__ == "__main__":
    main()
