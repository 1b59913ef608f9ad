"""Transactions of programs and frameworks: what they roll back is undone, and what they cannot have is an error."""

import asyncio
import contextlib

import asyncpg
import django
import psycopg
import pytest
import sqlalchemy
from django.conf import settings
from psycopg import errors
from sqlalchemy.orm import Session


class Mine(Exception):
    """An error of the program."""


@pytest.fixture
def db(server):
    with server.sql() as connection:
        connection.execute("create table t (id int primary key, n int)")
        connection.execute("create table other (id int primary key)")
        yield connection


def rows(db):
    return db.execute("select id from t order by id").fetchall()


def dsn(server):
    return {"host": "127.0.0.1", "port": server.ports["postgres"], "user": "oribi", "dbname": "oribi"}


def test_psycopg_rolls_back(server, db):
    with pytest.raises(Mine), db.transaction():
        db.execute("insert into t values (1)")
        raise Mine
    with db.transaction():
        db.execute("insert into t values (2)")
        raise psycopg.Rollback
    with psycopg.connect(**dsn(server)) as connection:
        connection.execute("insert into t values (3)")
        connection.rollback()
    with pytest.raises(Mine), psycopg.connect(**dsn(server)) as connection:
        connection.execute("insert into t values (4)")
        raise Mine
    connection = psycopg.connect(**dsn(server))
    connection.execute("insert into t values (5)")
    connection.close()
    with psycopg.connect(**dsn(server)) as connection:
        connection.execute("insert into t values (6)")
        with pytest.raises(errors.UndefinedColumn):
            connection.execute("select nope")
        connection.commit()
    assert rows(db) == []


def test_psycopg_commits(server, db):
    with db.transaction():
        db.execute("insert into t values (1)")
        assert db.execute("select * from other").fetchall() == []
    with psycopg.connect(**dsn(server)) as connection:
        connection.execute("insert into t values (2)")
        connection.commit()
        with connection.cursor().copy("copy t from stdin") as copy:
            copy.write_row((3, 3))
        connection.commit()
        connection.execute("update t set n = id")
    assert rows(db) == [(1,), (2,), (3,)]


def test_psycopg_is_told_what_a_block_cannot_do(server, db):
    for second in ("insert into t values (2)", "select * from t"):
        with pytest.raises(errors.FeatureNotSupported), psycopg.connect(**dsn(server)) as connection:
            connection.execute("insert into t values (1)")
            connection.execute(second)
    with pytest.raises(errors.FeatureNotSupported), db.transaction(), db.transaction():
        db.execute("insert into t values (3)")
    with pytest.raises(errors.SerializationFailure), psycopg.connect(**dsn(server)) as connection:
        connection.execute("insert into t values (4, 1)")
        db.execute("insert into t values (4, 2)")
    assert db.execute("select * from t").fetchall() == [(4, 2)]


async def connect(server):
    return await asyncpg.connect(
        host="127.0.0.1", port=server.ports["postgres"], user="oribi", database="oribi", timeout=60, command_timeout=60
    )


def test_asyncpg_with_its_defaults(server, db):
    async def run():
        connection = await connect(server)
        assert await connection.execute("insert into t values ($1, $2)", 1, 10) == "INSERT 0 1"
        for _ in range(3):
            assert await connection.fetchval("select n from t where id = $1", 1) == 10
        # It waits for the error before it sends Sync.
        with pytest.raises(asyncpg.UndefinedColumnError):
            await connection.fetch("select nope from t where id = $1", 1)
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.execute("insert into t values ($1, $2)", 1, 10)
        with pytest.raises(asyncpg.PostgresSyntaxError):
            await connection.fetch("selec")
        await connection.executemany("insert into t values ($1, $2)", [(i, i) for i in range(10, 20)])
        statement = await connection.prepare("select n, n::text as t from t where id = $1")
        assert [p.name for p in statement.get_parameters()] == ["int4"]
        assert tuple(await statement.fetchrow(15)) == (15, "15")

        async with connection.transaction():
            assert [r["id"] async for r in connection.cursor("select id from t order by id", prefetch=3)][:2] == [1, 10]
            await connection.execute("insert into t values ($1)", 2)
        with pytest.raises(Mine):
            async with connection.transaction():
                await connection.execute("insert into t values ($1)", 3)
                raise Mine
        with pytest.raises(asyncpg.FeatureNotSupportedError):
            async with connection.transaction(), connection.transaction():
                pass
        assert await connection.fetchval("select count(*) from t where id in (2, 3)") == 1
        await connection.close()

        pool = await asyncpg.create_pool(
            host="127.0.0.1", port=server.ports["postgres"], user="oribi", database="oribi", min_size=1, max_size=1
        )
        for _ in range(3):
            async with pool.acquire() as pooled:
                await pooled.execute("set search_path to nowhere")
            assert await pool.fetchval("select count(*) from t") == 12
        await pool.close()

    asyncio.run(asyncio.wait_for(run(), 300))


def test_sqlalchemy_rolls_back_and_commits(server, db):
    engine = sqlalchemy.create_engine(
        f"postgresql+psycopg2://oribi@127.0.0.1:{server.ports['postgres']}/oribi", use_native_hstore=False
    )
    insert = sqlalchemy.text("insert into t values (:id)")
    with pytest.raises(Mine), engine.begin() as connection:
        connection.execute(insert, {"id": 1})
        raise Mine
    with Session(engine) as session:
        session.execute(insert, {"id": 2})
        session.rollback()
        session.execute(insert, {"id": 3})
    assert rows(db) == []
    with engine.begin() as connection:
        connection.execute(insert, {"id": 4})
    with Session(engine) as session:
        session.execute(insert, {"id": 5})
        session.commit()
    engine.dispose()
    assert rows(db) == [(4,), (5,)]


@contextlib.contextmanager
def django_connection(server):
    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}}, INSTALLED_APPS=[])
        django.setup()
    from django.db import connection

    address = {"NAME": "oribi", "USER": "oribi", "HOST": "127.0.0.1", "PORT": server.ports["postgres"]}
    connection.close()
    connection.settings_dict.update(address)
    try:
        yield connection
    finally:
        connection.close()


def test_django_atomic_undoes_what_its_exception_undid(server, db):
    with django_connection(server) as connection:
        from django.db import NotSupportedError, transaction

        with pytest.raises(Mine), transaction.atomic():
            connection.cursor().execute("insert into t values (1)")
            raise Mine
        with transaction.atomic():
            connection.cursor().execute("insert into t values (2)")
            transaction.set_rollback(True)
        assert rows(db) == []
        with transaction.atomic():
            connection.cursor().execute("insert into t values (3)")
        connection.cursor().execute("insert into t values (4)")
        with pytest.raises(NotSupportedError), transaction.atomic(), transaction.atomic():
            connection.cursor().execute("insert into t values (5)")
        with pytest.raises(NotSupportedError), transaction.atomic():
            connection.cursor().execute("insert into t values (6)")
            connection.cursor().execute("insert into t values (7)")
        assert rows(db) == [(3,), (4,)]
