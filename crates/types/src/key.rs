//! Encoded keys: byte strings whose order is the order of the primary key.
//!
//! The encoding is Kudu's, so that hash buckets and key ranges agree with what Kudu's clients compute. Integers are
//! big-endian with the sign bit flipped. A string or binary component that is not the last has each `00` written as
//! `00 01` and ends with `00 00`; the last component is raw. Hence a table whose key is one string or binary column
//! has the value itself as encoded key.

use crate::utf8::from_utf8;
use crate::{ColumnType, Error, Result, Schema, Value, ValueRef};
use smallvec::SmallVec;

/// The longest encoded key, in bytes.
pub const KEY_BYTES_MAX: usize = 16 * 1024;

/// Appends the encoded key made of `values`, one per key column in key order.
///
/// # Errors
/// `Invalid` for null or a value of another type; `TooLarge` beyond [`KEY_BYTES_MAX`].
#[inline]
pub fn encode_key<'a>(
    schema: &Schema,
    values: impl IntoIterator<Item = ValueRef<'a>>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let start = out.len();
    let last = schema.key().len() - 1;
    let mut values = values.into_iter();
    for (i, column) in schema.key_columns().enumerate() {
        let Some(value) = values.next() else {
            return Err(Error::invalid(format!("the key has {} columns, not {i}", last + 1)));
        };
        if value.is_null() || !value.fits(column.column_type) {
            return Err(Error::invalid(format!(
                "key column \"{}\" needs a value of type {}",
                column.name, column.column_type
            )));
        }
        encode_component(value, i == last, out);
    }
    check_key_len(&out[start..])
}

/// # Errors
/// `TooLarge` for an encoded key beyond the limit.
#[inline]
pub fn check_key_len(key: &[u8]) -> Result<()> {
    match key.len() <= KEY_BYTES_MAX {
        true => Ok(()),
        false => Err(Error::too_large(format!("key is longer than {KEY_BYTES_MAX} bytes"))),
    }
}

/// Appends one component. `last` components of variable length are written raw.
#[inline]
pub fn encode_component(value: ValueRef<'_>, last: bool, out: &mut Vec<u8>) {
    match value {
        ValueRef::Bool(v) => out.push(u8::from(v)),
        ValueRef::Int8(v) => out.push((v as u8) ^ 0x80),
        ValueRef::Int16(v) => out.extend_from_slice(&((v as u16) ^ (1 << 15)).to_be_bytes()),
        ValueRef::Int32(v) | ValueRef::Date(v) => {
            out.extend_from_slice(&((v as u32) ^ (1 << 31)).to_be_bytes());
        }
        ValueRef::Int64(v) | ValueRef::Timestamp(v) => {
            out.extend_from_slice(&((v as u64) ^ (1 << 63)).to_be_bytes());
        }
        ValueRef::Decimal(v) => out.extend_from_slice(&((v as u128) ^ (1 << 127)).to_be_bytes()),
        ValueRef::Uuid(v) => out.extend_from_slice(&v),
        ValueRef::String(v) => encode_bytes(v.as_bytes(), last, out),
        ValueRef::Binary(v) => encode_bytes(v, last, out),
        ValueRef::Null | ValueRef::Float(_) | ValueRef::Double(_) | ValueRef::Json(_) => {
            unreachable!("not a key type")
        }
    }
}

#[inline]
fn encode_bytes(bytes: &[u8], last: bool, out: &mut Vec<u8>) {
    if last {
        out.extend_from_slice(bytes);
        return;
    }
    escape(bytes, out);
}

/// Walks the components of an encoded key.
pub struct KeyDecoder<'a> {
    rest: &'a [u8],
}

impl<'a> KeyDecoder<'a> {
    pub fn new(key: &'a [u8]) -> Self {
        KeyDecoder { rest: key }
    }

    /// Begins behind components that take so many bytes.
    ///
    /// # Errors
    /// `Corrupt` for a key that is shorter.
    #[inline]
    pub(crate) fn behind(key: &'a [u8], bytes: usize) -> Result<Self> {
        key.get(bytes..).map(KeyDecoder::new).ok_or_else(malformed)
    }

