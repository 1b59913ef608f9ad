//! The lanes of a session, and the memory that their batches share.

use super::errors::RowErrors;
use super::route::Route;
use super::{FlushMode, Progress, SessionOptions, Shared, write};
use crate::batch::{Batch, BuiltRow, SealedBatch};
use crate::table::{Table, Tablet};
use oribi_types::Error;
use std::sync::Arc;

pub(super) struct Lanes {
    lanes: Vec<Lane>,
    routes: Vec<Route>,
    /// Rows that wait for a flush, and all rows that are not done, in bytes.
    waiting_bytes: usize,
    bytes: usize,
    /// The number of the flush that will take the rows that wait now.
    next_flush: u64,
    /// How many of those before it are not done.
    flushes_under_way: u64,
    /// Batches without rows, for their memory; together as large as the buffer at most.
    spare: Vec<Batch>,
    spare_bytes: usize,
    errors: RowErrors,
    progress: Progress,
    limits: Limits,
}

struct Limits {
    mode: FlushMode,
    buffer_bytes: usize,
    watermark_bytes: usize,
    flushes_max: u64,
    errors_max: usize,
}

/// The way to one tablet.
struct Lane {
    table: Table,
    tablet: Arc<Tablet>,
    open: Batch,
    /// The flush that the oldest row in `open` belongs to.
    open_flush: u64,
    /// That of the batch that is being sent.
    under_way: Option<u64>,
    /// Send `open` as soon as nothing is under way.
    is_due: bool,
}

/// What became of a row that was offered.
pub(super) enum Offered {
    Taken,
    /// And batches have begun to be sent.
    Flushing,
    /// There is no room until a batch is done.
    Wait,
    /// No lane leads to its tablet.
    Unknown,
    /// There will never be room.
    TooLarge,
}

/// What became of a batch.
pub(super) enum Outcome {
    /// All rows are written but these, by position, ascending.
    Answered(Vec<(usize, Error)>),
    /// None is written, as far as is known.
    Failed(Error),
}

impl Lanes {
    pub(super) fn new(options: &SessionOptions) -> Self {
        let watermark_bytes = (options.buffer_bytes as f64 * options.watermark.clamp(0.0, 1.0)) as usize;
        let limits = Limits {
            mode: options.mode,
            buffer_bytes: options.buffer_bytes,
            watermark_bytes,
            flushes_max: options.flushes_max.map_or(u64::MAX, |max| max.max(1) as u64),
            errors_max: options.errors_max,
        };
        Lanes {
            lanes: Vec::new(),
            routes: Vec::new(),
            waiting_bytes: 0,
            bytes: 0,
            next_flush: 1,
            flushes_under_way: 0,
            spare: Vec::new(),
            spare_bytes: 0,
            errors: RowErrors::default(),
            progress: Progress::default(),
            limits,
        }
    }

    /// Appends a row to the batch of its tablet, if there is room.
    pub(super) fn offer(
        &mut self,
        shared: &Arc<Shared>,
        table: &Table,
        partition_key: &[u8],
        row: BuiltRow<'_>,
    ) -> Offered {
        let Some(lane) = self.find(table, partition_key) else { return Offered::Unknown };
        let bytes = row.bytes();
        if self.bytes + bytes > self.limits.buffer_bytes || self.flushes_under_way >= self.limits.flushes_max
        {
            return self.refuse(shared, bytes);
        }
        self.append(lane, row, self.next_flush);
        self.bytes += bytes;
        if self.waiting_bytes == 0 && self.limits.mode == FlushMode::Background {
            shared.waiting.notify_one();
        }
        self.waiting_bytes += bytes;
        let is_full = self.waiting_bytes >= self.limits.watermark_bytes;
        match self.limits.mode == FlushMode::Background && is_full && self.flush(shared) {
            true => Offered::Flushing,
            false => Offered::Taken,
        }
    }

    /// Appends a row that belongs to `flush` to the batch of a lane that is open.
    #[inline]
    fn append(&mut self, lane: usize, row: BuiltRow<'_>, flush: u64) {
        let Lanes { lanes, spare, spare_bytes, .. } = self;
        let lane = &mut lanes[lane];
        if lane.open.is_empty() {
            lane.open_flush = flush;
            if let Some(batch) = spare.pop() {
                *spare_bytes -= batch.capacity();
                lane.open = batch;
            }
        }
        lane.open.append(row);
    }

    /// Why a row finds no room.
    #[cold]
    fn refuse(&mut self, shared: &Arc<Shared>, bytes: usize) -> Offered {
        if bytes > self.limits.buffer_bytes {
            return Offered::TooLarge;
        }
        if self.limits.mode != FlushMode::Manual {
            self.flush(shared);
        }
        match self.flushes_under_way > 0 {
            true => Offered::Wait,
            false => Offered::TooLarge,
        }
    }

    /// Makes all batches due; returns whether there are any.
    pub(super) fn flush(&mut self, shared: &Arc<Shared>) -> bool {
        if self.waiting_bytes == 0 {
            return false;
        }
        self.waiting_bytes = 0;
        self.next_flush += 1;
        for lane in 0..self.lanes.len() {
            let state = &mut self.lanes[lane];
            state.is_due = !state.open.is_empty();
            self.send(shared, lane);
        }
        self.count_flushes();
        true
    }

    /// Sends the batch of a lane if it is due and the lane is free.
    fn send(&mut self, shared: &Arc<Shared>, lane: usize) {
        let state = &mut self.lanes[lane];
        if !state.is_due || state.under_way.is_some() {
            return;
        }
        state.is_due = false;
        state.under_way = Some(state.open_flush);
        let batch = Arc::new(std::mem::take(&mut state.open).seal());
        let (table, tablet) = (state.table.clone(), state.tablet.clone());
        tokio::spawn(write::run(shared.clone(), lane, table, tablet, batch));
    }

