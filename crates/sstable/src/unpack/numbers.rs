//! Values of a fixed width.

use super::places::{Wanted, packed, positions};
use super::{PageValues, Values, spread};
use crate::delta;
use crate::value::{Encoding, Physical, malformed};
use arrow::array::{ArrayRef, ArrowPrimitiveType, BooleanArray, FixedSizeBinaryArray, PrimitiveArray};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimeUnit, TimestampMicrosecondType, UInt64Type,
};
use oribi_types::Result;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// How values are stored, and what becomes of them.
trait Stored: Send + 'static {
    type Value: Copy + Default + Send;

    /// Bytes of a plain value.
    fn width(&self) -> usize;

    /// What a plain value is.
    fn plain(&self, bytes: &[u8]) -> Self::Value;

    /// Whether they may be stored as differences, and what such a value is.
    const HAS_DIFFERENCES: bool = false;
    fn number(&self, _number: i64) -> Self::Value {
        Self::Value::default()
    }

    fn array(&self, values: Vec<Self::Value>, nulls: Option<NullBuffer>) -> ArrayRef;
}

struct Numbers<S: Stored> {
    stored: S,
    dictionary: Vec<S::Value>,
    values: Vec<S::Value>,
    positions: Vec<u32>,
}

/// Whoever unpacks them into arrays of `data_type`.
pub fn numbers(physical: Physical, data_type: &DataType) -> Option<Box<dyn Values>> {
    Some(match (physical, data_type) {
        (Physical::Int32, DataType::Int8) => of(Integer::<4, Int8Type>::new(data_type)),
        (Physical::Int32, DataType::Int16) => of(Integer::<4, Int16Type>::new(data_type)),
        (Physical::Int32, DataType::Int32) => of(Integer::<4, Int32Type>::new(data_type)),
        (Physical::Int32, DataType::Date32) => of(Integer::<4, Date32Type>::new(data_type)),
        (Physical::Int32, DataType::Decimal128(_, _)) => of(Integer::<4, Decimal128Type>::new(data_type)),
        (Physical::Int64, DataType::Int64) => of(Integer::<8, Int64Type>::new(data_type)),
        (Physical::Int64, DataType::UInt64) => of(Integer::<8, UInt64Type>::new(data_type)),
        (Physical::Int64, DataType::Timestamp(TimeUnit::Microsecond, _)) => {
            of(Integer::<8, TimestampMicrosecondType>::new(data_type))
        }
        (Physical::Int64, DataType::Decimal128(_, _)) => of(Integer::<8, Decimal128Type>::new(data_type)),
        (Physical::Float, DataType::Float32) => of(Float),
        (Physical::Double, DataType::Float64) => of(Double),
        (Physical::Fixed(width @ 1..=16), DataType::Decimal128(_, _)) => {
            of(LongDecimal { width: width.into(), data_type: data_type.clone() })
        }
        (Physical::Fixed(16), DataType::FixedSizeBinary(16)) => of(Uuid),
        _ => return None,
    })
}

fn of<S: Stored>(stored: S) -> Box<dyn Values> {
    Box::new(Numbers { stored, dictionary: Vec::new(), values: Vec::new(), positions: Vec::new() })
}

impl<S: Stored> Values for Numbers<S> {
    fn set_dictionary(&mut self, contents: Buffer, count: usize) -> Result<()> {
        let width = self.stored.width();
        if contents.len() != count.saturating_mul(width) {
            return Err(malformed());
        }
        let values = contents.chunks_exact(width).map(|value| self.stored.plain(value));
        self.dictionary = values.collect();
        Ok(())
    }

    fn append(&mut self, page: PageValues<'_>, places: &[Range<usize>]) -> Result<()> {
        let (stored, values, bytes) = (&self.stored, &mut self.values, page.bytes());
        match page.encoding {
            Encoding::Plain => {
                let width = stored.width();
                for place in places {
                    let bytes =
                        place.end.checked_mul(width).and_then(|end| bytes.get(place.start * width..end));
                    let these = bytes.ok_or_else(malformed)?.chunks_exact(width);
                    values.extend(these.map(|value| stored.plain(value)));
                }
                Ok(())
            }
            Encoding::Dictionary => {
                let dictionary = &self.dictionary[..];
                positions(bytes, places, dictionary.len(), &mut self.positions)?;
                values.extend(self.positions.iter().map(|position| dictionary[*position as usize]));
                Ok(())
            }
            Encoding::Delta if S::HAS_DIFFERENCES => {
                let mut wanted = Wanted::new(places);
                let mut at = 0;
                let end = places.last().map_or(0, |last| last.end);
                let found = delta::walk(bytes, end, |group| {
                    let first = at;
                    at += group.len();
                    while let Some(places) = wanted.next_before(at) {
                        let these = &group[places.start - first..places.end - first];
                        values.extend(these.iter().map(|number| stored.number(*number)));
                    }
                });
                found.ok_or_else(malformed)
            }
            Encoding::Delta => Err(malformed()),
        }
    }

    fn reserve(&mut self, more: usize) {
        self.values.reserve(more);
    }

    fn len(&self) -> usize {
        self.values.len()
    }

    fn spread(&mut self, from: usize, valid: &BooleanBuffer) {
        spread(&mut self.values, from, valid);
    }

    fn finish(&mut self, nulls: Option<NullBuffer>) -> ArrayRef {
        self.stored.array(std::mem::take(&mut self.values), nulls)
    }
}

