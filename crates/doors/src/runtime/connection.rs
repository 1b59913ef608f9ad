//! One client: receives what it sends, has it executed, settles it, answers it in one write.

use super::{Exchange, Leave, Link, Progress, Protocol, Service};
use oribi_types::{Error, Result};
use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;

pub(super) struct Connection<S: Service> {
    service: Arc<S>,
    thread: usize,
    socket: TcpStream,
    client: Client<S::Protocol>,
}

/// What goes along to a thread that may block.
struct Client<P> {
    protocol: P,
    exchange: Exchange,
}

/// What ended the wait for a client.
enum Event {
    Readable,
    Push,
    Over,
}

impl<S: Service> Connection<S> {
    pub fn new(service: Arc<S>, thread: usize, socket: TcpStream, link: Link) -> Self {
        let client = Client { protocol: service.open(thread, link), exchange: Exchange::default() };
        Connection { service, thread, socket, client }
    }

    /// Serves the client until it leaves, stays idle for longer than it may, or the door shuts. Requests that were
    /// executed are answered first.
    ///
    /// # Errors
    /// Those of the socket, and of an engine that cannot keep what it was told any more: then nobody is answered.
    pub async fn serve(
        mut self,
        idle_max: Option<Duration>,
        mut shutdown: watch::Receiver<bool>,
    ) -> Result<()> {
        let mut pushes = self.client.protocol.pushes();
        // Waits through all requests: to begin anew for each would take a lock that all threads share.
        let mut shut = pin!(shutdown.wait_for(|shut| *shut));
        while !self.client.exchange.closing {
            self.client.exchange.return_buffers();
            let event = tokio::select! {
                biased;
                readable = poll_fn(|context| self.socket.poll_read_ready(context)) => readable.map(|()| Event::Readable)?,
                _ = &mut shut => Event::Over,
                () = changed(&mut pushes) => Event::Push,
                () = silence(idle_max) => {
                    self.service.traffic().thread(self.thread).idle.add(1);
                    Event::Over
                }
            };
            match event {
                Event::Over => return Ok(()),
                Event::Readable => match self.receive()? {
                    Some(0) => return Ok(()),
                    Some(_) => self = self.execute().await?,
                    None => {}
                },
                Event::Push => {
                    self.client.protocol.push(&mut self.client.exchange);
                    self.answer().await?;
                }
            }
        }
        Ok(())
    }

    /// Receives what has arrived: how many bytes, or `None` if it was a false alarm.
    fn receive(&mut self) -> Result<Option<usize>> {
        let exchange = &mut self.client.exchange;
        exchange.borrow_buffers();
        let received = match self.socket.try_read_buf(&mut exchange.input) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        self.service.traffic().thread(self.thread).received_bytes.add(received as u64);
        exchange.received();
        Ok(Some(received))
    }

    /// Executes and answers whatever is whole.
    async fn execute(mut self) -> Result<Self> {
        // Nearly always there is room for writes.
        let mut leave = Leave { to_block: false, to_write: self.service.engine().admits() };
        let mut progress = self.client.advance(leave);
        loop {
            match progress {
                Progress::Done => {
                    self.answer().await?;
                    return Ok(self);
                }
                Progress::OutputFull => self.answer().await?,
                Progress::NeedsAdmission => {
                    self.service.engine().admission().await;
                    leave.to_write = true;
                }
                Progress::NeedsBlocking => {
                    // The rest goes along: it is more likely to need files too than to be worth a way back.
                    let (blocking, mut client) = (Leave { to_block: true, ..leave }, self.client);
                    let run = move || {
                        let progress = client.advance(blocking);
                        (client, progress)
                    };
                    let run = tokio::task::spawn_blocking(run).await;
                    (self.client, progress) =
                        run.map_err(|e| Error::internal(format!("{} requests: {e}", S::NAME)))?;
                    continue;
                }
            }
            progress = self.client.advance(leave);
        }
    }

    /// Sends what was answered, once all that it rests on is as durable as its tables ask for.
    async fn answer(&mut self) -> Result<()> {
        let Client { protocol, exchange } = &mut self.client;
        if !self.service.engine().is_settled(exchange.obligation) {
            // Clients that are ready too append to the log first, so that one write(2) serves all of them.
            tokio::task::yield_now().await;
        }
        self.service.engine().settled(exchange.obligation).await?;
        protocol.settled(exchange);
        self.socket.write_all(&exchange.output).await?;
        self.service.traffic().thread(self.thread).sent_bytes.add(exchange.output.len() as u64);
        exchange.sent();
        Ok(())
    }
}

impl<P: Protocol> Client<P> {
    fn advance(&mut self, leave: Leave) -> Progress {
        self.protocol.advance(&mut self.exchange, leave)
    }
}

/// Completes when there is something to push.
async fn changed(pushes: &mut Option<watch::Receiver<u64>>) {
    if let Some(receiver) = pushes {
        if receiver.changed().await.is_ok() {
            return;
        }
        // Nobody is left to push anything.
        *pushes = None;
    }
    std::future::pending().await
}

async fn silence(idle_max: Option<Duration>) {
    match idle_max {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
