//! Building one row.

use super::Session;
use crate::batch::has_value;
use crate::table::{Column, Table};
use oribi_kudu::cell::read_cell;
use oribi_kudu::row_operations::OperationType;
use oribi_types::{ColumnType, Error, Result, ValueRef};
use smallvec::SmallVec;

/// A row that is being built, in the session's memory. Columns may be set in any order; one that is set twice has the later
/// value. Text and bytes are only borrowed until the row is applied.
///
/// Building allocates nothing, but for a row of more than eight columns of text or bytes: then once.
#[must_use = "a row that is not applied is not written"]
pub struct Row<'s, 'v> {
    session: &'s mut Session,
    table: &'s Table,
    operation: OperationType,
    /// Columns with a value that is not null.
    values: usize,
    strings: SmallVec<[(usize, &'v [u8]); 8]>,
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
                self.put(column, &value.to_le_bytes());
                Ok(())
            }
        )*
    };
}

impl<'s, 'v> Row<'s, 'v> {
    pub(super) fn new(session: &'s mut Session, table: &'s Table, operation: OperationType) -> Self {
        session.scratch.clear();
        session.scratch.resize(table.shared.layout.bytes, 0);
        session.scratch[0] = operation as u8;
        Row { session, table, operation, values: 0, strings: SmallVec::new() }
    }

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
        self.put(column, &[u8::from(value)]);
        Ok(())
    }

    /// Sets a `numeric` column to an unscaled integer.
    ///
    /// # Errors
    /// As [`set`](Self::set), and for more digits than the column has.
    pub fn set_decimal(&mut self, column: usize, unscaled: i128) -> Result<()> {
        self.check(column, |t| matches!(t, ColumnType::Decimal { .. }), "Decimal")?;
        if let ColumnType::Decimal { precision, .. } = self.column(column).column_type
            && unscaled.unsigned_abs() >= 10_u128.pow(u32::from(precision))
        {
            return Err(self.refuse(column, format_args!("more than {precision} digits")));
        }
        let bytes = self.table.shared.layout.cells[column].bytes;
        self.put(column, &unscaled.to_le_bytes()[..bytes]);
        Ok(())
    }

    /// Sets a `text` column. What a `VARCHAR` has no room for is cut off.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    #[inline]
    pub fn set_str(&mut self, column: usize, value: &'v str) -> Result<()> {
        self.check(column, |t| matches!(t, ColumnType::String | ColumnType::Json), "String")?;
        let fitting = match self.column(column).length_max {
            Some(length) => {
                let end = value.char_indices().nth(length as usize);
                &value[..end.map_or(value.len(), |(at, _)| at)]
            }
            None => value,
        };
        self.put_slice(column, fitting.as_bytes());
        Ok(())
    }

    /// Sets a `bytea` column.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn set_bytes(&mut self, column: usize, value: &'v [u8]) -> Result<()> {
        self.check(column, |t| t == ColumnType::Binary, "Binary")?;
        self.put_slice(column, value);
        Ok(())
    }

    /// Sets a column to null.
    ///
    /// # Errors
    /// `Invalid`, naming the column, if it is not nullable or not there.
    pub fn set_null(&mut self, column: usize) -> Result<()> {
        self.check(column, |_| true, "null")?;
        if !self.column(column).nullable {
            return Err(self.refuse(column, format_args!("null in a column that is not nullable")));
        }
        let layout = &self.table.shared.layout;
        self.values -= usize::from(has_value(layout, &self.session.scratch, column));
        self.strings.retain(|(set, _)| *set != column);
        let (byte, mask) = (1 + column / 8, 1 << (column % 8));
        self.session.scratch[byte] |= mask;
        self.session.scratch[byte + layout.bitmap_bytes] |= mask;
        Ok(())
    }

    /// Sets a column to any value of its type, or null.
    ///
    /// # Errors
    /// `Invalid`, naming the column, if it is of another type or not there.
    pub fn set(&mut self, column: usize, value: ValueRef<'v>) -> Result<()> {
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
            ValueRef::Date(v) => self.set_date(column, v),
            ValueRef::Timestamp(v) => self.set_timestamp(column, v),
            ValueRef::Uuid(_) => {
                self.check(column, |_| false, "Uuid")?;
                Ok(())
            }
        }
    }

    /// Hands the row to the session, which waits while its buffer is full.
    ///
    /// # Errors
    /// `Invalid` if a column of the key is not set, `NotFound` if the table has no partition for the row, `TooLarge` if it
    /// finds no room: the row is not applied. In the synchronous mode also why it was not written.
    pub async fn apply(self) -> Result<()> {
        let Row { session, table, operation, values, strings } = self;
        partition_key(table, &session.scratch, &strings, &mut session.partition_key)?;
        session.apply(table, values, &strings, operation).await
    }

    fn column(&self, column: usize) -> &'s Column {
        &self.table.columns()[column]
    }

    #[inline]
    fn check(&self, column: usize, fits: impl Fn(ColumnType) -> bool, value: &str) -> Result<()> {
        match self.table.columns().get(column) {
            Some(found) if fits(found.column_type) => Ok(()),
            Some(found) => {
                Err(self.refuse(column, format_args!("it is of type {}, not {value}", found.column_type)))
            }
            None => Err(Error::invalid(format!("table {} has no column {column}", self.table.name()))),
        }
    }

    #[cold]
    fn refuse(&self, column: usize, why: std::fmt::Arguments<'_>) -> Error {
        Error::invalid(format!("column {}: {why}", self.column(column).name))
    }

    #[inline]
    fn put(&mut self, column: usize, cell: &[u8]) {
        let layout = &self.table.shared.layout;
        let row = &mut self.session.scratch[..];
        self.values += usize::from(!has_value(layout, row, column));
        let (byte, mask) = (1 + column / 8, 1 << (column % 8));
        row[byte] |= mask;
        if layout.has_null_bitmap {
            row[byte + layout.bitmap_bytes] &= !mask;
        }
        row[layout.cells[column].offset..][..cell.len()].copy_from_slice(cell);
    }

    #[inline]
    fn put_slice(&mut self, column: usize, bytes: &'v [u8]) {
        match self.strings.iter_mut().find(|(set, _)| *set == column) {
            Some((_, set)) => *set = bytes,
            None => self.strings.push((column, bytes)),
        }
        self.put(column, &[0; 16]);
    }
}

