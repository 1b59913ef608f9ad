//! A panic in the middle of a change stops the engine, as a failed log does.
//!
//! A write that has its timestamp and never completes would hold the watermark for ever; a flush that is gone, writers that wait
//! for room; files that are in the manifest and not in the tablet, or rows that are in the log and not in memory, would be
//! forgotten. All of it is in order again after a restart. So the log is stopped, whoever waits is woken to an error, and
//! who serves ends ([`Engine::failure`]). Before a write has its timestamp a panic is the caller's: nothing was changed.

use crate::engine::Engine;
use oribi_types::Error;

/// Held while something is half done.
pub(crate) struct StopOnPanic<'a> {
    engine: &'a Engine,
    doing: &'static str,
}

impl Engine {
    /// To be held while `doing` something that must be done as a whole: a panic meanwhile stops the engine.
    #[inline]
    pub(crate) fn stop_on_panic(&self, doing: &'static str) -> StopOnPanic<'_> {
        StopOnPanic { engine: self, doing }
    }

    #[cold]
    fn stop(&self, doing: &str) {
        self.fail(Error::unavailable(format!("{doing} panicked")));
    }

    /// Stops: something is half done, and it is not known how.
    #[cold]
    pub(crate) fn fail(&self, error: Error) {
        self.log.stop(error.clone());
        self.timeline.stop(error);
        // Who waits for room is told that the engine is closed.
        self.budget.close();
    }
}

impl Drop for StopOnPanic<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.engine.stop(self.doing);
        }
    }
}
