"""Programs of a client that is not Python's: a process runs named cases against a server under test."""

import os
import pathlib
import queue
import re
import subprocess
import threading

from conftest import DIES_WITH_US

# What no case takes: one that gets no answer ends by the client's own limits, two minutes at most.
SECONDS_MAX = 300
CACHE = pathlib.Path(os.environ.get("CACHE", pathlib.Path.home() / ".cache/oribi"))
GO_MODULES = pathlib.Path(os.environ.get("GO_MODULES", CACHE / "go"))
# What the programs of all Java clients share.
JAVA_SOURCES = pathlib.Path(__file__).parent / "java"


def named(sources, pattern):
    """What `pattern` finds in each of the sources, in the order in which it stands."""
    return [(source.stem, name) for source in sorted(sources) for name in re.findall(pattern, source.read_text())]


def java(folder, jars, sources, *arguments, program="Cases"):
    """The command that runs a class of `sources`, which are compiled into `folder`."""
    classes = folder / "classes"
    path = ":".join(map(str, [*jars, classes]))
    files = [*JAVA_SOURCES.glob("*.java"), *sources.rglob("*.java")]
    compiled = subprocess.run(
        ["javac", "-proc:none", "-d", classes, "-cp", path, *files], capture_output=True, text=True
    )
    assert compiled.returncode == 0, compiled.stderr
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", path, program, *arguments]


def go(folder, source, *arguments):
    """The command that runs the program in `source`, built with the modules that `make clients` fetched, and no others."""
    program = folder / source.name
    environment = os.environ | {
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly -modcacherw",
        "GOPROXY": "off",
        "GOMODCACHE": str(GO_MODULES / "modules"),
        "GOCACHE": str(GO_MODULES / "built"),
    }
    built = subprocess.run(
        ["go", "build", "-o", program, "."], cwd=source, env=environment, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return [program, *arguments]


def java_cases(sources):
    """`Class.method` of each public method without arguments."""
    return [f"{source}.{name}" for source, name in named(sources.glob("*.java"), r"public static void (\w+)\(\)")]


class Cases:
    """A process that runs cases: it reads a name from each line, and answers with lines of which the last is `passed` or
    `failed`, or `ask …` for what is to be done with the server."""

    def __init__(self, server, log, command):
        self.server = server
        self.log = log
        self.process = subprocess.Popen(
            [*DIES_WITH_US, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("w"), text=True
        )
        self.lines = queue.Queue()
        self.has_ended = False
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        # All cases that come after it fail too.
        self.has_ended = True
        self.lines.put("failed: the process ended\n")

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def run(self, name):
        """Runs a case, doing with the server what it asks for; fails with what it says."""
        assert not self.has_ended, self.log.read_text()
        self.tell(name)
        said = []
        while True:
            said.append(self.lines.get(timeout=SECONDS_MAX))
            match said[-1].split():
                case ["passed"]:
                    return
                case ["failed" | "failed:", *_]:
                    raise AssertionError("".join(said) + self.log.read_text())
                case ["ask", "restart"]:
                    self.server.restart()
                    self.tell("done")
                case ["ask", "kill"]:
                    self.server.kill()
                    self.server.start()
                    self.tell("done")

    def close(self):
        try:
            self.process.stdin.close()
            assert self.process.wait(timeout=30) == 0, self.log.read_text()
        finally:
            self.process.kill()
