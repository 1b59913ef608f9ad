//! `kudu.transactions.TxnManagerService`: transactions over any tables, tablets and connections.
//!
//! A transaction of Kudu's is one that the engine keeps under its number. Its writes come as other writes do, with the number
//! ([`tserver::write`](super::tserver::write)). Tablets take part by being written to: there is nothing to register.

use super::call::{Answer, Call};
use super::node::Node;
use super::services::{Done, Handled, May, Work, at_once, blocking};
use super::status::{code, short};
use oribi_engine::{
    Blocked, Engine, KeptCommit, Obligation, ReadAhead, Request, RowWait, Transaction, TransactionState,
};
use oribi_kudu::messages::common::StatusCode;
use oribi_kudu::messages::transactions::{
    AbortTransactionRequest, AbortTransactionResponse, BeginTransactionRequest, BeginTransactionResponse,
    CommitTransactionRequest, CommitTransactionResponse, GetTransactionStateRequest,
    GetTransactionStateResponse, KeepTransactionAliveRequest, KeepTransactionAliveResponse, TxnManagerError,
    TxnState,
};
use oribi_kudu::messages::tserver::{TabletServerError, TabletServerErrorCode as Code};
use oribi_kudu::service::TxnManagerMethod;
use oribi_types::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The line in which commits stand that have to wait for others, as if it were that of a table.
const COMMITS: u64 = u64::MAX;

pub(super) fn handle(node: &Arc<Node>, method: TxnManagerMethod, call: Call) -> Handled {
    Handled::Now(match method {
        TxnManagerMethod::BeginTransaction => at_once(&call, |_: BeginTransactionRequest| begin(node, &call)),
        TxnManagerMethod::KeepTransactionAlive => at_once(&call, |request| keep_alive(node, &request)),
        TxnManagerMethod::GetTransactionState => return state(node, &call),
        TxnManagerMethod::AbortTransaction => {
            return blocking(node, call, |node, request| abort(node, &request));
        }
        TxnManagerMethod::CommitTransaction => return commit(node, call),
    })
}

fn begin(node: &Node, call: &Call) -> BeginTransactionResponse {
    let request = call.request_id.as_ref().map(|id| Request {
        client: &id.client_id,
        sequence: id.seq_no,
        first_incomplete: id.first_incomplete_seq_no,
    });
    match node.engine.clone().begin_kept(&call.user, request.as_ref()) {
        Ok(id) => BeginTransactionResponse {
            error: None,
            txn_id: Some(id as i64),
            keepalive_millis: Some(node.engine.options().transaction_silence_ms as u32),
        },
        Err(e) => BeginTransactionResponse { error: Some(error(&e)), ..BeginTransactionResponse::default() },
    }
}

fn keep_alive(node: &Node, request: &KeepTransactionAliveRequest) -> KeepTransactionAliveResponse {
    let kept = number(request.txn_id).and_then(|id| node.engine.kept(id));
    KeepTransactionAliveResponse { error: kept.err().as_ref().map(error) }
}

fn abort(node: &Node, request: &AbortTransactionRequest) -> AbortTransactionResponse {
    let aborted =
        number(request.txn_id).and_then(|id| node.engine.abort(id, "its client has rolled it back"));
    AbortTransactionResponse { error: aborted.err().as_ref().map(error) }
}

fn state(node: &Node, call: &Call) -> Handled {
    let mut obligation = Obligation::default();
    let answer = at_once(call, |request: GetTransactionStateRequest| {
        let state = number(request.txn_id).and_then(|id| node.engine.state_of(id));
        let (state, commit_timestamp) = match state {
            Ok(TransactionState::Open) => (TxnState::Open, None),
            Ok(TransactionState::CommitInProgress) => (TxnState::CommitInProgress, None),
            Ok(TransactionState::Aborted) => (TxnState::Aborted, None),
            Ok(TransactionState::Committed(ts, rests_on)) => {
                obligation = rests_on;
                (TxnState::Committed, ts.map(|ts| ts.0))
            }
            Err(e) => {
                let error = Some(error(&e));
                return GetTransactionStateResponse { error, ..GetTransactionStateResponse::default() };
            }
        };
        GetTransactionStateResponse { error: None, state: Some(state.into()), commit_timestamp }
    });
    Handled::Now(answer.resting_on(obligation))
}

