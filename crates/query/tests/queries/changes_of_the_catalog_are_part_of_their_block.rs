//! What a block changes of the catalog is seen by its statements, and by nobody else before `COMMIT`, which has everybody see it
//! together with the rows. Whatever else ends the block leaves nothing of it.

use super::db::{Db, int};
use oribi_session::sql::{SqlEngine, TransactionStatus};

const TABLES: &str = "select table_schema, table_name from information_schema.tables \
    where table_schema not in ('pg_catalog', 'information_schema', 'default') order by 1, 2";

/// A migration: each statement sees what those before it have made.
const MIGRATION: [&str; 16] = [
    "create schema app",
    "create table app.migrations (name text primary key, n bigint)",
    "create table book (id bigint primary key, title text, price numeric(8, 2))",
    "insert into book values (1, 'one', 1.50), (2, 'two', 2.50)",
    "alter table book add column note text default 'none'",
    "update book set note = title where id = 2",
    "insert into book (id, title) values (3, 'three')",
    "alter table book rename column title to name",
    "alter table book drop column price",
    "alter table old add column more bigint",
    "update old set more = n + 1 where n > 10",
    "insert into old values (4, 40, 400)",
    "drop table gone",
    "insert into emptied values (9)",
    "truncate emptied",
    "insert into app.migrations select 'first', count(*) from book",
];

/// What there is afterwards.
const QUESTIONS: [(&str, &[&str]); 6] = [
    (TABLES, &["app|migrations", "public|book", "public|emptied", "public|old"]),
    ("select * from book order by id", &["1|one|none", "2|two|two", "3|three|none"]),
    ("select id, n, more from old order by id", &["1|10|", "2|20|21", "3|30|31", "4|40|400"]),
    ("select count(*), max(id) from emptied", &["0|"]),
    ("select name, n from app.migrations", &["first|3"]),
    ("select name from book where id = 2", &["two"]),
];

async fn before() -> Db {
    let db = Db::new();
    db.run("create table old (id bigint primary key, n bigint) partition by hash (id) partitions 2").await;
    db.run("create table gone (id bigint primary key)").await;
    db.run("create table emptied (id bigint primary key)").await;
    db.run("insert into old values (1, 10), (2, 20)").await;
    db.flush("old");
    db.run("insert into old values (3, 30)").await;
    db.run("insert into gone values (1)").await;
    db.run("insert into emptied values (1), (2)").await;
    db
}

async fn migrate(db: &Db) {
    for sql in MIGRATION {
        db.run(sql).await;
    }
    for (question, answer) in QUESTIONS {
        assert_eq!(db.rows(question).await, answer, "{question}");
    }
}

async fn is_as_before(db: &Db) {
    assert_eq!(db.rows(TABLES).await, ["public|emptied", "public|gone", "public|old"]);
    assert_eq!(db.rows("select * from old order by id").await, ["1|10", "2|20", "3|30"]);
    assert_eq!(db.rows("select id from gone").await, ["1"]);
    assert_eq!(db.rows("select id from emptied order by id").await, ["1", "2"]);
}

#[tokio::test]
async fn a_migration_is_seen_by_its_block_and_then_by_all() {
    let db = before().await;
    let other = db.client("other");
    let reader = db.client("reader");
    reader.run("begin isolation level repeatable read").await;
    is_as_before(&reader).await;
    db.run("begin").await;
    migrate(&db).await;
    is_as_before(&other).await;
    assert_eq!(db.tag("commit").await, "COMMIT");
    for (question, answer) in QUESTIONS {
        assert_eq!(other.rows(question).await, answer, "{question}");
    }
    drop((other, reader));
    let db = db.reopen();
    for (question, answer) in QUESTIONS {
        assert_eq!(db.rows(question).await, answer, "{question}");
    }
    db.run("insert into book values (4, 'four', 'later')").await;
    db.run("insert into emptied values (1)").await;
}

