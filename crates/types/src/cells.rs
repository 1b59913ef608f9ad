//! Columns as values, one row after the other.

use crate::schema::check_value;
use crate::value::has_digits;
use crate::{Column, ColumnType, Result, ValueRef};
use arrow::array::{
    Array, AsArray, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray,
    Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, StringViewArray,
    TimestampMicrosecondArray,
};

/// The values of a column in some rows: an Arrow array, whose type is looked at once, or the same value in all of them.
#[derive(Clone, Copy)]
pub enum Cells<'a> {
    Same(ValueRef<'a>),
    Bool(&'a BooleanArray),
    Int8(&'a Int8Array),
    Int16(&'a Int16Array),
    Int32(&'a Int32Array),
    Int64(&'a Int64Array),
    Float(&'a Float32Array),
    Double(&'a Float64Array),
    Decimal(&'a Decimal128Array),
    String(&'a StringViewArray),
    Json(&'a StringViewArray),
    Binary(&'a BinaryViewArray),
    Date(&'a Date32Array),
    Timestamp(&'a TimestampMicrosecondArray),
    Uuid(&'a FixedSizeBinaryArray),
}

impl<'a> Cells<'a> {
    /// Those of `array`, which must have the Arrow type of `column_type`.
    #[inline]
    pub fn of(array: &'a dyn Array, column_type: ColumnType) -> Self {
        match column_type {
            ColumnType::Bool => Cells::Bool(array.as_boolean()),
            ColumnType::Int8 => Cells::Int8(array.as_primitive()),
            ColumnType::Int16 => Cells::Int16(array.as_primitive()),
            ColumnType::Int32 => Cells::Int32(array.as_primitive()),
            ColumnType::Int64 => Cells::Int64(array.as_primitive()),
            ColumnType::Float => Cells::Float(array.as_primitive()),
            ColumnType::Double => Cells::Double(array.as_primitive()),
            ColumnType::Decimal { .. } => Cells::Decimal(array.as_primitive()),
            ColumnType::String => Cells::String(array.as_string_view()),
            ColumnType::Json => Cells::Json(array.as_string_view()),
            ColumnType::Binary => Cells::Binary(array.as_binary_view()),
            ColumnType::Date => Cells::Date(array.as_primitive()),
            ColumnType::Timestamp => Cells::Timestamp(array.as_primitive()),
            ColumnType::Uuid => Cells::Uuid(array.as_fixed_size_binary()),
        }
    }

    /// The value in row `i`.
    #[inline]
    pub fn get(&self, i: usize) -> ValueRef<'a> {
        macro_rules! value {
            ($array:expr, $variant:ident) => {
                if $array.is_null(i) { ValueRef::Null } else { ValueRef::$variant($array.value(i)) }
            };
        }
        match *self {
            Cells::Same(value) => value,
            Cells::Bool(array) => value!(array, Bool),
            Cells::Int8(array) => value!(array, Int8),
            Cells::Int16(array) => value!(array, Int16),
            Cells::Int32(array) => value!(array, Int32),
            Cells::Int64(array) => value!(array, Int64),
            Cells::Float(array) => value!(array, Float),
            Cells::Double(array) => value!(array, Double),
            Cells::Decimal(array) => value!(array, Decimal),
            Cells::String(array) => value!(array, String),
            Cells::Json(array) => value!(array, Json),
            Cells::Binary(array) => value!(array, Binary),
            Cells::Date(array) => value!(array, Date),
            Cells::Timestamp(array) => value!(array, Timestamp),
            Cells::Uuid(array) if array.is_null(i) => ValueRef::Null,
            Cells::Uuid(array) => ValueRef::Uuid(array.value(i).try_into().expect("a uuid has 16 bytes")),
        }
    }

    /// Checks that all of them may stand in `column`, whose type they have.
    ///
    /// # Errors
    /// `Invalid`, naming the column, for null where it may not be, and for a value beyond the limits of its type.
    pub fn check(&self, column: &Column) -> Result<()> {
        match self {
            Cells::Same(value) => check_value(column, *value),
            _ if self.nulls() > 0 => check_value(column, ValueRef::Null),
            _ => self.check_limits(column),
        }
    }

    /// Checks that all of them are within the limits of `column`'s type, which they have: an Arrow array may hold what
    /// its type does not.
    ///
    /// # Errors
    /// `Invalid`, naming the column.
    pub fn check_limits(&self, column: &Column) -> Result<()> {
        match (self, column.column_type) {
            (Cells::Same(value), _) if !value.is_null() => check_value(column, *value),
            (Cells::Decimal(array), ColumnType::Decimal { precision, .. }) => {
                // What is below a null is nobody's value, but then a null is seldom and a second look is cheap.
                if array.values().iter().all(|unscaled| has_digits(*unscaled, precision)) {
                    return Ok(());
                }
                let beyond = array.iter().flatten().find(|unscaled| !has_digits(*unscaled, precision));
                beyond.map_or(Ok(()), |unscaled| check_value(column, ValueRef::Decimal(unscaled)))
            }
            _ => Ok(()),
        }
    }

    fn nulls(&self) -> usize {
        match self {
            Cells::Same(_) => 0,
            Cells::Bool(array) => array.null_count(),
            Cells::Int8(array) => array.null_count(),
            Cells::Int16(array) => array.null_count(),
            Cells::Int32(array) => array.null_count(),
            Cells::Int64(array) => array.null_count(),
            Cells::Float(array) => array.null_count(),
            Cells::Double(array) => array.null_count(),
            Cells::Decimal(array) => array.null_count(),
            Cells::String(array) | Cells::Json(array) => array.null_count(),
            Cells::Binary(array) => array.null_count(),
            Cells::Date(array) => array.null_count(),
            Cells::Timestamp(array) => array.null_count(),
            Cells::Uuid(array) => array.null_count(),
        }
    }
}