fn commit(node: &Arc<Node>, call: Call) -> Handled {
    let id = match call.request().map(|request: CommitTransactionRequest| number(request.txn_id)) {
        Ok(id) => id,
        Err(status) => return Handled::Now(call.fail(&status)),
    };
    let (call_id, timeout, bytes) = (call.id, call.timeout, call.bytes());
    let mut commit = Committing { node: node.clone(), id, begun: None, ahead: ReadAhead::default() };
    let job = Box::new(move |may| match commit.attempt(may) {
        Ok(Some(obligation)) => {
            Done::Answer(call.answer(&CommitTransactionResponse::default()).resting_on(obligation))
        }
        Ok(None) => Done::NeedsTurn,
        Err(error) => Done::Answer(refuse(&call, error)),
    });
    let writes_to = Some(COMMITS);
    Handled::Later(Work { call_id, job, timeout, bytes, answer_bytes: 0, writes_to, is_short: false })
}

fn refuse(call: &Call, error: TxnManagerError) -> Answer {
    call.answer(&CommitTransactionResponse { error: Some(error) })
}

/// A call that commits a transaction, with what one attempt leaves to the next. If nobody waits for it any more before it came to an
/// end, the transaction is aborted.
struct Committing {
    node: Arc<Node>,
    id: Result<u64>,
    begun: Option<KeptCommit>,
    ahead: ReadAhead,
}

impl Committing {
    /// What is to be settled before it is told; `None` if it has to wait for others.
    fn attempt(&mut self, may: May) -> Result<Option<Obligation>, TxnManagerError> {
        let engine = &self.node.engine;
        let id = self.id.clone().map_err(|e| error(&e))?;
        let commit = match &mut self.begun {
            Some(commit) => commit,
            None => match engine.begin_commit(id).map_err(|e| error(&e))? {
                Some(commit) => self.begun.insert(commit),
                // It was, or is about to be: as durable as the first is told.
                None => {
                    return Ok(Some(match engine.state_of(id) {
                        Ok(TransactionState::Committed(_, obligation)) => obligation,
                        _ => Obligation::default(),
                    }));
                }
            },
        };
        match commit.apply(may == May::WaitForOthers, &mut self.ahead) {
            Ok(commit) => Ok(Some(commit.obligation)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => {
                let why = format!("transaction {id} has been aborted: {}", error.message());
                Err(TxnManagerError::new(StatusCode::Aborted, short(&why)))
            }
        }
    }
}

/// The status of writes and scans of a transaction that has ended, and of one that is ended by them. Kudu's are `ILLEGAL_STATE` and
/// `ABORTED`, which its Java client takes for those of a replica that leads no more, and tries again until its time is over.
const HAS_ENDED: StatusCode = StatusCode::InvalidArgument;

/// The open transaction that a write or scan names.
///
/// # Errors
/// What to answer if there is none.
pub(super) fn open(engine: &Engine, id: i64) -> Result<Arc<Transaction>, TabletServerError> {
    number(Some(id)).and_then(|id| engine.kept(id)).map_err(|error| {
        let status = if error.kind() == ErrorKind::Conflict { HAS_ENDED } else { code(error.kind()) };
        TabletServerError::new(Code::TxnIllegalState, status, short(error.message()))
    })
}

/// A wait of a transaction for a row. If it would never end, the transaction is aborted, so that the others go on.
///
/// # Errors
/// What to answer then.
pub(super) fn wait(engine: &Arc<Engine>, id: i64, blocked: Blocked) -> Result<RowWait, TabletServerError> {
    let transaction = open(engine, id)?;
    engine.wait_for_row(Some(&transaction), blocked).map_err(|deadlock| {
        let why = format!("transaction {id} has been aborted: {}", deadlock.message());
        if let Err(error) = engine.abort(transaction.id(), deadlock.message()) {
            tracing::debug!(%error, "a transaction ended while it met another");
        }
        TabletServerError::new(Code::TxnLockedAbort, HAS_ENDED, why)
    })
}

/// Clients make the same call again.
pub(super) fn row_is_locked() -> TabletServerError {
    let why = "another transaction has locked a row";
    TabletServerError::new(Code::TxnLockedRetryOp, StatusCode::ServiceUnavailable, why)
}

fn number(id: Option<i64>) -> Result<u64> {
    let id = id.ok_or_else(|| Error::invalid("no transaction is named"))?;
    u64::try_from(id).map_err(|_| Error::not_found(format!("transaction {id} is not known")))
}

fn error(error: &Error) -> TxnManagerError {
    let code =
        if error.kind() == ErrorKind::Conflict { StatusCode::IllegalState } else { code(error.kind()) };
    TxnManagerError::new(code, short(error.message()))
}
