//! What point reads cost a file: files that filters did not spare, pages read, bytes of them.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Look-ups in an SSTable since it was opened, scans left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointReads {
    /// Look-ups of a key that key range and filters let through.
    pub lookups: u64,
    /// Those of them for which the file had nothing to answer: false answers of the filters, but for versions that
    /// nobody may see.
    pub misses: u64,
    /// Pages read, each by one call of the operating system.
    pub pages: u64,
    /// Bytes of those pages, as stored.
    pub page_bytes: u64,
}

impl AddAssign for PointReads {
    fn add_assign(&mut self, other: PointReads) {
        self.lookups += other.lookups;
        self.misses += other.misses;
        self.pages += other.pages;
        self.page_bytes += other.page_bytes;
    }
}

/// The same, counted by all threads that read the file.
#[derive(Default)]
pub(crate) struct ReadCounters {
    lookups: AtomicU64,
    misses: AtomicU64,
    pages: AtomicU64,
    page_bytes: AtomicU64,
}

impl ReadCounters {
    pub fn looked_up(&self, found: bool) {
        self.lookups.fetch_add(1, Relaxed);
        if !found {
            self.misses.fetch_add(1, Relaxed);
        }
    }

    pub fn read_page(&self, bytes: usize) {
        self.pages.fetch_add(1, Relaxed);
        self.page_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub fn get(&self) -> PointReads {
        PointReads {
            lookups: self.lookups.load(Relaxed),
            misses: self.misses.load(Relaxed),
            pages: self.pages.load(Relaxed),
            page_bytes: self.page_bytes.load(Relaxed),
        }
    }
}
