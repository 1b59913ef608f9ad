//! Negotiations against bytes written by hand, and the two sides against each other.

use super::*;
use crate::frame::hello;
use crate::rpc::{CONNECTION_CONTEXT_CALL_ID, NEGOTIATION_CALL_ID, ResponseHeader};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

/// Headers of a request and of an answer in a negotiation, with their lengths.
const REQUEST: &[u8] = b"\x0b\x18\xdf\xff\xff\xff\xff\xff\xff\xff\xff\x01";
const ANSWER: &[u8] = b"\x0b\x08\xdf\xff\xff\xff\xff\xff\xff\xff\xff\x01";
const CONTEXT: &[u8] = b"\x0b\x18\xfd\xff\xff\xff\xff\xff\xff\xff\xff\x01";

/// What the command line of Kudu sends first: three features and SASL.
const CLI_NEGOTIATE: &[u8] = b"\x08\x01\x08\x02\x08\x03\x10\x01\x3a\x02\x0a\0";
/// Then PLAIN, as `root`.
const CLI_INITIATE: &[u8] = b"\x10\x02\x1a\x06\0root\0\x22\x07\x12\x05PLAIN";

fn framed(header: &[u8], message: &[u8]) -> BytesMut {
    let len = (header.len() + 1 + message.len()) as u32;
    [&len.to_be_bytes()[..], header, &[message.len() as u8], message].concat()[..].into()
}

fn take(input: &mut BytesMut) -> Frame {
    frame::decode(input, NEGOTIATION_FRAME_BYTES_MAX).unwrap().expect("a whole frame")
}

fn of_server(out: &mut BytesMut) -> Negotiate {
    let (_, body) = open::<ResponseHeader>(take(out), NEGOTIATION_CALL_ID).unwrap();
    body.decode(STEPS_MAX).unwrap()
}

fn give(server: &mut ServerNegotiation, message: &[u8]) -> (Result<Progress, NegotiationError>, BytesMut) {
    let mut out = BytesMut::new();
    (server.advance(take(&mut framed(REQUEST, message)), &mut out), out)
}

/// What a server answers to a message that it refuses.
fn refusal(server: &mut ServerNegotiation, message: &[u8]) -> ErrorStatus {
    let (result, mut out) = give(server, message);
    let error = result.unwrap_err();
    let (header, body) = open::<ResponseHeader>(take(&mut out), NEGOTIATION_CALL_ID).unwrap();
    assert!(header.is_error());
    let status: ErrorStatus = body.decode(STEPS_MAX).unwrap();
    assert_eq!(status.message, error.to_string());
    status
}

fn server() -> ServerNegotiation {
    ServerNegotiation::new(TlsPolicy::Declined, true)
}

fn root() -> Credentials {
    Credentials { user: "root".to_owned(), password: String::new() }
}

#[test]
fn a_negotiation_of_the_command_line() {
    let mut server = server();
    let (progress, out) = give(&mut server, CLI_NEGOTIATE);
    assert_eq!(progress, Ok(Progress::Read));
    assert_eq!(out, framed(ANSWER, b"\x08\x01\x10\x01\x22\x07\x12\x05PLAIN\x3a\x02\x0a\0"));
    let (progress, mut out) = give(&mut server, CLI_INITIATE);
    assert_eq!(progress, Ok(Progress::Verdict(root())));
    assert!(out.is_empty());
    server.accept(&mut out);
    assert_eq!(out, framed(ANSWER, b"\x10\0"));
    let mut out = BytesMut::new();
    let context = take(&mut framed(CONTEXT, b"\x12\x06\x12\x04root"));
    assert_eq!(server.advance(context, &mut out), Ok(Progress::Done));
    assert!(out.is_empty());
}

#[test]
fn the_two_sides_understand_each_other() {
    let (mut to_server, mut to_client) = (BytesMut::new(), BytesMut::new());
    let mut client = ClientNegotiation::start(root(), ClientTls::NotOffered, &mut to_server);
    assert_eq!(hello::decode(&mut to_server), Ok(true));
    let mut server = server();
    assert_eq!(server.advance(take(&mut to_server), &mut to_client), Ok(Progress::Read));
    assert_eq!(client.advance(take(&mut to_client), &mut to_server), Ok(ClientProgress::Read));
    assert_eq!(to_server, framed(REQUEST, CLI_INITIATE));
    assert_eq!(server.advance(take(&mut to_server), &mut to_client), Ok(Progress::Verdict(root())));
    server.accept(&mut to_client);
    assert_eq!(client.advance(take(&mut to_client), &mut to_server), Ok(ClientProgress::Done));
    assert_eq!(to_server, framed(CONTEXT, b"\x12\x06\x12\x04root"));
    assert_eq!(server.advance(take(&mut to_server), &mut to_client), Ok(Progress::Done));
}

