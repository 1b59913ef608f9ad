//! The manifest: the durable list of schemas, tables, tablets and their files.
//!
//! It is a framed file of JSON records, each an atomic list of [`Edit`]s, synced before it counts. Every open, and a
//! commit that finds the file too long, writes the state anew into the next file, and `CURRENT`, replaced by renaming,
//! names the file that counts. All other files of the folder that no record names are left over from a crash and are
//! removed.
//!
//! After a failed write it is not known whether the record is on the disk, and nothing may follow it: the state is written
//! anew into the next file, with the record if that works at once (it was committed then, after all), without it later. Until
//! then a crash may find the record or not, so whoever was refused leaves everything as both need it: files stay. The log is
//! otherwise: what it took was shown to readers. Nobody has seen anything of a record of the manifest before it is durable.

use crate::ddl::TABLES_DIR;
use crate::deletions::MarksRecord;
use crate::tablet::TabletId;
use crate::tracker::{ClientResults, is_client_id};
use oribi_env::locks::{self, Mutex};
use oribi_env::{Env, read_file, write_file};
use oribi_sstable::{SstableId, SstableMeta};
use oribi_types::{Error, ErrorKind, Result, TableDefinition, Timestamp};
use oribi_wal::frames::{FrameWriter, read_frames};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

pub(crate) const CURRENT: &str = "CURRENT";
const CURRENT_TMP: &str = "CURRENT.tmp";
const PREFIX: &str = "MANIFEST-";
/// Below the term, in the id of a file.
const FILE_NUMBER_BITS: u32 = 32;

/// A change of the manifest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Edit {
    CreateSchema {
        name: String,
    },
    DropSchema {
        name: String,
    },
    /// Creates a table with its tablets, or replaces its definition and the list of them: those that it does not list
    /// any more go with their files.
    PutTable(TableRecord),
    DropTable {
        id: u64,
    },
    Install(Install),
    Patch(Patching),
    /// Every record below this is in the files: the log may begin here.
    LogStart {
        lsn: u64,
    },
    /// The results of writes by request id that a log from its start on does not have, and maybe some that it has.
    /// Replaces those before.
    Results {
        clients: Vec<ClientResults>,
    },
    /// What a transaction does to the catalog. It counts if the log has the record of its `number`: see `Decided`. Another takes
    /// its place.
    Undecided {
        number: u64,
        edits: Vec<Edit>,
    },
    /// The log has it.
    Decided {
        number: u64,
    },
    /// No timestamp or LSN above these was given out. The timestamp goes back when the engine is closed.
    Ceiling {
        ts: Timestamp,
        lsn: u64,
        /// The horizon was there, or is above by now: no snapshot that can be asked for is below.
        #[serde(default = "unknown_history")]
        horizon: Timestamp,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TableRecord {
    pub id: u64,
    pub definition: TableDefinition,
    pub tablets: Vec<TabletId>,
}

/// A change of one tablet's files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Install {
    pub tablet: TabletId,
    pub added: Vec<FileRecord>,
    pub removed: Vec<SstableId>,
    /// Marks files that replace those of the same SSTables.
    pub marks: Vec<MarksRecord>,
    /// Every record of the tablet at or below this is in the files.
    pub flushed_lsn: u64,
    /// Versions that only snapshots below this read may be missing from the files.
    #[serde(default = "unknown_history")]
    pub history_from: Timestamp,
}

/// Patches that a tablet's files get, or have no more.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Patching {
    pub tablet: TabletId,
    pub added: Vec<PatchRecord>,
    pub removed: Vec<SstableId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PatchRecord {
    /// Whose rows have other values.
    pub of: SstableId,
    pub meta: SstableMeta,
    /// Snapshots below this do not see it.
    pub visible_from: Timestamp,
}

/// What was written before history was noted may lack any.
fn unknown_history() -> Timestamp {
    Timestamp::MAX
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FileRecord {
    pub meta: SstableMeta,
    /// Snapshots below this do not see the file.
    pub visible_from: Timestamp,
}

#[derive(Serialize)]
struct NewRecord<'a> {
    edits: &'a [Edit],
    next_id: u64,
}

