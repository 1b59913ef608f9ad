use super::binary::{BinaryFrame, Code, Command};
use super::*;
use proptest::prelude::*;

const LIMITS: CodecLimits = CodecLimits { key_bytes_max: 250, value_bytes_max: 1 << 20 };

fn frame(input: &str) -> Frame<'_> {
    decode(input.as_bytes(), &mut 0, &LIMITS)
}

/// The request that is the whole of `input`.
fn request(input: &str) -> Request<'_> {
    match frame(input) {
        Frame::Request { request, len } if len == input.len() => request,
        other => panic!("{input:?}: {other:?}"),
    }
}

/// The answer to `input`, all of which is refused.
fn refusal(input: &str) -> &'static str {
    match frame(input) {
        Frame::Refused { answer: Some(answer), len, skip: 0 } if len == input.len() => answer,
        other => panic!("{input:?}: {other:?}"),
    }
}

fn meta(input: &str) -> Meta<'_> {
    match request(input) {
        Request::Meta(meta) => meta,
        other => panic!("{input:?}: {other:?}"),
    }
}

#[test]
fn storage_commands_borrow_key_and_value() {
    let stored = |verb, value: &'static str, noreply| Request::Store {
        verb,
        key: b"k",
        flags: 7,
        exptime: -1,
        value: value.as_bytes(),
        noreply,
    };
    assert_eq!(request("set k 7 -1 3\r\nabc\r\n"), stored(StoreVerb::Set, "abc", false));
    assert_eq!(request("add k 7 -1 0 noreply\r\n\r\n"), stored(StoreVerb::Add, "", true));
    assert_eq!(request("replace k 7 -1 4\n\r\n\r\n\r\n"), stored(StoreVerb::Replace, "\r\n\r\n", false));
    assert_eq!(request("  append  k 7 -1 1 \r\nx\r\n"), stored(StoreVerb::Append, "x", false));
    assert_eq!(request("prepend k 7 -1 1 other\r\nx\r\n"), stored(StoreVerb::Prepend, "x", false));
    assert_eq!(request("cas k 7 -1 1 99 noreply\r\nx\r\n"), stored(StoreVerb::Cas(99), "x", true));
}

#[test]
fn retrieval_commands_take_any_number_of_keys() {
    let Request::Get { keys, with_cas: false } = request("get a  bb ccc\r\n") else { panic!() };
    assert_eq!(keys.collect::<Vec<_>>(), [&b"a"[..], b"bb", b"ccc"]);
    let Request::GetAndTouch { keys, with_cas: true, exptime: 30 } = request("gats 30 a\r\n") else {
        panic!()
    };
    assert_eq!(keys.count(), 1);
    let many = format!("get{}\r\n", " key".repeat(100_000));
    let Request::Get { keys, .. } = request(&many) else { panic!() };
    assert_eq!(keys.count(), 100_000);
}

#[test]
fn other_commands() {
    assert_eq!(request("incr k 5\r\n"), Request::Count { key: b"k", down: false, delta: 5, noreply: false });
    assert_eq!(
        request("decr k 18446744073709551615 noreply\r\n"),
        Request::Count { key: b"k", down: true, delta: u64::MAX, noreply: true }
    );
    assert_eq!(request("touch k 10\r\n"), Request::Touch { key: b"k", exptime: 10, noreply: false });
    assert_eq!(request("delete k\r\n"), Request::Delete { key: b"k", noreply: false });
    assert_eq!(request("delete k 0\r\n"), Request::Delete { key: b"k", noreply: false });
    assert_eq!(request("delete k 0 noreply\r\n"), Request::Delete { key: b"k", noreply: true });
    assert_eq!(request("flush_all\r\n"), Request::FlushAll { exptime: 0, noreply: false });
    assert_eq!(request("flush_all noreply\r\n"), Request::FlushAll { exptime: 0, noreply: true });
    assert_eq!(request("flush_all 5 noreply\r\n"), Request::FlushAll { exptime: 5, noreply: true });
    assert_eq!(request("stats  items \r\n"), Request::Stats { topic: b"items" });
    assert_eq!(request("verbosity 1\r\n"), Request::Verbosity { noreply: false });
    assert_eq!(request("version\r\n"), Request::Version);
    assert_eq!(request("quit\n"), Request::Quit);
    assert_eq!(request("mn\r\n"), Request::Mark);
}

