//! One connection's socket and its buffers.
//!
//! Answers collect in `out` and are written when a client may wait for them or when they grow; the input buffer
//! holds what a client sent ahead. Both are bounded: input by the frame limit, and that of all clients by the [`Load`] that they
//! share; output by [`OUT_BYTES`] and one row, which the SQL engine counts if it is long. A client that takes nothing while
//! statements of others wait for such room is seen off.
//!
//! Who has much to send or to take does so in [turns](ByteTurn), between which other clients of the thread have theirs. So does who has
//! just [come](Wire::newcomer): what its session begins with lasts until it waits for the first time.
//!
//! Requests that arrived together are answered in one write: an answer that is [due](Wire::due) leaves when no whole
//! message is at hand, or before anything that may take its time. What answers tell of is settled before they leave.

use super::codec::{self, Startup};
use super::door::PostgresLimits;
use super::encode::Column;
use super::error::{self, Fault};
use super::row::close_frame;
use bytes::{BufMut, Bytes, BytesMut};
use metrics::{counter, histogram};
use oribi_engine::Obligation;
use oribi_net::{
    ByteTurn, FrameRoom, LONG_REQUEST_SILENCE_MAX, Load, TURN_BYTES, TURN_SILENCE_MAX,
    UNCOUNTED_REQUEST_BYTES, holds,
};
use oribi_session::sql::{SqlEngine, SqlError};
use oribi_types::Timestamp;
use pgwire::messages::Message;
use pgwire::messages::data::MESSAGE_TYPE_BYTE_DATA_ROW;
use pgwire::messages::response::MESSAGE_TYPE_BYTE_COMMAND_COMPLETE;
use std::future::Future;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, watch};

/// Output is written once it is this large.
pub const OUT_BYTES: usize = 64 << 10;

/// What a connection keeps for its output while it waits: thousands may.
const OUT_KEPT_BYTES: usize = 8 << 10;

/// While a statement runs, this much input is read ahead, to notice that the client goes away.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// A client that has been silent for as long as it may is looked at so often: others may wait by then.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The room that is made to receive, at least.
const FILL_BYTES: usize = 8 << 10;

pub struct Wire {
    socket: TcpStream,
    input: BytesMut,
    /// What is ready to be written; rows are encoded straight into it.
    pub out: Vec<u8>,
    /// Of that, what was written.
    sent: usize,
    turn: ByteTurn,
    scratch: BytesMut,
    message_bytes_max: usize,
    answer_silence_max: Duration,
    /// Room for the long messages of all clients, and for this one's.
    load: Arc<Load>,
    room: FrameRoom,
    /// Leave to begin, until it has begun: others come in then.
    pub newcomer: Option<OwnedSemaphorePermit>,
    sql: Arc<dyn SqlEngine>,
    /// To be settled before the output is written.
    owed: Obligation,
    /// When the statements began whose answers wait for that.
    unsettled: Vec<Instant>,
    /// The client waits for what is in `out`.
    due: bool,
    /// True once the running statement is to be cancelled.
    cancel: watch::Receiver<bool>,
    shutdown: watch::Receiver<bool>,
}

impl Wire {
    pub fn new(
        socket: TcpStream,
        sql: Arc<dyn SqlEngine>,
        limits: &PostgresLimits,
        load: Arc<Load>,
        cancel: watch::Receiver<bool>,
        shutdown: watch::Receiver<bool>,
    ) -> Self {
        Wire {
            socket,
            input: BytesMut::new(),
            out: Vec::new(),
            sent: 0,
            turn: ByteTurn::default(),
            scratch: BytesMut::new(),
            message_bytes_max: limits.message_bytes_max,
            answer_silence_max: limits.answer_silence_max,
            load,
            room: FrameRoom::default(),
            newcomer: None,
            sql,
            owed: Obligation::default(),
            unsettled: Vec::new(),
            due: false,
            cancel,
            shutdown,
        }
    }

    /// The next startup packet.
    pub async fn startup(&mut self) -> Result<Startup, Fault> {
        loop {
            if let Some(packet) = codec::take_startup(&mut self.input)? {
                return Ok(packet);
            }
            self.fill().await?;
        }
    }

    /// The next message's type and body.
    ///
    /// # Errors
    /// Fatal once the server shuts down and no whole message is at hand; a client that is in the middle of a `COPY`
    /// may finish it.
    pub async fn frame(&mut self, in_copy: bool) -> Result<(u8, Bytes), Fault> {
        // What came before was executed.
        self.room.release();
        loop {
            if let Some(frame) = codec::take_frame(&mut self.input, self.message_bytes_max)? {
                return Ok(frame);
            }
            self.flush_due().await?;
            self.rest();
            let_others_in(&mut self.newcomer).await;
            let mut shutdown = self.shutdown.clone();
            tokio::select! {
                biased;
                () = holds(&mut shutdown), if !in_copy => {
                    return Err(Fault::Fatal(error::shutting_down()));
                }
                filled = self.receive() => filled?,
            }
        }
    }

