//! Plans as bytes.
//!
//! datafusion-distributed reads and writes plans with a list of codecs that leaves out expressions, and asks its own about all functions
//! first. So a plan travels as one node of ours, in whose bytes the whole plan is, written and read by this codec alone.
//!
//! What comes need not be what was sent. Messages in messages are so deep at most; bytes in them begin anew, so there is one whole plan in
//! them, and nothing of ours beside it.

use crate::expressions;
use crate::taken::PARTITIONS_MAX;
use async_trait::async_trait;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::physical_expr::proto_decode::PhysicalExprDecodeCtx;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::SessionConfig;
use datafusion_distributed::DistributedCodec;
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_proto_converter, physical_plan_to_bytes_with_proto_converter,
};
use datafusion_proto::physical_plan::to_proto::serialize_physical_expr_with_converter;
use datafusion_proto::physical_plan::{
    DeduplicatingProtoConverter, PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalPlanNodeExt,
    PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::partitioning::PartitionMethod;
use datafusion_proto::protobuf::physical_expr_node::ExprType;
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{
    PhysicalExprNode, PhysicalExtensionExprNode, PhysicalExtensionNode, PhysicalPlanNode, ScalarValue,
};
use oribi_query::QueryEngine;
use oribi_query::ipc::{are_batches, is_plain};
use oribi_query::nodes::{Owner, SharedFolder};
use oribi_query::runtime_filters::RuntimeFilter;
use oribi_types::Error;
use prost::Message;
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// What follows in the bytes of a node.
const WHOLE: u8 = 1;
const SCAN: u8 = 2;
const THEIRS: u8 = 3;

/// As datafusion-distributed's list of codecs has it: the first is its own, the second this one.
#[derive(Clone, PartialEq, Message)]
struct OfCodec {
    #[prost(uint32, tag = "1")]
    position: u32,
    #[prost(bytes = "vec", tag = "2")]
    node: Vec<u8>,
}

#[derive(Clone)]
pub(crate) struct Codec {
    query: Weak<QueryEngine>,
    /// Whom scans ask that are read here.
    owner: Arc<dyn Owner>,
    folder: Arc<SharedFolder>,
    /// Whether it reads the bytes of a whole plan.
    is_inside: bool,
}

/// Of a process in which no task runs.
struct Nobody;

#[async_trait]
impl Owner for Nobody {
    async fn open(&self, _: u64, _: u32, _: &[usize], _: bool) -> oribi_types::Result<Vec<u8>> {
        Err(Error::internal("a scan of the owner's plan asks nobody"))
    }

    async fn runtime_filter(&self, _: u64, _: u64) -> oribi_types::Result<RuntimeFilter> {
        Err(Error::internal("a scan of the owner's plan asks nobody"))
    }

    async fn rows(
        &self,
        _: u64,
        _: u32,
    ) -> oribi_types::Result<
        futures::stream::BoxStream<'static, oribi_types::Result<arrow::array::RecordBatch>>,
    > {
        Err(Error::internal("a scan of the owner's plan asks nobody"))
    }
}

impl Codec {
    /// Of the owner, who reads plans only to see whether they have come through.
    pub(crate) fn of_owner(query: &Arc<QueryEngine>) -> Self {
        let folder = SharedFolder::new(oribi_env::Env::real(), PathBuf::new());
        Codec::new(query, Arc::new(Nobody), folder)
    }

    pub(crate) fn new(query: &Arc<QueryEngine>, owner: Arc<dyn Owner>, folder: Arc<SharedFolder>) -> Self {
        Codec { query: Arc::downgrade(query), owner, folder, is_inside: false }
    }

    pub(crate) fn query(&self) -> Result<Arc<QueryEngine>> {
        let stopped = || external(Error::unavailable("the process is about to end"));
        self.query.upgrade().ok_or_else(stopped)
    }

    /// # Errors
    /// `Unsupported`, naming what does not travel.
    pub(crate) fn encode(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<u8>> {
        let converter = Converter(self.query()?);
        let plan = physical_plan_to_bytes_with_proto_converter(Arc::clone(plan), self, &converter)?;
        Ok(of_node(&plan))
    }

    /// What [`encode`](Self::encode) made.
    ///
    /// # Errors
    /// `Corrupt`, or DataFusion's for a plan that is none.
    pub(crate) fn decode(&self, bytes: &[u8], context: &TaskContext) -> Result<Arc<dyn ExecutionPlan>> {
        let node = outermost(bytes)?;
        self.try_decode(&node, &[], context, &DeduplicatingProtoConverter::default())
    }

    /// DataFusion and Arrow index and unwrap in bytes that they take for their own, and make room for what a node says it has.
    fn decode_whole(&self, bytes: &[u8], context: &TaskContext) -> Result<Arc<dyn ExecutionPlan>> {
        let inside = Codec { is_inside: true, ..self.clone() };
        let read = || {
            let reader = Reader::default();
            let plan = physical_plan_from_bytes_with_proto_converter(bytes, context, &inside, &reader)?;
            plan.apply(|node| check_partitions(node).map(|()| TreeNodeRecursion::Continue))?;
            Ok(plan)
        };
        catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(damaged()))
    }
}

/// A state in which plans are read and executed. It has no functions, which the codec finds by their names, and no rules: to fill a state with
/// them takes longer than some tasks do.
pub(crate) fn bare_state(config: SessionConfig, runtime: &Arc<RuntimeEnv>) -> SessionStateBuilder {
    SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(Arc::clone(runtime))
        .with_analyzer_rules(Vec::new())
        .with_optimizer_rules(Vec::new())
        .with_physical_optimizer_rules(Vec::new())
}

/// A plan that is one node of ours, with a whole plan in its bytes.
pub(crate) fn of_node(plan: &[u8]) -> Vec<u8> {
    let node = OfCodec { position: 1, node: [&[WHOLE], plan].concat() }.encode_to_vec();
    let node = PhysicalPlanType::Extension(PhysicalExtensionNode { node, inputs: Vec::new() });
    PhysicalPlanNode { physical_plan_type: Some(node) }.encode_to_vec()
}

/// The bytes of the node that a plan is, as [`of_node`] makes it.
///
/// # Errors
/// `Corrupt`.
pub(crate) fn outermost(plan: &[u8]) -> Result<Vec<u8>> {
    let node = PhysicalPlanNode::decode(plan).map_err(|_| damaged())?;
    let Some(PhysicalPlanType::Extension(node)) = node.physical_plan_type else { return Err(damaged()) };
    Ok(OfCodec::decode(node.node.as_slice()).map_err(|_| damaged())?.node)
}

fn check_partitions(node: &Arc<dyn ExecutionPlan>) -> Result<()> {
    let is_ours = node.output_partitioning().partition_count() as u64 <= PARTITIONS_MAX;
    if is_ours { Ok(()) } else { Err(damaged()) }
}

fn is_missing(what: &str, name: &str) -> DataFusionError {
    external(Error::not_found(format!("{what} {name}")))
}

fn does_not_travel(node: &str) -> DataFusionError {
    external(Error::unsupported(format!("{node} does not travel to another process")))
}

pub(crate) fn damaged() -> DataFusionError {
    external(Error::corrupt("a plan: it is none"))
}

fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (self.is_inside, bytes.split_first()) {
            (false, Some((&WHOLE, plan))) => self.decode_whole(plan, context),
            (true, Some((&SCAN, scan))) => self.query()?.decode_scan(scan, &self.owner, &self.folder),
            (true, Some((&THEIRS, node))) => {
                inputs.iter().try_for_each(check_partitions)?;
                DistributedCodec.try_decode(node, inputs, context, converter)
            }
            _ => Err(external(Error::corrupt("a plan: a node of it is none"))),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        if let Some(scan) = self.query()?.encode_scan(&node)? {
            bytes.push(SCAN);
            bytes.extend(scan);
            return Ok(());
        }
        let (name, mut theirs) = (node.name().to_owned(), Vec::new());
        if DistributedCodec.try_encode(node, &mut theirs, converter).is_err() {
            return Err(does_not_travel(&name));
        }
        bytes.push(THEIRS);
        bytes.extend(theirs);
        Ok(())
    }

    fn try_decode_expr(
        &self,
        bytes: &[u8],
        operands: &[Arc<dyn PhysicalExpr>],
        context: &PhysicalExprDecodeCtx<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        if !self.is_inside {
            return Err(damaged());
        }
        self.query()?.decode_expression(bytes, operands, context.schema())
    }

    fn try_decode_udf(&self, name: &str, _bytes: &[u8]) -> Result<Arc<ScalarUDF>> {
        let query = self.query()?;
        query.base_state().scalar_functions().get(name).cloned().ok_or_else(|| is_missing("function", name))
    }

    fn try_decode_udaf(&self, name: &str, _bytes: &[u8]) -> Result<Arc<AggregateUDF>> {
        let query = self.query()?;
        query
            .base_state()
            .aggregate_functions()
            .get(name)
            .cloned()
            .ok_or_else(|| is_missing("aggregate", name))
    }

    // Scalar functions travel in expressions; where else there is one, it is none of ours.
    fn try_encode_udf(&self, function: &ScalarUDF, _bytes: &mut Vec<u8>) -> Result<()> {
        self.query()?.function_name(function).map(drop)
    }

    fn try_encode_udaf(&self, aggregate: &AggregateUDF, _bytes: &mut Vec<u8>) -> Result<()> {
        self.query()?.check_aggregate(aggregate)
    }

    fn try_encode_udwf(&self, window: &WindowUDF, _bytes: &mut Vec<u8>) -> Result<()> {
        internal_err!("window functions do not travel: {}", window.name())
    }
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Codec")
    }
}