#[test]
fn malformed_lines_get_memcacheds_answers() {
    for line in
        ["\r\n", "x\r\n", "get\r\n", "set k 0 0\r\n", "set k 0 0 1 noreply x\r\n", "GET k\r\n", "mx k\r\n"]
    {
        assert_eq!(refusal(line), ERROR, "{line:?}");
    }
    for line in [
        "incr k\r\n",
        "touch k\r\n",
        "delete\r\n",
        "delete k 0 noreply x\r\n",
        "flush_all 1 2 3\r\n",
        "mg\r\n",
    ] {
        assert_eq!(refusal(line), ERROR, "{line:?}");
    }
    let long = "k".repeat(251);
    for line in
        ["set k x 0 1\r\n", "set k 0 0 -1\r\n", "set k 0 0 2147483647\r\n", "cas k 0 0 1 x\r\n", "ms k\r\n"]
    {
        assert_eq!(refusal(line), BAD_FORMAT, "{line:?}");
    }
    for line in
        [format!("get a {long}\r\n"), format!("delete {long}\r\n"), format!("mg {long}\r\n"), "me\r\n".into()]
    {
        assert_eq!(refusal(&line), BAD_FORMAT, "{line:?}");
    }
    assert_eq!(refusal("incr k -1\r\n"), "CLIENT_ERROR invalid numeric delta argument");
    assert_eq!(refusal("touch k x\r\n"), INVALID_EXPTIME);
    assert_eq!(refusal("set k 0 0 2\r\nabcd"), BAD_CHUNK);
}

#[test]
fn a_request_is_whole_or_nothing() {
    let input = "set k 0 0 3\r\nabc\r\n";
    for end in 0..input.len() {
        assert_eq!(frame(&input[..end]), Frame::Incomplete, "{end}");
    }
    assert_eq!(frame("get a\r"), Frame::Incomplete);
}

#[test]
fn what_is_too_large_is_skipped_without_waiting_for_it() {
    let huge = "set k 0 0 2000000000\r\n";
    let expected = |answer, len| Frame::Refused { answer, len, skip: 2_000_000_002 };
    assert_eq!(frame(huge), expected(Some(TOO_LARGE), huge.len()));
    let quiet = "set k 0 0 2000000000 noreply\r\nabc";
    assert_eq!(frame(quiet), expected(None, quiet.len() - 3));
    let meta = "ms k 2000000000 q\r\n";
    assert_eq!(frame(meta), expected(Some(TOO_LARGE), meta.len()));
    let edge = format!("set k 0 0 {}\r\n", 1 << 20);
    assert_eq!(frame(&edge), Frame::Incomplete);
}

#[test]
fn endless_lines_end_the_connection() {
    assert_eq!(frame(&"x".repeat(2048)), Frame::Incomplete);
    assert_eq!(frame(&"x".repeat(2049)), Frame::Fatal { answer: Some(LINE_TOO_LONG) });
    // Whether or not its end is there.
    assert_eq!(
        frame(&format!("set{}k 0 0 1\r\n", " ".repeat(2048))),
        Frame::Fatal { answer: Some(LINE_TOO_LONG) }
    );
    let long_keys = CodecLimits { key_bytes_max: 4000, ..LIMITS };
    let line = format!("delete {}\r\n", "k".repeat(4000));
    assert!(matches!(decode(line.as_bytes(), &mut 0, &long_keys), Frame::Request { .. }));
    assert_eq!(frame(&format!("get {}", "k ".repeat(10_000))), Frame::Incomplete);
    assert!(matches!(frame(&format!("get {}", "k ".repeat(600_000))), Frame::Fatal { answer: Some(_) }));
    assert_eq!(frame("POST / HTTP/1.1\r\n"), Frame::Fatal { answer: None });
}

#[test]
fn meta_flags_are_read_with_their_tokens() {
    let get = meta("mg key s v O123 T30 N60 R5 k q\r\n");
    assert_eq!((get.verb, &*get.key), (MetaVerb::Get, &b"key"[..]));
    assert_eq!((get.flags.ttl, get.flags.vivify, get.flags.refresh), (Some(30), Some(60), Some(5)));
    assert!(get.flags.value && get.flags.quiet);
    assert_eq!(get.flags.words().collect::<Vec<_>>()[2], b"O123");

    let set = meta("ms key 2 F7 C99 I MA c\r\nhi\r\n");
    assert_eq!((set.verb, set.value), (MetaVerb::Set, &b"hi"[..]));
    assert_eq!((set.flags.client_flags, set.flags.cas), (7, Some(99)));
    assert_eq!((set.flags.invalidate, set.flags.mode), (true, Some(b'A')));

    let count = meta("ma n J13 D2 MD N0\r\n");
    assert_eq!((count.flags.initial, count.flags.delta, count.flags.mode), (13, 2, Some(b'D')));
    assert_eq!(meta("ma n\r\n").flags.delta, 1);
    assert_eq!(meta("md k\r\n").verb, MetaVerb::Delete);
    assert_eq!(meta("me k\r\n").verb, MetaVerb::Debug);
}

