//! The simulated disk as a file system, with faults.

use crate::disk::{Change, Disk, Inode, NameChange, Node};
use oribi_env::{File, Files};
use parking_lot::Mutex;
use std::any::Any;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Read,
    Write,
    Allocate,
    SetLen,
    Sync,
    Rename,
    Remove,
    SyncDir,
}

/// A file system in memory. Clones are the same disk; [`crash`](SimFiles::crash) and [`kill`](SimFiles::kill) give
/// another one, which threads that still run on this one do not reach.
#[derive(Clone, Default)]
pub struct SimFiles(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    disk: Disk,
    faults: Vec<Fault>,
    capacity: Option<u64>,
    /// Operations that change something, so far; and how many there may be.
    changes: u64,
    changes_max: Option<u64>,
}

struct Fault {
    operation: Operation,
    path_part: String,
    /// Operations that still succeed.
    after: u64,
}

impl SimFiles {
    pub fn new() -> Self {
        SimFiles::default()
    }

    /// The disk after a power cut now: what was synced is there; of the rest, each write, length, and name is kept,
    /// lost, or (writes) torn at sectors, independently, as `seed` says.
    #[must_use]
    pub fn crash(&self, seed: u64) -> SimFiles {
        SimFiles::of(self.0.lock().disk.crash(seed))
    }

    /// The disk after the process was killed now: all that was written is there, none of it more durable than before.
    #[must_use]
    pub fn kill(&self) -> SimFiles {
        let mut disk = self.0.lock().disk.clone();
        disk.locked.clear();
        SimFiles::of(disk)
    }

    fn of(disk: Disk) -> SimFiles {
        SimFiles(Arc::new(Mutex::new(State { disk, ..State::default() })))
    }

    /// Lets one `operation` on a path that contains `path_part` fail with an I/O error: the `nth` from now, the next
    /// being the first. A failed write may have written half; what a failed sync was to sync is lost in a crash.
    pub fn fail(&self, operation: Operation, nth: u64, path_part: &str) {
        let fault = Fault { operation, path_part: path_part.to_owned(), after: nth.saturating_sub(1) };
        self.0.lock().faults.push(fault);
    }

    /// Takes back what was set to [`fail`](SimFiles::fail) and has not yet; whether there was any.
    pub fn forgive(&self) -> bool {
        !std::mem::take(&mut self.0.lock().faults).is_empty()
    }

    /// Limits the sum of all lengths; what would exceed it fails with `StorageFull`. `None`: no limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.0.lock().capacity = bytes;
    }

    /// Sum of the lengths of all files.
    pub fn used_bytes(&self) -> u64 {
        self.0.lock().disk.used_bytes()
    }

    /// How many operations have changed something (syncs included).
    pub fn changes(&self) -> u64 {
        self.0.lock().changes
    }

    /// Lets the machine stop when [`changes`](SimFiles::changes) has come to `changes`: whatever comes later fails. A
    /// test that tries every number meets every crash point.
    pub fn stop_at(&self, changes: u64) {
        self.0.lock().changes_max = Some(changes);
    }

    /// Flips one bit of a file. Returns whether there is such a bit.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> bool {
        let mut state = self.0.lock();
        let Some(Node::File(inode)) = state.disk.names.get(path).copied() else { return false };
        let content = state.disk.content(inode);
        content.flip(bit);
        bit / 8 < content.seen.len()
    }

    /// Paths of all files, sorted.
    pub fn all_files(&self) -> Vec<PathBuf> {
        let state = self.0.lock();
        let files = state.disk.names.iter().filter(|(_, node)| matches!(node, Node::File(_)));
        files.map(|(path, _)| path.clone()).collect()
    }
}

impl State {
    fn is_stopped(&self) -> bool {
        self.changes_max.is_some_and(|max| self.changes >= max)
    }

