//! Keys that are not there are answered from key ranges and filters, seldom by a file, and leave nothing in memory.
#![allow(clippy::unwrap_used)]

mod common;

use common::{fresh, key, put};
use oribi_engine::Lookup;
use oribi_types::Durability;

const FILES: i64 = 4;
const ROWS: i64 = 2_000;

#[test]
fn filters_answer_for_keys_between_those_that_are_there() {
    let (_files, _clock, engine, table) = fresh(1, Durability::Sync);
    // Every file spans nearly all keys; all of them are even.
    for file in 0..FILES {
        for k in (file..ROWS).step_by(FILES as usize) {
            put(&engine, &table, 2 * k, "here").unwrap();
        }
        engine.flush(&table).unwrap();
    }
    let before = engine.stats();
    assert_eq!(before.sstables, FILES as u64);
    let mut asked_files = 0;
    for k in 0..ROWS - 1 {
        let (absent, view) = (key(2 * k + 1), engine.read_view());
        match engine.try_get(&table, &absent, view, |_| ()) {
            Lookup::Absent(_) => {}
            Lookup::Pending => {
                asked_files += 1;
                let (found, _) = engine.get(&table, &absent, view, |_| ()).unwrap();
                assert!(found.is_none(), "{k}");
            }
            Lookup::Found(..) => panic!("{k} is not there"),
        }
    }
    // A filter errs for about one key in eighty.
    assert!(asked_files < ROWS / 10, "{asked_files} of {ROWS}");
    let after = engine.stats();
    assert_eq!(after.rows_in_memory, before.rows_in_memory);
    assert_eq!(after.row_cache_bytes, before.row_cache_bytes);
    let (reads, earlier) = (after.point_reads, before.point_reads);
    assert!(reads.lookups - earlier.lookups >= asked_files as u64);
    assert_eq!(reads.lookups - earlier.lookups, reads.misses - earlier.misses, "no file had any of them");
    assert!(reads.pages > earlier.pages && reads.page_bytes > earlier.page_bytes);
}
