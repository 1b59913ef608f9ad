//! Scans of the same rows in memory make columns of them once, and look up once what they replace in files. Each shows its snapshot all the
//! same, whatever was written since.
//!
//! The seed of a run is in what it panics with; `SEEDS=1000` runs more of them.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_engine::{Decision, Engine, Read, Snapshot, Table, WriteOp};
use oribi_sim::Rng;
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Durability, Schema, TableDefinition, ValueRef, key as key_encoding};
use std::sync::Arc;

/// Keys that come at once, and rows of a block.
const KEYS: i64 = 700;
const BLOCK: i64 = 1024;

/// Table `t`, or one whose keys are too long to be listed by themselves.
fn table_of(engine: &Engine, has_long_keys: bool) -> Arc<Table> {
    if !has_long_keys {
        return engine.table("public", "t").unwrap();
    }
    let columns = vec![
        ColumnSpec::new("k", ColumnType::Int64).not_null(),
        ColumnSpec::new("v", ColumnType::String),
        ColumnSpec::new("n", ColumnType::Int64),
        ColumnSpec::new("l", ColumnType::Int64).not_null(),
    ];
    let schema = Schema::new(columns, &["k", "l"]).unwrap();
    engine.create_table(TableDefinition { schema, ..definition("long", 1, Durability::Sync) }).unwrap()
}

fn change(engine: &Engine, table: &Arc<Table>, changes: &[(i64, Option<String>)], read: Read) {
    let is_long = table.name() == "long";
    let encode_key = |k: i64| {
        let mut key = Vec::new();
        key_encoding::encode_component(ValueRef::Int64(k), !is_long, &mut key);
        if is_long {
            key_encoding::encode_component(ValueRef::Int64(-k), true, &mut key);
        }
        key
    };
    let keys: Vec<Vec<u8>> = changes.iter().map(|(k, _)| encode_key(*k)).collect();
    let ops: Vec<WriteOp<'_>> = keys.iter().map(|key| WriteOp { table, key, read, row: &[] }).collect();
    let decide = |i: usize, row: &mut Vec<u8>| match &changes[i] {
        (k, Some(v)) => {
            encode(table, v, *k, row);
            Decision::Put
        }
        (_, None) => Decision::Delete,
    };
    engine.write(&ops, &mut |i, _, row| Ok(decide(i, row))).unwrap();
}

struct Run {
    engine: Arc<Engine>,
    table: Arc<Table>,
    model: Rows,
    snapshots: Vec<(Snapshot, Rows)>,
    keys: i64,
    rng: Rng,
}

impl Run {
    fn step(&mut self, n: usize) {
        match self.rng.below(24) {
            0..4 => {
                let keys = self.keys..self.keys + KEYS;
                self.keys = keys.end;
                self.change(keys.map(|k| (k, Some(format!("{n}")))).collect());
            }
            4..10 => {
                let count = 1 + self.rng.below(60);
                let deletes = self.rng.below(3) == 0;
                let mut keys: Vec<i64> =
                    (0..count).map(|_| self.rng.below(self.keys.max(1) as u64) as i64).collect();
                keys.sort_unstable();
                keys.dedup();
                self.change(keys.into_iter().map(|k| (k, (!deletes).then(|| format!("{n}")))).collect());
            }
            10..12 => self.engine.seal(&self.table),
            12 => self.engine.flush(&self.table).unwrap(),
            13 => self.engine.flush_sealed(&self.table).unwrap(),
            14 => self.engine.compact(&self.table).unwrap(),
            15 => self.snapshots.push((self.engine.snapshot(), self.model.clone())),
            16 if self.snapshots.len() > 2 => drop(self.snapshots.remove(0)),
            _ => self.scan(n),
        }
    }

    fn change(&mut self, changes: Vec<(i64, Option<String>)>) {
        let read = if self.rng.coin() { Read::Blind } else { Read::Existing };
        change(&self.engine, &self.table, &changes, read);
        for (k, v) in changes {
            match v {
                Some(v) => self.model.insert(k, v),
                None => self.model.remove(&k),
            };
        }
    }

