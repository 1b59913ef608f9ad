"""pgbench's TPC-B-like transaction in its three modes, and transactions that fight for few rows, against Oribi and PostgreSQL 15 in
turns: both durable at each commit, both over TCP, with the tables that `pgbench -i` makes. Prints medians of the rounds: transactions a second, the
server's processor time for each, retries; and their ratios."""

import argparse
import os
import pathlib
import re
import socket
import statistics
import subprocess
import tempfile

import psycopg
from conftest import Server
from differential.reference import Reference, binaries

SCALE = 10
HOT_ROWS = 1000

# The n-th row is drawn in proportion to 1 / n: Zipf's law, whose exponent pgbench's own function wants above 1.
FIGHT = rf"""
\set u random(0, 999999)
\set v random(0, 999999)
\set a int(pow({HOT_ROWS}, :u / 1000000.0))
\set b int(pow({HOT_ROWS}, :v / 1000000.0))
BEGIN ISOLATION LEVEL %s;
SELECT n FROM hot WHERE id = :a;
UPDATE hot SET n = n + 1 WHERE id = :a;
UPDATE hot SET n = n + 1 WHERE id = :b;
END;
"""


class Oribi:
    name = "oribi"

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="oribi-bench-")
        # pgbench empties and fills a table of a million rows in one block.
        room = "--memory", "4GiB", "--statement-bytes-max", "512MiB"
        self.server = Server(pathlib.Path(self.folder.name) / "data", "--durability", "sync", "--log", "error", *room)
        self.port = self.server.ports["postgres"]
        return self

    def __exit__(self, *_):
        self.server.kill()
        self.folder.cleanup()

    def pids(self):
        return [self.server.process.pid]


class PostgreSql:
    name = "postgresql"

    def __enter__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = {"listen_addresses": "127.0.0.1", "port": self.port, "fsync": "on", "max_connections": "100"}
        options |= {"shared_buffers": "1GB", "statement_timeout": "0"}
        self.reference = Reference(**options)
        # Found by the port alone.
        self.reference.connect = lambda: connect(self.port, "postgres")
        self.reference.__enter__()
        with connect(self.port, "postgres") as db:
            db.execute("create database oribi")
        return self

    def __exit__(self, *_):
        self.reference.__exit__()

    def pids(self):
        """The server's processes, those of clients included."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (folder / "comm").read_text() == "postgres\n":
                    found.append(int(folder.name))
            except OSError:
                continue
        return found


def connect(port, database="oribi"):
    return psycopg.connect(host="127.0.0.1", port=port, user="oribi", dbname=database, autocommit=True)


def address(system):
    return ["-h", "127.0.0.1", "-p", system.port, "-U", "oribi"]


def make_tables(system):
    command = [binaries() / "pgbench", *address(system), "-i", "-I", "dtGvp", "-s", SCALE, "-q", "oribi"]
    subprocess.run([str(word) for word in command], capture_output=True, check=True)
    with connect(system.port) as db:
        db.execute("create table hot (id int primary key, n int)")
        db.execute(f"insert into hot select i, 0 from generate_series(1, {HOT_ROWS}) as g(i)")


def ticks(pids):
    """Processor time of the processes, those that they have waited for included, in seconds."""
    total = 0
    for pid in pids:
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(int(fields[i]) for i in (11, 12, 13, 14))
    return total / os.sysconf("SC_CLK_TCK")


def pgbench(system, script, mode, clients, seconds, folder):
    command = [binaries() / "pgbench", *address(system), "-n", "-M", mode, "-c", clients, "-j", 2, "-T", seconds]
    if script is not None:
        path = pathlib.Path(folder) / "script.sql"
        path.write_text(script)
        command += ["-f", path]
    command += ["--max-tries", 1000, "oribi"]
    before = ticks(system.pids())
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    spent = ticks(system.pids()) - before
    number = lambda what: float(re.search(what, done.stdout)[1])  # noqa: E731
    assert number(r"number of failed transactions: (\d+)") == 0, done.stdout
    transactions = number(r"actually processed: (\d+)")
    return {
        "tps": number(r"tps = ([\d.]+)"),
        "cpu_us": spent / transactions * 1e6,
        "retries": number(r"total number of retries: (\d+)") / transactions if "retries" in done.stdout else 0,
    }


def compare(systems, name, script, mode, clients, options, folder):
    runs = {system.name: [] for system in systems}
    for _ in range(options.rounds):
        for system in systems:
            runs[system.name].append(pgbench(system, script, mode, clients, options.seconds, folder))
    median = lambda of, what: statistics.median(run[what] for run in runs[of])  # noqa: E731
    ours, theirs = systems[0].name, systems[1].name
    print(
        f"{name:32} {median(ours, 'tps'):8.0f} {median(theirs, 'tps'):8.0f} {median(ours, 'tps') / median(theirs, 'tps'):6.2f}"
        f" {median(ours, 'cpu_us'):9.0f} {median(theirs, 'cpu_us'):9.0f}"
        f" {median(ours, 'retries'):8.2f} {median(theirs, 'retries'):8.2f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=8, help="of TPC-B; twice as many fight")
    options = parser.parse_args()
    with Oribi() as oribi, PostgreSql() as postgresql, tempfile.TemporaryDirectory() as folder:
        systems = [oribi, postgresql]
        for system in systems:
            make_tables(system)
        print(f"{'':32} {'transactions/s':>24} {'µs of CPU for each':>19} {'retries for each':>17}")
        print(f"{'':32} {'oribi':>8} {'pg':>8} {'ratio':>6} {'oribi':>9} {'pg':>9} {'oribi':>8} {'pg':>8}")
        for mode in ("simple", "extended", "prepared"):
            compare(systems, f"TPC-B, {mode}", None, mode, options.clients, options, folder)
        for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
            name = f"few rows, {level.lower()}"
            compare(systems, name, FIGHT % level, "prepared", 2 * options.clients, options, folder)


if __name__ == "__main__":
    main()
