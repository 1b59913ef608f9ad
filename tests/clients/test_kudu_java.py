"""What Java programs do with Kudu's own client, done to the Kudu door; the cases stand in kudu-java."""

import pytest
from conftest import Server
from kudu_java import Cases, cases


@pytest.fixture(scope="module")
def java(tmp_path_factory):
    """One process and one server for all cases, which keep to tables of their own."""
    folder = tmp_path_factory.mktemp("oribi")
    silence = "--transaction-silence-ms=5000"
    server = Server(folder / "data", silence)
    # Started again, it is where clients look for it.
    doors = [f"--{door}=127.0.0.1:{server.ports[door]}" for door in ("kudu-master", "kudu-tserver")]
    server.flags = [silence, *doors]
    process = Cases(server, folder)
    yield process
    process.close()
    status = server.stop()
    assert status == 0, server.log_text()


# Loads that something happens to, and their tables, which stay: `id` from 0, `n = 7 * id`.
LOADS = {
    "Faults.aLoadGoesOnOverBrokenConnections": "loaded_over_breaks",
    "Faults.aLoadGoesOnOverKills": "loaded_over_kills",
}
LOADED = 20_000


@pytest.mark.parametrize("case", cases())
def test_java(java, case):
    java.run(case)
    if case in LOADS:
        with java.server.sql() as sql:
            counted = sql.execute(f"select count(*), count(distinct id), sum(n) from {LOADS[case]}").fetchone()
        assert counted == (LOADED, LOADED, 7 * LOADED * (LOADED - 1) // 2)
