//! The Kudu door with a certificate: what is said through TLS is what is said in plain text, whoever speaks.
#![allow(clippy::unwrap_used)]

mod kudu_client;

use bytes::{Bytes, BytesMut};
use kudu_client::{Client, Subject, scan, write};
use oribi_kudu::frame::{encode_request, hello};
use oribi_kudu::messages::master::{PingRequest, PingResponse};
use oribi_kudu::negotiation::{
    AuthenticationType, ConnectionContext, Feature, Negotiate, NegotiateStep, SaslMechanism,
};
use oribi_kudu::row_operations::OperationType;
use oribi_kudu::rpc::{
    CONNECTION_CONTEXT_CALL_ID, ErrorCode, ErrorStatus, NEGOTIATION_CALL_ID, RequestHeader,
};
use oribi_kudu::service::{MasterMethod, Method};
use oribi_net::TlsIdentity;
use prost::Message;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion, version};
use std::io::Write;
use std::net::Shutdown;
use std::sync::Arc;

const CERTIFICATE: &[u8] = include_bytes!("../../net/tests/tls/certificate.pem");
const PING: Method = Method::Master(MasterMethod::Ping);
const TLS: i32 = Feature::Tls as i32;
const AUTHENTICATION_ONLY: i32 = Feature::TlsAuthenticationOnly as i32;

fn subject() -> Subject {
    let key = include_bytes!("../../net/tests/tls/key.pem");
    Subject::with(Some(TlsIdentity::from_pem(CERTIFICATE, key).unwrap()))
}

fn lives(client: &mut Client) {
    client.try_call::<PingResponse>(PING, &PingRequest {}, &[]).unwrap();
}

fn session(version: &'static SupportedProtocolVersion) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(CERTIFICATE).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
}

fn framed(call_id: i32, message: &impl Message) -> BytesMut {
    let header = RequestHeader { call_id, ..RequestHeader::default() };
    let mut out = BytesMut::new();
    encode_request(&header, message, 0, &mut out).unwrap();
    out
}

fn step(step: NegotiateStep) -> Negotiate {
    Negotiate { step: step.into(), ..Negotiate::default() }
}

fn handshake(records: Vec<u8>) -> BytesMut {
    let step = Negotiate { tls_handshake: Some(records.into()), ..step(NegotiateStep::TlsHandshake) };
    framed(NEGOTIATION_CALL_ID, &step)
}

fn records(session: &mut ClientConnection) -> Vec<u8> {
    let mut records = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut records).unwrap();
    }
    records
}

fn answer(client: &mut Client) -> Result<Negotiate, ErrorStatus> {
    let (header, body) = client.answer();
    assert_eq!(header.call_id, NEGOTIATION_CALL_ID);
    if header.is_error() { Err(body.decode(100).unwrap()) } else { Ok(body.decode(100).unwrap()) }
}

/// Offers `features`; returns those that the server takes.
fn offer(client: &mut Client, features: &[i32]) -> Vec<i32> {
    let negotiate = Negotiate {
        supported_features: features.to_vec(),
        authn_types: vec![AuthenticationType::sasl()],
        ..step(NegotiateStep::Negotiate)
    };
    client.send(&[&hello::HELLO[..], &framed(NEGOTIATION_CALL_ID, &negotiate)].concat());
    answer(client).unwrap().supported_features
}

/// A client that has shaken hands and sent its last records, but those that `session` still holds.
fn shake_hands(client: &mut Client, session: &mut ClientConnection) {
    while session.is_handshaking() {
        client.send(&handshake(records(session)));
        let answer = answer(client).unwrap();
        let of_server = answer.tls_handshake.unwrap();
        let mut rest = &of_server[..];
        while !rest.is_empty() {
            session.read_tls(&mut rest).unwrap();
            session.process_new_packets().unwrap();
        }
    }
}

/// A client that has negotiated. Its last records of the handshake, the credentials behind them, are sent at once.
fn connect(subject: &Subject, features: &[i32], version: &'static SupportedProtocolVersion) -> Client {
    let mut client = Client::raw(subject.tserver_addr());
    let taken = offer(&mut client, features);
    assert_eq!(taken, features);
    let mut session = session(version);
    shake_hands(&mut client, &mut session);
    let initiate = Negotiate {
        token: Some(Bytes::from_static(b"\0ada\0")),
        sasl_mechanisms: vec![SaslMechanism { mechanism: "PLAIN".to_owned() }],
        ..step(NegotiateStep::SaslInitiate)
    };
    let initiate = framed(NEGOTIATION_CALL_ID, &initiate);
    let last = records(&mut session);
    let mut out = if last.is_empty() { BytesMut::new() } else { handshake(last) };
    if taken.contains(&AUTHENTICATION_ONLY) {
        out.extend_from_slice(&initiate);
        client.send(&out);
    } else {
        session.writer().write_all(&initiate).unwrap();
        out.extend_from_slice(&records(&mut session));
        client.send(&out);
        client.session = Some(session);
    }
    assert_eq!(answer(&mut client).unwrap(), step(NegotiateStep::SaslSuccess));
    client.send(&framed(CONNECTION_CONTEXT_CALL_ID, &ConnectionContext::default()));
    client
}

