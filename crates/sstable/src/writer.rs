//! Writing an SSTable: rows come in key order and leave as row groups, each with its part of the index.
//!
//! Checksums are taken from the bytes in memory, before they are given to the file system. The rows of one row group
//! are in memory at a time, encoded and compressed.

use crate::index::{BLOCK_ROWS, DATA_MAGIC, Extent, Index, IndexColumn, RowGroup, Separators, separator};
use crate::meta::{ROW_GROUP_BYTES_MAX, SstableId, SstableMeta, SstableOptions};
use crate::pack::{ColumnOptions, ColumnPacker};
use crate::page::PageHeader;
use crate::parquet_schema::{arrow_schema, index_columns, parquet_schema, stored_columns};
use crate::value::LONG_PAGE_BYTES;
use crate::{Paths, bloom, parquet_error};
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{SchemaRef, UInt64Type};
use bytes::Bytes;
use oribi_env::{Env, File, Files, create_file};
use oribi_types::batch::{BatchBuilder, EncodedKeys, EncodedRow};
use oribi_types::schema::TS_COLUMN;
use oribi_types::{Error, Result, Schema, Timestamp};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};
use std::cmp::Ordering;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// A dictionary is decompressed by each point read of its column, so it may not be much larger than a page. Columns
/// with more distinct values fall back to plain.
const DICTIONARY_BYTES_MAX: usize = 64 << 10;
const _: () = assert!(DICTIONARY_BYTES_MAX < LONG_PAGE_BYTES && ROW_PAGES_BYTES_MAX < LONG_PAGE_BYTES);

/// A page of a key column is decompressed and walked to its end by each look-up, and again by those that a filter lets
/// through for nothing. Those of integers end by the rows alone.
const KEY_PAGE_BYTES_MAX: usize = 4 << 10;

/// A point read reads a page of each column: this is what they may come to, as far as pages may shrink for it (those of integers do not).
const ROW_PAGES_BYTES_MAX: usize = 40 << 10;
/// Smaller pages make the index and Parquet's own grow faster than reads gain.
const PAGE_BYTES_MIN: usize = 4 << 10;

/// Writes one SSTable under its temporary names. Dropped before [`finish`](Self::finish), it removes them.
pub struct SstableWriter {
    files: Arc<dyn Files>,
    paths: Paths,
    id: SstableId,
    schema: Schema,
    options: SstableOptions,
    stored: Vec<usize>,
    arrow: SchemaRef,
    parquet: SerializedFileWriter<Sink>,
    columns: Vec<ColumnPacker>,
    pending: Pending,
    index: Index,
    keys: KeyState,
    /// Rows in the row group that is being written.
    group_rows: usize,
    finished: bool,
}

/// Rows pushed one by one, until they are a page.
#[derive(Default)]
struct Pending {
    /// Key and row of each, one behind the other.
    bytes: Vec<u8>,
    /// Where each key and each row ends.
    rows: Vec<(usize, usize, Timestamp)>,
}

/// What is known from the keys and timestamps so far.
#[derive(Default)]
struct KeyState {
    min_key: Vec<u8>,
    last_key: Vec<u8>,
    last_ts: Timestamp,
    min_ts: Timestamp,
    max_ts: Timestamp,
    rows: u64,
    has_filters: bool,
    /// Hashes of the row group's distinct keys.
    hashes: Vec<u64>,
    separators: Vec<u8>,
    separator_ends: Vec<u32>,
    filters: Vec<u8>,
}

impl SstableWriter {
    /// Starts `<id>.data.tmp` in `dir`.
    ///
    /// # Errors
    /// Those of the file system; `Invalid` for impossible options.
    pub fn create(
        env: &Env,
        dir: &Path,
        id: SstableId,
        schema: &Schema,
        options: &SstableOptions,
    ) -> Result<Self> {
        options.validate()?;
        let paths = Paths::new(dir, id);
        let arrow = arrow_schema(schema);
        let descriptor = parquet_schema(schema, &arrow)?;
        let index = Index {
            id,
            data_bytes: 0,
            rows: 0,
            block_rows: BLOCK_ROWS,
            compression: options.compression,
            columns: index_columns(&descriptor)?,
            row_groups: vec![RowGroup::default()],
            chunks: Vec::new(),
            extents: Vec::new(),
            separators: Separators::default(),
            filters: Bytes::new(),
        };
        for stale in [&paths.data_tmp, &paths.index_tmp] {
            let _ = env.files.remove(stale);
        }
        let sink = Sink { file: env.files.create(&paths.data_tmp)?, offset: 0, buffer: Vec::new() };
        let columns = columns(schema, &descriptor, &index.columns, options)?;
        let properties = Arc::new(properties(schema));
        let parquet = SerializedFileWriter::new(sink, descriptor.root_schema_ptr(), properties)
            .map_err(parquet_error)?;
        Ok(SstableWriter {
            files: env.files.clone(),
            paths,
            id,
            schema: schema.clone(),
            options: options.clone(),
            stored: stored_columns(schema),
            arrow,
            parquet,
            columns,
            pending: Pending::default(),
            index,
            keys: KeyState { has_filters: true, ..KeyState::default() },
            group_rows: 0,
            finished: false,
        })
    }