#[test]
fn keys_may_come_as_base64() {
    let get = meta("mg AP8= b k v\r\n");
    assert_eq!(&*get.key, b"\x00\xff");
    let mut out = Vec::new();
    answer::key_flag(&get.key, get.flags.base64, &mut out);
    assert_eq!(out, b" kAP8= b");
    assert_eq!(refusal("mg *** b\r\n"), "CLIENT_ERROR error decoding key");
    assert_eq!(&*meta("me AP8= b\r\n").key, b"\x00\xff");
}

#[test]
fn malformed_flags_get_memcacheds_answers() {
    assert_eq!(refusal("mg k v v\r\n"), DUPLICATE);
    assert_eq!(refusal("mg k !\r\n"), INVALID);
    assert_eq!(refusal("mg k E5\r\n"), INVALID);
    assert_eq!(refusal("mg k Tx\r\n"), "CLIENT_ERROR bad token in command line format");
    assert_eq!(refusal("md k Tx\r\n"), "CLIENT_ERROR invalid or duplicate flag");
    assert_eq!(refusal("ma k Mx\r\n"), "CLIENT_ERROR invalid mode for ma M token");
    assert_eq!(refusal(&format!("mg k O{}\r\n", "x".repeat(32))), "CLIENT_ERROR opaque token too long");
    assert_eq!(refusal(&format!("mg k{}\r\n", " v".repeat(18))), "CLIENT_ERROR options flags are too long");
    let skipped = |answer| Frame::Refused { answer: Some(answer), len: 10, skip: 5 };
    assert_eq!(frame("ms k 3 MX\n"), skipped("CLIENT_ERROR invalid mode for ms M token"));
    assert_eq!(frame("ms k 3 C-\n"), skipped("CLIENT_ERROR bad token in command line format"));
}

const DUPLICATE: &str = "CLIENT_ERROR duplicate flag";
const INVALID: &str = "CLIENT_ERROR invalid flag";

/// A binary request.
fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = [extras, key, value].concat();
    let mut bytes = vec![binary::MAGIC, opcode, 0, key.len() as u8, extras.len() as u8, 0, 0, 0];
    bytes.extend((body.len() as u32).to_be_bytes());
    bytes.extend([1, 2, 3, 4]);
    bytes.extend(9u64.to_be_bytes());
    [bytes, body].concat()
}

#[test]
fn binary_requests_are_read_by_opcode_and_extras() {
    let command = |opcode, extras: &[u8], key: &[u8], value: &[u8]| {
        let bytes = packet(opcode, extras, key, value);
        match binary::decode(&bytes, &LIMITS) {
            BinaryFrame::Request { request, len } if len == bytes.len() => {
                assert_eq!((request.key, request.value, request.header.cas), (key, value, 9));
                (request.command, request.quiet)
            }
            other => panic!("{opcode:#x}: {other:?}"),
        }
    };
    let (exptime, eight) = ([0, 0, 0, 100], [0, 0, 0, 7, 0, 0, 0, 100]);
    let mut twenty = [0; 20];
    (twenty[7], twenty[15]) = (5, 6);
    let store = |verb| Command::Store { verb, flags: 7, exptime: 100 };
    let touch = |with_key, with_value| Command::GetAndTouch { with_key, with_value, exptime: 100 };
    let append = Command::Store { verb: StoreVerb::Append, flags: 0, exptime: 0 };
    let count = |exptime| Command::Count { down: true, delta: 5, initial: 6, exptime };
    assert_eq!(command(0x00, b"", b"k", b""), (Command::Get { with_key: false }, false));
    assert_eq!(command(0x0d, b"", b"k", b""), (Command::Get { with_key: true }, true));
    assert_eq!(command(0x01, &eight, b"k", b"v"), (store(StoreVerb::Set), false));
    assert_eq!(command(0x12, &eight, b"k", b""), (store(StoreVerb::Add), true));
    assert_eq!(command(0x03, &eight, b"k", b"v"), (store(StoreVerb::Replace), false));
    assert_eq!(command(0x19, b"", b"k", b"v"), (append, true));
    assert_eq!(command(0x06, &twenty, b"k", b""), (count(Some(0)), false));
    twenty[16..].fill(0xff);
    assert_eq!(command(0x16, &twenty, b"k", b""), (count(None), true));
    assert_eq!(command(0x1c, &exptime, b"k", b""), (touch(false, false), false));
    assert_eq!(command(0x1e, &exptime, b"k", b""), (touch(false, true), true));
    assert_eq!(command(0x23, &exptime, b"k", b""), (touch(true, true), false));
    assert_eq!(command(0x14, b"", b"k", b""), (Command::Delete, true));
    assert_eq!(command(0x08, b"", b"", b""), (Command::FlushAll { exptime: 0 }, false));
    assert_eq!(command(0x18, &exptime, b"", b""), (Command::FlushAll { exptime: 100 }, true));
    assert_eq!(command(0x10, b"", b"items", b""), (Command::Stats, false));
    assert_eq!(command(0x17, b"", b"", b""), (Command::Quit, true));
}

