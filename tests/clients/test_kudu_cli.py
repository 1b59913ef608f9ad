"""What Kudu's command line does to a cluster, done to the Kudu door."""

import json
import os
import pwd
import re
import time
from concurrent.futures import ThreadPoolExecutor

from kudu_cli import kudu, kudu_of_module  # noqa: F401

THREADS = 2
ROWS = 20_000


def keep(cli, *flags):
    """Loads a table that stays; returns what was printed."""
    return cli.loadgen(
        f"-num_threads={THREADS}",
        f"-num_rows_per_thread={ROWS}",
        "-keep_auto_table=true",
        "-table_num_hash_partitions=4",
        *flags,
    )


def name_of(printed):
    return re.search(r"Using auto-created table '([^']+)'", printed).group(1)


def sql_count(cli, table):
    schema, name = table.split(".", 1)
    with cli.server.sql() as sql:
        return sql.execute(f'select count(*), count(distinct key) from "{schema}"."{name}"').fetchone()


def test_loadgen_writes_every_row_once(kudu_of_module):  # noqa: F811
    table = name_of(keep(kudu_of_module))
    assert table.startswith("default.loadgen_auto_")
    assert sql_count(kudu_of_module, table) == (THREADS * ROWS, THREADS * ROWS)


def test_loadgen_drops_the_table_that_it_made(kudu_of_module):  # noqa: F811
    printed = kudu_of_module.loadgen("-num_threads=1", "-num_rows_per_thread=1000")
    assert name_of(printed) not in kudu_of_module.table("list")


def test_loadgen_reads_back_what_it_wrote(kudu_of_module):  # noqa: F811
    printed = kudu_of_module.loadgen(f"-num_threads={THREADS}", f"-num_rows_per_thread={ROWS}", "-run_scan")
    scanned = re.search(r"expected rows: (\d+).*actual rows\s*: (\d+)", printed, re.S)
    assert scanned.groups() == (str(THREADS * ROWS), str(THREADS * ROWS)), printed


def test_loadgen_with_random_rows(kudu_of_module):  # noqa: F811
    table = name_of(keep(kudu_of_module, "-use_random"))
    assert sql_count(kudu_of_module, table) == (THREADS * ROWS, THREADS * ROWS)


def test_loadgen_with_upserts_of_rows_that_are_there(kudu_of_module):  # noqa: F811
    flags = ["-use_upsert", "-seq_start=7"]
    table = name_of(keep(kudu_of_module, *flags))
    for _ in range(2):
        kudu_of_module.loadgen(
            f"-num_threads={THREADS}", f"-num_rows_per_thread={ROWS}", f"-table_name={table}", *flags
        )
    assert sql_count(kudu_of_module, table) == (THREADS * ROWS, THREADS * ROWS)


def test_loadgen_of_rows_that_are_there_fails_by_row(kudu_of_module):  # noqa: F811
    flags = ["-num_threads=1", "-num_rows_per_thread=100", "-seq_start=0"]
    table = name_of(kudu_of_module.loadgen(*flags, "-keep_auto_table=true"))
    printed = kudu_of_module.loadgen(*flags, f"-table_name={table}", "-show_first_n_errors=1", status=1)
    assert "key already present" in printed


def test_loadgen_flushing_each_row(kudu_of_module):  # noqa: F811
    printed = kudu_of_module.loadgen("-num_threads=2", "-num_rows_per_thread=2000", "-flush_per_n_rows=1", "-run_scan")
    assert "actual rows  : 4000" in printed, printed


def schema_of(table, *, hash_partitions=4):
    return {
        "table_name": table,
        "schema": {
            "columns": [
                {"column_name": "id", "column_type": "INT64", "default_value": "0"},
                {"column_name": "name", "column_type": "STRING", "is_nullable": True},
                {"column_name": "score", "column_type": "DOUBLE", "is_nullable": False, "default_value": "1.5"},
            ],
            "key_column_names": ["id"],
        },
        "partition": {
            "hash_partitions": [{"columns": ["id"], "num_buckets": hash_partitions}],
            "range_partition": {},
        },
        "num_replicas": 1,
    }


