//! How clients reach a door, and what they may take of the server: listening sockets, threads, loops, buffers, TLS and memory, in one
//! place for every door. Nothing here knows a protocol, nor what is stored.
//!
//! Clients come in at a socket that listens on loopback ([`bind`]), until the door shuts ([`Reception`]). How they are served depends
//! on what they ask for:
//!
//! | door | gives | a client is |
//! |---|---|---|
//! | key-value | a [`Service`] and its [`Protocol`] to [`Door::serve`] | one of hundreds of a thread's loop; a task while it waits |
//! | answers come in any order | a [`Host`] to [`Door::start`] | a task of a thread of the door's |
//! | is to answer whatever others do | who serves all its clients, to [`Door::apart`] | a task of the door's only thread |
//! | others | what it likes | a task of the caller's runtime ([`Tasks`]) |
//!
//! **Threads of a door.** One for each core. A new connection goes to the thread that has the fewest, of those that wait for clients: the kernel, given a listening socket
//! for each thread, would spread them by hash, two to one thread while another has none. Those that ask for little come
//! together on as few threads as can serve them.
//!
//! **The loop.** A thread serves its connections by turns in an `event_loop`. One that has to wait for a file, for room in memory, for the
//! disk, for others that write the same rows, or for its client to read is served `aside` until it has nothing to wait for: there it is a
//! task, a `connection`, beside the others that wait. What arrived together is executed together, settled once and answered in one write.
//!
//! **Memory.** A client costs what it has sent and not what it declares: it is not read from while its answers are not read. What is long
//! counts in one [`Network`] for all doors: see [`Load`].

mod aside;
mod balance;
mod bind;
mod computing;
mod connection;
mod crowd;
mod door;
mod event_loop;
mod exchange;
mod flag;
mod frame_room;
mod guest;
mod host;
mod idle;
mod input;
mod listener;
mod load;
mod network;
mod post;
mod reception;
mod seats;
mod service;
mod silence;
mod stream;
mod tasks;
#[cfg(test)]
mod tests;
mod tls;
mod traffic;
mod turn;
mod unsent;

pub use bind::bind;
pub use door::{BLOCKING_THREADS_MAX, Door};
pub use exchange::Exchange;
pub use flag::holds;
pub use frame_room::{FrameRoom, Waited};
pub use host::{Host, Visit};
pub use idle::Idle;
pub use input::Input;
pub use listener::{ClientLimits, Link};
pub use load::{
    Held, LONG_REQUEST_SILENCE_MAX, Load, Loads, TURN_SILENCE_MAX, UNCOUNTED_ANSWER_BYTES,
    UNCOUNTED_REQUEST_BYTES,
};
pub use network::{Network, Room};
pub use reception::Reception;
pub use service::{Leave, Progress, Protocol, Service, Store};
pub use stream::{Stream, TlsSession};
pub use tasks::Tasks;
pub use tls::TlsIdentity;
pub use traffic::{Counter, ThreadTraffic, Traffic, TrafficSum};
pub use turn::{ByteTurn, TURN_BYTES};
