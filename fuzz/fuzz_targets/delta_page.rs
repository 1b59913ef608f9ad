//! Any bytes as a page of integers stored as differences: what a value is does not depend on how many are asked for.
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/sstable/src/bits.rs"]
mod bits;

#[allow(dead_code)]
#[path = "../../crates/sstable/src/value.rs"]
mod value;

#[allow(dead_code)]
#[path = "../../crates/sstable/src/delta.rs"]
mod delta;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [a, b, page @ ..] = input else { return };
    let n = usize::from(u16::from_le_bytes([*a, *b]));
    let mut plain = Vec::new();
    let found = delta::expand(page, n + 1, 8, &mut plain).is_ok();
    match delta::nth(page, n) {
        Ok(value) => assert!(found && plain.ends_with(&value.to_le_bytes())),
        Err(_) => assert!(!found),
    }
});
