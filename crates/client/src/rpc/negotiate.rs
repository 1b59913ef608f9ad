//! Connecting to a server, and what is said before the first call.

use super::stream::{self, Receiver, Sender};
use super::tls::{Tls, TlsSession};
use bytes::BytesMut;
use oribi_kudu::frame::{self, Frame};
use oribi_kudu::messages::common::HostPort;
use oribi_kudu::negotiation::{
    ClientNegotiation, ClientProgress, ClientTls, Credentials, NEGOTIATION_FRAME_BYTES_MAX, NegotiationError,
};
use oribi_types::{Error, ErrorKind, Result};
use std::io::IoSlice;
use tokio::net::TcpStream;

/// Who a client is, and whom it believes.
#[derive(Clone)]
pub(crate) struct Introduction {
    pub credentials: Credentials,
    /// With it connections are encrypted, or refused.
    pub tls: Option<Tls>,
}

/// A connection after its negotiation, and what came already of what follows.
pub(super) struct Opened {
    pub sender: Sender,
    pub receiver: Receiver,
    pub input: BytesMut,
}

impl Opened {
    async fn send(&mut self, bytes: &mut BytesMut) -> Result<()> {
        let bytes = bytes.split();
        self.sender.send(&mut [IoSlice::new(&bytes)]).await
    }

    async fn frame(&mut self) -> Result<Frame> {
        loop {
            let frame = frame::decode(&mut self.input, NEGOTIATION_FRAME_BYTES_MAX);
            if let Some(frame) = frame.map_err(super::corrupt)? {
                return Ok(frame);
            }
            self.receiver.receive(&mut self.input).await?;
        }
    }
}

/// # Errors
/// `Unavailable` if there is nobody, `Forbidden` if either side refuses the other.
pub(super) async fn connect(address: &HostPort, introduction: &Introduction) -> Result<Opened> {
    let unavailable = |error: std::io::Error| Error::unavailable(error.to_string());
    let port = u16::try_from(address.port).map_err(|_| Error::invalid("port above 65535"))?;
    let socket = TcpStream::connect((address.host.as_str(), port)).await.map_err(unavailable)?;
    socket.set_nodelay(true).map_err(unavailable)?;
    let (sender, receiver) = stream::split(socket);
    let mut opened = Opened { sender, receiver, input: BytesMut::new() };
    let session = introduction.tls.as_ref().map(|tls| TlsSession::new(tls, &address.host)).transpose()?;
    let tls = if session.is_some() { ClientTls::Required } else { ClientTls::NotOffered };
    let mut out = BytesMut::new();
    let mut negotiation = ClientNegotiation::start(introduction.credentials.clone(), tls, &mut out);
    let mut session = session;
    loop {
        opened.send(&mut out).await?;
        let frame = opened.frame().await?;
        match negotiation.advance(frame, &mut out).map_err(refused)? {
            ClientProgress::Read => {}
            ClientProgress::TlsRecords(records) => {
                let Some(shaking) = &mut session else {
                    return Err(Error::corrupt("records of TLS after its handshake"));
                };
                let mut beyond = BytesMut::new();
                shaking.take(&mut BytesMut::from(&records[..]), &mut beyond)?;
                let records = shaking.records()?;
                if !records.is_empty() {
                    negotiation.tls_records(records, &mut out).map_err(refused)?;
                }
                if !shaking.is_handshaking() {
                    opened.send(&mut out).await?;
                    let Some(session) = session.take() else { continue };
                    stream::wrap(&mut opened.sender, &mut opened.receiver, session, &mut opened.input)?;
                    negotiation.initiate(&mut out).map_err(refused)?;
                }
            }
            ClientProgress::Done => {
                opened.send(&mut out).await?;
                return Ok(opened);
            }
        }
    }
}

fn refused(error: NegotiationError) -> Error {
    let kind = match &error {
        NegotiationError::Refused(_) | NegotiationError::Unauthorized(_) => ErrorKind::Forbidden,
        _ => ErrorKind::Corrupt,
    };
    Error::new(kind, error.to_string())
}
