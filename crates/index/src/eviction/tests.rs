use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The rows of a shard, as the index keeps them.
#[derive(Default)]
struct Rows {
    eviction: Eviction,
    rows: BTreeMap<u64, Row>,
    /// Turns of hashes; admissions but for those that were purged; all admissions.
    visits: u64,
    admissions: u64,
    admitted: u64,
    /// Turns after which a row stayed, and the reads that these cost: each but the one that ends in the main queue.
    rounds: u64,
    spent: u64,
}

#[derive(Clone, Copy, Default)]
struct Row {
    bytes: u32,
    reads: u8,
    dirty: bool,
    queued: bool,
}

/// Spreads small numbers as a hash does; never the same for two.
fn hash(key: u64) -> u64 {
    key.wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

impl Rows {
    /// Reads a row: from memory, or from a file that has rows of `bytes` for every key. Whether it was in memory.
    fn get(&mut self, key: u64, bytes: u32) -> bool {
        match self.rows.get_mut(&hash(key)) {
            Some(row) => {
                row.reads = (row.reads + 1).min(3);
                true
            }
            None => {
                self.rows.insert(hash(key), Row { bytes, ..Row::default() });
                self.clean(key);
                false
            }
        }
    }

    fn write(&mut self, key: u64, bytes: u32) {
        let row = self.rows.entry(hash(key)).or_default();
        (row.bytes, row.dirty) = (bytes, true);
    }

    fn flush(&mut self, key: u64) {
        if let Some(row) = self.rows.get_mut(&hash(key)).filter(|row| row.dirty) {
            row.dirty = false;
            self.clean(key);
        }
    }

    fn clean(&mut self, key: u64) {
        let row = self.rows.get_mut(&hash(key)).unwrap();
        if !std::mem::replace(&mut row.queued, true) {
            self.eviction.admit(hash(key), row.bytes);
            self.admissions += 1;
            self.admitted += 1;
        }
        if self.eviction.len() > 2 * self.rows.len() {
            self.purge();
        }
    }

    fn delete(&mut self, key: u64) {
        self.rows.remove(&hash(key));
    }

    fn purge(&mut self) {
        let before = self.eviction.len();
        self.eviction.purge(|hash| self.rows.get(&hash).is_some_and(|row| row.queued));
        self.admissions -= (before - self.eviction.len()) as u64;
    }

    fn evict(&mut self, bytes: u64) -> u64 {
        let Rows { eviction, rows, visits, rounds, spent, .. } = self;
        eviction.evict(bytes, |hash, spare| {
            *visits += 1;
            let Some(row) = rows.get_mut(&hash).filter(|row| row.queued) else { return Visit::Gone };
            if row.dirty {
                row.queued = false;
                return Visit::Gone;
            }
            match spare(row.reads) {
                Some(reads) => {
                    assert!((1..=3).contains(&row.reads) && reads <= row.reads);
                    *rounds += 1;
                    *spent += u64::from(row.reads - reads);
                    row.reads = reads;
                    Visit::Spared
                }
                None => Visit::Evicted(rows.remove(&hash).unwrap().bytes),
            }
        })
    }

    fn has(&self, key: u64) -> bool {
        self.rows.contains_key(&hash(key))
    }

    fn clean_bytes(&self) -> u64 {
        self.rows.values().filter(|row| !row.dirty).map(|row| u64::from(row.bytes)).sum()
    }

    /// A get with a budget.
    fn cached_get(&mut self, key: u64, limit: u64) -> bool {
        let hit = self.get(key, 1);
        let excess = self.clean_bytes().saturating_sub(limit);
        self.evict(excess);
        hit
    }
}

#[derive(Clone, Debug)]
enum Step {
    Get(u64, u32),
    Write(u64, u32),
    Flush(u64),
    Delete(u64),
    Evict(u64),
    Purge,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..40u64;
    prop_oneof![
        8 => (key.clone(), 1..1000u32).prop_map(|(key, bytes)| Step::Get(key, bytes)),
        4 => (key.clone(), 1..1000u32).prop_map(|(key, bytes)| Step::Write(key, bytes)),
        4 => key.clone().prop_map(Step::Flush),
        2 => key.prop_map(Step::Delete),
        2 => (0..5000u64).prop_map(Step::Evict),
        1 => Just(Step::Purge),
    ]
}

proptest! {
    /// Whatever happens to the rows, an eviction frees what is asked as long as there is a clean row, and every hash
    /// that was admitted leaves the queues once.
    #[test]
    fn no_row_is_lost(steps in prop::collection::vec(step(), 1..400)) {
        let mut rows = Rows::default();
        for step in steps {
            match step {
                Step::Get(key, bytes) => { rows.get(key, bytes); }
                Step::Write(key, bytes) => rows.write(key, bytes),
                Step::Flush(key) => rows.flush(key),
                Step::Delete(key) => rows.delete(key),
                Step::Evict(bytes) => {
                    let before = rows.clean_bytes();
                    let freed = rows.evict(bytes);
                    prop_assert_eq!(rows.clean_bytes(), before - freed);
                    prop_assert!(freed >= bytes.min(before));
                }
                Step::Purge => rows.purge(),
            }
        }
        let before = rows.clean_bytes();
        prop_assert_eq!(rows.evict(u64::MAX), before);
        prop_assert!(rows.rows.values().all(|row| row.dirty && !row.queued));
        prop_assert_eq!(rows.visits, rows.admissions + rows.rounds);
        prop_assert!(rows.rounds <= rows.spent + rows.admitted);
        prop_assert_eq!((rows.eviction.len(), rows.eviction.bytes()), (0, 0));
    }

    /// The order of eviction is that of the queues, not of the hashes.
    #[test]
    fn rows_that_nobody_read_leave_in_the_order_they_came(keys in prop::collection::hash_set(any::<u64>(), 1..100)) {
        let mut rows = Rows::default();
        let keys: Vec<u64> = keys.into_iter().collect();
        keys.iter().for_each(|key| { rows.get(*key, 7); });
        for (i, key) in keys.iter().enumerate() {
            prop_assert_eq!(rows.evict(1), 7);
            prop_assert!(!rows.has(*key));
            prop_assert_eq!(rows.rows.len(), keys.len() - i - 1);
        }
    }
}

#[test]
fn a_scan_leaves_the_rows_alone_that_are_read_again() {
    let mut rows = Rows::default();
    for _ in 0..2 {
        (0..80).for_each(|key| _ = rows.cached_get(key, 100));
    }
    (1000..11_000).for_each(|key| _ = rows.cached_get(key, 100));
    let kept = (0..80).filter(|key| rows.has(*key)).count();
    assert_eq!(kept, 80);
}

#[test]
fn a_row_that_comes_back_soon_goes_to_the_main_queue() {
    let mut rows = Rows::default();
    for _ in 0..2 {
        (0..80).for_each(|key| _ = rows.cached_get(key, 100));
    }
    // Key 999 is read once, pushed out by others, and read once more.
    let others = |rows: &mut Rows, from: u64| (from..from + 60).for_each(|key| _ = rows.cached_get(key, 100));
    assert!(!rows.cached_get(999, 100));
    others(&mut rows, 1000);
    assert!(!rows.has(999));
    assert!(!rows.cached_get(999, 100));
    others(&mut rows, 2000);
    assert!(rows.has(999), "it is in the main queue now");
    assert!(!rows.has(2000), "as others are not");
}

#[test]
fn a_row_that_was_read_in_the_memtable_stays_when_a_load_is_flushed() {
    let mut rows = Rows::default();
    (0..1000).for_each(|key| rows.write(key, 1));
    (0..1000).step_by(20).for_each(|key| assert!(rows.get(key, 1)));
    (0..1000).for_each(|key| rows.flush(key));
    let excess = rows.clean_bytes() - 100;
    rows.evict(excess);
    assert_eq!((0..1000).step_by(20).filter(|key| rows.has(*key)).count(), 50);
}

#[test]
fn a_row_is_queued_once_however_often_it_is_overwritten() {
    let mut rows = Rows::default();
    for _ in 0..100 {
        rows.write(1, 10);
        rows.flush(1);
    }
    assert_eq!(rows.eviction.len(), 1);
}

#[test]
fn what_deletes_leave_behind_is_bounded_where_nothing_is_evicted() {
    let mut rows = Rows::default();
    for round in 0..1000 {
        for key in 0..20 {
            rows.delete(key);
            rows.write(key, 10);
            rows.flush(key);
            rows.delete(1_000_000 + round);
        }
        assert!(rows.eviction.len() <= 2 * rows.rows.len() + 1, "{}", rows.eviction.len());
    }
}

#[test]
fn memory_follows_the_rows() {
    let mut rows = Rows::default();
    let limit = 10_000;
    for key in 0..30_000 {
        rows.get(key, 1);
        rows.get(key / 3, 1);
        if key >= limit {
            rows.evict(rows.eviction.bytes().saturating_sub(limit));
        }
    }
    let per_row = rows.eviction.memory_bytes() as f64 / rows.rows.len() as f64;
    assert!(per_row < 16.5, "{per_row}");
    let left = 100;
    rows.evict(rows.eviction.bytes() - left);
    (0..left).for_each(|key| _ = rows.get(100_000 + key, 1));
    rows.evict(left);
    assert!(rows.eviction.memory_bytes() < 5000, "{}", rows.eviction.memory_bytes());
}

#[test]
fn a_ghost_keeps_its_newest_when_it_shrinks() {
    let mut ghost = Ghost::default();
    ghost.bound(10_000);
    (1..=1000).for_each(|key| ghost.insert(fingerprint(hash(key))));
    ghost.bound(10);
    assert!(ghost.buckets.len() <= 3);
    let mut again = Ghost::default();
    again.bound(1000);
    (1..=500).for_each(|key| again.insert(fingerprint(hash(key))));
    let remembered = (1..=500).filter(|key| again.remove(fingerprint(hash(*key)))).count();
    assert!(remembered > 450, "{remembered}");
    assert!(!again.remove(fingerprint(hash(1))), "once");
}
