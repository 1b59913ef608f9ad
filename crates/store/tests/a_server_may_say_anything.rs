//! What a server answers that is no S3, or breaks off, is an error that says so: nothing is believed, and nobody waits for ever.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use oribi_env::{File, Files, RealFiles};
use oribi_store::{Body, Bucket, Expected, S3Bucket, S3Options};
use oribi_types::{ErrorKind, Result};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A bucket whose server gives each connection one of these answers, and then ends it; and what it was asked.
fn answering(answers: Vec<Vec<u8>>) -> (S3Bucket, JoinHandle<Vec<String>>) {
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
    (bucket_at(&address.to_string()), serve)
}

/// The bucket of a server at this address.
fn bucket_at(address: &str) -> S3Bucket {
    let variables = [
        ("AWS_ACCESS_KEY_ID", "who"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_ENDPOINT_URL", &format!("http://{address}")),
        // Nobody has it forget what it is for.
        ("AWS_CONDITIONAL_PUT", "disabled"),
        ("AWS_SKIP_SIGNATURE", "true"),
        ("AWS_PROXY_URL", "http://192.0.2.1:9"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let options = S3Options { variables, certificates: Vec::new() };
    S3Bucket::open("bucket", "some/prefix", &options).unwrap()
}

/// A request with its body.
fn request(socket: &mut TcpStream) -> String {
    let (mut text, mut part) = (String::new(), vec![0; 1 << 16]);
    loop {
        let read = socket.read(&mut part).unwrap();
        assert!(read > 0, "{text}");
        text.push_str(std::str::from_utf8(&part[..read]).unwrap());
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() == length.map_or(0, |length| length.parse::<usize>().unwrap()) {
            return text;
        }
    }
}

fn answer(head: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").into_bytes()
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
fn objects_are_asked_for_by_whole_requests() {
    let (bucket, server) = answering(vec![
        answer("200 OK\r\nETag: \"x\"", "hello"),
        answer("200 OK\r\nEtag: y", "hello"),
        answer("412 No", ""),
        answer("404 No", ""),
        answer("200 OK\r\nETag: \"z\"", ""),
        answer("200 OK\r\nETag: \"z\"", ""),
    ]);
    for tag in ["\"x\"", "y"] {
        assert_eq!(get(&bucket).unwrap(), (b"hello".to_vec(), tag.to_owned()));
    }
    for _ in 0..2 {
        let put = bucket.put("a b", Body::Bytes(b"body"), Expected::Tag("\"x\""));
        assert_eq!(put.unwrap_err().kind(), ErrorKind::Conflict);
    }
    assert_eq!(bucket.put("a", Body::Bytes(b"body"), Expected::Nothing).unwrap(), "\"z\"");
    assert_eq!(bucket.tag("a").unwrap(), "\"z\"");
    let asked = server.join().unwrap();
    assert!(asked[0].starts_with("GET /bucket/some/prefix/a HTTP/1.1\r\n"), "{}", asked[0]);
    assert!(asked[2].starts_with("PUT /bucket/some/prefix/a%20b HTTP/1.1\r\n"), "{}", asked[2]);
    assert!(asked[2].contains("\r\nif-match: \"x\"\r\n"), "{}", asked[2]);
    assert!(asked[4].contains("\r\nif-none-match: *\r\n"), "{}", asked[4]);
    assert!(asked[5].starts_with("HEAD /bucket/some/prefix/a "), "{}", asked[5]);
    assert!(asked.iter().all(|request| request.contains("\r\nauthorization: AWS4-HMAC-SHA256 ")));
    assert!(asked.iter().all(|request| !request.contains("secret")));
}

#[test]
fn what_is_no_answer_is_an_error_and_each_request_is_made_once() {
    let head = |rest: &str| format!("HTTP/1.1 200 OK\r\netag: x\r\n{rest}").into_bytes();
    let mut endless = head("");
    endless.resize(1 << 20, b'a');
    let answers = [
        Vec::new(),
        b"\r\n".to_vec(),
        b"HTTP/1.1\r\n\r\n".to_vec(),
        b"SSH-2.0-OpenSSH\r\n".to_vec(),
        head("Content-Length: 5\r\n\r\nhell"),
        head("Content-Length: 99999999999999999999\r\n\r\n"),
        head("Content-Length: -1\r\n\r\n"),
        head("Transfer-Encoding: chunked\r\n\r\nx\r\n"),
        head("Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc"),
        head("no colon\r\n\r\n"),
        endless,
        answer("503 Slow Down", ""),
        answer("500 Internal", &"<".repeat(1 << 20)),
        answer("429 Too Many", ""),
        answer("409 Conflict", "<Error><Code>ConditionalRequestConflict</Code></Error>"),
        answer("409 Conflict", ""),
    ];
    let both: Vec<_> = answers.iter().flat_map(|answer| [answer.clone(), answer.clone()]).collect();
    let (bucket, server) = answering(both);
    for answer in &answers {
        let said = String::from_utf8_lossy(&answer[..answer.len().min(80)]).into_owned();
        let error = get(&bucket).map(|(bytes, _)| bytes.len()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{said:?}: {error}");
        // One that is told of by its head has come through.
        let is_put = said.contains("200 OK")
            && !said.contains(" -1")
            && !said.contains("9999")
            && !said.contains("no colon");
        match bucket.put("a", Body::Bytes(b"body"), Expected::Nothing) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{said:?}: {error}"),
            Ok(tag) => assert!(is_put && tag == "x", "{said:?}"),
        }
    }
    assert_eq!(server.join().unwrap().len(), 2 * answers.len());
    // A port that the system gives to nobody: one that is free again may be another test's by now.
    let nowhere = bucket_at("127.0.0.1:1");
    assert_eq!(get(&nowhere).unwrap_err().kind(), ErrorKind::Unavailable, "nobody is there");
}

#[test]
fn a_list_that_is_none_or_goes_round_is_an_error() {
    let page = |token: &str| {
        let text = format!(
            "<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>some/prefix/t/a</Key><Size>1</Size>\
             <LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag></Contents>\
             <NextContinuationToken>{token}</NextContinuationToken></ListBucketResult>"
        );
        answer("200 OK", &text)
    };
    let (bucket, server) = answering(vec![page("t/1"), page("t2")]);
    let error = bucket.list("t/").unwrap_err();
    assert!(error.to_string().contains("does not go on"), "{error}");
    let asked = server.join().unwrap();
    assert!(asked[0].contains("prefix=some%2Fprefix%2Ft%2F"), "{}", asked[0]);
    assert!(asked[1].contains("continuation-token=t%2F1"), "{}", asked[1]);
    let (bucket, _server) = answering(vec![answer("200 OK", "<html>")]);
    assert_eq!(bucket.list("t/").unwrap_err().kind(), ErrorKind::Unavailable);
}

fn file(bytes: usize) -> (tempfile::TempDir, Arc<dyn File>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![b'v'; bytes]).unwrap();
    let file = RealFiles.open(&path, false).unwrap();
    (dir, file)
}

#[test]
fn a_long_file_is_put_in_parts_where_there_is_none() {
    let begun = answer(
        "200 OK",
        "<InitiateMultipartUploadResult><UploadId>up</UploadId></InitiateMultipartUploadResult>",
    );
    let part = answer("200 OK\r\nETag: \"p\"", "");
    let done = answer(
        "200 OK",
        "<CompleteMultipartUploadResult><ETag>\"x-2\"</ETag></CompleteMultipartUploadResult>",
    );
    let (_dir, file) = file((8 << 20) + 1);
    let put = |answers: Vec<Vec<u8>>| {
        let (bucket, server) = answering(answers);
        let put = bucket.put("a", Body::File(&*file), Expected::Nothing);
        let asked = server.join().unwrap();
        let begins = asked.iter().map(|request| request.lines().next().unwrap().to_owned());
        (put, begins.collect::<Vec<_>>(), asked)
    };
    let none = answer("404 Not Found", "");
    let (told, begins, asked) =
        put(vec![none.clone(), begun.clone(), part.clone(), part.clone(), done.clone()]);
    assert_eq!(told.unwrap(), "\"x-2\"");
    assert!(begins[0].starts_with("HEAD ") && begins[1].starts_with("POST "), "{begins:?}");
    assert!(begins[2].contains("partNumber=1") && begins[3].contains("partNumber=2"), "{begins:?}");
    assert!(
        begins[4].contains("uploadId=up") && asked[4].contains("\r\nif-none-match: *\r\n"),
        "{}",
        asked[4]
    );
    // A part that fails is sent again, by its number.
    let failed = answer("500 No", "");
    let (told, begins, _) = put(vec![none.clone(), begun.clone(), part.clone(), failed, part.clone(), done]);
    assert_eq!(told.unwrap(), "\"x-2\"");
    assert!(
        begins[2].contains("partNumber=1") && begins[3..5].iter().all(|part| part.contains("partNumber=2")),
        "{begins:?}"
    );
    // There is one; there is one by now; somebody has aborted it. It is aborted where it has begun.
    let (told, begins, _) = put(vec![answer("200 OK\r\nETag: \"y\"", "")]);
    assert_eq!((told.unwrap_err().kind(), begins.len()), (ErrorKind::Conflict, 1));
    let refused =
        |status: &str| vec![none.clone(), begun.clone(), part.clone(), part.clone(), answer(status, "")];
    let aborted = answer("204 No Content", "");
    for (status, kind) in [("412 No", ErrorKind::Conflict), ("503 No", ErrorKind::Unavailable)] {
        let (told, begins, _) = put([refused(status), vec![aborted.clone()]].concat());
        assert_eq!(told.unwrap_err().kind(), kind);
        assert!(begins[5].starts_with("DELETE ") && begins[5].contains("uploadId=up"), "{begins:?}");
    }
    let lost = vec![none.clone(), begun.clone(), answer("404 No", "<Code>NoSuchUpload</Code>"), aborted];
    assert_eq!(put(lost).0.unwrap_err().kind(), ErrorKind::Unavailable);
}
