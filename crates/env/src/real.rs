//! The operating system's files and clock.

#![allow(clippy::disallowed_methods, reason = "this is where they are called")]

use crate::{Clock, File, Files, Space};
use std::any::Any;
use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Files that are synced at once by a thread each: a disk of today takes some dozens.
const SYNCS_MAX: usize = 16;

/// The operating system's file system.
pub struct RealFiles;

impl Files for RealFiles {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let mut names = fs::read_dir(dir)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &Path, write: bool) -> Result<Arc<dyn File>> {
        Ok(Arc::new(RealFile(fs::OpenOptions::new().read(true).write(write).open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn sync_all(&self, files: &[Arc<dyn File>], dir: Option<&Path>) -> Result<()> {
        std::thread::scope(|scope| {
            // A sync takes no time of a processor, and its thread would have the priority of who waits for it, which may be raised meanwhile.
            let sync = |file| {
                set_sched(0, libc::SCHED_OTHER);
                File::sync(file)
            };
            let spawn = |file| std::thread::Builder::new().spawn_scoped(scope, move || sync(file));
            let (mut syncing, mut own) = (Vec::new(), files);
            // One of them is the caller's, and those for which there is no thread.
            while let [file, rest @ ..] = own
                && (dir.is_some() || !rest.is_empty())
                && syncing.len() < SYNCS_MAX
                && let Ok(thread) = spawn(&**file)
            {
                syncing.push(thread);
                own = rest;
            }
            let mut synced = own.iter().try_for_each(|file| file.sync());
            if let Some(dir) = dir {
                synced = synced.and(self.sync_dir(dir));
            }
            for thread in syncing {
                let of_file = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                synced = synced.and(of_file);
            }
            synced
        })
    }

    fn space(&self, dir: &Path) -> Result<Option<Space>> {
        let disk = rustix::fs::statvfs(dir)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Ok(Some(Space { total: bytes(disk.f_blocks), free: bytes(disk.f_bavail) }))
    }

    fn lock(&self, path: &Path, text: &str) -> Result<Box<dyn Any + Send + Sync>> {
        let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        if locked.is_err() {
            let holder = fs::read_to_string(path).unwrap_or_default();
            return Err(Error::new(ErrorKind::WouldBlock, holder.trim().to_owned()));
        }
        file.set_len(0)?;
        file.write_all_at(text.as_bytes(), 0)?;
        Ok(Box::new(file))
    }
}

struct RealFile(fs::File);

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> Result<()> {
        self.0.sync_data()
    }

    #[allow(unsafe_code)]
    fn begin_sync(&self, range: Range<u64>) {
        let len = range.end.saturating_sub(range.start);
        let (Ok(start), Ok(len)) = (range.start.try_into(), len.try_into()) else { return };
        // SAFETY: it looks at no memory of ours, and the file is open. Where a file system cannot do it, `sync` does all.
        unsafe { libc::sync_file_range(self.0.as_raw_fd(), start, len, libc::SYNC_FILE_RANGE_WRITE) };
    }

    fn len(&self) -> Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn allocate(&self, len: u64) -> Result<()> {
        rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::empty(), 0, len)?;
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }
}

pub(crate) struct RealClock;

impl Clock for RealClock {
    /// Asked once for each request: by `SystemTime` and `Duration` the same number costs 70 instructions more.
    #[allow(unsafe_code)]
    fn now_micros(&self) -> u64 {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: it writes to `now` alone. It cannot fail: the clock is one that every system has.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
        // A clock that stands before 1970 says 1970.
        now.tv_sec.max(0) as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
    }

    fn monotonic_micros(&self) -> u64 {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_micros() as u64
    }
}

pub(crate) fn set_sched_idle() {
    // The calling thread.
    set_sched(0, libc::SCHED_IDLE);
}

pub(crate) fn set_sched_normal(thread: libc::pid_t) {
    set_sched(thread, libc::SCHED_OTHER);
}

/// What the system knows the calling thread by.
#[allow(unsafe_code)]
pub(crate) fn current_thread() -> libc::pid_t {
    // SAFETY: it has no preconditions.
    unsafe { libc::gettid() }
}

#[allow(unsafe_code)]
fn set_sched(thread: libc::pid_t, policy: libc::c_int) {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: `param` outlives the call, which reads it and changes nothing but the scheduling of one thread.
    unsafe {
        libc::sched_setscheduler(thread, policy, &raw const param);
    }
}

/// Asks that the calling thread be given the processor for so many nanoseconds at a time, and those that it begins as usual. Older
/// systems take no heed.
#[allow(unsafe_code)]
pub(crate) fn set_slice(nanos: u64) {
    let mut attr = sched_attr();
    attr.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
    attr.sched_runtime = nanos;
    // SAFETY: `attr` says how long it is, and outlives the call, which changes nothing but the scheduling of one thread.
    unsafe {
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0);
    }
}

