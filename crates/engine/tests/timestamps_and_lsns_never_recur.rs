//! Compare-and-set values and log positions of a lost future are not given out again, wherever the clock stands.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use oribi_engine::{Commit, Decision, Engine, Read, Table, WriteOp};
use oribi_sim::{Rng, SimClock, SimFiles, seeds};
use oribi_types::{Durability, Timestamp};
use std::sync::Arc;

/// Makes `t` if it is not there.
fn open_t(files: &SimFiles, clock: &Arc<SimClock>) -> (Arc<Engine>, Arc<Table>) {
    let engine = open(&sim_env(files, clock)).unwrap();
    let table = engine.table("public", "t");
    let table = table.or_else(|_| engine.create_table(definition("t", 1, Durability::Sync))).unwrap();
    (engine, table)
}

#[test]
fn timestamps_and_lsns_ascend_over_crashes_and_clocks_set_back() {
    seeds(20, |seed| {
        let mut rng = Rng::new(seed);
        let clock = Arc::new(SimClock::new());
        let mut files = SimFiles::new();
        let (mut last_ts, mut last_lsn) = (Timestamp::MIN, 0);
        for round in 0..4 {
            let (engine, table) = open_t(&files, &clock);
            // What is read of a world that is lost has been seen all the same.
            let seen = engine.read_view().ts;
            assert!(round == 0 || seen >= last_ts, "the watermark went back");
            for _ in 0..rng.below(30) {
                let Commit { ts, obligation } = put(&engine, &table, rng.below(5) as i64, "v").unwrap();
                assert!(ts > last_ts, "timestamp {ts:?} after {last_ts:?}");
                assert!(obligation.durable > last_lsn, "lsn {} after {last_lsn}", obligation.durable);
                (last_ts, last_lsn) = (ts, obligation.durable);
                match rng.below(8) {
                    0 => clock.jump(-(rng.below(3_600_000_000) as i64)),
                    1 => clock.advance(rng.below(50_000_000)),
                    2 => engine.settle(obligation).unwrap(),
                    3 => engine.flush(&table).unwrap(),
                    _ => {}
                }
            }
            if rng.below(3) == 0 {
                engine.close().unwrap();
                assert!(put(&engine, &table, 1, "late").is_err());
            }
            files = files.crash(seed * 7 + round);
            clock.jump(-(rng.below(3_600_000_000) as i64));
        }
    });
}

/// Numbers of rows of tables without a primary key.
#[test]
fn row_ids_ascend_over_crashes_and_clocks_set_back() {
    seeds(20, |seed| {
        let mut rng = Rng::new(seed);
        let clock = Arc::new(SimClock::new());
        let mut files = SimFiles::new();
        let mut next = i64::MIN;
        for round in 0..5 {
            let (engine, table) = open_t(&files, &clock);
            for _ in 0..rng.below(10) {
                // At times of more rows than a second has timestamps.
                let count_max = if rng.below(4) == 0 { 1 << 34 } else { 1000 };
                let count = 1 + rng.below(count_max);
                let waits = rng.below(2) == 0;
                match engine.row_ids(count, waits) {
                    Ok(first) => {
                        assert!(first >= next, "{first} after {next}");
                        next = first + count as i64;
                    }
                    Err(error) => assert!(!waits, "{error}"),
                }
                match rng.below(6) {
                    0 => clock.jump(-(rng.below(3_600_000_000) as i64)),
                    1 => clock.advance(rng.below(50_000_000)),
                    2 => drop(put(&engine, &table, 1, "v").unwrap()),
                    _ => {}
                }
            }
            if rng.below(3) == 0 {
                engine.close().unwrap();
            }
            files = files.crash(seed * 7 + round);
        }
    });
}

