//! The server's side.

use super::plain::PLAIN;
use super::{
    AuthenticationType, ConnectionContext, Credentials, Feature, Negotiate, NegotiateStep, NegotiationError,
    STEPS_MAX, SaslMechanism, open,
};
use crate::frame::{Frame, FrameError, encode_error, encode_reply};
use crate::rpc::{CONNECTION_CONTEXT_CALL_ID, NEGOTIATION_CALL_ID, RequestHeader};
use bytes::{Bytes, BytesMut};

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsPolicy {
    /// There are no certificates.
    #[default]
    Declined,
    /// If the client can.
    Offered,
    /// A client that cannot is refused.
    Required,
}

/// A negotiation as the server sees it, from after the hello.
///
/// After each call the owner of the socket sends what was appended to `out`, and then does what [`Progress`]
/// says; after an error it sends too, and closes.
#[derive(Debug)]
pub struct ServerNegotiation {
    tls: TlsPolicy,
    is_peer_local: bool,
    state: State,
}

/// What is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Negotiate,
    /// `wraps`: what comes after the handshake goes through TLS.
    TlsHandshake {
        wraps: bool,
    },
    SaslInitiate,
    /// A call of `accept` or `refuse`.
    Verdict,
    ConnectionContext,
    Done,
}

/// What the owner of the socket does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// Read the next frame.
    Read,
    /// Give these records to the TLS connection, then call [`ServerNegotiation::tls_records`].
    TlsRecords(Bytes),
    /// Decide, then call [`ServerNegotiation::accept`] or [`ServerNegotiation::refuse`].
    Verdict(Credentials),
    /// The frames that follow are calls. Some may be there already.
    Done,
}

impl ServerNegotiation {
    /// `is_peer_local`: the connection does not leave the machine, so that after a TLS handshake it may go on
    /// in plain text.
    pub fn new(tls: TlsPolicy, is_peer_local: bool) -> Self {
        ServerNegotiation { tls, is_peer_local, state: State::Negotiate }
    }

    /// Takes the client's next frame.
    ///
    /// # Errors
    /// Whatever is wrong with it, or not allowed; `out` has the refusal.
    pub fn advance(&mut self, frame: Frame, out: &mut BytesMut) -> Result<Progress, NegotiationError> {
        let progress = match self.state {
            State::ConnectionContext => self.connection_context(frame),
            _ => self.step(frame, out),
        };
        progress.inspect_err(|error| refuse(error, out))
    }

    fn step(&mut self, frame: Frame, out: &mut BytesMut) -> Result<Progress, NegotiationError> {
        let (_, body) = open::<RequestHeader>(frame, NEGOTIATION_CALL_ID)?;
        let request: Negotiate = body.decode(STEPS_MAX)?;
        match self.state {
            State::Negotiate => self.negotiate(&request.expect(NegotiateStep::Negotiate)?, out),
            State::TlsHandshake { .. } => {
                let records = request.expect(NegotiateStep::TlsHandshake)?.tls_handshake;
                Ok(Progress::TlsRecords(records.unwrap_or_default()))
            }
            State::SaslInitiate => self.sasl_initiate(&request.expect(NegotiateStep::SaslInitiate)?),
            State::Verdict | State::ConnectionContext | State::Done => {
                Err(NegotiationError::CallId(NEGOTIATION_CALL_ID))
            }
        }
    }

