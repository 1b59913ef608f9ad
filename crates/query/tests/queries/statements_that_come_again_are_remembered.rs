//! A statement about one row that comes again, be it with other literals, is not prepared again, and does what it would have done.

use crate::db::Db;
use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use futures::TryStreamExt;
use oribi_session::sql::{Outcome, Point, Prepared, SqlEngine, SqlError};
use oribi_types::{ColumnType, Value};
use std::sync::Arc;

const TABLE: &str = "create table t (
    id bigint primary key, n integer default 1, small smallint, v text, price numeric(10,2), rate double precision,
    at timestamp, doc json, raw bytea, flag boolean, day date)";
const NAMED: &str = "create table named (name text primary key, n integer)";

async fn database() -> Db {
    let db = Db::new();
    for sql in [TABLE, NAMED, "insert into t (id, n, small, v) values (1, 1, 1, 'one'), (2, 2, 32767, null)"]
    {
        db.run(sql).await;
    }
    db
}

/// What a client of the simple protocol is told, and whether its statement was remembered.
async fn simple(db: &Db, sql: &str) -> (String, bool) {
    if let Some((prepared, values)) = db.query.recall_with_literals(&db.session, sql) {
        return (told(run(db, &prepared, &values).await).await, true);
    }
    match db.query.prepare(&db.session, sql.trim_end_matches([';', ' ']), &[]).await {
        Ok(prepared) => (told(run(db, &prepared, &[]).await).await, false),
        Err(error) => (refused(&error), false),
    }
}

/// As a door does it: on the spot if it may be.
async fn run(db: &Db, prepared: &Arc<dyn Prepared>, values: &[Value]) -> Result<Outcome, SqlError> {
    if let Some(Point::Write(point)) = prepared.point(&db.session)
        && let Some((rows, obligation)) = point.write(&db.session, values)
    {
        if let Some(settled) = db.query.settled(obligation) {
            settled.await?;
        }
        return Ok(Outcome::Done { tag: format!("{} {rows}", prepared.verb()) });
    }
    prepared.execute(&db.session, values).await
}

async fn told(outcome: Result<Outcome, SqlError>) -> String {
    match outcome {
        Ok(Outcome::Done { tag }) => tag,
        Ok(Outcome::Rows(rows)) => match rows.try_collect::<Vec<RecordBatch>>().await {
            Ok(rows) => pretty_format_batches(&rows).unwrap().to_string(),
            Err(error) => refused(&error),
        },
        Ok(Outcome::CopyIn(_)) => panic!("COPY"),
        Err(error) => refused(&error),
    }
}

fn refused(error: &SqlError) -> String {
    // What a parameter computes may say another of two types that a number is too large for.
    format!("{:?} {:?} {:?}", error.error.kind(), error.sqlstate, error.position)
}

async fn is_remembered(db: &Db, sql: &str) -> bool {
    db.query.recall_with_literals(&db.session, sql).is_some()
}

/// Texts with marks in them that are replaced by literals.
#[tokio::test]
async fn it_does_what_it_would_have_done() {
    let integers = [
        "3",
        "-4",
        "0",
        "30000",
        "70000",
        "-2147483648",
        "2147483648",
        "9223372036854775807",
        "99999999999999999999",
    ];
    let numbers = ["1", "-2.50", "1.239", "0.005", "123456789.12", "1e3", "12345678901.5"];
    let texts = ["'a'", "''", "'it''s'", "'naïve'", "e'a\\nb'", "null", "'\\x00ff'", "5"];
    let moments = [
        "'2024-02-29 10:00:00'",
        "'2024-02-29'",
        "'2024-01-01 10:00:00+02'",
        "'no time'",
        "'infinity'",
        "null",
    ];
    let families: [(&[&str], &[&str]); 4] = [
        (
            &integers,
            &[
                "select n, v from t where id = #",
                "select * from t where id in (#, 1)",
                "select t.v as w from public.t where (id = #)",
                "update t set n = n + # where id = 1",
                "update t set small = small + # where id = 1",
                "update t set small = small + 1 - # where id = 2",
                "update t set n = # where id = 1",
                "update t set small = # where id = 1",
                "update t set n = n - # * 2 where id = 1",
                "update t set n = #::bigint where id = 1",
                "update t set n = -# where id = 1",
                "update t set price = # where id = 1",
                "update t set v = # where id = 1",
                "update t set n = 5 where id = #",
                "delete from t where id = #",
                "insert into t (id, n) values (#, 5)",
                "insert into t (id, n, v) values (1, #, 'x') on conflict (id) do update set n = t.n + excluded.n",
                "insert into t (id) values (#) on conflict do nothing",
                "insert into t (id, n) values (7, # + 1)",
                "select n from t where id = # and n = 1",
                "select n + # from t where id = 1",
                "select n from t where id = 1 limit #",
            ],
        ),
        (
            &numbers,
            &[
                "update t set price = # where id = 1",
                "update t set rate = # where id = 1",
                "update t set n = # where id = 1",
                "insert into t (id, price, rate) values (8, #, 1.5)",
                "update t set n = n + # where id = 1",
                "select n from t where id = #",
            ],
        ),
        (
            &texts,
            &[
                "update t set v = # where id = 1",
                "update t set raw = # where id = 1",
                "update t set doc = # where id = 1",
                "update t set n = # where id = 1",
                "update t set flag = # where id = 1",
                "insert into named (name, n) values (#, 1)",
                "select n from named where name = #",
                "select n from named where name = #::text",
                "update named set n = n + 1 where name = #",
                "delete from named where name = #",
                "insert into t (id, v) values (9, # || 'x')",
            ],
        ),
        (
            &moments,
            &[
                "update t set at = # where id = 1",
                "update t set at = #::timestamp where id = 1",
                "update t set at = timestamp # where id = 1",
                "update t set day = # where id = 1",
                "insert into t (id, at, day) values (10, #, '2024-01-01')",
            ],
        ),
    ];
    for (literals, statements) in families {
        for statement in statements {
            let (remembering, plain) = (database().await, database().await);
            for literal in literals.iter().chain(literals) {
                let sql = statement.replace('#', literal);
                let (told_by_one, _) = simple(&remembering, &sql).await;
                let told_by_other = told(plain.outcome(&sql, &[]).await).await;
                assert_eq!(told_by_one, told_by_other, "{sql}");
                for table in ["select * from t order by id", "select * from named order by name"] {
                    assert_eq!(remembering.rows(table).await, plain.rows(table).await, "{sql}");
                }
            }
        }
    }
}

