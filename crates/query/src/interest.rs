//! Joins that hear of it when nobody wants their rows any more.
//!
//! A task is cancelled where it waits. A hash join goes through all pairs of a batch's rows without waiting, which may be billions: as long
//! as none meets its condition it has no rows to give, and who takes its rows may wait for nothing as long as it has some
//! [DataFusion 55.2, `hash_join/stream.rs`, `poll_next_impl`; likewise `nested_loop_join.rs`]. So a join's condition asks each time whether
//! somebody is left, some thousand pairs at a time, and its rows use up the time that a task has.

use crate::nodes::Retried;
use crate::wrapped::{Addition, wrapped};
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, Result, exec_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, StreamExt, stream};
use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Poll, ready};
use tokio::task::coop;

/// Whether somebody wants the rows of a plan.
#[derive(Clone, Debug, Default)]
pub struct Interest {
    is_lost: Arc<AtomicBool>,
}

/// Nobody wants them once this is dropped.
pub struct Interested(Interest);

impl Interest {
    pub fn until_dropped(&self) -> Interested {
        Interested(self.clone())
    }
}

impl Drop for Interested {
    fn drop(&mut self) {
        self.0.is_lost.store(true, Relaxed);
    }
}

/// A plan whose joins end when `interest` is lost. Of one for several processes that is the plan for this one alone: tasks see to theirs, and
/// the last stage, whose rows come from others, stays as it is.
///
/// # Errors
/// None are expected.
pub fn interested(plan: Arc<dyn ExecutionPlan>, interest: &Interest) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(retried) = plan.downcast_ref::<Retried>() {
        let alone = interested(Arc::clone(retried.alone()), interest)?;
        return Ok(Arc::new(retried.with_alone(alone)));
    }
    plan.transform_up(|node| {
        let join = if let Some(join) = node.downcast_ref::<HashJoinExec>() {
            let filter = heeding(join.filter(), *join.join_type(), interest);
            Arc::new(join.builder().with_filter(filter).build()?)
        } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
            let filter = heeding(join.filter(), *join.join_type(), interest);
            Arc::new(NestedLoopJoinExecBuilder::from(join).with_filter(filter).build()?)
        } else if node.is::<CrossJoinExec>() {
            Arc::clone(&node)
        } else {
            return Ok(Transformed::no(node));
        };
        Ok(Transformed::yes(wrapped(join, Yielding { asked_for: node })))
    })
    .data()
}

/// What a join asks of its pairs. One without a condition needs none if it gives a row for each pair; for another it costs a microsecond a
/// batch.
fn heeding(filter: Option<&JoinFilter>, join_type: JoinType, interest: &Interest) -> Option<JoinFilter> {
    use JoinType::{Full, Inner, Left, Right};
    let gives_pairs = matches!(join_type, Inner | Left | Right | Full);
    let any_pair = || JoinFilter::new(lit(true), Vec::new(), Arc::new(Schema::empty()));
    let filter = filter.cloned().or_else(|| (!gives_pairs).then(any_pair))?;
    let (asked, interest) = (Arc::clone(filter.expression()), interest.clone());
    let condition = Arc::new(Condition { asked, interest });
    Some(JoinFilter::new(condition, filter.column_indices().to_vec(), Arc::clone(filter.schema())))
}

/// A join whose rows use up the time that a task has at a stretch.
struct Yielding {
    /// The join without what is added to its condition.
    asked_for: Arc<dyn ExecutionPlan>,
}

impl Addition for Yielding {
    fn shown(&self) -> Option<&Arc<dyn ExecutionPlan>> {
        Some(&self.asked_for)
    }

    fn batches(&self, batches: SendableRecordBatchStream, _: &TaskContext) -> SendableRecordBatchStream {
        Box::pin(RecordBatchStreamAdapter::new(batches.schema(), yielding(batches)))
    }
}

/// DataFusion's own (`make_cooperative`) uses up some of the time before it looks for rows, and gives that back: of 128 joins in each other the
/// innermost would never look.
fn yielding(mut batches: SendableRecordBatchStream) -> impl Stream<Item = Result<RecordBatch>> {
    stream::poll_fn(move |context| {
        if !coop::has_budget_remaining() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = ready!(batches.poll_next_unpin(context));
        // What is left of it others may have used.
        let _ = pin!(coop::consume_budget()).poll(context);
        Poll::Ready(next)
    })
}

/// What a join asks of pairs of rows.
#[derive(Debug)]
struct Condition {
    asked: Arc<dyn PhysicalExpr>,
    interest: Interest,
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.asked.eq(&other.asked)
    }
}

impl Eq for Condition {}

impl Hash for Condition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.asked.hash(state);
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.asked.fmt(f)
    }
}

impl PhysicalExpr for Condition {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.asked.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.asked.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.asked.return_field(schema)
    }

    fn evaluate(&self, pairs: &RecordBatch) -> Result<ColumnarValue> {
        if self.interest.is_lost.load(Relaxed) {
            return exec_err!("nobody wants the rows any more");
        }
        self.asked.evaluate(pairs)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.asked]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match <[_; 1]>::try_from(children) {
            Ok([asked]) => Ok(Arc::new(Condition { asked, interest: self.interest.clone() })),
            Err(_) => exec_err!("a join has one condition"),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.asked.fmt_sql(f)
    }
}
