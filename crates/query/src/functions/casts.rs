//! Casts: which there are, and those from and to text, which read and write values as columns do.
//!
//! Arrow's own casts read and write texts in another way: `'yes'` is no boolean there, a float has another text, and a
//! timestamp is written with a `T`.

use super::kinds::Kind;
use super::moments;
use crate::dml;
use crate::error::{invalid, unsupported};
use crate::jsonb;
use crate::literals;
use arrow::array::{Array, ArrayRef, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use oribi_session::sql::SqlError;
use oribi_types::batch::value_at;
use oribi_types::{ColumnType, text};
use std::sync::Arc;

/// How a cast is done.
pub(super) enum Casting {
    /// As DataFusion does.
    Theirs,
    /// Of a moment to what the clocks of its zone show, and from there by a function of moments.
    Clock(Option<&'static str>),
    Ours(TextCast),
    /// By a function of moments.
    Moment(&'static str),
}

/// The cast of a value of kind `from` to the type of `to`.
///
/// # Errors
/// 42846 for one that PostgreSQL does not have, `Unsupported` for one that it has.
pub(super) fn of(from: &Kind, to: &Field) -> Result<Casting, SqlError> {
    let target = Kind::of(to);
    let moment = |name| Ok(Casting::Moment(name));
    match (from, &target) {
        (Kind::Time, _) | (_, Kind::Time) => Err(unsupported("type time")),
        (Kind::Unknown, _) => Ok(Casting::Theirs),
        (Kind::Text, Kind::Text) => Ok(Casting::Theirs),
        (Kind::Interval, Kind::Text) => moment(moments::INTERVAL_TEXT),
        (Kind::Timestamptz, Kind::Text) => moment(moments::ZONED_TEXT),
        (Kind::Text, Kind::Interval) => moment(moments::AS_INTERVAL),
        (_, Kind::Text) => match to_text(from) {
            Some(function) => Ok(Casting::Ours(function)),
            None => Err(unsupported(&format!("a cast of {from} to text"))),
        },
        (Kind::Text | Kind::Json, Kind::Jsonb) => Ok(Casting::Ours(TextCast::jsonb())),
        (Kind::Text, _) => match column_type(to) {
            Some(column_type) => Ok(Casting::Ours(TextCast::reading(column_type))),
            None => Err(unsupported(&format!("a cast of text to {target}"))),
        },
        (from, to) if from == to => Ok(Casting::Theirs),
        (from, to) if from.is_number() && to.is_number() => Ok(Casting::Theirs),
        (Kind::Zoned, Kind::Timestamp) => Ok(Casting::Clock(None)),
        (Kind::Zoned, Kind::Date) => Ok(Casting::Clock(Some(moments::AS_DATE))),
        (Kind::Zoned, to) => Err(unsupported(&format!("a cast of a moment outside of UTC to {to}"))),
        (Kind::Jsonb, Kind::Json) => Ok(Casting::Theirs),
        (Kind::Date | Kind::Timestamptz, Kind::Timestamp) => moment(moments::AS_TIMESTAMP),
        (Kind::Timestamp | Kind::Timestamptz, Kind::Date) => moment(moments::AS_DATE),
        (Kind::Bool, Kind::Int4) | (Kind::Int4, Kind::Bool) => Ok(Casting::Theirs),
        (Kind::Array(from), Kind::Array(to))
            if from == to || **from == Kind::Unknown || from.is_number() && to.is_number() =>
        {
            Ok(Casting::Theirs)
        }
        (from, to) => Err(invalid("42846", format!("cannot cast type {from} to {to}"))),
    }
}

fn column_type(field: &Field) -> Option<ColumnType> {
    match Kind::of(field) {
        Kind::Json | Kind::Jsonb => Some(ColumnType::Json),
        _ => ColumnType::from_arrow(field.data_type()).ok(),
    }
}

/// The cast to text of a value of `kind`, if there is one.
pub(super) fn to_text(kind: &Kind) -> Option<TextCast> {
    let has_text = kind.is_number()
        || kind.is_json()
        || matches!(kind, Kind::Bool | Kind::Bytea | Kind::Date | Kind::Timestamp | Kind::Uuid);
    has_text.then(TextCast::writing)
}

/// Whether a function of a plan is one of those that stand for casts.
pub(super) fn is_ours(name: &str) -> bool {
    name == WRITING || name == READING
}

const WRITING: &str = "cast_to_text";
const READING: &str = "cast_from_text";

/// A cast to text, or from text to a type that a column may have.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct TextCast {
    /// The type that is read; `None` writes.
    reads: Option<ColumnType>,
    /// Whether a boolean is written as a client sees it, `t`, and not as a cast does, `true`.
    shown: bool,
    /// Whether JSON is written anew, as PostgreSQL writes `jsonb`.
    jsonb: bool,
    signature: Signature,
}

impl TextCast {
    fn new(reads: Option<ColumnType>) -> Self {
        TextCast { reads, shown: false, jsonb: false, signature: Signature::any(1, Volatility::Immutable) }
    }

    fn writing() -> Self {
        TextCast::new(None)
    }

    /// Writes values as clients see them.
    pub(super) fn showing(self) -> Self {
        TextCast { shown: true, ..self }
    }

    fn reading(column_type: ColumnType) -> Self {
        TextCast::new(Some(column_type))
    }

    fn jsonb() -> Self {
        TextCast { jsonb: true, ..TextCast::new(Some(ColumnType::Json)) }
    }

    /// All that it is.
    pub(super) fn word(&self) -> Option<String> {
        let of = serde_json::to_string(&(self.reads, self.shown, self.jsonb)).ok()?;
        Some(format!("{} {of}", self.name()))
    }

    /// What [`word`](Self::word) said.
    pub(super) fn by_word(word: &str) -> Option<Self> {
        let (name, of) = word.split_once(' ')?;
        let (reads, shown, jsonb) = serde_json::from_str(of).ok()?;
        Some(TextCast { shown, jsonb, ..TextCast::new(reads) }).filter(|cast| cast.name() == name)
    }

    pub(super) fn call(self, arguments: Vec<Expr>) -> Expr {
        let function = Arc::new(ScalarUDF::new_from_impl(self));
        Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments))
    }
}