/// Whether a node is one that comes to be in another process, by what it is there.
fn travels(node: &PhysicalPlanNode) -> bool {
    match &node.physical_plan_type {
        Some(
            PhysicalPlanType::Aggregate(_)
            | PhysicalPlanType::Cooperative(_)
            | PhysicalPlanType::CrossJoin(_)
            | PhysicalPlanType::Empty(_)
            | PhysicalPlanType::Extension(_)
            | PhysicalPlanType::Filter(_)
            | PhysicalPlanType::GlobalLimit(_)
            | PhysicalPlanType::HashJoin(_)
            | PhysicalPlanType::LocalLimit(_)
            | PhysicalPlanType::Merge(_)
            | PhysicalPlanType::NestedLoopJoin(_)
            | PhysicalPlanType::PlaceholderRow(_)
            | PhysicalPlanType::Projection(_)
            | PhysicalPlanType::Sort(_)
            | PhysicalPlanType::SortPreservingMerge(_)
            | PhysicalPlanType::Union(_),
        ) => true,
        // The values of ranges are read past the [`Reader`].
        Some(PhysicalPlanType::Repartition(shuffle)) => {
            let by = shuffle.partitioning.as_ref().and_then(|by| by.partition_method.as_ref());
            !matches!(by, Some(PartitionMethod::Range(_)))
        }
        // DataFusion makes room for as much as these say they are.
        Some(PhysicalPlanType::MemoryScan(scan)) => scan.partitions.iter().all(|rows| are_batches(rows)),
        _ => false,
    }
}

