//! A plan's way to its client: it is executed on the query threads into a bounded channel, from which the client takes batches.

use crate::context::Physical;
use crate::error::sql_error;
use crate::long_rows::reads_short_ranges;
use crate::runtime::{AbortOnDrop, QueryRuntime};
use crate::unread::{Admitted, Counted, Made, Place, Unread};
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
    physical: Physical,
    mut admitted: Option<Admitted>,
) -> RowStream {
    let made = if reads_short_ranges(&physical.plan) { Made::Aside } else { Made::WhenPolled };
    let unread = admitted.as_ref().map(Admitted::unread).cloned();
    let line = Arc::new(Mutex::new(admitted.as_mut().and_then(Admitted::take_turn)));
    start(runtime, |asked, sender| async move {
        execute(physical, Pump { unread, made, line, asked, sender }).await;
        drop(admitted);
    })
}

/// Starts what `tells` by the channel that it is given, and hears whether the client waits.
fn start<F: Future<Output = ()> + Send + 'static>(
    runtime: &QueryRuntime,
    tells: impl FnOnce(watch::Receiver<bool>, mpsc::Sender<Told>) -> F,
) -> RowStream {
    let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
    let (asks, asked) = watch::channel(false);
    let task = runtime.start(tells(asked, sender));
    Box::pin(rows(Client { receiver, asks, taken: None, _task: task }))
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

/// Hands on the batches of a partition.
#[derive(Clone)]
struct Pump {
    unread: Option<Arc<Unread>>,
    made: Made,
    /// Of the statement's, one waits for a place at a time: each would have to wait for what those before it have made, until the
    /// client has taken that. The first to look has the place that the statement was admitted with.
    line: Arc<Mutex<Option<Place>>>,
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
                Ok((batch, place)) => {
                    let counted = place.and_then(|place| place.count(&batch));
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

    /// The next batch, with the place that it was made in.
    async fn next(
        &mut self,
        batches: &mut SendableRecordBatchStream,
    ) -> Option<Result<(RecordBatch, Option<Place>), SqlError>> {
        loop {
            let place = match self.place().await.transpose() {
                Ok(place) => place,
                Err(error) => return Some(Err(error)),
            };
            let next = poll_fn(|context| match &place {
                // Others have taken the room since.
                Some(place) if !place.holds() => Poll::Ready(None),
                _ => batches.poll_next_unpin(context).map(Some),
            });
            if let Some(batch) = next.await {
                return batch.map(|batch| Ok((batch.map_err(sql_error)?, place)));
            }
        }
    }

    /// Where there is no room, waits for it only while the client waits for rows: nobody is seen off for its own sake.
    async fn place(&mut self) -> Option<Result<Place, SqlError>> {
        let unread = self.unread.as_ref()?;
        if let Some(place) = self.line.try_lock().ok().and_then(|mut first| first.take()) {
            return Some(Ok(place));
        }
        loop {
            if let Some(place) = unread.try_place(self.made) {
                return Some(Ok(place));
            }
            until(&mut self.asked, true).await;
            let place = async {
                let _first = self.line.lock().await;
                unread.place(self.made).await
            };
            tokio::select! {
                biased;
                place = place => return Some(place),
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
    use crate::runtime::LOOKUPS_MAX;
    use arrow::array::StringArray;
    use arrow::datatypes::Schema;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::FutureExt;
    use oribi_engine::{Engine, EngineOptions};
    use oribi_env::{Env, Priority};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    fn empty() -> Told {
        Told::Batch(RecordBatch::new_empty(Arc::new(Schema::empty())), None)
    }

    #[tokio::test]
    async fn a_query_that_panics_has_failed() {
        let runtime = QueryRuntime::new(1, Priority::Normal).unwrap();
        let rows = start(&runtime, |_, sender| async move {
            let _ = sender.send(empty()).await;
            panic!("in the second batch");
        });
        let told: Vec<_> = rows.collect().await;
        assert!(matches!(told.as_slice(), [Ok(_), Err(e)] if e.error.kind() == ErrorKind::Internal));
    }

    #[tokio::test]
    async fn a_query_that_ends_has_told_all() {
        let runtime = QueryRuntime::new(1, Priority::Normal).unwrap();
        let rows = start(&runtime, |asked, sender| async move {
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
        let pump = |line: &Arc<Mutex<Option<Place>>>| {
            let (unread, line) = (Some(Arc::clone(&unread)), Arc::clone(line));
            Pump { unread, made: Made::WhenPolled, line, asked: asked.clone(), sender: sender.clone() }
        };
        let lines: [Arc<Mutex<Option<Place>>>; 2] = Default::default();
        // Two of one statement, and then one of another.
        let mut pumps = [pump(&lines[0]), pump(&lines[0]), pump(&lines[1])];
        let mut waiting = Vec::from_iter(pumps.iter_mut().map(|pump| Box::pin(pump.place())));
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
            let pump = Pump { unread, made: Made::Aside, line: Arc::default(), asked, sender };
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
