//! The fragments of bulk writes as a log is read: they count once their commit is found.
//!
//! A bulk write that was given up, or did not come to its commit before a crash, leaves fragments that count for nothing. The log
//! may begin in the middle of one whose rows are all in files: of it alone fragments may be missing.

use oribi_types::{Error, Result};
use oribi_wal::Lsn;
use std::collections::HashMap;

/// Those whose commit has not come yet; of each is kept what the reader needs.
pub(crate) struct Fragments<T> {
    /// Where the log begins that is read.
    from: Lsn,
    /// The opening of the log that wrote them: none goes on with the writes of another.
    term: u64,
    /// By the LSN of the first.
    open: HashMap<Lsn, Vec<T>>,
}

impl<T> Fragments<T> {
    /// For a log that is read from the record `from` on.
    pub fn from(from: Lsn) -> Self {
        Fragments { from, term: 0, open: HashMap::new() }
    }

    /// The next record was written in `term`.
    pub fn begin(&mut self, term: u64) {
        if self.term != term {
            self.open.clear();
            self.term = term;
        }
    }

    pub fn add(&mut self, bulk: Lsn, fragment: T) {
        self.open.entry(bulk).or_default().push(fragment);
    }

    /// All fragments of a write that is committed, in order.
    ///
    /// # Errors
    /// `Corrupt` if some are missing that the log must have.
    pub fn take(&mut self, bulk: Lsn, count: u32) -> Result<Vec<T>> {
        let found = self.open.remove(&bulk).unwrap_or_default();
        let (has, counts) = (found.len() as u64, u64::from(count));
        if has == counts || (has < counts && bulk < self.from) {
            return Ok(found);
        }
        Err(Error::corrupt(format!("the commit of bulk write {bulk} counts {count} fragments, not {has}")))
    }

    pub fn forget(&mut self, bulk: Lsn) {
        self.open.remove(&bulk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_count_with_their_commit_and_may_be_missing_where_the_log_was_trimmed() {
        let mut fragments = Fragments::from(10);
        fragments.begin(1);
        for bulk in [8, 8, 10, 10, 12, 14] {
            fragments.add(bulk, ());
        }
        // The log begins behind the first of three.
        assert_eq!(fragments.take(8, 3).unwrap().len(), 2);
        assert!(fragments.take(9, 3).unwrap().is_empty());
        assert!(fragments.take(10, 3).is_err(), "one is missing that the log must have");
        assert!(fragments.take(10, 2).is_err(), "a commit comes once");
        fragments.forget(12);
        assert!(fragments.take(12, 1).is_err(), "it was given up");
        // Nobody goes on with the fragments of a process that is gone.
        fragments.begin(2);
        assert!(fragments.take(14, 1).is_err());
        fragments.add(20, ());
        fragments.begin(2);
        assert_eq!(fragments.take(20, 1).unwrap().len(), 1);
    }
}
