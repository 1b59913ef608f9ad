//! The write-ahead log: what was acknowledged is in it, in the order in which it became visible.
//!
//! [`LocalLog`] keeps segments in one folder; a partition of a replicated log can stand behind the same [`Log`] trait.
//! Invariants, each with a test that fails without it:
//!
//! - Log order is LSN order is the order in which `fill` ran, so a timestamp taken there is in log order.
//! - `durable() ≤ written() ≤` the last LSN appended; none goes back. What is durable is replayed by the next open.
//! - What is replayed is a prefix of what was appended, each record whole.
//! - Damage to what was durable is an error that names the segment and the offset; nothing is modified then.
//! - After a failed write or fdatasync no append and no wait succeeds: after such a failure the page cache may hold
//!   bytes that the disk does not, so trying again could answer for what is lost.
//!
//! The crate also has the framed file under the manifest ([`frames`]).

mod buffer;
mod checksum;
pub mod format;
pub mod frames;
mod local;
pub mod reader;
mod recovery;
mod segment;
mod sync;
#[cfg(test)]
mod tests;

pub use local::{LocalLog, LogOptions};
pub use reader::read_segment;
pub use recovery::{LogSummary, verify};

use oribi_types::{Error, Result};
use std::time::Duration;
use tokio::sync::watch;

/// Number of a record: from 1, without gaps while a log is open; the next open may jump ahead.
pub type Lsn = u64;

/// A record as recovery shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub lsn: Lsn,
    /// The tablet group that the record belongs to.
    pub group: u32,
    /// The opening of the log that appended it.
    pub term: u64,
    /// Its number within group and term, from 1.
    pub sequence: u64,
    pub payload: &'a [u8],
}

/// A record that the segments have no room for needs one of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    pub bytes: u64,
}

/// What those who wait for the log are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub durable: Lsn,
    /// Nothing more will become durable; see [`Log::check`].
    pub stopped: bool,
}

/// An ordered, durable sequence of records.
pub trait Log: Send + Sync {
    /// Reserves the next LSN and lets `fill` append the record's payload, at most [`format::PAYLOAD_BYTES_MAX`], to
    /// the buffer, in one step: who takes a timestamp in `fill` takes it in log order. `fill` is called again, maybe
    /// with another LSN, if the log had to wait for room; the last call counts. It must not call the log.
    ///
    /// Does no I/O unless the buffer is over its bound; then it writes it out.
    ///
    /// # Errors
    /// As [`try_append`](Self::try_append) and [`make_room`](Self::make_room).
    fn append(&self, group: u32, fill: &mut dyn FnMut(Lsn, &mut Vec<u8>)) -> Result<Lsn> {
        loop {
            match self.try_append(group, fill)? {
                Ok(lsn) => return Ok(lsn),
                Err(needed) => self.make_room(needed)?,
            }
        }
    }

    /// As [`append`](Self::append), without waiting for a segment: what is to be there before the record can be appended is
    /// told, if it is not. `fill` may have been called then; nothing was appended and no LSN used.
    ///
    /// # Errors
    /// `Unavailable` if the log has stopped, `TooLarge`. Nothing was appended then.
    fn try_append(
        &self,
        group: u32,
        fill: &mut dyn FnMut(Lsn, &mut Vec<u8>),
    ) -> Result<std::result::Result<Lsn, NoRoom>>;

    /// As [`try_append`](Self::try_append), and keeps room for one more record, with a payload of at most `next_bytes`, whatever
    /// others append meanwhile.
    ///
    /// # Errors
    /// As there.
    fn try_append_before(
        &self,
        group: u32,
        next_bytes: usize,
        fill: &mut dyn FnMut(Lsn, &mut Vec<u8>),
    ) -> Result<std::result::Result<Lsn, NoRoom>>;

    /// As [`append`](Self::append), of the record for which room was kept. Once `fill` is called, the record is as good as
    /// appended: it has at most as many bytes as were asked for.
    ///
    /// # Errors
    /// `Unavailable` if the log has stopped.
    fn append_promised(
        &self,
        group: u32,
        bytes: usize,
        fill: &mut dyn FnMut(Lsn, &mut Vec<u8>),
    ) -> Result<Lsn>;

