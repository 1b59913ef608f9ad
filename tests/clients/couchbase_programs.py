"""Couchbase's Go and Java SDKs: programs of them, that run named cases against a server under test."""

import os
import pathlib

import cases as programs

HERE = pathlib.Path(__file__).parent
JARS = pathlib.Path(os.environ.get("JARS", programs.CACHE / "jars"))
JAVA_SDK = ["java-client-3.11.0", "core-io-3.11.0", "reactor-core-3.6.9", "reactive-streams-1.0.4", "slf4j-api-1.7.36"]
GO, JAVA = HERE / "couchbase-go", HERE / "couchbase-java"


def go_cases():
    return [name for _, name in programs.named(GO.glob("*.go"), r"func \(c Cases\) (\w+)\(\)")]


def java_cases():
    return programs.java_cases(JAVA)


def go_command(folder, *arguments):
    return programs.go(folder, GO, *arguments)


def java_command(folder, *arguments):
    return programs.java(folder, [JARS / f"{jar}.jar" for jar in JAVA_SDK], JAVA, *arguments)
