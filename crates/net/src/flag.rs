//! Flags that are raised once: that a door shuts, that a statement is cancelled.

use tokio::sync::watch;

/// Waits until `flag` holds true, or nobody is left who could raise it, which is as good.
pub async fn holds(flag: &mut watch::Receiver<bool>) {
    let _ = flag.wait_for(|raised| *raised).await;
}
