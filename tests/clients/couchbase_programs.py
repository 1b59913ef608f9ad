"""Couchbase's Go and Java SDKs: programs of them, that run named cases against a server under test."""

import os
import pathlib
import subprocess

import cases as programs

HERE = pathlib.Path(__file__).parent
CACHE = pathlib.Path(os.environ.get("CACHE", pathlib.Path.home() / ".cache/oribi"))
JARS = pathlib.Path(os.environ.get("JARS", CACHE / "jars"))
GO_MODULES = pathlib.Path(os.environ.get("GO_MODULES", CACHE / "go"))
JAVA_SDK = ["java-client-3.11.0", "core-io-3.11.0", "reactor-core-3.6.9", "reactive-streams-1.0.4", "slf4j-api-1.7.36"]
GO, JAVA = HERE / "couchbase-go", HERE / "couchbase-java"


def go_cases():
    return [name for _, name in programs.named(GO.glob("*.go"), r"func \(c Cases\) (\w+)\(\)")]


def java_cases():
    return programs.java_cases(JAVA)


def go_command(folder, *arguments):
    """The program, with the modules that `make clients` fetched, and no others."""
    program = folder / "couchbase-go"
    environment = os.environ | {
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly -modcacherw",
        "GOPROXY": "off",
        "GOMODCACHE": str(GO_MODULES / "modules"),
        "GOCACHE": str(GO_MODULES / "built"),
    }
    built = subprocess.run(["go", "build", "-o", program, "."], cwd=GO, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return [program, *arguments]


def java_command(folder, *arguments):
    return programs.java(folder, [JARS / f"{jar}.jar" for jar in JAVA_SDK], JAVA, *arguments)
