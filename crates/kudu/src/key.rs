//! Kudu's key encoding, where it differs from the engine's.
//!
//! Clients send encoded keys as bounds of scans, find tablets by them and hash them, so a server has to make the same
//! bytes. The engine's own encoding is Kudu's but for two types: a decimal, which Kudu writes in the 4, 8 or 16 bytes
//! of its cell and the engine always in 16; and a UUID, which Kudu's clients see as bytes of any length and therefore
//! escape where it is not the last component. [`to_engine`] and [`from_engine`] carry whole keys over, in order.

use crate::cell::cell_bytes;
use oribi_types::key::{KeyDecoder, encode_component as encode_as_engine};
use oribi_types::{ColumnType, Error, Result, ValueRef};
use std::borrow::Cow;

/// Appends one component of a key as Kudu writes it. `last` components of variable length are written raw.
///
/// # Errors
/// `Invalid` for null, a value of another type, or a type that no key has.
#[inline]
pub fn encode_component(
    column_type: ColumnType,
    value: ValueRef<'_>,
    last: bool,
    out: &mut Vec<u8>,
) -> Result<()> {
    if value.is_null() || !value.fits(column_type) || !column_type.is_key_type() {
        return Err(Error::invalid(format!("a key of type {column_type} cannot be {value:?}")));
    }
    match value {
        ValueRef::Decimal(unscaled) => {
            let start = out.len();
            out.extend_from_slice(&unscaled.to_be_bytes()[16 - cell_bytes(column_type)..]);
            out[start] ^= 0x80;
        }
        ValueRef::Uuid(v) => encode_as_engine(ValueRef::Binary(&v), last, out),
        other => encode_as_engine(other, last, out),
    }
    Ok(())
}

/// Appends the key made of `values`, one per type.
///
/// # Errors
/// As [`encode_component`], and for another number of values.
pub fn encode_key<'v>(
    types: &[ColumnType],
    values: impl ExactSizeIterator<Item = ValueRef<'v>>,
    out: &mut Vec<u8>,
) -> Result<()> {
    if values.len() != types.len() {
        return Err(Error::invalid(format!("the key has {} columns, not {}", types.len(), values.len())));
    }
    for (i, (column_type, value)) in types.iter().zip(values).enumerate() {
        encode_component(*column_type, value, i + 1 == types.len(), out)?;
    }
    Ok(())
}

/// The engine's key for one of Kudu's, or for the beginning of one that ends between two components. `types` are
/// those of the key columns. Where the two are the same, the key stays borrowed and is not looked at.
///
/// # Errors
/// `Invalid` for a key that ends within a component, or a UUID of another length than 16 before the last component.
pub fn to_engine<'k>(types: &[ColumnType], key: &'k [u8]) -> Result<Cow<'k, [u8]>> {
    carry(types, key, |column_type, last, rest, out| match column_type {
        ColumnType::Decimal { .. } => {
            let (component, rest) = take(rest, cell_bytes(column_type))?;
            // Two's complement of the narrow integer, its sign bit flipped back, carried to the left.
            let fill = if component[0] & 0x80 == 0 { 0xff } else { 0 };
            let start = out.len();
            out.resize(start + 16 - component.len(), fill);
            out.extend_from_slice(component);
            let sign = out.len() - component.len();
            out[sign] ^= 0x80;
            out[start] ^= 0x80;
            Ok(rest)
        }
        // Raw at the end, whatever its length: a bound that falls between two UUIDs stays there.
        ColumnType::Uuid if last => {
            out.extend_from_slice(rest);
            Ok(&[])
        }
        ColumnType::Uuid => {
            let (component, rest) = take(rest, escaped_bytes(rest)?)?;
            let mut scratch = Vec::new();
            match KeyDecoder::new(component).next(ColumnType::Binary, false, &mut scratch)? {
                ValueRef::Binary(uuid) if uuid.len() == 16 => out.extend_from_slice(uuid),
                _ => return Err(Error::invalid("a uuid in a key has 16 bytes")),
            }
            Ok(rest)
        }
        same => copy(same, last, rest, out),
    })
}

