//! The Arrow Flight SQL door: statements in, Arrow batches out, over gRPC.
//!
//! A door of its own crate, since it brings tonic. `door` has the sockets, `messages` brings gRPC messages together within the memory
//! that all doors have for long requests, `service` answers the calls; `call` executes statements over the session's SQL engine,
//! `results` has their rows until they are taken, `statements` and `transactions` are what clients know by a handle. Handles outlive
//! connections, as the protocol has it, and so all of them are bounded, in number and in time. What is supported is listed in
//! `docs/protocols/flight.md`.

mod arrivals;
mod auth;
mod bind;
mod call;
mod door;
mod handles;
mod information;
mod ingest;
mod lengths;
mod messages;
mod metadata;
mod results;
mod service;
mod shared;
mod statements;
mod status;
mod transactions;
mod types;

pub use auth::Credentials;
pub use door::FlightDoor;
pub use shared::FlightLimits;
