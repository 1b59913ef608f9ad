//! A file of a table: where it is, who reads it, and who fetches it.
//!
//! | a file is | |
//! |---|---|
//! | here | in the folder: it was written here, or was fetched because somebody read it |
//! | kept | in the store |
//! | being fetched | by one of those who read it; the others among them wait for that one, and nobody else waits |
//! | gone | removed by the engine, while somebody has it open |
//!
//! Nobody asks the store while he holds the lock of a file.

use arc_swap::ArcSwapOption;
use oribi_env::File;
use oribi_types::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

pub(crate) struct Cached {
    pub name: String,
    pub path: PathBuf,
    /// A number that grows with each read of any file.
    pub used: AtomicU64,
    /// Open, once somebody has read it since it came to be here.
    pub open: ArcSwapOption<Arc<dyn File>>,
    state: Mutex<CachedState>,
    is_fetched: Condvar,
    /// How many have it open.
    readers: AtomicUsize,
    is_gone: AtomicBool,
}

#[derive(Default)]
pub(crate) struct CachedState {
    pub bytes: u64,
    pub is_here: bool,
    /// Whether it came to be here by this process.
    pub is_own: bool,
    pub is_kept: bool,
    /// Whether the store may have it, though nobody was told.
    pub is_sent: bool,
    is_being_fetched: bool,
    /// How often it was fetched, and how the last time ended.
    fetches: u64,
    failure: Option<Error>,
}

impl Cached {
    pub fn new(name: &str, path: &Path) -> Self {
        Cached {
            name: name.to_owned(),
            path: path.to_owned(),
            used: AtomicU64::new(0),
            open: ArcSwapOption::empty(),
            state: Mutex::default(),
            is_fetched: Condvar::new(),
            readers: AtomicUsize::new(0),
            is_gone: AtomicBool::new(false),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, CachedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_gone(&self) -> bool {
        self.is_gone.load(SeqCst)
    }

    /// Nobody opens it from here on.
    pub fn set_gone(&self) {
        self.is_gone.store(true, SeqCst);
    }

    pub fn is_read(&self) -> bool {
        self.readers.load(SeqCst) > 0
    }

    /// Until [`end_reading`](Self::end_reading), which is called whatever this says: whether it is not gone.
    pub fn begin_reading(&self) -> bool {
        self.readers.fetch_add(1, SeqCst);
        !self.is_gone()
    }

    pub fn end_reading(&self) {
        self.readers.fetch_sub(1, SeqCst);
    }

    /// Whether somebody is reading bytes of it at the moment, as far as can be seen.
    pub fn is_being_read(&self) -> bool {
        // One is what the next reader finds.
        self.open.load_full().is_some_and(|open| Arc::strong_count(open.as_ref()) > 1)
    }

    pub fn open_file(&self) -> Option<Arc<dyn File>> {
        self.open.load_full().map(|open| Arc::clone(open.as_ref()))
    }

    pub fn set_open(&self, file: &Arc<dyn File>) {
        self.open.store(Some(Arc::new(file.clone())));
    }

    /// Has one of those who need the file `fetch` it. The others end as that one does: with its error, or `None`.
    pub fn fetch(
        &self,
        mut state: MutexGuard<'_, CachedState>,
        fetch: impl FnOnce() -> Result<Arc<dyn File>>,
    ) -> Result<Option<Arc<dyn File>>> {
        if state.is_being_fetched {
            let fetches = state.fetches;
            while state.fetches == fetches {
                state = self.is_fetched.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            return match &state.failure {
                Some(error) if state.fetches == fetches + 1 => Err(error.clone()),
                _ => Ok(None),
            };
        }
        state.is_being_fetched = true;
        drop(state);
        let mut fetching = Fetching { file: self, fetched: Err(Error::internal("a fetch panicked")) };
        fetching.fetched = fetch();
        fetching.fetched.clone().map(Some)
    }
}

/// One who fetches a file: the others are told when this is dropped.
struct Fetching<'f> {
    file: &'f Cached,
    fetched: Result<Arc<dyn File>>,
}

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        let mut state = self.file.state();
        state.is_being_fetched = false;
        state.fetches += 1;
        if let Ok(open) = &self.fetched {
            (state.is_here, state.is_own) = (true, true);
            self.file.set_open(open);
        }
        state.failure = self.fetched.as_ref().err().cloned();
        self.file.is_fetched.notify_all();
    }
}
