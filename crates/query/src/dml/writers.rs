//! Statements on their way into one table take turns, so that they neither disturb each other again and again nor take all threads.
//!
//! Those that read before they write make a first attempt beside all others. A statement that found its rows changed goes on alone
//! among the statements of its kind, so that what is left to disturb it are point writes: see [`rounds`](super::rounds).
//!
//! Those that wait for the rows of a table with a thread have a place each; more of them wait without one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, RwLock, Semaphore};

/// Threads that write to one table, or wait until they may. They take most of its latches each, so that few get on at a time; what
/// they read from files before, they read beside each other.
pub(crate) const PLACES: usize = 16;

/// What the statements about each table share.
#[derive(Default)]
pub(crate) struct Writers(Mutex<HashMap<u64, Line>>);

#[derive(Clone)]
struct Line {
    /// Held by none of the engine's own threads.
    turn: Arc<RwLock<()>>,
    places: Arc<Semaphore>,
}

impl Default for Line {
    fn default() -> Self {
        Line { turn: Arc::default(), places: Arc::new(Semaphore::new(PLACES)) }
    }
}

impl Writers {
    /// Waits for leave to read and write rows of a table beside others.
    pub(crate) async fn beside(&self, table: u64) -> OwnedRwLockReadGuard<()> {
        self.of(table).turn.read_owned().await
    }

    /// Waits for leave to do so alone.
    pub(crate) async fn alone(&self, table: u64) -> OwnedRwLockWriteGuard<()> {
        self.of(table).turn.write_owned().await
    }

    /// Waits for a place among the threads that may wait for a table's rows, which come in the order in which they were asked for.
    pub(crate) async fn place(&self, table: u64) -> OwnedSemaphorePermit {
        self.of(table).places.acquire_owned().await.expect("there are places as long as there are writers")
    }

    fn of(&self, table: u64) -> Line {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(table).or_default().clone()
    }
}
