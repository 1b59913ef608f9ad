//! Frames against bytes written by hand, cut at every place.

use super::*;
use crate::messages::common::RowOperations;
use crate::messages::tserver::{RowOperationsAround, ScanResponse, WriteRequest};
use crate::rpc::{ErrorCode, ErrorStatus, RequestHeader, ResponseHeader};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use prost::Message;

/// A response to call 5 whose message is `10 07`, with sidecars `aa bb`, nothing, and `cc`.
const REPLY: &[u8] = b"\0\0\0\x0f\x08\x08\x05\x18\x02\x18\x04\x18\x04\x05\x10\x07\xaa\xbb\xcc";

fn open(bytes: &[u8]) -> Result<(ResponseHeader, Body), FrameError> {
    let mut input = BytesMut::from(bytes);
    decode(&mut input, FRAME_BYTES_MAX)?.expect("a whole frame").open()
}

/// A frame around a header and a body as they are.
fn framed(header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, (header.len() + body.len() + 2) as u8, header.len() as u8];
    bytes.extend(header);
    bytes.push(body.len() as u8);
    bytes.extend(body);
    bytes
}

#[test]
fn a_hello_may_come_byte_by_byte() {
    let mut input = BytesMut::new();
    for byte in &hello::HELLO[..6] {
        input.extend([*byte]);
        assert_eq!(hello::decode(&mut input), Ok(false));
    }
    // Its last two bytes say nothing.
    input.extend(*b"\x2a\x01");
    assert_eq!(hello::decode(&mut input), Ok(true));
    assert_eq!(&input[..], b"\x01");
}

#[test]
fn a_wrong_hello_is_refused_at_its_first_wrong_byte() {
    for wrong in [&b"G"[..], b"GET / HTTP/1.1", b"hrpd", b"hrpc\x08", b"hrpc\x08\0\0"] {
        assert_eq!(hello::decode(&mut BytesMut::from(wrong)), Err(FrameError::Hello));
    }
}

#[test]
fn a_frame_may_come_byte_by_byte() {
    let mut input = BytesMut::new();
    for byte in &REPLY[..REPLY.len() - 1] {
        input.extend([*byte]);
        assert_eq!(decode(&mut input, FRAME_BYTES_MAX), Ok(None));
    }
    input.extend(REPLY[REPLY.len() - 1..].iter().chain(REPLY));
    for left in [REPLY.len(), 0] {
        let frame = decode(&mut input, FRAME_BYTES_MAX).unwrap().unwrap();
        assert_eq!(input.len(), left);
        let (header, body) = frame.open::<ResponseHeader>().unwrap();
        assert_eq!(header.call_id, 5);
        assert_eq!(&body.message[..], b"\x10\x07");
        assert_eq!(body.sidecars, [&b"\xaa\xbb"[..], b"", b"\xcc"]);
        assert_eq!(body.sidecar(2), Some(&Bytes::from_static(b"\xcc")));
        assert_eq!((body.sidecar(3), body.sidecar(-1)), (None, None));
    }
    assert_eq!(decode(&mut input, FRAME_BYTES_MAX), Ok(None));
}

#[test]
fn what_is_decoded_shares_the_memory_of_what_was_read() {
    let mut input = BytesMut::from(REPLY);
    let sidecar = &input[REPLY.len() - 1] as *const u8;
    let (_, body) = decode(&mut input, FRAME_BYTES_MAX).unwrap().unwrap().open::<ResponseHeader>().unwrap();
    assert_eq!(body.sidecars[2].as_ptr(), sidecar);
}

#[test]
fn a_length_over_the_limit_is_refused_before_the_rest_comes() {
    let mut input = BytesMut::from(&b"\x03\x20\0\x01"[..]);
    let too_large = FrameError::TooLarge { len: FRAME_BYTES_MAX + 1, max: FRAME_BYTES_MAX };
    assert_eq!(decode(&mut input, FRAME_BYTES_MAX), Err(too_large));
    let mut input = BytesMut::from(&b"\x03\x20\0\0"[..]);
    assert_eq!(decode(&mut input, FRAME_BYTES_MAX), Ok(None));
    assert!(input.capacity() < 1000, "reserved for a length that is only claimed");
    let mut input = BytesMut::from(REPLY);
    assert_eq!(decode(&mut input, 14), Err(FrameError::TooLarge { len: 15, max: 14 }));
}

