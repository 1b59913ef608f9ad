"""Cursors of the server, as programs and frameworks ask for them when a result is large, and advisory locks, by which they keep their
like out."""

import subprocess
import sys
import textwrap

import psycopg
import psycopg2
import pytest
import sqlalchemy
from conftest import cancelling
from psycopg import errors
from sqlalchemy import Integer
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from test_postgres_blocks import django_connection, dsn

COUNT = 20_000


@pytest.fixture
def db(server):
    with server.sql() as connection:
        connection.execute("create table t (id int primary key, n int)")
        connection.execute(f"insert into t select i, i * 2 from generate_series(1, {COUNT}) as g(i)")
        yield connection


def ids(rows):
    return [row[0] for row in rows]


def test_psycopg_fetches_by_name(server, db):
    with psycopg.connect(**dsn(server)) as connection:
        with connection.cursor("large") as cursor:
            cursor.execute("select id, n from t where id > %s order by id", (10,))
            assert [column.name for column in cursor.description] == ["id", "n"]
            assert cursor.fetchone() == (11, 22)
            assert ids(cursor.fetchmany(3)) == [12, 13, 14]
            cursor.scroll(5)
            assert ids(cursor.fetchmany(2)) == [20, 21]
            with pytest.raises(errors.ObjectNotInPrerequisiteState), connection.transaction():
                cursor.scroll(-1)
            db.execute("delete from t where id > 19000")
            assert ids(cursor) == list(range(22, COUNT + 1))
        for name in ("id", "n"):
            # Often enough to be prepared, and then of other columns.
            with connection.cursor("large") as cursor:
                cursor.itersize = 10
                cursor.execute(f"select {name} from t where id <= 100 order by id")
                assert len(list(cursor)) == 100
        assert connection.execute("select name from pg_cursors").fetchall() == []


def test_psycopg_keeps_a_cursor_beyond_its_block(server, db):
    with psycopg.connect(**dsn(server)) as connection:
        held = psycopg.ServerCursor(connection, "held", withhold=True)
        held.execute("select id from t order by id")
        with connection.cursor("gone") as gone:
            gone.execute("select id from t")
            connection.commit()
            with pytest.raises(errors.InvalidCursorName):
                gone.fetchone()
            connection.rollback()
        db.execute("truncate t")
        assert ids(held) == list(range(1, COUNT + 1))
        held.close()
        scrolls = psycopg.ServerCursor(connection, "scrolls", scrollable=True)
        with pytest.raises(errors.FeatureNotSupported, match="SCROLL"):
            scrolls.execute("select id from t")
        connection.rollback()


def test_psycopg_2_fetches_by_name(server, db):
    connection = psycopg2.connect(**dsn(server))
    with connection, connection.cursor("large") as cursor:
        cursor.itersize = 1000
        cursor.execute("select id from t order by id")
        assert ids(cursor.fetchmany(2)) == [1, 2]
        cursor.scroll(3)
        assert ids(cursor) == list(range(6, COUNT + 1))
    held = connection.cursor("held", withhold=True)
    held.execute("select id from t where id = 7")
    connection.commit()
    assert held.fetchall() == [(7,)]
    connection.close()


