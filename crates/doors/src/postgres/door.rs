//! The listening side: accepts clients within the limits and sees them off at shutdown.

use super::cancel::Cancels;
use super::connection;
use super::kept::Shelf;
use super::statement::Running;
use metrics::counter;
use oribi_net::{Load, Network, Reception, Tasks, holds};
use oribi_session::sql::{SqlEngine, Suspended};
use oribi_types::Result;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;

/// What a client may take.
#[derive(Clone, Debug)]
pub struct PostgresLimits {
    /// Sessions at a time; one more is told so (SQLSTATE 53300).
    pub connections_max: usize,
    /// The largest message a client may send; also the largest row of a `COPY`.
    pub message_bytes_max: usize,
    /// For the long ones that are being sent.
    pub network: Network,
    /// Named prepared statements and, apart from them, portals of one connection.
    pub statements_max: usize,
    /// Bytes that named statements and portals of one connection may take, and those of all together.
    pub kept_bytes_max: usize,
    pub kept_bytes_max_of_all: usize,
    /// While statements of others wait for room: how long a client may take nothing of its answers, and how long rows of a
    /// portal may wait for it to go on: longer than a message may that has begun.
    pub answer_silence_max: Duration,
    pub portal_silence_max: Duration,
    /// The time within which a client must have said who it is.
    pub startup_timeout: Duration,
    /// The time that running statements have to finish at shutdown.
    pub shutdown_grace: Duration,
}

impl Default for PostgresLimits {
    fn default() -> Self {
        PostgresLimits {
            connections_max: 100,
            message_bytes_max: 64 << 20,
            network: Network::default(),
            statements_max: 10_000,
            kept_bytes_max: 64 << 20,
            kept_bytes_max_of_all: 256 << 20,
            answer_silence_max: Duration::from_secs(10),
            portal_silence_max: Duration::from_secs(120),
            startup_timeout: Duration::from_secs(10),
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

/// Connections that are starting up, being refused or cancelling, beyond the sessions; more are dropped unheard.
const STARTUPS_MAX: usize = 64;

/// How far apart it is looked for portals and cursors that nobody goes on with, at most.
const PORTAL_LOOKS_APART: Duration = Duration::from_secs(1);

/// A running door.
pub struct PostgresDoor {
    local_addr: SocketAddr,
    accepting: JoinHandle<()>,
}

/// What all connections of a door share.
pub struct Shared {
    pub sql: Arc<dyn SqlEngine>,
    pub limits: PostgresLimits,
    pub cancels: Arc<Cancels>,
    /// For the long messages that clients are sending.
    pub load: Arc<Load>,
    /// For what clients have kept under names.
    pub shelf: Arc<Shelf>,
    /// Of all connections.
    pub suspended: Arc<Suspended<Running>>,
    sessions: Arc<Semaphore>,
    /// Those that begin.
    newcomers: Arc<Semaphore>,
}

impl Shared {
    /// A session's place, given back when it is dropped; `None` if all are taken.
    pub fn take_slot(&self) -> Option<OwnedSemaphorePermit> {
        self.sessions.clone().try_acquire_owned().ok()
    }

    /// Leave to begin a session: as many do at a time as there are threads to do it. What a session begins with takes some hundred
    /// microseconds, and of a crowd that has come in the same moment all would stand in line before whoever is there already.
    pub async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        self.newcomers.clone().acquire_owned().await.ok()
    }
}

impl PostgresDoor {
    /// Serves `listener` on the current tokio runtime until `shutdown` holds true (or its sender is gone).
    ///
    /// # Errors
    /// Whatever the socket says to being put into tokio's hands.
    pub fn start(
        listener: std::net::TcpListener,
        sql: Arc<dyn SqlEngine>,
        limits: PostgresLimits,
        shutdown: watch::Receiver<bool>,
    ) -> Result<PostgresDoor> {
        let reception = Reception::new("postgres", listener, shutdown.clone())?;
        let local_addr = reception.local_addr()?;
        let [sessions, newcomers] = [limits.connections_max, Handle::current().metrics().num_workers()]
            .map(|places| Arc::new(Semaphore::new(places)));
        let load = Arc::new(Load::of_requests(&limits.network, limits.message_bytes_max));
        let shelf = Shelf::new(limits.kept_bytes_max_of_all);
        let suspended = Suspended::new();
        let cancels = Arc::default();
        let shared = Shared { sql, limits, cancels, load, shelf, suspended, sessions, newcomers };
        let shared = Arc::new(shared);
        tokio::spawn(end_silent_portals(shared.clone(), shutdown.clone()));
        let accepting = tokio::spawn(accept(reception, shared, shutdown));
        Ok(PostgresDoor { local_addr, accepting })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns when all connections have ended after a shutdown.
    pub async fn join(self) {
        // An error would be a panic of the accepting task, which has already been reported.
        let _ = self.accepting.await;
    }
}

async fn accept(mut reception: Reception, shared: Arc<Shared>, shutdown: watch::Receiver<bool>) {
    let mut connections = Tasks::of("postgres");
    while let Some(socket) = connections.beside(reception.next(|socket, _| TcpStream::from_std(socket))).await
    {
        admit(socket, &shared, &shutdown, &mut connections);
    }
    drop(reception);
    connections.finish(shared.limits.shutdown_grace).await;
}

/// Ends portals and cursors that nobody goes on with, whenever others wait for room; until the door shuts.
async fn end_silent_portals(shared: Arc<Shared>, mut shutdown: watch::Receiver<bool>) {
    let silence_max = shared.limits.portal_silence_max;
    loop {
        tokio::select! {
            biased;
            () = holds(&mut shutdown) => return,
            () = tokio::time::sleep(silence_max.min(PORTAL_LOOKS_APART)) => {}
        }
        let since = Instant::now().checked_sub(silence_max).filter(|_| shared.sql.awaits_clients());
        if let Some(since) = since {
            shared.suspended.end_until(since);
            shared.sql.end_cursors_until(since);
        }
    }
}

fn admit(socket: TcpStream, shared: &Arc<Shared>, shutdown: &watch::Receiver<bool>, connections: &mut Tasks) {
    counter!("oribi_postgres_connections_total").increment(1);
    if connections.count() < shared.limits.connections_max + STARTUPS_MAX {
        connections.spawn(connection::serve(socket, shared.clone(), shutdown.clone()));
    }
}
