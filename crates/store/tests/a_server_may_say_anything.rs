//! What a server answers that is no S3, or breaks off, is an error that says so: nothing is believed, and nobody waits for ever.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use oribi_env::Env;
use oribi_store::{Body, Bucket, Credentials, Expected, S3Bucket, S3Options};
use oribi_types::{ErrorKind, Result};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// A bucket whose server gives each connection one of these answers, and then ends it; and how often it was asked.
fn answering(answers: Vec<Vec<u8>>) -> (S3Bucket, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut socket, _) = listener.accept().unwrap();
            asked.push(request(&mut socket));
            let _ = socket.write_all(&answer);
        }
        asked
    });
    let credentials =
        Credentials { access_key: "who".into(), secret_key: "secret".into(), session_token: None };
    let options = S3Options {
        credentials,
        region: "us-east-1".into(),
        endpoint: Some(format!("http://{address}")),
        certificates: "/none".into(),
    };
    (S3Bucket::open("bucket", "some/prefix", options, Env::real().clock).unwrap(), serve)
}

/// A request with its body.
fn request(socket: &mut TcpStream) -> String {
    let (mut text, mut part) = (String::new(), [0; 1 << 10]);
    loop {
        let read = socket.read(&mut part).unwrap();
        assert!(read > 0);
        text.push_str(std::str::from_utf8(&part[..read]).unwrap());
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let (_, length) = head.rsplit_once("content-length: ").unwrap();
        if body.len() == length.parse::<usize>().unwrap() {
            return text;
        }
    }
}

fn get(bucket: &S3Bucket) -> Result<(Vec<u8>, String)> {
    let mut bytes = Vec::new();
    let tag = bucket.get("a", &mut |part, at| {
        assert_eq!(at as usize, bytes.len());
        bytes.extend_from_slice(part);
        Ok(())
    })?;
    Ok((bytes, tag))
}

#[test]
fn answers_of_each_form_are_read() {
    let (bucket, server) = answering(vec![
        b"HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello".to_vec(),
        b"HTTP/1.1 200 OK\r\nEtag: y\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nx: y\r\n\r\n"
            .to_vec(),
        b"HTTP/1.0 200 OK\netag: z\n\nhello".to_vec(),
        b"HTTP/1.1 412 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
        b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n".to_vec(),
    ]);
    for tag in ["\"x\"", "y", "z"] {
        assert_eq!(get(&bucket).unwrap(), (b"hello".to_vec(), tag.to_owned()));
    }
    let put = bucket.put("a b", Body::Bytes(b"body"), Expected::Tag("\"x\""));
    assert_eq!(put.unwrap_err().kind(), ErrorKind::Conflict);
    bucket.remove("a").unwrap();
    let asked = server.join().unwrap();
    assert!(asked[0].starts_with("GET /bucket/some/prefix/a HTTP/1.1\r\n"), "{}", asked[0]);
    assert!(asked[3].starts_with("PUT /bucket/some/prefix/a%20b HTTP/1.1\r\n"), "{}", asked[3]);
    assert!(asked[3].contains("\r\nif-match: \"x\"\r\n"), "{}", asked[3]);
    assert!(
        asked[3].contains("SignedHeaders=host;if-match;x-amz-content-sha256;x-amz-date,"),
        "{}",
        asked[3]
    );
    assert!(asked.iter().all(|request| !request.contains("secret")));
}

#[test]
fn what_is_no_answer_is_an_error() {
    let head = |rest: &str| format!("HTTP/1.1 200 OK\r\netag: x\r\n{rest}").into_bytes();
    let mut endless = head("");
    endless.resize(1 << 18, b'a');
    let unavailable = [
        Vec::new(),
        b"\r\n".to_vec(),
        b"HTTP/1.1\r\n\r\n".to_vec(),
        b"HTTP/1.1 2\xff0 OK\r\n\r\n".to_vec(),
        b"SSH-2.0-OpenSSH\r\n".to_vec(),
        head("Content-Length: 5\r\n\r\nhell"),
        head("Content-Length: 99999999999999999999\r\n\r\n"),
        head("Content-Length: -1\r\n\r\n"),
        head("Transfer-Encoding: gzip\r\n\r\n"),
        head("Transfer-Encoding: chunked\r\n\r\nx\r\n"),
        head("Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc"),
        head("Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n"),
        head("no colon\r\n\r\n"),
        endless,
        b"HTTP/1.1 503 Slow Down\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_vec(),
        b"HTTP/1.1 409 Conflict\r\nConnection: close\r\n\r\n<Error><Code>ConditionalRequestConflict</Code></Error>".to_vec(),
    ];
    let (bucket, server) = answering(unavailable.to_vec());
    for answer in &unavailable {
        let error = get(&bucket).map(|(bytes, _)| bytes.len()).unwrap_err();
        let said = String::from_utf8_lossy(&answer[..answer.len().min(80)]).into_owned();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{said:?}: {error}");
    }
    server.join().unwrap();
    assert_eq!(get(&bucket).unwrap_err().kind(), ErrorKind::Unavailable, "nobody is there");
}

#[test]
fn a_list_that_is_none_or_goes_round_is_an_error() {
    let page = |token: &str| {
        let text = format!(
            "<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>some/prefix/a</Key><Size>1</Size></Contents>\
             <NextContinuationToken>{token}</NextContinuationToken></ListBucketResult>"
        );
        format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}", text.len())
            .into_bytes()
    };
    let (bucket, server) = answering(vec![page("t/1"), page("t2"), page("t2")]);
    assert!(bucket.list("").unwrap_err().to_string().contains("does not go on"));
    let asked = server.join().unwrap();
    assert!(asked[0].starts_with("GET /bucket?list-type=2&prefix=some%2Fprefix%2F HTTP"), "{}", asked[0]);
    assert!(asked[1].starts_with("GET /bucket?continuation-token=t%2F1&list-type=2&"), "{}", asked[1]);
    let (bucket, _server) = answering(vec![b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>".to_vec()]);
    assert_eq!(bucket.list("").unwrap_err().kind(), ErrorKind::Invalid);
}
