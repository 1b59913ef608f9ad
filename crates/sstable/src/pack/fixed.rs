//! Values of a fixed width.

use super::bits::{self, Integer};
use super::slots::{Slots, mix};
use super::{ColumnOptions, PackedValues, Values};
use crate::value::{Encoding, Physical};
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, UInt64Type,
};
use parquet::basic::LogicalType;
use parquet::schema::types::ColumnDescriptor;
use std::ops::Range;

/// How values are read and stored. A value is its bits.
trait Stored: Send + 'static {
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

    /// Bits that a difference takes about; `None` if there are no differences.
    fn width_of_differences(&self, _values: &[Self::Value]) -> Option<usize> {
        None
    }
}

/// Whatever packs them.
pub fn fixed(physical: Physical, column: &ColumnDescriptor, options: &ColumnOptions) -> Box<dyn Values> {
    let is_signed = !matches!(column.logical_type_ref(), Some(LogicalType::Integer(kind)) if !kind.is_signed);
    match physical {
        Physical::Bool => Box::new(Fixed::new(Bools, 0)),
        Physical::Int32 => Box::new(Fixed::new(Integers { flip: 0_i32 }, options.dictionary_bytes_max)),
        Physical::Int64 => {
            let flip = if is_signed { 0 } else { i64::MIN };
            Box::new(Fixed::new(Integers { flip }, options.dictionary_bytes_max))
        }
        Physical::Float => Box::new(Fixed::new(Floats, options.dictionary_bytes_max)),
        Physical::Double => Box::new(Fixed::new(Doubles, options.dictionary_bytes_max)),
        Physical::Fixed(width) => {
            let is_decimal = matches!(column.logical_type_ref(), Some(LogicalType::Decimal(_)));
            let stored = Bytes { width: width.into(), is_decimal };
            Box::new(Fixed::new(stored, options.dictionary_bytes_max))
        }
        Physical::Bytes => Box::new(super::texts::Texts::new(options)),
    }
}

struct Fixed<S: Stored> {
    stored: S,
    /// Of the page.
    values: Vec<S::Value>,
    dictionary: Dictionary<S>,
    dictionary_bytes_max: usize,
    /// Scratch.
    positions: Vec<u32>,
}

impl<S: Stored> Fixed<S> {
    fn new(stored: S, dictionary_bytes_max: usize) -> Self {
        let dictionary = Dictionary::new(dictionary_bytes_max > 0);
        Fixed { stored, values: Vec::new(), dictionary, dictionary_bytes_max, positions: Vec::new() }
    }

    /// Finds the values of the page in the dictionary, or adds them; false if it is not to have them.
    fn find(&mut self, is_first: bool) -> bool {
        let known = self.dictionary.values.len();
        let entries_max = self.dictionary_bytes_max / size_of::<S::Value>();
        if !self.dictionary.is_open || !self.dictionary.find(&self.values, entries_max, &mut self.positions) {
            self.dictionary.is_open = false;
            self.dictionary.values.truncate(known);
            return false;
        }
        let distinct = self.dictionary.values.len();
        if is_first
            && !is_worth_it(distinct, self.values.len(), self.stored.width_of_differences(&self.values))
        {
            self.dictionary = Dictionary::new(false);
            return false;
        }
        true
    }
}

/// Whether a dictionary is shorter and quicker, by the first page: hardly any value comes twice in it, or differences take no more
/// than a position would.
fn is_worth_it(distinct: usize, values: usize, width_of_differences: Option<usize>) -> bool {
    const SHORT: usize = 16;
    let repeats_often = distinct <= values / 2;
    let repeats = distinct <= values / 16 * 15;
    repeats_often || repeats && width_of_differences.is_none_or(|width| width > SHORT)
}

impl<S: Stored> Values for Fixed<S> {
    fn add(&mut self, array: &ArrayRef, rows: Range<usize>) -> usize {
        let count = rows.len();
        self.stored.read(array, rows, &mut self.values);
        count
    }

