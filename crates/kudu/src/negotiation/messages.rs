//! The messages of a negotiation.

use crate::messages::common::SignedToken;
use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

/// One step, from either side; which fields are present depends on the step.
#[derive(Clone, PartialEq, Message)]
pub struct Negotiate {
    #[prost(enumeration = "Feature", repeated, packed = "false", tag = "1")]
    pub supported_features: Vec<i32>,
    #[prost(enumeration = "NegotiateStep", required, tag = "2")]
    pub step: i32,
    /// Of the SASL mechanism.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub token: Option<Bytes>,
    /// Those that the server has; the one that the client takes.
    #[prost(message, repeated, tag = "4")]
    pub sasl_mechanisms: Vec<SaslMechanism>,
    /// Records of TLS.
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub tls_handshake: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub channel_bindings: Option<Bytes>,
    /// Those that the client can; the one that the server takes. None: SASL.
    #[prost(message, repeated, tag = "7")]
    pub authn_types: Vec<AuthenticationType>,
    #[prost(message, optional, tag = "8")]
    pub authn_token: Option<SignedToken>,
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub nonce: Option<Bytes>,
    #[prost(message, optional, tag = "10")]
    pub jwt_raw: Option<JwtRaw>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum NegotiateStep {
    Unknown = 999,
    SaslSuccess = 0,
    Negotiate = 1,
    SaslInitiate = 2,
    SaslChallenge = 3,
    SaslResponse = 4,
    TlsHandshake = 5,
    TokenExchange = 6,
    JwtExchange = 7,
}

/// What a side of the connection can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Feature {
    Unknown = 0,
    ApplicationFeatureFlags = 1,
    Tls = 2,
    /// After the handshake the connection goes on in plain text: both sides are on one machine.
    TlsAuthenticationOnly = 3,
}

#[derive(Clone, PartialEq, Message)]
pub struct SaslMechanism {
    /// `PLAIN`; Kudu has `GSSAPI` too.
    #[prost(string, required, tag = "2")]
    pub mechanism: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct AuthenticationType {
    #[prost(oneof = "authentication_type::Type", tags = "1, 2, 3, 4")]
    pub authentication: Option<authentication_type::Type>,
}

impl AuthenticationType {
    pub fn sasl() -> Self {
        AuthenticationType { authentication: Some(authentication_type::Type::Sasl(Nothing {})) }
    }

    pub fn is_sasl(&self) -> bool {
        matches!(self.authentication, Some(authentication_type::Type::Sasl(_)))
    }
}

/// The kinds of an [`AuthenticationType`].
pub mod authentication_type {
    use super::*;

    #[derive(Clone, PartialEq, Oneof)]
    pub enum Type {
        #[prost(message, tag = "1")]
        Sasl(Nothing),
        #[prost(message, tag = "2")]
        Token(Nothing),
        #[prost(message, tag = "3")]
        Certificate(Nothing),
        #[prost(message, tag = "4")]
        Jwt(Nothing),
    }
}

/// A kind of authentication says no more than that it is meant.
#[derive(Clone, PartialEq, Message)]
pub struct Nothing {}

#[derive(Clone, PartialEq, Message)]
pub struct JwtRaw {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub jwt_data: Option<Bytes>,
}

/// The last message of a negotiation.
#[derive(Clone, PartialEq, Message)]
pub struct ConnectionContext {
    /// Of no importance beside the user that authenticated.
    #[prost(message, optional, tag = "2")]
    pub deprecated_user_info: Option<UserInformation>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub encoded_nonce: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct UserInformation {
    #[prost(string, optional, tag = "1")]
    pub effective_user: Option<String>,
    #[prost(string, required, tag = "2")]
    pub real_user: String,
}