#[derive(Deserialize)]
struct Record {
    edits: Vec<Edit>,
    /// All ids up to this one are taken.
    next_id: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TabletRecord {
    pub files: BTreeMap<SstableId, FileRecord>,
    pub marks: BTreeMap<SstableId, MarksRecord>,
    /// By their own ids.
    pub patches: BTreeMap<SstableId, PatchRecord>,
    pub flushed_lsn: u64,
    pub history_from: Timestamp,
}

/// The sum of all edits.
#[derive(Clone, Debug, Default)]
pub(crate) struct ManifestState {
    pub schemas: BTreeSet<String>,
    pub tables: BTreeMap<u64, TableRecord>,
    pub tablets: BTreeMap<TabletId, TabletRecord>,
    pub log_start: u64,
    pub results: Vec<ClientResults>,
    /// What counts if the log has the record of this number.
    pub undecided: Option<(u64, Vec<Edit>)>,
    pub ceiling_ts: Timestamp,
    pub ceiling_lsn: u64,
    pub horizon: Timestamp,
    pub next_id: u64,
}

impl ManifestState {
    /// Snapshots that were there, at this timestamp or above, have all that they read in the files and the log.
    pub fn history_from(&self) -> Timestamp {
        let of_tablets = self.tablets.values().map(|tablet| tablet.history_from);
        of_tablets.fold(self.horizon, Timestamp::max)
    }

    /// Nothing is above `last`: what is there then, and is noted from now on, is known.
    pub fn know_history(&mut self, last: Timestamp) {
        self.horizon = self.horizon.min(last);
        for tablet in self.tablets.values_mut() {
            tablet.history_from = tablet.history_from.min(last);
        }
    }

    /// Whether an edit names only what is there.
    fn check(&self, edit: &Edit) -> Result<()> {
        match edit {
            Edit::DropTable { id } if !self.tables.contains_key(id) => Err(unknown("table", *id)),
            Edit::PutTable(table) if table.tablets.len() != table.definition.partitioning.tablets() => {
                let (id, listed) = (table.id, table.tablets.len());
                let wanted = table.definition.partitioning.tablets();
                Err(Error::corrupt(format!(
                    "table {id} lists {listed} tablets, its partitions have {wanted}"
                )))
            }
            Edit::Install(install) => {
                let tablet = self.tablets.get(&install.tablet);
                let tablet = tablet.ok_or_else(|| unknown("tablet", install.tablet))?;
                let added = |id: SstableId| install.added.iter().any(|file| file.meta.id == id);
                let stays = |id: SstableId| tablet.files.contains_key(&id) && !install.removed.contains(&id);
                let gone = install.removed.iter().find(|id| !tablet.files.contains_key(id)).copied();
                let unmarked = install.marks.iter().map(|m| m.sstable).find(|id| !added(*id) && !stays(*id));
                gone.or(unmarked).map_or(Ok(()), |id| Err(unknown("sstable", id)))
            }
            Edit::Patch(patching) => {
                let tablet = self.tablets.get(&patching.tablet);
                let tablet = tablet.ok_or_else(|| unknown("tablet", patching.tablet))?;
                let of_none =
                    patching.added.iter().map(|patch| patch.of).find(|id| !tablet.files.contains_key(id));
                let gone = patching.removed.iter().find(|id| !tablet.patches.contains_key(id));
                of_none.or(gone.copied()).map_or(Ok(()), |id| Err(unknown("sstable", id)))
            }
            Edit::Results { clients } if !clients.iter().all(|c| is_client_id(&c.client)) => {
                Err(Error::corrupt("names a client that cannot be"))
            }
            Edit::Undecided { edits, .. } => {
                let nested = |edit: &Edit| matches!(edit, Edit::Undecided { .. } | Edit::Decided { .. });
                match edits.iter().any(nested) {
                    true => Err(Error::corrupt("decides within what is undecided")),
                    false => self.after(edits).map(|_| ()),
                }
            }
            _ => Ok(()),
        }
    }

