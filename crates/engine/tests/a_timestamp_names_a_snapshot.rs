//! Whoever was told a timestamp reads by it later, while somebody keeps a snapshot that is not newer; and an engine that is
//! told a timestamp goes on from there.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Rows, delete, fresh, model, put, range_now, scan};
use oribi_types::{Durability, ErrorKind, Timestamp};

#[test]
fn every_timestamp_above_the_horizon_can_be_read() {
    let (_, _, engine, table) = fresh(2, Durability::Sync);
    let kept = engine.snapshot();
    let mut states: Vec<(Timestamp, Rows)> = vec![(kept.ts(), Rows::new())];
    let mut rows = Rows::new();
    for i in 0..30 {
        let (k, v) = (i % 7, format!("{i}"));
        if i % 5 == 4 {
            delete(&engine, &table, k).unwrap();
            rows.remove(&k);
        } else {
            put(&engine, &table, k, &v).unwrap();
            rows.insert(k, v);
        }
        states.push((engine.snapshot().ts(), rows.clone()));
        if i % 8 == 7 {
            engine.flush(&table).unwrap();
        }
        if i == 20 {
            engine.compact(&table).unwrap();
        }
    }
    for (ts, rows) in states.iter().rev() {
        let snapshot = engine.snapshot_at(*ts).unwrap().unwrap();
        assert_eq!(snapshot.ts(), *ts);
        assert_eq!(&scan(&engine, &table, &snapshot), rows);
    }
    drop(kept);
    let (newest, _) = states.pop().unwrap();
    assert!(engine.snapshot_at(states[0].0).unwrap().is_none(), "below the horizon");
    assert!(engine.snapshot_at(newest).unwrap().is_some());
}

#[test]
fn writes_come_after_what_was_observed() {
    let (_, clock, engine, table) = fresh(1, Durability::Sync);
    let before = put(&engine, &table, 1, "a").unwrap().ts;
    let seen = Timestamp::from_micros(before.micros() + 5_000_000);
    let snapshot = engine.snapshot_at(seen).unwrap().unwrap();
    assert_eq!(snapshot.ts(), seen);
    let after = put(&engine, &table, 1, "b").unwrap().ts;
    assert!(after > seen, "{after:?}");
    assert_eq!(scan(&engine, &table, &snapshot), model(&[(1, "a")]));
    assert_eq!(range_now(&engine, &table), model(&[(1, "b")]));
    engine.observe(before).unwrap();
    let far = Timestamp::from_micros(before.micros() + 3_600_000_000);
    assert_eq!(engine.observe(far).unwrap_err().kind(), ErrorKind::Invalid);
    clock.advance(3_600_000_000);
    engine.observe(far).unwrap();
    assert!(put(&engine, &table, 1, "c").unwrap().ts > far);
}
