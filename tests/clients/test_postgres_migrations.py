"""Migrations: the schema and the note that it was changed come together, or neither does."""

import textwrap

import alembic.command
import alembic.config
import pytest
import sqlalchemy
from psycopg import errors
from sqlalchemy import BigInteger, Column, Identity, Integer, MetaData, Sequence, Table, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

ENVIRONMENT = """
    from alembic import context
    import sqlalchemy

    engine = sqlalchemy.create_engine(context.config.get_main_option("sqlalchemy.url"))
    with engine.connect() as connection:
        context.configure(connection=connection, transaction_per_migration=True)
        with context.begin_transaction():
            context.run_migrations()
"""

FIRST = """
    from alembic import op
    import sqlalchemy as sa

    revision, down_revision = "first", None

    def upgrade():
        book = op.create_table(
            "book",
            sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
            sa.Column("title", sa.String(100), nullable=False),
        )
        op.bulk_insert(book, [{"id": 1, "title": "one"}, {"id": 2, "title": "two"}])
        op.add_column("book", sa.Column("pages", sa.Integer, nullable=False, server_default="100"))
        op.execute("update book set pages = 200 where id = 2")

    def downgrade():
        op.drop_table("book")
"""

SECOND = """
    from alembic import op
    import sqlalchemy as sa

    revision, down_revision = "second", "first"

    def upgrade():
        op.create_table("shelf", sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False))
        op.alter_column("book", "title", new_column_name="name")
        op.drop_column("book", "pages")
        op.execute("insert into shelf select id from book where name <> 'one'")
        if {fails}:
            op.execute("select nothing from book")

    def downgrade():
        op.drop_table("shelf")
        op.add_column("book", sa.Column("pages", sa.Integer))
        op.alter_column("book", "name", new_column_name="title")
"""


@pytest.fixture
def db(server):
    with server.sql() as connection:
        yield connection


def url(server):
    return f"postgresql+psycopg://oribi@127.0.0.1:{server.ports['postgres']}/oribi"


def tables(db):
    query = "select table_name from information_schema.tables where table_schema = 'public' order by 1"
    return [name for (name,) in db.execute(query)]


def test_alembic_upgrades_and_downgrades_whole_or_not_at_all(server, db, folder):
    scripts = folder / "migrations"
    (scripts / "versions").mkdir(parents=True)

    def write(name, text):
        (scripts / name).write_text(textwrap.dedent(text))

    write("env.py", ENVIRONMENT)
    write("versions/first.py", FIRST)
    write("versions/second.py", SECOND.format(fails=True))
    config = alembic.config.Config()
    config.set_main_option("script_location", str(scripts))
    config.set_main_option("sqlalchemy.url", url(server))

    with pytest.raises(sqlalchemy.exc.ProgrammingError, match="nothing"):
        alembic.command.upgrade(config, "head")
    assert tables(db) == ["alembic_version", "book"]
    assert db.execute("select version_num from alembic_version").fetchall() == [("first",)]
    assert db.execute("select * from book order by id").fetchall() == [(1, "one", 100), (2, "two", 200)]

    write("versions/second.py", SECOND.format(fails=False))
    alembic.command.upgrade(config, "head")
    assert tables(db) == ["alembic_version", "book", "shelf"]
    assert db.execute("select * from book order by id").fetchall() == [(1, "one"), (2, "two")]
    assert db.execute("select * from shelf").fetchall() == [(2,)]
    server.kill()
    server.start()
    config.set_main_option("sqlalchemy.url", url(server))
    with server.sql() as db:
        assert db.execute("select version_num from alembic_version").fetchall() == [("second",)]
        alembic.command.downgrade(config, "first")
        assert tables(db) == ["alembic_version", "book"]
        assert db.execute("select id, title, pages from book order by id").fetchall() == [(1, "one", None), (2, "two", None)]
        alembic.command.downgrade(config, "base")
        assert tables(db) == ["alembic_version"]
        assert db.execute("select count(*) from alembic_version").fetchone() == (0,)


