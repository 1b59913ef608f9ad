//! The log as segments in one folder.
//!
//! Appenders copy into a buffer under one mutex; whoever writes swaps the buffer for an empty one. Two threads meet in
//! three places, and no lock among them is held during an fdatasync:
//!
//! - `active`: the buffer and what the next record needs. Held for one copy and one checksum, never during I/O.
//! - `writer`: held during write(2), so that the file is in log order. Taken before `active`.
//! - `control`: what the sync thread is asked to do. Taken last.
//!
//! Cost of an append in the steady state: the caller's copy of the payload and one pass for the checksum; no
//! allocation, no system call, no wake-up. Of a group commit: one write(2), one fdatasync, one wake-up of the sync
//! thread, and one wake-up per waiter.

use crate::buffer::{Active, Appended, Batch, Promised, room_for};
use crate::format::{BUFFER_BYTES_LIMIT, BlockHeader, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::recovery::{self, Found};
use crate::segment::{self, CreateError, Segment, SegmentInfo};
use crate::sync::{Control, StopOnPanic};
use crate::{Log, Lsn, NoRoom, Progress, Record};
use oribi_env::locks::{self, Condvar, Mutex};
use oribi_env::{Env, Files, Priority};
use oribi_types::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// How a log is opened.
#[derive(Clone)]
pub struct LogOptions {
    /// Tells logs apart; a log is opened only with the id it was made with.
    pub log_id: u64,
    /// Disk space that is reserved at a time. A record that does not fit gets a segment of its own size.
    pub segment_bytes: u64,
    /// Disk space of trimmed segments that is kept for new ones.
    pub spare_bytes_max: u64,
    /// An append that finds this much waiting to be written writes it out itself.
    pub buffer_bytes_max: usize,
    /// Records are replayed from this LSN on. All below must have been durable.
    pub from: Lsn,
    /// The next record gets at least this LSN.
    pub min_next_lsn: Lsn,
    /// Unsynced records are synced at least this often even if nobody waits.
    pub sync_interval: Option<Duration>,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            log_id: 0,
            segment_bytes: 64 << 20,
            spare_bytes_max: 64 << 20,
            buffer_bytes_max: 8 << 20,
            from: 1,
            min_next_lsn: 1,
            sync_interval: None,
        }
    }
}

impl LogOptions {
    fn validate(&self) -> Result<()> {
        if self.segment_bytes < 1024 || self.segment_bytes > 1 << 36 {
            return Err(Error::invalid(format!("log: segment_bytes {} is out of range", self.segment_bytes)));
        }
        if self.buffer_bytes_max == 0 || self.buffer_bytes_max > BUFFER_BYTES_LIMIT {
            return Err(Error::invalid(format!(
                "log: buffer_bytes_max {} is out of range",
                self.buffer_bytes_max
            )));
        }
        Ok(())
    }
}

/// A log of segments in a local folder. Dropping it makes everything appended durable.
pub struct LocalLog {
    pub(crate) inner: Arc<Inner>,
    sync_thread: Option<JoinHandle<()>>,
}

pub(crate) struct Inner {
    pub files: Arc<dyn Files>,
    pub dir: PathBuf,
    pub log_id: u64,
    pub term: u64,
    pub segment_bytes: u64,
    spares_max: usize,
    buffer_bytes_max: usize,
    pub active: Mutex<Active, { locks::LOG_ACTIVE }>,
    pub writer: Mutex<Writer, { locks::LOG_WRITER }>,
    pub control: Mutex<Control, { locks::LOG_CONTROL }>,
    /// The sync thread waits here for work …
    pub work: Condvar,
    /// … and everybody else for what it has done.
    pub done: Condvar,
    pub appended: AtomicU64,
    pub written: AtomicU64,
    pub durable: AtomicU64,
    /// The highest LSN that a block states as durable.
    pub stated: AtomicU64,
    pub progress: watch::Sender<Progress>,
    stopped: OnceLock<Error>,
    /// All segments in use, oldest first.
    segments: Mutex<Vec<SegmentInfo>, { locks::LOG_SEGMENTS }>,
    /// Trimmed segments whose files are kept for new ones.
    pub spares: Mutex<Vec<u64>, { locks::LOG_SPARES }>,
    /// The segment that this opening began with: it and all before had a durable first block then.
    opening: u64,
    trimming: Mutex<(), { locks::LOG_TRIMMING }>,
}

