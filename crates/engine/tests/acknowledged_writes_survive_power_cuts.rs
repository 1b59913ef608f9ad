//! A machine stops at any point of any operation, recovery included; what was acknowledged is there, and what is there
//! is what some prefix of the writes made, each of them whole.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_engine::{Alteration, Decision, Engine, Obligation, Read, Table, WriteOp};
use oribi_sim::{Rng, SimClock, SimFiles, seeds};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Durability, Result, Timestamp};
use std::path::PathBuf;
use std::sync::Arc;

/// A write goes to both of them, by its keys.
const TABLES: [&str; 2] = ["a", "b"];

struct Story {
    rng: Rng,
    clock: Arc<SimClock>,
    durability: Durability,
    /// The rows after each write that was tried; those before `settled` must survive.
    states: Vec<Rows>,
    settled: usize,
    /// Columns that must be there.
    columns: Vec<String>,
    written: i64,
    last_ts: Timestamp,
    /// What settles all writes.
    last: Obligation,
}

struct Node {
    engine: Arc<Engine>,
    tables: Vec<Arc<Table>>,
}

impl Story {
    fn open(&self, files: &SimFiles) -> Result<Node> {
        let engine = open(&sim_env(files, &self.clock))?;
        let tables = TABLES.iter().zip([2, 1]).map(|(name, buckets)| match engine.table("public", name) {
            Ok(table) => Ok(table),
            Err(_) => engine.create_table(definition(name, buckets, self.durability)),
        });
        let tables = tables.collect::<Result<Vec<_>>>()?;
        Ok(Node { engine, tables })
    }

    /// Works until the machine stops.
    fn work(&mut self, node: &mut Node) -> Result<()> {
        loop {
            match self.rng.below(25) {
                0..13 => self.write(node)?,
                13..17 => node.engine.flush(&node.tables[self.rng.below(2) as usize])?,
                17..19 => node.engine.compact(&node.tables[self.rng.below(2) as usize])?,
                19 => self.import(node)?,
                20 => self.truncate(node)?,
                24 => self.drop_and_create(node)?,
                21 => self.add_column(node)?,
                22 => node.engine.flush(&node.tables[0]).and_then(|()| node.engine.flush(&node.tables[1]))?,
                _ => {
                    drop(scan_now(&node.engine, &node.tables[0]));
                    let back = self.rng.coin();
                    self.clock.jump(if back { -5_000_000 } else { 3_000_000 });
                }
            }
        }
    }

    fn write(&mut self, node: &Node) -> Result<()> {
        let mut rows = self.states.last().unwrap().clone();
        let changes: Vec<(i64, Option<String>)> = (0..1 + self.rng.below(5))
            .map(|_| {
                self.written += 1;
                let put = self.rng.below(3) > 0;
                (self.rng.below(12) as i64, put.then(|| self.written.to_string()))
            })
            .collect();
        let keys: Vec<Vec<u8>> = changes.iter().map(|(k, _)| key(*k)).collect();
        let read = if self.rng.coin() { Read::Blind } else { Read::Existing };
        let ops: Vec<WriteOp<'_>> = keys
            .iter()
            .zip(&changes)
            .map(|(key, (k, _))| WriteOp { table: &node.tables[*k as usize % 2], key, read, row: &[] })
            .collect();
        let written = node.engine.write(&ops, &mut |i, current, row| {
            let (k, v) = &changes[i];
            if read == Read::Existing {
                assert_eq!(current.map(|c| v_of(ops[i].table, c.row)), rows.get(k).cloned());
            }
            match v {
                Some(v) => {
                    encode(ops[i].table, v, *k, row);
                    rows.insert(*k, v.clone());
                    Ok(Decision::Put)
                }
                None => {
                    rows.remove(k);
                    Ok(Decision::Delete)
                }
            }
        });
        let commit = match written {
            Ok(commit) => commit,
            // The commit of a bulk write may be on the disk all the same.
            Err(error) => {
                self.states.push(rows);
                return Err(error);
            }
        };
        assert!(commit.ts > self.last_ts, "timestamps ascend, crashes or not");
        self.last_ts = commit.ts;
        self.last.merge(commit.obligation);
        self.states.push(rows);
        if self.rng.coin() {
            node.engine.settle(commit.obligation)?;
            self.settled = self.states.len() - 1;
        }
        Ok(())
    }

