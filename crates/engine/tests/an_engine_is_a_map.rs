//! Random operations against a plain map: whatever moves rows between memory and files changes no answer.
//!
//! More cases: `PROPTEST_CASES=10000 cargo test -p oribi-engine --test an_engine_is_a_map`.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_engine::{Decision, Engine, Read, Snapshot, Table, WriteOp};
use oribi_sim::{SimClock, SimFiles};
use oribi_types::{Durability, ErrorKind};
use proptest::prelude::*;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Op {
    Put(i64, u16),
    Delete(i64),
    /// A batch of puts (some value) and deletes, some on the same key, as one write.
    Batch(Vec<(i64, Option<u16>)>),
    Get(i64),
    Flush,
    /// Sets apart what a later one flushes.
    Seal,
    FlushSealed,
    Compact,
    Snapshot,
    /// Reads the n-th snapshot taken.
    Look(usize),
    Forget(usize),
    Scan,
    Import(i64, u8),
    Truncate,
    Reopen,
    /// The process is killed, then the folder is opened again.
    Kill,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let k = 0..30i64;
    let batch = prop::collection::vec((0..30i64, prop::option::of(any::<u16>())), 1..6);
    prop::collection::vec(
        prop_oneof![
            10 => (k.clone(), any::<u16>()).prop_map(|(k, v)| Op::Put(k, v)),
            5 => k.clone().prop_map(Op::Delete),
            3 => batch.prop_map(Op::Batch),
            6 => k.clone().prop_map(Op::Get),
            4 => Just(Op::Flush),
            3 => Just(Op::Seal),
            2 => Just(Op::FlushSealed),
            2 => Just(Op::Compact),
            3 => Just(Op::Snapshot),
            3 => any::<usize>().prop_map(Op::Look),
            2 => any::<usize>().prop_map(Op::Forget),
            3 => Just(Op::Scan),
            2 => (k, 1..20u8).prop_map(|(k, n)| Op::Import(k, n)),
            1 => Just(Op::Truncate),
            1 => Just(Op::Reopen),
            2 => Just(Op::Kill),
        ],
        1..60,
    )
}

struct Run {
    files: SimFiles,
    clock: Arc<SimClock>,
    engine: Arc<Engine>,
    table: Arc<Table>,
    model: Rows,
    snapshots: Vec<(Snapshot, Rows)>,
}