/// What whoever writes needs.
#[derive(Default)]
pub(crate) struct Writer {
    /// The buffer that is not being filled.
    spare: Batch,
    /// Segments written to since the last fdatasync began.
    pub unsynced: Vec<Arc<Segment>>,
}

impl LocalLog {
    /// Opens the log in `dir`, or makes one, and shows `replay` the records from `options.from` on, in order. Returns
    /// when everything replayed is durable, the unsynced tail of the last crash is gone and the new term has begun.
    ///
    /// # Errors
    /// `Corrupt` if records that were durable are damaged or missing; `DiskFull` or `Unavailable` if there is no room for a
    /// segment; those of `replay`, which has been called in vain if an error is returned.
    pub fn open(
        env: &Env,
        dir: &Path,
        options: LogOptions,
        replay: &mut dyn FnMut(Record<'_>) -> Result<()>,
    ) -> Result<LocalLog> {
        options.validate()?;
        let files = &env.files;
        files.create_dir_all(dir)?;
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            files.sync_dir(parent)?;
        }
        let found = recovery::read_log(&**files, dir, Some(options.log_id), options.from, replay)?;
        let mut found = found.unwrap_or_else(Found::nothing);
        segment::remove_leftovers(&**files, dir)?;
        recovery::cut(&**files, dir, &mut found)?;
        let inner = Arc::new(Inner::begin_term(env.files.clone(), dir, &options, found)?);
        inner.request_segment(options.segment_bytes);
        let thread = inner.clone();
        let sync_thread = oribi_env::spawn("wal-sync", Priority::Normal, move || crate::sync::run(&thread))?;
        Ok(LocalLog { inner, sync_thread: Some(sync_thread) })
    }
}

impl Inner {
    /// Makes the first segment of a new term behind what recovery found.
    fn begin_term(files: Arc<dyn Files>, dir: &Path, options: &LogOptions, found: Found) -> Result<Inner> {
        let header =
            SegmentHeader { log_id: options.log_id, number: found.number_max + 1, term: found.term_max + 1 };
        let read = found.position;
        let next = read.next.max(options.min_next_lsn).max(1);
        let mut opening = BlockHeader::empty(&header, SEGMENT_HEADER_BYTES as u64, next);
        (opening.synced, opening.chain) = (read.next - 1, read.chain);
        let segment = segment::create(&*files, dir, &header, &opening.encode(), options.segment_bytes, None);
        let segment = segment.map_err(|error| match error {
            CreateError::Refused(error) | CreateError::Broken(error) => error.into_refusal(),
        })?;
        let mut segments = found.kept;
        segments.push(SegmentInfo { number: header.number, start: read.next, len: segment.len });
        let last = next - 1;
        Ok(Inner {
            files,
            dir: dir.to_owned(),
            log_id: header.log_id,
            term: header.term,
            segment_bytes: options.segment_bytes,
            spares_max: (options.spare_bytes_max / options.segment_bytes) as usize,
            buffer_bytes_max: options.buffer_bytes_max,
            active: Mutex::new(Active::new(header, segment, next, read.chain)),
            writer: Mutex::new(Writer::default()),
            control: Mutex::new(Control::new(options.sync_interval)),
            work: Condvar::new(),
            done: Condvar::new(),
            appended: AtomicU64::new(last),
            written: AtomicU64::new(last),
            durable: AtomicU64::new(last),
            stated: AtomicU64::new(last),
            progress: watch::Sender::new(Progress { durable: last, stopped: false }),
            stopped: OnceLock::new(),
            segments: Mutex::new(segments),
            spares: Mutex::default(),
            opening: header.number,
            trimming: Mutex::new(()),
        })
    }

