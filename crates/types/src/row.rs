//! Encoded rows: the columns that are not in the key, each at a slot.
//!
//! ```text
//! u16  n            slots written (the slots of the schema at the time of the write)
//! u32  start        where `bytes` begins in the row
//! u8   null[⌈n/8⌉]  bit i set: slot i is null
//!      fixed        per slot its value, little-endian; for variable length a u32: end offset in `bytes`
//!      bytes        the variable-length values, in slot order
//! ```
//! Slots are only ever appended to a table, so a slot's offset inside `fixed` is the same in every row, and
//! a schema reads rows that an earlier or a later one wrote.

use crate::{ColumnType, Error, Result, ValueRef};

/// Where each slot of a table's rows lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowLayout {
    slots: Vec<ColumnType>,
    /// Offset of each slot in the fixed area, and the area's whole width at the end.
    offsets: Vec<u32>,
    /// For each slot, the last variable-length slot before it.
    previous_variable: Vec<Option<u16>>,
}

const END_OFFSET_WIDTH: usize = 4;
const HEADER_BYTES: usize = 6;

impl RowLayout {
    pub fn new(slots: Vec<ColumnType>) -> Self {
        let mut offsets = Vec::with_capacity(slots.len() + 1);
        let mut previous_variable = Vec::with_capacity(slots.len());
        let (mut offset, mut previous) = (0, None);
        for (i, slot) in slots.iter().enumerate() {
            offsets.push(offset);
            previous_variable.push(previous);
            offset += slot.fixed_width().unwrap_or(END_OFFSET_WIDTH) as u32;
            if slot.fixed_width().is_none() {
                previous = Some(i as u16);
            }
        }
        offsets.push(offset);
        RowLayout { slots, offsets, previous_variable }
    }

    pub fn slots(&self) -> &[ColumnType] {
        &self.slots
    }

    /// Appends the row that holds `values`, one per slot, each of the slot's type or null.
    pub fn encode(&self, values: &[ValueRef<'_>], out: &mut Vec<u8>) {
        debug_assert_eq!(values.len(), self.slots.len(), "a value per slot");
        let n = self.slots.len();
        let start = out.len();
        let nulls = start + HEADER_BYTES;
        let fixed = nulls + n.div_ceil(8);
        out.resize(fixed + self.offsets[n] as usize, 0);
        out[start..start + 2].copy_from_slice(&(n as u16).to_le_bytes());
        let bytes_start = out.len();
        put(out, start + 2, ((bytes_start - start) as u32).to_le_bytes());
        for (i, value) in values.iter().enumerate() {
            let at = fixed + self.offsets[i] as usize;
            match *value {
                ValueRef::Null => out[nulls + i / 8] |= 1 << (i % 8),
                ValueRef::Bool(v) => out[at] = u8::from(v),
                ValueRef::Int8(v) => out[at] = v as u8,
                ValueRef::Int16(v) => put(out, at, v.to_le_bytes()),
                ValueRef::Int32(v) | ValueRef::Date(v) => put(out, at, v.to_le_bytes()),
                ValueRef::Int64(v) | ValueRef::Timestamp(v) => put(out, at, v.to_le_bytes()),
                ValueRef::Float(v) => put(out, at, v.to_le_bytes()),
                ValueRef::Double(v) => put(out, at, v.to_le_bytes()),
                ValueRef::Decimal(v) => put(out, at, v.to_le_bytes()),
                ValueRef::Uuid(v) => put(out, at, v),
                ValueRef::String(v) | ValueRef::Json(v) => out.extend_from_slice(v.as_bytes()),
                ValueRef::Binary(v) => out.extend_from_slice(v),
            }
            if self.slots[i].fixed_width().is_none() {
                let end = (out.len() - bytes_start) as u32;
                put(out, at, end.to_le_bytes());
            }
        }
    }

    /// Checks that `bytes` is a row of this layout or of an earlier one, so that [`RowRef::get`] cannot panic.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn validate(&self, bytes: &[u8]) -> Result<()> {
        let malformed = || Error::corrupt("malformed row");
        let header = bytes.first_chunk::<HEADER_BYTES>().ok_or_else(malformed)?;
        let n = usize::from(u16::from_le_bytes(read(header, 0)));
        if n > self.slots.len() {
            return Err(malformed());
        }
        let fixed = HEADER_BYTES + n.div_ceil(8);
        let bytes_start = fixed + self.offsets[n] as usize;
        if u32::from_le_bytes(read(header, 2)) as usize != bytes_start {
            return Err(malformed());
        }
        let variable = bytes.get(bytes_start..).ok_or_else(malformed)?;
        let mut previous_end = 0;
        for (i, slot) in self.slots[..n].iter().enumerate() {
            if slot.fixed_width().is_some() {
                continue;
            }
            let end = u32::from_le_bytes(read(bytes, fixed + self.offsets[i] as usize)) as usize;
            let value = variable.get(previous_end..end).ok_or_else(malformed)?;
            if *slot != ColumnType::Binary && std::str::from_utf8(value).is_err() {
                return Err(malformed());
            }
            previous_end = end;
        }
        if previous_end == variable.len() { Ok(()) } else { Err(malformed()) }
    }
}

fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

fn read<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes")
}

/// An encoded row and the layout to read it by. The bytes must have come from [`RowLayout::encode`] or passed
/// [`RowLayout::validate`].
#[derive(Clone, Copy)]
pub struct RowRef<'a> {
    layout: &'a RowLayout,
    bytes: &'a [u8],
}

impl<'a> RowRef<'a> {
    pub fn new(layout: &'a RowLayout, bytes: &'a [u8]) -> Self {
        RowRef { layout, bytes }
    }

    /// The value of `slot`; `None` if the row was written before the slot existed.
    pub fn get(&self, slot: usize) -> Option<ValueRef<'a>> {
        let bytes = self.bytes;
        let n = usize::from(u16::from_le_bytes(read(bytes, 0)));
        if slot >= n {
            return None;
        }
        if bytes[HEADER_BYTES + slot / 8] & (1 << (slot % 8)) != 0 {
            return Some(ValueRef::Null);
        }
        let fixed = HEADER_BYTES + n.div_ceil(8);
        let at = fixed + self.layout.offsets[slot] as usize;
        Some(match self.layout.slots[slot] {
            ColumnType::Bool => ValueRef::Bool(bytes[at] != 0),
            ColumnType::Int8 => ValueRef::Int8(bytes[at] as i8),
            ColumnType::Int16 => ValueRef::Int16(i16::from_le_bytes(read(bytes, at))),
            ColumnType::Int32 => ValueRef::Int32(i32::from_le_bytes(read(bytes, at))),
            ColumnType::Int64 => ValueRef::Int64(i64::from_le_bytes(read(bytes, at))),
            ColumnType::Float => ValueRef::Float(f32::from_le_bytes(read(bytes, at))),
            ColumnType::Double => ValueRef::Double(f64::from_le_bytes(read(bytes, at))),
            ColumnType::Decimal { .. } => ValueRef::Decimal(i128::from_le_bytes(read(bytes, at))),
            ColumnType::Date => ValueRef::Date(i32::from_le_bytes(read(bytes, at))),
            ColumnType::Timestamp => ValueRef::Timestamp(i64::from_le_bytes(read(bytes, at))),
            ColumnType::Uuid => ValueRef::Uuid(read(bytes, at)),
            ColumnType::Binary => ValueRef::Binary(self.variable(slot, fixed)),
            ColumnType::String => ValueRef::String(text(self.variable(slot, fixed))),
            ColumnType::Json => ValueRef::Json(text(self.variable(slot, fixed))),
        })
    }

    fn variable(&self, slot: usize, fixed: usize) -> &'a [u8] {
        let end_of = |slot: usize| {
            u32::from_le_bytes(read(self.bytes, fixed + self.layout.offsets[slot] as usize)) as usize
        };
        let bytes_start = u32::from_le_bytes(read(self.bytes, 2)) as usize;
        let start = self.layout.previous_variable[slot].map_or(0, |p| end_of(usize::from(p)));
        &self.bytes[bytes_start + start..bytes_start + end_of(slot)]
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text was checked when the row was made")
}
