//! One thread's listening socket: takes clients in within the limits, and sees them off at shutdown.

use super::MemcachedLimits;
use super::batch::Shared;
use super::connection;
use super::stats::Tally;
use oribi_types::Result;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long to wait when the system has no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `shutdown` holds true, and then until the connections have finished, or their time to do so is over.
pub async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    limits: MemcachedLimits,
    mut shutdown: watch::Receiver<bool>,
) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    let shut = shutdown.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => admit(socket, &shared, &limits, &shut, &mut connections),
                Err(error) => {
                    tracing::warn!(%error, "memcached door cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            _ = shutdown.wait_for(|shut| *shut) => break,
        }
    }
    drop(listener);
    let finish = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.shutdown_grace, finish).await.is_err() {
        tracing::warn!("memcached connections were cut off at shutdown");
    }
    Ok(())
}

fn admit(
    socket: TcpStream,
    shared: &Arc<Shared>,
    limits: &MemcachedLimits,
    shutdown: &watch::Receiver<bool>,
    connections: &mut JoinSet<()>,
) {
    let Some(place) = Place::take(shared, limits.connections_max) else {
        shared.counters.add(&Tally { rejected_connections: 1, ..Tally::default() });
        connections.spawn(async move {
            let mut socket = socket;
            // Whether the client hears it makes no difference.
            let _ = socket.write_all(b"ERROR Too many open connections\r\n").await;
        });
        return;
    };
    shared.counters.add(&Tally { total_connections: 1, ..Tally::default() });
    let (shared, idle_max, shutdown) = (shared.clone(), limits.idle_max, shutdown.clone());
    connections.spawn(async move {
        let _place = place;
        // Answers are written whole, so waiting for more to send would only delay them.
        let served = match socket.set_nodelay(true) {
            Ok(()) => connection::serve(socket, shared, idle_max, shutdown).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = served {
            tracing::debug!(%error, "memcached connection ended");
        }
    });
}

/// A connection's place among those there may be, given back when dropped.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>, connections_max: usize) -> Option<Place> {
        let connections = &shared.stats.connections;
        if connections.fetch_add(1, Ordering::Relaxed) >= connections_max as i64 {
            connections.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        metrics::gauge!("oribi_memcached_connections_count").increment(1);
        Some(Place(shared.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.stats.connections.fetch_sub(1, Ordering::Relaxed);
        metrics::gauge!("oribi_memcached_connections_count").decrement(1);
    }
}