    pub fn check(&self) -> Result<()> {
        match self.stopped.get() {
            None => Ok(()),
            Some(error) => Err(Error::unavailable(format!("log stopped: {error}"))),
        }
    }

    /// Stops the log for good; the first failure is the one that is told. Who has failed to write calls it with the
    /// writer's lock: whoever has that next must not write behind the hole. Takes `control`.
    pub fn stop(&self, error: Error) {
        if self.stopped.set(error).is_err() {
            return;
        }
        let error = self.stopped.get().expect("just set");
        tracing::error!(%error, "log stopped");
        // Waiters check and go to sleep under this lock, so none can miss the wake-up.
        drop(self.control.lock());
        self.work.notify_all();
        self.done.notify_all();
        self.progress.send_modify(|progress| progress.stopped = true);
    }

    /// Writes what has been appended; see [`Log::write_out`].
    pub fn write_out(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        // Goes before the lock does.
        let _stop = StopOnPanic(self);
        self.check()?;
        let spare = std::mem::take(&mut writer.spare);
        let (mut batch, last) = {
            let mut active = self.active.lock();
            if active.batch.is_empty() {
                writer.spare = spare;
                return Ok(());
            }
            (active.take(spare), active.next_lsn - 1)
        };
        let durable = self.durable.load(Ordering::Acquire);
        if let Err(error) = batch.write(durable, &mut writer.unsynced) {
            self.stop(error);
            return self.check();
        }
        batch.clear(self.buffer_bytes_max);
        writer.spare = batch;
        self.stated.store(durable, Ordering::Release);
        self.written.store(last, Ordering::Release);
        Ok(())
    }

    #[inline(always)]
    fn append(
        &self,
        group: u32,
        promised: Promised,
        fill: &mut dyn FnMut(Lsn, &mut Vec<u8>),
    ) -> Result<std::result::Result<Lsn, NoRoom>> {
        loop {
            let mut active = self.active.lock();
            self.check()?;
            if active.batch.len() >= self.buffer_bytes_max {
                drop(active);
                self.write_out()?;
                continue;
            }
            match active.append(group, promised, fill)? {
                Appended::Here(lsn) => {
                    self.appended.store(lsn, Ordering::Release);
                    return Ok(Ok(lsn));
                }
                Appended::InNextSegment(lsn) => {
                    self.appended.store(lsn, Ordering::Release);
                    let info = SegmentInfo { start: lsn, ..active.segment_info() };
                    self.segment_begun(info);
                    return Ok(Ok(lsn));
                }
                Appended::NoRoom { needed } => {
                    return Ok(Err(NoRoom { bytes: needed.max(self.segment_bytes) }));
                }
            }
        }
    }

    /// Notes that segment `number` is in use from LSN `start` on, and asks for the one after it.
    fn segment_begun(&self, info: SegmentInfo) {
        self.segments.lock().push(info);
        self.request_segment(self.segment_bytes);
    }

    /// The oldest segment, if all its records are below `below` and the log can be read without it.
    fn trimmable(&self, below: Lsn) -> Option<SegmentInfo> {
        let segments = self.segments.lock();
        let (oldest, second) = (segments.first()?, segments.get(1)?);
        // The oldest segment anchors the log: recovery relies on its first block. So its successor must be durable.
        let anchored = second.number <= self.opening || second.start <= self.durable.load(Ordering::Acquire);
        (second.start <= below && anchored).then_some(*oldest)
    }
}