/// How the calling thread is scheduled.
#[allow(unsafe_code)]
fn sched_attr() -> libc::sched_attr {
    // SAFETY: it is numbers alone, for which zero is one.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of_val(&attr) as u32;
    // SAFETY: the call is told how long `attr` is, and writes to it alone.
    unsafe {
        libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0);
    }
    attr
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::{RealClock, RealFiles, sched_attr, set_slice};
    use crate::{Clock, File, Files, Priority, run_idle, run_idle_until, spawn};
    use std::io::{Error, Result};
    use std::sync::Arc;

    /// The scheduling policy of the calling thread: field 41 of its `stat` (proc_pid_stat(5)), of which the thread's
    /// name, in parentheses, is the second.
    fn policy() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let fields = stat.rsplit(')').next().unwrap();
        fields.split_whitespace().nth(41 - 3).unwrap().parse().unwrap()
    }

    #[test]
    fn the_clock_is_the_systems() {
        let system = || std::time::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64;
        // Unless somebody sets it back between two of the looks.
        assert!((0..10).any(|_| {
            let before = system();
            let now = RealClock.now_micros();
            (before..=system()).contains(&now)
        }));
    }

    struct Fake {
        fails: bool,
        synced: std::sync::atomic::AtomicUsize,
    }

    impl File for Fake {
        fn read_at(&self, _: &mut [u8], _: u64) -> Result<()> {
            Ok(())
        }

        fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
            Ok(())
        }

        fn sync(&self) -> Result<()> {
            self.synced.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if self.fails { Err(Error::other("it fails")) } else { Ok(()) }
        }

        fn len(&self) -> Result<u64> {
            Ok(0)
        }

        fn allocate(&self, _: u64) -> Result<()> {
            Ok(())
        }

        fn set_len(&self, _: u64) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_is_synced_at_once_or_one_of_it_fails() {
        let (folder, none) = (std::env::temp_dir(), std::env::temp_dir().join("no such folder of ours"));
        for (dir, exists) in [(None, true), (Some(&folder), true), (Some(&none), false)] {
            for (files, failing) in (0..4).flat_map(|files| (0..=files).map(move |failing| (files, failing)))
            {
                let fake = |n| Arc::new(Fake { fails: n == failing, synced: 0.into() });
                let fakes: Vec<Arc<Fake>> = (0..files).map(fake).collect();
                let all: Vec<Arc<dyn File>> =
                    fakes.iter().map(|file| file.clone() as Arc<dyn File>).collect();
                let synced = RealFiles.sync_all(&all, dir.map(|dir| dir.as_path()));
                assert_eq!(synced.is_ok(), exists && failing == files, "{files} files, {failing}");
                let times = |file: &Fake| file.synced.load(std::sync::atomic::Ordering::Relaxed);
                assert!(synced.is_err() || fakes.iter().all(|file| times(file) == 1));
            }
        }
    }

    #[test]
    fn idle_threads_are_scheduled_as_such_and_leave_their_callers_alone() {
        assert_eq!(run_idle(policy), libc::SCHED_IDLE);
        for (priority, expected) in
            [(Priority::Idle, libc::SCHED_IDLE), (Priority::Normal, libc::SCHED_OTHER)]
        {
            let (tell, told) = std::sync::mpsc::channel();
            let thread = spawn("policy", priority, move || tell.send(policy()).unwrap()).unwrap();
            assert_eq!(told.recv().unwrap(), expected);
            thread.join().unwrap();
        }
        assert_eq!(policy(), libc::SCHED_OTHER);
    }

    #[test]
    fn a_short_slice_is_a_threads_own() {
        let slices = || {
            let before = sched_attr().sched_runtime;
            set_slice(200_000);
            let begun = std::thread::spawn(|| sched_attr().sched_runtime).join().unwrap();
            (before, sched_attr().sched_runtime, begun)
        };
        let (before, asked, begun) = std::thread::spawn(slices).join().unwrap();
        assert_eq!(begun, before);
        // A system of before Linux 6.12 has none.
        assert!(asked == 200_000 || (asked, before) == (0, 0), "{asked}");
        assert_eq!(policy(), libc::SCHED_OTHER);
    }

    #[test]
    fn what_has_become_urgent_goes_on_at_normal_priority() {
        let asked = std::sync::atomic::AtomicBool::new(false);
        run_idle_until(
            || asked.swap(true, std::sync::atomic::Ordering::Relaxed),
            || {
                while policy() == libc::SCHED_IDLE {
                    std::thread::yield_now();
                }
            },
        );
        let panics = std::panic::catch_unwind(|| run_idle(|| std::panic::resume_unwind(Box::new(()))));
        assert!(panics.is_err());
    }
}
