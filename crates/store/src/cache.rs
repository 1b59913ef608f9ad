//! What the store has of the tables' files, and which of them are in the folder too, which is a cache of so many bytes.
//!
//! | a file is | |
//! |---|---|
//! | here | in the folder: it was written here, or was fetched because somebody read it |
//! | kept | in the store |
//! | gone | removed by the engine, while somebody has it open |
//!
//! A file that is not kept yet stays here. Of those that are, the one goes first that nobody has read for the longest time; none
//! in which somebody is reading.

use crate::bucket::{Body, Bucket, Expected, Listed, Sink};
use crate::patient::{Patient, as_io};
use oribi_env::{File, Files};
use oribi_types::Error;
use std::collections::BTreeMap;
use std::io::{Error as IoError, ErrorKind as IoErrorKind, Result as IoResult};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A file of a table.
pub(crate) struct Cached {
    pub name: String,
    path: PathBuf,
    state: Mutex<State>,
    /// A number that grows with each read of any file.
    used: AtomicU64,
    /// How many have it open.
    readers: AtomicUsize,
    is_gone: AtomicBool,
}

#[derive(Default)]
struct State {
    bytes: u64,
    is_here: bool,
    is_kept: bool,
    /// Whether the store may have it, though nobody was told.
    is_sent: bool,
    /// Open, once somebody has read it.
    file: Option<Arc<dyn File>>,
}

pub(crate) struct Cache {
    store: Arc<Patient>,
    local: Arc<dyn Files>,
    bytes_max: u64,
    files: Mutex<BTreeMap<String, Arc<Cached>>>,
    /// Of files that are here.
    bytes: AtomicU64,
    clock: AtomicU64,
    /// Names of objects that the engine has removed, and that the store's manifest may name yet.
    removed: Mutex<Vec<Arc<Cached>>>,
}

