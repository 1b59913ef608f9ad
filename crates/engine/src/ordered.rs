//! The ordered view of a memtable: its keys in key order, for range reads.
//!
//! A memtable keeps only the hashes of its keys, and a write does nothing for their order. Who reads a range takes
//! the keys that came since the last range read, sorts them into a run, and merges runs so that each is at least twice
//! as long as the next: a key is merged a logarithmic number of times, and a range finds few runs.
//!
//! A run has the bytes of its keys, and no row: those are found through the row index, which knows what a snapshot
//! sees. Holding rows here would keep each that is overwritten until the flush.

use crate::index::RowIndex;
use crate::memory::MemoryBudget;
use crate::memtable::{Counted, Memtable};
use oribi_env::locks::{self, Mutex};
use oribi_types::batch::EncodedKeys;
use std::sync::Arc;

/// Distinct keys in order.
pub(crate) type Run = Arc<EncodedKeys>;

pub(crate) struct OrderedView(Mutex<(Runs, Counted), { locks::ORDER }>);

#[derive(Default)]
struct Runs {
    /// So many of the memtable's hashes are in the runs.
    taken: usize,
    /// Longest first. A key of two rows with one hash can be in two of them.
    runs: Vec<Run>,
}

impl OrderedView {
    pub fn new(budget: &Arc<MemoryBudget>) -> Self {
        OrderedView(Mutex::new((Runs::default(), Counted::new(budget))))
    }

    /// Runs that together have every key that `memtable`, whose view this is, has by now.
    pub fn runs(&self, memtable: &Memtable, index: &RowIndex) -> Vec<Run> {
        let (runs, counted) = &mut *self.0.lock();
        let mut taken = runs.taken;
        let mut keys = EncodedKeys::default();
        let hashes = memtable.hashes_from(taken).inspect(|_| taken += 1);
        index.visit(memtable.generation, hashes, |_, newest| keys.push(newest.key()));
        runs.taken = taken;
        if !keys.is_empty() {
            runs.push(Arc::new(sort(keys)));
            counted.set(memtable, runs.runs.iter().map(|run| run.memory_bytes() as u64).sum());
        }
        runs.runs.clone()
    }

    /// How many of its memtable's keys the runs have by now.
    pub fn taken(&self) -> usize {
        self.0.lock().0.taken
    }
}

impl Runs {
    fn push(&mut self, mut run: Run) {
        while let Some(shortest) = self.runs.pop_if(|shortest| shortest.len() < 2 * run.len()) {
            run = Arc::new(merge(&shortest, &run));
        }
        self.runs.push(run);
    }
}

fn sort(keys: EncodedKeys) -> EncodedKeys {
    // Keys that were written in order, as a batch often is, are a run as they came.
    if (1..keys.len()).all(|i| keys.get(i - 1) < keys.get(i)) {
        return keys;
    }
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_unstable_by(|a, b| keys.get(*a).cmp(keys.get(*b)));
    order.dedup_by(|a, b| keys.get(*a) == keys.get(*b));
    let mut sorted = EncodedKeys::with_capacity(keys.len(), keys.bytes());
    order.into_iter().for_each(|i| sorted.push(keys.get(i)));
    sorted
}

fn merge(a: &EncodedKeys, b: &EncodedKeys) -> EncodedKeys {
    let mut merged = EncodedKeys::with_capacity(a.len() + b.len(), a.bytes() + b.bytes());
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (left, right) = (a.get(i), b.get(j));
        merged.push(left.min(right));
        i += usize::from(left <= right);
        j += usize::from(right <= left);
    }
    (i..a.len()).for_each(|i| merged.push(a.get(i)));
    (j..b.len()).for_each(|j| merged.push(b.get(j)));
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn run(keys: &[Vec<u8>]) -> EncodedKeys {
        let mut run = EncodedKeys::default();
        keys.iter().for_each(|key| run.push(key));
        run
    }

    proptest! {
        #[test]
        fn runs_have_each_key_in_order_and_are_few(
            batches in prop::collection::vec(prop::collection::vec(any::<Vec<u8>>(), 1..40), 1..40)
        ) {
            let mut runs = Runs::default();
            for batch in &batches {
                runs.push(Arc::new(sort(run(batch))));
                prop_assert!(runs.runs.windows(2).all(|pair| pair[0].len() >= 2 * pair[1].len()));
            }
            for run in &runs.runs {
                prop_assert!((1..run.len()).all(|i| run.get(i - 1) < run.get(i)));
            }
            let keys: BTreeSet<&[u8]> = runs.runs.iter().flat_map(|run| run.iter()).collect();
            prop_assert_eq!(keys, batches.iter().flatten().map(Vec::as_slice).collect::<BTreeSet<_>>());
        }
    }
}
