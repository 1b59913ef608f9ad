//! A predicate as a message: a tree of few kinds of nodes. Values and types are Arrow's, beside the tree, and the nodes name them by
//! number. Or a [node](encode_node) alone, whose operands travel otherwise.

use super::super::TableColumns;
use super::external;
use crate::ipc;
use crate::nodes::functions::{called_function, function, stays};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_empty_array};
use arrow::compute::CastOptions;
use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::format::DEFAULT_CAST_OPTIONS;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal,
    NegativeExpr, NotExpr, TryCastExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use oribi_types::Error;
use prost::Message;
use std::sync::Arc;

/// Conditions that all hold.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Expressions {
    #[prost(message, repeated, tag = "1")]
    parts: Vec<Node>,
    /// A row of a column for each value, in Arrow's format of streams; likewise types, without a row.
    #[prost(bytes = "vec", tag = "2")]
    values: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    types: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(enumeration = "Kind", tag = "1")]
    kind: i32,
    /// Of a column its id, of a literal that of its value, of a cast or call that of the type.
    #[prost(uint32, tag = "2")]
    number: u32,
    /// The operator or function.
    #[prost(string, tag = "3")]
    word: String,
    /// Whether it is negated, fails on overflow, answers null for what it cannot cast, or compares with a first operand.
    #[prost(bool, tag = "4")]
    flag: bool,
    /// Whether case is ignored, the type of a cast says more than the type, or there is an ELSE.
    #[prost(bool, tag = "5")]
    other_flag: bool,
    #[prost(message, repeated, tag = "6")]
    operands: Vec<Node>,
    /// What a call is shown as.
    #[prost(string, tag = "7")]
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Kind {
    Nothing = 0,
    Column = 1,
    Literal = 2,
    Binary = 3,
    Not = 4,
    Negative = 5,
    IsNull = 6,
    IsNotNull = 7,
    InList = 8,
    Like = 9,
    Case = 10,
    Cast = 11,
    TryCast = 12,
    Call = 13,
}

/// An expression without its operands, which is none of a column.
///
/// # Errors
/// `Unsupported`, naming what does not travel.
pub(super) fn encode_node(state: &SessionState, expr: &Arc<dyn PhysicalExpr>) -> Result<Vec<u8>> {
    let mut writer = Writer::new(state, None);
    let node = writer.head(expr)?;
    writer.parts.push(node);
    Ok(writer.finish()?.encode_to_vec())
}

/// What [`encode_node`] wrote, of `operands` whose columns are those of `schema`.
///
/// # Errors
/// `Corrupt`; `NotFound`, naming a function that is not there.
pub(super) fn decode_node(
    state: &SessionState,
    bytes: &[u8],
    operands: Vec<Arc<dyn PhysicalExpr>>,
    schema: &Schema,
) -> Result<Arc<dyn PhysicalExpr>> {
    let expressions = Expressions::decode(bytes).map_err(|_| damaged())?;
    let reader = Reader::new(state, None, &expressions)?;
    let [node] = reader.parts else { return Err(damaged()) };
    reader.built(node, operands, schema)
}

pub(super) struct Writer<'a> {
    state: &'a SessionState,
    columns: Option<&'a TableColumns>,
    parts: Vec<Node>,
    values: Vec<(FieldRef, ArrayRef)>,
    types: Vec<FieldRef>,
}

impl<'a> Writer<'a> {
    /// Of expressions with functions of `state` and, if they name columns, `columns`.
    pub(super) fn new(state: &'a SessionState, columns: Option<&'a TableColumns>) -> Self {
        Writer { state, columns, parts: Vec::new(), values: Vec::new(), types: Vec::new() }
    }

