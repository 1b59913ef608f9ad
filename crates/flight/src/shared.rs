//! What all clients of the door share.

use crate::auth::{Credentials, Door};
use crate::results::Results;
use crate::statements::Statements;
use crate::transactions::Transactions;
use oribi_net::{Load, Network};
use oribi_session::sql::SqlEngine;
use std::sync::Arc;
use std::time::Duration;

/// What clients may take.
#[derive(Clone, Debug)]
pub struct FlightLimits {
    /// Connections at a time; one more is told so (SQLSTATE 53300).
    pub connections_max: usize,
    /// Calls of one connection at a time; more wait.
    pub calls_max: u32,
    /// The longest message that a client may send: of a bulk insert, a batch.
    pub message_bytes_max: usize,
    /// For the long ones that are being sent, and for answers that clients have not taken.
    pub network: Network,
    /// Prepared statements of all clients, and the bytes that they may take.
    pub statements_max: usize,
    pub statement_bytes_max: usize,
    /// How long a prepared statement that nobody names keeps its place, when others want it.
    pub statement_silence_max: Duration,
    pub transactions_max: usize,
    /// How long a transaction lives that nobody names.
    pub transaction_silence_max: Duration,
    /// Results that clients have not taken, or not to the end.
    pub results_max: usize,
    /// How long a result may wait until it is asked for.
    pub result_silence_max: Duration,
    /// While others wait for room: how long a client may take nothing of its answers.
    pub answer_silence_max: Duration,
    /// The time within which a client must have begun to speak HTTP/2.
    pub startup_timeout: Duration,
    /// How often a client that says nothing is asked whether it is there, and within what time it has to say so.
    pub ping_interval: Duration,
    pub ping_timeout: Duration,
    /// The time that calls have to finish at shutdown.
    pub shutdown_grace: Duration,
}

impl Default for FlightLimits {
    fn default() -> Self {
        FlightLimits {
            connections_max: 100,
            calls_max: 64,
            message_bytes_max: 64 << 20,
            network: Network::default(),
            statements_max: 10_000,
            statement_bytes_max: 256 << 20,
            statement_silence_max: Duration::from_secs(60),
            transactions_max: 100,
            transaction_silence_max: Duration::from_secs(300),
            results_max: 1000,
            result_silence_max: Duration::from_secs(120),
            answer_silence_max: Duration::from_secs(10),
            startup_timeout: Duration::from_secs(10),
            ping_interval: Duration::from_secs(60),
            ping_timeout: Duration::from_secs(20),
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

pub struct Shared {
    pub sql: Arc<dyn SqlEngine>,
    pub limits: FlightLimits,
    pub door: Door,
    /// For the long messages that clients are sending, and for answers.
    pub requests: Arc<Load>,
    pub transactions: Transactions,
    pub statements: Statements,
    pub results: Results,
}

impl Shared {
    pub fn new(sql: Arc<dyn SqlEngine>, limits: FlightLimits, credentials: Option<Credentials>) -> Self {
        let requests = Arc::new(Load::of_requests(&limits.network, limits.message_bytes_max));
        Shared {
            door: Door::new(credentials),
            requests,
            transactions: Transactions::new(limits.transactions_max),
            statements: Statements::new(limits.statements_max, limits.statement_bytes_max),
            results: Results::new(&limits),
            sql,
            limits,
        }
    }

    /// Ends what nobody has named for long.
    pub fn end_silent(&self) {
        self.transactions.end_silent(self.limits.transaction_silence_max);
        self.results.end_silent(self.limits.result_silence_max);
        self.results.end_untaken(self.limits.answer_silence_max, self.sql.awaits_clients());
    }
}
