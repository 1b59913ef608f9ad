//! Writes whose rows others have stand in line, one line for each table. The first in line waits with a thread, in the order in which
//! writes ask for their rows; those behind it wait without one. To have all of them wait so would leave no thread to those who
//! only read; to try each again and again would read its rows as often, and let others overtake it for ever.

use oribi_net::BLOCKING_THREADS_MAX;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Threads that wait at a time, of those that a serving thread has for what takes its time.
const FIRSTS_MAX: usize = 6;
const _: () = assert!(FIRSTS_MAX < BLOCKING_THREADS_MAX);

/// The lines at one serving thread.
pub(super) struct Lines {
    /// By table: those at which somebody stands.
    lines: Mutex<HashMap<u64, Arc<Semaphore>>>,
    firsts: Arc<Semaphore>,
}

/// The first in line, until this is dropped.
pub(super) struct First {
    _of_table: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Default for Lines {
    fn default() -> Self {
        Lines { lines: Mutex::default(), firsts: Arc::new(Semaphore::new(FIRSTS_MAX)) }
    }
}

impl Lines {
    /// Stands in line until the caller is the first.
    pub async fn first(&self, table: u64) -> First {
        let [of_table, of_all] = [self.of(table), self.firsts.clone()].map(Semaphore::acquire_owned);
        let open = "there are lines as long as somebody stands in one";
        First { _of_table: of_table.await.expect(open), _of_all: of_all.await.expect(open) }
    }

    fn of(&self, table: u64) -> Arc<Semaphore> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|_, line| Arc::strong_count(line) > 1);
        lines.entry(table).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn one_of_each_table_is_first_and_of_few_tables() {
        let lines = Lines::default();
        let first = lines.first(0).await;
        let mut behind = Box::pin(lines.first(0));
        assert!(behind.as_mut().now_or_never().is_none());
        let others: Vec<First> = (1..).map_while(|table| lines.first(table).now_or_never()).collect();
        assert_eq!(others.len(), FIRSTS_MAX - 1);
        drop(others);
        assert!(behind.as_mut().now_or_never().is_none(), "another table's line");
        drop(first);
        drop(behind.await);
        drop(lines.first(1).await);
        assert_eq!(lines.lines.lock().unwrap().len(), 1, "those of other tables are forgotten");
    }
}
