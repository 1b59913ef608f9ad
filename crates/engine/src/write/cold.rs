//! What a write of several rows needs from files is read before anything is latched: a row in a file takes a hundred times as
//! long as one in memory, and others would wait for all of them.
//!
//! 1. Each operation that must know its row, whose key is not in memory and, by the filters, may be in a file, is looked up there,
//!    many [in the order of their keys](super::key_order). What is found is kept, with its place in the files.
//! 2. Under the latches, a row that is still not in memory is as it was read if its place is: each write of it since would be in a
//!    memtable, or would have been flushed, which marks the place, or be a patch. A key that was nowhere still is, if the tablet
//!    has the same files.
//! 3. What does not hold any more, since files were compacted or rows left the cache, is read under the latches where it is
//!    little. Otherwise the latches are given back, and it is read as before.

use super::key_order::Asked;
use super::stage::{groups, hashes};
use super::{Read, Target, WriteOp};
use crate::catalog::Table;
use crate::engine::Engine;
use crate::index::{GROUP, KeyRef};
use crate::long_reads::FileRowBuffer;
use crate::memory::{MemoryBudget, Reserved};
use crate::read::FileRow;
use crate::tablet::{FileSet, Tablet};
use hashbrown::HashTable;
use oribi_types::{Result, Timestamp};
use std::ops::Range;
use std::sync::Arc;

/// Rows that a write reads from files under its latches at most, as long as it may give them back: some milliseconds.
const ROWS_LATCHED_MAX: usize = 128;
/// … while it holds its table, where others wait for any row of it.
const ROWS_HELD_MAX: usize = 16;
/// Memory is asked for in such steps.
const ROOM_BYTES: u64 = 1 << 20;

/// What was read from files for a write. Its memory counts as a query's; where that is refused, no more is read ahead.
#[derive(Default)]
pub struct ReadAhead {
    rows: HashTable<ColdRow>,
    room: Vec<Reserved>,
    bytes: u64,
    is_full: bool,
    rounds: u32,
    /// What was seen of the present operations, if they were looked at.
    look: Option<Look>,
}

/// A look at all operations of a write.
struct Look {
    /// The files of the tablets that have some, as they were then.
    files: Vec<(Arc<Tablet>, Arc<FileSet>)>,
    /// A bit for each operation, in groups: its key was not in memory, and not in these files.
    absent: Vec<u64>,
    evictions: u64,
}

/// A row as a file had it.
struct ColdRow {
    hash: u64,
    generation: u64,
    /// That of the table's definition by which it was read.
    version: u64,
    /// The key, and then the row.
    bytes: Box<[u8]>,
    key_len: usize,
    found: FileRow,
}

impl ColdRow {
    /// What one takes in memory.
    fn bytes(key_and_row: usize) -> u64 {
        (key_and_row + 2 * size_of::<ColdRow>()) as u64
    }

    fn is(&self, table: &Table, key: KeyRef<'_>) -> bool {
        self.generation == key.generation
            && self.version == table.version()
            && self.bytes[..self.key_len] == *key.key
    }
}

impl Look {
    fn files_of(&mut self, tablet: &Arc<Tablet>) -> &Arc<FileSet> {
        let at = self.files.iter().position(|(of, _)| Arc::ptr_eq(of, tablet)).unwrap_or_else(|| {
            self.files.push((tablet.clone(), tablet.state().files.clone()));
            self.files.len() - 1
        });
        &self.files[at].1
    }

    /// Notes that the key of operation `i` is nowhere.
    fn note_absent(&mut self, i: usize) {
        self.absent[i / GROUP] |= 1 << (i % GROUP);
    }

    fn is_absent(&self, i: usize) -> bool {
        self.absent.get(i / GROUP).is_some_and(|group| group >> (i % GROUP) & 1 == 1)
    }

    fn is_current(&self, tablet: &Arc<Tablet>) -> bool {
        let of = |(of, files): &(Arc<Tablet>, Arc<FileSet>)| {
            Arc::ptr_eq(of, tablet) && Arc::ptr_eq(files, &tablet.state().files)
        };
        self.files.iter().any(of)
    }
}