    fn negotiate(&mut self, request: &Negotiate, out: &mut BytesMut) -> Result<Progress, NegotiationError> {
        let refuse = |why: &str| Err(NegotiationError::Unauthorized(why.to_owned()));
        if !request.authn_types.is_empty() && !request.authn_types.iter().any(AuthenticationType::is_sasl) {
            return refuse("client does not offer SASL, and the server has no other authentication");
        }
        let has = |feature: Feature| request.supported_features.contains(&feature.into());
        let mut features = vec![Feature::ApplicationFeatureFlags.into()];
        self.state = match (self.tls, has(Feature::Tls)) {
            (TlsPolicy::Required, false) => {
                return refuse("server requires TLS, and the client does not offer it");
            }
            (TlsPolicy::Declined, _) | (TlsPolicy::Offered, false) => State::SaslInitiate,
            (TlsPolicy::Offered | TlsPolicy::Required, true) => {
                features.push(Feature::Tls.into());
                let wraps = !(self.is_peer_local && has(Feature::TlsAuthenticationOnly));
                if !wraps {
                    features.push(Feature::TlsAuthenticationOnly.into());
                }
                State::TlsHandshake { wraps }
            }
        };
        let answer = Negotiate {
            supported_features: features,
            sasl_mechanisms: vec![SaslMechanism { mechanism: PLAIN.to_owned() }],
            authn_types: vec![AuthenticationType::sasl()],
            ..step(NegotiateStep::Negotiate)
        };
        reply(&answer, out)?;
        Ok(Progress::Read)
    }

    /// Sends the records that TLS made of the client's, unless there are none; the next frame follows.
    /// Returns whether all that comes after them on the connection, in both directions, goes through TLS.
    ///
    /// `is_done`: the handshake is finished. Session tickets that are made with that are no part of the
    /// handshake: make none, or send them through TLS.
    ///
    /// # Panics
    /// If [`Progress::TlsRecords`] was not what came before.
    pub fn tls_records(
        &mut self,
        records: Bytes,
        is_done: bool,
        out: &mut BytesMut,
    ) -> Result<bool, NegotiationError> {
        let State::TlsHandshake { wraps } = self.state else {
            panic!("no handshake is under way: {:?}", self.state)
        };
        if !records.is_empty() {
            let answer = Negotiate { tls_handshake: Some(records), ..step(NegotiateStep::TlsHandshake) };
            reply(&answer, out)?;
        }
        if is_done {
            self.state = State::SaslInitiate;
        }
        Ok(is_done && wraps)
    }

    fn sasl_initiate(&mut self, request: &Negotiate) -> Result<Progress, NegotiationError> {
        let is_plain = matches!(&request.sasl_mechanisms[..], [chosen] if chosen.mechanism == PLAIN);
        if !is_plain {
            return Err(NegotiationError::Unauthorized(
                "the one mechanism of this server is PLAIN".to_owned(),
            ));
        }
        let credentials = Credentials::decode(request.token.as_deref().unwrap_or_default())?;
        self.state = State::Verdict;
        Ok(Progress::Verdict(credentials))
    }

    /// Lets the client in; [`Progress::Read`] is what follows.
    ///
    /// # Panics
    /// If [`Progress::Verdict`] was not what came before.
    pub fn accept(&mut self, out: &mut BytesMut) {
        assert_eq!(self.state, State::Verdict, "nobody asks to come in");
        reply(&step(NegotiateStep::SaslSuccess), out).expect("a step alone fits a frame");
        self.state = State::ConnectionContext;
    }

    /// Tells the client why it is not let in, or why its records are of no use; then the connection is to be closed.
    pub fn refuse(&mut self, why: &str, out: &mut BytesMut) {
        refuse(&NegotiationError::Unauthorized(why.to_owned()), out);
        self.state = State::Done;
    }

    fn connection_context(&mut self, frame: Frame) -> Result<Progress, NegotiationError> {
        let (_, body) = open::<RequestHeader>(frame, CONNECTION_CONTEXT_CALL_ID)?;
        body.decode::<ConnectionContext>(STEPS_MAX)?;
        self.state = State::Done;
        Ok(Progress::Done)
    }
}

fn step(step: NegotiateStep) -> Negotiate {
    Negotiate { step: step.into(), ..Negotiate::default() }
}

fn reply(answer: &Negotiate, out: &mut BytesMut) -> Result<(), FrameError> {
    encode_reply(NEGOTIATION_CALL_ID, answer, &[], out)
}

fn refuse(error: &NegotiationError, out: &mut BytesMut) {
    encode_error(NEGOTIATION_CALL_ID, &error.status(), out).expect("a refusal fits a frame");
}
