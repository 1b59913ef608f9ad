//! The seam to the outside: files, clock and background threads.
//!
//! Nothing below the binary opens a file, reads a clock or spawns a thread in any other way, so that the same engine
//! runs on a simulated disk that loses what was not synced.

pub mod locks;
mod real;

pub use real::RealFiles;

use std::any::Any;
use std::io::Result;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// What the engine is given to live in.
#[derive(Clone)]
pub struct Env {
    pub files: Arc<dyn Files>,
    pub clock: Arc<dyn Clock>,
}

impl Env {
    /// The operating system's files and clock.
    pub fn real() -> Self {
        Env { files: Arc::new(RealFiles), clock: Arc::new(real::RealClock) }
    }
}

/// A file system. Names become durable with [`sync_dir`](Files::sync_dir), contents with [`File::sync`].
pub trait Files: Send + Sync + 'static {
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// Names (not paths) of the entries of a folder, sorted.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;
    /// Creates a file for reading and writing; it must not exist.
    fn create(&self, path: &Path) -> Result<Arc<dyn File>>;
    /// Opens a file for reading, and for writing too if `write`.
    fn open(&self, path: &Path, write: bool) -> Result<Arc<dyn File>>;
    /// Replaces `to` atomically.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    fn remove(&self, path: &Path) -> Result<()>;
    fn sync_dir(&self, dir: &Path) -> Result<()>;
    /// Makes contents of files durable, and names of a folder, in any order: all at once, where one would wait for the disk as long
    /// as all do. After an error it is not known of any.
    fn sync_all(&self, files: &[Arc<dyn File>], dir: Option<&Path>) -> Result<()> {
        files.iter().try_for_each(|file| file.sync())?;
        dir.map_or(Ok(()), |dir| self.sync_dir(dir))
    }
    /// Where files are kept elsewhere too, has the finished file `path` kept under the name `name`, which is its own or the one
    /// that it is about to have; returns once it is there. Does nothing for one that is. Files that are kept in their folder alone
    /// are safe as they are.
    fn keep(&self, _path: &Path, _name: &Path) -> Result<()> {
        Ok(())
    }
    /// The disk that a folder is on; `None` if that is not known.
    fn space(&self, _dir: &Path) -> Result<Option<Space>> {
        Ok(None)
    }
    /// Takes the exclusive lock of a lock file, creating it, until the guard is dropped; `text` is left in the file.
    ///
    /// # Errors
    /// `WouldBlock`, with the text of the holder, if another process or guard has it.
    fn lock(&self, path: &Path, text: &str) -> Result<Box<dyn Any + Send + Sync>>;
}

/// Of a disk, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    pub total: u64,
    /// What this process may still write.
    pub free: u64,
}

/// An open file. Offsets are in bytes; concurrent calls are allowed.
pub trait File: Send + Sync + 'static {
    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()>;
    /// Makes contents and length durable (fdatasync).
    fn sync(&self) -> Result<()>;
    /// Has the system begin to bring what was written to this range to the disk, a hint: [`sync`](Self::sync) finds less to do then, and
    /// syncs of other files, as of the log, do not wait behind megabytes that come to the disk at once.
    fn begin_sync(&self, _range: Range<u64>) {}
    fn len(&self) -> Result<u64>;
    /// Reserves disk space and sets the length to at least `len`, zero-filled, so that writes below it cannot find
    /// the disk full.
    fn allocate(&self, len: u64) -> Result<()>;
    fn set_len(&self, len: u64) -> Result<()>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// Reads a whole file.
///
/// # Errors
/// Those of the file system.
pub fn read_file(files: &dyn Files, path: &Path) -> Result<Vec<u8>> {
    let file = files.open(path, false)?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Creates `path` with `bytes` and syncs it (not its folder).
///
/// # Errors
/// Those of the file system.
pub fn write_file(files: &dyn Files, path: &Path, bytes: &[u8]) -> Result<()> {
    create_file(files, path, bytes)?.sync()
}

/// Creates `path` with `bytes`, which the caller syncs.
///
/// # Errors
/// Those of the file system.
pub fn create_file(files: &dyn Files, path: &Path, bytes: &[u8]) -> Result<Arc<dyn File>> {
    let file = files.create(path)?;
    file.write_at(bytes, 0)?;
    Ok(file)
}

/// Time. Wall-clock time may jump; monotonic time does not.
pub trait Clock: Send + Sync + 'static {
    /// Microseconds since the Unix epoch.
    fn now_micros(&self) -> u64;
    /// Microseconds since some fixed moment, never going back.
    fn monotonic_micros(&self) -> u64;
}

