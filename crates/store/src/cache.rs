//! What the store has of the tables' files, and which of them are in the folder too, which is a cache of so many bytes.
//!
//! A file that is not kept yet stays here. Of those that are, the one goes first that nobody has read for the longest time; none
//! in which somebody is reading. They also make room where the disk has none: what else is written to it cannot go.
//!
//! A guest, who looks at a folder that others may use, removes nothing, but for what it has fetched itself.

use crate::bucket::{Body, Bucket, Expected, Listed, Sink};
use crate::cached::{Cached, CachedState};
use crate::patient::{Patient, as_io};
use oribi_env::{File, Files};
use oribi_types::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind as IoErrorKind, Result as IoResult};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the name of a file ends with that is being fetched.
pub(crate) const FETCHED: &str = ".fetched.tmp";
/// Of the disk, that the cache leaves to the log and to what is being written; of a small disk a tenth.
const RESERVE_BYTES: u64 = 1 << 30;
/// What nobody names goes from the store for so long in one go: others wait for whoever removes it.
const SWEEP_MICROS: u64 = 1_000_000;
/// A store that has removed nothing when it was asked is asked again so much later.
const REST_MICROS: u64 = 10_000_000;

pub(crate) struct Cache {
    store: Arc<Patient>,
    local: Arc<dyn Files>,
    /// The folder of the data.
    dir: PathBuf,
    bytes_max: u64,
    is_guest: AtomicBool,
    files: Mutex<BTreeMap<String, Arc<Cached>>>,
    /// Of files that are here.
    bytes: AtomicU64,
    clock: AtomicU64,
    /// What the engine has removed, and the store's manifest may name yet.
    removed: Mutex<Vec<Arc<Cached>>>,
    /// What nobody names any more.
    unnamed: Mutex<Vec<Arc<Cached>>>,
    /// Until when nothing is removed from the store, by the monotonic clock.
    rests_until_micros: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cache {
    pub fn new(store: Arc<Patient>, local: Arc<dyn Files>, dir: &Path, bytes_max: u64) -> Self {
        Cache {
            store,
            local,
            dir: dir.to_owned(),
            bytes_max,
            is_guest: AtomicBool::new(false),
            files: Mutex::default(),
            bytes: AtomicU64::new(0),
            clock: AtomicU64::new(1),
            removed: Mutex::default(),
            unnamed: Mutex::default(),
            rests_until_micros: AtomicU64::new(0),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub fn is_guest(&self) -> bool {
        self.is_guest.load(Relaxed)
    }

    pub fn set_guest(&self) {
        self.is_guest.store(true, Relaxed);
    }

    /// The file of this name, which is at `path` if it is here; it is made known if it was not.
    pub fn file(&self, name: &str, path: &Path) -> Arc<Cached> {
        let mut files = lock(&self.files);
        files.entry(name.to_owned()).or_insert_with(|| Arc::new(Cached::new(name, path))).clone()
    }

    /// What the store has below a name.
    pub fn list(&self, prefix: &str) -> IoResult<Vec<Listed>> {
        self.store.list(prefix).map_err(as_io)
    }

    pub fn known(&self, name: &str) -> Option<Arc<Cached>> {
        lock(&self.files).get(name).filter(|file| !file.is_gone()).cloned()
    }

    /// Names that begin so of files that the store has, or the folder.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        let files = lock(&self.files);
        let from = files.range(prefix.to_owned()..).take_while(|(name, _)| name.starts_with(prefix));
        from.filter(|(_, file)| !file.is_gone()).map(|(name, _)| name.clone()).collect()
    }

    /// Forgets what a guest knows of a folder and the store's list of it does not have any more, unless somebody has it open.
    pub fn forget_missing(&self, folder: &str, listed: &[Listed]) {
        let listed: BTreeSet<&str> = listed.iter().map(|object| object.name.as_str()).collect();
        let mut files = lock(&self.files);
        let known = files.range(folder.to_owned()..).take_while(|(name, _)| name.starts_with(folder));
        let missing = known.filter(|(name, file)| {
            // Whoever has one of them has a handle, and gets none while the map is locked.
            let is_idle = Arc::strong_count(file) == 1 && !listed.contains(name.as_str());
            is_idle && self.forget_fetched(file)
        });
        let missing: Vec<String> = missing.map(|(name, _)| name.clone()).collect();
        missing.iter().for_each(|name| drop(files.remove(name)));
    }

    /// Removes a file from the folder that came there from the store; false for one of somebody else's.
    fn forget_fetched(&self, file: &Cached) -> bool {
        let mut state = file.state();
        state.is_kept && (state.is_own || !state.is_here) && self.forget_local(file, &mut state).is_ok()
    }

    /// Notes what the store has. What is here of another length is not that: a file that an owner has made is fetched in its
    /// place; one from before the folder had a store is all that there is of it, and stays.
    pub fn note_kept(&self, file: &Cached, bytes: u64) {
        let mut state = file.state();
        if state.is_here && state.bytes != bytes {
            let (here, name) = (state.bytes, &file.name);
            tracing::warn!(
                file = name,
                here,
                bytes,
                "the folder and the store have files of different lengths"
            );
            if crate::owner::term_of(name).unwrap_or(0) == 0 {
                return;
            }
            self.note_absent(&mut state);
        }
        (state.bytes, state.is_kept, state.is_sent) = (bytes, true, true);
    }

    /// Notes a file that has come to be here.
    pub fn note_here(&self, file: &Cached) -> IoResult<()> {
        let mut state = file.state();
        let bytes = self.local.open(&file.path, false)?.len()?;
        self.note_absent(&mut state);
        (state.bytes, state.is_here) = (bytes, true);
        self.bytes.fetch_add(bytes, Relaxed);
        self.use_now(file);
        Ok(())
    }

    fn note_absent(&self, state: &mut CachedState) {
        if std::mem::take(&mut state.is_here) {
            self.bytes.fetch_sub(state.bytes, Relaxed);
        }
    }

    fn use_now(&self, file: &Cached) {
        file.used.store(self.clock.fetch_add(1, Relaxed), Relaxed);
    }

    /// Has the bytes of `from` kept as `file`, unless it is.
    ///
    /// # Errors
    /// `NotFound` if there is no `from`; `Corrupt` if the store has other bytes by that name; those of the store.
    pub fn keep(&self, file: &Cached, from: &Path) -> IoResult<()> {
        if file.state().is_kept {
            return Ok(());
        }
        let source = self.local.open(from, false)?;
        if from == file.path {
            // It may have been written to since it was made.
            self.note_here(file)?;
        }
        file.state().is_sent = true;
        let put = self.store.put(&file.name, Body::File(&*source), Expected::Nothing);
        put.map_err(|error| match error.kind() {
            ErrorKind::Conflict | ErrorKind::NotFound => as_io(Error::corrupt(error.message())),
            _ => as_io(error),
        })?;
        let mut state = file.state();
        state.is_kept = true;
        if !state.is_here {
            state.bytes = source.len()?;
        }
        drop(state);
        self.evict(0);
        Ok(())
    }

    /// The engine removes the file: from the folder now, or when the last who has it open is done; from the store once the
    /// store's manifest does not name it.
    pub fn remove(&self, file: &Arc<Cached>) -> IoResult<()> {
        lock(&self.removed).push(file.clone());
        let mut state = file.state();
        file.set_gone();
        match (file.is_read(), state.is_kept) {
            (false, _) => self.forget_local(file, &mut state),
            (true, true) => Ok(()),
            (true, false) => {
                if state.is_here && file.open_file().is_none() {
                    // Whoever has it open goes on.
                    file.set_open(&self.local.open(&file.path, false)?);
                }
                self.remove_local(file, &mut state)
            }
        }
    }

    /// What the engine has removed by now.
    pub fn removed(&self) -> Vec<Arc<Cached>> {
        std::mem::take(&mut lock(&self.removed))
    }

    /// It is not known whether the store's manifest names them still.
    pub fn remove_later(&self, removed: Vec<Arc<Cached>>) {
        lock(&self.removed).extend(removed);
    }

    /// The store's manifest does not name them, and none will.
    pub fn note_unnamed(&self, removed: Vec<Arc<Cached>>) {
        lock(&self.unnamed).extend(removed);
    }

    /// Removes from the store what nobody names any more, unless somebody has it open: some of it, for a second or until a request
    /// fails, and nothing for a while after that. The rest is removed another time.
    pub fn sweep(&self) {
        let begun = self.store.now_micros();
        if begun < self.rests_until_micros.load(Relaxed) {
            return;
        }
        let mut left = std::mem::take(&mut *lock(&self.unnamed));
        let mut is_over = false;
        left.retain(|file| {
            if file.is_read() || is_over {
                return true;
            }
            if file.state().is_sent {
                let removed = self.store.remove_once(&file.name);
                let now = self.store.now_micros();
                is_over = removed.is_err() || now.saturating_sub(begun) >= SWEEP_MICROS;
                if let Err(error) = removed {
                    tracing::warn!(%error, "cannot remove a file from the store");
                    self.rests_until_micros.store(now + REST_MICROS, Relaxed);
                    return true;
                }
            }
            if let Err(error) = self.forget_local(file, &mut file.state()) {
                tracing::warn!(%error, file = file.name, "cannot remove a file");
            }
            lock(&self.files).remove(&file.name);
            false
        });
        lock(&self.unnamed).extend(left);
    }

    /// The bytes of a file, which is fetched if it is not here.
    ///
    /// # Errors
    /// `Corrupt` if it is nowhere; those of the store, and of the file system.
    pub fn local(&self, file: &Cached) -> IoResult<Arc<dyn File>> {
        self.use_now(file);
        loop {
            if let Some(open) = file.open_file() {
                return Ok(open);
            }
            let mut state = file.state();
            if state.is_here {
                match self.local.open(&file.path, false) {
                    Ok(open) => {
                        file.set_open(&open);
                        return Ok(open);
                    }
                    // Whoever has removed it from a cache has done no harm.
                    Err(error) if error.kind() == IoErrorKind::NotFound => self.note_absent(&mut state),
                    Err(error) => return Err(error),
                }
            }
            if !state.is_kept {
                let message = format!("{}: neither the folder nor the store has it", file.name);
                return Err(as_io(Error::corrupt(message)));
            }
            let bytes = state.bytes;
            if let Some(open) = file.fetch(state, || self.fetch(file, bytes)).map_err(as_io)? {
                return Ok(open);
            }
        }
    }

    fn fetch(&self, file: &Cached, bytes: u64) -> Result<Arc<dyn File>> {
        self.evict(bytes);
        let fetched = match self.try_fetch(file, bytes) {
            Err(error) if error.kind() == ErrorKind::DiskFull && self.free_up(bytes) > 0 => {
                self.try_fetch(file, bytes)
            }
            fetched => fetched,
        };
        let fetched = fetched.map_err(|error| match error.kind() {
            // A row of it is not absent.
            ErrorKind::NotFound => Error::corrupt(format!("the store has lost {}: {error}", file.name)),
            _ => error,
        })?;
        self.bytes.fetch_add(bytes, Relaxed);
        self.store.counters.fetches.fetch_add(1, Relaxed);
        Ok(fetched)
    }

    fn try_fetch(&self, file: &Cached, bytes: u64) -> Result<Arc<dyn File>> {
        let folder = file.path.parent().ok_or_else(|| Error::internal("a file without a folder"))?;
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
        fetched.and_then(|()| Ok(self.local.rename(&new, &file.path)?)).inspect_err(|_| {
            let _ = self.local.remove(&new);
        })?;
        Ok(into)
    }

    /// Makes room for so many bytes more, in the cache and on the disk.
    pub fn evict(&self, bytes: u64) {
        let over = (self.bytes() + bytes).saturating_sub(self.bytes_max);
        let short = self.local.space(&self.dir).ok().flatten().map_or(0, |disk| {
            let reserve = RESERVE_BYTES.min(disk.total / 10);
            (reserve + bytes).saturating_sub(disk.free)
        });
        self.free_up(over.max(short));
    }

    /// Has an eighth of the cache go: the disk is full, whatever it says of its space.
    pub fn evict_some(&self) {
        self.free_up(self.bytes() / 8);
    }

    /// Has so many bytes go, if there are as many that may; returns how many went.
    fn free_up(&self, bytes: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let mut candidates: Vec<_> = lock(&self.files).values().cloned().collect();
        candidates.sort_by_cached_key(|file| file.used.load(Relaxed));
        let mut freed = 0;
        for file in candidates {
            if freed >= bytes {
                break;
            }
            let mut state = file.state();
            let may_go = state.is_here && state.is_kept && (state.is_own || !self.is_guest());
            if !may_go || file.is_being_read() {
                continue;
            }
            match self.forget_local(&file, &mut state) {
                Ok(()) => {
                    freed += state.bytes;
                    self.store.counters.evictions.fetch_add(1, Relaxed);
                }
                Err(error) => tracing::warn!(%error, file = file.name, "cannot evict a file"),
            }
        }
        freed
    }

    fn forget_local(&self, file: &Cached, state: &mut CachedState) -> IoResult<()> {
        file.open.store(None);
        self.remove_local(file, state)
    }

    fn remove_local(&self, file: &Cached, state: &mut CachedState) -> IoResult<()> {
        if !state.is_here {
            return Ok(());
        }
        self.note_absent(state);
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
        let is_there = file.begin_reading();
        let open = OpenFile { cache: cache.clone(), file };
        let (is_here, is_kept) = {
            let state = open.file.state();
            (state.is_here, state.is_kept)
        };
        if is_here && !is_kept {
            // It may have been written to since it was made.
            cache.note_here(&open.file)?;
        }
        if is_there && (is_here || is_kept) { Ok(open) } else { Err(IoErrorKind::NotFound.into()) }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.file.end_reading();
        // Whoever opens it from here on opens it anew; whoever is reading goes on.
        let _state = self.file.state();
        if !self.file.is_read() {
            self.file.open.store(None);
        }
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
        Ok(self.file.state().bytes)
    }

    fn allocate(&self, _: u64) -> IoResult<()> {
        Err(IoErrorKind::Unsupported.into())
    }

    fn set_len(&self, _: u64) -> IoResult<()> {
        Err(IoErrorKind::Unsupported.into())
    }
}
