//! A small table in a folder whose files are kept in a store in memory, which fails as often as a test likes.
#![allow(dead_code)]

use oribi_engine::{Decision, Engine, EngineOptions, KeyRange, Read, Table, WriteOp};
use oribi_env::Env;
use oribi_store::{Body, Bucket, Expected, Listed, Patience, Sink, Store, StoreOptions};
use oribi_types::schema::ColumnSpec;
use oribi_types::{
    ColumnType, Durability, Error, ErrorKind, Partitioning, Result, RowRef, Schema, TableDefinition,
    TableOptions, ValueRef,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A store in memory.
#[derive(Default)]
pub struct Memory {
    objects: Mutex<BTreeMap<String, (Vec<u8>, u64)>>,
    next_tag: AtomicU64,
    /// As long as it is set, nothing succeeds.
    pub is_down: AtomicBool,
    /// As long as it is set, whoever asks is refused.
    pub refuses: AtomicBool,
    /// As long as it is set, nothing is removed.
    pub keeps_all: AtomicBool,
    /// Every so-manieth request fails, or is done without a word; 0 for none.
    pub fails_every: AtomicU64,
    requests: AtomicU64,
    gates: Mutex<Vec<Arc<Gate>>>,
    /// Objects whose puts nobody is told of.
    delayed: Mutex<Option<String>>,
    late: Mutex<Vec<LatePut>>,
}

/// Where requests of one kind about one object stand until the test has them go on.
pub struct Gate {
    kind: &'static str,
    name: String,
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    came: usize,
    is_open: bool,
}

/// A put that has not come through yet.
struct LatePut {
    name: String,
    bytes: Vec<u8>,
    expected: Option<String>,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.came += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.is_open).unwrap());
    }

    /// Until a request stands there.
    pub fn wait_for_one(&self) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |state| state.came == 0).unwrap());
    }

    pub fn came(&self) -> usize {
        self.state.lock().unwrap().came
    }

    pub fn open(&self) {
        self.state.lock().unwrap().is_open = true;
        self.changed.notify_all();
    }
}

impl Memory {
    pub fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    /// Names of objects that end so.
    pub fn ending(&self, end: &str) -> Vec<String> {
        self.names().into_iter().filter(|name| name.ends_with(end)).collect()
    }

    pub fn set(&self, name: &str, bytes: &[u8]) {
        self.objects.lock().unwrap().insert(name.to_owned(), (bytes.to_vec(), 0));
    }

    pub fn lose(&self, name: &str) {
        self.objects.lock().unwrap().remove(name).unwrap();
    }

    pub fn bytes_of(&self, name: &str) -> Vec<u8> {
        self.objects.lock().unwrap()[name].0.clone()
    }

    pub fn requests(&self) -> u64 {
        self.requests.load(SeqCst)
    }

    /// Has requests of a kind, such as `put`, about an object stand until the gate is opened.
    pub fn gate(&self, kind: &'static str, name: &str) -> Arc<Gate> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let gate = Arc::new(Gate { kind, name: name.to_owned(), state, changed });
        self.gates.lock().unwrap().push(gate.clone());
        gate
    }

    /// From now on nobody is told of what becomes of puts of the object, and they come through when the test says.
    pub fn delay(&self, name: &str) {
        *self.delayed.lock().unwrap() = Some(name.to_owned());
    }

    /// What was put and not told of comes through, if what it expects is there.
    pub fn land(&self) {
        *self.delayed.lock().unwrap() = None;
        for LatePut { name, bytes, expected } in self.late.lock().unwrap().drain(..) {
            let _ = self.put_on(&name, bytes, expected);
        }
    }

    fn put_on(&self, name: &str, bytes: Vec<u8>, expected: Option<String>) -> Result<String> {
        let mut objects = self.objects.lock().unwrap();
        let there = objects.get(name).map(|(_, tag)| tag.to_string());
        if there != expected {
            return Err(Error::conflict(format!("{name} is another")));
        }
        let tag = self.next_tag.fetch_add(1, SeqCst) + 1;
        objects.insert(name.to_owned(), (bytes, tag));
        Ok(tag.to_string())
    }

