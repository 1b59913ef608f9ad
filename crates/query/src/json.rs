//! JSON in queries: PostgreSQL's operators, and the functions behind them.
//!
//! What is computed comes from `datafusion-functions-json`. Its own `json_get` answers with an Arrow union, which is
//! neither a column's type nor a client's; here a part of a JSON value is JSON again: its text, as it was written. And
//! the functions read binary values too, as key-value tables hold them: what is not UTF-8 or not JSON has no parts.

use crate::error::invalid;
use crate::functions::{self, Kind, kind};
use crate::json_text::{Step, part, text_of};
use crate::jsonb;
use crate::literals;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, StringViewArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue, plan_err};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
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
        over_json("json_get_keys", &[], udfs::json_object_keys_udf()),
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
        use BinaryOperator::{Arrow, HashArrow, HashLongArrow, LongArrow, Question};
        if !matches!(expr.op, Arrow | LongArrow | HashArrow | HashLongArrow | Question) {
            return Ok(PlannerResult::Original(expr));
        }
        check_operands(&expr.op.to_string(), &expr, schema)?;
        let left = kind(&expr.left, schema)?;
        if expr.op == Question {
            let document = match left {
                Kind::Unknown => Expr::Cast(Cast::new_from_field(Box::new(expr.left), jsonb::field(""))),
                _ => expr.left,
            };
            return Ok(PlannerResult::Planned(functions::json_has_key(document, expr.right)));
        }
        let path = matches!(expr.op, HashArrow | HashLongArrow);
        let function = JsonPart::new(matches!(expr.op, LongArrow | HashLongArrow), path, left == Kind::Jsonb);
        let (mut arguments, steps) = match path {
            true => (vec![expr.left], whole_path(expr.right, schema)?),
            false => (value_and_path(expr.left), vec![expr.right]),
        };
        arguments.extend(steps);
        let function = Arc::new(ScalarUDF::new_from_impl(function));
        Ok(PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments))))
    }
}

/// What the operators stand for: a part of a JSON value, as JSON or as text.
#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonPart {
    as_text: bool,
    /// Whether the steps are the elements of a path.
    path: bool,
    jsonb: bool,
    signature: Signature,
}

const JSON_PART: &str = "json_part";

/// The steps to a part, in each row.
enum Steps {
    Texts(StringViewArray),
    Indexes(Int64Array),
    Paths(ListArray),
}

impl Steps {
    fn of(array: &ArrayRef) -> Result<Steps> {
        let texts = DataType::new_list(DataType::Utf8View, true);
        Ok(match array.data_type() {
            index if index.is_integer() => {
                Steps::Indexes(cast(array, &DataType::Int64)?.as_primitive().clone())
            }
            DataType::List(_) | DataType::LargeList(_) => {
                Steps::Paths(cast(array, &texts)?.as_list().clone())
            }
            _ => Steps::Texts(cast(array, &DataType::Utf8View)?.as_string_view().clone()),
        })
    }
}

impl JsonPart {
    fn new(as_text: bool, path: bool, jsonb: bool) -> Self {
        JsonPart { as_text, path, jsonb, signature: Signature::user_defined(Volatility::Immutable) }
    }

    fn find<'a>(&self, document: &'a str, steps: &[Steps], row: usize) -> Option<&'a str> {
        let mut value = document.trim_ascii();
        for steps in steps {
            value = match steps {
                Steps::Texts(texts) => part(value, self.step(text_at(texts, row)?), self.jsonb)?,
                Steps::Indexes(indexes) if indexes.is_null(row) => return None,
                Steps::Indexes(indexes) => part(value, Step::Index(indexes.value(row)), self.jsonb)?,
                Steps::Paths(paths) if paths.is_null(row) => return None,
                Steps::Paths(paths) => {
                    let path = paths.value(row);
                    let path = path.as_string_view();
                    let step = |value, n| part(value, self.step(text_at(path, n)?), self.jsonb);
                    (0..path.len()).try_fold(value, step)?
                }
            };
        }
        Some(value)
    }

    fn step<'a>(&self, text: &'a str) -> Step<'a> {
        if self.path { Step::Either(text) } else { Step::Key(text) }
    }
}

fn text_at(texts: &StringViewArray, row: usize) -> Option<&str> {
    texts.is_valid(row).then(|| texts.value(row))
}

impl ScalarUDFImpl for JsonPart {
    fn name(&self) -> &str {
        match (self.path, self.as_text) {
            (false, false) => JSON_PART,
            (false, true) => "json_part_as_text",
            (true, false) => "json_at_path",
            (true, true) => "json_at_path_as_text",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arguments.to_vec())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    /// A part is written as the whole is.
    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(match (self.as_text, self.jsonb) {
            (true, _) => Arc::new(Field::new(self.name(), DataType::Utf8View, true)),
            (false, true) => jsonb::field(self.name()),
            (false, false) => literals::field(ColumnType::Json, self.name()),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let columns = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let documents = cast(&columns[0], &DataType::Utf8View)?;
        let steps = columns[1..].iter().map(Steps::of).collect::<Result<Vec<_>>>()?;
        let mut parts = StringViewBuilder::with_capacity(rows);
        for (row, document) in documents.as_string_view().iter().enumerate() {
            match document.and_then(|document| self.find(document, &steps, row)) {
                Some(part) if self.as_text => {
                    parts.append_option(text_of(part).map_err(|e| DataFusionError::External(Box::new(e)))?);
                }
                part => parts.append_option(part),
            }
        }
        let parts: ArrayRef = Arc::new(parts.finish());
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&parts, 0)?));
        }
        Ok(ColumnarValue::Array(parts))
    }
}

/// Refuses operands that PostgreSQL does not take: the left one is JSON, and says so.
fn check_operands(symbol: &str, expr: &RawBinaryExpr, schema: &DFSchema) -> Result<()> {
    let (left, right) = (kind(&expr.left, schema)?, kind(&expr.right, schema)?);
    let is_path = match (&expr.op, &right) {
        (_, Kind::Unknown) => true,
        (BinaryOperator::HashArrow | BinaryOperator::HashLongArrow, right) => matches!(right, Kind::Array(_)),
        (_, Kind::Text) => true,
        (BinaryOperator::Question, _) => false,
        _ => functions::is_int4(&expr.right, schema)?,
    };
    let error = match left {
        Kind::Json | Kind::Jsonb if is_path => return Ok(()),
        Kind::Unknown if is_path && expr.op == BinaryOperator::Question => return Ok(()),
        Kind::Unknown if is_path => {
            invalid("42725", format!("operator is not unique: {left} {symbol} {right}"))
                .with_hint("cast the text to json")
        }
        _ => invalid("42883", format!("operator does not exist: {left} {symbol} {right}"))
            .with_hint("json_get and json_as_text read texts and bytes, too"),
    };
    Err(DataFusionError::External(Box::new(error)))
}

/// What a step starts from: of `a -> 'b'` both parts, so that `a -> 'b' -> 'c'` reads `a` once.
fn value_and_path(value: Expr) -> Vec<Expr> {
    match value {
        Expr::ScalarFunction(inner) if inner.func.name() == JSON_PART => inner.args,
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
