"""No server outlives its test, nor the run."""

import os
import pathlib
import select
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
FAILING = """
from conftest import Server

def test_that_fails(tmp_path):
    server = Server(tmp_path / "data")
    print("server", server.process.pid)
    assert False
"""
KILLED = """
import pathlib, sys
from conftest import Server

server = Server(pathlib.Path(sys.argv[1]) / "data")
print("server", server.process.pid, flush=True)
sys.stdin.read()
"""


def python(*arguments, **options):
    environment = os.environ | {"PYTHONPATH": str(HERE)}
    return subprocess.Popen([sys.executable, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, text=True, **options)


def server_of(lines):
    return next(int(line.split()[1]) for line in lines if line.startswith("server "))


def ends(pid):
    """Waits until a process has ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with open(process, "rb") as process:
        return bool(select.select([process], [], [], 60)[0])


def test_a_test_that_fails_ends_its_server(folder):
    (folder / "test_failing.py").write_text(FAILING)
    run = python("-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", "--rootdir", folder, folder / "test_failing.py")
    said = run.communicate()[0]
    assert run.returncode == 1, said
    assert ends(server_of(said.splitlines())), said


def test_a_run_that_is_killed_takes_its_servers_along(folder):
    run = python("-c", KILLED, folder, stdin=subprocess.PIPE)
    server = server_of(run.stdout)
    run.kill()
    run.wait()
    assert ends(server)
