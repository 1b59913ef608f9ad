//! SCRAM (RFC 5802, RFC 7677), the server's side: the client proves that it knows the password, and nobody who listens
//! or who reads what is kept here learns it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;
use subtle::ConstantTimeEq;

/// Of the password's hash; RFC 7677 asks for 4,096 at least.
pub const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).expect("not zero");

/// The hash function that a mechanism is named after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    Sha512,
    Sha256,
    Sha1,
}

impl Hash {
    pub const ALL: [Hash; 3] = [Hash::Sha512, Hash::Sha256, Hash::Sha1];

    /// The mechanism's name.
    pub fn mechanism(self) -> &'static str {
        match self {
            Hash::Sha512 => "SCRAM-SHA512",
            Hash::Sha256 => "SCRAM-SHA256",
            Hash::Sha1 => "SCRAM-SHA1",
        }
    }

    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Hash::Sha512 => &digest::SHA512,
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        }
    }

    fn hmac(self) -> hmac::Algorithm {
        match self {
            Hash::Sha512 => hmac::HMAC_SHA512,
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Hash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
            Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Hash::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
        }
    }

    fn sign(self, key: &[u8], text: &[u8]) -> Vec<u8> {
        hmac::sign(&hmac::Key::new(self.hmac(), key), text).as_ref().to_vec()
    }
}

/// What is kept of a password for one hash function.
#[derive(Clone, Debug)]
pub struct Credentials {
    hash: Hash,
    salt: Vec<u8>,
    iterations: NonZeroU32,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

impl Credentials {
    pub fn new(hash: Hash, password: &[u8], salt: Vec<u8>, iterations: NonZeroU32) -> Self {
        let mut salted = vec![0; hash.digest().output_len()];
        pbkdf2::derive(hash.pbkdf2(), iterations, &salt, password, &mut salted);
        let client_key = hash.sign(&salted, b"Client Key");
        let stored_key = digest::digest(hash.digest(), &client_key).as_ref().to_vec();
        let server_key = hash.sign(&salted, b"Server Key");
        Credentials { hash, salt, iterations, stored_key, server_key }
    }

    /// Whether they were made of `password`. Takes as long as to make them.
    pub fn fit(&self, password: &[u8]) -> bool {
        let other = Credentials::new(self.hash, password, self.salt.clone(), self.iterations);
        bool::from(self.stored_key.ct_eq(&other.stored_key))
    }
}

/// The client's first message.
#[derive(Debug, PartialEq, Eq)]
pub struct First {
    pub user: String,
    /// What the client says of channel binding, which the last message repeats.
    header: String,
    nonce: String,
    bare: String,
}

impl First {
    /// `None`: no message that this server understands; so is one that asks for channel binding.
    pub fn parse(message: &[u8]) -> Option<Self> {
        let message = std::str::from_utf8(message).ok()?;
        let (header, bare) = message.split_at(message.match_indices(',').nth(1)?.0 + 1);
        if !matches!(header.split_once(',')?.0, "n" | "y") {
            return None;
        }
        let mut attributes = bare.split(',');
        let user = unescaped(attributes.next()?.strip_prefix("n=")?)?;
        let nonce = attributes.next()?.strip_prefix("r=").filter(|nonce| !nonce.is_empty())?;
        Some(First { user, header: header.into(), nonce: nonce.into(), bare: bare.into() })
    }
}

/// `=2C` stands for a comma and `=3D` for an equals sign.
fn unescaped(name: &str) -> Option<String> {
    let mut parts = name.split('=');
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        plain.push(match code {
            "2C" => ',',
            "3D" => '=',
            _ => return None,
        });
        plain.push_str(rest);
    }
    Some(plain)
}

/// An exchange whose first half is done.
#[derive(Debug)]
pub struct Exchange {
    credentials: Credentials,
    first: First,
    nonce: String,
    /// The server's first message.
    pub challenge: String,
}

impl Exchange {
    /// Challenges the client to prove that it knows what `credentials` were made of. `server_nonce` is fresh and of
    /// printable characters without commas.
    pub fn new(credentials: Credentials, first: First, server_nonce: &str) -> Self {
        let nonce = format!("{}{server_nonce}", first.nonce);
        let challenge =
            format!("r={nonce},s={},i={}", BASE64.encode(&credentials.salt), credentials.iterations);
        Exchange { credentials, first, nonce, challenge }
    }

