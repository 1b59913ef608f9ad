//! How values of a type are added, and a sum of them divided.

use super::Types;
use crate::number::decimal::{self, DIGITS_MAX, Shape};
use crate::number::{numeric_overflow, out_of_range, overflow};
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Float32Type, Float64Type, Int64Type};
use arrow::error::ArrowError;
use oribi_types::value::has_digits;
use std::fmt::Debug;

/// How values are added, and a sum divided.
pub(super) trait Adding: Debug + Send + Sync + Sized + 'static {
    type Arrow: ArrowPrimitiveType<Native: Send> + Send;
    /// What sums begin with: what any value is added to without becoming another. Averages begin with 0.
    fn zero(_average: bool) -> Native<Self> {
        Native::<Self>::default()
    }
    /// Adds `value`; whether the sum is beyond its type then.
    fn add(sum: &mut Native<Self>, value: Native<Self>) -> bool;
    fn overflow() -> ArrowError;
    /// The average; `count` is not 0.
    fn average(sum: Native<Self>, count: i64, types: &Types) -> Result<Native<Self>, ArrowError>;
    /// What tells values apart, where they are to be distinct.
    fn identity(value: Native<Self>) -> i128;
    /// Takes `value` away again; `false` if that does not give what the sum was before.
    fn subtract(sum: &mut Native<Self>, value: Native<Self>) -> bool;
}

pub(super) type Native<A> = <<A as Adding>::Arrow as ArrowPrimitiveType>::Native;

/// Of `smallint` and `integer`, as `bigint`.
#[derive(Debug)]
pub(super) struct Integers;
#[derive(Debug)]
pub(super) struct Reals;
#[derive(Debug)]
pub(super) struct Doubles;
/// Whose sum has room for as many rows as there can be.
#[derive(Debug)]
pub(super) struct RoomyDecimals;
#[derive(Debug)]
pub(super) struct Decimals;

impl Adding for Integers {
    type Arrow = Int64Type;

    #[inline]
    fn add(sum: &mut i64, value: i64) -> bool {
        let (added, overflown) = sum.overflowing_add(value);
        *sum = added;
        overflown
    }

    fn overflow() -> ArrowError {
        out_of_range("bigint")
    }

    fn average(_sum: i64, _count: i64, _types: &Types) -> Result<i64, ArrowError> {
        unreachable!("for an average integers are cast to decimals")
    }

    fn identity(value: i64) -> i128 {
        i128::from(value)
    }

    fn subtract(sum: &mut i64, value: i64) -> bool {
        *sum = sum.wrapping_sub(value);
        true
    }
}

macro_rules! floats {
    ($adding:ty, $arrow:ty, $native:ty) => {
        impl Adding for $adding {
            type Arrow = $arrow;

            fn zero(average: bool) -> $native {
                if average { 0.0 } else { -0.0 }
            }

            #[inline]
            fn add(sum: &mut $native, value: $native) -> bool {
                let added = *sum + value;
                let overflown = added.is_infinite() && !sum.is_infinite() && !value.is_infinite();
                *sum = if added.is_nan() { <$native>::NAN } else { added };
                overflown
            }

            fn overflow() -> ArrowError {
                overflow()
            }

            fn average(sum: $native, count: i64, _types: &Types) -> Result<$native, ArrowError> {
                Ok(sum / count as $native)
            }

            fn identity(value: $native) -> i128 {
                let value = f64::from(value);
                let same = if value.is_nan() { f64::NAN } else { value + 0.0 };
                i128::from(same.to_bits())
            }

            fn subtract(_sum: &mut $native, _value: $native) -> bool {
                false
            }
        }
    };
}

floats!(Reals, Float32Type, f32);
floats!(Doubles, Float64Type, f64);

macro_rules! decimals {
    ($adding:ty, $add:expr) => {
        impl Adding for $adding {
            type Arrow = Decimal128Type;

            #[inline]
            fn add(sum: &mut i128, value: i128) -> bool {
                let add: fn(&mut i128, i128) -> bool = $add;
                add(sum, value)
            }

            fn overflow() -> ArrowError {
                numeric_overflow()
            }

            fn average(sum: i128, count: i64, types: &Types) -> Result<i128, ArrowError> {
                let scale = |data_type: &DataType| Shape::of(data_type).map_or(0, |shape| shape.scale);
                let power = scale(&types.result).saturating_sub(scale(&types.argument));
                decimal::divide(sum, power, i128::from(count))
            }

            fn identity(value: i128) -> i128 {
                value
            }

            fn subtract(sum: &mut i128, value: i128) -> bool {
                *sum = sum.wrapping_sub(value);
                true
            }
        }
    };
}

decimals!(RoomyDecimals, |sum, value| {
    *sum = sum.wrapping_add(value);
    false
});
decimals!(Decimals, |sum, value| {
    // A sum of two numbers of 38 digits has 39 if it does not fit, wrapped around or not.
    *sum = sum.wrapping_add(value);
    let overflown = !has_digits(*sum, DIGITS_MAX);
    if overflown {
        *sum = 0;
    }
    overflown
});

/// The values of a batch, as they are added.
pub(super) fn values<A: Adding>(array: &ArrayRef) -> Result<PrimitiveArray<A::Arrow>, ArrowError> {
    if array.data_type() == &DataType::Int32 {
        return Ok(cast(array, &DataType::Int64)?.as_primitive().clone());
    }
    Ok(array.as_primitive().clone())
}
