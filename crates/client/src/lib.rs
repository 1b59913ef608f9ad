//! A batching client for tablet servers that speak Kudu's protocol: Oribi's own, and Apache Kudu 1.18.
//!
//! ```no_run
//! # async fn example() -> oribi_types::Result<()> {
//! use oribi_client::{Client, SessionOptions};
//!
//! let client = Client::connect(&["127.0.0.1:7051"]).await?;
//! let table = client.open_table("events").await?;
//! let mut session = client.session(SessionOptions::default());
//! for key in 0..1_000_000 {
//!     let mut row = session.insert(&table);
//!     row.set_i64(0, key)?;
//!     row.set_str(1, "text")?;
//!     row.apply().await?;
//! }
//! session.flush().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A batch is one arena per tablet, in wire order: applying a row appends to it, sending writes it as it lies, and taking it
//! down forgets two lengths, after which the next batch uses the same memory.
//!
//! What a [`Session`] keeps to, in every mode:
//! - Rows of one key are written in the order in which they were applied: a tablet has one batch of a session under way.
//! - A row is written once, however often its batch is sent: batches have ids that survive retries and reconnects.
//! - Rows that wait or are under way take at most [`SessionOptions::buffer_bytes`]; then applying waits.
//! - A row that is not written is among the errors, with the cause.

#[doc(hidden)]
pub mod batch;
mod client;
mod master;
mod rpc;
mod scan;
mod session;
mod status;
mod table;

pub use client::{Client, ClientOptions, TableName};
pub use oribi_kudu::row_operations::OperationType;
pub use scan::{Compare, ReadMode, Scan, ScanToken, Scanner};
pub use session::{FlushMode, Progress, Row, RowError, RowErrors, Session, SessionOptions};
#[doc(hidden)]
pub use table::RowLayout;
pub use table::{AlterTable, Column, CreateTable, Table};