def create(cli, table, **options):
    cli.table("create", json.dumps(schema_of(table, **options)))


def test_table_create_and_describe(kudu_of_module):  # noqa: F811
    create(kudu_of_module, "described")
    printed = kudu_of_module.table("describe", "described")
    assert "id INT64 NOT NULL" in printed
    assert "name STRING NULLABLE" in printed
    assert "score DOUBLE NOT NULL" in printed
    assert "PRIMARY KEY (id)" in printed
    assert "HASH (id) PARTITIONS 4" in printed
    again = kudu_of_module.table("create", json.dumps(schema_of("described")), status=1)
    assert "already exists" in again.lower() or "Already present" in again


def test_a_type_that_is_not_there_is_named(kudu_of_module):  # noqa: F811
    table = schema_of("immutable")
    table["schema"]["columns"][1]["immutable"] = True
    refused = kudu_of_module.table("create", json.dumps(table), status=1)
    assert "immutable" in refused


def test_table_list(kudu_of_module):  # noqa: F811
    create(kudu_of_module, "listed", hash_partitions=3)
    assert "listed" in kudu_of_module.table("list").split()
    lines = kudu_of_module.table("list", "-list_tablets", "-tables=listed").splitlines()
    tablets = [line for line in lines if line.strip().startswith("T ")]
    assert len(tablets) == 3
    assert len({line.split()[1] for line in tablets}) == 3
    leaders = [line for line in lines if kudu_of_module.tserver in line]
    assert len(leaders) == 3, lines


def test_names_come_back_as_they_were_given(kudu_of_module):  # noqa: F811
    names = ["plain_name", "schema_of_kudu.t", "impala::shop.orders", "a.b.c"]
    for name in names:
        create(kudu_of_module, name)
    listed = kudu_of_module.table("list").split()
    assert set(names) <= set(listed)
    with kudu_of_module.server.sql() as sql:
        sql.execute('insert into "impala::shop".orders (id, name, score) values (1, $$a$$, 2)')
        sql.execute("insert into plain_name (id, score) values (1, 2)")
    assert "(int64 id=1" in kudu_of_module.table("scan", "impala::shop.orders")
    assert "(int64 id=1" in kudu_of_module.table("scan", "plain_name")


def test_table_scan(kudu_of_module):  # noqa: F811
    create(kudu_of_module, "scanned")
    with kudu_of_module.server.sql() as sql:
        sql.execute("insert into scanned select i, case when i % 3 > 0 then $$n$$ || i end, i / 2.0 from generate_series(0, 999) t(i)")
    printed = kudu_of_module.table("scan", "scanned")
    rows = set(re.findall(r"\(int64 id=(\d+), string name=(NULL|\"n\d+\"), double score=([\d.]+)\)", printed))
    expected = {(str(i), f'"n{i}"' if i % 3 else "NULL", str(i / 2).removesuffix(".0")) for i in range(1000)}
    assert rows == expected
    assert "Total count 1000" in printed
    for predicate, count in [
        ('["AND", ["<=", "id", 99]]', 100),
        ('["AND", [">", "id", 989], ["<", "score", 497.0]]', 4),
        ('["AND", ["NULL", "name"]]', 334),
        ('["AND", ["NOTNULL", "name"], [">=", "id", 990]]', 6),
        ('["AND", ["IN", "id", [1, 5, 2000]]]', 2),
        ('["AND", ["=", "name", "n7"]]', 1),
    ]:
        printed = kudu_of_module.table("scan", "scanned", "-columns=id", f"-predicates={predicate}")
        assert f"Total count {count} " in printed, (predicate, printed)


