use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// When a version was written, and whether it is clean.
struct Meta {
    ts: u64,
    clean: AtomicBool,
}

type Rows = Index<Meta>;

/// Few hashes, so that rows share buckets, tags and whole hashes.
fn hash(key: u8) -> u64 {
    u64::from(key % 5) << 4 | u64::from(key % 3) << 32 | u64::from(key % 2)
}

fn new<'a>(key: &'a u8, row: Option<&'a [u8]>, ts: u64) -> NewVersion<'a, Meta> {
    let key_bytes = std::slice::from_ref(key);
    NewVersion { hash: hash(*key), key: key_bytes, row, meta: Meta { ts, clean: AtomicBool::new(false) } }
}

fn write(rows: &Rows, key: u8, row: Option<&'static [u8]>, ts: u64) {
    let guard = pin();
    match rows.lock(hash(key)).entry(hash(key), |version| version.key() == [key]) {
        Entry::Vacant(shard) => {
            shard.insert(new(&key, row, ts), &guard);
        }
        Entry::Occupied(mut row_there) => row_there.push(new(&key, row, ts)),
    }
}

fn occupied(rows: &Rows, key: u8, then: impl FnOnce(Occupied<'_, '_, Meta>)) {
    if let Entry::Occupied(row) = rows.lock(hash(key)).entry(hash(key), |version| version.key() == [key]) {
        then(row);
    }
}

fn read(rows: &Rows, key: u8) -> Option<Vec<(u64, Option<Vec<u8>>)>> {
    let guard = pin();
    let newest = rows.find(hash(key), &guard, |version| version.key() == [key]).ok()?;
    let versions = std::iter::successors(Some(newest), |version| version.previous());
    Some(versions.map(|version| (version.meta.ts, version.row().map(<[u8]>::to_vec))).collect())
}

#[derive(Clone, Debug)]
enum Step {
    Write(u8, bool),
    Cut(u8),
    Remove(u8),
    Clean(u8),
    Fill(u8),
    Evict,
    Sweep(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<u8>(), any::<bool>()).prop_map(|(key, deleted)| Step::Write(key, deleted)),
        2 => any::<u8>().prop_map(Step::Cut),
        1 => any::<u8>().prop_map(Step::Remove),
        3 => any::<u8>().prop_map(Step::Clean),
        2 => any::<u8>().prop_map(Step::Fill),
        1 => Just(Step::Evict),
        1 => any::<u8>().prop_map(Step::Sweep),
    ]
}

/// What the index holds of a key: its versions, newest first, and whether the newest is clean.
type Model = HashMap<u8, (Vec<(u64, Option<Vec<u8>>)>, bool)>;

