//! What a client and a server say to each other before the first call.
//!
//! ```text
//! client                                            server
//! hello
//! NEGOTIATE      features, authentications   ->
//!                                            <-     NEGOTIATE      features, one authentication, mechanisms
//! TLS_HANDSHAKE  records                     <->    TLS_HANDSHAKE  records    if both have TLS, until done
//! SASL_INITIATE  PLAIN, user and password    ->
//!                                            <-     SASL_SUCCESS
//! connection context                         ->     not answered; calls may follow at once
//! ```
//!
//! Each line but the first is a frame of the call [`NEGOTIATION_CALL_ID`](crate::rpc::NEGOTIATION_CALL_ID),
//! the last one of [`CONNECTION_CONTEXT_CALL_ID`](crate::rpc::CONNECTION_CONTEXT_CALL_ID); a refusal is an
//! error in place of an answer. Of the authentications only SASL PLAIN is spoken here.
//!
//! TLS itself is the business of who owns the socket: both sides pass records on and take them back. A
//! server that has no certificates leaves TLS out of its features, which declines it; a client accepts that
//! unless it was told to require encryption. Ours offers TLS only if it requires it.

mod client;
mod messages;
mod plain;
mod server;
#[cfg(test)]
mod tests;

pub use client::{ClientNegotiation, ClientProgress, ClientTls};
pub use messages::{
    AuthenticationType, ConnectionContext, Feature, JwtRaw, Negotiate, NegotiateStep, Nothing, SaslMechanism,
    UserInformation, authentication_type,
};
pub use plain::Credentials;
pub use server::{Progress, ServerNegotiation, TlsPolicy};

use crate::frame::{Body, Frame, FrameError, Header};
use crate::rpc::{ErrorCode, ErrorStatus};
use crate::{MessageError, frame};

/// How long a frame may be before the negotiation is done: enough for a chain of certificates.
pub const NEGOTIATION_FRAME_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(NEGOTIATION_FRAME_BYTES_MAX < frame::FRAME_BYTES_MAX);

/// How many steps it may take to decode a message of a negotiation.
const STEPS_MAX: usize = 1000;

/// Why a negotiation failed. The connection is of no use after it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NegotiationError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("call {0} during the negotiation")]
    CallId(i32),
    #[error("step {got} of the negotiation where {expected:?} was expected")]
    Step { expected: NegotiateStep, got: i32 },
    /// What one side asks the other side does not have, or the credentials are not right.
    #[error("{0}")]
    Unauthorized(String),
    /// What the server answered to this client.
    #[error("server refuses: {}", .0.message)]
    Refused(ErrorStatus),
}

impl NegotiationError {
    /// What to tell the other side.
    fn status(&self) -> ErrorStatus {
        let code = match self {
            NegotiationError::Frame(_) | NegotiationError::CallId(_) => ErrorCode::FatalInvalidRpcHeader,
            NegotiationError::Message(_) => ErrorCode::FatalDeserializingRequest,
            NegotiationError::Step { .. }
            | NegotiationError::Unauthorized(_)
            | NegotiationError::Refused(_) => ErrorCode::FatalUnauthorized,
        };
        ErrorStatus::new(code, self.to_string())
    }
}

/// Opens a frame that has to be of this call.
fn open<H: Header>(frame: Frame, expected: i32) -> Result<(H, Body), NegotiationError> {
    let (header, body) = frame.open::<H>()?;
    match header.call_id() {
        got if got == expected => Ok((header, body)),
        got => Err(NegotiationError::CallId(got)),
    }
}

impl Negotiate {
    fn expect(self, expected: NegotiateStep) -> Result<Negotiate, NegotiationError> {
        match NegotiateStep::try_from(self.step) == Ok(expected) {
            true => Ok(self),
            false => Err(NegotiationError::Step { expected, got: self.step }),
        }
    }
}
