//! Hybrid timestamps: wall-clock microseconds with a logical counter below them.

use serde::{Deserialize, Serialize};

const LOGICAL_BITS: u32 = 12;

/// The time of a write: microseconds since the Unix epoch in the upper 52 bits, a counter in the lower 12
/// (the layout of Kudu's hybrid clock). Ordered; `MIN` is before every write, `MAX` after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub u64);

impl Timestamp {
    pub const MIN: Timestamp = Timestamp(0);
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// The first timestamp of a microsecond since the Unix epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Timestamp(micros << LOGICAL_BITS)
    }

    /// Wall-clock microseconds since the Unix epoch.
    pub const fn micros(self) -> u64 {
        self.0 >> LOGICAL_BITS
    }

    /// The very next timestamp.
    #[must_use]
    pub const fn next(self) -> Self {
        Timestamp(self.0 + 1)
    }
}
