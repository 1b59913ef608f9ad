//! A plan's way to its client: it is executed on the query threads into a bounded channel, from which the client takes batches.

use crate::context::Physical;
use crate::error::sql_error;
use crate::interest::Interested;
use crate::long_rows::reads_short_ranges;
use crate::runtime::{AbortOnDrop, QueryRuntime};
use crate::unread::{Admitted, Counted, Made, Place, Turn, Unread};
use arrow::array::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::execute_stream_partitioned;
use futures::{StreamExt, stream};
use oribi_session::sql::{RowStream, SqlError};
use oribi_types::ErrorKind;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;

/// Batches that a query may be ahead of its client.
const BATCHES_AHEAD: usize = 2;

/// What a query tells its client.
enum Told {
    Batch(RecordBatch, Option<Counted>),
    Failed(SqlError),
    /// There were no more rows. A query that ends without saying so has panicked.
    End,
}

/// Starts to execute a plan, whose rows come by the stream; dropping that cancels. What is made for a client, which
/// `admitted` says, and not for a statement that takes all of it, counts as unread.
pub(crate) fn deliver(
    runtime: &QueryRuntime,
    (physical, interested): (Physical, Interested),
    mut admitted: Option<Admitted>,
) -> RowStream {
    let made = if reads_short_ranges(&physical.plan) { Made::Aside } else { Made::WhenPolled };
    let unread = admitted.as_ref().map(Admitted::unread).cloned();
    let line = Arc::new(Line::new(admitted.as_mut().and_then(Admitted::take_turn)));
    start(runtime, interested, |asked, sender| async move {
        execute(physical, Pump { unread, made, line, had: None, asked, sender }).await;
        drop(admitted);
    })
}

/// Starts what `tells` by the channel that it is given, and hears whether the client waits.
fn start<F: Future<Output = ()> + Send + 'static>(
    runtime: &QueryRuntime,
    interested: Interested,
    tells: impl FnOnce(watch::Receiver<bool>, mpsc::Sender<Told>) -> F,
) -> RowStream {
    let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
    let (asks, asked) = watch::channel(false);
    let task = runtime.start(tells(asked, sender));
    Box::pin(rows(Client { receiver, asks, taken: None, _task: task, _interested: interested }))
}

/// Executes a plan until it ends, fails, or nobody listens.
async fn execute(Physical { plan, task, held: _held, .. }: Physical, pump: Pump) {
    let told = match execute_stream_partitioned(plan, task) {
        Ok(partitions) => {
            let mut pumps: JoinSet<bool> =
                partitions.into_iter().map(|batches| pump.clone().run(batches)).collect();
            while let Some(ended) = pumps.join_next().await {
                if !matches!(ended, Ok(true)) {
                    return;
                }
            }
            Told::End
        }
        Err(e) => Told::Failed(sql_error(e)),
    };
    let _ = pump.sender.send(told).await;
}

/// What the partitions of a statement have in common.
#[derive(Default)]
struct Line {
    /// One waits for a place at a time: each would have to wait for what those before it have made, until the client has taken that.
    /// The first to look has the place that the statement was admitted with.
    first: Mutex<Option<Place>>,
    /// With which one of them makes a batch. It may wait for the others, as partitions of a join go on once all have read its first side:
    /// so each of them may make one, too.
    turn: watch::Sender<Option<Turn>>,
}

impl Line {
    fn new(first: Option<Place>) -> Self {
        Line { first: Mutex::new(first), ..Line::default() }
    }

    /// Others may make batches, until this is dropped.
    fn with(&self, turn: Turn) -> WithTurn<'_> {
        self.turn.send_replace(Some(turn));
        WithTurn(self)
    }
}

struct WithTurn<'l>(&'l Line);

impl Drop for WithTurn<'_> {
    fn drop(&mut self) {
        self.0.turn.send_replace(None);
    }
}

/// Leave to make a batch.
enum Leave {
    Own(Place),
    /// While another partition makes one with the turn.
    Beside(Arc<Unread>, Turn),
}

impl Leave {
    fn holds(&self, line: &Line) -> bool {
        match self {
            Leave::Own(place) => place.holds(),
            Leave::Beside(unread, turn) => line.turn.borrow().as_ref() == Some(turn) || unread.has_room(),
        }
    }

