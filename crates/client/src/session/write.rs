//! Sending one batch, until it is answered for good.

use super::lanes::Outcome;
use super::{Shared, reroute};
use crate::batch::SealedBatch;
use crate::rpc::{Attempts, CallError, Payload, Sequence};
use crate::status;
use crate::table::{Table, Tablet};
use crate::transaction::Transaction;
use oribi_kudu::STEPS_MAX;
use oribi_kudu::messages::common::StatusCode;
use oribi_kudu::messages::tserver::{
    ExternalConsistencyMode, TabletServerError, TabletServerErrorCode, WriteRequest, WriteResponse,
};
use oribi_kudu::rpc::{ErrorCode, RequestHeader};
use oribi_kudu::service::{Method, TabletServerMethod};
use oribi_types::{Error, ErrorKind};
use std::sync::Arc;
use tokio::time::Instant;

/// Why an attempt failed.
enum Failure {
    /// The same server may do it later.
    Busy(Error),
    /// The tablet may be elsewhere.
    Moved(Error),
    /// The server does not believe any more that we may.
    Token(Error),
    /// The tablet is no more.
    Gone,
    Final(Error),
}

/// How many steps an answer may take to decode: an error for each row of a large batch.
const ANSWER_STEPS_MAX: usize = 16 * STEPS_MAX;

/// Sends the batch of a lane and hands in what became of it.
pub(super) async fn run(
    shared: Arc<Shared>,
    lane: usize,
    table: Table,
    tablet: Arc<Tablet>,
    batch: Arc<SealedBatch>,
) {
    let progress = match send(&shared, &table, &tablet, &batch).await {
        Some(outcome) => shared.lanes.lock().complete(&shared, lane, batch, outcome),
        None => reroute::run(&shared, lane, &table, batch).await,
    };
    shared.done.notify_one();
    if let Some(callback) = &shared.options.progress {
        callback(progress);
    }
}

/// `None` if the tablet is no more.
async fn send(
    shared: &Shared,
    table: &Table,
    tablet: &Arc<Tablet>,
    batch: &Arc<SealedBatch>,
) -> Option<Outcome> {
    let client = &table.shared.client.shared;
    let mut attempts = Attempts::new(shared.timeout());
    // One number for all attempts: if one was executed and its answer lost, the next gets that answer.
    let mut sequence = client.request_ids.begin();
    let txn_id = shared.transaction.as_ref().map(Transaction::id);
    loop {
        let failure = match attempt(table, tablet, batch, txn_id, &mut sequence, &mut attempts).await {
            Ok(response) => return Some(Outcome::Answered(row_errors(&response))),
            Err(failure) => failure,
        };
        let cause = match failure {
            Failure::Final(error) => return Some(Outcome::Failed(error)),
            Failure::Gone => return None,
            Failure::Busy(error) => error,
            Failure::Moved(error) => {
                tablet.forget_leader();
                error
            }
            Failure::Token(error) => match table.shared.renew_token(&mut attempts).await {
                Ok(()) => error,
                Err(error) => return Some(Outcome::Failed(error)),
            },
        };
        let failed = Instant::now();
        if let Err(error) = attempts.back_off(cause).await {
            return Some(Outcome::Failed(error));
        }
        client.note_retry(failed.elapsed());
    }
}

async fn attempt(
    table: &Table,
    tablet: &Arc<Tablet>,
    batch: &Arc<SealedBatch>,
    txn_id: Option<i64>,
    sequence: &mut Sequence,
    attempts: &mut Attempts,
) -> Result<WriteResponse, Failure> {
    let client = &table.shared.client.shared;
    let leader = table.shared.tablets.leader(&table.shared, tablet, attempts).await;
    let leader = leader.map_err(Failure::of_leader)?.ok_or(Failure::Gone)?;
    let timeout = attempts.remaining(client.options.rpc_timeout);
    let connection = client.connections.get(&leader, timeout).await.map_err(Failure::of_leader)?;
    let header = RequestHeader {
        remote_method: Some(Method::TabletServer(TabletServerMethod::Write).remote()),
        timeout_millis: Some(timeout.as_millis() as u32),
        request_id: Some(sequence.attempt()),
        ..RequestHeader::default()
    };
    // The rows follow as the end of the message.
    let request = WriteRequest {
        tablet_id: tablet.id.clone(),
        schema: Some(table.shared.schema_bytes.clone()),
        external_consistency_mode: Some(ExternalConsistencyMode::ClientPropagated.into()),
        propagated_timestamp: client.propagated_timestamp(),
        authz_token: table.shared.authz_token(),
        txn_id,
        ..WriteRequest::default()
    };
    let payload: (Arc<dyn Payload>, usize) = (batch.clone(), batch.payload_bytes());
    let call = connection.call(header, &request, Some(payload)).map_err(Failure::of_call)?;
    let body = call.answer(timeout).await.map_err(Failure::of_call)?;
    let response: WriteResponse =
        body.decode(ANSWER_STEPS_MAX).map_err(|error| Failure::Final(Error::corrupt(error.to_string())))?;
    client.observe(response.timestamp);
    match &response.error {
        None => Ok(response),
        Some(error) => Err(Failure::of_tablet_server(error)),
    }
}

/// The rows that were refused, by position, ascending.
fn row_errors(response: &WriteResponse) -> Vec<(usize, Error)> {
    let mut errors: Vec<(usize, Error)> = response
        .per_row_errors
        .iter()
        .filter_map(|row| Some((usize::try_from(row.row_index).ok()?, status::of_app(&row.error))))
        .collect();
    errors.sort_unstable_by_key(|(position, _)| *position);
    errors
}

impl Failure {
    /// There is no leader, or nobody where it should be.
    fn of_leader(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Unavailable => Failure::Moved(error),
            _ => Failure::Final(error),
        }
    }

    fn of_call(error: CallError) -> Self {
        let cause = error.error();
        match error {
            CallError::Broken(_) | CallError::TimedOut(_) => Failure::Moved(cause),
            CallError::TooLarge(_) => Failure::Final(cause),
            CallError::Refused(status) => match status.code() {
                ErrorCode::InvalidAuthorizationToken => Failure::Token(cause),
                ErrorCode::FatalServerShuttingDown => Failure::Moved(cause),
                _ if status::is_busy(&status) => Failure::Busy(cause),
                _ => Failure::Final(cause),
            },
        }
    }

    fn of_tablet_server(error: &TabletServerError) -> Self {
        let cause = status::of_app(&error.status);
        match (error.code(), error.status.code()) {
            (TabletServerErrorCode::Throttled | TabletServerErrorCode::TxnLockedRetryOp, _) => Failure::Busy(cause),
            (TabletServerErrorCode::TxnLockedAbort | TabletServerErrorCode::TxnIllegalState, _) => {
                Failure::Final(Error::conflict(cause.message()))
            }
            (
                TabletServerErrorCode::TabletNotFound
                | TabletServerErrorCode::TabletNotRunning
                | TabletServerErrorCode::TabletFailed
                | TabletServerErrorCode::NotTheLeader
                | TabletServerErrorCode::WrongServerUuid,
                _,
            )
            // What a replica says that leads no more.
            | (_, StatusCode::IllegalState | StatusCode::Aborted) => Failure::Moved(cause),
            (_, StatusCode::ServiceUnavailable) => Failure::Busy(cause),
            _ => Failure::Final(cause),
        }
    }
}