    /// The server's last message, if `message` proves it.
    pub fn finish(self, message: &[u8]) -> Option<String> {
        let message = std::str::from_utf8(message).ok()?;
        let (without_proof, proof) = message.rsplit_once(",p=")?;
        let mut attributes = without_proof.split(',');
        let header = BASE64.decode(attributes.next()?.strip_prefix("c=")?).ok()?;
        let nonce = attributes.next()?.strip_prefix("r=")?;
        if header != self.first.header.as_bytes() || nonce != self.nonce {
            return None;
        }
        let signed = format!("{},{},{without_proof}", self.first.bare, self.challenge);
        let Credentials { hash, stored_key, server_key, .. } = &self.credentials;
        let client_signature = hash.sign(stored_key, signed.as_bytes());
        let proof = BASE64.decode(proof).ok().filter(|proof| proof.len() == client_signature.len())?;
        let client_key: Vec<u8> = proof.iter().zip(&client_signature).map(|(a, b)| a ^ b).collect();
        let proven = digest::digest(hash.digest(), &client_key);
        let proven = bool::from(proven.as_ref().ct_eq(stored_key));
        proven.then(|| format!("v={}", BASE64.encode(hash.sign(server_key, signed.as_bytes()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of an RFC: hash, salt, server's nonce, and the four messages.
    fn check(hash: Hash, salt: &str, server_nonce: &str, messages: [&str; 4]) {
        let credentials = Credentials::new(hash, b"pencil", BASE64.decode(salt).unwrap(), ITERATIONS);
        assert!(credentials.fit(b"pencil") && !credentials.fit(b"pencils"));
        let first = First::parse(messages[0].as_bytes()).unwrap();
        assert_eq!(first.user, "user");
        let exchange = Exchange::new(credentials.clone(), first, server_nonce);
        assert_eq!(exchange.challenge, messages[1]);
        assert_eq!(exchange.finish(messages[2].as_bytes()).as_deref(), Some(messages[3]));
        // Another proof, another nonce, another header, nothing.
        let other = |from: &str, to: &str| messages[2].replacen(from, to, 1);
        for wrong in [other("p=", "p=A"), other("r=", "r=x"), other("c=biws", "c=eSws"), String::new()] {
            let first = First::parse(messages[0].as_bytes()).unwrap();
            let exchange = Exchange::new(credentials.clone(), first, server_nonce);
            assert_eq!(exchange.finish(wrong.as_bytes()), None, "{wrong}");
        }
        let wrong = Credentials::new(hash, b"pen", BASE64.decode(salt).unwrap(), ITERATIONS);
        let first = First::parse(messages[0].as_bytes()).unwrap();
        assert_eq!(Exchange::new(wrong, first, server_nonce).finish(messages[2].as_bytes()), None);
    }

    #[test]
    fn the_exchange_of_rfc_5802() {
        check(
            Hash::Sha1,
            "QSXCR+Q6sek8bf92",
            "3rfcNHYJY1ZVvWVs7j",
            [
                "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
                "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
                "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
                "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
            ],
        );
    }

    #[test]
    fn the_exchange_of_rfc_7677() {
        check(
            Hash::Sha256,
            "W22ZaJ0SNY7soEsUEjb6gQ==",
            "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
            [
                "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
                "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
                "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                 p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
                "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
            ],
        );
    }

    #[test]
    fn first_messages_are_taken_apart() {
        let parsed = |message: &str| First::parse(message.as_bytes());
        assert_eq!(parsed("y,,n=a=2Cb=3Dc,r= spaced ").unwrap().user, "a,b=c");
        assert_eq!(parsed("n,a=other,n=me,r=x").unwrap().header, "n,a=other,");
        for wrong in [
            "",
            "n",
            "n,,",
            "n,,n=user",
            "n,,r=x,n=user",
            "p=tls-unique,,n=u,r=x",
            "n,,n=a=2,r=x",
            "n,,n=u,r=",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
        assert_eq!(First::parse(b"n,,n=\xff,r=x"), None);
    }
}
