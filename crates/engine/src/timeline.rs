//! Commit timestamps, the watermark and registered snapshots.
//!
//! A write takes its timestamp while it appends to the log, applies itself to memory, and then completes. The
//! *watermark* is the timestamp at and below which every write has completed. A snapshot is a registered timestamp;
//! the *horizon* is the lowest timestamp that any snapshot may read, now or later.
//!
//! Some changes are told of, or applied, at a timestamp that is taken only later: it is *appointed*, a little ahead, and others
//! are given those below it meanwhile. Appointments are kept in order, those that can be moved behind those that cannot.
//!
//! | | of | kept | if others come to need it |
//! |---|---|---|---|
//! | [`Appointment`] | a truncate, a drop of a range, an import: one at a time | once the manifest is synced | it is moved |
//! | [`Fixed`] | a bulk write, which is applied at it before | in the step that logs the commit | they wait |
//!
//! An `Appointment` is waited for by nobody who has the gate, and it waits for nobody but bulk writes that have the gate already;
//! so a `Fixed` one is made under the gate, and below an `Appointment` that is not about to be kept.

use crate::ceiling::SPARE_MICROS;
use crate::read::ReadView;
use oribi_env::Clock;
use oribi_env::locks::{self, Condvar, Mutex};
use oribi_types::{Error, Result, Timestamp};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// So far ahead of the clock is an appointment.
const APPOINTED_MICROS: u64 = 10_000;
/// So far ahead of the last timestamp, and of what others' clocks get them: 4,096 timestamps to a microsecond are more than are
/// taken in the two seconds that a sync of the manifest can last before the [ceiling](crate::ceiling), which needs another, lets
/// nobody have one.
const APPOINTED_OF_LAST_MICROS: u64 = 1_000;
/// Appointments are where timestamps are reserved.
const _: () = assert!(APPOINTED_MICROS < SPARE_MICROS);
/// No bulk write is appointed where others would have fewer timestamps before it.
const BEFORE_FIXED_MIN: u64 = 1 << 18;
/// Of those that there are, one part in so many is left to writes that are about to take theirs, when others begin to wait.
const SCARCE_PART: u64 = 4;
/// Bulk writes that have an appointment at a time.
const FIXED_MAX: usize = 16;

/// Looks at the watermark before others count as slow.
const SPINS: usize = 200;

pub(crate) struct Timeline {
    clock: Arc<dyn Clock>,
    watermark: AtomicU64,
    /// The highest timestamp taken; changed under the lock of `writes`.
    last: AtomicU64,
    /// No timestamp above this is given out.
    ceiling: AtomicU64,
    /// The same; 0 while timestamps before an appointment are scarce. Changed under the lock of `writes`.
    plenty_below: AtomicU64,
    writes: Mutex<Writes, { locks::WRITES }>,
    completed: Condvar,
    /// As `completed`, for who has no thread to wait with.
    arrived: Notify,
    /// Why the watermark moves no more, if so.
    stopped: OnceLock<Error>,
    /// Oldest first: new ones are at the watermark, as a rule, which only ascends. Registering allocates nothing then.
    snapshots: Mutex<Vec<Registered>, { locks::SNAPSHOTS }>,
}

/// The snapshots registered at one timestamp.
struct Registered {
    ts: Timestamp,
    count: usize,
    /// The earliest wall clock of them.
    now_micros: u64,
}

struct Writes {
    /// Timestamps taken, oldest first, and whether their writes have completed.
    in_flight: VecDeque<(Timestamp, bool)>,
    /// How many wait in `arrived`.
    awaited: usize,
    /// In order.
    appointed: Vec<Appointed>,
    /// Nobody's clock gets him a timestamp above this, because of the first of them.
    wall_max: Timestamp,
    /// From here on timestamps before the first that does not move are scarce.
    scarce_from: Timestamp,
    is_scarce: bool,
}

