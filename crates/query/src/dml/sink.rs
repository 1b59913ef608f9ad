//! Where the batches of an `INSERT … SELECT` or a `COPY` go.
//!
//! Up to [`IMPORT_BYTES_MIN`] the rows are gathered in one arena, in the form of the log, and written as one record of it. Beyond it a plain insert
//! continues as an import, which writes SSTables directly and needs no memory for the whole; both refuse a key that
//! exists, and both are all or nothing.
//!
//! In a block they become part of its transaction, a part at a time, which puts aside what memory is not for. If one is refused, those
//! before are undone.

use super::coerce::coerce;
use super::destination::{Destination, aside};
use super::generated::GeneratedValues;
use super::insert::insert_new;
use super::room::Room;
use super::rows::check_not_null;
use super::{check_size, parts, settle};
use crate::block::{self, Patience};
use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use oribi_engine::{Commit, EncodedRows, Import, Mark, Table, Transaction};
use oribi_session::sql::SqlError;
use oribi_types::batch::ColumnBuilder;
use oribi_types::cells::Cells;
use oribi_types::{Column, ColumnSource, ErrorKind, Schema, Timestamp, Value, ValueRef};
use std::sync::Arc;

/// An insert of more bytes than this becomes an import.
pub(crate) const IMPORT_BYTES_MIN: usize = 8 << 20;

/// Rows that are turned back into a batch at a time when a gathered insert becomes an import.
const REBATCH_ROWS: usize = 8192;

/// How often rows are encoded for a table that is altered all the time.
const ATTEMPTS_MAX: usize = 10;

/// Takes batches for some columns of a table.
pub(crate) struct RowSink {
    destination: Destination,
    table: Arc<Table>,
    schema: Arc<Schema>,
    /// For each column of the table, its place in the batches that come.
    places: Vec<Option<usize>>,
    rows: EncodedRows,
    import: Option<Import>,
    /// Those that came, gathered or imported.
    count: u64,
    /// Whether a row that others have locked is waited for with the rows in hand.
    cannot_begin_anew: bool,
    /// Where the block's transaction was before the first part, if there was one.
    before: Option<Mark>,
}

impl Drop for RowSink {
    fn drop(&mut self) {
        if let (Some(before), Some(transaction)) = (self.before, self.destination.block()) {
            transaction.undo_to(before);
        }
    }
}

impl RowSink {
    /// A sink for batches whose n-th column goes to the table's column `positions[n]`; the others get their defaults.
    pub(crate) fn new(
        destination: Destination,
        table: &Arc<Table>,
        schema: &Arc<Schema>,
        positions: &[usize],
    ) -> Self {
        let place = |i| positions.iter().position(|&p| p == i);
        RowSink {
            destination,
            table: Arc::clone(table),
            schema: Arc::clone(schema),
            places: (0..schema.columns().len()).map(place).collect(),
            rows: EncodedRows::default(),
            import: None,
            count: 0,
            cannot_begin_anew: false,
            before: None,
        }
    }

    /// The same for rows that come but once.
    #[must_use]
    pub(crate) fn of_client(mut self) -> Self {
        self.cannot_begin_anew = true;
        self
    }

    /// Takes rows for a plain insert, which may grow into an import.
    ///
    /// # Errors
    /// Those of assigning the values; `AlreadyExists` (23505).
    pub(crate) async fn push(&mut self, batch: &RecordBatch) -> Result<(), SqlError> {
        self.count += batch.num_rows() as u64;
        if let Some(block) = self.destination.block().cloned() {
            return self.push_parts(&block, batch).await;
        }
        if self.import.is_none() {
            self.encode(batch).await?;
            let limit = IMPORT_BYTES_MIN.min(self.destination.engine().options().statement_bytes_max);
            if self.rows.bytes() > limit {
                match self.destination.takes_files(&self.table) {
                    true => self.become_import().await?,
                    false => check_size(self.destination.engine(), self.rows.bytes())?,
                }
            }
            return Ok(());
        }
        let stored = self.stored_batch(batch).await?;
        self.import_batch(stored).await
    }

