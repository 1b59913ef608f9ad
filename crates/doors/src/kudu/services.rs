//! From a call to its answer: which part of the door has it, and what it may wait for.

use super::call::{Answer, Call, too_busy};
use super::lines::{First, Lines};
use super::node::{Node, Role};
use super::taken::Taken;
use super::tserver::write::RowPlans;
use super::{master, server, transactions, tserver};
use oribi_engine::{RowWait, UnderWay};
use oribi_kudu::messages::master::MasterFeature;
use oribi_kudu::messages::tserver::TabletServerFeature;
use oribi_kudu::service::{Method, Service};
use oribi_types::{Error, Result};
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Called again if it is not [`Done::Answer`].
pub(super) type Job = Box<dyn FnMut(May) -> Done + Send>;

/// How long a write in a transaction waits for a row that another has locked, before its client is told to come again.
pub(super) const ROW_WAIT_MAX: Duration = Duration::from_secs(2);

/// What a job may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum May {
    /// Neither of the others.
    WaitForNothing,
    ReadFiles,
    /// And wait for those who write the same rows.
    WaitForOthers,
}

/// What came of a job.
pub(super) enum Done {
    Answer(Answer),
    /// Another call has the same request in hand: to be asked again once that has ended.
    Again(UnderWay),
    /// It has to read files, and may not: nothing was done.
    NeedsFiles,
    /// It has to wait for others, and may not: nothing was done.
    NeedsTurn,
    /// It has to wait for a row that a transaction has locked: nothing was done. To be asked again then, or after a while.
    NeedsRow(RowWait),
}

/// What became of a call.
pub(super) enum Handled {
    Now(Answer),
    Later(Work),
}

/// What makes an answer.
pub(super) struct Work {
    pub call_id: i32,
    pub job: Job,
    /// How long the client waits for it.
    pub timeout: Option<Duration>,
    /// Of the request, which is kept until then.
    pub bytes: usize,
    /// Of the answer, as long as it may well be.
    pub answer_bytes: usize,
    /// The table that it writes to: it needs room in memory, and others may have its rows.
    pub writes_to: Option<u64>,
    /// If it has to wait for nothing, it takes no longer than to hand it over.
    pub is_short: bool,
}

impl Work {
    /// On a thread that may wait for files.
    pub fn blocking(call: Call, job: impl FnMut(&Call) -> Answer + Send + 'static) -> Handled {
        Work::long(call, 0, job)
    }

    /// As [`blocking`](Self::blocking), with an answer of perhaps so many bytes.
    pub fn long(
        call: Call,
        answer_bytes: usize,
        mut job: impl FnMut(&Call) -> Answer + Send + 'static,
    ) -> Handled {
        let (call_id, timeout, bytes) = (call.id, call.timeout, call.bytes());
        let job = Box::new(move |_| Done::Answer(job(&call)));
        Handled::Later(Work { call_id, job, timeout, bytes, answer_bytes, writes_to: None, is_short: false })
    }

    /// Has the work done by a thread that may wait for files, unless nobody waits for the answer any more by then. What has to wait
    /// for others stands in line before it may do that too.
    pub async fn execute(self, begun: Instant, mut taken: Taken, lines: &Lines) -> Result<Answer> {
        let (mut work, mut first) = (self, None);
        loop {
            let done;
            (work, taken, done) = work.run(begun, taken, first.take()).await?;
            match done {
                Done::Answer(answer) => return Ok(Answer { room: taken.held, ..answer }),
                Done::Again(under_way) => under_way.ended().await,
                // Asked again, it says so if that was too long.
                Done::NeedsRow(wait) => drop(tokio::time::timeout(ROW_WAIT_MAX, wait.over()).await),
                Done::NeedsTurn => {
                    let deadline = work.timeout.map(|timeout| begun + timeout);
                    first = stand_in_line(lines, work.writes_to, deadline).await;
                }
                Done::NeedsFiles => return Err(Error::internal("a call that may read files does not")),
            }
        }
    }