    /// Counts an operation and fails it if it is to fail.
    fn admit(&mut self, operation: Operation, path: &Path) -> Result<()> {
        if operation != Operation::Read {
            if self.is_stopped() {
                return Err(Error::other("simulated machine has stopped"));
            }
            self.changes += 1;
        }
        let mut failed = false;
        let path = path.to_string_lossy();
        self.faults.retain_mut(|fault| {
            if fault.operation != operation || !path.contains(&fault.path_part) {
                return true;
            }
            let now = fault.after == 0;
            failed |= now;
            fault.after = fault.after.saturating_sub(1);
            !now
        });
        if failed { Err(Error::other(format!("simulated failure: {operation:?} {path}"))) } else { Ok(()) }
    }

    /// The present name of a file, for faults; empty if there are none, or the file was removed.
    fn path_of(&self, inode: Inode) -> PathBuf {
        let mut named = self.disk.names.iter().filter(|_| !self.faults.is_empty());
        named.find(|(_, node)| **node == Node::File(inode)).map(|(path, _)| path.clone()).unwrap_or_default()
    }

    fn grow(&self, from: u64, to: u64) -> Result<()> {
        match self.capacity {
            Some(capacity) if to > from && self.disk.used_bytes() + (to - from) > capacity => {
                Err(Error::new(ErrorKind::StorageFull, "simulated disk is full"))
            }
            _ => Ok(()),
        }
    }

    fn node(&self, path: &Path) -> Result<Node> {
        let missing = || Error::new(ErrorKind::NotFound, format!("no such file: {}", path.display()));
        if is_root(path) { Ok(Node::Folder) } else { self.disk.names.get(path).copied().ok_or_else(missing) }
    }

    fn check_folder(&self, path: &Path) -> Result<()> {
        match self.node(path)? {
            Node::Folder => Ok(()),
            Node::File(_) => Err(Error::new(ErrorKind::NotADirectory, path.display().to_string())),
        }
    }
}

