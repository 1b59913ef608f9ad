//! The bytes of a connection: as they are, or through TLS.
//!
//! Nothing here waits. What can be read or written is known from the socket in both cases: all that TLS has opened is given at
//! once, and what it has sealed and the socket has not taken is asked after by [`Stream::is_flushed`].

use crate::TlsIdentity;
use bytes::{Bytes, BytesMut};
use oribi_types::{Error, Result as OribiResult};
use rustls::ServerConnection;
use std::io::{self, ErrorKind, IoSlice, Read, Result, Write};
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// What one record of TLS opens to, at most.
const RECORD_BYTES_MAX: usize = 16 << 10;

pub struct Stream {
    socket: TcpStream,
    session: Option<TlsSession>,
}

/// The server's side of TLS, from the handshake on.
pub struct TlsSession(Box<ServerConnection>);

impl Stream {
    pub fn new(socket: TcpStream) -> Self {
        Stream { socket, session: None }
    }

    /// Has all that follows go through TLS. What has come already of that is in `input`, which is opened.
    pub fn wrap(&mut self, mut session: TlsSession, input: &mut BytesMut) -> Result<()> {
        let early = input.split();
        session.take(&early, input)?;
        self.session = Some(session);
        Ok(())
    }

    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.socket.poll_read_ready(cx)
    }

    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.socket.poll_write_ready(cx)
    }

    /// Receives what there is, and what `input` has room for, about; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing; those of the socket and of TLS.
    pub fn try_read_buf(&mut self, input: &mut BytesMut) -> Result<usize> {
        match &mut self.session {
            None => receive(&self.socket, input),
            Some(session) => session.receive(&self.socket, input),
        }
    }

    /// Sends some of this; returns how many bytes.
    ///
    /// # Errors
    /// `WouldBlock` if nothing can be sent; those of the socket.
    pub fn try_write_vectored(&mut self, slices: &[IoSlice<'_>]) -> Result<usize> {
        match &mut self.session {
            None => self.socket.try_write_vectored(slices),
            Some(session) => session.send(&self.socket, slices),
        }
    }

    /// Sends what TLS holds of what was written.
    ///
    /// # Errors
    /// `WouldBlock` if the socket does not take all of it; those of the socket.
    pub fn try_flush(&mut self) -> Result<()> {
        self.session.as_mut().map_or(Ok(()), |session| session.flush(&self.socket))
    }

    /// Whether the socket has all that was written.
    pub fn is_flushed(&self) -> bool {
        self.session.as_ref().is_none_or(|session| !session.0.wants_write())
    }
}

impl Drop for Stream {
    /// Tells the client that this is the end, as TLS has it; it learns that in any case.
    fn drop(&mut self) {
        if let Some(session) = &mut self.session {
            session.0.send_close_notify();
            let _ = session.flush(&self.socket);
        }
    }
}

impl TlsSession {
    pub fn new(identity: &TlsIdentity) -> OribiResult<Self> {
        let session = ServerConnection::new(identity.0.clone());
        Ok(TlsSession(Box::new(session.map_err(|error| Error::internal(error.to_string()))?)))
    }

    /// Takes records of the handshake; returns those to answer with.
    ///
    /// # Errors
    /// `InvalidData` for what is no handshake, or goes beyond it.
    pub fn shake_hands(&mut self, records: &[u8]) -> Result<Bytes> {
        let mut beyond = BytesMut::new();
        self.take(records, &mut beyond)?;
        if !beyond.is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidData, "data amid the TLS handshake"));
        }
        let mut answer = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut answer)?;
        }
        Ok(answer.into())
    }

    pub fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Takes records; appends what they hold to `input`.
    fn take(&mut self, mut records: &[u8], input: &mut BytesMut) -> Result<()> {
        while !records.is_empty() {
            if self.0.read_tls(&mut records)? == 0 {
                return Err(io::Error::new(ErrorKind::InvalidData, "records after the end of TLS"));
            }
            self.open(input)?;
        }
        Ok(())
    }

    /// Opens the records that are whole; all of what they hold goes to `input`.
    fn open(&mut self, input: &mut BytesMut) -> Result<()> {
        let opened = self.0.process_new_packets();
        let opened = opened.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        let begin = input.len();
        input.resize(begin + opened.plaintext_bytes_to_read(), 0);
        self.0.reader().read_exact(&mut input[begin..])
    }

    fn receive(&mut self, socket: &TcpStream, input: &mut BytesMut) -> Result<usize> {
        let before = input.len();
        loop {
            match self.0.read_tls(&mut Nonblocking(socket)) {
                Ok(0) => break,
                Ok(_) => self.open(input)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock && input.len() > before => break,
                Err(error) => return Err(error),
            }
            if input.capacity() - input.len() < RECORD_BYTES_MAX {
                break;
            }
        }
        Ok(input.len() - before)
    }

    fn send(&mut self, socket: &TcpStream, slices: &[IoSlice<'_>]) -> Result<usize> {
        // It holds little, so that a client that does not read is not answered into memory.
        self.flush(socket)?;
        let taken = self.0.writer().write_vectored(slices)?;
        match self.flush(socket) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self, socket: &TcpStream) -> Result<()> {
        while self.0.wants_write() {
            self.0.write_tls(&mut Nonblocking(socket))?;
        }
        Ok(())
    }
}

/// Receives what there is room for. Having received less than that, the socket knows that it is empty without another recv(2).
fn receive(socket: &TcpStream, input: &mut BytesMut) -> Result<usize> {
    let room = input.capacity() - input.len();
    let mut received = 0;
    let tried = socket.try_io(Interest::READABLE, || {
        received = socket.try_read_buf(input)?;
        // As where nothing was found: what comes after this read makes the socket ready again, and an end that came before it
        // stays known.
        if (1..room).contains(&received) { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match tried {
        Err(error) if received == 0 => Err(error),
        _ => Ok(received),
    }
}

/// The socket as TLS wants it.
struct Nonblocking<'a>(&'a TcpStream);

impl Read for Nonblocking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Nonblocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    /// Receives into so much room at a time until the end; what came each time.
    async fn received(stream: &mut Stream, room: usize) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            poll_fn(|cx| stream.poll_read_ready(cx)).await.unwrap();
            let mut input = BytesMut::with_capacity(room);
            match stream.try_read_buf(&mut input) {
                Ok(0) => return all,
                Ok(_) => all.extend_from_slice(&input),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
    }

    #[tokio::test]
    async fn all_that_is_sent_is_received_whatever_room_there_is() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for room in [1, 7, 8, 9, 16, 100] {
            let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
            let (mut client, mut stream) = (client.unwrap(), Stream::new(accepted.unwrap().0));
            // The last part comes with the end, the others each by itself, when the one before may have been read.
            let send = async {
                for part in [b"12345678", b"abcdefgh", b"ABCDEFGH"] {
                    client.write_all(part).await.unwrap();
                    tokio::task::yield_now().await;
                }
                client.shutdown().await.unwrap();
            };
            let (all, ()) = tokio::join!(received(&mut stream, room), send);
            assert_eq!(all, b"12345678abcdefghABCDEFGH", "{room}");
        }
    }
}
