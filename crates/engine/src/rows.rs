//! Rows on their way into a table: each is encoded once, in the formats of log and memtable, into one arena for all of
//! them. However many there are, they take two blocks of memory.

use crate::catalog::Table;
use crate::write::{Read, WriteOp};
use oribi_types::batch::BatchBuilder;
use oribi_types::cells::Cells;
use oribi_types::key::encode_key;
use oribi_types::{ColumnSource, Result, Schema, Timestamp, ValueRef};
use std::sync::Arc;

/// Encoded keys and rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedRows {
    /// Of each row its key and, behind it, the row.
    bytes: Vec<u8>,
    /// For each row, where its key and where its row end.
    ends: Vec<(usize, usize)>,
}

impl EncodedRows {
    /// With room for so many rows of `bytes` in all, keys included.
    pub fn with_capacity(rows: usize, bytes: usize) -> Self {
        EncodedRows { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(rows) }
    }

    /// Adds a row of `values`, one per column of `schema`; those of the commit timestamp are ignored.
    ///
    /// # Errors
    /// `Invalid`, naming the column, for null where it may not be or a value of another type; `TooLarge` for a key beyond
    /// the limit. Nothing was added then.
    pub fn push(&mut self, schema: &Schema, values: &[ValueRef<'_>]) -> Result<()> {
        schema.check_values(values)?;
        self.push_with(
            |key| encode_key(schema, schema.key().iter().map(|&i| values[i]), key),
            |row| {
                schema.encode_slots(values, row);
                Ok(())
            },
        )
    }

    /// Adds `count` rows of `columns`, one for each of `schema`'s and of its type.
    ///
    /// # Errors
    /// As [`push`](Self::push). Rows before the one that is refused were added.
    pub fn push_columns(&mut self, schema: &Schema, columns: &[Cells<'_>], count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let mut slots = vec![Cells::Same(ValueRef::Null); schema.layout().slots().len()];
        for (column, cells) in schema.columns().iter().zip(columns) {
            match column.source {
                ColumnSource::CommitTimestamp => continue,
                ColumnSource::Key(_) => {}
                ColumnSource::Slot(slot) => slots[usize::from(slot)] = *cells,
            }
            cells.check(column)?;
        }
        self.ends.reserve(count);
        for i in 0..count {
            self.push_with(
                |key| encode_key(schema, schema.key().iter().map(|&column| columns[column].get(i)), key),
                |row| {
                    schema.layout().encode_each(slots.iter().map(|cells| cells.get(i)), row);
                    Ok(())
                },
            )?;
        }
        Ok(())
    }

    /// Adds a row whose encoded key and row `key` and `row` append.
    ///
    /// # Errors
    /// Those of the two. Nothing was added then.
    pub fn push_with(
        &mut self,
        key: impl FnOnce(&mut Vec<u8>) -> Result<()>,
        row: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let start = self.bytes.len();
        let mut key_end = start;
        let added = key(&mut self.bytes).and_then(|()| {
            key_end = self.bytes.len();
            row(&mut self.bytes)
        });
        match added {
            Ok(()) => self.ends.push((key_end, self.bytes.len())),
            Err(_) => self.bytes.truncate(start),
        }
        added
    }

    /// Adds an encoded row.
    pub fn push_encoded(&mut self, key: &[u8], row: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(row);
        self.ends.push((key_end, self.bytes.len()));
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of memory in use.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + size_of_val(self.ends.as_slice())
    }

    #[inline]
    pub fn key(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1].1 };
        &self.bytes[start..self.ends[i].0]
    }

    #[inline]
    pub fn row(&self, i: usize) -> &[u8] {
        let (key_end, end) = self.ends[i];
        &self.bytes[key_end..end]
    }

    /// The key and the row of each.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(key_end, end)| {
            let (key, row) = (&self.bytes[start..key_end], &self.bytes[key_end..end]);
            start = end;
            (key, row)
        })
    }

    /// One operation for each, which proposes the row.
    pub fn operations<'a>(&'a self, table: &'a Arc<Table>, read: Read) -> Vec<WriteOp<'a>> {
        self.iter().map(|(key, row)| WriteOp { table, key, read, row }).collect()
    }

    /// The same rows for a later `schema` of their table: columns that were added have what rows of before answer.
    #[must_use]
    pub fn renewed(&self, schema: &Schema) -> Self {
        let unchanged = vec![None; schema.layout().slots().len()];
        let mut renewed = EncodedRows::default();
        for i in 0..self.len() {
            renewed.bytes.extend_from_slice(self.key(i));
            let key_end = renewed.bytes.len();
            schema.overlay(self.row(i), &unchanged, &mut renewed.bytes);
            renewed.ends.push((key_end, renewed.bytes.len()));
        }
        renewed
    }

    /// The rows as a batch of all columns, as of the write at `ts`.
    ///
    /// # Errors
    /// `Corrupt` if a key does not decode.
    pub fn to_batch(&self, schema: &Schema, ts: Timestamp) -> Result<arrow::array::RecordBatch> {
        let all: Vec<usize> = (0..schema.columns().len()).collect();
        let mut builder = BatchBuilder::new(schema, &all, false);
        for i in 0..self.len() {
            builder.push(self.key(i), self.row(i), ts)?;
        }
        builder.finish()
    }
}
