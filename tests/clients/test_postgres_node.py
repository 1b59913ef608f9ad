"""node-postgres, unmodified: transactions of programs in JavaScript, which stand in postgres_node.test.mjs."""

import os
import pathlib
import subprocess

import cases

HERE = pathlib.Path(__file__).parent
NODE_CLIENTS = os.environ.get("NODE_CLIENTS", str(cases.CACHE / "node"))


def test_transactions_of_node_postgres(server):
    environment = os.environ | {"NODE_CLIENTS": NODE_CLIENTS, "ORIBI_POSTGRES": str(server.ports["postgres"])}
    done = subprocess.run(
        ["node", "--test", "--test-reporter=tap", str(HERE / "postgres_node.test.mjs")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
