//! Opening a folder: lock, manifest, files, log.
//!
//! The manifest says which files count and through which LSN each tablet is in them; the log's records above that are
//! applied to memory again, and their results kept on top of those that the manifest has. All that is left over from a
//! crash is removed. Clock and LSNs start above everything that may have been given out before.

use crate::background::Background;
use crate::catalog::{Catalog, Table};
use crate::ddl::TABLES_DIR;
use crate::deletions::Deletions;
use crate::depot::{Depot, Published, check_told};
use crate::engine::{Counters, Engine};
use crate::fragments::Fragments;
use crate::gate::Gate;
use crate::holders::Holders;
use crate::index::{KeyHasher, NewVersion, Older, RowIndex};
use crate::installer::remove_leftovers;
use crate::latches::Latches;
use crate::long_reads::LongReads;
use crate::manifest::{FileRecord, Manifest, ManifestState, PatchRecord, TableRecord, TabletRecord};
use crate::memory::MemoryBudget;
use crate::memtable::{Listing, Memtable};
use crate::named_files::Names;
use crate::options::EngineOptions;
use crate::record::{self, BulkCommit, Change, Contents, FilesCommit};
use crate::tablet::{FileSet, LiveFile, Tablet, TabletId};
use crate::timeline::Timeline;
use crate::tracker::ResultTracker;
use crate::txn::{RUNS_DIR, RowLocks, Transactions};
use crate::undecided::Undecided;
use crate::write::Fragmented;
use arc_swap::ArcSwap;
use oribi_env::Env;
use oribi_env::locks::Mutex;
use oribi_sstable::{Patch, Sstable};
use oribi_types::{Durability, Error, ErrorKind, Result, Schema, Timestamp};
use oribi_wal::{LocalLog, LogOptions, Lsn, Record};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub(crate) const LOG_DIR: &str = "wal";
const LOCK_FILE: &str = "LOCK";
/// There is one log; later ones get other ids.
const LOG_ID: u64 = 1;

impl Engine {
    /// Opens the folder `dir`, which is created if it does not exist, and recovers what it holds. A process should have one
    /// engine: what scans hold of rows that were replaced is counted for all engines of a process, in the budget of each.
    ///
    /// # Errors
    /// `Unavailable`, naming the holder, if another process has it open; `Corrupt`, naming the file, if stored bytes
    /// are damaged: nothing is changed then; `Invalid` for options; those of the file system.
    pub fn open(env: Env, dir: &Path, options: EngineOptions) -> Result<Arc<Engine>> {
        Engine::open_with(env, dir, options, None)
    }

    /// As [`open`](Self::open), of a folder whose tables are kept in `depot` too.
    ///
    /// # Errors
    /// As there; those of [`Depot::claim`].
    pub fn open_with(
        env: Env,
        dir: &Path,
        options: EngineOptions,
        depot: Option<Arc<dyn Depot>>,
    ) -> Result<Arc<Engine>> {
        options.validate()?;
        create_folder(&env, dir)?;
        let lock = lock(&env, dir, &format!("process {}", std::process::id()))?;
        // Nobody else has the folder, and so nobody who goes on is taken to be gone.
        let claimed = depot.as_ref().map(|depot| depot.claim()).transpose()?;
        create_folders(&env, dir)?;
        let mut state = Manifest::recover(&env, dir)?;
        if let Some(told) = claimed.as_ref().and_then(|claimed| claimed.told.as_deref()) {
            check_told(dir, &state, told)?;
        }
        let term = claimed.map_or(0, |claimed| claimed.term);
        settle_undecided(&env, dir, &mut state)?;
        let engine = Arc::new(Engine::recover(env, dir, options, state, (lock, depot, term))?);
        engine.create_defaults()?;
        engine.reserve_timestamps(engine.timeline.now_micros(), || true)?;
        if engine.options.background {
            Background::start(&engine)?;
        }
        Ok(engine)
    }

