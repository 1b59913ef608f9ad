//! Setting the columns of a row, wherever it is built.

use crate::cell::cell_bytes;
use crate::column::WireColumn;
use oribi_types::{ColumnType, Error, Result, ValueRef};

/// A place to put the cells of one row. What is put has been checked against the column, which is there.
///
/// `'v` is how long text and bytes are there to be copied.
pub trait Cells<'v>: Sized {
    /// The column at this position, if there is one.
    fn column(&self, column: usize) -> Option<&WireColumn>;

    /// A value in as many bytes as a cell of the column has.
    fn put<const N: usize>(&mut self, column: usize, cell: [u8; N]);

    /// Bytes that a cell only points to.
    fn put_slice(&mut self, column: usize, bytes: &'v [u8]);

    /// As [`put_slice`](Self::put_slice), if the column is of text.
    #[inline]
    fn put_text(&mut self, column: usize, text: &'v str) {
        self.put_slice(column, text.as_bytes());
    }

    /// As [`put_slice`](Self::put_slice), but of a value that is not there for long.
    ///
    /// # Errors
    /// `Unsupported` if there are no such columns.
    fn put_uuid(&mut self, column: usize, value: [u8; 16]) -> Result<()>;

    fn put_null(&mut self, column: usize);
}

macro_rules! of_fixed_width {
    ($($(#[$doc:meta])* $name:ident $value:ty, $column_type:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// As [`set`](Self::set).
            #[inline]
            fn $name(&mut self, column: usize, value: $value) -> Result<()> {
                check(self, column, |t| t == ColumnType::$column_type, stringify!($column_type))?;
                self.put(column, value.to_le_bytes());
                Ok(())
            }
        )*
    };
}

/// A row some of whose columns are set: by their position, in any order. A column that is set twice has the later value.
pub trait PartialRow<'v>: Cells<'v> {
    of_fixed_width! {
        /// Sets a `tinyint` column.
        set_i8 i8, Int8;
        /// Sets a `smallint` column.
        set_i16 i16, Int16;
        /// Sets an `integer` column.
        set_i32 i32, Int32;
        /// Sets a `bigint` column.
        set_i64 i64, Int64;
        /// Sets a `real` column.
        set_f32 f32, Float;
        /// Sets a `double precision` column.
        set_f64 f64, Double;
        /// Sets a `date` column, in days since 1970-01-01.
        set_date i32, Date;
        /// Sets a `timestamp` column, in microseconds since 1970-01-01 UTC.
        set_timestamp i64, Timestamp;
    }

    /// Sets a `boolean` column.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    #[inline]
    fn set_bool(&mut self, column: usize, value: bool) -> Result<()> {
        check(self, column, |t| t == ColumnType::Bool, "Bool")?;
        self.put(column, [u8::from(value)]);
        Ok(())
    }

    /// Sets a `numeric` column to an unscaled integer.
    ///
    /// # Errors
    /// As [`set`](Self::set), and for more digits than the column has.
    fn set_decimal(&mut self, column: usize, unscaled: i128) -> Result<()> {
        let found = check(self, column, |t| matches!(t, ColumnType::Decimal { .. }), "Decimal")?;
        let column_type = found.column_type;
        if let ColumnType::Decimal { precision, .. } = column_type
            && unscaled.unsigned_abs() >= 10_u128.pow(u32::from(precision))
        {
            return Err(refuse(found, format_args!("more than {precision} digits")));
        }
        let bytes = unscaled.to_le_bytes();
        match cell_bytes(column_type) {
            4 => self.put::<4>(column, *bytes.first_chunk().expect("4 of 16 bytes")),
            8 => self.put::<8>(column, *bytes.first_chunk().expect("8 of 16 bytes")),
            _ => self.put(column, bytes),
        }
        Ok(())
    }

    /// Sets a `text` or `json` column.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    #[inline]
    fn set_str(&mut self, column: usize, value: &'v str) -> Result<()> {
        check(self, column, |t| matches!(t, ColumnType::String | ColumnType::Json), "String")?;
        self.put_text(column, value);
        Ok(())
    }

    /// Sets a `bytea` or, with 16 bytes, a `uuid` column.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    #[inline]
    fn set_bytes(&mut self, column: usize, value: &'v [u8]) -> Result<()> {
        let found = check(self, column, |t| matches!(t, ColumnType::Binary | ColumnType::Uuid), "Binary")?;
        if found.column_type == ColumnType::Uuid && value.len() != 16 {
            return Err(refuse(found, format_args!("a uuid has 16 bytes, not {}", value.len())));
        }
        self.put_slice(column, value);
        Ok(())
    }

    /// Sets a column to null.
    ///
    /// # Errors
    /// `Invalid`, naming the column, if it is not nullable or not there.
    fn set_null(&mut self, column: usize) -> Result<()> {
        let found = check(self, column, |_| true, "null")?;
        if !found.nullable {
            return Err(refuse(found, format_args!("null in a column that is not nullable")));
        }
        self.put_null(column);
        Ok(())
    }

    /// Sets a column to any value of its type, or null.
    ///
    /// # Errors
    /// `Invalid`, naming the column, if it is of another type or not there.
    fn set(&mut self, column: usize, value: ValueRef<'v>) -> Result<()> {
        match value {
            ValueRef::Null => self.set_null(column),
            ValueRef::Bool(v) => self.set_bool(column, v),
            ValueRef::Int8(v) => self.set_i8(column, v),
            ValueRef::Int16(v) => self.set_i16(column, v),
            ValueRef::Int32(v) => self.set_i32(column, v),
            ValueRef::Int64(v) => self.set_i64(column, v),
            ValueRef::Float(v) => self.set_f32(column, v),
            ValueRef::Double(v) => self.set_f64(column, v),
            ValueRef::Decimal(v) => self.set_decimal(column, v),
            ValueRef::String(v) | ValueRef::Json(v) => self.set_str(column, v),
            ValueRef::Binary(v) => self.set_bytes(column, v),
            ValueRef::Uuid(v) => {
                check(self, column, |t| t == ColumnType::Uuid, "Uuid")?;
                self.put_uuid(column, v)
            }
            ValueRef::Date(v) => self.set_date(column, v),
            ValueRef::Timestamp(v) => self.set_timestamp(column, v),
        }
    }
}

impl<'v, C: Cells<'v>> PartialRow<'v> for C {}

#[inline]
fn check<'r, 'v>(
    row: &'r impl Cells<'v>,
    column: usize,
    fits: impl Fn(ColumnType) -> bool,
    value: &str,
) -> Result<&'r WireColumn> {
    match row.column(column) {
        Some(found) if fits(found.column_type) => Ok(found),
        Some(found) => Err(refuse(found, format_args!("it is of type {}, not {value}", found.column_type))),
        None => Err(Error::invalid(format!("there is no column {column}"))),
    }
}

#[cold]
fn refuse(column: &WireColumn, why: std::fmt::Arguments<'_>) -> Error {
    Error::invalid(format!("column \"{}\": {why}", column.name))
}
