"""pgjdbc, unmodified: transactions of programs in Java."""

import os
import pathlib
import subprocess

HERE = pathlib.Path(__file__).parent
JARS = pathlib.Path(os.environ.get("JARS", pathlib.Path.home() / ".cache/oribi/jars"))


def test_blocks_of_pgjdbc(server):
    program = ["java", "-XX:TieredStopAtLevel=1", "-cp", JARS / "postgresql-42.7.8.jar"]
    arguments = [HERE / "postgres-java" / "Blocks.java", str(server.ports["postgres"])]
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
