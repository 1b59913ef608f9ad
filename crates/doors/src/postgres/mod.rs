//! The PostgreSQL door: wire protocol 3.0, simple and extended, with COPY and cancel requests.
//!
//! `codec` cuts the client's bytes into messages; `connection` answers them one after the other, over the session's
//! SQL engine; `encode` writes Arrow batches straight into the output buffer, `row` the single row of a statement that
//! `point` runs. A statement is dropped, and thereby
//! stopped, when the client cancels it or goes away. Nobody is asked for a password, so the door listens on loopback
//! only ([`oribi_net::bind`]). What is supported is listed in `docs/protocols/postgres.md`.

mod cancel;
mod codec;
mod connection;
mod copy;
mod door;
mod encode;
mod error;
mod extended;
mod kept;
mod numeric;
mod parameters;
mod point;
mod row;
mod statement;
mod types;
mod wire;

pub use door::{PostgresDoor, PostgresLimits};
pub use encode::Format;
pub use row::put_data_row;