impl ReadAhead {
    /// Times that latches are given back, over all attempts of a write. Each is nearly always the last.
    pub const ROUNDS_MAX: u32 = 4;

    /// This, unless there is but one row: that is read under its latch, where it keeps nobody from other rows, and cached.
    pub(crate) fn of_several(&mut self, ops: &[WriteOp<'_>]) -> Option<&mut Self> {
        (ops.len() > 1).then_some(self)
    }

    /// For other operations than the last, maybe.
    pub(super) fn begin(&mut self) {
        self.look = None;
        // Others may have given memory back.
        self.is_full = false;
    }

    /// What was read of the row `key`, if that is how the files have it now.
    pub(super) fn find(&self, table: &Table, tablet: &Tablet, key: KeyRef<'_>) -> Option<(FileRow, &[u8])> {
        let row = self.rows.find(key.hash, |row| row.is(table, key))?;
        let home = row.found.home;
        let state = tablet.state();
        let is_same = state.files.file(home.file).is_some_and(|file| {
            !file.deletions.is_marked(home.row) && file.row_visible_from(home.row) == row.found.visible_from
        });
        is_same.then(|| (row.found, &row.bytes[row.key_len..]))
    }

    /// Whether the key of operation `i` was nowhere. It is in no file of `tablet` then, if [`is_current`](Self::is_current).
    pub(super) fn was_absent(&self, i: usize) -> bool {
        self.look.as_ref().is_some_and(|look| look.is_absent(i))
    }

    /// Whether `tablet` has the files that were looked at.
    pub(super) fn is_current(&self, tablet: &Arc<Tablet>) -> bool {
        self.look.as_ref().is_some_and(|look| look.is_current(tablet))
    }

    /// Whether there was no room for a row.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Keeps a row, if there is room.
    pub(super) fn keep(
        &mut self,
        budget: &Arc<MemoryBudget>,
        op: &WriteOp<'_>,
        key: KeyRef<'_>,
        row: &[u8],
        found: FileRow,
    ) {
        let bytes = self.bytes + ColdRow::bytes(op.key.len() + row.len());
        while self.room.len() as u64 * ROOM_BYTES < bytes {
            let Some(room) = Reserved::try_new(budget, ROOM_BYTES) else {
                self.is_full = true;
                return;
            };
            self.room.push(room);
        }
        let row = ColdRow {
            hash: key.hash,
            generation: key.generation,
            version: op.table.version(),
            bytes: [op.key, row].concat().into(),
            key_len: op.key.len(),
            found,
        };
        self.bytes = bytes;
        let same = self.rows.find_mut(key.hash, |other| other.is(op.table, key));
        match same {
            Some(same) => {
                self.bytes -= ColdRow::bytes(same.bytes.len());
                *same = row;
            }
            None => {
                self.rows.insert_unique(key.hash, row, |row| row.hash);
            }
        }
    }
}

impl Engine {
    /// Reads what `ops` need from files and `ahead` does not know. Nothing is latched nor pinned meanwhile.
    pub(super) fn read_ahead(
        &self,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
        ahead: &mut ReadAhead,
    ) -> Result<()> {
        let mut look = Look { files: Vec::new(), absent: Vec::new(), evictions: self.index.evictions() };
        if !reads_files(ops) {
            ahead.look = Some(look);
            return Ok(());
        }
        look.absent.resize(ops.len().div_ceil(GROUP), 0);
        let mut unknown = Vec::new();
        for group in groups(ops.len()) {
            for i in self.cold(group, ops, targets) {
                let (tablet, key) = targets[i];
                if !look.files_of(tablet).may_contain(key.key) {
                    look.note_absent(i);
                } else if !ahead.is_full && ahead.find(ops[i].table, tablet, key).is_none() {
                    unknown.push(i);
                }
            }
        }
        let of = |i: usize| ((targets[i].0.id, ops[i].table.version()), targets[i].1.key);
        unknown.sort_unstable_by_key(|&i| of(i));
        let mut first_of_keys = unknown.clone();
        first_of_keys.dedup_by_key(|i| of(*i));
        for of_tablet in first_of_keys.chunk_by(|a, b| of(*a).0 == of(*b).0) {
            self.read_unknown(&Asked { ops, targets }, of_tablet, &mut look, ahead)?;
            if ahead.is_full {
                break;
            }
        }
        for same in unknown.chunk_by(|a, b| of(*a) == of(*b)) {
            if look.is_absent(same[0]) {
                same.iter().for_each(|i| look.note_absent(*i));
            }
        }
        ahead.look = Some(look);
        Ok(())
    }

