//! The threads that plan and execute queries.
//!
//! They run under `SCHED_IDLE`, so a query takes only the processor time that serving leaves. Hence they must not enter
//! the row index, whose locks serving threads want: what does (resolving a scan, reading a row) runs on a few threads
//! of normal priority beside them. These are begun with the runtime, and stay: a thread has the priority of that which begins
//! it, and those that ask for look-ups are idle.
//!
//! A plan executes step by step, and other queries have their turns between. What is one long step would keep a thread
//! from them: planning has [threads of its own](crate::planners), and so has a function that makes
//! [large values](crate::functions). The kernel then shares the processors among them.

use crate::functions::planning;
use crate::planners::{Length, Planners};
use oribi_env::Priority;
use oribi_session::sql::SqlError;
use oribi_types::{Error, ErrorKind, Result};
use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, watch};
use tokio::task::{AbortHandle, JoinHandle};

/// Planning recurses over expressions: a long chain of `OR` needs more than the default 2 MiB.
pub(crate) const STACK_BYTES: usize = 8 << 20;

/// Look-ups and resolutions of scans that may run at a time; more wait.
pub(crate) const LOOKUPS_MAX: usize = 16;

/// Threads that execute queries beside those that plans are split for: some step may be long that nobody knew of.
const SPARE: usize = 2;

/// Of threads that are not begun anew.
pub(crate) const FOR_GOOD: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Begins a runtime's `count` threads for what blocks, with the priority of this one.
pub(crate) fn begin_threads(runtime: &Runtime, count: usize) {
    /// They are there at once; a system that has no more of them must not keep a server from its start.
    const WAIT_MAX: Duration = Duration::from_secs(10);
    let (begin, begun) = mpsc::channel();
    let (go, goes) = watch::channel(());
    for _ in 0..count {
        let (begin, mut goes) = (begin.clone(), goes.clone());
        let tasks = runtime.handle().clone();
        runtime.spawn_blocking(move || {
            let _ = begin.send(());
            // Until all have begun: otherwise one might run all of these.
            let _ = tasks.block_on(goes.changed());
        });
    }
    for _ in 0..count {
        if begun.recv_timeout(WAIT_MAX).is_err() {
            tracing::warn!(count, "not all threads have begun");
            break;
        }
    }
    drop(go);
}

/// What each thread does first that plans or executes.
pub(crate) fn begin_thread(priority: Priority) {
    if priority == Priority::Idle {
        oribi_env::yield_to_serving_threads();
    }
}

pub(crate) struct QueryRuntime {
    /// Executes; idle priority.
    queries: Option<Runtime>,
    planners: Planners,
    /// Calls into the engine that may block; normal priority.
    lookups: Option<Runtime>,
    /// Who changes the catalog.
    changing: Arc<Mutex<()>>,
}

impl QueryRuntime {
    /// # Errors
    /// `Unavailable` if the operating system refuses the threads.
    pub(crate) fn new(threads: usize, priority: Priority) -> Result<Self> {
        let refused = |e: std::io::Error| Error::unavailable(format!("query threads: {e}"));
        let (ordinary, long) = Planners::places(threads);
        // With those for constants; those that look something up come with the smaller stack that is usual.
        let planning = ordinary + long + threads;
        oribi_env::can_spawn(threads + SPARE + planning + LOOKUPS_MAX, STACK_BYTES).map_err(refused)?;
        let queries = Builder::new_multi_thread()
            .worker_threads(threads + SPARE)
            .thread_name("query")
            .thread_stack_size(STACK_BYTES)
            .on_thread_start(move || begin_thread(priority))
            .enable_all()
            .build();
        let lookups = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(LOOKUPS_MAX)
            .thread_keep_alive(FOR_GOOD)
            .thread_name("lookup")
            .build();
        let (queries, lookups) = (queries.map_err(refused)?, lookups.map_err(refused)?);
        begin_threads(&lookups, LOOKUPS_MAX);
        Ok(QueryRuntime {
            planners: Planners::new(queries.handle().clone(), threads, priority).map_err(refused)?,
            queries: Some(queries),
            lookups: Some(lookups),
            changing: Arc::default(),
        })
    }

    /// Runs a call into the engine that may block on files.
    pub(crate) async fn lookup<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let lookups = self.lookups.as_ref().expect("the runtime lives until drop");
        lookups
            .spawn_blocking(work)
            .await
            .unwrap_or_else(|e| Err(Error::internal(format!("lookup thread: {e}"))))
    }

    /// Runs a change of the catalog. The engine makes one at a time, and some wait long: those that would wait there for their turn
    /// would keep all others from their look-ups.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let turn = Arc::clone(&self.changing).lock_owned().await;
        let change = move || {
            let _turn = turn;
            work()
        };
        self.lookup(change).await
    }

    /// Runs a call into the engine that may block on files, and that nobody waits for.
    pub(crate) fn detach(&self, work: impl FnOnce() + Send + 'static) {
        self.lookups.as_ref().expect("the runtime lives until drop").spawn_blocking(work);
    }

    /// Drops `value` on a thread of normal priority: its drop takes a lock that serving threads want.
    pub(crate) fn release<T: Send + 'static>(&self, value: T) {
        self.lookups.as_ref().expect("the runtime lives until drop").spawn(async move { drop(value) });
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.queries.as_ref().expect("the runtime lives until drop").spawn(work)
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

    /// Runs `work`, which plans, [in its turn](Planners), with [bounds](planning) for what it computes. Dropping the future
    /// ends it where it next waits; a panic in it is an error.
    pub(crate) async fn plan<T: Send + 'static>(
        &self,
        length: Length,
        work: impl Future<Output = Result<T, SqlError>> + Send + 'static,
    ) -> Result<T, SqlError> {
        self.planners.run(length, planning(work)).await
    }

    /// Starts `work` on the query threads; it is cancelled when the guard is dropped.
    pub(crate) fn start(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
        AbortOnDrop(self.spawn(work).abort_handle())
    }
}

