//! Columnar blocks: up to three sidecars for each column.
//!
//! - `data`: the cells one behind the other, a boolean in one byte, null as zeros; for strings and bytes the offsets of
//!   their values in `varlen`, one more than there are rows, each a `u32`.
//! - `varlen`: the strings' bytes.
//! - `non_null`: if the column is nullable, a bit for each row, least significant first: here 1 means *not* null, the
//!   opposite of row-wise blocks and row operations.

use super::gather::{self, Cells};
use super::sidecar::Sidecar;
use super::{arrow_schema, check, scatter};
use crate::cell::{cell_bytes, is_slice};
use crate::column::WireColumn;
use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use bytes::Bytes;
use oribi_types::{Error, Result};

/// Bit of a scan's row format flags: the answer may be columnar.
pub const COLUMNAR_LAYOUT: u64 = 2;

const OFFSET_BYTES: usize = 4;

/// The sidecars of one column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnSidecars<B> {
    pub data: B,
    /// Of strings and bytes.
    pub varlen: Option<B>,
    /// Of a nullable column.
    pub non_null: Option<B>,
}

/// A columnar answer that batches are appended to.
#[derive(Clone, Debug)]
pub struct ColumnarBlock {
    columns: Vec<WireColumn>,
    num_rows: usize,
    sidecars: Vec<ColumnSidecars<Sidecar>>,
}

impl ColumnarBlock {
    pub fn new(columns: Vec<WireColumn>) -> Self {
        ColumnarBlock::with_buffers(columns, Vec::new)
    }

    /// As [`new`](Self::new), with the sidecars in the memory of buffers from `buffer`, whatever is in them; it is asked
    /// in the order of the sidecars: of each column `data`, `varlen`, `non_null`.
    pub fn with_buffers(columns: Vec<WireColumn>, mut buffer: impl FnMut() -> Vec<u8>) -> Self {
        let sidecars = |column: &WireColumn| {
            let slices = is_slice(column.column_type);
            let mut sidecar = || Sidecar::new(buffer());
            let mut data = sidecar();
            if slices {
                // The first value begins where the strings do.
                data.grow(OFFSET_BYTES).fill(0);
            }
            ColumnSidecars {
                data,
                varlen: slices.then(&mut sidecar),
                non_null: column.nullable.then(&mut sidecar),
            }
        };
        let sidecars = columns.iter().map(sidecars).collect();
        ColumnarBlock { columns, num_rows: 0, sidecars }
    }

    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// Bytes of all sidecars.
    pub fn bytes(&self) -> usize {
        let bytes_of = |sidecars: &ColumnSidecars<Sidecar>| {
            let optional = [&sidecars.varlen, &sidecars.non_null];
            sidecars.data.len() + optional.into_iter().flatten().map(Sidecar::len).sum::<usize>()
        };
        self.sidecars.iter().map(bytes_of).sum()
    }

    /// The sidecars, by column.
    pub fn into_sidecars(self) -> Vec<ColumnSidecars<Vec<u8>>> {
        let finish = |sidecars: ColumnSidecars<Sidecar>| ColumnSidecars {
            data: sidecars.data.finish(),
            varlen: sidecars.varlen.map(Sidecar::finish),
            non_null: sidecars.non_null.map(Sidecar::finish),
        };
        self.sidecars.into_iter().map(finish).collect()
    }

    /// Appends all rows of a batch, whose columns are those of the block by position. Per batch each sidecar grows
    /// once; nothing else is allocated.
    ///
    /// # Errors
    /// `Internal` for a batch of other columns; `TooLarge` if a column's strings would take more than 4 GiB. The block is
    /// not to be used after an error.
    pub fn append(&mut self, batch: &RecordBatch) -> Result<()> {
        check(&self.columns, batch)?;
        for ((column, sidecars), array) in self.columns.iter().zip(&mut self.sidecars).zip(batch.columns()) {
            match &mut sidecars.varlen {
                Some(varlen) => append_slices(column, array, &mut sidecars.data, varlen)?,
                None => append_cells(column, array, &mut sidecars.data),
            }
            if let Some(non_null) = &mut sidecars.non_null {
                append_bits(non_null, self.num_rows, array);
            }
        }
        self.num_rows += batch.num_rows();
        Ok(())
    }
}