    /// For rows that nobody looks for by their keys.
    pub(crate) fn without_filters(mut self) -> Self {
        self.keys.has_filters = false;
        self
    }

    /// Adds an encoded row.
    ///
    /// Keys must not decrease; copies of one key come newest first.
    ///
    /// # Errors
    /// `Internal` for rows out of order, which may show later; those of the file system.
    pub fn push(&mut self, key: &[u8], row: &[u8], ts: Timestamp) -> Result<()> {
        let pending = &mut self.pending;
        pending.bytes.extend_from_slice(key);
        let key_end = pending.bytes.len();
        pending.bytes.extend_from_slice(row);
        pending.rows.push((key_end, pending.bytes.len(), ts));
        if pending.rows.len() >= self.options.page_rows || pending.bytes.len() >= PENDING_BYTES_MAX {
            self.flush_pending()?;
        }
        Ok(())
    }

    /// Adds the rows of a batch: the stored columns (all but those that show the commit timestamp) in SQL order, then
    /// the commit timestamps. `keys` are the encoded keys of its rows.
    ///
    /// # Errors
    /// As [`push`](Self::push); `Invalid` for a batch of another shape.
    pub fn push_batch(&mut self, batch: &RecordBatch, keys: &EncodedKeys) -> Result<()> {
        self.flush_pending()?;
        if keys.len() != batch.num_rows() {
            return Err(Error::invalid("a key is needed for each row of a batch"));
        }
        // Names and metadata do not matter: a batch may come from a query or from before a column was renamed.
        let batch = RecordBatch::try_new(self.arrow.clone(), batch.columns().to_vec())
            .map_err(|e| Error::invalid(e.to_string()))?;
        self.write_batch(&batch, |i| keys.get(i))
    }

    /// Writes what is left and syncs both files, still under their temporary names.
    ///
    /// # Errors
    /// `Invalid` if there is no row; those of [`push`](Self::push).
    pub fn finish(self) -> Result<SstableMeta> {
        self.finish_late(0).map(|(meta, _)| meta)
    }

    /// As [`finish`](Self::finish), but if the data file has no more than so many bytes, the caller syncs the files.
    ///
    /// # Errors
    /// As there.
    pub fn finish_late(mut self, bytes_max: u64) -> Result<(SstableMeta, Vec<Arc<dyn File>>)> {
        self.flush_pending()?;
        if self.group_rows > 0 {
            self.end_row_group()?;
        }
        if self.keys.rows == 0 {
            return Err(Error::invalid("an sstable needs rows"));
        }
        self.write_tail()?;
        let keys = std::mem::take(&mut self.keys);
        self.index.rows = keys.rows as u32;
        self.index.separators = Separators { ends: keys.separator_ends, bytes: Bytes::from(keys.separators) };
        self.index.filters = Bytes::from(keys.filters);
        let (index, index_checksum) = self.index.encode();
        let index_file = create_file(self.files.as_ref(), &self.paths.index_tmp, &index)?;
        let mut unsynced = vec![self.parquet.inner().file.clone(), index_file];
        if self.index.data_bytes > bytes_max {
            self.files.sync_all(&std::mem::take(&mut unsynced), None)?;
        }
        self.keep()?;
        self.finished = true;
        let meta = SstableMeta {
            id: self.id,
            rows: keys.rows,
            data_bytes: self.index.data_bytes,
            index_bytes: index.len() as u64,
            index_checksum,
            min_key: keys.min_key,
            max_key: keys.last_key,
            min_ts: keys.min_ts,
            max_ts: keys.max_ts,
        };
        Ok((meta, unsynced))
    }

    /// Has the files kept where others are that the folder may lack one day: before anybody names them.
    fn keep(&self) -> Result<()> {
        let (files, paths) = (&self.files, &self.paths);
        let kept = files.keep(&paths.index_tmp, &paths.index);
        kept.and_then(|()| files.keep(&paths.data_tmp, &paths.data)).map_err(|error| {
            // One of them may be there.
            let _ = (files.remove(&paths.index), files.remove(&paths.data));
            Error::from(error).context(format!("sstable {}", self.id))
        })
    }