    /// Fails before the request, or behind it.
    fn meddle<T>(&self, kind: &str, name: &str, request: impl FnOnce() -> Result<T>) -> Result<T> {
        let fault = || Err(Error::unavailable("a fault of the test's"));
        let number = self.requests.fetch_add(1, SeqCst) + 1;
        let gates = self.gates.lock().unwrap().clone();
        gates.iter().filter(|gate| gate.kind == kind && gate.name == name).for_each(|gate| gate.pass());
        if self.is_down.load(SeqCst) {
            return fault();
        }
        if self.refuses.load(SeqCst) {
            return Err(Error::new(ErrorKind::Forbidden, "refused by the test"));
        }
        match self.fails_every.load(SeqCst) {
            0 => request(),
            every if !number.is_multiple_of(every) => request(),
            every if (number / every).is_multiple_of(2) => fault(),
            _ => request().and_then(|_| fault()),
        }
    }
}

impl Bucket for Memory {
    fn url(&self) -> &str {
        "memory"
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        self.meddle("list", folder, || {
            let objects = self.objects.lock().unwrap();
            let of = objects.iter().filter(|(name, _)| name.starts_with(folder));
            Ok(of
                .map(|(name, (bytes, _))| Listed { name: name.clone(), bytes: bytes.len() as u64 })
                .collect())
        })
    }

    fn get(&self, name: &str, sink: &mut Sink<'_>) -> Result<String> {
        self.meddle("get", name, || {
            let there = self.objects.lock().unwrap().get(name).cloned();
            let (bytes, tag) = there.ok_or_else(|| Error::not_found(name))?;
            let half = bytes.len() / 2;
            sink(&bytes[..half], 0)?;
            sink(&bytes[half..], half as u64)?;
            Ok(tag.to_string())
        })
    }

    fn tag(&self, name: &str) -> Result<String> {
        self.meddle("tag", name, || {
            let objects = self.objects.lock().unwrap();
            objects.get(name).map(|(_, tag)| tag.to_string()).ok_or_else(|| Error::not_found(name))
        })
    }

    fn put(&self, name: &str, body: Body<'_>, expected: Expected<'_>) -> Result<String> {
        self.meddle("put", name, || {
            let mut bytes = Vec::new();
            body.read(&mut |part| {
                bytes.extend_from_slice(part);
                Ok(())
            })?;
            let expected = match expected {
                Expected::Nothing => None,
                Expected::Tag(tag) => Some(tag.to_owned()),
            };
            if self.delayed.lock().unwrap().as_deref() == Some(name) {
                let late = LatePut { name: name.to_owned(), bytes, expected };
                self.late.lock().unwrap().push(late);
                return Err(Error::unavailable("no answer"));
            }
            self.put_on(name, bytes, expected)
        })
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.meddle("remove", name, || {
            if self.keeps_all.load(SeqCst) {
                return Err(Error::unavailable("nothing is removed"));
            }
            self.objects.lock().unwrap().remove(name);
            Ok(())
        })
    }
}

/// Nobody waits for long.
pub const PATIENCE: Patience = Patience {
    first_pause: Duration::from_micros(100),
    longest_pause: Duration::from_micros(400),
    limit: Duration::from_secs(1),
};

pub fn options(cache_bytes_max: u64) -> StoreOptions {
    StoreOptions { cache_bytes_max, patience: PATIENCE }
}

/// A folder, open.
pub struct Opened {
    pub engine: Arc<Engine>,
    pub store: Store,
}

/// The store of a folder that lives in `env`.
pub fn store_of(bucket: &Arc<Memory>, env: &Env, dir: &Path, cache_bytes_max: u64) -> Store {
    let bucket: Arc<dyn Bucket> = bucket.clone();
    Store::new(bucket, env, dir, options(cache_bytes_max))
}

/// Opens a folder without background threads.
pub fn open_with(bucket: &Arc<Memory>, dir: &Path, cache_bytes_max: u64) -> Result<Opened> {
    open_in(&Env::real(), bucket, dir, cache_bytes_max)
}

pub fn open_in(env: &Env, bucket: &Arc<Memory>, dir: &Path, cache_bytes_max: u64) -> Result<Opened> {
    open_store(store_of(bucket, env, dir, cache_bytes_max), dir)
}