/// Whether a value is none that takes more room than its bytes do: Arrow believes what compressed rows say they are, and how long lists are
/// that have one length.
fn is_plain_value(value: &ScalarValue) -> bool {
    use datafusion_proto_common::protobuf_common::arrow_type::ArrowTypeEnum::FixedSizeList;
    use datafusion_proto_common::protobuf_common::scalar_value::Value::{
        DictionaryValue, FixedSizeListValue, LargeListValue, LargeListViewValue, ListValue, ListViewValue,
        MapValue, NullValue, RunEndEncodedValue, StructValue, UnionValue,
    };
    match &value.value {
        Some(
            FixedSizeListValue(nested)
            | LargeListValue(nested)
            | LargeListViewValue(nested)
            | ListValue(nested)
            | ListViewValue(nested)
            | MapValue(nested)
            | StructValue(nested),
        ) => {
            let dictionaries = nested.dictionaries.iter().map(|dictionary| &dictionary.ipc_message);
            dictionaries.chain([&nested.ipc_message]).all(|message| is_plain(message))
        }
        Some(DictionaryValue(of)) => of.value.as_ref().is_none_or(|value| is_plain_value(value)),
        Some(NullValue(of)) => !matches!(of.arrow_type_enum, Some(FixedSizeList(_))),
        Some(RunEndEncodedValue(_) | UnionValue(_)) => false,
        _ => true,
    }
}

