//! The part of a scan that one task reads, where several processes read it.
//!
//! The scan is opened by the process that owns the table. Which row groups of which files are whose is decided there, once for each scan,
//! so that every row is read by one task. A task is told which are its own, which of their rows are hidden, and is sent the rows in memory
//! that are its own.

use super::super::TableColumns;
use crate::context::StatementView;
use crate::nodes::{Offer, Owner, SharedFolder};
use arrow::array::RecordBatch;
use futures::stream::BoxStream;
use oribi_engine::FileScan;
use oribi_types::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// Rows that another process sends, with the columns that a scan reads.
pub(crate) type Rows = BoxStream<'static, Result<RecordBatch>>;

/// What a task has to read.
pub(crate) struct Assigned {
    /// With the row groups of each.
    pub(crate) files: Vec<(Arc<FileScan>, Vec<usize>)>,
    pub(crate) memory: Vec<Rows>,
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
    pub(super) async fn open(
        &self,
        view: &StatementView,
        columns: &TableColumns,
        stored: &[usize],
        with_ts: bool,
    ) -> Result<Assigned> {
        match &self.side {
            Side::Offers(offer) => {
                let why = "a task's part of it is read where the task runs";
                Err(Error::internal(format!("scan {}: {why}", offer.id())))
            }
            Side::Reads(owner, folder) => {
                let opened = owner.open(self.offer, self.task, stored, with_ts).await?;
                folder.assigned(view, columns, self.offer, owner, &opened).await
            }
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task={} of {}", self.task + 1, self.tasks)
    }
}
