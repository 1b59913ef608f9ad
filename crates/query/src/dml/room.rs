//! Memory for the rows of one statement.

use super::check_size;
use crate::context::QueryEngine;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use oribi_engine::Engine;
use oribi_session::sql::SqlError;
use std::sync::{Arc, OnceLock};

/// What a statement keeps in memory: at most `statement_bytes_max`, and no more than queries may hold together.
pub(crate) struct Room {
    engine: Arc<Engine>,
    pool: Arc<dyn MemoryPool>,
    reservation: OnceLock<MemoryReservation>,
}

/// Reservations grow by this much. Statements with less are not worth a turn at the pool, which all queries share.
const STEP_BYTES: usize = 256 << 10;

impl Room {
    pub(crate) fn new(query: &QueryEngine) -> Self {
        let (engine, pool) = (Arc::clone(query.engine()), Arc::clone(query.memory_pool()));
        Room { engine, pool, reservation: OnceLock::new() }
    }

    /// Whether `bytes` in all are not too many. Takes no lock, so it may be asked while rows are latched; what grows
    /// there is bounded, though not counted.
    ///
    /// # Errors
    /// `TooLarge` (54000).
    pub(crate) fn check(&self, bytes: usize) -> Result<(), SqlError> {
        check_size(&self.engine, bytes)
    }

    /// Makes room for `bytes` in all.
    ///
    /// # Errors
    /// `TooLarge`: 54000 beyond `statement_bytes_max`, 53200 if the memory is in use.
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), SqlError> {
        self.check(bytes)?;
        self.reserve(bytes)
    }

    /// Makes room for `bytes` in all, of which some are not the statement's to be written.
    ///
    /// # Errors
    /// `TooLarge`, 53200, if the memory is in use.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), SqlError> {
        let steps = bytes / STEP_BYTES * STEP_BYTES;
        if steps == 0 {
            return Ok(());
        }
        let register = || MemoryConsumer::new("rows of a statement").register(&self.pool);
        let reservation = self.reservation.get_or_init(register);
        if steps <= reservation.size() {
            return Ok(());
        }
        reservation.try_resize(steps).map_err(QueryEngine::error)
    }
}
