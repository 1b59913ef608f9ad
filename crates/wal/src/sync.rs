//! The sync thread: makes the log durable for whoever waits, and keeps the next segment ready.
//!
//! Group commit needs no timer: while one fdatasync runs, appenders fill the next group, and the first thing the
//! thread does when it comes back is to write and sync that.

use crate::Lsn;
use crate::format::SegmentHeader;
use crate::local::Inner;
use crate::segment::{self, CreateError, Segment};
use oribi_types::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// An idle log states what is durable after this time, so that later damage to its last records is told from a tail.
const STATEMENT_PAUSE: Duration = Duration::from_millis(20);

/// What the sync thread is asked to do, and what it answers.
#[derive(Default)]
pub(crate) struct Control {
    /// Somebody waits for this LSN.
    wanted: Lsn,
    /// Size of the segment to prepare; 0 if none is asked for.
    segment_bytes: u64,
    /// Segments prepared, or refused; and why the last one was.
    attempts: u64,
    /// How many there were when somebody asked who does not wait.
    asked: Option<u64>,
    refused: Option<Error>,
    pub interval: Option<Duration>,
    closing: bool,
}

impl Control {
    pub fn new(interval: Option<Duration>) -> Self {
        Control { interval, ..Control::default() }
    }

    /// Why the last attempt to prepare a segment failed, if it did.
    fn room(&self) -> Result<()> {
        let refused =
            |error: &Error| error.clone().into_refusal().context("log: no room for the next segment");
        self.refused.as_ref().map_or(Ok(()), |error| Err(refused(error)))
    }
}

enum Task {
    Prepare(u64),
    Sync,
    State,
    Close,
}

/// Runs until the log is closed or stops.
pub(crate) fn run(log: &Inner) {
    let _stop = StopOnPanic(log);
    let mut unsynced = Vec::new();
    loop {
        let result = match log.next_task() {
            None => return,
            Some(Task::Prepare(bytes)) => log.prepare(bytes),
            Some(Task::Sync) => log.sync(&mut unsynced),
            Some(Task::State) => log.state(),
            Some(Task::Close) => log.sync(&mut unsynced).and_then(|()| log.state()),
        };
        if let Err(error) = result {
            log.stop(error);
        }
    }
}

/// Nobody may wait for a thread that is gone, nor write behind what one has left half written.
pub(crate) struct StopOnPanic<'a>(pub &'a Inner);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(Error::internal("a thread that writes the log panicked"));
        }
    }
}

impl Inner {
    /// Sleeps until there is something to do; `None` when there never will be.
    fn next_task(&self) -> Option<Task> {
        let mut control = self.control.lock();
        let mut stated = false;
        loop {
            if self.check().is_err() {
                return None;
            }
            let bytes = std::mem::take(&mut control.segment_bytes);
            let durable = self.durable.load(Ordering::Acquire);
            let ahead = self.appended.load(Ordering::Acquire) > durable;
            let unstated = !stated && self.stated.load(Ordering::Acquire) < durable;
            if bytes > 0 {
                return Some(Task::Prepare(bytes));
            } else if control.wanted > durable {
                return Some(Task::Sync);
            } else if control.closing {
                return (ahead || unstated).then_some(Task::Close);
            }
            // Both pauses together are one interval.
            let statement_pause =
                control.interval.map_or(STATEMENT_PAUSE, |all| STATEMENT_PAUSE.min(all / 2));
            let timed_out = match control.interval {
                _ if unstated => self.work.wait_for(&mut control, statement_pause),
                Some(all) => self.work.wait_for(&mut control, all.saturating_sub(statement_pause)),
                None => {
                    self.work.wait(&mut control);
                    false
                }
            };
            match timed_out {
                true if unstated && !ahead => return Some(Task::State),
                // Blocks still to be written will state it.
                true if unstated => stated = true,
                true if ahead => return Some(Task::Sync),
                _ => {}
            }
        }
    }

    /// One group commit. `unsynced` is empty before and after; it keeps its memory.
    fn sync(&self, unsynced: &mut Vec<Arc<Segment>>) -> Result<()> {
        self.write_out()?;
        let target = {
            let mut writer = self.writer.lock();
            std::mem::swap(&mut writer.unsynced, unsynced);
            self.written.load(Ordering::Acquire)
        };
        for segment in unsynced.drain(..) {
            let named = |error: std::io::Error| {
                Error::from(error).context(format!("log segment {}: sync", segment.number))
            };
            segment.file.sync().map_err(named)?;
        }
        self.durable.store(target, Ordering::Release);
        // Waiters check and go to sleep under this lock, so none can miss the wake-up.
        drop(self.control.lock());
        self.done.notify_all();
        self.progress.send_modify(|progress| progress.durable = target);
        Ok(())
    }