/// What the name of a file ends with that is being fetched.
pub(crate) const FETCHED: &str = ".fetched.tmp";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cache {
    pub fn new(store: Arc<Patient>, local: Arc<dyn Files>, bytes_max: u64) -> Self {
        let (files, removed) = (Mutex::default(), Mutex::default());
        let (bytes, clock) = (AtomicU64::new(0), AtomicU64::new(1));
        Cache { store, local, bytes_max, files, bytes, clock, removed }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// The file of this name, which is at `path` if it is here; it is made known if it was not.
    pub fn file(&self, name: &str, path: &Path) -> Arc<Cached> {
        let mut files = lock(&self.files);
        let new = || {
            Arc::new(Cached {
                name: name.to_owned(),
                path: path.to_owned(),
                state: Mutex::default(),
                used: AtomicU64::new(0),
                readers: AtomicUsize::new(0),
                is_gone: AtomicBool::new(false),
            })
        };
        files.entry(name.to_owned()).or_insert_with(new).clone()
    }

    /// What the store has below a name.
    pub fn list(&self, prefix: &str) -> IoResult<Vec<Listed>> {
        self.store.list(prefix).map_err(as_io)
    }

    pub fn known(&self, name: &str) -> Option<Arc<Cached>> {
        lock(&self.files).get(name).filter(|file| !file.is_gone.load(SeqCst)).cloned()
    }

    /// Names that begin so of files that the store has, or the folder.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        let files = lock(&self.files);
        let from = files.range(prefix.to_owned()..).take_while(|(name, _)| name.starts_with(prefix));
        from.filter(|(_, file)| !file.is_gone.load(SeqCst)).map(|(name, _)| name.clone()).collect()
    }

    /// Notes what the store has. What is here of another length is not that.
    pub fn note_kept(&self, file: &Cached, bytes: u64) -> IoResult<()> {
        let mut state = lock(&file.state);
        if state.is_here && state.bytes != bytes {
            self.forget_local(file, &mut state)?;
        }
        (state.bytes, state.is_kept, state.is_sent) = (bytes, true, true);
        Ok(())
    }

    /// Notes a file that has come to be here.
    pub fn note_here(&self, file: &Cached) -> IoResult<()> {
        let bytes = self.local.open(&file.path, false)?.len()?;
        let mut state = lock(&file.state);
        let before = if state.is_here { state.bytes } else { 0 };
        (state.bytes, state.is_here) = (bytes, true);
        self.bytes.fetch_add(bytes, Relaxed);
        self.bytes.fetch_sub(before, Relaxed);
        file.used.store(self.clock.fetch_add(1, Relaxed), Relaxed);
        Ok(())
    }

    /// Has the bytes of `from` kept as `file`, unless it is.
    pub fn keep(&self, file: &Cached, from: &Path) -> IoResult<()> {
        if lock(&file.state).is_kept {
            return Ok(());
        }
        let source = self.local.open(from, false)?;
        if from == file.path {
            // It may have been written to since it was made.
            self.note_here(file)?;
        }
        lock(&file.state).is_sent = true;
        let body = Body::File(&*source);
        self.store.put(&file.name, body, Expected::Nothing).map_err(as_io)?;
        let mut state = lock(&file.state);
        state.is_kept = true;
        if !state.is_here {
            state.bytes = source.len()?;
        }
        drop(state);
        self.evict(0);
        Ok(())
    }

    /// The engine removes the file: from the folder now, or when the last who has it open is done; from the store at some
    /// [`sweep`](Self::sweep) after that.
    pub fn remove(&self, file: &Arc<Cached>) -> IoResult<()> {
        file.is_gone.store(true, SeqCst);
        let mut state = lock(&file.state);
        let is_read = file.readers.load(SeqCst) > 0;
        if is_read && state.is_here && !state.is_kept && state.file.is_none() {
            // Whoever has it open goes on.
            state.file = Some(self.local.open(&file.path, false)?);
        }
        if !is_read || !state.is_kept {
            self.forget_local_but_open(file, &mut state)?;
        }
        drop(state);
        lock(&self.removed).push(file.clone());
        Ok(())
    }

    /// It is not known whether they are named still.
    pub fn remove_later(&self, removed: Vec<Arc<Cached>>) {
        lock(&self.removed).extend(removed);
    }

    /// What the engine has removed by now.
    pub fn removed(&self) -> Vec<Arc<Cached>> {
        std::mem::take(&mut lock(&self.removed))
    }

    /// Removes from the store what nobody names any more, unless somebody has it open: that is done another time.
    pub fn sweep(&self, removed: Vec<Arc<Cached>>) {
        for file in removed {
            let is_read = file.readers.load(SeqCst) > 0;
            let is_sent = lock(&file.state).is_sent;
            let swept = match is_read {
                true => false,
                false if !is_sent => true,
                false => match self.store.remove(&file.name) {
                    Ok(()) => true,
                    Err(error) => {
                        tracing::warn!(%error, "cannot remove a file from the store");
                        false
                    }
                },
            };
            if !swept {
                lock(&self.removed).push(file);
                continue;
            }
            let forgotten = self.forget_local(&file, &mut lock(&file.state));
            if let Err(error) = forgotten {
                tracing::warn!(%error, file = file.name, "cannot remove a file");
            }
            lock(&self.files).remove(&file.name);
        }
    }

    /// The bytes of a file, which is fetched if it is not here.
    fn local(&self, file: &Cached) -> IoResult<Arc<dyn File>> {
        file.used.store(self.clock.fetch_add(1, Relaxed), Relaxed);
        let mut state = lock(&file.state);
        if let Some(open) = &state.file {
            return Ok(open.clone());
        }
        if !state.is_here {
            self.evict(state.bytes);
            self.fetch(file, state.bytes)?;
            state.is_here = true;
            self.bytes.fetch_add(state.bytes, Relaxed);
        }
        let open = self.local.open(&file.path, false)?;
        state.file = Some(open.clone());
        Ok(open)
    }

    fn fetch(&self, file: &Cached, bytes: u64) -> IoResult<()> {
        let folder = file.path.parent().ok_or_else(|| IoError::other("a file without a folder"))?;
        self.local.create_dir_all(folder)?;
        let new = PathBuf::from(format!("{}{FETCHED}", file.path.display()));
        let _ = self.local.remove(&new);
        let into = self.local.create(&new)?;
        let mut end = 0;
        let sink: &mut Sink<'_> = &mut |part, at| {
            end = at + part.len() as u64;
            Ok(into.write_at(part, at)?)
        };
        let fetched = self.store.get(&file.name, sink).and_then(|_| match end == bytes {
            true => Ok(into.sync()?),
            false => Err(Error::corrupt(format!("{}: the store has {end} bytes of {bytes}", file.name))),
        });
        fetched.map_err(as_io).and_then(|()| self.local.rename(&new, &file.path)).inspect_err(|_| {
            let _ = self.local.remove(&new);
        })?;
        self.store.counters.fetches.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Makes room for so many bytes more.
    pub fn evict(&self, bytes: u64) {
        let most = self.bytes_max.saturating_sub(bytes);
        if self.bytes() <= most {
            return;
        }
        let mut candidates: Vec<_> = lock(&self.files).values().cloned().collect();
        candidates.sort_by_key(|file| file.used.load(Relaxed));
        for file in candidates {
            if self.bytes() <= most {
                return;
            }
            // One that is being fetched is wanted.
            let Ok(mut state) = file.state.try_lock() else { continue };
            let is_being_read = state.file.as_ref().is_some_and(|open| Arc::strong_count(open) > 1);
            if !state.is_here || !state.is_kept || is_being_read {
                continue;
            }
            match self.forget_local(&file, &mut state) {
                Ok(()) => drop(self.store.counters.evictions.fetch_add(1, Relaxed)),
                Err(error) => tracing::warn!(%error, file = file.name, "cannot evict a file"),
            }
        }
    }

    fn forget_local(&self, file: &Cached, state: &mut State) -> IoResult<()> {
        state.file = None;
        self.forget_local_but_open(file, state)
    }

    fn forget_local_but_open(&self, file: &Cached, state: &mut State) -> IoResult<()> {
        if !std::mem::take(&mut state.is_here) {
            return Ok(());
        }
        self.bytes.fetch_sub(state.bytes, Relaxed);
        match self.local.remove(&file.path) {
            Err(error) if error.kind() != IoErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// A file of a table, open, wherever it is.
pub(crate) struct OpenFile {
    cache: Arc<Cache>,
    file: Arc<Cached>,
}

impl OpenFile {
    /// # Errors
    /// `NotFound`.
    pub fn open(cache: &Arc<Cache>, file: Arc<Cached>) -> IoResult<Self> {
        file.readers.fetch_add(1, SeqCst);
        let open = OpenFile { cache: cache.clone(), file };
        let (is_here, is_kept) = {
            let state = lock(&open.file.state);
            (state.is_here, state.is_kept)
        };
        if is_here && !is_kept {
            // It may have been written to since it was made.
            cache.note_here(&open.file)?;
        }
        let is_there = (is_here || is_kept) && !open.file.is_gone.load(SeqCst);
        if is_there { Ok(open) } else { Err(IoErrorKind::NotFound.into()) }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.file.readers.fetch_sub(1, SeqCst);
    }
}

impl File for OpenFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> IoResult<()> {
        self.cache.local(&self.file)?.read_at(buf, offset)
    }

    fn write_at(&self, _: &[u8], _: u64) -> IoResult<()> {
        Err(IoErrorKind::Unsupported.into())
    }

    fn sync(&self) -> IoResult<()> {
        Ok(())
    }

    fn len(&self) -> IoResult<u64> {
        Ok(lock(&self.file.state).bytes)
    }

    fn allocate(&self, _: u64) -> IoResult<()> {
        Err(IoErrorKind::Unsupported.into())
    }

    fn set_len(&self, _: u64) -> IoResult<()> {
        Err(IoErrorKind::Unsupported.into())
    }
}
