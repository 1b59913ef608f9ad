//! The bytes of a connection: as they are, or through TLS. One half sends and the other receives; TLS is state of both.

use super::tls::TlsSession;
use bytes::BytesMut;
use oribi_types::{Error, Result};
use parking_lot::Mutex;
use std::io::{self, IoSlice};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

pub(super) struct Sender {
    half: OwnedWriteHalf,
    session: Option<Arc<Mutex<TlsSession>>>,
}

pub(super) struct Receiver {
    half: OwnedReadHalf,
    session: Option<Arc<Mutex<TlsSession>>>,
    /// Of TLS, as they come.
    records: BytesMut,
}

/// Room for a read of records: a few of the longest.
const RECORDS_BYTES: usize = 64 << 10;

pub(super) fn split(socket: TcpStream) -> (Sender, Receiver) {
    let (read_half, write_half) = socket.into_split();
    let receiver = Receiver { half: read_half, session: None, records: BytesMut::new() };
    (Sender { half: write_half, session: None }, receiver)
}

/// Has all that follows go through TLS. What has come already of that is in `input`, which is opened.
///
/// # Errors
/// What is wrong with it.
pub(super) fn wrap(
    sender: &mut Sender,
    receiver: &mut Receiver,
    mut session: TlsSession,
    input: &mut BytesMut,
) -> Result<()> {
    let mut early = input.split();
    session.take(&mut early, input)?;
    let session = Arc::new(Mutex::new(session));
    (sender.session, receiver.session) = (Some(session.clone()), Some(session));
    Ok(())
}

impl Sender {
    /// Sends all of this.
    ///
    /// # Errors
    /// `Unavailable` if the connection breaks.
    pub async fn send(&mut self, mut slices: &mut [IoSlice<'_>]) -> Result<()> {
        let Some(session) = &self.session else {
            while !slices.is_empty() {
                match self.half.write_vectored(slices).await.map_err(unavailable)? {
                    0 => return Err(closed()),
                    written => IoSlice::advance_slices(&mut slices, written),
                }
            }
            return Ok(());
        };
        for slice in slices {
            let mut plain = &slice[..];
            while !plain.is_empty() {
                let records = session.lock().seal(&mut plain)?;
                self.half.write_all(&records).await.map_err(unavailable)?;
            }
        }
        Ok(())
    }
}

impl Receiver {
    /// Receives some bytes, one at least.
    ///
    /// # Errors
    /// `Unavailable` at the end of the connection; what is wrong with TLS.
    pub async fn receive(&mut self, input: &mut BytesMut) -> Result<()> {
        let Some(session) = &self.session else { return read(&mut self.half, input).await };
        let before = input.len();
        while input.len() == before {
            self.records.reserve(RECORDS_BYTES);
            read(&mut self.half, &mut self.records).await?;
            session.lock().take(&mut self.records, input)?;
        }
        Ok(())
    }
}

async fn read(half: &mut OwnedReadHalf, input: &mut BytesMut) -> Result<()> {
    match half.read_buf(input).await.map_err(unavailable)? {
        0 => Err(closed()),
        _ => Ok(()),
    }
}

fn unavailable(error: io::Error) -> Error {
    Error::unavailable(error.to_string())
}

fn closed() -> Error {
    Error::unavailable("closed by the server")
}
