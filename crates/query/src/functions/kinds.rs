//! Types as PostgreSQL tells them apart when it looks for a function, an operator or a cast.

use crate::{jsonb, literals};
use arrow::datatypes::{DataType, Field};
use oribi_session::sql::TimeZone;
use oribi_types::ColumnType;
use oribi_types::schema::{JSONB_METADATA, TYPE_METADATA};
use std::collections::HashMap;
use std::fmt;

/// What a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A literal in quotes, a null, a parameter: it takes the type that is wanted.
    Unknown,
    Bool,
    Int2,
    Int4,
    Int8,
    Numeric,
    Float4,
    Float8,
    Text,
    Bytea,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    /// A moment of a session whose zone is not UTC.
    Zoned,
    Interval,
    Uuid,
    /// Of a column, too, whichever of its names was written there.
    Json,
    /// What a cast made.
    Jsonb,
    Array(Box<Kind>),
    /// What PostgreSQL has no type for.
    Other,
}

/// Whether a text is JSON.
pub(crate) fn is_json(field: &Field) -> bool {
    Kind::of(field).is_json()
}

impl Kind {
    /// The kind of an expression that yields `field`.
    pub(crate) fn of(field: &Field) -> Kind {
        let arrow = Kind::of_arrow(field.data_type());
        if field.metadata().get(TYPE_METADATA).is_none_or(|name| name != "json") {
            return arrow;
        }
        let json = if field.metadata().contains_key(JSONB_METADATA) { Kind::Jsonb } else { Kind::Json };
        match arrow {
            Kind::Array(_) => Kind::Array(Box::new(json)),
            _ => json,
        }
    }

    pub(crate) fn of_arrow(arrow: &DataType) -> Kind {
        use DataType as D;
        match arrow {
            D::Null => Kind::Unknown,
            D::Boolean => Kind::Bool,
            D::Int8 | D::Int16 | D::UInt8 => Kind::Int2,
            D::Int32 | D::UInt16 => Kind::Int4,
            D::Int64 | D::UInt32 | D::UInt64 => Kind::Int8,
            D::Float16 | D::Float32 => Kind::Float4,
            D::Float64 => Kind::Float8,
            D::Decimal32(..) | D::Decimal64(..) | D::Decimal128(..) | D::Decimal256(..) => Kind::Numeric,
            D::Utf8 | D::LargeUtf8 | D::Utf8View => Kind::Text,
            D::Binary | D::LargeBinary | D::BinaryView => Kind::Bytea,
            D::FixedSizeBinary(16) => Kind::Uuid,
            D::FixedSizeBinary(_) => Kind::Bytea,
            D::Date32 | D::Date64 => Kind::Date,
            D::Time32(_) | D::Time64(_) => Kind::Time,
            D::Timestamp(_, None) => Kind::Timestamp,
            D::Timestamp(_, Some(zone)) => match TimeZone::parse(zone) {
                Some(zone) if !zone.is_utc() => Kind::Zoned,
                _ => Kind::Timestamptz,
            },
            D::Interval(_) | D::Duration(_) => Kind::Interval,
            D::Dictionary(_, values) => Kind::of_arrow(values),
            D::List(item) | D::LargeList(item) | D::FixedSizeList(item, _) | D::ListView(item) => {
                Kind::Array(Box::new(Kind::of(item)))
            }
            _ => Kind::Other,
        }
    }

    /// Whether a value of this kind is taken where one of `wanted` is, without a cast being written. Among numbers
    /// that is so from the narrower to the wider, floats last.
    pub(crate) fn is_taken_as(&self, wanted: &Kind) -> bool {
        match (self, wanted) {
            (Kind::Unknown, _) => true,
            (Kind::Array(from), Kind::Array(to)) => from == to || **from == Kind::Unknown,
            (from, to) if from == to => true,
            (Kind::Date, Kind::Timestamp | Kind::Timestamptz) | (Kind::Timestamp, Kind::Timestamptz) => true,
            // Where a function takes it.
            (Kind::Zoned, Kind::Timestamptz) => true,
            // A column of `jsonb` is of type json here.
            (Kind::Json, Kind::Jsonb) => true,
            (from, to) => match (from.rank(), to.rank()) {
                (Some(from), Some(to)) => from < to,
                _ => false,
            },
        }
    }

    /// The place of a number's type in the order of widening.
    fn rank(&self) -> Option<u8> {
        Some(match self {
            Kind::Int2 => 0,
            Kind::Int4 => 1,
            Kind::Int8 => 2,
            Kind::Numeric => 3,
            Kind::Float4 => 4,
            Kind::Float8 => 5,
            _ => return None,
        })
    }

    pub(crate) fn is_number(&self) -> bool {
        self.rank().is_some()
    }

    pub(crate) fn is_float(&self) -> bool {
        matches!(self, Kind::Float4 | Kind::Float8)
    }

    pub(crate) fn is_json(&self) -> bool {
        matches!(self, Kind::Json | Kind::Jsonb)
    }

    /// What a field says of JSON, or of an array of it: to Arrow both are texts.
    pub(crate) fn json_metadata(&self) -> Option<HashMap<String, String>> {
        match self {
            Kind::Json => Some(literals::field(ColumnType::Json, "").metadata().clone()),
            Kind::Jsonb => Some(jsonb::field("").metadata().clone()),
            Kind::Array(item) => item.json_metadata(),
            _ => None,
        }
    }

    pub(crate) fn is_moment(&self) -> bool {
        matches!(
            self,
            Kind::Date | Kind::Time | Kind::Timestamp | Kind::Timestamptz | Kind::Zoned | Kind::Interval
        )
    }

    /// The kind that a name in the table means.
    pub(super) fn named(name: &str) -> Kind {
        match name {
            "bool" => Kind::Bool,
            "int2" => Kind::Int2,
            "int4" => Kind::Int4,
            "int8" => Kind::Int8,
            "numeric" => Kind::Numeric,
            "float4" => Kind::Float4,
            "float8" => Kind::Float8,
            "text" => Kind::Text,
            "bytea" => Kind::Bytea,
            "date" => Kind::Date,
            "time" => Kind::Time,
            "timestamp" => Kind::Timestamp,
            "timestamptz" => Kind::Timestamptz,
            "interval" => Kind::Interval,
            "uuid" => Kind::Uuid,
            "json" => Kind::Json,
            "jsonb" => Kind::Jsonb,
            other => unreachable!("the table of functions has no type {other}"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Unknown => "unknown",
            Kind::Bool => "boolean",
            Kind::Int2 => "smallint",
            Kind::Int4 => "integer",
            Kind::Int8 => "bigint",
            Kind::Numeric => "numeric",
            Kind::Float4 => "real",
            Kind::Float8 => "double precision",
            Kind::Text => "text",
            Kind::Bytea => "bytea",
            Kind::Date => "date",
            Kind::Time => "time without time zone",
            Kind::Timestamp => "timestamp without time zone",
            Kind::Timestamptz | Kind::Zoned => "timestamp with time zone",
            Kind::Interval => "interval",
            Kind::Uuid => "uuid",
            Kind::Json => "json",
            Kind::Jsonb => "jsonb",
            Kind::Array(item) => return write!(f, "{item}[]"),
            Kind::Other => "record",
        })
    }
}
