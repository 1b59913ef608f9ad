//! Types, schema, values and their encodings: what every other crate agrees on.
//!
//! A row is stored as two byte strings: its *encoded key*, whose byte order is the key order ([`key`]),
//! and its *encoded row*, the remaining columns at fixed slots ([`row`]). Arrow batches are the third form,
//! for files and queries ([`batch`]).

pub mod batch;
pub mod calendar;
pub mod cells;
pub mod error;
pub mod json;
pub mod key;
pub mod partition;
pub mod row;
pub mod schema;
pub mod text;
pub mod time;
pub mod utf8;
pub mod value;

pub use error::{Error, ErrorKind, Result};
pub use partition::Partitioning;
pub use row::{RowLayout, RowRef};
pub use schema::{Column, ColumnId, ColumnSource, Durability, Schema, TableDefinition, TableOptions};
pub use time::Timestamp;
pub use value::{ColumnType, Value, ValueRef};
