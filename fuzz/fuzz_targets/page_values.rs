//! Any bytes as the dictionary and the values of a page, unpacked as scans do: an error, or an array that Arrow finds nothing wrong
//! with.
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/sstable/src/bits.rs"]
mod bits;

#[allow(dead_code)]
#[path = "../../crates/sstable/src/value.rs"]
mod value;

#[allow(dead_code)]
#[path = "../../crates/sstable/src/delta.rs"]
mod delta;

#[allow(dead_code)]
#[path = "../../crates/sstable/src/unpack/mod.rs"]
mod unpack;

use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, TimeUnit};
use libfuzzer_sys::fuzz_target;
use unpack::{PageValues, values_of};
use value::{Encoding, Physical};

const KINDS: [(Physical, DataType); 8] = [
    (Physical::Bool, DataType::Boolean),
    (Physical::Int32, DataType::Int16),
    (Physical::Int64, DataType::Timestamp(TimeUnit::Microsecond, None)),
    (Physical::Double, DataType::Float64),
    (Physical::Fixed(9), DataType::Decimal128(20, 0)),
    (Physical::Fixed(16), DataType::FixedSizeBinary(16)),
    (Physical::Bytes, DataType::Utf8View),
    (Physical::Bytes, DataType::BinaryView),
];

fuzz_target!(|input: &[u8]| {
    let [kind, count, dictionary_bytes, encoding, rows, steps @ .., last] = input else { return };
    let (physical, data_type) = &KINDS[usize::from(*kind) % KINDS.len()];
    let mut values = values_of(*physical, data_type).expect("all are kinds of values");
    let (steps, rest) = steps.split_at(steps.len().min(8));
    let (dictionary, page) = rest.split_at(rest.len().min(usize::from(*dictionary_bytes)));
    let _ = values.set_dictionary(Buffer::from(dictionary), usize::from(*count));
    let mut at = 0;
    let places: Vec<_> = steps
        .iter()
        .map(|step| {
            let start = at + usize::from(step >> 4);
            at = start + 1 + usize::from(step & 15) * usize::from(*last);
            start..at
        })
        .collect();
    let encoding = [Encoding::Plain, Encoding::Dictionary, Encoding::Delta][usize::from(*encoding) % 3];
    let (contents, count) = (Buffer::from(page), usize::from(*rows));
    if values.append(PageValues { encoding, contents: &contents, at: 0, count }, &places).is_ok() {
        assert_eq!(values.len(), places.iter().map(ExactSizeIterator::len).sum::<usize>());
    }
    values.finish(None).to_data().validate_full().expect("what was unpacked is whole");
});