    fn is_full(&self) -> bool {
        false
    }

    fn bytes(&self) -> usize {
        (self.values.len() + self.dictionary.values.len()) * size_of::<S::Value>()
    }

    fn pack(&mut self, is_first: bool, out: &mut Vec<u8>) -> PackedValues {
        let bounds = self.stored.bounds(&self.values).map(|(least, greatest)| {
            let plain = |value| {
                let mut bytes = Vec::new();
                self.stored.plain(value, &mut bytes);
                bytes
            };
            (plain(least), plain(greatest))
        });
        let encoding = if !self.values.is_empty() && self.find(is_first) {
            let width = bits::width_of(self.dictionary.values.len() as u64 - 1);
            out.push(width as u8);
            bits::runs(&self.positions, width, out);
            Encoding::Dictionary
        } else {
            self.stored.encode(&self.values, out)
        };
        self.values.clear();
        PackedValues { encoding, bounds, text_bytes: None }
    }

    fn take_dictionary(&mut self) -> (Vec<u8>, usize) {
        let dictionary =
            std::mem::replace(&mut self.dictionary, Dictionary::new(self.dictionary_bytes_max > 0));
        let mut entries = Vec::new();
        dictionary.values.iter().for_each(|value| self.stored.plain(*value, &mut entries));
        (entries, dictionary.values.len())
    }
}

/// Distinct values, by the order in which they came.
struct Dictionary<S: Stored> {
    /// Whether values are still added.
    is_open: bool,
    values: Vec<S::Value>,
    slots: Slots,
}

impl<S: Stored> Dictionary<S> {
    fn new(is_open: bool) -> Self {
        Dictionary { is_open, values: Vec::new(), slots: Slots::default() }
    }

    /// The positions of `values`; false if there would be too many.
    fn find(&mut self, values: &[S::Value], entries_max: usize, positions: &mut Vec<u32>) -> bool {
        positions.clear();
        let mut last: Option<(S::Value, u32)> = None;
        for value in values {
            // Values often come in runs.
            let position = match last {
                Some((last, position)) if last == *value => position,
                _ => match self.position(*value, entries_max) {
                    Some(position) => position,
                    None => return false,
                },
            };
            last = Some((*value, position));
            positions.push(position);
        }
        true
    }

    fn position(&mut self, value: S::Value, entries_max: usize) -> Option<u32> {
        let values = &self.values;
        self.slots.reserve(values.len(), |n| S::hash(values[n]));
        let position = match self.slots.find(S::hash(value), |n| values[n] == value) {
            Ok(n) => n,
            Err(_) if values.len() == entries_max => return None,
            Err(free) => {
                self.slots.set(free, values.len());
                self.values.push(value);
                self.values.len() - 1
            }
        };
        Some(position as u32)
    }
}

/// Numbers of 32 or 64 bits.
struct Integers<T> {
    /// Exclusive or with it gives the order: of numbers without a sign the sign.
    flip: T,
}

fn extend<P: ArrowPrimitiveType, T>(
    array: &ArrayRef,
    rows: Range<usize>,
    values: &mut Vec<T>,
    of: impl Fn(P::Native) -> T,
) {
    values.extend(array.as_primitive::<P>().values()[rows].iter().map(|value| of(*value)));
}

impl Stored for Integers<i32> {
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

    fn width_of_differences(&self, values: &[i32]) -> Option<usize> {
        let (least, greatest) = self.bounds(values)?;
        Some(bits::width_of(greatest.minus(least).bits()))
    }
}

impl Stored for Integers<i64> {
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

    fn width_of_differences(&self, values: &[i64]) -> Option<usize> {
        let (least, greatest) = self.bounds(values)?;
        Some(bits::width_of(greatest.minus(least).bits()))
    }
}

struct Bools;

impl Stored for Bools {
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
        struct $name;

        impl Stored for $name {
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
struct Bytes {
    width: usize,
    is_decimal: bool,
}

impl Stored for Bytes {
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