    /// Of keys alone or not, now or of a snapshot; now and then something happens after the first batch.
    fn scan(&mut self, n: usize) {
        let kept = self.rng.below(1 + self.snapshots.len() as u64) as usize;
        let of_keys = self.rng.below(3) == 0;
        let begin = if of_keys { Scan::of_keys } else { Scan::begin };
        let (mut scan, rows) = match self.snapshots.get(kept) {
            Some((snapshot, rows)) => (begin(&self.engine, &self.table, snapshot).unwrap(), rows.clone()),
            None => (begin(&self.engine, &self.table, &self.engine.snapshot()).unwrap(), self.model.clone()),
        };
        if scan.step().unwrap() && self.rng.below(4) == 0 {
            self.step(n);
        }
        while scan.step().unwrap() {}
        let found = scan.rows();
        let is_there = |k: &i64, v: &String| rows.get(k).is_some_and(|of| of_keys || of == v);
        assert_eq!(found.iter().find(|(k, v)| !is_there(k, v)), None, "no such row");
        assert_eq!(found.len(), rows.len(), "rows are missing");
    }
}

#[test]
fn scans_show_their_snapshots_whoever_made_the_columns() {
    let seeds = std::env::var("SEEDS").map_or(8, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let run = std::panic::catch_unwind(|| {
            let (_files, _, engine, _) = fresh(1, Durability::Sync);
            let table = table_of(&engine, seed % 2 == 1);
            let (model, rng) = (Rows::new(), Rng::new(seed));
            let mut run = Run { engine, table, model, snapshots: Vec::new(), keys: 0, rng };
            (0..120).for_each(|n| run.step(n));
            assert_eq!(scan_now(&run.engine, &run.table), run.model);
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}

#[test]
fn columns_are_kept_from_the_second_scan_on_and_count_as_memory_of_memtables() {
    let (_files, _, engine, table) = fresh(1, Durability::Sync);
    let put = |keys: std::ops::Range<i64>| {
        change(
            &engine,
            &table,
            &keys.map(|k| (k, Some(format!("{k:032}")))).collect::<Vec<_>>(),
            Read::Blind,
        );
    };
    put(0..5 * BLOCK + 7);
    // What two scans see, and what the memtable takes then.
    let memory = || {
        assert_eq!(scan_now(&engine, &table).len(), scan_now(&engine, &table).len());
        engine.memory().memtables()
    };
    let rows = engine.memory().memtables();
    assert_eq!(scan_now(&engine, &table).len() as i64, 5 * BLOCK + 7);
    assert_eq!(engine.memory().memtables(), rows, "perhaps nobody comes again");
    let with_columns = memory();
    assert!(
        with_columns > rows + 5 * BLOCK as u64 * (8 + 8 + 16 + 32),
        "{rows} bytes of rows, {with_columns}"
    );
    assert_eq!(memory(), with_columns);
    // A row that changes is found elsewhere, and others where they were.
    put(17..18);
    delete(&engine, &table, 18).unwrap();
    engine.seal(&table);
    put(2000..2001);
    let changed = engine.memory().memtables();
    assert_eq!(scan_now(&engine, &table).len() as i64, 5 * BLOCK + 6);
    assert_eq!(engine.memory().memtables(), changed);
    engine.flush(&table).unwrap();
    assert_eq!(engine.memory().memtables(), 0, "columns go with the rows");
}

#[test]
fn what_rows_replace_in_files_is_remembered_until_the_files_go() {
    let (_files, _, engine, table) = fresh(1, Durability::Sync);
    let all: Vec<i64> = (0..600).collect();
    let put = |keys: &[i64], v: &str| {
        let changes: Vec<_> = keys.iter().map(|k| (*k, Some(v.to_owned()))).collect();
        change(&engine, &table, &changes, Read::Blind);
    };
    for keys in all.chunks(200) {
        put(keys, "first");
        engine.flush(&table).unwrap();
    }
    let before = engine.snapshot();
    put(&all[100..300], "second");
    let rows = engine.memory().memtables();
    let second = scan_now(&engine, &table);
    assert_eq!((second.len(), second.values().filter(|v| *v == "second").count()), (600, 200));
    assert!(engine.memory().memtables() > rows, "it counts");
    assert!(scan(&engine, &table, &before).values().all(|v| v == "first"), "a snapshot from before them");
    // The rows lie in another file then.
    engine.compact(&table).unwrap();
    assert_eq!(scan_now(&engine, &table), second);
    put(&all[250..400], "third");
    let third = scan_now(&engine, &table);
    assert_eq!((third.len(), third.values().filter(|v| *v == "third").count()), (600, 150));
    engine.flush(&table).unwrap();
    assert_eq!(scan_now(&engine, &table), third);
}
