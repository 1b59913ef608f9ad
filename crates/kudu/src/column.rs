//! Kudu's data types, and which of Oribi's column types each is.
//!
//! | Kudu | Oribi | note |
//! |---|---|---|
//! | `INT8` … `INT64`, `FLOAT`, `DOUBLE`, `BOOL`, `STRING`, `BINARY`, `DATE` | the same | |
//! | `UNIXTIME_MICROS` | timestamp | both count microseconds since 1970 |
//! | `DECIMAL32`, `DECIMAL64`, `DECIMAL128` | numeric | the precision decides which: 9, 18 and 38 digits |
//! | `VARCHAR` | text | the length stays with the caller: clients cut values to it, servers need not know it |
//! | `IS_DELETED` | boolean | a column of differential scans only, never stored |
//! | `STRING` | json | what a client reads and writes as text is checked to be JSON by who stores it |
//! | `BINARY` | uuid | its 16 bytes; see below |
//! | unsigned integers, `INT128`, `NESTED` | none | `Unsupported`, by name |
//!
//! A UUID is `BINARY` and not the 36 characters of its text: either way the order is the same, but bytes have one form
//! only, so an equality or a hash of what a client sends is that of what is stored. A cell of another length than 16 is
//! refused.

pub use crate::messages::common::{ColumnTypeAttributes, DataType};

use oribi_types::{ColumnType, Error, Result};
use std::fmt;

/// By number.
const DATA_TYPES: [(DataType, &str); 22] = [
    (DataType::Uint8, "UINT8"),
    (DataType::Int8, "INT8"),
    (DataType::Uint16, "UINT16"),
    (DataType::Int16, "INT16"),
    (DataType::Uint32, "UINT32"),
    (DataType::Int32, "INT32"),
    (DataType::Uint64, "UINT64"),
    (DataType::Int64, "INT64"),
    (DataType::String, "STRING"),
    (DataType::Bool, "BOOL"),
    (DataType::Float, "FLOAT"),
    (DataType::Double, "DOUBLE"),
    (DataType::Binary, "BINARY"),
    (DataType::UnixtimeMicros, "UNIXTIME_MICROS"),
    (DataType::Int128, "INT128"),
    (DataType::Decimal32, "DECIMAL32"),
    (DataType::Decimal64, "DECIMAL64"),
    (DataType::Decimal128, "DECIMAL128"),
    (DataType::IsDeleted, "IS_DELETED"),
    (DataType::Varchar, "VARCHAR"),
    (DataType::Date, "DATE"),
    (DataType::Nested, "NESTED"),
];

impl DataType {
    /// The type with this number on the wire.
    ///
    /// # Errors
    /// `Invalid` for a number that no type has.
    pub fn from_number(number: i32) -> Result<Self> {
        let known = DataType::try_from(number).ok().filter(|known| *known != DataType::UnknownData);
        known.ok_or_else(|| Error::invalid(format!("unknown data type {number}")))
    }

    /// The data type as which a column is shown to Kudu's clients, with its attributes.
    pub fn of(column_type: ColumnType) -> (Self, ColumnTypeAttributes) {
        let data_type = match column_type {
            ColumnType::Bool => DataType::Bool,
            ColumnType::Int8 => DataType::Int8,
            ColumnType::Int16 => DataType::Int16,
            ColumnType::Int32 => DataType::Int32,
            ColumnType::Int64 => DataType::Int64,
            ColumnType::Float => DataType::Float,
            ColumnType::Double => DataType::Double,
            ColumnType::String | ColumnType::Json => DataType::String,
            ColumnType::Binary | ColumnType::Uuid => DataType::Binary,
            ColumnType::Date => DataType::Date,
            ColumnType::Timestamp => DataType::UnixtimeMicros,
            ColumnType::Decimal { precision, scale } => {
                let attributes = ColumnTypeAttributes {
                    precision: Some(i32::from(precision)),
                    scale: Some(i32::from(scale)),
                    length: None,
                };
                return (decimal_of(precision), attributes);
            }
        };
        (data_type, ColumnTypeAttributes::default())
    }

