//! `system.queries` tells what is executed, and what was last.

use crate::db::Db;
use futures::StreamExt;
use oribi_session::sql::{Outcome, SqlEngine};

#[tokio::test]
async fn queries_are_listed_with_their_end() {
    let db = Db::new();
    let other = db.client("other");
    db.run("create table t (id bigint primary key, s text)").await;
    db.run("insert into t select n, repeat('x', 1000) from generate_series(1, 100000) as g(n)").await;
    db.rows("select count(*) from t where s > 'a'").await;
    db.error("select 1 / (id - 70000) from t").await;
    // So little that there is room for all of it.
    let sql = "select left(s, 100) || id from t";
    let prepared = db.query.prepare(&db.session, sql, &[]).await.unwrap();
    let Outcome::Rows(mut unread) = prepared.execute(&db.session, &[]).await.unwrap() else { panic!() };
    assert!(unread.next().await.unwrap().is_ok());
    let listed = |columns: &str, like: &str| {
        format!("select {columns} from system.queries where query like '{like}' order by id")
    };
    let running = listed("username, state, rows > 0, time_ms <= age_ms", "select left(%");
    assert_eq!(other.rows(&running).await, ["tester|running|true|true"]);
    drop(unread);
    let left = listed("state, rows > 0 and rows < 100000, why, nodes", "select left(%");
    assert_eq!(other.rows(&left).await, ["left|true||"]);
    let done = listed("username, state, rows, why, exchanged_rows", "select count(*)%");
    assert_eq!(other.rows(&done).await, ["tester|done|1||"]);
    let failed = listed("state, why", "select 1 / (id%");
    assert_eq!(other.rows(&failed).await, ["failed|division by zero"]);
    // A row by its key needs no plan, and the last 256 that ended are kept.
    db.rows("select s from t where id = 7").await;
    assert!(other.rows(&listed("id", "select s from t where id = 7")).await.is_empty());
    for n in 0..300 {
        db.rows(&format!("select count(*) + {n} from t where s > 'y'")).await;
    }
    let kept = other
        .rows("select count(*), max(length(query)) <= 1024 from system.queries where state <> 'running'");
    assert_eq!(kept.await, ["256|true"]);
}
