"""Transactions of programs and frameworks: what they roll back is undone, and what they cannot have is an error."""

import asyncio
import concurrent.futures
import contextlib

import asyncpg
import django
import psycopg
import psycopg2
import pytest
import sqlalchemy
from conftest import cancelling
from django.conf import settings
from psycopg import errors
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship


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


def test_psycopg_writes_and_reads_in_one_block(server, db):
    with psycopg.connect(**dsn(server)) as connection:
        connection.execute("insert into t values (1, 1)")
        connection.cursor().executemany("insert into t values (%s, %s)", [(2, 2), (3, 3)])
        connection.execute("update t set n = n * 10 where id > 1")
        connection.execute("insert into other select id from t")
        assert connection.execute("select sum(n) from t").fetchone() == (51,)
        with pytest.raises(errors.UniqueViolation), connection.transaction():
            connection.execute("delete from t")
            connection.execute("insert into other values (1)")
        with connection.transaction(), contextlib.suppress(Mine):
            with connection.transaction():
                connection.execute("delete from t where id = 1")
                raise Mine
        assert rows(connection) == [(1,), (2,), (3,)]
        assert rows(db) == []
    assert rows(db) == [(1,), (2,), (3,)]
    with db.transaction(), db.transaction():
        db.execute("insert into t values (4)")
    assert rows(db)[-1] == (4,)


def test_a_block_waits_for_the_row_of_another(server, db):
    db.execute("insert into t values (1, 0)")

    def count(times):
        with psycopg.connect(**dsn(server)) as connection:
            for _ in range(times):
                (n,) = connection.execute("select n from t where id = 1 for update").fetchone()
                connection.execute("update t set n = %s where id = 1", (n + 1,))
                connection.commit()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(count, 25) for _ in range(4)]:
            done.result()
    assert db.execute("select n from t").fetchone() == (100,)
    with psycopg.connect(**dsn(server)) as connection:
        connection.execute("update t set n = 0")
        db.execute("set lock_timeout = '50ms'")
        with pytest.raises(errors.LockNotAvailable):
            db.execute("update t set n = 1")
        connection.execute("set idle_in_transaction_session_timeout = '50ms'")
        # It waits until the other's block has been left alone for too long.
        db.execute("set lock_timeout = 0")
        db.execute("update t set n = n + 1")
        with pytest.raises(psycopg.Error):
            connection.execute("select 1")
    assert db.execute("select n from t").fetchone() == (101,)


@pytest.mark.parametrize("in_block", [False, True])
def test_a_copy_waits_for_the_row_of_another(server, db, in_block):
    def copy():
        with psycopg.connect(**dsn(server), autocommit=not in_block) as connection:
            with connection.cursor().copy("copy t from stdin") as copy:
                copy.write("1\t1\n2\t2\n")

    with psycopg.connect(**dsn(server)) as connection, concurrent.futures.ThreadPoolExecutor(1) as pool:
        connection.execute("insert into t values (2, 0)")
        copied = pool.submit(copy)
        with pytest.raises(concurrent.futures.TimeoutError):
            copied.result(timeout=0.2)
        connection.rollback()
        copied.result(timeout=30)
    assert db.execute("select id, n from t order by id").fetchall() == [(1, 1), (2, 2)]


def test_psycopg2_is_a_block_by_default(server, db):
    connection = psycopg2.connect(**dsn(server))
    cursor = connection.cursor()
    cursor.execute("insert into t values (1, 1)")
    cursor.execute("update t set n = n + 1")
    cursor.execute("select n from t")
    assert cursor.fetchall() == [(2,)] and rows(db) == []
    connection.rollback()
    connection.set_session(isolation_level="REPEATABLE READ")
    cursor.execute("show transaction_isolation")
    assert cursor.fetchone() == ("repeatable read",)
    cursor.execute("insert into t values (1, 1); insert into t values (2, 2)")
    connection.commit()
    connection.close()
    assert rows(db) == [(1,), (2,)]