#[derive(Clone, Copy)]
struct Appointed {
    at: Timestamp,
    /// It is not moved.
    is_fixed: bool,
    /// It is about to be kept.
    is_due: bool,
}

impl Default for Writes {
    fn default() -> Self {
        Writes {
            in_flight: VecDeque::new(),
            awaited: 0,
            appointed: Vec::new(),
            wall_max: Timestamp::MAX,
            scarce_from: Timestamp::MAX,
            is_scarce: false,
        }
    }
}

impl Writes {
    /// The first appointment, or the first that does not move, is another than before; `last` is the highest timestamp taken.
    fn look_ahead(&mut self, last: Timestamp) {
        let first = self.appointed.first();
        self.wall_max = first.map_or(Timestamp::MAX, |first| {
            Timestamp::from_micros(first.at.micros() - APPOINTED_OF_LAST_MICROS)
        });
        let fixed = self.appointed.iter().find(|appointed| appointed.is_fixed);
        self.scarce_from = fixed.map_or(Timestamp::MAX, |fixed| {
            // Behind those that the clock gives by itself.
            let by_clock = Timestamp::from_micros(fixed.at.micros() - APPOINTED_OF_LAST_MICROS);
            let left = fixed.at.0.saturating_sub(last.max(by_clock).0);
            Timestamp(fixed.at.0 - left / SCARCE_PART)
        });
    }

    fn has(&self, at: Timestamp) -> bool {
        self.appointed.iter().any(|appointed| appointed.at == at)
    }
}

/// A timestamp at which a change will be made that has to be told of before, and takes a while until then. Others are given
/// timestamps below it meanwhile, and the watermark goes on with them. Dropped without being [kept](Self::keep), it is nobody's.
pub(crate) struct Appointment<'t> {
    timeline: &'t Timeline,
    at: Timestamp,
}

/// A timestamp at which a bulk write is applied before it is taken. It must be kept: what is applied would be seen otherwise once
/// others have come so far. If that fails, the engine stops.
pub(crate) struct Fixed<'t> {
    timeline: &'t Timeline,
    at: Timestamp,
}

impl Fixed<'_> {
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Until all that are before have been kept: by bulk writes that are applied and logged, and wait for nobody else.
    ///
    /// # Errors
    /// `Unavailable` if that is never.
    pub fn wait_for_turn(&self) -> Result<()> {
        let timeline = self.timeline;
        let mut writes = timeline.writes.lock();
        while writes.appointed.first().is_some_and(|first| first.at != self.at) {
            if let Some(error) = timeline.stopped.get() {
                return Err(error.clone());
            }
            timeline.completed.wait(&mut writes);
        }
        Ok(())
    }

    /// Takes the timestamp, to be [completed](Timeline::complete), when its turn has come. As [`begin`](Timeline::begin), under
    /// the log's mutex.
    pub fn keep(&self) -> Timestamp {
        let timeline = self.timeline;
        let mut writes = timeline.writes.lock();
        let is_first = writes.appointed.first().is_some_and(|first| first.at == self.at);
        assert!(is_first && timeline.last() < self.at, "others came before a bulk write that was applied");
        timeline.take(&mut writes, self.at);
        timeline.withdraw(&mut writes, self.at);
        self.at
    }
}

impl Appointment<'_> {
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Takes the timestamp, to be [completed](Timeline::complete): a later one if so many were taken that it is past. Bulk writes
    /// that come before it are waited for.
    pub fn keep(self) -> Timestamp {
        let timeline = self.timeline;
        let mut writes = timeline.writes.lock();
        // From here on others come behind.
        writes.appointed.iter_mut().filter(|own| own.at == self.at).for_each(|own| own.is_due = true);
        while writes.appointed.first().is_some_and(|first| first.at != self.at)
            && timeline.stopped.get().is_none()
        {
            timeline.completed.wait(&mut writes);
        }
        let ts = self.at.max(timeline.last().next());
        timeline.take(&mut writes, ts);
        timeline.withdraw(&mut writes, self.at);
        ts
    }
}

