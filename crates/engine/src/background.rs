//! What runs by itself: flushes, compactions, trimming the log, reserving timestamps, huge pages, telling the store.
//!
//! Four threads, five where there is a store, coordinate at normal priority, because they take locks that writers take; the heavy part of each job
//! runs at idle priority. Flushes never wait for compactions, and the ceiling for neither.

use crate::catalog::Table;
use crate::engine::Engine;
use crate::expiry::Looks;
use crate::pages::Ages;
use crate::tablet::{LiveFile, Tablet, TabletId};
use crate::trouble::{Part, Troubles};
use oribi_env::Priority;
use oribi_env::locks::{self, Condvar, Mutex};
use oribi_types::{Error, Result};
use oribi_wal::Lsn;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often most threads look without being woken.
const TICK: Duration = Duration::from_millis(50);
/// How long a tablet whose job failed is left alone: at first, and after failing again and again, each pause being
/// twice the one before.
const PAUSE_MICROS: u64 = 100_000;
const PAUSE_MICROS_MAX: u64 = 5_000_000;
/// A quiet memtable below this size is left in memory. A flush syncs some five files and folders, which a trickle of writes is
/// not worth, and a scan of these few thousand rows takes a millisecond.
const QUIET_BYTES_MIN: u64 = 1 << 20;

#[derive(Default)]
pub(crate) struct Background {
    stopped: AtomicBool,
    flush: Alarm,
    compaction: Alarm,
    ceiling: Alarm,
    /// Somebody needs a timestamp, after a pause in which none was reserved.
    needs_ceiling: AtomicBool,
    pages: Alarm,
    publish: Alarm,
    pub troubles: Troubles,
    threads: Mutex<Vec<JoinHandle<()>>, { locks::LEAF }>,
}

/// What a thread sleeps by.
#[derive(Default)]
struct Alarm {
    rung: AtomicBool,
    lock: Mutex<(), { locks::LEAF }>,
    wake: Condvar,
}

impl Alarm {
    fn ring(&self) {
        if !self.rung.swap(true, Relaxed) {
            drop(self.lock.lock());
            self.wake.notify_all();
        }
    }

    /// Until it rings, for so long at most.
    fn sleep(&self, max: Duration) {
        let mut guard = self.lock.lock();
        if !self.rung.swap(false, Relaxed) {
            self.wake.wait_for(&mut guard, max);
            self.rung.store(false, Relaxed);
        }
    }
}

impl Background {
    pub fn start(engine: &Arc<Engine>) -> Result<()> {
        let mut failures = Failures::default();
        let flush = move |engine: &Engine| {
            engine.flush_tick(&mut failures);
            Ok(TICK)
        };
        let (mut failures, mut looks) = (Failures::default(), Looks::default());
        let compact = move |engine: &Engine| {
            engine.compaction_tick(&mut failures, &mut looks)?;
            Ok(TICK)
        };
        spawn(engine, "oribi-flush", |background| &background.flush, flush)?;
        spawn(engine, "oribi-compact", |background| &background.compaction, compact)?;
        let mut ages = Ages::default();
        let pages = move |engine: &Engine| Ok(engine.back_by_huge_pages(&mut ages));
        let mut retry = Retry::default();
        let ceiling = move |engine: &Engine| {
            engine.look_for_space(&mut retry);
            let is_wanted = engine.background.needs_ceiling.swap(false, Relaxed);
            if !engine.manifest.has_failed() {
                engine.raise_ceiling(is_wanted)?;
            }
            Ok(TICK)
        };
        if engine.published.is_some() {
            let publish = |engine: &Engine| Ok(engine.publish_tick());
            spawn(engine, "oribi-publish", |background| &background.publish, publish)?;
        }
        spawn(engine, "oribi-pages", |background| &background.pages, pages)?;
        spawn(engine, "oribi-ceiling", |background| &background.ceiling, ceiling)
    }

    /// Has the flush thread look now. Cheap to call again and again.
    pub fn wake(&self) {
        self.flush.ring();
    }

    /// Has timestamps reserved; whether there is a thread for that.
    pub fn reserves(&self) -> bool {
        self.needs_ceiling.store(true, Relaxed);
        self.ceiling.ring();
        !self.threads.lock().is_empty()
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
        for alarm in [&self.flush, &self.compaction, &self.ceiling, &self.pages, &self.publish] {
            alarm.ring();
        }
        let current = std::thread::current().id();
        for thread in self.threads.lock().drain(..) {
            // The last handle of an engine may be dropped by its own thread.
            if thread.thread().id() != current && thread.join().is_err() {
                tracing::error!("a background thread panicked");
            }
        }
    }
}