    fn flush_pending(&mut self) -> Result<()> {
        if self.pending.rows.is_empty() {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        let mut builder = BatchBuilder::new(&self.schema, &self.stored, true);
        let mut start = 0;
        let rows = pending.rows.iter().map(|(key_end, row_end, ts)| {
            let key = &pending.bytes[std::mem::replace(&mut start, *row_end)..*key_end];
            EncodedRow { key, row: &pending.bytes[*key_end..*row_end], ts: *ts }
        });
        builder.extend(&rows.collect::<Vec<_>>())?;
        let batch = builder.finish()?;
        self.write_batch(&batch, |i| {
            let start = if i == 0 { 0 } else { pending.rows[i - 1].1 };
            &pending.bytes[start..pending.rows[i].0]
        })?;
        pending.bytes.clear();
        pending.rows.clear();
        self.pending = pending;
        Ok(())
    }

    /// Writes a batch in slices that end where pages and row groups end.
    fn write_batch<'k>(&mut self, batch: &RecordBatch, key: impl Fn(usize) -> &'k [u8]) -> Result<()> {
        let ts = batch.column(batch.num_columns() - 1).as_primitive::<UInt64Type>();
        let mut start = 0;
        while start < batch.num_rows() {
            let page_left = self.options.page_rows - self.group_rows % self.options.page_rows;
            let group_left = self.options.row_group_rows - self.group_rows;
            let len = page_left.min(group_left).min(batch.num_rows() - start);
            for i in start..start + len {
                self.keys.add(key(i), Timestamp(ts.value(i)), self.group_rows + i - start)?;
            }
            for (column, array) in self.columns.iter_mut().zip(batch.columns()) {
                column.add(array, start..start + len)?;
            }
            self.group_rows += len;
            start += len;
            if self.group_rows == self.options.row_group_rows
                || self.columns.iter().map(ColumnPacker::bytes).sum::<usize>() >= ROW_GROUP_BYTES_MAX
            {
                self.end_row_group()?;
            }
        }
        Ok(())
    }

    fn end_row_group(&mut self) -> Result<()> {
        let mut group = self.parquet.next_row_group().map_err(parquet_error)?;
        for column in &mut self.columns {
            column.finish(&mut group)?;
        }
        group.close().map_err(parquet_error)?;
        self.parquet.flush()?;
        let group = self.parquet.flushed_row_groups().last().expect("a row group was flushed");
        let sink = self.parquet.inner();
        let first_row = self.index.row_groups.last().expect("never empty").first_row;
        for column in group.columns() {
            let (offset, len) = column.byte_range();
            let start = (offset - sink.offset) as usize;
            index_chunk(&mut self.index, &sink.buffer[start..start + len as usize], offset, first_row)?;
        }
        if self.keys.has_filters {
            self.keys.filters.extend_from_slice(&bloom::build(&self.keys.hashes));
        }
        self.keys.hashes.clear();
        self.group_rows = 0;
        self.index.row_groups.push(RowGroup {
            first_row: self.keys.rows as u32,
            first_block: self.keys.separator_ends.len() as u32,
            first_filter_block: (self.keys.filters.len() / bloom::BLOCK_BYTES) as u32,
        });
        self.parquet.inner_mut().write_out()
    }

    /// Writes Parquet's page index and footer.
    fn write_tail(&mut self) -> Result<()> {
        self.parquet.finish().map_err(parquet_error)?;
        self.parquet.flush()?;
        let sink = self.parquet.inner_mut();
        self.index.push_chunk(false);
        self.index.extents.push(Extent {
            offset: sink.offset,
            first_row: self.keys.rows as u32,
            crc: crc32c::crc32c(&sink.buffer),
        });
        sink.write_out()?;
        self.index.data_bytes = sink.offset;
        Ok(())
    }
}

/// Pushed rows are turned into columns at the latest when they have this many bytes.
const PENDING_BYTES_MAX: usize = 1 << 20;

impl Drop for SstableWriter {
    fn drop(&mut self) {
        if !self.finished {
            let _ = self.files.remove(&self.paths.data_tmp);
            let _ = self.files.remove(&self.paths.index_tmp);
        }
    }
}

