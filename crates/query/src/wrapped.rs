//! Nodes of plans that are taken for the one in them by whoever looks.

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// What one has beside the node in it.
pub trait Addition: Send + Sync + 'static {
    /// What it asks for.
    fn asks(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        None
    }

    /// As what it is shown, if not as the node in it.
    fn shown(&self) -> Option<&Arc<dyn ExecutionPlan>> {
        None
    }

    /// What becomes of a partition's rows.
    fn batches(&self, batches: SendableRecordBatchStream, context: &TaskContext)
    -> SendableRecordBatchStream;
}

/// `plan` with what is added to it.
pub fn wrapped(plan: Arc<dyn ExecutionPlan>, addition: impl Addition) -> Arc<dyn ExecutionPlan> {
    Arc::new(Wrapped { plan, addition: Arc::new(addition) })
}

struct Wrapped {
    plan: Arc<dyn ExecutionPlan>,
    addition: Arc<dyn Addition>,
}

impl Wrapped {
    fn around(&self, plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Wrapped { plan, addition: Arc::clone(&self.addition) })
    }
}

impl fmt::Debug for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan.fmt(f)
    }
}

impl DisplayAs for Wrapped {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.addition.shown().unwrap_or(&self.plan).fmt_as(format, f)
    }
}

impl ExecutionPlan for Wrapped {
    fn name(&self) -> &str {
        self.plan.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.plan.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.plan.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        match self.addition.asks().map_or(Ok(TreeNodeRecursion::Continue), &mut *f)? {
            TreeNodeRecursion::Continue => self.plan.apply_expressions(f),
            other => Ok(other),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Ok(self.around(Arc::clone(&self.plan).replace_children(children, options)?))
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        self.plan.with_new_state(state).map(|plan| self.around(plan))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.around(Arc::clone(&self.plan).reset_state()?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let batches = self.plan.execute(partition, Arc::clone(&context))?;
        Ok(self.addition.batches(batches, &context))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.plan.metrics()
    }
}
