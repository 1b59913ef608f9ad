//! What the key-value doors share: threads, sockets, buffers and the loops that serve clients. A door adds a
//! [`Protocol`], which turns bytes into answers and does no I/O. A door whose answers come in another order than the
//! requests serves each client as a task, as a [`Host`], and shares the threads and where clients come in.
//!
//! One thread for each core. A new connection goes to the thread that has the fewest: the kernel, given a listening socket
//! for each thread, would spread them by hash, two to one thread while another has none. Those that ask for little come
//! together on as few threads as can serve them. A thread serves its connections by turns in an `event_loop`. One that
//! has to wait for a file, for room in memory, for the disk, for others that write the same rows, or for its client to
//! read is served `aside` until it has nothing to wait for: there it is a task, a `connection`, beside the others that
//! wait.
//!
//! What arrived together is executed together, settled once and answered in one write. A client costs what it has
//! sent and not what it declares: it is not read from while its answers are not read.

mod aside;
mod balance;
mod computing;
mod connection;
mod crowd;
mod door;
mod event_loop;
mod exchange;
mod frame_room;
mod guest;
mod input;
mod listener;
mod load;
mod network;
#[cfg(test)]
mod tests;
mod thread;
mod traffic;
mod unsent;

pub(crate) use door::BLOCKING_THREADS_MAX;
pub use door::Door;
pub use exchange::Exchange;
use exchange::OUTPUT_BYTES_MAX;
pub(crate) use frame_room::{FrameRoom, Waited};
pub use input::Input;
pub(crate) use load::{Held, LONG_REQUEST_SILENCE_MAX, TURN_SILENCE_MAX, UNCOUNTED_BYTES};
pub use load::{Load, Loads};
pub use network::{Network, Room};
pub use traffic::{Counter, Traffic, TrafficSum};

use oribi_engine::Engine;
use oribi_session::kv::Stop;
use oribi_types::Result;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// What serves the clients that a door's threads accept.
pub trait Host: Send + Sync + 'static {
    /// The door's name, in the names of threads and metrics.
    const NAME: &'static str;
    /// What a client hears that is one too many.
    const TOO_MANY: &'static [u8];

    fn traffic(&self) -> &Arc<Traffic>;

    /// Serves a client until its visit is over.
    fn serve(self: Arc<Self>, visit: Visit) -> impl Future<Output = Result<()>> + Send;
}

/// A client that has just connected, until it leaves, is silent for longer than `idle_max`, or `shutdown` holds true and what
/// it has asked for is answered.
pub struct Visit {
    /// The number of the door's thread that it is on.
    pub thread: usize,
    pub socket: TcpStream,
    pub link: Link,
    pub idle_max: Option<Duration>,
    pub shutdown: watch::Receiver<bool>,
}

/// A key-value door: what it knows of all its clients, and how it greets one.
pub trait Service: Send + Sync + 'static {
    type Protocol: Protocol;
    /// The door's name, in the names of threads and metrics.
    const NAME: &'static str;
    /// What a client hears that is one too many.
    const TOO_MANY: &'static [u8];

    fn engine(&self) -> &Arc<Engine>;

    fn traffic(&self) -> &Arc<Traffic>;

    /// For what its clients send and are sent.
    fn loads(&self) -> &Loads;

    /// Tells that clients may have to be told something: [`Protocol::push`] is asked then.
    fn pushes(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// The state of a client that has just connected, to be served by the door's thread of this number.
    fn open(&self, thread: usize, link: Link) -> Self::Protocol;
}

/// One client's protocol state.
///
/// It is moved to a thread that may block, and back, when it asks for that.
pub trait Protocol: Send + 'static {
    /// Executes what is whole at the start of `exchange.input` and takes it away, and appends the answers to
    /// `exchange.output`.
    ///
    /// What was not executed, because the answer is not [`Progress::Done`], stays in the input: it is given again, with
    /// the leave that it needs, or once the answers so far are sent.
    fn advance(&mut self, exchange: &mut Exchange, leave: Leave) -> Progress;

    /// Called when all that the answers rest on is settled, and just before they are sent.
    fn settled(&mut self, _exchange: &mut Exchange) {}

    /// Appends what the client is told without having asked: when [`Service::pushes`] has changed and the client is not being
    /// served.
    fn push(&mut self, _exchange: &mut Exchange) {}
}

/// What the caller of [`Protocol::advance`] has made sure of.
#[derive(Clone, Copy, Debug)]
pub struct Leave {
    /// This thread may wait for files.
    pub to_block: bool,
    /// There is room in memory for what is written.
    pub to_write: bool,
    /// This thread may compute for milliseconds, as for one request with a password.
    pub to_compute: bool,
    /// There is room for the answer to one request with a value of so many bytes.
    pub to_answer: usize,
}

impl Leave {
    /// Whether answers of so many bytes are sent before more are made.
    pub fn is_full(self, output_bytes: usize) -> bool {
        output_bytes > OUTPUT_BYTES_MAX.min(self.to_answer)
    }
}

/// Why [`Protocol::advance`] stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Whatever is whole was executed.
    Done,
    /// The answers must be sent before more is executed.
    OutputFull,
    /// The next request writes, and writers have to be admitted.
    NeedsAdmission,
    /// The next request reads a file.
    NeedsBlocking,
    /// The next request computes for milliseconds.
    NeedsProcessor,
    /// The next request writes what others do now, or would have to wait for something else.
    NeedsTurn,
    /// The next request is answered with a value of so many bytes, about: more than there is room for.
    NeedsRoom(usize),
}

impl From<Stop> for Progress {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::NeedsFiles => Progress::NeedsBlocking,
            Stop::NeedsTurn => Progress::NeedsTurn,
        }
    }
}

/// The two ends of a client's connection.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

/// What the clients of a door may take.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Connections at a time; one more is told so and dropped.
    pub connections_max: usize,
    /// How long a connection may be silent; `None`: for ever.
    pub idle_max: Option<Duration>,
    /// How long requests that are being executed have to finish at shutdown.
    pub shutdown_grace: Duration,
}

impl Default for ClientLimits {
    /// memcached's, where it has such a limit.
    fn default() -> Self {
        ClientLimits { connections_max: 1024, idle_max: None, shutdown_grace: Duration::from_secs(10) }
    }
}
