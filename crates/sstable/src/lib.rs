//! SSTables.
pub struct Sstable;
