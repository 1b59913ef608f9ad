//! What the partitions of a scan share: the pieces that nobody has begun.

use super::TableSource;
use super::group::external;
use super::prune::Pruner;
use super::share::{Rows, Share};
use crate::context::StatementView;
use datafusion::common::Result;
use datafusion::common::runtime::SpawnedTask;
use datafusion::datasource::physical_plan::parquet::ParquetFileMetrics;
use datafusion::execution::memory_pool::MemoryReservation;
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
    /// What it has in the memory of another process.
    Sent(Rows),
}

/// A scan that is executed, and again: a nested loop without room for the rows of its left side reads those once more from the beginning.
pub(super) struct Runs {
    view: Arc<StatementView>,
    state: Mutex<(Vec<Arc<Work>>, Vec<usize>)>,
}

impl Runs {
    /// Of a scan with so many partitions.
    pub(super) fn new(view: &Arc<StatementView>, partitions: usize) -> Self {
        Runs { view: Arc::clone(view), state: Mutex::new((Vec::new(), vec![0; partitions])) }
    }

    /// What a partition shares with the others that are executed for the same time. `None`: there is no such partition.
    pub(super) fn begin(&self, partition: usize) -> Option<Arc<Work>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (runs, begun) = &mut *state;
        let run = begun.get_mut(partition)?;
        if *run == runs.len() {
            runs.push(Arc::new(Work::new(Arc::clone(&self.view))));
        }
        let work = Arc::clone(&runs[*run]);
        *run += 1;
        Some(work)
    }
}

pub(super) struct Work {
    view: Arc<StatementView>,
    opened: OnceCell<Opened>,
}

struct Opened {
    pieces: Mutex<VecDeque<Piece>>,
    /// Of the bits that say which rows of files are hidden.
    _hidden: MemoryReservation,
    /// What joins in other processes may tell yet.
    _told: Vec<SpawnedTask<()>>,
}

impl Work {
    pub(super) fn new(view: Arc<StatementView>) -> Self {
        Work { view, opened: OnceCell::new() }
    }

    /// The next piece of a scan, which the first to ask opens, with memory of its `reservation`'s kind; `None` after the last.
    ///
    /// # Errors
    /// Those of the engine; that there is no memory.
    pub(super) async fn next(
        &self,
        source: &TableSource,
        metrics: &ParquetFileMetrics,
        reservation: &MemoryReservation,
    ) -> Result<Option<Piece>> {
        let open = || source.open_pieces(metrics, reservation.new_empty());
        let opened = self.opened.get_or_try_init(open).await?;
        let next = opened.pieces.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        Ok(next)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // What is in memory takes locks that serving threads want, and a query thread may be the one to drop it.
        self.view.runtime.release(self.opened.take());
    }
}

impl TableSource {
    /// Opens the scan. What is in memory comes first: it is not divided any further.
    async fn open_pieces(&self, metrics: &ParquetFileMetrics, hidden: MemoryReservation) -> Result<Opened> {
        if let Some(share) = &self.share {
            return self.open_share(share, metrics, hidden).await;
        }
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
        hidden.try_resize(files.iter().map(|file| file.hidden.memory_bytes()).sum())?;
        for file in files {
            pieces.extend(self.groups(&file, metrics)?);
        }
        Ok(Opened { pieces: Mutex::new(pieces), _hidden: hidden, _told: Vec::new() })
    }

    /// As [`open_pieces`](Self::open_pieces), of what a task has to read of a scan that another process has opened.
    async fn open_share(
        &self,
        share: &Share,
        metrics: &ParquetFileMetrics,
        hidden: MemoryReservation,
    ) -> Result<Opened> {
        let (stored, with_ts) = self.columns.stored(&self.read());
        let of = (&self.columns, self.awaited());
        let (assigned, told) =
            share.open(&self.view, of, (&stored, with_ts), &hidden).await.map_err(external)?;
        let mut pieces: VecDeque<Piece> = assigned.memory.into_iter().map(Piece::Sent).collect();
        hidden.try_resize(assigned.files.iter().map(|(file, _)| file.hidden.memory_bytes()).sum())?;
        for (file, groups) in assigned.files {
            let is_ours =
                |piece: &Piece| matches!(piece, Piece::Group { group, .. } if groups.contains(group));
            pieces.extend(self.groups(&file, metrics)?.filter(is_ours));
        }
        Ok(Opened { pieces: Mutex::new(pieces), _hidden: hidden, _told: told })
    }

    /// The row groups of a file that may have rows that pass.
    fn groups(
        &self,
        file: &Arc<FileScan>,
        metrics: &ParquetFileMetrics,
    ) -> Result<impl Iterator<Item = Piece> + use<>> {
        let groups = match &self.predicate {
            Some(predicate) => Pruner::new(predicate, &self.columns, file, metrics)?.groups(metrics),
            None => file.groups(0..file.sstable.meta().rows as u32),
        };
        let file = Arc::clone(file);
        Ok(groups.into_iter().map(move |(group, within)| Piece::Group {
            file: Arc::clone(&file),
            group,
            within,
        }))
    }
}
