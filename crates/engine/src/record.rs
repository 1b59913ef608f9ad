//! The payload of a log record: one atomic batch of row changes, or a fragment of a large one.
//!
//! ```text
//! u8   version: 1, or 2 with a request id
//! u64  commit timestamp
//! only in version 2: the request:
//!   u8 client bytes, client, i64 sequence, i64 first incomplete, u32 result bytes, result
//! then, to the end, per change:
//!   u64 tablet, u8 kind (1 put, 2 delete), u32 key bytes, u32 row bytes, key, row
//!
//! u8   version 3, a fragment of a bulk write
//! u64  bulk write: the LSN of its first fragment
//! then, to the end, changes
//!
//! u8   version 4, the commit of a bulk write
//! u64  commit timestamp, u64 bulk write, u32 fragments, u8 whether there is a request (0 or 1), and the request if so
//!
//! u8   version 5: a bulk write was given up
//! u64  bulk write
//!
//! u8   version 6: a write that makes a change of the catalog count
//! u64  commit timestamp, u64 number of the change, which the manifest has
//! then, to the end, changes
//!
//! u8   version 7: files of a transaction count
//! u64  commit timestamp, u64 number of the change of the manifest, u8 whether there is a request (0 or 1), and the request if so
//! ```
//! Little-endian. A put carries the whole new row, so the newest version is always complete.

use crate::tablet::TabletId;
use crate::tracker::{Request, is_client_id};
use oribi_types::{Error, Result, Timestamp};
use oribi_wal::Lsn;

const PLAIN: u8 = 1;
const TRACKED: u8 = 2;
const FRAGMENT: u8 = 3;
const COMMIT: u8 = 4;
const GIVEN_UP: u8 = 5;
const CATALOG: u8 = 6;
const FILES: u8 = 7;
const PUT: u8 = 1;
const DELETE: u8 = 2;
const CHANGE_HEADER_BYTES: usize = 17;

/// What a record says.
pub enum Record<'a> {
    Write(Contents<'a>),
    Fragment {
        /// The LSN of the first fragment of the bulk write; of the first, its own.
        bulk: Lsn,
        /// In order.
        changes: Changes<'a>,
    },
    Commit(BulkCommit<'a>),
    /// The fragments of a bulk write are void.
    GivenUp {
        bulk: Lsn,
    },
    Files(FilesCommit<'a>),
}

/// A write by itself.
pub struct Contents<'a> {
    pub ts: Timestamp,
    /// If the write came with a request id.
    pub tracked: Option<Tracked<'a>>,
    /// The number of the change of the catalog that counts with it, if there is one.
    pub catalog: Option<u64>,
    /// In order.
    pub changes: Changes<'a>,
}

/// What makes the fragments of a bulk write count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkCommit<'a> {
    pub ts: Timestamp,
    pub bulk: Lsn,
    /// How many there are.
    pub fragments: u32,
    /// If the write came with a request id.
    pub tracked: Option<Tracked<'a>>,
}

/// What makes the files of a transaction count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilesCommit<'a> {
    pub ts: Timestamp,
    /// Of the change of the manifest.
    pub number: u64,
    /// If the commit can be asked for later.
    pub tracked: Option<Tracked<'a>>,
}

/// A request and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracked<'a> {
    pub request: Request<'a>,
    pub result: &'a [u8],
}

/// One row change of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    pub tablet: TabletId,
    pub key: &'a [u8],
    /// `None`: the row is deleted.
    pub row: Option<&'a [u8]>,
}

pub(crate) fn start(buf: &mut Vec<u8>, ts: Timestamp) {
    let mut header = [PLAIN; 9];
    header[1..].copy_from_slice(&ts.0.to_le_bytes());
    buf.extend_from_slice(&header);
}

/// Starts a record with which a change of the catalog counts.
pub(crate) fn start_catalog(buf: &mut Vec<u8>, ts: Timestamp, number: u64) {
    buf.push(CATALOG);
    buf.extend_from_slice(&ts.0.to_le_bytes());
    buf.extend_from_slice(&number.to_le_bytes());
}

/// Starts a record with a request id, of a client id that is one.
pub(crate) fn start_tracked(buf: &mut Vec<u8>, ts: Timestamp, tracked: Tracked<'_>) {
    buf.push(TRACKED);
    buf.extend_from_slice(&ts.0.to_le_bytes());
    push_tracked(buf, tracked);
}

pub(crate) fn start_fragment(buf: &mut Vec<u8>, bulk: Lsn) {
    buf.push(FRAGMENT);
    buf.extend_from_slice(&bulk.to_le_bytes());
}

/// A whole record.
pub(crate) fn commit(buf: &mut Vec<u8>, commit: BulkCommit<'_>) {
    buf.push(COMMIT);
    buf.extend_from_slice(&commit.ts.0.to_le_bytes());
    buf.extend_from_slice(&commit.bulk.to_le_bytes());
    buf.extend_from_slice(&commit.fragments.to_le_bytes());
    push_if_tracked(buf, commit.tracked);
}

