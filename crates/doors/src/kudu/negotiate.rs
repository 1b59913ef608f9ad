//! What a client and the door say to each other before the first call: one after the other, and without any call in flight.

use super::connection::{Connection, malformed};
use bytes::BytesMut;
use oribi_kudu::frame::{self, hello};
use oribi_kudu::negotiation::{NEGOTIATION_FRAME_BYTES_MAX, Progress, ServerNegotiation, TlsPolicy};
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
        let mut negotiation = ServerNegotiation::new(TlsPolicy::Declined, self.is_peer_local);
        loop {
            let Some(frame) =
                frame::decode(&mut self.input, NEGOTIATION_FRAME_BYTES_MAX).map_err(malformed)?
            else {
                if !self.read_more().await? {
                    return Ok(false);
                }
                continue;
            };
            let mut out = BytesMut::new();
            let progress = negotiation.advance(frame, &mut out);
            if let Ok(Progress::Verdict(credentials)) = &progress {
                tracing::debug!(user = credentials.user, "client of the Kudu door");
                negotiation.accept(&mut out);
            }
            self.outbox.push_bytes(out.freeze());
            self.drain().await?;
            match progress {
                Ok(Progress::Done) => return Ok(true),
                Ok(Progress::Read | Progress::Verdict(_)) => {}
                Ok(Progress::TlsRecords(_)) => {
                    return Err(Error::internal("a handshake that was not offered"));
                }
                Err(error) => return Err(Error::invalid(error.to_string())),
            }
        }
    }

    /// Waits for bytes; false if the client has left.
    async fn read_more(&mut self) -> Result<bool> {
        loop {
            poll_fn(|cx| self.socket.poll_read_ready(cx)).await?;
            if let Some(received) = self.receive()? {
                return Ok(received > 0);
            }
        }
    }

    /// Sends all that there is.
    async fn drain(&mut self) -> Result<()> {
        loop {
            self.outbox.flush(&self.socket)?;
            if self.outbox.is_empty() {
                return Ok(());
            }
            poll_fn(|cx| self.socket.poll_write_ready(cx)).await?;
        }
    }
}
