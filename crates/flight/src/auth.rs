//! Who may come in.
//!
//! Without a user everybody may, and what a client says of itself is passed over, as the PostgreSQL door does. With one, a client proves in a
//! handshake, or with any call, that it knows the password, and has a token for it; the token holds as long as the server runs.

use oribi_session::sql::SqlError;
use oribi_types::ErrorKind;
use ring::hmac;
use ring::rand::SystemRandom;
use tonic::metadata::MetadataMap;

/// The user who may come in.
#[derive(Clone)]
pub struct Credentials {
    pub user: String,
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The name of sessions where nobody is asked for one.
const ANYBODY: &str = "oribi";

pub struct Door {
    credentials: Option<Credentials>,
    key: hmac::Key,
}

impl Door {
    pub fn new(credentials: Option<Credentials>) -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .expect("the system has random numbers");
        Door { credentials, key }
    }

    /// The user whose call has these headers.
    ///
    /// # Errors
    /// 28000 for one without proof, 28P01 for a wrong password.
    pub fn user(&self, headers: &MetadataMap) -> Result<&str, SqlError> {
        let Some(credentials) = &self.credentials else { return Ok(ANYBODY) };
        let Some(proof) = headers.get("authorization").and_then(|value| value.to_str().ok()) else {
            return Err(refusal("28000", "the call has no authorization: log in with user and password"));
        };
        let is_right = match proof.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => self.is_token(token.trim()),
            Some((scheme, basic)) if scheme.eq_ignore_ascii_case("basic") => {
                self.is_password(credentials, basic.trim())
            }
            _ => false,
        };
        match is_right {
            true => Ok(&credentials.user),
            false => Err(refusal("28P01", "authentication failed: wrong user, password or token")),
        }
    }

    /// The value of the header that a client who has proved itself sends from now on.
    pub fn token(&self) -> String {
        let tag = hmac::sign(&self.key, TOKEN_OF);
        let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("Bearer {hex}")
    }

    fn is_token(&self, token: &str) -> bool {
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let tag: Option<Vec<u8>> = token.as_bytes().chunks(2).map(byte).collect();
        tag.is_some_and(|tag| hmac::verify(&self.key, TOKEN_OF, &tag).is_ok())
    }

    /// Compared by their sums under a key that nobody knows, so that how long it takes tells nothing.
    fn is_password(&self, credentials: &Credentials, basic: &str) -> bool {
        let told = base64_text(basic).unwrap_or_default();
        let right = format!("{}:{}", credentials.user, credentials.password);
        hmac::verify(&self.key, &told, hmac::sign(&self.key, right.as_bytes()).as_ref()).is_ok()
    }
}

/// What a token is the sum of.
const TOKEN_OF: &[u8] = b"flight token";

fn base64_text(text: &str) -> Option<Vec<u8>> {
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
    STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok()
}

fn refusal(sqlstate: &'static str, message: &str) -> SqlError {
    SqlError::new(ErrorKind::Unauthenticated, message).with_sqlstate(sqlstate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> MetadataMap {
        let mut headers = MetadataMap::new();
        headers.insert("authorization", value.parse().unwrap());
        headers
    }

    #[test]
    fn who_knows_the_password_has_a_token() {
        let credentials = Credentials { user: "ada".into(), password: "pass:word".into() };
        let door = Door::new(Some(credentials));
        let user = |value: &str| door.user(&headers(value)).map_err(|error| error.sqlstate());
        assert_eq!(user("Basic YWRhOnBhc3M6d29yZA=="), Ok("ada"));
        assert_eq!(user("basic YWRhOnBhc3M6d29yZA"), Ok("ada"));
        assert_eq!(user(&door.token()), Ok("ada"));
        for wrong in [
            "Basic YWRhOg==",
            "Basic !",
            "Bearer 00",
            "Bearer é",
            "Bearer",
            "Digest a",
            &Door::new(None).token(),
        ] {
            let Ok(value) = wrong.parse::<tonic::metadata::MetadataValue<_>>() else { continue };
            let mut headers = MetadataMap::new();
            headers.insert("authorization", value);
            assert!(door.user(&headers).is_err(), "{wrong}");
        }
        assert_eq!(door.user(&MetadataMap::new()).unwrap_err().sqlstate(), "28000");
        assert_eq!(Door::new(None).user(&headers("Basic whatever")).unwrap(), ANYBODY);
    }
}
