//! How the library asks, and what its errors mean.
//!
//! It tells of a refusal by a kind of its own, which does not tell 409 from 412, and keeps the status to itself. So what a store
//! refuses ends here, as an error that the library does not know, and passes on.

use async_trait::async_trait;
use futures::StreamExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use object_store::{ClientOptions, HeaderValue};
use oribi_types::{Error, ErrorKind};
use std::error::Error as StdError;

/// Of what a store says of a refusal: read, and passed on.
const TEXT_BYTES_MAX: usize = 64 << 10;
const SAID_CHARS_MAX: usize = 300;

/// Makes the library's requests, each once.
#[derive(Debug)]
pub(super) struct OneAttempt;

impl HttpConnector for OneAttempt {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Asking(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct Asking(HttpClient);

#[async_trait]
impl HttpService for Asking {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if !request.headers().contains_key("authorization") {
            // It asks for credentials, of somebody else.
            return self.0.execute(request).await;
        }
        let is_completion = request.method() == "POST"
            && request.uri().query().is_some_and(|query| query.contains("uploadId="));
        if is_completion {
            // An object that comes in parts is put on nothing too, which the library does not offer.
            request.headers_mut().insert("if-none-match", HeaderValue::from_static("*"));
        }
        let answer = self.0.execute(request).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let (mut text, mut body) = (Vec::new(), answer.into_body().bytes_stream());
        while text.len() < TEXT_BYTES_MAX
            && let Some(Ok(part)) = body.next().await
        {
            text.extend_from_slice(&part);
        }
        let refusal = Refusal::read(status.as_u16(), &String::from_utf8_lossy(&text));
        Err(HttpError::new(HttpErrorKind::Unknown, refusal))
    }
}

/// What a store answers that does not do what it was asked.
#[derive(Debug)]
struct Refusal {
    status: u16,
    code: String,
    message: String,
}

impl Refusal {
    fn read(status: u16, text: &str) -> Self {
        let within = |name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>"))?;
            Some(rest.split_once(&format!("</{name}>"))?.0.chars().take(SAID_CHARS_MAX).collect::<String>())
        };
        let (code, message) = (within("Code").unwrap_or_default(), within("Message").unwrap_or_default());
        Refusal { status, code, message }
    }

    fn kind(&self) -> ErrorKind {
        match (self.status, self.code.as_str()) {
            (404, "NoSuchBucket") => ErrorKind::Invalid,
            (404, _) => ErrorKind::NotFound,
            (412, _) => ErrorKind::Conflict,
            (401 | 403, _) => ErrorKind::Forbidden,
            (501, _) => ErrorKind::Unsupported,
            // 409: another request for the same object is under way, which may fail.
            (408 | 409 | 429 | 500.., _) | (_, "RequestTimeout" | "SlowDown") => ErrorKind::Unavailable,
            _ => ErrorKind::Invalid,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Refusal { status, code, message } = self;
        f.write_str(format!("the store answers {status} {code} {message}").trim_end())
    }
}

impl StdError for Refusal {}

/// An error of the library's: what a store refuses by what it says; whatever else went wrong may be other the next time.
pub(super) fn error_of(error: object_store::Error) -> Error {
    use object_store::Error as Theirs;
    let mut causes = Vec::new();
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
    while let Some(of) = cause {
        if let Some(refusal) = of.downcast_ref::<Refusal>() {
            return Error::new(refusal.kind(), refusal.to_string());
        }
        causes.push(of);
        cause = of.source();
    }
    let kind = match error {
        Theirs::NotSupported { .. } | Theirs::NotImplemented { .. } => ErrorKind::Unsupported,
        Theirs::InvalidPath { .. } | Theirs::UnknownConfigurationKey { .. } => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable,
    };
    // The last says what has happened, those before that it has.
    let said = causes.last().map(ToString::to_string).unwrap_or_default();
    Error::new(kind, said.chars().take(SAID_CHARS_MAX).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_what_the_store_says() {
        let text = "<Error><Code>NoSuchBucket</Code><Message>there is none</Message></Error>";
        let refusal = Refusal::read(404, text);
        assert_eq!(refusal.to_string(), "the store answers 404 NoSuchBucket there is none");
        assert_eq!(refusal.kind(), ErrorKind::Invalid);
        for (status, text, kind) in [
            (404, "", ErrorKind::NotFound),
            (412, "<Code>", ErrorKind::Conflict),
            (409, "<Code>ConditionalRequestConflict</Code>", ErrorKind::Unavailable),
            (400, "<Code>RequestTimeout</Code>", ErrorKind::Unavailable),
            (400, "</Code><Code>", ErrorKind::Invalid),
            (503, "<Code>SlowDown</Code>", ErrorKind::Unavailable),
            (501, "", ErrorKind::Unsupported),
            (403, "", ErrorKind::Forbidden),
        ] {
            assert_eq!(Refusal::read(status, text).kind(), kind, "{status} {text}");
        }
    }
}
