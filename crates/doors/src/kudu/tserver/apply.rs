//! One write of the engine for all rows of a request, and what it answers.

use super::plan::RowPlan;
use super::rows::{Change, Operation, ROWS_MAX, Rows, encode_new};
use crate::kudu::services::May;
use crate::kudu::status;
use oribi_engine::{
    Answered, Blocked, Commit, Decision, Engine, InTransaction, Obligation, Presence, Read, ReadAhead,
    Request, RowVersion, Tracked, UnderWay, WriteOp,
};
use oribi_kudu::frame::FRAME_BYTES_MAX;
use oribi_kudu::messages::common::{AppStatus, StatusCode};
use oribi_kudu::messages::tserver::{PerRowError, ResourceMetrics, WriteResponse};
use oribi_kudu::row_operations::OperationType;
use oribi_kudu::rpc::RequestId;
use oribi_types::{Error, ErrorKind, Result};
use prost::Message;
use std::cell::{Cell, RefCell};

/// What became of a request.
pub(super) enum Applied {
    Response(WriteResponse, Obligation),
    /// Another call has the same request in hand.
    Again(UnderWay),
    /// It was answered so long ago that nobody knows how.
    Stale,
    /// It was not applied: files must be read.
    NeedsFiles,
    /// It was not applied: others must be waited for.
    NeedsTurn,
    /// It was not applied: a transaction has locked a row.
    NeedsRow(Blocked),
}

/// Whether files have to be read, most likely: for a row that is not in memory, and may be in one.
fn needs_files(engine: &Engine, ops: &[WriteOp<'_>]) -> bool {
    let in_files = |op: &WriteOp<'_>| {
        op.read == Read::Existing && engine.locate(engine.probe(op.table, op.key)) == Presence::Files
    };
    ops.iter().any(in_files)
}

/// Applies `rows` in their order, as one record of the log, or adds them to a transaction. A row that fails does not undo the others. A request of an id that
/// was applied before changes nothing, and is answered as it was then. Nothing is applied that would have to do what it may not.
///
/// # Errors
/// Those of [`Engine::write_tracked`], and of [`Engine::write_kept`]; nothing was applied then.
#[allow(clippy::too_many_arguments)]
pub(super) fn apply(
    engine: &Engine,
    plan: &RowPlan,
    rows: &Rows<'_>,
    request_id: Option<&RequestId>,
    within: Option<&InTransaction>,
    may: May,
    ahead: &mut ReadAhead,
) -> Result<Applied> {
    let mut ops = rows.write_ops(plan);
    if within.is_some() {
        // What it is decided on is compared when the transaction is committed.
        ops.iter_mut().for_each(|op| op.read = Read::Existing);
    }
    if may == May::WaitForNothing && needs_files(engine, &ops) {
        return Ok(Applied::NeedsFiles);
    }
    if may != May::WaitForOthers && within.is_some_and(|within| within.transaction().needs_files()) {
        return Ok(Applied::NeedsTurn);
    }
    let waits = may == May::WaitForOthers;
    let tally = RefCell::new(Tally::default());
    let mut decide = |i: usize, current: Option<RowVersion<'_>>, row: &mut Vec<u8>| {
        decide(plan, rows, &rows.operations[i], current, row, &mut tally.borrow_mut())
    };
    // Of most writes there is nothing to say, and nothing is kept.
    let mut answer = |out: &mut Vec<u8>| out.extend(tally.borrow().response(rows).encode_to_vec());
    let request = request_id.map(request);
    let (commit, mut response) = match (within, request) {
        (Some(within), request) => {
            let blocked = Cell::new(None);
            let by = (within, &blocked);
            match engine.write_kept(by, waits, request.as_ref(), &ops, &mut decide, &mut answer, ahead) {
                Ok(Tracked::Answered(answered)) => (answered.commit, response_of(&answered)?),
                Ok(Tracked::UnderWay(under_way)) => return Ok(Applied::Again(under_way)),
                Ok(Tracked::Stale) => return Ok(Applied::Stale),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(blocked.take().map_or(Applied::NeedsTurn, Applied::NeedsRow));
                }
                Err(error) => return Err(error),
            }
        }
        (None, None) if ops.is_empty() => {
            let commit = Commit { ts: engine.read_view().ts, obligation: Obligation::default() };
            (commit, tally.borrow().response(rows))
        }
        (None, None) => match engine.write_again(waits, &ops, &mut decide, ahead) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Applied::NeedsTurn),
            written => (written?, tally.borrow().response(rows)),
        },
        (None, Some(request)) => {
            let written = engine.write_tracked_again(waits, &request, &ops, &mut decide, &mut answer, ahead);
            let tracked = match written {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Applied::NeedsTurn),
                written => written?,
            };
            match tracked {
                Tracked::Answered(answered) => (answered.commit, response_of(&answered)?),
                Tracked::UnderWay(under_way) => return Ok(Applied::Again(under_way)),
                Tracked::Stale => return Ok(Applied::Stale),
            }
        }
    };
    response.timestamp = Some(commit.ts.0);
    response.resource_metrics = Some(tally.into_inner().metrics);
    Ok(Applied::Response(response, commit.obligation))
}

