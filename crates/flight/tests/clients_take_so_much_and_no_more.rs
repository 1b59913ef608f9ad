//! A result is made as its client takes it; one that takes nothing while others wait for memory is seen off, and one that goes away leaves
//! nothing behind.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow_flight::sql::client::FlightSqlServiceClient;
use async_trait::async_trait;
use futures::{StreamExt, stream};
use oribi_flight::{FlightDoor, FlightLimits};
use oribi_session::sql::{CopyStatement, Outcome, Prepared, SqlEngine, SqlError, SqlSession};
use oribi_types::{ColumnType, Error, Value};
use std::net::TcpListener;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tonic::transport::{Channel, Endpoint};

const BATCH_ROWS: usize = 8192;

/// An engine whose every statement has rows without end.
#[derive(Default)]
struct Endless {
    /// Statements that were executed.
    executed: AtomicUsize,
    /// Batches that were made.
    made: AtomicUsize,
    /// Statements that have not ended.
    open: AtomicUsize,
    /// Whether others wait for room.
    awaited: AtomicBool,
}

struct Statement(Arc<Endless>, SchemaRef);

struct Open(Arc<Endless>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, SeqCst);
    }
}

fn batch() -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..BATCH_ROWS as i64));
    RecordBatch::try_from_iter([("n", numbers)]).unwrap()
}

struct Engine(Arc<Endless>);

#[async_trait]
impl SqlEngine for Engine {
    async fn split(&self, script: &str) -> Result<Vec<Range<usize>>, SqlError> {
        Ok(std::iter::once(0..script.len()).collect())
    }

    async fn prepare(
        &self,
        _: &Arc<SqlSession>,
        _: &str,
        _: &[Option<ColumnType>],
    ) -> Result<Arc<dyn Prepared>, SqlError> {
        Ok(Arc::new(Statement(self.0.clone(), batch().schema())))
    }

    fn set(&self, _: &SqlSession, _: &str, _: &str) -> Result<(), SqlError> {
        Ok(())
    }

    fn settled(
        &self,
        _: oribi_session::sql::Obligation,
    ) -> Option<futures::future::BoxFuture<'static, Result<(), Error>>> {
        None
    }

    fn awaits_clients(&self) -> bool {
        self.0.awaited.load(SeqCst)
    }
}

#[async_trait]
impl Prepared for Statement {
    fn parameters(&self) -> &[ColumnType] {
        &[]
    }

    fn plan_bytes(&self) -> usize {
        0
    }

    fn columns(&self) -> Option<&SchemaRef> {
        Some(&self.1)
    }

    fn copy(&self) -> Option<&CopyStatement> {
        None
    }

    async fn execute(&self, _: &Arc<SqlSession>, _: &[Value]) -> Result<Outcome, SqlError> {
        self.0.executed.fetch_add(1, SeqCst);
        self.0.open.fetch_add(1, SeqCst);
        let (open, batch) = (Open(self.0.clone()), batch());
        let rows = stream::repeat_with(move || {
            open.0.made.fetch_add(1, SeqCst);
            Ok(batch.clone())
        });
        Ok(Outcome::Rows(rows.boxed()))
    }
}

/// A door, and what keeps it open.
fn door(engine: &Arc<Endless>, limits: FlightLimits) -> (FlightDoor, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (shutdown, shut) = watch::channel(false);
    let sql = Arc::new(Engine(engine.clone()));
    (FlightDoor::start(listener, sql, limits, None, shut).unwrap(), shutdown)
}

async fn client(door: &FlightDoor) -> FlightSqlServiceClient<Channel> {
    let endpoint = Endpoint::new(format!("http://{}", door.local_addr())).unwrap();
    FlightSqlServiceClient::new(endpoint.connect().await.unwrap())
}

