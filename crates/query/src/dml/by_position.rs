//! A statement that changes many rows of files changes them [by position](oribi_engine::PositionChange): its scan has found where
//! they lie.
//!
//! Rows that are in memory it has flushed first, and looks again. If others change a row meanwhile, all are written the other way,
//! in [rounds](super::rounds), which decides about such rows once more. Those of a block are written [in parts](super::parts).

use super::matched::{Matched, Selection};
use super::parts::Parts;
use super::rounds::Rounds;
use super::rows::Written;
use oribi_engine::{Commit, Engine, Location, NewValues, PositionChange, Table};
use oribi_session::sql::SqlError;
use oribi_types::Timestamp;
use std::sync::{Arc, Mutex, Weak};

/// Changes the rows that were found. `None` if that cannot be done, and nothing was.
pub(super) type InFiles =
    Box<dyn Fn(&Matched, &Engine, By<'_>) -> Result<Option<(Commit, Written)>, SqlError> + Send + Sync>;

/// Who changes rows.
#[derive(Clone, Copy)]
pub(super) struct By<'a> {
    threads: usize,
    /// There as long as somebody waits for it.
    asked: &'a Weak<()>,
}

/// What a change takes in memory for each row beside what is known of it: its place, the hash of its key, and its mark, which is one by itself
/// where snapshots keep too many sets of them.
const ROW_BYTES: usize =
    size_of::<(Location, u32)>() + 3 * size_of::<u64>() + 2 * size_of::<(u32, Timestamp)>();

impl Rounds<'_, (Commit, Written)> {
    /// Changes the rows of the statement's selection, which may be many: in files by `in_files` if they can be changed there.
    ///
    /// # Errors
    /// Those of the query, of `in_files` and of what writes.
    pub(super) async fn change(self, in_files: InFiles) -> Result<(Commit, Written), SqlError> {
        if let (Selection::Matching(matching), Some(transaction)) =
            (self.selection.as_ref(), self.destination.transaction().cloned())
        {
            return Parts::new(self, transaction).change(matching).await;
        }
        let turn = self.turn().await;
        let found = self.selection.find(self.run, self.target, &self.room).await?;
        match self.change_in_files(found, in_files).await? {
            Ok(changed) => Ok(changed),
            Err(found) => self.write(turn, &Arc::new(Mutex::new(found))).await,
        }
    }

    /// Changes the rows of `matched`, if they are many; otherwise they come back, as they were found last.
    async fn change_in_files(
        &self,
        mut matched: Matched,
        change: InFiles,
    ) -> Result<Result<(Commit, Written), Matched>, SqlError> {
        let engine = self.destination.engine();
        let is_large = |matched: &Matched| matched.len() >= engine.options().by_position_rows_min;
        if !is_large(&matched) {
            return Ok(Err(matched));
        }
        if !matched.is_in_files() {
            drop(matched);
            let table = Arc::clone(&self.target.table);
            self.destination.change(&self.target.table, move |engine, _| engine.flush(&table)).await??;
            matched = self.selection.find(self.run, self.target, &self.room).await?;
        }
        let bytes = matched.bytes() + matched.len() * ROW_BYTES;
        if !is_large(&matched) || !matched.is_in_files() || self.room.reserve(bytes).is_err() {
            return Ok(Err(matched));
        }
        let threads = self.run.query.threads();
        let work = move |engine: &Engine, asked: &Weak<()>| {
            let changed = change(&matched, engine, By { threads, asked });
            (matched, changed)
        };
        let (matched, changed) = self.destination.change(&self.target.table, work).await?;
        Ok(changed?.ok_or(matched))
    }
}

/// Replaces the rows of `matched` in their files, or deletes them; `None` if they are not as they were found.
///
/// # Errors
/// Those of the engine.
pub(super) fn change(
    engine: &Engine,
    table: &Arc<Table>,
    matched: &Matched,
    values: Option<&dyn NewValues>,
    by: By<'_>,
) -> Result<Option<(Commit, Written)>, SqlError> {
    let Some(rows) = matched.locations() else { return Ok(None) };
    let key = |number: u32| matched.key(number as usize);
    let is_asked = || by.asked.strong_count() > 0;
    let (threads, found_at) = (by.threads, matched.found_at());
    let change =
        PositionChange { table, rows: &rows, found_at, key: &key, values, threads, is_asked: &is_asked };
    let commit = engine.change_by_position(&change)?;
    Ok(commit.map(|commit| (commit, Written::of(rows.len()))))
}