    /// The record for which room was kept does not come.
    fn give_back(&self, bytes: usize);

    /// Blocks until room was made for a record that had none.
    ///
    /// # Errors
    /// `DiskFull` if there is no disk space for it, `Unavailable` if it cannot be had for another reason or the log has stopped.
    fn make_room(&self, needed: NoRoom) -> Result<()>;

    /// Asks for the room, and does not wait: it is there when the record is tried again, some time later.
    ///
    /// # Errors
    /// As [`make_room`](Self::make_room), where that was tried since somebody asked.
    fn ask_for_room(&self, needed: NoRoom) -> Result<()>;

    /// The last LSN appended, or the one before the first.
    fn appended(&self) -> Lsn;
    /// Through this LSN records were handed to the operating system: they survive the process.
    fn written(&self) -> Lsn;
    /// Through this LSN records are on the disk: they survive a power cut.
    fn durable(&self) -> Lsn;

    /// Hands everything appended so far to the operating system, on the calling thread.
    ///
    /// # Errors
    /// `Unavailable` if the log has stopped.
    fn write_out(&self) -> Result<()>;

    /// Blocks until `lsn` is durable.
    ///
    /// # Errors
    /// `Unavailable` if the log has stopped before that, `Internal` if `lsn` was never appended.
    fn wait_durable(&self, lsn: Lsn) -> Result<()>;

    /// Asks for `lsn` to become durable and returns at once; [`progress`](Log::progress) tells when it is.
    ///
    /// # Errors
    /// As [`wait_durable`](Log::wait_durable).
    fn request_durable(&self, lsn: Lsn) -> Result<()>;

    /// Changes whenever `durable` does or the log stops. One receiver can serve all that wait on a thread.
    fn progress(&self) -> watch::Receiver<Progress>;

    /// Whether the log still takes records.
    ///
    /// # Errors
    /// `Unavailable` with the first failure once it has stopped.
    fn check(&self) -> Result<()>;

    /// Stops the log, as a failed write does: for who finds that what it was to protect cannot be trusted any more.
    fn stop(&self, error: Error);

    /// Whether there was disk space for the next segment when some was last reserved. If not, another attempt is made.
    ///
    /// # Errors
    /// Why there was none.
    fn room(&self) -> Result<()>;

    /// Sets how often unsynced records are synced even if nobody waits; `None` never.
    fn set_sync_interval(&self, interval: Option<Duration>);

    /// Whether [`trim`](Self::trim) would remove something.
    fn is_trimmable(&self, below: Lsn) -> bool;

    /// Removes old segments all of whose records are below `below`.
    ///
    /// # Errors
    /// `Unavailable` if the log has stopped; those of the file system.
    fn trim(&self, below: Lsn) -> Result<()>;

    /// The term of this opening of the log, higher than that of any before.
    fn term(&self) -> u64;
    /// The LSN at which the oldest segment begins.
    fn oldest(&self) -> Lsn;
    /// Disk space of all segments.
    fn size_bytes(&self) -> u64;
}

/// Waits until `lsn` is durable without blocking the thread.
///
/// # Errors
/// As [`Log::wait_durable`].
pub async fn durable(log: &dyn Log, lsn: Lsn) -> Result<()> {
    if log.durable() >= lsn {
        return Ok(());
    }
    let mut progress = log.progress();
    log.request_durable(lsn)?;
    // An error means that the log is gone; what it reached decides.
    let _ = progress.wait_for(|progress| progress.durable >= lsn || progress.stopped).await;
    if log.durable() >= lsn { Ok(()) } else { log.check() }
}

/// Waits until the log has stopped. Whoever serves from it must end then: nothing it has not acknowledged yet will be.
pub async fn stopped(log: &dyn Log) -> Error {
    // An error means that the log is gone, which is as good.
    let _ = log.progress().wait_for(|progress| progress.stopped).await;
    log.check().err().unwrap_or_else(|| Error::unavailable("log closed"))
}