    /// # Errors
    /// As [`check`](Self::check); the state is as before then.
    fn apply(&mut self, edit: &Edit) -> Result<()> {
        self.check(edit)?;
        match edit {
            Edit::CreateSchema { name } => {
                self.schemas.insert(name.clone());
            }
            Edit::DropSchema { name } => {
                self.schemas.remove(name);
            }
            Edit::PutTable(table) => {
                let listed: BTreeSet<TabletId> = table.tablets.iter().copied().collect();
                let before = self.tables.insert(table.id, table.clone());
                let before = before.into_iter().flat_map(|before| before.tablets);
                for dropped in before.filter(|tablet| !listed.contains(tablet)) {
                    self.tablets.remove(&dropped);
                }
                for tablet in listed {
                    self.tablets.entry(tablet).or_default();
                }
            }
            Edit::DropTable { id } => {
                for tablet in self.tables.remove(id).into_iter().flat_map(|table| table.tablets) {
                    self.tablets.remove(&tablet);
                }
            }
            Edit::Install(install) => self.install(install),
            Edit::Patch(Patching { tablet, added, removed }) => {
                let patches = &mut self.tablets.entry(*tablet).or_default().patches;
                removed.iter().for_each(|id| _ = patches.remove(id));
                patches.extend(added.iter().map(|patch| (patch.meta.id, patch.clone())));
            }
            Edit::LogStart { lsn } => self.log_start = self.log_start.max(*lsn),
            Edit::Results { clients } => self.results = clients.clone(),
            Edit::Undecided { number, edits } => self.undecided = Some((*number, edits.clone())),
            Edit::Decided { number } => self.decide(*number)?,
            Edit::Ceiling { ts, lsn, horizon } => {
                (self.ceiling_ts, self.horizon) = (*ts, *horizon);
                self.ceiling_lsn = self.ceiling_lsn.max(*lsn);
            }
        }
        Ok(())
    }

    /// What is undecided of this number counts.
    ///
    /// # Errors
    /// `Corrupt` if it does not fit any more.
    pub fn decide(&mut self, number: u64) -> Result<()> {
        match self.undecided.take_if(|(undecided, _)| *undecided == number) {
            Some((_, edits)) => edits.iter().try_for_each(|edit| self.apply(edit)),
            None => Ok(()),
        }
    }

    /// The state after `edits`.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    fn after(&self, edits: &[Edit]) -> Result<Self> {
        let mut state = self.clone();
        edits.iter().try_for_each(|edit| state.apply(edit))?;
        Ok(state)
    }

    fn install(&mut self, install: &Install) {
        let tablet = self.tablets.entry(install.tablet).or_default();
        for id in &install.removed {
            tablet.files.remove(id);
            tablet.marks.remove(id);
            tablet.patches.retain(|_, patch| patch.of != *id);
        }
        tablet.files.extend(install.added.iter().map(|file| (file.meta.id, file.clone())));
        tablet.marks.extend(install.marks.iter().map(|marks| (marks.sstable, marks.clone())));
        tablet.flushed_lsn = tablet.flushed_lsn.max(install.flushed_lsn);
        tablet.history_from = tablet.history_from.max(install.history_from);
    }

    /// Edits that make this state from nothing.
    fn edits(&self) -> Vec<Edit> {
        let schemas = self.schemas.iter().map(|name| Edit::CreateSchema { name: name.clone() });
        let tables = self.tables.values().map(|table| Edit::PutTable(table.clone()));
        let installs = self.tablets.iter().map(|(id, tablet)| {
            Edit::Install(Install {
                tablet: *id,
                added: tablet.files.values().cloned().collect(),
                removed: Vec::new(),
                marks: tablet.marks.values().cloned().collect(),
                flushed_lsn: tablet.flushed_lsn,
                history_from: tablet.history_from,
            })
        });
        let patched = self.tablets.iter().filter(|(_, tablet)| !tablet.patches.is_empty());
        let patches = patched.map(|(id, tablet)| {
            let added = tablet.patches.values().cloned().collect();
            Edit::Patch(Patching { tablet: *id, added, removed: Vec::new() })
        });
        let installs = installs.chain(patches);
        let ceiling = Edit::Ceiling { ts: self.ceiling_ts, lsn: self.ceiling_lsn, horizon: self.horizon };
        let log_start = Edit::LogStart { lsn: self.log_start };
        let results = Edit::Results { clients: self.results.clone() };
        let undecided = self.undecided.clone().map(|(number, edits)| Edit::Undecided { number, edits });
        schemas.chain(tables).chain(installs).chain([results, log_start, ceiling]).chain(undecided).collect()
    }

