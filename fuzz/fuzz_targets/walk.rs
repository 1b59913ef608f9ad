//! Decodes whatever is whole at the beginning of some bytes.

use crate::codec::{CodecLimits, Frame, Request, decode};

pub const LIMITS: CodecLimits = CodecLimits { key_bytes_max: 250, value_bytes_max: 1 << 20 };

/// Returns how many bytes were executed or refused.
pub fn walk(input: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let rest = &input[at..];
        match decode(rest, &mut 0, &LIMITS) {
            Frame::Incomplete => return at,
            Frame::Fatal { .. } => return input.len(),
            Frame::Refused { len, skip, .. } => {
                assert!(0 < len && len <= rest.len());
                at += (len as u64 + skip).min(rest.len() as u64) as usize;
            }
            Frame::Request { request, len } => {
                assert!(0 < len && len <= rest.len());
                check(request, len);
                at += len;
            }
        }
    }
}

fn check(request: Request<'_>, len: usize) {
    match request {
        Request::Get { keys, .. } | Request::GetAndTouch { keys, .. } => {
            assert!(keys.into_iter().all(|key| (1..=LIMITS.key_bytes_max).contains(&key.len())));
        }
        Request::Store { key, value, .. } => assert!(key.len() + value.len() < len),
        Request::Meta(meta) => {
            assert!((1..=LIMITS.key_bytes_max).contains(&meta.key.len()));
            assert!(meta.key.len() + meta.value.len() < len);
        }
        _ => {}
    }
}