def test_sqlalchemy_creates_and_drops_all_in_a_transaction(server, db):
    metadata = MetaData()
    for name in ("one", "two"):
        Table(name, metadata, Column("id", BigInteger, primary_key=True, autoincrement=False), Column("t", Text))
    engine = sqlalchemy.create_engine(url(server))
    with engine.connect() as connection:
        metadata.create_all(connection)
        connection.execute(metadata.tables["one"].insert(), [{"id": 1, "t": "a"}, {"id": 2, "t": "b"}])
        assert tables(db) == []
        connection.rollback()
        metadata.create_all(connection)
        connection.execute(metadata.tables["one"].insert(), [{"id": 3, "t": "c"}])
        connection.commit()
        assert tables(db) == ["one", "two"]
        metadata.drop_all(connection)
        assert tables(db) == ["one", "two"]
        connection.commit()
    engine.dispose()
    assert tables(db) == []


def test_sqlalchemy_has_its_keys_from_sequences(server, db):
    class Base(DeclarativeBase):
        pass

    class Author(Base):
        __tablename__ = "author"
        id: Mapped[int] = mapped_column(primary_key=True)
        name: Mapped[str]

    metadata = Base.metadata
    Table("always", metadata, Column("id", BigInteger, Identity(always=True, start=5), primary_key=True), Column("t", Text))
    numbers = Sequence("numbers", start=100, metadata=metadata)
    Table("named", metadata, Column("id", Integer, numbers, primary_key=True), Column("t", Text))
    Table("keyless", metadata, Column("t", Text))
    engine = sqlalchemy.create_engine(url(server))
    metadata.create_all(engine)
    # Nothing is there twice.
    metadata.create_all(engine)
    with Session(engine) as session:
        first = Author(name="first")
        session.add(first)
        session.flush()
        assert first.id == 1
        session.rollback()
        authors = [Author(name=f"author {n}") for n in range(50)]
        session.add_all(authors)
        session.commit()
        assert sorted(author.id for author in authors) == list(range(2, 52))
        by_id = {author.id: author.name for author in session.scalars(sqlalchemy.select(Author))}
        assert all(by_id[author.id] == author.name for author in authors)
    with engine.begin() as connection:
        insert = metadata.tables["always"].insert().values(t="a")
        assert connection.execute(insert).inserted_primary_key == (5,)
        insert = metadata.tables["named"].insert().values(t="a")
        assert connection.execute(insert).inserted_primary_key == (100,)
        assert connection.scalar(numbers) == 101
        connection.execute(metadata.tables["keyless"].insert(), [{"t": "x"}, {"t": "x"}])
    inspector = sqlalchemy.inspect(engine)
    assert "author_id_seq" in inspector.get_sequence_names()
    engine.dispose()
    server.kill()
    server.start()
    engine = sqlalchemy.create_engine(url(server))
    with Session(engine) as session:
        later = Author(name="later")
        session.add(later)
        session.commit()
        assert later.id > 51
    with server.sql() as connection:
        largest = connection.execute("select max(id) from author").fetchone()[0]
        assert connection.execute("select nextval('author_id_seq')").fetchone()[0] > largest
    metadata.drop_all(engine)
    engine.dispose()
    with server.sql() as connection:
        assert tables(connection) == []
        assert connection.execute("select count(*) from pg_class where relkind = 'S'").fetchone() == (0,)


def test_psycopg_changes_the_catalog_in_a_transaction(server, db):
    with db.transaction(force_rollback=True):
        db.execute("create table t (id bigint primary key)")
        db.execute("insert into t values (1)")
        with pytest.raises(errors.DuplicateTable), db.transaction():
            db.execute("create table t (id bigint primary key)")
        assert db.execute("select id from t").fetchall() == [(1,)]
    with pytest.raises(errors.UndefinedTable):
        db.execute("select id from t")
    db.execute("create table t (id bigint primary key)")
    with server.sql() as other, pytest.raises(errors.SerializationFailure) as raised, db.transaction():
        db.execute("alter table t add column n bigint")
        db.execute("insert into t values (1, 1)")
        other.execute("alter table t add column m bigint")
    assert "run it again" in raised.value.diag.message_hint
    assert db.execute("select * from t").fetchall() == []
