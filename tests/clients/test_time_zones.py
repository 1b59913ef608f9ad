"""Sessions with a time zone, beside PostgreSQL's: aware datetimes as parameters, and `now()` where it is stored."""

import asyncio
import datetime
import sys
import zoneinfo

import asyncpg
import psycopg
import pytest

sys.path.insert(0, str(__import__("pathlib").Path(__file__).parent / "differential"))
from reference import Reference  # noqa: E402

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "GMT-02:00"]

CREATE = "create table moments (id bigint primary key, at timestamp, day date)"

AWARE = [
    datetime.datetime(2024, 7, 1, 10, 0, 0, 123456, tzinfo=datetime.timezone.utc),
    datetime.datetime(2024, 1, 1, 23, 30, tzinfo=zoneinfo.ZoneInfo("America/New_York")),
    # In Berlin the first is in the hour that comes twice, the second in the one that does not come.
    datetime.datetime(2024, 10, 27, 0, 30, tzinfo=datetime.timezone.utc),
    datetime.datetime(2024, 3, 31, 1, 0, tzinfo=datetime.timezone.utc),
    datetime.datetime(1900, 1, 1, tzinfo=datetime.timezone.utc),
]


CHANGES = AWARE[2:4]


@pytest.fixture(scope="module")
def reference():
    with Reference() as postgres:
        yield postgres


def addresses(server, reference):
    """Of both servers, in one order."""
    ours = {"host": "127.0.0.1", "port": server.ports["postgres"], "user": "oribi"}
    theirs = {"host": str(reference.folder), "user": "oribi"}
    return [(ours, "oribi"), (theirs, "postgres")]


def with_psycopg(address, database, zone, binary):
    options = {"options": f"-c timezone={zone}", "autocommit": True}
    with psycopg.connect(**address, dbname=database, **options) as db:
        cursor = db.cursor(binary=binary)
        cursor.execute("drop table if exists moments")
        cursor.execute(CREATE)
        rows = []
        placeholder = "%b" if binary else "%t"
        for i, aware in enumerate(AWARE):
            cursor.execute(f"insert into moments values (%s, {placeholder}, {placeholder})", (i, aware, aware))
            if zone == "Europe/Berlin" and aware in CHANGES:
                continue
            found = cursor.execute(f"select id from moments where at = {placeholder}", (aware,)).fetchall()
            later = cursor.execute(f"select count(*) from moments where at > {placeholder}", (aware,)).fetchall()
            rows += [found, later]
        cursor.execute(f"update moments set at = {placeholder} where id = 1", (AWARE[0],))
        rows.append(cursor.execute("select * from moments order by id").fetchall())
        cursor.execute("insert into moments values (100, now(), current_date), (101, current_timestamp, now())")
        ahead = cursor.execute(
            "select id, at between now()::timestamp - interval '1 minute' and now()::timestamp, day = now()::date"
            " from moments where id >= 100 order by id"
        )
        return rows, ahead.fetchall(), cursor.execute("select to_timestamp(1719828000)").fetchall()


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("zone", ZONES)
def test_psycopg_stores_what_the_clock_shows(server, reference, zone, binary):
    ours, theirs = (with_psycopg(*address, zone, binary) for address in addresses(server, reference))
    assert ours[:2] == theirs[:2]
    if zone != "UTC":
        assert ours[2] == theirs[2], "it is a moment, with its offset"


async def with_asyncpg(address, database, zone):
    db = await asyncpg.connect(**address, database=database, server_settings={"timezone": zone})
    try:
        await db.execute("drop table if exists moments")
        await db.execute(CREATE)
        insert = await db.prepare("insert into moments (id, at) values ($1, $2::timestamp)")
        await insert.fetch(1, datetime.datetime(2024, 7, 1, 10))
        rows = await db.fetch("select id, at from moments where at > $1 order by id limit $2", datetime.datetime(2024, 1, 1), 5)
        types = [t.name for t in (await db.prepare("select id from moments limit $1 offset $2")).get_parameters()]
        return [tuple(row) for row in rows], types, await db.fetchval("select $1::int + 1", 4)
    finally:
        await db.close()


@pytest.mark.parametrize("zone", ZONES)
def test_asyncpg_sees_the_same(server, reference, zone):
    ours, theirs = (asyncio.run(with_asyncpg(*address, zone)) for address in addresses(server, reference))
    assert ours == theirs
    assert ours[1] == ["int8", "int8"]


def as_text(address, database, zone):
    """What JDBC does: text with an offset, of unspecified type, for columns of any type and for moments."""
    with psycopg.connect(**address, dbname=database, options=f"-c timezone={zone}", autocommit=True) as db:
        db.execute("drop table if exists moments")
        db.execute(CREATE)

        def run(sql, text):
            result = db.pgconn.exec_params(sql.encode(), [text.encode()], param_types=[0], param_formats=[0])
            assert not result.error_message, result.error_message
            return [result.get_value(row, 0) for row in range(result.ntuples)]

        run("insert into moments values (1, $1)", "2024-01-01 10:00:00+02")
        run("update moments set day = '2024-01-01' where at = $1", "2024-01-01 10:00:00-07")
        found = [run("select id from moments where at = $1", "2024-01-01 10:00:00Z")]
        found.append(run("select $1::timestamp", "2024-01-01 10:00:00.5+05:30"))
        with db.cursor().copy("copy moments from stdin") as copy:
            copy.write("2\t2024-06-01 10:00:00+02\t\\N\n")
        if zone == "UTC":
            for moment in ["to_timestamp(0) = $1", "to_timestamp(0) between $1 and now()", "to_timestamp(0) - $1"]:
                found.append(run(f"select ({moment})::text", "1970-01-01 02:00:00+02"))
        return found, db.execute("select * from moments order by id").fetchall()


@pytest.mark.parametrize("zone", ZONES)
def test_the_offset_of_a_text_is_passed_over(server, reference, zone):
    ours, theirs = (as_text(*address, zone) for address in addresses(server, reference))
    assert ours == theirs


def test_zones_are_set_shown_and_reported(server, reference):
    for address, database in addresses(server, reference):
        with psycopg.connect(**address, dbname=database, autocommit=True) as db:
            db.execute("set timezone = 'europe/berlin'")
            assert db.execute("show timezone").fetchone() == ("Europe/Berlin",)
            assert db.info.parameter_status("TimeZone") == "Europe/Berlin"
            for unknown in ["Europe/Atlantis", "nonsense"]:
                with pytest.raises(psycopg.errors.InvalidParameterValue):
                    db.execute(f"set timezone = '{unknown}'")
            db.execute("set time zone default")
            assert db.execute("show timezone").fetchone() == ("UTC",)
        with pytest.raises(psycopg.OperationalError, match="TimeZone"):
            psycopg.connect(**address, dbname=database, options="-c timezone=Europe/Atlantis")


def test_what_forgets_the_zone_is_refused(server):
    with server.sql(options="-c timezone=Europe/Berlin") as db:
        db.execute(CREATE)
        for moment in CHANGES:
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="clocks of Europe/Berlin change"):
                db.execute("select id from moments where at = %s", (moment,))
        for sql in ["select id from moments where at < now()", "select now() = current_date"]:
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="timestamp with time zone") as refused:
                db.execute(sql)
            assert "cast the moment to timestamp" in refused.value.diag.message_hint
