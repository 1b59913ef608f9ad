//! What a client and the door say to each other before the first call: one after the other, and without any call in flight.

use super::connection::{Connection, malformed};
use bytes::{Bytes, BytesMut};
use oribi_kudu::frame::{self, Frame, hello};
use oribi_kudu::negotiation::{NEGOTIATION_FRAME_BYTES_MAX, Progress, ServerNegotiation, TlsPolicy};
use oribi_net::TlsSession;
use oribi_types::{Error, Result};
use std::future::poll_fn;

impl Connection {
    /// Comes to terms with the client; whether it goes on.
    pub(super) async fn negotiate(&mut self) -> Result<bool> {
        while !hello::decode(&mut self.input).map_err(malformed)? {
            if !self.read_more().await? {
                return Ok(false);
            }
        }
        let mut session = self.port.identity.as_ref().map(TlsSession::new).transpose()?;
        let tls = if session.is_some() { TlsPolicy::Offered } else { TlsPolicy::Declined };
        let mut negotiation = ServerNegotiation::new(tls, self.is_peer_local);
        while let Some(frame) = self.next_frame().await? {
            let mut out = BytesMut::new();
            let progress = negotiation.advance(frame, &mut out);
            let is_done = progress == Ok(Progress::Done);
            let mut wraps = false;
            let mut failed = None;
            match progress {
                Ok(Progress::Read | Progress::Done) => {}
                Ok(Progress::Verdict(credentials)) => {
                    tracing::debug!(user = credentials.user, "client of the Kudu door");
                    self.user = credentials.user.into();
                    negotiation.accept(&mut out);
                }
                Ok(Progress::TlsRecords(records)) => {
                    match shake_hands(&mut negotiation, session.as_mut(), &records, &mut out) {
                        Ok(wrapping) => wraps = wrapping,
                        Err(error) => failed = Some(error),
                    }
                }
                Err(error) => failed = Some(malformed(error)),
            }
            self.outbox.push_bytes(out.freeze());
            self.drain().await?;
            if let Some(error) = failed {
                return Err(error);
            }
            if wraps && let Some(session) = session.take() {
                self.stream.wrap(session, &mut self.input)?;
            }
            if is_done {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for a frame; `None` if the client has left.
    async fn next_frame(&mut self) -> Result<Option<Frame>> {
        loop {
            let frame = frame::decode(&mut self.input, NEGOTIATION_FRAME_BYTES_MAX).map_err(malformed)?;
            if frame.is_some() || !self.read_more().await? {
                return Ok(frame);
            }
        }
    }

    /// Waits for bytes; false if the client has left.
    async fn read_more(&mut self) -> Result<bool> {
        loop {
            poll_fn(|cx| self.stream.poll_read_ready(cx)).await?;
            if let Some(received) = self.receive()? {
                return Ok(received > 0);
            }
        }
    }

    /// Sends all that there is.
    async fn drain(&mut self) -> Result<()> {
        loop {
            self.outbox.flush(&mut self.stream)?;
            if self.outbox.is_sent(&self.stream) {
                return Ok(());
            }
            poll_fn(|cx| self.stream.poll_write_ready(cx)).await?;
        }
    }
}

/// Answers records of a TLS handshake, or refuses them; whether all that follows goes through TLS.
fn shake_hands(
    negotiation: &mut ServerNegotiation,
    session: Option<&mut TlsSession>,
    records: &Bytes,
    out: &mut BytesMut,
) -> Result<bool> {
    let session = session.ok_or_else(|| Error::internal("a handshake that was not offered"))?;
    match session.shake_hands(records) {
        Ok(answer) => negotiation.tls_records(answer, !session.is_handshaking(), out).map_err(malformed),
        Err(error) => {
            negotiation.refuse(&format!("TLS handshake: {error}"), out);
            Err(malformed(error))
        }
    }
}
