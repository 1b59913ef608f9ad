//! Scans as their owner offers them to tasks in other processes.
//!
//! An [`Offer`] lives in the plan of its query, and ends with that, however it ends: a task that asks later is told so. As long as it is
//! there it keeps the query's snapshot and the names of files. It is opened once, by the first task that asks, and what was found is
//! [shared out](super::shares).

use super::RuntimeFilters;
use super::opened::{File, Opened};
use super::shares::{MEMORY, Shares, shares as shares_of};
use crate::provider::{Rows, TableSource};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use futures::stream::{self, StreamExt, TryStreamExt};
use oribi_engine::{FileScan, MemoryColumns, NamedFiles, Obligation};
use oribi_types::{Error, Result, Timestamp};
use prost::Message;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::OnceCell;

/// Batches of rows in memory that are made by one visit of a thread that may.
const BATCHES_A_VISIT: usize = 4;

/// All that are offered.
#[derive(Default)]
pub(crate) struct Offers {
    next: AtomicU64,
    offered: Mutex<HashMap<u64, Weak<Offer>>>,
    /// By query.
    filters: Mutex<HashMap<u64, Weak<RuntimeFilters>>>,
}

/// A scan that tasks in other processes read.
pub struct Offer {
    id: u64,
    source: TableSource,
    /// Of the nodes, one for each task.
    names: Vec<String>,
    opened: OnceCell<Found>,
    /// Of what is kept of it.
    memory: MemoryReservation,
    /// What joins of the query tell.
    filters: Arc<RuntimeFilters>,
    offers: Weak<Offers>,
    _files: NamedFiles,
}

/// What there was to read.
struct Found {
    stored: (Vec<usize>, bool),
    files: Vec<FileScan>,
    /// By tablet, of those that have some, until a task has come for it.
    memory: Vec<Option<Mutex<Option<MemoryColumns>>>>,
    shares: Shares,
}

impl Found {
    /// The part of a file that is a task's.
    fn file(&self, file: &FileScan, task: usize) -> Result<Option<File>> {
        let meta = file.sstable.meta();
        let groups = 0..file.sstable.row_groups().count() as u32;
        let groups: Vec<u32> =
            groups.filter(|group| self.shares.get(&(meta.id, *group)) == Some(&task)).collect();
        if groups.is_empty() {
            return Ok(None);
        }
        let json = |meta| serde_json::to_vec(meta).map_err(|e| Error::internal(e.to_string()));
        let patches = file.sstable.patches().iter().map(|patch| json(patch.meta()));
        let patches = patches.collect::<Result<_>>()?;
        let folder = super::opened::folder_of(file.sstable.path())?;
        Ok(Some(File { folder, meta: json(meta)?, seen: file.hidden.to_bytes(), groups, patches }))
    }
}

impl Offers {
    /// Offers a scan to nodes with these names.
    pub(crate) fn make(
        self: &Arc<Self>,
        source: &TableSource,
        (names, filters): (&[String], &Arc<RuntimeFilters>),
        memory: &Arc<dyn MemoryPool>,
    ) -> Arc<Offer> {
        let (view, ..) = source.to_open();
        let offer = Arc::new(Offer {
            id: self.number(view.snapshot().ts()),
            source: source.clone(),
            names: names.to_vec(),
            opened: OnceCell::new(),
            memory: MemoryConsumer::new("scan for other processes").register(memory),
            filters: Arc::clone(filters),
            offers: Arc::downgrade(self),
            _files: view.engine.named_files(),
        });
        self.lock().insert(offer.id, Arc::downgrade(&offer));
        offer
    }

    /// Place for what the joins of a query tell.
    pub(crate) fn make_filters(self: &Arc<Self>, now: Timestamp) -> Arc<RuntimeFilters> {
        let filters = Arc::new(RuntimeFilters::new(self.number(now), self));
        self.lock_filters().insert(filters.id(), Arc::downgrade(&filters));
        filters
    }

    /// `None` if the query has ended.
    pub(crate) fn filters(&self, query: u64) -> Option<Arc<RuntimeFilters>> {
        self.lock_filters().get(&query).and_then(Weak::upgrade)
    }

    pub(super) fn forget_filters(&self, query: u64) {
        self.lock_filters().remove(&query);
    }

    /// One that was not given before, nor by another run of the process, which was at earlier timestamps.
    fn number(&self, now: Timestamp) -> u64 {
        let _ = self.next.compare_exchange(0, now.0, Ordering::Relaxed, Ordering::Relaxed);
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn lock_filters(&self) -> MutexGuard<'_, HashMap<u64, Weak<RuntimeFilters>>> {
        self.filters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// `NotFound` if its query has ended.
    pub(crate) fn find(&self, id: u64) -> Result<Arc<Offer>> {
        let offer = self.lock().get(&id).and_then(Weak::upgrade);
        offer.ok_or_else(|| Error::not_found(format!("scan {id}: the query that it is of has ended")))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Weak<Offer>>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if let Some(offers) = self.offers.upgrade() {
            offers.lock().remove(&self.id);
        }
        // What is in memory takes locks that serving threads want, and a query thread may be the one to drop it.
        let (view, ..) = self.source.to_open();
        view.runtime.release(self.opened.take());
    }
}

impl Offer {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn filters(&self) -> Weak<RuntimeFilters> {
        Arc::downgrade(&self.filters)
    }

