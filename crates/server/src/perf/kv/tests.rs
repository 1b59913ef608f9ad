use super::protocol::{Answer, Protocol};

/// Every prefix of an answer is not whole; the whole one has its kind and length.
fn check(protocol: Protocol, bytes: &[u8], expected: Answer) {
    for cut in 0..bytes.len() {
        assert_eq!(protocol.answer(&bytes[..cut]).unwrap(), None, "{protocol:?} {cut}");
    }
    let followed = [bytes, b"VALUE"].concat();
    assert_eq!(protocol.answer(&followed).unwrap(), Some((expected, bytes.len())), "{protocol:?}");
}

#[test]
fn answers_are_recognised_once_they_are_whole() {
    check(Protocol::Text, b"VALUE k 0 7\r\nEND\r\nhi\r\nEND\r\n", Answer::Hit);
    check(Protocol::Text, b"END\r\n", Answer::Miss);
    check(Protocol::Text, b"STORED\r\n", Answer::Stored);
    check(Protocol::Text, b"SERVER_ERROR out of memory\r\n", Answer::Error);
    check(Protocol::Meta, b"VA 4 f0\r\nEN\r\n\r\n", Answer::Hit);
    check(Protocol::Meta, b"EN\r\n", Answer::Miss);
    check(Protocol::Meta, b"HD\r\n", Answer::Stored);
    check(Protocol::Meta, b"CLIENT_ERROR bad\r\n", Answer::Error);
    let binary = |opcode: u8, status: u8, body: &[u8]| {
        let mut bytes = vec![0; 24];
        (bytes[0], bytes[1], bytes[7], bytes[11]) = (0x81, opcode, status, body.len() as u8);
        bytes.extend_from_slice(body);
        bytes
    };
    check(Protocol::Binary, &binary(0, 0, b"\0\0\0\0value"), Answer::Hit);
    check(Protocol::Binary, &binary(0, 1, b"Not found"), Answer::Miss);
    check(Protocol::Binary, &binary(1, 0, b""), Answer::Stored);
    check(Protocol::BinaryQuiet, &binary(0x11, 2, b""), Answer::Error);
    check(Protocol::BinaryQuiet, &binary(0x0a, 0, b""), Answer::End);
    assert!(Protocol::Binary.answer(b"ERROR\r\n").is_err(), "another protocol");
}

#[test]
fn requests_are_framed_as_the_protocols_say() {
    let mut out = Vec::new();
    Protocol::Text.get(b"k", &mut out);
    Protocol::Meta.set(b"k", b"value", &mut out);
    assert_eq!(out, b"get k\r\nms k 5\r\nvalue\r\n");
    out.clear();
    Protocol::BinaryQuiet.set(b"key", b"value", &mut out);
    assert_eq!(out.len(), 24 + 8 + 3 + 5);
    assert_eq!((out[1], out[3], out[4], out[11]), (0x11, 3, 8, 16));
    out.clear();
    Protocol::Couchbase.get(b"123456789", &mut out);
    assert_eq!((&out[..2], &out[24..]), (&[0x80, 0][..], &b"123456789"[..]));
    assert_eq!(u16::from_be_bytes([out[6], out[7]]), 0x3f4, "0xCBF43926 shifted by 16, of 1,024");
}
