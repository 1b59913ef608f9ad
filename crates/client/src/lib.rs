#![doc = include_str!("../README.md")]

#[doc(hidden)]
pub mod batch;
mod client;
mod flags;
mod master;
mod rpc;
mod scan;
mod session;
mod status;
mod table;
mod transaction;

pub use client::{Client, ClientOptions, Retries, TableName};
pub use oribi_kudu::row_operations::{OperationType, PartialRow};
pub use oribi_types::{ColumnType, Error, ErrorKind, Result, Value, ValueRef};
pub use rpc::Tls;
pub use scan::{Compare, ReadMode, Scan, ScanToken, Scanner};
pub use session::{FlushMode, Progress, Row, RowError, RowErrors, Session, SessionOptions};
pub use table::{AlterTable, Column, CreateTable, Table};
pub use transaction::Transaction;
