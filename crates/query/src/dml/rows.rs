//! Rows in their stored form, on their way into a table: what SQL says of them.

use oribi_engine::{EncodedRows, Table};
use oribi_session::sql::SqlError;
use oribi_types::{ErrorKind, Schema, ValueRef, key, text};

/// Adds a row of `values`, one per column of `schema`.
///
/// # Errors
/// `Invalid` (23502) for null where it may not be; `TooLarge` for a key beyond the limit.
pub(crate) fn push_row(
    rows: &mut EncodedRows,
    table: &Table,
    schema: &Schema,
    values: &[ValueRef<'_>],
) -> Result<(), SqlError> {
    check_not_null(table, schema, values)?;
    Ok(rows.push(schema, values)?)
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

    /// So many, which are not to be shown.
    pub(crate) fn of(count: usize) -> Self {
        Written { count: count as u64, ..Written::new(false) }
    }

    pub(crate) fn push(&mut self, key: &[u8], row: &[u8]) {
        self.count += 1;
        if self.shown {
            self.rows.push_encoded(key, row);
        }
    }

    /// With as many as another part of the statement, which shows none.
    pub(crate) fn add(&mut self, other: &Written) {
        self.count += other.count;
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
