//! Any messages to the authentication of the Couchbase door: nobody comes in who does not prove to know the password.
#![no_main]

mod feed;

use feed::Feed;
use libfuzzer_sys::fuzz_target;
use oribi_doors::couchbase::sasl::{Authentication, Step, Users};
use std::sync::LazyLock;

static USERS: LazyLock<Users> =
    LazyLock::new(|| Users::new([("user", "a password of some length")]).unwrap());

const MECHANISMS: [&[u8]; 5] = [b"SCRAM-SHA512", b"SCRAM-SHA256", b"SCRAM-SHA1", b"CRAM-MD5", b""];

fuzz_target!(|input: &[u8]| {
    let mut feed = Feed::new(input);
    let mut authentication = Authentication::default();
    while !feed.is_empty() {
        let mechanism = MECHANISMS[usize::from(feed.byte()) % MECHANISMS.len()];
        let is_first = feed.byte() % 2 == 0;
        let message = feed.bytes();
        let step = match is_first {
            true => authentication.start(&USERS, mechanism, message, false),
            false => {
                // An exchange that has begun, which is where the last message is looked at.
                let first = b"n,,n=user,r=nonce";
                authentication.start(&USERS, mechanism, first, false);
                authentication.step(&USERS, mechanism, message)
            }
        };
        assert!(!matches!(step, Step::Done { .. }), "let in");
    }
});
