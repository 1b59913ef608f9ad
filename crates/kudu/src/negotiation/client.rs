//! The client's side.

use super::plain::PLAIN;
use super::{
    AuthenticationType, ConnectionContext, Credentials, Feature, Negotiate, NegotiateStep, NegotiationError,
    STEPS_MAX, SaslMechanism, UserInformation, open,
};
use crate::frame::{Frame, FrameError, encode_request, hello};
use crate::rpc::{CONNECTION_CONTEXT_CALL_ID, NEGOTIATION_CALL_ID, RequestHeader, ResponseHeader};
use bytes::{Bytes, BytesMut};
use prost::Message;

/// A negotiation as the client sees it. After each call the owner of the socket sends what was appended to
/// `out`, and then does what [`ClientProgress`] says.
#[derive(Debug)]
pub struct ClientNegotiation {
    credentials: Credentials,
    tls: ClientTls,
    /// The step of the server that is expected next; `None` once it is done.
    expected: Option<NegotiateStep>,
}

/// Whether a client encrypts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientTls {
    #[default]
    NotOffered,
    /// A server that cannot is refused.
    Required,
}

/// What the owner of the socket does next.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientProgress {
    /// Read the next frame.
    Read,
    /// Give these records to the TLS connection, or begin it if there are none; then call
    /// [`ClientNegotiation::tls_records`] with those to send, if there are any, and once the handshake is finished
    /// [`ClientNegotiation::initiate`]. If it is not, read the next frame.
    TlsRecords(Bytes),
    /// Calls may follow.
    Done,
}

impl ClientNegotiation {
    /// Begins a connection: hello, and the first message.
    pub fn start(credentials: Credentials, tls: ClientTls, out: &mut BytesMut) -> Self {
        out.extend_from_slice(&hello::HELLO);
        let mut features = vec![Feature::ApplicationFeatureFlags.into()];
        if tls == ClientTls::Required {
            features.push(Feature::Tls.into());
        }
        let first = Negotiate {
            supported_features: features,
            authn_types: vec![AuthenticationType::sasl()],
            step: NegotiateStep::Negotiate.into(),
            ..Negotiate::default()
        };
        send(NEGOTIATION_CALL_ID, &first, out).expect("the first message fits a frame");
        ClientNegotiation { credentials, tls, expected: Some(NegotiateStep::Negotiate) }
    }

    /// Takes the server's next frame.
    ///
    /// # Errors
    /// [`NegotiationError::Refused`] with what the server says, or what is wrong with its frame.
    pub fn advance(&mut self, frame: Frame, out: &mut BytesMut) -> Result<ClientProgress, NegotiationError> {
        let answer = answer(frame)?;
        let Some(expected) = self.expected else { return Err(NegotiationError::CallId(NEGOTIATION_CALL_ID)) };
        let answer = answer.expect(expected)?;
        match expected {
            NegotiateStep::Negotiate => self.negotiate(&answer, out),
            NegotiateStep::TlsHandshake => {
                Ok(ClientProgress::TlsRecords(answer.tls_handshake.unwrap_or_default()))
            }
            _ => self.finish(out),
        }
    }

    fn negotiate(
        &mut self,
        answer: &Negotiate,
        out: &mut BytesMut,
    ) -> Result<ClientProgress, NegotiationError> {
        let refuse = |why: &str| Err(NegotiationError::Unauthorized(why.to_owned()));
        if !answer.authn_types.iter().all(AuthenticationType::is_sasl) {
            return refuse("server wants another authentication than SASL");
        }
        if !answer.sasl_mechanisms.iter().any(|offered| offered.mechanism == PLAIN) {
            return refuse("server does not have the mechanism PLAIN");
        }
        if self.tls == ClientTls::NotOffered {
            self.initiate(out)?;
            return Ok(ClientProgress::Read);
        }
        if !answer.supported_features.contains(&Feature::Tls.into()) {
            return refuse("server does not offer TLS");
        }
        self.expected = Some(NegotiateStep::TlsHandshake);
        Ok(ClientProgress::TlsRecords(Bytes::new()))
    }

    /// Sends records of the TLS handshake.
    ///
    /// # Errors
    /// If they do not fit a frame.
    pub fn tls_records(&mut self, records: Bytes, out: &mut BytesMut) -> Result<(), NegotiationError> {
        let step = Negotiate {
            step: NegotiateStep::TlsHandshake.into(),
            tls_handshake: Some(records),
            ..Negotiate::default()
        };
        Ok(send(NEGOTIATION_CALL_ID, &step, out)?)
    }

    /// Goes on after the handshake: what is appended to `out` goes through TLS, and so does all that follows.
    ///
    /// # Errors
    /// If the credentials do not fit a frame.
    pub fn initiate(&mut self, out: &mut BytesMut) -> Result<(), NegotiationError> {
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

    fn finish(&mut self, out: &mut BytesMut) -> Result<ClientProgress, NegotiationError> {
        let user = UserInformation { effective_user: None, real_user: self.credentials.user.clone() };
        let context = ConnectionContext { deprecated_user_info: Some(user), encoded_nonce: None };
        send(CONNECTION_CONTEXT_CALL_ID, &context, out)?;
        self.expected = None;
        Ok(ClientProgress::Done)
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
