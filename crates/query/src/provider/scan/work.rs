//! What the partitions of a scan share: the pieces that nobody has begun.

use super::TableSource;
use super::prune::Pruner;
use crate::context::StatementView;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::physical_plan::parquet::ParquetFileMetrics;
use oribi_engine::{FileScan, MemoryColumns, Obligation, RowSelection};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;

/// A part of the rows, which one partition reads.
pub(super) enum Piece {
    /// A row group of a file, and which of its rows, if not all.
    Group { file: Arc<FileScan>, group: usize, within: Option<RowSelection> },
    /// What a tablet has in memory.
    Memory(Box<MemoryColumns>),
}

pub(super) struct Work {
    view: Arc<StatementView>,
    pieces: OnceCell<Mutex<VecDeque<Piece>>>,
}

impl Work {
    pub(super) fn new(view: Arc<StatementView>) -> Self {
        Work { view, pieces: OnceCell::new() }
    }

    /// The next piece of a scan, which the first to ask opens; `None` after the last.
    ///
    /// # Errors
    /// Those of the engine.
    pub(super) async fn next(
        &self,
        source: &TableSource,
        metrics: &ParquetFileMetrics,
    ) -> Result<Option<Piece>> {
        let pieces =
            self.pieces.get_or_try_init(|| async { source.pieces(metrics).await.map(Mutex::new) }).await?;
        let next = pieces.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        Ok(next)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // What is in memory takes locks that serving threads want, and a query thread may be the one to drop it.
        self.view.runtime.release(self.pieces.take());
    }
}

impl TableSource {
    /// Opens the scan. What is in memory comes first: it is not divided any further.
    async fn pieces(&self, metrics: &ParquetFileMetrics) -> Result<VecDeque<Piece>> {
        let external = |e| DataFusionError::External(Box::new(e));
        let (engine, snapshot) = (Arc::clone(&self.view.engine), Arc::clone(self.view.snapshot()));
        let (table, tablets) = (Arc::clone(&self.table), Arc::clone(&self.tablets));
        let (stored, with_ts) = self.columns.stored(&self.read());
        let scan = move || engine.scan(&table, tablets.iter().copied(), &stored, with_ts, &snapshot);
        let tablets = self.view.runtime.lookup(scan).await.map_err(external)?;
        let mut obligation = Obligation::default();
        tablets.iter().for_each(|tablet| obligation.merge(tablet.obligation));
        self.view.engine.settled(obligation).await.map_err(external)?;

        let (mut pieces, mut files) = (VecDeque::new(), Vec::new());
        for tablet in tablets {
            pieces.push_back(Piece::Memory(Box::new(tablet.memory)));
            files.extend(tablet.files.into_iter().filter(|file| file.live_rows() > 0).map(Arc::new));
        }
        for file in files {
            let groups = match &self.predicate {
                Some(predicate) => Pruner::new(predicate, &self.columns, &file, metrics)?.groups(metrics),
                None => file.groups(0..file.sstable.meta().rows as u32),
            };
            let piece = |(group, within)| Piece::Group { file: Arc::clone(&file), group, within };
            pieces.extend(groups.into_iter().map(piece));
        }
        Ok(pieces)
    }
}
