//! The rows of one answer, in the form that the client wants.

use super::buffers::Buffers;
use super::spec::ScanSpec;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use bytes::Bytes;
use oribi_kudu::blocks::columnar::{COLUMNAR_LAYOUT, ColumnarBlock};
use oribi_kudu::blocks::rowwise::{RowwiseBlock, RowwiseLayout};
use oribi_kudu::messages::common::{ColumnarBlockColumn, ColumnarRowBlock, RowwiseRowBlock};
use oribi_kudu::messages::tserver::ScanResponse;
use oribi_types::Result;

/// The buffers that an answer is given have room for so many times what it may become at most, together: as much as those that
/// it would grow itself.
const BUFFERS_RATIO: usize = 2;

pub(super) enum Block {
    Rows(RowwiseLayout, RowwiseBlock),
    Columns { block: ColumnarBlock, row_bytes: usize },
}

impl Block {
    /// For rows of about `bytes_max`.
    pub fn new(spec: &ScanSpec, buffers: &Buffers, bytes_max: usize) -> Self {
        let mut room = bytes_max.saturating_mul(BUFFERS_RATIO);
        let mut next = 0;
        let mut take = || {
            next += 1;
            buffers.take(next - 1, &mut room)
        };
        let layout = RowwiseLayout::new(spec.columns.clone(), spec.format);
        if spec.format & COLUMNAR_LAYOUT == 0 {
            return Block::Rows(layout, RowwiseBlock::with_buffers(take(), take()));
        }
        let block = ColumnarBlock::with_buffers(spec.columns.clone(), take);
        Block::Columns { block, row_bytes: layout.stride() }
    }

    pub fn rows(&self) -> usize {
        match self {
            Block::Rows(_, block) => block.num_rows(),
            Block::Columns { block, .. } => block.num_rows(),
        }
    }

    pub fn bytes(&self) -> usize {
        match self {
            Block::Rows(_, block) => block.bytes(),
            Block::Columns { block, .. } => block.bytes(),
        }
    }

    /// How many rows of a batch of the returned columns fit into so many bytes; at least one.
    pub fn rows_within(&self, batch: &RecordBatch, bytes_max: usize) -> usize {
        let stride = match self {
            Block::Rows(layout, _) => layout.stride(),
            Block::Columns { row_bytes, .. } => *row_bytes,
        };
        let lengths: Vec<&[u128]> = batch.columns().iter().filter_map(|array| views(array)).collect();
        if lengths.is_empty() {
            return (bytes_max / stride.max(1)).clamp(1, batch.num_rows());
        }
        // Most batches fit, and a sum needs no look at each row.
        let sum = |views: &&[u128]| views.iter().map(|view| u64::from(*view as u32)).sum::<u64>();
        let all = (stride * batch.num_rows()) as u64 + lengths.iter().map(sum).sum::<u64>();
        if all <= bytes_max as u64 {
            return batch.num_rows();
        }
        let mut bytes = 0;
        let fitting = (0..batch.num_rows()).take_while(|&row| {
            // The lower half of a view is the length of its string.
            bytes += stride + lengths.iter().map(|views| views[row] as u32 as usize).sum::<usize>();
            bytes <= bytes_max
        });
        fitting.count().clamp(1, batch.num_rows())
    }

    pub fn append(&mut self, batch: &RecordBatch) -> Result<()> {
        match self {
            Block::Rows(layout, block) => block.append(layout, batch),
            Block::Columns { block, .. } => block.append(batch),
        }
    }

    /// Puts the rows into an answer; returns its sidecars.
    pub fn finish(self, buffers: &Buffers, response: &mut ScanResponse) -> Vec<Bytes> {
        match self {
            Block::Rows(_, block) => {
                response.data = Some(RowwiseRowBlock {
                    num_rows: Some(block.num_rows() as i32),
                    rows_sidecar: Some(0),
                    indirect_data_sidecar: Some(1),
                });
                let (rows, indirect) = block.into_sidecars();
                vec![buffers.fill(0, rows), buffers.fill(1, indirect)]
            }
            Block::Columns { block, .. } => {
                let num_rows = Some(block.num_rows() as i64);
                let mut sidecars: Vec<Bytes> = Vec::new();
                let mut put = |bytes: Vec<u8>| {
                    sidecars.push(buffers.fill(sidecars.len(), bytes));
                    Some(sidecars.len() as i32 - 1)
                };
                let columns = block.into_sidecars().into_iter().map(|column| ColumnarBlockColumn {
                    data_sidecar: put(column.data),
                    varlen_data_sidecar: column.varlen.and_then(&mut put),
                    non_null_bitmap_sidecar: column.non_null.and_then(&mut put),
                });
                response.columnar_data = Some(ColumnarRowBlock { columns: columns.collect(), num_rows });
                sidecars
            }
        }
    }
}

/// The views of an array of strings or bytes.
fn views(array: &dyn Array) -> Option<&[u128]> {
    match array.data_type() {
        DataType::Utf8View => Some(array.as_string_view().views()),
        DataType::BinaryView => Some(array.as_binary_view().views()),
        _ => None,
    }
}
