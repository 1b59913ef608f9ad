//! Arrow types as PostgreSQL types, both ways.
//!
//! A result column is first brought to its *wire form*, the Arrow type that the encoders know: all timestamps in
//! microseconds, all decimals with 128 or 256 bits, dictionaries unpacked. Types without a counterpart travel as text.

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use oribi_types::ColumnType;
use oribi_types::schema::{JSONB_METADATA, TYPE_METADATA};
use std::sync::Arc;

/// Type ids from PostgreSQL's `pg_type.dat`.
pub mod oid {
    pub const UNSPECIFIED: u32 = 0;
    pub const BOOL: u32 = 16;
    pub const BYTEA: u32 = 17;
    pub const NAME: u32 = 19;
    pub const INT8: u32 = 20;
    pub const INT2: u32 = 21;
    pub const INT4: u32 = 23;
    pub const TEXT: u32 = 25;
    pub const OID: u32 = 26;
    pub const JSON: u32 = 114;
    pub const JSON_ARRAY: u32 = 199;
    pub const FLOAT4: u32 = 700;
    pub const FLOAT8: u32 = 701;
    pub const UNKNOWN: u32 = 705;
    pub const BPCHAR: u32 = 1042;
    pub const VARCHAR: u32 = 1043;
    pub const DATE: u32 = 1082;
    pub const TIME: u32 = 1083;
    pub const TIMESTAMP: u32 = 1114;
    pub const TIMESTAMPTZ: u32 = 1184;
    pub const INTERVAL: u32 = 1186;
    pub const NUMERIC: u32 = 1700;
    pub const UUID: u32 = 2950;
    pub const JSONB: u32 = 3802;
    pub const JSONB_ARRAY: u32 = 3807;
}

/// A type as `RowDescription` states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireType {
    pub oid: u32,
    /// Bytes of a binary value; -1 if it varies.
    pub length: i16,
    /// Precision and scale of a numeric; -1 for every other type.
    pub modifier: i32,
}

/// The Arrow type in which columns of type `arrow` are encoded.
pub fn wire_form(arrow: &DataType) -> DataType {
    use DataType as D;
    match arrow {
        D::Int8 | D::UInt8 => D::Int16,
        D::UInt16 => D::Int32,
        D::UInt32 => D::Int64,
        D::UInt64 => D::Decimal128(20, 0),
        D::Float16 => D::Float32,
        D::Decimal32(p, s) | D::Decimal64(p, s) => non_negative_scale(D::Decimal128(*p, *s)),
        D::Decimal128(..) | D::Decimal256(..) => non_negative_scale(arrow.clone()),
        D::LargeUtf8 => D::Utf8View,
        D::LargeBinary => D::BinaryView,
        D::FixedSizeBinary(n) if *n != 16 => D::BinaryView,
        D::Date64 => D::Date32,
        D::Timestamp(_, zone) => D::Timestamp(TimeUnit::Microsecond, zone.as_ref().map(|_| "UTC".into())),
        D::Time32(_) | D::Time64(_) => D::Time64(TimeUnit::Microsecond),
        D::Interval(_) | D::Duration(_) => D::Interval(IntervalUnit::MonthDayNano),
        D::Dictionary(_, values) => wire_form(values),
        D::RunEndEncoded(_, values) => wire_form(values.data_type()),
        D::List(item)
        | D::LargeList(item)
        | D::ListView(item)
        | D::LargeListView(item)
        | D::FixedSizeList(item, _) => {
            let element = wire_form(item.data_type());
            D::List(Arc::new(item.as_ref().clone().with_data_type(element)))
        }
        other => other.clone(),
    }
}

/// PostgreSQL 15 knows scales below zero, most clients do not.
fn non_negative_scale(decimal: DataType) -> DataType {
    match decimal {
        DataType::Decimal128(p, s) | DataType::Decimal256(p, s) if s < 0 => {
            let precision = p.saturating_add(s.unsigned_abs()).min(76);
            if precision <= 38 {
                DataType::Decimal128(precision, 0)
            } else {
                DataType::Decimal256(precision, 0)
            }
        }
        other => other,
    }
}

/// The PostgreSQL type of a result column.
pub fn wire_type(field: &Field) -> WireType {
    if field.metadata().get(TYPE_METADATA).is_some_and(|name| name == "json") {
        let is_array = matches!(wire_form(field.data_type()), DataType::List(_));
        let oid = match (is_jsonb(field), is_array) {
            (false, false) => oid::JSON,
            (true, false) => oid::JSONB,
            (false, true) => oid::JSON_ARRAY,
            (true, true) => oid::JSONB_ARRAY,
        };
        return WireType { oid, length: -1, modifier: -1 };
    }
    of_wire_form(&wire_form(field.data_type()))
}

/// Whether a text, or the texts of an array, are JSON that clients take for `jsonb`. What a column keeps is `json`, whichever of its names it was given.
pub fn is_jsonb(field: &Field) -> bool {
    field.metadata().contains_key(JSONB_METADATA)
}

