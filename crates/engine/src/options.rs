//! Engine options: plain data, filled by the binary.

use oribi_types::{Durability, Error, Result};

/// How an engine behaves. Sizes in bytes.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Budget for memtables, queries, indexes of SSTables, background jobs and the row cache together.
    pub memory_bytes: u64,
    /// Durability of tables that do not say.
    pub durability: Durability,
    /// Keys and rows of one statement at most.
    pub statement_bytes_max: usize,
    /// A write whose log record would be longer is logged in fragments of about so many bytes, and others have their turn in
    /// between.
    pub fragment_bytes: usize,
    /// A statement that changes so many rows of files does it [by position](crate::PositionChange), with a patch of each file
    /// for what they become.
    pub by_position_rows_min: usize,
    /// A tablet's memtable of this size is flushed.
    pub flush_bytes_max: u64,
    /// A memtable worth a file is flushed once nobody has written to its tablet for so long: scans read files faster than rows
    /// in memory. `u64::MAX`: never. Key-value tables are left out.
    pub flush_quiet_ms: u64,
    /// A manifest longer than this, and than twice what it begins with, is started anew.
    pub manifest_bytes_max: u64,
    /// A log longer than this flushes the tablet that holds its oldest record. Files of trimmed segments that are kept for
    /// new ones take half as much again at most.
    pub log_bytes_max: u64,
    /// SSTables of similar size in a tablet before they are compacted into one.
    pub compaction_files: usize,
    /// A transaction that is kept for clients ends when none of them has named it for so long.
    pub transaction_silence_ms: u64,
    /// Whether background threads flush and compact; off, only explicit calls do.
    pub background: bool,
    /// Whether an open keeps what snapshots saw that were there before, for [`take_history`](crate::Engine::take_history).
    pub keeps_history: bool,
    /// Whether the rows of a batch are fetched ahead. Off, it can be measured what that brings.
    pub prefetch: bool,
    /// Whether a read that finds its row in memory leaves the files alone. Off, it asks their filters all the same, and
    /// it can be measured what a second source costs.
    pub one_source: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions::with_memory(1 << 30)
    }
}

impl EngineOptions {
    /// Defaults for a budget of `memory_bytes`: a quarter of it may fill with unflushed rows before a flush starts
    /// (half, before writers wait; both less while queries hold much of it). The longer the log, the fewer rows of
    /// key-value tables are ever flushed, and the longer a replay takes.
    pub fn with_memory(memory_bytes: u64) -> Self {
        EngineOptions {
            memory_bytes,
            durability: Durability::Sync,
            statement_bytes_max: (memory_bytes / 8).clamp(1 << 20, 256 << 20) as usize,
            fragment_bytes: 512 << 10,
            by_position_rows_min: 16 << 10,
            flush_bytes_max: (memory_bytes / 8).clamp(1 << 20, 256 << 20),
            flush_quiet_ms: 5000,
            manifest_bytes_max: 4 << 20,
            log_bytes_max: memory_bytes.max(16 << 20),
            compaction_files: 4,
            transaction_silence_ms: 30_000,
            background: true,
            keeps_history: false,
            prefetch: true,
            one_source: true,
        }
    }

    /// # Errors
    /// `Invalid`, naming the option.
    pub fn validate(&self) -> Result<()> {
        if self.memory_bytes < MEMORY_BYTES_MIN {
            return Err(Error::invalid(format!(
                "memory of {} bytes is below the minimum of {MEMORY_BYTES_MIN}",
                self.memory_bytes
            )));
        }
        if self.compaction_files < 2 {
            return Err(Error::invalid("compaction_files must be at least 2"));
        }
        if self.transaction_silence_ms == 0 || self.transaction_silence_ms > u32::MAX.into() {
            return Err(Error::invalid("transaction_silence_ms must be from 1 to 2^32 - 1"));
        }
        if matches!(self.durability, Durability::Periodic(0)) {
            return Err(Error::invalid("durability periodic needs at least 1 ms"));
        }
        Ok(())
    }
}

/// Below this a memtable, a flush and a query cannot live side by side.
pub const MEMORY_BYTES_MIN: u64 = 8 << 20;
