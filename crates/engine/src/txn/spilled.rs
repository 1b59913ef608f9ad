//! What a transaction has changed and does not keep in memory: its write set beyond half of what a statement may be, in
//! [runs](super::runs), and [hashes](super::many_locks) of the rows that it has locked.
//!
//! A write that finds the write set full puts all of it aside first. Which changes count is a matter of their numbers, so that
//! undoing cuts runs off without a look into them. Rows stay locked then, unless all is undone. Who reads for the transaction looks into
//! memory, then at the hashes, and into runs only if they have the row's.
//!
//! Transactions that are serializable put nothing aside: their commits compare rows. They have room in memory, or end with an error.

use super::many_locks::ManyLocks;
use super::runs::{Entry, Merge, ReadBlock, Run, RunView};
use super::writes::Change;
use super::{State, Transaction};
use crate::catalog::Table;
use crate::engine::Engine;
use crate::memory::Reserved;
use crate::tablet::{Tablet, TabletId};
use crate::write::WriteOp;
use oribi_types::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

/// So many runs a transaction may have: each keeps a file open, and a block of each is read at once.
const RUNS_MAX: usize = 256;

/// No generation: a commit finds that no tablet has it.
const SEVERAL: u64 = u64::MAX;

/// Runs are in this folder of the engine's.
pub(crate) const RUNS_DIR: &str = "transactions";

#[derive(Clone)]
pub(super) struct Spilled {
    /// From the oldest on.
    pub runs: Vec<RunView>,
    /// Each definition for which rows were written, and the number of the first change.
    pub tables: Vec<(Arc<Table>, u64)>,
    /// The tablets that have changed rows.
    pub tablets: BTreeMap<TabletId, Part>,
    pub locks: Arc<ManyLocks>,
    /// How many changes were put aside, by table.
    pub changes: HashMap<u64, usize>,
    /// What it takes in memory, about.
    pub bytes: usize,
}

/// Of a tablet.
#[derive(Clone)]
pub(super) struct Part {
    pub table: Arc<Table>,
    pub tablet: Arc<Tablet>,
    /// That of the tablet when its rows were changed; [`SEVERAL`] if it was emptied in between.
    pub generation: u64,
    /// The number of the first change.
    first: u64,
}

/// What of a table a transaction had put aside at some moment.
#[derive(Clone)]
pub struct SpilledRows {
    engine: Arc<Engine>,
    table: Arc<Table>,
    runs: Arc<[RunView]>,
    /// Of the table's tablets that have changed rows.
    generations: Arc<HashMap<TabletId, u64>>,
    locks: Arc<ManyLocks>,
}

impl Spilled {
    fn new(locks: Arc<ManyLocks>) -> Self {
        let (runs, tables) = (Vec::new(), Vec::new());
        Spilled { runs, tables, tablets: BTreeMap::new(), locks, changes: HashMap::new(), bytes: 0 }
    }

    pub fn writes_to(&self, table: &Table) -> bool {
        self.changes.contains_key(&table.rows_of())
    }

    /// What it has made of a key: the row, `None` if it has deleted it.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    #[allow(clippy::option_option, reason = "whether it was changed, and whether there is a row then")]
    pub fn find(&self, engine: &Engine, table: &Table, key: &[u8]) -> Result<Option<Option<Vec<u8>>>> {
        let tablet = table.tablet_of(key).id;
        let Some(Part { generation, .. }) = self.tablets.get(&tablet) else { return Ok(None) };
        find((&self.runs, &self.locks), engine, (tablet, *generation), key, &mut Reader::default())
    }

    /// What it has of a table, of the first `changes`.
    pub fn rows(&self, engine: &Arc<Engine>, table: &Arc<Table>, changes: usize) -> Option<SpilledRows> {
        let generation = |tablet: &Arc<Tablet>| Some((tablet.id, self.tablets.get(&tablet.id)?.generation));
        let of_table = || table.tablets.iter().filter_map(generation);
        let rows = || SpilledRows {
            engine: engine.clone(),
            table: table.clone(),
            runs: first(&self.runs, changes).collect(),
            generations: Arc::new(of_table().collect()),
            locks: self.locks.clone(),
        };
        self.writes_to(table).then(rows)
    }

    /// Undoes all but the first `len` changes. What the transaction has made since is known no more.
    pub fn truncate(&mut self, len: usize) {
        self.runs = first(&self.runs, len).collect();
        self.tables.retain(|(_, first)| *first < len as u64);
        self.tablets.retain(|_, part| part.first < len as u64);
    }

