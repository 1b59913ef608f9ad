//! Statements that change rows, planned by us from their syntax trees.
//!
//! DataFusion's own hooks for DML lose subqueries and limits on the way to the table, which means *all rows*; our tables
//! refuse them. Here an `UPDATE` or `DELETE` is an ordinary query at a snapshot ([`matched`]) that yields the keys of
//! the rows it matches, the timestamp of each, and new values; the rows are then written in one atomic batch that is
//! refused if any of them is no longer of that timestamp. Those that are not are then read again, on a new snapshot
//! ([`rounds`]): no update is ever lost, and none is applied in part. Many rows of files are changed [where they lie](by_position).

mod assignments;
mod by_position;
mod coerce;
mod constant;
mod delete;
mod destination;
mod expression;
mod formula;
mod generated;
mod insert;
mod locking;
mod matched;
mod names;
mod parts;
mod point;
mod returning;
mod room;
mod rounds;
mod rows;
mod sink;
mod source;
mod types;
mod update;
mod upsert;
mod writers;

pub(crate) use coerce::{coerce, parse_text, read_all, scalar};
pub(crate) use constant::{Constant, ParameterTypes, Parameters};
pub(crate) use delete::Delete;
pub(crate) use destination::{Destination, Writer, aside};
pub(crate) use insert::Insert;
pub(crate) use locking::LockingQuery;
pub(crate) use names::{column, new_table_name, qualified, table};
pub(crate) use point::PointWrite;
pub(crate) use room::Room;
pub(crate) use sink::RowSink;
pub(crate) use source::SourceQuery;
pub(crate) use types::column_type;
pub(crate) use update::Update;
pub(crate) use writers::Writers;

use crate::context::{Narrowed, QueryEngine};
use oribi_engine::{Commit, Engine, Table};
use oribi_session::sql::{SqlError, SqlSession};
use oribi_types::{Error, ErrorKind};
use std::sync::Arc;

/// What a statement is planned for.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) query: &'a Arc<QueryEngine>,
    pub(crate) session: &'a Arc<SqlSession>,
    pub(crate) sql: &'a Arc<str>,
}

/// What a plan runs with.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) query: &'a Arc<QueryEngine>,
    pub(crate) session: &'a Arc<SqlSession>,
    pub(crate) parameters: Parameters<'a>,
    /// Which rows of a table there are for it, if not all.
    pub(crate) narrowed: Option<&'a Arc<Narrowed>>,
}

impl Run<'_> {
    /// Where the statement writes.
    pub(crate) fn destination(&self) -> Destination {
        Destination::new(self.query, self.session)
    }
}

/// Waits until a write may be answered.
async fn settle(engine: &Engine, commit: &Commit) -> Result<(), SqlError> {
    Ok(engine.settled(commit.obligation).await?)
}

/// Refuses a statement that is larger than one record of the log may be.
fn check_size(engine: &Engine, bytes: usize) -> Result<(), SqlError> {
    let max = engine.options().statement_bytes_max;
    if bytes <= max {
        return Ok(());
    }
    let message = format!("the statement needs {bytes} bytes or more, statement_bytes_max is {max}");
    Err(SqlError::new(ErrorKind::TooLarge, message)
        .with_sqlstate("54000")
        .with_hint("write in several statements; INSERT and COPY of new keys may be larger"))
}

/// Ends a write in vain: another came between read and write, or there is an error to tell.
fn changed() -> Error {
    Error::conflict("could not serialize access due to concurrent update")
}

/// Refuses what the grammar accepts and this database does not do.
fn refuse(unless: bool, what: &str) -> Result<(), SqlError> {
    if unless {
        Ok(())
    } else {
        Err(SqlError::new(ErrorKind::Unsupported, format!("{what} is not supported")))
    }
}

/// The name of a table's only unique constraint.
fn primary_key_name(table: &Table) -> String {
    format!("{}_pkey", table.name())
}
