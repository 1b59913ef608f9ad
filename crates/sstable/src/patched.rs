//! Rows of an SSTable as its patches have them: what was read of the file, with the values that they give put over it.
//!
//! Of a patch its pages are read, as those of the file are, of the rows that are read. A column that no patch sets costs nothing.

use crate::column::ColumnReader;
use crate::patch::Patch;
use crate::sstable::Sstable;
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanBufferBuilder, Int64Array, PrimitiveArray,
    UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{concat, interleave};
use arrow::datatypes::DataType;
use oribi_types::{ColumnSource, Error, Result, Schema};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What patches say of the rows that are read.
pub(crate) struct Patched {
    /// The oldest first.
    layers: Vec<Layer>,
}

/// What one of them says.
struct Layer {
    patch: Arc<Patch>,
    /// Columns of the batches, and what they are of.
    columns: Vec<(usize, Value)>,
    /// Positions of the columns of the patch that are read, and as what.
    read: Vec<(usize, DataType)>,
    /// The row group that is being read.
    group: Option<(usize, Vec<ColumnReader>)>,
    is_read_ahead: bool,
    bytes_read: Arc<AtomicU64>,
}

enum Value {
    /// That of a column, by its place among those that are read.
    Set(usize),
    Ts,
    TsAsInt64,
}

impl Patched {
    /// What the patches of `sstable` say of the columns at the positions `projection`, and of timestamps behind them. Adds what it
    /// reads to `bytes_read`.
    pub fn of(
        sstable: &Sstable,
        schema: &Schema,
        projection: &[usize],
        with_ts: bool,
        bytes_read: &Arc<AtomicU64>,
    ) -> Result<Self> {
        let layers = sstable.patches.iter().map(|patch| {
            let (mut columns, mut read) = (Vec::new(), Vec::new());
            for (place, position) in projection.iter().enumerate() {
                let column = &schema.columns()[*position];
                if column.source == ColumnSource::CommitTimestamp {
                    columns.push((place, Value::TsAsInt64));
                } else if let Some(stored) = patch.sstable.index().column(column.id) {
                    if !patch.sstable.index().columns[stored].physical.holds(column.column_type) {
                        let what = format!("column \"{}\" is of another type", column.name);
                        return Err(Error::corrupt(format!("sstable {}: {what}", patch.id())));
                    }
                    columns.push((place, Value::Set(read.len())));
                    read.push((stored, schema.arrow().field(*position).data_type().clone()));
                }
            }
            columns.extend(with_ts.then_some((projection.len(), Value::Ts)));
            let (patch, bytes_read) = (Arc::clone(patch), Arc::clone(bytes_read));
            Ok(Layer { patch, columns, read, group: None, is_read_ahead: false, bytes_read })
        });
        let mut layers = layers.collect::<Result<Vec<_>>>()?;
        layers.retain(|layer| !layer.columns.is_empty());
        Ok(Patched { layers })
    }

    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Reads ahead what it comes to from now on, if most of the pages of the file are read.
    pub fn read_ahead(&mut self, are_most: bool) {
        self.layers.iter_mut().for_each(|layer| layer.is_read_ahead = are_most);
    }

    /// Puts over `columns`, which were read of the rows `rows` of the file, what the patches say of them. The rows lie behind those
    /// of the calls before.
    ///
    /// # Errors
    /// `Corrupt`, naming the page; those of the file system.
    pub fn put_over(&mut self, rows: &[Range<usize>], columns: &mut [ArrayRef]) -> Result<()> {
        self.layers.iter_mut().try_for_each(|layer| layer.put_over(rows, columns))
    }
}

impl Layer {
    fn put_over(&mut self, rows: &[Range<usize>], columns: &mut [ArrayRef]) -> Result<()> {
        let (among, places) = self.patch.within(rows);
        if among.is_empty() {
            return Ok(());
        }
        let set = self.read(&places)?;
        for (column, value) in &self.columns {
            let ts = self.patch.ts().0;
            let new: ArrayRef = match value {
                Value::Set(n) => Arc::clone(&set[*n]),
                Value::Ts => Arc::new(UInt64Array::from_value(ts, among.len())),
                Value::TsAsInt64 => Arc::new(Int64Array::from_value(ts as i64, among.len())),
            };
            columns[*column] = replaced(&columns[*column], &among, new)?;
        }
        Ok(())
    }

