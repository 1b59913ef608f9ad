//! What was not written, and why.

use crate::batch::Batch;
use crate::table::Table;
use oribi_kudu::row_operations::{OperationReader, OperationType, RowOperation};
use oribi_types::{Error, Result, Value, text};
use std::fmt;

/// A row that was not written.
#[derive(Clone, Debug)]
pub struct RowError {
    pub table: String,
    pub operation: OperationType,
    /// By column of the table; `None` where the row did not set it.
    pub row: Vec<Option<Value>>,
    pub error: Error,
    key: String,
}

impl RowError {
    /// The values of the key, as text with commas between.
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RowError { table, operation, error, key, .. } = self;
        write!(f, "{operation:?} into table {table}, key ({key}): {error}")
    }
}

/// The errors of a session, in the order in which the answers came.
#[derive(Clone, Debug, Default)]
pub struct RowErrors {
    pub errors: Vec<RowError>,
    /// How many more there were than are kept.
    pub overflow: u64,
}

impl RowErrors {
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty() && self.overflow == 0
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.errors.len() as u64 + self.overflow
    }

    /// # Errors
    /// The first, with the number of all.
    pub(super) fn check(&self) -> Result<()> {
        match (self.errors.first(), self.count()) {
            (None, 0) => Ok(()),
            (Some(first), count) => {
                let RowError { table, operation, key, error, .. } = first;
                Err(error.clone().context(format_args!(
                    "{count} rows not written, the first {operation:?} into table {table}, key ({key})"
                )))
            }
            (None, count) => Err(Error::internal(format!("{count} rows not written"))),
        }
    }

    /// # Errors
    /// The last, if there are more than `before`.
    pub(super) fn check_since(&self, before: u64) -> Result<()> {
        match self.errors.last() {
            _ if self.count() == before => Ok(()),
            Some(last) if self.overflow == 0 => Err(last.error.clone()),
            _ => Err(Error::internal("not written, and more errors than are kept")),
        }
    }

    /// Adds the rows of a batch that `causes` names by their position, ascending.
    pub(super) fn add(&mut self, max: usize, table: &Table, batch: &Batch, causes: &[(usize, Error)]) {
        if causes.is_empty() {
            return;
        }
        let mut reader = OperationReader::new(&table.shared.layout, batch.rows(), batch.indirect());
        let mut causes = causes.iter().peekable();
        while let Some((position, error)) = causes.peek().copied() {
            if self.errors.len() >= max {
                self.overflow += causes.count() as u64;
                return;
            }
            let read = match reader.read() {
                Ok(Some(read)) => read,
                // What we built can be read; a position behind the end is the server's invention.
                Ok(None) | Err(_) => {
                    self.overflow += causes.count() as u64;
                    return;
                }
            };
            if *position == read.index {
                causes.next();
                self.errors.push(RowError::of(table, &read, error.clone()));
            }
        }
    }
}

impl RowError {
    fn of(table: &Table, read: &RowOperation<'_, '_>, error: Error) -> Self {
        RowError {
            table: table.name().to_owned(),
            operation: read.operation_type,
            row: read.values.iter().map(|value| value.map(|value| value.to_owned())).collect(),
            error,
            key: key(table, read),
        }
    }
}

fn key(table: &Table, read: &RowOperation<'_, '_>) -> String {
    let columns = table.columns()[..table.key_columns()].iter();
    let values = columns.zip(read.values).map(|(column, value)| match value {
        Some(value) => text::to_string(*value, column.column_type),
        None => String::new(),
    });
    values.collect::<Vec<_>>().join(", ")
}
