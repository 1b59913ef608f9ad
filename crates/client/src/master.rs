//! Calls to whichever master leads.

use crate::rpc::{Attempts, CallError, Connections};
use crate::status;
use oribi_kudu::STEPS_MAX;
use oribi_kudu::messages::common::{AppStatus, HostPort, Role, StatusCode};
use oribi_kudu::messages::master::*;
use oribi_kudu::messages::transactions::{
    AbortTransactionResponse, BeginTransactionResponse, CommitTransactionResponse,
    GetTransactionStateResponse, KeepTransactionAliveResponse,
};
use oribi_kudu::rpc::RequestHeader;
use oribi_kudu::service::{MasterMethod, Method};
use oribi_types::{Error, Result};
use parking_lot::Mutex;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Masters {
    addresses: Vec<HostPort>,
    /// Who answered last that it leads.
    leader: Mutex<Option<HostPort>>,
    connections: Arc<Connections>,
    rpc_timeout: Duration,
}

/// A response that may say why it is none.
pub(crate) trait MasterResponse: Message + Default {
    fn failure(&self) -> Option<Failure>;
}

macro_rules! master_responses {
    ($($response:ty),* $(,)?) => {
        $(impl MasterResponse for $response {
            fn failure(&self) -> Option<Failure> {
                self.error.as_ref().map(Failure::of_master)
            }
        })*
    };
}

master_responses!(
    ConnectToMasterResponse,
    CreateTableResponse,
    IsCreateTableDoneResponse,
    DeleteTableResponse,
    AlterTableResponse,
    IsAlterTableDoneResponse,
    ListTablesResponse,
    GetTableSchemaResponse,
    GetTableLocationsResponse,
    GetTableStatisticsResponse,
    ListTabletServersResponse,
);

macro_rules! transaction_responses {
    ($($response:ty),* $(,)?) => {
        $(impl MasterResponse for $response {
            fn failure(&self) -> Option<Failure> {
                self.error.as_ref().map(|error| Failure::of_status(&error.status, false))
            }
        })*
    };
}

transaction_responses!(
    BeginTransactionResponse,
    KeepTransactionAliveResponse,
    CommitTransactionResponse,
    GetTransactionStateResponse,
    AbortTransactionResponse,
);

/// Why an attempt failed.
pub(crate) enum Failure {
    /// Another master, or the same later, may do it.
    Retry(Error),
    /// So it may, if it was not done already.
    Unknown(Error),
    Final(Error),
}

/// How many steps the largest answer may take to decode: some ten thousand tablets.
const ANSWER_STEPS_MAX: usize = 4 * STEPS_MAX;

impl Masters {
    pub(crate) fn new(
        addresses: Vec<HostPort>,
        connections: Arc<Connections>,
        rpc_timeout: Duration,
    ) -> Self {
        Masters { addresses, leader: Mutex::default(), connections, rpc_timeout }
    }

    /// Calls the leading master; while there is none, or it is busy, again and again until the attempts are used up.
    ///
    /// # Errors
    /// What the master answers; `Unavailable` if none does.
    pub(crate) async fn call<R: MasterResponse>(
        &self,
        method: Method,
        features: &[MasterFeature],
        request: &impl Message,
        attempts: &mut Attempts,
    ) -> Result<R> {
        loop {
            let failure = match self.leader(attempts).await {
                Ok(leader) => match self.attempt(&leader, method, features, request, attempts).await {
                    Ok(response) => return Ok(response),
                    Err(failure) => {
                        if matches!(failure, Failure::Unknown(_)) {
                            attempts.note_unknown();
                        }
                        failure
                    }
                },
                Err(failure) => failure,
            };
            match failure {
                Failure::Final(error) => return Err(error),
                Failure::Retry(error) | Failure::Unknown(error) => {
                    *self.leader.lock() = None;
                    attempts.back_off(error).await?;
                }
            }
        }
    }

    /// The leading master's address: the one that is known, or the first that says so.
    async fn leader(&self, attempts: &Attempts) -> Result<HostPort, Failure> {
        if let Some(leader) = &*self.leader.lock() {
            return Ok(leader.clone());
        }
        let mut failure = Failure::Retry(Error::unavailable("no master leads"));
        for address in &self.addresses {
            let features = [MasterFeature::ConnectToMaster];
            let request = ConnectToMasterRequest {};
            let method = Method::Master(MasterMethod::ConnectToMaster);
            match self
                .attempt::<ConnectToMasterResponse>(address, method, &features, &request, attempts)
                .await
            {
                Ok(response) if response.role() == Role::Leader => {
                    *self.leader.lock() = Some(address.clone());
                    return Ok(address.clone());
                }
                Ok(_) => {}
                Err(other) => failure = other,
            }
        }
        Err(failure)
    }

    async fn attempt<R: MasterResponse>(
        &self,
        master: &HostPort,
        method: Method,
        features: &[MasterFeature],
        request: &impl Message,
        attempts: &Attempts,
    ) -> Result<R, Failure> {
        let timeout = attempts.remaining(self.rpc_timeout);
        let connection = self.connections.get(master, timeout).await.map_err(Failure::of_connecting)?;
        let header = RequestHeader {
            remote_method: Some(method.remote()),
            timeout_millis: Some(timeout.as_millis() as u32),
            required_feature_flags: features.iter().map(|feature| *feature as u32).collect(),
            ..RequestHeader::default()
        };
        let call = connection.call(header, request, None).map_err(Failure::of_call)?;
        let body = call.answer(timeout).await.map_err(Failure::of_call)?;
        let response: R = body
            .decode(ANSWER_STEPS_MAX)
            .map_err(|error| Failure::Final(Error::corrupt(error.to_string())))?;
        match response.failure() {
            None => Ok(response),
            Some(failure) => Err(failure),
        }
    }
}

impl Failure {
    fn of_connecting(error: Error) -> Self {
        match error.kind() {
            oribi_types::ErrorKind::Unavailable => Failure::Retry(error),
            _ => Failure::Final(error),
        }
    }

    fn of_call(error: CallError) -> Self {
        match &error {
            CallError::Broken(_) | CallError::TimedOut(_) => Failure::Unknown(error.error()),
            CallError::Refused(status) if status::is_busy(status) => Failure::Retry(error.error()),
            CallError::Refused(_) | CallError::TooLarge(_) => Failure::Final(error.error()),
        }
    }

    fn of_master(error: &MasterError) -> Self {
        let is_elsewhere = matches!(
            error.code(),
            MasterErrorCode::NotTheLeader | MasterErrorCode::CatalogManagerNotInitialized
        );
        Failure::of_status(&error.status, is_elsewhere)
    }

    fn of_status(status: &AppStatus, is_retried: bool) -> Self {
        let is_retried = is_retried || status.code() == StatusCode::ServiceUnavailable;
        let error = status::of_app(status);
        if is_retried { Failure::Retry(error) } else { Failure::Final(error) }
    }
}