    /// Takes the outcome of a lane's batch, and its memory back.
    pub(super) fn complete(
        &mut self,
        shared: &Arc<Shared>,
        lane: usize,
        batch: Arc<SealedBatch>,
        outcome: Outcome,
    ) -> Progress {
        let (rows, bytes) = (batch.batch().len(), batch.batch().bytes());
        self.lanes[lane].under_way = None;
        let causes: Vec<(usize, Error)> = match outcome {
            Outcome::Answered(causes) => causes,
            Outcome::Failed(error) => (0..rows).map(|position| (position, error.clone())).collect(),
        };
        let table = self.lanes[lane].table.clone();
        let failed = self.fail(&table, batch.batch(), &causes);
        self.progress.rows_written += (rows - failed) as u64;
        self.progress.bytes += bytes as u64;
        self.progress.batches += 1;
        self.bytes -= bytes;
        self.keep_sealed(batch);
        self.send(shared, lane);
        self.count_flushes();
        self.progress
    }

    /// Notes which rows of a batch are not written, by position, ascending; returns how many.
    pub(super) fn fail(&mut self, table: &Table, batch: &Batch, causes: &[(usize, Error)]) -> usize {
        self.errors.add(self.limits.errors_max, table, batch, causes);
        let failed = causes.len().min(batch.len());
        self.progress.rows_failed += failed as u64;
        failed
    }

    /// The rows that wait in a lane.
    pub(super) fn waiting(&self, lane: usize) -> &Batch {
        &self.lanes[lane].open
    }

    /// Gives up a lane whose tablet is no more, to which `batch` was sent in vain. Returns the rows that wait behind it, and
    /// the flush that the oldest row belongs to. The rows of both are in no lane then.
    pub(super) fn give_up(&mut self, lane: usize, batch: &Batch) -> (Batch, u64) {
        self.routes.iter_mut().for_each(|route| route.release(lane));
        let Lane { open, open_flush, under_way, is_due, .. } = &mut self.lanes[lane];
        *is_due = false;
        let flush = under_way.take().unwrap_or(*open_flush);
        let waiting = std::mem::take(open);
        self.bytes -= waiting.bytes() + batch.bytes();
        (waiting, flush)
    }

    /// Puts a row that was given up into the lane of another tablet, to be sent as soon as that is free.
    pub(super) fn hand_over(
        &mut self,
        table: &Table,
        tablet: &Arc<Tablet>,
        partition_key: &[u8],
        row: BuiltRow<'_>,
        flush: u64,
    ) {
        let lane = self.find(table, partition_key).unwrap_or_else(|| self.open(table, tablet.clone()));
        self.append(lane, row, flush);
        self.bytes += row.bytes();
        let state = &mut self.lanes[lane];
        state.open_flush = state.open_flush.min(flush);
        state.is_due = true;
    }

    /// Sends what was handed over, and keeps the memory of the batches that it was in.
    pub(super) fn handed_over(
        &mut self,
        shared: &Arc<Shared>,
        batch: Arc<SealedBatch>,
        waiting: Batch,
    ) -> Progress {
        self.progress.batches += 1;
        self.keep_sealed(batch);
        self.keep(waiting);
        for lane in 0..self.lanes.len() {
            self.send(shared, lane);
        }
        self.count_flushes();
        self.progress
    }

    /// Keeps a batch's memory, if nobody else holds on to it.
    fn keep_sealed(&mut self, batch: Arc<SealedBatch>) {
        if let Ok(sealed) = Arc::try_unwrap(batch) {
            self.keep(sealed.into_batch());
        }
    }

    fn keep(&mut self, mut batch: Batch) {
        batch.clear();
        if self.spare_bytes + batch.capacity() <= self.limits.buffer_bytes {
            self.spare_bytes += batch.capacity();
            self.spare.push(batch);
        }
    }

    fn count_flushes(&mut self) {
        let flushes = self.lanes.iter().map(|lane| {
            let open = if lane.open.is_empty() { self.next_flush } else { lane.open_flush };
            lane.under_way.unwrap_or(open).min(open)
        });
        self.flushes_under_way = self.next_flush - flushes.min().unwrap_or(self.next_flush);
    }

    /// The lane that a row takes.
    fn find(&self, table: &Table, partition_key: &[u8]) -> Option<usize> {
        self.routes.iter().find(|route| route.is_to(table))?.find(partition_key)
    }

    /// Opens a lane to a tablet, for what of its keys is in no other lane.
    pub(super) fn open(&mut self, table: &Table, tablet: Arc<Tablet>) -> usize {
        let position = self.routes.iter().position(|route| route.is_to(table)).unwrap_or_else(|| {
            self.routes.push(Route::new(table.clone()));
            self.routes.len() - 1
        });
        let known = self.lanes.iter().position(|lane| Arc::ptr_eq(&lane.tablet, &tablet));
        let lane = known.unwrap_or_else(|| {
            let tablet = tablet.clone();
            let (table, open) = (table.clone(), Batch::default());
            self.lanes.push(Lane { table, tablet, open, open_flush: 0, under_way: None, is_due: false });
            self.lanes.len() - 1
        });
        let Lanes { lanes, routes, .. } = self;
        routes[position].claim(lane, &tablet, |lane| lanes[lane].is_idle());
        lane
    }

    /// Whether nothing waits and nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.bytes == 0
    }

    pub(super) fn errors(&self) -> &RowErrors {
        &self.errors
    }

    pub(super) fn take_errors(&mut self) -> RowErrors {
        std::mem::take(&mut self.errors)
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress
    }
}

impl Lane {
    fn is_idle(&self) -> bool {
        self.open.is_empty() && self.under_way.is_none()
    }
}
