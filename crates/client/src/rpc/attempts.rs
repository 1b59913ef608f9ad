//! How long an operation is tried, and how long between two attempts.

use oribi_types::{Error, Result};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tokio::time::Instant;

/// The attempts of one operation, from the first to its deadline.
#[derive(Debug)]
pub(crate) struct Attempts {
    deadline: Instant,
    failed: u32,
    /// Why the attempt before failed: the last one may have had too little time to say more than that.
    before: Option<Error>,
    /// Whether one was maybe executed, and nobody has said so.
    is_unknown: bool,
}

/// Doubling ends here: 256 times the first wait, about four seconds, as in Kudu's C++ client.
const DOUBLINGS_MAX: u32 = 8;

impl Attempts {
    pub(crate) fn new(timeout: Duration) -> Self {
        Attempts { deadline: Instant::now() + timeout, failed: 0, before: None, is_unknown: false }
    }

    /// Time to the deadline, which is how long a server may take, but `longest` at most.
    pub(crate) fn remaining(&self, longest: Duration) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).min(longest)
    }

    /// An attempt was sent, and what became of it is not known.
    pub(crate) fn note_unknown(&mut self) {
        self.is_unknown = true;
    }

    /// Whether an attempt that was refused may have been so because one before it was executed.
    pub(crate) fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// Waits before the next attempt: 10 to 19 ms, and twice as long with each.
    ///
    /// # Errors
    /// `cause`, and that of the attempt before if it was another, if the deadline would pass meanwhile.
    pub(crate) async fn back_off(&mut self, cause: Error) -> Result<()> {
        self.failed += 1;
        let wait = wait_after(self.failed, RandomState::new().hash_one(self.failed));
        if Instant::now() + wait >= self.deadline {
            return Err(self.given_up(cause));
        }
        tokio::time::sleep(wait).await;
        self.before = Some(cause);
        Ok(())
    }

    fn given_up(&self, cause: Error) -> Error {
        let attempts = self.failed;
        match &self.before {
            Some(before) if before.message() != cause.message() => cause.context(format_args!(
                "gave up after {attempts} attempts (the one before: {})",
                before.message()
            )),
            _ => cause.context(format_args!("gave up after {attempts} attempts")),
        }
    }
}

fn wait_after(failed: u32, random: u64) -> Duration {
    Duration::from_millis((10 + random % 10) << (failed - 1).min(DOUBLINGS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit() {
        let waits = |random| [1, 2, 3, 9, 10, 1000].map(|failed| wait_after(failed, random).as_millis());
        assert_eq!(waits(0), [10, 20, 40, 2560, 2560, 2560]);
        assert_eq!(waits(19), [19, 38, 76, 4864, 4864, 4864]);
    }

    #[tokio::test]
    async fn the_cause_is_what_remains_when_there_is_no_time_left() {
        let mut attempts = Attempts::new(Duration::ZERO);
        let error = attempts.back_off(Error::unavailable("busy")).await.unwrap_err();
        assert_eq!(error.message(), "gave up after 1 attempts: busy");
    }

    #[tokio::test]
    async fn a_last_attempt_without_time_does_not_hide_why_the_others_failed() {
        let mut attempts = Attempts::new(Duration::from_secs(60));
        attempts.back_off(Error::unavailable("busy")).await.unwrap();
        attempts.deadline = Instant::now();
        let error = attempts.back_off(Error::unavailable("no answer within 1ms")).await.unwrap_err();
        assert_eq!(error.message(), "gave up after 2 attempts (the one before: busy): no answer within 1ms");
    }
}
