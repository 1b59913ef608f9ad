//! The client's side.

use super::plain::PLAIN;
use super::{
    AuthenticationType, ConnectionContext, Credentials, Feature, Negotiate, NegotiateStep, NegotiationError,
    STEPS_MAX, SaslMechanism, UserInformation, open,
};
use crate::frame::{Frame, FrameError, encode_request, hello};
use crate::rpc::{CONNECTION_CONTEXT_CALL_ID, NEGOTIATION_CALL_ID, RequestHeader, ResponseHeader};
use bytes::BytesMut;
use prost::Message;

/// A negotiation as the client sees it. After each call the owner of the socket sends what was appended to
/// `out`.
#[derive(Debug)]
pub struct ClientNegotiation {
    credentials: Credentials,
    /// The step of the server that is expected next; `None` once it is done.
    expected: Option<NegotiateStep>,
}

impl ClientNegotiation {
    /// Begins a connection: hello, and the first message.
    pub fn start(credentials: Credentials, out: &mut BytesMut) -> Self {
        out.extend_from_slice(&hello::HELLO);
        let first = Negotiate {
            supported_features: vec![Feature::ApplicationFeatureFlags.into()],
            authn_types: vec![AuthenticationType::sasl()],
            step: NegotiateStep::Negotiate.into(),
            ..Negotiate::default()
        };
        send(NEGOTIATION_CALL_ID, &first, out).expect("the first message fits a frame");
        ClientNegotiation { credentials, expected: Some(NegotiateStep::Negotiate) }
    }

    /// Takes the server's next frame; returns whether the negotiation is done, and calls may follow.
    ///
    /// # Errors
    /// [`NegotiationError::Refused`] with what the server says, or what is wrong with its frame.
    pub fn advance(&mut self, frame: Frame, out: &mut BytesMut) -> Result<bool, NegotiationError> {
        let answer = answer(frame)?;
        let Some(expected) = self.expected else { return Err(NegotiationError::CallId(NEGOTIATION_CALL_ID)) };
        let answer = answer.expect(expected)?;
        match expected {
            NegotiateStep::Negotiate => self.initiate(&answer, out)?,
            _ => self.finish(out)?,
        }
        Ok(self.expected.is_none())
    }

    fn initiate(&mut self, answer: &Negotiate, out: &mut BytesMut) -> Result<(), NegotiationError> {
        let refuse = |why: &str| Err(NegotiationError::Unauthorized(why.to_owned()));
        if !answer.authn_types.iter().all(AuthenticationType::is_sasl) {
            return refuse("server wants another authentication than SASL");
        }
        if !answer.sasl_mechanisms.iter().any(|offered| offered.mechanism == PLAIN) {
            return refuse("server does not have the mechanism PLAIN");
        }
        let initiate = Negotiate {
            step: NegotiateStep::SaslInitiate.into(),
            token: Some(self.credentials.encode()),
            sasl_mechanisms: vec![SaslMechanism { mechanism: PLAIN.to_owned() }],
            ..Negotiate::default()
        };
        send(NEGOTIATION_CALL_ID, &initiate, out)?;
        self.expected = Some(NegotiateStep::SaslSuccess);
        Ok(())
    }

    fn finish(&mut self, out: &mut BytesMut) -> Result<(), NegotiationError> {
        let user = UserInformation { effective_user: None, real_user: self.credentials.user.clone() };
        let context = ConnectionContext { deprecated_user_info: Some(user), encoded_nonce: None };
        send(CONNECTION_CONTEXT_CALL_ID, &context, out)?;
        self.expected = None;
        Ok(())
    }
}

/// The message in the server's frame, unless that is an error.
fn answer(frame: Frame) -> Result<Negotiate, NegotiationError> {
    let (header, body) = open::<ResponseHeader>(frame, NEGOTIATION_CALL_ID)?;
    match header.is_error() {
        true => Err(NegotiationError::Refused(body.decode(STEPS_MAX)?)),
        false => Ok(body.decode(STEPS_MAX)?),
    }
}

fn send(call_id: i32, message: &impl Message, out: &mut BytesMut) -> Result<(), FrameError> {
    let header = RequestHeader { call_id, ..RequestHeader::default() };
    encode_request(&header, message, 0, out)
}