/// The PostgreSQL type of an Arrow type in wire form.
fn of_wire_form(form: &DataType) -> WireType {
    use DataType as D;
    let (oid, length) = match form {
        D::Boolean => (oid::BOOL, 1),
        D::Int16 => (oid::INT2, 2),
        D::Int32 => (oid::INT4, 4),
        D::Int64 => (oid::INT8, 8),
        D::Float32 => (oid::FLOAT4, 4),
        D::Float64 => (oid::FLOAT8, 8),
        D::Decimal128(precision, scale) | D::Decimal256(precision, scale) => {
            // PostgreSQL adds the four bytes of a length word to every modifier.
            let modifier = ((i32::from(*precision) << 16) | i32::from(*scale)) + 4;
            return WireType { oid: oid::NUMERIC, length: -1, modifier };
        }
        D::Binary | D::BinaryView => (oid::BYTEA, -1),
        D::FixedSizeBinary(_) => (oid::UUID, 16),
        D::Date32 => (oid::DATE, 4),
        D::Time64(_) => (oid::TIME, 8),
        D::Timestamp(_, None) => (oid::TIMESTAMP, 8),
        D::Timestamp(_, Some(_)) => (oid::TIMESTAMPTZ, 8),
        D::Interval(_) => (oid::INTERVAL, 16),
        D::List(item) => match array_of(of_wire_form(item.data_type()).oid) {
            Some(array) if !matches!(item.data_type(), D::List(_)) => (array, -1),
            _ => (oid::TEXT, -1),
        },
        _ => (oid::TEXT, -1),
    };
    WireType { oid, length, modifier: -1 }
}

/// The array type over an element type.
fn array_of(element: u32) -> Option<u32> {
    Some(match element {
        oid::BOOL => 1000,
        oid::BYTEA => 1001,
        oid::INT8 => 1016,
        oid::INT2 => 1005,
        oid::INT4 => 1007,
        oid::TEXT => 1009,
        oid::FLOAT4 => 1021,
        oid::FLOAT8 => 1022,
        oid::DATE => 1182,
        oid::TIME => 1183,
        oid::TIMESTAMP => 1115,
        oid::TIMESTAMPTZ => 1185,
        oid::INTERVAL => 1187,
        oid::NUMERIC => 1231,
        oid::UUID => 2951,
        _ => return None,
    })
}

/// The type that a client means by a parameter's oid; `None` leaves the choice to the statement.
///
/// A numeric's scale is known only when its value arrives: ten digits behind the point are room for either side of it.
pub fn parameter_type(oid: u32) -> Option<ColumnType> {
    Some(match oid {
        oid::BOOL => ColumnType::Bool,
        oid::INT2 => ColumnType::Int16,
        oid::INT4 => ColumnType::Int32,
        oid::INT8 | oid::OID => ColumnType::Int64,
        oid::FLOAT4 => ColumnType::Float,
        oid::FLOAT8 => ColumnType::Double,
        oid::NUMERIC => ColumnType::Decimal { precision: 38, scale: 10 },
        oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::NAME => ColumnType::String,
        oid::BYTEA => ColumnType::Binary,
        oid::DATE => ColumnType::Date,
        oid::TIMESTAMP | oid::TIMESTAMPTZ => ColumnType::Timestamp,
        oid::UUID => ColumnType::Uuid,
        oid::JSON | oid::JSONB => ColumnType::Json,
        _ => return None,
    })
}

/// The oid by which a parameter's type is described.
pub fn oid_of(column_type: ColumnType) -> u32 {
    match column_type {
        ColumnType::Bool => oid::BOOL,
        ColumnType::Int8 | ColumnType::Int16 => oid::INT2,
        ColumnType::Int32 => oid::INT4,
        ColumnType::Int64 => oid::INT8,
        ColumnType::Float => oid::FLOAT4,
        ColumnType::Double => oid::FLOAT8,
        ColumnType::Decimal { .. } => oid::NUMERIC,
        ColumnType::String => oid::TEXT,
        ColumnType::Binary => oid::BYTEA,
        ColumnType::Date => oid::DATE,
        ColumnType::Timestamp => oid::TIMESTAMP,
        ColumnType::Uuid => oid::UUID,
        ColumnType::Json => oid::JSON,
    }
}

/// The column type of a field that a `COPY` fills.
///
/// # Errors
/// `Unsupported` for Arrow types without one.
pub fn column_type(field: &Field) -> oribi_types::Result<ColumnType> {
    match field.metadata().get(TYPE_METADATA).map(String::as_str) {
        Some("json") => Ok(ColumnType::Json),
        _ => ColumnType::from_arrow(field.data_type()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_without_a_counterpart_get_a_wider_one_or_text() {
        let oid_of = |arrow: DataType| wire_type(&Field::new("c", arrow, true)).oid;
        assert_eq!(oid_of(DataType::UInt64), oid::NUMERIC);
        assert_eq!(oid_of(DataType::Int8), oid::INT2);
        assert_eq!(
            oid_of(DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))),
            oid::TEXT
        );
        assert_eq!(oid_of(DataType::Timestamp(TimeUnit::Second, Some("+02:00".into()))), oid::TIMESTAMPTZ);
        assert_eq!(oid_of(DataType::new_list(DataType::UInt8, true)), 1005);
        assert_eq!(oid_of(DataType::new_list(DataType::new_list(DataType::Int32, true), true)), oid::TEXT);
        assert_eq!(oid_of(DataType::Struct(Default::default())), oid::TEXT);
        assert_eq!(oid_of(DataType::Null), oid::TEXT);
    }

    #[test]
    fn numerics_state_precision_and_scale() {
        let of = |arrow| wire_type(&Field::new("c", arrow, true)).modifier;
        assert_eq!(of(DataType::Decimal128(15, 2)), ((15 << 16) | 2) + 4);
        assert_eq!(of(DataType::Decimal128(5, -2)), (7 << 16) + 4);
    }
}