/// What became of a request of this id that was sent before, if anything is known of it.
///
/// # Errors
/// Those of [`Engine::tracked`].
pub(super) fn before(engine: &Engine, request_id: &RequestId) -> Result<Option<Applied>> {
    Ok(Some(match engine.tracked(&request(request_id))? {
        None => return Ok(None),
        Some(Tracked::Answered(answered)) => {
            let mut response = response_of(&answered)?;
            response.timestamp = Some(answered.commit.ts.0);
            Applied::Response(response, answered.commit.obligation)
        }
        Some(Tracked::UnderWay(under_way)) => Applied::Again(under_way),
        Some(Tracked::Stale) => Applied::Stale,
    }))
}

fn request(id: &RequestId) -> Request<'_> {
    Request { client: &id.client_id, sequence: id.seq_no, first_incomplete: id.first_incomplete_seq_no }
}

fn response_of(answered: &Answered) -> Result<WriteResponse> {
    WriteResponse::decode(&*answered.result).map_err(|e| Error::corrupt(format!("result of a write: {e}")))
}

/// What became of the rows.
#[derive(Default)]
struct Tally {
    errors: Vec<PerRowError>,
    metrics: ResourceMetrics,
}

/// Bytes of the texts of an answer's errors. Beyond, an error has its code only.
const TEXTS_BYTES_MAX: usize = 16 << 20;
/// Bytes of an error without its text.
const ERROR_BYTES_MAX: usize = 32;
/// Whatever becomes of the rows can be answered.
const _: () = assert!(ROWS_MAX * ERROR_BYTES_MAX + TEXTS_BYTES_MAX < FRAME_BYTES_MAX);

impl Tally {
    fn refuse(&mut self, operation: &Operation, error: AppStatus) -> Decision {
        self.errors.push(PerRowError { row_index: operation.index as i32, error });
        Decision::Keep
    }

    /// The part of the answer that is kept for a request that is sent again: why rows were refused.
    fn response(&self, rows: &Rows<'_>) -> WriteResponse {
        let refused = rows.refused.iter();
        let refused =
            refused.map(|(index, error)| PerRowError { row_index: *index as i32, error: status::app(error) });
        let mut per_row_errors: Vec<PerRowError> = refused.chain(self.errors.iter().cloned()).collect();
        per_row_errors.sort_unstable_by_key(|error| error.row_index);
        let mut left = TEXTS_BYTES_MAX;
        for error in &mut per_row_errors {
            match left.checked_sub(error.error.message.as_ref().map_or(0, String::len)) {
                Some(after) => left = after,
                None => error.error.message = None,
            }
        }
        WriteResponse { per_row_errors, ..WriteResponse::default() }
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
            let error = AppStatus::new(StatusCode::AlreadyPresent, "key already present");
            return Ok(tally.refuse(operation, error));
        }
        Type::InsertIgnore if !is_absent => {
            count(&mut metrics.insert_ignore_errors);
            return Ok(Decision::Keep);
        }
        Type::Update | Type::Delete if is_absent => {
            return Ok(tally.refuse(operation, AppStatus::new(StatusCode::NotFound, "key not found")));
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
        (Change::Whole, _) => Decision::Proposed,
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
    tally.refuse(operation, status::app(error))
}
