//! The binary protocol, as far as refusing it goes.
//!
//! A connection speaks it if its first byte is [`MAGIC`], which no line of text begins with.

/// The first byte of every binary request.
pub const MAGIC: u8 = 0x80;

const HEADER_BYTES: usize = 24;
const RESPONSE_MAGIC: u8 = 0x81;
const UNKNOWN_COMMAND: u16 = 0x0081;
const REASON: &[u8] = b"the binary protocol is not supported, use the text protocol";

/// The answer that refuses the request at the beginning of `input`; `None` if its header has not arrived.
pub fn refusal(input: &[u8]) -> Option<Vec<u8>> {
    let header = input.first_chunk::<HEADER_BYTES>()?;
    let (opcode, opaque) = (header[1], &header[12..16]);
    let mut answer = vec![RESPONSE_MAGIC, opcode, 0, 0, 0, 0];
    answer.extend_from_slice(&UNKNOWN_COMMAND.to_be_bytes());
    answer.extend_from_slice(&(REASON.len() as u32).to_be_bytes());
    answer.extend_from_slice(opaque);
    answer.resize(HEADER_BYTES, 0);
    answer.extend_from_slice(REASON);
    Some(answer)
}
