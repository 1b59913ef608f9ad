//! Random operations beside readers of every kind: a reader is opened, tables are written to, flushed, compacted, altered,
//! truncated, dropped and made again, ranges come and go, and the reader is read on. It shows what its snapshot saw, or it is
//! refused because rows or columns that it reads are gone; nothing else.
//!
//! More cases: `PROPTEST_CASES=10000 cargo test -p oribi-engine --test open_readers_show_their_snapshot`.
#![allow(clippy::unwrap_used)]

mod common;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::Int64Type;
use common::*;
use oribi_engine::{
    Alteration, Decision, Engine, KeyRange, Lookup, RangeChange, RangeReader, Read, ReadView, RowVersion,
    Snapshot, Table, TabletScan, WriteOp,
};
use oribi_sim::{SimClock, SimFiles};
use oribi_types::partition::{HashDimension, RangeDimension, RangePartition};
use oribi_types::schema::{Column, ColumnId, ColumnSpec};
use oribi_types::{
    ColumnSource, ColumnType, Durability, Error, ErrorKind, Partitioning, Result, TableDefinition, Value,
    ValueRef,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const KEYS: i64 = 40;
/// Keys of a range.
const OF_RANGE: i64 = 10;

#[derive(Clone, Debug)]
enum Op {
    /// Puts (some value) and deletes as one write.
    Write(Vec<(i64, Option<u16>)>),
    /// A put that does not look at what is there.
    Put(i64, u16),
    Import(i64, i64, u16),
    Flush,
    Seal,
    FlushSealed,
    Compact,
    Truncate,
    AddColumn(Option<i64>),
    DropColumn(usize),
    RenameColumn(usize),
    SetDefault(usize, i64),
    AddRange(i64),
    DropRange(i64),
    /// Drops a range and adds it again in one step.
    ReplaceRange(i64),
    /// Drops the table and makes it anew.
    Replace,
    Snapshot,
    Forget(usize),
    /// Opens readers of a kind, of a snapshot and a handle of the table.
    Open(Kind, usize, usize),
    Read(usize, usize),
    Close(usize),
    /// A read that stands for itself, by a handle of the table.
    Get(usize, i64),
    Reopen,
    Kill,
    PowerCut(u64),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Rows by their keys, one after the other.
    Points,
    Range,
    /// A scan that makes columns of memory, as Kudu's are.
    Tablet,
    /// A scan that holds what is in memory, as SQL's are.
    Whole,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let k = 0..KEYS;
    let writes = prop::collection::vec((0..KEYS, prop::option::weighted(0.7, any::<u16>())), 1..8);
    let kind = prop_oneof![Just(Kind::Points), Just(Kind::Range), Just(Kind::Tablet), Just(Kind::Whole)];
    let n = any::<usize>;
    let op = prop_oneof![
        14 => writes.prop_map(Op::Write),
        4 => (k.clone(), any::<u16>()).prop_map(|(k, v)| Op::Put(k, v)),
        3 => (k.clone(), 1..8i64, any::<u16>()).prop_map(|(k, n, v)| Op::Import(k, n, v)),
        7 => Just(Op::Flush),
        2 => Just(Op::Seal),
        2 => Just(Op::FlushSealed),
        4 => Just(Op::Compact),
        2 => Just(Op::Truncate),
        3 => prop::option::of(0..100i64).prop_map(Op::AddColumn),
        2 => n().prop_map(Op::DropColumn),
        1 => n().prop_map(Op::RenameColumn),
        1 => (n(), any::<i64>()).prop_map(|(n, v)| Op::SetDefault(n, v)),
        2 => (0..KEYS / OF_RANGE).prop_map(Op::AddRange),
        2 => (0..KEYS / OF_RANGE).prop_map(Op::DropRange),
        1 => (0..KEYS / OF_RANGE).prop_map(Op::ReplaceRange),
        1 => Just(Op::Replace),
        5 => Just(Op::Snapshot),
        1 => n().prop_map(Op::Forget),
        12 => (kind, n(), n()).prop_map(|(kind, s, h)| Op::Open(kind, s, h)),
        20 => (n(), 1..30usize).prop_map(|(i, n)| Op::Read(i, n)),
        2 => n().prop_map(Op::Close),
        6 => (n(), k).prop_map(|(h, k)| Op::Get(h, k)),
        1 => Just(Op::Reopen),
        1 => Just(Op::Kill),
        1 => any::<u64>().prop_map(Op::PowerCut),
    ];
    prop::collection::vec(op, 1..70)
}

/// A row as it was written: by the step `at`, with numbers in the columns of then.
#[derive(Clone, Debug)]
struct Row {
    at: usize,
    v: String,
    numbers: BTreeMap<ColumnId, i64>,
}

type Model = BTreeMap<i64, Row>;

/// What a reader shows of a row: v, and the numbers of the other columns.
type Shown = (String, Vec<Option<i64>>);

/// What can be in no column.
const NOT_KNOWN: i64 = i64::MIN;

/// A handle of the table, and when it was the newest first.
#[derive(Clone)]
struct Handle {
    table: Arc<Table>,
    at: usize,
}

#[derive(Clone)]
struct Kept {
    snapshot: Arc<Snapshot>,
    at: usize,
    /// The table that it saw.
    table: u64,
    rows: Model,
}

struct Open {
    handle: Handle,
    kept: Kept,
    source: Source,
}

enum Source {
    Points,
    /// A tablet, and the rows that are left to read.
    Range(RangeReader, usize, Vec<(i64, Shown)>),
    Tablet(Box<TabletScan>, BTreeMap<i64, Shown>),
    Whole(Vec<TabletScan>),
}

struct Run {
    files: SimFiles,
    clock: Arc<SimClock>,
    engine: Arc<Engine>,
    buckets: u32,
    is_ranged: bool,
    step: usize,
    handles: Vec<Handle>,
    model: Model,
    snapshots: Vec<Kept>,
    readers: Vec<Open>,
    /// When columns were added.
    columns: BTreeMap<ColumnId, usize>,
    /// When the table was truncated last, and ranges were dropped and added.
    truncated: usize,
    dropped: BTreeMap<i64, usize>,
    added: BTreeMap<i64, usize>,
}

fn range_of(k: i64) -> i64 {
    k / OF_RANGE
}

fn range(n: i64) -> RangePartition {
    RangePartition { lower: key(n * OF_RANGE), upper: Some(key((n + 1) * OF_RANGE)), hash: None }
}

impl Run {
    fn new(buckets: u32, is_ranged: bool) -> Self {
        let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
        let engine = open(&sim_env(&files, &clock)).unwrap();
        let mut run = Run {
            files,
            clock,
            engine,
            buckets,
            is_ranged,
            step: 0,
            handles: Vec::new(),
            model: Model::new(),
            snapshots: Vec::new(),
            readers: Vec::new(),
            columns: BTreeMap::new(),
            truncated: 0,
            dropped: BTreeMap::new(),
            added: BTreeMap::new(),
        };
        run.create();
        run
    }

    fn create(&mut self) {
        let mut definition = definition("t", self.buckets, Durability::Sync);
        if self.is_ranged {
            definition = ranged(definition, self.buckets);
        }
        let table = self.engine.create_table(definition).unwrap();
        (self.truncated, self.model) = (0, Model::new());
        (self.dropped, self.added) = Default::default();
        self.columns = table.schema().columns().iter().map(|column| (column.id, self.step)).collect();
        self.handles.push(Handle { table, at: self.step });
    }

    fn newest(&self) -> Handle {
        self.handles.last().unwrap().clone()
    }

    /// Takes note that the table was changed.
    fn changed(&mut self) {
        let table = self.engine.table("public", "t").unwrap();
        self.handles.push(Handle { table, at: self.step });
    }

    fn has_range(&self, n: i64) -> bool {
        !self.is_ranged || has_range(&self.newest().table, n)
    }

    fn step(&mut self, op: Op) {
        self.step += 1;
        let table = self.newest().table;
        match op {
            Op::Write(changes) => self.write(&table, &changes, Read::Existing),
            Op::Put(k, v) => self.write(&table, &[(k, Some(v))], Read::Blind),
            Op::Import(k, n, v) => self.import(&table, k, n, v),
            Op::Flush => self.engine.flush(&table).unwrap(),
            Op::Seal => self.engine.seal(&table),
            Op::FlushSealed => self.engine.flush_sealed(&table).unwrap(),
            Op::Compact => self.engine.compact(&table).unwrap(),
            Op::Truncate => {
                self.engine.truncate(&table).unwrap();
                self.model.clear();
                self.truncated = self.step;
            }
            Op::AddColumn(_) | Op::DropColumn(_) | Op::RenameColumn(_) | Op::SetDefault(..) => {
                self.alter(&table, &op);
            }
            Op::AddRange(n) => self.change_ranges(n, &[RangeChange::Add(range(n))], !self.has_range(n)),
            Op::DropRange(n) => self.change_ranges(n, &[drop_of(n)], self.has_range(n)),
            Op::ReplaceRange(n) => {
                self.change_ranges(n, &[drop_of(n), RangeChange::Add(range(n))], self.has_range(n));
            }
            Op::Replace => {
                self.engine.drop_table("public", "t").unwrap();
                self.create();
            }
            Op::Snapshot => self.snapshots.push(self.now()),
            Op::Forget(i) if !self.snapshots.is_empty() => {
                self.snapshots.swap_remove(i % self.snapshots.len());
            }
            Op::Open(kind, snapshot, handle) => self.open(kind, snapshot, handle),
            Op::Read(i, n) if !self.readers.is_empty() => {
                let open = self.readers.swap_remove(i % self.readers.len());
                self.read(open, n);
            }
            Op::Close(i) if !self.readers.is_empty() => {
                self.readers.swap_remove(i % self.readers.len());
            }
            Op::Get(handle, k) => self.get(&self.handles[handle % self.handles.len()], k),
            Op::Forget(_) | Op::Read(..) | Op::Close(_) => {}
            Op::Reopen => {
                self.forget();
                self.engine.close().unwrap();
                self.reopen(self.files.kill());
            }
            Op::Kill => self.reopen(self.files.kill()),
            Op::PowerCut(seed) => self.reopen(self.files.crash(seed)),
        }
    }

    fn write(&mut self, table: &Arc<Table>, changes: &[(i64, Option<u16>)], read: Read) {
        let keys: Vec<Vec<u8>> = changes.iter().map(|(k, _)| key(*k)).collect();
        let ops: Vec<WriteOp<'_>> = keys.iter().map(|key| WriteOp { table, key, read, row: &[] }).collect();
        let mut model = self.model.clone();
        let written = self.engine.write(&ops, &mut |i, current, row| {
            let (k, v) = changes[i];
            if read == Read::Existing {
                let current = current.map(|current| decoded(table, current));
                assert_eq!(current, model.get(&k).map(|row| self.shown(table, row)), "what is there of {k}");
            }
            let Some(v) = v else {
                return Ok(model.remove(&k).map_or(Decision::Keep, |_| Decision::Delete));
            };
            let new = self.row(table, v);
            encode_row(table, &new, row);
            model.insert(k, new);
            Ok(Decision::Put)
        });
        let is_covered = |(k, v): &(i64, Option<u16>)| v.is_none() || self.has_range(range_of(*k));
        match written {
            Ok(commit) => {
                assert!(changes.iter().all(is_covered));
                self.engine.settle(commit.obligation).unwrap();
                self.model = model;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotCovered, "{error}");
                assert!(!changes.iter().all(is_covered));
            }
        }
    }

    fn row(&self, table: &Table, v: u16) -> Row {
        let numbers = numbers(table).map(|column| (column.id, i64::from(v) + i64::from(column.id)));
        Row { at: self.step, v: v.to_string(), numbers: numbers.collect() }
    }

    fn import(&mut self, table: &Arc<Table>, from: i64, n: i64, v: u16) {
        let keys: Vec<i64> = (0..n).map(|i| (from + 3 * i) % KEYS).collect();
        let row = self.row(table, v);
        let ks: ArrayRef = Arc::new(Int64Array::from(keys.clone()));
        let vs: ArrayRef = Arc::new(StringViewArray::from_iter_values(keys.iter().map(|_| &row.v)));
        let others = numbers(table).map(|column| -> ArrayRef {
            Arc::new(Int64Array::from_value(row.numbers[&column.id], keys.len()))
        });
        let columns = [ks, vs].into_iter().chain(others).collect();
        let batch = RecordBatch::try_new(table.schema().arrow().clone(), columns).unwrap();
        let mut import = self.engine.import(table).unwrap();
        let imported = import.push(batch).and_then(|()| import.commit());
        let is_covered = keys.iter().all(|k| self.has_range(range_of(*k)));
        let is_new = keys.iter().all(|k| !self.model.contains_key(k));
        match imported {
            Ok(_) => {
                assert!(is_covered && is_new);
                self.model.extend(keys.into_iter().map(|k| (k, row.clone())));
            }
            Err(error) if error.kind() == ErrorKind::NotCovered => assert!(!is_covered),
            Err(error) => assert!(error.kind() == ErrorKind::AlreadyExists && !is_new, "{error}"),
        }
    }

    fn alter(&mut self, table: &Table, op: &Op) {
        let numbers: Vec<&Column> = numbers(table).collect();
        let column = |i: &usize| numbers.get(i % numbers.len().max(1)).map(|column| column.name.clone());
        let name = format!("c{}", self.step);
        let change = match op {
            Op::AddColumn(default) => {
                let default = default.map(Value::Int64);
                Some(Alteration::AddColumn(ColumnSpec {
                    default,
                    ..ColumnSpec::new(name, ColumnType::Int64)
                }))
            }
            Op::DropColumn(i) => column(i).map(Alteration::DropColumn),
            Op::RenameColumn(i) => column(i).map(|from| Alteration::RenameColumn { from, to: name }),
            Op::SetDefault(i, v) => {
                let default = Some(Value::Int64(*v));
                column(i).map(|column| Alteration::SetDefault { column, default })
            }
            _ => unreachable!("not an alteration"),
        };
        let Some(change) = change else { return };
        self.engine.alter_table("public", "t", &change).unwrap();
        self.changed();
        for column in self.newest().table.schema().columns() {
            self.columns.entry(column.id).or_insert(self.step);
        }
    }

    fn change_ranges(&mut self, n: i64, changes: &[RangeChange], is_possible: bool) {
        let changed = self.engine.alter_partitions("public", "t", changes);
        assert_eq!(changed.is_ok(), self.is_ranged && is_possible, "{changed:?}");
        if changed.is_err() {
            return;
        }
        for change in changes {
            match change {
                RangeChange::Add(_) => self.added.insert(n, self.step),
                RangeChange::Drop { .. } => self.dropped.insert(n, self.step),
            };
        }
        self.model.retain(|k, _| range_of(*k) != n);
        self.changed();
    }

    fn now(&self) -> Kept {
        let table = self.newest().table.id();
        let snapshot = Arc::new(self.engine.snapshot());
        Kept { snapshot, at: self.step, table, rows: self.model.clone() }
    }

    fn forget(&mut self) {
        self.readers.clear();
        self.snapshots.clear();
        self.handles.drain(..self.handles.len() - 1);
    }

    fn reopen(&mut self, files: SimFiles) {
        self.forget();
        self.files = files;
        self.engine = open(&sim_env(&self.files, &self.clock)).unwrap();
        self.changed();
        self.handles.remove(0);
        self.compare();
    }

    /// What `table` shows of a row.
    fn shown(&self, table: &Table, row: &Row) -> Shown {
        let number = |column: &Column| match row.numbers.get(&column.id) {
            Some(number) => Some(*number),
            // The column was dropped before the row was written.
            None if self.columns.get(&column.id).is_some_and(|added| *added < row.at) => Some(NOT_KNOWN),
            None => match column.missing {
                Some(Value::Int64(number)) => Some(number),
                _ => None,
            },
        };
        (row.v.clone(), numbers(table).map(number).collect())
    }

    /// Whether a reader may be refused that reads rows of range `n`, or of all.
    fn may_refuse(&self, handle: &Handle, since: Option<usize>, n: Option<i64>) -> bool {
        let newest = self.newest().table;
        let later = |times: &BTreeMap<i64, usize>, at: usize| match n {
            Some(n) => times.get(&n).is_some_and(|time| *time > at),
            None => times.values().any(|time| *time > at),
        };
        let is_gone = |column: &Column| newest.schema().column_by_id(column.id).is_none();
        handle.table.id() != newest.id()
            || handle.table.schema().columns().iter().any(is_gone)
            || later(&self.dropped, handle.at)
            || later(&self.added, handle.at)
            || since.is_some_and(|since| self.truncated > since || later(&self.dropped, since))
            // Which rows were where that is no range any more, or again one, is not known by range.
            || since.is_some_and(|since| {
                let is_new = n.is_some_and(|n| self.added.contains_key(&n) || !has_range(&handle.table, n));
                is_new && self.dropped.values().any(|time| *time > since)
            })
    }

    fn open(&mut self, kind: Kind, snapshot: usize, handle: usize) {
        let len = self.snapshots.len() + 1;
        let kept = self.snapshots.get(snapshot % len).cloned().unwrap_or_else(|| self.now());
        // Mostly the newest.
        let handle = self.handles[self.handles.len() - 1 - handle % 3 % self.handles.len()].clone();
        // One of another table sees nothing of this one.
        if kept.table != handle.table.id() {
            return;
        }
        let sources: Vec<Result<Source>> = match kind {
            Kind::Points => vec![Ok(Source::Points)],
            Kind::Whole => {
                let table = &handle.table;
                let tablets = 0..table.tablet_ids().len();
                let scan = self.engine.scan(table, tablets, &all_columns(table), false, &kept.snapshot);
                vec![scan.map(Source::Whole)]
            }
            Kind::Range | Kind::Tablet => {
                let tablets = 0..handle.table.tablet_ids().len();
                tablets.map(|tablet| self.open_tablet(kind, &handle, tablet, &kept)).collect()
            }
        };
        for (tablet, source) in sources.into_iter().enumerate() {
            match source {
                Ok(source) => {
                    let (handle, kept) = (handle.clone(), kept.clone());
                    self.readers.push(Open { handle, kept, source });
                }
                Err(error) => {
                    let range = self.range_of_tablet(&handle, tablet);
                    let range = range.filter(|_| !matches!(kind, Kind::Whole));
                    self.check_refused(&handle, Some(kept.at), range, &error);
                }
            }
        }
    }

    fn open_tablet(&self, kind: Kind, handle: &Handle, tablet: usize, kept: &Kept) -> Result<Source> {
        let table = &handle.table;
        let definition = table.definition();
        let is_here = |k: i64| definition.partitioning.tablet_of(&definition.schema, &key(k)) == Some(tablet);
        let rows = kept.rows.iter().filter(|(k, _)| is_here(**k));
        let rows = rows.map(|(k, row)| (*k, self.shown(table, row)));
        let columns = all_columns(table);
        Ok(match kind {
            Kind::Range => {
                let keys = KeyRange::default();
                let reader = self.engine.range(table, tablet, keys, &columns, &kept.snapshot);
                Source::Range(reader, tablet, rows.collect())
            }
            _ => {
                let scan = self.engine.scan_tablet(table, tablet, &columns, false, &kept.snapshot)?;
                Source::Tablet(Box::new(scan), rows.collect())
            }
        })
    }

    /// The range that a tablet of a handle is of, if there are some.
    fn range_of_tablet(&self, handle: &Handle, tablet: usize) -> Option<i64> {
        let definition = handle.table.definition();
        let range = definition.partitioning.place_of(tablet).range;
        range.map(|range| range_of(k_of(&range.lower)))
    }

    fn check_refused(&self, handle: &Handle, since: Option<usize>, range: Option<i64>, error: &Error) {
        assert!(matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Retry), "{error}");
        assert!(self.may_refuse(handle, since, range), "{error}");
    }

    /// Reads on, and keeps the reader if there may be more.
    fn read(&mut self, mut open: Open, n: usize) {
        let Open { handle, kept, source } = &mut open;
        let table = &handle.table;
        let goes_on = match source {
            Source::Points => {
                (0..n as i64).step_by(7).for_each(|i| self.get_at(handle, kept, (n as i64 * 11 + i) % KEYS));
                true
            }
            Source::Range(reader, tablet, rows) => {
                let mut read = Vec::new();
                let done = reader.read(n, |row| {
                    read.push((k_of(row.key), decoded(table, row)));
                    Ok(())
                });
                match done {
                    Ok(_) => {
                        let rest = rows.split_off(n.min(rows.len()));
                        assert_eq!(read, std::mem::replace(rows, rest), "a range");
                        read.len() == n
                    }
                    Err(error) => {
                        let range = self.range_of_tablet(handle, *tablet);
                        self.check_refused(handle, Some(kept.at), range, &error);
                        false
                    }
                }
            }
            Source::Tablet(scan, rows) => {
                let mut seen = BTreeMap::new();
                add_scan(&mut seen, table, scan);
                assert_eq!(&seen, rows, "a scan of a tablet");
                false
            }
            Source::Whole(tablets) => {
                let mut seen = BTreeMap::new();
                tablets.iter_mut().for_each(|tablet| add_scan(&mut seen, table, tablet));
                assert_eq!(seen, self.rows_of(handle, kept), "a whole scan");
                false
            }
        };
        if goes_on {
            self.readers.push(open);
        }
    }

    /// What a snapshot saw of the ranges that a handle knows: all of them, if it is the younger one.
    fn rows_of(&self, handle: &Handle, kept: &Kept) -> BTreeMap<i64, Shown> {
        let partitioning = handle.table.definition().partitioning.clone();
        let knows = |k: i64| partitioning.tablet_of(handle.table.schema_ref(), &key(k)).is_some();
        let rows = kept.rows.iter().filter(|(k, _)| handle.at >= kept.at || knows(**k));
        rows.map(|(k, row)| (*k, self.shown(&handle.table, row))).collect()
    }

    /// A row at a snapshot.
    fn get_at(&self, handle: &Handle, kept: &Kept, k: i64) {
        let expected = kept.rows.get(&k).map(|row| self.shown(&handle.table, row));
        self.check_get(handle, k, kept.snapshot.view(), Some(kept.at), expected);
    }

    /// A row as it is now.
    fn get(&self, handle: &Handle, k: i64) {
        let newest = self.newest().table.id() == handle.table.id();
        let row = self.model.get(&k).filter(|_| newest);
        let expected = row.map(|row| self.shown(&handle.table, row));
        self.check_get(handle, k, self.engine.read_view(), None, expected);
    }

    fn check_get(
        &self,
        handle: &Handle,
        k: i64,
        view: ReadView,
        since: Option<usize>,
        expected: Option<Shown>,
    ) {
        let (table, key) = (&handle.table, key(k));
        let range = self.is_ranged.then(|| range_of(k));
        match self.engine.try_get(table, &key, view, |row| decoded(table, row)) {
            Lookup::Found(found, _) => assert_eq!(Some(found), expected, "row {k} in memory"),
            Lookup::Absent(_) => assert_eq!(None, expected, "row {k} in memory"),
            Lookup::Pending => match self.engine.get(table, &key, view, |row| decoded(table, row)) {
                Ok((found, _)) => assert_eq!(found, expected, "row {k}"),
                Err(error) => self.check_refused(handle, since, range, &error),
            },
        }
    }

    /// What whoever comes now sees.
    fn compare(&mut self) {
        for kind in [Kind::Points, Kind::Range, Kind::Tablet, Kind::Whole] {
            let before = self.readers.len();
            self.open(kind, self.snapshots.len(), 0);
            while self.readers.len() > before {
                let open = self.readers.pop().unwrap();
                self.read(open, KEYS as usize + 1);
                // Of one that has no end.
                if matches!(kind, Kind::Points) {
                    self.readers.pop();
                }
            }
        }
        let newest = self.newest();
        (0..KEYS).for_each(|k| self.get(&newest, k));
    }

    fn finish(mut self) {
        self.compare();
        while let Some(open) = self.readers.pop() {
            let is_endless = matches!(open.source, Source::Points);
            self.read(open, KEYS as usize + 1);
            if is_endless {
                self.readers.pop();
            }
        }
        for kept in std::mem::take(&mut self.snapshots) {
            let newest = self.newest();
            if kept.table == newest.table.id() {
                (0..KEYS).for_each(|k| self.get_at(&newest, &kept, k));
            }
        }
        self.forget();
        self.engine.close().unwrap();
        drop((self.engine, self.handles));
        let report =
            oribi_engine::check(sim_env(&self.files, &self.clock), std::path::Path::new(DIR)).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

/// The same table in ranges, of which some are there, and in each in buckets.
fn ranged(definition: TableDefinition, buckets: u32) -> TableDefinition {
    let hash = (buckets > 1).then(|| HashDimension::new(&definition.schema, vec![0], buckets, 0));
    let ranges = RangeDimension { columns: vec![0], ranges: [0, 1, 3].map(range).into() };
    let partitioning = Partitioning::new(hash.into_iter().collect(), Some(ranges)).unwrap();
    TableDefinition { partitioning, ..definition }
}

fn has_range(table: &Table, n: i64) -> bool {
    table.definition().partitioning.ranges().iter().any(|there| there.lower == range(n).lower)
}

fn drop_of(n: i64) -> RangeChange {
    let RangePartition { lower, upper, .. } = range(n);
    RangeChange::Drop { lower, upper }
}

/// The columns of numbers that are not of the key.
fn numbers(table: &Table) -> impl Iterator<Item = &Column> {
    table.schema_ref().columns().iter().skip(2)
}

fn encode_row(table: &Table, row: &Row, out: &mut Vec<u8>) {
    let mut slots = vec![ValueRef::Null; table.schema_ref().layout().slots().len()];
    slots[0] = ValueRef::String(&row.v);
    for column in numbers(table) {
        let ColumnSource::Slot(slot) = column.source else { panic!("numbers are in slots") };
        slots[usize::from(slot)] = ValueRef::Int64(row.numbers[&column.id]);
    }
    table.schema_ref().layout().encode(&slots, out);
}

fn decoded(table: &Table, version: RowVersion<'_>) -> Shown {
    let schema = table.schema_ref();
    let number = |column: &Column| {
        let ColumnSource::Slot(slot) = column.source else { panic!("numbers are in slots") };
        match schema.slot_value(column, slot, version.row) {
            ValueRef::Int64(number) => Some(number),
            ValueRef::Null => None,
            other => panic!("{other:?}"),
        }
    };
    (v_of(table, version.row), numbers(table).map(number).collect())
}

fn all_columns(table: &Table) -> Vec<usize> {
    (0..table.schema().columns().len()).collect()
}

fn add_scan(rows: &mut BTreeMap<i64, Shown>, table: &Table, scan: &mut TabletScan) {
    let columns = all_columns(table);
    for file in &scan.files {
        for (group, within) in file.groups(0..file.sstable.meta().rows as u32) {
            let batches = file.batches(table.schema_ref(), &columns, false, group, within).unwrap();
            batches.into_iter().flatten().for_each(|batch| add(rows, &batch.unwrap().rows().unwrap()));
        }
    }
    while let Some(batch) = scan.memory.next_batch().unwrap() {
        add(rows, &batch);
    }
}

fn add(rows: &mut BTreeMap<i64, Shown>, batch: &RecordBatch) {
    let int = |column: &ArrayRef, i: usize| {
        let column = column.as_primitive::<Int64Type>();
        column.is_valid(i).then(|| column.value(i))
    };
    for i in 0..batch.num_rows() {
        let k = int(batch.column(0), i).unwrap();
        let v = batch.column(1).as_string_view().value(i).to_owned();
        let numbers = batch.columns()[2..].iter().map(|column| int(column, i)).collect();
        assert!(rows.insert(k, (v, numbers)).is_none(), "key {k} comes twice");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: oribi_sim::cases(200) as u32, ..ProptestConfig::default() })]

    #[test]
    fn open_readers_show_their_snapshot(ops in ops(), buckets in 1..3u32, is_ranged in any::<bool>()) {
        let mut run = Run::new(buckets, is_ranged);
        for op in ops {
            run.step(op);
        }
        run.finish();
    }
}
