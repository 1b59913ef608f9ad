//! The gate: writers pass it together, and who changes what they write to has it alone.
//!
//! Writers hold it shared from taking their timestamp until they are applied; who seals a memtable holds it alone, so that a
//! memtable has all of its writes and their LSNs are below those of the next. It is held for memory only: nobody waits for a file, nor
//! for another lock but those of the log and of memory, while he has it.
//!
//! Who asks for a lock alone keeps all that come later out until those that are in have left. A write of many rows is in for
//! milliseconds. So such writes hold another lock before the gate, and who wants that alone waits there for them to leave, while
//! all others write on; only then is the gate asked for, where whoever is in is done in microseconds.

use oribi_env::locks::{self, RwLock};

/// A write of more rows is one of many: below, applying them takes less than a tenth of a millisecond.
const ROWS_FEW_MAX: usize = 128;

#[derive(Default)]
pub(crate) struct Gate {
    bulk: RwLock<(), { locks::BULK }>,
    gate: RwLock<(), { locks::GATE }>,
}

impl Gate {
    /// Until what it returns is dropped nobody has the gate alone. `None` if somebody has or wants it, unless it `waits`.
    #[inline]
    pub fn share(&self, rows: usize, waits: bool) -> Option<impl Sized + '_> {
        let bulk = match (rows > ROWS_FEW_MAX, waits) {
            (false, _) => None,
            (true, true) => Some(self.bulk.read()),
            (true, false) => Some(self.bulk.try_read()?),
        };
        let gate = if waits { self.gate.read() } else { self.gate.try_read()? };
        Some((gate, bulk))
    }

    /// Until what it returns is dropped no write is between its timestamp and the memtables.
    pub fn alone(&self) -> impl Sized + '_ {
        let bulk = self.bulk.write();
        (self.gate.write(), bulk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_are_written_while_many_keep_others_from_having_the_gate_alone() {
        let gate = Gate::default();
        let many = gate.share(ROWS_FEW_MAX + 1, true);
        std::thread::scope(|scope| {
            let alone = scope.spawn(|| drop(gate.alone()));
            while !gate.bulk.is_closed() && !gate.gate.is_closed() {
                std::thread::yield_now();
            }
            assert!(gate.share(1, false).is_some());
            assert!(gate.share(ROWS_FEW_MAX + 1, false).is_none(), "others with many come behind");
            assert!(!alone.is_finished());
            drop(many);
        });
        assert!(gate.share(ROWS_FEW_MAX + 1, false).is_some());
    }
}