def test_table_scan_of_rows_in_files(kudu):  # noqa: F811
    printed = kudu.loadgen("-num_threads=1", "-num_rows_per_thread=50000", "-keep_auto_table=true")
    kudu.server.restart()  # which leaves all rows in files
    for flags in ([], ["-columns=key"], ["-scan_batch_size=1000", "-columns=key"]):
        printed_again = kudu.run("perf", "table_scan", kudu.master, name_of(printed), *flags)
        assert "Total count 50000 " in printed_again


def test_table_statistics(kudu_of_module):  # noqa: F811
    table = name_of(keep(kudu_of_module))
    printed = kudu_of_module.table("statistics", table)
    assert f"live row count: {THREADS * ROWS}" in printed
    assert "on disk size" in printed


def test_columns_are_added_and_renamed(kudu_of_module):  # noqa: F811
    create(kudu_of_module, "altered")
    with kudu_of_module.server.sql() as sql:
        sql.execute("insert into altered (id) values (1)")
    kudu_of_module.table("add_column", "altered", "amount", "INT32")
    kudu_of_module.table("rename_column", "altered", "name", "title")
    printed = kudu_of_module.table("describe", "altered")
    assert "amount INT32 NULLABLE" in printed
    assert "title STRING NULLABLE" in printed
    assert "(int64 id=1, string title=NULL, double score=1.5, int32 amount=NULL)" in kudu_of_module.table("scan", "altered")
    kudu_of_module.table("delete_column", "altered", "title")
    assert "(int64 id=1, double score=1.5, int32 amount=NULL)" in kudu_of_module.table("scan", "altered")
    kudu_of_module.table("rename_table", "altered", "altered_again")
    assert "altered_again" in kudu_of_module.table("list").split()


def test_table_delete(kudu_of_module):  # noqa: F811
    create(kudu_of_module, "deleted")
    kudu_of_module.table("delete", "deleted")
    assert "deleted" not in kudu_of_module.table("list").split()
    assert "not exist" in kudu_of_module.table("describe", "deleted", status=1)


def test_ksck_finds_nothing_wrong(kudu):  # noqa: F811
    kudu.loadgen("-num_threads=1", "-num_rows_per_thread=10000", "-keep_auto_table=true")
    printed = kudu.run("cluster", "ksck", kudu.master, "-checksum_scan")
    assert printed.rstrip().endswith("OK"), printed
    assert "Checksum" in printed
    kudu.server.restart()
    again = kudu.run("cluster", "ksck", kudu.master, "-checksum_scan")
    assert again.rstrip().endswith("OK"), again


def test_ids_are_the_same_after_a_restart(kudu):  # noqa: F811
    def ids():
        masters = kudu.run("master", "list", kudu.master, "-columns=uuid", "-format=json")
        servers = kudu.run("tserver", "list", kudu.master, "-columns=uuid", "-format=json")
        return json.loads(masters), json.loads(servers)

    before = ids()
    assert before[0][0]["uuid"] != before[1][0]["uuid"]
    kudu.server.restart()
    assert ids() == before


def bound(value, kind):
    return {"bound_type": kind, "bound_values": [str(value)]}


def test_range_partitions_come_and_go(kudu_of_module):  # noqa: F811
    table = schema_of("ranged", hash_partitions=2)
    table["partition"]["range_partition"] = {
        "columns": ["id"],
        "range_bounds": [{"lower_bound": bound(0, "inclusive"), "upper_bound": bound(10, "exclusive")}],
    }
    kudu_of_module.table("create", json.dumps(table))
    kudu_of_module.table("add_range_partition", "ranged", "[10]", "[20]")
    printed = kudu_of_module.table("describe", "ranged")
    assert "PARTITION 0 <= VALUES < 10" in printed
    assert "PARTITION 10 <= VALUES < 20" in printed
    assert len(re.findall(r"^\s*T ", kudu_of_module.table("list", "-list_tablets", "-tables=ranged"), re.M)) == 4
    with kudu_of_module.server.sql() as sql:
        sql.execute("insert into ranged (id) select i from generate_series(0, 19) t(i)")
    assert "Total count 20 " in kudu_of_module.table("scan", "ranged")
    kudu_of_module.table("drop_range_partition", "ranged", "[0]", "[10]")
    assert "Total count 10 " in kudu_of_module.table("scan", "ranged")
    overlapping = kudu_of_module.table("add_range_partition", "ranged", "[15]", "[25]", status=1)
    assert "overlap" in overlapping