impl Run {
    fn new(buckets: u32) -> Self {
        let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
        let engine = open(&sim_env(&files, &clock)).unwrap();
        let table = engine.create_table(definition("t", buckets, Durability::Periodic(100))).unwrap();
        Run { files, clock, engine, table, model: Rows::new(), snapshots: Vec::new() }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Put(k, v) => {
                let commit = put(&self.engine, &self.table, k, &v.to_string()).unwrap();
                self.engine.settle(commit.obligation).unwrap();
                self.model.insert(k, v.to_string());
            }
            Op::Delete(k) => {
                let there = delete(&self.engine, &self.table, k).unwrap();
                self.engine
                    .settle(oribi_engine::Obligation { written: u64::MAX, ..Default::default() })
                    .unwrap();
                assert_eq!(there, self.model.remove(&k).is_some(), "delete of {k}");
            }
            Op::Batch(changes) => self.batch(&changes),
            Op::Get(k) => {
                assert_eq!(get(&self.engine, &self.table, k), self.model.get(&k).cloned(), "get of {k}")
            }
            Op::Flush => self.engine.flush(&self.table).unwrap(),
            Op::Seal => self.engine.seal(&self.table),
            Op::FlushSealed => self.engine.flush_sealed(&self.table).unwrap(),
            Op::Compact => self.engine.compact(&self.table).unwrap(),
            Op::Snapshot => self.snapshots.push((self.engine.snapshot(), self.model.clone())),
            Op::Look(i) if !self.snapshots.is_empty() => {
                let (snapshot, rows) = &self.snapshots[i % self.snapshots.len()];
                self.look(snapshot, rows);
            }
            Op::Forget(i) if !self.snapshots.is_empty() => {
                let i = i % self.snapshots.len();
                self.snapshots.swap_remove(i);
            }
            Op::Look(_) | Op::Forget(_) => {}
            Op::Scan => self.compare(),
            Op::Import(k, n) => self.import(k, i64::from(n)),
            Op::Truncate => {
                // Snapshots taken before do not survive it.
                self.snapshots.clear();
                self.engine.truncate(&self.table).unwrap();
                self.model.clear();
            }
            Op::Reopen => {
                self.engine.close().unwrap();
                self.reopen();
            }
            Op::Kill => self.reopen(),
        }
    }

    fn batch(&mut self, changes: &[(i64, Option<u16>)]) {
        let keys: Vec<Vec<u8>> = changes.iter().map(|(k, _)| key(*k)).collect();
        let ops: Vec<WriteOp<'_>> = keys
            .iter()
            .map(|key| WriteOp { table: &self.table, key, read: Read::Existing, row: &[] })
            .collect();
        let mut model = self.model.clone();
        let commit = self.engine.write(&ops, &mut |i, current, row| {
            let (k, change) = changes[i];
            let current = current.map(|c| v_of(&self.table, c.row));
            assert_eq!(current, model.get(&k).cloned(), "a batch sees its own writes");
            Ok(match change {
                Some(v) => {
                    encode(&self.table, &v.to_string(), k, row);
                    model.insert(k, v.to_string());
                    Decision::Put
                }
                None => {
                    model.remove(&k);
                    Decision::Delete
                }
            })
        });
        self.engine.settle(commit.unwrap().obligation).unwrap();
        self.model = model;
    }

    fn import(&mut self, from: i64, n: i64) {
        let keys: Vec<i64> = (0..n).map(|i| (from * 7 + i * 13) % 60).collect();
        let mut import = self.engine.import(&self.table).unwrap();
        import.push(rows(&self.table, &keys, "imported")).unwrap();
        let distinct: std::collections::BTreeSet<i64> = keys.iter().copied().collect();
        let new = distinct.len() == keys.len() && keys.iter().all(|k| !self.model.contains_key(k));
        match import.commit() {
            Ok(rows) => {
                assert!(new, "an import of a key that exists must fail");
                assert_eq!(rows, n as u64);
                self.model.extend(keys.iter().map(|k| (*k, "imported".to_owned())));
            }
            Err(error) => {
                assert!(!new, "{error}");
                assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            }
        }
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.files = self.files.kill();
        self.engine = open(&sim_env(&self.files, &self.clock)).unwrap();
        self.table = self.engine.table("public", "t").unwrap();
        self.compare();
    }

    fn look(&self, snapshot: &Snapshot, rows: &Rows) {
        assert_eq!(&scan(&self.engine, &self.table, snapshot), rows, "snapshot");
        for k in 0..60 {
            let v = self.engine.get(&self.table, &key(k), snapshot.view(), |row| v_of(&self.table, row.row));
            assert_eq!(v.unwrap().0, rows.get(&k).cloned(), "get of {k} at a snapshot");
        }
    }

    fn compare(&self) {
        let snapshot = self.engine.snapshot();
        assert_eq!(scan(&self.engine, &self.table, &snapshot), self.model, "scan");
    }

    fn finish(mut self) {
        self.compare();
        for k in 0..60 {
            assert_eq!(get(&self.engine, &self.table, k), self.model.get(&k).cloned(), "get of {k}");
        }
        for (snapshot, rows) in &self.snapshots {
            self.look(snapshot, rows);
        }
        self.snapshots.clear();
        self.engine.close().unwrap();
        drop((self.engine, self.table));
        let report =
            oribi_engine::check(sim_env(&self.files, &self.clock), std::path::Path::new(DIR)).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: oribi_sim::cases(300) as u32, ..ProptestConfig::default() })]

    #[test]
    fn an_engine_is_a_map(ops in ops(), buckets in 1..3u32) {
        let mut run = Run::new(buckets);
        for op in ops {
            run.step(op);
        }
        run.finish();
    }
}