    /// # Errors
    /// `Unsupported`, naming what does not travel.
    pub(super) fn add(&mut self, part: &Arc<dyn PhysicalExpr>) -> Result<()> {
        let node = self.node(part)?;
        self.parts.push(node);
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Expressions> {
        let (fields, values): (Vec<_>, Vec<_>) = self.values.into_iter().unzip();
        let empty = self.types.iter().map(|field| new_empty_array(field.data_type())).collect();
        let (values, types) = (stream(fields, values, 1)?, stream(self.types, empty, 0)?);
        Ok(Expressions { parts: self.parts, values, types })
    }

    fn node(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Result<Node> {
        let operands = expr.children().into_iter().map(|operand| self.node(operand));
        let operands = operands.collect::<Result<_>>()?;
        Ok(Node { operands, ..self.head(expr)? })
    }

    /// Without its operands.
    fn head(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Result<Node> {
        let of = |kind: Kind| Node { kind: kind.into(), ..Node::default() };
        // What asks for it has it at hand.
        let schema = Schema::empty();
        Ok(if let (Some(column), Some(columns)) = (expr.downcast_ref::<Column>(), self.columns) {
            Node { number: columns.id(column.index()), ..of(Kind::Column) }
        } else if let Some(literal) = expr.downcast_ref::<Literal>() {
            self.values.push((literal.return_field(&schema)?, literal.value().to_array()?));
            Node { number: self.values.len() as u32 - 1, ..of(Kind::Literal) }
        } else if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            // It does not tell otherwise.
            let flag = *binary == binary.clone().with_fail_on_overflow(true);
            let word = format!("{:?}", binary.op());
            if Operator::from_proto_name(&word).is_none() {
                return Err(stays(&format!("the operator {}", binary.op())));
            }
            Node { word, flag, ..of(Kind::Binary) }
        } else if let Some(list) = expr.downcast_ref::<InListExpr>() {
            Node { flag: list.negated(), ..of(Kind::InList) }
        } else if let Some(like) = expr.downcast_ref::<LikeExpr>() {
            Node { flag: like.negated(), other_flag: like.case_insensitive(), ..of(Kind::Like) }
        } else if let Some(case) = expr.downcast_ref::<CaseExpr>() {
            let (flag, other_flag) = (case.expr().is_some(), case.else_expr().is_some());
            Node { flag, other_flag, ..of(Kind::Case) }
        } else if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            let other_flag = cast.has_explicit_metadata() || cast.has_explicit_nullability();
            let number = self.type_number(cast.target_field());
            Node { number, flag: cast.cast_options().safe, other_flag, ..of(Kind::Cast) }
        } else if let Some(cast) = expr.downcast_ref::<TryCastExpr>() {
            Node { number: self.type_number(cast.target_field()), ..of(Kind::TryCast) }
        } else if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
            let number = self.type_number(&call.return_field(&schema)?);
            let (word, name) = (called_function(self.state, call)?, call.name().to_owned());
            Node { number, word, name, ..of(Kind::Call) }
        } else if expr.is::<NotExpr>() {
            of(Kind::Not)
        } else if expr.is::<NegativeExpr>() {
            of(Kind::Negative)
        } else if expr.is::<IsNullExpr>() {
            of(Kind::IsNull)
        } else if expr.is::<IsNotNullExpr>() {
            of(Kind::IsNotNull)
        } else {
            return Err(stays(&format!("the condition {expr}")));
        })
    }

    fn type_number(&mut self, field: &FieldRef) -> u32 {
        self.types.push(Arc::clone(field));
        self.types.len() as u32 - 1
    }
}