    fn recover(
        env: Env,
        dir: &Path,
        options: EngineOptions,
        mut state: ManifestState,
        (lock, depot, term): (Box<dyn Any + Send + Sync>, Option<Arc<dyn Depot>>, u64),
    ) -> Result<Engine> {
        let next_memtable = AtomicU64::new(1);
        let budget = Arc::new(MemoryBudget::new(options.memory_bytes));
        let index = Arc::new(RowIndex::new(budget.clone()));
        let tablets = open_tablets(&env, dir, &mut state, (&next_memtable, index.hasher()))?;
        let results = ResultTracker::new(env.clock.clone(), budget.clone());
        results.restore(&state.results);
        let history_from = Cell::new(match options.keeps_history {
            true => state.history_from(),
            false => Timestamp::MAX,
        });
        let fragments = RefCell::new(Fragments::from(state.log_start));
        let replay = Replay {
            tablets: &tablets,
            index: &index,
            results: &results,
            budget: &budget,
            history_from,
            fragments,
        };
        let (log, logged) = open_log(&env, dir, &options, &state, &replay)?;
        let history_from = replay.history_from.get();
        // The log is whole, so what the manifest does not name can go.
        remove_leftovers(&env, &dir.join(TABLES_DIR), &state)?;
        let runs = dir.join(RUNS_DIR);
        env.files.list(&runs)?.iter().try_for_each(|name| env.files.remove(&runs.join(name)))?;
        let last = last_stored(&state).max(logged);
        state.know_history(last);
        let timeline = Arc::new(Timeline::new(env.clock.clone(), last));
        // What is new has none.
        let keeps_history = options.keeps_history && last > Timestamp::MIN;
        let history = keeps_history.then(|| timeline.register_history(history_from.min(last)));
        let engine = Engine {
            dir: dir.to_owned(),
            long_reads: LongReads::new(&budget),
            budget,
            index,
            timeline,
            results,
            log: Arc::new(log),
            catalog: ArcSwap::from_pointee(catalog_of(&state, &tablets)),
            catalog_version: AtomicU64::new(0),
            manifest: Manifest::start(&env, dir, state, options.manifest_bytes_max, term)?,
            ddl: Mutex::new(()),
            gate: Gate::default(),
            row_locks: RowLocks::default(),
            transactions: Transactions::default(),
            undecided: Undecided::default(),
            released: Arc::default(),
            fragmented: Fragmented::default(),
            latches: Latches::new(),
            next_memtable,
            ceiling: Mutex::new(()),
            next_row_id: AtomicU64::new(last.next().0),
            background: Arc::<Background>::default(),
            counters: Counters::default(),
            history: Mutex::new(history),
            closed: AtomicBool::new(false),
            publishing: AtomicBool::new(false),
            holders: Holders::default(),
            names: Names::default(),
            given_up: Mutex::default(),
            published: depot.map(Published::new),
            _lock: lock,
            env,
            options,
        };
        engine.apply_sync_interval();
        Ok(engine)
    }

    /// Has the log synced as often as the most careful periodic table asks.
    pub(crate) fn apply_sync_interval(&self) {
        let catalog = self.catalog.load();
        let intervals = catalog.all_tables().filter_map(|table| match table.options().durability {
            Durability::Periodic(ms) => Some(Duration::from_millis(u64::from(ms))),
            Durability::Sync => None,
        });
        self.log.set_sync_interval(intervals.min());
    }
}

/// Decides what the manifest has left undecided: it counts if the log has the record with which it does.
///
/// # Errors
/// `Corrupt`, by segment and offset, for a damaged log; those of the file system.
pub(crate) fn settle_undecided(env: &Env, dir: &Path, state: &mut ManifestState) -> Result<()> {
    let Some((number, _)) = state.undecided else { return Ok(()) };
    let mut counts = false;
    oribi_wal::verify(env.files.as_ref(), &dir.join(LOG_DIR), state.log_start, &mut |record| {
        let is_its = |read| match read {
            record::Record::Write(Contents { catalog: Some(of), .. })
            | record::Record::Files(FilesCommit { number: of, .. }) => of == number,
            _ => false,
        };
        counts |= record::read(record.payload).is_ok_and(is_its);
        Ok(())
    })?;
    if counts {
        return state.decide(number);
    }
    state.undecided = None;
    Ok(())
}

/// Creates the folders that every folder of tables has.
pub(crate) fn create_folders(env: &Env, dir: &Path) -> Result<()> {
    for folder in [LOG_DIR, TABLES_DIR, RUNS_DIR] {
        env.files.create_dir_all(&dir.join(folder))?;
    }
    Ok(env.files.sync_dir(dir)?)
}

/// Creates `dir`; its name, and those of the folders above that were missing, are durable then.
pub(crate) fn create_folder(env: &Env, dir: &Path) -> Result<()> {
    let missing = dir.ancestors().take_while(|folder| env.files.list(folder).is_err()).count();
    env.files.create_dir_all(dir)?;
    // A process that was killed may have left the folder itself without its name being durable.
    for above in dir.ancestors().skip(1).take(missing.max(1)) {
        let here = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        env.files.sync_dir(here)?;
    }
    Ok(())
}

