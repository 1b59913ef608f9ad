//! A table of one tablet whose rows are in files alone, and what writes of many rows find there.
#![allow(dead_code)]

use super::*;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use oribi_engine::{Decision, Engine, Read, Table, WriteOp};
use oribi_sim::{Hooked, Operation, SimClock};
use oribi_types::{Durability, Result, TableDefinition, Timestamp};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const DATA: &str = ".parquet";

/// A disk, an engine on it, and the table.
pub struct Cold {
    pub hooked: Hooked,
    pub clock: Arc<SimClock>,
    pub engine: Arc<Engine>,
    pub table: Arc<Table>,
}

impl Cold {
    pub fn new() -> Self {
        Cold::of(definition("t", 1, Durability::Periodic(100)))
    }

    pub fn of(definition: TableDefinition) -> Self {
        let (hooked, clock) = (Hooked::default(), Arc::new(SimClock::new()));
        let engine = Engine::open(hooked.env(&clock), Path::new(DIR), quiet()).unwrap();
        let table = engine.create_table(definition).unwrap();
        Cold { hooked, clock, engine, table }
    }

    /// A file of these rows; returns its path.
    pub fn add_file(&self, rows: impl IntoIterator<Item = (i64, String)>) -> PathBuf {
        let before = self.files();
        let (keys, values): (Vec<i64>, Vec<String>) = rows.into_iter().unzip();
        let ints: ArrayRef = Arc::new(Int64Array::from(keys));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(values));
        let batch =
            RecordBatch::try_new(self.table.schema().arrow().clone(), vec![ints.clone(), texts, ints]);
        let mut import = self.engine.import(&self.table).unwrap();
        import.push(batch.unwrap()).unwrap();
        import.commit().unwrap();
        self.files().into_iter().find(|path| !before.contains(path)).unwrap()
    }

    /// Those with rows.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = self.hooked.files.all_files();
        files.retain(|path| path.to_string_lossy().ends_with(DATA));
        files
    }

    /// The same, opened again: nothing is known of its files but their indexes.
    pub fn opened_again(self) -> Self {
        let Cold { hooked, clock, engine, table } = self;
        drop((engine, table));
        let engine = Engine::open(hooked.env(&clock), Path::new(DIR), quiet()).unwrap();
        let table = engine.table("public", "t").unwrap();
        Cold { hooked, clock, engine, table }
    }

    /// What a write is decided on that keeps all rows.
    pub fn decided_on(&self, keys: impl IntoIterator<Item = i64>) -> Result<Vec<Seen>> {
        let keys: Vec<Vec<u8>> = keys.into_iter().map(key).collect();
        let op = |key| WriteOp { table: &self.table, key, read: Read::Existing, row: &[] };
        let ops: Vec<WriteOp<'_>> = keys.iter().map(|key| op(key)).collect();
        let mut seen = Vec::with_capacity(ops.len());
        self.engine.write(&ops, &mut |_, current, _| {
            seen.push(current.map(|row| (v_of(&self.table, row.row), row.ts)));
            Ok(Decision::Keep)
        })?;
        Ok(seen)
    }

    pub fn values(&self, keys: impl IntoIterator<Item = i64>) -> Vec<Option<String>> {
        self.decided_on(keys).unwrap().into_iter().map(|seen| seen.map(|(v, _)| v)).collect()
    }

    /// Calls `look` with each read of rows from now on.
    fn at_reads(&self, look: impl Fn(&Engine) + Send + Sync + 'static) {
        let engine = Arc::downgrade(&self.engine);
        self.hooked.set(move |operation, path| {
            if operation == Operation::Read && path.contains(DATA) {
                engine.upgrade().into_iter().for_each(|engine| look(&engine));
            }
        });
    }

    /// The reads of rows that `act` makes.
    pub fn reads(&self, act: impl FnOnce()) -> u64 {
        let count = Arc::new(AtomicU64::new(0));
        let reads = count.clone();
        self.at_reads(move |_| _ = reads.fetch_add(1, Relaxed));
        act();
        self.hooked.clear();
        count.load(Relaxed)
    }

    /// The most that `measure` says at a read of rows that `act` makes.
    pub fn most(&self, measure: impl Fn(&Engine) -> u64 + Send + Sync + 'static, act: impl FnOnce()) -> u64 {
        let most = Arc::new(AtomicU64::new(0));
        let at_reads = most.clone();
        self.at_reads(move |engine| _ = at_reads.fetch_max(measure(engine), Relaxed));
        act();
        self.hooked.clear();
        most.load(Relaxed)
    }

    /// Takes the memory of queries but for so much while `act` runs.
    pub fn with_left(&self, bytes: u64, act: impl FnOnce()) {
        let taken = self.engine.memory().left_for_queries() - bytes;
        self.engine.memory().reserve(taken);
        act();
        self.engine.memory().release(taken);
    }
}

/// What there is of a row.
pub type Seen = Option<(String, Timestamp)>;

pub fn short(k: i64) -> String {
    format!("{k:0400}")
}

/// Long ones among short ones.
pub fn mixed(k: i64) -> String {
    if k % 100 == 7 { short(k).repeat(2621) } else { short(k) }
}