    /// Has the work done by such a thread, as far as it comes. All goes along, so that it counts until the thread is done with it,
    /// though the client may have hung up.
    async fn run(
        mut self,
        begun: Instant,
        taken: Taken,
        first: Option<First>,
    ) -> Result<(Self, Taken, Done)> {
        let may = if first.is_some() { May::WaitForOthers } else { May::ReadFiles };
        let run = move || {
            let late = || Answer::error(self.call_id, &too_busy("the call waited past its deadline"));
            let done = match self.timeout {
                Some(timeout) if begun.elapsed() >= timeout => Done::Answer(late()),
                _ => (self.job)(may),
            };
            drop(first);
            (self, taken, done)
        };
        let ran = tokio::task::spawn_blocking(run).await;
        ran.map_err(|e| Error::internal(format!("a call: {e}")))
    }
}

/// Until the caller is the first in the line of `table`; `None` if nobody waits for the answer any more.
async fn stand_in_line(lines: &Lines, table: Option<u64>, deadline: Option<Instant>) -> Option<First> {
    let first = lines.first(table?);
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, first).await.ok(),
        None => Some(first.await),
    }
}

/// Features that are there. Of the others, a client is told that they are not, by number.
const MASTER_FEATURES: &[MasterFeature] = &[
    MasterFeature::RangePartitionBounds,
    MasterFeature::AddDropRangePartitions,
    MasterFeature::ConnectToMaster,
    MasterFeature::ReplicaManagement,
    MasterFeature::DynamicMultiMaster,
    MasterFeature::IgnoreOperations,
    MasterFeature::RangeSpecificHashSchema,
    MasterFeature::UpsertIgnore,
    // Java asks for it whenever a column is added; one that is to be immutable is refused.
    MasterFeature::ImmutableColumnAttribute,
];
const TABLET_SERVER_FEATURES: &[TabletServerFeature] = &[
    TabletServerFeature::ColumnPredicates,
    TabletServerFeature::PadUnixtimeMicrosTo16Bytes,
    TabletServerFeature::Quiescing,
    TabletServerFeature::ColumnarLayout,
    TabletServerFeature::BloomFilterPredicateV2,
];

/// Those of `flags` that the method's service does not have.
pub(super) fn unsupported(method: Method, flags: &[u32]) -> Vec<u32> {
    let is_there = |flag: u32| match method.service() {
        Service::Master | Service::TxnManager => MASTER_FEATURES.iter().any(|f| *f as u32 == flag),
        Service::TabletServer | Service::TabletServerAdmin => {
            TABLET_SERVER_FEATURES.iter().any(|f| *f as u32 == flag)
        }
        Service::Generic | Service::Consensus => false,
    };
    flags.iter().copied().filter(|flag| !is_there(*flag)).collect()
}

pub(super) fn handle(node: &Arc<Node>, role: Role, plans: &mut RowPlans, call: Call) -> Handled {
    match call.method {
        Method::Master(method) => master::handle(node, method, call),
        Method::TabletServer(method) => tserver::handle(node, plans, method, call),
        Method::Generic(method) => Handled::Now(server::generic(node, role, method, &call)),
        Method::Consensus(method) => Handled::Now(server::consensus(node, role, method, &call)),
        Method::TabletServerAdmin(method) => Handled::Now(server::admin(node, method, &call)),
        Method::TxnManager(method) => transactions::handle(node, method, call),
    }
}

/// Answers from memory: with what `respond` makes of the request, or with what is wrong with it.
pub(super) fn at_once<Q, A>(call: &Call, respond: impl FnOnce(Q) -> A) -> Answer
where
    Q: Message + Default,
    A: Message,
{
    match call.request() {
        Ok(request) => call.answer(&respond(request)),
        Err(status) => call.fail(&status),
    }
}

/// As [`at_once`], on a thread that may wait for files.
pub(super) fn blocking<Q, A>(
    node: &Arc<Node>,
    call: Call,
    mut respond: impl FnMut(&Arc<Node>, Q) -> A + Send + 'static,
) -> Handled
where
    Q: Message + Default,
    A: Message,
{
    let node = node.clone();
    Work::blocking(call, move |call| at_once(call, |request| respond(&node, request)))
}
