//! Column types and single values, borrowed and owned.

use crate::{Error, Result};
use arrow::datatypes::{DataType, TimeUnit};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnType {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Float,
    Double,
    /// `precision` 1 to 38 digits, `scale` 0 to `precision` of them behind the point.
    Decimal {
        precision: u8,
        scale: i8,
    },
    String,
    Binary,
    /// Days since 1970-01-01.
    Date,
    /// Microseconds since 1970-01-01 00:00:00 UTC.
    Timestamp,
    Uuid,
    /// JSON text.
    Json,
}

impl ColumnType {
    /// Bytes that a value takes in a row's fixed area; `None` for types of variable length.
    pub fn fixed_width(self) -> Option<usize> {
        Some(match self {
            ColumnType::Bool | ColumnType::Int8 => 1,
            ColumnType::Int16 => 2,
            ColumnType::Int32 | ColumnType::Float | ColumnType::Date => 4,
            ColumnType::Int64 | ColumnType::Double | ColumnType::Timestamp => 8,
            ColumnType::Decimal { .. } | ColumnType::Uuid => 16,
            ColumnType::String | ColumnType::Binary | ColumnType::Json => return None,
        })
    }

    /// Whether a primary key may contain the type: it must have one total order of bytes.
    pub fn is_key_type(self) -> bool {
        !matches!(self, ColumnType::Float | ColumnType::Double | ColumnType::Json)
    }

    pub fn is_integer(self) -> bool {
        matches!(self, ColumnType::Int8 | ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64)
    }

    /// The Arrow type in files and queries.
    pub fn arrow(self) -> DataType {
        match self {
            ColumnType::Bool => DataType::Boolean,
            ColumnType::Int8 => DataType::Int8,
            ColumnType::Int16 => DataType::Int16,
            ColumnType::Int32 => DataType::Int32,
            ColumnType::Int64 => DataType::Int64,
            ColumnType::Float => DataType::Float32,
            ColumnType::Double => DataType::Float64,
            ColumnType::Decimal { precision, scale } => DataType::Decimal128(precision, scale),
            ColumnType::String | ColumnType::Json => DataType::Utf8View,
            ColumnType::Binary => DataType::BinaryView,
            ColumnType::Date => DataType::Date32,
            ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            ColumnType::Uuid => DataType::FixedSizeBinary(16),
        }
    }

    /// The column type that holds values of an Arrow type.
    ///
    /// # Errors
    /// `Unsupported`, naming the type, for nested types, intervals and decimals beyond 38 digits.
    pub fn from_arrow(arrow: &DataType) -> Result<Self> {
        Ok(match arrow {
            DataType::Boolean => ColumnType::Bool,
            DataType::Int8 => ColumnType::Int8,
            DataType::Int16 | DataType::UInt8 => ColumnType::Int16,
            DataType::Int32 | DataType::UInt16 => ColumnType::Int32,
            DataType::Int64 | DataType::UInt32 | DataType::UInt64 => ColumnType::Int64,
            DataType::Float16 | DataType::Float32 => ColumnType::Float,
            DataType::Float64 => ColumnType::Double,
            DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) if *s >= 0 => {
                ColumnType::Decimal { precision: *p, scale: *s }
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => ColumnType::String,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => ColumnType::Binary,
            DataType::FixedSizeBinary(16) => ColumnType::Uuid,
            DataType::FixedSizeBinary(_) => ColumnType::Binary,
            DataType::Date32 | DataType::Date64 => ColumnType::Date,
            DataType::Timestamp(_, _) => ColumnType::Timestamp,
            DataType::Dictionary(_, value) => ColumnType::from_arrow(value)?,
            other => {
                return Err(Error::unsupported(format!("columns of type {other} are not supported")));
            }
        })
    }
}

/// The SQL name of the type.
impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ColumnType::Bool => "boolean",
            ColumnType::Int8 => "tinyint",
            ColumnType::Int16 => "smallint",
            ColumnType::Int32 => "integer",
            ColumnType::Int64 => "bigint",
            ColumnType::Float => "real",
            ColumnType::Double => "double precision",
            ColumnType::Decimal { precision, scale } => {
                return write!(f, "numeric({precision},{scale})");
            }
            ColumnType::String => "text",
            ColumnType::Binary => "bytea",
            ColumnType::Date => "date",
            ColumnType::Timestamp => "timestamp",
            ColumnType::Uuid => "uuid",
            ColumnType::Json => "json",
        })
    }
}