    /// One record that makes this state from nothing.
    pub fn to_record(&self) -> Vec<u8> {
        encode(self, &self.edits())
    }

    /// The highest id that it names, of whatever kind, without the terms of owners.
    pub fn named_id_max(&self) -> u64 {
        let tables = self.tables.values().flat_map(|table| table.tablets.iter().chain([&table.id])).copied();
        let files = self.tablets.values().flat_map(|tablet| {
            let marks = tablet.marks.values().map(|marks| marks.number);
            let files = tablet.files.keys().chain(tablet.patches.keys());
            files.copied().chain(marks).map(|id| id & ((1 << FILE_NUMBER_BITS) - 1))
        });
        tables.chain(files).max().unwrap_or(0)
    }

    /// # Errors
    /// `Corrupt` for what [`to_record`](Self::to_record) does not write.
    pub fn of_record(payload: &[u8]) -> Result<Self> {
        let mut state = ManifestState::default();
        state.apply_record(payload).map(|()| state)
    }

    fn apply_record(&mut self, payload: &[u8]) -> Result<()> {
        let record: Record = serde_json::from_slice(payload)
            .map_err(|e| Error::corrupt(format!("record is not understood: {e}")))?;
        for edit in &record.edits {
            self.apply(edit)?;
        }
        self.next_id = self.next_id.max(record.next_id);
        Ok(())
    }
}

fn unknown(what: &str, id: u64) -> Error {
    Error::corrupt(format!("names unknown {what} {id}"))
}

/// Reads a manifest file's bytes: the sum of its records. What a crash left incomplete at the end is ignored.
///
/// # Errors
/// `Corrupt` for damage before the end, or a record that does not fit those before it.
pub(crate) fn read_manifest(bytes: &[u8]) -> Result<ManifestState> {
    let mut state = ManifestState::default();
    for payload in read_frames(bytes)?.payloads {
        state.apply_record(&bytes[payload])?;
    }
    Ok(state)
}

/// Reads a manifest file without keeping it; for fuzzing.
///
/// # Errors
/// `Corrupt`.
pub fn validate_manifest(bytes: &[u8]) -> Result<()> {
    read_manifest(bytes).map(|_| ())
}

/// The open manifest. Its lock is held during a sync, so that only who makes a record takes it.
pub(crate) struct Manifest {
    env: Env,
    dir: PathBuf,
    bytes_max: u64,
    inner: Mutex<Inner, { locks::MANIFEST }>,
    /// The last id that was given out. What a record names was given out before.
    last_id: AtomicU64,
    /// The owner's, where files are kept in a store; 0 else.
    term: u64,
    /// How often the state has changed since it was opened, or files went that it does not name.
    changes: AtomicU64,
    /// Whether there is no writer …
    failed: AtomicBool,
    /// … and why, as of the last attempt to write.
    why: Mutex<Option<Error>, { locks::LEAF }>,
}

struct Inner {
    /// `None` while it is not known what the file holds: after a failed write, until another file is begun.
    writer: Option<FrameWriter>,
    /// A file longer than this is not gone on with.
    end: u64,
    /// What was committed.
    state: ManifestState,
}

/// Why the next file was not begun.
struct NotBegun {
    error: Error,
    /// Whether `CURRENT` may name it all the same.
    is_doubtful: bool,
}

impl Manifest {
    /// Reads the manifest of `dir` without changing anything; an empty state if there is none.
    ///
    /// # Errors
    /// `Corrupt`, naming the file.
    pub fn read(env: &Env, dir: &Path) -> Result<ManifestState> {
        let Some(name) = current(env, dir)? else {
            // The first table is created after the first CURRENT is durable.
            return match env.files.list(&dir.join(TABLES_DIR)) {
                Ok(tables) if !tables.is_empty() => {
                    Err(Error::corrupt(format!("{CURRENT} is missing, and there are tables")))
                }
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
                _ => Ok(ManifestState::default()),
            };
        };
        let bytes = read_file(env.files.as_ref(), &dir.join(&name))
            .map_err(|e| Error::corrupt(format!("{CURRENT} names {name}, which cannot be read: {e}")))?;
        read_manifest(&bytes).map_err(|e| e.context(name))
    }

