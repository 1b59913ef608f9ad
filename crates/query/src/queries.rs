//! Queries that are executed now, and the last ones that were, as `system.queries` shows them. Statements about single rows, which need
//! no plan, are not among them.

use crate::explain::scan_ratio;
use crate::nodes::{Became, Exchanged, Executors, Nodes};
use crate::runtime::QueryRuntime;
use arrow::array::RecordBatch;
use datafusion::physical_plan::ExecutionPlan;
use futures::{Stream, StreamExt};
use oribi_session::sql::{RowStream, SqlError, SqlSession};
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// So many that have ended are remembered, the last ones, and so much of the text of each, and of its error's.
const ENDED_MAX: usize = 256;
const TEXT_BYTES_MAX: usize = 1024;

/// At most 512 KiB of texts, and what runs.
#[derive(Default)]
pub(crate) struct Queries(Mutex<Known>);

#[derive(Default)]
struct Known {
    last_id: i64,
    running: BTreeMap<i64, Query>,
    ended: VecDeque<Query>,
}

#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) id: i64,
    pub(crate) user: String,
    pub(crate) text: String,
    pub(crate) begun: Instant,
    /// Who executes it, if there is a choice.
    pub(crate) executors: Option<Executors>,
    /// That the client has taken.
    pub(crate) rows: Arc<AtomicU64>,
    pub(crate) end: Option<End>,
    /// What processes exchanged for it, and how much that is for each byte that was scanned; once it has ended.
    pub(crate) exchanged: Option<(Exchanged, Option<f64>)>,
}

#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) time: Duration,
    pub(crate) how: How,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum How {
    Done,
    Failed(String),
    /// The client took no more rows.
    Left,
}

/// What is executed, and what asks nodes afterwards what they did.
pub(crate) struct Begun {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    pub(crate) executors: Option<Executors>,
    pub(crate) nodes: Option<Arc<dyn Nodes>>,
    pub(crate) runtime: Arc<QueryRuntime>,
}

impl Queries {
    /// All that are known, by their numbers.
    pub(crate) fn list(&self) -> Vec<Query> {
        let known = self.lock();
        let mut list: Vec<_> = known.ended.iter().chain(known.running.values()).cloned().collect();
        list.sort_by_key(|query| query.id);
        list
    }

    /// The rows of a query, which is known from now on.
    pub(crate) fn watch(
        self: &Arc<Self>,
        (session, text): (&SqlSession, &str),
        begun: Begun,
        rows: RowStream,
    ) -> RowStream {
        let (text, counted) = (cut(text), Arc::new(AtomicU64::new(0)));
        let mut known = self.lock();
        known.last_id += 1;
        let query = Query {
            id: known.last_id,
            user: session.user.clone(),
            text,
            begun: Instant::now(),
            executors: begun.executors.clone(),
            rows: Arc::clone(&counted),
            end: None,
            exchanged: None,
        };
        let id = query.id;
        known.running.insert(id, query);
        drop(known);
        let shared = begun.nodes.filter(|_| matches!(begun.executors, Some(Executors::Nodes(_))));
        let shared = shared.map(|nodes| Shared { nodes, plan: begun.plan, runtime: begun.runtime });
        let watched = Watched { queries: Arc::clone(self), id, rows: counted, shared };
        Box::pin(Rows { rows, watched: Some(watched) })
    }

    fn end(&self, id: i64, how: How) {
        let mut known = self.lock();
        let Some(mut query) = known.running.remove(&id) else { return };
        query.end = Some(End { time: query.begun.elapsed(), how });
        known.ended.push_back(query);
        if known.ended.len() > ENDED_MAX {
            known.ended.pop_front();
        }
    }

    fn note(&self, id: i64, became: &Became) {
        // Plans may be large: nobody waits meanwhile.
        let exchanged = match became {
            Became::Shared { plan, .. } => {
                let exchanged = Exchanged::by(plan);
                Some((exchanged, scan_ratio(plan, &exchanged)))
            }
            Became::Alone(..) | Became::Unknown(_) => None,
        };
        let mut known = self.lock();
        let Some(query) = known.ended.iter_mut().find(|query| query.id == id) else { return };
        query.exchanged = exchanged;
        if let Became::Alone(_, why) = became {
            query.executors = Some(Executors::Here((*why).to_owned()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

struct Watched {
    queries: Arc<Queries>,
    id: i64,
    rows: Arc<AtomicU64>,
    /// `None` if this process executes it.
    shared: Option<Shared>,
}

struct Shared {
    nodes: Arc<dyn Nodes>,
    plan: Arc<dyn ExecutionPlan>,
    runtime: Arc<QueryRuntime>,
}

impl Watched {
    fn end(self, how: How) {
        let Watched { queries, id, shared, .. } = self;
        let is_done = how == How::Done;
        queries.end(id, how);
        let Some(Shared { nodes, plan, runtime }) = shared else { return };
        // What nodes have measured may come later than the last row, and nobody waits for it.
        let note = async move {
            if is_done && let Some(became) = nodes.explain(&plan).await {
                queries.note(id, &became);
            }
        };
        drop(runtime.spawn(note));
    }
}

struct Rows {
    rows: RowStream,
    /// Until it ends.
    watched: Option<Watched>,
}

impl Stream for Rows {
    type Item = Result<RecordBatch, SqlError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.rows.poll_next_unpin(context));
        if let Some(watched) = self.watched.take() {
            match &next {
                Some(Ok(batch)) => {
                    watched.rows.fetch_add(batch.num_rows() as u64, Relaxed);
                    self.watched = Some(watched);
                }
                Some(Err(error)) => watched.end(How::Failed(cut(error.error.message()))),
                None => watched.end(How::Done),
            }
        }
        Poll::Ready(next)
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        if let Some(watched) = self.watched.take() {
            watched.end(How::Left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Schema;
    use datafusion::physical_plan::empty::EmptyExec;
    use futures::stream;
    use oribi_env::Priority;
    use oribi_types::ErrorKind;

    #[tokio::test]
    async fn texts_are_cut() {
        let (queries, session) = (Arc::<Queries>::default(), SqlSession::new("oribi", "oribi"));
        let plan = Arc::new(EmptyExec::new(Arc::new(Schema::empty())));
        let runtime = Arc::new(QueryRuntime::new(1, Priority::Normal).unwrap());
        let begun = Begun { plan, executors: None, nodes: None, runtime };
        // The last character would go over the limit.
        let long = format!("x{}", "é".repeat(TEXT_BYTES_MAX / 2));
        let fails = stream::iter([Err(SqlError::new(ErrorKind::Invalid, long.clone()))]);
        let rows = queries.watch((&session, &long), begun, Box::pin(fails));
        assert_eq!(rows.collect::<Vec<_>>().await.len(), 1);
        let cut = &long[..TEXT_BYTES_MAX - 1];
        let [query] = &queries.list()[..] else { panic!() };
        assert_eq!(
            (query.text.as_str(), &query.end.as_ref().unwrap().how),
            (cut, &How::Failed(cut.to_owned()))
        );
    }
}