impl Drop for Appointment<'_> {
    fn drop(&mut self) {
        let mut writes = self.timeline.writes.lock();
        self.timeline.withdraw(&mut writes, self.at);
    }
}

/// Somebody who waits for the watermark without a thread.
struct Awaiting<'t>(&'t Timeline);

impl<'t> Awaiting<'t> {
    fn new(timeline: &'t Timeline) -> Self {
        timeline.writes.lock().awaited += 1;
        Awaiting(timeline)
    }
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.writes.lock().awaited -= 1;
    }
}

impl Timeline {
    /// All later timestamps are above `last`.
    pub fn new(clock: Arc<dyn Clock>, last: Timestamp) -> Self {
        Timeline {
            clock,
            watermark: AtomicU64::new(last.0),
            last: AtomicU64::new(last.0),
            // A higher one is due before the first timestamp.
            ceiling: AtomicU64::new(last.0),
            plenty_below: AtomicU64::new(last.0),
            writes: Mutex::default(),
            completed: Condvar::new(),
            arrived: Notify::new(),
            stopped: OnceLock::new(),
            snapshots: Mutex::default(),
        }
    }

    pub fn now_micros(&self) -> u64 {
        self.clock.now_micros()
    }

    /// Takes the next timestamp, by the wall clock as it was at `now_micros`; every call must be followed by
    /// [`complete`](Self::complete). Who takes an LSN too holds the log's mutex, so that timestamps are taken in log order.
    pub fn begin(&self, now_micros: u64) -> Timestamp {
        // A write that was held up after it had a timestamp reserved must not pass the ceiling.
        let reserved = self.ceiling().micros().saturating_sub(SPARE_MICROS);
        let wall = Timestamp::from_micros(now_micros.min(reserved));
        let mut writes = self.writes.lock();
        let ts = wall.min(writes.wall_max).max(self.last().next());
        if ts >= writes.scarce_from {
            self.become_scarce(&mut writes);
        }
        self.take(&mut writes, ts);
        ts
    }

    #[cold]
    fn become_scarce(&self, writes: &mut Writes) {
        writes.scarce_from = Timestamp::MAX;
        writes.is_scarce = true;
        self.plenty_below.store(0, Ordering::Release);
    }

    /// An appointment was kept, or is nobody's any more.
    fn withdraw(&self, writes: &mut Writes, at: Timestamp) {
        let is_first = writes.appointed.first().is_some_and(|first| first.at == at);
        writes.appointed.retain(|appointed| appointed.at != at);
        if is_first {
            writes.look_ahead(self.last());
            writes.is_scarce = false;
            self.plenty_below.store(self.ceiling().0, Ordering::Release);
        }
        self.completed.notify_all();
    }

    fn take(&self, writes: &mut Writes, ts: Timestamp) {
        self.last.store(ts.0, Ordering::Relaxed);
        writes.in_flight.push_back((ts, false));
    }