#[test]
fn rows_go_through_tls_both_ways() {
    const ROWS: i64 = 100_000;
    let subject = subject();
    for (name, version) in [("public.new", &version::TLS13), ("public.old", &version::TLS12)] {
        let mut client = connect(&subject, &[1, TLS], version);
        assert_eq!(client.session.as_ref().unwrap().protocol_version(), Some(version.version));
        let tablets = client.create(name, 1);
        // More than the sockets hold, in one frame each way.
        let text = "x".repeat(20);
        let rows: Vec<_> =
            (0..ROWS).map(|k| (OperationType::Insert, k, Some(k as i32), Some(&text[..]))).collect();
        let written = client.write(&write(&tablets[0], &rows));
        assert_eq!((written.error, written.per_row_errors.len()), (None, 0));
        let mut scanned = client.scan_all(scan(&tablets[0]), 8 << 20);
        scanned.sort_unstable();
        assert_eq!(scanned, (0..ROWS).map(|k| (k, Some(k as i32))).collect::<Vec<_>>());
    }
}

#[test]
fn many_answers_wait_for_a_client_that_does_not_read() {
    let subject = subject();
    let mut client = connect(&subject, &[1, TLS], &version::TLS13);
    let tablets = client.create("public.t", 1);
    let rows: Vec<_> = (0..50_000).map(|k| (OperationType::Insert, k, Some(1), None)).collect();
    client.write(&write(&tablets[0], &rows));
    let request = oribi_kudu::messages::tserver::ScanRequest {
        new_scan_request: Some(scan(&tablets[0])),
        batch_size_bytes: Some(8 << 20),
        ..Default::default()
    };
    let scan = Method::TabletServer(oribi_kudu::service::TabletServerMethod::Scan);
    let mut begun: Vec<i32> = (0..50).map(|_| client.begin(scan, &request, &[])).collect();
    let mut answered: Vec<i32> = begun.iter().map(|_| client.answer().0.call_id).collect();
    begun.sort_unstable();
    answered.sort_unstable();
    assert_eq!(answered, begun);
    lives(&mut client);
}

#[test]
fn on_one_machine_plain_text_follows_the_handshake() {
    let subject = subject();
    for version in [&version::TLS13, &version::TLS12] {
        let mut client = connect(&subject, &[1, TLS, AUTHENTICATION_ONLY], version);
        assert!(client.session.is_none());
        lives(&mut client);
    }
}

#[test]
fn who_does_not_ask_for_tls_does_without() {
    lives(&mut subject().client());
    // And a door without a certificate declines it.
    let subject = Subject::new();
    assert_eq!(offer(&mut Client::raw(subject.tserver_addr()), &[1, TLS, AUTHENTICATION_ONLY]), [1]);
}

#[test]
fn a_handshake_that_is_none_is_refused_with_the_reason() {
    let subject = subject();
    let huge = [&[0x16, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..], &[0; 16_380]].concat();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 60_000], &huge, b"\x15\x03\x03\0\x02\x02\x28"] {
        let mut client = Client::raw(subject.tserver_addr());
        offer(&mut client, &[1, TLS]);
        client.send(&handshake(garbage.to_vec()));
        let refused = answer(&mut client).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::FatalUnauthorized);
        assert!(refused.message.contains("TLS handshake"), "{}", refused.message);
        assert!(client.frame().is_none());
    }
    // Data behind the client's last records, but within the message that has those.
    let mut client = Client::raw(subject.tserver_addr());
    offer(&mut client, &[1, TLS]);
    let mut session = session(&version::TLS13);
    shake_hands(&mut client, &mut session);
    session.writer().write_all(b"data").unwrap();
    client.send(&handshake(records(&mut session)));
    assert!(answer(&mut client).unwrap_err().message.contains("data amid"));
    lives(&mut connect(&subject, &[1, TLS], &version::TLS13));
}

#[test]
fn half_a_handshake_holds_up_nobody() {
    let subject = subject();
    let half = |cut: usize| {
        let mut client = Client::raw(subject.tserver_addr());
        offer(&mut client, &[1, TLS]);
        let hello = records(&mut session(&version::TLS13));
        client.send(&handshake(hello[..hello.len().min(cut)].to_vec()));
        client
    };
    let mut waiting: Vec<Client> = (0..100).map(|i| half(i * 5)).collect();
    // Plain text where records are to come.
    let mut plain = half(usize::MAX);
    answer(&mut plain).unwrap();
    plain.send(&framed(NEGOTIATION_CALL_ID, &step(NegotiateStep::SaslInitiate)));
    assert_eq!(answer(&mut plain).unwrap_err().code(), ErrorCode::FatalUnauthorized);
    lives(&mut connect(&subject, &[1, TLS], &version::TLS13));
    for client in &mut waiting {
        client.socket.shutdown(Shutdown::Write).unwrap();
        while client.frame().is_some() {}
    }
}

#[test]
fn what_is_no_record_ends_a_connection_that_was_encrypted() {
    let subject = subject();
    let garbage = Bytes::from_static(b"hrpc\x09\0\0 and then some that is no record of TLS");
    for version in [&version::TLS13, &version::TLS12] {
        let mut client = connect(&subject, &[1, TLS], version);
        lives(&mut client);
        client.socket.write_all(&garbage).unwrap();
        // An alert, in plain bytes or through TLS, and the end.
        let mut session = client.session.take().unwrap();
        let mut received = Vec::new();
        let _ = std::io::Read::read_to_end(&mut client.socket, &mut received);
        assert!(received.len() < 100, "{received:?}");
        session.send_close_notify();
        lives(&mut connect(&subject, &[1, TLS], version));
    }
}

#[test]
fn the_end_is_told() {
    let subject = subject();
    let mut client = connect(&subject, &[1, TLS], &version::TLS13);
    lives(&mut client);
    drop(subject);
    // `None` for an end that TLS has told; another would be an error.
    assert!(client.frame().is_none());
}
