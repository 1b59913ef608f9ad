//! Any bytes to the decoder of memcached's binary protocol: it makes progress, waits or refuses, borrows what it was
//! given, and what it answers is framed as what it reads.
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/doors/src/binary_frame.rs"]
mod binary_frame;
#[allow(dead_code, unused_imports)]
#[path = "../../crates/doors/src/memcached/codec/mod.rs"]
mod codec;

use codec::CodecLimits;
use codec::binary::{self, BinaryFrame, Code};
use libfuzzer_sys::fuzz_target;

const LIMITS: CodecLimits = CodecLimits { key_bytes_max: 250, value_bytes_max: 1 << 20 };

fuzz_target!(|input: &[u8]| {
    walk(input);
    // Each header as if it were a binary one, so that most inputs get beyond the first byte.
    if let Some((_, rest)) = input.split_first() {
        walk(&[&[binary::MAGIC], rest].concat());
        binary_frame::decode(&[&[binary_frame::magic::ALT_REQUEST], rest].concat(), LIMITS.value_bytes_max);
    }
});

fn walk(mut input: &[u8]) {
    let mut answers = Vec::new();
    loop {
        let len = match binary::decode(input, &LIMITS) {
            BinaryFrame::Incomplete | BinaryFrame::Fatal { .. } => return,
            BinaryFrame::Request { request, len } => {
                assert!(24 <= len && len <= input.len());
                assert!(24 + request.key.len() + request.value.len() <= len);
                assert!(request.key.len() <= LIMITS.key_bytes_max);
                binary::status(&request.header, Code::NotFound, &mut answers);
                len as u64
            }
            BinaryFrame::Refused { header, code, len } => {
                assert!(24 <= len && code != Code::Success);
                binary::status(&header, code, &mut answers);
                len
            }
        };
        // What is answered is one frame.
        let body = u32::from_be_bytes(answers[8..12].try_into().expect("four bytes"));
        assert_eq!(body as usize + 24, answers.len());
        answers.clear();
        input = &input[len.min(input.len() as u64) as usize..];
    }
}
