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

use crate::utf8::from_utf8;
use crate::{ColumnType, Error, Result, ValueRef};

/// Where each slot of a table's rows lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowLayout {
    slots: Vec<ColumnType>,
    places: Vec<Place>,
    /// Of the fixed area.
    width: u32,
}

/// Where a slot lies in the fixed area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    offset: u32,
    /// Of variable length: here stands where its bytes end.
    variable: bool,
    /// Where the bytes of the last slot of variable length before it end, if there is one: there its own begin.
    previous_end: Option<u32>,
}

const END_OFFSET_WIDTH: usize = 4;
const HEADER_BYTES: usize = 6;

impl RowLayout {
    pub fn new(slots: Vec<ColumnType>) -> Self {
        let mut places = Vec::with_capacity(slots.len());
        let (mut offset, mut previous_end) = (0, None);
        for slot in &slots {
            let variable = slot.fixed_width().is_none();
            places.push(Place { offset, variable, previous_end });
            if variable {
                previous_end = Some(offset);
            }
            offset += slot.fixed_width().unwrap_or(END_OFFSET_WIDTH) as u32;
        }
        RowLayout { slots, places, width: offset }
    }

    pub fn slots(&self) -> &[ColumnType] {
        &self.slots
    }

    /// Appends the row that holds `values`, one per slot, each of the slot's type or null.
    pub fn encode(&self, values: &[ValueRef<'_>], out: &mut Vec<u8>) {
        debug_assert_eq!(values.len(), self.slots.len(), "a value per slot");
        self.encode_each(values.iter().copied(), out);
    }

    /// As [`encode`](Self::encode), of values that are made one by one: inlined, what makes a value and what encodes it
    /// look at its type once.
    #[inline(always)]
    pub fn encode_each<'v>(&self, values: impl Iterator<Item = ValueRef<'v>>, out: &mut Vec<u8>) {
        let n = self.places.len();
        let start = out.len();
        let nulls = start + HEADER_BYTES;
        let fixed = nulls + n.div_ceil(8);
        let bytes_start = fixed + self.width as usize;
        out.resize(bytes_start, 0);
        put(out, start, (n as u16).to_le_bytes());
        put(out, start + 2, ((bytes_start - start) as u32).to_le_bytes());
        for (i, (place, value)) in self.places.iter().zip(values).enumerate() {
            let at = fixed + place.offset as usize;
            match value {
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
            if place.variable {
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
        let bytes_start = fixed + self.places.get(n).map_or(self.width, |next| next.offset) as usize;
        if u32::from_le_bytes(read(header, 2)) as usize != bytes_start {
            return Err(malformed());
        }
        let variable = bytes.get(bytes_start..).ok_or_else(malformed)?;
        let mut previous_end = 0;
        for (slot, place) in self.slots.iter().zip(&self.places).take(n).filter(|(_, place)| place.variable) {
            let end = u32::from_le_bytes(read(bytes, fixed + place.offset as usize)) as usize;
            let value = variable.get(previous_end..end).ok_or_else(malformed)?;
            if *slot != ColumnType::Binary && std::str::from_utf8(value).is_err() {
                return Err(malformed());
            }
            previous_end = end;
        }
        if previous_end == variable.len() { Ok(()) } else { Err(malformed()) }
    }
}

#[inline]
fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

#[inline]
fn read<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes")
}

/// An encoded row and the layout to read it by. The bytes must have come from [`RowLayout::encode`] or passed
/// [`RowLayout::validate`].
#[derive(Clone, Copy)]
pub struct RowRef<'a> {
    layout: &'a RowLayout,
    bytes: &'a [u8],
    /// Slots written.
    n: usize,
    /// Where the fixed area begins.
    fixed: usize,
    /// The variable-length values.
    variable: &'a [u8],
}

impl<'a> RowRef<'a> {
    /// Reads what all slots are found by: for several of them, make it once.
    #[inline]
    pub fn new(layout: &'a RowLayout, bytes: &'a [u8]) -> Self {
        let n = usize::from(u16::from_le_bytes(read(bytes, 0)));
        let variable = &bytes[u32::from_le_bytes(read(bytes, 2)) as usize..];
        RowRef { layout, bytes, n, fixed: HEADER_BYTES + n.div_ceil(8), variable }
    }

    /// The value of `slot`; `None` if the row was written before the slot existed.
    #[inline(always)]
    pub fn get(&self, slot: usize) -> Option<ValueRef<'a>> {
        if slot >= self.n {
            return None;
        }
        Some(self.get_as(self.layout.slots[slot], slot))
    }

    /// The value of `slot`, which the row has and which is of `column_type`, but that texts of JSON may be asked for as
    /// strings. Inlined where that is a constant, nothing looks at the type for each row.
    #[inline(always)]
    pub(crate) fn get_as(&self, column_type: ColumnType, slot: usize) -> ValueRef<'a> {
        let bytes = self.bytes;
        if bytes[HEADER_BYTES + slot / 8] & (1 << (slot % 8)) != 0 {
            return ValueRef::Null;
        }
        let place = &self.layout.places[slot];
        let at = self.fixed + place.offset as usize;
        match column_type {
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
            ColumnType::Binary => ValueRef::Binary(self.variable(place)),
            ColumnType::String => ValueRef::String(text(self.variable(place))),
            ColumnType::Json => ValueRef::Json(text(self.variable(place))),
        }
    }

    /// Whether the row was written when there was `slot`.
    #[inline]
    pub(crate) fn has(&self, slot: usize) -> bool {
        slot < self.n
    }

    #[inline(always)]
    fn variable(&self, place: &Place) -> &'a [u8] {
        let end_at =
            |offset: u32| u32::from_le_bytes(read(self.bytes, self.fixed + offset as usize)) as usize;
        &self.variable[place.previous_end.map_or(0, end_at)..end_at(place.offset)]
    }
}

fn text(bytes: &[u8]) -> &str {
    from_utf8(bytes).expect("text was checked when the row was made")
}