    /// Rows that were not there, in the first table, so that its files have more than one origin.
    fn import(&mut self, node: &Node) -> Result<()> {
        let mut rows = self.states.last().unwrap().clone();
        self.written += 4;
        let keys = [1000 + self.written * 2, 1002 + self.written * 2];
        let mut import = node.engine.import(&node.tables[0])?;
        let batch = common::rows(&node.tables[0], &keys, "imported");
        if node.tables[0].schema().columns().len() > 3 {
            return Ok(());
        }
        import.push(batch)?;
        rows.extend(keys.map(|k| (k, "imported".to_owned())));
        self.attempt(rows, |_| import.commit().map(|_| ()))
    }

    fn truncate(&mut self, node: &Node) -> Result<()> {
        let mut rows = self.states.last().unwrap().clone();
        rows.retain(|k, _| k % 2 != 0);
        self.attempt(rows, |_| node.engine.truncate(&node.tables[0]))
    }

    /// Empties the first table by another way, which leaves files behind if the machine stops on it.
    fn drop_and_create(&mut self, node: &mut Node) -> Result<()> {
        // A drop does not wait for the log, and must not be remembered alone.
        node.engine.settle(self.last)?;
        let mut rows = self.states.last().unwrap().clone();
        rows.retain(|k, _| k % 2 != 0);
        self.attempt(rows, |_| node.engine.drop_table("public", TABLES[0]))?;
        node.tables[0] = node.engine.create_table(definition(TABLES[0], 2, self.durability))?;
        Ok(())
    }

    /// Something that is durable when it returns, and may be so if it fails.
    fn attempt(&mut self, rows: Rows, act: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.states.push(rows);
        act(self)?;
        self.settled = self.states.len() - 1;
        Ok(())
    }

    fn add_column(&mut self, node: &mut Node) -> Result<()> {
        self.written += 1;
        let name = format!("c{}", self.written);
        if self.columns.len() > 3 || self.rng.below(3) > 0 {
            return Ok(());
        }
        let change = Alteration::AddColumn(ColumnSpec::new(&name, ColumnType::Int64));
        node.engine.alter_table("public", "b", &change)?;
        self.columns.push(name);
        node.tables[1] = node.engine.table("public", "b")?;
        Ok(())
    }

    /// Compares what was recovered, and goes on from there.
    fn compare(&mut self, node: &Node) {
        let mut rows = scan_now(&node.engine, &node.tables[0]);
        rows.extend(scan_now(&node.engine, &node.tables[1]));
        let prefix = (self.settled..self.states.len()).find(|n| self.states[*n] == rows);
        assert!(
            prefix.is_some(),
            "recovered {rows:?}, acknowledged {:?}, last {:?}",
            self.states[self.settled],
            self.states.last()
        );
        for k in 0..12 {
            let got = get(&node.engine, &node.tables[k as usize % 2], k);
            assert_eq!(got, rows.get(&k).cloned(), "get of {k}");
        }
        let schema = node.tables[1].schema();
        assert!(self.columns.iter().all(|c| schema.position(c).is_some()), "a column is gone");
        self.states = vec![rows];
        self.settled = 0;
        self.last = Obligation::default();
    }
}

/// Half of the files that are, or were to become, SSTables.
fn sstable_files(files: &SimFiles) -> usize {
    let ends = [".parquet", ".index", ".tmp"];
    let of_tables = files.all_files().into_iter().filter(|path| path.starts_with("/db/tables"));
    of_tables.filter(|path| ends.iter().any(|end| path.to_string_lossy().ends_with(end))).count() / 2
}

