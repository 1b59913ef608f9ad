//! Requests over HTTP on the key-value port.
//!
//! Go's and Java's SDKs take no cluster map whose nodes have no port for management, so the map names this one. What they need
//! of it to find that a bucket is ready is answered: `GET /`, and `GET /pools/default/buckets/BUCKET`. All else is not here, and
//! whoever asks for it is told so at once and need not find out by waiting.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

/// A longer head is no request of an SDK's.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// A request is answered once its body is there, lest the client miss the answer; longer bodies are not waited for.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// What the bytes are that begin no frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// The beginning of a request.
    Incomplete,
    /// A request, and the answer to it.
    Request {
        answer: String,
        /// Bytes of the request, behind which the next may begin; `None`: the connection ends behind the answer.
        len: Option<usize>,
    },
    /// A request whose answer takes a password to be hashed.
    ToCheck,
    Garbage,
}

type LetsIn<'n> = dyn Fn(&[u8], &[u8]) -> Option<bool> + 'n;

/// What a request is answered from.
pub struct Node<'n> {
    /// Whether these are a user's name and password; `None` if that cannot be found out here and now.
    pub lets_in: &'n LetsIn<'n>,
    pub is_open: bool,
    pub has_bucket: &'n dyn Fn(&str) -> bool,
}

/// Reads one request, and what drips in of it once.
#[derive(Debug, Default)]
pub struct Reader {
    /// So much of it has no end of a head.
    searched: usize,
    /// It is not whole with less.
    bytes_min: usize,
}

impl Reader {
    /// Looks at what begins no frame: all that has come of it.
    pub fn read(&mut self, input: &[u8], node: &Node<'_>) -> Asked {
        if !input.first().is_some_and(u8::is_ascii_uppercase) {
            return Asked::Garbage;
        }
        if input.len() < self.bytes_min {
            return Asked::Incomplete;
        }
        let head = &input[..input.len().min(HEAD_BYTES_MAX)];
        let Some(end) = memchr::memmem::find(&head[self.searched..], HEAD_END) else {
            // Some of the end may have come.
            self.searched = head.len().saturating_sub(HEAD_END.len() - 1);
            return if head.len() < HEAD_BYTES_MAX { Asked::Incomplete } else { Asked::Garbage };
        };
        let end = self.searched + end;
        let (asked, bytes_min) = read(input, end, node);
        self.bytes_min = bytes_min;
        asked
    }
}

const HEAD_END: &[u8] = b"\r\n\r\n";

/// Looks at a request whose head has so many bytes, and how many it must have to be whole.
fn read(input: &[u8], end: usize, node: &Node<'_>) -> (Asked, usize) {
    let garbage = (Asked::Garbage, 0);
    let Ok(head) = std::str::from_utf8(&input[..end]) else { return garbage };
    let (line, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let mut words = line.split(' ');
    let (Some(method), Some(path), Some(version @ ("HTTP/1.0" | "HTTP/1.1")), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return garbage;
    };
    let declared = header(headers, "content-length").map_or(0, |value| value.parse().unwrap_or(usize::MAX));
    let bytes_min = end + HEAD_END.len() + declared.min(BODY_BYTES_MAX);
    if input.len() < bytes_min {
        return (Asked::Incomplete, bytes_min);
    }
    let Some((status, body)) = answer(method, path, headers, node) else {
        return (Asked::ToCheck, bytes_min);
    };
    let body = if method == "HEAD" { String::new() } else { body.to_string() };
    let length = body.len();
    // Whoever guesses passwords pays for a connection each time.
    let stays = version == "HTTP/1.1"
        && declared <= BODY_BYTES_MAX
        && stays_open(headers)
        && !status.starts_with("401");
    let connection = if stays { "keep-alive" } else { "close" };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: {connection}\r\n\r\n{body}"
    );
    (Asked::Request { answer, len: stays.then_some(bytes_min) }, bytes_min)
}