class Base(DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "t"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    n: Mapped[int] = mapped_column(Integer)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_sqlalchemy_streams_results(server, db, driver):
    engine = sqlalchemy.create_engine(
        f"postgresql+{driver}://oribi@127.0.0.1:{server.ports['postgres']}/oribi", use_native_hstore=False
    )
    with engine.connect() as connection:
        streaming = connection.execution_options(stream_results=True, max_row_buffer=500)
        result = streaming.execute(sqlalchemy.text("select id from t order by id"))
        assert result.context._is_server_side
        assert ids(result) == list(range(1, COUNT + 1))
    with Session(engine) as session:
        rows = session.scalars(sqlalchemy.select(Row).order_by(Row.id).execution_options(yield_per=1000))
        assert sum(row.n for row in rows) == COUNT * (COUNT + 1)
    engine.dispose()


def test_django_iterates_in_chunks(server, db):
    with django_connection(server) as connection:
        from django.db import models, transaction

        class Number(models.Model):
            id = models.IntegerField(primary_key=True)
            n = models.IntegerField()

            class Meta:
                app_label, db_table, managed = "numbers", "t", False

        # Without a block Django holds the cursor beyond the statement that makes it.
        assert [row.n for row in Number.objects.order_by("id").iterator(chunk_size=1000)][-1] == 2 * COUNT
        with transaction.atomic():
            chunks = Number.objects.order_by("id").iterator(chunk_size=10)
            assert next(chunks).n == 2
            Number.objects.filter(id__gt=15).update(n=0)
            assert [row.n for row in chunks][15:] == list(range(34, 2 * COUNT + 2, 2))
        assert db.execute("select sum(n) from t").fetchone() == (240,)
        assert connection.connection is not None
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from pg_cursors")
            assert cursor.fetchone() == (0,)


def test_a_connection_that_ends_gives_back_what_it_had(server, db):
    connection = psycopg.connect(**dsn(server), autocommit=True)
    connection.execute("select pg_advisory_lock(1)")
    connection.execute("declare held cursor with hold for select * from t")
    waiting = psycopg.connect(**dsn(server), autocommit=True)
    assert waiting.execute("select pg_try_advisory_lock(1)").fetchone() == (False,)
    connection.close()
    waiting.execute("select pg_advisory_lock(1)")
    assert waiting.execute("select pg_advisory_unlock(1)").fetchone() == (True,)
    waiting.close()


def test_who_waits_for_an_advisory_lock_can_be_told_to_stop(server, db):
    db.execute("select pg_advisory_lock(1)")
    with psycopg.connect(**dsn(server), autocommit=True) as connection:
        for setting, error in (("lock_timeout", errors.LockNotAvailable), ("statement_timeout", errors.QueryCanceled)):
            connection.execute(f"set {setting} = '20ms'")
            with pytest.raises(error):
                connection.execute("select pg_advisory_lock(1)")
            connection.execute(f"set {setting} = 0")
        with cancelling(connection), pytest.raises(errors.QueryCanceled):
            connection.execute("select pg_advisory_lock(%s)", (1,))
        db.execute("select pg_advisory_unlock_all()")
        assert connection.execute("select pg_try_advisory_lock(1)").fetchone() == (True,)


def test_rails_keeps_other_migrations_out(server, db):
    """The statements are those that ActiveRecord sends around `db:migrate`; both its connection and another ask."""
    lock_id = 2053462845 * 3  # as it computes one of more than 32 bits from the name of the database
    with psycopg.connect(**dsn(server), autocommit=True) as other:

        def ask(connection, function):
            return connection.execute(f"SELECT {function}({lock_id})").fetchone()

        assert ask(db, "pg_try_advisory_lock") == (True,)
        assert ask(other, "pg_try_advisory_lock") == (False,)
        db.execute("BEGIN")
        db.execute("ALTER TABLE t ADD COLUMN title text")
        db.execute("COMMIT")
        assert ask(db, "pg_advisory_unlock") == (True,)
        assert ask(other, "pg_try_advisory_lock") == (True,)


ENVIRONMENT = """
    from alembic import context
    import sqlalchemy

    engine = sqlalchemy.create_engine(context.config.get_main_option("sqlalchemy.url"))
    with engine.connect() as connection:
        context.configure(connection=connection)
        with context.begin_transaction():
            connection.execute(sqlalchemy.text("select pg_advisory_xact_lock(:id)"), {"id": 4711})
            context.run_migrations()
"""

MIGRATION = """
    from alembic import op
    import sqlalchemy as sa

    revision, down_revision = "only", None

    def upgrade():
        op.create_table("book", sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False))
        op.execute("insert into book values (1)")
"""


def test_programs_that_start_together_migrate_once(server, db, folder):
    scripts = folder / "migrations"
    (scripts / "versions").mkdir(parents=True)
    (scripts / "env.py").write_text(textwrap.dedent(ENVIRONMENT))
    (scripts / "versions/only.py").write_text(textwrap.dedent(MIGRATION))
    url = f"postgresql+psycopg://oribi@127.0.0.1:{server.ports['postgres']}/oribi"
    (folder / "alembic.ini").write_text(f"[alembic]\nscript_location = {scripts}\nsqlalchemy.url = {url}\n")
    db.execute("begin")
    db.execute("select pg_advisory_xact_lock(4711)")
    upgrade = [sys.executable, "-m", "alembic", "-c", folder / "alembic.ini", "upgrade", "head"]
    started = [subprocess.Popen(upgrade, stderr=subprocess.PIPE, text=True, cwd=folder) for _ in range(3)]
    db.execute("commit")
    for process in started:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    assert db.execute("select version_num from alembic_version").fetchall() == [("only",)]
    assert db.execute("select * from book").fetchall() == [(1,)]
