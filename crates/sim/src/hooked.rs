//! A simulated disk that lets a test act in the middle of an operation: before each access to a file it calls a hook.

use crate::{Operation, SimClock, SimFiles};
use oribi_env::{Env, File, Files, locks};
use parking_lot::Mutex;
use std::any::Any;
use std::cell::Cell;
use std::io::Result;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

type Hook = Arc<dyn Fn(Operation, &str) + Send + Sync>;

#[derive(Clone, Default)]
pub struct Hooked {
    pub files: SimFiles,
    hook: Arc<Mutex<Option<Hook>>>,
    /// An act that was set and has not been called yet.
    awaited: Arc<AtomicBool>,
}

thread_local! {
    /// What a hook does calls no hook.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl Hooked {
    pub fn env(&self, clock: &Arc<SimClock>) -> Env {
        Env { files: Arc::new(self.clone()), clock: clock.clone() }
    }

    /// Calls `hook` with each operation and path from now on.
    pub fn set(&self, hook: impl Fn(Operation, &str) + Send + Sync + 'static) {
        *self.hook.lock() = Some(Arc::new(hook));
    }

    /// Calls `act` once, before the first `operation` on a path that contains `path_part`.
    pub fn once(&self, operation: Operation, path_part: &'static str, act: impl FnOnce() + Send + 'static) {
        let act = Mutex::new(Some(act));
        let awaited = self.awaited.clone();
        awaited.store(true, Relaxed);
        self.set(move |now, path| {
            if now == operation && path.contains(path_part) {
                awaited.store(false, Relaxed);
                let act = act.lock().take();
                act.into_iter().for_each(|act| act());
            }
        });
    }

    /// Calls hooks no more. Panics if one was to act once and has not.
    pub fn clear(&self) {
        assert!(!self.awaited.load(Relaxed), "the operation to act before did not come");
        *self.hook.lock() = None;
    }

    fn call(&self, operation: Operation, path: &Path) {
        let hook = self.hook.lock().clone();
        if let Some(hook) = hook.filter(|_| !INSIDE.replace(true)) {
            locks::as_another_thread(|| hook(operation, &path.to_string_lossy()));
            INSIDE.set(false);
        }
    }

    fn file(&self, path: &Path, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(HookedFile { hooked: self.clone(), path: path.to_owned(), file })
    }
}

impl Files for Hooked {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.files.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.files.list(dir)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.call(Operation::Create, path);
        Ok(self.file(path, self.files.create(path)?))
    }

    fn open(&self, path: &Path, write: bool) -> Result<Arc<dyn File>> {
        Ok(self.file(path, self.files.open(path, write)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.call(Operation::Rename, to);
        self.files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.call(Operation::Remove, path);
        self.files.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.call(Operation::SyncDir, dir);
        self.files.sync_dir(dir)
    }

    fn lock(&self, path: &Path, text: &str) -> Result<Box<dyn Any + Send + Sync>> {
        self.files.lock(path, text)
    }
}

struct HookedFile {
    hooked: Hooked,
    path: PathBuf,
    file: Arc<dyn File>,
}

impl File for HookedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.hooked.call(Operation::Read, &self.path);
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.hooked.call(Operation::Write, &self.path);
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> Result<()> {
        self.hooked.call(Operation::Sync, &self.path);
        self.file.sync()
    }

    fn begin_sync(&self, range: Range<u64>) {
        self.file.begin_sync(range);
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.file.allocate(len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len)
    }
}
