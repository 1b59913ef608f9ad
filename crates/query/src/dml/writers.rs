//! Statements that read before they write take turns when they disturb each other.
//!
//! A first attempt runs beside all others. A statement that found its rows changed [`PATIENCE`] times runs alone among
//! the statements of its kind, so under any load from SQL it ends; only writes through other doors can still disturb
//! it, and after [`ATTEMPTS_MAX`] it gives up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

const PATIENCE: usize = 2;

/// Attempts after which a statement reports that it could not be serialized (40001).
pub(crate) const ATTEMPTS_MAX: usize = 50;

/// A lock per table that has such statements, held by none of the engine's own threads.
#[derive(Default)]
pub(crate) struct Writers(Mutex<HashMap<u64, Arc<RwLock<()>>>>);

/// Leave to make one attempt.
pub(crate) enum Turn {
    Beside { _guard: OwnedRwLockReadGuard<()> },
    Alone { _guard: OwnedRwLockWriteGuard<()> },
}

impl Writers {
    /// Waits for leave to make the `attempt`th attempt (from 0) on a table.
    pub(crate) async fn turn(&self, table: u64, attempt: usize) -> Turn {
        let lock =
            Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(table).or_default());
        if attempt < PATIENCE {
            Turn::Beside { _guard: lock.read_owned().await }
        } else {
            Turn::Alone { _guard: lock.write_owned().await }
        }
    }
}
