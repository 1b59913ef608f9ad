//! Whoever is pinned keeps memory, and nobody waiting.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "clients have threads of their own")]

mod common;

use common::*;
use oribi_types::Durability;
use std::sync::Barrier;

#[test]
fn all_goes_on_beside_a_thread_that_stays_pinned() {
    let (_, _, engine, table) = fresh(2, Durability::Periodic(100));
    let (is_pinned, end) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _pinned = engine.pin();
            is_pinned.wait();
            end.wait();
        });
        is_pinned.wait();
        for v in ["one", "two"] {
            for k in 0..300 {
                put(&engine, &table, k, v).unwrap();
            }
            let snapshot = engine.snapshot();
            (0..100).for_each(|k| assert!(delete(&engine, &table, k).unwrap()));
            engine.flush(&table).unwrap();
            engine.compact(&table).unwrap();
            assert_eq!(scan(&engine, &table, &snapshot).len(), 300);
            assert_eq!(range_now(&engine, &table).len(), 200);
        }
        engine.truncate(&table).unwrap();
        assert_eq!(scan_now(&engine, &table).len(), 0);
        assert!(put(&engine, &table, 1, "three").is_ok());
        engine.drop_table("public", "t").unwrap();
        end.wait();
    });
}
