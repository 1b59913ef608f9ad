use super::*;
use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use oribi_session::sql::{Prepared, SqlSession};
use oribi_types::ColumnType;
use std::io::{Read, Write};
use std::ops::Range;

/// Is asked for nothing but whether answers may leave.
struct Settled;

#[async_trait]
impl SqlEngine for Settled {
    async fn split(&self, _: &str) -> Result<Vec<Range<usize>>, SqlError> {
        unreachable!()
    }

    async fn prepare(
        &self,
        _: &Arc<SqlSession>,
        _: &str,
        _: &[Option<ColumnType>],
    ) -> Result<Arc<dyn Prepared>, SqlError> {
        unreachable!()
    }

    fn set(&self, _: &SqlSession, _: &str, _: &str) -> Result<(), SqlError> {
        unreachable!()
    }

    fn settled(&self, _: Obligation) -> Option<BoxFuture<'static, oribi_types::Result<()>>> {
        None
    }
}

/// A connection's wire, and its client's end. Nobody cancels, and nobody shuts down, while the senders are there.
async fn wire() -> (Wire, std::net::TcpStream, [watch::Sender<bool>; 2]) {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let socket = listener.accept().await.unwrap().0;
    let limits = PostgresLimits::default();
    let load = Arc::new(Load::of_requests(&limits.network, limits.message_bytes_max));
    let senders = [watch::Sender::new(false), watch::Sender::new(false)];
    let [cancel, shutdown] = senders.each_ref().map(watch::Sender::subscribe);
    (Wire::new(socket, Arc::new(Settled), &limits, load, cancel, shutdown), client, senders)
}

#[tokio::test]
async fn others_have_their_turns_while_one_is_sent_much() {
    let (mut wire, _client, _senders) = wire().await;
    // The socket would hold it.
    wire.out.resize(TURN_BYTES + 1000, 7);
    assert!(wire.flush().now_or_never().is_none());
    assert!(wire.sent > 0 && wire.sent <= TURN_BYTES);
    wire.flush().await.unwrap();
    wire.out.resize(1000, 7);
    assert!(wire.flush().now_or_never().is_some());
}

#[tokio::test]
async fn who_waits_keeps_no_memory_for_what_was_sent() {
    let (mut wire, _client, _senders) = wire().await;
    for wait in [true, false] {
        wire.out.resize(2 * OUT_BYTES, 7);
        wire.flush().await.unwrap();
        assert!(wire.out.capacity() >= OUT_BYTES, "the next rows may come at once");
        let waits = match wait {
            true => wire.frame(false).now_or_never().is_none(),
            false => wire.run(std::future::pending::<Result<(), SqlError>>()).now_or_never().is_none(),
        };
        assert!(waits && wire.out.capacity() <= OUT_KEPT_BYTES);
    }
}

#[tokio::test]
async fn an_answer_that_was_given_up_midway_is_sent_before_the_next_message_is_waited_for() {
    /// More than sockets hold.
    const ANSWER_BYTES: usize = 24 << 20;
    let (mut wire, mut client, _senders) = wire().await;
    wire.out.resize(ANSWER_BYTES, 7);
    assert!(wire.answer().now_or_never().is_none());
    let client = tokio::task::spawn_blocking(move || {
        let mut answer = vec![0; ANSWER_BYTES];
        client.read_exact(&mut answer).unwrap();
        assert!(answer.iter().all(|byte| *byte == 7));
        client.write_all(b"S\0\0\0\x04").unwrap();
    });
    assert_eq!(wire.frame(false).await.ok().map(|(tag, _)| tag), Some(b'S'));
    client.await.unwrap();
}