def test_a_varchar_is_told_again(kudu_of_module):  # noqa: F811
    table = schema_of("with_varchar")
    table["schema"]["columns"][1] |= {"column_type": "VARCHAR", "type_attributes": {"length": 12}, "encoding": "DICT_ENCODING"}
    kudu_of_module.table("create", json.dumps(table))
    assert "name VARCHAR(12) NULLABLE" in kudu_of_module.table("describe", "with_varchar")
    assert "DICT_ENCODING" in kudu_of_module.table("describe", "with_varchar", "-show_attributes")


def table_being_loaded(cli):
    """The name of the table that a load has made, once it has so many rows as to be under way."""
    while True:
        names = [name for name in cli.table("list").split() if "loadgen_auto_" in name]
        if names:
            live = re.search(r"live row count: (\d+)", cli.table("statistics", names[0]))
            if int(live.group(1)) > 1000:
                return names[0]
        time.sleep(0.05)


def test_a_load_goes_on_after_the_server_was_killed(kudu):  # noqa: F811
    server = kudu.server
    # Started again, it is where clients look for it.
    server.flags = [f"--kudu-master={kudu.master}", f"--kudu-tserver={kudu.tserver}"]
    rows = 50_000
    with ThreadPoolExecutor() as threads:
        flags = ["-num_threads=2", f"-num_rows_per_thread={rows}", "-flush_per_n_rows=20", "-keep_auto_table=true"]
        load = threads.submit(kudu.loadgen, *flags)
        name = table_being_loaded(kudu)
        for _ in range(2):
            server.kill()
            server.start()
            time.sleep(0.5)  # some more of the load
        assert name in load.result()
    assert sql_count(kudu, name) == (2 * rows, 2 * rows)


def test_sql_sees_a_load_grow(kudu):  # noqa: F811
    rows = 50_000
    with ThreadPoolExecutor() as threads:
        flags = ["-num_threads=2", f"-num_rows_per_thread={rows}", "-flush_per_n_rows=50", "-keep_auto_table=true"]
        load = threads.submit(kudu.loadgen, *flags)
        schema, name = table_being_loaded(kudu).split(".")
        seen = 0
        with kudu.server.sql() as sql:
            while seen < 2 * rows:
                done = load.done()
                count, distinct, strings = sql.execute(
                    f'select count(*), count(distinct key), count(string_val) from "{schema}".{name}'
                ).fetchone()
                assert count == distinct == strings and count >= seen
                assert not done or count == 2 * rows
                seen = count
        load.result()


def test_owner_and_comment_of_a_table(kudu_of_module):  # noqa: F811
    cli = kudu_of_module
    user = pwd.getpwuid(os.geteuid()).pw_name

    def told(table):
        printed = cli.table("describe", table)
        return re.search(r"OWNER (.*)\nREPLICAS 1\nCOMMENT (.*)", printed).groups()

    create(cli, "unsaid")
    assert told("unsaid") == (user, "")
    cli.table("create", json.dumps(schema_of("said") | {"owner": "bob", "comment": "what it is"}))
    assert told("said") == ("bob", "what it is")
    cli.table("set_comment", "said", "another")
    assert told("said") == ("bob", "another")
    with cli.server.sql() as sql:
        sql.execute("alter table said set (ttl = '1 hour')")
    cli.server.kill()
    cli.server.start()
    assert told("said") == ("bob", "another")
    cli.table("clear_comment", "said")
    assert told("said") == ("bob", "")
    refused = cli.table("set_comment", "said", "x" * 257, status=1)
    assert "longer than maximum permitted length 256" in refused
    with cli.server.sql() as sql:
        sql.execute("create table of_nobody (id bigint primary key)")
    assert told("of_nobody") == ("", "")
