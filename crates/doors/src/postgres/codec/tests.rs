use super::*;
use bytes::BufMut;
use smallvec::smallvec;

const LIMIT: usize = 1024;

fn framed(tag: u8, body: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_u8(tag);
    out.put_i32(body.len() as i32 + 4);
    out.put_slice(body);
    out
}

/// Frames of every type whose body is decoded.
fn samples() -> Vec<(u8, Vec<u8>)> {
    vec![
        (b'Q', b"select 1\0".to_vec()),
        (b'P', b"s\0select $1\0\0\x01\0\0\0\x17".to_vec()),
        (b'B', b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x02hi\xff\xff\xff\xff\0\x01\0\x01".to_vec()),
        (b'D', b"Ss\0".to_vec()),
        (b'E', b"p\0\0\0\0\x0a".to_vec()),
        (b'C', b"Pp\0".to_vec()),
        (b'H', vec![]),
        (b'S', vec![]),
        (b'F', b"\0\0\0\x01\0\0\0\x01\0\0\0\x02hi\0\0".to_vec()),
    ]
}

/// Frames of the other types, which are what they are by their type.
fn bare() -> Vec<(u8, Vec<u8>)> {
    vec![(b'X', vec![]), (b'd', b"1\t2\n".to_vec()), (b'c', vec![]), (b'f', b"because\0".to_vec())]
}

#[test]
fn every_message_decodes() {
    let decoded: Vec<_> =
        samples().into_iter().map(|(tag, body)| format!("{:?}", decode(tag, &body).unwrap())).collect();
    assert_eq!(decoded[0], r#"Query("select 1")"#);
    assert_eq!(decoded[1], r#"Parse { name: "s", sql: "select $1", types: [23] }"#);
    assert_eq!(
        decode(b'B', &samples()[2].1).unwrap(),
        Message::Bind(Bind {
            portal: "p",
            statement: "s",
            parameter_formats: smallvec![1],
            parameters: smallvec![Some(&b"hi"[..]), None],
            result_formats: smallvec![1],
        })
    );
    assert_eq!(decode(b'E', &samples()[4].1).unwrap(), Message::Execute { portal: "p", rows_max: 10 });
    assert_eq!(decode(b'E', b"\0\xff\xff\xff\xff").unwrap(), Message::Execute { portal: "", rows_max: 0 });
}

#[test]
fn truncated_or_extended_bodies_are_refused() {
    for (tag, body) in samples() {
        for end in 0..body.len() {
            assert!(matches!(decode(tag, &body[..end]), Err(Malformed::Frame(_))), "{tag} cut at {end}");
        }
        let mut longer = body.clone();
        longer.push(7);
        assert!(matches!(decode(tag, &longer), Err(Malformed::Frame(_))), "{tag} with a byte too many");
    }
}

#[test]
fn text_that_is_no_utf8_is_told_from_a_malformed_frame() {
    assert_eq!(decode(b'Q', b"select '\xff'\0"), Err(Malformed::Text));
    assert_eq!(copy_failure(b"because\0"), Ok("because"));
    assert!(matches!(copy_failure(b"because"), Err(Malformed::Frame(_))));
}

#[test]
fn as_many_parameters_as_sixteen_bits_count_are_read() {
    let count = usize::from(u16::MAX);
    let parse = [&b"\0\0\xff\xff"[..], &vec![0; 4 * count]].concat();
    assert!(matches!(decode(b'P', &parse).unwrap(), Message::Parse { types, .. } if types.len() == count));
    let bind = [&b"\0\0\0\0\xff\xff"[..], &vec![0xff; 4 * count], &b"\0\0"[..]].concat();
    assert!(matches!(decode(b'B', &bind).unwrap(), Message::Bind(bind) if bind.parameters.len() == count));
}

#[test]
fn counts_beyond_the_frame_reserve_nothing() {
    assert!(decode(b'P', b"\0\0\xff\xff").is_err());
    assert!(decode(b'B', b"\0\0\0\0\xff\xff").is_err());
    assert!(decode(b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff\0\0").is_err());
}

#[test]
fn frames_are_taken_only_when_whole() {
    for (tag, body) in samples().into_iter().chain(bare()) {
        let whole = framed(tag, &body);
        for end in 0..whole.len() {
            let mut part = BytesMut::from(&whole[..end]);
            assert_eq!(take_frame(&mut part, LIMIT).unwrap(), None);
            assert_eq!(part.len(), end, "nothing is consumed");
        }
        let mut two = whole.clone();
        two.extend_from_slice(&whole);
        assert_eq!(take_frame(&mut two, LIMIT).unwrap(), Some((tag, Bytes::from(body.clone()))));
        assert_eq!(take_frame(&mut two, LIMIT).unwrap(), Some((tag, Bytes::from(body))));
        assert!(two.is_empty());
    }
}

#[test]
fn lengths_out_of_range_and_unknown_types_end_the_connection() {
    for header in [
        &b"S\0\0\x27\x11"[..],
        &b"Q\x7f\xff\xff\xff"[..],
        b"Q\xff\xff\xff\xff",
        b"Q\0\0\0\x03",
        b"\0",
        b"GET / HTTP/1.1",
    ] {
        let mut input = BytesMut::from(header);
        assert!(matches!(take_frame(&mut input, 1 << 20), Err(Malformed::Framing(_))), "{header:?}");
    }
    let mut input = BytesMut::from(&b"Q\0\0\x04\x01"[..]);
    assert!(matches!(take_frame(&mut input, LIMIT), Err(Malformed::Framing(_))));
}

fn packet(body: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_i32(body.len() as i32 + 4);
    out.put_slice(body);
    out
}

#[test]
fn startup_packets_decode() {
    let mut session = packet(b"\0\x03\0\x02user\0ada\0database\0db\0\0");
    assert_eq!(
        take_startup(&mut session).unwrap(),
        Some(Startup::Session {
            major: 3,
            minor: 2,
            parameters: vec![("user".into(), "ada".into()), ("database".into(), "db".into())],
        })
    );
    assert_eq!(take_startup(&mut packet(&80_877_103_i32.to_be_bytes())).unwrap(), Some(Startup::Ssl));
    assert_eq!(
        take_startup(&mut packet(&80_877_104_i32.to_be_bytes())).unwrap(),
        Some(Startup::GssEncryption)
    );
    let mut cancel = packet(b"\x04\xd2\x16\x2e\0\0\0\x07\0\0\0\x09");
    assert_eq!(take_startup(&mut cancel).unwrap(), Some(Startup::Cancel { pid: 7, secret: 9 }));
}

#[test]
fn startup_garbage_is_refused_and_a_part_waits() {
    for garbage in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\x7f\xff\xff\xff",
        b"\0\0\0\x03",
        &packet(b"\0\x03\0\0user"),
        &packet(b"\0\x03\0\0user\0ada\0"),
        &packet(b"\x04\xd2\x16\x2e\0\0\0\x07"),
        &packet(b""),
    ] {
        let mut input = BytesMut::from(garbage);
        assert!(matches!(take_startup(&mut input), Err(Malformed::Framing(_))), "{garbage:?}");
    }
    let whole = packet(b"\0\x03\0\0user\0ada\0\0");
    for end in 0..whole.len() {
        assert_eq!(take_startup(&mut BytesMut::from(&whole[..end])).unwrap(), None);
    }
}