/// Leaves the partition key of a row in `out`.
fn partition_key(table: &Table, row: &[u8], strings: &[(usize, &[u8])], out: &mut Vec<u8>) -> Result<()> {
    let shared = &table.shared;
    let mut key: SmallVec<[ValueRef<'_>; 8]> = SmallVec::new();
    for (i, column) in shared.columns[..shared.key_columns].iter().enumerate() {
        if !has_value(&shared.layout, row, i) {
            return Err(Error::invalid(format!("column {} of the key is not set", column.name)));
        }
        let cell = shared.layout.cells[i];
        key.push(match strings.iter().find(|(set, _)| cell.is_slice && *set == i) {
            Some((_, bytes)) if column.column_type == ColumnType::Binary => ValueRef::Binary(bytes),
            Some((_, bytes)) => {
                ValueRef::String(std::str::from_utf8(bytes).map_err(|_| Error::internal("text is UTF-8"))?)
            }
            None => read_cell(column.column_type, &row[cell.offset..][..cell.bytes], &[])?,
        });
    }
    out.clear();
    shared.partition_schema.partition_key(&key, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Batch, BuiltRow};
    use crate::client::{Client, ClientOptions};
    use crate::session::{FlushMode, SessionOptions};
    use bytes::Bytes;
    use oribi_kudu::messages::common::{Schema, SignedToken};
    use oribi_kudu::messages::master::GetTableSchemaResponse;
    use oribi_kudu::row_operations::{OperationLayout, OperationReader};
    use oribi_types::{ErrorKind, Value};
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// A table of these columns, with a session that nobody listens to.
    fn table(columns: &[Column]) -> (Table, Session) {
        let client = Client::unconnected(Vec::new(), ClientOptions::default());
        let schema = Schema { columns: columns.iter().map(Column::in_definition).collect() };
        let response = GetTableSchemaResponse {
            schema: Some(schema),
            table_id: Some(Bytes::from_static(b"t")),
            authz_token: Some(SignedToken::default()),
            ..GetTableSchemaResponse::default()
        };
        let session = client.session(SessionOptions { mode: FlushMode::Manual, ..SessionOptions::default() });
        (Table::of(&client, response).unwrap(), session)
    }

    fn value() -> impl Strategy<Value = (ColumnType, Value)> {
        let numeric = |precision| ColumnType::Decimal { precision, scale: 0 };
        prop_oneof![
            any::<bool>().prop_map(|v| (ColumnType::Bool, Value::Bool(v))),
            any::<i8>().prop_map(|v| (ColumnType::Int8, Value::Int8(v))),
            any::<i16>().prop_map(|v| (ColumnType::Int16, Value::Int16(v))),
            any::<i32>().prop_map(|v| (ColumnType::Int32, Value::Int32(v))),
            any::<i64>().prop_map(|v| (ColumnType::Int64, Value::Int64(v))),
            any::<i32>().prop_map(|v| (ColumnType::Float, Value::Float(v as f32))),
            any::<i32>().prop_map(|v| (ColumnType::Double, Value::Double(v.into()))),
            any::<i32>().prop_map(|v| (ColumnType::Date, Value::Date(v))),
            any::<i64>().prop_map(|v| (ColumnType::Timestamp, Value::Timestamp(v))),
            (-9999i128..=9999).prop_map(move |v| (numeric(4), Value::Decimal(v))),
            any::<i32>().prop_map(move |v| (numeric(18), Value::Decimal(v.into()))),
            any::<i64>().prop_map(move |v| (numeric(38), Value::Decimal(v.into()))),
            ".{0,20}".prop_map(|v| (ColumnType::String, Value::String(v))),
            vec(any::<u8>(), 0..20).prop_map(|v| (ColumnType::Binary, Value::Binary(v))),
        ]
    }

    /// What is done about a column: set, set to null, left alone; and whether another value was set before.
    fn column() -> impl Strategy<Value = ((ColumnType, Value), u8, bool)> {
        (value(), 0u8..3, any::<bool>())
    }

    proptest! {
        #[test]
        fn a_row_is_read_as_it_was_set(columns in vec(column(), 0..20), rows in 1usize..4, backwards in any::<bool>()) {
            let mut schema = vec![Column::new("key", ColumnType::Int64).key()];
            schema.extend(columns.iter().enumerate().map(|(i, ((t, _), _, _))| Column::new(format!("c{i}"), *t)));
            let (table, mut session) = table(&schema);
            let mut batch = Batch::default();
            let mut expected = vec![Some(Value::Int64(7))];
            expected.extend(columns.iter().map(|((_, value), what, _)| match what {
                0 => Some(value.clone()),
                1 => Some(Value::Null),
                _ => None,
            }));
            for _ in 0..rows {
                let mut row = session.upsert(&table);
                let mut order: Vec<usize> = (1..schema.len()).collect();
                if backwards {
                    order.reverse();
                }
                for i in order {
                    let ((_, value), what, before) = &columns[i - 1];
                    if *before && *what < 2 {
                        row.set(i, if *what == 0 { ValueRef::Null } else { value.as_ref() }).unwrap();
                    }
                    match what {
                        0 => row.set(i, value.as_ref()).unwrap(),
                        1 => row.set_null(i).unwrap(),
                        _ => {}
                    }
                }
                row.set_i64(0, 7).unwrap();
                let cells = &row.session.scratch[..];
                let built = BuiltRow { layout: &table.shared.layout, cells, values: row.values, strings: &row.strings };
                let before = batch.bytes();
                batch.append(built);
                prop_assert_eq!(batch.bytes() - before, built.bytes());
            }
            let layout = OperationLayout::new(schema.iter().map(Column::wire).collect());
            let mut reader = OperationReader::new(&layout, batch.rows(), batch.indirect());
            for _ in 0..rows {
                let read = reader.read().unwrap().unwrap();
                prop_assert_eq!(read.operation_type, OperationType::Upsert);
                let values: Vec<Option<Value>> = read.values.iter().map(|v| v.map(|v| v.to_owned())).collect();
                prop_assert_eq!(&values, &expected);
            }
            prop_assert!(reader.read().unwrap().is_none());
        }
    }

    #[tokio::test]
    async fn what_a_column_cannot_hold_is_refused() {
        let mut text = Column::new("text", ColumnType::String);
        text.length_max = Some(2);
        let columns = [
            Column::new("key", ColumnType::Int64).key(),
            text,
            Column::new("n", ColumnType::Decimal { precision: 2, scale: 0 }).not_null(),
        ];
        let (table, mut session) = table(&columns);
        let mut row = session.insert(&table);
        let refused =
            [row.set_i32(0, 1), row.set_null(0), row.set_null(2), row.set_decimal(2, 100), row.set_i64(3, 1)];
        for error in refused {
            assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
        }
        row.set_str(1, "äöü").unwrap();
        assert_eq!(row.strings[0].1, "äö".as_bytes());
        let error = row.apply().await.unwrap_err();
        assert_eq!(error.message(), "column key of the key is not set");
    }
}