/// A whole record.
pub(crate) fn commit_files(buf: &mut Vec<u8>, commit: FilesCommit<'_>) {
    buf.push(FILES);
    buf.extend_from_slice(&commit.ts.0.to_le_bytes());
    buf.extend_from_slice(&commit.number.to_le_bytes());
    push_if_tracked(buf, commit.tracked);
}

/// A whole record.
pub(crate) fn give_up(buf: &mut Vec<u8>, bulk: Lsn) {
    buf.push(GIVEN_UP);
    buf.extend_from_slice(&bulk.to_le_bytes());
}

fn push_if_tracked(buf: &mut Vec<u8>, tracked: Option<Tracked<'_>>) {
    buf.push(tracked.is_some().into());
    tracked.into_iter().for_each(|tracked| push_tracked(buf, tracked));
}

fn push_tracked(buf: &mut Vec<u8>, Tracked { request, result }: Tracked<'_>) {
    buf.push(request.client.len() as u8);
    buf.extend_from_slice(request.client);
    buf.extend_from_slice(&request.sequence.to_le_bytes());
    buf.extend_from_slice(&request.first_incomplete.to_le_bytes());
    buf.extend_from_slice(&(result.len() as u32).to_le_bytes());
    buf.extend_from_slice(result);
}

/// What a change takes in a record.
pub(crate) fn bytes(key: &[u8], row: Option<&[u8]>) -> usize {
    CHANGE_HEADER_BYTES + key.len() + row.map_or(0, <[u8]>::len)
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

/// Reads a payload.
///
/// # Errors
/// `Corrupt` if the version is unknown, the bytes end before the changes, or go on where there are none; a change is `Corrupt`
/// where the bytes end early or name no kind, and is the last then.
pub fn read(payload: &[u8]) -> Result<Record<'_>> {
    let malformed = || Error::corrupt("log record: malformed");
    let (&version, rest) = payload.split_first().ok_or_else(malformed)?;
    let read = match version {
        PLAIN | TRACKED | CATALOG => read_write(version, rest),
        FRAGMENT => read_u64(rest).map(|(bulk, rest)| Record::Fragment { bulk, changes: Changes { rest } }),
        COMMIT => read_commit(rest),
        FILES => read_files(rest),
        GIVEN_UP => {
            read_u64(rest).filter(|(_, rest)| rest.is_empty()).map(|(bulk, _)| Record::GivenUp { bulk })
        }
        _ => return Err(Error::corrupt(format!("log record: unknown version {version}"))),
    };
    read.ok_or_else(malformed)
}

fn read_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    bytes.split_first_chunk().map(|(number, rest)| (u64::from_le_bytes(*number), rest))
}

fn read_write(version: u8, bytes: &[u8]) -> Option<Record<'_>> {
    let (ts, rest) = read_u64(bytes)?;
    let (tracked, catalog, rest) = match version {
        TRACKED => read_tracked(rest).map(|(tracked, rest)| (Some(tracked), None, rest))?,
        CATALOG => read_u64(rest).map(|(number, rest)| (None, Some(number), rest))?,
        _ => (None, None, rest),
    };
    Some(Record::Write(Contents { ts: Timestamp(ts), tracked, catalog, changes: Changes { rest } }))
}

fn read_commit(bytes: &[u8]) -> Option<Record<'_>> {
    let (ts, rest) = read_u64(bytes)?;
    let (bulk, rest) = read_u64(rest)?;
    let (fragments, rest) = rest.split_first_chunk()?;
    let tracked = read_if_tracked(rest)?;
    let fragments = u32::from_le_bytes(*fragments);
    Some(Record::Commit(BulkCommit { ts: Timestamp(ts), bulk, fragments, tracked }))
}

fn read_files(bytes: &[u8]) -> Option<Record<'_>> {
    let (ts, rest) = read_u64(bytes)?;
    let (number, rest) = read_u64(rest)?;
    let tracked = read_if_tracked(rest)?;
    Some(Record::Files(FilesCommit { ts: Timestamp(ts), number, tracked }))
}

/// To the end of a record.
#[allow(clippy::option_option, reason = "whether it is well-formed, and whether there is a request")]
fn read_if_tracked(bytes: &[u8]) -> Option<Option<Tracked<'_>>> {
    let (is_tracked, rest) = bytes.split_first()?;
    let (tracked, rest) = match is_tracked {
        0 => (None, rest),
        1 => read_tracked(rest).map(|(tracked, rest)| (Some(tracked), rest))?,
        _ => return None,
    };
    rest.is_empty().then_some(tracked)
}

fn read_tracked(bytes: &[u8]) -> Option<(Tracked<'_>, &[u8])> {
    let (&client_bytes, rest) = bytes.split_first()?;
    let (client, rest) = rest.split_at_checked(client_bytes.into())?;
    let (sequence, rest) = rest.split_first_chunk()?;
    let (first_incomplete, rest) = rest.split_first_chunk()?;
    let (result_bytes, rest) = rest.split_first_chunk()?;
    let (result, rest) = rest.split_at_checked(u32::from_le_bytes(*result_bytes) as usize)?;
    let request = Request {
        client,
        sequence: i64::from_le_bytes(*sequence),
        first_incomplete: i64::from_le_bytes(*first_incomplete),
    };
    is_client_id(client).then_some((Tracked { request, result }, rest))
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
