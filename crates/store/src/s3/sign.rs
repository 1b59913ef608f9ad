//! Signatures of requests: AWS Signature Version 4
//! (<https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>).

use crate::bucket::hex;
use ring::digest::{SHA256, digest};
use ring::hmac::{HMAC_SHA256, Key, sign};

/// Who asks. Its debug form keeps the secret.
#[derive(Clone)]
pub struct Credentials {
    pub access_key: String,
    pub secret_key: String,
    /// Of credentials that end.
    pub session_token: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({})", self.access_key)
    }
}

/// A request as it is signed.
pub(super) struct Request<'a> {
    pub method: &'a str,
    /// Encoded.
    pub path: &'a str,
    /// Encoded, in the order of names.
    pub query: &'a str,
    /// In the order of names, which are in small letters.
    pub headers: &'a [(&'static str, String)],
    pub payload_digest: &'a str,
}

/// The value of `Authorization`, for a request at `time`, `20260102T030405Z`, which is among its headers.
pub(super) fn authorization(who: &Credentials, region: &str, time: &str, request: &Request<'_>) -> String {
    let date = &time[..8];
    let names = request.headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let headers: String =
        request.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let Request { method, path, query, payload_digest, .. } = request;
    let canonical = format!("{method}\n{path}\n{query}\n{headers}\n{names}\n{payload_digest}");
    let scope = format!("{date}/{region}/s3/aws4_request");
    let hashed = hex(digest(&SHA256, canonical.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashed}");
    let with = |key: &[u8], data: &str| sign(&Key::new(HMAC_SHA256, key), data.as_bytes());
    let mut key = with(format!("AWS4{}", who.secret_key).as_bytes(), date);
    for part in [region, "s3", "aws4_request"] {
        key = with(key.as_ref(), part);
    }
    let signature = hex(with(key.as_ref(), &text).as_ref());
    let credential = format!("{}/{scope}", who.access_key);
    format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}")
}

/// Microseconds since the Unix epoch as `20260102T030405Z`. Days to dates: Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", `civil_from_days`.
pub(super) fn time_of(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    let (days, of_day) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// As S3 has it: all but letters, digits, `-`, `.`, `_` and `~` in hexadecimal, and `/` too, unless it is to stay.
pub(super) fn encode(text: &str, keeps_slashes: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte as char),
            b'/' if keeps_slashes => encoded.push('/'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first example of the page above.
    #[test]
    fn a_request_is_signed_as_in_the_documentation() {
        let who = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: None,
        };
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let time = "20130524T000000Z";
        let headers = [
            ("host", "examplebucket.s3.amazonaws.com".to_owned()),
            ("range", "bytes=0-9".to_owned()),
            ("x-amz-content-sha256", empty.to_owned()),
            ("x-amz-date", time.to_owned()),
        ];
        let request =
            Request { method: "GET", path: "/test.txt", query: "", headers: &headers, payload_digest: empty };
        let signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        let said = authorization(&who, "us-east-1", time, &request);
        assert!(said.ends_with(&format!("Signature={signature}")), "{said}");
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time_of(0), "19700101T000000Z");
        assert_eq!(time_of(1_369_353_600_000_000), "20130524T000000Z");
        assert_eq!(time_of(951_827_696_000_000), "20000229T123456Z");
    }

    #[test]
    fn names_are_encoded() {
        assert_eq!(encode("a/b c~é", true), "a/b%20c~%C3%A9");
        assert_eq!(encode("a/b+", false), "a%2Fb%2B");
    }
}