    /// Whether the message that comes next ends a series, as far as it is at hand.
    pub fn ends_series(&self) -> bool {
        self.input.first() == Some(&codec::SYNC)
    }

    /// Receives more of a message, as soon as there is room for it if it is long.
    ///
    /// # Errors
    /// Fatal if the client is silent in the middle of one, for which it has room that others want.
    async fn receive(&mut self) -> Result<(), Fault> {
        if self.input.len() <= UNCOUNTED_REQUEST_BYTES {
            return self.fill().await;
        }
        // The buffer doubles as it grows.
        let capacity = self.input.capacity();
        let wanted = if capacity - self.input.len() >= FILL_BYTES { capacity } else { 2 * capacity };
        while !self.room.has(&self.load, wanted) {
            self.room.wait(false).await;
        }
        let silence_max = if self.room.has_turn() { TURN_SILENCE_MAX } else { LONG_REQUEST_SILENCE_MAX };
        match tokio::time::timeout(silence_max, self.fill()).await {
            Ok(filled) => filled,
            Err(_) => Err(Fault::Fatal(error::stalled(silence_max))),
        }
    }

    async fn fill(&mut self) -> Result<(), Fault> {
        self.input.reserve(FILL_BYTES);
        let received = read(&mut self.socket, &mut self.input).await?;
        self.turn.pass(received).await;
        Ok(())
    }

    /// Awaits a piece of a statement's work; drops it if the client cancels the statement or goes away.
    pub async fn run<T>(&mut self, work: impl Future<Output = Result<T, SqlError>>) -> Result<T, Fault> {
        self.flush_due().await?;
        self.rest();
        let mut work = pin!(work);
        loop {
            let room = self.input.len() < READ_AHEAD_BYTES;
            if room {
                self.input.reserve(4 << 10);
            }
            tokio::select! {
                biased;
                () = holds(&mut self.cancel) => return Err(Fault::Statement(error::canceled())),
                result = &mut work => return result.map_err(Fault::Statement),
                () = let_others_in(&mut self.newcomer), if self.newcomer.is_some() => {}
                read = read(&mut self.socket, &mut self.input), if room => drop(read?),
            }
        }
    }

    /// Whether the running statement is to be cancelled.
    pub fn is_cancelled(&self) -> bool {
        *self.cancel.borrow()
    }

    /// Appends a message to the output.
    pub fn put(&mut self, message: &impl Message) {
        self.scratch.clear();
        message.encode(&mut self.scratch).expect("what we send is below the limits of the protocol");
        self.out.extend_from_slice(&self.scratch);
    }

    /// Appends rows of a batch to the output, from `row` on, until the output is large; returns the row to go on with.
    pub fn put_rows(&mut self, columns: &[Column], mut row: usize, end: usize) -> Result<usize, SqlError> {
        let count = error::column_count(columns.len())?.to_be_bytes();
        while row < end && self.out.len() < OUT_BYTES {
            let start = self.out.len();
            self.out.extend_from_slice(&[MESSAGE_TYPE_BYTE_DATA_ROW, 0, 0, 0, 0]);
            self.out.extend_from_slice(&count);
            let written = columns.iter().try_for_each(|column| column.write_with_length(row, &mut self.out));
            if let Err(error) = written.and_then(|()| close_frame(start, &mut self.out)) {
                self.out.truncate(start);
                return Err(error);
            }
            row += 1;
        }
        Ok(row)
    }

