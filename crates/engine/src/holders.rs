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
    /// Bytes of rows that it alone keeps in memory.
    fn held_bytes(&self) -> usize;

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

    /// Has those that began first give up what they hold, until that is so many bytes.
    fn give_up(&self, bytes: usize) {
        let holders: Vec<Arc<dyn Holder>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let mut freed = 0;
        for holder in holders {
            if freed >= bytes {
                return;
            }
            let held = holder.held_bytes();
            if held > 0 {
                tracing::warn!(bytes = held, "a scan that holds rows for too long gives them up");
                holder.give_up();
                freed += held;
            }
        }
    }
}

impl Engine {
    /// Tells the budget what is held of rows that the row index does not have any more, and sees that it is not too much.
    pub(crate) fn measure_held(&self) {
        let excess = oribi_index::held_bytes().saturating_sub(self.budget.held_max() as usize);
        if excess > 0 {
            self.holders.give_up(excess);
        }
        self.budget.set_held(oribi_index::held_bytes() as u64);
    }
}