/// Whether a statement was remembered when it came for the first, the second and the third time.
async fn thrice(db: &Db, statement: &str) -> Vec<bool> {
    let mut was_remembered = Vec::new();
    for literal in ["101", "102", "103"] {
        was_remembered.push(simple(db, &statement.replace('#', literal)).await.1);
    }
    was_remembered
}

#[tokio::test]
async fn what_comes_for_the_third_time_is_not_prepared() {
    let db = database().await;
    for (statement, remembers) in [
        ("select n, v from t where id = #", true),
        ("update t set n = n + #, v = 'a' where id = 5", true),
        ("insert into t (id, n, v, price, rate, at) values (#, 5, 'text', 1.50, 2, '2024-01-01')", true),
        ("insert into t (id, at) values (#, current_timestamp) on conflict do nothing;", true),
        ("insert into t (id, n) values (#, 5) on conflict (id) do update set n = t.n + excluded.n", true),
        ("delete from t where id = # ;", true),
        ("select n from t where id + 0 = #", false),
        ("select count(*) from t where n > #", false),
        ("update t set n = # where n = 1", false),
        ("insert into t (id, doc) values (#, '[]')", false),
        ("select n from t where id = # -- why", false),
        // Of another text it is another row.
        ("select #", false),
    ] {
        let mut was_remembered = thrice(&db, statement).await;
        if was_remembered != [false, false, remembers] {
            // What came once has a place by its hash, and the second text may have had that of what all are alike in. In another
            // database hashes are others.
            was_remembered = thrice(&database().await, statement).await;
        }
        assert_eq!(was_remembered, [false, false, remembers], "{statement}");
        assert!(!is_remembered(&db, &statement.replace('#', "1.5")).await, "{statement}");
    }
    for control in ["BEGIN", "commit;", "begin;", "END", "BEGIN", "rollback"] {
        simple(&db, control).await;
        simple(&db, control).await;
        assert!(is_remembered(&db, control).await, "{control}");
    }
}

#[tokio::test]
async fn literals_are_computed_once() {
    for (sql, column, row) in [
        ("SELECT 1", "?column?", "1"),
        ("select 1 as one, 'it''s', null ;", "one", "1|it's|"),
        ("select 1.50, true;", "?column?", "1.50|true"),
    ] {
        let mut db = database().await;
        let mut answers = vec![simple(&db, sql).await, simple(&db, sql).await, simple(&db, sql).await];
        if !answers[2].1 {
            // As above.
            db = database().await;
            answers = vec![simple(&db, sql).await, simple(&db, sql).await, simple(&db, sql).await];
        }
        answers.push(simple(&db, sql).await);
        let was_remembered = Vec::from_iter(answers.iter().map(|(_, was_remembered)| *was_remembered));
        assert_eq!(was_remembered, [false, false, true, true], "{sql}");
        assert!(answers.iter().all(|(told, _)| *told == answers[0].0), "{answers:?}");
        let (prepared, _) = db.query.recall_with_literals(&db.session, sql).unwrap();
        assert_eq!(prepared.columns().unwrap().field(0).name(), column);
        assert_eq!(db.rows(sql.trim_end_matches([';', ' '])).await, [row]);
    }
}

#[tokio::test]
async fn what_is_more_than_literals_may_be_another_the_next_time() {
    let db = database().await;
    for sql in [
        "select now()",
        "select current_user",
        "select 'now'::timestamp",
        "select 1 limit 0",
        "select -1",
        "select 1 from t",
    ] {
        for _ in 0..3 {
            assert!(!simple(&db, sql).await.1, "{sql}");
        }
    }
    let (sql, parameter) = ("select $1", [Some(ColumnType::Int32)]);
    for value in [1, 2, 3] {
        let prepared = db.query.prepare(&db.session, sql, &parameter).await.unwrap();
        let told = told(prepared.execute(&db.session, &[Value::Int32(value)]).await).await;
        assert!(told.contains(&format!("| {value} ")), "{told}");
    }
}

