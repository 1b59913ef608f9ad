//! The installer: the one path by which a tablet's files and marks change.
//!
//! Order: new files; marks files, the folder, and what was not synced of new files, at once; the log through the highest LSN in
//! them, one manifest record, the state in memory. Whoever calls holds the tablet's installer lock from reading the state that it changes.

use crate::catalog::Table;
use crate::deletions::{Deletions, Marks, MarksRecord, marks_path, parse_marks_name};
use crate::engine::Engine;
use crate::manifest::{Edit, FileRecord, Install, ManifestState, PatchRecord, Patching, TabletRecord};
use crate::tablet::{FileSet, LiveFile, Tablet, TabletState};
use oribi_env::{Env, File};
use oribi_sstable::{Patch, Sstable, SstableId, SstableMeta};
use oribi_types::{Result, Schema, Timestamp};
use oribi_wal::Lsn;
use roaring::RoaringBitmap;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A change of one tablet's files, before it has a name on disk.
#[derive(Default)]
pub(crate) struct FileChange {
    /// Finished and not yet published SSTables, with the marks that they start with.
    pub added: Vec<(SstableMeta, Marks)>,
    /// What was not synced of them, and of patches.
    pub unsynced: Vec<Arc<dyn File>>,
    pub removed: Vec<SstableId>,
    /// Further marks on files that stay.
    pub marks: HashMap<SstableId, Marks>,
    /// Of files that stay, one of a file at most.
    pub patches: HashMap<SstableId, NewPatch>,
    pub flushed_lsn: Lsn,
    /// Snapshots below this do not see the added files and patches.
    pub visible_from: Timestamp,
}

/// A finished and not yet published patch.
pub(crate) struct NewPatch {
    pub meta: SstableMeta,
    /// That it has values for.
    pub rows: Arc<RoaringBitmap>,
}

/// A change that is on the disk and waits for its manifest record.
pub(crate) struct PreparedChange {
    install: Install,
    patching: Patching,
    pub files: FileSet,
}

/// Changes of the files of several tablets, which become one record of the manifest.
#[derive(Default)]
pub(crate) struct PreparedChanges {
    /// For each tablet those that it will have.
    pub files: Vec<Arc<FileSet>>,
    pub edits: Vec<Edit>,
    /// The files of marks that were made for them.
    pub left: Vec<GivenUp>,
}

/// What is left of a change that failed, until it is certain that no manifest record tells of it.
pub(crate) enum GivenUp {
    Sstable(PathBuf, SstableId),
    Marks(PathBuf),
    /// Tablets that were to be dropped: they take no write as long as that would be lost.
    Drop(Vec<Arc<Table>>),
}

impl Engine {
    /// Writes what a change needs to disk: afterwards only the manifest record is missing.
    ///
    /// # Errors
    /// Those of the file system; the caller gives up the added SSTables then.
    pub(crate) fn prepare(
        &self,
        tablet: &Tablet,
        schema: &Schema,
        change: FileChange,
    ) -> Result<PreparedChange> {
        let mut marks = Vec::new();
        let prepared = self.prepare_files(tablet, schema, change, &mut marks);
        if prepared.is_err() {
            // Not named by any manifest record yet. The last may not have come to be.
            for path in marks.iter().filter(|path| self.env.files.open(path, false).is_ok()) {
                self.remove_quietly(|| Ok(self.env.files.remove(path)?));
            }
        }
        prepared
    }