impl Drop for QueryRuntime {
    fn drop(&mut self) {
        // A runtime that waits for its threads may not be dropped by an asynchronous task; ours may be.
        for runtime in [self.queries.take(), self.lookups.take()].into_iter().flatten() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::aside;
    use futures::future::{join, join_all};
    use futures::poll;
    use std::pin::pin;
    use std::sync::Barrier;

    /// More than there are threads that execute queries.
    const MANY: usize = 16;

    /// Runs `busy` many times, each until it is told to end, and meanwhile what another client asks.
    async fn meanwhile<F>(busy: impl Fn(Arc<QueryRuntime>, Box<dyn FnOnce() + Send>) -> F)
    where
        F: Future<Output = Result<(), SqlError>> + Send + 'static,
    {
        let runtime = Arc::new(QueryRuntime::new(1, Priority::Normal).unwrap());
        let (mut ends, mut tasks) = (Vec::new(), Vec::new());
        let (begun, beginnings) = mpsc::channel();
        for _ in 0..MANY {
            let (end, ended) = mpsc::channel::<()>();
            let begun = begun.clone();
            let long = Box::new(move || {
                begun.send(()).unwrap();
                let _ = ended.recv();
            });
            tasks.push(tokio::spawn(busy(Arc::clone(&runtime), long)));
            ends.push(end);
        }
        let all = tokio::task::spawn_blocking(move || (0..MANY).for_each(|_| beginnings.recv().unwrap()));
        all.await.unwrap();
        assert_eq!(runtime.plan(Length::Ordinary, async { Ok(1) }).await.unwrap(), 1);
        assert_eq!(runtime.run(async { Ok(2) }).await.unwrap(), 2);
        drop(ends);
        for task in tasks {
            task.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn others_plan_and_execute_while_large_values_are_made() {
        meanwhile(|runtime, long| async move {
            runtime
                .run(async move {
                    aside(long);
                    Ok(())
                })
                .await
        })
        .await;
    }

    /// The scheduling policy of the calling thread, 0 for a normal one: field 41 of its `stat` (proc_pid_stat(5)), of which
    /// the thread's name, in parentheses, is the second.
    #[allow(clippy::disallowed_methods, reason = "it is no file of ours")]
    fn policy() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        stat.rsplit(')').next().unwrap().split_whitespace().nth(41 - 3).unwrap().parse().unwrap()
    }

    #[tokio::test]
    async fn what_idle_threads_look_up_runs_at_normal_priority() {
        let runtime = Arc::new(QueryRuntime::new(1, Priority::Idle).unwrap());
        let asking = Arc::clone(&runtime);
        let asked = runtime.run(async move {
            assert_ne!(policy(), 0);
            // Each on a thread of its own.
            let all = Arc::new(Barrier::new(LOOKUPS_MAX));
            let looked = join_all((0..LOOKUPS_MAX).map(|_| {
                let all = Arc::clone(&all);
                asking.lookup(move || {
                    all.wait();
                    Ok(policy())
                })
            }));
            Ok(looked.await)
        });
        assert!(asked.await.unwrap().into_iter().all(|policy| policy.unwrap() == 0));
        assert_eq!(runtime.plan(Length::Constant, async { Ok(policy()) }).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn others_look_up_while_the_catalog_is_changed() {
        let runtime = QueryRuntime::new(1, Priority::Normal).unwrap();
        let (end, ended) = mpsc::channel::<()>();
        let changed = runtime.change(move || Ok(ended.recv().is_err()));
        let others = join_all((0..2 * LOOKUPS_MAX).map(|_| runtime.change(|| Ok(true))));
        let mut changes = pin!(join(changed, others));
        assert!(poll!(&mut changes).is_pending());
        assert_eq!(runtime.lookup(|| Ok(1)).await.unwrap(), 1);
        drop(end);
        let (first, others) = changes.await;
        assert!(first.unwrap() && others.into_iter().all(Result::unwrap));
    }

    #[tokio::test]
    async fn planning_that_nobody_waits_for_ends_where_it_waits() {
        let runtime = QueryRuntime::new(1, Priority::Normal).unwrap();
        let (held, mut dropped) = tokio::sync::mpsc::channel::<()>(1);
        let planning = runtime.plan(Length::Ordinary, async move {
            let _held = held;
            std::future::pending::<Result<(), SqlError>>().await
        });
        assert!(tokio::time::timeout(std::time::Duration::from_millis(1), planning).await.is_err());
        assert_eq!(dropped.recv().await, None);
    }
}