/// How a background thread is scheduled against the threads that serve clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Like any thread.
    Normal,
    /// Runs when nobody else wants the core (`SCHED_IDLE`): queries, flush, compaction. Such a thread must not hold
    /// a lock that a serving thread takes.
    Idle,
}

/// Spawns a named background thread.
///
/// # Errors
/// If the operating system refuses another thread.
pub fn spawn(name: &str, priority: Priority, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        if priority == Priority::Idle {
            yield_to_serving_threads();
        }
        run();
    })
}

/// Whether the operating system has memory for so many threads more, with stacks of `stack_bytes`. Who starts threads by what
/// panics where they are refused, as tokio does, asks before.
///
/// # Errors
/// Why it has not.
pub fn can_spawn(threads: usize, stack_bytes: usize) -> Result<()> {
    let gate = std::sync::Mutex::new(());
    let wait = || drop(gate.lock());
    std::thread::scope(|scope| {
        // All are there at the same time, until this goes.
        let _closed = gate.lock();
        (0..threads).try_for_each(|_| {
            std::thread::Builder::new().stack_size(stack_bytes).spawn_scoped(scope, wait).map(drop)
        })
    })
}

/// Puts the calling thread under `SCHED_IDLE`. It goes on at normal priority where the system does not allow that.
pub fn yield_to_serving_threads() {
    real::set_sched_idle();
}

/// For a thread that serves clients, and mostly a moment at a time: it is to have the processor soon when there is something to do, for
/// a short time, rather than late for a long one. The kernel keeps its share the same (EEVDF, since Linux 6.12; others take no heed).
pub fn serve_promptly() {
    /// The shortest that it takes.
    const SLICE_NANOS: u64 = 100_000;
    real::set_slice(SLICE_NANOS);
}

/// Runs `work` on a thread of idle priority while the caller waits, so that a thread that may hold locks lets others
/// do the heavy part of its job. On a machine without a moment's rest such a thread hardly comes on: as soon as `urgent`,
/// which is asked at first and now and then, says so, it goes on at normal priority. Where the system has no thread to spare, the
/// caller does it. A panic of `work` goes on in the caller.
pub fn run_idle_until<R: Send>(urgent: impl Fn() -> bool, work: impl FnOnce() -> R + Send) -> R {
    const LOOK: Duration = Duration::from_millis(50);
    if urgent() {
        return work();
    }
    // Taken by the thread, or by the caller if there is none.
    let work = std::sync::Mutex::new(Some(work));
    let run = || {
        let work = work.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        work.expect("the work is done once")()
    };
    std::thread::scope(|scope| {
        let (begin, begun) = mpsc::sync_channel(1);
        // Nothing is sent: it is closed when the work is done, or has panicked.
        let (end, ended) = mpsc::sync_channel::<()>(0);
        let spawned = std::thread::Builder::new().spawn_scoped(scope, {
            let run = &run;
            move || {
                let _end = end;
                // The caller may have gone only if it has panicked.
                let _ = begin.send(real::current_thread());
                yield_to_serving_threads();
                run()
            }
        });
        let Ok(worker) = spawned else { return run() };
        if let Ok(thread) = begun.recv() {
            while let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK) {
                if urgent() {
                    real::set_sched_normal(thread);
                }
            }
        }
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs `work` for each number below `jobs`, on so many threads of idle priority as there are jobs, `threads` at most, while the caller
/// waits; returns what it gave, in order. What the system has no thread for, the caller does. A panic of `work` goes on in the
/// caller.
pub fn run_idle_each<R: Send>(threads: usize, jobs: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = std::sync::Mutex::new(Vec::with_capacity(jobs));
    let run = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= jobs {
                return;
            }
            let result = work(n);
            done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((n, result));
        }
    };
    let run_idle = || {
        yield_to_serving_threads();
        run();
    };
    std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, run_idle).ok();
        let workers: Vec<_> = (0..threads.min(jobs)).map_while(spawn).collect();
        if workers.is_empty() {
            run();
        }
        for worker in workers {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_unstable_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}

/// As [`run_idle_until`], for what is never urgent.
pub fn run_idle<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    run_idle_until(|| false, work)
}
