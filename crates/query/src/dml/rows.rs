//! Rows in their stored form, on their way into a table.

use oribi_engine::Table;
use oribi_session::sql::SqlError;
use oribi_types::batch::BatchBuilder;
use oribi_types::{ErrorKind, Result, Schema, Timestamp, ValueRef, key, text};

/// Encoded keys and rows in one buffer.
#[derive(Default)]
pub(crate) struct EncodedRows {
    bytes: Vec<u8>,
    /// For each row, where its key and where its row end.
    ends: Vec<(usize, usize)>,
    row: Vec<u8>,
}

impl EncodedRows {
    /// Adds a row of `values`, one per column of `schema`.
    ///
    /// # Errors
    /// `Invalid` (23502) for null where it may not be; `TooLarge` for a key beyond the limit.
    pub(crate) fn push(
        &mut self,
        table: &Table,
        schema: &Schema,
        values: &[ValueRef<'_>],
    ) -> Result<(), SqlError> {
        check_not_null(table, schema, values)?;
        self.row.clear();
        schema.encode(values, &mut self.bytes, &mut self.row)?;
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(&self.row);
        self.ends.push((key_end, self.bytes.len()));
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len() + size_of_val(self.ends.as_slice())
    }

    pub(crate) fn key(&self, i: usize) -> &[u8] {
        &self.bytes[self.start(i)..self.ends[i].0]
    }

    pub(crate) fn row(&self, i: usize) -> &[u8] {
        let (key_end, end) = self.ends[i];
        &self.bytes[key_end..end]
    }

    pub(crate) fn push_encoded(&mut self, key: &[u8], row: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(row);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// The rows as a batch of all columns, as of the write at `ts`.
    ///
    /// # Errors
    /// `Corrupt` if a key does not decode.
    pub(crate) fn to_batch(&self, schema: &Schema, ts: Timestamp) -> Result<arrow::array::RecordBatch> {
        let all: Vec<usize> = (0..schema.columns().len()).collect();
        let mut builder = BatchBuilder::new(schema, &all, false);
        for i in 0..self.len() {
            builder.push(self.key(i), self.row(i), ts)?;
        }
        builder.finish()
    }

    fn start(&self, i: usize) -> usize {
        if i == 0 { 0 } else { self.ends[i - 1].1 }
    }
}

/// The rows that a statement wrote or deleted: their number, and themselves if `RETURNING` shows them.
pub(crate) struct Written {
    shown: bool,
    count: u64,
    rows: EncodedRows,
}

impl Written {
    pub(crate) fn new(shown: bool) -> Self {
        Written { shown, count: 0, rows: EncodedRows::default() }
    }

    pub(crate) fn push(&mut self, key: &[u8], row: &[u8]) {
        self.count += 1;
        if self.shown {
            self.rows.push_encoded(key, row);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.bytes()
    }

    /// The rows; none if they were not to be shown.
    pub(crate) fn into_rows(self) -> EncodedRows {
        self.rows
    }
}

/// # Errors
/// `Invalid` (23502), naming table and column.
pub(crate) fn check_not_null(
    table: &Table,
    schema: &Schema,
    values: &[ValueRef<'_>],
) -> Result<(), SqlError> {
    for (column, value) in schema.columns().iter().zip(values) {
        let stored = column.source != oribi_types::ColumnSource::CommitTimestamp;
        if stored && value.is_null() && !column.nullable {
            return Err(SqlError::new(
                ErrorKind::Invalid,
                format!(
                    "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                    column.name,
                    table.name()
                ),
            )
            .with_sqlstate("23502"));
        }
    }
    Ok(())
}

/// A refused insert of a key that exists (23505).
pub(crate) fn duplicate_key(table: &Table, schema: &Schema, encoded: &[u8]) -> SqlError {
    let names: Vec<&str> = schema.key_columns().map(|c| c.name.as_str()).collect();
    let values = match key::decode_key(schema, encoded) {
        Ok(values) => {
            let texts =
                schema.key_columns().zip(&values).map(|(c, v)| text::to_string(v.as_ref(), c.column_type));
            texts.collect::<Vec<_>>().join(", ")
        }
        Err(_) => "?".to_owned(),
    };
    SqlError::new(
        ErrorKind::AlreadyExists,
        format!(
            "duplicate key value violates unique constraint \"{0}_pkey\": key ({1})=({values}) already exists in table \"{0}\"",
            table.name(),
            names.join(", ")
        ),
    )
    .with_sqlstate("23505")
}