/// Starts a thread that does `job` again and again: when its alarm rings, and after as long as the job says.
fn spawn(
    engine: &Arc<Engine>,
    name: &'static str,
    alarm: fn(&Background) -> &Alarm,
    mut job: impl FnMut(&Engine) -> Result<Duration> + Send + 'static,
) -> Result<()> {
    let (engine_ref, background) = (Arc::downgrade(engine), engine.background.clone());
    let run = move || {
        while !background.stopped.load(Relaxed) {
            let Some(engine) = engine_ref.upgrade() else { return };
            let whole = engine.stop_on_panic(name);
            let rest = job(&engine).unwrap_or_else(|error| {
                tracing::error!(%error, "{name} failed");
                std::thread::sleep(TICK);
                TICK
            });
            // An engine that nobody has any more does not wait for its thread to wake.
            drop(whole);
            drop(engine);
            alarm(&background).sleep(rest);
        }
    };
    let thread = oribi_env::spawn(name, Priority::Normal, run)?;
    engine.background.threads.lock().push(thread);
    Ok(())
}

/// Tablets whose last job failed. They are left alone for a while, so that the others have their turn and a full disk
/// is not written to over and over. Their rows stay in memory and the log.
#[derive(Default)]
struct Failures(HashMap<TabletId, Failure>);

/// When what could not be written is tried again, by the monotonic clock.
#[derive(Default)]
struct Retry {
    again_micros: u64,
    pause_micros: u64,
}

impl Retry {
    /// So long space may be there before it is seen.
    const PAUSE_MICROS_MAX: u64 = 1_000_000;

    fn is_due(&self, now_micros: u64) -> bool {
        now_micros >= self.again_micros
    }

    fn failed(&mut self, now_micros: u64) {
        self.pause_micros = (2 * self.pause_micros).clamp(PAUSE_MICROS, Self::PAUSE_MICROS_MAX);
        self.again_micros = now_micros + self.pause_micros;
    }
}

struct Failure {
    error: Error,
    /// By the monotonic clock.
    again_micros: u64,
    pause_micros: u64,
}

impl Failures {
    /// The error of a tablet that is to be left alone at `now_micros`.
    fn paused(&self, tablet: TabletId, now_micros: u64) -> Option<&Error> {
        self.0.get(&tablet).filter(|failure| now_micros < failure.again_micros).map(|failure| &failure.error)
    }

    /// The tablets that there are no more have failed for the last time.
    fn keep(&mut self, exists: impl Fn(TabletId) -> bool) {
        self.0.retain(|tablet, _| exists(*tablet));
    }

    /// One of the errors.
    fn first(&self) -> Option<&Error> {
        self.0.values().next().map(|failure| &failure.error)
    }

    fn any_paused(&self, now_micros: u64) -> bool {
        self.0.values().any(|failure| now_micros < failure.again_micros)
    }

    /// Notes how a job went; says whether well.
    fn note(&mut self, table: &Table, tablet: TabletId, now_micros: u64, result: Result<()>) -> bool {
        let Err(error) = result else {
            self.0.remove(&tablet);
            return true;
        };
        let error = error.context(format!("table \"{}.{}\"", table.schema_name(), table.name()));
        tracing::error!(%error, tablet, "a flush or compaction failed, and is tried again");
        let before = self.0.get(&tablet).map_or(PAUSE_MICROS / 2, |failure| failure.pause_micros);
        let pause_micros = (before * 2).min(PAUSE_MICROS_MAX);
        self.0.insert(tablet, Failure { error, again_micros: now_micros + pause_micros, pause_micros });
        false
    }
}

/// A tablet with rows in memory that no SSTable has.
struct Unflushed {
    table: Arc<Table>,
    tablet: Arc<Tablet>,
    bytes: u64,
    first_lsn: Lsn,
    has_sealed: bool,
    /// Since when nobody writes to it, by the monotonic clock.
    quiet_since: u64,
}

/// What is flushed next.
struct Due {
    table: Arc<Table>,
    tablet: Arc<Tablet>,
    /// Only what was sealed some time ago.
    sealed: bool,
}

impl Engine {
    /// Flushes what is due: a large memtable, the largest one when memory is short, the oldest when the log is long, and one
    /// that nobody writes to any more.
    fn flush_tick(&self, failures: &mut Failures) {
        self.measure_indexes();
        self.measure_held();
        self.results.sweep();
        self.end_silent_transactions();
        self.flush_all_due(failures);
        self.tell_of(Part::Flush, failures);
        self.trim_long_log();
        if failures.any_paused(self.env.clock.monotonic_micros()) {
            // Writers to a large memtable ring at every write.
            std::thread::sleep(TICK);
        }
    }

