"""Fixtures: a server of the binary under test, in a fresh folder, on free ports.

No process outlives its test, whatever becomes of it: a server that a test made ends with the test, any server with the run,
and all processes with the one that started them, should that be killed.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading

import psycopg
import pytest
from pymemcache.client.base import Client

ROOT = pathlib.Path(__file__).resolve().parents[2]
ORIBI = os.environ.get("ORIBI", str(ROOT / "target/debug/oribi"))
# In front of a command: the kernel ends it when we end.
DIES_WITH_US = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
DOORS = ["memcached", "couchbase", "postgres", "kudu-master", "kudu-tserver", "flight", "http"]


class Server:
    """A running `oribi serve`; `restart` and `kill` keep the folder."""

    made = []

    def __init__(self, data, *flags):
        self.data = pathlib.Path(data)
        self.flags = flags
        self.process = None
        Server.made.append(self)
        self.start()

    def start(self):
        doors = [word for door in DOORS for word in (f"--{door}", "127.0.0.1:0")]
        self.log = open(self.data.parent / f"{self.data.name}.log", "ab")
        self.process = subprocess.Popen(
            [*DIES_WITH_US, ORIBI, "serve", "--data", str(self.data), *doors, *self.flags],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            # As an operator's is. The kernel shares the processor among sessions, and queries yield within theirs: to a busy
            # program in the session of the tests they would yield for ever.
            start_new_session=True,
        )
        self.ports = {}
        for line in self.process.stdout:
            words = line.split()
            if words[:1] == ["listening"]:
                self.ports[words[1]] = int(words[2].rsplit(":", 1)[1])
            if words == ["ready"]:
                break
        else:
            raise RuntimeError(f"the server did not start: {self.log_text()}")
        # Nobody reads on, and a full pipe would block the server.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def log_text(self):
        return (self.data.parent / f"{self.data.name}.log").read_text()

    def stop(self):
        """Ends the server as an operator does; returns its status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=300)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def restart(self):
        status = self.stop()
        assert status == 0, self.log_text()
        self.start()

    def sql(self, **options):
        """A psycopg connection."""
        return psycopg.connect(
            host="127.0.0.1", port=self.ports["postgres"], user="oribi", dbname="oribi", autocommit=True, **options
        )

    def memory_kib(self, what="VmHWM"):
        """Of its memory the most that was resident, or another of the system's figures."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split(f"{what}:")[1].split()[0])

    def memcached(self, **options):
        """A pymemcache client."""
        return Client(("127.0.0.1", self.ports["memcached"]), connect_timeout=10, timeout=60, **options)

    def oribi(self, *arguments):
        """Runs another command of the binary; returns its output."""
        return run_oribi(*arguments)


def run_oribi(*arguments, status=0):
    done = subprocess.run([ORIBI, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == status, f"oribi {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout if status == 0 else done.stderr


def pytest_configure():
    # As Ctrl-C does, so that fixtures end what they began.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_sessionfinish():
    for server in Server.made:
        server.kill()


@pytest.fixture(autouse=True)
def servers_end_with_their_test():
    """Fixtures of modules are made before this one, and their servers stay."""
    before = len(Server.made)
    yield
    for server in Server.made[before:]:
        server.kill()


@pytest.fixture
def folder():
    path = pathlib.Path(tempfile.mkdtemp(prefix="oribi-test-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def server(folder):
    """A server with defaults."""
    started = Server(folder / "data")
    yield started
    if started.process.poll() is None:
        status = started.stop()
        assert status == 0, started.log_text()


@contextlib.contextmanager
def cancelling(connection):
    """Cancels what runs on a connection of psycopg, again and again: a request that comes before a statement runs is void."""
    ended = threading.Event()

    def cancel():
        while not ended.wait(0.2):
            connection.cancel_safe()

    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
