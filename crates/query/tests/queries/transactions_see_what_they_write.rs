//! The statements of a transaction see what those before them wrote, by whichever way they read, and nobody else does before
//! `COMMIT`. What is rolled back, to a savepoint or altogether, nobody sees.

use super::db::{Db, int};
use oribi_session::sql::{Point, TransactionStatus};
use oribi_types::Value;

/// Ten rows, of which some are in files and some in memory, over several tablets.
async fn ten_rows() -> Db {
    let db = Db::new();
    db.run("create table t (id bigint primary key, n bigint, s text) partition by hash (id) partitions 3")
        .await;
    db.run("insert into t select i, i * 10, 'old' from generate_series(1, 6) as g(i)").await;
    db.flush("t");
    db.run("insert into t select i, i * 10, 'old' from generate_series(7, 10) as g(i)").await;
    db
}

/// What a reader may ask, by point reads, ranges, scans and statistics.
const QUESTIONS: [&str; 12] = [
    "select id, n, s from t order by id",
    "select n from t where id = 3",
    "select n from t where id in (2, 3, 8, 11, 12)",
    "select id, n from t where id between 2 and 8 order by id",
    "select id from t order by id limit 3",
    "select id from t where n > 35 order by id desc limit 2",
    "select count(*) from t",
    "select min(id), max(id), min(n), max(n) from t",
    "select s, count(*), sum(n) from t group by s order by s",
    "select a.id, b.n from t a join t b on a.id = b.id where a.n < 45 order by 1",
    "select count(*) from t where s = 'old'",
    "select n from t where id = 100",
];

async fn answers(db: &Db) -> Vec<Vec<String>> {
    let mut answers = Vec::new();
    for question in QUESTIONS {
        let mut rows = db.rows(question).await;
        if !question.contains("order by") {
            rows.sort();
        }
        answers.push(rows);
    }
    answers
}

/// Statements that write, one upon the other.
const STEPS: [&str; 14] = [
    "insert into t values (11, 110, 'new'), (12, 120, 'new')",
    "update t set n = n + 1 where id in (3, 8, 11)",
    "update t set n = 7 where id = 3",
    "update t set n = n + 1 where id = 3",
    "delete from t where id = 2",
    "delete from t where n = 70",
    "insert into t values (2, 21, 'again')",
    "update t set id = id + 100 where id in (4, 9, 12)",
    "insert into t values (4, 41, 'again') on conflict (id) do update set n = excluded.n",
    "insert into t values (4, 42, 'again') on conflict (id) do update set n = t.n + excluded.n, s = 'both'",
    "insert into t values (1, 0, 'no'), (13, 130, 'yes') on conflict do nothing",
    "insert into t select id + 200, n, 'copy' from t where s <> 'old'",
    "update t set s = 'all', n = n + (select count(*) from t)",
    "delete from t where id > 300 or id in (select id from t where n > 115)",
];

#[tokio::test]
async fn a_block_reads_as_if_each_statement_had_been_committed() {
    let (block, alone) = (ten_rows().await, ten_rows().await);
    let other = block.client("other");
    let before = answers(&block).await;
    block.run("begin").await;
    for step in STEPS {
        assert_eq!(block.tag(step).await, alone.tag(step).await, "{step}");
        let (seen, stored) = (answers(&block).await, answers(&alone).await);
        for (n, question) in QUESTIONS.iter().enumerate() {
            assert_eq!(seen[n], stored[n], "{question}, behind {step}");
        }
        assert_eq!(answers(&other).await, before, "nobody else sees it: {step}");
    }
    block.run("commit").await;
    let after = answers(&alone).await;
    assert_eq!(answers(&block).await, after);
    assert_eq!(answers(&other).await, after);
    block.flush("t");
    drop(other);
    assert_eq!(answers(&block.reopen()).await, after);
}

#[tokio::test]
async fn a_key_is_refused_that_the_block_inserted() {
    let db = ten_rows().await;
    db.run("begin").await;
    db.run("insert into t values (20, 1, '')").await;
    assert_eq!(db.state("insert into t values (20, 2, '')").await, "23505");
    assert_eq!(db.tag("commit").await, "ROLLBACK");
    assert_eq!(db.rows("select count(*) from t").await, ["10"]);
}

#[tokio::test]
async fn prepared_point_statements_see_the_block() {
    let db = ten_rows().await;
    let read = db.prepare("select n from t where id = $1").await;
    let write = "update t set n = $2 where id = $1";
    db.run("begin").await;
    assert_eq!(db.tag_with(write, &[int(5), int(55)]).await, "UPDATE 1");
    let Some(Point::Read(point)) = read.point(&db.session) else { panic!("a look-up of one row") };
    let mut seen = Vec::new();
    let found = point.try_get(&db.session, &[int(5)], &mut |row| seen.push(row[0].to_owned())).unwrap();
    assert!(found.unwrap().0);
    assert_eq!(seen, [Value::Int64(55)]);
    assert_eq!(db.rows_with("select n from t where id = $1", &[int(5)]).await, ["55"]);
    db.run("rollback").await;
    assert!(read.point(&db.session).is_some());
    assert_eq!(db.rows("select n from t where id = 5").await, ["50"]);
}

#[tokio::test]
async fn what_ends_a_block_but_commit_leaves_nothing() {
    let db = ten_rows().await;
    let before = answers(&db).await;
    for end in [&["rollback"][..], &["select nope", "commit"], &["select nope", "rollback"]] {
        db.run("begin").await;
        for step in STEPS {
            db.run(step).await;
        }
        for sql in end {
            let _ = db.outcome(sql, &[]).await;
        }
        assert_eq!(db.session.transaction(), TransactionStatus::Idle);
        assert_eq!(answers(&db).await, before, "{end:?}");
    }
    // A client that goes away.
    let other = db.client("other");
    other.run("begin").await;
    other.run("delete from t").await;
    drop(other);
    assert_eq!(answers(&db).await, before);
    db.run("update t set n = n").await;
}

