//! A plan as a tree of JSON, for programs. Names are PostgreSQL's where it has one; times are milliseconds.

use super::reads::Reads;
use crate::nodes::Exchanged;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// An operator and those below it; with what they did, if the plan was `executed`.
pub(super) fn tree(plan: &Arc<dyn ExecutionPlan>, executed: bool) -> Value {
    let line = DisplayableExecutionPlan::new(plan.as_ref()).one_line().to_string();
    let details = line.trim().strip_prefix(plan.name()).unwrap_or(line.trim());
    let mut node = node(plan.name(), details.trim_start_matches(':').trim());
    if executed {
        let rows = plan.metrics().and_then(|metrics| metrics.output_rows());
        node["Actual Rows"] = json!(rows.unwrap_or(0));
        node["Compute Time"] = json!(milliseconds(compute_time(plan.as_ref())));
    }
    if let Some((table, reads)) = Reads::of(plan.as_ref()) {
        node["Relation Name"] = json!(table);
        if executed {
            node["Memory Rows"] = json!(reads.memory_rows);
            node["Memory Bytes"] = json!(reads.memory_bytes);
            node["Files"] = json!(reads.files);
            node["File Rows"] = json!(reads.file_rows);
            node["File Bytes"] = json!(reads.file_bytes);
        }
    }
    if let Some(exchanged) = plan.metrics().as_ref().and_then(Exchanged::of).filter(|_| executed) {
        node["Batches"] = json!(exchanged.batches);
        node["Bytes Handed Over"] = json!(exchanged.bytes_handed_over);
        node["Bytes Sent"] = json!(exchanged.bytes_sent);
        node["Bytes Before Compression"] = json!(exchanged.bytes_before_compression);
        node["Encoding Time"] = json!(milliseconds(exchanged.encoding));
        node["Network Wait Time"] = json!(milliseconds(exchanged.waiting_for_network));
        node["Receiver Wait Time"] = json!(milliseconds(exchanged.waiting_for_receiver));
    }
    let below: Vec<Value> = plan.children().into_iter().map(|child| tree(child, executed)).collect();
    if !below.is_empty() {
        node["Plans"] = Value::Array(below);
    }
    node
}

/// An operator without any below it.
pub(super) fn node(kind: &str, details: &str) -> Value {
    json!({ "Node Type": kind, "Details": details })
}

pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// How long an operator computed on all threads together, without those below it.
fn compute_time(plan: &dyn ExecutionPlan) -> Duration {
    let metrics = plan.metrics().unwrap_or_default();
    let sum = |name: &str| metrics.sum_by_name(name).map_or(0, |value| value.as_usize());
    // A scan of files counts as computing only what it does with a batch that is decoded; some joins nothing at all.
    let computed = metrics.elapsed_compute().unwrap_or(0);
    let computed = computed.max(sum("time_elapsed_processing")).max(sum("join_time") + sum("build_time"));
    Duration::from_nanos((computed + sum("repartition_time")) as u64)
}
