//! What every door calls: one process-wide [`Database`], key-value operations over the engine, and the SQL engine
//! behind a trait, so that doors build without it.

pub mod kv;
pub mod sql;

use oribi_engine::Engine;
use std::sync::Arc;
use std::time::Duration;

/// The database that a process serves.
#[derive(Clone)]
pub struct Database {
    pub engine: Arc<Engine>,
    pub sql: Arc<dyn sql::SqlEngine>,
}

/// How long who was told to wait sleeps at most before it tries again: at first, and after some attempts. What is held for long
/// says when it is over, and is tried again at once; what does not say so is mostly over in a moment.
const TURN_MS_MIN: u64 = 1;
const TURN_MS_MAX: u64 = 32;

/// Waits, without a thread, for what kept a write from being made (`WouldBlock`): then it is tried again, for the `tries`th time.
pub async fn turn(engine: &Engine, tries: u32) {
    let most = Duration::from_millis((TURN_MS_MIN << tries.min(8)).min(TURN_MS_MAX));
    let _ = tokio::time::timeout(most, engine.released()).await;
}
