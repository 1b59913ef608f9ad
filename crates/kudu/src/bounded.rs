//! Decoding of a message in bounded memory.
//!
//! Two bytes on the wire can be an empty element of a repeated field, and some hundred bytes of ours: a frame
//! of 50 MiB could ask for gigabytes. What a message can make us allocate grows with the pieces it consists
//! of, so those are counted while it is decoded. A long payload, like the rows of a write, is one piece.

use bytes::{Buf, Bytes};
use prost::Message;

/// How many steps [`decode`] should take at most for a request. One step reads a key, a length or a value, so
/// an element of an IN list takes three and a column about ten.
pub const STEPS_MAX: usize = 1 << 18;

/// Why a message was not decoded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MessageError {
    #[error("message: {0}")]
    Malformed(#[from] prost::DecodeError),
    #[error("message takes more than {max} steps to decode")]
    TooManySteps { max: usize },
}

/// Decodes a whole message in at most `steps_max` steps; its `bytes` fields share the memory of `bytes`.
///
/// A required field that is absent reads as its default: an empty name or id names nothing, and who looks for
/// it refuses.
pub fn decode<M: Message + Default>(bytes: Bytes, steps_max: usize) -> Result<M, MessageError> {
    let mut bounded = Bounded { bytes, steps_left: steps_max };
    let message = M::decode(&mut bounded);
    match bounded.is_exhausted() {
        true => Err(MessageError::TooManySteps { max: steps_max }),
        false => Ok(message?),
    }
}

/// Bytes that seem to end when the steps are used up.
struct Bounded {
    bytes: Bytes,
    steps_left: usize,
}

impl Bounded {
    fn is_exhausted(&self) -> bool {
        self.steps_left == 0 && self.bytes.has_remaining()
    }

    fn step(&mut self) -> &mut Bytes {
        self.steps_left = self.steps_left.saturating_sub(1);
        &mut self.bytes
    }
}

/// An end may come between two reads only: what was seen to remain can be read, else a reader that looked
/// would panic.
impl Buf for Bounded {
    fn remaining(&self) -> usize {
        if self.steps_left == 0 { 0 } else { self.bytes.remaining() }
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes[..self.remaining()]
    }

    fn advance(&mut self, len: usize) {
        self.step().advance(len);
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        self.step().copy_to_bytes(len)
    }

    fn copy_to_slice(&mut self, out: &mut [u8]) {
        self.step().copy_to_slice(out);
    }

    fn get_u8(&mut self) -> u8 {
        self.step().get_u8()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::common::Schema;
    use crate::messages::master::{CreateTableRequest, GetTableLocationsResponse};
    use crate::messages::tserver::{ScanRequest, WriteRequest};
    use crate::rpc::RequestHeader;
    use proptest::prelude::*;

    #[test]
    fn a_message_of_many_small_pieces_is_refused() {
        let columns = Bytes::from([0x0a, 0].repeat(1000));
        assert_eq!(decode::<Schema>(columns.clone(), 2001).unwrap().columns.len(), 1000);
        assert_eq!(decode::<Schema>(columns.clone(), 2000).unwrap().columns.len(), 1000);
        for steps_max in [0, 1, 2, 3, 1000, 1999] {
            assert_eq!(
                decode::<Schema>(columns.clone(), steps_max),
                Err(MessageError::TooManySteps { max: steps_max })
            );
        }
    }

    #[test]
    fn a_varint_that_the_steps_cut_does_not_panic() {
        for steps_max in 0..12 {
            assert!(decode::<RequestHeader>(Bytes::from(vec![0x18, 0x80, 0x80, 0x80]), steps_max).is_err());
        }
    }

    #[test]
    fn a_payload_is_shared() {
        let mut bytes = vec![0x0a, 1, b't', 0x1a, 203, 1, 0x12, 200, 1];
        bytes.extend([7; 200]);
        let bytes = Bytes::from(bytes);
        let write: WriteRequest = decode(bytes.clone(), 16).unwrap();
        let rows = write.row_operations.unwrap().rows.unwrap();
        assert_eq!(rows.as_ptr(), bytes[9..].as_ptr());
        assert_eq!(rows.len(), 200);
    }

    /// Keys, lengths and values that make up messages.
    const LIKELY: &[u8] = &[0, 1, 2, 8, 10, 16, 18, 26, 34, 42, 0x80];

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            steps_max in 0usize..400,
        ) {
            let bytes = Bytes::from(bytes);
            let _ = decode::<RequestHeader>(bytes.clone(), steps_max);
            let _ = decode::<WriteRequest>(bytes.clone(), steps_max);
            let _ = decode::<ScanRequest>(bytes.clone(), steps_max);
            let _ = decode::<CreateTableRequest>(bytes.clone(), steps_max);
            let _ = decode::<GetTableLocationsResponse>(bytes, steps_max);
        }

        #[test]
        fn enough_steps_change_nothing(bytes in prop::collection::vec(prop::sample::select(LIKELY), 0..40)) {
            let bytes = Bytes::from(bytes);
            let plain = ScanRequest::decode(bytes.clone()).map_err(MessageError::from);
            prop_assert_eq!(decode::<ScanRequest>(bytes, 1000), plain);
        }
    }
}
