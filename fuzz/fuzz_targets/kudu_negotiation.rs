//! Any messages to both sides of a negotiation of Kudu's protocol: a server lets nobody in before the verdict, each refusal
//! is told, and what is sent are whole frames.
#![no_main]

mod feed;

use bytes::{Bytes, BytesMut};
use feed::Feed;
use libfuzzer_sys::fuzz_target;
use oribi_kudu::frame::{Frame, decode, encode_head, hello};
use oribi_kudu::negotiation::{
    ClientNegotiation, ClientProgress, ClientTls, Credentials, NEGOTIATION_FRAME_BYTES_MAX, Progress,
    ServerNegotiation, TlsPolicy,
};
use oribi_kudu::rpc::{CONNECTION_CONTEXT_CALL_ID, NEGOTIATION_CALL_ID, RequestHeader, ResponseHeader};

/// Messages that lead on: NEGOTIATE with TLS, the same without, records, PLAIN, success, and an offer of PLAIN.
const MESSAGES: [&[u8]; 6] = [
    b"\x08\x01\x08\x02\x08\x03\x10\x01\x3a\x02\x0a\0",
    b"\x08\x01\x10\x01\x3a\x02\x0a\0",
    b"\x10\x05\x2a\x03abc",
    b"\x10\x02\x1a\x06\0root\0\x22\x07\x12\x05PLAIN",
    b"\x10\0",
    b"\x08\x01\x10\x01\x22\x07\x12\x05PLAIN\x3a\x02\x0a\0",
];

fuzz_target!(|input: &[u8]| {
    let mut feed = Feed::new(input);
    let how = feed.byte();
    let tls = [TlsPolicy::Declined, TlsPolicy::Offered, TlsPolicy::Required][usize::from(how >> 2) % 3];
    match how & 1 {
        0 => server(ServerNegotiation::new(tls, how & 2 != 0), feed),
        _ => client(if how & 2 != 0 { ClientTls::Required } else { ClientTls::NotOffered }, feed),
    }
});

fn server(mut server: ServerNegotiation, mut feed: Feed<'_>) {
    let mut is_accepted = false;
    while !feed.is_empty() {
        let shape = feed.byte();
        let call_id = if shape & 1 != 0 { CONNECTION_CONTEXT_CALL_ID } else { NEGOTIATION_CALL_ID };
        let header = RequestHeader { call_id, ..RequestHeader::default() };
        let mut out = BytesMut::new();
        match server.advance(frame(&header, shape, &mut feed), &mut out) {
            Ok(Progress::Read) => check(&out),
            Ok(Progress::TlsRecords(records)) => {
                assert!(out.is_empty());
                server.tls_records(records, shape & 2 != 0, &mut out).unwrap();
                check(&out);
            }
            Ok(Progress::Verdict(credentials)) => {
                assert!(out.is_empty() && !credentials.user.is_empty());
                if shape & 4 != 0 {
                    server.refuse("no", &mut out);
                    return check(&out);
                }
                server.accept(&mut out);
                is_accepted = true;
                check(&out);
            }
            Ok(Progress::Done) => return assert!(is_accepted && out.is_empty()),
            Err(_) => {
                assert!(!out.is_empty(), "a refusal that is not told");
                return check(&out);
            }
        }
    }
}

fn client(tls: ClientTls, mut feed: Feed<'_>) {
    let mut out = BytesMut::new();
    let credentials = Credentials { user: "user".to_owned(), password: "password".to_owned() };
    let mut client = ClientNegotiation::start(credentials, tls, &mut out);
    assert_eq!(hello::decode(&mut out), Ok(true));
    check(&out);
    while !feed.is_empty() {
        let shape = feed.byte();
        let header = ResponseHeader {
            call_id: NEGOTIATION_CALL_ID,
            is_error: (shape & 1 != 0).then_some(true),
            sidecar_offsets: Vec::new(),
        };
        let mut out = BytesMut::new();
        match client.advance(frame(&header, shape, &mut feed), &mut out) {
            Ok(ClientProgress::Read) => check(&out),
            Ok(ClientProgress::Done) => return check(&out),
            Ok(ClientProgress::TlsRecords(records)) => {
                assert!(out.is_empty() && tls == ClientTls::Required);
                client.tls_records(records, &mut out).unwrap();
                if shape & 2 != 0 {
                    client.initiate(&mut out).unwrap();
                }
                check(&out);
            }
            Err(_) => return assert!(out.is_empty()),
        }
    }
}

/// A message that leads on, or of the fuzzer's bytes, in a frame.
fn frame(header: &impl prost::Message, shape: u8, feed: &mut Feed<'_>) -> Frame {
    let message = match usize::from(shape >> 3).checked_rem(MESSAGES.len() + 2) {
        Some(at) if at < MESSAGES.len() => MESSAGES[at],
        _ => feed.short(),
    };
    let mut bytes = BytesMut::new();
    encode_head(header, &(), message.len(), &mut bytes).unwrap();
    bytes.extend_from_slice(message);
    decode(&mut bytes, NEGOTIATION_FRAME_BYTES_MAX).unwrap().expect("a whole frame")
}

/// Whole frames, none of them beyond what the other side takes.
fn check(out: &[u8]) {
    let mut out = BytesMut::from(out);
    while !out.is_empty() {
        let Frame { header, .. } =
            decode(&mut out, NEGOTIATION_FRAME_BYTES_MAX).unwrap().expect("a whole frame");
        assert_ne!(header, Bytes::new());
    }
}
