//! The payload of a log record: one atomic batch of row changes.
//!
//! ```text
//! u8   version (1)
//! u64  commit timestamp
//! then, to the end, per change:
//!   u64 tablet, u8 kind (1 put, 2 delete), u32 key bytes, u32 row bytes, key, row
//! ```
//! Little-endian. A put carries the whole new row, so the newest version is always complete.

use crate::tablet::TabletId;
use oribi_types::{Error, Result, Timestamp};

const VERSION: u8 = 1;
const PUT: u8 = 1;
const DELETE: u8 = 2;
const CHANGE_HEADER_BYTES: usize = 17;

/// One row change of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    pub tablet: TabletId,
    pub key: &'a [u8],
    /// `None`: the row is deleted.
    pub row: Option<&'a [u8]>,
}

pub(crate) fn start(buf: &mut Vec<u8>, ts: Timestamp) {
    let mut header = [VERSION; 9];
    header[1..].copy_from_slice(&ts.0.to_le_bytes());
    buf.extend_from_slice(&header);
}

pub(crate) fn push(buf: &mut Vec<u8>, change: Change<'_>) {
    let row = change.row.unwrap_or_default();
    let mut header = [0; CHANGE_HEADER_BYTES];
    header[..8].copy_from_slice(&change.tablet.to_le_bytes());
    header[8] = if change.row.is_some() { PUT } else { DELETE };
    header[9..13].copy_from_slice(&(change.key.len() as u32).to_le_bytes());
    header[13..].copy_from_slice(&(row.len() as u32).to_le_bytes());
    buf.extend_from_slice(&header);
    buf.extend_from_slice(change.key);
    buf.extend_from_slice(row);
}

/// Reads a payload: its timestamp, and the changes in order.
///
/// # Errors
/// `Corrupt` if the version is unknown; an item is `Corrupt` where the bytes end early or name no kind, and is the
/// last then.
pub fn read(payload: &[u8]) -> Result<(Timestamp, Changes<'_>)> {
    let malformed = || Error::corrupt("log record: malformed");
    let (&version, rest) = payload.split_first().ok_or_else(malformed)?;
    if version != VERSION {
        return Err(Error::corrupt(format!("log record: unknown version {version}")));
    }
    let (ts, rest) = rest.split_first_chunk::<8>().ok_or_else(malformed)?;
    Ok((Timestamp(u64::from_le_bytes(*ts)), Changes { rest }))
}

pub struct Changes<'a> {
    rest: &'a [u8],
}

impl<'a> Changes<'a> {
    fn take(&mut self) -> Option<Change<'a>> {
        let (header, rest) = self.rest.split_first_chunk::<CHANGE_HEADER_BYTES>()?;
        let tablet = u64::from_le_bytes(header[..8].try_into().expect("eight bytes"));
        let key_bytes = u32::from_le_bytes(header[9..13].try_into().expect("four bytes")) as usize;
        let row_bytes = u32::from_le_bytes(header[13..].try_into().expect("four bytes")) as usize;
        let (key, rest) = rest.split_at_checked(key_bytes)?;
        let (row, rest) = rest.split_at_checked(row_bytes)?;
        let row = match header[8] {
            PUT => Some(row),
            DELETE if row.is_empty() => None,
            _ => return None,
        };
        self.rest = rest;
        Some(Change { tablet, key, row })
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Result<Change<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let change = self.take();
        if change.is_none() {
            self.rest = &[];
        }
        Some(change.ok_or_else(|| Error::corrupt("log record: malformed")))
    }
}