    /// Decodes the next component. An escaped string or binary is unescaped into `scratch`; all else stays borrowed
    /// from the key.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are not a component of `column_type`.
    pub fn next<'b>(
        &mut self,
        column_type: ColumnType,
        last: bool,
        scratch: &'b mut Vec<u8>,
    ) -> Result<ValueRef<'b>>
    where
        'a: 'b,
    {
        self.next_as(column_type, last, scratch)
    }

    /// As [`next`](Self::next). Inlined where the type is a constant, nothing looks at it for each key.
    #[inline(always)]
    pub(crate) fn next_as<'b>(
        &mut self,
        column_type: ColumnType,
        last: bool,
        scratch: &'b mut Vec<u8>,
    ) -> Result<ValueRef<'b>>
    where
        'a: 'b,
    {
        Ok(match column_type {
            ColumnType::Bool => ValueRef::Bool(self.take::<1>()?[0] != 0),
            ColumnType::Int8 => ValueRef::Int8((self.take::<1>()?[0] ^ 0x80) as i8),
            ColumnType::Int16 => ValueRef::Int16((u16::from_be_bytes(self.take()?) ^ (1 << 15)) as i16),
            ColumnType::Int32 => ValueRef::Int32((u32::from_be_bytes(self.take()?) ^ (1 << 31)) as i32),
            ColumnType::Date => ValueRef::Date((u32::from_be_bytes(self.take()?) ^ (1 << 31)) as i32),
            ColumnType::Int64 => ValueRef::Int64((u64::from_be_bytes(self.take()?) ^ (1 << 63)) as i64),
            ColumnType::Timestamp => {
                ValueRef::Timestamp((u64::from_be_bytes(self.take()?) ^ (1 << 63)) as i64)
            }
            ColumnType::Decimal { .. } => {
                ValueRef::Decimal((u128::from_be_bytes(self.take()?) ^ (1 << 127)) as i128)
            }
            ColumnType::Uuid => ValueRef::Uuid(self.take()?),
            ColumnType::String => {
                let bytes = self.bytes(last, scratch)?;
                ValueRef::String(from_utf8(bytes).map_err(|_| malformed())?)
            }
            ColumnType::Binary => ValueRef::Binary(self.bytes(last, scratch)?),
            ColumnType::Float | ColumnType::Double | ColumnType::Json => return Err(malformed()),
        })
    }

    /// Decodes all components, of which there is one of each of `types`.
    pub(crate) fn all(mut self, types: &[ColumnType]) -> Result<Vec<Value>> {
        let mut scratch = Vec::new();
        let values = types.iter().enumerate().map(|(i, column_type)| {
            Ok(self.next(*column_type, i + 1 == types.len(), &mut scratch)?.to_owned())
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        if self.rest.is_empty() { Ok(values) } else { Err(malformed()) }
    }

    /// Skips the next component and returns its encoded bytes.
    pub(crate) fn skip(&mut self, column_type: ColumnType, last: bool) -> Result<&'a [u8]> {
        let len = match column_type.fixed_width() {
            Some(width) => width,
            None if last => self.rest.len(),
            None => escaped_len(self.rest)?,
        };
        if len > self.rest.len() {
            return Err(malformed());
        }
        let (component, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(component)
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or_else(malformed)?;
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    fn bytes<'b>(&mut self, last: bool, scratch: &'b mut Vec<u8>) -> Result<&'b [u8]>
    where
        'a: 'b,
    {
        if last {
            return Ok(std::mem::take(&mut self.rest));
        }
        let len = escaped_len(self.rest)?;
        let (escaped, rest) = self.rest.split_at(len);
        self.rest = rest;
        let escaped = &escaped[..len - 2];
        if !escaped.contains(&0) {
            return Ok(escaped);
        }
        scratch.clear();
        unescape(escaped, scratch);
        Ok(scratch)
    }
}

/// Length of an escaped component, terminator included.
fn escaped_len(bytes: &[u8]) -> Result<usize> {
    let mut i = 0;
    while i + 1 < bytes.len() {
        match (bytes[i], bytes[i + 1]) {
            (0, 0) => return Ok(i + 2),
            (0, 1) => i += 2,
            (0, _) => return Err(malformed()),
            _ => i += 1,
        }
    }
    Err(malformed())
}

#[cold]
fn malformed() -> Error {
    Error::corrupt("malformed key")
}

/// All components of an encoded key, owned, in key order.
///
/// # Errors
/// `Corrupt` if the key is not one of `schema`.
pub fn decode_key(schema: &Schema, key: &[u8]) -> Result<Vec<Value>> {
    let types: SmallVec<[ColumnType; 8]> = schema.key_columns().map(|c| c.column_type).collect();
    KeyDecoder::new(key).all(&types)
}

/// Room for the encoded components that partitioning looks at.
pub type KeyBuf = SmallVec<[u8; 64]>;

/// Appends the components `columns` (positions in the key) of an encoded key, in this order, as a key of theirs: the last
/// as if it were the last of the key. With `short_decimals`, decimals take the bytes that they take in Kudu. What follows
/// the columns in the key is not looked at.
///
/// # Errors
/// `Corrupt` if the key does not have them.
pub fn project_key(
    schema: &Schema,
    columns: &[u16],
    key: &[u8],
    short_decimals: bool,
    out: &mut KeyBuf,
) -> Result<()> {
    let last_of_key = schema.key().len() - 1;
    let needed = columns.iter().max().map_or(0, |last| usize::from(*last) + 1);
    let mut decoder = KeyDecoder::new(key);
    let mut components: SmallVec<[(&[u8], ColumnType); 8]> = SmallVec::new();
    for (i, column) in schema.key_columns().enumerate().take(needed) {
        components.push((decoder.skip(column.column_type, i == last_of_key)?, column.column_type));
    }
    for (i, &column) in columns.iter().enumerate() {
        let &(component, column_type) = components.get(usize::from(column)).ok_or_else(malformed)?;
        if let Some(width) = short_decimal_width(column_type).filter(|_| short_decimals) {
            out.extend(shorten_decimal(component, width));
            continue;
        }
        let (is_raw, wants_raw) = (usize::from(column) == last_of_key, i + 1 == columns.len());
        match (column_type.fixed_width().is_some() || is_raw == wants_raw, wants_raw) {
            (true, _) => out.extend_from_slice(component),
            (false, true) => unescape(&component[..component.len() - 2], out),
            (false, false) => escape(component, out),
        }
    }
    Ok(())
}

/// The bytes that Kudu has for a decimal, if they are fewer than the 16 of our keys.
pub(crate) fn short_decimal_width(column_type: ColumnType) -> Option<usize> {
    match column_type {
        ColumnType::Decimal { precision: 0..=9, .. } => Some(4),
        ColumnType::Decimal { precision: 10..=18, .. } => Some(8),
        _ => None,
    }
}

/// An encoded decimal in `width` bytes, which its value fits.
pub(crate) fn shorten_decimal(encoded: &[u8], width: usize) -> SmallVec<[u8; 8]> {
    let mut short = SmallVec::from_slice(&encoded[encoded.len() - width..]);
    short[0] ^= 0x80;
    short
}

#[inline]
fn escape(bytes: &[u8], out: &mut impl Extend<u8>) {
    for part in bytes.split_inclusive(|byte| *byte == 0) {
        out.extend(part.iter().copied());
        if part.ends_with(&[0]) {
            out.extend([1]);
        }
    }
    out.extend([0, 0]);
}

/// Appends what an escaped component without its end stands for.
fn unescape(escaped: &[u8], out: &mut impl Extend<u8>) {
    let mut bytes = escaped.iter();
    out.extend(std::iter::from_fn(|| {
        let byte = *bytes.next()?;
        if byte == 0 {
            bytes.next();
        }
        Some(byte)
    }));
}

/// The first key behind all that begin with `prefix`; `None` if nothing is.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

/// MurmurHash2, 64-bit version for 64-bit machines (Austin Appleby, public domain), as Kudu partitions by it.
pub fn murmur_hash2_64a(data: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut hash = seed ^ (data.len() as u64).wrapping_mul(M);
    let mut chunks = data.chunks_exact(8);
    for chunk in &mut chunks {
        let mut k = u64::from_le_bytes(chunk.try_into().expect("chunks are of 8 bytes"));
        k = k.wrapping_mul(M);
        k ^= k >> R;
        hash = (hash ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    let tail = chunks.remainder();
    if !tail.is_empty() {
        for (i, &byte) in tail.iter().enumerate() {
            hash ^= u64::from(byte) << (8 * i);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> R;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> R)
}