#[test]
fn tls_is_negotiated_if_both_have_it() {
    const TLS: i32 = Feature::Tls as i32;
    const AUTHENTICATION_ONLY: i32 = Feature::TlsAuthenticationOnly as i32;
    let remote: &[u8] = b"\x08\x01\x08\x02\x10\x01\x3a\x02\x0a\0";
    let none: &[u8] = b"\x08\x01\x10\x01\x3a\x02\x0a\0";
    use TlsPolicy::{Declined, Offered, Required};
    let cases: [(_, _, _, &[i32]); 6] = [
        (Declined, true, CLI_NEGOTIATE, &[1]),
        (Offered, true, CLI_NEGOTIATE, &[1, TLS, AUTHENTICATION_ONLY]),
        (Offered, false, CLI_NEGOTIATE, &[1, TLS]),
        (Required, true, remote, &[1, TLS]),
        (Offered, true, none, &[1]),
        (Declined, true, none, &[1]),
    ];
    for (policy, is_local, message, features) in cases {
        let mut server = ServerNegotiation::new(policy, is_local);
        let (progress, mut out) = give(&mut server, message);
        assert_eq!(progress, Ok(Progress::Read));
        assert_eq!(of_server(&mut out).supported_features, features);
        if !features.contains(&TLS) {
            continue;
        }
        let wraps = !features.contains(&AUTHENTICATION_ONLY);
        let (progress, mut out) = give(&mut server, b"\x10\x05\x2a\x03abc");
        assert_eq!(progress, Ok(Progress::TlsRecords(Bytes::from_static(b"abc"))));
        assert_eq!(server.tls_records(Bytes::from_static(b"def"), false, &mut out), Ok(false));
        assert_eq!(out, framed(ANSWER, b"\x10\x05\x2a\x03def"));
        assert!(matches!(give(&mut server, b"\x10\x05").0, Ok(Progress::TlsRecords(_))));
        let mut out = BytesMut::new();
        assert_eq!(server.tls_records(Bytes::new(), true, &mut out), Ok(wraps));
        assert!(out.is_empty());
        assert_eq!(give(&mut server, CLI_INITIATE).0, Ok(Progress::Verdict(root())));
    }
    let status = refusal(&mut ServerNegotiation::new(Required, true), none);
    assert_eq!(status.message, "server requires TLS, and the client does not offer it");
}

#[test]
fn a_step_out_of_order_is_refused() {
    assert_eq!(refusal(&mut server(), CLI_INITIATE).code(), ErrorCode::FatalUnauthorized);
    let mut twice = server();
    give(&mut twice, CLI_NEGOTIATE).0.unwrap();
    assert_eq!(refusal(&mut twice, CLI_NEGOTIATE).code(), ErrorCode::FatalUnauthorized);
    assert_eq!(refusal(&mut server(), b"\x10\x05").code(), ErrorCode::FatalUnauthorized);
    assert_eq!(refusal(&mut server(), b"\x10").code(), ErrorCode::FatalDeserializingRequest);
    let mut early = BytesMut::new();
    let context = take(&mut framed(CONTEXT, b""));
    let result = server().advance(context, &mut early);
    assert_eq!(result, Err(NegotiationError::CallId(CONNECTION_CONTEXT_CALL_ID)));
    assert!(!early.is_empty());
}

#[test]
fn the_context_comes_after_the_verdict() {
    let mut server = server();
    give(&mut server, CLI_NEGOTIATE).0.unwrap();
    give(&mut server, CLI_INITIATE).0.unwrap();
    // A client that does not wait.
    assert!(give(&mut server, CLI_INITIATE).0.is_err());
    server.accept(&mut BytesMut::new());
    assert_eq!(give(&mut server, CLI_INITIATE).0, Err(NegotiationError::CallId(NEGOTIATION_CALL_ID)));
}

#[test]
fn what_the_server_does_not_have_is_refused() {
    let token_only: &[u8] = b"\x08\x01\x10\x01\x3a\x02\x12\0";
    assert_eq!(refusal(&mut server(), token_only).code(), ErrorCode::FatalUnauthorized);
    // No authentication named means SASL.
    assert_eq!(give(&mut server(), b"\x08\x01\x10\x01").0, Ok(Progress::Read));
    for initiate in [&b"\x10\x02\x1a\x06\0root\0\x22\x08\x12\x06GSSAPI"[..], b"\x10\x02\x1a\x06\0root\0"] {
        let mut server = server();
        give(&mut server, CLI_NEGOTIATE).0.unwrap();
        assert_eq!(refusal(&mut server, initiate).code(), ErrorCode::FatalUnauthorized);
    }
}

#[test]
fn plain_has_three_fields() {
    let credentials = Credentials { user: "u".to_owned(), password: "p w".to_owned() };
    assert_eq!(&credentials.encode()[..], b"\0u\0p w");
    assert_eq!(Credentials::decode(b"\0u\0p w"), Ok(credentials.clone()));
    assert_eq!(Credentials::decode(b"u\0u\0p w"), Ok(credentials.clone()));
    assert!(!format!("{credentials:?}").contains("p w"));
    for wrong in [&b""[..], b"u", b"\0u", b"\0u\0p\0", b"\0\0p", b"other\0u\0p", b"\0\xff\0"] {
        assert!(matches!(Credentials::decode(wrong), Err(NegotiationError::Unauthorized(_))), "{wrong:?}");
    }
}

