//! Authentication: SCRAM and PLAIN, or none.

pub mod scram;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use oribi_types::{Error, Result};
use ring::rand::{SecureRandom, SystemRandom};
use scram::{Credentials, Exchange, First, Hash};
use std::collections::HashMap;

/// The mechanisms, the best one first.
pub const MECHANISMS: &str = "SCRAM-SHA512 SCRAM-SHA256 SCRAM-SHA1 PLAIN";

/// The mechanism by which a client states its password, which is hashed to be compared. The others cost little.
pub const PLAIN: &[u8] = b"PLAIN";

const SALT_BYTES: usize = 16;
const NONCE_BYTES: usize = 18;

/// The password that an open door knows: the one of Couchbase's own examples.
const OPEN_PASSWORD: &str = "password";

/// What a client is told that has another, as an error of SCRAM.
const OPEN_REASON: &str = "e=without users this door knows the password \"password\" alone";

/// Who may come in.
///
/// An open door lets everybody in, but clients that prove a password want one of two things. Those of libcouchbase and of the
/// C++ core take success in place of a challenge; Go's and Java's answer the challenge that comes with it. Java's then insists
/// that the server knows the password as well, which an open door does of [`OPEN_PASSWORD`] alone.
pub struct Users {
    /// What is kept of each user's password. Nobody: there is no authentication, and whoever reaches the door comes in.
    known: HashMap<String, [Credentials; 3]>,
    /// What somebody who is not known is measured by, with the salt that all have, so that names cannot be found out.
    nobody: [Credentials; 3],
    random: SystemRandom,
}

impl Users {
    /// Names and passwords.
    ///
    /// # Errors
    /// `Internal` if the system gives no random numbers.
    pub fn new<'a>(users: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self> {
        let random = SystemRandom::new();
        let salt = bytes::<SALT_BYTES>(&random)?;
        let credentials = |password: &[u8]| {
            Hash::ALL.map(|hash| Credentials::new(hash, password, salt.to_vec(), scram::ITERATIONS))
        };
        let known: HashMap<_, _> = users
            .into_iter()
            .map(|(name, password)| (name.to_owned(), credentials(password.as_bytes())))
            .collect();
        let nobody = match known.is_empty() {
            true => credentials(OPEN_PASSWORD.as_bytes()),
            false => credentials(&bytes::<SALT_BYTES>(&random)?),
        };
        Ok(Users { known, nobody, random })
    }

    /// Whether everybody is let in.
    pub fn is_open(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether there is this user, with this password. Takes milliseconds.
    pub fn knows(&self, user: &[u8], password: &[u8]) -> bool {
        let Ok(user) = std::str::from_utf8(user) else { return false };
        // The cheapest of the hashes that are not broken.
        self.credentials(user)[1].fit(password) && self.known.contains_key(user)
    }

    fn credentials(&self, user: &str) -> &[Credentials; 3] {
        self.known.get(user).unwrap_or(&self.nobody)
    }
}

fn bytes<const N: usize>(random: &SystemRandom) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    random.fill(&mut bytes).map_err(|_| Error::internal("the system gives no random numbers"))?;
    Ok(bytes)
}

/// What a step of the exchange is answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Continue(String),
    Done { user: String, last: String },
    Failed,
}

/// One client's authentication.
#[derive(Debug, Default)]
pub struct Authentication {
    under_way: Option<(String, Hash, Exchange)>,
}

impl Authentication {
    /// The client's first message. Passwords in the clear are taken where `plain_is_safe`.
    pub fn start(&mut self, users: &Users, mechanism: &[u8], message: &[u8], plain_is_safe: bool) -> Step {
        self.under_way = None;
        if users.is_open() {
            let challenge = self.challenge(users, mechanism, message).unwrap_or_default();
            return Step::Done { user: String::new(), last: challenge };
        }
        if mechanism == PLAIN && plain_is_safe {
            return plain(users, message);
        }
        match self.challenge(users, mechanism, message) {
            Some(challenge) => Step::Continue(challenge),
            None => Step::Failed,
        }
    }