    /// The columns that are read, of the rows of the patch at these places.
    fn read(&mut self, places: &[Range<usize>]) -> Result<Vec<ArrayRef>> {
        if self.read.is_empty() {
            return Ok(Vec::new());
        }
        let mut parts: Vec<Vec<ArrayRef>> = vec![Vec::new(); self.read.len()];
        let mut left = places.to_vec();
        while let Some(first) = left.first() {
            let index = self.patch.sstable.index();
            let group = index.row_group_of(first.start as u32);
            let end = index.rows_of_group(group).end;
            let (these, others) = split(left, end);
            left = others;
            for (parts, column) in parts.iter_mut().zip(self.open(group)?) {
                parts.push(column.read(&these)?);
            }
        }
        let whole = |parts: Vec<ArrayRef>| match <[ArrayRef; 1]>::try_from(parts) {
            Ok([part]) => Ok(part),
            Err(parts) => Ok(concat(&parts.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>())?),
        };
        parts.into_iter().map(whole).collect()
    }

    /// The columns that are read, in a row group.
    fn open(&mut self, group: usize) -> Result<&mut [ColumnReader]> {
        if self.group.as_ref().is_none_or(|(open, _)| *open != group) {
            let data = &self.patch.sstable.opened.data;
            let column = |(column, data_type): &(usize, DataType)| {
                ColumnReader::open(data, (group, *column), data_type, self.is_read_ahead, &self.bytes_read)
            };
            let columns = self.read.iter().map(column).collect::<Result<_>>()?;
            self.group = Some((group, columns));
        }
        Ok(self.group.as_mut().map_or(&mut [], |(_, columns)| columns))
    }
}

/// Ranges before `end`, and those from there on.
fn split(ranges: Vec<Range<usize>>, end: usize) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    let before = ranges.iter().filter(|range| range.start < end).map(|range| range.start..range.end.min(end));
    let behind = ranges.iter().filter(|range| range.end > end).map(|range| range.start.max(end)..range.end);
    (before.collect(), behind.collect())
}

/// The values of `old`, with others at the positions `among`, which ascend.
fn replaced(old: &ArrayRef, among: &[usize], new: ArrayRef) -> Result<ArrayRef> {
    if among.len() == old.len() {
        return Ok(new);
    }
    macro_rules! overwritten {
        ($native:ty) => {
            Ok(Arc::new(overwritten::<$native>(old.as_primitive(), among, new.as_primitive())))
        };
    }
    // A copy, and a store for each new value.
    arrow::array::downcast_primitive! {
        old.data_type() => (overwritten),
        _ => gathered(old, among, &new)
    }
}

fn overwritten<T: ArrowPrimitiveType>(
    old: &PrimitiveArray<T>,
    among: &[usize],
    new: &PrimitiveArray<T>,
) -> PrimitiveArray<T> {
    let mut values = old.values().to_vec();
    among.iter().zip(new.values()).for_each(|(position, value)| values[*position] = *value);
    let nulls = (old.null_count() + new.null_count() > 0).then(|| {
        let mut valid = BooleanBufferBuilder::new(old.len());
        match old.nulls() {
            Some(nulls) => valid.append_buffer(nulls.inner()),
            None => valid.append_n(old.len(), true),
        }
        among.iter().enumerate().for_each(|(n, position)| valid.set_bit(*position, new.is_valid(n)));
        NullBuffer::new(valid.finish())
    });
    PrimitiveArray::new(values.into(), nulls).with_data_type(old.data_type().clone())
}

/// As [`replaced`], of any type.
fn gathered(old: &ArrayRef, among: &[usize], new: &ArrayRef) -> Result<ArrayRef> {
    let mut places: Vec<(usize, usize)> = (0..old.len()).map(|place| (0, place)).collect();
    for (n, position) in among.iter().enumerate() {
        places[*position] = (1, n);
    }
    Ok(interleave(&[old.as_ref(), new.as_ref()], &places)?)
}
