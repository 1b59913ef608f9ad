//! Sessions of the Kudu client that each write a sequence of rows, and what is known of them while they do.

#![allow(dead_code)]

use oribi_client::{Client, ClientOptions, Column, CreateTable, PartialRow, Progress, SessionOptions, Table};
use oribi_types::{ColumnType, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How far the keys of two sessions are apart.
pub const SPAN: u64 = 1 << 32;

/// How far a session is, in rows.
#[derive(Default)]
pub struct Counts {
    /// Given to the session, the one that is being given included.
    pub sent: AtomicU64,
    /// Answered. If all rows of the session go to one tablet, they are the first ones.
    pub acknowledged: AtomicU64,
}

/// A client that outlives a server that is away for some seconds.
pub async fn connect(master: &str) -> Client {
    let options = ClientOptions { operation_timeout: Duration::from_secs(120), ..ClientOptions::default() };
    Client::connect_with(&[master], options).await.unwrap()
}

/// A table of rows (key, session, n), where the key is `session * SPAN + n`; hashed by the key, and each session's keys a
/// range of their own. `durability` is the table's.
pub async fn create(client: &Client, sessions: u64, buckets: u32, durability: &str) -> Table {
    let mut table = CreateTable::new("load")
        .column(Column::new("key", ColumnType::Int64).key())
        .column(Column::new("session", ColumnType::Int64).not_null())
        .column(Column::new("n", ColumnType::Int64).not_null())
        .column(Column::new("text", ColumnType::String))
        .range(&["key"]);
    for session in 1..sessions {
        table = table.split(&[Value::Int64((session * SPAN) as i64)]);
    }
    if buckets > 1 {
        table = table.hash(&["key"], buckets);
    }
    client.create_table(table.replicas(1).property("oribi.durability", durability)).await.unwrap()
}

/// Inserts `rows` rows in small batches. A row that was applied twice would be an error. `before_row` may wait.
pub async fn write(
    client: Client,
    table: Table,
    session: u64,
    rows: u64,
    counts: Arc<Counts>,
    before_row: impl AsyncFn(u64),
) {
    let of_session = counts.clone();
    let progress = move |progress: Progress| {
        of_session.acknowledged.store(progress.rows_written, Ordering::SeqCst);
    };
    let options = SessionOptions {
        buffer_bytes: 40_000,
        watermark: 0.1,
        progress: Some(Arc::new(progress)),
        ..SessionOptions::default()
    };
    let mut writer = client.session(options);
    for n in 0..rows {
        before_row(n).await;
        counts.sent.store(n + 1, Ordering::SeqCst);
        let text = format!("row {n} of session {session}");
        let mut row = writer.insert(&table);
        row.set_i64(0, (session * SPAN + n) as i64).unwrap();
        row.set_i64(1, session as i64).unwrap();
        row.set_i64(2, n as i64).unwrap();
        row.set_str(3, &text).unwrap();
        row.apply().await.unwrap();
    }
    writer.flush().await.unwrap();
    assert_eq!(writer.progress().rows_written, rows);
}
