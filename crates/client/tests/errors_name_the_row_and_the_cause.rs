//! A row that is not written is among the session's errors, with what it held and why.
#![allow(clippy::unwrap_used)]

mod fake_server;

use fake_server::{FakeServer, Fault};
use oribi_client::{FlushMode, OperationType, PartialRow, SessionOptions};
use oribi_types::{ErrorKind, Value};

#[tokio::test]
async fn a_duplicate_among_others() {
    let server = FakeServer::start(2, &[]).await;
    let client = server.client().await;
    let table = client.open_table("t").await.unwrap();
    let mut session = client.session(SessionOptions { errors_max: 2, ..SessionOptions::default() });
    for key in [1, 2, 3, 2, 4, 1, 3] {
        let mut row = session.insert(&table);
        row.set_i64(0, key).unwrap();
        row.set_i64(1, 9).unwrap();
        row.apply().await.unwrap();
    }
    let error = session.flush().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let message = error.message();
    assert!(message.starts_with("3 rows not written, the first Insert into table t, key ("), "{message}");
    assert!(message.ends_with("): key already present"), "{message}");
    let errors = session.take_errors();
    assert_eq!((errors.errors.len(), errors.overflow), (2, 1));
    for failed in &errors.errors {
        assert_eq!((failed.table.as_str(), failed.operation), ("t", OperationType::Insert));
        let Some(Value::Int64(key @ 1..=3)) = failed.row[0] else { panic!("{failed}") };
        assert_eq!(failed.to_string(), format!("Insert into table t, key ({key}): key already present"));
        assert_eq!(failed.row[1..], [Some(Value::Int64(9)), None]);
        assert_eq!(failed.error.kind(), ErrorKind::AlreadyExists);
    }
    assert_eq!((session.progress().rows_written, session.progress().rows_failed), (4, 3));
    session.flush().await.unwrap();
}

#[tokio::test]
async fn at_once_in_the_synchronous_mode() {
    let server = FakeServer::start(2, &[]).await;
    let client = server.client().await;
    let table = client.open_table("t").await.unwrap();
    let mut session = client.session(SessionOptions { mode: FlushMode::Sync, ..SessionOptions::default() });
    for (key, is_new) in [(1, true), (2, true), (1, false), (3, true), (2, false)] {
        let mut row = session.insert(&table);
        row.set_i64(0, key).unwrap();
        assert_eq!(row.apply().await.is_ok(), is_new);
    }
    assert_eq!(session.take_errors().count(), 2);
    assert_eq!(server.state().writes, 5);
}

#[tokio::test]
async fn a_row_without_a_partition() {
    let server = FakeServer::start(0, &[(Some(0), Some(10)), (Some(20), Some(30))]).await;
    let client = server.client().await;
    let table = client.open_table("t").await.unwrap();
    let mut session = client.session(SessionOptions::default());
    for key in (-5..40).rev() {
        let mut row = session.insert(&table);
        row.set_i64(0, key).unwrap();
        let applied = row.apply().await;
        let is_covered = (0..10).contains(&key) || (20..30).contains(&key);
        assert_eq!(applied.is_ok(), is_covered, "key {key}");
        if let Err(error) = applied {
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
    }
    session.flush().await.unwrap();
    let state = server.state();
    assert_eq!(state.complaints, Vec::<String>::new());
    assert_eq!(state.rows.len(), 20);
    assert!(state.look_ups <= 3, "{} look-ups for two tablets and the gaps around them", state.look_ups);
}

#[tokio::test]
async fn a_row_that_no_server_takes_in_time() {
    let server = FakeServer::start(2, &[]).await;
    let client = server.client().await;
    let table = client.open_table("t").await.unwrap();
    server.state().faults.extend([Fault::Busy].repeat(10_000));
    let timeout = Some(std::time::Duration::from_secs(2));
    let mut session = client.session(SessionOptions { timeout, ..SessionOptions::default() });
    let mut row = session.insert(&table);
    row.set_i64(0, 1).unwrap();
    row.apply().await.unwrap();
    let error = session.flush().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("gave up after"), "{error}");
    // The last attempt has what time is left, so that it may be cut off where the ones before were answered.
    assert!(error.message().contains(": busy"), "{error}");
    assert_eq!(session.take_errors().errors[0].key(), "1");
}
