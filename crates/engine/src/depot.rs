//! A copy of the tables outside of the folder: their files are there before the manifest names them
//! ([`Files::keep`](oribi_env::Files::keep)), and what they make up is told after each change of the manifest.
//!
//! The folder's own manifest and log decide what the tables are. What was told is older, never newer: who reads it finds tables as
//! they were a moment before, each tablet as its last flush left it.

use crate::ddl::TABLES_DIR;
use crate::deletions::marks_path;
use crate::engine::Engine;
use crate::manifest::{CURRENT, Manifest, ManifestState};
use crate::options::EngineOptions;
use crate::recovery::{LOG_DIR, create_folder, create_folders, lock};
use crate::trouble::Part;
use oribi_env::Env;
use oribi_env::locks::{self, Mutex};
use oribi_types::{Error, ErrorKind, Result};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Where the copy is. There is one owner at a time, who alone changes it.
pub trait Depot: Send + Sync + 'static {
    /// Makes this process the owner. The folder is locked; its files are neither read nor made before.
    ///
    /// # Errors
    /// `Forbidden` if it belongs to another folder; those of reaching it.
    fn claim(&self) -> Result<Claimed>;

    /// Tells what the tables are made of, as `manifest` says when it is called. What was removed before that call, and nobody has
    /// open, goes for good once it is told.
    ///
    /// # Errors
    /// `Conflict` if there is another owner by now; those of `manifest`; those of reaching it: it is not known then what is told.
    fn publish(&self, manifest: &dyn Fn() -> Result<Vec<u8>>) -> Result<()>;

    /// Whether this process is the owner still. May be called while another thread, or `manifest`, is at it.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    fn check(&self) -> Result<()>;

    /// Is called now and then: what goes may go, and what the folder has of files is brought within its bounds; `is_full` says that
    /// the folder's disk was found to be full.
    fn tend(&self, is_full: bool);
}

/// What an owner finds.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// Below 2^30, and above that of each owner before: ids of files have it.
    pub term: u64,
    /// What the tables were made of when that was last told; `None` before the first time.
    pub told: Option<Vec<u8>>,
}

/// A folder names all that it has told of. One that does not is a copy from before, to whose manifest files would seem to be
/// left over that are all there is of rows.
///
/// # Errors
/// `Corrupt` for such a one, and for what no owner told.
pub(crate) fn check_told(dir: &Path, state: &ManifestState, told: &[u8]) -> Result<()> {
    if ManifestState::of_record(told)?.named_id_max() <= state.next_id {
        return Ok(());
    }
    let message = "is older than what was told to its store, of which nothing is removed: a copy from before was put in its \
                   place. What was told is restored to a new folder by oribi restore";
    Err(Error::corrupt(format!("folder {} {message}", dir.display())))
}

/// How often the owner looks whether it still is, where it has nothing to tell.
const CHECK_MICROS: u64 = 10_000_000;
/// What is told contains all of the manifest: not more often than so.
const REST: Duration = Duration::from_secs(1);
/// So long a stop waits for files that a folder had before its depot, and which are not kept yet. There may be any number of them.
const LAST_MICROS: u64 = 10_000_000;
/// How often the manifest is looked at.
const TICK: Duration = Duration::from_millis(50);

/// The depot of an engine, and what it was told.
pub(crate) struct Published {
    depot: Arc<dyn Depot>,
    /// How often the manifest had changed when it was told last; `None` before the first time.
    told: Mutex<Option<u64>, { locks::LEAF }>,
    /// When the owner was last found to be one, by the monotonic clock.
    checked_micros: AtomicU64,
}

impl Published {
    pub fn new(depot: Arc<dyn Depot>) -> Self {
        Published { depot, told: Mutex::default(), checked_micros: AtomicU64::new(0) }
    }

    /// Looks whether the owner still is one, unless that was done a moment ago.
    fn check(&self, env: &Env) -> Result<()> {
        let now = env.clock.monotonic_micros();
        if now.saturating_sub(self.checked_micros.load(Relaxed)) >= CHECK_MICROS {
            self.depot.check()?;
            self.checked_micros.store(now, Relaxed);
        }
        Ok(())
    }
}

impl Engine {
    /// Tells the depot, if there is one, what the tables are made of now, unless it knows.
    ///
    /// # Errors
    /// Those of [`Depot::publish`].
    pub fn publish(&self) -> Result<()> {
        self.publish_while(&|| Ok(()))
    }

    /// As [`publish`](Self::publish), when the engine is closed. What was not told in this process may take as long as there are files:
    /// some of them are kept then, and the next who opens the folder goes on.
    pub(crate) fn publish_last(&self) -> Result<()> {
        let was_told = self.published.as_ref().is_none_or(|published| published.told.lock().is_some());
        let (begun, is_late) = (self.env.clock.monotonic_micros(), Cell::new(false));
        let result = self.publish_while(&|| {
            is_late.set(!was_told && self.env.clock.monotonic_micros().saturating_sub(begun) > LAST_MICROS);
            if is_late.get() { Err(Error::unavailable("not all files are there yet")) } else { Ok(()) }
        });
        match result {
            Err(error) if is_late.get() => {
                tracing::warn!(%error, "the store is told the next time what the tables are made of");
                Ok(())
            }
            result => result,
        }
    }

