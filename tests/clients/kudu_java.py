"""Kudu's Java client: programs of it, compiled once, that run named cases against a server under test."""

import os
import pathlib
import queue
import subprocess
import threading
from collections import defaultdict

import cases as programs
from conftest import DIES_WITH_US

SOURCES = pathlib.Path(__file__).parent / "kudu-java"
CACHE = pathlib.Path(os.environ.get("CACHE", pathlib.Path.home() / ".cache/oribi"))
JARS = pathlib.Path(os.environ.get("JARS", CACHE / "jars"))
KUDU_CLIENT = ["kudu-client-1.18.1", "async-1.4.1", "slf4j-api-1.7.36"]


def cases():
    """`Class.method` of each case, in the order in which they stand."""
    return programs.java_cases(SOURCES)


def command(server, folder, *arguments, program="Cases"):
    jars = [JARS / f"{jar}.jar" for jar in KUDU_CLIENT]
    master = f"127.0.0.1:{server.ports['kudu-master']}"
    return programs.java(folder, jars, SOURCES, master, *arguments, program=program)


class Cases(programs.Cases):
    """A process that runs cases."""

    def __init__(self, server, folder, *arguments):
        super().__init__(server, folder / "java.log", command(server, folder, *arguments))


class Histories:
    """A process that has many clients, each of which does one thing after the other."""

    def __init__(self, server, folder):
        self.log = folder / "java.log"
        self.process = subprocess.Popen(
            [*DIES_WITH_US, *command(server, folder, program="Histories")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log.open("w"), text=True,
        )  # fmt: skip
        self.answers, self.lock, self.has_ended = defaultdict(queue.Queue), threading.Lock(), False
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            client, answer = line.rstrip("\n").split(" ", 1)
            self.answers[client].put(answer)
        # Nobody waits for what it would have said.
        with self.lock:
            self.has_ended = True
            for answers in self.answers.values():
                answers.put("ended")

    def ask(self, client, command):
        """The first word of the answer, and the rest."""
        with self.lock:
            assert not self.has_ended, self.log.read_text()
            answers = self.answers[client]
            self.process.stdin.write(f"{client} {command}\n")
            self.process.stdin.flush()
        word, _, rest = answers.get(timeout=programs.SECONDS_MAX).partition(" ")
        assert word != "ended", self.log.read_text()
        return word, rest

    def close(self):
        try:
            self.process.stdin.close()
            assert self.process.wait(timeout=60) == 0, self.log.read_text()
        finally:
            self.process.kill()
