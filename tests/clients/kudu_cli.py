"""Kudu's own command line, against a server under test."""

import os
import pathlib
import subprocess

import pytest
from conftest import Server

CACHE = pathlib.Path(os.environ.get("CACHE", pathlib.Path.home() / ".cache/oribi"))
KUDU = pathlib.Path(os.environ.get("KUDU_CLI", CACHE / "kudu")) / "kudu-binary-1.18.1-linux-x86_64"


class Kudu:
    """The command line, with the address of the server where a command takes masters."""

    def __init__(self, server):
        self.server = server

    @property
    def master(self):
        return f"127.0.0.1:{self.server.ports['kudu-master']}"

    @property
    def tserver(self):
        return f"127.0.0.1:{self.server.ports['kudu-tserver']}"

    def run(self, *arguments, status=0):
        """Runs a command; returns what it prints."""
        environment = os.environ | {
            "LD_LIBRARY_PATH": str(KUDU / "lib"),
            "SASL_PATH": "/usr/lib/x86_64-linux-gnu/sasl2",
        }
        done = subprocess.run(
            [KUDU / "bin/kudu", *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == status, f"kudu {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout if status == 0 else done.stdout + done.stderr

    def table(self, command, *arguments, **options):
        return self.run("table", command, self.master, *arguments, **options)

    def loadgen(self, *flags, **options):
        return self.run("perf", "loadgen", self.master, *flags, **options)


@pytest.fixture
def kudu(server):
    return Kudu(server)


@pytest.fixture(scope="module")
def kudu_of_module(tmp_path_factory):
    """One server for all tests of a module, which keep to tables of their own."""
    started = Server(tmp_path_factory.mktemp("oribi") / "data")
    yield Kudu(started)
    status = started.stop()
    assert status == 0, started.log_text()
