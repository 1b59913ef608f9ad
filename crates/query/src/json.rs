//! JSON in queries: PostgreSQL's operators, and the functions behind them.
//!
//! What is computed comes from `datafusion-functions-json`. Its own `json_get` answers with an Arrow union, which is
//! neither a column's type nor a client's; here a part of a JSON value is JSON again: its text, as it was written. And
//! the functions read binary values too, as key-value tables hold them: what is not UTF-8 or not JSON has no parts.

use arrow::array::{Array, AsArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue, plan_err};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, when,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use datafusion_functions_json::udfs;
use oribi_session::sql::SqlError;
use oribi_types::schema::TYPE_METADATA;
use oribi_types::{ColumnType, ErrorKind};
use std::sync::Arc;

/// Makes the operators and functions known.
///
/// # Errors
/// None are expected.
pub(crate) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for function in functions() {
        registry.register_udf(Arc::new(function))?;
    }
    registry.register_expr_planner(Arc::new(JsonOperators))
}

fn functions() -> Vec<ScalarUDF> {
    vec![
        json_get(),
        json_as_text(),
        json_contains(),
        over_json("json_get_str", &[], udfs::json_get_str_udf()),
        over_json("json_get_int", &[], udfs::json_get_int_udf()),
        over_json("json_get_float", &[], udfs::json_get_float_udf()),
        over_json("json_get_bool", &[], udfs::json_get_bool_udf()),
        over_json("json_get_array", &[], udfs::json_get_array_udf()),
        over_json("json_length", &[], udfs::json_length_udf()),
        over_json("json_object_keys", &[], udfs::json_object_keys_udf()),
    ]
}

const JSON_GET: &str = "json_get";

/// A part of a JSON value, as JSON.
fn json_get() -> ScalarUDF {
    over_json(JSON_GET, &["json_get_json"], udfs::json_get_json_udf())
}

/// A part of a JSON value, as text.
fn json_as_text() -> ScalarUDF {
    over_json("json_as_text", &[], udfs::json_as_text_udf())
}

/// Whether a JSON value has a part.
fn json_contains() -> ScalarUDF {
    over_json("json_contains", &[], udfs::json_contains_udf())
}

fn over_json(name: &str, aliases: &[&str], theirs: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::new_from_impl(JsonFunction {
        name: name.to_owned(),
        aliases: aliases.iter().map(|&alias| alias.to_owned()).collect(),
        theirs,
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

/// A function over a JSON value and the path to a part of it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonFunction {
    name: String,
    aliases: Vec<String>,
    /// Does the work, over text.
    theirs: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for JsonFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Indexes are 64 bits wide; a parameter without a type is text.
    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let coerced = arguments.iter().map(|argument| match argument {
            DataType::Null => DataType::Utf8,
            integer if integer.is_integer() => DataType::Int64,
            other => other.clone(),
        });
        Ok(coerced.collect())
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let Some((json, path)) = arguments.split_first() else {
            return plan_err!("{} needs a JSON value", self.name);
        };
        let json = if is_binary(json) { &DataType::Utf8View } else { json };
        let arguments: Vec<DataType> = std::iter::once(json).chain(path).cloned().collect();
        match self.theirs.inner().return_type(&arguments) {
            Ok(DataType::UInt64) => Ok(DataType::Int64),
            Ok(other) => Ok(other),
            Err(_) => {
                let types: Vec<String> = arguments.iter().map(ToString::to_string).collect();
                let call = format!("{}({})", self.name, types.join(", "));
                plan_err!("No function matches the given name and argument types '{call}'. ")
            }
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let arguments: Vec<DataType> = args.arg_fields.iter().map(|f| f.data_type().clone()).collect();
        let field = Field::new(&self.name, self.return_type(&arguments)?, true);
        let json = (self.name == JSON_GET).then(|| (TYPE_METADATA.to_owned(), ColumnType::Json.to_string()));
        Ok(Arc::new(field.with_metadata(json.into_iter().collect())))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(json) = args.args.first_mut() {
            *json = without_bytes(json)?;
        }
        let wanted = args.return_field.data_type().clone();
        let value = self.theirs.inner().invoke_with_args(args)?;
        if value.data_type() == wanted { Ok(value) } else { value.cast_to(&wanted, None) }
    }
}

fn is_binary(arrow: &DataType) -> bool {
    matches!(arrow, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Bytes as the text they are; null where they are none.
fn without_bytes(json: &ColumnarValue) -> Result<ColumnarValue> {
    Ok(match json {
        ColumnarValue::Scalar(
            ScalarValue::Binary(bytes) | ScalarValue::LargeBinary(bytes) | ScalarValue::BinaryView(bytes),
        ) => {
            let text = bytes.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok());
            ColumnarValue::Scalar(ScalarValue::Utf8View(text.map(str::to_owned)))
        }
        ColumnarValue::Array(array) if is_binary(array.data_type()) => {
            let array = cast(array, &DataType::BinaryView)?;
            let texts = array.as_binary_view().iter().map(|bytes| std::str::from_utf8(bytes?).ok());
            ColumnarValue::Array(Arc::new(texts.collect::<StringViewArray>()))
        }
        other => other.clone(),
    })
}

/// `->`, `->>`, `#>`, `#>>` and `?`.
#[derive(Debug)]
struct JsonOperators;

impl ExprPlanner for JsonOperators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let function = match expr.op {
            BinaryOperator::Arrow | BinaryOperator::HashArrow => json_get(),
            BinaryOperator::LongArrow | BinaryOperator::HashLongArrow => json_as_text(),
            BinaryOperator::Question => json_contains(),
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let path = match expr.op {
            BinaryOperator::HashArrow | BinaryOperator::HashLongArrow => whole_path(expr.right, schema)?,
            _ => vec![expr.right],
        };
        let name = path.first().filter(|_| expr.op == BinaryOperator::Question).cloned();
        let mut arguments = value_and_path(expr.left, &path);
        arguments.extend(path);
        let call = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), arguments));
        // Nobody knows whether there is a member without a name.
        Ok(PlannerResult::Planned(match name {
            Some(name) => when(name.is_not_null(), call).end()?,
            None => call,
        }))
    }
}

