//! Sessions of the Kudu client write, and the server is killed, stays away for a while and comes back, some times. They notice
//! nothing, and every row is there once: a batch that was executed and not answered is not executed again.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics
#![allow(clippy::disallowed_methods)]

mod kudu_load;
mod process;

use kudu_load::{Counts, connect, create, write};
use process::{Server, Sql};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

const SESSIONS: u64 = 3;
const ROWS: u64 = 12_000;
const KILLS: u64 = 2;
/// Rows of a session between two kills: it waits for the next one then.
const ROWS_BETWEEN: u64 = ROWS / (KILLS + 1);

#[test]
fn every_row_is_there_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &[]);
    let address = |door: &str| server.address(door).to_owned();
    let (master, tserver) = (address("kudu-master"), address("kudu-tserver"));
    let runtime = Runtime::new().unwrap();
    let client = runtime.block_on(connect(&master));
    let table = runtime.block_on(create(&client, SESSIONS, 4, "sync"));
    let counts: Vec<Arc<Counts>> = (0..SESSIONS).map(|_| Arc::default()).collect();
    let kills = Arc::new(AtomicU64::new(0));
    let sessions: Vec<_> = (0..SESSIONS)
        .map(|session| {
            let (counts, kills) = (counts[session as usize].clone(), kills.clone());
            let before_row = async move |n: u64| {
                while n / ROWS_BETWEEN > kills.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            runtime.spawn(write(client.clone(), table.clone(), session, ROWS, counts, before_row))
        })
        .collect();
    for kill in 0..KILLS {
        // Somewhere in the middle: with batches under way.
        let acknowledged = || counts.iter().map(|c| c.acknowledged.load(Ordering::SeqCst)).sum::<u64>();
        while acknowledged() < (2 * kill + 1) * SESSIONS * ROWS_BETWEEN / 2 {
            assert!(!sessions.iter().any(|session| session.is_finished()), "a session failed");
            std::thread::sleep(Duration::from_millis(1));
        }
        server.kill();
        kills.store(kill + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(2));
        // It is where clients look for it.
        server = Server::start(folder.path(), &["--kudu-master", &master, "--kudu-tserver", &tserver]);
    }
    for session in sessions {
        runtime.block_on(session).unwrap();
    }
    let sql = Sql::connect(server.address("postgres"));
    let rows = sql.rows(
        "select session, count(*), count(distinct key), min(n), max(n), sum(n),
                count(*) filter (where text = 'row ' || n || ' of session ' || session)
         from load group by session order by session",
    );
    let expected: Vec<Vec<Option<String>>> = (0..SESSIONS)
        .map(|session| [session, ROWS, ROWS, 0, ROWS - 1, ROWS * (ROWS - 1) / 2, ROWS])
        .map(|row| row.map(|v| Some(v.to_string())).to_vec())
        .collect();
    assert_eq!(rows, expected);
}