    /// Puts changes aside, which come in the order of their numbers, from `first` on.
    ///
    /// # Errors
    /// Those of the file system. Nothing has changed then.
    pub fn put(&mut self, engine: &Engine, path: PathBuf, first: usize, changes: &[Change]) -> Result<()> {
        let order_bytes = changes.len() * size_of::<(TabletId, u64, usize)>();
        let _counted = Reserved::new(&engine.budget, order_bytes as u64);
        // With the first bytes of its key: most keys differ in them, and are not looked up to be compared.
        let mut order: Vec<(TabletId, u64, usize)> = Vec::with_capacity(changes.len());
        // By table, as each was, and tablet: one of the changes, and how many there are.
        let mut parts: HashMap<_, (usize, usize)> = HashMap::new();
        for (n, change) in changes.iter().enumerate() {
            let tablet = change.table.tablet_of(&change.key).id;
            order.push((tablet, first_bytes(&change.key), n));
            parts.entry((Arc::as_ptr(&change.table), tablet, change.generation)).or_insert((n, 0)).1 += 1;
        }
        order.sort_unstable_by(|(a_tablet, a_first, a), (b_tablet, b_first, b)| {
            let by_key = || changes[*a].key.cmp(&changes[*b].key);
            (a_tablet, a_first).cmp(&(b_tablet, b_first)).then_with(by_key).then(b.cmp(a))
        });
        let entries = order.iter().map(|&(tablet, _, n)| {
            let Change { key, row, seen, .. } = &changes[n];
            Entry { tablet, key, number: (first + n) as u64, seen: *seen, row: row.as_deref() }
        });
        let run = Run::write(&engine.env, path, first as u64, entries)?;
        self.runs.push(RunView { run: Arc::new(run), below: u64::MAX });
        let mut parts: Vec<(usize, usize)> = parts.into_values().collect();
        parts.sort_unstable();
        for (n, count) in parts {
            let Change { table, key, generation, .. } = &changes[n];
            let first = (first + n) as u64;
            *self.changes.entry(table.rows_of()).or_default() += count;
            if !self.tables.iter().any(|(known, _)| Arc::ptr_eq(known, table)) {
                self.tables.push((table.clone(), first));
            }
            let (tablet, generation) = (table.tablet_of(key), *generation);
            let part = || Part { table: table.clone(), tablet: tablet.clone(), generation, first };
            let part = self.tablets.entry(tablet.id).or_insert_with(part);
            if part.generation != generation {
                part.generation = SEVERAL;
            }
        }
        Ok(())
    }
}

/// In the order of keys, as far as they differ there.
fn first_bytes(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = key.len().min(bytes.len());
    bytes[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(bytes)
}

/// Runs, as far as they have the first `changes`.
fn first(runs: &[RunView], changes: usize) -> impl Iterator<Item = RunView> {
    let below = move |view: &RunView| view.below.min(changes as u64);
    let of_run = move |view: &RunView| RunView { run: view.run.clone(), below: below(view) };
    runs.iter().map(of_run).filter(|view| view.run.first() < view.below)
}

/// What a look into runs leaves to the next.
#[derive(Default)]
pub struct Reader(Vec<ReadBlock>);

#[allow(clippy::option_option, reason = "whether it was changed, and whether there is a row then")]
fn find(
    (runs, locks): (&[RunView], &ManyLocks),
    engine: &Engine,
    (tablet, generation): (TabletId, u64),
    key: &[u8],
    reader: &mut Reader,
) -> Result<Option<Option<Vec<u8>>>> {
    // The hashes are of the generation in which the rows were locked.
    if generation != SEVERAL && !locks.has(engine.index.key(generation, key).hash) {
        return Ok(None);
    }
    reader.0.resize_with(runs.len(), ReadBlock::default);
    for (view, read) in runs.iter().zip(&mut reader.0).rev() {
        if let Some(found) = view.find(tablet, key, read)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

impl SpilledRows {
    /// Whether it has changed the row of a key.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    pub fn has(&self, key: &[u8], reader: &mut Reader) -> Result<bool> {
        let tablet = self.table.tablet_of(key).id;
        let Some(generation) = self.generations.get(&tablet) else { return Ok(false) };
        Ok(find((&self.runs, &self.locks), &self.engine, (tablet, *generation), key, reader)?.is_some())
    }

    /// The rows of the table's tablets of these numbers, with keys from `from` on: tablet by tablet, in the order of their keys.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    pub fn rows(&self, tablets: impl IntoIterator<Item = usize>, from: &[u8]) -> SpilledIter {
        let tablets = tablets.into_iter().map(|n| self.table.tablets[n].id).collect();
        SpilledIter { runs: self.runs.clone(), tablets, from: from.into(), merge: None }
    }

    /// Those of all tablets.
    pub fn all(&self) -> SpilledIter {
        self.rows(0..self.table.tablets.len(), &[])
    }
}

/// Rows that a transaction has put aside.
pub struct SpilledIter {
    runs: Arc<[RunView]>,
    /// From the one that is read on.
    tablets: std::collections::VecDeque<TabletId>,
    from: Box<[u8]>,
    merge: Option<Merge>,
}

impl SpilledIter {
    /// The next key, and its row, `None` if it is deleted; `None` behind the last.
    ///
    /// # Errors
    /// `Corrupt`; those of the file system.
    #[allow(
        clippy::type_complexity,
        clippy::should_implement_trait,
        reason = "what it lends ends with the next call"
    )]
    pub fn next(&mut self) -> Result<Option<(&[u8], Option<&[u8]>)>> {
        loop {
            let Some(&tablet) = self.tablets.front() else { return Ok(None) };
            let merge = match &mut self.merge {
                Some(merge) => merge,
                None => self.merge.insert(Merge::from(&self.runs, tablet, &self.from)?),
            };
            if merge.next()? && merge.tablet == tablet {
                break;
            }
            self.merge = None;
            self.tablets.pop_front();
        }
        Ok(self.merge.as_ref().map(|merge| (&merge.key[..], merge.row.as_deref())))
    }
}

