//! What tests do in a transaction, or beside it.

use super::{encode, key, v_of};
use oribi_engine::{
    Author, Blocked, Commit, Decision, Engine, InTransaction, Read, ReadAhead, RowVersion, Table,
    Transaction, WriteOp,
};
use oribi_types::{ErrorKind, Result};
use std::cell::Cell;
use std::sync::Arc;

/// Puts (some value) or deletes, in a transaction or at once; says by whom a row is locked, if it is.
pub fn write_as(
    within: Option<&InTransaction>,
    waits: bool,
    engine: &Engine,
    table: &Arc<Table>,
    changes: &[(i64, Option<&str>)],
) -> Result<Commit, (ErrorKind, Option<Blocked>)> {
    let keys: Vec<Vec<u8>> = changes.iter().map(|(k, _)| key(*k)).collect();
    let ops: Vec<WriteOp<'_>> =
        keys.iter().map(|key| WriteOp { table, key, read: Read::Existing, row: &[] }).collect();
    let blocked = Cell::new(None);
    let author = Author { within, held: None, blocked: &blocked };
    let decide = &mut |i: usize, _: Option<RowVersion<'_>>, row: &mut Vec<u8>| match changes[i] {
        (k, Some(v)) => {
            encode(table, v, k, row);
            Ok(Decision::Put)
        }
        (_, None) => Ok(Decision::Delete),
    };
    let written = engine.write_as(&author, waits, &ops, decide, &mut ReadAhead::default());
    written.map_err(|error| (error.kind(), blocked.take()))
}

pub fn commit(engine: &Engine, transaction: &Arc<Transaction>) -> Result<Commit> {
    engine.commit(&transaction.into_commit(), true, &mut ReadAhead::default())
}

/// What a transaction has of a row.
pub fn own(transaction: &Transaction, table: &Table, k: i64) -> Option<Option<String>> {
    transaction.own(table, &key(k), |row| row.map(|row| v_of(table, row))).unwrap()
}
