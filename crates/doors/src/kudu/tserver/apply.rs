//! One write of the engine for all rows of a request, and what it answers.

use super::plan::RowPlan;
use super::rows::{Change, Operation, Rows, encode_new};
use crate::kudu::status;
use oribi_engine::{Commit, Decision, Engine, Obligation, RowVersion, WriteOp};
use oribi_kudu::messages::common::{AppStatus, StatusCode};
use oribi_kudu::messages::tserver::{PerRowError, ResourceMetrics, WriteResponse};
use oribi_kudu::row_operations::OperationType;
use oribi_types::{Error, Result};

/// Applies `rows` in their order, as one record of the log. A row that fails does not undo the others.
///
/// # Errors
/// Those of [`Engine::write`]; nothing was applied then.
pub(super) fn apply(engine: &Engine, plan: &RowPlan, rows: &Rows<'_>) -> Result<(WriteResponse, Obligation)> {
    let op = |operation| WriteOp {
        table: &plan.table,
        key: rows.key(operation),
        read: Operation::reads(operation),
    };
    let ops: Vec<WriteOp<'_>> = rows.operations.iter().map(op).collect();
    let mut tally = Tally::default();
    let commit = match ops.is_empty() {
        true => Commit { ts: engine.read_view().ts, obligation: Obligation::default() },
        false => engine.write(&ops, &mut |i, current, row| {
            decide(plan, rows, &rows.operations[i], current, row, &mut tally)
        })?,
    };
    let refused = rows.refused.iter().map(|(index, error)| (*index, status::app(error)));
    let mut errors: Vec<PerRowError> = refused
        .chain(tally.errors)
        .map(|(index, error)| PerRowError { row_index: index as i32, error })
        .collect();
    errors.sort_unstable_by_key(|error| error.row_index);
    let response = WriteResponse {
        error: None,
        per_row_errors: errors,
        timestamp: Some(commit.ts.0),
        resource_metrics: Some(tally.metrics),
    };
    Ok((response, commit.obligation))
}

/// What became of the rows.
#[derive(Default)]
struct Tally {
    errors: Vec<(usize, AppStatus)>,
    metrics: ResourceMetrics,
}

impl Tally {
    fn refuse(&mut self, operation: &Operation, code: StatusCode, message: &str) -> Decision {
        self.errors.push((operation.index, AppStatus::new(code, message)));
        Decision::Keep
    }
}

fn count(counter: &mut Option<i64>) {
    *counter.get_or_insert_default() += 1;
}

fn decide(
    plan: &RowPlan,
    rows: &Rows<'_>,
    operation: &Operation,
    current: Option<RowVersion<'_>>,
    out: &mut Vec<u8>,
    tally: &mut Tally,
) -> Result<Decision> {
    use OperationType as Type;
    let metrics = &mut tally.metrics;
    let is_absent = current.is_none();
    match operation.operation_type {
        Type::Insert if !is_absent => {
            return Ok(tally.refuse(operation, StatusCode::AlreadyPresent, "key already present"));
        }
        Type::InsertIgnore if !is_absent => {
            count(&mut metrics.insert_ignore_errors);
            return Ok(Decision::Keep);
        }
        Type::Update | Type::Delete if is_absent => {
            return Ok(tally.refuse(operation, StatusCode::NotFound, "key not found"));
        }
        Type::UpdateIgnore if is_absent => {
            count(&mut metrics.update_ignore_errors);
            return Ok(Decision::Keep);
        }
        Type::DeleteIgnore if is_absent => {
            count(&mut metrics.delete_ignore_errors);
            return Ok(Decision::Keep);
        }
        Type::Insert | Type::InsertIgnore => count(&mut metrics.successful_inserts),
        Type::Upsert | Type::UpsertIgnore => count(&mut metrics.successful_upserts),
        Type::Update | Type::UpdateIgnore => count(&mut metrics.successful_updates),
        _ => count(&mut metrics.successful_deletes),
    }
    Ok(match (&operation.change, current) {
        (Change::Delete, _) => Decision::Delete,
        (Change::Whole(range), _) => {
            out.extend_from_slice(rows.row(range));
            Decision::Put
        }
        (Change::Some(at), Some(current)) => {
            plan.table.schema_ref().overlay(current.row, rows.values(plan, *at), out);
            Decision::Put
        }
        (Change::Some(at), None) => {
            let values = rows.values(plan, *at);
            match encode_new(plan, |slot| values[slot], out) {
                Ok(()) => Decision::Put,
                Err(error) => refuse_upsert(operation, &error, tally),
            }
        }
    })
}

/// An upsert of a row that is not there, without what a new row needs.
fn refuse_upsert(operation: &Operation, error: &Error, tally: &mut Tally) -> Decision {
    if let Some(counted) = &mut tally.metrics.successful_upserts {
        *counted -= 1;
    }
    tally.refuse(operation, status::code(error.kind()), error.message())
}