fn apply(rows: &Rows, model: &mut Model, step: &Step, ts: u64) {
    let guard = pin();
    match *step {
        Step::Write(key, deleted) => {
            let row = (!deleted).then_some(&b"a row"[..]);
            write(rows, key, row, ts);
            let (versions, clean) = model.entry(key).or_default();
            versions.insert(0, (ts, row.map(<[u8]>::to_vec)));
            *clean = false;
        }
        Step::Cut(key) => {
            let mut cut = 0;
            occupied(rows, key, |mut row| row.cut(&guard, |_| true, |_, _| cut += 1));
            let kept = model.get_mut(&key).map_or(0, |(versions, _)| versions.split_off(1).len());
            assert_eq!(cut, kept);
        }
        Step::Remove(key) => {
            let mut gone = Vec::new();
            occupied(rows, key, |row| row.remove(&guard, |version| gone.push(version.meta.ts)));
            let expected = model.remove(&key).map_or(vec![], |(versions, _)| versions);
            assert_eq!(gone, expected.iter().map(|(ts, _)| *ts).collect::<Vec<_>>());
        }
        Step::Clean(key) => {
            occupied(rows, key, |mut row| {
                row.cut(&guard, |_| true, |_, _| {});
                row.newest().meta.clean.store(true, Ordering::Relaxed);
                row.admit();
            });
            if let Some((versions, clean)) = model.get_mut(&key) {
                versions.truncate(1);
                *clean = true;
            }
        }
        Step::Fill(key) => {
            let Err(stamp) = rows.find(hash(key), &guard, |version| version.key() == [key]) else { return };
            // A write of another key of the same stamp in between forbids it; here there is none.
            if let Entry::Vacant(shard) = rows.lock(hash(key)).entry(hash(key), |v| v.key() == [key]) {
                let filled = shard.fill(new(&key, Some(b"cold"), ts), stamp, &guard).expect("nobody wrote");
                filled.meta.clean.store(true, Ordering::Relaxed);
            }
            model.insert(key, (vec![(ts, Some(b"cold".to_vec()))], true));
        }
        Step::Evict => {
            let is_clean = |version: &Version<Meta>| version.meta.clean.load(Ordering::Relaxed);
            rows.evict(u64::MAX, is_clean, |version| {
                let (_, clean) = model.remove(&version.key()[0]).expect("it was there");
                assert!(clean, "only clean rows leave");
            });
            assert!(model.values().all(|(_, clean)| !clean), "whatever is clean leaves in the end");
        }
        Step::Sweep(rest) => {
            let keep = |key: u8| key % 4 != rest % 4;
            rows.retain(|version| keep(version.key()[0]), |_| {});
            model.retain(|key, _| keep(*key));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 64 }, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn an_index_is_a_map_of_chains(steps in prop::collection::vec(step(), 1..if cfg!(miri) { 60 } else { 400 })) {
        let (rows, mut model) = (Rows::default(), Model::new());
        for (ts, step) in steps.iter().enumerate() {
            apply(&rows, &mut model, step, ts as u64);
            assert_eq!(rows.len(), model.len(), "{step:?}");
        }
        for key in 0..=255 {
            assert_eq!(read(&rows, key), model.get(&key).map(|(versions, _)| versions.clone()), "{key}");
        }
    }
}

#[test]
fn a_write_forbids_to_fill_what_was_read_before_it() {
    let (rows, guard) = (Rows::default(), pin());
    let stamp = rows.find(hash(1), &guard, |version| version.key() == [1]).err().unwrap();
    write(&rows, 1, Some(b"new"), 1);
    occupied(&rows, 1, |row| row.remove(&guard, |_| {}));
    let mut shard = rows.lock(hash(1));
    assert!(shard.fill(new(&1, Some(b"old"), 0), stamp, &guard).is_none());
}

#[test]
fn a_held_version_outlives_its_row_and_the_index() {
    let rows = Rows::default();
    write(&rows, 1, Some(b"kept"), 1);
    let guard = pin();
    let held = rows.find(hash(1), &guard, |_| true).ok().unwrap().hold();
    occupied(&rows, 1, |row| row.remove(&guard, |_| {}));
    drop(guard);
    drop(rows);
    let again = held.clone();
    drop(held);
    assert_eq!((again.key(), again.row(), again.meta().ts), (&[1][..], Some(&b"kept"[..]), 1));
}

/// Counts what is freed.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn rows_that_leave_together_are_freed_once_nobody_sees_or_holds_them() {
    let rows: Index<Counted> = Index::default();
    let freed = Arc::new(AtomicUsize::new(0));
    let keys = if cfg!(miri) { 300_u32 } else { 3_000 };
    // All of one shard, of two sizes.
    let hash = |key: u32| u64::from(key.wrapping_mul(0x9e37_79b1));
    for key in 0..keys {
        let row: &[u8] = if key.is_multiple_of(5) { &[1; 100] } else { &[2; 10] };
        let new = NewVersion {
            hash: hash(key),
            key: &key.to_le_bytes(),
            row: Some(row),
            meta: Counted(freed.clone()),
        };
        rows.lock(hash(key)).insert(new, &pin());
    }
    let pinned = pin();
    let find = |key: u32| rows.find(hash(key), &pinned, |version| version.key() == key.to_le_bytes());
    let held: Vec<_> = (0..keys).step_by(7).map(|key| find(key).ok().unwrap().hold()).collect();
    let seen = find(1).ok().unwrap();
    let mut gone = 0;
    rows.retain(|_| false, |_| gone += 1);
    assert_eq!(gone, keys);
    assert_eq!((freed.load(Ordering::Relaxed), seen.row()), (0, Some(&[2; 10][..])));
    drop(pinned);
    let not_held = keys as usize - held.len();
    while freed.load(Ordering::Relaxed) < not_held {
        pin().flush();
        std::thread::yield_now();
    }
    for (i, version) in held.iter().enumerate() {
        assert_eq!(version.key(), (i as u32 * 7).to_le_bytes());
        assert_eq!(version.row().map(<[u8]>::len), Some(if (i * 7).is_multiple_of(5) { 100 } else { 10 }));
    }
    assert_eq!(freed.load(Ordering::Relaxed), not_held);
    drop(held);
    assert_eq!(freed.load(Ordering::Relaxed), keys as usize);
}

