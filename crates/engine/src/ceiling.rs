//! The ceiling: how far timestamps are reserved on disk.
//!
//! A timestamp that a client has seen must not be given out again, even if the machine crashes before the row that
//! carries it is durable. So an open starts above the *ceiling*, which is durable before a timestamp below it is given
//! out. It is only a little ahead of the clock: rows that are written after a crash carry timestamps that are ahead by
//! as much, and a table with a `ttl` keeps them so much longer. A clean close leaves the last timestamp as ceiling.
//!
//! While there are writes, a thread of its own raises the ceiling, long before a write would have to wait for that. Only
//! the first write after ten quiet minutes does.
//!
//! A bulk write that is applied at a timestamp ahead of all others leaves these so many below it, and no more: once they are
//! [scarce](crate::timeline::Timeline::is_scarce), who begins to write waits for it here.
//!
//! Rows of tables without a primary key get numbers in place of one, which must not be given out again either. They are counted from
//! the last timestamp that there was when the engine was opened, and kept below the ceiling too: a microsecond has more of
//! them than rows are written in one.
//!
//! While the ceiling cannot be raised, because the disk is full, writes go on below it: their timestamps stand nearly still,
//! 4,096 of them to a microsecond, until the ceiling is raised again. Rows that expire by their timestamp are refused then.

use crate::engine::Engine;
use crate::manifest::Edit;
use crate::tracked::would_block;
use oribi_types::{Result, Timestamp};
use std::sync::atomic::Ordering::Relaxed;

/// How far ahead of the clock timestamps are reserved, in microseconds.
const AHEAD_MICROS: u64 = 2_000_000;
/// So long after the last write nobody is expected to write soon, and the next one pays for raising the ceiling.
const QUIET_MICROS: u64 = 600_000_000;
/// How far ahead of the last timestamp: little, because each open after a crash starts at the ceiling, and opens that
/// follow each other must not run away from the clock. A microsecond holds 4,096 timestamps.
const AHEAD_OF_LAST_MICROS: u64 = 250_000;
/// The wall clock counts only up to so far below the ceiling. The rest is for writes that had room when they began, and
/// were held up or came in great numbers since.
pub(crate) const SPARE_MICROS: u64 = AHEAD_OF_LAST_MICROS / 8;
/// Where the ceiling cannot be raised, so much of what is below it is left to writes that have begun.
const KEPT_MICROS: u64 = SPARE_MICROS / 2;
/// How far ahead LSNs are reserved: more than one opening of the engine can use.
const AHEAD_LSN: u64 = 1 << 40;

impl Engine {
    /// Makes sure that a write at `now_micros` may take a timestamp. Cheap, unless nobody wrote for a while. It asks whether the
    /// timestamp must be `near` the clock only if it might not be.
    ///
    /// # Errors
    /// Those of the manifest.
    #[inline]
    pub(crate) fn reserve_timestamps(&self, now_micros: u64, near: impl Fn() -> bool) -> Result<()> {
        self.reserve_timestamps_if(true, now_micros, near)
    }

    /// As [`reserve_timestamps`](Self::reserve_timestamps). Unless it `waits`, the background does what takes long.
    ///
    /// # Errors
    /// `WouldBlock`; as there.
    #[inline]
    pub(crate) fn reserve_timestamps_if(
        &self,
        waits: bool,
        now_micros: u64,
        near: impl Fn() -> bool,
    ) -> Result<()> {
        if self.ahead(1, now_micros) < self.timeline.plenty_below() {
            return Ok(());
        }
        self.reserve_late(waits, now_micros, near())
    }

    #[cold]
    fn reserve_late(&self, waits: bool, now_micros: u64, near: bool) -> Result<()> {
        while self.timeline.is_scarce() {
            if !waits {
                return Err(would_block("a bulk write comes to its end"));
            }
            self.timeline.wait_for_appointment()?;
        }
        if self.ahead(1, now_micros) < self.timeline.ceiling() {
            return Ok(());
        }
        let go_on =
            || !near && self.timeline.last().micros() + KEPT_MICROS < self.timeline.ceiling().micros();
        // The background tries again and again: writes do not.
        if self.manifest.has_failed() && go_on() {
            return Ok(());
        }
        if !waits && !self.manifest.has_failed() && self.background.reserves() {
            return Err(would_block("timestamps are reserved"));
        }
        match self.raise_ceiling_unless(1, now_micros) {
            Err(_) if go_on() => Ok(()),
            raised => raised,
        }
    }