impl Inner {
    /// Removes a segment, or keeps its file for another.
    fn retire(&self, segment: SegmentInfo) -> std::io::Result<()> {
        let path = segment::path(&self.dir, segment.number);
        let mut spares = self.spares.lock();
        if segment.len != self.segment_bytes || spares.len() >= self.spares_max {
            return self.files.remove(&path);
        }
        self.files.rename(&path, &segment::spare_path(&self.dir, segment.number))?;
        spares.push(segment.number);
        Ok(())
    }
}

impl Log for LocalLog {
    fn set_sync_interval(&self, interval: Option<Duration>) {
        self.inner.control.lock().interval = interval;
        self.inner.work.notify_one();
    }

    fn try_append(
        &self,
        group: u32,
        fill: &mut dyn FnMut(Lsn, &mut Vec<u8>),
    ) -> Result<std::result::Result<Lsn, NoRoom>> {
        self.inner.append(group, Promised::default(), fill)
    }

    fn try_append_before(
        &self,
        group: u32,
        next_bytes: usize,
        fill: &mut dyn FnMut(Lsn, &mut Vec<u8>),
    ) -> Result<std::result::Result<Lsn, NoRoom>> {
        self.inner.append(group, Promised { keeps: room_for(next_bytes), spends: 0 }, fill)
    }

    fn append_promised(
        &self,
        group: u32,
        bytes: usize,
        fill: &mut dyn FnMut(Lsn, &mut Vec<u8>),
    ) -> Result<Lsn> {
        let appended = self.inner.append(group, Promised { keeps: 0, spends: room_for(bytes) }, fill)?;
        appended.map_err(|_| Error::internal("log: a record is longer than was promised"))
    }

    fn give_back(&self, bytes: usize) {
        self.inner.active.lock().give_back(room_for(bytes));
    }

    fn make_room(&self, needed: NoRoom) -> Result<()> {
        self.inner.wait_for_segment(needed.bytes)
    }

    fn ask_for_room(&self, needed: NoRoom) -> Result<()> {
        self.inner.ask_for_segment(needed.bytes)
    }

    fn appended(&self) -> Lsn {
        self.inner.appended.load(Ordering::Acquire)
    }

    fn written(&self) -> Lsn {
        self.inner.written.load(Ordering::Acquire)
    }

    fn durable(&self) -> Lsn {
        self.inner.durable.load(Ordering::Acquire)
    }

    fn write_out(&self) -> Result<()> {
        self.inner.write_out()
    }

    fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        self.inner.wait_durable(lsn)
    }

    fn request_durable(&self, lsn: Lsn) -> Result<()> {
        self.inner.request_durable(lsn)
    }

    fn progress(&self) -> watch::Receiver<Progress> {
        self.inner.progress.subscribe()
    }

    fn check(&self) -> Result<()> {
        self.inner.check()
    }

    fn stop(&self, error: Error) {
        self.inner.stop(error);
    }

    fn room(&self) -> Result<()> {
        self.inner.room()
    }

    fn is_trimmable(&self, below: Lsn) -> bool {
        self.inner.trimmable(below).is_some()
    }

    fn trim(&self, below: Lsn) -> Result<()> {
        let inner = &*self.inner;
        let _one_at_a_time = inner.trimming.lock();
        while let Some(oldest) = inner.trimmable(below) {
            inner.check()?;
            let named =
                |error: std::io::Error| Error::from(error).context(format!("log segment {}", oldest.number));
            inner.retire(oldest).map_err(named)?;
            inner.segments.lock().remove(0);
        }
        Ok(())
    }

    fn term(&self) -> u64 {
        self.inner.term
    }

    fn oldest(&self) -> Lsn {
        self.inner.segments.lock().first().map_or(1, |segment| segment.start)
    }

    fn size_bytes(&self) -> u64 {
        self.inner.segments.lock().iter().map(|segment| segment.len).sum()
    }
}

impl Drop for LocalLog {
    fn drop(&mut self) {
        self.inner.close();
        if let Some(thread) = self.sync_thread.take() {
            // It ends by itself; a panic in it has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}
