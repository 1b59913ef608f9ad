"""Kudu's Java client: programs of it, compiled once, that run named cases against a server under test."""

import os
import pathlib
import queue
import re
import subprocess
import threading

HERE = pathlib.Path(__file__).parent
SOURCES = HERE / "kudu-java"
CACHE = pathlib.Path(os.environ.get("CACHE", pathlib.Path.home() / ".cache/oribi"))
JARS = pathlib.Path(os.environ.get("JARS", CACHE / "jars"))
KUDU_CLIENT = ["kudu-client-1.18.1", "async-1.4.1", "slf4j-api-1.7.36"]
# What no case takes: one that gets no answer ends by the client's own limits, two minutes at most.
SECONDS_MAX = 300


def cases():
    """`Class.method` of each public method without arguments, in the order in which they stand."""
    return [
        f"{source.stem}.{name}"
        for source in sorted(SOURCES.glob("*.java"))
        for name in re.findall(r"public static void (\w+)\(\)", source.read_text())
    ]


class Cases:
    """A process that runs cases."""

    def __init__(self, server, folder, *arguments):
        classes = folder / "classes"
        path = ":".join([*(str(JARS / f"{jar}.jar") for jar in KUDU_CLIENT), str(classes)])
        compile = ["javac", "-d", classes, "-cp", path, *SOURCES.rglob("*.java")]
        compiled = subprocess.run(compile, capture_output=True, text=True)
        assert compiled.returncode == 0, compiled.stderr
        self.server = server
        self.log = folder / "java.log"
        self.process = subprocess.Popen(
            ["java", "-XX:TieredStopAtLevel=1", "-cp", path, "Cases", f"127.0.0.1:{server.ports['kudu-master']}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
            text=True,
        )
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("failed: the process ended\n")

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def run(self, name):
        """Runs a case, doing with the server what it asks for; fails with what it says."""
        self.tell(name)
        said = []
        while True:
            said.append(self.lines.get(timeout=SECONDS_MAX))
            match said[-1].split():
                case ["passed"]:
                    return
                case ["failed", *_]:
                    raise AssertionError("".join(said) + self.log.read_text())
                case ["ask", "restart"]:
                    self.server.restart()
                    self.tell("done")
                case ["ask", "kill"]:
                    self.server.kill()
                    self.server.start()
                    self.tell("done")

    def close(self):
        self.process.stdin.close()
        try:
            assert self.process.wait(timeout=30) == 0, self.log.read_text()
        finally:
            self.process.kill()