    /// What a task has to read.
    ///
    /// # Errors
    /// `Invalid` for a task that there is not, or other columns than others have asked for; those of a scan.
    pub(crate) async fn open(&self, task: u32, stored: &[usize], with_ts: bool) -> Result<Vec<u8>> {
        let task = task as usize;
        if task >= self.names.len() {
            return Err(Error::invalid(format!("scan {}: there is no task {task}", self.id)));
        }
        let found = self.opened.get_or_try_init(|| self.find(stored, with_ts)).await?;
        if (found.stored.0.as_slice(), found.stored.1) != (stored, with_ts) {
            return Err(Error::invalid(format!("scan {}: tasks ask for different columns", self.id)));
        }
        let files = found.files.iter().filter_map(|file| found.file(file, task).transpose());
        let is_ours = |tablet: &u32| found.shares.get(&(MEMORY, *tablet)) == Some(&task);
        let memory = (0..).zip(&found.memory).filter_map(|(tablet, rows)| rows.as_ref().map(|_| tablet));
        let memory = memory.filter(is_ours);
        Ok(Opened { files: files.collect::<Result<_>>()?, memory: memory.collect() }.encode_to_vec())
    }

    async fn find(&self, stored: &[usize], with_ts: bool) -> Result<Found> {
        let (view, table, tablets) = self.source.to_open();
        let (engine, snapshot) = (Arc::clone(&view.engine), Arc::clone(view.snapshot()));
        let columns = stored.to_vec();
        if columns.iter().any(|column| *column >= table.schema_ref().columns().len()) {
            return Err(Error::invalid(format!("scan {}: the table has no such column", self.id)));
        }
        let scan = move || engine.scan(&table, tablets.iter().copied(), &columns, with_ts, &snapshot);
        let tablets = view.runtime.lookup(scan).await?;
        let mut obligation = Obligation::default();
        tablets.iter().for_each(|tablet| obligation.merge(tablet.obligation));
        view.engine.settled(obligation).await?;
        let (stored, mut parts) = ((stored.to_vec(), with_ts), Vec::new());
        let (files, memory, shares) = Default::default();
        let mut found = Found { stored, files, memory, shares };
        for (tablet, of_tablet) in (0..).zip(tablets) {
            found.files.extend(of_tablet.files.into_iter().filter(|file| file.live_rows() > 0));
            let rows = of_tablet.memory.keys_left();
            found.memory.push((rows > 0).then(|| Mutex::new(Some(of_tablet.memory))));
            parts.push(((MEMORY, tablet), rows as u64));
        }
        for file in &found.files {
            let groups = (0..).zip(file.sstable.row_groups());
            parts.extend(groups.map(|(group, rows)| ((file.sstable.meta().id, group), rows.len() as u64)));
        }
        found.shares = shares_of(&self.names, parts);
        let hidden = found.files.iter().map(|file| file.hidden.memory_bytes()).sum();
        self.memory.try_resize(hidden).map_err(|e| Error::too_large(e.strip_backtrace()))?;
        Ok(found)
    }

    /// The rows that a tablet has in memory.
    ///
    /// # Errors
    /// `NotFound` if they were given before, or it is not known which there are.
    pub(crate) fn rows(self: Arc<Self>, tablet: u32) -> Result<Rows> {
        let missing = || Error::not_found(format!("scan {}: rows of tablet {tablet} in memory", self.id));
        let found = self.opened.get().ok_or_else(missing)?;
        let memory = found.memory.get(tablet as usize).and_then(Option::as_ref).ok_or_else(missing)?;
        // Whoever asks again would have the rows twice, or some of them.
        let memory = memory.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(missing)?;
        let batches = stream::try_unfold((self, Some(Box::new(memory))), |(offer, memory)| async move {
            let Some(mut memory) = memory else { return Ok::<_, Error>(None) };
            let (view, ..) = offer.source.to_open();
            let read = view.runtime.lookup(move || {
                let next = std::iter::from_fn(|| memory.next_batch().transpose());
                let batches = next.take(BATCHES_A_VISIT).collect::<Result<Vec<_>>>()?;
                Ok((memory, batches))
            });
            let (memory, batches) = read.await?;
            if batches.is_empty() {
                view.runtime.release(memory);
                return Ok(None);
            }
            Ok(Some((stream::iter(batches.into_iter().map(Ok::<_, Error>)), (offer, Some(memory)))))
        });
        Ok(batches.try_flatten().boxed())
    }
}