/// Kudu's key for one of the engine's. `types` are those of the key columns.
///
/// # Errors
/// `Invalid` for a key that ends within a component.
pub fn from_engine<'k>(types: &[ColumnType], key: &'k [u8]) -> Result<Cow<'k, [u8]>> {
    carry(types, key, |column_type, last, rest, out| match column_type {
        ColumnType::Decimal { .. } => {
            let (component, rest) = take(rest, 16)?;
            let mut wide: [u8; 16] = component.try_into().expect("16 bytes were taken");
            wide[0] ^= 0x80;
            encode_component(column_type, ValueRef::Decimal(i128::from_be_bytes(wide)), last, out)?;
            Ok(rest)
        }
        ColumnType::Uuid => {
            let (component, rest) = take(rest, 16)?;
            encode_as_engine(ValueRef::Binary(component), last, out);
            Ok(rest)
        }
        same => copy(same, last, rest, out),
    })
}

/// A whole key of the engine's for the beginning `prefix` of one, which may end anywhere: what it lacks has the least value.
/// Kudu's clients take keys apart.
pub fn complete(types: &[ColumnType], prefix: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(prefix.len() + 16 * types.len());
    let mut rest = prefix;
    for (i, column_type) in types.iter().enumerate() {
        let component = match (column_type, column_type.fixed_width()) {
            // Below it there are numbers of more digits.
            (ColumnType::Decimal { precision, .. }, _) if rest.is_empty() => {
                let least = 1 - 10_i128.pow(u32::from(*precision));
                encode_as_engine(ValueRef::Decimal(least), false, &mut key);
                continue;
            }
            (_, Some(width)) => width,
            (_, None) if i + 1 == types.len() => rest.len(),
            (_, None) => escaped_bytes(rest).unwrap_or(usize::MAX),
        };
        let (there, after) = rest.split_at(component.min(rest.len()));
        rest = after;
        if component == usize::MAX {
            // Cut, perhaps within an escape.
            key.extend_from_slice(there.strip_suffix(&[0]).unwrap_or(there));
            key.extend_from_slice(&[0, 0]);
        } else {
            key.extend_from_slice(there);
            key.resize(key.len() + component - there.len(), 0);
        }
    }
    key
}

/// Rewrites a key component by component, if any of its types asks for it.
fn carry<'k>(
    types: &[ColumnType],
    key: &'k [u8],
    mut rewrite: impl FnMut(ColumnType, bool, &'k [u8], &mut Vec<u8>) -> Result<&'k [u8]>,
) -> Result<Cow<'k, [u8]>> {
    if !types.iter().any(|t| matches!(t, ColumnType::Decimal { .. } | ColumnType::Uuid)) {
        return Ok(Cow::Borrowed(key));
    }
    let mut out = Vec::with_capacity(key.len() + 16 * types.len());
    let mut rest = key;
    for (i, column_type) in types.iter().enumerate() {
        if rest.is_empty() {
            break;
        }
        rest = rewrite(*column_type, i + 1 == types.len(), rest, &mut out)?;
    }
    out.extend_from_slice(rest);
    Ok(Cow::Owned(out))
}

/// Copies a component that both encodings write alike.
fn copy<'k>(column_type: ColumnType, last: bool, rest: &'k [u8], out: &mut Vec<u8>) -> Result<&'k [u8]> {
    let bytes = match column_type.fixed_width() {
        Some(width) => width,
        None if last => rest.len(),
        None => escaped_bytes(rest)?,
    };
    let (component, rest) = take(rest, bytes)?;
    out.extend_from_slice(component);
    Ok(rest)
}

fn take(rest: &[u8], bytes: usize) -> Result<(&[u8], &[u8])> {
    rest.split_at_checked(bytes).ok_or_else(|| Error::invalid("a key ends within a component"))
}