    /// Counts the batch that was made.
    fn count(self, batch: &RecordBatch) -> Option<Counted> {
        match self {
            Leave::Own(place) => place.count(batch),
            Leave::Beside(unread, turn) => unread.count_beside(batch, &turn),
        }
    }
}

/// Hands on the batches of a partition.
#[derive(Clone)]
struct Pump {
    unread: Option<Arc<Unread>>,
    made: Made,
    line: Arc<Line>,
    /// Beside which it has made its batch.
    had: Option<Turn>,
    /// Whether the client waits for a batch.
    asked: watch::Receiver<bool>,
    sender: mpsc::Sender<Told>,
}

impl Pump {
    /// Whether all were handed on; not if it fails, which is told, or nobody listens.
    async fn run(mut self, mut batches: SendableRecordBatchStream) -> bool {
        while let Some(next) = self.next(&mut batches).await {
            let failed = next.is_err();
            let told = match next {
                Ok((batch, leave)) => {
                    if let Some(Leave::Beside(_, turn)) = &leave {
                        self.had = Some(turn.clone());
                    }
                    let counted = leave.and_then(|leave| leave.count(&batch));
                    Told::Batch(batch, counted)
                }
                Err(error) => Told::Failed(error),
            };
            if self.sender.send(told).await.is_err() || failed {
                return false;
            }
        }
        true
    }

    /// The next batch, with the leave that it was made by.
    async fn next(
        &mut self,
        batches: &mut SendableRecordBatchStream,
    ) -> Option<Result<(RecordBatch, Option<Leave>), SqlError>> {
        loop {
            let leave = match self.leave().await.transpose() {
                Ok(leave) => leave,
                Err(error) => return Some(Err(error)),
            };
            let turn = match &leave {
                Some(Leave::Own(place)) => place.turn(),
                _ => None,
            };
            let _with_turn = turn.map(|turn| self.line.with(turn));
            let next = poll_fn(|context| match &leave {
                // Others have taken the room since.
                Some(leave) if !leave.holds(&self.line) => Poll::Ready(None),
                _ => batches.poll_next_unpin(context).map(Some),
            });
            if let Some(batch) = next.await {
                return batch.map(|batch| Ok((batch.map_err(sql_error)?, leave)));
            }
        }
    }

    async fn leave(&mut self) -> Option<Result<Leave, SqlError>> {
        let unread = self.unread.clone()?;
        let line = Arc::clone(&self.line);
        if let Some(place) = line.first.try_lock().ok().and_then(|mut first| first.take()) {
            return Some(Ok(Leave::Own(place)));
        }
        let (had, may_beside) = (self.had.clone(), self.made == Made::WhenPolled);
        let beside = async {
            let mut turns = line.turn.subscribe();
            let turn = turns.wait_for(|turn| turn.is_some() && *turn != had).await.ok()?;
            turn.clone().map(|turn| Leave::Beside(Arc::clone(&unread), turn))
        };
        tokio::select! {
            biased;
            place = self.place(&unread, &line) => Some(place.map(Leave::Own)),
            Some(leave) = beside, if may_beside => Some(Ok(leave)),
        }
    }

    /// Where there is no room, waits for it only while the client waits for rows: nobody is seen off for its own sake.
    async fn place(&mut self, unread: &Arc<Unread>, line: &Line) -> Result<Place, SqlError> {
        loop {
            if let Some(place) = unread.try_place(self.made) {
                return Ok(place);
            }
            until(&mut self.asked, true).await;
            let place = async {
                let _first = line.first.lock().await;
                unread.place(self.made).await
            };
            tokio::select! {
                biased;
                place = place => return place,
                () = until(&mut self.asked, false) => {}
            }
        }
    }
}

/// Until the client waits, or does not; for ever if it has gone, and this is to be dropped.
async fn until(asked: &mut watch::Receiver<bool>, asks: bool) {
    if asked.wait_for(|asked| *asked == asks).await.is_err() {
        pending().await
    }
}

struct Client {
    receiver: mpsc::Receiver<Told>,
    asks: watch::Sender<bool>,
    /// Counts the batch that the client had last.
    taken: Option<Counted>,
    _task: AbortOnDrop,
    _interested: Interested,
}

