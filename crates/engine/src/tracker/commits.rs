//! The commits of transactions that clients know by number, as requests: each transaction is a client with one request.
//!
//! So a commit is in the log, in the record of its write, and in the manifest when that is trimmed; it is known as a result for ten
//! minutes, and for an hour as one that was forgotten, unless there is no room for so many. Up to which number there was none is
//! noted as what another client, of no transaction, has forgotten: so it is in the manifest too.

use super::{CLIENT_MICROS, Request};

const PREFIX: &[u8] = b"transaction ";

/// What it has forgotten is up to which number transactions were.
pub(super) const FORGOTTEN: &[u8] = b"transactions";

/// So long after its commit a transaction is not forgotten, but for want of room.
pub(crate) const KNOWN_MICROS: u64 = CLIENT_MICROS;

pub(crate) type ClientId = [u8; PREFIX.len() + 8];

/// The client that a transaction is.
pub(crate) fn client(number: u64) -> ClientId {
    let mut id = [0; PREFIX.len() + 8];
    id[..PREFIX.len()].copy_from_slice(PREFIX);
    id[PREFIX.len()..].copy_from_slice(&number.to_be_bytes());
    id
}

/// The transaction that a client is, if it is one.
pub(super) fn number(client: &[u8]) -> Option<i64> {
    let number = client.strip_prefix(PREFIX)?;
    i64::try_from(u64::from_be_bytes(number.try_into().ok()?)).ok()
}

/// Whether a client is none that may name itself so.
pub(super) fn is_reserved(client: &[u8]) -> bool {
    client == FORGOTTEN || number(client).is_some()
}

/// The number of its one request.
pub(crate) const SEQUENCE: i64 = 1;

pub(crate) fn request(client: &ClientId) -> Request<'_> {
    Request { client, sequence: SEQUENCE, first_incomplete: SEQUENCE }
}
