//! A plan for several processes, and the same for this one alone, to which it comes if a node fails before there were rows.
//!
//! So what clients see of a node that went away is a query that takes longer; of one that went away behind the first rows, an error. An
//! error of the query itself comes twice, and is then told as it is here: errors lose their SQLSTATEs on their way between processes.

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{StreamExt, TryStreamExt, stream};
use std::fmt;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// What is executed of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    Shared,
    /// As the other came to nothing.
    Alone,
    /// As there was no place for the other.
    Refused,
}

/// Why the plan for this process was executed after all, as clients read it.
const NODE_FAILED: &str = "a node failed before there were rows";
const NO_PLACE: &str = "nodes execute as many queries as they may at a time (nodes_queries_max)";

/// A plan of one partition.
#[derive(Debug)]
pub struct Retried {
    shared: Arc<dyn ExecutionPlan>,
    alone: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    retries: Count,
    refusals: Count,
    /// A place for each query that may be executed over nodes at a time. None waits for one: a statement holds what others may want.
    places: Arc<Semaphore>,
    noted: fn(Attempt),
    for_client: fn(DataFusionError) -> DataFusionError,
}

impl Retried {
    /// `shared` has one partition; `alone` has the same rows, and `noted` is told when either is executed. What becomes of the first when
    /// there are rows already is an error, as `for_client` says it.
    ///
    /// # Errors
    /// None are expected.
    pub fn new(
        shared: Arc<dyn ExecutionPlan>,
        alone: &Arc<dyn ExecutionPlan>,
        places: Arc<Semaphore>,
        noted: fn(Attempt),
        for_client: fn(DataFusionError) -> DataFusionError,
    ) -> Result<Self> {
        let mut alone = reset_plan_states(Arc::clone(alone))?;
        if alone.output_partitioning().partition_count() > 1 {
            alone = Arc::new(CoalescePartitionsExec::new(alone));
        }
        let properties = PlanProperties::new(
            EquivalenceProperties::new(shared.schema()),
            Partitioning::UnknownPartitioning(1),
            shared.pipeline_behavior(),
            shared.boundedness(),
        );
        let metrics = ExecutionPlanMetricsSet::new();
        let retries = MetricBuilder::new(&metrics).global_counter("retries");
        let refusals = MetricBuilder::new(&metrics).global_counter("refusals");
        let properties = Arc::new(properties);
        Ok(Retried { shared, alone, properties, metrics, retries, refusals, places, noted, for_client })
    }

    /// The plan for several processes.
    pub fn shared(&self) -> &Arc<dyn ExecutionPlan> {
        &self.shared
    }

    /// The same for this process.
    pub fn alone(&self) -> &Arc<dyn ExecutionPlan> {
        &self.alone
    }

    /// The same with another for this process.
    pub(crate) fn with_alone(&self, alone: Arc<dyn ExecutionPlan>) -> Self {
        Retried {
            shared: Arc::clone(&self.shared),
            alone,
            properties: Arc::clone(&self.properties),
            metrics: self.metrics.clone(),
            retries: self.retries.clone(),
            refusals: self.refusals.clone(),
            places: Arc::clone(&self.places),
            noted: self.noted,
            for_client: self.for_client,
        }
    }

    /// Why that was executed after all, if it was.
    pub fn why_alone(&self) -> Option<&'static str> {
        match (self.refusals.value(), self.retries.value()) {
            (0, 0) => None,
            (0, _) => Some(NODE_FAILED),
            _ => Some(NO_PLACE),
        }
    }
}

impl DisplayAs for Retried {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nodes: if one fails before there are rows, here alone")
    }
}

impl ExecutionPlan for Retried {
    fn name(&self) -> &str {
        "Nodes"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.shared]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([shared]) => {
                let places = Arc::clone(&self.places);
                Ok(Arc::new(Retried::new(shared, &self.alone, places, self.noted, self.for_client)?))
            }
            Err(_) => internal_err!("a plan for several processes is one"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition > 0 {
            return internal_err!("a plan for several processes has one partition");
        }
        let (shared, alone) = (Arc::clone(&self.shared), Arc::clone(&self.alone));
        let (schema, retries, refusals) = (shared.schema(), self.retries.clone(), self.refusals.clone());
        let places = Arc::clone(&self.places);
        let (noted, for_client) = (self.noted, self.for_client);
        let adapted = Arc::clone(&schema);
        let batches = async move {
            let Ok(place) = places.try_acquire_owned() else {
                refusals.add(1);
                noted(Attempt::Refused);
                let batches = alone.execute(0, context)?;
                return Ok(RecordBatchStreamAdapter::new(adapted, batches.boxed()));
            };
            let first = async {
                noted(Attempt::Shared);
                let mut batches = shared.execute(0, Arc::clone(&context))?;
                Ok::<_, DataFusionError>((batches.next().await.transpose()?, batches))
            };
            match first.await {
                Ok((first, batches)) => {
                    let for_client = move |error| {
                        let _held_until_the_end = &place;
                        for_client(error)
                    };
                    let batches = stream::iter(first.map(Ok)).chain(batches.map_err(for_client));
                    Ok::<_, DataFusionError>(RecordBatchStreamAdapter::new(adapted, batches.boxed()))
                }
                Err(error) => {
                    drop(place);
                    tracing::warn!(%error, "several processes did not come to rows; the query is executed here");
                    retries.add(1);
                    noted(Attempt::Alone);
                    let batches = alone.execute(0, context)?;
                    Ok(RecordBatchStreamAdapter::new(adapted, batches.boxed()))
                }
            }
        };
        let batches = stream::once(batches).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