    /// Notes whether a job of some tablet fails.
    fn tell_of(&self, part: Part, failures: &mut Failures) {
        if failures.0.is_empty() {
            return self.background.troubles.set(part, None);
        }
        let catalog = self.catalog();
        let exists =
            |id| catalog.all_tables().any(|table| table.tablets.iter().any(|tablet| tablet.id == id));
        failures.keep(exists);
        self.background.troubles.set(part, failures.first().cloned());
    }

    /// Where the disk was full: begins the manifest anew, and has the log reserve its next segment, once there is space.
    fn look_for_space(&self, retry: &mut Retry) {
        let now_micros = self.env.clock.monotonic_micros();
        if !retry.is_due(now_micros) {
            return;
        }
        let (manifest, log) = (self.manifest.retry(), self.log.room());
        match manifest.and(log) {
            Ok(()) => *retry = Retry::default(),
            Err(_) => retry.failed(now_micros),
        }
        self.settle_given_up();
    }

    /// Trims a long log where no flush does: of writes that change nothing and have results, and of tables that were dropped.
    fn trim_long_log(&self) {
        if self.log.size_bytes() <= self.options.log_bytes_max || self.manifest.has_failed() {
            return;
        }
        let now_micros = self.env.clock.monotonic_micros();
        let unflushed = self.unflushed(now_micros).iter().map(|u| u.first_lsn).min();
        let start = unflushed.unwrap_or(u64::MAX).min(self.log.durable() + 1);
        if self.log.is_trimmable(start)
            && let Err(error) = self.trim_log()
        {
            tracing::warn!(%error, "cannot trim the log");
        }
    }

    fn flush_all_due(&self, failures: &mut Failures) {
        self.seal_ahead();
        while let Some(Due { table, tablet, sealed }) = self.flush_due(failures) {
            let flushed = match sealed {
                true => self.flush_sealed_tablet(&table, &tablet),
                false => self.flush_tablet(&table, &tablet),
            };
            // Here too: under steady writes the next tick is long in coming.
            self.measure_indexes();
            if !failures.note(&table, tablet.id, self.env.clock.monotonic_micros(), flushed) {
                // Before writers are refused for it.
                self.tell_of(Part::Flush, failures);
            } else if let Err(error) = self.trim_log() {
                tracing::warn!(%error, "cannot trim the log");
            }
            if self.background.stopped.load(Relaxed) {
                return;
            }
        }
        self.index.evict_excess();
    }

    /// The next tablet to flush, of those that are not paused. Tells the budget what the others hold.
    fn flush_due(&self, failures: &Failures) -> Option<Due> {
        // Before the tablets are asked: what is written meanwhile must not look stuck.
        let memtables = self.budget.memtables();
        let now_micros = self.env.clock.monotonic_micros();
        let (mut ready, mut first_paused, mut why) = (Vec::new(), u64::MAX, None);
        for unflushed in self.unflushed(now_micros) {
            match failures.paused(unflushed.tablet.id, now_micros) {
                None => ready.push(unflushed),
                Some(error) => {
                    first_paused = first_paused.min(unflushed.first_lsn);
                    why = Some(error.clone());
                }
            }
        }
        let flushable: u64 = ready.iter().map(|u| u.bytes).sum();
        let stuck = if why.is_some() { memtables.saturating_sub(flushable) } else { 0 };
        self.budget.set_stuck(stuck, why);
        let largest = ready.iter().max_by_key(|u| u.bytes)?;
        let large = ready.iter().filter(|u| u.bytes > self.flush_bytes_max(&u.table)).max_by_key(|u| u.bytes);
        let oldest = ready.iter().min_by_key(|u| u.first_lsn)?;
        // What a paused tablet keeps of the log is not shortened by flushing others.
        let long = self.log.size_bytes() > self.options.log_bytes_max && oldest.first_lsn < first_paused;
        let (due, sealed) = if let Some(large) = large {
            (large, false)
        } else if self.budget.wants_flush() {
            (largest, false)
        } else if long {
            (oldest, oldest.has_sealed)
        } else {
            (ready.iter().filter(|u| self.is_quiet(u, now_micros)).max_by_key(|u| u.bytes)?, false)
        };
        Some(Due { table: due.table.clone(), tablet: due.tablet.clone(), sealed })
    }

