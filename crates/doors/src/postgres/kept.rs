//! Memory of what clients have kept under names, prepared statements and portals: bounded for each connection and for all.
//! The unnamed ones, of which a connection has one each, are as long as one message and are not counted.

use super::error;
use metrics::gauge;
use oribi_session::sql::SqlError;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a statement takes for each byte of its text, about: statements of 1 MiB were measured to take 3.4 MiB.
const BYTES_PER_BYTE: usize = 4;
/// What a statement or a portal takes besides.
const BESIDES_BYTES: usize = 1024;

/// Bytes that a prepared statement counts as, beside its plan.
pub fn statement_bytes(name: &str, sql: &str) -> usize {
    BESIDES_BYTES + name.len() + BYTES_PER_BYTE * sql.len()
}

/// Bytes that a portal counts as whose values have so many.
pub fn portal_bytes(name: &str, values: usize) -> usize {
    BESIDES_BYTES + name.len() + values
}

/// Room for what clients have kept.
pub struct Shelf {
    used: AtomicUsize,
    bytes_max: usize,
    /// That of all connections, if this is one's.
    of: Option<Arc<Shelf>>,
}

/// Bytes that count until this is dropped.
#[derive(Default)]
pub struct Room {
    shelf: Option<Arc<Shelf>>,
    bytes: usize,
}

impl Shelf {
    /// Of all connections together.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Shelf { used: AtomicUsize::new(0), bytes_max, of: None })
    }

    /// Of one connection, within that of all.
    pub fn of_connection(all: &Arc<Shelf>, bytes_max: usize) -> Arc<Self> {
        Arc::new(Shelf { used: AtomicUsize::new(0), bytes_max, of: Some(all.clone()) })
    }

    /// Room for so many bytes under this name; what has none is not counted.
    ///
    /// # Errors
    /// 54000 if this connection keeps too much, 53200 if all do together.
    pub fn take(self: &Arc<Self>, name: &str, bytes: impl FnOnce() -> usize) -> Result<Room, SqlError> {
        if name.is_empty() {
            return Ok(Room::default());
        }
        let bytes = bytes();
        if !self.add(bytes) {
            return Err(error::connection_keeps_too_much(self.bytes_max));
        }
        if let Some(all) = self.of.as_ref().filter(|all| !all.add(bytes)) {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(error::connections_keep_too_much(all.bytes_max));
        }
        gauge!("oribi_postgres_kept_bytes").increment(bytes as f64);
        Ok(Room { shelf: Some(self.clone()), bytes })
    }

    fn add(&self, bytes: usize) -> bool {
        let add = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.bytes_max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let Some(shelf) = &self.shelf else { return };
        for shelf in [Some(shelf), shelf.of.as_ref()].into_iter().flatten() {
            shelf.used.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        gauge!("oribi_postgres_kept_bytes").decrement(self.bytes as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_counts_until_it_goes() {
        let all = Shelf::new(100);
        let [one, other] = [Shelf::of_connection(&all, 80), Shelf::of_connection(&all, 80)];
        let used = || [&all, &one, &other].map(|shelf| shelf.used.load(Ordering::Relaxed));
        let state = |taken: Result<Room, SqlError>| taken.err().and_then(|error| error.sqlstate).unwrap();
        let kept = one.take("a", || 60).ok().unwrap();
        assert_eq!(state(one.take("b", || 21)), "54000");
        assert_eq!(state(other.take("a", || 41)), "53200");
        assert_eq!(state(other.take("a", || usize::MAX)), "54000");
        assert_eq!(used(), [60, 60, 0]);
        let more = other.take("a", || 40).ok().unwrap();
        let unnamed = other.take("", || usize::MAX).ok().unwrap();
        assert_eq!(used(), [100, 60, 40]);
        drop((kept, unnamed));
        assert_eq!(used(), [40, 0, 40]);
        drop(more);
        assert_eq!(used(), [0; 3]);
    }
}
