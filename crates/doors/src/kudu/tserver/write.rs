//! Writes: the rows of one request are one write of the engine, hence one record of the log with one timestamp.

use super::apply::{Applied, apply, before};
use super::plan::RowPlan;
use super::rows::Rows;
use crate::kudu::call::{Answer, Call, too_busy};
use crate::kudu::node::Node;
use crate::kudu::services::{Done, Handled, May, ROW_WAIT_MAX, Work};
use crate::kudu::{status, transactions};
use bytes::Bytes;
use oribi_engine::{Blocked, InTransaction, ReadAhead, Reserved, RowWait, Table};
use oribi_kudu::messages::common::StatusCode;
use oribi_kudu::messages::tserver::TabletServerError;
use oribi_kudu::messages::tserver::{TabletServerErrorCode as Code, WriteRequest, WriteResponse};
use oribi_kudu::rpc::{ErrorCode, ErrorStatus};
use oribi_types::{Error, ErrorKind, Result, Timestamp};
use std::sync::Arc;
use tokio::time::Instant;

/// A request with rows of so many bytes at most is executed by the thread that received it, if what it replaces is in memory:
/// some hundred rows, which take about as long as handing them over twice.
const SHORT_BYTES_MAX: usize = 16 << 10;

/// How often a write is planned for a table that is altered all the time.
const ATTEMPTS_MAX: usize = 10;

/// The columns that a client has written with lately, each set worked out.
#[derive(Default)]
pub(in crate::kudu) struct RowPlans(Vec<(Bytes, Arc<RowPlan>)>);

/// A client writes to few tables at a time.
const PLANS_MAX: usize = 16;

impl RowPlans {
    fn of(&mut self, table: &Arc<Table>, columns: &Bytes) -> Result<Arc<RowPlan>> {
        let known =
            |(bytes, plan): &(Bytes, Arc<RowPlan>)| Arc::ptr_eq(&plan.table, table) && bytes == columns;
        if let Some((_, plan)) = self.0.iter().find(|entry| known(entry)) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(RowPlan::new(table.clone(), columns)?);
        // Those of a table that was changed or dropped are of no use any more.
        self.0.retain(|(_, plan)| plan.table.id() != table.id() || Arc::ptr_eq(&plan.table, table));
        if self.0.len() == PLANS_MAX {
            self.0.remove(0);
        }
        // Copied: they would keep the whole request.
        self.0.push((Bytes::copy_from_slice(columns), plan.clone()));
        Ok(plan)
    }
}

pub(super) fn handle(node: &Arc<Node>, plans: &mut RowPlans, call: Call) -> Handled {
    let request: WriteRequest = match call.request() {
        Ok(request) => request,
        Err(status) => return Handled::Now(call.fail(&status)),
    };
    let planned = plan(node, plans, &request);
    let is_short = call.bytes() <= SHORT_BYTES_MAX;
    let (call_id, timeout, bytes) = (call.id, call.timeout, call.bytes());
    let writes_to = planned.as_ref().ok().map(|plan| plan.table.id());
    let mut write = Write::new(node.clone(), planned, call, request);
    let job = Box::new(move |may| write.attempt(may));
    Handled::Later(Work { call_id, job, timeout, bytes, answer_bytes: 0, writes_to, is_short })
}

/// How the columns of a request become the table's, or why they do not.
type Planned = Result<Arc<RowPlan>, TabletServerError>;

fn plan(node: &Node, plans: &mut RowPlans, request: &WriteRequest) -> Planned {
    let directory = node.directory();
    let (entry, _) =
        directory.tablet(&request.tablet_id).map_err(|e| status::tserver(&e, Code::TabletNotFound))?;
    let columns = request.schema.as_ref().ok_or_else(|| {
        TabletServerError::new(Code::InvalidSchema, StatusCode::InvalidArgument, "the request has no schema")
    })?;
    plans.of(&entry.table, columns).map_err(|e| status::tserver(&e, Code::MismatchedSchema))
}

