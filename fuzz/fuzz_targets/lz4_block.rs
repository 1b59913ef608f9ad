//! Any bytes as an LZ4 block, decompressed in steps: what came out stays, and nothing is written behind the end.
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/sstable/src/lz4.rs"]
mod lz4;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [a, b, block @ ..] = input else { return };
    let len = usize::from(u16::from_le_bytes([*a, *b]));
    let mut out = vec![0; len + lz4::SLACK];
    let mut progress = lz4::Progress::default();
    for part in 1..=4 {
        let before = out[..progress.written.min(len)].to_vec();
        if progress.advance(block, &mut out, len * part / 4).is_none() {
            return;
        }
        assert!(out.starts_with(&before), "what was written changed");
    }
});