    /// Begins to have the client prove its password.
    fn challenge(&mut self, users: &Users, mechanism: &[u8], message: &[u8]) -> Option<String> {
        let hash = Hash::ALL.iter().position(|hash| hash.mechanism().as_bytes() == mechanism)?;
        let first = First::parse(message)?;
        let nonce = bytes::<NONCE_BYTES>(&users.random).ok()?;
        let user = first.user.clone();
        let exchange = Exchange::new(users.credentials(&user)[hash].clone(), first, &BASE64.encode(nonce));
        let challenge = exchange.challenge.clone();
        self.under_way = Some((user, Hash::ALL[hash], exchange));
        Some(challenge)
    }

    /// The client's last message, for the mechanism that it began with.
    pub fn step(&mut self, users: &Users, mechanism: &[u8], message: &[u8]) -> Step {
        let Some((user, hash, exchange)) = self.under_way.take() else { return Step::Failed };
        if hash.mechanism().as_bytes() != mechanism {
            return Step::Failed;
        }
        match exchange.finish(message) {
            Some(last) => Step::Done { user, last },
            // Whoever checks the server reads why that fails; the others are in.
            None if users.is_open() => Step::Done { user, last: OPEN_REASON.to_owned() },
            None => Step::Failed,
        }
    }
}

/// `authorization NUL user NUL password`; to act as somebody else is refused.
fn plain(users: &Users, message: &[u8]) -> Step {
    let mut parts = message.split(|byte| *byte == 0);
    let (Some(acts_as), Some(user), Some(password), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Step::Failed;
    };
    if users.knows(user, password) && (acts_as.is_empty() || acts_as == user) {
        return Step::Done { user: String::from_utf8_lossy(user).into_owned(), last: String::new() };
    }
    Step::Failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_the_clear_are_checked() {
        let users = Users::new([("ann", "secret")]).unwrap();
        let start = |message: &[u8], safe| Authentication::default().start(&users, b"PLAIN", message, safe);
        let done = Step::Done { user: "ann".into(), last: String::new() };
        assert_eq!(start(b"\0ann\0secret", true), done);
        assert_eq!(start(b"ann\0ann\0secret", true), done);
        for wrong in [
            &b"\0ann\0"[..],
            b"\0ann\0Secret",
            b"\0bob\0secret",
            b"bob\0ann\0secret",
            b"ann",
            b"\0ann\0secret\0",
        ] {
            assert_eq!(start(wrong, true), Step::Failed, "{wrong:?}");
        }
        assert_eq!(start(b"\0ann\0secret", false), Step::Failed);
    }

    #[test]
    fn somebody_unknown_is_challenged_like_anybody() {
        let users = Users::new([("ann", "secret")]).unwrap();
        let mut authentication = Authentication::default();
        for user in ["ann", "bob"] {
            let first = format!("n,,n={user},r=abc");
            let step = authentication.start(&users, b"SCRAM-SHA512", first.as_bytes(), true);
            let Step::Continue(challenge) = step else { panic!("{step:?}") };
            assert!(challenge.starts_with("r=abc") && challenge.ends_with(",i=4096"));
            // Another mechanism does not go on with it, and neither does a second try.
            assert_eq!(authentication.step(&users, b"SCRAM-SHA256", b"c=biws,r=abc,p=AAAA"), Step::Failed);
            assert_eq!(authentication.step(&users, b"SCRAM-SHA512", b"c=biws,r=abc,p=AAAA"), Step::Failed);
        }
        assert_eq!(authentication.start(&users, b"CRAM-MD5", b"n,,n=ann,r=abc", true), Step::Failed);
    }

    #[test]
    fn without_users_everybody_comes_in() {
        let users = Users::new([]).unwrap();
        let mut authentication = Authentication::default();
        let done = |last: &str| Step::Done { user: String::new(), last: last.to_owned() };
        assert_eq!(authentication.start(&users, b"PLAIN", b"", false), done(""));
        let step = authentication.start(&users, b"SCRAM-SHA512", b"n,,n=x,r=y", false);
        assert!(
            matches!(step, Step::Done { last, .. } if last.starts_with("r=y") && last.ends_with(",i=4096"))
        );
        // A client that goes on all the same is in too, whatever its password is.
        let step = authentication.step(&users, b"SCRAM-SHA512", b"c=biws,r=y,p=AAAA");
        assert_eq!(step, Step::Done { user: "x".into(), last: OPEN_REASON.into() });
    }
}
