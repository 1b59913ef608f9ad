"""What programs do with Couchbase's Go and Java SDKs, with the SDKs' defaults; the cases stand in couchbase-go and
couchbase-java."""

import contextlib

import couchbase_programs as programs
import pytest
from cases import Cases
from conftest import Server

COMMANDS = {"go": programs.go_command, "java": programs.java_command}
# An open door lets in whoever names a password; Java's SDK insists that the door know it too, and it knows this one.
PASSWORDS = {"go": "anything", "java": "password"}
# One that writes and reads, for what is tested of coming in.
FIRST = {"go": "UpsertInsertReplaceGetRemove", "java": "Documents.upsertInsertReplaceGetRemove"}


@contextlib.contextmanager
def process(server, language, folder, user, password, *seconds):
    address = f"127.0.0.1:{server.ports['couchbase']}"
    started = Cases(server, folder / f"{language}.log", COMMANDS[language](folder, address, user, password, *seconds))
    try:
        yield started
    finally:
        started.process.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    started = Server(tmp_path_factory.mktemp("oribi") / "data")
    with started.sql() as sql:
        sql.execute("create schema shop")
        sql.execute("create table shop.orders (id bigint primary key, note text)")
        sql.execute('create table shop."crm.people" (id text primary key, name text not null)')
    yield started
    status = started.stop()
    assert status == 0, started.log_text()


@pytest.fixture(scope="module")
def go(server, tmp_path_factory):
    with process(server, "go", tmp_path_factory.mktemp("go"), "somebody", PASSWORDS["go"]) as started:
        yield started


@pytest.fixture(scope="module")
def java(server, tmp_path_factory):
    with process(server, "java", tmp_path_factory.mktemp("java"), "somebody", PASSWORDS["java"]) as started:
        yield started


@pytest.mark.parametrize("case", programs.go_cases())
def test_go(go, case):
    go.run(case)


@pytest.mark.parametrize("case", programs.java_cases())
def test_java(java, case):
    java.run(case)


@pytest.mark.parametrize("language", COMMANDS)
def test_a_user_comes_in_with_the_right_password_only(folder, language):
    secret = folder / "password"
    secret.write_text("s3cret, with = signs\n")
    closed = Server(folder / "data", "--couchbase-user", "ann", "--couchbase-password-file", str(secret))
    with process(closed, language, folder, "ann", "s3cret, with = signs") as program:
        program.run(FIRST[language])
    with process(closed, language, folder, "ann", "wrong", "5") as program:
        assert program.process.wait(timeout=300) != 0


def test_java_insists_that_an_open_door_knows_its_password(server, folder):
    with process(server, "java", folder, "somebody", "anything", "5") as program:
        assert program.process.wait(timeout=300) != 0
