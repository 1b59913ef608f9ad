//! Rows that clients ask for and do not take stay within one bound, however many clients there are: the others wait.

use crate::db::Db;
use futures::StreamExt;
use oribi_engine::EngineOptions;
use oribi_session::sql::{Outcome, Point, RowStream, SqlEngine};
use oribi_types::ErrorKind;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

const MIB: u64 = 1 << 20;
/// An eighth of the memory.
const ROOM: u64 = 8 * MIB;
/// What one batch counts as: two rows of 1 MiB, and as much while they are encoded.
const BATCH: u64 = 4 * MIB + (1 << 10);
/// Threads that may each make a batch while there is still room: two of queries and two to spare. One more batch is made with the turn.
const THREADS: u64 = 4;
/// As many look-ups read files at the same moment, of half a batch each.
const LOOKUPS: u64 = 16;
const CLIENTS: usize = 24;

/// A table with two rows of 1 MiB, in a file.
async fn table() -> Arc<Db> {
    let db = Db::with(EngineOptions { memory_bytes: 64 * MIB, ..EngineOptions::default() });
    db.run("create table t (k integer primary key, v text)").await;
    db.run("insert into t select n, repeat('x', 1048576) from generate_series(1, 2) as s(n)").await;
    db.flush("t");
    Arc::new(db)
}

async fn ask(db: &Db, sql: &str) -> RowStream {
    let Outcome::Rows(rows) = db.outcome(sql, &[]).await.unwrap() else { panic!("rows") };
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_take_nothing_hold_so_much_and_the_others_wait() {
    let db = table().await;
    let batches = (THREADS + 1) * BATCH;
    for (sql, rows, made_at_once) in [
        ("select k, v from t", 2, batches),
        ("select v from t where k = 1", 1, (LOOKUPS + 1) * BATCH / 2),
        ("copy t (v) to stdout", 2, batches),
    ] {
        let (came, mut coming) = mpsc::unbounded_channel();
        let (read, reading) = watch::channel(false);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (db, came, mut reading) = (Arc::clone(&db), came.clone(), reading.clone());
                tokio::spawn(async move {
                    let mut rows = ask(&db, sql).await;
                    let mut count = rows.next().await.unwrap().unwrap().num_rows();
                    came.send(db.engine.memory().queries()).unwrap();
                    reading.wait_for(|read| *read).await.unwrap();
                    while let Some(batch) = rows.next().await {
                        count += batch.unwrap().num_rows();
                    }
                    count
                })
            })
            .collect();
        // Some have theirs.
        let mut counted = coming.recv().await.unwrap();
        while !db.query.awaits_clients() {
            tokio::task::yield_now().await;
        }
        while let Ok(then) = coming.try_recv() {
            counted = counted.max(then);
        }
        counted = counted.max(db.engine.memory().queries());
        assert!(counted <= ROOM + made_at_once, "{sql}: {counted}");
        read.send(true).unwrap();
        for client in clients {
            assert_eq!(client.await.unwrap(), rows, "{sql}");
        }
        assert!(!db.query.awaits_clients());
        while db.engine.memory().queries() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_do_not_wait_for_texts_that_nobody_takes() {
    let db = table().await;
    let mut unread = Vec::new();
    while unread.len() < 2 {
        let mut rows = ask(&db, "select k, v from t").await;
        rows.next().await.unwrap().unwrap();
        unread.push(rows);
    }
    assert!(db.engine.memory().queries() >= ROOM);
    assert_eq!(db.rows("select count(*), max(k) from t").await, ["2|2"]);
    // A third has the turn. Who comes then waits, until somebody reads on or goes.
    let mut third = ask(&db, "select k, v from t").await;
    third.next().await.unwrap().unwrap();
    let other = tokio::spawn({
        let db = Arc::clone(&db);
        async move { ask(&db, "select v from t where k = 2").await.next().await.unwrap().unwrap().num_rows() }
    });
    while !db.query.awaits_clients() {
        tokio::task::yield_now().await;
    }
    assert!(third.next().await.is_none());
    assert_eq!(other.await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_up_in_memory_and_files_does_not_wait_for_itself() {
    let db = table().await;
    let mut unread = Vec::new();
    while unread.len() < 2 {
        let mut rows = ask(&db, "select k, v from t").await;
        rows.next().await.unwrap().unwrap();
        unread.push(rows);
    }
    db.run("insert into t values (3, repeat('x', 1048576))").await;
    assert!(db.engine.memory().queries() >= ROOM);
    // It has the turn for what memory has.
    assert_eq!(db.try_rows("select v from t where k in (1, 3)", &[]).await.unwrap()[0].num_rows(), 2);
    drop(unread);
}

#[tokio::test]
async fn a_long_row_is_not_answered_on_the_spot() {
    let db = table().await;
    for (bytes, on_the_spot) in [(1000, true), (1 << 20, false)] {
        db.run(&format!("update t set v = repeat('y', {bytes}) where k = 1")).await;
        let prepared = db.query.prepare(&db.session, "select v from t where k = 1", &[]).await.unwrap();
        let Some(Point::Read(point)) = prepared.point(&db.session) else { panic!("a look-up of one row") };
        assert_eq!(point.try_get(&db.session, &[], &mut |_| {}).unwrap().is_some(), on_the_spot);
        let mut rows = ask(&db, "select v from t where k = 1").await;
        rows.next().await.unwrap().unwrap();
        assert_eq!(db.engine.memory().queries() > 0, !on_the_spot);
        drop(rows);
        assert_eq!(db.engine.memory().queries(), 0);
    }
}

#[tokio::test]
async fn the_rows_of_a_look_up_are_within_the_memory_of_queries() {
    let db = Db::with(EngineOptions { memory_bytes: 64 * MIB, ..EngineOptions::default() });
    db.run("create table t (k integer primary key, v text)").await;
    for k in 0..80 {
        db.run(&format!("insert into t values ({k}, repeat('x', 1048576))")).await;
        if k % 4 == 0 {
            db.flush("t");
        }
    }
    db.flush("t");
    let keys = |keys: std::ops::Range<i32>| keys.map(|k| k.to_string()).collect::<Vec<_>>().join(", ");
    let sql = |range| format!("select v from t where k in ({})", keys(range));
    assert_eq!(db.error(&sql(0..80)).await.error.kind(), ErrorKind::TooLarge);
    assert_eq!(db.engine.memory().queries(), 0);
    let found = db.try_rows(&sql(0..3), &[]).await.unwrap();
    assert_eq!(found.iter().map(|batch| batch.num_rows()).sum::<usize>(), 3);
}
