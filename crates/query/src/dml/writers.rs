//! Statements that read before they write take turns when they disturb each other.
//!
//! A first attempt is made beside all others. A statement that found its rows changed goes on alone among the statements
//! of its kind, so that what is left to disturb it are point writes: see [`rounds`](super::rounds).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// A lock per table that has such statements, held by none of the engine's own threads.
#[derive(Default)]
pub(crate) struct Writers(Mutex<HashMap<u64, Arc<RwLock<()>>>>);

impl Writers {
    /// Waits for leave to read and write rows of a table beside others.
    pub(crate) async fn beside(&self, table: u64) -> OwnedRwLockReadGuard<()> {
        self.of(table).read_owned().await
    }

    /// Waits for leave to do so alone.
    pub(crate) async fn alone(&self, table: u64) -> OwnedRwLockWriteGuard<()> {
        self.of(table).write_owned().await
    }

    fn of(&self, table: u64) -> Arc<RwLock<()>> {
        Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(table).or_default())
    }
}
