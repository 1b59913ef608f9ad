//! What a Couchbase client does before its first get, and the vbucket of a key.

use super::protocol::{HEADER_BYTES, RESPONSE, request as header};
use oribi_types::{Error, Result};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const HELLO: u8 = 0x1f;
const SASL_AUTH: u8 = 0x21;
const SELECT_BUCKET: u8 = 0x89;
const GET_CLUSTER_CONFIG: u8 = 0xb5;
/// The one feature that is wanted, by its code.
const FEATURE_SELECT_BUCKET: [u8; 2] = [0x00, 0x08];
/// Couchbase's default, and the only number that is known here.
const VBUCKETS: usize = 1024;
/// A cluster configuration is shorter.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Who asks for what.
#[derive(Clone, Copy)]
pub struct Login<'a> {
    pub user: &'a str,
    pub password: &'a str,
    pub bucket: &'a str,
}

/// Introduces the client, authenticates it by SASL PLAIN and selects the bucket. The password travels as it is: this is
/// for the loopback interface.
///
/// # Errors
/// Those of the socket; `NotFound` for a bucket that the server refuses;
/// `Invalid` if it refuses the user, is no such server, or has another number of vbuckets.
pub async fn bootstrap(socket: &mut TcpStream, login: Login<'_>) -> Result<()> {
    let refused =
        |status: u16, what: &str| Error::invalid(format!("{what}: refused with status {status:#04x}"));
    let agent = br#"{"a":"oribi-perf"}"#;
    let (status, _) = request(socket, HELLO, agent, &FEATURE_SELECT_BUCKET).await?;
    if status != 0 {
        return Err(refused(status, "the client's hello"));
    }
    let plain = format!("\0{}\0{}", login.user, login.password);
    let (status, _) = request(socket, SASL_AUTH, b"PLAIN", plain.as_bytes()).await?;
    if status != 0 {
        return Err(Error::invalid(format!("user {}: refused with status {status:#04x}", login.user)));
    }
    let (status, _) = request(socket, SELECT_BUCKET, login.bucket.as_bytes(), b"").await?;
    if status != 0 {
        return Err(Error::not_found(format!("bucket {}: refused with status {status:#04x}", login.bucket)));
    }
    let (status, config) = request(socket, GET_CLUSTER_CONFIG, b"", b"").await?;
    if status != 0 {
        return Err(refused(status, "the request for the cluster's configuration"));
    }
    match vbuckets(&config) {
        Some(VBUCKETS) => Ok(()),
        Some(n) => Err(Error::invalid(format!("the bucket has {n} vbuckets, not {VBUCKETS}"))),
        None => Err(Error::invalid("the cluster's configuration has no vbuckets")),
    }
}

fn vbuckets(config: &[u8]) -> Option<usize> {
    let config: Value = serde_json::from_slice(config).ok()?;
    Some(config["vBucketServerMap"]["vBucketMap"].as_array()?.len())
}

/// Sends a request and waits for its answer: status and value.
async fn request(socket: &mut TcpStream, opcode: u8, key: &[u8], value: &[u8]) -> Result<(u16, Vec<u8>)> {
    let named = |e: std::io::Error| Error::from(e).context("bootstrapping");
    let packet = [&header(opcode, key.len(), 0, value.len()), key, value].concat();
    socket.write_all(&packet).await.map_err(named)?;
    let mut head = [0; HEADER_BYTES];
    socket.read_exact(&mut head).await.map_err(named)?;
    let [magic, answered, key_high, key_low, extras, _, status_high, status_low, a, b, c, d, ..] = head;
    let body_bytes = u32::from_be_bytes([a, b, c, d]) as usize;
    if magic != RESPONSE || answered != opcode || body_bytes > ANSWER_BYTES_MAX {
        return Err(Error::invalid("the server does not speak Couchbase's protocol"));
    }
    let mut body = vec![0; body_bytes];
    socket.read_exact(&mut body).await.map_err(named)?;
    let before = usize::from(u16::from_be_bytes([key_high, key_low])) + usize::from(extras);
    Ok((u16::from_be_bytes([status_high, status_low]), body.split_off(before.min(body_bytes))))
}

/// The vbucket of a key, as libcouchbase computes it.
pub fn vbucket(key: &[u8]) -> u16 {
    (crc32(key) >> 16) as u16 & 0x7fff & (VBUCKETS as u16 - 1)
}

/// CRC-32 of ISO 3309, a byte at a time: 20 bytes take some 30 ns.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| CRC_TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_iso_3309() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b""), 0);
        assert_eq!(vbucket(b"123456789"), 0x4bf4 % 1024);
    }

    #[test]
    fn vbuckets_are_counted_in_the_configuration() {
        let config = br#"{"vBucketServerMap":{"vBucketMap":[[0],[0],[1]]}}"#;
        assert_eq!(vbuckets(config), Some(3));
        assert_eq!(vbuckets(b"{}"), None);
        assert_eq!(vbuckets(b"\xff"), None);
    }
}