/// Reads what a [`Writer`] wrote.
pub(super) struct Reader<'a> {
    state: &'a SessionState,
    columns: Option<&'a TableColumns>,
    parts: &'a [Node],
    values: RecordBatch,
    types: RecordBatch,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        state: &'a SessionState,
        columns: Option<&'a TableColumns>,
        expressions: &'a Expressions,
    ) -> Result<Self> {
        let Expressions { parts, values, types } = expressions;
        Ok(Reader { state, columns, parts, values: batch(values)?, types: batch(types)? })
    }

    /// # Errors
    /// `Corrupt`; `NotFound`, naming a column or function that is not there.
    pub(super) fn all(&self) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
        self.parts.iter().map(|part| self.expression(part)).collect()
    }

    fn expression(&self, node: &Node) -> Result<Arc<dyn PhysicalExpr>> {
        let operands = node.operands.iter().map(|operand| self.expression(operand));
        let (operands, columns) = (operands.collect::<Result<Vec<_>>>()?, self.columns.ok_or_else(damaged)?);
        if node.kind() == Kind::Column && operands.is_empty() {
            let position = columns.position_of(node.number).map_err(external)?;
            return Ok(Arc::new(Column::new(columns.arrow.field(position).name(), position)));
        }
        self.built(node, operands, &columns.arrow)
    }

    fn built(
        &self,
        node: &Node,
        operands: Vec<Arc<dyn PhysicalExpr>>,
        schema: &Schema,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(match (node.kind(), operands.as_slice()) {
            (Kind::Literal, []) => {
                let column = self.values.columns().get(node.number as usize).ok_or_else(damaged)?;
                let metadata = FieldMetadata::from(self.values.schema_ref().field(node.number as usize));
                let metadata = (!metadata.is_empty()).then_some(metadata);
                Arc::new(Literal::new_with_metadata(ScalarValue::try_from_array(column, 0)?, metadata))
            }
            (Kind::Binary, [left, right]) => {
                let operator = Operator::from_proto_name(&node.word).ok_or_else(damaged)?;
                let binary = BinaryExpr::new(Arc::clone(left), operator, Arc::clone(right));
                Arc::new(binary.with_fail_on_overflow(node.flag))
            }
            (Kind::Not, [operand]) => Arc::new(NotExpr::new(Arc::clone(operand))),
            (Kind::Negative, [operand]) => Arc::new(NegativeExpr::new(Arc::clone(operand))),
            (Kind::IsNull, [operand]) => Arc::new(IsNullExpr::new(Arc::clone(operand))),
            (Kind::IsNotNull, [operand]) => Arc::new(IsNotNullExpr::new(Arc::clone(operand))),
            (Kind::InList, [operand, list @ ..]) => {
                let (operand, list) = (Arc::clone(operand), list.to_vec());
                Arc::new(InListExpr::try_new(operand, list, node.flag, schema)?)
            }
            (Kind::Like, [text, pattern]) => {
                let (text, pattern) = (Arc::clone(text), Arc::clone(pattern));
                Arc::new(LikeExpr::new(node.flag, node.other_flag, text, pattern))
            }
            (Kind::Case, _) => self.case(node, operands)?,
            (Kind::Cast, [operand]) => {
                let (operand, target) = (Arc::clone(operand), self.field(node)?);
                let options = CastOptions { safe: node.flag, ..DEFAULT_CAST_OPTIONS };
                match node.other_flag {
                    true => Arc::new(CastExpr::new_with_target_field(operand, target, Some(options))),
                    false => Arc::new(CastExpr::new(operand, target.data_type().clone(), Some(options))),
                }
            }
            (Kind::TryCast, [operand]) => {
                Arc::new(TryCastExpr::new_with_target_field(Arc::clone(operand), self.field(node)?))
            }
            (Kind::Call, _) => {
                let result = self.field(node)?;
                let function = function(self.state, &node.word, result.data_type())?;
                let options = Arc::clone(self.state.config_options());
                Arc::new(ScalarFunctionExpr::new(&node.name, function, operands, result, options))
            }
            _ => return Err(damaged()),
        })
    }

    /// The operands are what is compared, conditions and results in turns, and what answers otherwise.
    fn case(&self, node: &Node, mut operands: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        let otherwise = if node.other_flag { operands.pop() } else { None };
        let mut operands = operands.into_iter();
        let compared = if node.flag { operands.next() } else { None };
        let mut branches = Vec::new();
        while let Some(condition) = operands.next() {
            branches.push((condition, operands.next().ok_or_else(damaged)?));
        }
        Ok(Arc::new(CaseExpr::try_new(compared, branches, otherwise)?))
    }

    fn field(&self, node: &Node) -> Result<FieldRef> {
        self.types.schema_ref().fields().get(node.number as usize).cloned().ok_or_else(damaged)
    }
}

fn damaged() -> DataFusionError {
    external(Error::corrupt("an expression: it is none"))
}

/// A batch as bytes; none, if it has no columns.
fn stream(fields: Vec<FieldRef>, columns: Vec<ArrayRef>, rows: usize) -> Result<Vec<u8>> {
    if fields.is_empty() {
        return Ok(Vec::new());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?;
    Ok(ipc::to_bytes(&batch)?)
}

fn batch(bytes: &[u8]) -> Result<RecordBatch> {
    if bytes.is_empty() {
        return Ok(RecordBatch::new_empty(Arc::new(Schema::empty())));
    }
    ipc::from_bytes(bytes).map_err(external)
}
