//! SQL aggregates a table while sessions of the Kudu client write it. What a query sees of a session is the beginning of what
//! the session was given: all that was acknowledged before the query began, nothing that was not given when it had ended, and
//! no row without those before it.
//!
//! A session sends the rows of each tablet in their order, and those of different tablets at the same time. So the beginning
//! is that of the rows of each (session, tablet); of the whole session if all of its rows go to one tablet.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics
#![allow(clippy::disallowed_methods)]

mod kudu_load;
mod process;

use kudu_load::{Counts, SPAN, connect, create, write};
use oribi_kudu::column::WireColumn;
use oribi_kudu::partition::{HashDimension, PartitionSchema};
use oribi_types::{ColumnType, ValueRef};
use process::{Server, Sql};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

const SESSIONS: u64 = 4;
const ROWS: u64 = 6_000;
/// So many queries are made while sessions write at least: they wait for them.
const QUERIES: u64 = 12;

/// What was counted of each session.
fn numbers(counts: &[Arc<Counts>], number: impl Fn(&Counts) -> &AtomicU64) -> Vec<u64> {
    counts.iter().map(|counts| number(counts).load(Ordering::SeqCst)).collect()
}

/// Runs sessions over a table of so many buckets for each session, and queries until all is there. `query` returns how many
/// rows it saw of each session.
fn while_sessions_write(buckets: u32, query: impl Fn(&Sql) -> Vec<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let sql = Sql::connect(server.address("postgres"));
    let runtime = Runtime::new().unwrap();
    let client = runtime.block_on(connect(server.address("kudu-master")));
    let table = runtime.block_on(create(&client, SESSIONS, buckets, "periodic:100"));
    let counts: Vec<Arc<Counts>> = (0..SESSIONS).map(|_| Arc::default()).collect();
    let queries = Arc::new(AtomicU64::new(0));
    let sessions: Vec<_> = (0..SESSIONS)
        .map(|session| {
            let queries = queries.clone();
            let before_row = async move |n: u64| {
                while queries.load(Ordering::SeqCst) < n * QUERIES / ROWS {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let counts = counts[session as usize].clone();
            runtime.spawn(write(client.clone(), table.clone(), session, ROWS, counts, before_row))
        })
        .collect();
    let mut seen = vec![0; SESSIONS as usize];
    while seen.iter().sum::<u64>() < SESSIONS * ROWS {
        let is_done = sessions.iter().all(|session| session.is_finished());
        let acknowledged = numbers(&counts, |counts| &counts.acknowledged);
        let now = query(&sql);
        let sent = numbers(&counts, |counts| &counts.sent);
        queries.fetch_add(1, Ordering::SeqCst);
        for session in 0..SESSIONS as usize {
            let (before, saw, after) = (acknowledged[session], now[session], sent[session]);
            assert!(before <= saw && saw <= after, "session {session}: {before} ≤ {saw} ≤ {after}");
            assert!(seen[session] <= saw, "session {session}: {saw} after {}", seen[session]);
        }
        assert!(!is_done || now.iter().sum::<u64>() == SESSIONS * ROWS);
        seen = now;
    }
    for session in sessions {
        runtime.block_on(session).unwrap();
    }
    let queries = queries.load(Ordering::SeqCst);
    println!("{queries} queries");
    assert!(queries >= QUERIES);
}

#[test]
fn of_whole_sessions_if_each_has_a_tablet() {
    while_sessions_write(1, |sql| {
        let mut seen = vec![0; SESSIONS as usize];
        for row in sql.rows("select session, count(*), max(n), sum(n) from load group by session") {
            let row: Vec<u64> = row.into_iter().map(|v| v.unwrap().parse().unwrap()).collect();
            let [session, n, max, sum] = row[..] else { panic!("{row:?}") };
            assert_eq!((max, sum), (n - 1, n * (n - 1) / 2), "session {session}");
            seen[session as usize] = n;
        }
        seen
    });
}

#[test]
fn of_the_rows_for_each_tablet_if_there_are_several() {
    const BUCKETS: u32 = 3;
    let key = [WireColumn::new("key", ColumnType::Int64, false)];
    let hash = vec![HashDimension::new(vec![0], BUCKETS, 0)];
    let schema = PartitionSchema::new(&key, hash, vec![0], vec![]).unwrap();
    let bucket = |key: u64| {
        let key = [ValueRef::Int64(key as i64)];
        schema.bucket(&schema.hash()[0], &key, &mut Vec::new()).unwrap()
    };
    while_sessions_write(BUCKETS, |sql| {
        let keys = sql.rows("select key from load order by key");
        let keys: Vec<u64> = keys.into_iter().map(|row| row[0].as_ref().unwrap().parse().unwrap()).collect();
        let seen = |session: u64| keys.iter().filter(|key| **key / SPAN == session).count() as u64;
        for session in 0..SESSIONS {
            for of_bucket in 0..BUCKETS {
                let here = |key: &u64| *key / SPAN == session && bucket(*key) == of_bucket;
                let seen: Vec<u64> = keys.iter().copied().filter(here).collect();
                let given = (session * SPAN..).filter(here).take(seen.len());
                assert!(given.eq(seen.iter().copied()), "bucket {of_bucket} of session {session} has a gap");
            }
        }
        (0..SESSIONS).map(seen).collect()
    });
}