#[tokio::test]
async fn what_a_block_sees_begins_with_literals_too() {
    let db = database().await;
    for computed in [false, true] {
        if computed {
            for _ in 0..2 {
                simple(&db, "select 1").await;
            }
        }
        let block = db.client("tester");
        block.run("begin isolation level repeatable read").await;
        simple(&block, "select 1").await;
        db.run("insert into t (id) values (100)").await;
        assert_eq!(block.rows("select count(*) from t").await, ["2"], "{computed}");
        let error = block.error("set transaction isolation level read committed").await;
        assert_eq!(error.sqlstate, Some("25001"));
        block.run("rollback").await;
        db.run("delete from t where id = 100").await;
    }
}

#[tokio::test]
async fn texts_with_parameters_are_remembered_as_they_are() {
    let db = database().await;
    let (sql, int4) = ("select v from t where id = $1", Some(ColumnType::Int32));
    let recalled = |given: &[Option<ColumnType>]| db.query.recall(&db.session, sql, given);
    for given in [vec![], vec![int4]] {
        for _ in 0..2 {
            assert!(recalled(&given).is_none());
            db.query.prepare(&db.session, sql, &given).await.unwrap();
        }
        let expected = if given.is_empty() { ColumnType::Int64 } else { ColumnType::Int32 };
        assert_eq!(recalled(&given).unwrap().parameters(), [expected]);
    }
    assert!(db.query.recall(&db.session, "select v from t where id =  $1", &[]).is_none());
}

#[tokio::test]
async fn it_holds_for_what_its_names_mean() {
    let db = database().await;
    db.run("create schema other").await;
    db.run("create table other.t (id bigint primary key, v text)").await;
    db.run("insert into other.t values (1, 'other')").await;
    let sql = "select v from t where id = 1";
    for _ in 0..2 {
        assert!(simple(&db, sql).await.0.contains("one"));
    }
    assert!(is_remembered(&db, sql).await);
    let alike = db.client("tester");
    assert!(is_remembered(&alike, sql).await, "sessions that are alike share it");
    assert!(!is_remembered(&db.client("somebody else"), sql).await);
    db.run("set search_path = other").await;
    for _ in 0..3 {
        assert!(simple(&db, sql).await.0.contains("other"));
        assert!(simple(&alike, sql).await.0.contains("one"));
    }
    assert!(is_remembered(&db, sql).await && is_remembered(&alike, sql).await);

    db.run("alter table other.t add column more int default 7").await;
    assert!(!is_remembered(&alike, sql).await, "the catalog is another");
    let all = "select * from t where id = 1";
    for _ in 0..3 {
        assert!(simple(&db, all).await.0.contains('7'));
    }
    db.run("drop table other.t").await;
    assert!(simple(&db, all).await.0.contains("42P01"));

    db.run("reset search_path").await;
    for _ in 0..3 {
        assert!(simple(&db, sql).await.0.contains("one"));
    }
    db.run("begin").await;
    db.run("alter table t drop column v").await;
    assert!(!is_remembered(&db, sql).await, "the block has a catalog of its own");
    assert!(simple(&db, sql).await.0.contains("42703"));
    assert!(!is_remembered(&db, sql).await, "the block has failed");
    assert!(simple(&db, sql).await.0.contains("25P02"));
    db.run("rollback").await;
    assert!(simple(&db, sql).await.0.contains("one"));
}

#[tokio::test]
async fn a_block_begins_as_the_session_says() {
    let db = database().await;
    for _ in 0..3 {
        simple(&db, "begin").await;
        assert_eq!(db.rows("show transaction_isolation").await, ["read committed"]);
        simple(&db, "commit").await;
    }
    // What came between may have had its place among those that came once; here nothing does.
    simple(&db, "begin").await;
    simple(&db, "begin").await;
    simple(&db, "commit").await;
    db.run("set default_transaction_isolation = 'serializable'").await;
    assert!(is_remembered(&db, "begin").await);
    simple(&db, "begin").await;
    assert_eq!(db.rows("show transaction_isolation").await, ["serializable"]);
    simple(&db, "commit").await;
}

#[tokio::test]
async fn there_is_room_for_so_many() {
    let db = database().await;
    let before = db.engine.memory().queries();
    let of = |n: usize| format!("select n as n{n} from t where id = 1");
    for n in 0..3000 {
        for _ in 0..2 {
            simple(&db, &of(n)).await;
        }
        if n == 1 {
            // One text in some thousands has the place of its own shape among those that came once.
            assert!(is_remembered(&db, &of(0)).await || is_remembered(&db, &of(1)).await);
        }
    }
    assert!(db.engine.memory().queries() - before <= 8 << 20);
    assert!(!is_remembered(&db, &of(0)).await);
    assert!(is_remembered(&db, &of(2998)).await || is_remembered(&db, &of(2999)).await);
}
