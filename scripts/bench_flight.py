"""Rows in and out by Arrow Flight SQL, beside PostgreSQL's protocol: see scripts/bench-flight."""

import argparse
import io
import pathlib
import statistics
import tempfile
import time

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow
import pyarrow.csv
from conftest import Server

COLUMNS = "(id bigint primary key, small integer, ratio double precision, name text)"
PIECE_BYTES = 256 << 10
# The driver sends a batch in one message, of at most 16 MiB: so many rows are some 2.
BATCH_ROWS = 65_536


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", default="1GiB", help="of the server")
    options = parser.parse_args()
    table = rows(options.rows)
    csv = io.BytesIO()
    pyarrow.csv.write_csv(table, csv, pyarrow.csv.WriteOptions(include_header=False))
    with tempfile.TemporaryDirectory(prefix="oribi-bench-flight-") as folder:
        server = Server(pathlib.Path(folder) / "data", "--memory", options.memory)
        uri = f"grpc://127.0.0.1:{server.ports['flight']}"
        with server.sql() as postgres, flightsql.connect(uri, autocommit=True) as flight:
            ways = {
                "in": {"postgres": lambda: copy_in(postgres, csv.getbuffer()), "flight": lambda: ingest(flight, table)},
                "out": {"postgres": lambda: copy_out(postgres), "flight": lambda: fetch(flight, table)},
            }
            rounds = [one_round(postgres, ways, number) for number in range(options.rounds)]
        resident = server.memory_kib() / 1024
        server.kill()
    for direction in ways:
        ratios = [taken[direction]["postgres"] / taken[direction]["flight"] for taken in rounds]
        seconds = {way: statistics.median(taken[direction][way] for taken in rounds) for way in ("postgres", "flight")}
        print(
            f"{direction}: postgres {seconds['postgres']:.2f} s, flight {seconds['flight']:.2f} s, times as fast "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    print(f"most memory of the server: {resident:,.0f} MiB, with --memory {options.memory}")


def rows(count):
    numbers = range(count)
    return pyarrow.table(
        {
            "id": pyarrow.array(numbers, pyarrow.int64()),
            "small": pyarrow.array([n * 7 % 1000 for n in numbers], pyarrow.int32()),
            "ratio": pyarrow.array([n / 3 for n in numbers]),
            "name": pyarrow.array([f"name {n * 31 % 100_003}" for n in numbers]),
        }
    )


def one_round(postgres, ways, number):
    """Who is first changes from round to round."""
    taken = {}
    for direction, both in ways.items():
        order = list(both) if number % 2 else list(both)[::-1]
        taken[direction] = {}
        for way in order:
            if direction == "in":
                postgres.execute("drop table if exists t")
                postgres.execute(f"create table t {COLUMNS}")
            begin = time.perf_counter()
            both[way]()
            taken[direction][way] = time.perf_counter() - begin
    print({d: {way: round(seconds, 2) for way, seconds in both.items()} for d, both in taken.items()}, flush=True)
    return taken


def copy_in(postgres, csv):
    with postgres.cursor().copy("copy t from stdin (format csv)") as copy:
        for begin in range(0, len(csv), PIECE_BYTES):
            copy.write(csv[begin : begin + PIECE_BYTES])


def ingest(flight, table):
    batches = pyarrow.RecordBatchReader.from_batches(table.schema, table.to_batches(BATCH_ROWS))
    with flight.cursor() as cursor:
        assert cursor.adbc_ingest("t", batches, mode="append") == table.num_rows


def copy_out(postgres):
    with postgres.cursor().copy("copy t to stdout (format csv)") as copy:
        for _ in copy:
            pass


def fetch(flight, table):
    with flight.cursor() as cursor:
        cursor.execute("select * from t")
        assert cursor.fetch_arrow_table().num_rows == table.num_rows


main()