#[tokio::test]
async fn whatever_ends_a_block_otherwise_leaves_nothing_of_it() {
    let db = before().await;
    for end in ["rollback", "failure", "failed commit"] {
        db.run("begin").await;
        migrate(&db).await;
        match end {
            "rollback" => db.run("rollback").await,
            "failure" => {
                assert_eq!(db.state("select nope from book").await, "42703");
                assert_eq!(db.tag("commit").await, "ROLLBACK");
            }
            _ => {
                db.client("other").run("alter table gone add column x bigint").await;
                assert_eq!(db.state("commit").await, "40001");
                assert_eq!(db.session.transaction(), TransactionStatus::Idle);
                db.run("alter table gone drop column x").await;
            }
        }
        is_as_before(&db).await;
    }
    let gone = db.client("gone");
    gone.run("begin").await;
    migrate(&gone).await;
    drop(gone);
    is_as_before(&db).await;
    is_as_before(&db.reopen()).await;
}

#[tokio::test]
async fn a_savepoint_brings_back_the_catalog_too() {
    let db = before().await;
    db.run("begin").await;
    db.run("create table a (id bigint primary key, n bigint)").await;
    db.run("insert into a values (1, 1)").await;
    db.run("savepoint s").await;
    for undo in 0..2 {
        db.run("alter table a add column m bigint default 7").await;
        db.run("insert into a values (2, 2, 2)").await;
        db.run("truncate a").await;
        db.run("drop table old").await;
        db.run("create table old (id bigint primary key)").await;
        db.run("insert into old values (77)").await;
        if undo == 0 {
            assert_eq!(db.state("create table a (id bigint primary key)").await, "42P07");
        }
        db.run("rollback to s").await;
        assert_eq!(db.rows("select * from a").await, ["1|1"]);
        assert_eq!(db.rows("select count(*) from old").await, ["3"]);
    }
    db.run("insert into a values (3, 3)").await;
    db.run("commit").await;
    assert_eq!(db.rows("select * from a order by id").await, ["1|1", "3|3"]);
    assert_eq!(db.rows("select count(*) from old").await, ["3"]);
}

#[tokio::test]
async fn rows_of_a_block_are_those_of_the_table_that_it_alters() {
    let db = before().await;
    db.run("begin").await;
    db.run("insert into old values (5, 50)").await;
    db.run("update old set n = 11 where id = 1").await;
    db.run("alter table old add column more bigint default 3").await;
    assert_eq!(
        db.rows("select * from old where id in (1, 2, 5) order by id").await,
        ["1|11|3", "2|20|3", "5|50|3"]
    );
    db.run("alter table old drop column n").await;
    db.run("alter table old add column n text").await;
    assert_eq!(db.rows("select * from old order by id").await, ["1|3|", "2|3|", "3|3|", "5|3|"]);
    db.run("commit").await;
    db.flush("old");
    assert_eq!(db.rows("select * from old order by id").await, ["1|3|", "2|3|", "3|3|", "5|3|"]);
}

#[tokio::test]
async fn a_table_is_filled_from_a_query_in_its_block() {
    let db = before().await;
    db.run("begin").await;
    assert_eq!(
        db.tag("create table copy with (primary_key = 'id') as select id, n * 2 as m from old").await,
        "SELECT 3"
    );
    assert_eq!(db.rows("select m from copy order by id").await, ["20", "40", "60"]);
    assert_eq!(db.client("other").state("select * from copy").await, "42P01");
    db.run("commit").await;
    assert_eq!(db.rows("select m from copy order by id").await, ["20", "40", "60"]);
}

