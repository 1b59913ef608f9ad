"""All 22 queries of TPC-H give DuckDB's answers: from SSTables alone, with a tenth of the rows changed and not yet
flushed, after a restart, and after compaction."""

import pytest
from conftest import Server, run_oribi
from tpch import assert_same_answer, assert_same_answers, change_a_tenth, generate, load_duckdb, load_folder, metric

SCALE = 0.1


def test_answers_are_duckdbs_in_every_state_of_the_data(folder):
    files = generate(folder / "tpch", SCALE)
    duck = load_duckdb(files)
    data = folder / "data"
    load_folder(data, files)
    # Quiet tablets are not flushed, however long the machine takes to get to the next line.
    server = Server(data, "--flush-quiet-ms", "86400000")
    assert metric(server, "oribi_row_index_rows_count") == 0, "everything is in SSTables"
    assert_same_answers(server, duck)

    flushes = metric(server, "oribi_engine_flushes_total")
    change_a_tenth(server, duck)
    assert metric(server, "oribi_engine_flushes_total") == flushes, "the changes are still in memory"
    assert_same_answers(server, duck)

    assert server.stop() == 0, server.log_text()
    run_oribi("compact", "--data", data)
    assert "clean" in run_oribi("check", "--data", data)
    server.start()
    assert_same_answers(server, duck)
    for table in files:
        with server.sql() as connection:
            ours = connection.execute(f"select count(*) from {table}").fetchall()
        assert_same_answer(table, ours, duck.execute(f"select count(*) from {table}").fetchall())
    assert server.stop() == 0, server.log_text()


@pytest.mark.parametrize("table", ["lineitem", "orders"])
def test_duckdb_reads_the_sstables_of_a_table(folder, table):
    import duckdb

    files = generate(folder / "tpch", SCALE)
    load_folder(folder / "data", files, [table])
    columns = {"lineitem": "count(*), sum(l_quantity), max(l_shipdate)", "orders": "count(*), sum(o_totalprice)"}
    ours = duckdb.sql(f"select {columns[table]} from '{folder}/data/**/*.parquet'").fetchall()
    assert ours == duckdb.sql(f"select {columns[table]} from '{files[table]}'").fetchall()