impl KeyState {
    /// Takes note of the next row, the `group_row`-th of its row group.
    fn add(&mut self, key: &[u8], ts: Timestamp, group_row: usize) -> Result<()> {
        if self.rows == 0 {
            self.min_key.extend_from_slice(key);
            (self.min_ts, self.max_ts) = (ts, ts);
        }
        let order = if self.rows == 0 { Ordering::Less } else { self.last_key.as_slice().cmp(key) };
        if order == Ordering::Greater || (order == Ordering::Equal && self.last_ts < ts) {
            return Err(Error::internal("rows for an sstable are out of order"));
        }
        if self.rows >= u64::from(u32::MAX) || self.separators.len() + key.len() > u32::MAX as usize {
            return Err(Error::too_large("an sstable cannot hold more rows"));
        }
        if group_row.is_multiple_of(BLOCK_ROWS as usize) {
            self.separators.extend_from_slice(separator(&self.last_key, key));
            self.separator_ends.push(self.separators.len() as u32);
        }
        if self.has_filters && (order != Ordering::Equal || group_row == 0) {
            self.hashes.push(bloom::hash(key));
        }
        if order != Ordering::Equal {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        self.last_ts = ts;
        self.min_ts = self.min_ts.min(ts);
        self.max_ts = self.max_ts.max(ts);
        self.rows += 1;
        Ok(())
    }
}

/// Adds the pages of a column chunk, which lies at `offset` in the file.
fn index_chunk(index: &mut Index, chunk: &[u8], offset: u64, mut first_row: u32) -> Result<()> {
    let mut at = 0;
    while at < chunk.len() {
        // The header is the writer's own: only that of a page beyond all bounds is not read.
        let header = PageHeader::read(&chunk[at..])
            .map_err(|_| Error::too_large("a value is too large for an sstable"))?;
        if at == 0 {
            index.push_chunk(header.dictionary);
        }
        let len = header.header_bytes + header.stored_bytes;
        let crc = crc32c::crc32c(&chunk[at..at + len]);
        index.extents.push(Extent { offset: offset + at as u64, first_row, crc });
        if !header.dictionary {
            first_row += header.values;
        }
        at += len;
    }
    Ok(())
}

/// How each column is packed.
fn columns(
    schema: &Schema,
    parquet: &SchemaDescriptor,
    indexed: &[IndexColumn],
    options: &SstableOptions,
) -> Result<Vec<ColumnPacker>> {
    let values = stored_columns(schema).len() - schema.key().len();
    let page_bytes = (ROW_PAGES_BYTES_MAX / values.max(1)).max(PAGE_BYTES_MIN);
    // A key is searched in its page, a timestamp fetched by row: both want no dictionary.
    let is_bare = |name: &str| name == TS_COLUMN || schema.key_columns().any(|column| column.name == name);
    let packer = |(column, indexed): (&ColumnDescPtr, &IndexColumn)| {
        let (page_bytes, dictionary_bytes_max) = match is_bare(column.name()) {
            true => (KEY_PAGE_BYTES_MAX, 0),
            false => (page_bytes, DICTIONARY_BYTES_MAX),
        };
        let page_bytes = page_bytes.min(options.page_bytes_max);
        let options_of = ColumnOptions { page_rows: options.page_rows, page_bytes, dictionary_bytes_max };
        ColumnPacker::new(column.clone(), indexed.physical, options.compression, options_of)
    };
    parquet.columns().iter().zip(indexed).map(packer).collect()
}

fn properties(schema: &Schema) -> WriterProperties {
    let stored = stored_columns(schema);
    let sorting = schema.key().iter().map(|key| SortingColumn {
        column_idx: stored.iter().position(|c| c == key).expect("keys are stored") as i32,
        descending: false,
        nulls_first: false,
    });
    let properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(concat!("oribi version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![KeyValue::new("oribi.schema".to_owned(), describe(schema))]))
        .set_sorting_columns(Some(sorting.collect()));
    properties.build()
}

/// The columns in SQL's words, for whoever finds the file; nothing reads it back.
fn describe(schema: &Schema) -> String {
    let columns: Vec<_> = schema
        .columns()
        .iter()
        .map(|c| serde_json::json!({"id": c.id, "name": c.name, "type": c.column_type.to_string()}))
        .collect();
    let key: Vec<_> = schema.key_columns().map(|c| &c.name).collect();
    serde_json::json!({"columns": columns, "primary_key": key}).to_string()
}

/// Where the Parquet crate writes to: memory, so that checksums can be taken, then the file, a row group at a time.
struct Sink {
    file: Arc<dyn File>,
    /// Bytes in the file, hence the offset of `buffer`.
    offset: u64,
    buffer: Vec<u8>,
}

impl Sink {
    fn write_out(&mut self) -> Result<()> {
        self.file.write_at(&self.buffer, self.offset)?;
        let end = self.offset + self.buffer.len() as u64;
        self.file.begin_sync(self.offset..end);
        self.offset = end;
        self.buffer.clear();
        Ok(())
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The first page follows the magic at once, as the index takes for granted.
const _: () = assert!(DATA_MAGIC.len() == 4);
