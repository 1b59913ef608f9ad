//! The lanes of a session, and the memory that their batches share.

use super::errors::RowErrors;
use super::route::Route;
use super::slots::{Lane, Slots};
use super::{FlushMode, Progress, SessionOptions, Shared, write};
use crate::batch::{Batch, BuiltRow, SealedBatch};
use crate::table::{Table, Tablet};
use oribi_types::Error;
use std::sync::Arc;

pub(super) struct Lanes {
    lanes: Slots,
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
            lanes: Slots::default(),
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
        let (table, tablet) = (state.table.clone(), state.tablet());
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
        // A session may outlive many tables, and must not hold on to one that no lane leads to.
        self.routes.retain_mut(|route| route.release(|claimed_by| claimed_by == lane));
        let Lane { open, open_flush, under_way, is_due, .. } = &mut self.lanes[lane];
        *is_due = false;
        let flush = under_way.take().unwrap_or(*open_flush);
        let waiting = std::mem::take(open);
        self.lanes.release(lane);
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
        if self.lanes.release_idle() {
            let lanes = &self.lanes;
            self.routes.retain_mut(|route| route.release(|lane| lanes[lane].is_free()));
        }
        let position = self.routes.iter().position(|route| route.is_to(table)).unwrap_or_else(|| {
            self.routes.push(Route::new(table.clone()));
            self.routes.len() - 1
        });
        let known = self.lanes.find(&tablet);
        let lane = known.unwrap_or_else(|| self.lanes.add(table, tablet.clone()));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::row::{OpenRow, tests};
    use crate::table::Column;
    use oribi_kudu::row_operations::{OperationType, PartialRow};
    use oribi_types::ColumnType;

    fn columns() -> [Column; 1] {
        [Column::new("key", ColumnType::Int64).key()]
    }

    /// The tablet of one key, as a partition key, and all after it up to the next.
    fn tablet(key: u32) -> Arc<Tablet> {
        let bound = |key: u32| key.to_be_bytes().to_vec().into();
        Arc::new(Tablet::between(bound(key), bound(key + 1)))
    }

    #[tokio::test]
    async fn lanes_that_are_idle_make_room_for_others() {
        let (table, _) = tests::table(&columns());
        let mut lanes = Lanes::new(&SessionOptions::default());
        let mut cells = Vec::new();
        let mut row = OpenRow::new(&table, OperationType::Insert, &mut cells);
        row.set_i64(0, 1).unwrap();
        // Every hundredth has a row, which waits.
        for key in 0..10_000 {
            let lane = lanes.open(&table, tablet(key));
            if key % 100 == 0 {
                lanes.append(lane, row.built(), 1);
            }
        }
        assert!(lanes.lanes.len() < 400, "{} lanes", lanes.lanes.len());
        for key in (0..10_000u32).step_by(100) {
            let lane = lanes.find(&table, &key.to_be_bytes()).unwrap();
            assert_eq!(lanes.waiting(lane).len(), 1);
        }
        // Tables go with their lanes.
        for key in 0..10_000 {
            let (table, _) = tests::table(&columns());
            lanes.open(&table, tablet(key));
        }
        assert!(lanes.lanes.len() < 400 && lanes.routes.len() < 400, "{} routes", lanes.routes.len());
        assert_eq!(lanes.lanes.iter().filter(|lane| !lane.is_idle()).count(), 100);
    }

    #[tokio::test]
    async fn tables_go_with_the_last_lane_that_is_given_up() {
        let mut lanes = Lanes::new(&SessionOptions::default());
        for _ in 0..1000 {
            let (table, _) = tests::table(&columns());
            let first = lanes.open(&table, tablet(1));
            let second = lanes.open(&table, tablet(2));
            lanes.give_up(first, &Batch::default());
            assert_eq!(lanes.find(&table, &1u32.to_be_bytes()), None);
            assert_eq!(lanes.find(&table, &2u32.to_be_bytes()), Some(second));
            lanes.give_up(second, &Batch::default());
            assert!(lanes.routes.is_empty());
        }
        assert_eq!(lanes.lanes.len(), 2);
    }
}