    /// The column type that a column made with this data type gets.
    ///
    /// # Errors
    /// `Unsupported`, naming the type, for what Oribi does not have; `Invalid` for a decimal whose attributes are
    /// missing, out of range or do not fit its width.
    pub fn column_type(self, attributes: &ColumnTypeAttributes) -> Result<ColumnType> {
        Ok(match self {
            DataType::Bool | DataType::IsDeleted => ColumnType::Bool,
            DataType::Int8 => ColumnType::Int8,
            DataType::Int16 => ColumnType::Int16,
            DataType::Int32 => ColumnType::Int32,
            DataType::Int64 => ColumnType::Int64,
            DataType::Float => ColumnType::Float,
            DataType::Double => ColumnType::Double,
            DataType::String | DataType::Varchar => ColumnType::String,
            DataType::Binary => ColumnType::Binary,
            DataType::Date => ColumnType::Date,
            DataType::UnixtimeMicros => ColumnType::Timestamp,
            DataType::Decimal32 | DataType::Decimal64 | DataType::Decimal128 => self.decimal(attributes)?,
            DataType::Uint8
            | DataType::Uint16
            | DataType::Uint32
            | DataType::Uint64
            | DataType::Int128
            | DataType::Nested
            | DataType::UnknownData => {
                return Err(Error::unsupported(format!("columns of type {self} are not supported")));
            }
        })
    }

    fn decimal(self, attributes: &ColumnTypeAttributes) -> Result<ColumnType> {
        let precision =
            attributes.precision.and_then(|p| u8::try_from(p).ok()).filter(|p| *p >= 1 && *p <= 38);
        // Clients leave a scale of 0 out.
        let scale = i8::try_from(attributes.scale.unwrap_or(0)).ok().filter(|s| *s >= 0);
        match (precision, scale) {
            (Some(precision), Some(scale)) if scale <= precision as i8 && decimal_of(precision) == self => {
                Ok(ColumnType::Decimal { precision, scale })
            }
            _ => Err(Error::invalid(format!(
                "{self} does not have precision {:?} and scale {:?}",
                attributes.precision, attributes.scale
            ))),
        }
    }

    /// Whether a request that gives a table's column of type `column_type` this data type means that column.
    pub fn is_of(self, column_type: ColumnType, attributes: &ColumnTypeAttributes) -> bool {
        let (expected, shown) = DataType::of(column_type);
        let same_type = self == expected || (self == DataType::Varchar && expected == DataType::String);
        let same_decimal = shown.precision.is_none()
            || (attributes.precision == shown.precision
                && attributes.scale.unwrap_or(0) == shown.scale.unwrap_or(0));
        same_type && same_decimal
    }

    /// Bytes of a cell in row operations and row-wise blocks, little-endian; for strings and bytes that of a slice.
    pub fn cell_bytes(self) -> usize {
        match self {
            DataType::Uint8 | DataType::Int8 | DataType::Bool | DataType::IsDeleted => 1,
            DataType::Uint16 | DataType::Int16 => 2,
            DataType::Uint32 | DataType::Int32 | DataType::Float | DataType::Date | DataType::Decimal32 => 4,
            DataType::Uint64
            | DataType::Int64
            | DataType::Double
            | DataType::UnixtimeMicros
            | DataType::Decimal64 => 8,
            DataType::Int128
            | DataType::Decimal128
            | DataType::String
            | DataType::Binary
            | DataType::Varchar
            | DataType::Nested
            | DataType::UnknownData => 16,
        }
    }

    /// Whether a primary key of Kudu may contain the type.
    pub fn is_key_type(self) -> bool {
        !matches!(
            self,
            DataType::Bool
                | DataType::Float
                | DataType::Double
                | DataType::IsDeleted
                | DataType::Nested
                | DataType::UnknownData
        )
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DATA_TYPES.get(*self as usize).map_or("UNKNOWN_DATA", |(_, name)| name))
    }
}

fn decimal_of(precision: u8) -> DataType {
    match precision {
        0..=9 => DataType::Decimal32,
        10..=18 => DataType::Decimal64,
        _ => DataType::Decimal128,
    }
}

