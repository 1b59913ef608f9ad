//! Rows: on their way in, and as the results of scans.

use bytes::Bytes;
use prost::{Enumeration, Message};

/// Operations on rows, or the bounds of ranges, in Kudu's row format; the schema beside it says how to read
/// them.
#[derive(Clone, PartialEq, Message)]
pub struct RowOperations {
    /// Operations one after the other, without alignment.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub rows: Option<Bytes>,
    /// What strings and binaries in `rows` point into.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub indirect_data: Option<Bytes>,
}

/// The byte that each operation in [`RowOperations::rows`] begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum OperationType {
    Unknown = 0,
    Insert = 1,
    Update = 2,
    Delete = 3,
    SplitRow = 4,
    Upsert = 5,
    /// Inclusive.
    RangeLowerBound = 6,
    /// Exclusive.
    RangeUpperBound = 7,
    ExclusiveRangeLowerBound = 8,
    InclusiveRangeUpperBound = 9,
    InsertIgnore = 10,
    UpdateIgnore = 11,
    DeleteIgnore = 12,
    UpsertIgnore = 13,
}

/// Rows of a scan, in the sidecars of these indexes.
#[derive(Clone, PartialEq, Message)]
pub struct RowwiseRowBlock {
    #[prost(int32, optional, tag = "1")]
    pub num_rows: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub rows_sidecar: Option<i32>,
    /// What strings and binaries in the rows point into.
    #[prost(int32, optional, tag = "3")]
    pub indirect_data_sidecar: Option<i32>,
}

/// Rows of a scan, column by column.
#[derive(Clone, PartialEq, Message)]
pub struct ColumnarRowBlock {
    #[prost(message, repeated, tag = "1")]
    pub columns: Vec<ColumnarBlockColumn>,
    #[prost(int64, optional, tag = "2")]
    pub num_rows: Option<i64>,
}

/// A column of a [`ColumnarRowBlock`], in the sidecars of these indexes.
#[derive(Clone, PartialEq, Message)]
pub struct ColumnarBlockColumn {
    /// Cells, or, of strings and binaries, one offset more than there are rows.
    #[prost(int32, optional, tag = "1")]
    pub data_sidecar: Option<i32>,
    /// The bytes between those offsets.
    #[prost(int32, optional, tag = "2")]
    pub varlen_data_sidecar: Option<i32>,
    /// A bit per row that is set where the cell is *not* null. Only if the column is nullable.
    #[prost(int32, optional, tag = "3")]
    pub non_null_bitmap_sidecar: Option<i32>,
}