impl Client {
    async fn next(&mut self) -> Option<Result<RecordBatch, SqlError>> {
        drop(self.taken.take());
        let told = match self.receiver.try_recv() {
            Ok(told) => Some(told),
            Err(_) => {
                self.asks.send_replace(true);
                let told = self.receiver.recv().await;
                self.asks.send_replace(false);
                told
            }
        };
        match told {
            Some(Told::Batch(batch, counted)) => {
                self.taken = counted;
                Some(Ok(batch))
            }
            Some(Told::Failed(error)) => Some(Err(error)),
            Some(Told::End) => None,
            None => {
                let message = "the query ended before its last row: a thread of it panicked";
                Some(Err(SqlError::new(ErrorKind::Internal, message)))
            }
        }
    }
}

/// Ends behind an error.
fn rows(client: Client) -> impl futures::Stream<Item = Result<RecordBatch, SqlError>> + Send + 'static {
    stream::unfold(Some(client), |client| async move {
        let mut client = client?;
        let batch = client.next().await?;
        let rest = batch.is_ok().then_some(client);
        Some((batch, rest))
    })
}

/// A batch that was made for a client at once.
pub(crate) fn made(batch: RecordBatch, counted: impl IntoIterator<Item = Counted>) -> RowStream {
    let counted = Vec::from_iter(counted);
    Box::pin(stream::unfold((Some(batch), counted), |(batch, counted)| async move {
        Some((Ok(batch?), (None, counted)))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interest::Interest;
    use crate::runtime::LOOKUPS_MAX;
    use arrow::array::StringArray;
    use arrow::datatypes::Schema;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::FutureExt;
    use oribi_engine::{Engine, EngineOptions};
    use oribi_env::{Env, Priority};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use tokio::sync::Barrier;

    fn empty() -> Told {
        Told::Batch(RecordBatch::new_empty(Arc::new(Schema::empty())), None)
    }

    #[tokio::test]
    async fn a_query_that_panics_has_failed() {
        let runtime = QueryRuntime::new(1, Priority::Normal).unwrap();
        let rows = start(&runtime, Interest::default().until_dropped(), |_, sender| async move {
            let _ = sender.send(empty()).await;
            panic!("in the second batch");
        });
        let told: Vec<_> = rows.collect().await;
        assert!(matches!(told.as_slice(), [Ok(_), Err(e)] if e.error.kind() == ErrorKind::Internal));
    }

    #[tokio::test]
    async fn a_query_that_ends_has_told_all() {
        let runtime = QueryRuntime::new(1, Priority::Normal).unwrap();
        let rows = start(&runtime, Interest::default().until_dropped(), |asked, sender| async move {
            let _asked = asked;
            for told in [empty(), Told::End] {
                let _ = sender.send(told).await;
            }
        });
        let told: Vec<_> = rows.collect().await;
        assert!(matches!(told.as_slice(), [Ok(_)]));
    }

    /// Room for 8 MiB.
    fn unread() -> (Arc<Unread>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let options = EngineOptions { memory_bytes: 64 << 20, ..EngineOptions::default() };
        let engine = Engine::open(Env::real(), dir.path(), options).unwrap();
        (Unread::new(Arc::clone(engine.memory())), dir)
    }

    fn batch(bytes: usize) -> RecordBatch {
        let text: Arc<dyn arrow::array::Array> = Arc::new(StringArray::from(vec!["x".repeat(bytes)]));
        RecordBatch::try_from_iter([("v", text)]).unwrap()
    }

    #[tokio::test]
    async fn a_statement_waits_for_one_place_at_a_time() {
        let (unread, _dir) = unread();
        let full = unread.count(&batch(4 << 20));
        let turn = unread.place(Made::WhenPolled).await.ok().unwrap();
        let (_asks, asked) = watch::channel(true);
        let (sender, _receiver) = mpsc::channel(1);
        let pump = |line: &Arc<Line>| {
            let (unread, line) = (Some(Arc::clone(&unread)), Arc::clone(line));
            Pump {
                unread,
                made: Made::WhenPolled,
                line,
                had: None,
                asked: asked.clone(),
                sender: sender.clone(),
            }
        };
        let lines: [Arc<Line>; 2] = Default::default();
        // Two of one statement, and then one of another.
        let mut pumps = [pump(&lines[0]), pump(&lines[0]), pump(&lines[1])];
        let mut waiting = Vec::from_iter(pumps.iter_mut().map(|pump| Box::pin(pump.leave())));
        for place in &mut waiting {
            assert!(place.as_mut().now_or_never().is_none());
        }
        drop(turn);
        let first = waiting[0].as_mut().now_or_never().flatten().unwrap().ok().unwrap();
        drop(first);
        // So the other statement comes before the second.
        assert!(waiting[1].as_mut().now_or_never().is_none());
        assert!(waiting[2].as_mut().now_or_never().is_some());
        assert!(waiting[1].as_mut().now_or_never().is_some());
        drop(full);
    }

    /// A batch of 1 MiB once all have come to the barrier.
    fn behind(barrier: &Arc<Barrier>) -> SendableRecordBatchStream {
        let (batch, barrier) = (batch(1 << 20), Arc::clone(barrier));
        let schema = batch.schema();
        let made = async move {
            barrier.wait().await;
            Ok(batch)
        };
        Box::pin(RecordBatchStreamAdapter::new(schema, stream::once(made)))
    }

    #[tokio::test]
    async fn partitions_that_wait_for_each_other_share_the_turn() {
        let (unread, _dir) = unread();
        let full = unread.count(&batch(4 << 20));
        let (_asks, asked) = watch::channel(true);
        let (sender, mut receiver) = mpsc::channel(1);
        let (line, barrier) = (Arc::<Line>::default(), Arc::new(Barrier::new(3)));
        let mut pumps = JoinSet::new();
        // Every other one waits for nobody.
        for n in 0..6 {
            let (unread, line, asked) = (Some(Arc::clone(&unread)), Arc::clone(&line), asked.clone());
            let batches = if n % 2 == 0 { behind(&Arc::new(Barrier::new(1))) } else { behind(&barrier) };
            let pump =
                Pump { unread, made: Made::WhenPolled, line, had: None, asked, sender: sender.clone() };
            pumps.spawn(pump.run(batches));
        }
        drop(sender);
        let mut batches = 0;
        while let Some(told) = receiver.recv().await {
            assert!(matches!(told, Told::Batch(..)));
            batches += 1;
        }
        assert_eq!(batches, 6);
        drop(full);
    }

    /// A batch of 1 MiB that is begun to be read when it is first asked for, and there once they are `done`.
    fn aside(begun: &Arc<AtomicUsize>, mut done: watch::Receiver<bool>) -> SendableRecordBatchStream {
        let batch = batch(1 << 20);
        let (schema, begun) = (batch.schema(), Arc::clone(begun));
        let read = async move {
            begun.fetch_add(1, SeqCst);
            done.wait_for(|done| *done).await.unwrap();
            Ok(batch)
        };
        Box::pin(RecordBatchStreamAdapter::new(schema, stream::once(read)))
    }

    #[tokio::test]
    async fn plans_that_read_aside_begin_with_it_a_few_at_a_time() {
        let (unread, _dir) = unread();
        let begun = Arc::new(AtomicUsize::new(0));
        let (read, done) = watch::channel(false);
        let (_asks, asked) = watch::channel(true);
        let (sender, mut receiver) = mpsc::channel(100);
        let mut pumps = JoinSet::new();
        for _ in 0..100 {
            let (unread, asked, sender) = (Some(Arc::clone(&unread)), asked.clone(), sender.clone());
            let pump = Pump { unread, made: Made::Aside, line: Arc::default(), had: None, asked, sender };
            pumps.spawn(pump.run(aside(&begun, done.clone())));
        }
        // Each has its turn on this thread.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(begun.load(SeqCst), LOOKUPS_MAX);
        // What they made leaves no room, but for one.
        read.send_replace(true);
        let mut told = Vec::new();
        while told.len() <= LOOKUPS_MAX {
            told.push(receiver.recv().await.unwrap());
        }
        assert!(unread.is_awaited());
        assert_eq!(begun.load(SeqCst), LOOKUPS_MAX + 1);
        drop((told, sender));
        // As these are taken, the others come in.
        while receiver.recv().await.is_some() {}
        assert_eq!(begun.load(SeqCst), 100);
    }
}
