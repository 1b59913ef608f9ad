//! Whatever servers and connections do, each row is written once, and the rows of a key in their order.
#![allow(clippy::unwrap_used)]

mod fake_server;

use fake_server::{FakeServer, Fault};
use oribi_client::{FlushMode, PartialRow, Session, SessionOptions, Table};
use oribi_types::ErrorKind;

const KEYS: i64 = 40;

/// Upserts versions 0 up to `versions` of all keys, in rounds.
async fn upsert(session: &mut Session, table: &Table, versions: i64) {
    for version in 0..versions {
        for key in 0..KEYS {
            let text = format!("{key}/{version}");
            let mut row = session.upsert(table);
            row.set_str(2, &text).unwrap();
            row.set_i64(1, version).unwrap();
            row.set_i64(0, key).unwrap();
            row.apply().await.unwrap();
        }
    }
}

fn check(server: &FakeServer, versions: i64) {
    let state = server.state();
    assert_eq!(state.complaints, Vec::<String>::new());
    assert_eq!(state.rows.len(), KEYS as usize);
    let expected: Vec<i64> = (0..versions).collect();
    for (key, (written, text)) in &state.rows {
        assert_eq!(*written, expected, "versions of key {key}");
        assert_eq!(*text, Some(format!("{key}/{}", versions - 1)));
    }
}

/// Faults that look random, the same for the same seed.
fn faults(seed: u64, count: usize) -> Vec<Fault> {
    let kinds = [
        Fault::None,
        Fault::Late,
        Fault::Busy,
        Fault::NotFound,
        Fault::DropBefore,
        Fault::DropAfter,
        Fault::HalfAnswer,
    ];
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        kinds[(state >> 33) as usize % kinds.len()]
    };
    (0..count).map(|_| next()).collect()
}

#[tokio::test]
async fn with_every_kind_of_fault() {
    for seed in 1..5 {
        println!("seed {seed}");
        let server = FakeServer::start(4, &[]).await;
        let client = server.client().await;
        let table = client.open_table("t").await.unwrap();
        server.state().faults.extend(faults(seed, 40));
        let options = SessionOptions { buffer_bytes: 4000, watermark: 0.2, ..SessionOptions::default() };
        let mut session = client.session(options);
        upsert(&mut session, &table, 20).await;
        session.flush().await.unwrap();
        check(&server, 20);
        assert!(server.state().faults.is_empty(), "not all faults came up");
        assert_eq!(session.progress().rows_written, 20 * KEYS as u64);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_late_answers_and_many_flushes_on_several_threads() {
    let server = FakeServer::start(4, &[]).await;
    let client = server.client().await;
    let table = client.open_table("t").await.unwrap();
    server.state().faults.extend([Fault::Late, Fault::None, Fault::None].repeat(30));
    let options = SessionOptions { mode: FlushMode::Manual, ..SessionOptions::default() };
    let mut session = client.session(options);
    for _ in 0..20 {
        session.start_flush().await;
    }
    for version in 0..30 {
        for key in 0..KEYS {
            let mut row = session.upsert(&table);
            row.set_i64(0, key).unwrap();
            row.set_i64(1, version).unwrap();
            row.apply().await.unwrap();
            session.start_flush().await;
        }
    }
    session.flush().await.unwrap();
    let state = server.state();
    assert_eq!(state.complaints, Vec::<String>::new());
    assert_eq!(state.under_way_max, 1, "a tablet had two batches of a session at a time");
    assert!(state.rows.values().all(|(versions, _)| versions.iter().copied().eq(0..30)));
}

#[tokio::test]
async fn one_flush_at_a_time_sends_one_row_a_call() {
    let server = FakeServer::start(4, &[]).await;
    let client = server.client().await;
    let table = client.open_table("t").await.unwrap();
    let options =
        SessionOptions { mode: FlushMode::Manual, flushes_max: Some(1), ..SessionOptions::default() };
    let mut session = client.session(options);
    for key in 0..100 {
        let mut row = session.insert(&table);
        row.set_i64(0, key).unwrap();
        row.set_i64(1, 0).unwrap();
        row.apply().await.unwrap();
        session.start_flush().await;
    }
    session.flush().await.unwrap();
    assert_eq!(server.state().writes, 100);
}

#[tokio::test]
async fn while_tablets_make_way_for_others() {
    type Ranges<'r> = &'r [(Option<i64>, Option<i64>)];
    let (all, quarters) = ([(None, None)], [(None, Some(10)), (Some(10), Some(20)), (Some(20), None)]);
    let shifted = [(None, Some(5)), (Some(5), Some(35)), (Some(35), None)];
    let partitionings: [Ranges<'_>; 4] = [&all, &quarters, &shifted, &quarters];
    for buckets in [0, 3] {
        let server = FakeServer::start(buckets, &quarters).await;
        let client = server.client().await;
        let table = client.open_table("t").await.unwrap();
        let options = SessionOptions { buffer_bytes: 6000, watermark: 0.1, ..SessionOptions::default() };
        let mut session = client.session(options);
        for version in 0..40 {
            for key in 0..KEYS {
                let text = format!("{key}/{version}");
                let mut row = session.upsert(&table);
                row.set_i64(0, key).unwrap();
                row.set_i64(1, version).unwrap();
                row.set_str(2, &text).unwrap();
                row.apply().await.unwrap();
                // In the middle of a round, with batches under way.
                if version % 3 == 2 && key == version {
                    server.repartition(partitionings[version as usize / 3 % 4]);
                }
            }
        }
        session.flush().await.unwrap();
        check(&server, 40);
        assert_eq!(session.progress().rows_written, 40 * KEYS as u64);
    }
}

#[tokio::test]
async fn rows_of_a_range_that_is_gone_fail_and_the_others_do_not() {
    let server = FakeServer::start(2, &[(Some(0), Some(10)), (Some(10), Some(20))]).await;
    let client = server.client().await;
    let table = client.open_table("t").await.unwrap();
    let mut session = client.session(SessionOptions { mode: FlushMode::Manual, ..SessionOptions::default() });
    for version in 0..3 {
        for key in 0..20 {
            let mut row = session.upsert(&table);
            row.set_i64(0, key).unwrap();
            row.set_i64(1, version).unwrap();
            row.apply().await.unwrap();
        }
        if version == 0 {
            session.flush().await.unwrap();
            server.repartition(&[(Some(10), Some(20))]);
        }
    }
    let error = session.flush().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("no partition for the row any more"), "{error}");
    let errors = session.take_errors();
    assert_eq!(errors.count(), 20);
    assert!(errors.errors.iter().all(|error| error.key().parse::<i64>().unwrap() < 10));
    let state = server.state();
    assert_eq!(state.complaints, Vec::<String>::new());
    for (key, (versions, _)) in &state.rows {
        assert_eq!(*versions, if *key < 10 { vec![0] } else { vec![0, 1, 2] }, "versions of key {key}");
    }
    assert_eq!((session.progress().rows_written, session.progress().rows_failed), (40, 20));
}
