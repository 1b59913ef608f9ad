//! One connection's socket and its buffers.
//!
//! Answers collect in `out` and are written when a client may wait for them or when they grow; the input buffer
//! holds what a client sent ahead. Both are bounded: input by the frame limit, output by [`OUT_BYTES`] and one row.

use super::codec::{self, Startup};
use super::encode::Column;
use super::error::{self, Fault};
use bytes::{Bytes, BytesMut};
use metrics::counter;
use oribi_session::sql::SqlError;
use pgwire::messages::{Message, data::MESSAGE_TYPE_BYTE_DATA_ROW};
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Output is written once it is this large.
pub const OUT_BYTES: usize = 64 << 10;

/// While a statement runs, this much input is read ahead, to notice that the client goes away.
const READ_AHEAD_BYTES: usize = 64 << 10;

pub struct Wire {
    socket: TcpStream,
    input: BytesMut,
    /// What is ready to be written; rows are encoded straight into it.
    pub out: Vec<u8>,
    scratch: BytesMut,
    message_bytes_max: usize,
    /// True once the running statement is to be cancelled.
    cancel: watch::Receiver<bool>,
    shutdown: watch::Receiver<bool>,
}

impl Wire {
    pub fn new(
        socket: TcpStream,
        message_bytes_max: usize,
        cancel: watch::Receiver<bool>,
        shutdown: watch::Receiver<bool>,
    ) -> Self {
        let (input, scratch) = (BytesMut::new(), BytesMut::new());
        Wire { socket, input, out: Vec::new(), scratch, message_bytes_max, cancel, shutdown }
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
        loop {
            if let Some(frame) = codec::take_frame(&mut self.input, self.message_bytes_max)? {
                return Ok(frame);
            }
            let mut shutdown = self.shutdown.clone();
            tokio::select! {
                biased;
                () = holds(&mut shutdown), if !in_copy => {
                    return Err(Fault::Fatal(error::shutting_down()));
                }
                filled = self.fill() => filled?,
            }
        }
    }

    async fn fill(&mut self) -> Result<(), Fault> {
        self.input.reserve(8 << 10);
        read(&mut self.socket, &mut self.input).await
    }

    /// Awaits a piece of a statement's work; drops it if the client cancels the statement or goes away.
    pub async fn run<T>(&mut self, work: impl Future<Output = Result<T, SqlError>>) -> Result<T, Fault> {
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
                read = read(&mut self.socket, &mut self.input), if room => read?,
            }
        }
    }

    /// Appends a message to the output.
    pub fn put(&mut self, message: &impl Message) {
        self.scratch.clear();
        message.encode(&mut self.scratch).expect("what we send is below the limits of the protocol");
        self.out.extend_from_slice(&self.scratch);
    }

    /// Appends rows of a batch to the output, from `row` on, until the output is large; returns the row to go on with.
    pub fn put_rows(&mut self, columns: &[Column], mut row: usize, end: usize) -> Result<usize, SqlError> {
        let count = (columns.len() as i16).to_be_bytes();
        while row < end && self.out.len() < OUT_BYTES {
            let start = self.out.len();
            self.out.extend_from_slice(&[MESSAGE_TYPE_BYTE_DATA_ROW, 0, 0, 0, 0]);
            self.out.extend_from_slice(&count);
            let written = columns.iter().try_for_each(|column| column.write_with_length(row, &mut self.out));
            if let Err(error) = written.and_then(|()| self.close_frame(start)) {
                self.out.truncate(start);
                return Err(error);
            }
            row += 1;
        }
        Ok(row)
    }

    /// Writes the length of the frame that begins at `start` of the output and ends where the output ends.
    pub fn close_frame(&mut self, start: usize) -> Result<(), SqlError> {
        let length = i32::try_from(self.out.len() - start - 1).map_err(|_| {
            SqlError::new(oribi_types::ErrorKind::TooLarge, "a row is larger than the protocol's 2 GiB")
        })?;
        self.out[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    /// Writes the output if it is large.
    pub async fn drain(&mut self) -> Result<(), Fault> {
        if self.out.len() >= OUT_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Writes the output.
    pub async fn flush(&mut self) -> Result<(), Fault> {
        counter!("oribi_postgres_sent_bytes_total").increment(self.out.len() as u64);
        self.socket.write_all(&self.out).await?;
        self.out.clear();
        // One large row must not keep its memory for the rest of the connection.
        self.out.shrink_to(2 * OUT_BYTES);
        Ok(())
    }

    /// Writes what is left and closes. The client's unread input is taken up for a moment: with input left, the
    /// kernel would reset the connection and the client might never see our last words.
    pub async fn close(mut self) {
        const LINGER: Duration = Duration::from_millis(500);
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

/// Waits until `flag` holds true, or nobody is left who could raise it.
pub async fn holds(flag: &mut watch::Receiver<bool>) {
    let _ = flag.wait_for(|raised| *raised).await;
}

async fn read(socket: &mut TcpStream, input: &mut BytesMut) -> Result<(), Fault> {
    match socket.read_buf(input).await? {
        0 => Err(Fault::Gone),
        n => {
            counter!("oribi_postgres_received_bytes_total").increment(n as u64);
            Ok(())
        }
    }
}
