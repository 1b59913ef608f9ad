//! What a query over nodes did: one plan with all stages, and what their tasks have measured.
//!
//! Of each metric stands what all tasks have together and, where they differ, the least, the median (of an even number the upper one) and
//! the most that one of them has: a task that has more than the others is what a query waits for.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_plan::metrics::{Metric, MetricValue, MetricsSet};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion_distributed::{
    DISTRIBUTED_DATAFUSION_TASK_ID_LABEL, DistributedLeafExec, DistributedMetricsFormat,
    rewrite_distributed_plan_with_metrics,
};
use oribi_query::nodes::{Became, executed_scan};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Metrics of nodes that do not come are not waited for any longer.
const METRICS_WAIT_MAX: Duration = Duration::from_secs(5);

/// What became of a plan that nodes have executed.
pub(crate) async fn became(shared: &Arc<dyn ExecutionPlan>) -> Became {
    let measured = async {
        let (plan, format) = (Arc::clone(shared), DistributedMetricsFormat::PerTask);
        let plan = rewrite_distributed_plan_with_metrics(plan, format).await?;
        plan.transform_down(scan_of_parts).data()
    };
    match tokio::time::timeout(METRICS_WAIT_MAX, measured).await {
        Ok(Ok(plan)) => {
            let mut text = String::new();
            tell(&plan, 0, &mut text);
            Became::Shared { plan, text }
        }
        Ok(Err(error)) => Became::Unknown(format!("metrics of nodes: {}", error.strip_backtrace())),
        Err(_) => Became::Unknown("metrics of nodes did not come".to_owned()),
    }
}

/// Its parts are shown as the scan that they are parts of.
fn scan_of_parts(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let parts = node.downcast_ref::<DistributedLeafExec>();
    let measured = node.metrics().unwrap_or_default();
    let scan = parts.and_then(|parts| executed_scan(parts.original(), &measured));
    Ok(scan.map_or_else(|| Transformed::no(node), Transformed::yes))
}

fn tell(plan: &Arc<dyn ExecutionPlan>, depth: usize, text: &mut String) {
    let (line, metrics) =
        (displayable(plan.as_ref()).one_line().to_string(), plan.metrics().unwrap_or_default());
    let _ = writeln!(text, "{}{}, metrics=[{}]", "  ".repeat(depth), line.trim_end(), by_task(&metrics));
    plan.children().into_iter().for_each(|input| tell(input, depth + 1, text));
}

fn by_task(metrics: &MetricsSet) -> String {
    let mut tasks = BTreeMap::<&str, MetricsSet>::new();
    for metric in metrics.iter() {
        let label = metric.labels().iter().find(|label| label.name() == DISTRIBUTED_DATAFUSION_TASK_ID_LABEL);
        tasks.entry(label.map_or("", |label| label.value())).or_default().push(Arc::clone(metric));
    }
    let tasks: Vec<MetricsSet> = tasks.into_values().map(|metrics| metrics.aggregate_by_name()).collect();
    let told = |metric: &Arc<Metric>| {
        let (all, name) = (metric.value(), metric.value().name());
        let of_task = |task: &'_ MetricsSet| -> Option<MetricValue> {
            Some(task.iter().find(|metric| metric.value().name() == name)?.value().clone())
        };
        let mut each: Vec<MetricValue> = tasks.iter().filter_map(of_task).collect();
        each.sort_by_key(MetricValue::as_usize);
        match each.as_slice() {
            [least, .., most] if least.as_usize() < most.as_usize() => {
                let median = &each[each.len() / 2];
                format!("{name}={all} (min {least}, median {median}, max {most})")
            }
            _ => format!("{name}={all}"),
        }
    };
    let all = metrics.aggregate_by_name().sorted_for_display().timestamps_removed();
    all.iter().map(told).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::physical_plan::metrics::{Count, Label};

    #[test]
    fn a_metric_of_several_tasks_says_how_they_differ() {
        let mut metrics = MetricsSet::new();
        let mut add = |name: &'static str, task: usize, value: usize| {
            let count = Count::new();
            count.add(value);
            let labels = vec![Label::new(DISTRIBUTED_DATAFUSION_TASK_ID_LABEL, task.to_string())];
            let value = MetricValue::Count { name: name.into(), count };
            metrics.push(Arc::new(Metric::new_with_labels(value, Some(0), labels)));
        };
        for (task, value) in [(0, 30), (1, 10), (10, 2), (2, 20), (1, 1)] {
            add("several", task, value);
        }
        add("alone", 1, 7);
        add("same", 0, 4);
        add("same", 1, 4);
        assert_eq!(by_task(&metrics), "alone=7, same=8, several=63 (min 2, median 20, max 30)");
    }
}
