//! A copy of the tables outside of the folder: their files are there before the manifest names them
//! ([`Files::keep`](oribi_env::Files::keep)), and what they make up is told after each change of the manifest.
//!
//! The folder's own manifest and log decide what the tables are. What was told is older, never newer: who reads it finds tables as
//! they were a moment before, each tablet as its last flush left it.

use crate::ddl::TABLES_DIR;
use crate::deletions::marks_path;
use crate::engine::Engine;
use crate::manifest::{Manifest, ManifestState};
use crate::options::EngineOptions;
use crate::recovery::{create_folder, create_folders, lock};
use crate::trouble::Part;
use oribi_env::Env;
use oribi_env::locks::{self, Mutex};
use oribi_types::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where the copy is. There is one owner at a time, who alone changes it.
pub trait Depot: Send + Sync + 'static {
    /// Makes this process the owner. The folder is locked; its files are neither read nor made before. Returns the term, which is
    /// below 2^30 and above that of each owner before: ids of files have it.
    ///
    /// # Errors
    /// `Forbidden` if it belongs to another folder; those of reaching it.
    fn claim(&self) -> Result<u64>;

    /// Tells what the tables are made of, as `manifest` says when it is called. What was removed before that call, and nobody has
    /// open, goes for good once it is told.
    ///
    /// # Errors
    /// `Conflict` if there is another owner by now; those of `manifest`; those of reaching it: it is not known then what is told.
    fn publish(&self, manifest: &dyn Fn() -> Result<Vec<u8>>) -> Result<()>;

    /// Whether this process is the owner still.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    fn check(&self) -> Result<()>;
}

/// How often the owner looks whether it still is, where it has nothing to tell.
const CHECK_MICROS: u64 = 10_000_000;
/// What is told contains all of the manifest: not more often than so.
const REST: Duration = Duration::from_secs(1);
/// How often the manifest is looked at.
const TICK: Duration = Duration::from_millis(50);

/// The depot of an engine, and what it was told.
pub(crate) struct Published {
    depot: Arc<dyn Depot>,
    told: Mutex<Told, { locks::LEAF }>,
}

#[derive(Clone, Copy, Default)]
struct Told {
    /// How often the manifest had changed then; `None` before the first time.
    changes: Option<u64>,
    /// When it was told, or looked at, by the monotonic clock.
    at_micros: u64,
}

impl Published {
    pub fn new(depot: Arc<dyn Depot>) -> Self {
        Published { depot, told: Mutex::default() }
    }
}

impl Engine {
    /// Tells the depot, if there is one, what the tables are made of now, unless it knows.
    ///
    /// # Errors
    /// Those of [`Depot::publish`].
    pub fn publish(&self) -> Result<()> {
        let Some(published) = &self.published else { return Ok(()) };
        let told = *published.told.lock();
        let now = self.env.clock.monotonic_micros();
        let changes = self.manifest.changes();
        if told.changes != Some(changes) {
            published.depot.publish(&|| self.kept_manifest())?;
        } else if now.saturating_sub(told.at_micros) >= CHECK_MICROS {
            published.depot.check()?;
        } else {
            return Ok(());
        }
        *published.told.lock() = Told { changes: Some(changes), at_micros: now };
        Ok(())
    }

    /// As [`publish`](Self::publish), by the thread that is there for it; returns how long it may rest.
    pub(crate) fn publish_tick(&self) -> Duration {
        let Some(published) = &self.published else { return REST };
        let has_news = published.told.lock().changes != Some(self.manifest.changes());
        let result = self.publish();
        if let Err(error) = &result {
            match error.kind() {
                // Another owner: whatever this one would still answer is not what others read.
                ErrorKind::Conflict => self.fail(error.clone()),
                // A file went while it was about to be kept. The manifest is another by now.
                ErrorKind::NotFound => return TICK,
                _ => tracing::error!(%error, "the store cannot be told what the tables are made of"),
            }
        }
        let failed = result.is_err();
        self.background.troubles.set(Part::Store, result.err());
        if has_news || failed { REST } else { TICK }
    }

    /// The manifest as one record. All that it names is kept: SSTables were when they were finished, unless the folder had none
    /// of this then; files of marks are now.
    fn kept_manifest(&self) -> Result<Vec<u8>> {
        let state = self.manifest.decided();
        for path in files_of(&self.dir, &state) {
            self.env.files.keep(&path, &path)?;
        }
        Ok(state.to_record())
    }
}

/// All files that a state names.
fn files_of(dir: &Path, state: &ManifestState) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for (id, table) in &state.tables {
        let dir = dir.join(TABLES_DIR).join(id.to_string());
        for tablet in table.tablets.iter().filter_map(|id| state.tablets.get(id)) {
            paths.extend(tablet.files.keys().flat_map(|id| oribi_sstable::paths(&dir, *id)));
            paths.extend(tablet.marks.values().map(|marks| marks_path(&dir, marks.sstable, marks.number)));
        }
    }
    paths
}

/// Makes the folder `dir` one of the tables that an owner told of, in `manifest`, whose folder is lost: with all that was flushed
/// and told, and without what only the log had. The files are not read.
///
/// # Errors
/// `AlreadyExists` if there are tables; `Corrupt` for another manifest; those of the file system.
pub fn restore(env: &Env, dir: &Path, manifest: &[u8]) -> Result<()> {
    create_folder(env, dir)?;
    let _lock = lock(env, dir, "oribi restore")?;
    if is_begun(env, dir) {
        return Err(Error::already_exists(format!("folder {} has tables", dir.display())));
    }
    let mut state = ManifestState::of_record(manifest)?;
    create_folders(env, dir)?;
    let tables = dir.join(TABLES_DIR);
    for table in state.tables.keys() {
        env.files.create_dir_all(&tables.join(table.to_string()))?;
    }
    env.files.sync_dir(&tables)?;
    // There is no log: a new one begins, above all that was flushed.
    state.log_start = 0;
    Manifest::start(env, dir, state, EngineOptions::default().manifest_bytes_max, 0).map(drop)
}

/// Whether the folder has, or had, a manifest.
pub(crate) fn is_begun(env: &Env, dir: &Path) -> bool {
    env.files.open(&dir.join(crate::manifest::CURRENT), false).is_ok()
}
