//! An answer that is long: it is made once there is room for it, which it has until its client has taken it.
//!
//! So many clients may ask for long values and read none of them: the others wait, but for one at a time. Who has room and takes
//! nothing for too long is dropped. Short answers are neither counted nor held up.

use super::OUTPUT_BYTES_MAX;
use super::load::{Held, Load, TURN_SILENCE_MAX};
use oribi_types::{Error, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// An answer with a longer value is long.
pub(super) const SHORT_VALUE_BYTES_MAX: usize = OUTPUT_BYTES_MAX;
/// How long a client may take nothing of a long answer.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Room for a long answer.
pub(super) struct Unsent {
    held: Held,
    metric: metrics::Gauge,
}

impl Unsent {
    /// Once there is room for so many bytes.
    pub async fn with_room(load: &Arc<Load>, bytes: usize, metric: &metrics::Gauge) -> Self {
        let held = load.clone().wait_for(bytes).await;
        metric.increment(held.bytes() as f64);
        Unsent { held, metric: metric.clone() }
    }

    /// Sends all of it.
    ///
    /// # Errors
    /// Those of the socket; `Unavailable` if the client does not read.
    pub async fn send(&self, socket: &mut TcpStream, mut answer: &[u8]) -> Result<()> {
        let silence_max = if self.held.has_turn() { TURN_SILENCE_MAX } else { SILENCE_MAX };
        while !answer.is_empty() {
            let sent = tokio::time::timeout(silence_max, socket.write(answer)).await;
            let sent = sent.map_err(|_| Error::unavailable("the client does not read a long answer"))??;
            answer = &answer[sent..];
        }
        Ok(())
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.metric.decrement(self.held.bytes() as f64);
    }
}
