//! A bulk write: the rows of an Arrow batch are encoded into one arena, and none of them is a heap object before it is a
//! row of the index, whose blocks come in slabs.
//!
//! Allocations for 10,000 rows (bigint key, text, bigint), by this counter: 20 to encode them and about 2,900 for the write. When
//! each row was gathered as a vector of its values first, and copied into the write: 10,031 and about 2,970.
#![allow(clippy::unwrap_used)]

mod common;

use arrow::array::Array;
use common::*;
use oribi_engine::{Decision, EncodedRows, Read};
use oribi_types::cells::Cells;
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, Durability, ErrorKind, Value, ValueRef};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: every call goes to the system's allocator as it came.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` returns, and the allocations of this thread meanwhile.
fn counted<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = ALLOCATIONS.get();
    let done = work();
    (done, ALLOCATIONS.get() - before)
}

fn cells(batch: &arrow::array::RecordBatch) -> Vec<Cells<'_>> {
    let types = [ColumnType::Int64, ColumnType::String, ColumnType::Int64];
    batch.columns().iter().zip(types).map(|(array, column_type)| Cells::of(array, column_type)).collect()
}

#[test]
fn no_row_of_a_bulk_write_is_a_heap_object() {
    const ROWS: usize = 10_000;
    let (_, _, engine, table) = fresh(4, Durability::Periodic(10));
    let keys: Vec<i64> = (0..ROWS as i64).collect();
    let batch = rows(&table, &keys, "some text of a row");
    let (encoded, to_encode) = counted(|| {
        let mut encoded = EncodedRows::default();
        encoded.push_columns(table.schema_ref(), &cells(&batch), ROWS).unwrap();
        encoded
    });
    let mut decide = |_, current: Option<oribi_engine::RowVersion<'_>>, _: &mut Vec<u8>| {
        assert!(current.is_none());
        Ok(Decision::Proposed)
    };
    let (written, to_write) =
        counted(|| engine.write(&encoded.operations(&table, Read::Existing), &mut decide));
    written.unwrap();
    println!("{to_encode} allocations to encode {ROWS} rows, {to_write} to write them");
    // The arena grows by doubling.
    assert!(to_encode < 64, "{to_encode} allocations to encode {ROWS} rows");
    assert!(to_write < ROWS as u64 * 11 / 10, "{to_write} allocations to write {ROWS} rows");
    assert_eq!(scan_now(&engine, &table).len(), ROWS);
    assert_eq!(get(&engine, &table, 77).as_deref(), Some("some text of a row"));
    // Its allocations were freed as such, so that the counter does not count what it should not.
    let ((), none) = counted(|| drop(encoded));
    assert_eq!(none, 0);
}

#[test]
fn rows_of_columns_are_those_of_their_values() {
    let (_, _, engine, table) = fresh(2, Durability::Periodic(10));
    let batch = rows(&table, &[3, 1, 2], "v");
    let (mut by_column, mut by_row) = (EncodedRows::default(), EncodedRows::default());
    by_column.push_columns(table.schema_ref(), &cells(&batch), batch.num_rows()).unwrap();
    for i in 0..3 {
        let values: Vec<ValueRef<'_>> = cells(&batch).iter().map(|cells| cells.get(i)).collect();
        by_row.push(table.schema_ref(), &values).unwrap();
    }
    assert_eq!(by_column, by_row);
    assert_eq!(by_column.to_batch(table.schema_ref(), oribi_types::Timestamp::MIN).unwrap(), batch);

    // A row that is refused leaves nothing behind.
    let no_key = [ValueRef::Null, ValueRef::String("v"), ValueRef::Int64(1)];
    assert_eq!(by_row.push(table.schema_ref(), &no_key).unwrap_err().kind(), ErrorKind::Invalid);
    let long = "x".repeat(1 << 20);
    let refused = by_row.push_with(
        |key| {
            key.extend_from_slice(long.as_bytes());
            Ok(())
        },
        |_| Err(oribi_types::Error::invalid("no")),
    );
    assert_eq!((refused.unwrap_err().kind(), &by_row), (ErrorKind::Invalid, &by_column));
    let nulls = [Cells::Same(ValueRef::Null), cells(&batch)[1], cells(&batch)[2]];
    assert_eq!(by_row.push_columns(table.schema_ref(), &nulls, 3).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(batch.column(0).null_count() == 0 && by_row.push_columns(table.schema_ref(), &nulls, 0).is_ok());

    // Rows of before a change are those that it finds in the table.
    let added = ColumnSpec { default: Some(Value::Int64(7)), ..ColumnSpec::new("c", ColumnType::Int64) };
    engine.alter_table("public", "t", &oribi_engine::Alteration::AddColumn(added)).unwrap();
    let newest = engine.latest(table.id()).unwrap();
    let renewed = by_column.renewed(newest.schema_ref());
    let values = renewed.to_batch(newest.schema_ref(), oribi_types::Timestamp::MIN).unwrap();
    assert_eq!((renewed.key(1), values.num_columns()), (by_column.key(1), 4));
    assert!((0..3).all(|i| Cells::of(values.column(3), ColumnType::Int64).get(i) == ValueRef::Int64(7)));
}
