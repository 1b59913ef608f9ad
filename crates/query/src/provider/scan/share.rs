//! The part of a scan that one task reads, where several processes read it.
//!
//! The scan is opened by the process that owns the table. Which row groups of which files are whose is decided there, once for each scan,
//! so that every row is read by one task. A task is told which are its own, which of their rows are hidden, and is sent the rows in memory
//! that are its own.

use super::super::TableColumns;
use crate::context::StatementView;
use crate::nodes::{Offer, Owner, SharedFolder};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr, lit};
use futures::future::join_all;
use futures::stream::BoxStream;
use oribi_engine::FileScan;
use oribi_types::{Error, Result};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Rows that another process sends, with the columns that a scan reads.
pub(crate) type Rows = BoxStream<'static, Result<RecordBatch>>;

/// What a task has to read.
pub(crate) struct Assigned {
    /// With the row groups of each.
    pub(crate) files: Vec<(Arc<FileScan>, Vec<usize>)>,
    pub(crate) memory: Vec<Rows>,
}

/// So long a scan waits for joins before it begins. What they tell later it learns while it reads. In one process it would not begin before
/// its join is done, however long that takes; here that may never be.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// What a join in another process will tell of the rows that it wants.
#[derive(Clone)]
pub(crate) struct Awaited {
    /// By which its filter is known to the owner.
    id: u64,
    filter: Arc<DynamicFilterPhysicalExpr>,
    columns: SchemaRef,
}

impl Awaited {
    /// About columns at these places of `columns`; `None` if there are none.
    pub(super) fn new(id: u64, places: &[usize], columns: &SchemaRef) -> Option<Self> {
        let column = |place: &usize| {
            let field = columns.fields().get(*place)?;
            Some(Arc::new(Column::new(field.name(), *place)) as Arc<dyn PhysicalExpr>)
        };
        let keys = places.iter().map(column).collect::<Option<Vec<_>>>().filter(|keys| !keys.is_empty())?;
        let filter = Arc::new(DynamicFilterPhysicalExpr::new(keys, lit(true)));
        Some(Awaited { id, filter, columns: Arc::clone(columns) })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Places of its columns.
    pub(crate) fn columns(&self) -> Vec<usize> {
        let keys = self.filter.children().into_iter();
        keys.filter_map(|key| key.downcast_ref::<Column>().map(Column::index)).collect()
    }

    /// As a part of a predicate, which says nothing before it is told.
    pub(super) fn filter(&self) -> Arc<dyn PhysicalExpr> {
        Arc::clone(&self.filter) as _
    }

    async fn wait(self, owner: Arc<dyn Owner>, offer: u64, room: MemoryReservation) {
        let told = match owner.runtime_filter(offer, self.id).await {
            Ok(told) => told.within(room),
            Err(error) => return tracing::debug!(%error, "a runtime filter did not come"),
        };
        let keys: Vec<_> = self.filter.children().into_iter().cloned().collect();
        let known = told.condition(&keys, &self.columns).and_then(|known| self.filter.update(known));
        if let Err(error) = known {
            tracing::debug!(%error, "a runtime filter says nothing about this scan");
        }
    }
}

/// A task's part of a scan.
#[derive(Clone)]
pub(crate) struct Share {
    /// By which the scan is known to its owner.
    pub(crate) offer: u64,
    pub(crate) task: u32,
    pub(crate) tasks: u32,
    pub(crate) side: Side,
}

#[derive(Clone)]
pub(crate) enum Side {
    /// In the owner's plan: the scan can be opened as long as this is there.
    Offers(Arc<Offer>),
    /// Where it is read.
    Reads(Arc<dyn Owner>, Arc<SharedFolder>),
}

impl Share {
    /// Opens the scan when joins have told what they want of it. What they tell later it learns as long as the tasks live that come back.
    pub(super) async fn open(
        &self,
        view: &StatementView,
        (columns, awaited): (&TableColumns, &[Awaited]),
        (stored, with_ts): (&[usize], bool),
        room: &MemoryReservation,
    ) -> Result<(Assigned, Vec<SpawnedTask<()>>)> {
        match &self.side {
            Side::Offers(offer) => {
                let why = "a task's part of it is read where the task runs";
                Err(Error::internal(format!("scan {}: {why}", offer.id())))
            }
            Side::Reads(owner, folder) => {
                let wait =
                    |awaited: &Awaited| awaited.clone().wait(Arc::clone(owner), self.offer, room.new_empty());
                let mut told: Vec<_> = awaited.iter().map(wait).map(SpawnedTask::spawn).collect();
                let _ = timeout(WAIT_MAX, join_all(&mut told)).await;
                let opened = owner.open(self.offer, self.task, stored, with_ts).await?;
                Ok((folder.assigned(view, columns, self.offer, owner, &opened).await?, told))
            }
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task={} of {}", self.task + 1, self.tasks)
    }
}