#[tokio::test]
async fn statements_prepared_before_and_within_follow_the_catalog_of_the_block() {
    let db = before().await;
    let star = db.prepare("select n from old where id = $1").await;
    db.run("begin").await;
    db.run("alter table old rename to older").await;
    db.run("create table old (id bigint primary key, n bigint)").await;
    db.run("insert into old values (1, 111)").await;
    let rows = |db: &Db| {
        let (star, session) = (star.clone(), db.session.clone());
        async move {
            match star.execute(&session, &[int(1)]).await.unwrap() {
                oribi_session::sql::Outcome::Rows(rows) => {
                    use futures::TryStreamExt;
                    let batches: Vec<arrow::array::RecordBatch> = rows.try_collect().await.unwrap();
                    arrow::util::display::array_value_to_string(batches[0].column(0), 0).unwrap()
                }
                _ => panic!("rows"),
            }
        }
    };
    assert_eq!(rows(&db).await, "111");
    db.run("rollback").await;
    assert_eq!(rows(&db).await, "10");
}

#[tokio::test]
async fn statements_of_one_message_are_undone_with_their_changes_of_the_catalog() {
    let db = before().await;
    for commit in [false, true] {
        db.query.begin_series(&db.session);
        db.run("create table made (id bigint primary key)").await;
        db.run("insert into made values (1)").await;
        db.query.end_series(&db.session, commit).await.unwrap();
        match commit {
            true => assert_eq!(db.rows("select id from made").await, ["1"]),
            false => assert_eq!(db.state("select id from made").await, "42P01"),
        }
    }
}

#[tokio::test]
async fn a_column_takes_null_from_when_it_is_said() {
    let db = Db::new();
    db.run("create table t (id bigint primary key, s varchar(10) not null, n bigint not null default 5)")
        .await;
    db.run("insert into t values (1, 'one', 1)").await;
    db.flush("t");
    db.run("alter table t alter column s type varchar(20), alter column s drop not null").await;
    assert_eq!(db.state("insert into t values (2, null, null)").await, "23502");
    db.run("insert into t values (2, null, 2), (3, 'three', 3)").await;
    for _ in 0..2 {
        assert_eq!(db.rows("select * from t order by id").await, ["1|one|1", "2||2", "3|three|3"]);
        assert_eq!(db.rows("select id from t where s is null").await, ["2"]);
        assert_eq!(db.rows("select s from t where id = 1").await, ["one"]);
        db.flush("t");
        db.compact("t");
    }
    assert_eq!(db.state("alter table t alter column id drop not null").await, "42P16");
    assert_eq!(db.state("alter table t alter column n type text").await, "0A000");
}

#[tokio::test]
async fn several_changes_of_a_table_are_one_statement() {
    let db = before().await;
    db.run("alter table old add column a bigint default 1, add column b text, drop column n").await;
    assert_eq!(db.rows("select * from old where id = 1").await, ["1|1|"]);
    assert_eq!(db.state("alter table old add column c bigint, drop column nope").await, "42703");
    assert_eq!(db.rows("select * from old where id = 1").await, ["1|1|"]);
}

#[tokio::test]
async fn what_a_block_reads_by_its_own_definition_is_remembered_for_nobody() {
    let mut db = Db::new();
    db.run("create table t (id bigint primary key, n bigint not null, m bigint)").await;
    db.run("insert into t values (1, 10, 100), (2, 20, 200)").await;
    db.flush("t");
    db = db.reopen();
    for change in ["alter table t drop column n", "alter table t add column c text default 'none'"] {
        db.run("begin").await;
        db.run(change).await;
        assert_eq!(db.rows("select m from t where id = 1").await, ["100"]);
        db.run("select max(m), min(m) from t").await;
        db.run("rollback").await;
        assert_eq!(db.rows("select * from t where id = 1").await, ["1|10|100"], "{change}");
    }
    // The id of the column is used again.
    db.run("begin").await;
    db.run("alter table t add column c bigint default 1").await;
    assert_eq!(db.rows("select max(c), count(c) from t").await, ["1|2"]);
    db.run("rollback").await;
    db.run("alter table t add column c bigint default 2").await;
    assert_eq!(db.rows("select min(c), max(c), count(c) from t").await, ["2|2|2"]);
}