/// Length of an escaped component, its end mark included.
fn escaped_bytes(rest: &[u8]) -> Result<usize> {
    let end = rest.windows(2).position(|pair| pair == [0, 0]);
    end.map(|at| at + 2).ok_or_else(|| Error::invalid("a key ends within a component"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{key_type, value};
    use oribi_types::Value;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn kudu_key(types: &[ColumnType], values: &[Value]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_key(types, values.iter().map(Value::as_ref), &mut out).unwrap();
        out
    }

    fn engine_key(values: &[Value]) -> Vec<u8> {
        let mut out = Vec::new();
        for (i, value) in values.iter().enumerate() {
            encode_as_engine(value.as_ref(), i + 1 == values.len(), &mut out);
        }
        out
    }

    #[test]
    fn a_decimal_has_the_bytes_of_its_cell() {
        let numeric = |precision| ColumnType::Decimal { precision, scale: 0 };
        assert_eq!(kudu_key(&[numeric(9)], &[Value::Decimal(-1)]), b"\x7f\xff\xff\xff");
        assert_eq!(kudu_key(&[numeric(18)], &[Value::Decimal(2)]), b"\x80\0\0\0\0\0\0\x02");
        assert_eq!(kudu_key(&[numeric(19)], &[Value::Decimal(2)])[..2], *b"\x80\0");
    }

    #[test]
    fn what_lies_between_two_keys_becomes_a_whole_one() {
        let types = [
            ColumnType::Int16,
            ColumnType::String,
            ColumnType::Decimal { precision: 5, scale: 0 },
            ColumnType::Uuid,
            ColumnType::String,
        ];
        let key = |a, b: &str, c, d: u8, e: &str| {
            let (b, e) = (Value::String(b.into()), Value::String(e.into()));
            engine_key(&[Value::Int16(a), b, Value::Decimal(c), Value::Uuid([d; 16]), e])
        };
        let keys = [
            key(-5, "", -99_999, 0, ""),
            key(0, "x", -7, 0, ""),
            key(0, "x", 8, 0, ""),
            key(0, "x", 8, 7, ""),
            key(0, "x", 8, 7, "\0"),
            key(0, "x\0", 8, 7, "a"),
            key(0, "x\0\0", -99_999, 7, "a"),
            key(300, "x", 99_999, 255, "ä"),
        ];
        for (i, before) in keys.iter().enumerate() {
            for behind in &keys[i + 1..] {
                let common = before.iter().zip(behind).take_while(|(a, b)| a == b).count();
                let between = complete(&types, &behind[..common + 1]);
                assert!(*before < between && between <= *behind, "{before:?} {between:?} {behind:?}");
                let kudus = from_engine(&types, &between).unwrap();
                assert_eq!(to_engine(&types, &kudus).unwrap(), between);
            }
        }
        assert_eq!(complete(&types[1..3], b"x\0").len(), 3 + 16, "an escape that was cut");
    }

    #[test]
    fn a_key_that_ends_within_a_component_is_refused() {
        let types = [ColumnType::Decimal { precision: 5, scale: 0 }, ColumnType::String, ColumnType::Uuid];
        assert!(to_engine(&types, b"\x80\0\0").is_err());
        assert!(to_engine(&types, b"\x80\0\0\0abc").is_err());
        assert_eq!(to_engine(&types, b"\x80\0\0\x01").unwrap().len(), 16);
        assert!(to_engine(&types, b"").unwrap().is_empty());
        assert!(from_engine(&types, &[0; 15]).is_err());
    }

    #[test]
    fn a_key_is_made_of_values_of_its_types() {
        let mut out = Vec::new();
        assert!(encode_component(ColumnType::Int32, ValueRef::Null, true, &mut out).is_err());
        assert!(encode_component(ColumnType::Int32, ValueRef::Int64(1), true, &mut out).is_err());
        assert!(encode_component(ColumnType::Double, ValueRef::Double(1.0), true, &mut out).is_err());
        assert!(encode_key(&[ColumnType::Int8; 2], [ValueRef::Int8(1)].into_iter(), &mut out).is_err());
    }

    proptest! {
        #[test]
        fn keys_are_carried_over_and_back_in_order(
            (types, a, b) in vec(key_type(), 1..4).prop_flat_map(|types| {
                let row: Vec<_> = types.iter().map(|t| value(*t)).collect();
                (Just(types), row.clone(), row)
            })
        ) {
            let (kudu_a, kudu_b) = (kudu_key(&types, &a), kudu_key(&types, &b));
            let (engine_a, engine_b) = (engine_key(&a), engine_key(&b));
            prop_assert_eq!(&*to_engine(&types, &kudu_a).unwrap(), &engine_a[..]);
            prop_assert_eq!(&*from_engine(&types, &engine_a).unwrap(), &kudu_a[..]);
            prop_assert_eq!(kudu_a.cmp(&kudu_b), engine_a.cmp(&engine_b));
        }

        #[test]
        fn any_key_is_carried_over_or_refused(
            types in vec(key_type(), 1..4),
            key in vec(prop_oneof![2 => 0_u8..2, 1 => any::<u8>()], 0..60),
        ) {
            let _ = to_engine(&types, &key);
            let _ = from_engine(&types, &key);
        }
    }
}