    /// As [`prepare`](Self::prepare), of several tablets: all of it or nothing.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn prepare_all<'t>(
        &self,
        changes: impl IntoIterator<Item = (&'t Tablet, &'t Schema, FileChange)>,
    ) -> Result<PreparedChanges> {
        let mut all = PreparedChanges::default();
        for (tablet, schema, change) in changes {
            let marked: HashSet<SstableId> = change.marks.keys().copied().collect();
            match self.prepare(tablet, schema, change) {
                Ok(prepared) => {
                    let marked = prepared.files.files.iter().filter(|file| marked.contains(&file.id()));
                    let marks = marked.filter_map(|file| file.marks.as_ref());
                    let path = |marks: &MarksRecord| marks_path(&tablet.dir, marks.sstable, marks.number);
                    all.left.extend(marks.map(|marks| GivenUp::Marks(path(marks))));
                    let (files, edits) = prepared.into_edits();
                    all.edits.extend(edits);
                    all.files.push(Arc::new(files));
                }
                Err(error) => {
                    self.give_up_all(all.left);
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    /// Notes the path of each marks file in `marks_paths` before it is written.
    fn prepare_files(
        &self,
        tablet: &Tablet,
        schema: &Schema,
        change: FileChange,
        marks_paths: &mut Vec<PathBuf>,
    ) -> Result<PreparedChange> {
        let state = tablet.state();
        let horizon = self.timeline.horizon();
        let mut install = Install {
            tablet: tablet.id,
            removed: change.removed,
            flushed_lsn: change.flushed_lsn.max(state.files.flushed_lsn),
            // Those who made the files left out what no snapshot at the horizon reads, as it was then or earlier.
            history_from: horizon,
            ..Install::default()
        };
        let (mut files, mut unsynced) = (Vec::<Arc<LiveFile>>::new(), change.unsynced);
        let mut store = |file: LiveFile| -> Result<LiveFile> {
            let number = self.manifest.next_file_id()?;
            marks_paths.push(marks_path(&tablet.dir, file.id(), number));
            let (record, written) = file.deletions.store(&self.env, &tablet.dir, file.id(), number)?;
            unsynced.push(written);
            Ok(LiveFile { marks: Some(record), ..file })
        };
        let mut patching = Patching { tablet: tablet.id, ..Patching::default() };
        for file in &state.files.files {
            if install.removed.contains(&file.id()) {
                continue;
            }
            let mut file = Arc::clone(file);
            if let Some(patch) = change.patches.get(&file.id()) {
                let sstable = self.patched(tablet, schema, (&file, patch), change.visible_from, horizon)?;
                let (of, visible_from) = (file.id(), change.visible_from);
                patching.added.push(PatchRecord { of, meta: patch.meta.clone(), visible_from });
                let before = file.sstable.patches().iter();
                patching.removed.extend(before.map(|patch| patch.id()).filter(|id| !sstable.has_patch(*id)));
                file = Arc::new(LiveFile { sstable: Arc::new(sstable), ..LiveFile::clone(&file) });
            }
            if let Some(marks) = change.marks.get(&file.id()) {
                let deletions = Arc::new(file.deletions.with(marks, horizon));
                file = Arc::new(store(LiveFile { deletions, ..LiveFile::clone(&file) })?);
            }
            files.push(file);
        }
        for (meta, marks) in change.added {
            oribi_sstable::publish(&self.env, &tablet.dir, meta.id)?;
            let sstable = Arc::new(Sstable::open(&self.env, &tablet.dir, &meta, schema)?);
            install.added.push(FileRecord { meta, visible_from: change.visible_from });
            let deletions = Arc::new(Deletions::default().with(&marks, horizon));
            let file = LiveFile { sstable, deletions, marks: None, visible_from: change.visible_from };
            let marked = file.deletions.len() > 0;
            files.push(Arc::new(if marked { store(file)? } else { file }));
        }
        install.marks = files
            .iter()
            .filter(|file| {
                change.marks.contains_key(&file.id()) || install.added.iter().any(|a| a.meta.id == file.id())
            })
            .filter_map(|file| file.marks.clone())
            .collect();
        self.env.files.sync_all(&unsynced, Some(&tablet.dir))?;
        let flushed_lsn = install.flushed_lsn;
        Ok(PreparedChange { install, patching, files: FileSet { files, flushed_lsn } })
    }

    /// A file with a patch more, which gets its names.
    fn patched(
        &self,
        tablet: &Tablet,
        schema: &Schema,
        (file, NewPatch { meta, rows }): (&LiveFile, &NewPatch),
        visible_from: Timestamp,
        horizon: Timestamp,
    ) -> Result<Sstable> {
        oribi_sstable::publish(&self.env, &tablet.dir, meta.id)?;
        let patch = Patch::open_of(&self.env, &tablet.dir, meta, schema, rows.clone(), visible_from)?;
        Ok(file.sstable.with_patch(Arc::new(patch), horizon))
    }

    /// Makes a prepared change count: on disk, then for readers. `publish` makes the new state from the current one
    /// and the new files.
    ///
    /// # Errors
    /// Those of the manifest; the caller gives up the added SSTables then.
    pub(crate) fn commit_change(
        &self,
        tablet: &Tablet,
        prepared: PreparedChange,
        publish: impl Fn(&TabletState, Arc<FileSet>) -> TabletState,
    ) -> Result<()> {
        let _whole = self.stop_on_panic("a change of files");
        let marks = prepared.install.marks.iter();
        let marks: Vec<_> = marks.map(|marks| marks_path(&tablet.dir, marks.sstable, marks.number)).collect();
        let (files, edits) = prepared.into_edits();
        let committed = self.manifest.commit(edits);
        committed.inspect_err(|_| self.give_up_all(marks.into_iter().map(GivenUp::Marks)))?;
        let files = Arc::new(files);
        let before = arc_swap::Guard::into_inner(tablet.state());
        tablet.change(|state| publish(state, files.clone()));
        self.remove_replaced(tablet, &before.files, &files);
        self.settle_given_up();
        Ok(())
    }

    /// Removes files that are in `before` and not in `after`, unless somebody [needs their names](crate::named_files). Readers that
    /// hold them open read on.
    pub(crate) fn remove_replaced(&self, tablet: &Tablet, before: &FileSet, after: &FileSet) {
        for old in &before.files {
            let now = after.file(old.id());
            let patches = old.sstable.patches().iter().map(|patch| patch.id());
            let is_gone = |id: &SstableId| now.is_none_or(|now| !now.sstable.has_patch(*id));
            for id in patches.filter(is_gone).chain(now.is_none().then_some(old.id())) {
                let may_go = self.names.replaced((tablet.dir.clone(), id));
                may_go.iter().for_each(|(dir, id)| self.remove_sstable(dir, *id));
            }
            if let Some(marks) = &old.marks
                && now.is_none_or(|now| now.marks.as_ref() != Some(marks))
            {
                let path = marks_path(&tablet.dir, marks.sstable, marks.number);
                self.remove_quietly(|| Ok(self.env.files.remove(&path)?));
            }
        }
    }

    /// Removes the SSTable of a change that failed.
    pub(crate) fn give_up(&self, tablet: &Tablet, id: SstableId) {
        self.give_up_all([GivenUp::Sstable(tablet.dir.clone(), id)]);
    }

    /// Removes what a change that failed leaves, once it is certain that no manifest record tells of it: now, or when the
    /// manifest has been begun anew.
    pub(crate) fn give_up_all(&self, left: impl IntoIterator<Item = GivenUp>) {
        self.given_up.lock().extend(left);
        self.settle_given_up();
    }

    /// Removes what was given up, unless the manifest may tell of it.
    pub(crate) fn settle_given_up(&self) {
        let mut given_up = self.given_up.lock();
        if given_up.is_empty() || self.manifest.check().is_err() {
            return;
        }
        for left in given_up.drain(..) {
            match left {
                GivenUp::Sstable(dir, id) => {
                    self.remove_quietly(|| oribi_sstable::remove(&self.env, &dir, id));
                }
                GivenUp::Marks(path) => self.remove_quietly(|| Ok(self.env.files.remove(&path)?)),
                GivenUp::Drop(tables) => {
                    let tablets = |table: &Arc<Table>| {
                        table.tablets.iter().for_each(|tablet| tablet.set_staying(table.version()));
                    };
                    tables.iter().for_each(tablets);
                }
            }
        }
    }

    /// A drop of `table` that failed lets nobody write to it any more: what becomes of its rows is decided again.
    pub(crate) fn forget_given_up_drop(&self, table: &Table) {
        for left in &mut *self.given_up.lock() {
            if let GivenUp::Drop(tables) = left {
                tables.retain(|dropped| dropped.id() != table.id());
            }
        }
    }

    pub(crate) fn remove_sstable(&self, dir: &Path, id: SstableId) {
        self.remove_quietly(|| oribi_sstable::remove(&self.env, dir, id));
    }

    /// A file that cannot be removed only takes space; the next open tries again. From a depot it goes when that is told again.
    fn remove_quietly(&self, remove: impl FnOnce() -> Result<()>) {
        if let Err(error) = remove() {
            tracing::warn!(%error, "cannot remove a file that nobody names");
        }
        self.manifest.note_removal();
    }
}

impl PreparedChange {
    /// Adds SSTables that have their final names on disk; snapshots below `visible_from` do not see them. The caller
    /// holds the tablet's installer lock.
    pub fn adding(tablet: &Tablet, sstables: &[Arc<Sstable>], visible_from: Timestamp) -> Self {
        let state = tablet.state();
        let (mut files, flushed_lsn) = (state.files.files.clone(), state.files.flushed_lsn);
        let mut install = Install { tablet: tablet.id, flushed_lsn, ..Install::default() };
        for sstable in sstables {
            install.added.push(FileRecord { meta: sstable.meta().clone(), visible_from });
            let deletions = Arc::new(Deletions::default());
            files.push(Arc::new(LiveFile { sstable: sstable.clone(), deletions, marks: None, visible_from }));
        }
        let patching = Patching::default();
        PreparedChange { install, patching, files: FileSet { files, flushed_lsn } }
    }

    /// The files that the tablet will have, and the edits of the manifest by which it has them.
    pub fn into_edits(self) -> (FileSet, Vec<Edit>) {
        let mut edits = vec![Edit::Install(self.install)];
        if !self.patching.added.is_empty() {
            edits.push(Edit::Patch(self.patching));
        }
        (self.files, edits)
    }
}

/// Removes the files in the folders of tables in `dir` that the manifest does not name: left over from a crash, maybe
/// of a table that was dropped.
///
/// # Errors
/// Those of the file system.
pub(crate) fn remove_leftovers(env: &Env, dir: &Path, state: &ManifestState) -> Result<()> {
    let of_tablet =
        |tablet: &'_ TabletRecord| Vec::from_iter(tablet.files.keys().chain(tablet.patches.keys()).copied());
    let live: HashSet<SstableId> = state.tablets.values().flat_map(of_tablet).collect();
    let marks: HashSet<(SstableId, u64)> =
        state.tablets.values().flat_map(|t| t.marks.values().map(|m| (m.sstable, m.number))).collect();
    let is_leftover = |name: &str| match (oribi_sstable::id_of_file_name(name), parse_marks_name(name)) {
        (_, Some(id)) => !marks.contains(&id),
        (Some(id), None) => !live.contains(&id) || name.ends_with(".tmp"),
        (None, None) => false,
    };
    let folders = env.files.list(dir)?.into_iter().filter(|name| name.parse::<u64>().is_ok());
    for folder in folders.map(|name| dir.join(name)) {
        for name in env.files.list(&folder)?.into_iter().filter(|name| is_leftover(name)) {
            tracing::info!(file = name, "removing a file that a crash left over");
            env.files.remove(&folder.join(&name))?;
        }
    }
    Ok(())
}
