//! Tracked writes whose answers would be others if they were applied twice.

use super::*;
use oribi_engine::{Answered, Request, Tracked};

/// Adds one to the number in row `k`. The result is the number then, as text.
pub fn count(engine: &Engine, table: &Arc<Table>, request: &Request<'_>, k: i64) -> Result<Tracked> {
    let (key, mut now) = (key(k), 0);
    let text = std::cell::RefCell::new(String::new());
    let op = WriteOp { table, key: &key, read: Read::Existing, row: &[] };
    let mut decide = |_, current: Option<oribi_engine::RowVersion<'_>>, row: &mut Vec<u8>| {
        now = current.map_or(0, |c| v_of(table, c.row).parse::<u64>().unwrap()) + 1;
        encode(table, &now.to_string(), k, row);
        *text.borrow_mut() = now.to_string();
        Ok(Decision::Put)
    };
    engine.write_tracked(request, &[op], &mut decide, &mut |result| {
        assert!(result.is_empty());
        result.extend_from_slice(text.borrow().as_bytes());
    })
}

/// Puts "1" in row `k` unless it is there. The result says which.
pub fn insert(engine: &Engine, table: &Arc<Table>, request: &Request<'_>, k: i64) -> Result<Tracked> {
    let key = key(k);
    let there = std::cell::Cell::new(false);
    let op = WriteOp { table, key: &key, read: Read::Existing, row: &[] };
    let mut decide = |_, current: Option<oribi_engine::RowVersion<'_>>, row: &mut Vec<u8>| {
        there.set(current.is_some());
        encode(table, "1", k, row);
        Ok(if there.get() { Decision::Keep } else { Decision::Put })
    };
    engine.write_tracked(request, &[op], &mut decide, &mut |result| {
        result.extend_from_slice(if there.get() { b"there" } else { b"new" });
    })
}

/// A write that is decided against.
pub fn refused(engine: &Engine, table: &Arc<Table>, request: &Request<'_>, k: i64) -> Result<Tracked> {
    let key = key(k);
    let op = WriteOp { table, key: &key, read: Read::Blind, row: &[] };
    let mut decide = |_, _: Option<oribi_engine::RowVersion<'_>>, _: &mut Vec<u8>| {
        Err(oribi_types::Error::conflict("decided against"))
    };
    let mut answer = |_: &mut Vec<u8>| panic!("there is no result");
    engine.write_tracked(request, &[op], &mut decide, &mut answer)
}

pub fn answered(tracked: Result<Tracked>) -> Answered {
    match tracked.unwrap() {
        Tracked::Answered(answered) => answered,
        other => panic!("{other:?}"),
    }
}

pub fn text(answered: &Answered) -> &str {
    std::str::from_utf8(&answered.result).unwrap()
}
