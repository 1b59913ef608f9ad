//! Row-wise blocks: one row behind the other, without padding.
//!
//! ```text
//! cells       of the projected columns, in their order; a slice points into the indirect sidecar
//! u8 null[⌈columns/8⌉]   only if any projected column is nullable; bit i (least significant first): column i is null
//! ```
//! All rows have the same length, and null has a cell too, of zeros. With [`PAD_UNIXTIME`] a timestamp takes 16
//! bytes, the last 8 of them zero.

use super::gather::{self, Cells};
use super::{arrow_schema, check, scatter};
use crate::cell::{SLICE_BYTES, cell_bytes, is_slice};
use crate::column::WireColumn;
use arrow::array::{Array, RecordBatch, RecordBatchOptions};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use bytes::Bytes;
use oribi_types::{ColumnType, Error, Result};

/// Bit of a scan's row format flags: timestamps take the 16 bytes that Impala's do.
pub const PAD_UNIXTIME: u64 = 1;

/// Where cells lie in a row.
#[derive(Clone, Debug)]
pub struct RowwiseLayout {
    columns: Vec<WireColumn>,
    offsets: Vec<usize>,
    /// Where the null bitmap begins; without one, where the row ends.
    nulls: usize,
    /// Bytes of a row.
    stride: usize,
    /// Whether all bytes in front of the bitmap are those of values.
    is_dense: bool,
}

impl RowwiseLayout {
    /// The layout of rows of a projection; `flags` are the scan's row format flags.
    pub fn new(columns: Vec<WireColumn>, flags: u64) -> Self {
        let (mut nulls, mut is_dense) = (0, true);
        let mut offsets = Vec::with_capacity(columns.len());
        for column in &columns {
            offsets.push(nulls);
            let padded = flags & PAD_UNIXTIME != 0 && column.column_type == ColumnType::Timestamp;
            nulls += if padded { 16 } else { cell_bytes(column.column_type) };
            is_dense &= !padded;
        }
        let bitmap_bytes = if columns.iter().any(|c| c.nullable) { columns.len().div_ceil(8) } else { 0 };
        RowwiseLayout { columns, offsets, nulls, stride: nulls + bitmap_bytes, is_dense }
    }

    /// Bytes of a row, without its strings.
    pub fn stride(&self) -> usize {
        self.stride
    }

    pub fn columns(&self) -> &[WireColumn] {
        &self.columns
    }
}

/// The two sidecars of a row-wise answer. Both are there even if empty: a projection of no columns counts rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowwiseBlock {
    num_rows: usize,
    /// Of the rows that are there; what comes behind is from before.
    filled: usize,
    rows: Vec<u8>,
    indirect: Vec<u8>,
}

impl RowwiseBlock {
    /// A block without rows, which has its sidecars in the memory of these buffers. What is in them need not be cleared.
    pub fn with_buffers(rows: Vec<u8>, mut indirect: Vec<u8>) -> Self {
        indirect.clear();
        RowwiseBlock { num_rows: 0, filled: 0, rows, indirect }
    }

    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// Bytes of both sidecars.
    pub fn bytes(&self) -> usize {
        self.filled + self.indirect.len()
    }

    /// The sidecars: rows, and what their slices point into.
    pub fn into_sidecars(mut self) -> (Vec<u8>, Vec<u8>) {
        self.rows.truncate(self.filled);
        (self.rows, self.indirect)
    }

    /// Appends all rows of a batch, whose columns are those of the layout by position. The sidecars grow
    /// once for a batch or a column; nothing else is allocated.
    ///
    /// # Errors
    /// `Internal` for a batch of other columns.
    pub fn append(&mut self, layout: &RowwiseLayout, batch: &RecordBatch) -> Result<()> {
        check(&layout.columns, batch)?;
        let (start, stride) = (self.filled, layout.stride);
        self.filled += batch.num_rows() * stride;
        self.num_rows += batch.num_rows();
        if self.rows.len() < self.filled {
            self.rows.resize(self.filled, 0);
        }
        let rows = &mut self.rows[start..self.filled];
        if rows.is_empty() {
            return Ok(());
        }
        // What no value is written to is zero.
        match layout.is_dense && batch.columns().iter().all(|array| array.null_count() == 0) {
            true if layout.nulls < stride => {
                rows.chunks_exact_mut(stride).for_each(|row| row[layout.nulls..].fill(0));
            }
            true => {}
            false => rows.fill(0),
        }
        for (i, (column, array)) in layout.columns.iter().zip(batch.columns()).enumerate() {
            let offset = layout.offsets[i];
            if is_slice(column.column_type) {
                put_slices(array, column.column_type, rows, offset, stride, &mut self.indirect);
            } else {
                scatter::fixed(array, column.column_type, rows, offset, stride);
            }
            if let Some(nulls) = array.nulls().filter(|nulls| nulls.null_count() > 0) {
                put_nulls(nulls, rows, layout.nulls + i / 8, stride, 1 << (i % 8));
            }
        }
        Ok(())
    }
}

/// An empty value begins at 0, wherever it is, and null is as empty: a cell of zeros.
fn put_slices(
    array: &dyn Array,
    column_type: ColumnType,
    rows: &mut [u8],
    offset: usize,
    stride: usize,
    indirect: &mut Vec<u8>,
) {
    scatter::append(array, column_type, indirect, rows.chunks_exact_mut(stride), |row, start, len| {
        let start = if len == 0 { 0 } else { start };
        let cell = start as u128 | (len as u128) << 64;
        row[offset..][..SLICE_BYTES].copy_from_slice(&cell.to_le_bytes());
    });
}

fn put_nulls(nulls: &NullBuffer, rows: &mut [u8], offset: usize, stride: usize, mask: u8) {
    for (row, valid) in rows.chunks_exact_mut(stride).zip(nulls.iter()) {
        if !valid {
            row[offset] |= mask;
        }
    }
}

/// The rows of a row-wise answer as an Arrow batch.
///
/// # Errors
/// `Invalid` for another length than that of `num_rows` rows, or a cell that its column cannot hold.
pub fn decode(layout: &RowwiseLayout, num_rows: usize, rows: &[u8], indirect: &Bytes) -> Result<RecordBatch> {
    if num_rows.checked_mul(layout.stride) != Some(rows.len()) {
        let (found, stride) = (rows.len(), layout.stride);
        return Err(Error::invalid(format!("{num_rows} rows of {stride} bytes in a block of {found}")));
    }
    let indirect = Buffer::from(indirect.clone());
    let mut arrays = Vec::with_capacity(layout.columns.len());
    for (i, column) in layout.columns.iter().enumerate() {
        let from = |at: usize| Cells {
            bytes: rows.get(at..).unwrap_or_default(),
            stride: layout.stride,
            rows: num_rows,
        };
        let nulls = column.nullable.then(|| read_nulls(from(layout.nulls + i / 8), 1 << (i % 8)));
        let cells = from(layout.offsets[i]);
        let array = if is_slice(column.column_type) {
            gather::slices(column.column_type, cells, &indirect, nulls)
        } else {
            gather::fixed(column.column_type, cells, nulls)
        };
        arrays.push(array.map_err(|error| error.context(format_args!("column \"{}\"", column.name)))?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
    Ok(RecordBatch::try_new_with_options(arrow_schema(&layout.columns), arrays, &options)?)
}

fn read_nulls(bitmaps: Cells<'_>, mask: u8) -> NullBuffer {
    let valid = bitmaps.bytes.chunks(bitmaps.stride).take(bitmaps.rows).map(|bitmap| bitmap[0] & mask == 0);
    NullBuffer::new(valid.collect::<BooleanBuffer>())
}
