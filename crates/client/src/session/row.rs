//! Building one row.

use super::Shared;
use crate::batch::BuiltRow;
use crate::table::Table;
use oribi_kudu::cell::{SLICE_BYTES, read_cell};
use oribi_kudu::column::WireColumn;
use oribi_kudu::row_operations::{Cells, OperationType};
use oribi_types::{ColumnType, Error, Result, ValueRef};
use smallvec::SmallVec;
use std::sync::Arc;

/// A row that is being built, in the session's memory: its columns are set as those of a [`PartialRow`](crate::PartialRow).
/// Text and bytes are only borrowed until the row is applied. What a `VARCHAR` has no room for is cut off.
///
/// Building allocates nothing, but for a row of more than eight columns of text or bytes: then once.
#[must_use = "a row that is not applied is not written"]
pub struct Row<'s, 'v> {
    pub(super) shared: &'s Arc<Shared>,
    /// Where its partition key comes.
    pub(super) partition_key: &'s mut Vec<u8>,
    pub(super) open: OpenRow<'s, 'v>,
}

/// A row on its way to a batch.
pub(super) struct OpenRow<'s, 'v> {
    table: &'s Table,
    operation: OperationType,
    cells: &'s mut Vec<u8>,
    /// Columns with a value that is not null.
    values: usize,
    /// What the columns that point elsewhere point to, each once.
    strings: SmallVec<[(usize, &'v [u8]); 8]>,
}

impl Row<'_, '_> {
    /// Hands the row to the session, which waits while its buffer is full.
    ///
    /// # Errors
    /// `Invalid` if a column of the key is not set, `NotFound` if the table has no partition for the row, `TooLarge` if it
    /// finds no room: the row is not applied. In the synchronous mode also why it was not written.
    pub async fn apply(self) -> Result<()> {
        let Row { shared, partition_key, open } = self;
        open.partition_key(partition_key)?;
        shared.apply(open.table, partition_key, open.built(), open.operation).await
    }
}

/// Its cells are put into the row that is open.
impl<'v> Cells<'v> for Row<'_, 'v> {
    #[inline]
    fn column(&self, column: usize) -> Option<&WireColumn> {
        self.open.column(column)
    }

    #[inline]
    fn put<const N: usize>(&mut self, column: usize, cell: [u8; N]) {
        self.open.put(column, cell);
    }

    #[inline]
    fn put_slice(&mut self, column: usize, bytes: &'v [u8]) {
        self.open.put_slice(column, bytes);
    }

    #[inline]
    fn put_text(&mut self, column: usize, text: &'v str) {
        self.open.put_text(column, text);
    }

    fn put_uuid(&mut self, column: usize, value: [u8; 16]) -> Result<()> {
        self.open.put_uuid(column, value)
    }

    fn put_null(&mut self, column: usize) {
        self.open.put_null(column);
    }
}

impl<'s, 'v> OpenRow<'s, 'v> {
    /// A row of which no column is set, in the memory of `cells`.
    pub(super) fn new(table: &'s Table, operation: OperationType, cells: &'s mut Vec<u8>) -> Self {
        cells.clear();
        cells.resize(table.shared.layout.open_bytes(), 0);
        cells[0] = operation as u8;
        OpenRow { table, operation, cells, values: 0, strings: SmallVec::new() }
    }

    pub(super) fn built(&self) -> BuiltRow<'_> {
        BuiltRow {
            layout: &self.table.shared.layout,
            cells: self.cells,
            values: self.values,
            strings: &self.strings,
        }
    }

    /// Leaves the row's partition key in `out`.
    ///
    /// # Errors
    /// `Invalid` if a column of the key is not set.
    pub(super) fn partition_key(&self, out: &mut Vec<u8>) -> Result<()> {
        let shared = &self.table.shared;
        let mut key: SmallVec<[ValueRef<'_>; 8]> = SmallVec::new();
        for (i, column) in shared.columns[..shared.key_columns].iter().enumerate() {
            if !shared.layout.has_value(self.cells, i) {
                return Err(Error::invalid(format!("column \"{}\" of the key is not set", column.name)));
            }
            let is_slice = shared.layout.is_slice(i);
            key.push(match self.strings.iter().find(|(set, _)| is_slice && *set == i) {
                Some((_, bytes)) if column.column_type == ColumnType::Binary => ValueRef::Binary(bytes),
                Some((_, bytes)) => {
                    let text = std::str::from_utf8(bytes);
                    ValueRef::String(text.map_err(|_| Error::internal("text is UTF-8"))?)
                }
                None => read_cell(column.column_type, shared.layout.cell(self.cells, i), &[])?,
            });
        }
        out.clear();
        shared.partition_schema.partition_key(&key, out)
    }
}

impl<'v> Cells<'v> for OpenRow<'_, 'v> {
    #[inline]
    fn column(&self, column: usize) -> Option<&WireColumn> {
        self.table.shared.layout.columns().get(column)
    }

    #[inline]
    fn put<const N: usize>(&mut self, column: usize, cell: [u8; N]) {
        self.values += usize::from(self.table.shared.layout.put(self.cells, column, cell));
    }

    #[inline]
    fn put_slice(&mut self, column: usize, bytes: &'v [u8]) {
        match self.strings.iter_mut().find(|(set, _)| *set == column) {
            Some((_, set)) => *set = bytes,
            None => self.strings.push((column, bytes)),
        }
        // Where the bytes will be is known when the row is in its batch.
        self.put(column, [0; SLICE_BYTES]);
    }

    #[inline]
    fn put_text(&mut self, column: usize, text: &'v str) {
        let fitting = match self.table.columns()[column].length_max {
            Some(length) => {
                let end = text.char_indices().nth(length as usize);
                &text[..end.map_or(text.len(), |(at, _)| at)]
            }
            None => text,
        };
        self.put_slice(column, fitting.as_bytes());
    }

    fn put_uuid(&mut self, _column: usize, _value: [u8; 16]) -> Result<()> {
        Err(Error::unsupported("a table of Kudu's has no column of type uuid"))
    }

    fn put_null(&mut self, column: usize) {
        self.values -= usize::from(self.table.shared.layout.put_null(self.cells, column));
        self.strings.retain(|(set, _)| *set != column);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::client::{Client, ClientOptions};
    use crate::session::{FlushMode, Session, SessionOptions};
    use crate::table::Column;
    use bytes::Bytes;
    use oribi_kudu::messages::common::{Schema, SignedToken};
    use oribi_kudu::messages::master::GetTableSchemaResponse;
    use oribi_kudu::row_operations::{OperationReader, PartialRow};
    use oribi_testing::values::{column_type, comparable_value};
    use oribi_types::{ErrorKind, Value};
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// A table of these columns, with a session that nobody listens to.
    pub(in crate::session) fn table(columns: &[Column]) -> (Table, Session) {
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

    /// Of the types that a client's tables have.
    fn typed_value() -> impl Strategy<Value = (ColumnType, Value)> {
        column_type()
            .prop_filter("not Kudu's", |t| !matches!(t, ColumnType::Uuid | ColumnType::Json))
            .prop_flat_map(|column_type| (Just(column_type), comparable_value(column_type)))
    }

    /// What is done about a column: set, set to null, left alone; and whether another value was set before.
    fn column() -> impl Strategy<Value = ((ColumnType, Value), u8, bool)> {
        (typed_value(), 0u8..3, any::<bool>())
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
                let (built, before) = (row.open.built(), batch.bytes());
                batch.append(built);
                prop_assert_eq!(batch.bytes() - before, built.bytes());
            }
            let mut reader = OperationReader::new(&table.shared.layout, batch.rows(), batch.indirect());
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
        assert_eq!(row.open.strings[0].1, "äö".as_bytes());
        let error = row.apply().await.unwrap_err();
        assert_eq!(error.message(), "column \"key\" of the key is not set");
    }
}
