"""pgx, unmodified: transactions of programs in Go, which stand in postgres-go."""

import pathlib
import subprocess

import cases

PROGRAM = pathlib.Path(__file__).parent / "postgres-go"


def test_transactions_of_pgx(server, folder):
    command = cases.go(folder, PROGRAM, str(server.ports["postgres"]))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