/// Whether the next request may come over the same connection. SDKs put it there before they see that a connection ends.
fn stays_open(headers: &str) -> bool {
    let closes = header(headers, "connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    !closes && header(headers, "transfer-encoding").is_none()
}

fn header<'h>(headers: &'h str, name: &str) -> Option<&'h str> {
    let value = |line: &'h str| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    };
    headers.split("\r\n").find_map(value)
}

/// `None`: only somebody who may have a password hashed can tell.
fn answer(method: &str, path: &str, headers: &str, node: &Node<'_>) -> Option<(&'static str, Value)> {
    let is_get = matches!(method, "GET" | "HEAD");
    if is_get && path == "/" {
        return Some(("200 OK", json!({ "message": "the key-value service of oribi" })));
    }
    if !node.is_open && !is_user(headers, node)? {
        return Some(("401 Unauthorized", json!({ "message": "authenticate first" })));
    }
    Some(match path.strip_prefix("/pools/default/buckets/").and_then(decoded).filter(|_| is_get) {
        Some(bucket) if (node.has_bucket)(&bucket) => {
            ("200 OK", json!({ "name": bucket, "nodes": [{ "status": "healthy" }] }))
        }
        Some(bucket) => {
            ("404 Object Not Found", json!({ "message": format!("there is no bucket {bucket}") }))
        }
        None => {
            let message = format!("not supported by oribi: management, {method} {path}");
            ("501 Not Implemented", json!({ "message": message }))
        }
    })
}

fn is_user(headers: &str, node: &Node<'_>) -> Option<bool> {
    let basic = header(headers, "authorization").and_then(|value| value.strip_prefix("Basic "));
    let Some(plain) = basic.and_then(|text| BASE64.decode(text).ok()) else { return Some(false) };
    let Some(colon) = plain.iter().position(|byte| *byte == b':') else { return Some(false) };
    (node.lets_in)(&plain[..colon], &plain[colon + 1..])
}

