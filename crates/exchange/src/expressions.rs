//! Expressions that DataFusion's encoding would change.
//!
//! It forgets whether an operator fails on overflow, a cast on what it cannot cast, and what metadata the result of a cast or function
//! has; a chain of one operator becomes a list, whatever the links were. So arithmetic, calls, casts, and constants with metadata have an
//! encoding of their own, among DataFusion's.

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_empty_array};
use arrow::compute::CastOptions;
use arrow::datatypes::{DataType, FieldRef, Schema};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use datafusion::common::format::DEFAULT_CAST_OPTIONS;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Literal, TryCastExpr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use oribi_query::QueryEngine;
use oribi_types::Error;
use prost::Message;
use std::sync::Arc;

#[derive(Clone, PartialEq, Message)]
struct Expression {
    #[prost(enumeration = "Kind", tag = "1")]
    kind: i32,
    /// The operator or function.
    #[prost(string, tag = "2")]
    word: String,
    /// What a call is shown as.
    #[prost(string, tag = "3")]
    name: String,
    /// Whether it fails on overflow, or answers null for what it cannot cast.
    #[prost(bool, tag = "4")]
    flag: bool,
    /// Whether the result of a cast is more than the type says.
    #[prost(bool, tag = "5")]
    other_flag: bool,
    /// The result, and of a constant the value, in Arrow's format of streams.
    #[prost(bytes = "vec", tag = "6")]
    result: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Kind {
    Nothing = 0,
    Arithmetic = 1,
    Call = 2,
    Cast = 3,
    TryCast = 4,
    Constant = 5,
}

/// An expression without its operands; `None` for one that DataFusion's encoding does not change.
///
/// # Errors
/// `Unsupported`, naming a function that does not travel.
pub(crate) fn encode(expr: &Arc<dyn PhysicalExpr>, query: &QueryEngine) -> Result<Option<Vec<u8>>> {
    let of = |kind: Kind| Expression { kind: kind.into(), ..Expression::default() };
    let schema = Schema::empty();
    let encoded = if let Some(binary) = expr.downcast_ref::<BinaryExpr>().filter(|b| is_arithmetic(b.op())) {
        // It does not tell otherwise.
        let flag = *binary == binary.clone().with_fail_on_overflow(true);
        Expression { word: format!("{:?}", binary.op()), flag, ..of(Kind::Arithmetic) }
    } else if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
        let (word, name) = (query.called_function(call)?, call.name().to_owned());
        Expression { word, name, result: stream(&call.return_field(&schema)?, None)?, ..of(Kind::Call) }
    } else if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        let other_flag = cast.has_explicit_metadata() || cast.has_explicit_nullability();
        let (flag, result) = (cast.cast_options().safe, stream(cast.target_field(), None)?);
        Expression { flag, other_flag, result, ..of(Kind::Cast) }
    } else if let Some(cast) = expr.downcast_ref::<TryCastExpr>() {
        Expression { result: stream(cast.target_field(), None)?, ..of(Kind::TryCast) }
    } else if let Some(constant) = expr.downcast_ref::<Literal>() {
        let field = constant.return_field(&schema)?;
        if field.metadata().is_empty() {
            return Ok(None);
        }
        Expression { result: stream(&field, Some(constant.value().to_array()?))?, ..of(Kind::Constant) }
    } else {
        return Ok(None);
    };
    Ok(Some(encoded.encode_to_vec()))
}

/// # Errors
/// `Corrupt`; `NotFound`, naming a function that is not there.
pub(crate) fn decode(
    bytes: &[u8],
    operands: &[Arc<dyn PhysicalExpr>],
    query: &QueryEngine,
) -> Result<Arc<dyn PhysicalExpr>> {
    let expression = Expression::decode(bytes).map_err(|_| damaged())?;
    Ok(match (expression.kind(), operands) {
        (Kind::Arithmetic, [left, right]) => {
            let operator = Operator::from_proto_name(&expression.word).filter(is_arithmetic);
            let operator = operator.ok_or_else(damaged)?;
            let binary = BinaryExpr::new(Arc::clone(left), operator, Arc::clone(right));
            Arc::new(binary.with_fail_on_overflow(expression.flag))
        }
        (Kind::Call, operands) => {
            let result = batch(&expression.result)?.0;
            let function = query.function(&expression.word, result.data_type())?;
            let options = Arc::clone(query.base_state().config_options());
            let name = &expression.name;
            Arc::new(ScalarFunctionExpr::new(name, function, operands.to_vec(), result, options))
        }
        (Kind::Cast, [operand]) => {
            let (operand, target) = (Arc::clone(operand), batch(&expression.result)?.0);
            let options = Some(CastOptions { safe: expression.flag, ..DEFAULT_CAST_OPTIONS });
            match expression.other_flag {
                true => Arc::new(CastExpr::new_with_target_field(operand, target, options)),
                false => Arc::new(CastExpr::new(operand, DataType::clone(target.data_type()), options)),
            }
        }
        (Kind::TryCast, [operand]) => {
            let target = batch(&expression.result)?.0;
            Arc::new(TryCastExpr::new_with_target_field(Arc::clone(operand), target))
        }
        (Kind::Constant, []) => {
            let (field, value) = batch(&expression.result)?;
            let value = ScalarValue::try_from_array(&value.ok_or_else(damaged)?, 0)?;
            Arc::new(Literal::new_with_metadata(value, Some(FieldMetadata::from(field.as_ref()))))
        }
        _ => return Err(damaged()),
    })
}

fn is_arithmetic(operator: &Operator) -> bool {
    use Operator::{Divide, Minus, Modulo, Multiply, Plus};
    matches!(operator, Plus | Minus | Multiply | Divide | Modulo)
}

fn damaged() -> DataFusionError {
    DataFusionError::External(Box::new(Error::corrupt("a plan: an expression of it is none")))
}

/// A column of one row, or none.
fn stream(field: &FieldRef, value: Option<ArrayRef>) -> Result<Vec<u8>> {
    let rows = value.as_ref().map_or(0, |value| value.len());
    let column = value.unwrap_or_else(|| new_empty_array(field.data_type()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let schema = Arc::new(Schema::new(vec![Arc::clone(field)]));
    let batch = RecordBatch::try_new_with_options(schema, vec![column], &options)?;
    let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref())?;
    writer.write(&batch)?;
    Ok(writer.into_inner()?)
}

fn batch(bytes: &[u8]) -> Result<(FieldRef, Option<ArrayRef>)> {
    let batch = StreamReader::try_new(bytes, None)?.next().ok_or_else(damaged)??;
    let field = batch.schema_ref().fields().first().cloned().ok_or_else(damaged)?;
    Ok((field, batch.columns().first().filter(|column| !column.is_empty()).cloned()))
}
