//! Values that the database makes for columns that an insert leaves out: hidden keys, and numbers of sequences.

use super::destination::aside;
use crate::context::QueryEngine;
use crate::sequences::{self, as_value};
use arrow::array::ArrayRef;
use oribi_engine::Obligation;
use oribi_session::sql::{SqlError, SqlSession};
use oribi_types::batch::ColumnBuilder;
use oribi_types::schema::Generated;
use oribi_types::{Column, ErrorKind, Schema, Value};
use std::sync::Arc;

/// Values for some columns of some rows.
#[derive(Default)]
pub(crate) struct GeneratedValues {
    columns: Vec<Numbers>,
    /// What has to be settled before anybody is told of them.
    pub(crate) obligation: Obligation,
}

/// Those for one column.
struct Numbers {
    position: usize,
    column: Column,
    numbers: std::vec::IntoIter<i64>,
}

impl GeneratedValues {
    /// For those of `count` rows of `schema` that lack the column at a position, as `missing` says.
    ///
    /// # Errors
    /// 2200H behind the last number of a sequence; those of the manifest and the log.
    pub(crate) async fn new(
        query: &Arc<QueryEngine>,
        session: &Arc<SqlSession>,
        schema: &Schema,
        missing: impl Fn(usize) -> usize + Send,
    ) -> Result<Self, SqlError> {
        let mut made = GeneratedValues::default();
        for (position, column) in schema.columns().iter().enumerate() {
            let Some(generated) = &column.generated else { continue };
            let count = missing(position);
            if count == 0 {
                continue;
            }
            let numbers = match generated {
                Generated::RowId => row_ids(query, count).await?,
                Generated::Sequence(of) => {
                    let drawn = sequences::draw(query, session, of.id, count).await?;
                    made.obligation.merge(drawn.obligation);
                    drawn.numbers
                }
            };
            made.columns.push(Numbers { position, column: column.clone(), numbers: numbers.into_iter() });
        }
        Ok(made)
    }

    /// Puts the next values where a row, of a value or none for each column, lacks them.
    ///
    /// # Errors
    /// 22003 for a number that is no value of its column.
    pub(crate) fn complete(
        &mut self,
        row: &mut [Value],
        is_missing: impl Fn(usize) -> bool,
    ) -> Result<(), SqlError> {
        for Numbers { position, column, numbers } in &mut self.columns {
            if is_missing(*position)
                && let Some(number) = numbers.next()
            {
                row[*position] = value(number, column)?;
            }
        }
        Ok(())
    }

    /// The columns' positions in the table, and their values for all rows.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    pub(crate) fn arrays(self) -> impl Iterator<Item = Result<(usize, ArrayRef), SqlError>> {
        self.columns.into_iter().map(|Numbers { position, column, numbers }| {
            let mut builder = ColumnBuilder::new(column.column_type);
            for number in numbers {
                builder.push(value(number, &column)?.as_ref());
            }
            Ok((position, builder.finish(column.column_type)?))
        })
    }
}

fn value(number: i64, column: &Column) -> Result<Value, SqlError> {
    as_value(number, column.column_type).ok_or_else(|| {
        let message = format!("{} out of range", column.column_type);
        SqlError::new(ErrorKind::Invalid, message).with_sqlstate("22003")
    })
}

async fn row_ids(query: &Arc<QueryEngine>, count: usize) -> Result<Vec<i64>, SqlError> {
    let (engine, count) = (query.engine(), count as u64);
    let first = match engine.row_ids(count, false) {
        Ok(first) => first,
        // The disk is waited for where nobody is served.
        Err(_) => {
            let of = Arc::clone(engine);
            aside(engine, None, move || of.row_ids(count, true)).await??
        }
    };
    Ok((first..first.wrapping_add(count as i64)).collect())
}