/// The last component of a path; `None` if more follows.
fn decoded(component: &str) -> Option<String> {
    let mut parts = component.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok().filter(|name| !name.is_empty() && !component.contains(['/', '?']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8], is_open: bool) -> Asked {
        read_on(&mut Reader::default(), input, is_open)
    }

    fn read_on(reader: &mut Reader, input: &[u8], is_open: bool) -> Asked {
        let lets_in = |user: &[u8], password: &[u8]| Some(user == b"ann" && password == b"a:b");
        let has_bucket = |name: &str| name == "default" || name == "\u{e4} b";
        reader.read(input, &Node { lets_in: &lets_in, is_open, has_bucket: &has_bucket })
    }

    /// Status and body of the answer to a request.
    fn ask(request: &str, is_open: bool) -> (String, String) {
        let Asked::Request { answer, .. } = read(request.as_bytes(), is_open) else { panic!("{request:?}") };
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{answer}");
        (head.lines().next().unwrap()["HTTP/1.1 ".len()..].to_owned(), body.to_owned())
    }

    const CREATE: &str = "POST /pools/default/buckets HTTP/1.1\r\nContent-Length: 4\r\n\r\na=b&";

    #[test]
    fn management_is_refused_by_name() {
        assert_eq!(ask("GET / HTTP/1.1\r\nhost: x\r\n\r\n", false).0, "200 OK");
        assert_eq!(ask("HEAD / HTTP/1.1\r\n\r\n", true), ("200 OK".into(), String::new()));
        let (status, body) = ask(CREATE, true);
        assert_eq!(status, "501 Not Implemented");
        assert!(body.contains("management, POST /pools/default/buckets"), "{body}");
    }

    #[test]
    fn a_bucket_is_healthy_if_it_is_there() {
        let bucket = |name: &str| ask(&format!("GET /pools/default/buckets/{name} HTTP/1.1\r\n\r\n"), true);
        assert_eq!(bucket("default").1, r#"{"name":"default","nodes":[{"status":"healthy"}]}"#);
        assert_eq!(bucket("%C3%A4%20b").0, "200 OK");
        assert_eq!(bucket("nothing").0, "404 Object Not Found");
        for other in ["", "default/docs", "a%", "a%f", "%ff", "%+1"] {
            assert!(bucket(other).0.starts_with(['4', '5']), "{other:?}");
        }
    }

    #[test]
    fn whoever_has_users_tells_them_alone() {
        let bucket = |basic: &str| {
            let header = format!("authorization: Basic {}", BASE64.encode(basic));
            ask(&format!("GET /pools/default/buckets/default HTTP/1.1\r\n{header}\r\n\r\n"), false).0
        };
        assert_eq!(bucket("ann:a:b"), "200 OK");
        for wrong in ["ann:a", "ann", "", ":"] {
            assert_eq!(bucket(wrong), "401 Unauthorized");
        }
        assert_eq!(ask(CREATE, false).0, "401 Unauthorized");
    }

    #[test]
    fn the_next_request_comes_behind_a_whole_one() {
        let next = |request: &str| match read(request.as_bytes(), true) {
            Asked::Request { len, .. } => len,
            asked => panic!("{asked:?}"),
        };
        assert_eq!(next(&CREATE.repeat(2)), Some(CREATE.len()));
        assert_eq!(next("GET / HTTP/1.0\r\n\r\n"), None);
        assert_eq!(next("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n"), None);
        // Where the body ends is not told.
        assert_eq!(next("PUT /x HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"), None);
        let long =
            format!("PUT /x HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n{}", "x".repeat(BODY_BYTES_MAX));
        assert_eq!(next(&long), None);
    }

    #[test]
    fn a_request_cut_anywhere_is_waited_for() {
        for end in 1..CREATE.len() {
            assert_eq!(read(&CREATE.as_bytes()[..end], true), Asked::Incomplete, "{end}");
        }
    }

    #[test]
    fn what_drips_in_is_looked_at_once() {
        let (mut reader, mut looked_at) = (Reader::default(), 0);
        for end in 1..CREATE.len() {
            looked_at += end.saturating_sub(reader.searched.max(reader.bytes_min));
            assert_eq!(read_on(&mut reader, &CREATE.as_bytes()[..end], true), Asked::Incomplete, "{end}");
        }
        // Each byte, and the last three of what was searched before.
        assert!(looked_at <= 4 * CREATE.len(), "{looked_at}");
        assert!(matches!(read_on(&mut reader, CREATE.as_bytes(), true), Asked::Request { .. }));
    }

    #[test]
    fn a_password_is_checked_by_those_who_may() {
        let has_bucket = |_: &str| true;
        let ask = |head: &str, may: bool| {
            let lets_in = |_: &[u8], _: &[u8]| may.then_some(true);
            let node = Node { lets_in: &lets_in, is_open: false, has_bucket: &has_bucket };
            Reader::default().read(head.as_bytes(), &node)
        };
        let header = format!("authorization: Basic {}", BASE64.encode("ann:a"));
        let request = format!("GET /pools/default/buckets/default HTTP/1.1\r\n{header}\r\n\r\n");
        assert_eq!(ask(&request, false), Asked::ToCheck);
        assert!(matches!(ask(&request, true), Asked::Request { answer, .. } if answer.contains("healthy")));
        // There is nothing to hash.
        assert!(matches!(ask("GET / HTTP/1.1\r\n\r\n", false), Asked::Request { .. }));
        assert!(matches!(ask("GET /x HTTP/1.1\r\n\r\n", false), Asked::Request { .. }));
    }

    #[test]
    fn what_is_no_request_is_garbage() {
        let endless = format!("GET /{}", "x".repeat(HEAD_BYTES_MAX));
        for garbage in ["\0", "get / HTTP/1.1\r\n\r\n", "GET /\r\n\r\n", "GET / a HTTP/1.1\r\n\r\n", &endless]
        {
            assert_eq!(read(garbage.as_bytes(), true), Asked::Garbage, "{garbage:?}");
        }
        assert_eq!(read(b"GET /\xff HTTP/1.1\r\n\r\n", true), Asked::Garbage);
        // A body that is longer than anybody waits for.
        let endless = "PUT /x HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n".repeat(2000);
        assert_eq!(ask(&endless, true).0, "501 Not Implemented");
    }
}
