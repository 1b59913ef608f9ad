"""An S3-compatible server: versitygw over a folder, on loopback, with faults in between if a test likes."""

import os
import pathlib
import socket
import subprocess
import threading
import time
import urllib.request

import pytest
from conftest import DIES_WITH_US

CACHE = pathlib.Path(os.environ.get("GO_MODULES", str(pathlib.Path.home() / ".cache/oribi/go")))
# As scripts/prepare-go has it.
VERSION = "v1.8.0"
KEYS = {"AWS_ACCESS_KEY_ID": "oribi", "AWS_SECRET_ACCESS_KEY": "a-secret-of-tests", "AWS_REGION": "us-east-1"}


def binary():
    """As scripts/prepare-go has built it."""
    built = CACHE / f"versitygw-{VERSION}" / "versitygw"
    if not built.exists():
        pytest.skip(f"scripts/prepare-go has built no versitygw {VERSION}, which needs Go 1.25")
    return built


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Gateway:
    """A running server with a bucket named `tables`."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        (self.folder / "tables").mkdir(parents=True)
        self.port = free_port()
        self.start()

    def start(self):
        environment = os.environ | {
            "ROOT_ACCESS_KEY": KEYS["AWS_ACCESS_KEY_ID"],
            "ROOT_SECRET_KEY": KEYS["AWS_SECRET_ACCESS_KEY"],
        }
        self.log = open(self.folder.parent / "versitygw.log", "ab")
        command = [*DIES_WITH_US, binary(), "--port", f"127.0.0.1:{self.port}", "--health", "/health", "posix", self.folder]
        self.process = subprocess.Popen(list(map(str, command)), env=environment, stdout=self.log, stderr=self.log)
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).read()
                return
            except OSError:
                assert self.process.poll() is None, (self.folder.parent / "versitygw.log").read_text()
                time.sleep(0.1)
        raise RuntimeError("versitygw does not answer")

    def stop(self):
        self.process.kill()
        self.process.wait()


class Meddler:
    """Stands between a client and a server: of every so many connections' bytes it breaks off one, before the request has come
    through, in its middle, or before the answer has; and keeps one waiting."""

    def __init__(self, port, every):
        self.target, self.every, self.count = port, every, 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def fault(self):
        with self.lock:
            self.count += 1
            return (self.count // self.every) % 3 if self.every and self.count % self.every == 0 else None

    def serve(self, client):
        try:
            with client, socket.create_connection(("127.0.0.1", self.target)) as server:
                answers = threading.Thread(target=self.pump, args=(server, client, 2), daemon=True)
                answers.start()
                self.pump(client, server, 0)
                answers.join()
        except OSError:
            pass

    def pump(self, source, sink, breaks):
        """`breaks` is the fault by which this direction ends."""
        try:
            while data := source.recv(1 << 16):
                fault = self.fault()
                if fault == breaks:
                    break
                if fault == 1:
                    time.sleep(0.3)
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
