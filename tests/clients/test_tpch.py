"""All 22 queries of TPC-H give DuckDB's answers: from SSTables alone, with a tenth of the rows changed and not yet
flushed, after a restart, and after compaction."""

import csv
import io

import pytest
from conftest import Server, run_oribi
from tpch import assert_same_answer, assert_same_answers, generate, load_duckdb, load_folder, metric

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


def change_a_tenth(server, duck):
    """Updates a twentieth of orders and lineitem, deletes a twentieth, and puts most of that back, changed."""
    with server.sql() as connection:
        for statement in [
            "update orders set o_totalprice = o_totalprice + 1, o_orderpriority = '1-URGENT' where o_orderkey % 20 = 3",
            "update lineitem set l_quantity = l_quantity + 1, l_discount = 0.06 where l_orderkey % 20 = 3",
            "update lineitem set l_extendedprice = l_extendedprice * 2 where l_orderkey in "
            "(select o_orderkey from orders where o_orderkey % 20 = 3 and o_orderpriority = '1-URGENT')",
        ]:
            ours = connection.execute(statement).rowcount
            assert ours == duck.execute(statement).fetchone()[0], statement
        for table, key in [("orders", "o_orderkey"), ("lineitem", "l_orderkey")]:
            duck.execute(f"create or replace table moved as select * from {table} where {key} % 20 = 7")
            delete = f"delete from {table} where {key} % 20 = 7"
            assert connection.execute(delete).rowcount == duck.execute(delete).fetchone()[0]
            duck.execute(f"delete from moved where {key} % 100 = 27")
            duck.execute(f"insert into {table} select * from moved")
            lines = io.StringIO()
            csv.writer(lines).writerows(duck.execute("select * from moved").fetchall())
            with connection.cursor().copy(f"copy {table} from stdin (format csv)") as copy:
                copy.write(lines.getvalue())


@pytest.mark.parametrize("table", ["lineitem", "orders"])
def test_duckdb_reads_the_sstables_of_a_table(folder, table):
    import duckdb

    files = generate(folder / "tpch", SCALE)
    load_folder(folder / "data", files, [table])
    columns = {"lineitem": "count(*), sum(l_quantity), max(l_shipdate)", "orders": "count(*), sum(o_totalprice)"}
    ours = duckdb.sql(f"select {columns[table]} from '{folder}/data/**/*.parquet'").fetchall()
    assert ours == duckdb.sql(f"select {columns[table]} from '{files[table]}'").fetchall()