    /// Has rows be what a block writes, as soon as they are enough.
    async fn push_parts(&mut self, block: &Transaction, batch: &RecordBatch) -> Result<(), SqlError> {
        let limit = parts::part_bytes(self.destination.engine().options().statement_bytes_max);
        for first in (0..batch.num_rows()).step_by(parts::STEP_ROWS) {
            self.encode(&batch.slice(first, parts::STEP_ROWS.min(batch.num_rows() - first))).await?;
            if self.rows.bytes() + self.rows.len() * parts::ROW_BYTES > limit {
                self.before.get_or_insert(block.mark());
                // What came before is not asked for again.
                self.cannot_begin_anew = true;
                self.insert().await?;
            }
        }
        Ok(())
    }

    /// Takes rows that will be written with [`into_rows`](Self::into_rows).
    ///
    /// # Errors
    /// Those of assigning the values; `TooLarge` as soon as they are.
    pub(crate) async fn gather(&mut self, batch: &RecordBatch, room: &Room) -> Result<(), SqlError> {
        self.encode(batch).await?;
        room.hold(self.rows.bytes())
    }

    async fn encode(&mut self, batch: &RecordBatch) -> Result<(), SqlError> {
        let arrays = self.arrays(batch).await?;
        self.check_nulls(&arrays, batch.num_rows())?;
        let columns = self.schema.columns().iter().zip(&arrays);
        let cells = columns.map(|(column, array)| match array {
            Some(array) => Cells::of(array, column.column_type),
            None => Cells::Same(column.default.as_ref().map_or(ValueRef::Null, Value::as_ref)),
        });
        Ok(self.rows.push_columns(&self.schema, &cells.collect::<Vec<_>>(), batch.num_rows())?)
    }

    /// The rows gathered.
    pub(crate) fn into_rows(mut self) -> EncodedRows {
        std::mem::take(&mut self.rows)
    }

    /// Inserts what came, all or nothing; returns the number of rows.
    ///
    /// # Errors
    /// `AlreadyExists` (23505).
    pub(crate) async fn finish(mut self) -> Result<u64, SqlError> {
        let Some(import) = self.import.take() else {
            let commit = self.insert().await?;
            self.before = None;
            settle(self.destination.engine(), &commit).await?;
            return Ok(self.count);
        };
        let table = Arc::clone(&self.table);
        let commit = move || import.commit().map_err(|e| import_error(&table, e));
        self.destination.apply(&self.table, commit).await?;
        Ok(self.count)
    }

    /// Inserts the rows gathered. If the table was altered since they came, they become rows of what it is now: they cannot
    /// be asked for again.
    async fn insert(&mut self) -> Result<Commit, SqlError> {
        let (mut attempts_left, mut patience) = (ATTEMPTS_MAX, Patience::default());
        loop {
            attempts_left -= 1;
            let rows = std::mem::take(&mut self.rows);
            let (rows, inserted) = insert_new(&self.destination, &self.table, &self.schema, rows).await?;
            match inserted {
                Err(error)
                    if error.sqlstate.is_none()
                        && error.error.kind() == ErrorKind::Retry
                        && attempts_left > 0 =>
                {
                    let newest = self.destination.session().catalog(self.destination.engine());
                    let newest = newest.table_by_id(self.table.id()).cloned();
                    self.table =
                        newest.ok_or_else(|| oribi_types::Error::not_found("the table was dropped"))?;
                    self.become_of(self.table.schema());
                    self.rows = rows.renewed(&self.schema);
                }
                Err(error) if block::is_locked(&error) && self.cannot_begin_anew => {
                    let (query, session) = (self.destination.query(), self.destination.session());
                    block::wait_for_row(query, session, error, &mut patience).await?;
                    (self.rows, attempts_left) = (rows, attempts_left + 1);
                }
                inserted => return inserted,
            }
        }
    }

    /// Batches that come later are for the same columns, wherever `schema` has them.
    fn become_of(&mut self, schema: Arc<Schema>) {
        let before = self.schema.columns().iter().zip(&self.places);
        let before: Vec<_> = before.map(|(column, place)| (column.id, *place)).collect();
        let place =
            |column: &Column| before.iter().find(|(id, _)| *id == column.id).and_then(|(_, place)| *place);
        self.places = schema.columns().iter().map(place).collect();
        self.schema = schema;
    }