fn append_cells(column: &WireColumn, array: &ArrayRef, data: &mut Sidecar) {
    if let Some(cells) = scatter::dense(array, column.column_type) {
        return data.append(cells);
    }
    let width = cell_bytes(column.column_type);
    let cells = data.grow(array.len() * width);
    if array.null_count() > 0 {
        cells.fill(0);
    }
    scatter::fixed(array, column.column_type, cells, 0, width);
}

/// Appends an offset for each row: where its value ends and the next begins.
fn append_slices(
    column: &WireColumn,
    array: &ArrayRef,
    offsets: &mut Sidecar,
    varlen: &mut Sidecar,
) -> Result<()> {
    let bytes = scatter::variable_bytes(array, column.column_type);
    if u32::try_from(varlen.len() + bytes).is_err() {
        return Err(Error::too_large(format!("column \"{}\" has more than 4 GiB in a block", column.name)));
    }
    let ends = offsets.grow(array.len() * OFFSET_BYTES).as_chunks_mut().0.iter_mut();
    scatter::append(array, column.column_type, varlen, ends, |end, start, len| {
        *end = ((start + len) as u32).to_le_bytes();
    });
    Ok(())
}

/// Appends a bit for each row, behind those of `rows`: 1 if it is not null.
fn append_bits(bits: &mut Sidecar, rows: usize, array: &ArrayRef) {
    let end = rows + array.len();
    bits.grow(end.div_ceil(8) - bits.len()).fill(0);
    let bits = bits.written();
    match array.nulls() {
        // All are there: whole bytes but for the first and the last.
        None => {
            let first = (rows.next_multiple_of(8)).min(end);
            (rows..first).for_each(|i| bits[i / 8] |= 1 << (i % 8));
            bits[first / 8..end / 8].fill(0xff);
            ((end / 8 * 8).max(first)..end).for_each(|i| bits[i / 8] |= 1 << (i % 8));
        }
        Some(nulls) => {
            for i in nulls.valid_indices().map(|i| rows + i) {
                bits[i / 8] |= 1 << (i % 8);
            }
        }
    }
}

/// The rows of a columnar answer as an Arrow batch. Its strings share the sidecars.
///
/// # Errors
/// `Invalid` for a sidecar that is missing or of another length than `num_rows` rows have, or a value that its column
/// cannot hold.
pub fn decode(
    columns: &[WireColumn],
    num_rows: usize,
    sidecars: &[ColumnSidecars<Bytes>],
) -> Result<RecordBatch> {
    if sidecars.len() != columns.len() {
        return Err(Error::invalid(format!("{} columns instead of {}", sidecars.len(), columns.len())));
    }
    let mut arrays = Vec::with_capacity(columns.len());
    for (column, sidecars) in columns.iter().zip(sidecars) {
        let array = decode_column(column, num_rows, sidecars);
        arrays.push(array.map_err(|error| error.context(format_args!("column \"{}\"", column.name)))?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
    Ok(RecordBatch::try_new_with_options(arrow_schema(columns), arrays, &options)?)
}

fn decode_column(column: &WireColumn, num_rows: usize, sidecars: &ColumnSidecars<Bytes>) -> Result<ArrayRef> {
    let nulls = match (&sidecars.non_null, column.nullable) {
        (_, false) => None,
        (Some(bits), true) if bits.len() == num_rows.div_ceil(8) => {
            Some(NullBuffer::new(BooleanBuffer::new(Buffer::from(bits.clone()), 0, num_rows)))
        }
        _ => return Err(Error::invalid(format!("no bitmap of {num_rows} rows"))),
    };
    let slices = is_slice(column.column_type);
    let width = if slices { OFFSET_BYTES } else { cell_bytes(column.column_type) };
    let cells = num_rows.checked_add(usize::from(slices));
    if cells.and_then(|n| n.checked_mul(width)) != Some(sidecars.data.len()) {
        return Err(Error::invalid(format!("{} bytes of data for {num_rows} rows", sidecars.data.len())));
    }
    if !slices {
        let cells = Cells { bytes: &sidecars.data, stride: width, rows: num_rows };
        return gather::fixed(column.column_type, cells, nulls);
    }
    let varlen = sidecars.varlen.as_ref().ok_or_else(|| Error::invalid("strings without a sidecar"))?;
    gather::variable(column.column_type, &sidecars.data, Buffer::from(varlen.clone()), nulls)
}
