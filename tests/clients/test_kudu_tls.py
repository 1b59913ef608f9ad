"""Kudu's clients that encrypt, against a server that has a certificate."""

import contextlib
import re
import socket
import threading

import pytest
from conftest import ROOT, Server
from kudu_cli import Kudu
from kudu_java import Cases, cases

TLS = ROOT / "crates/net/tests/tls"
IDENTITY = [f"--tls-certificate={TLS / 'certificate.pem'}", f"--tls-key={TLS / 'key.pem'}"]
ROWS = 20_000
# By default they shake hands on one machine, and go on in plain text.
ENCRYPTED = ["-rpc_encryption=required", "-rpc_encrypt_loopback_connections"]
WITHOUT_1_3 = ["-unlock_experimental_flags", "-rpc_tls_excluded_protocols=TLSv1.3"]


@pytest.fixture(scope="module")
def encrypting(tmp_path_factory):
    folder = tmp_path_factory.mktemp("oribi")
    server = Server(folder / "data", *IDENTITY)
    # Started again, it is where clients look for it.
    server.flags = [*IDENTITY, *(f"--{door}=127.0.0.1:{server.ports[door]}" for door in ("kudu-master", "kudu-tserver"))]
    yield server
    status = server.stop()
    assert status == 0, server.log_text()


@pytest.mark.parametrize(
    "flags",
    [[], ENCRYPTED, [*ENCRYPTED, *WITHOUT_1_3]],
    ids=["handshake", "encrypted", "encrypted-1.2"],
)
def test_loadgen_and_scan(encrypting, flags):
    kudu = Kudu(encrypting)
    printed = kudu.loadgen("-num_threads=2", f"-num_rows_per_thread={ROWS}", "-run_scan", "-keep_auto_table", *flags)
    assert f"actual rows  : {2 * ROWS}" in printed, printed
    table = re.search(r"Using auto-created table '([^']+)'", printed).group(1)
    assert f"Total count {2 * ROWS} " in kudu.table("scan", table, *flags)
    assert "OK" in kudu.run("cluster", "ksck", kudu.master, "-checksum_scan", *flags)


class Tap:
    """Hands connections on, and keeps what goes through them, both ways."""

    def __init__(self, port):
        self.port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.ports = {"kudu-master": self.listener.getsockname()[1]}
        self.seen = bytearray()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.port))
            for ends in [(client, server), (server, client)]:
                threading.Thread(target=self.pump, args=ends, daemon=True).start()

    def pump(self, source, sink):
        try:
            while data := source.recv(1 << 16):
                self.seen += data
                sink.sendall(data)
        except OSError:
            pass
        finally:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("flags, is_read", [([], True), (ENCRYPTED, False)], ids=["handshake", "encrypted"])
def test_nobody_reads_what_is_encrypted(encrypting, flags, is_read):
    tap = Tap(encrypting.ports["kudu-master"])
    assert "default.kv" in Kudu(encrypting).run("table", "list", Kudu(tap).master, *flags)
    # A TLS handshake in either case.
    assert b"\x16\x03" in tap.seen
    assert (b"ConnectToMaster" in tap.seen) == is_read


def test_nobody_reads_what_java_encrypts(encrypting, folder):
    tap = Tap(encrypting.ports["kudu-master"])
    process = Cases(tap, folder, "REQUIRED")
    process.run("Catalog.tablesAreListedAndTheirNamesAreTaken")
    process.close()
    assert b"\x16\x03" in tap.seen
    assert b"ConnectToMaster" not in tap.seen


def test_java_that_requires_encryption_is_told_that_there_is_none(server, folder):
    process = Cases(server, folder, "REQUIRED")
    with pytest.raises(AssertionError, match="TLS encryption"):
        process.run("Catalog.tablesAreListedAndTheirNamesAreTaken")
    process.close()


@pytest.fixture(scope="module")
def java(encrypting, tmp_path_factory):
    process = Cases(encrypting, tmp_path_factory.mktemp("java"), "REQUIRED")
    yield process
    process.close()


@pytest.mark.parametrize("case", [case for case in cases() if case.split(".")[0] in ("Scans", "Writes", "Faults")])
def test_java(java, case):
    java.run(case)
