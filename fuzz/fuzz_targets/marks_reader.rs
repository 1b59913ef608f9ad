//! Any bytes as a marks file whose checksum fits: the reader ends, with marks or with an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oribi_engine::validate_marks;

fuzz_target!(|input: &[u8]| {
    let _ = validate_marks(input);
});