fn survive(seed: u64, durability: Durability, stop: impl Fn(&SimFiles, u64) -> SimFiles) {
    let mut story = Story {
        rng: Rng::new(seed),
        clock: Arc::new(SimClock::new()),
        durability,
        states: vec![Rows::new()],
        settled: 0,
        columns: Vec::new(),
        written: 0,
        last_ts: Timestamp::MIN,
        last: Obligation::default(),
    };
    let mut files = SimFiles::new();
    for round in 0..6 {
        let changes = if story.rng.coin() { 40 } else { 300 };
        files.stop_at(1 + story.rng.below(changes));
        if let Ok(mut node) = story.open(&files) {
            if round > 0 {
                story.compare(&node);
                assert_eq!(sstable_files(&files), node.engine.stats().sstables as usize, "left over");
            }
            story.work(&mut node).unwrap_err();
        }
        files = stop(&files, seed * 10 + round);
        // A first open that was cut short may have left nothing at all.
        if oribi_env::Files::list(&files, std::path::Path::new(DIR)).is_ok() {
            assert_eq!(findings(&files), Vec::<String>::new());
        }
    }
    let node = story.open(&files).unwrap();
    story.compare(&node);
}

#[test]
fn what_was_settled_survives_a_power_cut_at_any_point() {
    seeds(80, |seed| survive(seed, Durability::Sync, |files, seed| files.crash(seed)));
}

#[test]
fn what_was_settled_in_a_periodic_table_survives_a_kill_at_any_point() {
    seeds(25, |seed| survive(seed, Durability::Periodic(50), |files, _| files.kill()));
}

/// What a killed process wrote and did not sync, the next one reads; it may not act on it before it is durable.
#[test]
fn files_are_not_removed_on_the_word_of_a_manifest_that_a_power_cut_takes_back() {
    for (killed_at, cut_at) in (1..3).flat_map(|a| (4..34).map(move |b| (a, b))) {
        let (files, clock, engine, table) = fresh(1, Durability::Sync);
        let commit = put(&engine, &table, 1, "v").unwrap();
        engine.settle(commit.obligation).unwrap();
        engine.flush(&table).unwrap();
        files.stop_at(files.changes() + killed_at);
        let dropped = engine.drop_table("public", "t");
        let files = files.kill();
        files.stop_at(cut_at);
        drop(open(&sim_env(&files, &clock)));
        for seed in 0..4 {
            let files = files.crash(cut_at * 4 + seed);
            assert_eq!(findings(&files), Vec::<String>::new(), "killed at {killed_at}, cut at {cut_at}");
            let engine = open(&sim_env(&files, &clock)).unwrap();
            match engine.table("public", "t") {
                Ok(table) => assert_eq!(scan_now(&engine, &table), model(&[(1, "v")])),
                Err(_) => assert_eq!(sstable_files(&files), 0),
            }
            assert!(dropped.is_err() || engine.table("public", "t").is_err());
        }
    }
}

#[test]
fn what_was_settled_survives_kills_and_power_cuts_in_turn() {
    let stop =
        |files: &SimFiles, seed: u64| if seed.is_multiple_of(2) { files.kill() } else { files.crash(seed) };
    seeds(25, |seed| survive(seed, Durability::Sync, stop));
}

#[test]
fn a_manifest_is_started_anew_before_it_grows_long() {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    let manifests = || -> Vec<PathBuf> {
        let is_manifest = |path: &PathBuf| path.to_string_lossy().contains("/MANIFEST-");
        files.all_files().into_iter().filter(is_manifest).collect()
    };
    let first = manifests();
    for k in 0..100 {
        put(&engine, &table, k, "v").unwrap();
        engine.flush(&table).unwrap();
        if k % 3 == 0 {
            engine.compact(&table).unwrap();
        }
        let [manifest] = &manifests()[..] else { panic!("one manifest at a time") };
        let bytes = oribi_env::read_file(&files, manifest).unwrap().len();
        assert!(bytes < 8 << 10, "{bytes} bytes");
    }
    assert_ne!(manifests(), first);
    let rows = scan_now(&engine, &table);
    assert_eq!(rows.len(), 100);
    let (engine, table) = after_kill(&files);
    assert_eq!(scan_now(&engine, &table), rows);
}