/// Waits for what comes about by itself.
async fn until(what: impl Fn() -> bool) {
    while !what() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn rows_are_made_as_they_are_taken_and_who_takes_none_is_seen_off() {
    let engine = Arc::<Endless>::default();
    let limits = FlightLimits { answer_silence_max: Duration::from_millis(50), ..FlightLimits::default() };
    let (door, _open) = door(&engine, limits);
    let mut client = client(&door).await;
    let info = client.execute("rows".to_owned(), None).await.unwrap();
    assert_eq!(engine.made.load(SeqCst), 0, "nobody has asked for one");
    let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    assert_eq!(rows.next().await.unwrap().unwrap().num_rows(), BATCH_ROWS);
    // As many as fit into the windows and buffers of the connection: some megabytes, of 64 KiB each.
    let mut made = 0;
    until(|| engine.made.load(SeqCst) > 1).await;
    while made != engine.made.load(SeqCst) {
        made = engine.made.load(SeqCst);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!((2..400).contains(&made), "{made}");
    assert_eq!(engine.open.load(SeqCst), 1, "nobody waits for it");
    engine.awaited.store(true, SeqCst);
    until(|| engine.open.load(SeqCst) == 0).await;
    // What had come is there, and then the connection ends.
    while let Some(Ok(_)) = rows.next().await {}
}

#[tokio::test]
async fn who_goes_away_leaves_nothing_behind() {
    let engine = Arc::<Endless>::default();
    let (door, _open) = door(&engine, FlightLimits::default());
    for goes in ["after a batch", "with its connection"] {
        let mut client = client(&door).await;
        let info = client.execute("rows".to_owned(), None).await.unwrap();
        let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        rows.next().await.unwrap().unwrap();
        assert_eq!(engine.open.load(SeqCst), 1, "{goes}");
        match goes {
            "after a batch" => drop(rows),
            _ => drop((client, rows)),
        }
        until(|| engine.open.load(SeqCst) == 0).await;
    }
}

#[tokio::test]
async fn results_that_nobody_asks_for_end() {
    let engine = Arc::<Endless>::default();
    let limits = FlightLimits {
        results_max: 2,
        // Longer than three statements take, also where the processor is busy with others.
        result_silence_max: Duration::from_secs(3),
        transaction_silence_max: Duration::from_millis(50),
        ..FlightLimits::default()
    };
    let (door, _open) = door(&engine, limits);
    let mut client = client(&door).await;
    let long = client.execute(" ".repeat(5 << 20), None).await.unwrap_err();
    assert!(long.to_string().contains("54000"), "{long}");
    let ticket = client.execute("rows".to_owned(), None).await.unwrap().endpoint[0].ticket.clone().unwrap();
    client.execute("rows".to_owned(), None).await.unwrap();
    let refused = client.execute("rows".to_owned(), None).await.unwrap_err();
    assert!(refused.to_string().contains("53300"), "{refused}");
    assert_eq!(engine.executed.load(SeqCst), 2, "one that is refused is not executed");
    until(|| engine.open.load(SeqCst) == 0).await;
    assert!(client.do_get(ticket).await.is_err(), "it has ended");
}

#[tokio::test]
async fn a_server_that_stops_waits_for_nobody_who_does_not_read() {
    let engine = Arc::<Endless>::default();
    let limits = FlightLimits { shutdown_grace: Duration::from_millis(100), ..FlightLimits::default() };
    let (door, open) = door(&engine, limits);
    let mut client = client(&door).await;
    let info = client.execute("rows".to_owned(), None).await.unwrap();
    let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    rows.next().await.unwrap().unwrap();
    open.send_replace(true);
    door.join().await;
    until(|| engine.open.load(SeqCst) == 0).await;
}

#[tokio::test]
async fn who_does_not_speak_the_protocol_is_refused_and_others_are_served() {
    let engine = Arc::<Endless>::default();
    let limits = FlightLimits { startup_timeout: Duration::from_millis(200), ..FlightLimits::default() };
    let (door, _open) = door(&engine, limits);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    for (sent, answer) in [
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(), &b"HTTP/1.1 505"[..]),
        (b"PRI".to_vec(), b""),
        ([preface.clone(), vec![0xff; 100]].concat(), b"\0\0"),
        ([preface, vec![0, 0, 0, 4, 0, 0, 0, 0, 0, 0x7f, 0x7f, 0x7f, 0x7f]].concat(), b"\0\0"),
    ] {
        let mut socket = TcpStream::connect(door.local_addr()).await.unwrap();
        socket.write_all(&sent).await.unwrap();
        if answer == b"\0\0" {
            socket.shutdown().await.unwrap();
        }
        let mut told = Vec::new();
        let _ = socket.read_to_end(&mut told).await;
        assert!(told.starts_with(answer), "{told:?}");
    }
    client(&door).await.execute("rows".to_owned(), None).await.unwrap();
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let engine = Arc::<Endless>::default();
    let (door, _open) = door(&engine, FlightLimits { connections_max: 1, ..FlightLimits::default() });
    let mut first = client(&door).await;
    first.execute("rows".to_owned(), None).await.unwrap();
    let refused = client(&door).await.execute("rows".to_owned(), None).await.unwrap_err();
    assert!(refused.to_string().contains("53300"), "{refused}");
    drop(first);
    while client(&door).await.execute("rows".to_owned(), None).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
