//! Meta commands made of any words: flags are read or refused, and answers fit on their line.
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/doors/src/binary_frame.rs"]
mod binary_frame;
#[allow(dead_code)]
#[path = "../../crates/doors/src/memcached/codec/mod.rs"]
mod codec;
mod walk;

use codec::{Frame, Request, answer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((verb, words)) = input.split_first() else { return };
    let verb = [b'g', b's', b'd', b'a', b'e', b'n', *verb][usize::from(*verb) % 7];
    let line = [b"m", &[verb][..], b" ", words, b"\r\nxx\r\n"].concat();
    walk::walk(&line);
    let frame = codec::decode(&line, &mut 0, &walk::LIMITS);
    let Frame::Request { request: Request::Meta(meta), .. } = frame else { return };
    let mut out = Vec::new();
    answer::key_flag(&meta.key, meta.flags.base64, &mut out);
    assert!(!out.contains(&b'\n'));
    let flags = meta.flags.words().count();
    assert!(flags <= 17 && meta.flags.words().all(|word| !word.is_empty()));
});
