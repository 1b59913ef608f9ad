//! Clients that are served as tasks: while the door is open, and then until they have finished, or their time to do so is over.

use std::pin::pin;
use std::time::Duration;
use tokio::task::JoinSet;

pub struct Tasks {
    door: &'static str,
    tasks: JoinSet<()>,
}

impl Tasks {
    /// Of the door of this name.
    pub fn of(door: &'static str) -> Self {
        Tasks { door, tasks: JoinSet::new() }
    }

    /// Those that have not been seen to end.
    pub fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Begins another, on the current runtime.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Waits for `what`, and forgets those that end meanwhile.
    pub async fn beside<T>(&mut self, what: impl Future<Output = T>) -> T {
        let mut what = pin!(what);
        loop {
            tokio::select! {
                biased;
                Some(_) = self.tasks.join_next() => {}
                done = &mut what => return done,
            }
        }
    }

    /// Waits until all have ended; those that have not after `grace` are cut off.
    pub async fn finish(mut self, grace: Duration) {
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, ended).await.is_err() {
            let connections = self.tasks.len();
            tracing::warn!(door = self.door, connections, "connections were cut off at shutdown");
            self.tasks.shutdown().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn those_that_end_are_forgotten_and_the_others_are_cut_off() {
        let mut tasks = Tasks::of("test");
        let (ends, ended) = oneshot::channel();
        let (told_first, tell) = oneshot::channel::<()>();
        tasks.spawn(async { drop(told_first) });
        tasks.spawn(async {
            let _ends = ends;
            pending().await
        });
        assert_eq!(tasks.count(), 2);
        tasks.beside(async { drop(tell.await) }).await;
        tasks.beside(tokio::task::yield_now()).await;
        assert_eq!(tasks.count(), 1);
        tasks.finish(Duration::ZERO).await;
        let nothing: Result<(), _> = ended.await;
        assert!(nothing.is_err());
    }
}
