//! Any bytes to the decoder of memcached's text protocol: it makes progress, waits or refuses, borrows what it was
//! given, and allocates for nothing but keys in base64.
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/doors/src/binary_frame.rs"]
mod binary_frame;
#[allow(dead_code)]
#[path = "../../crates/doors/src/memcached/codec/mod.rs"]
mod codec;
mod walk;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    walk::walk(input);
    // In any two pieces, the first of which is executed as far as it goes.
    if let [cut, rest @ ..] = input {
        let cut = usize::from(*cut).min(rest.len());
        let executed = walk::walk(&rest[..cut]);
        walk::walk(&rest[executed..]);
    }
});
