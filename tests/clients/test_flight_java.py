"""The JDBC driver of Arrow Flight SQL, unmodified."""

import os
import pathlib
import subprocess

HERE = pathlib.Path(__file__).parent
JARS = pathlib.Path(os.environ.get("JARS", pathlib.Path.home() / ".cache/oribi/jars"))


def test_queries_of_jdbc(server):
    jar = JARS / "flight-sql-jdbc-driver-18.3.0.jar"
    program = ["java", "-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-Duser.timezone=UTC", "-cp", jar]
    arguments = [HERE / "flight-java" / "Queries.java", str(server.ports["flight"])]
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
