//! Transactions: rows of any tables that become visible together, or not at all.
//!
//! The servers end a transaction of which they hear nothing for a while. Whoever began one tells them that it goes on, from a task:
//! who blocks the only thread of a runtime for longer than that loses it.

use crate::client::{Client, Shared as ClientShared};
use crate::rpc::Attempts;
use crate::session::{Session, SessionOptions};
use oribi_kudu::messages::transactions::{
    AbortTransactionRequest, AbortTransactionResponse, BeginTransactionRequest, BeginTransactionResponse,
    CommitTransactionRequest, CommitTransactionResponse, GetTransactionStateRequest,
    GetTransactionStateResponse, KeepTransactionAliveRequest, KeepTransactionAliveResponse, TxnState,
    TxnToken,
};
use oribi_kudu::service::TxnManagerMethod;
use oribi_types::{Error, ErrorKind, Result};
use prost::Message;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::AbortHandle;

/// A transaction. Clones are the same one; what the servers have of it does not end with the last of them, but by commit, by
/// rollback, or in silence.
#[derive(Clone)]
pub struct Transaction {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    id: i64,
    keep_alive: Duration,
    heartbeats: Option<AbortHandle>,
}

impl Client {
    /// Begins a transaction, which is kept alive until it ends, or nobody here has it any more.
    ///
    /// # Errors
    /// `Unsupported` if the servers have no transactions; those of the call.
    pub async fn begin(&self) -> Result<Transaction> {
        let request = BeginTransactionRequest {};
        let (method, mut attempts) = (TxnManagerMethod::BeginTransaction, self.shared.attempts());
        let begun: BeginTransactionResponse =
            self.shared.transactions(method, &request, &mut attempts).await?;
        let (Some(id), Some(keep_alive)) = (begun.txn_id, begun.keepalive_millis) else {
            return Err(Error::corrupt("a transaction began without a number"));
        };
        Ok(Transaction::new(self, id, Duration::from_millis(keep_alive.into()), true))
    }

    /// The transaction of a [token](Transaction::token), which another client may have begun.
    ///
    /// # Errors
    /// `Invalid` for what is no token.
    pub fn transaction(&self, token: &[u8]) -> Result<Transaction> {
        let token =
            TxnToken::decode(token).map_err(|e| Error::invalid(format!("a transaction's token: {e}")))?;
        let id = token.txn_id.ok_or_else(|| Error::invalid("a transaction's token names none"))?;
        let keep_alive = Duration::from_millis(token.keepalive_millis.unwrap_or(0).into());
        let beats = token.enable_keepalive.unwrap_or(false) && !keep_alive.is_zero();
        Ok(Transaction::new(self, id, keep_alive, beats))
    }
}

impl Transaction {
    fn new(client: &Client, id: i64, keep_alive: Duration, beats: bool) -> Self {
        let beating = || tokio::spawn(beat(Arc::downgrade(&client.shared), id, keep_alive)).abort_handle();
        let heartbeats = beats.then(beating);
        Transaction { shared: Arc::new(Shared { client: client.clone(), id, keep_alive, heartbeats }) }
    }

    /// Its number, which no other of the servers has.
    pub fn id(&self) -> i64 {
        self.shared.id
    }

    /// A session whose rows are all written in this transaction. It is to be flushed before the commit.
    pub fn session(&self, options: SessionOptions) -> Session {
        self.shared.client.session_in(Some(self.clone()), options)
    }

    /// What another client makes the same transaction of: also one of Kudu's, whose form it has. With `keeps_alive` that client
    /// keeps it alive, too.
    pub fn token(&self, keeps_alive: bool) -> Vec<u8> {
        let token = TxnToken {
            txn_id: Some(self.shared.id),
            keepalive_millis: Some(self.shared.keep_alive.as_millis() as u32),
            enable_keepalive: Some(keeps_alive),
        };
        token.encode_to_vec()
    }

    /// Commits it, and waits until all rows are there.
    ///
    /// # Errors
    /// `Conflict` if it was aborted, or is now; `NotFound` if the servers know nothing of it; `Unavailable` if they did not say in
    /// time what became of it.
    pub async fn commit(&self) -> Result<()> {
        let mut attempts = self.attempts();
        self.ask_for_commit(&mut attempts).await?;
        loop {
            if self.look(&mut attempts).await? {
                return Ok(());
            }
            attempts.back_off(Error::unavailable("the commit is under way")).await?;
        }
    }

    /// Begins to commit it, and does not wait for the end: [`is_committed`](Self::is_committed) tells.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn start_commit(&self) -> Result<()> {
        self.ask_for_commit(&mut self.attempts()).await
    }

    /// Whether it is committed.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn is_committed(&self) -> Result<bool> {
        self.look(&mut self.attempts()).await
    }

    /// Undoes it. One that was aborted before is.
    ///
    /// # Errors
    /// `Conflict` if it is committed, or about to be; `NotFound`.
    pub async fn roll_back(&self) -> Result<()> {
        let request = AbortTransactionRequest { txn_id: Some(self.shared.id) };
        let (method, client) = (TxnManagerMethod::AbortTransaction, &self.shared.client.shared);
        let aborted: Result<AbortTransactionResponse> =
            client.transactions(method, &request, &mut self.attempts()).await;
        self.stop_beating();
        aborted.map(|_| ())
    }

    async fn ask_for_commit(&self, attempts: &mut Attempts) -> Result<()> {
        let request = CommitTransactionRequest { txn_id: Some(self.shared.id) };
        let (method, client) = (TxnManagerMethod::CommitTransaction, &self.shared.client.shared);
        let asked: Result<CommitTransactionResponse> = client.transactions(method, &request, attempts).await;
        self.stop_beating();
        asked.map(|_| ())
    }

    /// Whether it is committed by now.
    async fn look(&self, attempts: &mut Attempts) -> Result<bool> {
        let request = GetTransactionStateRequest { txn_id: Some(self.shared.id) };
        let (method, client) = (TxnManagerMethod::GetTransactionState, &self.shared.client.shared);
        let found: GetTransactionStateResponse = client.transactions(method, &request, attempts).await?;
        client.observe(found.commit_timestamp);
        match found.state() {
            TxnState::Committed => Ok(true),
            TxnState::Aborted | TxnState::AbortInProgress => {
                Err(Error::conflict(format!("transaction {} has been aborted", self.shared.id)))
            }
            TxnState::Open
            | TxnState::CommitInProgress
            | TxnState::FinalizeInProgress
            | TxnState::Unknown => Ok(false),
        }
    }

    fn attempts(&self) -> Attempts {
        self.shared.client.shared.attempts()
    }

    fn stop_beating(&self) {
        if let Some(heartbeats) = &self.shared.heartbeats {
            heartbeats.abort();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(heartbeats) = &self.heartbeats {
            heartbeats.abort();
        }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Transaction").field(&self.shared.id).finish()
    }
}

/// Tells the servers that a transaction goes on, twice in the time after which they would end it.
async fn beat(client: Weak<ClientShared>, id: i64, keep_alive: Duration) {
    loop {
        tokio::time::sleep(keep_alive / 2).await;
        let Some(client) = client.upgrade() else { return };
        let request = KeepTransactionAliveRequest { txn_id: Some(id) };
        let (method, mut attempts) = (TxnManagerMethod::KeepTransactionAlive, Attempts::new(keep_alive / 2));
        let told: Result<KeepTransactionAliveResponse> =
            client.transactions(method, &request, &mut attempts).await;
        // Whoever writes next is told what became of it.
        if told.is_err_and(|error| error.kind() != ErrorKind::Unavailable) {
            return;
        }
    }
}
