//! Reads a whole log and decides what its end is.
//!
//! Reading stops at the first bytes that do not carry on the log. If any block behind them, or the caller, states an
//! LSN as durable that is not among the records read, then acknowledged records are missing: `Corrupt`. Otherwise the
//! bytes are what a crash left of writes that nobody was promised, and they are cut. What was durable before a segment
//! was put to use (its header; the first block of the oldest segment and of every recovery) is never a tail.

use crate::format::{BLOCK_HEADER_BYTES, NO_BLOCK, SEGMENT_ENDS, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::reader::{self, Position};
use crate::segment::{self, SegmentInfo};
use crate::{Lsn, Record};
use oribi_env::Files;
use oribi_types::{Error, Result};
use std::path::Path;

/// What reading a log found. Nothing has been modified.
#[derive(Debug)]
pub(crate) struct Found {
    /// Behind the last record.
    pub position: Position,
    /// Segments that stay, oldest first.
    pub kept: Vec<SegmentInfo>,
    /// Where the last segment that stays ends.
    pub end: u64,
    /// Those of `kept` before this index were not read: they hold nothing from `from` on, all of it durable.
    pub unread: usize,
    /// Segments that belong to the unsynced tail, or were never used.
    pub tail: Vec<u64>,
    /// The highest number and term of any segment, tail included.
    pub number_max: u64,
    pub term_max: u64,
}

impl Found {
    /// A log that does not exist yet.
    pub fn nothing() -> Self {
        let position = Position { next: 1, chain: 0, term: 0 };
        Found { position, kept: Vec::new(), end: 0, unread: 0, tail: Vec::new(), number_max: 0, term_max: 0 }
    }
}

/// Removes the unsynced tail and makes the rest durable.
///
/// # Errors
/// Those of the file system; called again, it does the rest.
pub(crate) fn cut(files: &dyn Files, dir: &Path, found: &mut Found) -> Result<()> {
    let named = |number: u64| {
        move |error: std::io::Error| Error::from(error).context(format!("log segment {number}"))
    };
    // That they are gone becomes durable with the name of the new term's segment, which is the first to rely on it.
    for &number in found.tail.iter().rev() {
        files.remove(&segment::path(dir, number)).map_err(named(number))?;
    }
    if let Some(last) = found.kept.last_mut() {
        last.len = found.end;
    }
    for segment in &found.kept[found.unread..] {
        let file = files.open(&segment::path(dir, segment.number), true).map_err(named(segment.number))?;
        if file.len().map_err(named(segment.number))? > segment.len {
            file.set_len(segment.len).map_err(named(segment.number))?;
        }
        // Without this, a power cut after the next one could take what a kill had left, and what is built on it.
        file.sync().map_err(named(segment.number))?;
    }
    Ok(())
}

/// What [`verify`] has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSummary {
    pub records: u64,
    /// The LSN after the last record.
    pub next_lsn: Lsn,
    /// Segments that hold records to replay or the end of the log.
    pub segments: u64,
}