impl ScalarUDFImpl for TextCast {
    fn name(&self) -> &str {
        if self.reads.is_some() { READING } else { WRITING }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.reads.map_or(DataType::Utf8View, |column_type| column_type.arrow()))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<Arc<Field>> {
        let name = args.arg_fields[0].name();
        Ok(match self.reads {
            Some(_) if self.jsonb => jsonb::field(name),
            Some(column_type) => literals::field(column_type, name),
            None => Arc::new(Field::new(name, DataType::Utf8View, true)),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = matches!(args.args[0], ColumnarValue::Scalar(_));
        let array = args.args[0].to_array(if scalar { 1 } else { args.number_rows })?;
        let done = match self.reads {
            Some(_) if self.jsonb => jsonb::normalize_all(&array)?,
            Some(column_type) => read(&array, column_type)?,
            None => written(&array, self.shown)?,
        };
        if scalar {
            let value = datafusion::common::ScalarValue::try_from_array(&done, 0)?;
            return Ok(ColumnarValue::Scalar(value));
        }
        Ok(ColumnarValue::Array(done))
    }
}

fn read(array: &ArrayRef, column_type: ColumnType) -> Result<ArrayRef> {
    dml::read_all(array, column_type).map_err(|error| DataFusionError::External(Box::new(error)))
}

/// The values of `array` as texts.
///
/// # Errors
/// `Unsupported` for types that no column has.
fn written(array: &ArrayRef, shown: bool) -> Result<ArrayRef> {
    let column_type = ColumnType::from_arrow(array.data_type())
        .map_err(|error| DataFusionError::External(Box::new(SqlError::from(error))))?;
    let array = cast(array, &column_type.arrow())?;
    let mut texts = StringViewBuilder::with_capacity(array.len());
    let mut written = Vec::new();
    for row in 0..array.len() {
        if array.is_null(row) {
            texts.append_null();
            continue;
        }
        written.clear();
        text::format(value_at(array.as_ref(), column_type, row), column_type, &mut written);
        if shown && column_type == ColumnType::Bool {
            written.truncate(1);
        }
        texts
            .append_value(std::str::from_utf8(&written).map_err(|e| DataFusionError::External(Box::new(e)))?);
    }
    Ok(Arc::new(texts.finish()))
}
