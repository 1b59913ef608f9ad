//! Functions that are computed row by row, from a table of their bodies.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BinaryViewBuilder, BooleanBuilder, Int32Builder, Int64Array,
    ListBuilder, StringBuilder, StringViewArray, StringViewBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use oribi_session::sql::SqlError;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

/// A function of one row's arguments.
#[derive(Clone, Debug)]
pub(super) struct RowFunction {
    name: &'static str,
    returns: Returns,
    /// Whether a null among the arguments is the answer.
    strict: bool,
    body: Body,
}

type Body = fn(&[Arg<'_>]) -> std::result::Result<Answer, SqlError>;

/// What a function answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returns {
    Text,
    Int4,
    Bool,
    Bytes,
    Texts,
}

/// An argument of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arg<'a> {
    Null,
    Text(&'a str),
    Int(i64),
    Bytes(&'a [u8]),
}

/// The answer for a row; of the variant that the function returns, or null.
#[derive(Debug)]
pub(super) enum Answer {
    Null,
    Text(String),
    Int(i64),
    Bool(bool),
    Bytes(Vec<u8>),
    Texts(Vec<Option<String>>),
}

impl<'a> Arg<'a> {
    /// The text; empty for what is none.
    pub(super) fn text(&self) -> &'a str {
        match self {
            Arg::Text(text) => text,
            _ => "",
        }
    }

    pub(super) fn int(&self) -> i64 {
        match self {
            Arg::Int(n) => *n,
            _ => 0,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Arg::Null)
    }
}

impl RowFunction {
    /// A function that is null if one of its arguments is.
    pub(super) const fn strict(name: &'static str, returns: Returns, body: Body) -> Self {
        RowFunction { name, returns, strict: true, body }
    }

    /// A function that is told of nulls.
    pub(super) const fn lenient(name: &'static str, returns: Returns, body: Body) -> Self {
        RowFunction { name, returns, strict: false, body }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    fn call(&self, args: &[Arg<'_>]) -> Result<Answer> {
        if self.strict && args.iter().any(Arg::is_null) {
            return Ok(Answer::Null);
        }
        (self.body)(args).map_err(|error| DataFusionError::External(Box::new(error)))
    }
}

impl PartialEq for RowFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for RowFunction {}

impl Hash for RowFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

static SIGNATURE: LazyLock<Signature> = LazyLock::new(|| {
    Signature::one_of(vec![TypeSignature::Nullary, TypeSignature::UserDefined], Volatility::Immutable)
});

impl ScalarUDFImpl for RowFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &SIGNATURE
    }

    /// What is no text, number or bytes stays as it is, to be refused by the check of calls.
    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let coerced = arguments.iter().map(|argument| match argument {
            DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8View,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => DataType::BinaryView,
            integer if integer.is_integer() => DataType::Int64,
            other => other.clone(),
        });
        Ok(coerced.collect())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.returns {
            Returns::Text => DataType::Utf8View,
            Returns::Int4 => DataType::Int32,
            Returns::Bool => DataType::Boolean,
            Returns::Bytes => DataType::BinaryView,
            Returns::Texts => DataType::new_list(DataType::Utf8, true),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let columns = args
            .args
            .iter()
            .map(|arg| match arg {
                ColumnarValue::Scalar(value) => Column::new(&value.to_array()?, true),
                ColumnarValue::Array(array) => Column::new(array, false),
            })
            .collect::<Result<Vec<_>>>()?;
        let mut answers = Answers::new(self.returns, rows);
        let mut row_args = Vec::with_capacity(columns.len());
        for row in 0..rows {
            row_args.clear();
            row_args.extend(columns.iter().map(|column| column.get(row)));
            answers.push(self.call(&row_args)?);
        }
        let array = answers.finish();
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?));
        }
        Ok(ColumnarValue::Array(array))
    }
}

/// The values of one argument; a constant has one for all rows.
struct Column {
    values: Values,
    constant: bool,
}

enum Values {
    Texts(StringViewArray),
    Ints(arrow::array::PrimitiveArray<Int64Type>),
    Bytes(BinaryViewArray),
}

impl Column {
    fn new(array: &ArrayRef, constant: bool) -> Result<Self> {
        let values = match array.data_type() {
            integer if integer.is_integer() => {
                let ints: ArrayRef = cast(array, &DataType::Int64)?;
                Values::Ints(ints.as_primitive::<Int64Type>().clone())
            }
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
                Values::Bytes(cast(array, &DataType::BinaryView)?.as_binary_view().clone())
            }
            DataType::Null => Values::Ints(Int64Array::new_null(array.len())),
            _ => Values::Texts(cast(array, &DataType::Utf8View)?.as_string_view().clone()),
        };
        Ok(Column { values, constant })
    }

    fn get(&self, row: usize) -> Arg<'_> {
        let row = if self.constant { 0 } else { row };
        match &self.values {
            Values::Texts(a) if !a.is_null(row) => Arg::Text(a.value(row)),
            Values::Ints(a) if !a.is_null(row) => Arg::Int(a.value(row)),
            Values::Bytes(a) if !a.is_null(row) => Arg::Bytes(a.value(row)),
            _ => Arg::Null,
        }
    }
}

enum Answers {
    Text(StringViewBuilder),
    Int(Int32Builder),
    Bool(BooleanBuilder),
    Bytes(BinaryViewBuilder),
    Texts(ListBuilder<StringBuilder>),
}

impl Answers {
    fn new(returns: Returns, rows: usize) -> Self {
        match returns {
            Returns::Text => Answers::Text(StringViewBuilder::with_capacity(rows)),
            Returns::Int4 => Answers::Int(Int32Builder::with_capacity(rows)),
            Returns::Bool => Answers::Bool(BooleanBuilder::with_capacity(rows)),
            Returns::Bytes => Answers::Bytes(BinaryViewBuilder::with_capacity(rows)),
            Returns::Texts => Answers::Texts(ListBuilder::new(StringBuilder::new())),
        }
    }

    fn push(&mut self, answer: Answer) {
        match (self, answer) {
            (Answers::Text(out), Answer::Text(text)) => out.append_value(text),
            (Answers::Text(out), _) => out.append_null(),
            (Answers::Int(out), Answer::Int(n)) => out.append_value(n as i32),
            (Answers::Int(out), _) => out.append_null(),
            (Answers::Bool(out), Answer::Bool(b)) => out.append_value(b),
            (Answers::Bool(out), _) => out.append_null(),
            (Answers::Bytes(out), Answer::Bytes(bytes)) => out.append_value(bytes),
            (Answers::Bytes(out), _) => out.append_null(),
            (Answers::Texts(out), Answer::Texts(texts)) => out.append_value(texts),
            (Answers::Texts(out), _) => out.append_null(),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Answers::Text(mut out) => Arc::new(out.finish()),
            Answers::Int(mut out) => Arc::new(out.finish()),
            Answers::Bool(mut out) => Arc::new(out.finish()),
            Answers::Bytes(mut out) => Arc::new(out.finish()),
            Answers::Texts(mut out) => Arc::new(out.finish()),
        }
    }
}
