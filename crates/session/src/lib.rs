//! What every door calls: one process-wide [`Database`], key-value operations over the engine, and the SQL engine
//! behind a trait, so that doors build without it.

pub mod kv;
pub mod sql;

use oribi_engine::Engine;
use std::sync::Arc;

/// The database that a process serves.
#[derive(Clone)]
pub struct Database {
    pub engine: Arc<Engine>,
    pub sql: Arc<dyn sql::SqlEngine>,
}
