//! PostgreSQL's binary numeric: digits to the base of 10,000, the exponent of the first one, a sign, and how many
//! decimal digits stand behind the point. [PostgreSQL `src/backend/utils/adt/numeric.c`, `numeric_send`]

use oribi_types::{Error, Result};

const NEGATIVE: u16 = 0x4000;
const NOT_A_NUMBER: u16 = 0xC000;

/// Decimal digits of one binary digit.
const GROUP: usize = 4;

/// The decimal digits of a numeric that are worth reading: our widest type has 76.
const DIGITS_MAX: i32 = 1000;

/// Appends the numeric `unscaled * 10^-scale`; `unscaled` is decimal digits with an optional minus, `scale` is not
/// negative.
pub fn write_binary_numeric(unscaled: &str, scale: i8, out: &mut Vec<u8>) {
    let (sign, digits) = match unscaled.strip_prefix('-') {
        Some(digits) => (NEGATIVE, digits.as_bytes()),
        None => (0, unscaled.as_bytes()),
    };
    let scale = usize::from(scale.unsigned_abs());
    // The digit at position p (0 is the last one before the point) stands in group p / 4, counted from the point.
    let (whole, fraction) = digits.split_at(digits.len().saturating_sub(scale));
    let fraction_zeros = scale - fraction.len();
    let mut groups: Vec<u16> = Vec::with_capacity(digits.len() / GROUP + 3);
    let lead = whole.len() % GROUP;
    let (first, rest) = whole.split_at(lead);
    groups.extend((lead > 0).then(|| number(first)));
    groups.extend(rest.chunks(GROUP).map(number));
    let mut weight = groups.len() as i32 - 1;
    let mut behind = std::iter::repeat_n(b'0', fraction_zeros).chain(fraction.iter().copied()).peekable();
    while behind.peek().is_some() {
        groups.push((0..GROUP).fold(0, |n, _| n * 10 + u16::from(behind.next().unwrap_or(b'0') - b'0')));
    }
    let zeros = groups.iter().take_while(|g| **g == 0).count();
    groups.drain(..zeros);
    weight -= zeros as i32;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    if groups.is_empty() {
        weight = 0;
    }
    let sign = if groups.is_empty() { 0 } else { sign };
    for field in [groups.len() as u16, weight as u16, sign, scale as u16].into_iter().chain(groups) {
        out.extend_from_slice(&field.to_be_bytes());
    }
}

fn number(digits: &[u8]) -> u16 {
    digits.iter().fold(0, |n, d| n * 10 + u16::from(d - b'0'))
}

/// The decimal text of a binary numeric.
///
/// # Errors
/// `Invalid` for bytes that are none, `Unsupported` for infinity and NaN, which our decimals do not have.
pub fn read_binary_numeric(bytes: &[u8]) -> Result<String> {
    let malformed = || Error::invalid("incorrect binary data format for type numeric");
    let mut fields = bytes.chunks(2).map(|f| f.try_into().map(u16::from_be_bytes).map_err(|_| malformed()));
    let mut field = || fields.next().unwrap_or_else(|| Err(malformed()));
    let (count, weight, sign, scale) = (field()?, i32::from(field()? as i16), field()?, i32::from(field()?));
    if bytes.len() != 8 + 2 * usize::from(count) {
        return Err(malformed());
    }
    let negative = match sign {
        0 => false,
        NEGATIVE => true,
        NOT_A_NUMBER.. => return Err(Error::unsupported("numeric values are finite: no NaN, no infinity")),
        _ => return Err(malformed()),
    };
    if weight.abs() > DIGITS_MAX / GROUP as i32
        || scale > DIGITS_MAX
        || usize::from(count) > DIGITS_MAX as usize
    {
        return Err(Error::invalid("numeric value is out of range"));
    }
    let groups = (0..count).map(|_| field().and_then(|g| if g < 10_000 { Ok(g) } else { Err(malformed()) }));
    let groups = groups.collect::<Result<Vec<u16>>>()?;
    let group = |exponent: i32| usize::try_from(weight - exponent).ok().and_then(|i| groups.get(i)).copied();
    let mut text = String::from(if negative { "-" } else { "" });
    for exponent in (0..=weight.max(0)).rev() {
        text.push_str(&format!("{:04}", group(exponent).unwrap_or(0)));
    }
    let last = weight - i32::from(count) + 1;
    if last < 0 {
        text.push('.');
        for exponent in (last..0).rev() {
            text.push_str(&format!("{:04}", group(exponent).unwrap_or(0)));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(unscaled: &str, scale: i8) -> Vec<u16> {
        let mut out = Vec::new();
        write_binary_numeric(unscaled, scale, &mut out);
        out.chunks(2).map(|f| u16::from_be_bytes(f.try_into().unwrap())).collect()
    }

    /// The values are what PostgreSQL 15 sends.
    #[test]
    fn writes_what_postgres_sends() {
        assert_eq!(fields("0", 2), [0, 0, 0, 2]);
        assert_eq!(fields("123456789", 2), [3, 1, 0, 2, 123, 4567, 8900]);
        assert_eq!(fields("-1", 4), [1, 0xFFFF, NEGATIVE, 4, 1]);
        assert_eq!(fields("10000", 0), [1, 1, 0, 0, 1]);
        assert_eq!(fields("5", 5), [1, 0xFFFE, 0, 5, 5000]);
        assert_eq!(fields("15", 1), [2, 0, 0, 1, 1, 5000]);
    }

    #[test]
    fn reads_back_every_size() {
        for unscaled in [
            "0",
            "7",
            "-42",
            "99999999999999999999999999999999999999",
            "-10000000000000000000000000000000000001",
        ] {
            for scale in [0_i8, 1, 3, 4, 7, 38] {
                let mut bytes = Vec::new();
                write_binary_numeric(unscaled, scale, &mut bytes);
                let column_type = oribi_types::ColumnType::Decimal { precision: 38, scale };
                let text = read_binary_numeric(&bytes).unwrap();
                let value = oribi_types::text::parse(column_type, &text).unwrap();
                assert_eq!(
                    value,
                    oribi_types::Value::Decimal(unscaled.parse().unwrap()),
                    "{unscaled}e-{scale}: {text}"
                );
            }
        }
    }

    #[test]
    fn foreign_bytes_are_errors() {
        let mut good = Vec::new();
        write_binary_numeric("123456789", 2, &mut good);
        for end in 0..good.len() {
            assert!(read_binary_numeric(&good[..end]).is_err());
        }
        for fields in [[0, 0, NOT_A_NUMBER, 0], [0, 0, 0xD000, 0], [0, 0x7FFF, 0, 0], [0, 0, 1, 0]] {
            let bytes: Vec<u8> = fields.iter().flat_map(|f: &u16| f.to_be_bytes()).collect();
            assert!(read_binary_numeric(&bytes).is_err(), "{fields:?}");
        }
    }
}
