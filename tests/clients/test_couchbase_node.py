"""Runs the tests with the Couchbase Node SDK, which stand in couchbase_node.test.mjs."""

import os
import pathlib
import subprocess

from couchbase_sdk import module_server  # noqa: F401

HERE = pathlib.Path(__file__).parent
CACHE = pathlib.Path(os.environ.get("CACHE", pathlib.Path.home() / ".cache/oribi"))
NODE_CLIENTS = os.environ.get("NODE_CLIENTS", str(CACHE / "node"))


def test_every_operation_of_the_node_sdk(module_server):  # noqa: F811
    with module_server.sql() as sql:
        sql.execute("create schema shop")
        sql.execute('create table shop."crm.people" (id text primary key, name text not null, age int)')
    environment = os.environ | {
        "NODE_CLIENTS": NODE_CLIENTS,
        "ORIBI_COUCHBASE": f"127.0.0.1:{module_server.ports['couchbase']}",
    }
    done = subprocess.run(
        ["node", "--test", "--test-reporter=tap", str(HERE / "couchbase_node.test.mjs")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
