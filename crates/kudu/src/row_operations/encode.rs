//! Builds row operations in wire order.
//!
//! A batch is two byte strings that grow at their ends: what is sent is what was built, and to take the batch down is
//! to free two blocks, however many operations it has. Appending an operation allocates nothing of its own; the byte
//! strings double when they are full, so a batch with the capacity of its buffer limit never allocates again.

use super::{OperationLayout, OperationType, bit};
use crate::column::WireColumn;
use oribi_types::{ColumnType, Error, Result, ValueRef};
use std::sync::Arc;

/// The operations of one request, as they will be sent.
#[derive(Clone, Debug)]
pub struct OperationsBuilder {
    layout: Arc<OperationLayout>,
    rows: Vec<u8>,
    indirect: Vec<u8>,
    operations: usize,
}

impl OperationsBuilder {
    pub fn new(layout: Arc<OperationLayout>) -> Self {
        OperationsBuilder { layout, rows: Vec::new(), indirect: Vec::new(), operations: 0 }
    }

    pub fn with_capacity(layout: Arc<OperationLayout>, rows_bytes: usize, indirect_bytes: usize) -> Self {
        let (rows, indirect) = (Vec::with_capacity(rows_bytes), Vec::with_capacity(indirect_bytes));
        OperationsBuilder { layout, rows, indirect, operations: 0 }
    }

    /// Begins an operation that sets no column yet. It counts once [`finish`](OperationWriter::finish) is called; a
    /// writer that is dropped before leaves the builder as it was.
    #[inline]
    pub fn begin(&mut self, operation_type: OperationType) -> OperationWriter<'_> {
        let (start, indirect_start) = (self.rows.len(), self.indirect.len());
        // All cells get their place, so that columns may be set in any order; those that stay unset are closed up at
        // the end.
        self.rows.resize(start + self.layout.whole_bytes, 0);
        self.rows[start] = operation_type as u8;
        OperationWriter { builder: self, start, indirect_start, cells: 0, finished: false }
    }

    /// The encoded operations, without the strings.
    pub fn rows(&self) -> &[u8] {
        &self.rows
    }

    /// The strings that the operations name.
    pub fn indirect(&self) -> &[u8] {
        &self.indirect
    }

    /// Bytes of both, as they will be sent.
    pub fn bytes(&self) -> usize {
        self.rows.len() + self.indirect.len()
    }

    /// Operations in it.
    pub fn len(&self) -> usize {
        self.operations
    }

    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    pub fn layout(&self) -> &Arc<OperationLayout> {
        &self.layout
    }

    /// Drops all operations and keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.indirect.clear();
        self.operations = 0;
    }

    /// The two byte strings, `rows` and `indirect`.
    pub fn into_parts(self) -> (Vec<u8>, Vec<u8>) {
        (self.rows, self.indirect)
    }
}

/// Sets the columns of one operation, in any order. A column that is set twice has the later value.
pub struct OperationWriter<'b> {
    builder: &'b mut OperationsBuilder,
    /// Where the operation begins in `rows`, and its strings in `indirect`.
    start: usize,
    indirect_start: usize,
    /// Columns with a value that is not null.
    cells: usize,
    finished: bool,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident $value:ty, $column_type:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// `Invalid`, naming the column, if it is of another type or not there.
            #[inline]
            pub fn $name(&mut self, column: usize, value: $value) -> Result<()> {
                self.check(column, |t| t == ColumnType::$column_type, stringify!($column_type))?;
                self.put(column, value.to_le_bytes());
                Ok(())
            }
        )*
    };
}

