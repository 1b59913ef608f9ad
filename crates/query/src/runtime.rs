//! The threads that plan and execute queries.
//!
//! They run under `SCHED_IDLE`, so a query takes only the processor time that serving leaves.

use oribi_session::sql::SqlError;
use oribi_types::{Error, ErrorKind, Result};
use std::future::Future;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{AbortHandle, JoinHandle};

/// Planning recurses over expressions: a long chain of `OR` needs more than the default 2 MiB.
const STACK_BYTES: usize = 8 << 20;

pub(crate) struct QueryRuntime(Option<Runtime>);

impl QueryRuntime {
    /// # Errors
    /// `Unavailable` if the operating system refuses the threads.
    pub(crate) fn new(threads: usize) -> Result<Self> {
        Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("query")
            .thread_stack_size(STACK_BYTES)
            .on_thread_start(oribi_env::yield_to_serving_threads)
            .enable_all()
            .build()
            .map(|runtime| QueryRuntime(Some(runtime)))
            .map_err(|e| Error::unavailable(format!("query threads: {e}")))
    }

    fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.0.as_ref().expect("the runtime lives until drop").spawn(work)
    }

    /// Runs `work` on the query threads. Dropping the future cancels it; a panic in it is an error.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, SqlError>> + Send + 'static,
    ) -> Result<T, SqlError> {
        let task = self.spawn(work);
        let guard = AbortOnDrop(task.abort_handle());
        let result = task.await;
        drop(guard);
        result.unwrap_or_else(|e| Err(SqlError::new(ErrorKind::Internal, format!("query thread: {e}"))))
    }

    /// Starts `work` on the query threads; it is cancelled when the guard is dropped.
    pub(crate) fn start(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
        AbortOnDrop(self.spawn(work).abort_handle())
    }
}

impl Drop for QueryRuntime {
    fn drop(&mut self) {
        // A runtime that waits for its threads may not be dropped by an asynchronous task; ours may be.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Cancels a task when dropped.
pub(crate) struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
