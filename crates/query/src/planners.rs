//! Where statements are planned: so many at a time, in order of arrival.
//!
//! Planning is one long step after another, and takes memory that nobody counts. So each statement that is planned has a
//! place, and with it a thread; the others wait without one. Who waits for the engine meanwhile, as for the rows of a scan,
//! gives its place to the next.
//!
//! What names thousands of columns is planned for seconds. That has places of its own, so that ordinary statements never
//! wait for it: the kernel shares the processors among both. What names no table at all, as `select 1`, is planned within a
//! fraction of a millisecond, and computed with it. Such statements ask whether a server lives, or a connection: they have places
//! of their own too, of normal priority, and wait for no crowd of others.
//!
//! There are as many threads as places. On the pool of another runtime there would be more: a place is free a moment before
//! its thread is, and on a busy machine others are begun in that moment, each of which keeps some megabytes of the allocator's.

use crate::catalog::find_table;
use crate::context::StatementView;
use crate::dml::qualified;
use crate::runtime::{FOR_GOOD, STACK_BYTES, begin_thread, begin_threads};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{self, visit_relations};
use oribi_env::Priority;
use oribi_session::sql::SqlError;
use oribi_types::ErrorKind;
use std::future::Future;
use std::io;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Notify, Semaphore};

/// Ordinary statements that are planned at a time, beside as many as there are processors to do it. Planning only
/// computes: more at a time are done no sooner, and each has what it made by then. A few more, since one may take longer
/// than it looks.
const SPARE: usize = 6;

/// The columns of all tables that an ordinary query names.
const COLUMNS_MAX: usize = 500;
/// The text of an ordinary query.
const QUERY_BYTES_MAX: usize = 16 << 10;
/// The text of an ordinary statement: what is inserted is read in one go.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// The columns of all nodes of an ordinary plan, and the parts of its expressions.
const PARTS_MAX: usize = 2000;
/// The text of a statement that names no table and is planned as such.
const CONSTANT_BYTES_MAX: usize = 1 << 10;
/// Likewise, the columns of its nodes, and the parts of its expressions.
const CONSTANT_PARTS_MAX: usize = 100;

/// How long planning may take, by what is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// Some hundred microseconds: it reads nothing.
    Constant,
    /// Some milliseconds.
    Ordinary,
    /// Seconds, perhaps.
    Long,
}

impl Length {
    fn long_if(long: bool) -> Self {
        if long { Length::Long } else { Length::Ordinary }
    }

    /// Of reading a text of so many bytes.
    pub(crate) fn of_text(bytes: usize) -> Self {
        Length::long_if(bytes > TEXT_BYTES_MAX)
    }

    /// Of making the logical plan of a query.
    pub(crate) fn of_query(view: &StatementView, query: &ast::Statement, sql: &str) -> Self {
        let (mut columns, mut relations) = (0, 0);
        let _ = visit_relations(query, |name| {
            relations += 1;
            let Ok((schema, table)) = qualified(name) else { return ControlFlow::<()>::Continue(()) };
            let table = find_table(&view.catalog, &view.session, schema.as_deref(), &table);
            columns += table.map_or(0, |table| table.schema().shown().len());
            ControlFlow::Continue(())
        });
        if relations == 0 && sql.len() <= CONSTANT_BYTES_MAX {
            return Length::Constant;
        }
        Length::long_if(columns > COLUMNS_MAX || sql.len() > QUERY_BYTES_MAX)
    }

    /// Of making a physical plan of a logical one.
    pub(crate) fn of_plan(plan: &LogicalPlan) -> Self {
        Length::long_if(parts(plan, PARTS_MAX) > PARTS_MAX)
    }
}

/// Whether a plan gives one row that is computed from nothing but the statement, in no time.
pub(crate) fn is_constant(plan: &LogicalPlan) -> bool {
    let is_plain = |expr: &Expr| {
        expr.exists(|part| {
            Ok(matches!(
                part,
                Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_)
            ))
        })
        .is_ok_and(|has_subquery| !has_subquery)
    };
    fn is_row(plan: &LogicalPlan, is_plain: &impl Fn(&Expr) -> bool) -> bool {
        match plan {
            LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
            LogicalPlan::SubqueryAlias(alias) => is_row(&alias.input, is_plain),
            LogicalPlan::Projection(projection) => {
                projection.expr.iter().all(is_plain) && is_row(&projection.input, is_plain)
            }
            _ => false,
        }
    }
    is_row(plan, &is_plain) && parts(plan, CONSTANT_PARTS_MAX) <= CONSTANT_PARTS_MAX
}