/// Takes the folder's lock for `holder`, whom others are told.
///
/// # Errors
/// `Unavailable`, naming the holder, if it is taken; those of the file system.
pub(crate) fn lock(env: &Env, dir: &Path, holder: &str) -> Result<Box<dyn Any + Send + Sync>> {
    env.files.lock(&dir.join(LOCK_FILE), holder).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => {
            Error::unavailable(format!("folder {} is in use by {error}", dir.display()))
        }
        _ => error.into(),
    })
}

/// Opens the files of all tablets, each of which gets a generation.
fn open_tablets(
    env: &Env,
    dir: &Path,
    state: &mut ManifestState,
    (next_memtable, hasher): (&AtomicU64, &KeyHasher),
) -> Result<HashMap<TabletId, Arc<Tablet>>> {
    let mut tablets = HashMap::new();
    let mut generation = state.next_id;
    for (table, tablet) in state.tables.values().flat_map(|t| t.tablets.iter().map(move |id| (t, *id))) {
        generation += 1;
        let listing = Listing::of(&table.definition.schema, hasher);
        let active = Memtable::new(next_memtable.fetch_add(1, Relaxed), generation, listing);
        let table_dir = dir.join(TABLES_DIR).join(table.id.to_string());
        let files = open_files(env, &table_dir, table, tablet, state)?;
        tablets.insert(tablet, Arc::new(Tablet::new(tablet, table_dir, generation, active, files)));
    }
    state.next_id = generation;
    Ok(tablets)
}

/// Opens the log and replays it. Returns the highest timestamp of its records.
fn open_log(
    env: &Env,
    dir: &Path,
    options: &EngineOptions,
    state: &ManifestState,
    replay: &Replay<'_>,
) -> Result<(LocalLog, Timestamp)> {
    let flushed_max = state.tablets.values().map(|tablet| tablet.flushed_lsn).max().unwrap_or(0);
    let log_options = LogOptions {
        log_id: LOG_ID,
        // Trimmed by whole segments: several of them make up the longest log.
        segment_bytes: (options.log_bytes_max / 8).clamp(1 << 20, 64 << 20),
        // What a flush of the older half gives back.
        spare_bytes_max: options.log_bytes_max / 2,
        from: state.log_start,
        min_next_lsn: flushed_max.max(state.ceiling_lsn) + 1,
        ..LogOptions::default()
    };
    let (mut last, mut records) = (Timestamp::MIN, 0);
    let log = LocalLog::open(env, &dir.join(LOG_DIR), log_options, &mut |record| {
        last = last.max(replay.apply(&record)?);
        records += 1;
        Ok(())
    })?;
    tracing::info!(records, "log replayed");
    Ok((log, last))
}

/// No timestamp above this was given out, unless the log has it.
fn last_stored(state: &ManifestState) -> Timestamp {
    let of_tablet = |tablet: &TabletRecord| {
        let files = tablet.files.values().map(|file| file.meta.max_ts.max(file.visible_from));
        let patches = tablet.patches.values().map(|patch| patch.meta.max_ts.max(patch.visible_from));
        files.chain(patches).max().unwrap_or_default()
    };
    state.tablets.values().map(of_tablet).fold(state.ceiling_ts, Timestamp::max)
}

fn catalog_of(state: &ManifestState, tablets: &HashMap<TabletId, Arc<Tablet>>) -> Catalog {
    let mut catalog = Catalog::default();
    for name in &state.schemas {
        catalog.schemas.insert(name.clone(), Default::default());
    }
    for record in state.tables.values() {
        let of_table = record.tablets.iter().map(|id| tablets[id].clone()).collect();
        let table = Arc::new(Table::new(record, of_table, 0));
        let tables = catalog.schemas.entry(table.schema_name().to_owned()).or_default();
        tables.insert(table.name().to_owned(), table);
    }
    catalog.note_bucket();
    catalog
}

/// Opens the live files of a tablet.
pub(crate) fn open_files(
    env: &Env,
    dir: &Path,
    table: &TableRecord,
    tablet: TabletId,
    state: &ManifestState,
) -> Result<FileSet> {
    let Some(record) = state.tablets.get(&tablet) else { return Ok(FileSet::default()) };
    let mut files = Vec::with_capacity(record.files.len());
    for (id, file) in &record.files {
        let marks = record.marks.get(id).cloned();
        let deletions = match &marks {
            Some(marks) => Deletions::load(env, dir, marks, file.meta.rows).map_err(missing_is_damage)?,
            None => Deletions::default(),
        };
        let sstable = Sstable::open(env, dir, &file.meta, &table.definition.schema);
        let patches = open_patches(env, dir, &table.definition.schema, record, file);
        let sstable = sstable.and_then(|sstable| Ok(sstable.with_patches(patches?)));
        let sstable = sstable.map_err(missing_is_damage)?;
        files.push(Arc::new(LiveFile {
            sstable: Arc::new(sstable),
            deletions: Arc::new(deletions),
            marks,
            visible_from: file.visible_from,
        }));
    }
    Ok(FileSet { files, flushed_lsn: record.flushed_lsn })
}