fn primitive<A: ArrowPrimitiveType>(
    values: Vec<A::Native>,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> ArrayRef {
    Arc::new(PrimitiveArray::<A>::new(ScalarBuffer::from(values), nulls).with_data_type(data_type.clone()))
}

/// Integers of so many bytes.
struct Integer<const BYTES: usize, A> {
    data_type: DataType,
    array: PhantomData<fn() -> A>,
}

impl<const BYTES: usize, A> Integer<BYTES, A> {
    fn new(data_type: &DataType) -> Self {
        Integer { data_type: data_type.clone(), array: PhantomData }
    }
}

/// What integers become. Those that are stored in more bytes than they have wrap if they are not what the writer wrote.
trait FromInteger: Copy + Default + Send {
    fn from_integer(integer: i64) -> Self;
}

macro_rules! from_integer {
    ($($native:ty),*) => {
        $(impl FromInteger for $native {
            #[inline]
            fn from_integer(integer: i64) -> Self {
                integer as $native
            }
        })*
    };
}

from_integer!(i8, i16, i32, i64, u64, i128);

impl<const BYTES: usize, A: ArrowPrimitiveType<Native: FromInteger>> Stored for Integer<BYTES, A> {
    type Value = A::Native;

    fn width(&self) -> usize {
        BYTES
    }

    #[inline]
    fn plain(&self, bytes: &[u8]) -> A::Native {
        let integer = match BYTES {
            4 => bytes.first_chunk().map_or(0, |bytes| i64::from(i32::from_le_bytes(*bytes))),
            _ => bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes)),
        };
        A::Native::from_integer(integer)
    }

    const HAS_DIFFERENCES: bool = true;

    #[inline]
    fn number(&self, number: i64) -> A::Native {
        A::Native::from_integer(if BYTES == 4 { i64::from(number as i32) } else { number })
    }

    fn array(&self, values: Vec<A::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
        primitive::<A>(values, nulls, &self.data_type)
    }
}

macro_rules! float {
    ($name:ident, $native:ty, $array:ty) => {
        struct $name;

        impl Stored for $name {
            type Value = $native;

            fn width(&self) -> usize {
                size_of::<$native>()
            }

            #[inline]
            fn plain(&self, bytes: &[u8]) -> $native {
                bytes.first_chunk().map_or(0.0, |bytes| <$native>::from_le_bytes(*bytes))
            }

            fn array(&self, values: Vec<$native>, nulls: Option<NullBuffer>) -> ArrayRef {
                primitive::<$array>(values, nulls, &<$array>::DATA_TYPE)
            }
        }
    };
}

float!(Float, f32, Float32Type);
float!(Double, f64, Float64Type);

/// Decimals of more than 18 digits: big-endian, as short as their precision allows.
struct LongDecimal {
    width: usize,
    data_type: DataType,
}

impl Stored for LongDecimal {
    type Value = i128;

    fn width(&self) -> usize {
        self.width
    }

    fn plain(&self, bytes: &[u8]) -> i128 {
        let unsigned = bytes.iter().fold(0, |number: u128, byte| number << 8 | u128::from(*byte));
        // The sign is moved to the front and back again.
        let shift = u128::BITS - 8 * self.width as u32;
        (unsigned << shift) as i128 >> shift
    }

    fn array(&self, values: Vec<i128>, nulls: Option<NullBuffer>) -> ArrayRef {
        primitive::<Decimal128Type>(values, nulls, &self.data_type)
    }
}

struct Uuid;

impl Stored for Uuid {
    type Value = [u8; 16];

    fn width(&self) -> usize {
        16
    }

    #[inline]
    fn plain(&self, bytes: &[u8]) -> [u8; 16] {
        bytes.first_chunk().copied().unwrap_or_default()
    }

    fn array(&self, values: Vec<[u8; 16]>, nulls: Option<NullBuffer>) -> ArrayRef {
        Arc::new(FixedSizeBinaryArray::new(16, Buffer::from_vec(values.into_flattened()), nulls))
    }
}

/// Bits, which have no dictionary.
#[derive(Default)]
struct Bools {
    values: Vec<bool>,
    bits: Vec<u32>,
}

pub fn bools(data_type: &DataType) -> Option<Box<dyn Values>> {
    (*data_type == DataType::Boolean).then(|| Box::new(Bools::default()) as Box<dyn Values>)
}

impl Values for Bools {
    fn set_dictionary(&mut self, _contents: Buffer, _count: usize) -> Result<()> {
        Err(malformed())
    }

    fn append(&mut self, page: PageValues<'_>, places: &[Range<usize>]) -> Result<()> {
        let bytes = page.bytes();
        if page.encoding != Encoding::Plain || places.last().is_some_and(|last| last.end > 8 * bytes.len()) {
            return Err(malformed());
        }
        self.bits.clear();
        places.iter().for_each(|places| packed(bytes, 1, places.clone(), &mut self.bits));
        self.values.extend(self.bits.iter().map(|bit| *bit == 1));
        Ok(())
    }

    fn reserve(&mut self, more: usize) {
        self.values.reserve(more);
    }

    fn len(&self) -> usize {
        self.values.len()
    }

    fn spread(&mut self, from: usize, valid: &BooleanBuffer) {
        spread(&mut self.values, from, valid);
    }

    fn finish(&mut self, nulls: Option<NullBuffer>) -> ArrayRef {
        let values = BooleanBuffer::from(&self.values[..]);
        self.values.clear();
        Arc::new(BooleanArray::new(values, nulls))
    }
}
