//! Advisory locks keep sessions from each other, for as long as they say, and wait without keeping anybody else from anything.

use super::db::{Db, int};
use std::time::Duration;

#[tokio::test]
async fn a_lock_is_one_sessions_until_it_gives_it_back() {
    let db = Db::new();
    let other = db.client("other");
    assert_eq!(db.rows("select pg_advisory_lock(1)").await, [""]);
    assert_eq!(other.rows("select pg_try_advisory_lock(1) as got").await, ["false"]);
    assert_eq!(other.rows("select pg_try_advisory_lock_shared(1)").await, ["false"]);
    assert_eq!(other.rows_with("select pg_try_advisory_lock($1)", &[int(2)]).await, ["true"]);
    assert_eq!(other.rows("select pg_try_advisory_lock(0, 1)").await, ["true"]);
    assert_eq!(other.rows("select pg_advisory_unlock(1)").await, ["false"]);
    assert_eq!(db.rows("select pg_advisory_unlock(1)").await, ["true"]);
    assert_eq!(other.rows("select pg_try_advisory_lock(1)").await, ["true"]);
    // Whoever else has the session still.
    let session = other.session.clone();
    session.end();
    assert_eq!(db.rows("select pg_try_advisory_lock(1)").await, ["true"]);
    assert_eq!(db.rows("select pg_advisory_unlock_all()").await, [""]);
    assert_eq!(db.client("third").rows("select pg_try_advisory_lock(1)").await, ["true"]);
}

#[tokio::test]
async fn a_lock_of_a_block_ends_with_it() {
    for end in ["commit", "rollback"] {
        let db = Db::new();
        let other = db.client("other");
        db.run("begin").await;
        assert_eq!(db.rows("select pg_advisory_xact_lock(7)").await, [""]);
        assert_eq!(other.rows("select pg_try_advisory_xact_lock(7)").await, ["false"]);
        other.run("set lock_timeout to 1").await;
        assert_eq!(other.state("select pg_advisory_lock(7)").await, "55P03");
        other.run("set lock_timeout to 0").await;
        let waits = tokio::spawn(async move {
            other.run("select pg_advisory_lock(7)").await;
            other.run("select pg_advisory_unlock(7)").await;
            other
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        db.run(end).await;
        let other = tokio::time::timeout(Duration::from_secs(60), waits).await.unwrap().unwrap();
        // By itself, it is over with its statement.
        assert_eq!(other.rows("select pg_try_advisory_xact_lock(7)").await, ["true"]);
        assert_eq!(db.rows("select pg_try_advisory_lock(7)").await, ["true"]);
    }
}

#[tokio::test]
async fn a_block_that_fails_gives_back_its_locks_and_none_of_its_session() {
    let db = Db::new();
    let other = db.client("other");
    db.run("begin").await;
    db.run("select pg_advisory_xact_lock(1)").await;
    db.run("select pg_advisory_lock(2)").await;
    assert_eq!(db.state("select nothing").await, "42703");
    assert_eq!(other.rows("select pg_try_advisory_lock(1)").await, ["true"]);
    db.run("rollback").await;
    assert_eq!(other.rows("select pg_try_advisory_lock(2)").await, ["false"]);
    db.run("discard all").await;
    assert_eq!(other.rows("select pg_try_advisory_lock(2)").await, ["true"]);
}

#[tokio::test]
async fn sessions_that_wait_for_each_other_are_told() {
    let db = Db::new();
    let other = db.client("other");
    db.run("select pg_advisory_lock(1)").await;
    other.run("select pg_advisory_lock(2)").await;
    let waits = tokio::spawn(async move {
        other.run("select pg_advisory_lock(1)").await;
        other
    });
    let state = loop {
        tokio::task::yield_now().await;
        db.run("set lock_timeout to 1").await;
        match db.state("select pg_advisory_lock(2)").await {
            // The other does not wait yet.
            "55P03" => {}
            state => break state,
        }
    };
    assert_eq!(state, "40P01");
    db.session.end();
    tokio::time::timeout(Duration::from_secs(60), waits).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_lock_is_a_statement_of_its_own() {
    let db = Db::new();
    db.run("create table t (id bigint primary key)").await;
    for sql in [
        "select pg_advisory_lock(id) from t",
        "select pg_try_advisory_lock(1), 2",
        "select * from pg_try_advisory_lock(1)",
        "select 1 where pg_try_advisory_lock(1)",
        "select pg_advisory_lock(length('a'))",
        "select pg_advisory_lock(1) limit 0",
    ] {
        assert_eq!(db.state(sql).await, "0A000", "{sql}");
    }
    assert_eq!(db.state("select pg_advisory_lock()").await, "42883");
    assert_eq!(db.state("select pg_advisory_lock(1, 2, 3)").await, "42883");
    assert_eq!(db.state("select pg_advisory_lock(1, 3000000000)").await, "22003");
    assert_eq!(db.state("select pg_advisory_nothing(1)").await, "42883");
    assert_eq!(db.rows("select pg_catalog.pg_try_advisory_lock(-9223372036854775808)").await, ["true"]);
}
