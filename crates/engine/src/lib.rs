//! The storage engine: one live copy of every row, written through a log, read from memory first.

mod api;
pub use api::*;