    /// Keeps the ceiling so high that no write has to raise it, as long as there are some.
    ///
    /// # Errors
    /// Those of the manifest.
    pub(crate) fn raise_ceiling(&self, is_wanted: bool) -> Result<()> {
        let now_micros = self.timeline.now_micros();
        let quiet = self.timeline.last().micros() + QUIET_MICROS < now_micros;
        if quiet && !is_wanted { Ok(()) } else { self.raise_ceiling_unless(3, now_micros) }
    }

    /// Raises the ceiling, unless so many quarters of what is to be reserved are left.
    fn raise_ceiling_unless(&self, quarters: u64, now_micros: u64) -> Result<()> {
        let near = self.ahead(quarters, now_micros);
        if near < self.timeline.ceiling() {
            return Ok(());
        }
        let _raise = self.ceiling.lock();
        if near < self.timeline.ceiling() || self.closed.load(Relaxed) {
            return Ok(());
        }
        // A timestamp of another machine may be ahead of the clock.
        self.set_ceiling(self.ahead(4, self.timeline.now_micros().max(now_micros)))
    }

    /// The first of so many numbers, one after the other, that no row has had, whatever process wrote it. Unless it `waits`, none
    /// is made certain of on the disk.
    ///
    /// # Errors
    /// `WouldBlock`; those of the manifest.
    pub fn row_ids(&self, count: u64, waits: bool) -> Result<i64> {
        let first = self.next_row_id.fetch_add(count, Relaxed);
        let behind = Timestamp(first + count);
        if behind >= self.timeline.ceiling() {
            self.reserve_timestamps_if(waits, self.timeline.now_micros(), || true)?;
            if behind >= self.timeline.ceiling() {
                self.reserve_row_ids(waits, behind)?;
            }
        }
        // Past the largest number they begin at the smallest: they are only told apart.
        Ok(first as i64)
    }

    #[cold]
    fn reserve_row_ids(&self, waits: bool, behind: Timestamp) -> Result<()> {
        if !waits {
            return Err(would_block("numbers of rows are reserved"));
        }
        let _raise = self.ceiling.lock();
        if behind < self.timeline.ceiling() {
            return Ok(());
        }
        let clock = self.ahead(4, self.timeline.now_micros());
        self.set_ceiling(clock.max(Timestamp::from_micros(behind.micros() + AHEAD_OF_LAST_MICROS)))
    }

    fn ahead(&self, quarters: u64, now_micros: u64) -> Timestamp {
        let last = self.timeline.last().micros();
        let micros =
            (now_micros + AHEAD_MICROS / 4 * quarters).max(last + AHEAD_OF_LAST_MICROS / 4 * quarters);
        Timestamp::from_micros(micros)
    }

    /// The caller holds the ceiling's lock, so that the last one in the manifest is the one that counts here.
    fn set_ceiling(&self, ts: Timestamp) -> Result<()> {
        let (lsn, horizon) = (self.log.appended() + AHEAD_LSN, self.timeline.horizon());
        self.manifest.commit(vec![Edit::Ceiling { ts, lsn, horizon }])?;
        self.timeline.set_ceiling(ts);
        Ok(())
    }

    /// Of a closed engine: gives back what was reserved and not used.
    ///
    /// # Errors
    /// Those of the manifest.
    pub(crate) fn lower_ceiling(&self) -> Result<()> {
        let _raise = self.ceiling.lock();
        // Whoever was writing when the engine was closed has its timestamp; whoever comes later is refused.
        let last = {
            let _gate = self.gate.alone();
            self.timeline.last()
        };
        self.set_ceiling(last.max(Timestamp(self.next_row_id.load(Relaxed))))
    }
}