#[test]
fn many_timestamps_within_a_standing_clock_stay_below_the_ceiling() {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let (engine, table) = open_t(&files, &clock);
    // The clock jumps ahead for one write, as far as writes raise the ceiling, and back again.
    clock.jump(3_600_000_000);
    let ahead = put(&engine, &table, 1, "ahead").unwrap().ts;
    clock.jump(-3_600_000_000);
    assert!(put(&engine, &table, 1, "after").unwrap().ts > ahead);
    // Nothing of it is durable.
    let lost = (0..20).map(|seed| files.crash(seed));
    for files in lost {
        let (engine, table) = open_t(&files, &clock);
        assert!(put(&engine, &table, 1, "new").unwrap().ts > ahead);
    }
}

#[test]
fn after_an_open_timestamps_are_close_to_the_clock() {
    let ttl_micros = 10_000_000;
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let env = sim_env(&files, &clock);
    let engine = open(&env).unwrap();
    let mut definition = definition("t", 1, Durability::Sync);
    definition.options.ttl_ms = Some(ttl_micros / 1000);
    let table = engine.create_table(definition).unwrap();
    put(&engine, &table, 1, "v").unwrap();
    engine.close().unwrap();
    drop((engine, table));
    let engine = open(&env).unwrap();
    let table = engine.table("public", "t").unwrap();
    put(&engine, &table, 2, "written after a close").unwrap();
    assert_eq!(scan_now(&engine, &table).len(), 2);
    clock.advance(ttl_micros);
    assert_eq!((get(&engine, &table, 2), scan_now(&engine, &table)), (None, Rows::new()));
    // Crash after crash, while the clock stands.
    let mut files = files;
    for seed in 0..5 {
        files = files.crash(seed);
        let (engine, table) = open_t(&files, &clock);
        put(&engine, &table, 3, "written after a crash").unwrap();
    }
    let (engine, table) = open_t(&files, &clock);
    put(&engine, &table, 3, "written after crashes").unwrap();
    clock.advance(ttl_micros + 4_000_000);
    assert_eq!((get(&engine, &table, 3), scan_now(&engine, &table)), (None, Rows::new()));
}

#[test]
fn a_write_that_is_held_up_does_not_pass_what_is_reserved() {
    let (files, clock) = (SimFiles::new(), Arc::new(SimClock::new()));
    let (engine, table) = open_t(&files, &clock);
    let one = key(1);
    let op = WriteOp { table: &table, key: &one, read: Read::Existing, row: &[] };
    // Between reserving and taking its timestamp an hour goes by.
    let held_up = engine.write(&[op], &mut |_, _, row| {
        clock.advance(3_600_000_000);
        encode(&table, "v", 1, row);
        Ok(Decision::Put)
    });
    let seen = held_up.unwrap().ts;
    // Nothing of it is durable, and the clock is set back.
    clock.jump(-3_600_000_000);
    for seed in 0..20 {
        let (engine, table) = open_t(&files.crash(seed), &clock);
        assert!(put(&engine, &table, 1, "new").unwrap().ts > seen);
    }
}

#[test]
fn the_time_of_a_row_comes_back_with_it() {
    let (files, _, engine, table) = fresh(1, Durability::Sync);
    let first = put(&engine, &table, 1, "v").unwrap();
    put(&engine, &table, 2, "v").unwrap();
    let ts_of = |engine: &Engine, table: &Table| {
        engine.get(table, &key(1), engine.read_view(), |row| row.ts).unwrap().0.unwrap()
    };
    assert_eq!(ts_of(&engine, &table), first.ts);
    engine.settle(first.obligation).unwrap();
    let (again, replayed) = after_kill(&files);
    assert_eq!(ts_of(&again, &replayed), first.ts, "from the log");
    engine.flush(&table).unwrap();
    put(&engine, &table, 3, "v").unwrap();
    engine.flush(&table).unwrap();
    engine.compact(&table).unwrap();
    let (again, read) = after_kill(&files);
    assert_eq!(ts_of(&again, &read), first.ts, "from a file");
}
