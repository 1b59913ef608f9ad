//! Ranges, and the bounds and split rows that a client states them by.
//!
//! Bounds come in pairs, lower then upper; a split row divides the range that it lies in. A bound that sets no range
//! column is no bound at all. One that sets some has the least value in the others. Kudu's ranges are inclusive below
//! and exclusive above, so the opposite kinds of bounds are moved to the next key.

use super::TABLETS_MAX;
use crate::key::encode_component;
use crate::row_operations::{OperationReader, OperationType, RowOperation};
use oribi_types::{ColumnType, Error, Result, Value};

/// The most bytes of the range keys of one request: what a row of it names may be far longer than the row.
const KEYS_BYTES_MAX: usize = 16 << 20;

/// An interval of encoded range keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// Inclusive; empty if unbounded.
    pub lower: Vec<u8>,
    /// Exclusive; empty if unbounded.
    pub upper: Vec<u8>,
}

impl Range {
    pub fn contains(&self, range_key: &[u8]) -> bool {
        self.lower.as_slice() <= range_key && (self.upper.is_empty() || range_key < self.upper.as_slice())
    }
}

/// Makes range keys of a table.
#[derive(Clone, Copy, Debug)]
pub struct RangeKeys<'s> {
    /// Types of the key columns.
    pub(super) key: &'s [ColumnType],
    /// Positions in the key of the range columns.
    pub(super) columns: &'s [usize],
}

/// A bound's values, one per range column; `None` where it sets none.
type Values = Vec<Option<Value>>;

impl RangeKeys<'_> {
    /// The ranges that bounds and split rows describe, in order. The columns of `operations` begin with the key's.
    /// Without bounds there is one unbounded range to be split.
    ///
    /// # Errors
    /// `Invalid` for bounds that do not come in pairs, hold no keys or overlap, for split rows that lie in no range or
    /// stand twice, for values outside of the range columns, and for a table without range columns; `TooLarge`, before more
    /// is read, beyond [`TABLETS_MAX`] ranges or 16 MiB of range keys: values may lie over each other in the request.
    pub fn ranges(&self, operations: &mut OperationReader<'_, '_>) -> Result<Vec<Range>> {
        let (mut ranges, mut splits) = (Vec::new(), Vec::new());
        let mut lower: Option<Vec<u8>> = None;
        let mut keys_bytes = 0;
        while let Some(operation) = operations.read()? {
            let index = operation.index;
            let key = self.bound(&operation).map_err(|error| error.context(format_args!("row {index}")))?;
            keys_bytes += key.len();
            if ranges.len() + splits.len() >= TABLETS_MAX || keys_bytes > KEYS_BYTES_MAX {
                return Err(Error::too_large(format!(
                    "row {index}: a table has at most {TABLETS_MAX} tablets, with bounds of {KEYS_BYTES_MAX} bytes"
                )));
            }
            match (operation.operation_type, lower.take()) {
                (OperationType::SplitRow, None) => splits.push(key),
                (OperationType::RangeLowerBound | OperationType::ExclusiveRangeLowerBound, None) => {
                    lower = Some(key)
                }
                (OperationType::RangeUpperBound | OperationType::InclusiveRangeUpperBound, Some(lower)) => {
                    ranges.push(Range { lower, upper: key })
                }
                _ => {
                    return Err(Error::invalid(format!(
                        "row {index}: range bounds come in pairs, the lower one first"
                    )));
                }
            }
        }
        if lower.is_some() {
            return Err(Error::invalid("the last range has no upper bound"));
        }
        if ranges.is_empty() {
            ranges.push(Range::default());
        }
        ranges.sort_unstable();
        check_disjoint(ranges.iter())?;
        splits.sort_unstable();
        divide(ranges, &splits)
    }

    /// The encoded range key that an operation states, as a lower bound inclusive, as an upper one exclusive.
    fn bound(&self, operation: &RowOperation<'_, '_>) -> Result<Vec<u8>> {
        let mut values = self.values(operation)?;
        let unset = values.iter().all(Option::is_none);
        match operation.operation_type {
            OperationType::SplitRow if unset => {
                return Err(Error::invalid("a split row sets no range column"));
            }
            OperationType::ExclusiveRangeLowerBound if !self.increment(&mut values) => {
                return Err(Error::invalid("no key is above the greatest"));
            }
            // Up to and with the greatest key is unbounded; and so is what was not bounded at all.
            OperationType::InclusiveRangeUpperBound if unset || !self.increment(&mut values) => {
                return Ok(Vec::new());
            }
            OperationType::RangeUpperBound if unset => return Ok(Vec::new()),
            _ => {}
        }
        let key = self.encode(&values)?;
        if operation.operation_type == OperationType::RangeUpperBound && key.is_empty() {
            return Err(Error::invalid("no key is below the least"));
        }
        Ok(key)
    }

    fn values(&self, operation: &RowOperation<'_, '_>) -> Result<Values> {
        for (i, value) in operation.values.iter().enumerate() {
            if value.is_some() && !self.columns.contains(&i) {
                return Err(Error::invalid(format!("column {i} is not one that ranges are made of")));
            }
        }
        let value = |column: &usize| operation.values.get(*column).copied().flatten().map(|v| v.to_owned());
        Ok(self.columns.iter().map(value).collect())
    }

    /// Moves a range key to the next one: the last column that has a next value gets it, those after it begin anew.
    /// False if all have their greatest value.
    fn increment(&self, values: &mut Values) -> bool {
        for i in (0..values.len()).rev() {
            let column_type = self.key[self.columns[i]];
            let value = values[i].take().unwrap_or_else(|| least(column_type));
            if let Some(next) = next(column_type, value) {
                values[i] = Some(next);
                return true;
            }
        }
        false
    }

    /// Empty if no value is set.
    fn encode(&self, values: &Values) -> Result<Vec<u8>> {
        let mut key = Vec::new();
        if values.iter().all(Option::is_none) {
            return Ok(key);
        }
        for (i, (value, column)) in values.iter().zip(self.columns).enumerate() {
            let column_type = self.key[*column];
            let value = value.clone().unwrap_or_else(|| least(column_type));
            encode_component(column_type, value.as_ref(), i + 1 == values.len(), &mut key)?;
        }
        Ok(key)
    }
}

