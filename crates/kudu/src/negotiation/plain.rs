//! The mechanism PLAIN of SASL (RFC 4616): a name and a password as they are.

use super::NegotiationError;
use bytes::Bytes;
use std::fmt;

/// Its name.
pub(super) const PLAIN: &str = "PLAIN";

/// Who says to be there, and how that is proven. Kudu's clients send the name of the system's user and no
/// password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Credentials {
    /// The message: nobody to act for, the user, the password, and a zero byte between each two.
    pub(super) fn encode(&self) -> Bytes {
        Bytes::from(["", &self.user, &self.password].join("\0"))
    }

    pub(super) fn decode(message: &[u8]) -> Result<Self, NegotiationError> {
        let refuse = |why: &str| NegotiationError::Unauthorized(format!("PLAIN: {why}"));
        let text = std::str::from_utf8(message).map_err(|_| refuse("message is not UTF-8"))?;
        let mut fields = text.split('\0');
        let (Some(acts_for), Some(user), Some(password), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(refuse("message has not three fields"));
        };
        if user.is_empty() {
            return Err(refuse("user has no name"));
        }
        if !acts_for.is_empty() && acts_for != user {
            return Err(refuse("nobody may act for somebody else"));
        }
        Ok(Credentials { user: user.to_owned(), password: password.to_owned() })
    }
}