    /// As [`read`](Self::read), and what was read is durable then: the last record may be there only because the
    /// process was killed and not the machine, and until it is on the disk nothing may be removed on its word.
    ///
    /// # Errors
    /// As [`read`](Self::read); those of the file system.
    pub fn recover(env: &Env, dir: &Path) -> Result<ManifestState> {
        let state = Manifest::read(env, dir)?;
        if let Some(name) = current(env, dir)? {
            env.files.open(&dir.join(name), true)?.sync()?;
        }
        Ok(state)
    }

    /// Starts the next manifest file of `dir` with `state`, and later another one whenever the file has become longer
    /// than `bytes_max`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn start(env: &Env, dir: &Path, state: ManifestState, bytes_max: u64, term: u64) -> Result<Self> {
        let writer = start_file(env, dir, &state).map_err(|not_begun| not_begun.error)?;
        let end = end_of(&writer, bytes_max);
        Ok(Manifest {
            env: env.clone(),
            dir: dir.to_owned(),
            bytes_max,
            last_id: AtomicU64::new(state.next_id),
            term,
            changes: AtomicU64::new(0),
            inner: Mutex::new(Inner { writer: Some(writer), end, state }),
            failed: AtomicBool::new(false),
            why: Mutex::default(),
        })
    }

    /// Makes `edits` durable, all or none.
    ///
    /// # Errors
    /// `Internal` if they do not fit the state (nothing is written then); otherwise `DiskFull` or `Unavailable`: they do not
    /// count, but a crash may find them as long as [`check`](Self::check) fails.
    pub fn commit(&self, edits: Vec<Edit>) -> Result<()> {
        let mut inner = self.inner.lock();
        let unfit = |error: Error| Error::internal(format!("manifest: {error}"));
        match edits.as_slice() {
            // By far the most: the state need not be copied to know that the edit fits.
            [edit] => {
                inner.state.check(edit).map_err(unfit)?;
                self.write(&mut inner, &edits)?;
                inner.state.apply(edit).map_err(unfit)
            }
            _ => {
                let after = inner.state.after(&edits).map_err(unfit)?;
                self.write(&mut inner, &edits)?;
                inner.state = after;
                Ok(())
            }
        }
    }

    /// Notes that the log has the record of this number: what was undecided of it counts from now on, and is written with
    /// whatever is written next, if this cannot be.
    ///
    /// # Errors
    /// As [`commit`](Self::commit); a crash then finds it undecided, and looks into the log.
    pub fn decide(&self, number: u64) -> Result<()> {
        let mut inner = self.inner.lock();
        inner.state.decide(number).map_err(|error| Error::internal(format!("manifest: {error}")))?;
        self.write(&mut inner, &[Edit::Decided { number }])
    }

    /// The log has no record of this number, and never will: what was undecided of it is nothing.
    pub fn forget_undecided(&self, number: u64) {
        self.inner.lock().state.undecided.take_if(|(undecided, _)| *undecided == number);
    }

    /// Tries to begin another file, if a write has failed before.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn retry(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.writer.is_some() { Ok(()) } else { self.write(&mut inner, &[]) }
    }

    /// Writes a record, or the state with it to the next file.
    fn write(&self, inner: &mut Inner, edits: &[Edit]) -> Result<()> {
        inner.state.next_id = self.last_id.load(Acquire);
        let written = self.try_write(inner, edits).map_err(|error| error.into_refusal().context("manifest"));
        // One that is too long was not begun, and the writer is there.
        let has_failed = inner.writer.is_none();
        *self.why.lock() = written.as_ref().err().filter(|_| has_failed).cloned();
        self.failed.store(has_failed, Release);
        // The state is changed before the lock is given back, without which nobody sees it.
        self.changes.fetch_add(1, AcqRel);
        written
    }

    fn try_write(&self, inner: &mut Inner, edits: &[Edit]) -> Result<()> {
        // Taken out of its place: a panic in the middle leaves a file of which nothing is known.
        let Some(mut writer) = inner.writer.take() else {
            return self.begin_next(inner, edits).map_err(|not_begun| not_begun.error);
        };
        if writer.size_bytes() > inner.end {
            match self.begin_next(inner, edits) {
                Ok(()) => return Ok(()),
                Err(NotBegun { error, is_doubtful: true }) => return Err(error),
                Err(NotBegun { error, .. }) => {
                    tracing::warn!(%error, "the manifest grows on, since another cannot be begun");
                    inner.end = end_of(&writer, self.bytes_max);
                }
            }
        }
        match writer.append(&encode(&inner.state, edits)) {
            Err(error) if error.kind() != ErrorKind::TooLarge => {
                self.begin_next(inner, edits).map_err(|not_begun| {
                    tracing::error!(%error, again = %not_begun.error, "the manifest cannot be written");
                    error
                })
            }
            appended => {
                inner.writer = Some(writer);
                appended
            }
        }
    }

    /// Writes the state with `edits` to the next file.
    fn begin_next(&self, inner: &mut Inner, edits: &[Edit]) -> Result<(), NotBegun> {
        let certain = |error| NotBegun { error, is_doubtful: false };
        let writer = start_file(&self.env, &self.dir, &inner.state.after(edits).map_err(certain)?)?;
        inner.end = end_of(&writer, self.bytes_max);
        inner.writer = Some(writer);
        Ok(())
    }

    /// Whether all that was refused is certainly not on the disk. A commit that is under way is not waited for.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn check(&self) -> Result<()> {
        self.why.lock().clone().map_or(Ok(()), Err)
    }

    /// As [`check`](Self::check), without a lock.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Acquire)
    }

    /// An id that no table, tablet, SSTable or marks file ever had.
    pub fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, AcqRel) + 1
    }

    /// Of an SSTable, or the number of a marks file: with the owner's term, so that no other owner has given it out either.
    ///
    /// # Errors
    /// `TooLarge` once there is no room below the term for what the folder has given out.
    pub fn next_file_id(&self) -> Result<u64> {
        let id = self.next_id();
        match id >> FILE_NUMBER_BITS {
            0 => Ok(self.term << FILE_NUMBER_BITS | id),
            _ => Err(Error::too_large("there were 2^32 ids of files, and there are no others")),
        }
    }

    /// How often the state has changed, or files went.
    pub fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// Notes that a file went which the state does not name.
    pub fn note_removal(&self) {
        self.changes.fetch_add(1, AcqRel);
    }

    /// What was committed, but for what is not decided.
    pub fn decided(&self) -> ManifestState {
        let inner = self.inner.lock();
        let next_id = self.last_id.load(Acquire);
        ManifestState { undecided: None, next_id, ..inner.state.clone() }
    }
}

