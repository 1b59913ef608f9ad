//! How values of a fixed width are read and stored.

use super::bits::{self, Integer};
use super::slots::mix;
use crate::value::Encoding;
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, UInt64Type,
};
use std::ops::Range;

/// One way. A value is its bits.
pub trait Layout: Send + 'static {
    type Value: Copy + Default + PartialEq + Send;

    /// Appends the values of `rows`, none of which is null.
    fn read(&self, array: &ArrayRef, rows: Range<usize>, values: &mut Vec<Self::Value>);

    fn hash(value: Self::Value) -> u64;

    /// Appends it plain.
    fn plain(&self, value: Self::Value, out: &mut Vec<u8>);

    /// The least and the greatest of those that have an order.
    fn bounds(&self, values: &[Self::Value]) -> Option<(Self::Value, Self::Value)>;

    /// Appends what is in no dictionary.
    fn encode(&self, values: &[Self::Value], out: &mut Vec<u8>) -> Encoding {
        values.iter().for_each(|value| self.plain(*value, out));
        Encoding::Plain
    }
}

/// Numbers of 32 or 64 bits.
pub struct Integers<T> {
    /// The exclusive or with it has the order: of numbers without a sign the sign.
    pub flip: T,
}

fn extend<P: ArrowPrimitiveType, T>(
    array: &ArrayRef,
    rows: Range<usize>,
    values: &mut Vec<T>,
    of: impl Fn(P::Native) -> T,
) {
    values.extend(array.as_primitive::<P>().values()[rows].iter().map(|value| of(*value)));
}

impl Layout for Integers<i32> {
    type Value = i32;

    fn read(&self, array: &ArrayRef, rows: Range<usize>, values: &mut Vec<i32>) {
        match array.data_type() {
            DataType::Int8 => extend::<Int8Type, _>(array, rows, values, i32::from),
            DataType::Int16 => extend::<Int16Type, _>(array, rows, values, i32::from),
            DataType::Date32 => extend::<Date32Type, _>(array, rows, values, |value| value),
            // So many digits fit.
            DataType::Decimal128(..) => {
                extend::<Decimal128Type, _>(array, rows, values, |value| value as i32)
            }
            _ => extend::<Int32Type, _>(array, rows, values, |value| value),
        }
    }

    fn hash(value: i32) -> u64 {
        mix(value.bits())
    }

    fn plain(&self, value: i32, out: &mut Vec<u8>) {
        out.extend_from_slice(&value.to_le_bytes());
    }

    fn bounds(&self, values: &[i32]) -> Option<(i32, i32)> {
        Some((values.iter().copied().min()?, values.iter().copied().max()?))
    }

    fn encode(&self, values: &[i32], out: &mut Vec<u8>) -> Encoding {
        bits::differences(values, out);
        Encoding::Delta
    }
}

impl Layout for Integers<i64> {
    type Value = i64;

    fn read(&self, array: &ArrayRef, rows: Range<usize>, values: &mut Vec<i64>) {
        match array.data_type() {
            DataType::UInt64 => extend::<UInt64Type, _>(array, rows, values, u64::cast_signed),
            DataType::Timestamp(..) => {
                extend::<TimestampMicrosecondType, _>(array, rows, values, |value| value)
            }
            // So many digits fit.
            DataType::Decimal128(..) => {
                extend::<Decimal128Type, _>(array, rows, values, |value| value as i64)
            }
            _ => extend::<Int64Type, _>(array, rows, values, |value| value),
        }
    }

    fn hash(value: i64) -> u64 {
        mix(value.bits())
    }

    fn plain(&self, value: i64, out: &mut Vec<u8>) {
        out.extend_from_slice(&value.to_le_bytes());
    }

    fn bounds(&self, values: &[i64]) -> Option<(i64, i64)> {
        let ordered = || values.iter().map(|value| value ^ self.flip);
        Some((ordered().min()? ^ self.flip, ordered().max()? ^ self.flip))
    }

    fn encode(&self, values: &[i64], out: &mut Vec<u8>) -> Encoding {
        bits::differences(values, out);
        Encoding::Delta
    }
}

pub struct Bools;

impl Layout for Bools {
    type Value = bool;

    fn read(&self, array: &ArrayRef, rows: Range<usize>, values: &mut Vec<bool>) {
        let bits = array.as_boolean().values();
        values.extend(rows.map(|row| bits.value(row)));
    }

    fn hash(value: bool) -> u64 {
        mix(value.into())
    }

    fn plain(&self, value: bool, out: &mut Vec<u8>) {
        out.push(value.into());
    }

    fn bounds(&self, values: &[bool]) -> Option<(bool, bool)> {
        Some((values.iter().copied().min()?, values.iter().copied().max()?))
    }

    fn encode(&self, values: &[bool], out: &mut Vec<u8>) -> Encoding {
        bits::pack(values.iter().map(|value| u64::from(*value)), 1, out);
        Encoding::Plain
    }
}

/// Numbers, some of which have no order. Zero, which has two signs, is below as a lower bound and above as an upper one.
/// (parquet.thrift, `ColumnOrder`.)
macro_rules! float {
    ($name:ident, $float:ty, $bits:ty, $arrow:ty) => {
        pub struct $name;

        impl Layout for $name {
            type Value = $bits;

            fn read(&self, array: &ArrayRef, rows: Range<usize>, values: &mut Vec<$bits>) {
                extend::<$arrow, _>(array, rows, values, <$float>::to_bits);
            }

            fn hash(value: $bits) -> u64 {
                mix(value.into())
            }

            fn plain(&self, value: $bits, out: &mut Vec<u8>) {
                out.extend_from_slice(&value.to_le_bytes());
            }

            fn bounds(&self, values: &[$bits]) -> Option<($bits, $bits)> {
                let numbers = || values.iter().map(|bits| <$float>::from_bits(*bits)).filter(|n| !n.is_nan());
                let least = numbers().reduce(<$float>::min)?;
                let greatest = numbers().reduce(<$float>::max)?;
                let least = if least == 0.0 { -0.0 } else { least };
                let greatest = if greatest == 0.0 { 0.0 } else { greatest };
                Some((least.to_bits(), greatest.to_bits()))
            }
        }
    };
}

float!(Floats, f32, u32, Float32Type);
float!(Doubles, f64, u64, Float64Type);

/// Decimals of many digits, and ids.
pub struct Bytes {
    pub width: usize,
    pub is_decimal: bool,
}

impl Layout for Bytes {
    /// Of decimals the number, of others its bytes, the first uppermost.
    type Value = i128;

    fn read(&self, array: &ArrayRef, rows: Range<usize>, values: &mut Vec<i128>) {
        if self.is_decimal {
            return extend::<Decimal128Type, _>(array, rows, values, |value| value);
        }
        let array = array.as_fixed_size_binary();
        values.extend(rows.map(|row| {
            let bytes = array.value(row);
            let mut value = [0; 16];
            value[16 - bytes.len()..].copy_from_slice(bytes);
            i128::from_be_bytes(value)
        }));
    }

    fn hash(value: i128) -> u64 {
        mix(mix(value as u64) ^ (value >> 64) as u64)
    }

    fn plain(&self, value: i128, out: &mut Vec<u8>) {
        out.extend_from_slice(&value.to_be_bytes()[16 - self.width..]);
    }

    fn bounds(&self, values: &[i128]) -> Option<(i128, i128)> {
        let flip = if self.is_decimal { 0 } else { i128::MIN };
        let ordered = || values.iter().map(|value| value ^ flip);
        Some((ordered().min()? ^ flip, ordered().max()? ^ flip))
    }
}