#[test]
fn rows_of_a_shard_are_found_while_its_table_grows_and_shrinks() {
    let rows = Rows::default();
    let keys = if cfg!(miri) { 300_u32 } else { 30_000 };
    // All of one shard.
    let hash = |key: u32| u64::from(key.wrapping_mul(0x9e37_79b1));
    let key_of =
        |version: &Version<Meta>| u32::from_le_bytes(version.key().try_into().expect("keys have four bytes"));
    let is_there = |key: u32| rows.find(hash(key), &pin(), |version| key_of(version) == key).is_ok();
    for key in 0..keys {
        let meta = Meta { ts: 0, clean: AtomicBool::new(false) };
        let new = NewVersion { hash: hash(key), key: &key.to_le_bytes(), row: None, meta };
        rows.lock(hash(key)).insert(new, &pin());
        assert!(is_there(key) && is_there(key / 2) && is_there(key / 100), "{key}");
    }
    assert!((0..keys).all(is_there) && !(keys..2 * keys).any(is_there));
    for divisor in [3, 60, 1_200] {
        rows.retain(|version| key_of(version) % divisor == 0, |_| {});
        assert!((0..keys).all(|key| !key.is_multiple_of(divisor) || is_there(key)), "{divisor}");
    }
    rows.retain(|_| false, |_| {});
    assert!(rows.is_empty() && !(0..keys).any(is_there));
}

/// Few hashes for many rows, so that a walk meets all that a hash can have: none, one row, several, and those of another hash with
/// the same tag.
#[test]
fn a_walk_finds_what_each_hash_has() {
    let rows = Rows::default();
    let keys = [0, 1, 5, 30, 60, 90, 7];
    (0..).zip(keys).for_each(|(ts, key)| write(&rows, key, Some(b"row"), ts));
    occupied(&rows, 7, |row| row.remove(&pin(), |_| {}));
    // More than are looked up together.
    let hashes: Vec<u64> = (0..200_u8).map(hash).chain([1 << 63]).collect();
    let mut found = Vec::new();
    rows.walk(hashes.iter().copied(), true, |versions| {
        for of_hash in versions.chunk_by(|a, b| a.0 == b.0) {
            let mut keys: Vec<u8> = of_hash.iter().map(|(_, version)| version.key()[0]).collect();
            keys.sort_unstable();
            found.push((of_hash[0].1.hash(), keys));
        }
    });
    let expected = hashes.iter().map(|h| {
        let mut keys: Vec<u8> = keys.into_iter().filter(|key| *key != 7 && hash(*key) == *h).collect();
        keys.sort_unstable();
        (*h, keys)
    });
    let expected: Vec<_> = expected.filter(|(_, keys)| !keys.is_empty()).collect();
    assert_eq!(found, expected);
    assert!(found.iter().any(|(_, keys)| keys.len() > 1) && found.iter().any(|(_, keys)| keys.len() == 1));
}

/// Readers never see a row go back, a key without its row, or memory that was freed, while writers replace, remove and
/// insert rows and tables grow and shrink.
#[test]
fn readers_see_whole_rows_that_only_go_forward() {
    const KEYS: u8 = 64;
    let (rows, stop) = (Rows::default(), AtomicBool::new(false));
    let writes = if cfg!(miri) { 300 } else { 200_000 };
    let row = |ts: u64| vec![ts as u8; 1 + ts as usize % 700];
    std::thread::scope(|scope| {
        let reader = || {
            let mut seen = [0; KEYS as usize];
            while !stop.load(Ordering::Relaxed) {
                rows.walk((0..KEYS).map(hash), false, |versions| {
                    for (number, version) in versions {
                        assert_eq!(version.hash, hash(*number as u8));
                        assert_eq!(version.row(), Some(&row(version.meta.ts)[..]));
                    }
                });
                let guard = pin();
                for key in 0..KEYS {
                    rows.prefetch_bucket(hash(key), &guard);
                    rows.approach(hash(key), &guard, true);
                    if let Ok(version) = rows.find(hash(key), &guard, |version| version.key() == [key]) {
                        let ts = version.meta.ts;
                        assert!(ts >= seen[usize::from(key)], "a row went back");
                        seen[usize::from(key)] = ts;
                        assert_eq!(version.row(), Some(&row(ts)[..]));
                        assert!(version.previous().is_none_or(|previous| previous.meta.ts < ts));
                    }
                }
            }
        };
        scope.spawn(reader);
        scope.spawn(reader);
        for ts in 1..writes {
            let (guard, key) = (pin(), (ts * 31 % u64::from(KEYS)) as u8);
            let bytes = row(ts);
            let meta = Meta { ts, clean: AtomicBool::new(false) };
            let new = NewVersion { hash: hash(key), key: &[key], row: Some(&bytes), meta };
            match rows.lock(hash(key)).entry(hash(key), |version| version.key() == [key]) {
                Entry::Vacant(shard) => {
                    shard.insert(new, &guard);
                }
                Entry::Occupied(row) if ts % 7 == 0 => row.remove(&guard, |_| {}),
                Entry::Occupied(mut row) => {
                    row.push(new);
                    row.cut(&guard, |version| version.meta.ts + 200 < ts, |_, _| {});
                }
            }
            guard.flush();
        }
        stop.store(true, Ordering::Relaxed);
    });
}
