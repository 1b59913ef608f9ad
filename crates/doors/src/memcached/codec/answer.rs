//! Answers as bytes, appended to an output buffer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Appends a line.
pub fn line(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a decimal number.
pub fn number(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends `VALUE key flags length [cas]` and the value.
pub fn value(key: &[u8], flags: u32, value: &[u8], cas: Option<u64>, out: &mut Vec<u8>) {
    out.reserve(key.len() + value.len() + 64);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    number(u64::from(flags), out);
    out.push(b' ');
    number(value.len() as u64, out);
    if let Some(cas) = cas {
        out.push(b' ');
        number(cas, out);
    }
    block(value, out);
}

/// Appends what ends a line, a value, and what ends it.
#[inline]
pub fn block(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends ` f` and a number, the answer to a meta flag.
pub fn flag(flag: u8, value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&[b' ', flag]);
    number(value, out);
}

/// Appends the key as the answer to the meta flag `k`.
pub fn key_flag(key: &[u8], base64: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b" k");
    if base64 {
        out.extend_from_slice(BASE64.encode(key).as_bytes());
        out.extend_from_slice(b" b");
    } else {
        out.extend_from_slice(key);
    }
}

/// Appends an error line: `kind`, and a message from elsewhere made to fit on a line.
pub fn error(kind: &str, message: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(kind.as_bytes());
    out.push(b' ');
    out.extend(message.bytes().map(|b| if b.is_ascii_control() { b' ' } else { b }));
    out.extend_from_slice(b"\r\n");
}
