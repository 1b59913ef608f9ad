"""Kudu's clients that require encryption, against a server that has a certificate."""

import re

import pytest
from conftest import ROOT, Server
from kudu_cli import Kudu
from kudu_java import Cases, cases

TLS = ROOT / "crates/doors/tests/tls"
IDENTITY = [f"--tls-certificate={TLS / 'certificate.pem'}", f"--tls-key={TLS / 'key.pem'}"]
ROWS = 20_000
REQUIRED = ["-rpc_encryption=required"]
# Otherwise they shake hands, and go on in plain text.
ENCRYPTED = [*REQUIRED, "-rpc_encrypt_loopback_connections=true"]
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
    [[], REQUIRED, ENCRYPTED, [*ENCRYPTED, *WITHOUT_1_3]],
    ids=["optional", "required", "encrypted", "encrypted-1.2"],
)
def test_loadgen_and_scan(encrypting, flags):
    kudu = Kudu(encrypting)
    printed = kudu.loadgen("-num_threads=2", f"-num_rows_per_thread={ROWS}", "-run_scan", "-keep_auto_table", *flags)
    assert f"actual rows  : {2 * ROWS}" in printed, printed
    table = re.search(r"Using auto-created table '([^']+)'", printed).group(1)
    assert f"Total count {2 * ROWS} " in kudu.table("scan", table, *flags)
    assert "OK" in kudu.run("cluster", "ksck", kudu.master, "-checksum_scan", *flags)


def test_without_a_certificate_they_are_refused(server):
    assert "encryption" in Kudu(server).table("list", *REQUIRED, status=1)


@pytest.fixture(scope="module")
def java(encrypting, tmp_path_factory):
    process = Cases(encrypting, tmp_path_factory.mktemp("java"), "REQUIRED")
    yield process
    process.close()


@pytest.mark.parametrize("case", [case for case in cases() if case.split(".")[0] in ("Scans", "Writes", "Faults")])
def test_java(java, case):
    java.run(case)