/// A column of a request or an answer, as far as its bytes depend on it.
///
/// A server takes the type from its table, found by name, and the rest from the request: a `BINARY` of a request may
/// be a `uuid` of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireColumn {
    pub name: String,
    pub column_type: ColumnType,
    pub nullable: bool,
}

impl WireColumn {
    pub fn new(name: impl Into<String>, column_type: ColumnType, nullable: bool) -> Self {
        WireColumn { name: name.into(), column_type, nullable }
    }

    pub fn data_type(&self) -> DataType {
        DataType::of(self.column_type).0
    }

    /// Whether a primary key may contain the column, here and in Kudu.
    pub fn is_key_type(&self) -> bool {
        self.data_type().is_key_type() && self.column_type.is_key_type()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_found_by_its_number() {
        for (i, (data_type, name)) in DATA_TYPES.into_iter().enumerate() {
            assert_eq!(i32::from(data_type), i as i32);
            assert_eq!(DataType::from_number(i as i32).unwrap(), data_type);
            assert_eq!(data_type.to_string(), name);
        }
        assert!(DataType::from_number(22).is_err());
        assert!(DataType::from_number(-1).is_err());
        assert!(DataType::from_number(999).is_err());
    }

    #[test]
    fn what_is_not_supported_is_named() {
        for unsupported in [DataType::Uint8, DataType::Uint64, DataType::Int128, DataType::Nested] {
            let error = unsupported.column_type(&ColumnTypeAttributes::default()).unwrap_err();
            assert_eq!(error.kind(), oribi_types::ErrorKind::Unsupported);
            assert!(error.message().contains(&unsupported.to_string()), "{error}");
        }
    }

    #[test]
    fn every_column_type_has_a_data_type_that_means_it() {
        let decimal = |precision, scale| ColumnType::Decimal { precision, scale };
        let types = [
            ColumnType::Bool,
            ColumnType::Int8,
            ColumnType::Int64,
            ColumnType::Double,
            ColumnType::String,
            ColumnType::Binary,
            ColumnType::Date,
            ColumnType::Timestamp,
            decimal(9, 0),
            decimal(10, 10),
            decimal(38, 2),
        ];
        for column_type in types {
            let (data_type, attributes) = DataType::of(column_type);
            assert_eq!(data_type.column_type(&attributes).unwrap(), column_type);
            assert!(data_type.is_of(column_type, &attributes));
        }
        assert!(DataType::String.is_of(ColumnType::Json, &ColumnTypeAttributes::default()));
        assert!(DataType::Varchar.is_of(ColumnType::String, &ColumnTypeAttributes::default()));
        assert!(DataType::Binary.is_of(ColumnType::Uuid, &ColumnTypeAttributes::default()));
        assert!(!DataType::Int32.is_of(ColumnType::Int64, &ColumnTypeAttributes::default()));
    }

    #[test]
    fn a_decimal_has_the_width_of_its_precision() {
        let attributes = |precision, scale| ColumnTypeAttributes { precision, scale, length: None };
        assert_eq!(DataType::of(ColumnType::Decimal { precision: 9, scale: 2 }).0, DataType::Decimal32);
        assert_eq!(DataType::of(ColumnType::Decimal { precision: 18, scale: 2 }).0, DataType::Decimal64);
        assert_eq!(DataType::of(ColumnType::Decimal { precision: 19, scale: 2 }).0, DataType::Decimal128);
        assert!(DataType::Decimal32.column_type(&attributes(Some(10), Some(2))).is_err());
        assert!(DataType::Decimal64.column_type(&attributes(None, Some(2))).is_err());
        assert!(DataType::Decimal128.column_type(&attributes(Some(39), None)).is_err());
        assert!(DataType::Decimal32.column_type(&attributes(Some(4), Some(5))).is_err());
        assert!(DataType::Decimal32.column_type(&attributes(Some(4), Some(-1))).is_err());
        let plain = DataType::Decimal32.column_type(&attributes(Some(4), None)).unwrap();
        assert_eq!(plain, ColumnType::Decimal { precision: 4, scale: 0 });
        assert!(!DataType::Decimal32.is_of(plain, &attributes(Some(5), None)));
    }
}
