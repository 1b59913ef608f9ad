//! `cargo run --release -p oribi-index --example point_reads [rows]`: what a point read costs here and in concurrent
//! maps from the registry. Each row has a key of 20 bytes and a value of 512, which a read copies out, as a door does.
//! One thread reads keys in random order while another overwrites one row in so many microseconds.

use dashmap::DashMap;
use oribi_index::{Entry, Index, NewVersion, Version, pin};
use std::hash::BuildHasher;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const VALUE_BYTES: usize = 512;
const BATCH: usize = 64;
const SECONDS: f64 = 2.0;

type Key = [u8; 20];

/// A map that is measured.
trait Rows: Sync {
    fn put(&self, key: &Key, value: &[u8]);
    /// Appends the values of `keys` to `out`.
    fn get_batch(&self, keys: &[Key], out: &mut Vec<u8>);
}

struct Own {
    index: Index<()>,
    hasher: foldhash::fast::RandomState,
    prefetch: bool,
}

impl Rows for Own {
    fn put(&self, key: &Key, row: &[u8]) {
        let (hash, guard) = (self.hasher.hash_one(key), pin());
        let new = NewVersion { hash, key, row: Some(row), meta: () };
        match self.index.lock(hash).entry(hash, |version| version.key() == key) {
            Entry::Vacant(shard) => {
                shard.insert(new, &guard);
            }
            Entry::Occupied(mut row) => {
                row.push(new);
                row.cut(&guard, |_| true, |_, _| {});
            }
        }
    }

    fn get_batch(&self, keys: &[Key], out: &mut Vec<u8>) {
        let guard = pin();
        let mut hashes = [0; BATCH];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.hasher.hash_one(key);
        }
        if self.prefetch {
            hashes.iter().for_each(|hash| self.index.prefetch_bucket(*hash, &guard));
            for hash in &hashes {
                self.index.approach(*hash, &guard, true);
            }
        }
        for (hash, key) in hashes.iter().zip(keys) {
            let found = self.index.find(*hash, &guard, |version: &Version<()>| version.key() == key);
            out.extend_from_slice(found.ok().and_then(|version| version.row()).expect("every key is there"));
        }
    }
}

/// The maps of the registry, keyed and valued with shared slices, as the row index was before.
struct Papaya(papaya::HashMap<Key, Arc<[u8]>, foldhash::fast::RandomState>);

impl Rows for Papaya {
    fn put(&self, key: &Key, value: &[u8]) {
        self.0.pin().insert(*key, value.into());
    }

    fn get_batch(&self, keys: &[Key], out: &mut Vec<u8>) {
        let pinned = self.0.pin();
        keys.iter().for_each(|key| out.extend_from_slice(pinned.get(key).expect("every key is there")));
    }
}

struct Scc(scc::HashMap<Key, Arc<[u8]>, foldhash::fast::RandomState>);

impl Rows for Scc {
    fn put(&self, key: &Key, value: &[u8]) {
        self.0.upsert_sync(*key, value.into());
    }

    fn get_batch(&self, keys: &[Key], out: &mut Vec<u8>) {
        for key in keys {
            self.0.read_sync(key, |_, value| out.extend_from_slice(value)).expect("every key is there");
        }
    }
}

struct Dash(DashMap<Key, Arc<[u8]>, foldhash::fast::RandomState>);

impl Rows for Dash {
    fn put(&self, key: &Key, value: &[u8]) {
        self.0.insert(*key, value.into());
    }

    fn get_batch(&self, keys: &[Key], out: &mut Vec<u8>) {
        keys.iter().for_each(|key| out.extend_from_slice(&self.0.get(key).expect("every key is there")));
    }
}

fn key(i: u64) -> Key {
    let digits = format!("{i:020}");
    digits.as_bytes().try_into().expect("20 digits")
}

struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Nanoseconds per read.
fn measure(rows: &dyn Rows, count: u64, write_every: Option<Duration>) -> f64 {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(7);
            while let Some(pause) = write_every.filter(|_| !stop.load(Relaxed)) {
                rows.put(&key(random.next(count)), &[1; VALUE_BYTES]);
                let until = Instant::now() + pause;
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
            }
        });
        let (mut random, mut out, mut reads) = (Random(42), Vec::new(), 0u64);
        let keys: Vec<Key> = (0..1 << 18).map(|_| key(random.next(count))).collect();
        let started = Instant::now();
        for batch in keys.chunks(BATCH).cycle() {
            out.clear();
            rows.get_batch(batch, &mut out);
            black_box(&out);
            reads += batch.len() as u64;
            if reads % (1 << 14) == 0 && started.elapsed().as_secs_f64() > SECONDS {
                break;
            }
        }
        let nanos = started.elapsed().as_nanos() as f64 / reads as f64;
        stop.store(true, Relaxed);
        nanos
    })
}

fn main() {
    let count = std::env::args().nth(1).map_or(1_000_000, |rows| rows.parse().expect("a number of rows"));
    println!("{count} rows; nanoseconds per read");
    println!("{:28}{:>10}{:>18}", "", "alone", "beside a writer");
    fn hasher() -> foldhash::fast::RandomState {
        foldhash::fast::RandomState::default()
    }
    let own = |prefetch| Own { index: Index::default(), hasher: hasher(), prefetch };
    type Make = Box<dyn Fn() -> Box<dyn Rows>>;
    let maps: [(&str, Make); 5] = [
        ("row index, prefetched", Box::new(move || Box::new(own(true)))),
        ("row index, one by one", Box::new(move || Box::new(own(false)))),
        ("papaya", Box::new(move || Box::new(Papaya(papaya::HashMap::with_hasher(hasher()))))),
        ("scc", Box::new(move || Box::new(Scc(scc::HashMap::with_hasher(hasher()))))),
        ("dashmap", Box::new(move || Box::new(Dash(DashMap::with_hasher(hasher()))))),
    ];
    for (name, make) in maps {
        let rows = make();
        (0..count).for_each(|i| rows.put(&key(i), &[0; VALUE_BYTES]));
        let alone = measure(rows.as_ref(), count, None);
        let beside = measure(rows.as_ref(), count, Some(Duration::from_micros(2)));
        println!("{name:28}{alone:10.0}{beside:18.0}");
    }
}
