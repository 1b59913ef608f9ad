use super::*;
use proptest::prelude::*;

const LIMITS: CodecLimits = CodecLimits { key_bytes_max: 250, value_bytes_max: 1 << 20 };

fn frame(input: &str) -> Frame<'_> {
    decode(input.as_bytes(), &LIMITS)
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
    assert_eq!(frame(&"x".repeat(2049)), Frame::Fatal { answer: None });
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

#[test]
fn the_binary_protocol_is_refused_in_its_own_words() {
    let mut request = vec![binary::MAGIC, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
    assert_eq!(binary::refusal(&request), None);
    request.resize(24, 0);
    let answer = binary::refusal(&request).unwrap();
    assert_eq!(answer[..8], [0x81, 0x0a, 0, 0, 0, 0, 0, 0x81]);
    assert_eq!(answer[12..16], [1, 2, 3, 4]);
    assert_eq!(u32::from_be_bytes(answer[8..12].try_into().unwrap()) as usize, answer.len() - 24);
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
        match decode(input, &LIMITS) {
            Frame::Incomplete | Frame::Fatal { .. } => return,
            Frame::Request { len, .. } => input = &input[len..],
            Frame::Refused { len, skip, .. } => {
                assert!(len > 0);
                input = &input[(len as u64 + skip).min(input.len() as u64) as usize..];
            }
        }
    }
}
