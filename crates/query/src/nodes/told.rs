//! What the joins of a query tell the owner, on its way to scans in other processes.
//!
//! Each task of a join knows some of the keys: it tells the owner ([`RuntimeFilter`]), and the owner the scan, once all tasks have told. A scan
//! that is told nothing reads all of its rows: the join looks at them itself.

use super::Offers;
use crate::runtime_filters::RuntimeFilter;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::watch;

/// What the joins of one query have told so far.
pub struct RuntimeFilters {
    id: u64,
    /// By the filter, as DataFusion numbers its expressions.
    of_joins: Mutex<HashMap<u64, OfJoin>>,
    told: watch::Sender<()>,
    offers: Weak<Offers>,
}

/// By task.
struct OfJoin {
    tasks: usize,
    /// Whether each task has the same keys.
    is_same: bool,
    told: HashMap<u32, RuntimeFilter>,
    /// Once all have told, or one of those that have the same.
    known: Option<RuntimeFilter>,
}

impl OfJoin {
    fn tell(&mut self, task: u32, told: RuntimeFilter) {
        if self.known.is_some() || task as usize >= self.tasks {
            return;
        }
        if self.is_same && told != RuntimeFilter::Any {
            self.known = Some(told);
            return;
        }
        self.told.insert(task, told);
        if self.told.len() == self.tasks {
            let told = std::mem::take(&mut self.told).into_values();
            self.known = Some(told.fold(RuntimeFilter::None, RuntimeFilter::or));
        }
    }
}

impl RuntimeFilters {
    pub(super) fn new(id: u64, offers: &Arc<Offers>) -> Self {
        let (of_joins, told) = (Mutex::default(), watch::Sender::new(()));
        RuntimeFilters { id, of_joins, told, offers: Arc::downgrade(offers) }
    }

    /// By which tasks name the query.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// A filter that comes from so many tasks, which all have the same keys if it `is_same`. For others nobody waits.
    pub fn expect(&self, filter: u64, tasks: usize, is_same: bool) {
        self.lock().insert(filter, OfJoin { tasks, is_same, told: HashMap::new(), known: None });
    }

    pub(super) fn tell(&self, filter: u64, task: u32, told: RuntimeFilter) {
        if let Some(of_join) = self.lock().get_mut(&filter) {
            of_join.tell(task, told);
        }
        self.told.send_replace(());
    }

    fn known(&self, filter: u64) -> Option<RuntimeFilter> {
        self.lock().get(&filter).map_or(Some(RuntimeFilter::Any), |of_join| of_join.known.clone())
    }

    /// A filter when it is known; `None` if the query ends before.
    pub(super) async fn wait(of: Weak<Self>, filter: u64) -> Option<RuntimeFilter> {
        let mut told = of.upgrade()?.told.subscribe();
        loop {
            if let Some(known) = of.upgrade()?.known(filter) {
                return Some(known);
            }
            told.changed().await.ok()?;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, OfJoin>> {
        self.of_joins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RuntimeFilters {
    fn drop(&mut self) {
        if let Some(offers) = self.offers.upgrade() {
            offers.forget_filters(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime_filters::tests::between;

    #[tokio::test]
    async fn a_filter_is_known_when_all_tasks_have_told() {
        let filters = Arc::new(RuntimeFilters::new(1, &Arc::default()));
        filters.expect(7, 2, false);
        let wait = |filter| RuntimeFilters::wait(Arc::downgrade(&filters), filter);
        assert_eq!(wait(6).await, Some(RuntimeFilter::Any), "nobody tells of that");
        filters.tell(7, 0, between(1, 2, None));
        filters.tell(7, 0, between(1, 2, None));
        let waiting = tokio::spawn(wait(7));
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "the other task has not told");
        filters.tell(7, 1, between(4, 5, None));
        assert_eq!(waiting.await.unwrap(), Some(between(1, 5, None)));
        filters.expect(8, 2, true);
        filters.tell(8, 0, RuntimeFilter::Any);
        filters.tell(8, 1, between(1, 2, None));
        assert_eq!(
            wait(8).await,
            Some(between(1, 2, None)),
            "the other has the same keys, and could not say"
        );
        filters.expect(9, 1, false);
        let waiting = tokio::spawn(wait(9));
        tokio::task::yield_now().await;
        drop(filters);
        assert_eq!(waiting.await.unwrap(), None, "the query has ended");
    }
}