    /// Writes a block without records that states what is durable, unless records wait whose block will.
    fn state(&self) -> Result<()> {
        let _writer = self.writer.lock();
        self.check()?;
        let durable = self.durable.load(Ordering::Acquire);
        let reserved = self.active.lock().reserve_statement();
        // Without room, the next segment's first block will state it.
        self.stated.store(durable, Ordering::Release);
        let Some((segment, mut header)) = reserved else { return Ok(()) };
        header.synced = durable;
        if let Err(error) = segment.file.write_at(&header.encode(), header.offset) {
            self.stop(Error::from(error).context(format!("log segment {}: write", segment.number)));
        }
        self.check()
    }

    /// Makes sure that a segment of at least `bytes` is prepared, or says why there is none.
    fn prepare(&self, bytes: u64) -> Result<()> {
        let prepared = self.active.lock().prepared.take();
        let made = match &prepared {
            Some(segment) if segment.len >= bytes => Ok(None),
            Some(segment) => enlarge(segment, bytes).map(Some),
            None => self.create(bytes).map(Some),
        };
        let (segment, refused) = match made {
            Ok(made) => (made.map(Arc::new).or(prepared), None),
            Err(CreateError::Refused(error)) => (prepared, Some(error)),
            Err(CreateError::Broken(error)) => return Err(error),
        };
        self.active.lock().prepared = segment;
        let mut control = self.control.lock();
        control.attempts += 1;
        control.refused = refused;
        self.done.notify_all();
        Ok(())
    }

    fn create(&self, bytes: u64) -> Result<Segment, CreateError> {
        let number = self.active.lock().segment_info().number + 1;
        let header = SegmentHeader { log_id: self.log_id, number, term: self.term };
        let spare = if bytes == self.segment_bytes { self.spares.lock().pop() } else { None };
        segment::create(&*self.files, &self.dir, &header, &[], bytes, spare)
    }

    /// Asks for a prepared segment.
    pub fn request_segment(&self, bytes: u64) {
        let mut control = self.control.lock();
        control.segment_bytes = control.segment_bytes.max(bytes);
        self.work.notify_one();
    }

    /// Blocks until the sync thread has tried to prepare a segment of at least `bytes`.
    pub fn wait_for_segment(&self, bytes: u64) -> Result<()> {
        let mut control = self.control.lock();
        let attempts = control.attempts;
        control.segment_bytes = control.segment_bytes.max(bytes);
        self.work.notify_one();
        while control.attempts == attempts {
            self.check()?;
            self.done.wait(&mut control);
        }
        control.room()
    }

    /// Has a segment of at least `bytes` prepared. Where that was tried since somebody asked so, and failed, it says why.
    pub fn ask_for_segment(&self, bytes: u64) -> Result<()> {
        self.check()?;
        let mut control = self.control.lock();
        control.segment_bytes = control.segment_bytes.max(bytes);
        self.work.notify_one();
        let attempts = control.attempts;
        let asked = control.asked.replace(attempts);
        if asked.is_some_and(|asked| asked < attempts) { control.room() } else { Ok(()) }
    }

    /// See [`Log::room`](crate::Log::room).
    pub fn room(&self) -> Result<()> {
        let mut control = self.control.lock();
        control.room().inspect_err(|_| {
            control.segment_bytes = control.segment_bytes.max(self.segment_bytes);
            self.work.notify_one();
        })
    }

    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        if self.durable.load(Ordering::Acquire) >= lsn {
            return Ok(());
        }
        self.request_durable(lsn)?;
        let mut control = self.control.lock();
        while self.durable.load(Ordering::Acquire) < lsn {
            self.check()?;
            self.done.wait(&mut control);
        }
        Ok(())
    }

    pub fn request_durable(&self, lsn: Lsn) -> Result<()> {
        if lsn > self.appended.load(Ordering::Acquire) {
            return Err(Error::internal(format!("log: lsn {lsn} was never appended")));
        }
        let mut control = self.control.lock();
        if lsn > control.wanted {
            control.wanted = lsn;
            self.work.notify_one();
        }
        if self.durable.load(Ordering::Acquire) >= lsn { Ok(()) } else { self.check() }
    }

    /// Lets the sync thread finish its work and end.
    pub fn close(&self) {
        self.control.lock().closing = true;
        self.work.notify_one();
    }
}

/// Makes a prepared segment larger.
fn enlarge(segment: &Segment, bytes: u64) -> Result<Segment, CreateError> {
    let named = |error: std::io::Error| Error::from(error).context(format!("log segment {}", segment.number));
    segment.file.allocate(bytes).map_err(|error| CreateError::Refused(named(error)))?;
    segment.file.sync().map_err(|error| CreateError::Broken(named(error)))?;
    Ok(Segment { number: segment.number, file: segment.file.clone(), len: bytes })
}