    /// Whether what was written to a tablet is worth a file, and seems to be complete. Rows of a key-value table are read one
    /// by one, and overwritten some time.
    fn is_quiet(&self, unflushed: &Unflushed, now_micros: u64) -> bool {
        let quiet_micros = now_micros.saturating_sub(unflushed.quiet_since);
        let is_worth_it = unflushed.bytes >= QUIET_BYTES_MIN && !unflushed.table.is_key_value();
        is_worth_it && quiet_micros >= self.options.flush_quiet_ms.saturating_mul(1000)
    }

    /// Seals the rows of key-value tables that the older half of the log has. When the log is long they are flushed, and
    /// those of the younger half are not: of the older, only those are left that nobody has overwritten meanwhile. A row
    /// that is written more often than that never comes into a file.
    fn seal_ahead(&self) {
        if self.log.size_bytes() <= self.options.log_bytes_max / 2 {
            return;
        }
        let now_micros = self.env.clock.monotonic_micros();
        for unflushed in self.unflushed(now_micros).iter().filter(|u| u.table.is_key_value() && !u.has_sealed)
        {
            // Else it is being flushed.
            if let Some(_flush) = unflushed.tablet.flush.try_lock() {
                self.seal_tablet(&unflushed.tablet);
            }
        }
    }

    /// A memtable of this size is flushed. Rows of a key-value table are overwritten again and again, which costs no memory:
    /// it is flushed when the log is long or memory short.
    pub(crate) fn flush_bytes_max(&self, table: &Table) -> u64 {
        if table.is_key_value() { u64::MAX } else { self.options.flush_bytes_max }
    }

    /// The tablets with rows in memory only, looked at at `now_micros`.
    fn unflushed(&self, now_micros: u64) -> Vec<Unflushed> {
        let catalog = self.catalog();
        let tablets = catalog.all_tables().flat_map(|table| table.tablets.iter().map(move |t| (table, t)));
        let unflushed = tablets.map(|(table, tablet)| {
            let state = tablet.state();
            let bytes = state.memtables().map(|m| m.bytes()).sum();
            let first_lsn = state.memtables().map(|m| m.first_lsn()).min().unwrap_or(u64::MAX);
            let has_sealed = !state.sealed.is_empty();
            let quiet_since = state.active.quiet_since(now_micros);
            let (table, tablet) = (table.clone(), tablet.clone());
            Unflushed { table, tablet, bytes, first_lsn, has_sealed, quiet_since }
        });
        unflushed.filter(|u| u.first_lsn < u64::MAX).collect()
    }

    /// Tells the budget what the indexes of the live SSTables take, and their marks.
    fn measure_indexes(&self) {
        let catalog = self.catalog();
        let tablets = catalog.all_tables().flat_map(|table| &table.tablets);
        let bytes = tablets.map(|tablet| {
            let files = &tablet.state().files.files;
            let of_file = |file: &Arc<LiveFile>| file.sstable.memory_bytes() + file.deletions.memory_bytes();
            files.iter().map(|file| of_file(file) as u64).sum::<u64>()
        });
        self.budget.set_indexes(bytes.sum());
    }

    fn compaction_tick(&self, failures: &mut Failures, looks: &mut Looks) -> Result<()> {
        let monotonic_micros = || self.env.clock.monotonic_micros();
        looks.forget_old(self.timeline.now_micros());
        self.tell_of(Part::Compaction, failures);
        for table in self.catalog().all_tables() {
            for tablet in &table.tablets {
                if failures.paused(tablet.id, monotonic_micros()).is_some() {
                    continue;
                }
                let compacted = self.compact_while_worth(table, tablet, looks);
                failures.note(table, tablet.id, monotonic_micros(), compacted);
                if self.background.stopped.load(Relaxed) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn compact_while_worth(&self, table: &Table, tablet: &Tablet, looks: &mut Looks) -> Result<()> {
        while self.compact_if_worth(table, tablet, looks)? {
            if self.background.stopped.load(Relaxed) {
                break;
            }
        }
        Ok(())
    }

    /// Flushes everything and stops. Writes fail from here on.
    ///
    /// # Errors
    /// Those of a flush: the rows are then in the log only, which is enough.
    pub fn close(&self) -> Result<()> {
        if self.closed.swap(true, Relaxed) {
            return Ok(());
        }
        self.budget.close();
        self.background.stop();
        self.end_all_kept("the engine is closed");
        for table in self.catalog().all_tables() {
            match self.flush(table) {
                // Of a table that was dropped meanwhile the folder may be gone.
                Err(_) if self.latest(table.id()).is_none() => {}
                flushed => flushed?,
            }
        }
        self.trim_log()?;
        self.lower_ceiling()?;
        self.publish_last()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.budget.close();
        self.background.stop();
    }
}