pub fn open_store(store: Store, dir: &Path) -> Result<Opened> {
    let options = EngineOptions { background: false, ..EngineOptions::with_memory(64 << 20) };
    let engine = Engine::open_with(store.env(), dir, options, Some(store.depot()))?;
    Ok(Opened { engine, store })
}

pub fn open(bucket: &Arc<Memory>, dir: &Path) -> Result<Opened> {
    open_with(bucket, dir, 1 << 30)
}

pub fn restore(bucket: &Arc<Memory>, dir: &Path) -> Result<()> {
    store_of(bucket, &Env::real(), dir, 1 << 30).restore()
}

/// A table (k bigint primary key, v text).
pub fn create(engine: &Engine) -> Arc<Table> {
    let columns =
        vec![ColumnSpec::new("k", ColumnType::Int64).not_null(), ColumnSpec::new("v", ColumnType::String)];
    let definition = TableDefinition {
        schema_name: "public".into(),
        name: "t".into(),
        schema: Schema::new(columns, &["k"]).unwrap(),
        partitioning: Partitioning::hash(vec![0], 2),
        options: TableOptions::new(Durability::Sync),
    };
    engine.create_table(definition).unwrap()
}

pub fn key(k: i64) -> Vec<u8> {
    let mut key = Vec::new();
    oribi_types::key::encode_component(ValueRef::Int64(k), true, &mut key);
    key
}

/// Puts a row, or deletes it.
pub fn write(engine: &Engine, k: i64, v: Option<&str>) -> Result<()> {
    write_reading(engine, Read::Existing, k, v)
}

/// Puts a row, whatever is there.
pub fn put_blindly(engine: &Engine, k: i64, v: &str) {
    write_reading(engine, Read::Blind, k, Some(v)).unwrap();
}

fn write_reading(engine: &Engine, read: Read, k: i64, v: Option<&str>) -> Result<()> {
    let (table, key) = (engine.table("public", "t")?, key(k));
    let op = WriteOp { table: &table, key: &key, read, row: &[] };
    let committed = engine.write(&[op], &mut |_, current, row| match v {
        Some(v) => {
            table.schema_ref().layout().encode(&[ValueRef::String(v)], row);
            Ok(Decision::Put)
        }
        None => Ok(if current.is_some() { Decision::Delete } else { Decision::Keep }),
    })?;
    engine.settle(committed.obligation)
}

pub fn put(engine: &Engine, k: i64, v: &str) {
    write(engine, k, Some(v)).unwrap();
}

pub type Rows = BTreeMap<i64, String>;

/// All rows.
pub fn rows(engine: &Arc<Engine>) -> Result<Rows> {
    let table = engine.table("public", "t")?;
    let snapshot = Arc::new(engine.snapshot());
    let mut rows = Rows::new();
    for tablet in 0..table.definition().partitioning.tablets() {
        let mut reader = engine.range(&table, tablet, KeyRange::default(), &[1], &snapshot);
        reader.read(usize::MAX, |row| {
            let k = (u64::from_be_bytes(row.key.try_into().unwrap()) ^ (1 << 63)) as i64;
            let v = match RowRef::new(table.schema_ref().layout(), row.row).get(0) {
                Some(ValueRef::String(v)) => v.to_owned(),
                other => panic!("v is {other:?}"),
            };
            rows.insert(k, v);
            Ok(())
        })?;
    }
    Ok(rows)
}

/// Flushes, and tells the store.
pub fn flush(engine: &Arc<Engine>) -> Result<()> {
    engine.flush(&engine.table("public", "t")?)?;
    engine.publish()
}

/// Removes what the folder has of tables: the store has it.
pub fn lose_files(dir: &Path) {
    std::fs::remove_dir_all(dir.join("tables")).unwrap();
}

/// Names of the files of tables in the folder.
pub fn local_files(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for table in std::fs::read_dir(dir.join("tables")).unwrap() {
        for file in std::fs::read_dir(table.unwrap().path()).unwrap() {
            names.push(file.unwrap().file_name().into_string().unwrap());
        }
    }
    names
}

/// Copies a folder with all that is in it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}