    /// `go_on` is asked between two files, and its error is what this ends with.
    fn publish_while(&self, go_on: &dyn Fn() -> Result<()>) -> Result<()> {
        let Some(published) = &self.published else { return Ok(()) };
        let told = *published.told.lock();
        if told == Some(self.manifest.changes()) {
            return published.check(&self.env);
        }
        let changes = AtomicU64::new(0);
        published.depot.publish(&|| {
            let (count, record) = self.kept_manifest(published, go_on)?;
            changes.store(count, Relaxed);
            Ok(record)
        })?;
        published.checked_micros.store(self.env.clock.monotonic_micros(), Relaxed);
        *published.told.lock() = Some(changes.into_inner());
        Ok(())
    }

    /// As [`publish`](Self::publish), by the thread that is there for it; returns how long it may rest.
    pub(crate) fn publish_tick(&self) -> Duration {
        let Some(published) = &self.published else { return REST };
        let has_news = *published.told.lock() != Some(self.manifest.changes());
        let result = self.publish_while(&|| match self.background.is_stopped() {
            true => Err(Error::unavailable("the engine is being closed")),
            false => Ok(()),
        });
        match &result {
            // Another owner: whatever this one would still answer is not what others read.
            Err(error) if error.kind() == ErrorKind::Conflict => self.fail(error.clone()),
            // Whoever closes it tells once more.
            Err(_) if self.background.is_stopped() => return REST,
            Err(error) => tracing::error!(%error, "the store cannot be told what the tables are made of"),
            Ok(()) => {}
        }
        let failed = result.is_err();
        self.background.troubles.set(Part::Store, result.err());
        let is_full = self.troubles().iter().any(|trouble| trouble.error.kind() == ErrorKind::DiskFull);
        published.depot.tend(is_full);
        if has_news || failed { REST } else { TICK }
    }

    /// How often the manifest had changed, and then, as one record, what it was. All that it names is kept: SSTables were when they
    /// were finished, unless the folder had no depot then; files of marks are now.
    fn kept_manifest(&self, published: &Published, go_on: &dyn Fn() -> Result<()>) -> Result<(u64, Vec<u8>)> {
        'changed: loop {
            let changes = self.manifest.changes();
            let state = self.manifest.decided();
            for path in files_of(&self.dir, &state) {
                match self.env.files.keep(&path, &path) {
                    // It was replaced meanwhile.
                    Err(error) if is_missing(&error) && changes != self.manifest.changes() => {
                        continue 'changed;
                    }
                    Err(error) if is_missing(&error) => {
                        return Err(Error::corrupt(format!("{} is missing", path.display())));
                    }
                    kept => kept?,
                }
                // There may be many, and the first of a large folder takes long.
                go_on()?;
                published.check(&self.env)?;
            }
            return Ok((changes, state.to_record()));
        }
    }
}

fn is_missing(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

/// All files that a state names.
fn files_of(dir: &Path, state: &ManifestState) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for (id, table) in &state.tables {
        let dir = dir.join(TABLES_DIR).join(id.to_string());
        for tablet in table.tablets.iter().filter_map(|id| state.tablets.get(id)) {
            let files = tablet.files.keys().chain(tablet.patches.keys());
            paths.extend(files.flat_map(|id| oribi_sstable::paths(&dir, *id)));
            paths.extend(tablet.marks.values().map(|marks| marks_path(&dir, marks.sstable, marks.number)));
        }
    }
    paths
}

/// Makes the folder `dir`, which has neither tables nor a log, one of the tables that an owner told of and whose folder is lost: with
/// all that was flushed and told, and without what only the log had. `told` is asked for what the owner told once it is certain that
/// the folder can be made so; where that is nothing, there are no tables. The files are not read.
///
/// # Errors
/// `AlreadyExists` if there are tables, files of tables or a log: it would be taken for that of what is restored; `Corrupt` for what
/// no owner told; those of `told`, and of the file system.
pub fn restore(env: &Env, dir: &Path, told: impl FnOnce() -> Result<Option<Vec<u8>>>) -> Result<()> {
    create_folder(env, dir)?;
    let _lock = lock(env, dir, "oribi restore")?;
    let has = |what: &str| Err(Error::already_exists(format!("folder {} has {what}", dir.display())));
    if is_begun(env, dir)? {
        return has("tables");
    }
    if !list_if_there(env, &dir.join(LOG_DIR))?.is_empty() {
        return has("a log, which no other tables may have");
    }
    let tables = dir.join(TABLES_DIR);
    for table in list_if_there(env, &tables)? {
        if !list_if_there(env, &tables.join(table))?.is_empty() {
            return has("files of tables");
        }
    }
    let Some(manifest) = told()? else { return Ok(()) };
    let mut state = ManifestState::of_record(&manifest)?;
    create_folders(env, dir)?;
    for table in state.tables.keys() {
        env.files.create_dir_all(&tables.join(table.to_string()))?;
    }
    env.files.sync_dir(&tables)?;
    // There is no log: a new one begins, above all that was flushed.
    state.log_start = 0;
    Manifest::start(env, dir, state, EngineOptions::default().manifest_bytes_max, 0).map(drop)
}

fn list_if_there(env: &Env, dir: &Path) -> Result<Vec<String>> {
    match env.files.list(dir) {
        Err(error) if is_missing(&error) => Ok(Vec::new()),
        listed => Ok(listed?),
    }
}

/// Whether the folder `dir` has a manifest.
///
/// # Errors
/// Those of the file system.
pub fn is_begun(env: &Env, dir: &Path) -> Result<bool> {
    match env.files.open(&dir.join(CURRENT), false) {
        Err(error) if is_missing(&error) => Ok(false),
        opened => Ok(opened.map(|_| true)?),
    }
}