#[test]
fn lengths_within_a_frame_must_fit() {
    let header = FrameError::Truncated { part: "header" };
    let body = FrameError::Truncated { part: "body" };
    let overflow = FrameError::Overflow { part: "header" };
    let cases: [(&[u8], FrameError); 9] = [
        (b"\0\0\0\0", header.clone()),
        (b"\0\0\0\x01\x80", header.clone()),
        (b"\0\0\0\x02\x02\x08", header),
        (b"\0\0\0\x01\0", body.clone()),
        (b"\0\0\0\x03\0\x02\0", body),
        (b"\0\0\0\x03\0\0\0", FrameError::Trailing { len: 1 }),
        // 2^32, 2^35 in five bytes, and six bytes.
        (b"\0\0\0\x05\x80\x80\x80\x80\x10", overflow.clone()),
        (b"\0\0\0\x06\xff\xff\xff\xff\xff\x01", overflow.clone()),
        (b"\0\0\0\x07\x80\x80\x80\x80\x80\0\0", overflow),
    ];
    for (bytes, error) in cases {
        assert_eq!(decode(&mut BytesMut::from(bytes), FRAME_BYTES_MAX), Err(error), "{bytes:x?}");
    }
}

#[test]
fn sidecars_must_lie_in_the_body_one_after_the_other() {
    let cases: [(&[u8], usize, u32); 4] = [
        (b"\x08\x05\x18\x06", 0, 6),
        (b"\x08\x05\x18\x05\x18\x06", 1, 6),
        (b"\x08\x05\x18\x02\x18\x04\x18\x03", 2, 3),
        (b"\x08\x05\x18\xff\xff\xff\xff\x0f\x18\x03", 0, u32::MAX),
    ];
    for (header, index, offset) in cases {
        assert_eq!(
            open(&framed(header, b"\x10\x07\xaa\xbb\xcc")),
            Err(FrameError::Sidecar { index, offset })
        );
    }
    let (_, body) = open(&framed(b"\x08\x05\x18\0\x18\x05", b"\x10\x07\xaa\xbb\xcc")).unwrap();
    assert_eq!((body.message.len(), body.sidecars[0].len(), body.sidecars[1].len()), (0, 5, 0));
}

#[test]
fn sidecars_are_counted() {
    let frame = |count: usize| {
        let header = ResponseHeader { call_id: 1, is_error: None, sidecar_offsets: vec![2; count] };
        let mut bytes = BytesMut::new();
        encode_head(&header, &ErrorStatus::default(), 0, &mut bytes).unwrap();
        decode(&mut bytes, FRAME_BYTES_MAX).unwrap().unwrap().open::<ResponseHeader>()
    };
    assert_eq!(frame(SIDECARS_MAX).unwrap().1.sidecars.len(), SIDECARS_MAX);
    assert_eq!(frame(SIDECARS_MAX + 1), Err(FrameError::TooManySidecars { count: SIDECARS_MAX + 1 }));
    assert!(matches!(
        frame(3 * SIDECARS_MAX),
        Err(FrameError::Header(crate::MessageError::TooManySteps { .. }))
    ));
}

#[test]
fn a_reply_is_encoded_without_its_sidecars() {
    let sidecars = [Bytes::from_static(b"\xaa\xbb"), Bytes::new(), Bytes::from_static(b"\xcc")];
    let mut out = BytesMut::new();
    let message = ErrorStatus { message: String::new(), code: None, unsupported_feature_flags: vec![] };
    encode_reply(5, &message, &sidecars, &mut out).unwrap();
    // A required field is written even if it is empty: `0a 00`.
    assert_eq!(out.len() + 3, REPLY.len());
    out.extend(sidecars.concat());
    let (header, body) = open(&out).unwrap();
    assert_eq!((header.call_id, &body.message[..]), (5, &b"\x0a\0"[..]));
    assert_eq!(body.sidecars, sidecars);
}

#[test]
fn an_error_says_that_it_is_one() {
    let mut out = BytesMut::new();
    encode_error(-33, &ErrorStatus::new(ErrorCode::FatalUnauthorized, "no"), &mut out).unwrap();
    assert_eq!(
        &out[..],
        b"\0\0\0\x15\x0d\x08\xdf\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\x01\x06\x0a\x02no\x10\x0f"
    );
}