/// One value, borrowed. `Decimal` is the unscaled integer; the scale is the column's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    Null,
    Bool(bool),
    Int8(i8),
    Int16(i16),
    Int32(i32),
    Int64(i64),
    Float(f32),
    Double(f64),
    Decimal(i128),
    String(&'a str),
    Binary(&'a [u8]),
    Date(i32),
    Timestamp(i64),
    Uuid([u8; 16]),
    Json(&'a str),
}

/// One value, owned. See [`ValueRef`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    Null,
    Bool(bool),
    Int8(i8),
    Int16(i16),
    Int32(i32),
    Int64(i64),
    Float(f32),
    Double(f64),
    Decimal(i128),
    String(String),
    Binary(Vec<u8>),
    Date(i32),
    Timestamp(i64),
    Uuid([u8; 16]),
    Json(String),
}

impl Value {
    #[inline]
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::Null => ValueRef::Null,
            Value::Bool(v) => ValueRef::Bool(*v),
            Value::Int8(v) => ValueRef::Int8(*v),
            Value::Int16(v) => ValueRef::Int16(*v),
            Value::Int32(v) => ValueRef::Int32(*v),
            Value::Int64(v) => ValueRef::Int64(*v),
            Value::Float(v) => ValueRef::Float(*v),
            Value::Double(v) => ValueRef::Double(*v),
            Value::Decimal(v) => ValueRef::Decimal(*v),
            Value::String(v) => ValueRef::String(v),
            Value::Binary(v) => ValueRef::Binary(v),
            Value::Date(v) => ValueRef::Date(*v),
            Value::Timestamp(v) => ValueRef::Timestamp(*v),
            Value::Uuid(v) => ValueRef::Uuid(*v),
            Value::Json(v) => ValueRef::Json(v),
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }
}

impl ValueRef<'_> {
    pub fn to_owned(self) -> Value {
        match self {
            ValueRef::Null => Value::Null,
            ValueRef::Bool(v) => Value::Bool(v),
            ValueRef::Int8(v) => Value::Int8(v),
            ValueRef::Int16(v) => Value::Int16(v),
            ValueRef::Int32(v) => Value::Int32(v),
            ValueRef::Int64(v) => Value::Int64(v),
            ValueRef::Float(v) => Value::Float(v),
            ValueRef::Double(v) => Value::Double(v),
            ValueRef::Decimal(v) => Value::Decimal(v),
            ValueRef::String(v) => Value::String(v.to_owned()),
            ValueRef::Binary(v) => Value::Binary(v.to_owned()),
            ValueRef::Date(v) => Value::Date(v),
            ValueRef::Timestamp(v) => Value::Timestamp(v),
            ValueRef::Uuid(v) => Value::Uuid(v),
            ValueRef::Json(v) => Value::Json(v.to_owned()),
        }
    }

    #[inline]
    pub fn is_null(self) -> bool {
        matches!(self, ValueRef::Null)
    }

    /// Whether the value may stand in a column of type `column` (null always may): it is of the type, and within its
    /// limits.
    #[inline]
    pub fn fits(self, column: ColumnType) -> bool {
        if let (ValueRef::Decimal(unscaled), ColumnType::Decimal { precision, .. }) = (self, column) {
            return has_digits(unscaled, precision);
        }
        matches!(
            (self, column),
            (ValueRef::Null, _)
                | (ValueRef::Bool(_), ColumnType::Bool)
                | (ValueRef::Int8(_), ColumnType::Int8)
                | (ValueRef::Int16(_), ColumnType::Int16)
                | (ValueRef::Int32(_), ColumnType::Int32)
                | (ValueRef::Int64(_), ColumnType::Int64)
                | (ValueRef::Float(_), ColumnType::Float)
                | (ValueRef::Double(_), ColumnType::Double)
                | (ValueRef::String(_), ColumnType::String)
                | (ValueRef::Binary(_), ColumnType::Binary)
                | (ValueRef::Date(_), ColumnType::Date)
                | (ValueRef::Timestamp(_), ColumnType::Timestamp)
                | (ValueRef::Uuid(_), ColumnType::Uuid)
                | (ValueRef::Json(_), ColumnType::Json)
        )
    }
}

/// Whether an unscaled decimal has at most `precision` digits. 128 bits hold more than the 38 that a type may have.
#[inline]
pub fn has_digits(unscaled: i128, precision: u8) -> bool {
    POWERS_OF_TEN.get(usize::from(precision)).is_some_and(|limit| unscaled.unsigned_abs() < *limit)
}

/// 10^n for each n that 128 bits hold.
const POWERS_OF_TEN: [u128; 39] = {
    let mut powers = [1; 39];
    let mut n = 1;
    while n < powers.len() {
        powers[n] = powers[n - 1] * 10;
        n += 1;
    }
    powers
};