    /// Begins an import with the rows gathered.
    async fn become_import(&mut self) -> Result<(), SqlError> {
        let engine = Arc::clone(self.destination.engine());
        let (table, schema) = (Arc::clone(&self.table), Arc::clone(&self.schema));
        let (rows, stored) = (std::mem::take(&mut self.rows), self.stored_positions().collect::<Vec<_>>());
        self.import_by(move || {
            let mut import = engine.import(&table)?;
            let mut part = EncodedRows::default();
            for i in 0..rows.len() {
                part.push_encoded(rows.key(i), rows.row(i));
                if part.len() == REBATCH_ROWS || i + 1 == rows.len() {
                    let whole = std::mem::take(&mut part).to_batch(&schema, Timestamp::MIN)?;
                    import.push(whole.project(&stored)?)?;
                }
            }
            Ok(import)
        })
        .await
    }

    async fn import_batch(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        let mut import = self.import.take().expect("an import is under way");
        self.import_by(move || import.push(batch).map(|()| import)).await
    }

    /// Has `work`, which begins the import or goes on with it, wait for files where nobody is served.
    async fn import_by(
        &mut self,
        work: impl FnOnce() -> oribi_types::Result<Import> + Send + 'static,
    ) -> Result<(), SqlError> {
        let import = aside(self.destination.engine(), None, work).await?;
        self.import = Some(import.map_err(|e| import_error(&self.table, e))?);
        Ok(())
    }

    /// The columns of the table, as far as `batch` gives them, or the database makes them.
    async fn arrays(&mut self, batch: &RecordBatch) -> Result<Vec<Option<ArrayRef>>, SqlError> {
        let columns = self.schema.columns().iter().zip(&self.places);
        let given = columns.map(|(column, place)| place.map(|p| coerce(batch.column(p), column)).transpose());
        let mut arrays = given.collect::<Result<Vec<_>, SqlError>>()?;
        let (query, session) = (self.destination.query(), self.destination.session());
        let missing = |position: usize| if self.places[position].is_none() { batch.num_rows() } else { 0 };
        let generated = GeneratedValues::new(query, session, &self.schema, missing).await?;
        // The rows may be shown before they are committed.
        query.engine().settled(generated.obligation).await?;
        for made in generated.arrays() {
            let (position, array) = made?;
            arrays[position] = Some(array);
        }
        Ok(arrays)
    }

    /// `batch` with all columns that are stored, defaults filled in.
    async fn stored_batch(&mut self, batch: &RecordBatch) -> Result<RecordBatch, SqlError> {
        let arrays = self.arrays(batch).await?;
        self.check_nulls(&arrays, batch.num_rows())?;
        let mut stored = Vec::new();
        for position in self.stored_positions() {
            let column = &self.schema.columns()[position];
            let array = match &arrays[position] {
                Some(array) => Arc::clone(array),
                None => {
                    let mut builder = ColumnBuilder::new(column.column_type);
                    let value = column.default.as_ref().map_or(ValueRef::Null, Value::as_ref);
                    (0..batch.num_rows()).for_each(|_| builder.push(value));
                    builder.finish(column.column_type)?
                }
            };
            stored.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = self.stored_schema();
        Ok(RecordBatch::try_new_with_options(schema, stored, &options).map_err(oribi_types::Error::from)?)
    }

    /// # Errors
    /// `Invalid` (23502) if a column has null in one of its `count` values, or without values, and may not.
    fn check_nulls(&self, arrays: &[Option<ArrayRef>], count: usize) -> Result<(), SqlError> {
        if count == 0 {
            return Ok(());
        }
        let values = self.schema.columns().iter().zip(arrays).map(|(column, array)| match array {
            Some(array) if array.null_count() > 0 => ValueRef::Null,
            Some(_) => ValueRef::Bool(true),
            None => column.default.as_ref().map_or(ValueRef::Null, Value::as_ref),
        });
        check_not_null(&self.table, &self.schema, &values.collect::<Vec<_>>())
    }

    fn stored_schema(&self) -> SchemaRef {
        let fields: Vec<_> = self.stored_positions().map(|i| self.schema.arrow().field(i).clone()).collect();
        Arc::new(ArrowSchema::new(fields))
    }

    fn stored_positions(&self) -> impl Iterator<Item = usize> + '_ {
        let columns = self.schema.columns().iter().enumerate();
        columns.filter(|(_, c)| c.source != ColumnSource::CommitTimestamp).map(|(i, _)| i)
    }
}

fn import_error(table: &Table, error: oribi_types::Error) -> SqlError {
    match error.kind() {
        ErrorKind::AlreadyExists => SqlError::from(
            error
                .context(format!("duplicate key value violates unique constraint \"{}_pkey\"", table.name())),
        )
        .with_sqlstate("23505"),
        _ => error.into(),
    }
}
