//! What runs by itself: flushes, compactions, trimming the log, reserving timestamps.
//!
//! Two threads coordinate at normal priority, because they take locks that writers take; the heavy part of each job
//! runs at idle priority. Flushes never wait for compactions.

use crate::catalog::Table;
use crate::engine::Engine;
use crate::tablet::Tablet;
use oribi_env::Priority;
use oribi_types::{ErrorKind, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the threads look without being woken.
const TICK: Duration = Duration::from_millis(50);

type Job = fn(&Engine) -> Result<()>;

#[derive(Default)]
pub(crate) struct Background {
    woken: AtomicBool,
    stopped: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
    pub threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Background {
    pub fn start(engine: &Arc<Engine>) -> Result<()> {
        let jobs: [(&str, Job); 2] =
            [("oribi-flush", Engine::flush_tick), ("oribi-compact", Engine::compaction_tick)];
        for (name, job) in jobs {
            let engine_ref = Arc::downgrade(engine);
            let thread = oribi_env::spawn(name, Priority::Normal, move || run(name, &engine_ref, job))?;
            engine.background.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Has the flush thread look now. Cheap to call again and again.
    pub fn wake(&self) {
        if !self.woken.swap(true, Relaxed) {
            drop(self.lock.lock());
            self.wake.notify_all();
        }
    }

    fn sleep(&self) {
        let mut guard = self.lock.lock();
        if !self.woken.swap(false, Relaxed) && !self.stopped.load(Relaxed) {
            self.wake.wait_for(&mut guard, TICK);
        }
    }

    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
        drop(self.lock.lock());
        self.wake.notify_all();
        let current = std::thread::current().id();
        for thread in self.threads.lock().drain(..) {
            thread.thread().unpark();
            // The last handle of an engine may be dropped by its own thread.
            if thread.thread().id() != current && thread.join().is_err() {
                tracing::error!("a background thread panicked");
            }
        }
    }
}

fn run(name: &str, engine: &Weak<Engine>, job: Job) {
    loop {
        let Some(engine) = engine.upgrade() else { return };
        if engine.background.stopped.load(Relaxed) {
            return;
        }
        if let Err(error) = job(&engine) {
            // The rows stay in memory and the log; the next tick tries again, unless the log has stopped.
            tracing::error!(%error, "{name} failed");
            std::thread::sleep(TICK);
        }
        engine.background.sleep();
    }
}

impl Engine {
    /// Flushes what is due: a large memtable, the largest one when memory is short, the oldest when the log is long.
    fn flush_tick(&self) -> Result<()> {
        let flushed = self.flush_all_due();
        self.budget.set_stalled(flushed.as_ref().err().cloned());
        flushed
    }

    fn flush_all_due(&self) -> Result<()> {
        self.raise_ceiling()?;
        while let Some((table, tablet)) = self.flush_due() {
            self.flush_tablet(&table, &tablet)?;
            self.trim_log()?;
            if self.background.stopped.load(Relaxed) {
                return Ok(());
            }
        }
        self.index.evict_excess();
        Ok(())
    }

    fn flush_due(&self) -> Option<(Arc<Table>, Arc<Tablet>)> {
        let catalog = self.catalog();
        let mut tablets: Vec<(Arc<Table>, Arc<Tablet>, u64, u64)> = Vec::new();
        for table in catalog.all_tables() {
            for tablet in &table.tablets {
                let state = tablet.state();
                let bytes = state.memtables().map(|m| m.bytes()).sum();
                let first = state.memtables().map(|m| m.first_lsn()).min().unwrap_or(u64::MAX);
                if first < u64::MAX {
                    tablets.push((table.clone(), tablet.clone(), bytes, first));
                }
            }
        }
        let largest = tablets.iter().max_by_key(|(_, _, bytes, _)| *bytes)?;
        if largest.2 > self.options.flush_bytes_max || self.budget.wants_flush() {
            return Some((largest.0.clone(), largest.1.clone()));
        }
        if self.log.size_bytes() > self.options.log_bytes_max {
            let oldest = tablets.iter().min_by_key(|(_, _, _, first)| *first)?;
            return Some((oldest.0.clone(), oldest.1.clone()));
        }
        None
    }

    fn compaction_tick(&self) -> Result<()> {
        for table in self.catalog().all_tables() {
            for tablet in &table.tablets {
                while self.compact_if_worth(table, tablet)? {
                    if self.background.stopped.load(Relaxed) {
                        return Ok(());
                    }
                }
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
        for table in self.catalog().all_tables() {
            match self.flush(table) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.trim_log()?;
        self.lower_ceiling()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.budget.close();
        self.background.stop();
    }
}