/// What a `path` starts from: of `a -> 'b'` both parts, so that `a -> 'b' -> 'c'` reads `a` once.
fn value_and_path(value: Expr, path: &[Expr]) -> Vec<Expr> {
    let constant = |path: &[Expr]| path.iter().all(|element| matches!(element, Expr::Literal(..)));
    match value {
        Expr::ScalarFunction(inner)
            if inner.func.name() == JSON_GET && constant(path) && constant(&inner.args[1..]) =>
        {
            inner.args
        }
        other => vec![other],
    }
}

/// The elements of a path: written out, with a cast or without, or an array. A text that is known only when the
/// statement runs would be taken for one element and find nothing, so it is refused.
fn whole_path(path: Expr, schema: &DFSchema) -> Result<Vec<Expr>> {
    let written = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => Some(path_elements(text)),
        _ => None,
    };
    let cast = match &path {
        Expr::Cast(cast) => written(&cast.expr),
        _ => None,
    };
    if let Some(elements) = written(&path).or(cast) {
        return elements;
    }
    let is_array = matches!(path.get_type(schema), Ok(DataType::List(_) | DataType::LargeList(_)));
    if is_array && !matches!(path, Expr::Cast(_) | Expr::Placeholder(_)) {
        return Ok(vec![path]);
    }
    let error = SqlError::new(
        ErrorKind::Unsupported,
        "a path of JSON members that is not written out is not supported",
    )
    .with_hint("write '{a,0}', or array[$1, '0'] with a parameter for each member");
    Err(DataFusionError::External(Box::new(error)))
}

/// The elements of a path that is written as PostgreSQL writes arrays: `{a,0}`.
fn path_elements(text: &str) -> Result<Vec<Expr>> {
    let inner = text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match inner {
        Some(inner) if inner.trim().is_empty() => Ok(Vec::new()),
        Some(inner) if !inner.contains(['"', '\\', '{', '}']) => {
            let element = |element: &str| ScalarValue::Utf8(Some(element.trim().to_owned()));
            Ok(inner.split(',').map(|e| Expr::Literal(element(e), None)).collect())
        }
        _ => {
            let error =
                SqlError::new(ErrorKind::Invalid, format!("malformed path of JSON members: \"{text}\""))
                    .with_sqlstate("22P02")
                    .with_hint("write '{a,0}', or array['a', '0'] if a name needs quotes");
            Err(DataFusionError::External(Box::new(error)))
        }
    }
}