impl OperationWriter<'_> {
    setters! {
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
    pub fn set_bool(&mut self, column: usize, value: bool) -> Result<()> {
        self.check(column, |t| t == ColumnType::Bool, "Bool")?;
        self.put(column, [u8::from(value)]);
        Ok(())
    }

    /// Sets a `numeric` column to an unscaled integer.
    ///
    /// # Errors
    /// As [`set`](Self::set), and for more digits than the column has.
    pub fn set_decimal(&mut self, column: usize, unscaled: i128) -> Result<()> {
        self.check(column, |t| matches!(t, ColumnType::Decimal { .. }), "Decimal")?;
        let ColumnType::Decimal { precision, .. } = self.column(column).column_type else {
            unreachable!("the type was checked");
        };
        if unscaled.unsigned_abs() >= 10_u128.pow(u32::from(precision)) {
            return Err(self.refuse(column, format!("more than {precision} digits")));
        }
        let bytes = unscaled.to_le_bytes();
        match self.builder.layout.places[column].cell_bytes {
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
    pub fn set_str(&mut self, column: usize, value: &str) -> Result<()> {
        self.check(column, |t| matches!(t, ColumnType::String | ColumnType::Json), "String")?;
        self.put_slice(column, value.as_bytes());
        Ok(())
    }

    /// Sets a `bytea` or, with 16 bytes, a `uuid` column.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn set_bytes(&mut self, column: usize, value: &[u8]) -> Result<()> {
        self.check(column, |t| matches!(t, ColumnType::Binary | ColumnType::Uuid), "Binary")?;
        if self.column(column).column_type == ColumnType::Uuid && value.len() != 16 {
            return Err(self.refuse(column, format!("a uuid has 16 bytes, not {}", value.len())));
        }
        self.put_slice(column, value);
        Ok(())
    }

    /// Sets a column to null.
    ///
    /// # Errors
    /// `Invalid`, naming the column, if it is not nullable or not there.
    pub fn set_null(&mut self, column: usize) -> Result<()> {
        self.check(column, |_| true, "any")?;
        if !self.column(column).nullable {
            return Err(self.refuse(column, "null in a column that is not nullable".to_owned()));
        }
        let (isset, nulls, mask) = self.bits(column);
        let operation = &mut self.builder.rows[self.start..];
        self.cells -= usize::from(operation[isset] & mask != 0 && operation[nulls] & mask == 0);
        operation[isset] |= mask;
        operation[nulls] |= mask;
        Ok(())
    }

    /// Sets a column to any value of its type, or null.
    ///
    /// # Errors
    /// `Invalid`, naming the column, if it is of another type or not there.
    pub fn set(&mut self, column: usize, value: ValueRef<'_>) -> Result<()> {
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
            ValueRef::Uuid(v) => self.set_bytes(column, &v),
            ValueRef::Date(v) => self.set_date(column, v),
            ValueRef::Timestamp(v) => self.set_timestamp(column, v),
        }
    }

    /// Adds the operation to the request.
    #[inline]
    pub fn finish(mut self) {
        if self.cells < self.builder.layout.places.len() {
            self.close_up();
        }
        self.builder.operations += 1;
        self.finished = true;
    }

    /// Takes the operation back, as dropping the writer does.
    pub fn abort(self) {}

    /// Moves the cells that are there over the places of those that are not.
    fn close_up(&mut self) {
        let OperationsBuilder { layout, rows, .. } = &mut *self.builder;
        let operation = &mut rows[self.start..];
        let mut end = layout.header_bytes;
        for (i, place) in layout.places.iter().enumerate() {
            let isset = bit(&operation[1..], i);
            let null = layout.has_null_bitmap && bit(&operation[1 + layout.bitmap_bytes..], i);
            if isset && !null {
                let from = place.offset as usize;
                operation.copy_within(from..from + place.cell_bytes as usize, end);
                end += place.cell_bytes as usize;
            }
        }
        rows.truncate(self.start + end);
    }

    fn column(&self, column: usize) -> &WireColumn {
        &self.builder.layout.columns[column]
    }

    #[inline]
    fn check(&self, column: usize, fits: impl Fn(ColumnType) -> bool, value: &str) -> Result<()> {
        match self.builder.layout.columns.get(column) {
            Some(found) if fits(found.column_type) => Ok(()),
            Some(found) => {
                Err(self.refuse(column, format!("it is of type {}, not {value}", found.column_type)))
            }
            None => Err(Error::invalid(format!("there is no column {column}"))),
        }
    }

    #[cold]
    fn refuse(&self, column: usize, why: String) -> Error {
        Error::invalid(format!("column \"{}\": {why}", self.column(column).name))
    }

    /// Where the column's bits lie in the operation. Without nullable columns there are no null bits, and the place of
    /// the second is that of the first.
    #[inline]
    fn bits(&self, column: usize) -> (usize, usize, u8) {
        let layout = &self.builder.layout;
        let isset = 1 + column / 8;
        let nulls = if layout.has_null_bitmap { isset + layout.bitmap_bytes } else { isset };
        (isset, nulls, 1 << (column % 8))
    }

    #[inline]
    fn put<const N: usize>(&mut self, column: usize, cell: [u8; N]) {
        let (isset, nulls, mask) = self.bits(column);
        let at = self.builder.layout.places[column].offset as usize;
        let operation = &mut self.builder.rows[self.start..];
        let was_null = nulls != isset && operation[nulls] & mask != 0;
        self.cells += usize::from(operation[isset] & mask == 0 || was_null);
        if was_null {
            operation[nulls] &= !mask;
        }
        operation[isset] |= mask;
        operation[at..at + N].copy_from_slice(&cell);
    }

    #[inline]
    fn put_slice(&mut self, column: usize, bytes: &[u8]) {
        let mut cell = [0; 16];
        cell[..8].copy_from_slice(&(self.builder.indirect.len() as u64).to_le_bytes());
        cell[8..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.builder.indirect.extend_from_slice(bytes);
        self.put(column, cell);
    }
}

impl Drop for OperationWriter<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.finished {
            self.builder.rows.truncate(self.start);
            self.builder.indirect.truncate(self.indirect_start);
        }
    }
}
