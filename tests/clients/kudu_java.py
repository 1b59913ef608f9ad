"""Kudu's Java client: programs of it, compiled once, that run named cases against a server under test."""

import os
import pathlib

import cases as programs

SOURCES = pathlib.Path(__file__).parent / "kudu-java"
CACHE = pathlib.Path(os.environ.get("CACHE", pathlib.Path.home() / ".cache/oribi"))
JARS = pathlib.Path(os.environ.get("JARS", CACHE / "jars"))
KUDU_CLIENT = ["kudu-client-1.18.1", "async-1.4.1", "slf4j-api-1.7.36"]


def cases():
    """`Class.method` of each case, in the order in which they stand."""
    return programs.java_cases(SOURCES)


class Cases(programs.Cases):
    """A process that runs cases."""

    def __init__(self, server, folder, *arguments):
        jars = [JARS / f"{jar}.jar" for jar in KUDU_CLIENT]
        master = f"127.0.0.1:{server.ports['kudu-master']}"
        super().__init__(server, folder / "java.log", programs.java(folder, jars, SOURCES, master, *arguments))
