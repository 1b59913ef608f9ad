//! What readers have made of a memtable's rows to have it once, and what that takes: it counts as memory of memtables, and goes
//! when its rows leave memory.

use super::Memtable;
use crate::memory::MemoryBudget;
use std::sync::Arc;

pub(crate) struct Counted {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl Counted {
    pub fn new(budget: &Arc<MemoryBudget>) -> Self {
        Counted { budget: budget.clone(), bytes: 0 }
    }

    /// It takes so many bytes now.
    pub fn set(&mut self, memtable: &Memtable, bytes: u64) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        memtable.grew(bytes as i64 - before as i64);
        self.budget.memtables_changed(bytes, before);
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether memory is scarce: rows are about to leave it.
    pub fn is_scarce(&self) -> bool {
        self.budget.wants_flush()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.budget.memtables_shrank(self.bytes);
    }
}