/// Why a write was not made.
enum Refused {
    Because(Error),
    Error(TabletServerError),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Because(error)
    }
}

/// A request on its way to its answer, with what one attempt leaves to the next.
struct Write {
    node: Arc<Node>,
    planned: Planned,
    call: Call,
    request: WriteRequest,
    /// The rows as they were read, and the memory that they are counted with while they wait.
    kept: Option<(Rows<'static>, Reserved)>,
    ahead: ReadAhead,
    /// Until when it waits for rows that transactions have locked, if it does.
    row_deadline: Option<Instant>,
}

impl Write {
    fn new(node: Arc<Node>, planned: Planned, call: Call, request: WriteRequest) -> Self {
        Write { node, planned, call, request, kept: None, ahead: ReadAhead::default(), row_deadline: None }
    }

    fn attempt(&mut self, may: May) -> Done {
        let refused = match self.planned.clone() {
            Ok(plan) => match self.within().and_then(|within| Ok(self.apply(plan, within.as_ref(), may)?)) {
                Ok(Applied::NeedsRow(blocked)) => match self.wait_for_row(blocked) {
                    Ok(wait) => return Done::NeedsRow(wait),
                    Err(error) => error,
                },
                Ok(applied) => return done(&self.call, applied),
                Err(Refused::Error(error)) => error,
                Err(Refused::Because(error)) if error.kind() == ErrorKind::Retry => {
                    return Done::Answer(self.call.fail(&too_busy(error.message())));
                }
                Err(Refused::Because(error)) => status::tserver(&error, Code::InvalidRowBlock),
            },
            Err(error) => error,
        };
        // If it was applied before, it is answered as it was then, whatever has become of the table since.
        match self.call.request_id.as_ref().map(|id| before(&self.node.engine, id)) {
            Some(Ok(Some(applied))) => done(&self.call, applied),
            _ => Done::Answer(refuse(&self.call, refused)),
        }
    }

    /// The transaction that it is of, if it is of one.
    fn within(&self) -> Result<Option<InTransaction>, Refused> {
        let Some(id) = self.request.txn_id else { return Ok(None) };
        let transaction = transactions::open(&self.node.engine, id).map_err(Refused::Error)?;
        Ok(Some(transaction.begin_statement(None)))
    }

    /// # Errors
    /// What to answer if it has waited for too long, or that would never end.
    fn wait_for_row(&mut self, blocked: Blocked) -> Result<RowWait, TabletServerError> {
        let deadline = *self.row_deadline.get_or_insert_with(|| Instant::now() + ROW_WAIT_MAX);
        match self.request.txn_id {
            Some(id) if Instant::now() < deadline => transactions::wait(&self.node.engine, id, blocked),
            _ => Err(transactions::row_is_locked()),
        }
    }

    fn apply(&mut self, mut plan: Arc<RowPlan>, within: Option<&InTransaction>, may: May) -> Result<Applied> {
        let engine = &self.node.engine;
        if let Some(seen) = self.request.propagated_timestamp {
            match engine.precede(may == May::WaitForOthers, Timestamp(seen)) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Applied::NeedsTurn),
                preceded => preceded?,
            }
        }
        let operations = self.request.row_operations.as_ref();
        let bytes = |bytes: Option<&Bytes>| bytes.cloned().unwrap_or_default();
        let rows = bytes(operations.and_then(|operations| operations.rows.as_ref()));
        let indirect = bytes(operations.and_then(|operations| operations.indirect_data.as_ref()));
        let mut attempts_left = ATTEMPTS_MAX;
        loop {
            attempts_left -= 1;
            let read = match self.kept.take() {
                Some((read, _)) => read,
                None => Rows::read(&plan, &rows, &indirect, engine.options().statement_bytes_max)?,
            };
            let id = self.call.request_id.as_ref();
            match apply(engine, &plan, &read, id, within, may, &mut self.ahead) {
                Err(error) if error.kind() == ErrorKind::Retry && attempts_left > 0 => {
                    plan = Arc::new(plan_again(&self.node, &plan, &self.request)?);
                    self.planned = Ok(plan.clone());
                }
                Ok(needs @ (Applied::NeedsFiles | Applied::NeedsTurn | Applied::NeedsRow(_))) => {
                    self.kept = read.owned().and_then(|read| {
                        let room = Reserved::try_new(engine.memory(), read.bytes() as u64)?;
                        Some((read, room))
                    });
                    return Ok(needs);
                }
                applied => return applied,
            }
        }
    }
}