#[test]
fn a_frame_over_the_limit_is_not_encoded() {
    let mut out = BytesMut::new();
    let sidecar = Bytes::from(vec![0; FRAME_BYTES_MAX - 12]);
    let response = ScanResponse::default();
    // The header takes 2 + 5 bytes, the lengths 1 + 4.
    assert_eq!(encode_reply(1, &response, std::slice::from_ref(&sidecar), &mut out), Ok(()));
    let offsets = vec![Bytes::new(); SIDECARS_MAX + 1];
    let before = out.len();
    assert!(matches!(
        encode_reply(1, &response, &offsets, &mut out),
        Err(FrameError::TooManySidecars { .. })
    ));
    let sidecars = [sidecar, Bytes::from_static(&[0; 16])];
    assert!(matches!(encode_reply(1, &response, &sidecars, &mut out), Err(FrameError::TooLarge { .. })));
    let header = RequestHeader::default();
    assert!(matches!(
        encode_request(&header, &response, usize::MAX, &mut out),
        Err(FrameError::TooLarge { .. })
    ));
    assert_eq!(out.len(), before);
}

#[test]
fn rows_are_sent_from_where_they_lie() {
    for (rows_len, indirect_data_len) in [(0, 0), (31, 32), (127, 128), (16_383, 70_000)] {
        let (rows, indirect_data) = (Bytes::from(vec![1; rows_len]), Bytes::from(vec![2; indirect_data_len]));
        let around = RowOperationsAround::new(rows_len, indirect_data_len);
        let tail = [&around.before_rows[..], &rows, &around.before_indirect_data, &indirect_data].concat();
        let header = RequestHeader { call_id: 1, ..RequestHeader::default() };
        let mut write =
            WriteRequest { tablet_id: Bytes::from_static(b"t"), txn_id: Some(7), ..WriteRequest::default() };
        let mut out = BytesMut::new();
        encode_request(&header, &write, tail.len(), &mut out).unwrap();
        out.extend(tail);
        let (opened, body) =
            decode(&mut out, FRAME_BYTES_MAX).unwrap().unwrap().open::<RequestHeader>().unwrap();
        write.row_operations = Some(RowOperations { rows: Some(rows), indirect_data: Some(indirect_data) });
        assert_eq!((opened, body.decode(100)), (header, Ok(write)));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_frames_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        cut in any::<prop::sample::Index>(),
    ) {
        // Long enough lengths are rare in random bytes: make most of them fit.
        let mut bytes = bytes;
        if bytes.len() > 6 {
            let len = bytes.len() - 4;
            bytes[..4].copy_from_slice(&(len as u32).to_be_bytes());
            bytes[4] %= len as u8 / 2 + 1;
        }
        let mut input = BytesMut::from(&bytes[..cut.index(bytes.len() + 1)]);
        while let Ok(Some(frame)) = decode(&mut input, FRAME_BYTES_MAX) {
            if let Ok((header, body)) = frame.clone().open::<RequestHeader>() {
                let len: usize = body.sidecars.iter().map(Bytes::len).sum();
                prop_assert_eq!(body.message.len() + len, frame.body.len());
                prop_assert_eq!(body.sidecars.len(), header.sidecar_offsets.len());
            }
            let _ = frame.open::<ResponseHeader>();
        }
    }

    #[test]
    fn what_is_encoded_is_decoded(
        call_id in any::<i32>(),
        message in prop::collection::vec(any::<u8>(), 0..50),
        sidecars in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
    ) {
        let message = RowOperations { rows: Some(message.into()), indirect_data: None };
        let sidecars: Vec<Bytes> = sidecars.into_iter().map(Bytes::from).collect();
        let mut out = BytesMut::new();
        encode_reply(call_id, &message, &sidecars, &mut out).unwrap();
        out.extend(sidecars.concat());
        let (header, body) = open(&out).unwrap();
        prop_assert_eq!(header.call_id, call_id);
        prop_assert_eq!(RowOperations::decode(body.message), Ok(message));
        prop_assert_eq!(body.sidecars, sidecars);
    }
}