#[tokio::test]
async fn savepoints_undo_what_came_after_them() {
    let db = ten_rows().await;
    let value = "select n from t where id = 1";
    db.run("begin").await;
    db.run("update t set n = 1 where id = 1").await;
    db.run("savepoint a").await;
    db.run("update t set n = 2 where id = 1").await;
    db.run("savepoint b").await;
    db.run("update t set n = 3 where id = 1").await;
    db.run("insert into t values (20, 1, '')").await;
    assert_eq!(db.tag("rollback to b").await, "ROLLBACK");
    assert_eq!(db.rows(value).await, ["2"]);
    db.run("savepoint a").await;
    db.run("delete from t where id = 1").await;
    db.run("rollback to savepoint a").await;
    assert_eq!(db.rows(value).await, ["2"], "a name hides the earlier one");
    assert_eq!(db.tag("release savepoint a").await, "RELEASE");
    db.run("rollback to a").await;
    assert_eq!(db.rows(value).await, ["1"], "which is there again");
    assert_eq!(db.state("release b").await, "3B001");
    assert_eq!(db.session.transaction(), TransactionStatus::Failed);
    db.run("rollback to a").await;
    assert_eq!(db.session.transaction(), TransactionStatus::Open);
    assert_eq!(db.state("rollback to b").await, "3B001");
    db.run("rollback to a").await;
    db.run("commit").await;
    assert_eq!(db.rows(value).await, ["1"]);
    assert_eq!(db.rows("select count(*) from t").await, ["10"]);
    for outside in ["savepoint a", "release a", "rollback to a"] {
        assert_eq!(db.state(outside).await, "25P01", "{outside}");
    }
}

#[tokio::test]
async fn a_block_goes_on_from_the_savepoint_before_an_error() {
    let db = ten_rows().await;
    db.run("begin").await;
    db.run("insert into t values (20, 1, '')").await;
    db.run("savepoint a").await;
    db.run("insert into t values (21, 1, '')").await;
    assert_eq!(db.state("insert into t values (20, 1, '')").await, "23505");
    assert_eq!(db.state("select 1").await, "25P02");
    db.run("rollback to a").await;
    db.run("insert into t values (22, 1, '')").await;
    db.run("commit").await;
    assert_eq!(db.rows("select id from t where id >= 20 order by id").await, ["20", "22"]);
}

#[tokio::test]
async fn one_commit_writes_to_several_tables() {
    let db = ten_rows().await;
    db.run("create table u (id text primary key, n bigint)").await;
    db.run("begin").await;
    for n in 0..100 {
        db.run(&format!("insert into u values ('key {n}', {n})")).await;
        db.run(&format!("insert into t values ({}, 0, 'row {n}')", 1000 + n)).await;
    }
    db.run("commit").await;
    assert_eq!(db.rows("select count(*), sum(n) from u").await, ["100|4950"]);
    assert_eq!(db.rows("select count(*) from t").await, ["110"]);
    let db = db.reopen();
    assert_eq!(db.rows("select count(*) from u, t where t.s = 'row ' || u.n").await, ["100"]);
}

#[tokio::test]
async fn a_block_shows_and_keeps_what_it_was_begun_with() {
    let db = ten_rows().await;
    let other = db.client("other");
    db.run("begin read only").await;
    assert_eq!(db.rows("show transaction_read_only").await, ["on"]);
    assert_eq!(db.state("update t set n = 1").await, "25006");
    db.run("rollback").await;
    db.run("begin").await;
    db.run("set transaction read only").await;
    assert_eq!(db.state("create table u (id int primary key)").await, "25006");
    db.run("rollback").await;
    assert_eq!(db.rows("show transaction_read_only").await, ["off"]);

    db.run("begin isolation level repeatable read").await;
    assert_eq!(db.rows("show transaction_isolation").await, ["repeatable read"]);
    assert_eq!(db.rows("select n from t where id = 1").await, ["10"]);
    other.run("update t set n = 11 where id = 1").await;
    other.run("insert into t values (20, 1, '')").await;
    assert_eq!(db.rows("select n from t where id = 1").await, ["10"]);
    assert_eq!(db.rows("select count(*) from t").await, ["10"]);
    assert_eq!(db.state("set transaction isolation level read committed").await, "25001");
    assert_eq!(db.tag("rollback and chain").await, "ROLLBACK");
    assert_eq!(db.rows("show transaction_isolation").await, ["repeatable read"]);
    assert_eq!(db.rows("select n from t where id = 1").await, ["11"]);
    db.run("update t set n = 12 where id = 1").await;
    assert_eq!(db.tag("commit and chain").await, "COMMIT");
    db.run("commit").await;
    assert_eq!(db.rows("select n from t where id = 1").await, ["12"]);
    assert_eq!(db.state("commit and chain").await, "25P01");

    // Whoever changed a row since the snapshot was first.
    for sql in [
        "update t set n = 0 where id = 1",
        "update t set n = n + 1",
        "delete from t where id = 1",
        "select * from t where id = 1 for update",
    ] {
        for change in ["update t set n = 5 where id = 1", "delete from t where id = 1"] {
            db.run("insert into t values (1, 10, '') on conflict (id) do update set n = 10").await;
            db.run("begin isolation level repeatable read").await;
            db.rows("select count(*) from t").await;
            other.run(change).await;
            assert_eq!(db.state(sql).await, "40001", "{sql}, and meanwhile {change}");
            db.run("rollback").await;
        }
    }
}