fn done(call: &Call, applied: Applied) -> Done {
    Done::Answer(match applied {
        Applied::Response(response, obligation) => call.answer(&response).resting_on(obligation),
        Applied::Again(under_way) => return Done::Again(under_way),
        Applied::NeedsFiles => return Done::NeedsFiles,
        // Who is told of the row has waited for it.
        Applied::NeedsTurn | Applied::NeedsRow(_) => return Done::NeedsTurn,
        Applied::Stale => {
            let why = "the request was answered, and its result is forgotten";
            call.fail(&ErrorStatus::new(ErrorCode::RequestStale, why))
        }
    })
}

/// The plan for the table as it is now: it was altered since the one before was made.
fn plan_again(node: &Node, before: &RowPlan, request: &WriteRequest) -> Result<RowPlan> {
    let table = node.engine.latest(before.table.id());
    let table = table.ok_or_else(|| Error::not_found("the table was dropped"))?;
    RowPlan::new(table, &request.schema.clone().unwrap_or_default())
}

fn refuse(call: &Call, error: TabletServerError) -> Answer {
    call.answer(&WriteResponse { error: Some(error), ..WriteResponse::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kudu::tserver::testing::{Fixture, call, write};
    use oribi_kudu::row_operations::OperationType as Op;
    use oribi_kudu::service::{Method, TabletServerMethod};

    fn begin(fixture: &Fixture, operation: Op, key: i64) -> Write {
        let request = write(&fixture.tablet(), &[(operation, key)]);
        let call = call(Method::TabletServer(TabletServerMethod::Write), &request);
        let plan = plan(fixture.node(), &mut RowPlans::default(), &request);
        Write::new(fixture.node().clone(), plan, call, request)
    }

    fn is_answered(write: &mut Write, may: May) -> bool {
        match write.attempt(may) {
            Done::Answer(_) => true,
            Done::NeedsFiles => false,
            Done::NeedsTurn | Done::NeedsRow(_) | Done::Again(_) => unreachable!("nobody else has it"),
        }
    }

    #[test]
    fn what_replaces_rows_of_files_is_not_for_the_thread_that_serves() {
        let mut fixture = Fixture::new();
        let answered = |fixture: &Fixture, operation: Op, key: i64, may: May| {
            is_answered(&mut begin(fixture, operation, key), may)
        };
        let at_once = May::WaitForNothing;
        assert!(answered(&fixture, Op::Insert, 1, at_once) && answered(&fixture, Op::Insert, 2, at_once));
        fixture.reopen();
        assert!(!answered(&fixture, Op::Insert, 1, at_once), "is it there?");
        assert!(!answered(&fixture, Op::Delete, 2, at_once), "is it there?");
        assert!(answered(&fixture, Op::Upsert, 2, at_once), "whatever is there");
        assert!(answered(&fixture, Op::Insert, 1, May::ReadFiles));
        assert!(answered(&fixture, Op::Insert, 1, at_once), "it is in memory now");
    }

    #[test]
    fn rows_are_read_once_for_all_attempts() {
        let mut fixture = Fixture::new();
        assert!(is_answered(&mut begin(&fixture, Op::Insert, 1), May::WaitForNothing));
        fixture.reopen();
        let mut write = begin(&fixture, Op::Delete, 1);
        assert!(!is_answered(&mut write, May::WaitForNothing));
        write.request.row_operations = None;
        assert!(is_answered(&mut write, May::ReadFiles));
        let mut again = begin(&fixture, Op::Insert, 1);
        assert!(is_answered(&mut again, May::WaitForNothing), "memory has it that the row is gone");
    }
}