#[test]
fn a_client_that_requires_tls_shakes_hands() {
    let (mut to_server, mut to_client) = (BytesMut::new(), BytesMut::new());
    let start = |out: &mut BytesMut| ClientNegotiation::start(root(), ClientTls::Required, out);
    let mut client = start(&mut to_server);
    assert_eq!(hello::decode(&mut to_server), Ok(true));
    let mut server = ServerNegotiation::new(TlsPolicy::Required, true);
    let records = |bytes: &'static [u8]| Bytes::from_static(bytes);
    assert_eq!(server.advance(take(&mut to_server), &mut to_client), Ok(Progress::Read));
    let begin = Ok(ClientProgress::TlsRecords(Bytes::new()));
    assert_eq!(client.advance(take(&mut to_client), &mut to_server), begin);
    client.tls_records(records(b"hello"), &mut to_server).unwrap();
    let hello = Ok(Progress::TlsRecords(records(b"hello")));
    assert_eq!(server.advance(take(&mut to_server), &mut to_client), hello);
    // It did not ask to go on in plain text, though the server is on the same machine.
    assert!(server.tls_records(records(b"done"), true, &mut to_client).unwrap());
    let done = Ok(ClientProgress::TlsRecords(records(b"done")));
    assert_eq!(client.advance(take(&mut to_client), &mut to_server), done);
    client.initiate(&mut to_server).unwrap();
    assert_eq!(to_server, framed(REQUEST, CLI_INITIATE));
    assert_eq!(server.advance(take(&mut to_server), &mut to_client), Ok(Progress::Verdict(root())));
    server.accept(&mut to_client);
    assert_eq!(client.advance(take(&mut to_client), &mut to_server), Ok(ClientProgress::Done));
    // One that has no TLS gets nothing from it.
    let mut client = start(&mut BytesMut::new());
    let declined = take(&mut framed(ANSWER, b"\x08\x01\x10\x01\x22\x07\x12\x05PLAIN\x3a\x02\x0a\0"));
    let mut out = BytesMut::new();
    let error = client.advance(declined, &mut out).unwrap_err();
    assert_eq!((error.to_string().as_str(), out.len()), ("server does not offer TLS", 0));
}

#[test]
fn a_refusal_reaches_the_client() {
    let (mut to_server, mut to_client) = (BytesMut::new(), BytesMut::new());
    let mut client = ClientNegotiation::start(root(), ClientTls::NotOffered, &mut to_server);
    server().refuse("not today", &mut to_client);
    let refused = NegotiationError::Refused(ErrorStatus::new(ErrorCode::FatalUnauthorized, "not today"));
    assert_eq!(client.advance(take(&mut to_client), &mut to_server), Err(refused));
}

#[test]
fn a_client_goes_on_only_with_what_it_can() {
    let answers: [&[u8]; 4] = [
        // GSSAPI alone; a token; a step that is not due; one that is never due.
        b"\x10\x01\x22\x08\x12\x06GSSAPI",
        b"\x10\x01\x22\x07\x12\x05PLAIN\x3a\x02\x12\0",
        b"\x10\0",
        b"\x10\x03",
    ];
    for answer in answers {
        let mut client = ClientNegotiation::start(root(), ClientTls::NotOffered, &mut BytesMut::new());
        let mut out = BytesMut::new();
        assert!(client.advance(take(&mut framed(ANSWER, answer)), &mut out).is_err(), "{answer:?}");
        assert!(out.is_empty());
    }
    let mut client = ClientNegotiation::start(root(), ClientTls::NotOffered, &mut BytesMut::new());
    let other = take(&mut framed(b"\x02\x08\x05", b"\x10\x01"));
    assert_eq!(client.advance(other, &mut BytesMut::new()), Err(NegotiationError::CallId(5)));
}

proptest! {
    #[test]
    fn any_messages_are_taken_or_refused(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..6),
        done in any::<bool>(),
    ) {
        let mut server = ServerNegotiation::new(TlsPolicy::Offered, done);
        let tls = if done { ClientTls::Required } else { ClientTls::NotOffered };
        let mut client = ClientNegotiation::start(root(), tls, &mut BytesMut::new());
        for message in messages {
            let mut out = BytesMut::new();
            match server.advance(take(&mut framed(REQUEST, &message)), &mut out) {
                Ok(Progress::Verdict(_)) => server.accept(&mut out),
                Ok(Progress::TlsRecords(records)) => drop(server.tls_records(records, done, &mut out)),
                Ok(Progress::Read | Progress::Done) => {}
                Err(_) => prop_assert!(!out.is_empty()),
            }
            let _ = client.advance(take(&mut framed(ANSWER, &message)), &mut out);
        }
    }
}
