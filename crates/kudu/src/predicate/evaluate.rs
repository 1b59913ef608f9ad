//! Tests over a whole Arrow column.

use super::bloom::BlockBloomFilter;
use super::{Test, ValueRange, compare};
use arrow::array::{Array, ArrayRef, BooleanArray, Scalar};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::cmp;
use arrow::compute::{and, is_not_null, is_null, prep_null_mask_filter};
use oribi_types::batch::{ColumnBuilder, value_at};
use oribi_types::{ColumnType, Error, Result, Value, ValueRef};
use std::cmp::Ordering;

impl Test {
    /// For each row of `array`, whose Arrow type is that of `column_type`, whether its value passes. The answer has
    /// no nulls.
    ///
    /// # Errors
    /// `Internal` for an array of another type.
    pub fn evaluate(&self, column_type: ColumnType, array: &dyn Array) -> Result<BooleanArray> {
        if *array.data_type() != column_type.arrow() {
            return Err(Error::internal(format!(
                "a predicate on {column_type} over an array of {}",
                array.data_type()
            )));
        }
        // Arrow orders floats totally, so that -0 is below 0 and NaN above all; Kudu compares them as numbers.
        let floats = matches!(column_type, ColumnType::Float | ColumnType::Double);
        Ok(match self {
            Test::Nothing => BooleanArray::from(BooleanBuffer::new_unset(array.len())),
            Test::IsNull => is_null(array)?,
            Test::IsNotNull => is_not_null(array)?,
            Test::Equality(value) if floats => {
                each(array, column_type, |v| compare(v, value.as_ref()) == Some(Ordering::Equal))
            }
            Test::Equality(value) => without_nulls(cmp::eq(&array, &scalar(column_type, value)?)?),
            Test::Range(range) if floats => each(array, column_type, |v| range.contains(v)),
            Test::Range(range) => within(range, column_type, array)?,
            Test::InList(values) => each(array, column_type, |v| {
                // NaN stands in no order; it is in no list.
                let order = |listed: &Value| compare(listed.as_ref(), v).unwrap_or(Ordering::Less);
                values.binary_search_by(order).is_ok()
            }),
            Test::InBloomFilter(filters, range) => {
                each(array, column_type, |v| range.contains(v) && in_all(filters, column_type, v))
            }
        })
    }
}

fn within(range: &ValueRange, column_type: ColumnType, array: &dyn Array) -> Result<BooleanArray> {
    let lower = range.lower.as_ref().map(|v| Ok::<_, Error>(cmp::gt_eq(&array, &scalar(column_type, v)?)?));
    let upper = range.upper.as_ref().map(|v| Ok::<_, Error>(cmp::lt(&array, &scalar(column_type, v)?)?));
    Ok(match (lower.transpose()?, upper.transpose()?) {
        (Some(lower), Some(upper)) => without_nulls(and(&lower, &upper)?),
        (Some(one), None) | (None, Some(one)) => without_nulls(one),
        (None, None) => is_not_null(array)?,
    })
}

fn in_all(filters: &[BlockBloomFilter], column_type: ColumnType, value: ValueRef<'_>) -> bool {
    filters.iter().all(|filter| filter.contains(column_type, value))
}

fn each(array: &dyn Array, column_type: ColumnType, test: impl Fn(ValueRef<'_>) -> bool) -> BooleanArray {
    let passes = |i| match value_at(array, column_type, i) {
        ValueRef::Null => false,
        value => test(value),
    };
    BooleanArray::from(BooleanBuffer::collect_bool(array.len(), passes))
}

fn scalar(column_type: ColumnType, value: &Value) -> Result<Scalar<ArrayRef>> {
    let mut builder = ColumnBuilder::new(column_type);
    builder.push(value.as_ref());
    Ok(Scalar::new(builder.finish(column_type)?))
}

/// Null is no pass.
fn without_nulls(passes: BooleanArray) -> BooleanArray {
    if passes.null_count() == 0 { passes } else { prep_null_mask_filter(&passes) }
}
