//! The storage engine: one live copy of every row, written through a log, read from memory first.
//!
//! - [`Engine::write`]: the write path. Visible when applied, answered when durable ([`Engine::settle`]).
//! - [`Engine::write_tracked`]: the same, once per request id.
//! - [`Engine::try_get`], [`Engine::get`]: point reads: row index, then SSTables.
//! - [`Engine::range`]: the rows between two keys, in key order: memtables merged with SSTables.
//! - [`Engine::scan`]: all rows of a table at a snapshot, without a merge.
//! - Flush, compaction and import change a tablet's files through its installer only.
//!
//! It knows no protocol and no query engine. Files, clock and threads come from `oribi_env`.

mod background;
mod by_position;
mod catalog;
mod ceiling;
mod check;
mod columns;
mod compaction;
mod ddl;
mod deletions;
mod depot;
mod engine;
mod expiry;
mod flush;
mod fragments;
mod gate;
mod held;
mod hidden;
mod holders;
mod import;
mod index;
mod installer;
mod latches;
mod long_reads;
mod manifest;
mod memory;
mod memtable;
mod named_files;
mod options;
mod ordered;
mod pages;
mod partitions;
mod range;
mod read;
mod reading;
pub mod record;
mod recovery;
mod rows;
mod scan;
mod stop;
mod tablet;
mod timeline;
mod tracked;
mod tracker;
mod trouble;
mod txn;
mod undecided;
mod walk;
mod write;

pub use by_position::{NewValues, PositionChange};
pub use catalog::{
    Alteration, Catalog, CatalogChange, DEFAULT_BUCKET, DRAFT, PUBLIC_SCHEMA, SEQUENCE, Table,
};
pub use check::{CheckReport, check};
pub use deletions::validate_marks;
pub use depot::{Claimed, Depot, is_begun, restore};
pub use engine::{Engine, EngineStats, Obligation};
pub use held::Held;
pub use hidden::Hidden;
pub use import::Import;
pub use index::Location;
pub use manifest::validate_manifest;
pub use memory::{MemoryBudget, Reserved};
pub use named_files::NamedFiles;
pub use options::EngineOptions;
pub use oribi_sstable::RowSelection;
pub use oribi_wal::Lsn;
pub use partitions::RangeChange;
pub use range::{KeyRange, RangeCounts, RangePart, RangeReader};
pub use read::{Lookup, Pinned, Presence, Probe, ReadView, RowVersion, Sighting, UpTo};
pub use rows::EncodedRows;
pub use scan::{
    FileOutline, FileScan, GroupRows, MemoryOutline, MemoryState, Outline, SeenBatch, SeenBatches, TabletScan,
};
pub use timeline::Snapshot;
pub use tracker::{Answered, CLIENT_ID_BYTES_MAX, Request, Tracked, UnderWay};
pub use trouble::{Part, Trouble};
pub use txn::{
    Author, Blocked, Changes, Committing, EndedTransaction, InTransaction, KeptCommit, LockedRows, Mark,
    OpenTransaction, Overlay, OwnRows, Reader, RowWait, SpilledIter, SpilledRows, Transaction,
    TransactionState, Unchanged,
};
pub use walk::MemoryColumns;
pub use write::{Answer, Commit, Decide, Decision, Read, ReadAhead, WriteOp};
