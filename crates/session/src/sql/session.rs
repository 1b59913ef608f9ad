//! One client's SQL state: its settings, its block, and what is left to tell it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The setting that limits how long a statement may take.
pub const STATEMENT_TIMEOUT: &str = "statement_timeout";

/// Where a session stands between `BEGIN` and `COMMIT`. The PostgreSQL door reports it with `ReadyForQuery`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionStatus {
    /// Outside of a block.
    #[default]
    Idle,
    /// Inside a block; `wrote` once a statement of it changed something.
    Open { wrote: bool },
    /// A statement of the block failed; only `ROLLBACK` and `COMMIT` are accepted.
    Failed { wrote: bool },
}

/// One client's SQL state.
pub struct SqlSession {
    pub user: String,
    /// The name the client connected to; there is one database, so it only shows in `current_database()`.
    pub database: String,
    settings: Mutex<BTreeMap<String, String>>,
    /// What `settings` says of [`STATEMENT_TIMEOUT`], in milliseconds; 0 without a limit. Each statement asks.
    statement_timeout_ms: AtomicU32,
    /// What settings were before `SET LOCAL`, oldest first.
    before_block: Mutex<Vec<(String, Option<String>)>>,
    transaction: Mutex<TransactionStatus>,
    warnings: Mutex<Vec<String>>,
}

impl SqlSession {
    pub fn new(user: impl Into<String>, database: impl Into<String>) -> Arc<Self> {
        Arc::new(SqlSession {
            user: user.into(),
            database: database.into(),
            settings: Mutex::default(),
            statement_timeout_ms: AtomicU32::new(0),
            before_block: Mutex::default(),
            transaction: Mutex::default(),
            warnings: Mutex::default(),
        })
    }

    /// A setting made by `SET name = value`, lowercase.
    pub fn setting(&self, name: &str) -> Option<String> {
        lock(&self.settings).get(name).cloned()
    }

    pub fn set(&self, name: &str, value: impl Into<String>) {
        let mut settings = lock(&self.settings);
        let value = value.into();
        if name == STATEMENT_TIMEOUT {
            self.note_timeout(&value);
        }
        settings.insert(name.to_owned(), value);
    }

    pub fn reset(&self, name: &str) {
        let mut settings = lock(&self.settings);
        if name == STATEMENT_TIMEOUT {
            self.note_timeout("0");
        }
        settings.remove(name);
    }

    fn note_timeout(&self, value: &str) {
        let limit = parse_timeout(value).unwrap_or_default();
        self.statement_timeout_ms.store(limit.as_millis() as u32, Ordering::Relaxed);
    }

    /// The time that a statement may take, if it is limited.
    pub fn statement_timeout(&self) -> Option<Duration> {
        match self.statement_timeout_ms.load(Ordering::Relaxed) {
            0 => None,
            limit => Some(Duration::from_millis(limit.into())),
        }
    }

    /// Notes a setting, which [`restore_settings`](Self::restore_settings) brings back.
    pub fn restore_at_end(&self, name: &str) {
        let mut before = lock(&self.before_block);
        if !before.iter().any(|(noted, _)| noted == name) {
            before.push((name.to_owned(), self.setting(name)));
        }
    }

    /// Brings back the settings noted since the last call.
    pub fn restore_settings(&self) {
        for (name, value) in std::mem::take(&mut *lock(&self.before_block)) {
            match value {
                Some(value) => self.set(&name, value),
                None => self.reset(&name),
            }
        }
    }

    /// All settings made, by name.
    pub fn settings(&self) -> BTreeMap<String, String> {
        lock(&self.settings).clone()
    }

    pub fn transaction(&self) -> TransactionStatus {
        *lock(&self.transaction)
    }

    /// The SQL engine's to call, and the door's when it fails a statement itself.
    pub fn set_transaction(&self, status: TransactionStatus) {
        *lock(&self.transaction) = status;
    }

    /// Leaves a warning for the client; the door sends it before the statement's answer.
    pub fn warn(&self, message: impl Into<String>) {
        lock(&self.warnings).push(message.into());
    }

    /// The warnings left since the last call.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.warnings))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A time limit as PostgreSQL writes it: a number with a unit (`ms`, `s`, `min`, `h`, `d`), or of milliseconds. At most
/// [`i32::MAX`] milliseconds, PostgreSQL's own bound.
pub fn parse_timeout(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit.trim() {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let limit = number.parse::<u64>().ok()?.checked_mul(factor)?;
    (limit <= i32::MAX as u64).then(|| Duration::from_millis(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_limit_is_what_the_settings_say_whichever_way_they_are_changed() {
        let session = SqlSession::new("user", "database");
        let limit = || session.statement_timeout().map(|limit| limit.as_millis());
        assert_eq!(limit(), None);
        session.set(STATEMENT_TIMEOUT, "2s");
        session.set("lock_timeout", "7");
        assert_eq!(limit(), Some(2000));
        session.restore_at_end(STATEMENT_TIMEOUT);
        session.set(STATEMENT_TIMEOUT, "50");
        assert_eq!(limit(), Some(50));
        session.restore_settings();
        assert_eq!(limit(), Some(2000));
        session.set(STATEMENT_TIMEOUT, "0");
        assert_eq!(limit(), None);
        session.set(STATEMENT_TIMEOUT, "24d");
        assert_eq!(limit(), Some(24 * 86_400_000));
        session.reset(STATEMENT_TIMEOUT);
        assert_eq!(limit(), None);
    }
}
