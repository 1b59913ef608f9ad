//! Requests that compute for milliseconds, such as those that have a password hashed: a few of the process at a time, in
//! turn, so that those of many clients leave the processors, and the threads that wait for files, to others.

use crate::door::BLOCKING_THREADS_MAX;
use std::sync::LazyLock;
use tokio::sync::{Semaphore, SemaphorePermit};

/// On any machine; on small ones, as many as half of its processors.
pub(crate) const PLACES_MAX: usize = 4;
/// Other requests of the same thread read files meanwhile.
const _: () = assert!(PLACES_MAX < BLOCKING_THREADS_MAX);

static PLACES: LazyLock<Semaphore> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Semaphore::new((processors / 2).clamp(1, PLACES_MAX))
});

/// A place, once it is the caller's turn.
pub(crate) async fn place() -> SemaphorePermit<'static> {
    PLACES.acquire().await.expect("the semaphore is not closed")
}