/// Opens the patches of a file, the oldest first.
fn open_patches(
    env: &Env,
    dir: &Path,
    schema: &Schema,
    tablet: &TabletRecord,
    file: &FileRecord,
) -> Result<Vec<Arc<Patch>>> {
    let mut records: Vec<_> = tablet.patches.values().filter(|patch| patch.of == file.meta.id).collect();
    records.sort_by_key(|patch| patch.visible_from);
    let open = |patch: &PatchRecord| {
        let (rows, visible_from) = (file.meta.rows, patch.visible_from);
        Patch::open(env, dir, &patch.meta, schema, rows, visible_from).map(Arc::new)
    };
    records.into_iter().map(open).collect()
}

/// The manifest named the file.
fn missing_is_damage(error: Error) -> Error {
    if error.kind() == ErrorKind::NotFound { Error::corrupt(error.message()) } else { error }
}

struct Replay<'a> {
    tablets: &'a HashMap<TabletId, Arc<Tablet>>,
    index: &'a RowIndex,
    results: &'a ResultTracker,
    budget: &'a MemoryBudget,
    /// Snapshots at or above this have all that they read.
    history_from: Cell<Timestamp>,
    /// Of bulk writes whose commit has not come yet.
    fragments: RefCell<Fragments<Vec<u8>>>,
}

impl Replay<'_> {
    /// Applies a record's changes that are in no file yet, and notes its result; returns its timestamp, or `MIN` for a record
    /// without one.
    fn apply(&self, record: &Record<'_>) -> Result<Timestamp> {
        self.try_apply(record).map_err(|error| error.context(format!("log record {}", record.lsn)))
    }

    fn try_apply(&self, record: &Record<'_>) -> Result<Timestamp> {
        let mut fragments = self.fragments.borrow_mut();
        fragments.begin(record.term);
        match record::read(record.payload)? {
            record::Record::Write(Contents { ts, tracked, changes, .. }) => {
                self.apply_changes(ts, record.lsn, record.lsn, changes)?;
                self.finish(ts, tracked.as_ref());
                Ok(ts)
            }
            record::Record::Fragment { bulk, .. } => {
                fragments.add(bulk, record.payload.to_vec());
                Ok(Timestamp::MIN)
            }
            record::Record::Commit(BulkCommit { ts, bulk, fragments: count, tracked }) => {
                for payload in fragments.take(bulk, count)? {
                    if let record::Record::Fragment { changes, .. } = record::read(&payload)? {
                        self.apply_changes(ts, bulk, record.lsn, changes)?;
                    }
                }
                self.finish(ts, tracked.as_ref());
                Ok(ts)
            }
            record::Record::GivenUp { bulk } => {
                fragments.forget(bulk);
                Ok(Timestamp::MIN)
            }
            record::Record::Files(FilesCommit { ts, tracked, .. }) => {
                self.finish(ts, tracked.as_ref());
                Ok(ts)
            }
        }
    }

    fn finish(&self, ts: Timestamp, tracked: Option<&record::Tracked<'_>>) {
        if let Some(tracked) = tracked {
            self.results.recover(ts, tracked);
        }
    }

    /// Applies changes at `ts`, whose first record in the log is `first`, and the one that makes them count `lsn`.
    fn apply_changes<'c>(
        &self,
        ts: Timestamp,
        first: Lsn,
        lsn: Lsn,
        changes: impl Iterator<Item = Result<Change<'c>>>,
    ) -> Result<()> {
        if !self.budget.admits() {
            self.history_from.set(self.history_from.get().max(ts));
        }
        for change in changes {
            let change = change?;
            // A tablet that is not there was dropped, with its table or its range.
            let Some(tablet) = self.tablets.get(&change.tablet) else { continue };
            let state = tablet.state();
            if lsn <= state.files.flushed_lsn {
                continue;
            }
            state.active.listing().check(change.key)?;
            let key = self.index.key(tablet.generation(), change.key);
            let older = Older::Unresolved { below: 0 };
            let memtable = state.active.id;
            let new = NewVersion { ts, lsn, memtable, row: change.row, older };
            let in_files = || state.files.may_contain(change.key);
            // The log keeps it all as long as one row is in no file.
            state.active.note(first);
            state.active.apply(self.index, key, new, || self.history_from.get(), in_files);
        }
        Ok(())
    }
}