/// Checks that ranges hold keys and do not overlap; they may come in any order.
pub(super) fn check_disjoint<'r>(ranges: impl Iterator<Item = &'r Range>) -> Result<()> {
    let mut sorted: Vec<&Range> = ranges.collect();
    sorted.sort_unstable();
    for range in &sorted {
        if !range.upper.is_empty() && range.lower >= range.upper {
            return Err(Error::invalid("a range's lower bound must be less than its upper bound"));
        }
    }
    let overlap = |pair: &[&Range]| pair[0].upper.is_empty() || pair[0].upper > pair[1].lower;
    if sorted.windows(2).any(overlap) {
        return Err(Error::invalid("ranges overlap"));
    }
    Ok(())
}

/// Cuts `ranges` at `splits`; both are in order.
fn divide(ranges: Vec<Range>, splits: &[Vec<u8>]) -> Result<Vec<Range>> {
    if splits.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::invalid("a split row stands twice"));
    }
    let mut splits = splits.iter().peekable();
    let mut divided = Vec::with_capacity(ranges.len() + splits.len());
    for Range { mut lower, upper } in ranges {
        // A range that began at a split row would be empty before it.
        while let Some(split) = splits.next_if(|s| **s > lower && (upper.is_empty() || **s < upper)) {
            divided.push(Range { lower: std::mem::replace(&mut lower, split.clone()), upper: split.clone() });
        }
        divided.push(Range { lower, upper });
    }
    match splits.next() {
        Some(_) => Err(Error::invalid("a split row lies outside of all ranges or on a bound")),
        None => Ok(divided),
    }
}

/// The least value of a key type, as a bound has it in the columns that it does not set.
fn least(column_type: ColumnType) -> Value {
    match column_type {
        ColumnType::Int8 => Value::Int8(i8::MIN),
        ColumnType::Int16 => Value::Int16(i16::MIN),
        ColumnType::Int32 => Value::Int32(i32::MIN),
        ColumnType::Int64 => Value::Int64(i64::MIN),
        // Kudu's own least decimal is the cell's, of more digits than the column has: no row lies between the two.
        ColumnType::Decimal { precision, .. } => Value::Decimal(-digits_max(precision)),
        ColumnType::String | ColumnType::Json => Value::String(String::new()),
        ColumnType::Binary => Value::Binary(Vec::new()),
        ColumnType::Date => Value::Date(i32::MIN),
        ColumnType::Timestamp => Value::Timestamp(i64::MIN),
        ColumnType::Uuid => Value::Uuid([0; 16]),
        ColumnType::Bool | ColumnType::Float | ColumnType::Double => unreachable!("not a key type of Kudu"),
    }
}

/// The value that follows, with none between; `None` after the greatest.
fn next(column_type: ColumnType, value: Value) -> Option<Value> {
    Some(match value {
        Value::Int8(v) => Value::Int8(v.checked_add(1)?),
        Value::Int16(v) => Value::Int16(v.checked_add(1)?),
        Value::Int32(v) => Value::Int32(v.checked_add(1)?),
        Value::Int64(v) => Value::Int64(v.checked_add(1)?),
        Value::Date(v) => Value::Date(v.checked_add(1)?),
        Value::Timestamp(v) => Value::Timestamp(v.checked_add(1)?),
        Value::Decimal(v) => {
            let ColumnType::Decimal { precision, .. } = column_type else { return None };
            Value::Decimal(Some(v + 1).filter(|next| *next <= digits_max(precision))?)
        }
        Value::String(v) => Value::String(v + "\0"),
        Value::Binary(mut v) => {
            v.push(0);
            Value::Binary(v)
        }
        Value::Uuid(v) => Value::Uuid(u128::from_be_bytes(v).checked_add(1)?.to_be_bytes()),
        Value::Null | Value::Bool(_) | Value::Float(_) | Value::Double(_) | Value::Json(_) => return None,
    })
}

/// The greatest integer of so many decimal digits.
fn digits_max(digits: u8) -> i128 {
    10_i128.pow(u32::from(digits)) - 1
}
