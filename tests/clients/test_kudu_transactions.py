"""Transactions of Kudu's command line, and what they are to others: plain loads of the same table, SQL, `kudu txn list`."""

import re
import time

import pytest
from conftest import Server
from kudu_cli import Kudu

ROWS = 3_000
LOAD = ["-num_threads=2", f"-num_rows_per_thread={ROWS}", "-table_num_hash_partitions=4"]


@pytest.fixture(scope="module")
def cli(tmp_path_factory):
    """A server that ends transactions of which it has heard nothing for three seconds."""
    started = Server(tmp_path_factory.mktemp("oribi") / "data", "--transaction-silence-ms=3000")
    yield Kudu(started)
    status = started.stop()
    assert status == 0, started.log_text()


def load(cli, *flags):
    """Loads a table that stays; returns its name in SQL."""
    printed = cli.loadgen(*LOAD, "-keep_auto_table=true", *flags)
    schema, name = re.search(r"Using auto-created table '([^']+)'", printed).group(1).split(".", 1)
    return f'"{schema}"."{name}"'


def ask(cli, query):
    with cli.server.sql() as sql:
        return sql.execute(query).fetchall()


def count(cli, table):
    return ask(cli, f"select count(*) from {table}")[0][0]


def transactions(cli, state):
    query = f"select id, rows, tables, why from system.transactions where state = '{state}' order by id"
    return ask(cli, query)


def test_a_commit_shows_all_rows(cli):
    assert count(cli, load(cli, "-txn_start=true", "-txn_commit=true")) == 2 * ROWS
    assert transactions(cli, "committed")[-1][1] == 2 * ROWS


def test_a_rollback_leaves_none(cli):
    assert count(cli, load(cli, "-txn_start=true", "-txn_rollback=true")) == 0
    assert "rolled it back" in transactions(cli, "aborted")[-1][3]


def test_plain_loads_go_on_beside_one_that_is_left_open(cli):
    table = load(cli, "-txn_start=true")
    (left,) = transactions(cli, "open")
    assert left[1:] == (2 * ROWS, table.replace('"', ""), None)
    assert str(left[0]) in cli.run("txn", "list", cli.master)
    name = table.replace('"', "")
    cli.loadgen(*LOAD, f"-table_name={name}", f"-seq_start={10 * ROWS}")
    assert count(cli, table) == 2 * ROWS
    # Nobody keeps it alive.
    deadline = time.monotonic() + 60
    while transactions(cli, "open"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    ended = transactions(cli, "aborted")[-1]
    assert ended[0] == left[0] and "nobody has named it" in ended[3]
    listed = cli.run("txn", "list", cli.master, "-included_states=*")
    assert re.search(rf"{left[0]}.*ABORTED", listed), listed
    # Its keys are free.
    cli.loadgen(*LOAD, f"-table_name={name}")
    assert count(cli, table) == 4 * ROWS


def test_one_that_is_open_shows_nothing_and_says_who_has_it(cli):
    table = load(cli, "-txn_start=true")
    assert count(cli, table) == 0
    owner, door, age, locked, waits = ask(
        cli, "select owner, door, age_ms, locked_rows, waits_for from system.transactions where state = 'open'"
    )[0]
    assert owner and door == "kudu" and age >= 0 and locked == 2 * ROWS and waits == []


def test_the_table_of_transactions_cannot_be_written_to(cli):
    name = "kudu_system.kudu_transactions"
    assert name not in cli.table("list")
    printed = cli.loadgen("-num_threads=1", "-num_rows_per_thread=1", f"-table_name={name}", status=1)
    assert "Encountered 1 write operation errors" in printed


def test_perf_counts_what_was_acknowledged(cli):
    printed = cli.server.oribi(
        *["perf", "txn-writes", "--master", cli.master, "--clients", 4, "--benchmark-run-time-ms", 20],
        *["--alternate", "--prepare-connections", "--repeat", 3, "--max-pending-txn-write-ops", 2],
    )
    assert len(re.findall(r"^(?:plain|transactional) +\d+ write RPCs", printed, re.M)) == 6, printed
    assert re.search(r"^transactional over plain: \d+\.\d+$", printed, re.M), printed
    assert "no --tablet_max_pending_txn_write_ops" in printed


def test_settings_of_kudus_are_not_there(cli):
    assert "there is no flag max_memory" in cli.run("tserver", "set_flag", cli.tserver, "max_memory", "1", status=1)
