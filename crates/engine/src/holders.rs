//! Scans that hold rows in memory, whoever reads them, and however slowly.
//!
//! What a scan has not come to stays in memory until it has, flushed, overwritten, or dropped. As long as the row index has
//! such a row too, the budget counts it there; then it counts as held. One scan holds no more than memtables may have, but each
//! that begins later may hold other rows. So that they stay within [what they may](crate::MemoryBudget), the one that began first
//! gives up what it holds, and fails when it comes to that.

use crate::engine::Engine;
use oribi_env::locks::{self, Mutex};
use oribi_types::{Error, ErrorKind};
use std::sync::{Arc, Weak};

/// A scan, or a part of one.
pub(crate) trait Holder: Send + Sync {
    /// What it keeps of rows, which the row index [counts](oribi_index::held_bytes) too: each is looked at.
    fn row_bytes(&self) -> usize;

    /// What it keeps besides, of which what others keep too counts in part.
    fn other_bytes(&self) -> usize;

    /// Gives up its rows: whoever reads on is [told](given_up).
    fn give_up(&self);
}

pub(crate) fn given_up() -> Error {
    let why =
        "a scan was too slow: memory was needed for the rows that it held, which were replaced meanwhile";
    Error::new(ErrorKind::Conflict, why)
}

/// In the order in which they began.
#[derive(Default)]
pub(crate) struct Holders(Mutex<Vec<Weak<dyn Holder>>, { locks::LEAF }>);

impl Holders {
    pub fn add(&self, holder: Weak<dyn Holder>) {
        let mut holders = self.0.lock();
        // Not each time, or many scans at a time would cost each other time.
        if holders.len() == holders.capacity() {
            holders.retain(|holder| holder.strong_count() > 0);
        }
        holders.push(holder);
    }

    /// Has those that began first give up what they hold, until that is not more than `bytes_max`. In all, `counted` bytes are
    /// held, but what no scan has any more is being freed, and nobody else's to give up.
    fn give_up(&self, counted: usize, bytes_max: usize) {
        let held = |holder: &Arc<dyn Holder>| holder.row_bytes() + holder.other_bytes();
        let holders: Vec<_> = self.live().into_iter().map(|holder| (held(&holder), holder)).collect();
        // A row that several hold is counted for each.
        let by_scans: usize = holders.iter().map(|(held, _)| held).sum();
        let mut excess = counted.min(by_scans).saturating_sub(bytes_max);
        for (held, holder) in holders.into_iter().filter(|(held, _)| *held > 0) {
            if excess == 0 {
                return;
            }
            tracing::warn!(bytes = held, "a scan that holds rows for too long gives them up");
            holder.give_up();
            excess = excess.saturating_sub(held);
        }
    }

    fn live(&self) -> Vec<Arc<dyn Holder>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// What they hold that is no row.
    fn others(&self) -> usize {
        self.live().iter().map(|holder| holder.other_bytes()).sum()
    }
}

impl Engine {
    /// Tells the budget what is held of rows that the row index does not have any more, and sees that it is not too much.
    pub(crate) fn measure_held(&self) {
        let held = || oribi_index::held_bytes() + self.holders.others();
        let (now, held_max) = (held(), self.budget.held_max() as usize);
        if now > held_max {
            self.holders.give_up(now, held_max);
        }
        self.budget.set_held(held() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    struct Scan(AtomicUsize);

    impl Holder for Scan {
        fn row_bytes(&self) -> usize {
            self.0.load(Relaxed) - self.other_bytes()
        }

        fn other_bytes(&self) -> usize {
            self.0.load(Relaxed) / 2
        }

        fn give_up(&self) {
            self.0.store(0, Relaxed);
        }
    }

    #[test]
    fn nobody_gives_up_rows_for_those_that_are_being_freed() {
        let holders = Holders::default();
        let scans = [50, 30, 40].map(|bytes| Arc::new(Scan(AtomicUsize::new(bytes))));
        for scan in &scans {
            let scan: Weak<dyn Holder> = Arc::downgrade(&(scan.clone() as Arc<dyn Holder>));
            holders.add(scan);
        }
        let held = || scans.each_ref().map(|scan| scan.row_bytes() + scan.other_bytes());
        holders.give_up(1000, 120);
        assert_eq!(held(), [50, 30, 40], "the others' were given up by now");
        holders.give_up(1000, 60);
        assert_eq!(held(), [0, 0, 40], "those that began first");
    }
}