    /// As [`begin`](Self::begin), for a change that is to be told of before it is made. The caller has reserved timestamps at
    /// `now_micros`, and nobody else has such an appointment.
    pub fn appoint(&self, now_micros: u64) -> Appointment<'_> {
        let mut writes = self.writes.lock();
        debug_assert!(writes.appointed.iter().all(|appointed| appointed.is_fixed));
        let last = writes.appointed.last().map_or(self.last(), |last| last.at);
        let at = self.ahead(now_micros, last);
        writes.appointed.push(Appointed { at, is_fixed: false, is_due: false });
        if writes.appointed.len() == 1 {
            writes.look_ahead(self.last());
        }
        Appointment { timeline: self, at }
    }

    /// As [`appoint`](Self::appoint), for a bulk write that has the gate. `None` if there is no place for one.
    pub fn appoint_fixed(&self, now_micros: u64) -> Option<Fixed<'_>> {
        let mut writes = self.writes.lock();
        let stays = |appointed: &Appointed| appointed.is_fixed || appointed.is_due;
        if writes.appointed.len() >= FIXED_MAX {
            return None;
        }
        let before = writes.appointed.iter().rev().find(|appointed| stays(appointed));
        let before = before.map_or(self.last(), |before| before.at.max(self.last()));
        let mut at = self.ahead(now_micros, before);
        // Whoever has that may be waiting for the gate.
        if let Some(behind) = writes.appointed.iter().find(|appointed| !stays(appointed)) {
            at = at.min(Timestamp(before.0.midpoint(behind.at.0)));
        }
        let is_reserved = at.micros() + APPOINTED_OF_LAST_MICROS < self.ceiling().micros();
        if !is_reserved || at.0.saturating_sub(before.0) < BEFORE_FIXED_MIN {
            return None;
        }
        let place = writes.appointed.partition_point(|appointed| appointed.at < at);
        let is_first = !writes.appointed[..place].iter().any(|appointed| appointed.is_fixed);
        writes.appointed.insert(place, Appointed { at, is_fixed: true, is_due: false });
        if is_first {
            writes.look_ahead(self.last());
        }
        Some(Fixed { timeline: self, at })
    }

    /// A timestamp to be appointed behind `before`, by the wall clock as it was at `now_micros`.
    fn ahead(&self, now_micros: u64, before: Timestamp) -> Timestamp {
        let reserved = self.ceiling().micros().saturating_sub(SPARE_MICROS);
        let ahead = now_micros.min(reserved) + APPOINTED_MICROS;
        Timestamp::from_micros(ahead.max(before.micros() + 1 + APPOINTED_OF_LAST_MICROS))
    }

    /// Takes and completes a timestamp, by the wall clock as it will be at `micros`. Whether it is above `ts`: otherwise there is
    /// an appointment before that.
    pub fn pass(&self, ts: Timestamp, micros: u64) -> bool {
        let taken = self.begin(micros);
        self.complete(taken);
        taken > ts
    }

    /// Until what is the next appointment is none any more.
    ///
    /// # Errors
    /// `Unavailable` if the watermark moves no more.
    pub fn wait_for_appointment(&self) -> Result<()> {
        let mut writes = self.writes.lock();
        let next = writes.appointed.first().map(|first| first.at);
        while next.is_some_and(|next| writes.has(next)) {
            if let Some(error) = self.stopped.get() {
                return Err(error.clone());
            }
            self.completed.wait(&mut writes);
        }
        Ok(())
    }

    /// The write at `ts` is applied: moves the watermark over all leading completed writes. It may be called under a
    /// shard's lock, and so may [`horizon`](Self::horizon): whoever holds one of the locks in here asks for no other.
    pub fn complete(&self, ts: Timestamp) {
        let mut writes = self.writes.lock();
        let position = match writes.in_flight.front() {
            Some((oldest, _)) if *oldest == ts => 0,
            _ => writes.in_flight.partition_point(|(t, _)| *t < ts),
        };
        writes.in_flight[position].1 = true;
        let mut moved = None;
        while let Some((t, true)) = writes.in_flight.front() {
            moved = Some(*t);
            writes.in_flight.pop_front();
        }
        if let Some(ts) = moved {
            self.watermark.store(ts.0, Ordering::Release);
            self.completed.notify_all();
            if writes.awaited > 0 {
                self.arrived.notify_waiters();
            }
        }
    }

    /// Waits until the watermark has reached `ts`: other writes with lower timestamps are being applied to memory.
    ///
    /// # Errors
    /// `Unavailable` if it never will.
    #[inline]
    pub fn wait_for_watermark(&self, ts: Timestamp) -> Result<()> {
        if self.watermark() >= ts { Ok(()) } else { self.wait_for_others(ts) }
    }

    #[cold]
    fn wait_for_others(&self, ts: Timestamp) -> Result<()> {
        let mut writes = self.writes.lock();
        while self.watermark() < ts {
            if let Some(error) = self.stopped.get() {
                return Err(error.clone());
            }
            self.completed.wait(&mut writes);
        }
        Ok(())
    }

    /// Whether the watermark has reached `ts`, or does in a microsecond, as it mostly does.
    #[inline]
    pub fn is_at(&self, ts: Timestamp) -> bool {
        self.watermark() >= ts || self.is_soon_at(ts)
    }

    #[cold]
    fn is_soon_at(&self, ts: Timestamp) -> bool {
        (0..SPINS).any(|_| {
            std::hint::spin_loop();
            self.watermark() >= ts
        })
    }

    /// As [`wait_for_watermark`](Self::wait_for_watermark), without blocking the thread.
    ///
    /// # Errors
    /// As there.
    pub async fn reached(&self, ts: Timestamp) -> Result<()> {
        while self.watermark() < ts {
            let _awaiting = Awaiting::new(self);
            let mut arrived = pin!(self.arrived.notified());
            arrived.as_mut().enable();
            // Whoever moves it from here on sees that somebody waits.
            drop(self.writes.lock());
            if let Some(error) = self.stopped.get() {
                return Err(error.clone());
            }
            if self.watermark() < ts {
                arrived.await;
            }
        }
        Ok(())
    }

    /// Wakes everybody who waits for the watermark: a write that has begun may never complete.
    pub fn stop(&self, error: Error) {
        // Who stopped it first has told why.
        let _ = self.stopped.set(error);
        drop(self.writes.lock());
        self.completed.notify_all();
        self.arrived.notify_waiters();
    }

    pub fn watermark(&self) -> Timestamp {
        Timestamp(self.watermark.load(Ordering::Acquire))
    }

    pub fn ceiling(&self) -> Timestamp {
        Timestamp(self.ceiling.load(Ordering::Acquire))
    }

    /// Timestamps up to `ts` are reserved on disk.
    pub fn set_ceiling(&self, ts: Timestamp) {
        let writes = self.writes.lock();
        self.ceiling.store(ts.0, Ordering::Release);
        if !writes.is_scarce {
            self.plenty_below.store(ts.0, Ordering::Release);
        }
    }

    /// Whether an appointment is about to be kept.
    #[cfg(test)]
    pub fn is_due(&self, at: Timestamp) -> bool {
        self.writes.lock().appointed.iter().any(|appointed| appointed.at == at && appointed.is_due)
    }

    /// Below this there are timestamps for all who come.
    pub fn plenty_below(&self) -> Timestamp {
        Timestamp(self.plenty_below.load(Ordering::Acquire))
    }

    /// Whether there are few timestamps before an appointment that cannot be moved: who begins to write must wait for it.
    pub fn is_scarce(&self) -> bool {
        self.writes.lock().is_scarce
    }

    /// Whether all writes that have a timestamp by now are at or below `ts`, and complete.
    ///
    /// By the lock: whoever had seen a trace of another write, made after that took its timestamp or its appointment, finds it here.
    pub fn is_quiet_at(&self, ts: Timestamp) -> bool {
        let writes = self.writes.lock();
        // A bulk write takes its timestamp after its rows are applied, and has an appointment before.
        let is_bulk_under_way = writes.appointed.iter().any(|appointed| appointed.is_fixed);
        writes.in_flight.is_empty() && !is_bulk_under_way && self.last() <= ts
    }

    /// The highest timestamp taken so far.
    pub fn last(&self) -> Timestamp {
        Timestamp(self.last.load(Ordering::Relaxed))
    }

    /// Registers a snapshot at the watermark. The watermark is read under the registry's lock, so that the horizon
    /// cannot pass it in between.
    pub fn register(self: &Arc<Self>) -> Snapshot {
        let mut snapshots = self.snapshots.lock();
        let ts = self.watermark();
        let now_micros = self.clock.now_micros();
        match snapshots.last_mut().filter(|newest| newest.ts == ts) {
            Some(newest) => {
                newest.count += 1;
                newest.now_micros = newest.now_micros.min(now_micros);
            }
            None => snapshots.push(Registered { ts, count: 1, now_micros }),
        }
        Snapshot { timeline: self.clone(), ts, now_micros }
    }

    /// Registers a snapshot at `ts`, which is not above the watermark, with the clock at `now_micros` if that is past; `None` if it
    /// is below the horizon.
    pub fn register_at(self: &Arc<Self>, ts: Timestamp, now_micros: u64) -> Option<Snapshot> {
        let mut snapshots = self.snapshots.lock();
        let watermark = self.watermark();
        debug_assert!(ts <= watermark, "what comes after the watermark is not applied");
        if ts < snapshots.first().map_or(watermark, |oldest| oldest.ts) {
            return None;
        }
        let now_micros = self.clock.now_micros().min(now_micros);
        let i = snapshots.partition_point(|registered| registered.ts < ts);
        match snapshots.get_mut(i).filter(|registered| registered.ts == ts) {
            Some(registered) => {
                registered.count += 1;
                registered.now_micros = registered.now_micros.min(now_micros);
            }
            None => snapshots.insert(i, Registered { ts, count: 1, now_micros }),
        }
        Some(Snapshot { timeline: self.clone(), ts, now_micros })
    }

    /// Registers a snapshot at `ts`, before which there is none: of a timeline that is new, and of tables that have all
    /// that was there since.
    pub fn register_history(self: &Arc<Self>, ts: Timestamp) -> Snapshot {
        let mut snapshots = self.snapshots.lock();
        debug_assert!(snapshots.is_empty() && ts <= self.watermark());
        // By which clocks those judged that were there before is not known.
        snapshots.push(Registered { ts, count: 1, now_micros: 0 });
        Snapshot { timeline: self.clone(), ts, now_micros: self.clock.now_micros() }
    }

    /// No snapshot reads below this timestamp.
    pub fn horizon(&self) -> Timestamp {
        let snapshots = self.snapshots.lock();
        snapshots.first().map_or_else(|| self.watermark(), |oldest| oldest.ts)
    }

    /// No snapshot judges expiry by an earlier wall clock. The horizon does not tell: after an open, timestamps are
    /// ahead of the clock by what was reserved before.
    pub fn expiry_horizon_micros(&self) -> u64 {
        let snapshots = self.snapshots.lock();
        let now = self.clock.now_micros();
        snapshots.iter().map(|registered| registered.now_micros).fold(now, u64::min)
    }

    fn deregister(&self, ts: Timestamp) {
        let mut snapshots = self.snapshots.lock();
        let i = snapshots.partition_point(|registered| registered.ts < ts);
        snapshots[i].count -= 1;
        if snapshots[i].count == 0 {
            snapshots.remove(i);
        }
    }
}

/// A registered read timestamp: what it sees stays readable until it is dropped.
pub struct Snapshot {
    timeline: Arc<Timeline>,
    ts: Timestamp,
    now_micros: u64,
}

impl Snapshot {
    pub fn ts(&self) -> Timestamp {
        self.ts
    }

    /// The wall clock by which rows are judged expired, in microseconds since the Unix epoch.
    pub fn now_micros(&self) -> u64 {
        self.now_micros
    }

    /// What point reads at the snapshot go by, as long as it lives.
    pub fn view(&self) -> ReadView {
        ReadView { ts: self.ts, now_micros: self.now_micros, registered: true }
    }
}

impl Clone for Snapshot {
    /// Another, registered by itself, that sees the same.
    fn clone(&self) -> Self {
        let mut snapshots = self.timeline.snapshots.lock();
        let i = snapshots.partition_point(|registered| registered.ts < self.ts);
        // It is there, with a wall clock no later than this one's.
        snapshots[i].count += 1;
        Snapshot { timeline: self.timeline.clone(), ts: self.ts, now_micros: self.now_micros }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.timeline.deregister(self.ts);
    }
}