/// The columns of all nodes of a plan, and the parts of its expressions; where there are more than `max`, some number above.
pub(crate) fn parts(plan: &LogicalPlan, max: usize) -> usize {
    let mut parts = 0;
    let go_on = |parts: usize| match parts > max {
        true => TreeNodeRecursion::Stop,
        false => TreeNodeRecursion::Continue,
    };
    let counted = plan.apply_with_subqueries(|node| {
        parts += node.schema().fields().len();
        node.apply_expressions(|expr| {
            expr.apply(|_| {
                parts += 1;
                Ok(go_on(parts))
            })
        })?;
        Ok(go_on(parts))
    });
    counted.map_or(max.saturating_add(1), |_| parts)
}

/// Places for statements that are planned.
pub(crate) struct Planners {
    ordinary: Places,
    long: Places,
    constant: Places,
    /// Where tasks are begun: those that have threads for places have none.
    tasks: Handle,
    /// Those for constants, and those for all others.
    threads: [Option<Runtime>; 2],
}

/// So many at a time, each with a thread.
struct Places {
    free: Arc<Semaphore>,
    threads: Handle,
}

impl Places {
    fn new(count: usize, threads: &Runtime) -> Self {
        Places { free: Arc::new(Semaphore::new(count)), threads: threads.handle().clone() }
    }
}

impl Planners {
    /// So many statements are planned at a time, ordinary and long ones, where `processors` do it.
    pub(crate) const fn places(processors: usize) -> (usize, usize) {
        (processors + SPARE, processors)
    }

    /// Planners of a priority, whose tasks are those of a runtime.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn new(tasks: Handle, processors: usize, priority: Priority) -> io::Result<Self> {
        let (ordinary, long) = Planners::places(processors);
        let threads = planning_threads(ordinary + long, priority)?;
        let serving = planning_threads(processors, Priority::Normal)?;
        begin_threads(&serving, processors);
        Ok(Planners {
            ordinary: Places::new(ordinary, &threads),
            long: Places::new(long, &threads),
            constant: Places::new(processors, &serving),
            tasks,
            threads: [Some(serving), Some(threads)],
        })
    }

    /// Runs `work` in a place of its length, each time that it can go on. Dropping the future ends it where it next waits,
    /// for its place too; a panic in it is an error.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        length: Length,
        work: impl Future<Output = Result<T, SqlError>> + Send + 'static,
    ) -> Result<T, SqlError> {
        let places = match length {
            Length::Constant => &self.constant,
            Length::Ordinary => &self.ordinary,
            Length::Long => &self.long,
        };
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut work = Aside { work: Some(Box::pin(work)), tasks: &self.tasks };
        loop {
            let place = Arc::clone(&places.free).acquire_owned().await.expect("it is never closed");
            let (mut at_work, waker, tasks) = (work.take(), waker.clone(), self.tasks.clone());
            let turn = places.threads.spawn_blocking(move || {
                let _place = place;
                let _tasks = tasks.enter();
                match at_work.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(planned) => Turn::Done(planned),
                    Poll::Pending => Turn::Waits(at_work),
                }
            });
            match turn.await {
                Ok(Turn::Done(planned)) => return planned,
                Ok(Turn::Waits(rest)) => work.work = Some(rest),
                Err(e) => {
                    return Err(SqlError::new(ErrorKind::Internal, format!("planning thread: {e}")));
                }
            }
            woken.0.notified().await;
        }
    }
}

impl Drop for Planners {
    /// Waits for nobody: who drops them may be a task.
    fn drop(&mut self) {
        self.threads.iter_mut().filter_map(Option::take).for_each(Runtime::shutdown_background);
    }
}

fn planning_threads(count: usize, priority: Priority) -> io::Result<Runtime> {
    let builder = &mut Builder::new_current_thread();
    let builder = builder.max_blocking_threads(count).thread_name("plan").thread_stack_size(STACK_BYTES);
    let builder = match priority {
        // It has to be begun by one of normal priority, and to stay.
        Priority::Normal => builder.thread_keep_alive(FOR_GOOD),
        Priority::Idle => builder,
    };
    builder.on_thread_start(move || begin_thread(priority)).build()
}