/// Reads whole plans. An expression that stands in several places, as a filter of a join
/// does, is the same in all of them.
#[derive(Default)]
struct Reader {
    /// By their numbers.
    expressions: RefCell<HashMap<u64, Arc<dyn PhysicalExpr>>>,
}

impl PhysicalProtoConverterExtension for Reader {
    fn proto_to_execution_plan(
        &self,
        proto: &PhysicalPlanNode,
        context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !travels(proto) {
            return Err(damaged());
        }
        proto.try_into_physical_plan_with_context(context, self)
    }

    fn proto_to_physical_expr(
        &self,
        proto: &PhysicalExprNode,
        schema: &Schema,
        context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        if let Some(ExprType::Literal(value)) = &proto.expr_type
            && !is_plain_value(value)
        {
            return Err(damaged());
        }
        let read = self.default_proto_to_physical_expr(proto, schema, context)?;
        let Some(id) = proto.expr_id else { return Ok(read) };
        match self.expressions.borrow_mut().entry(id) {
            Entry::Vacant(first) => Ok(first.insert(read).clone()),
            Entry::Occupied(first) => {
                let operands = read.children().into_iter().map(Arc::clone).collect();
                Arc::clone(first.get()).with_new_children(operands)
            }
        }
    }

    fn execution_plan_to_proto(
        &self,
        _plan: &Arc<dyn ExecutionPlan>,
        _codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalPlanNode> {
        internal_err!("this only reads plans")
    }

    fn physical_expr_to_proto(
        &self,
        _expr: &Arc<dyn PhysicalExpr>,
        _codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalExprNode> {
        internal_err!("this only reads plans")
    }
}

/// Writes plans, with expressions of ours.
struct Converter(Arc<QueryEngine>);

impl PhysicalProtoConverterExtension for Converter {
    fn execution_plan_to_proto(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalPlanNode> {
        let node = PhysicalPlanNode::try_from_physical_plan_with_converter(Arc::clone(plan), codec, self)?;
        if !travels(&node) {
            return Err(does_not_travel(plan.name()));
        }
        Ok(node)
    }

    fn physical_expr_to_proto(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalExprNode> {
        if !expressions::would_be_changed(expr) {
            return serialize_physical_expr_with_converter(expr, codec, self);
        }
        let bytes = self.0.encode_expression(expr)?;
        let inputs = expr.children().into_iter().map(|operand| self.physical_expr_to_proto(operand, codec));
        let node = PhysicalExtensionExprNode { expr: bytes, inputs: inputs.collect::<Result<_>>()? };
        Ok(PhysicalExprNode { expr_id: None, expr_type: Some(ExprType::Extension(node)) })
    }

    fn proto_to_execution_plan(
        &self,
        _proto: &PhysicalPlanNode,
        _context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        internal_err!("this only writes plans")
    }

    fn proto_to_physical_expr(
        &self,
        _proto: &PhysicalExprNode,
        _schema: &Schema,
        _context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        internal_err!("this only writes plans")
    }
}
