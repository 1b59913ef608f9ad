"""What Spark does with tables of Kudu by Kudu's own connector, done to the Kudu door."""

import re

import pytest
from conftest import Server
from kudu_java import JARS
from pyspark.sql import SparkSession

CONNECTOR = JARS / "kudu-spark3_2.12-1.18.1.jar"
ROWS = 2000
# With nulls, in rows that are divided by seven.
COLUMNS = [
    "id",
    "cast(id % 10 as int) as n",
    "if(id % 7 = 0, null, concat('s', id)) as s",
    "id / 4D as x",
    "id % 2 = 0 as even",
    "timestamp_micros(id * 1000001) as at",
    "date_add(date'2020-02-28', cast(id as int)) as day",
    "cast(id * 1.25 as decimal(12, 2)) as price",
    "cast(concat('b', id) as binary) as bytes",
]


class Kudu:
    """A session of Spark, and tables of a server under test in it."""

    def __init__(self, server):
        self.server = server
        self.master = f"127.0.0.1:{server.ports['kudu-master']}"
        settings = {
            "spark.jars": CONNECTOR,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.session.timeZone": "UTC",
        }
        builder = SparkSession.builder.master("local[2]")
        for name, value in settings.items():
            builder = builder.config(name, str(value))
        self.spark = builder.getOrCreate()
        self.jvm = self.spark._jvm
        self.context = self.jvm.org.apache.kudu.spark.kudu.KuduContext(self.master, self.spark._jsc.sc())

    def frame(self, first, end, *columns):
        return self.spark.range(first, end, 1, 2).selectExpr(*(columns or COLUMNS))

    def create(self, table, frame):
        options = self.jvm.org.apache.kudu.client.CreateTableOptions()
        options.setNumReplicas(1).addHashPartitions(["id"], 4)
        # The key may not be null, as what is made of a range is not.
        self.context.createTable(table, frame._jdf.schema(), self.jvm.PythonUtils.toSeq(["id"]), options)

    def format(self, reader_or_writer, table, **options):
        names = {f"kudu.{name}": value for name, value in options.items()}
        return reader_or_writer.format("kudu").options(**{"kudu.master": self.master, "kudu.table": table}, **names)

    def write(self, frame, table, **options):
        self.format(frame.write, table, **options).mode("append").save()

    def read(self, table, **options):
        return self.format(self.spark.read, table, **options).load()

    def rows(self, frame):
        return sorted(frame.collect(), key=lambda row: row.id)


@pytest.fixture(scope="module")
def kudu(tmp_path_factory):
    """One session and one server for all tests; a session takes seconds to start."""
    server = Server(tmp_path_factory.mktemp("oribi") / "data")
    started = Kudu(server)
    yield started
    started.spark.stop()
    status = server.stop()
    assert status == 0, server.log_text()


@pytest.fixture(scope="module")
def filled(kudu):
    """A table that tests only read."""
    frame = kudu.frame(0, ROWS)
    kudu.create("filled", frame)
    kudu.write(frame, "filled", operation="insert")
    return "filled"


def test_a_frame_comes_back_as_it_was_written(kudu, filled):
    assert kudu.context.tableExists(filled)
    assert kudu.rows(kudu.read(filled)) == kudu.rows(kudu.frame(0, ROWS))
    with kudu.server.sql() as sql:
        counted = sql.execute("select count(*), count(s), sum(price), max(day)::text from filled").fetchone()
    expected = kudu.frame(0, ROWS).selectExpr("count(*)", "count(s)", "sum(price)", "cast(max(day) as string)")
    assert counted == tuple(expected.first())


@pytest.mark.parametrize(
    "condition",
    [
        "id >= 30 and id < 1000 and n <= 5",
        "id = 77",
        "n in (3, 4, 11) and s is not null",
        "s is null",
        "s like 's19%'",
        "x > 100.5 and even = true",
        "at < timestamp'1970-01-01 00:10:00'",
        "day >= date'2024-01-01' and price <= 1999.75",
    ],
)
def test_conditions_are_left_to_the_server(kudu, filled, condition):
    found = kudu.read(filled).filter(condition)
    plan = found._jdf.queryExecution().executedPlan().toString()
    # A star says that the source does it alone, and then Spark has no filter above it.
    assert re.search(r"PushedFilters: \[\*", plan) and "Filter (" not in plan, plan
    expected = kudu.rows(kudu.frame(0, ROWS).filter(condition))
    assert expected and kudu.rows(found) == expected


def test_columns_that_are_not_asked_for_are_not_read(kudu, filled):
    found = kudu.read(filled).filter("n = 3").select("s", "id")
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert "ReadSchema: struct<s:string,id:bigint>" in plan, plan
    assert kudu.rows(found) == kudu.rows(kudu.frame(0, ROWS).filter("n = 3").select("s", "id"))
    assert kudu.read(filled).count() == ROWS


def test_a_table_is_grouped_and_joined(kudu, filled):
    kudu.read(filled, splitSizeBytes="10000").createOrReplaceTempView("people")
    found = kudu.spark.sql(
        "select a.n, count(*), sum(b.id) from people a join people b on a.id = b.id + 1 group by a.n order by a.n"
    )
    expected = [(n, 199 if n == 0 else 200, sum(i - 1 for i in range(1, ROWS) if i % 10 == n)) for n in range(10)]
    assert [tuple(row) for row in found.collect()] == expected


def test_what_is_written_again(kudu):
    two = ["id", "concat('old', id) as s"]
    kudu.create("written_again", kudu.frame(0, 1, *two))
    kudu.write(kudu.frame(0, 100, *two), "written_again", operation="insert")
    # Without a word, a write is an upsert.
    kudu.write(kudu.frame(50, 150, "id", "concat('new', id) as s"), "written_again")
    kudu.write(kudu.frame(100, 200, "id", "concat('ignored', id) as s"), "written_again", operation="insert-ignore")
    with pytest.raises(Exception, match="key already present"):
        kudu.write(kudu.frame(0, 1, *two), "written_again", operation="insert")
    kudu.write(kudu.frame(0, 10, "id"), "written_again", operation="delete")
    kinds = [(10, 50, "old"), (50, 150, "new"), (150, 200, "ignored")]
    expected = [(i, f"{kind}{i}") for first, end, kind in kinds for i in range(first, end)]
    assert [tuple(row) for row in kudu.rows(kudu.read("written_again"))] == expected
