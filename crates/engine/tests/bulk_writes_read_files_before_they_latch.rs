//! A write of several rows reads what it needs from files while others may write those rows, and decides on what they made of them.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "clients have threads of their own")]

mod common;

use common::*;
use oribi_engine::{Decision, Engine, Read, ReadAhead, RowVersion, Table, WriteOp};
use oribi_sim::{Hooked, Operation, SimClock};
use oribi_types::{Durability, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Far more than a write reads under its latches.
const ROWS: i64 = 1000;
const DATA: &str = ".parquet";

/// A table of rows 0, 2, 4, … that are nowhere but in a file.
fn cold() -> (Hooked, Arc<Engine>, Arc<Table>) {
    let hooked = Hooked::default();
    let engine = Engine::open(hooked.env(&Arc::new(SimClock::new())), Path::new(DIR), quiet()).unwrap();
    let table = engine.create_table(definition("t", 2, Durability::Periodic(100))).unwrap();
    let keys: Vec<i64> = (0..ROWS).map(|k| k * 2).collect();
    import(&engine, &table, &keys, "old").unwrap();
    (hooked, engine, table)
}

/// What there is of a row.
type Seen = Option<(String, Timestamp)>;

/// Appends `+` to each of the rows 0, 1, … `2 * ROWS` that is there, and inserts the others; returns what it was decided on.
fn append(engine: &Engine, table: &Arc<Table>) -> Vec<Seen> {
    let keys: Vec<Vec<u8>> = (0..2 * ROWS).map(key).collect();
    let op = |key| WriteOp { table, key, read: Read::Existing, row: &[] };
    let ops: Vec<WriteOp<'_>> = keys.iter().map(|key| op(key)).collect();
    let mut seen = vec![None; ops.len()];
    let written = engine.write(&ops, &mut |i, current, row| {
        seen[i] = current.map(|row| (v_of(table, row.row), row.ts));
        let v = seen[i].as_ref().map_or("new".to_owned(), |(v, _)| format!("{v}+"));
        encode(table, &v, i as i64, row);
        Ok(Decision::Put)
    });
    written.unwrap();
    seen
}

/// Has `meanwhile` done while the write reads the first row, and compares what it saw and what it left with `changed`: what
/// `meanwhile` made of some rows.
fn write_beside(
    meanwhile: impl FnOnce(&Engine, &Arc<Table>) + Send + 'static,
    changed: &[(i64, Option<&str>)],
) {
    let (hooked, engine, table) = cold();
    let (beside, of) = (engine.clone(), table.clone());
    hooked.once(Operation::Read, DATA, move || meanwhile(&beside, &of));
    let seen = append(&engine, &table);
    hooked.clear();
    let mut expected: Vec<Option<&str>> = (0..2 * ROWS).map(|k| (k % 2 == 0).then_some("old")).collect();
    changed.iter().for_each(|(k, v)| expected[*k as usize] = *v);
    let found = seen.iter().map(|seen| seen.as_ref().map(|(v, _)| v.as_str()));
    assert!(found.eq(expected.iter().copied()), "decided on other rows than there were");
    let check = |engine: &Arc<Engine>| {
        engine.flush(&table).unwrap();
        let left = expected.iter().map(|v| v.map_or("new".to_owned(), |v| format!("{v}+")));
        assert!(scan_now(engine, &table).into_values().eq(left));
        assert_eq!(findings(&hooked.files), [""; 0]);
    };
    check(&engine);
}

const CHANGED: [(i64, Option<&str>); 4] =
    [(0, Some("mine")), (1, Some("made")), (ROWS, None), (2 * ROWS - 1, Some("last"))];

fn change(engine: &Engine, table: &Arc<Table>) {
    CHANGED.iter().for_each(|change| _ = write(engine, table, &[*change]).unwrap());
}

#[test]
fn rows_that_are_written_meanwhile_are_decided_on_as_they_became() {
    write_beside(change, &CHANGED);
}

#[test]
fn so_are_those_that_were_flushed_by_then() {
    write_beside(
        |engine, table| {
            change(engine, table);
            engine.flush(table).unwrap();
        },
        &CHANGED,
    );
}

#[test]
fn and_those_whose_files_were_compacted() {
    write_beside(
        |engine, table| {
            change(engine, table);
            engine.flush(table).unwrap();
            engine.compact(table).unwrap();
        },
        &CHANGED,
    );
}

/// Inserts row 1 and leaves the cache without any.
fn evict(engine: &Engine, table: &Arc<Table>) {
    // Nothing is left to the cache, which the next flush sees to.
    let all = engine.memory().limit();
    engine.memory().reserve(all);
    write(engine, table, &[(1, Some("made"))]).unwrap();
    engine.flush(table).unwrap();
    assert_eq!(engine.stats().row_cache_bytes, 0);
    engine.memory().release(all);
}

#[test]
fn rows_that_leave_the_cache_meanwhile_are_read() {
    write_beside(
        |engine, table| {
            (0..ROWS).for_each(|k| _ = get(engine, table, k * 2).unwrap());
            evict(engine, table);
        },
        &[(1, Some("made"))],
    );
}

/// Puts a row on another thread, and waits for it.
fn put_elsewhere(engine: &Engine, table: &Arc<Table>, k: i64) {
    std::thread::scope(|scope| {
        scope.spawn(|| put(engine, table, k, "mine").unwrap());
    });
}

/// Whoever reads a file for a write of many rows lets others write them: the latches of all of them are free, also where the
/// files have been compacted once they were taken.
#[test]
fn nobody_waits_for_files() {
    let (hooked, engine, table) = cold();
    let (beside, of, is_compacted) = (engine.clone(), table.clone(), AtomicBool::new(false));
    let before = engine.stats().file_reads;
    hooked.set(move |operation, path| {
        if operation == Operation::Read && path.contains(DATA) {
            // It would wait for ever if the row were latched.
            put_elsewhere(&beside, &of, 0);
            if !is_compacted.swap(true, Relaxed) {
                beside.flush(&of).unwrap();
                beside.compact(&of).unwrap();
            }
        }
    });
    let seen = append(&engine, &table);
    hooked.clear();
    assert!(engine.stats().file_reads > before + ROWS as u64 * 5 / 4, "half of the rows were read again");
    assert!(seen.iter().step_by(2).all(Option::is_some));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// What a write of many rows is decided on is what reads of single rows show: over several files and tablets, of rows that
    /// were replaced, deleted or never there, in any order, some of them asked for twice.
    #[test]
    fn many_rows_are_found_as_single_ones_are(
        rounds in vec(vec((0..3 * ROWS, any::<bool>()), 1..500), 1..5),
        asked in vec(0..4 * ROWS, 2..2000),
    ) {
        let (_hooked, engine, table) = cold();
        for (round, changes) in rounds.iter().enumerate() {
            let v = format!("round {round}");
            for (k, puts) in changes {
                _ = write(&engine, &table, &[(*k, puts.then_some(&*v))]).unwrap();
            }
            engine.flush(&table).unwrap();
        }
        evict(&engine, &table);
        let keys: Vec<Vec<u8>> = asked.iter().map(|k| key(*k)).collect();
        let ops: Vec<WriteOp<'_>> =
            keys.iter().map(|key| WriteOp { table: &table, key, read: Read::Existing, row: &[] }).collect();
        let mut seen = Vec::new();
        let kept = engine.write(&ops, &mut |_, current, _| {
            seen.push(current.map(|row| (v_of(&table, row.row), row.ts)));
            Ok(Decision::Keep)
        });
        kept.unwrap();
        for (k, seen) in asked.iter().zip(seen) {
            let single = |row: RowVersion<'_>| (v_of(&table, row.row), row.ts);
            prop_assert_eq!(seen, engine.get(&table, &key(*k), engine.read_view(), single).unwrap().0, "row {}", k);
        }
    }
}

/// A table that is held is let go while much is read from files, and not when that is known.
#[test]
fn a_held_table_is_let_go_while_files_are_read() {
    let (hooked, engine, table) = cold();
    let keys: Vec<Vec<u8>> = (0..ROWS).map(|k| key(k * 2)).collect();
    let table_of = &table;
    let op = |key| WriteOp { table: table_of, key, read: Read::Existing, row: &[] };
    let ops: Vec<WriteOp<'_>> = keys.iter().map(|key| op(key)).collect();
    let held = engine.hold(&table).unwrap();
    let mut ahead = ReadAhead::default();
    let (beside, of) = (engine.clone(), table.clone());
    hooked.once(Operation::Read, DATA, move || put_elsewhere(&beside, &of, 4));
    let refuses = |_: usize, _: Option<_>, _: &mut Vec<u8>| Err(oribi_types::Error::invalid("not yet"));
    held.write(&ops, &mut |i, current, row| refuses(i, current.map(|_| ()), row), &mut ahead).unwrap_err();
    hooked.clear();
    hooked.set(|operation, path| {
        assert!(operation != Operation::Read || !path.contains(DATA), "{path} is read with the table held");
    });
    let mut seen = Vec::new();
    let kept = held.write(
        &ops,
        &mut |_, current, _| {
            seen.push(v_of(&table, current.unwrap().row));
            Ok(Decision::Keep)
        },
        &mut ahead,
    );
    kept.unwrap();
    hooked.clear();
    assert!(seen.iter().enumerate().all(|(i, v)| v == if i == 2 { "mine" } else { "old" }));
}