/// Writes `state` as the first record of the next file, and has `CURRENT` name it. Until that is durable, the file
/// before counts.
fn start_file(env: &Env, dir: &Path, state: &ManifestState) -> Result<FrameWriter, NotBegun> {
    let files = env.files.as_ref();
    let certain = |error: Error| NotBegun { error, is_doubtful: false };
    let doubtful = |error: std::io::Error| NotBegun { error: error.into(), is_doubtful: true };
    let names = files.list(dir).map_err(|error| certain(error.into()))?;
    let last = names.iter().filter_map(|name| number_of(name)).max().unwrap_or(0);
    let name = format!("{PREFIX}{:06}", last + 1);
    let writer = prepare_file(env, dir, &name, &names, state).map_err(|error| {
        // Gives back the space; if that fails too, the next file does it.
        let _ = (files.remove(&dir.join(CURRENT_TMP)), files.remove(&dir.join(&name)));
        certain(error)
    })?;
    files.rename(&dir.join(CURRENT_TMP), &dir.join(CURRENT)).map_err(doubtful)?;
    files.sync_dir(dir).map_err(doubtful)?;
    for old in names.iter().filter(|name| number_of(name).is_some()) {
        if let Err(error) = files.remove(&dir.join(old)) {
            tracing::warn!(%error, file = old, "cannot remove an old manifest");
        }
    }
    Ok(writer)
}

