//! One client: reads what has arrived, has it executed, settles it, answers it in one write.

use super::batch::{Batch, Leave, Progress, Shared};
use super::stats::Tally;
use oribi_types::{Error, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Serves a client until it leaves, stays idle for longer than it may, or the door shuts. Requests that were executed
/// are answered first.
///
/// # Errors
/// Those of the socket, and of an engine that cannot keep what it was told any more: then nobody is answered.
pub async fn serve(
    mut socket: TcpStream,
    shared: Arc<Shared>,
    idle_max: Option<Duration>,
    mut shutdown: watch::Receiver<bool>,
) -> Result<()> {
    let mut batch = Batch::new();
    while !batch.closing {
        batch.reserve();
        let received = tokio::select! {
            received = socket.read_buf(&mut batch.input) => received?,
            () = idle(idle_max) => {
                shared.counters.add(&Tally { idle_kicks: 1, ..Tally::default() });
                return Ok(());
            }
            _ = shutdown.wait_for(|shut| *shut) => return Ok(()),
        };
        if received == 0 {
            return Ok(());
        }
        shared.counters.add(&Tally { bytes_read: received as u64, ..Tally::default() });
        batch = execute(batch, &mut socket, &shared).await?;
    }
    Ok(())
}

async fn idle(idle_max: Option<Duration>) {
    match idle_max {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Executes and answers whatever is whole in `batch`.
async fn execute(mut batch: Batch, socket: &mut TcpStream, shared: &Arc<Shared>) -> Result<Batch> {
    let mut leave = Leave { to_block: false, to_write: false };
    let mut progress = batch.advance(shared, leave);
    loop {
        match progress {
            Progress::Done => {
                answer(&mut batch, socket, shared).await?;
                return Ok(batch);
            }
            Progress::OutputFull => answer(&mut batch, socket, shared).await?,
            Progress::NeedsAdmission => {
                shared.kv.engine().admission().await;
                leave.to_write = true;
            }
            Progress::NeedsBlocking => {
                // The rest of the batch goes along: it is more likely to need files too than to be worth a way back.
                let (leave, shared) = (Leave { to_block: true, ..leave }, shared.clone());
                let run = move || {
                    let progress = batch.advance(&shared, leave);
                    (batch, progress)
                };
                let run = tokio::task::spawn_blocking(run).await;
                (batch, progress) = run.map_err(|e| Error::internal(format!("memcached batch: {e}")))?;
                continue;
            }
        }
        progress = batch.advance(shared, leave);
    }
}

/// Sends what was answered, once all that it rests on is as durable as its tables ask for.
async fn answer(batch: &mut Batch, socket: &mut TcpStream, shared: &Shared) -> Result<()> {
    shared.kv.engine().settled(batch.obligation).await?;
    socket.write_all(&batch.output).await?;
    shared.counters.add(&Tally { bytes_written: batch.output.len() as u64, ..Tally::default() });
    batch.sent();
    Ok(())
}