#[test]
fn what_is_no_binary_request_is_taken_away_exactly() {
    let refusal = |bytes: &[u8]| match binary::decode(bytes, &LIMITS) {
        BinaryFrame::Refused { code, len, .. } => (code, len),
        other => panic!("{other:?}"),
    };
    let long = [b'k'; 251];
    for (opcode, extras, key, value) in [
        (0x00, &b""[..], &b""[..], &b""[..]),
        (0x00, b"1234", b"k", b""),
        (0x00, b"", b"k", b"v"),
        (0x00, b"", &long, b""),
        (0x01, b"1234567", b"k", b"v"),
        (0x01, b"12345678", b"", b"v"),
        (0x05, b"12345678", b"k", b""),
        (0x0a, b"", b"", b"v"),
        (0x1b, b"", b"", b""),
    ] {
        let bytes = packet(opcode, extras, key, value);
        assert_eq!(refusal(&bytes), (Code::InvalidArguments, bytes.len() as u64), "{opcode:#x}");
    }
    for opcode in [0x20, 0x21, 0x77, 0xff] {
        let bytes = packet(opcode, b"ext", b"key", b"value");
        assert_eq!(refusal(&bytes), (Code::UnknownCommand, bytes.len() as u64), "{opcode:#x}");
    }
    let mut huge = packet(0x01, b"12345678", b"k", b"v");
    huge[8..12].copy_from_slice(&2_000_000_009u32.to_be_bytes());
    assert_eq!(refusal(&huge[..24]), (Code::TooLarge, 2_000_000_033));
    huge[1] = 0x77;
    assert_eq!(refusal(&huge[..24]), (Code::UnknownCommand, 2_000_000_033));
    let fatal = |bytes: &[u8]| matches!(binary::decode(bytes, &LIMITS), BinaryFrame::Fatal { .. });
    assert!(fatal(b"get a\r\n") && fatal(&[0x08]));
    let mut torn = packet(0x00, b"", b"key", b"");
    torn[11] = 2;
    assert!(fatal(&torn));
}

#[test]
fn a_line_that_drips_in_is_searched_once() {
    let line = format!("get {}\r\n", "k ".repeat(5000));
    let (mut searched, mut looked_at) = (0, 0);
    for end in 1..line.len() {
        looked_at += end - searched;
        assert_eq!(decode(&line.as_bytes()[..end], &mut searched, &LIMITS), Frame::Incomplete);
    }
    assert_eq!(looked_at, line.len() - 1);
    assert!(matches!(decode(line.as_bytes(), &mut searched, &LIMITS), Frame::Request { .. }));
    // What is known to have no end is not looked at.
    assert_eq!(decode(b"get k\r\nxx", &mut 8, &LIMITS), Frame::Incomplete);
    // While a value is waited for, the line before it stays found.
    let (request, mut searched) = (b"set k 0 0 5\r\nva\nue\r\n", 0);
    for end in 1..request.len() {
        assert_eq!(decode(&request[..end], &mut searched, &LIMITS), Frame::Incomplete);
    }
    assert!(matches!(decode(request, &mut searched, &LIMITS), Frame::Request { .. }));
}

#[test]
fn errors_stay_on_their_line() {
    let mut out = Vec::new();
    answer::error("CLIENT_ERROR", "two\r\nlines", &mut out);
    assert_eq!(out, b"CLIENT_ERROR two  lines\r\n");
}

proptest! {
    /// Whatever arrives, decoding makes progress or waits, and stays within the input.
    #[test]
    fn any_bytes_are_decoded_or_refused(input in proptest::collection::vec(any::<u8>(), 0..4096)) {
        walk(&input);
    }

    #[test]
    fn any_words_are_decoded_or_refused(
        lines in proptest::collection::vec("(get|set|ms|mg|ma|md|cas|gat|incr|stats|delete)( [a-zA-Z0-9=-]{0,8}){0,6}\r?\n", 0..20)
    ) {
        walk(lines.concat().as_bytes());
    }
}

fn walk(mut input: &[u8]) {
    loop {
        match decode(input, &mut 0, &LIMITS) {
            Frame::Incomplete | Frame::Fatal { .. } => return,
            Frame::Request { len, .. } => input = &input[len..],
            Frame::Refused { len, skip, .. } => {
                assert!(len > 0);
                input = &input[(len as u64 + skip).min(input.len() as u64) as usize..];
            }
        }
    }
}