    /// Appends the `CommandComplete` of a statement about `rows` rows.
    pub fn put_complete(&mut self, verb: &str, rows: u64) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(rows);
        let length = (4 + verb.len() + 1 + digits.len() + 1) as u32;
        self.out.push(MESSAGE_TYPE_BYTE_COMMAND_COMPLETE);
        self.out.extend_from_slice(&length.to_be_bytes());
        self.out.extend_from_slice(verb.as_bytes());
        self.out.push(b' ');
        self.out.extend_from_slice(digits.as_bytes());
        self.out.push(0);
    }

    /// What stands in the output tells of something that must be settled first. The statement began at `started`.
    pub fn owe(&mut self, obligation: Obligation, started: Instant) {
        self.owed.merge(obligation);
        self.unsettled.push(started);
    }

    /// Whether the client wrote what a statement that reads does not see yet.
    pub fn is_unseen(&mut self) -> bool {
        let seen = Obligation { visible: self.owed.visible, ..Obligation::default() };
        if seen.visible > Timestamp::MIN && self.sql.settled(seen).is_none() {
            self.owed.visible = Timestamp::MIN;
        }
        self.owed.visible > Timestamp::MIN
    }

    /// Waits until it does.
    pub async fn be_seen(&mut self) -> Result<(), Fault> {
        if self.is_unseen() { self.settle().await } else { Ok(()) }
    }

    /// The client waits for the output: it is written once no whole message is at hand.
    pub async fn answer(&mut self) -> Result<(), Fault> {
        self.due = true;
        self.drain().await
    }

    /// Gives back what output that was sent has taken, before anything is waited for.
    fn rest(&mut self) {
        if self.out.is_empty() {
            self.out.shrink_to(OUT_KEPT_BYTES);
        }
    }

    /// Writes the output if the client waits for it.
    async fn flush_due(&mut self) -> Result<(), Fault> {
        if self.due { self.flush().await } else { Ok(()) }
    }

    /// Waits until everything that the output tells of may be told.
    async fn settle(&mut self) -> Result<(), Fault> {
        if self.unsettled.is_empty() {
            return Ok(());
        }
        if let Some(settled) = self.sql.settled(self.owed) {
            self.newcomer = None;
            if let Err(stopped) = settled.await {
                self.out.clear();
                self.unsettled.clear();
                return Err(Fault::Fatal(stopped.into()));
            }
        }
        self.owed = Obligation::default();
        counter!("oribi_postgres_statements_total").increment(self.unsettled.len() as u64);
        let seconds = histogram!("oribi_postgres_statement_seconds");
        self.unsettled.drain(..).for_each(|started| seconds.record(started.elapsed().as_secs_f64()));
        Ok(())
    }

    /// Writes the output if it is large.
    pub async fn drain(&mut self) -> Result<(), Fault> {
        if self.out.len() >= OUT_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Writes the output, once it may be told. If it is dropped, what is left is still due.
    pub async fn flush(&mut self) -> Result<(), Fault> {
        self.settle().await?;
        self.send().await?;
        self.due = false;
        counter!("oribi_postgres_sent_bytes_total").increment(self.out.len() as u64);
        self.out.clear();
        self.sent = 0;
        // One large row must not keep its memory for the rest of the connection.
        self.out.shrink_to(2 * OUT_BYTES);
        Ok(())
    }

    /// Sends what was not. Goes on where it was if it is dropped and called again.
    async fn send(&mut self) -> Result<(), Fault> {
        while self.sent < self.out.len() {
            let end = self.out.len().min(self.sent + TURN_BYTES);
            match self.socket.try_write(&self.out[self.sent..end]) {
                Ok(sent) => {
                    self.sent += sent;
                    self.turn.pass(sent).await;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// # Errors
    /// Once the client has taken nothing for long, and others are waited for that hold what they need.
    async fn writable(&mut self) -> Result<(), Fault> {
        self.newcomer = None;
        let mut silence_max = self.answer_silence_max;
        loop {
            match tokio::time::timeout(silence_max, self.socket.writable()).await {
                Ok(writable) => return Ok(writable?),
                Err(_) if self.sql.awaits_clients() => {
                    tracing::info!("a client takes nothing of its rows while others wait for room");
                    return Err(Fault::Gone);
                }
                // Those who begin to wait now need not wait for as long again.
                Err(_) => silence_max = silence_max.min(LOOK_AGAIN),
            }
        }
    }

    /// Writes what is left and closes. The client's unread input is taken up for a moment: with input left, the
    /// kernel would reset the connection and the client might never see our last words.
    pub async fn close(mut self) {
        const LINGER: Duration = Duration::from_millis(500);
        self.newcomer = None;
        let linger = async {
            self.flush().await?;
            self.socket.shutdown().await?;
            for _ in 0..16 {
                self.input.clear();
                self.fill().await?;
            }
            Ok::<(), Fault>(())
        };
        let _ = tokio::time::timeout(LINGER, linger).await;
    }
}

/// Others who come may begin, once those have had their turns who are there.
async fn let_others_in(newcomer: &mut Option<OwnedSemaphorePermit>) {
    if newcomer.is_some() {
        tokio::task::yield_now().await;
        *newcomer = None;
    }
}

/// Receives some bytes, not more than a turn has; how many.
async fn read(socket: &mut TcpStream, input: &mut BytesMut) -> Result<usize, Fault> {
    match socket.read_buf(&mut input.limit(TURN_BYTES)).await? {
        0 => Err(Fault::Gone),
        n => {
            counter!("oribi_postgres_received_bytes_total").increment(n as u64);
            Ok(n)
        }
    }
}

#[cfg(test)]
mod tests;