/// Reads the log in `dir` as an opening with this `from` would, shows `visit` its records, and modifies nothing.
///
/// # Errors
/// `Corrupt`, by segment and offset; those of `visit` and of the file system.
pub fn verify(
    files: &dyn Files,
    dir: &Path,
    from: Lsn,
    visit: &mut dyn FnMut(Record<'_>) -> Result<()>,
) -> Result<LogSummary> {
    let mut records = 0;
    let found = read_log(files, dir, None, from, &mut |record| {
        records += 1;
        visit(record)
    })?;
    let found = found.unwrap_or_else(Found::nothing);
    let segments = (found.kept.len() - found.unread) as u64;
    Ok(LogSummary { records, next_lsn: found.position.next, segments })
}

/// Reads the log in `dir` and shows `replay` every record from LSN `from` on; `None` if there is no log.
///
/// # Errors
/// `Corrupt` as above, by segment and offset, also if the log is another than `log_id`; those of `replay`.
pub(crate) fn read_log(
    files: &dyn Files,
    dir: &Path,
    log_id: Option<u64>,
    from: Lsn,
    replay: &mut dyn FnMut(Record<'_>) -> Result<()>,
) -> Result<Option<Found>> {
    let numbers = segment::list(files, dir)?;
    let candidates =
        numbers.iter().map(|&number| candidate(files, dir, number, log_id)).collect::<Result<Vec<_>>>()?;
    let Some(oldest) = candidates.first() else {
        return if from > 1 { Err(missing(dir, 1, from)) } else { Ok(None) };
    };
    let begin = oldest.start.map_err(|why| damaged(oldest.header.number, SEGMENT_START, why))?;
    if from > 0 && begin.next > from {
        return Err(missing(dir, from, begin.next));
    }
    let reaches =
        |candidate: &Candidate| candidate.start.is_ok_and(|start| start.next <= from.max(begin.next));
    let unread = candidates.iter().rposition(reaches).unwrap_or(0);
    let position = candidates[unread].start.unwrap_or(begin);
    let end = unread.checked_sub(1).map_or(0, |last| candidates[last].len);
    let mut walk = Walk { files, dir, position, used: unread, end, looks_complete: true, damage: None };
    walk.read(&candidates, &mut |record| if record.lsn < from { Ok(()) } else { replay(record) })?;
    walk.check_nothing_durable_is_missing(&candidates, from)?;
    Ok(Some(Found {
        position: walk.position,
        kept: candidates[..walk.used].iter().map(Candidate::info).collect(),
        end: walk.end,
        unread,
        tail: numbers[walk.used..].to_vec(),
        number_max: candidates.iter().map(|candidate| candidate.header.number).max().unwrap_or(0),
        term_max: candidates.iter().map(|candidate| candidate.header.term).max().unwrap_or(0),
    }))
}

/// The first block of a segment stands behind its header.
const SEGMENT_START: u64 = SEGMENT_HEADER_BYTES as u64;

/// A segment as its first bytes show it.
struct Candidate {
    header: SegmentHeader,
    len: u64,
    /// The position before its first block, or why there is none.
    start: Result<Position, &'static str>,
}

impl Candidate {
    fn info(&self) -> SegmentInfo {
        let start = self.start.map_or(0, |start| start.next);
        SegmentInfo { number: self.header.number, start, len: self.len }
    }
}

fn candidate(files: &dyn Files, dir: &Path, number: u64, log_id: Option<u64>) -> Result<Candidate> {
    let named = |error: std::io::Error| Error::from(error).context(format!("log segment {number}"));
    let file = files.open(&segment::path(dir, number), false).map_err(named)?;
    let len = file.len().map_err(named)?;
    let mut head = [0; SEGMENT_HEADER_BYTES + BLOCK_HEADER_BYTES];
    let head = &mut head[..(SEGMENT_HEADER_BYTES + BLOCK_HEADER_BYTES).min(len as usize)];
    file.read_at(head, 0).map_err(named)?;
    let header = SegmentHeader::decode(head).map_err(|why| damaged(number, 0, why))?;
    if header.number != number {
        return Err(damaged(number, 0, "header of another segment"));
    }
    match log_id {
        Some(id) if id != header.log_id => {
            Err(Error::corrupt(format!("log segment {number}: belongs to log {}, not {id}", header.log_id)))
        }
        _ => Ok(Candidate { header, len, start: reader::start(head, &header) }),
    }
}

/// Reading from segment to segment.
struct Walk<'a> {
    files: &'a dyn Files,
    dir: &'a Path,
    position: Position,
    /// Segments before this one carry on the log, up to `end` of the last of them.
    used: usize,
    end: u64,
    /// Whether that is where the segment may just as well end.
    looks_complete: bool,
    /// Where the damage is, if it is damage.
    damage: Option<Error>,
}

impl Walk<'_> {
    fn read(
        &mut self,
        candidates: &[Candidate],
        visit: &mut dyn FnMut(Record<'_>) -> Result<()>,
    ) -> Result<()> {
        for (index, candidate) in candidates.iter().enumerate().skip(self.used) {
            let bytes = self.bytes(candidate)?;
            let opens = index == 0 || candidate.header.term > self.position.term;
            let stop = reader::read_blocks(&bytes, &candidate.header, &mut self.position, visit)?;
            if stop.offset as u64 == SEGMENT_START {
                // Unused, or the tail. Only the first block of a recovery was durable before anything came after it.
                let here = damaged(candidate.header.number, SEGMENT_START, stop.why);
                if opens {
                    return Err(here);
                }
                let carries_on = candidate.start.is_ok_and(|start| start.next == self.position.next);
                // One that carries on proves that the segment before was complete, whatever its file held behind.
                if carries_on || (self.looks_complete && candidate.start.is_err()) {
                    self.damage = Some(here);
                }
                return Ok(());
            }
            (self.used, self.end) = (index + 1, stop.offset as u64);
            self.looks_complete = [NO_BLOCK, SEGMENT_ENDS].contains(&stop.why);
            self.damage = Some(damaged(candidate.header.number, self.end, stop.why));
        }
        Ok(())
    }

    fn check_nothing_durable_is_missing(&self, candidates: &[Candidate], from: Lsn) -> Result<()> {
        let mut durable = from.saturating_sub(1);
        let last = self.used.saturating_sub(1);
        for (index, candidate) in candidates.iter().enumerate().skip(last) {
            let behind = if index < self.used { self.end } else { SEGMENT_START };
            let stated = reader::highest_synced(&self.bytes(candidate)?, &candidate.header, behind as usize);
            durable = durable.max(stated);
        }
        if durable < self.position.next {
            return Ok(());
        }
        let read = self.position.next - 1;
        let damage = self.damage.as_ref().map_or("log", Error::message);
        Err(Error::corrupt(format!(
            "{damage}: the log was durable through lsn {durable} and reads through {read}"
        )))
    }

    fn bytes(&self, candidate: &Candidate) -> Result<Vec<u8>> {
        let number = candidate.header.number;
        oribi_env::read_file(self.files, &segment::path(self.dir, number))
            .map_err(|error| Error::from(error).context(format!("log segment {number}")))
    }
}

fn damaged(number: u64, offset: u64, why: &str) -> Error {
    Error::corrupt(format!("log segment {number}: {why} at offset {offset}"))
}

fn missing(dir: &Path, from: Lsn, to: Lsn) -> Error {
    Error::corrupt(format!("log {}: records from lsn {from} to {to} are missing", dir.display()))
}