/// `/` and the empty relative path are always there.
fn is_root(path: &Path) -> bool {
    path.parent().is_none()
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

impl Files for SimFiles {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let mut state = self.0.lock();
        let mut missing: Vec<&Path> = path.ancestors().filter(|folder| state.node(folder).is_err()).collect();
        while let Some(folder) = missing.pop() {
            state.admit(Operation::Create, folder)?;
            state.disk.add_folder(folder);
        }
        state.check_folder(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let state = self.0.lock();
        state.check_folder(dir)?;
        let within = state.disk.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(within.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let mut state = self.0.lock();
        state.admit(Operation::Create, path)?;
        state.check_folder(parent(path))?;
        if state.node(path).is_ok() {
            return Err(Error::new(ErrorKind::AlreadyExists, path.display().to_string()));
        }
        let inode = state.disk.add_file(path);
        Ok(Arc::new(SimFile { files: self.clone(), inode, write: true }))
    }

    fn open(&self, path: &Path, write: bool) -> Result<Arc<dyn File>> {
        match self.0.lock().node(path)? {
            Node::File(inode) => Ok(Arc::new(SimFile { files: self.clone(), inode, write })),
            Node::Folder => Err(Error::new(ErrorKind::IsADirectory, path.display().to_string())),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.0.lock();
        state.admit(Operation::Rename, to)?;
        let node @ Node::File(_) = state.node(from)? else {
            return Err(Error::new(ErrorKind::Unsupported, "the simulated disk renames files only"));
        };
        state.check_folder(parent(to))?;
        state.disk.change_names(NameChange::Rename { from: from.to_owned(), to: to.to_owned(), node });
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let mut state = self.0.lock();
        state.admit(Operation::Remove, path)?;
        let Node::File(_) = state.node(path)? else {
            return Err(Error::new(ErrorKind::IsADirectory, path.display().to_string()));
        };
        state.disk.change_names(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let mut state = self.0.lock();
        state.admit(Operation::SyncDir, dir)?;
        state.check_folder(dir)?;
        state.disk.sync_names(dir);
        Ok(())
    }

    fn lock(&self, path: &Path, text: &str) -> Result<Box<dyn Any + Send + Sync>> {
        if !self.0.lock().disk.locked.insert(path.to_owned()) {
            let holder = oribi_env::read_file(self, path).unwrap_or_default();
            return Err(Error::new(ErrorKind::WouldBlock, String::from_utf8_lossy(&holder).into_owned()));
        }
        let lock = Lock { files: self.clone(), path: path.to_owned() };
        let file = self.open(path, true).or_else(|_| self.create(path))?;
        file.set_len(0)?;
        file.write_at(text.as_bytes(), 0)?;
        Ok(Box::new(lock))
    }
}

struct Lock {
    files: SimFiles,
    path: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.files.0.lock().disk.locked.remove(&self.path);
    }
}

struct SimFile {
    files: SimFiles,
    inode: Inode,
    write: bool,
}

impl SimFile {
    /// Admits a change of the file to at least `len` bytes.
    fn admit(&self, state: &mut State, operation: Operation, len: u64) -> Result<()> {
        if !self.write {
            return Err(Error::new(ErrorKind::PermissionDenied, "the file is open for reading only"));
        }
        let now = state.disk.content(self.inode).seen.len();
        state.grow(now, len)?;
        let path = state.path_of(self.inode);
        state.admit(operation, &path)
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut state = self.files.0.lock();
        let path = state.path_of(self.inode);
        state.admit(Operation::Read, &path)?;
        let content = state.disk.content(self.inode);
        if offset + buf.len() as u64 > content.seen.len() {
            return Err(Error::new(ErrorKind::UnexpectedEof, "the file ends before"));
        }
        content.seen.read(buf, offset);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut state = self.files.0.lock();
        let stopped = state.is_stopped();
        let admitted = self.admit(&mut state, Operation::Write, offset + bytes.len() as u64);
        let written = match &admitted {
            Ok(()) => bytes,
            // An I/O error may come in the middle.
            Err(error) if error.kind() == ErrorKind::Other && !stopped => &bytes[..bytes.len() / 2],
            Err(_) => &[],
        };
        if !written.is_empty() {
            state.disk.content(self.inode).change(Change::Write { offset, bytes: written.to_vec() });
        }
        admitted
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.files.0.lock();
        let stopped = state.is_stopped();
        let path = state.path_of(self.inode);
        let admitted = state.admit(Operation::Sync, &path);
        match &admitted {
            Ok(()) => state.disk.content(self.inode).sync(),
            Err(_) if stopped => {}
            Err(_) => state.disk.content(self.inode).fail_sync(),
        }
        admitted
    }

    fn len(&self) -> Result<u64> {
        Ok(self.files.0.lock().disk.content(self.inode).seen.len())
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let mut state = self.files.0.lock();
        self.admit(&mut state, Operation::Allocate, len)?;
        let content = state.disk.content(self.inode);
        if len > content.seen.len() {
            content.change(Change::Grow(len));
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut state = self.files.0.lock();
        self.admit(&mut state, Operation::SetLen, len)?;
        state.disk.content(self.inode).change(Change::Length(len));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;
    use oribi_env::{read_file, write_file};

    const DIR: &str = "/db";

    fn path(name: &str) -> PathBuf {
        Path::new(DIR).join(name)
    }

    /// A disk with the durable folder `/db`.
    fn disk() -> SimFiles {
        let files = SimFiles::new();
        files.create_dir_all(Path::new(DIR)).unwrap();
        files.sync_dir(Path::new("/")).unwrap();
        files
    }

    #[test]
    fn what_was_synced_survives_every_crash_and_what_was_not_only_some() {
        let files = disk();
        write_file(&files, &path("a"), &[1; 2000]).unwrap();
        files.sync_dir(Path::new(DIR)).unwrap();
        let file = files.open(&path("a"), true).unwrap();
        file.write_at(&[2; 1500], 2000).unwrap();
        let mut lengths = std::collections::BTreeSet::new();
        let mut torn = false;
        seeds(200, |seed| {
            let bytes = read_file(&files.crash(seed), &path("a")).unwrap();
            assert_eq!(bytes[..2000], [1; 2000]);
        });
        for seed in 0..200 {
            let bytes = read_file(&files.crash(seed), &path("a")).unwrap();
            torn |= bytes[2000..].contains(&0);
            lengths.insert(bytes.len());
        }
        assert!(lengths.contains(&2000) && lengths.contains(&3500) && lengths.len() > 3, "{lengths:?}");
        assert!(torn, "a later sector without an earlier one");
        assert_eq!(read_file(&files.kill(), &path("a")).unwrap().len(), 3500);
    }

    #[test]
    fn names_become_durable_with_their_folder() {
        let files = disk();
        write_file(&files, &path("a"), b"a").unwrap();
        let there = |files: &SimFiles, name: &str| files.open(&path(name), false).is_ok();
        assert!((0..50).any(|seed| there(&files.crash(seed), "a")));
        assert!((0..50).any(|seed| !there(&files.crash(seed), "a")));
        files.sync_dir(Path::new(DIR)).unwrap();
        files.rename(&path("a"), &path("b")).unwrap();
        for seed in 0..50 {
            let crashed = files.crash(seed);
            assert!(there(&crashed, "a") != there(&crashed, "b"), "a rename is atomic");
        }
        files.sync_dir(Path::new(DIR)).unwrap();
        files.remove(&path("b")).unwrap();
        assert!((0..50).any(|seed| there(&files.crash(seed), "b")));
        assert!((0..50).any(|seed| !there(&files.crash(seed), "b")));
    }

    #[test]
    fn what_a_failed_sync_left_is_lost_even_after_a_sync_that_succeeds() {
        let files = disk();
        let file = files.create(&path("a")).unwrap();
        files.sync_dir(Path::new(DIR)).unwrap();
        file.write_at(b"lost", 0).unwrap();
        files.fail(Operation::Sync, 1, "a");
        assert!(file.sync().is_err());
        file.sync().unwrap();
        let mut seen = [0; 4];
        file.read_at(&mut seen, 0).unwrap();
        assert_eq!(&seen, b"lost", "the process still reads it");
        assert!(read_file(&files.crash(1), &path("a")).unwrap().is_empty());
    }

    #[test]
    fn a_full_disk_refuses_to_grow() {
        let files = disk();
        files.set_capacity(Some(1000));
        let file = files.create(&path("a")).unwrap();
        file.allocate(900).unwrap();
        file.write_at(&[1; 900], 0).unwrap();
        assert_eq!(file.write_at(&[1; 101], 900).unwrap_err().kind(), ErrorKind::StorageFull);
        files.remove(&path("a")).unwrap();
        files.create(&path("b")).unwrap().allocate(1000).unwrap();
    }

    #[test]
    fn a_machine_that_has_stopped_changes_nothing_more() {
        let files = disk();
        let file = files.create(&path("a")).unwrap();
        files.stop_at(files.changes() + 1);
        file.write_at(b"one", 0).unwrap();
        assert!(
            file.write_at(b"two", 0).is_err() && file.sync().is_err() && files.remove(&path("a")).is_err()
        );
        assert_eq!(read_file(&files.kill(), &path("a")).unwrap(), b"one");
    }

    #[test]
    fn a_lock_has_one_holder_and_ends_with_the_process() {
        let files = disk();
        let lock = files.lock(&path("LOCK"), "first").unwrap();
        let refused = files.lock(&path("LOCK"), "second").err().unwrap();
        assert_eq!((refused.kind(), refused.to_string()), (ErrorKind::WouldBlock, "first".to_owned()));
        files.kill().lock(&path("LOCK"), "after a kill").unwrap();
        drop(lock);
        files.lock(&path("LOCK"), "third").unwrap();
    }

    #[test]
    fn a_flipped_bit_is_read_and_stays() {
        let files = disk();
        write_file(&files, &path("a"), &[0; 10]).unwrap();
        assert!(files.flip_bit(&path("a"), 9) && !files.flip_bit(&path("a"), 80));
        assert_eq!(read_file(&files, &path("a")).unwrap()[1], 2);
        files.sync_dir(Path::new(DIR)).unwrap();
        assert_eq!(read_file(&files.crash(3), &path("a")).unwrap()[1], 2);
    }
}