type Work<T> = Pin<Box<dyn Future<Output = Result<T, SqlError>> + Send>>;

/// How a turn at planning ended.
enum Turn<T> {
    Done(Result<T, SqlError>),
    Waits(Work<T>),
}

/// Says that what waited can go on.
#[derive(Default)]
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Work that waits. If nobody wants it any more it is dropped on another thread than that which serves its client: it may
/// have made much.
struct Aside<'a, T: Send + 'static> {
    work: Option<Work<T>>,
    tasks: &'a Handle,
}

impl<T: Send + 'static> Aside<'_, T> {
    fn take(&mut self) -> Work<T> {
        self.work.take().expect("it waits")
    }
}

impl<T: Send + 'static> Drop for Aside<'_, T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.tasks.spawn(async move { drop(work) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use futures::poll;
    use std::collections::HashSet;
    use std::pin::pin;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use tokio::runtime::Builder;

    const PROCESSORS: usize = 2;

    /// Planners on a runtime of their own, which a test that ends does not wait for.
    struct Planning {
        planners: Arc<Planners>,
        runtime: Option<tokio::runtime::Runtime>,
    }

    impl Planning {
        fn new() -> Self {
            let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
            let planners = Planners::new(runtime.handle().clone(), PROCESSORS, Priority::Normal).unwrap();
            Planning { planners: Arc::new(planners), runtime: Some(runtime) }
        }

        /// A statement that is planned from when it tells its number until it is told to end.
        fn start(&self, length: Length, number: usize, begun: &Sender<usize>) -> Planned {
            let (end, ended) = channel::<()>();
            let (planners, begun) = (Arc::clone(&self.planners), begun.clone());
            let work = async move {
                begun.send(number).unwrap();
                let _ = ended.recv();
                Ok(number)
            };
            let task = tokio::spawn(async move { planners.run(length, work).await });
            Planned { end, task }
        }
    }

    impl Drop for Planning {
        fn drop(&mut self) {
            self.runtime.take().unwrap().shutdown_background();
        }
    }

    struct Planned {
        end: Sender<()>,
        task: tokio::task::JoinHandle<Result<usize, SqlError>>,
    }

    /// Waits on another thread, so that tasks of this one go on.
    async fn next<T: Send + 'static>(receiver: &Arc<Mutex<Receiver<T>>>) -> T {
        let receiver = Arc::clone(receiver);
        tokio::task::spawn_blocking(move || receiver.lock().unwrap().recv().unwrap()).await.unwrap()
    }

    /// All tasks of this thread have had their turns.
    async fn turns() {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn so_many_statements_are_planned_at_a_time_and_the_others_in_order_of_arrival() {
        let planning = Planning::new();
        let (places, _) = Planners::places(PROCESSORS);
        let (begun, beginnings) = channel();
        let beginnings = Arc::new(Mutex::new(beginnings));
        let mut all = Vec::new();
        for number in 0..4 * places {
            all.push(planning.start(Length::Ordinary, number, &begun));
            turns().await;
        }
        let mut first = Vec::new();
        for _ in 0..places {
            first.push(next(&beginnings).await);
        }
        first.sort_unstable();
        assert_eq!(first, Vec::from_iter(0..places));
        // As each ends, the next begins, and no other.
        for (ended, planned) in all.into_iter().enumerate() {
            turns().await;
            assert!(beginnings.lock().unwrap().try_recv().is_err());
            drop(planned.end);
            assert_eq!(planned.task.await.unwrap().unwrap(), ended);
            if ended < 3 * places {
                assert_eq!(next(&beginnings).await, places + ended);
            }
        }
    }

    #[tokio::test]
    async fn a_crowd_is_planned_by_as_many_threads_as_there_are_places() {
        let planning = Planning::new();
        let (ordinary, long) = Planners::places(PROCESSORS);
        let threads = Arc::new(Mutex::new(HashSet::new()));
        let crowd = join_all((0..100 * ordinary).map(|_| {
            let threads = Arc::clone(&threads);
            planning.planners.run(Length::Ordinary, async move {
                threads.lock().unwrap().insert(std::thread::current().id());
                Ok(())
            })
        }));
        assert!(crowd.await.into_iter().all(|planned| planned.is_ok()));
        assert!(threads.lock().unwrap().len() <= ordinary + long);
    }

    #[tokio::test]
    async fn ordinary_statements_are_planned_while_long_ones_have_all_their_places() {
        let planning = Planning::new();
        let (_, places) = Planners::places(PROCESSORS);
        let (begun, beginnings) = channel();
        let beginnings = Arc::new(Mutex::new(beginnings));
        let long = Vec::from_iter((0..4 * places).map(|n| planning.start(Length::Long, n, &begun)));
        for _ in 0..places {
            next(&beginnings).await;
        }
        assert_eq!(planning.planners.run(Length::Ordinary, async { Ok(1) }).await.unwrap(), 1);
        for planned in long {
            drop(planned.end);
            planned.task.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn constants_are_planned_while_others_have_all_their_places() {
        let planning = Planning::new();
        let (ordinary, long) = Planners::places(PROCESSORS);
        let (begun, beginnings) = channel();
        let beginnings = Arc::new(Mutex::new(beginnings));
        let others =
            (0..4 * ordinary).map(|n| (Length::Ordinary, n)).chain((0..4 * long).map(|n| (Length::Long, n)));
        let others = Vec::from_iter(others.map(|(length, n)| planning.start(length, n, &begun)));
        for _ in 0..ordinary + long {
            next(&beginnings).await;
        }
        assert_eq!(planning.planners.run(Length::Constant, async { Ok(1) }).await.unwrap(), 1);
        for planned in others {
            drop(planned.end);
            planned.task.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn who_waits_while_it_is_planned_has_no_place() {
        let planning = Planning::new();
        let (places, _) = Planners::places(PROCESSORS);
        let told = Arc::new(Notify::new());
        let (begun, beginnings) = channel();
        let beginnings = Arc::new(Mutex::new(beginnings));
        let waiting = (0..2 * places).map(|n| {
            let (planners, told, begun) = (Arc::clone(&planning.planners), Arc::clone(&told), begun.clone());
            tokio::spawn(async move {
                let work = async move {
                    let told = told.notified();
                    let mut told = pin!(told);
                    told.as_mut().enable();
                    begun.send(n).unwrap();
                    told.await;
                    Ok(n)
                };
                planners.run(Length::Ordinary, work).await
            })
        });
        let waiting = Vec::from_iter(waiting);
        for _ in 0..2 * places {
            next(&beginnings).await;
        }
        assert_eq!(planning.planners.run(Length::Ordinary, async { Ok(1) }).await.unwrap(), 1);
        told.notify_waiters();
        for (n, planned) in join_all(waiting).await.into_iter().enumerate() {
            assert_eq!(planned.unwrap().unwrap(), n);
        }
    }

    #[tokio::test]
    async fn who_gives_up_while_it_waits_for_a_place_is_never_planned() {
        let planning = Planning::new();
        let (_, places) = Planners::places(PROCESSORS);
        let (begun, beginnings) = channel();
        let beginnings = Arc::new(Mutex::new(beginnings));
        let long = Vec::from_iter((0..places).map(|n| planning.start(Length::Long, n, &begun)));
        for _ in 0..places {
            next(&beginnings).await;
        }
        let given_up = {
            let begun = begun.clone();
            planning.planners.run(Length::Long, async move {
                begun.send(usize::MAX).unwrap();
                Ok(())
            })
        };
        {
            let mut given_up = pin!(given_up);
            assert!(poll!(&mut given_up).is_pending());
        }
        let behind = planning.start(Length::Long, places, &begun);
        drop(behind.end);
        for planned in long {
            drop(planned.end);
            planned.task.await.unwrap().unwrap();
        }
        assert_eq!(behind.task.await.unwrap().unwrap(), places);
        assert_eq!(next(&beginnings).await, places);
        assert!(beginnings.lock().unwrap().try_recv().is_err());
    }

    #[tokio::test]
    async fn a_planner_that_panics_has_failed_and_its_place_is_free() {
        let planning = Planning::new();
        let (places, _) = Planners::places(PROCESSORS);
        for _ in 0..2 * places {
            let failed = planning.planners.run(Length::Ordinary, panics()).await.unwrap_err();
            assert_eq!(failed.error.kind(), ErrorKind::Internal);
        }
        assert_eq!(planning.planners.run(Length::Ordinary, async { Ok(1) }).await.unwrap(), 1);
    }

    async fn panics() -> Result<(), SqlError> {
        panic!("while it is planned")
    }
}