impl State {
    /// Why what it has cannot be put aside, if so.
    pub(super) fn stays_in_memory(&self) -> Option<&'static str> {
        self.reads.is_some().then_some("a serializable one")
    }

    /// Puts aside what is in memory.
    fn spill(&mut self, engine: &Engine, id: u64) -> Result<()> {
        let now_micros = engine.timeline.now_micros();
        let many = self.many.get_or_insert_with(|| Arc::new(ManyLocks::new(id, now_micros)));
        let spilled = self.spilled.get_or_insert_with(|| Spilled::new(many.clone()));
        if spilled.runs.len() >= RUNS_MAX {
            let message =
                format!("the transaction changes more than {RUNS_MAX} times half of statement_bytes_max");
            return Err(Error::too_large(message));
        }
        if !self.writes.changes().is_empty() {
            spilled.put(engine, new_path(engine, id), self.writes.before(), self.writes.changes())?;
        }
        self.writes.pass();
        self.move_locks(engine);
        Ok(())
    }

    /// Has rows that are locked be among the many.
    pub(super) fn move_locks(&mut self, engine: &Engine) {
        let Some(many) = &self.many else { return };
        engine.row_locks.move_to(many, &self.locked);
        self.locked_before += std::mem::take(&mut self.locked).len();
        self.locked_bytes = 0;
        if let Some(spilled) = &mut self.spilled {
            spilled.bytes = many.bytes() + spilled.runs.iter().map(|view| view.run.bytes()).sum::<usize>();
        }
    }
}

/// For the next run of a transaction.
pub(super) fn new_path(engine: &Engine, id: u64) -> PathBuf {
    engine.dir.join(RUNS_DIR).join(format!("{id}-{}", engine.manifest.next_id()))
}

impl Transaction {
    /// Whether files are read or written for it: what there is was put aside, or is about to be. Not on a thread that serves, then.
    pub fn needs_files(&self) -> bool {
        // Who puts something aside has it locked meanwhile.
        let Some(state) = self.state.try_lock() else { return true };
        let is_full = || state.bytes() > self.engine.options.statement_bytes_max / 2;
        state.spilled.is_some() || is_full() && state.stays_in_memory().is_none()
    }

    /// Makes room for a write, if there is little. Whoever else has something to do with the transaction waits meanwhile.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn make_room(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        let bytes_max = self.engine.options.statement_bytes_max;
        let bytes = |op: &WriteOp<'_>| {
            super::writes::bytes_of_change(op.key, Some(op.row)) + super::LOCK_BYTES + op.key.len()
        };
        let mut state = self.state.lock();
        let has_something = !state.writes.changes().is_empty() || !state.locked.is_empty();
        let is_due = |state: &State| {
            let in_memory = state.bytes();
            in_memory > bytes_max / 2 || in_memory + ops.iter().map(bytes).sum::<usize>() > bytes_max
        };
        if state.ended || !has_something || !is_due(&state) || state.stays_in_memory().is_some() {
            return Ok(());
        }
        state.spill(&self.engine, self.id)?;
        state.reserved.clear();
        state.reserve(&self.engine, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::first_bytes;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(0xff)], 0..12)
    }

    proptest! {
        #[test]
        fn first_bytes_are_in_the_order_of_keys(a in key(), b in key()) {
            prop_assert_eq!((first_bytes(&a), &a).cmp(&(first_bytes(&b), &b)), a.cmp(&b));
        }
    }
}
