//! Rows whose tablet is no more: they go to the tablets that have their keys now, or fail if there are none.
//!
//! Order is kept. The lane of the lost tablet stays the way of its keys until all rows in it are moved at once, under the
//! lock: those of the batch that came back first, then those that waited behind it.

use super::lanes::{Lanes, Outcome};
use super::row::OpenRow;
use super::{Progress, Shared};
use crate::batch::{Batch, SealedBatch};
use crate::rpc::Attempts;
use crate::table::{Located, Table, Tablet};
use oribi_kudu::row_operations::{OperationReader, PartialRow};
use oribi_types::{Error, Result};
use std::sync::Arc;

/// For each row of a batch the tablet that it belongs to, if there is one.
type Targets = Vec<Option<Arc<Tablet>>>;

/// Moves the rows of a lane whose tablet is no more, to which `batch` was sent in vain.
pub(super) async fn run(
    shared: &Arc<Shared>,
    lane: usize,
    table: &Table,
    batch: Arc<SealedBatch>,
) -> Progress {
    let mut attempts = Attempts::new(shared.timeout());
    loop {
        let outcome = match move_rows(shared, lane, table, &batch) {
            Ok(Ok(waiting)) => return shared.lanes.lock().handed_over(shared, batch, waiting),
            Ok(Err(key)) => table.shared.tablets.locate(&table.shared, &key, &mut attempts).await.map(|_| ()),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            // What waits behind these rows finds out for itself.
            return shared.lanes.lock().complete(shared, lane, batch, Outcome::Failed(error));
        }
    }
}

/// Moves the rows if it is known where to, and returns the batch of those that waited; or the partition key of a row of which
/// it is not known.
fn move_rows(
    shared: &Shared,
    lane: usize,
    table: &Table,
    batch: &Arc<SealedBatch>,
) -> Result<Result<Batch, Vec<u8>>> {
    let mut lanes = shared.lanes.lock();
    let targets = (targets(table, batch.batch())?, targets(table, lanes.waiting(lane))?);
    let (of_batch, of_waiting) = match targets {
        (Ok(of_batch), Ok(of_waiting)) => (of_batch, of_waiting),
        (Err(key), _) | (_, Err(key)) => return Ok(Err(key)),
    };
    let (waiting, flush) = lanes.give_up(lane, batch.batch());
    hand_over(&mut lanes, table, batch.batch(), &of_batch, flush);
    hand_over(&mut lanes, table, &waiting, &of_waiting, flush);
    Ok(Ok(waiting))
}

fn targets(table: &Table, batch: &Batch) -> Result<Result<Targets, Vec<u8>>> {
    let (mut targets, mut key) = (Vec::with_capacity(batch.len()), Vec::new());
    let mut is_known = true;
    for_each_row(table, batch, |_, row| {
        if is_known {
            row.partition_key(&mut key)?;
            match table.shared.tablets.find(&key) {
                Some(Located::In(tablet)) => targets.push(Some(tablet)),
                Some(Located::Nowhere { .. }) => targets.push(None),
                None => is_known = false,
            }
        }
        Ok(())
    })?;
    Ok(if is_known { Ok(targets) } else { Err(key) })
}

fn hand_over(lanes: &mut Lanes, table: &Table, batch: &Batch, targets: &Targets, flush: u64) {
    let (mut lost, mut key) = (Vec::new(), Vec::new());
    let moved = for_each_row(table, batch, |position, row| {
        match &targets[position] {
            Some(tablet) => {
                row.partition_key(&mut key)?;
                lanes.hand_over(table, tablet, &key, row.built(), flush);
            }
            None => {
                let name = table.name();
                let why = format!("table {name} has no partition for the row any more");
                lost.push((position, Error::not_found(why)));
            }
        }
        Ok(())
    });
    moved.expect("these rows were read a moment ago");
    lanes.fail(table, batch, &lost);
}

/// Builds each row of a batch again.
fn for_each_row(
    table: &Table,
    batch: &Batch,
    mut with: impl FnMut(usize, &OpenRow<'_, '_>) -> Result<()>,
) -> Result<()> {
    let mut cells = Vec::new();
    let mut reader = OperationReader::new(&table.shared.layout, batch.rows(), batch.indirect());
    while let Some(read) = reader.read()? {
        let mut row = OpenRow::new(table, read.operation_type, &mut cells);
        for (column, value) in read.values.iter().enumerate() {
            if let Some(value) = value {
                row.set(column, *value)?;
            }
        }
        with(read.index, &row)?;
    }
    Ok(())
}
