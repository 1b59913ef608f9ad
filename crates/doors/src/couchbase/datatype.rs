//! What a value is made of: JSON or not, compressed or not.

use super::operation::Refusal;
use super::status::Status;
use oribi_session::kv::is_json;

pub const RAW: u8 = 0;
pub const JSON: u8 = 1;
pub const SNAPPY: u8 = 2;

/// Three bytes of a compressed value are 64 of it at most.
const EXPANSION_MAX: usize = 22;

/// `value` as it is without compression.
///
/// # Errors
/// `TooLarge` if it has more than `bytes_max` bytes, `Invalid` if it is not compressed as it says.
pub fn inflate(value: &[u8], bytes_max: usize) -> Result<Vec<u8>, Refusal> {
    let invalid = || Refusal::new(Status::Invalid, "the value is not compressed as it says");
    let len = snap::raw::decompress_len(value).map_err(|_| invalid())?;
    // A length that is declared and cannot be is not allocated.
    if len > value.len().saturating_mul(EXPANSION_MAX) {
        return Err(invalid());
    }
    if len > bytes_max {
        return Err(Refusal::new(Status::TooLarge, "the value is too large without its compression"));
    }
    snap::raw::Decoder::new().decompress_vec(value).map_err(|_| invalid())
}

/// The bit that tells JSON from what is not.
pub fn of(value: &[u8]) -> u8 {
    if is_json(value) { JSON } else { RAW }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_told_from_what_is_not() {
        for json in ["{}", "[1,2]", " \"a\" ", "-1.5e3", "0", "true", "false", "null", "{\"a\":{\"b\":[]}}"] {
            assert_eq!(of(json.as_bytes()), JSON, "{json}");
        }
        for raw in [&b""[..], b"{", b"hello", b"{} {}", b"nul", b"\xff\xfe", b"\"\xff\""] {
            assert_eq!(of(raw), RAW, "{raw:?}");
        }
    }

    #[test]
    fn compressed_values_are_inflated_within_limits() {
        let value = "abc".repeat(10_000);
        let compressed = snap::raw::Encoder::new().compress_vec(value.as_bytes()).unwrap();
        assert_eq!(inflate(&compressed, 30_000).unwrap(), value.as_bytes());
        assert_eq!(inflate(&compressed, 29_999).unwrap_err().status, Status::TooLarge);
        for cut in 0..compressed.len() {
            assert!(inflate(&compressed[..cut], 1 << 20).is_err());
        }
        // Four gigabytes in five bytes.
        let status = inflate(b"\xff\xff\xff\xff\x0f", usize::MAX).unwrap_err().status;
        assert_eq!(status, Status::Invalid);
    }
}
