//! Rows through a batching session, as any client of the Kudu door writes them: each row is written or refused by itself.

use super::rejects::Rejects;
use crate::sql::write_csv_line;
use arrow::array::RecordBatch;
use oribi_client::{Client, Column, CreateTable, PartialRow, RowErrors, Session, SessionOptions, Table};
use oribi_types::cells::Cells;
use oribi_types::schema::ColumnSpec;
use oribi_types::{Error, ErrorKind, Result, Schema, Value, text};

/// Refused rows that are told with their values at each [look](SessionSink::settle), those that were not sent first; others are
/// counted.
const ERRORS_MAX: usize = 100_000;

/// Takes batches of a table's columns, in the order of [`SessionSink::schema`].
pub struct SessionSink {
    table: Table,
    schema: Schema,
    session: Session,
    /// Rows that were not sent, and why.
    unsent: Vec<(String, Error)>,
    /// How many more there were.
    unsent_others: u64,
}

/// The table of this name, if the servers have it.
pub async fn existing(client: &Client, name: &str) -> Result<Option<Table>> {
    match client.open_table(name).await {
        Ok(table) => Ok(Some(table)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a table of one tablet.
pub async fn create(
    client: &Client,
    name: &str,
    columns: &[ColumnSpec],
    primary_key: &[String],
) -> Result<Table> {
    // It has the columns of the key first, in their order.
    let of_key = |column: &&ColumnSpec| primary_key.contains(&column.name);
    let mut definition = CreateTable::new(name);
    for key in primary_key {
        let column = columns.iter().find(|column| column.name == *key);
        let column = column.ok_or_else(|| Error::invalid(format!("key column \"{key}\" does not exist")))?;
        definition = definition.column(Column::new(key, column.column_type).key());
    }
    for column in columns.iter().filter(|column| !of_key(column)) {
        let made = Column::new(&column.name, column.column_type);
        definition = definition.column(if column.nullable { made } else { made.not_null() });
    }
    client.create_table(definition).await
}

impl SessionSink {
    pub fn new(client: &Client, table: Table) -> Result<Self> {
        let spec = |column: &Column| {
            let spec = ColumnSpec::new(&column.name, column.column_type);
            ColumnSpec { nullable: column.nullable, default: column.default.clone(), ..spec }
        };
        let key = table.columns()[..table.key_columns()].iter().map(|column| column.name.as_str());
        let columns = table.columns().iter().map(spec).collect();
        let schema = Schema::new(columns, &key.collect::<Vec<_>>())?;
        let options = SessionOptions { errors_max: ERRORS_MAX, ..SessionOptions::default() };
        Ok(SessionSink {
            session: client.session(options),
            table,
            schema,
            unsent: Vec::new(),
            unsent_others: 0,
        })
    }

    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Hands the rows of `batch` to the session, which waits while its buffer is full.
    ///
    /// # Errors
    /// Those of looking for tablets. What is wrong with a row is for [`settle`](Self::settle).
    pub async fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = self.schema.columns().iter().zip(batch.columns());
        let columns: Vec<Cells<'_>> =
            columns.map(|(column, array)| Cells::of(array, column.column_type)).collect();
        for i in 0..batch.num_rows() {
            let mut row = self.session.insert(&self.table);
            let set =
                columns.iter().enumerate().try_for_each(|(column, cells)| row.set(column, cells.get(i)));
            let applied = match set {
                Ok(()) => row.apply().await,
                Err(error) => Err(error),
            };
            match applied {
                Err(error) if is_of_the_row(&error) && self.unsent.len() >= ERRORS_MAX => {
                    self.unsent_others += 1;
                }
                Err(error) if is_of_the_row(&error) => {
                    let values: Vec<Value> = columns.iter().map(|cells| cells.get(i).to_owned()).collect();
                    self.unsent.push((line(&self.schema, &values)?, error));
                }
                applied => applied?,
            }
        }
        Ok(())
    }

    /// Waits until every row is written or refused, and adds those that were refused.
    ///
    /// # Errors
    /// Those of writing to `rejects`.
    pub async fn settle(&mut self, rejects: &mut Rejects) -> Result<()> {
        // It fails if a row did, which its errors tell.
        let _ = self.session.flush().await;
        let sent_max = ERRORS_MAX.saturating_sub(self.unsent.len());
        for (line, error) in self.unsent.drain(..) {
            rejects.add_unnumbered(error.message(), &line)?;
        }
        let RowErrors { errors, overflow } = self.session.take_errors();
        let others = errors.len().saturating_sub(sent_max) as u64 + overflow;
        for refused in errors.into_iter().take(sent_max) {
            let values: Vec<Value> =
                refused.row.into_iter().map(|value| value.unwrap_or(Value::Null)).collect();
            rejects.add_unnumbered(refused.error.message(), &line(&self.schema, &values)?)?;
        }
        rejects.count_others(others + std::mem::take(&mut self.unsent_others))
    }

    /// The rows written so far.
    pub fn rows_written(&self) -> u64 {
        self.session.progress().rows_written
    }
}

/// Whether another row may be written all the same.
fn is_of_the_row(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::TooLarge)
}

/// A row as a line of CSV.
fn line(schema: &Schema, values: &[Value]) -> Result<String> {
    let shown = |(column, value): (&oribi_types::Column, &Value)| {
        (!value.is_null()).then(|| text::to_string(value.as_ref(), column.column_type))
    };
    let fields: Vec<Option<String>> = schema.columns().iter().zip(values).map(shown).collect();
    let fields: Vec<Option<&str>> = fields.iter().map(Option::as_deref).collect();
    let mut line = Vec::new();
    write_csv_line(&mut line, &fields)?;
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}