def test_what_is_sent_together_is_one_transaction(server, db):
    db.execute("insert into t values (1, 1); insert into t values (2, 2)")
    with pytest.raises(errors.UniqueViolation):
        db.execute("insert into t values (3, 3); insert into t values (1, 1)")
    with pytest.raises(errors.UniqueViolation), db.pipeline():
        db.execute("insert into t values (4)")
        db.execute("insert into t values (1)")
    assert rows(db) == [(1,), (2,)]
    with db.pipeline() as pipeline:
        db.execute("insert into t values (4)")
        pipeline.sync()
        counted = db.execute("select count(*) from t")
        db.execute("delete from t where id = 4")
    assert counted.fetchone() == (3,)
    assert rows(db) == [(1,), (2,)]


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
        async with connection.transaction():
            await connection.execute("update t set n = 20 where id = 2")
            with pytest.raises(Mine):
                async with connection.transaction():
                    await connection.execute("delete from t")
                    raise Mine
            assert await connection.fetchval("select n from t where id = 2") == 20
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.executemany("insert into t values ($1, $2)", [(30, 30), (1, 1)])
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


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: Mapped[int] = mapped_column(sqlalchemy.BigInteger, primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(sqlalchemy.Text)
    books: Mapped[list["Book"]] = relationship(
        primaryjoin="Author.id == foreign(Book.author)", cascade="all, delete-orphan", order_by="Book.id"
    )


class Book(Base):
    __tablename__ = "book"
    id: Mapped[int] = mapped_column(sqlalchemy.BigInteger, primary_key=True, autoincrement=False)
    author: Mapped[int] = mapped_column(sqlalchemy.BigInteger)
    title: Mapped[str] = mapped_column(sqlalchemy.Text)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_sqlalchemy_works_by_units(server, db, driver):
    db.execute("create table author (id bigint primary key, name text)")
    db.execute("create table book (id bigint primary key, author bigint, title text)")
    engine = sqlalchemy.create_engine(
        f"postgresql+{driver}://oribi@127.0.0.1:{server.ports['postgres']}/oribi", use_native_hstore=False
    )
    with Session(engine) as session:
        ada = Author(id=1, name="Ada", books=[Book(id=1, title="Notes"), Book(id=2, title="Letters")])
        session.add_all([ada, Author(id=2, name="Charles")])
        session.flush()
        ada.books[1].title = "Sketches"
        ada.books.append(Book(id=3, title="Poems"))
        session.commit()
        assert [book.title for book in session.get(Author, 1).books] == ["Notes", "Sketches", "Poems"]
        with session.begin_nested() as nested:
            ada.name = "nobody"
            session.flush()
            nested.rollback()
        assert ada.name == "Ada"
        session.delete(ada.books[0])
        locked = session.scalars(sqlalchemy.select(Author).where(Author.id == 2).with_for_update()).one()
        locked.name = "Babbage"
        session.commit()
    assert db.execute("select name from author order by id").fetchall() == [("Ada",), ("Babbage",)]
    assert db.execute("select title from book order by id").fetchall() == [("Sketches",), ("Poems",)]
    engine.dispose()


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
        from django.db import transaction

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
        with transaction.atomic():
            connection.cursor().execute("insert into t values (5)")
            with pytest.raises(Mine), transaction.atomic():
                connection.cursor().execute("insert into t values (6)")
                raise Mine
            with transaction.atomic():
                connection.cursor().execute("insert into t values (7)")
        assert rows(db) == [(3,), (4,), (5,), (7,)]


def test_django_models_have_keys_that_count(server, db):
    with django_connection(server) as connection:
        from django.core.management.color import no_style
        from django.db import models, transaction

        class Shelf(models.Model):
            name = models.CharField(max_length=20)

            class Meta:
                app_label = "shop"

        with connection.schema_editor() as editor:
            editor.create_model(Shelf)
        assert Shelf.objects.create(name="first").pk == 1
        made = Shelf.objects.bulk_create([Shelf(name="second"), Shelf(name="third")])
        assert [shelf.pk for shelf in made] == [2, 3]
        with transaction.atomic():
            Shelf.objects.create(name="fourth")
            with pytest.raises(Mine), transaction.atomic():
                Shelf.objects.create(name="undone")
                raise Mine
            Shelf.objects.create(name="sixth")
        # What was undone leaves a gap.
        assert list(Shelf.objects.order_by("pk").values_list("pk", "name"))[3:] == [(4, "fourth"), (6, "sixth")]
        Shelf.objects.create(pk=50, name="given")
        for statement in connection.ops.sequence_reset_sql(no_style(), [Shelf]):
            connection.cursor().execute(statement)
        assert Shelf.objects.create(name="behind").pk == 51
        with connection.schema_editor() as editor:
            editor.delete_model(Shelf)


@pytest.mark.parametrize("cursor", [psycopg.ClientCursor, psycopg.RawCursor])
def test_statements_that_come_again_are_answered_as_at_first(server, db, cursor):
    """With values in their texts, and unnamed with the same text: what is remembered of them is not seen."""
    place = (lambda n: "%s") if cursor is psycopg.ClientCursor else (lambda n: f"${n}")
    with psycopg.connect(**dsn(server), cursor_factory=cursor, prepare_threshold=None) as program:
        for n in range(6):
            with program.transaction():
                program.execute(f"insert into t values ({place(1)}, {place(2)})", (n, 2 * n))
                program.execute(f"update t set n = n + {place(1)} where id = {place(2)}", (-n, n))
                found = program.execute(f"select n, id as key from t where id = {place(1)}", (n,))
                assert found.fetchall() == [(n, n)]
                assert [column.name for column in found.description] == ["n", "key"]
            with pytest.raises(errors.UniqueViolation) as taken, program.transaction():
                program.execute(f"insert into t values ({place(1)}, {place(2)})", (n, 0))
            assert "(id)=(%d)" % n in str(taken.value)
            with pytest.raises(errors.NumericValueOutOfRange), program.transaction():
                program.execute(f"update t set n = n + {place(1)} where id = {place(2)}", (2**31 - 1, n))
                program.execute(f"update t set n = n + {place(1)} where id = {place(2)}", (2**31 - 1, n))
            with pytest.raises(errors.UndefinedColumn) as unknown, program.transaction():
                program.execute(f"select nope from t where id = {place(1)}", (n,))
            assert unknown.value.diag.statement_position == "8"
        db.execute("alter table t add column more text default 'new'")
        assert program.execute(f"select * from t where id = {place(1)}", (1,)).fetchall() == [(1, 1, "new")]
        assert program.execute(f"delete from t where id = {place(1)}", (1,)).rowcount == 1
    assert rows(db) == [(0,), (2,), (3,), (4,), (5,)]


def test_what_follows_a_commit_in_one_message_is_a_transaction_of_its_own(db):
    with pytest.raises(errors.UniqueViolation):
        db.execute("insert into t values (1); commit; insert into t values (2); insert into t values (1)")
    assert rows(db) == [(1,)]
    # A block that begins in the middle is as it says.
    with pytest.raises(errors.ReadOnlySqlTransaction):
        db.execute("begin read only; insert into t values (3)")
    db.execute("rollback")
    with pytest.raises(errors.ReadOnlySqlTransaction):
        db.execute("select 1; begin read only; insert into t values (3)")
    db.execute("rollback")
    assert rows(db) == [(1,)]


def test_a_series_that_is_cancelled_ends_and_its_connection_goes_on(server, db):
    db.execute("insert into t values (1, 0)")
    with server.sql() as other:
        other.autocommit = False
        other.execute("update t set n = 1")
        with cancelling(db), pytest.raises(errors.QueryCanceled):
            db.execute("insert into t values (2, 0); update t set n = 2")
        other.rollback()
    assert db.execute("select * from t").fetchall() == [(1, 0)]