    /// Reads the rows of the operations `unknown`, which are of one tablet, as one definition has it, and come in order of their
    /// keys, none twice.
    fn read_unknown(
        &self,
        asked: &Asked<'_>,
        unknown: &[usize],
        look: &mut Look,
        ahead: &mut ReadAhead,
    ) -> Result<()> {
        let files = look.files_of(asked.targets[unknown[0]].0).clone();
        if let Some(absent) = self.read_in_key_order(asked, unknown, &files, ahead)? {
            absent.into_iter().for_each(|i| look.note_absent(i));
            return Ok(());
        }
        let mut buffer = FileRowBuffer::default();
        for &i in unknown {
            let (op, (tablet, key)) = (&asked.ops[i], asked.targets[i]);
            match self.read_files(op.table, tablet, key.key, Timestamp::MAX, &mut buffer)? {
                Some(found) => ahead.keep(&self.budget, op, key, &buffer.row, found),
                None => look.note_absent(i),
            }
            if ahead.is_full {
                break;
            }
        }
        Ok(())
    }

    /// Whether `ops`, whose keys are latched, lack so much of what is in files that their latches are to be given back.
    pub(super) fn lacks(
        &self,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
        ahead: &mut ReadAhead,
        is_held: bool,
    ) -> bool {
        let rows_max = if is_held { ROWS_HELD_MAX } else { ROWS_LATCHED_MAX };
        if ops.len() <= rows_max
            || ahead.is_full
            || ahead.rounds == ReadAhead::ROUNDS_MAX
            || !reads_files(ops)
        {
            return false;
        }
        if let Some(look) = &ahead.look
            && look.evictions == self.index.evictions()
            && look.files.iter().all(|(tablet, files)| Arc::ptr_eq(files, &tablet.state().files))
        {
            return false;
        }
        let is_unknown = |&i: &usize| {
            let (tablet, key) = targets[i];
            let was_absent = ahead.was_absent(i) && ahead.is_current(tablet);
            !was_absent
                && ahead.find(ops[i].table, tablet, key).is_none()
                && tablet.state().files.may_contain(key.key)
        };
        let mut cold = groups(ops.len()).flat_map(|group| self.cold(group, ops, targets));
        let lacks = cold.by_ref().filter(is_unknown).nth(rows_max).is_some();
        ahead.rounds += u32::from(lacks);
        lacks
    }

    /// Those operations of a group that must know their row and do not find it in memory, while their tablet has files.
    fn cold(
        &self,
        group: Range<usize>,
        ops: &[WriteOp<'_>],
        targets: &[Target<'_>],
    ) -> impl Iterator<Item = usize> {
        let absent = self.index.fetch_ahead(hashes(&targets[group.clone()])).absent;
        group.filter(move |&i| {
            absent >> (i % GROUP) & 1 == 1 && ops[i].read == Read::Existing && targets[i].0.has_files()
        })
    }
}

/// Whether some of `ops` may need a file: asked for each table that comes after another.
fn reads_files(ops: &[WriteOp<'_>]) -> bool {
    let mut last: Option<(&Arc<Table>, bool)> = None;
    ops.iter().filter(|op| op.read == Read::Existing).any(|op| match last {
        Some((table, has_files)) if Arc::ptr_eq(table, op.table) => has_files,
        _ => last.insert((op.table, op.table.tablets.iter().any(|tablet| tablet.has_files()))).1,
    })
}