/// Writes the file `name`, and one that names it and is to become `CURRENT`.
fn prepare_file(
    env: &Env,
    dir: &Path,
    name: &str,
    names: &[String],
    state: &ManifestState,
) -> Result<FrameWriter> {
    let files = env.files.as_ref();
    let mut writer = FrameWriter::create(files, &dir.join(name))?;
    writer.append(&state.to_record())?;
    let tmp = dir.join(CURRENT_TMP);
    if names.iter().any(|n| n == CURRENT_TMP) {
        files.remove(&tmp)?;
    }
    write_file(files, &tmp, name.as_bytes())?;
    files.sync_dir(dir)?;
    Ok(writer)
}

/// How long a file that begins with the state may become. A long state is not written anew for each short record.
fn end_of(writer: &FrameWriter, bytes_max: u64) -> u64 {
    bytes_max.max(2 * writer.size_bytes())
}

fn encode(state: &ManifestState, edits: &[Edit]) -> Vec<u8> {
    let record = NewRecord { edits, next_id: state.next_id };
    serde_json::to_vec(&record).expect("a record serializes")
}

/// The name of the manifest file that counts.
fn current(env: &Env, dir: &Path) -> Result<Option<String>> {
    let path: PathBuf = dir.join(CURRENT);
    let name = match read_file(env.files.as_ref(), &path) {
        Ok(name) => name,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    match String::from_utf8(name) {
        Ok(name) if number_of(&name).is_some() => Ok(Some(name)),
        _ => Err(Error::corrupt(format!("{CURRENT} does not name a manifest"))),
    }
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use oribi_types::Partitioning;

    /// Written by a server from before there were ranges, which was killed.
    const MANIFEST_1: &[u8] = include_bytes!("../tests/fixtures/manifest-1");

    #[test]
    fn a_manifest_from_before_there_were_ranges_is_read() {
        let state = read_manifest(MANIFEST_1).unwrap();
        let table = |name: &str| state.tables.values().find(|t| t.definition.name == name).unwrap();
        assert_eq!(table("one").definition.partitioning, Partitioning::none());
        assert_eq!(table("four").definition.partitioning, Partitioning::hash(vec![0], 4));
        assert_eq!(table("four").tablets.len(), 4);
        let mut again = ManifestState::default();
        for edit in state.edits() {
            let stored = serde_json::to_vec(&edit).unwrap();
            again.apply(&serde_json::from_slice(&stored).unwrap()).unwrap();
        }
        assert_eq!(
            format!("{:?}", (&again.tables, &again.tablets)),
            format!("{:?}", (&state.tables, &state.tablets))
        );
    }

    #[test]
    fn ids_of_files_never_reach_into_the_term() {
        let dir = tempfile::tempdir().unwrap();
        let state = ManifestState { next_id: (1 << FILE_NUMBER_BITS) - 2, ..ManifestState::default() };
        let manifest = Manifest::start(&Env::real(), dir.path(), state, 1 << 20, 5).unwrap();
        assert_eq!(manifest.next_file_id().unwrap(), 0x5_ffff_ffff);
        for _ in 0..2 {
            assert_eq!(manifest.next_file_id().unwrap_err().kind(), ErrorKind::TooLarge);
        }
    }

    #[test]
    fn a_table_lists_a_tablet_for_each_of_its_partitions() {
        let mut state = read_manifest(MANIFEST_1).unwrap();
        let mut table = state.tables.values().find(|t| t.definition.name == "four").unwrap().clone();
        let dropped = table.tablets.pop().unwrap();
        assert!(state.apply(&Edit::PutTable(table.clone())).is_err(), "one is missing");
        table.definition.partitioning = Partitioning::hash(vec![0], 3);
        state.apply(&Edit::PutTable(table)).unwrap();
        assert!(!state.tablets.contains_key(&dropped), "and went with what it had");
    }
}
