//! Row-wise blocks: one row behind the other, without padding.
//!
//! ```text
//! cells       of the projected columns, in their order; a slice points into the indirect sidecar
//! u8 null[⌈columns/8⌉]   only if any projected column is nullable; bit i (least significant first): column i is null
//! ```
//! All rows have the same length, and null has a cell too, of zeros. With [`PAD_UNIXTIME`] a timestamp takes 16
//! bytes, the last 8 of them zero.

use super::gather::{self, Cells};
use super::sidecar::Sidecar;
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
#[derive(Clone, Debug, Default)]
pub struct RowwiseBlock {
    num_rows: usize,
    rows: Sidecar,
    indirect: Sidecar,
}

/// Bytes of rows whose columns are written one after the other: half of a processor's first cache, of which the values come through
/// the rest. (Three columns of numbers and a text took 12.1 ns a row so, and 16.2 ns where all of a batch was a turn.) Texts of two
/// columns change places in the other sidecar with each turn: who [decodes](decode) copies them then.
const TURN_BYTES: usize = 16 << 10;
const TURN_ROWS_MIN: usize = 64;
/// A bitmap of more bytes is cleared row by row.
const STRIDED_NULLS_MAX: usize = 2;

impl RowwiseBlock {
    /// A block without rows, which has its sidecars in the memory of these buffers. What is in them need not be cleared.
    pub fn with_buffers(rows: Vec<u8>, indirect: Vec<u8>) -> Self {
        RowwiseBlock { num_rows: 0, rows: Sidecar::new(rows), indirect: Sidecar::new(indirect) }
    }

    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// Bytes of both sidecars.
    pub fn bytes(&self) -> usize {
        self.rows.len() + self.indirect.len()
    }

    /// The sidecars: rows, and what their slices point into.
    pub fn into_sidecars(self) -> (Vec<u8>, Vec<u8>) {
        (self.rows.finish(), self.indirect.finish())
    }

    /// Appends all rows of a batch, whose columns are those of the layout by position. Nothing is allocated for a row: rows grow once
    /// for the batch, what slices point into some times.
    ///
    /// # Errors
    /// `Internal` for a batch of other columns.
    pub fn append(&mut self, layout: &RowwiseLayout, batch: &RecordBatch) -> Result<()> {
        check(&layout.columns, batch)?;
        let rows = batch.num_rows();
        self.num_rows += rows;
        self.rows.reserve(rows * layout.stride);
        let turn_rows = (TURN_BYTES / layout.stride.max(1)).max(TURN_ROWS_MIN);
        if rows <= turn_rows {
            self.append_turn(layout, batch);
            return Ok(());
        }
        for first in (0..rows).step_by(turn_rows) {
            self.append_turn(layout, &batch.slice(first, turn_rows.min(rows - first)));
        }
        Ok(())
    }

    /// Appends rows that [`check`] has passed.
    fn append_turn(&mut self, layout: &RowwiseLayout, batch: &RecordBatch) {
        let stride = layout.stride;
        let rows = self.rows.grow(batch.num_rows() * stride);
        if rows.is_empty() {
            return;
        }
        // What no value is written to is zero.
        match layout.is_dense && batch.columns().iter().all(|array| array.null_count() == 0) {
            true if stride - layout.nulls <= STRIDED_NULLS_MAX => {
                (layout.nulls..stride).for_each(|at| scatter::zeros(rows, at, stride));
            }
            true => rows.chunks_exact_mut(stride).for_each(|row| row[layout.nulls..].fill(0)),
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
    }
}

/// An empty value begins at 0, wherever it is, and null is as empty: a cell of zeros.
fn put_slices(
    array: &dyn Array,
    column_type: ColumnType,
    rows: &mut [u8],
    offset: usize,
    stride: usize,
    indirect: &mut Sidecar,
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
