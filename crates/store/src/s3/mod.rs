//! An S3-compatible store: whole objects by `GET`, `PUT`, `HEAD` and `DELETE`, and lists of them
//! (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations_Amazon_Simple_Storage_Service.html>).
//!
//! An object is put on nothing by `If-None-Match: *`, and on another by `If-Match` with its tag. A store that takes no heed of
//! these is found by [`examine`](crate::examine).

mod http;
mod sign;
mod tls;
mod xml;

pub use sign::Credentials;

use crate::bucket::{Body, Bucket, Expected, Listed, Sink};
use http::{Answer, Client, Endpoint};
use oribi_env::Clock;
use oribi_types::{Error, ErrorKind, Result};
use sign::{Request, authorization, encode, time_of};
use std::path::PathBuf;
use std::sync::Arc;

/// A single request puts no more (a limit of S3).
pub(crate) const OBJECT_BYTES_MAX: u64 = 5 << 30;

/// Where a bucket is, and who asks.
#[derive(Clone, Debug)]
pub struct S3Options {
    pub credentials: Credentials,
    pub region: String,
    /// `None`: Amazon's of the region.
    pub endpoint: Option<String>,
    /// PEM, for `https`.
    pub certificates: PathBuf,
}

pub struct S3Bucket {
    client: Client,
    clock: Arc<dyn Clock>,
    credentials: Credentials,
    region: String,
    bucket: String,
    /// Ends with a slash, or is empty.
    prefix: String,
    url: String,
}

impl S3Bucket {
    /// `prefix` is without slashes at its ends, and may be empty.
    ///
    /// # Errors
    /// `Invalid` for an endpoint that is none; `Forbidden` for one beyond loopback without TLS.
    pub fn open(bucket: &str, prefix: &str, options: S3Options, clock: Arc<dyn Clock>) -> Result<Self> {
        let S3Options { credentials, region, endpoint, certificates } = options;
        let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let endpoint = Endpoint::parse(&endpoint)?;
        let url = format!("s3://{bucket}/{prefix}");
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let client = Client::new(endpoint, &certificates)?;
        Ok(S3Bucket { client, clock, credentials, region, bucket: bucket.to_owned(), prefix, url })
    }

    fn ask(
        &self,
        (method, name, query): (&str, &str, &str),
        body: Body<'_>,
        condition: Option<(&'static str, &str)>,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Answer> {
        let path = match name {
            "" => format!("/{}", encode(&self.bucket, false)),
            name => {
                format!("/{}/{}", encode(&self.bucket, false), encode(&(self.prefix.clone() + name), true))
            }
        };
        let payload_digest = body.digest()?;
        let time = time_of(self.clock.now_micros());
        let mut headers = vec![
            ("host", self.client.endpoint.authority.clone()),
            ("x-amz-content-sha256", payload_digest.clone()),
            ("x-amz-date", time.clone()),
        ];
        headers.extend(condition.map(|(name, value)| (name, value.to_owned())));
        headers.extend(self.credentials.session_token.clone().map(|token| ("x-amz-security-token", token)));
        headers.sort();
        let request =
            Request { method, path: &path, query, headers: &headers, payload_digest: &payload_digest };
        let signature = authorization(&self.credentials, &self.region, &time, &request);
        let target = if query.is_empty() { path } else { format!("{path}?{query}") };
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        for (name, value) in &headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("authorization: {signature}\r\ncontent-length: {}\r\n", body.len()?));
        let answer = self.client.ask(&head, body, method == "HEAD", take)?;
        if (200..300).contains(&answer.status) { Ok(answer) } else { Err(refusal(name, &answer)) }
    }

    fn tag_of(name: &str, answer: Answer) -> Result<String> {
        answer.etag.ok_or_else(|| Error::invalid(format!("{name}: the store gives no ETag")))
    }
}

/// What an answer says that is no success.
fn refusal(name: &str, answer: &Answer) -> Error {
    let text = String::from_utf8_lossy(&answer.text);
    let said = |of| xml::first(&text, of).unwrap_or_default();
    let (code, message) = (said("Code"), said("Message"));
    let kind = match answer.status {
        404 if code == "NoSuchBucket" => ErrorKind::Invalid,
        404 => ErrorKind::NotFound,
        // The first: another request for the same object is under way, which may fail.
        409 if code == "ConditionalRequestConflict" => ErrorKind::Unavailable,
        409 | 412 => ErrorKind::Conflict,
        401 | 403 => ErrorKind::Forbidden,
        408 | 429 | 500.. => ErrorKind::Unavailable,
        _ => ErrorKind::Invalid,
    };
    Error::new(
        kind,
        format!("{name}: the store answers {} {code} {message}", answer.status).trim_end().to_owned(),
    )
}

const NOTHING: Body<'static> = Body::Bytes(&[]);

impl Bucket for S3Bucket {
    fn url(&self) -> &str {
        &self.url
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>> {
        let mut listed = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let after = token.as_ref().map(|token| format!("continuation-token={}&", encode(token, false)));
            let prefix = encode(&(self.prefix.clone() + prefix), false);
            let query = format!("{}list-type=2&prefix={prefix}", after.unwrap_or_default());
            let mut text = Vec::new();
            let what = ("GET", "", query.as_str());
            self.ask(what, NOTHING, None, &mut |part| {
                text.extend_from_slice(part);
                Ok(())
            })?;
            let page = xml::page(&String::from_utf8_lossy(&text))?;
            let own = |object: Listed| {
                let name = object.name.strip_prefix(&self.prefix)?.to_owned();
                Some(Listed { name, ..object })
            };
            listed.extend(page.objects.into_iter().filter_map(own));
            match page.next {
                None => break,
                Some(next) if token.as_ref() == Some(&next) => {
                    return Err(Error::invalid("the store's list does not go on"));
                }
                next => token = next,
            }
        }
        listed.sort();
        Ok(listed)
    }

    fn get(&self, name: &str, sink: &mut Sink<'_>) -> Result<String> {
        let mut at = 0;
        let answer = self.ask(("GET", name, ""), NOTHING, None, &mut |part| {
            sink(part, at)?;
            at += part.len() as u64;
            Ok(())
        })?;
        Self::tag_of(name, answer)
    }

    fn tag(&self, name: &str) -> Result<String> {
        Self::tag_of(name, self.ask(("HEAD", name, ""), NOTHING, None, &mut |_| Ok(()))?)
    }

    fn put(&self, name: &str, body: Body<'_>, expected: Expected<'_>) -> Result<String> {
        if body.len()? > OBJECT_BYTES_MAX {
            return Err(Error::too_large(format!("{name}: an object of a store has at most 5 GiB")));
        }
        let condition = match expected {
            Expected::Nothing => ("if-none-match", "*"),
            Expected::Tag(tag) => ("if-match", tag),
        };
        let answer = self.ask(("PUT", name, ""), body, Some(condition), &mut |_| Ok(()));
        match answer {
            // What was to be replaced is gone.
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::conflict(error.message())),
            answer => Self::tag_of(name, answer?),
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        match self.ask(("DELETE", name, ""), NOTHING, None, &mut |_| Ok(())) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
