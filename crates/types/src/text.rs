//! Values as text: what PostgreSQL prints for them, and what it reads.
//!
//! [`parse`] reads every text that [`format`] writes as the same value. Deviations from PostgreSQL: booleans are
//! written `true` and `false`; and but for [`parse_sql`] a timestamp with an offset is converted to UTC. What a client of
//! another protocol stored beyond PostgreSQL's years is written with its year.

mod interval;
mod moment;

pub use interval::{Interval, Unit};
pub(crate) use moment::format_timestamp;

use crate::{ColumnType, Error, Result, Value, ValueRef};
use moment::{format_date, parse_clock, parse_date, parse_timestamp};
use std::fmt::Display;
use std::io::Write;
use std::str::FromStr;

/// Reads a value of `column_type`. Space around anything but text, binary and JSON is ignored; there is no text for
/// null.
///
/// # Errors
/// `Invalid`, quoting the text, if it is not of the type or out of the type's range.
pub fn parse(column_type: ColumnType, text: &str) -> Result<Value> {
    let word = text.trim_ascii();
    let malformed = || malformed(column_type, text);
    Ok(match column_type {
        ColumnType::Bool => Value::Bool(parse_bool(word).ok_or_else(malformed)?),
        ColumnType::Int8 => Value::Int8(parse_int(column_type, word)?),
        ColumnType::Int16 => Value::Int16(parse_int(column_type, word)?),
        ColumnType::Int32 => Value::Int32(parse_int(column_type, word)?),
        ColumnType::Int64 => Value::Int64(parse_int(column_type, word)?),
        ColumnType::Float => {
            let value: f32 = word.parse().map_err(|_| no_float(column_type, word))?;
            check_range(value.is_infinite(), value == 0.0, column_type, word)?;
            Value::Float(if value.is_nan() { f32::NAN } else { value })
        }
        ColumnType::Double => {
            let value: f64 = word.parse().map_err(|_| no_float(column_type, word))?;
            check_range(value.is_infinite(), value == 0.0, column_type, word)?;
            // There is one `NaN`, without a sign.
            Value::Double(if value.is_nan() { f64::NAN } else { value })
        }
        ColumnType::Decimal { precision, scale } => Value::Decimal(parse_decimal(word, precision, scale)?.0),
        ColumnType::String => Value::String(text.to_owned()),
        ColumnType::Binary => Value::Binary(parse_bytes(text).ok_or_else(malformed)?),
        ColumnType::Date => Value::Date(parse_date(word)?),
        ColumnType::Timestamp => Value::Timestamp(parse_timestamp(word)?),
        ColumnType::Uuid => Value::Uuid(uuid::Uuid::try_parse(word).map_err(|_| malformed())?.into_bytes()),
        ColumnType::Json => {
            check_json(text)?;
            Value::Json(text.to_owned())
        }
    })
}

/// As [`parse`], for SQL: an offset behind a timestamp is passed over.
///
/// # Errors
/// As `parse`.
pub fn parse_sql(column_type: ColumnType, text: &str) -> Result<Value> {
    match column_type {
        ColumnType::Timestamp => parse_clock(text.trim_ascii()).map(Value::Timestamp),
        other => parse(other, text),
    }
}

/// As [`parse_sql`], for a value that is compared: rounded to the scale of its type, a decimal would equal what it does not.
///
/// # Errors
/// As `parse_sql`, and `Invalid` for a decimal that would have to be rounded.
pub fn parse_exact(column_type: ColumnType, text: &str) -> Result<Value> {
    if let ColumnType::Decimal { precision, scale } = column_type
        && !parse_decimal(text.trim_ascii(), precision, scale)?.1
    {
        let digits = excerpt(text);
        return Err(Error::invalid(format!(
            "\"{digits}\" has more digits than a value of type {column_type}"
        )));
    }
    parse_sql(column_type, text)
}

/// Appends the text of a value of `column_type`; null is the empty text.
pub fn format(value: ValueRef<'_>, column_type: ColumnType, out: &mut Vec<u8>) {
    match value {
        ValueRef::Null => {}
        ValueRef::Bool(v) => out.extend_from_slice(if v { b"true" } else { b"false" }),
        ValueRef::Int8(v) => display(v, out),
        ValueRef::Int16(v) => display(v, out),
        ValueRef::Int32(v) => display(v, out),
        ValueRef::Int64(v) => display(v, out),
        ValueRef::Float(v) => format_float(f64::from(v), &format!("{v:e}"), 6, out),
        ValueRef::Double(v) => format_float(v, &format!("{v:e}"), 15, out),
        ValueRef::Decimal(v) => {
            let scale = if let ColumnType::Decimal { scale, .. } = column_type { scale } else { 0 };
            format_decimal(v, scale, out);
        }
        ValueRef::String(v) | ValueRef::Json(v) => out.extend_from_slice(v.as_bytes()),
        ValueRef::Binary(v) => format_bytes(v, out),
        ValueRef::Date(v) => format_date(v, out),
        ValueRef::Timestamp(v) => format_timestamp(v, ' ', out),
        ValueRef::Uuid(v) => {
            let mut buffer = uuid::Uuid::encode_buffer();
            let text = uuid::Uuid::from_bytes(v).hyphenated().encode_lower(&mut buffer);
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// The text of a value, as [`format`] writes it.
pub fn to_string(value: ValueRef<'_>, column_type: ColumnType) -> String {
    let mut out = Vec::new();
    format(value, column_type, &mut out);
    String::from_utf8(out).expect("values are written as UTF-8")
}

/// `\x` and two hex digits for each byte: of many at a time, as what is made of a long value keeps a thread busy that serves others.
fn format_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    const BLOCK_BYTES: usize = 64;
    let digit = |nibble: u8| nibble + if nibble < 10 { b'0' } else { b'a' - 10 };
    out.reserve(2 + 2 * bytes.len());
    out.extend_from_slice(b"\\x");
    for block in bytes.chunks(BLOCK_BYTES) {
        let mut digits = [[0; 2]; BLOCK_BYTES];
        for (digits, byte) in digits.iter_mut().zip(block) {
            *digits = [digit(byte >> 4), digit(byte & 15)];
        }
        out.extend_from_slice(digits[..block.len()].as_flattened());
    }
}

fn display(value: impl Display, out: &mut Vec<u8>) {
    write!(out, "{value}").expect("a vector takes all that is written");
}

fn malformed(column_type: ColumnType, text: &str) -> Error {
    Error::invalid(format!("invalid input syntax for type {column_type}: \"{}\"", excerpt(text)))
}

/// PostgreSQL reads floats in base 16 as well.
fn no_float(column_type: ColumnType, word: &str) -> Error {
    let digits = word.trim_start_matches(['+', '-']);
    if digits.starts_with("0x") || digits.starts_with("0X") {
        return Error::unsupported(format!("a {column_type} in base 16 is not supported"));
    }
    malformed(column_type, word)
}

fn out_of_range(column_type: ColumnType, text: &str) -> Error {
    Error::invalid(format!("value \"{}\" is out of range for type {column_type}", excerpt(text)))
}

/// As much of a foreign text as an error message may quote.
fn excerpt(text: &str) -> &str {
    const CHARS_MAX: usize = 80;
    text.char_indices().nth(CHARS_MAX).map_or(text, |(end, _)| &text[..end])
}

/// Checks that a text is one JSON value.
///
/// # Errors
/// `Invalid`, with the place of the first fault.
pub(crate) fn check_json(text: &str) -> Result<()> {
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .map(drop)
        .map_err(|e| Error::invalid(format!("invalid input syntax for type json: {e}")))
}

fn parse_bool(word: &str) -> Option<bool> {
    const WORDS: [(&str, bool, usize); 6] = [
        // The word, its value, and how many letters at least tell it from the others.
        ("true", true, 1),
        ("false", false, 1),
        ("yes", true, 1),
        ("no", false, 1),
        ("on", true, 2),
        ("off", false, 2),
    ];
    match word {
        "1" => return Some(true),
        "0" => return Some(false),
        _ => {}
    }
    let is = |&&(full, _, letters): &&(&str, bool, usize)| {
        word.len() >= letters && full.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
    };
    WORDS.iter().find(is).map(|&(_, value, _)| value)
}

fn parse_int<T: FromStr<Err = std::num::ParseIntError>>(column_type: ColumnType, word: &str) -> Result<T> {
    use std::num::IntErrorKind;
    word.parse::<T>().map_err(|error| match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => out_of_range(column_type, word),
        _ => malformed(column_type, word),
    })
}

/// A number too large for its type reads as infinite, which only the word for infinity may do; one too small as zero.
fn check_range(infinite: bool, zero: bool, column_type: ColumnType, word: &str) -> Result<()> {
    let mantissa = word.split(['e', 'E']).next().unwrap_or_default();
    let lost = zero && mantissa.bytes().any(|b| (b'1'..=b'9').contains(&b));
    if lost || infinite && word.bytes().any(|b| b.is_ascii_digit()) {
        return Err(out_of_range(column_type, word));
    }
    Ok(())
}

/// Reads digits with an optional sign, point and exponent into an integer scaled by 10^`scale`, rounding half away
/// from zero; and whether there was nothing to round.
fn parse_decimal(word: &str, precision: u8, scale: i8) -> Result<(i128, bool)> {
    let column_type = ColumnType::Decimal { precision, scale };
    let malformed = || {
        if word.parse::<f64>().is_ok_and(|value| !value.is_finite())
            && !word.bytes().any(|b| b.is_ascii_digit())
        {
            return Error::unsupported(format!("{word} as a {column_type} is not supported"));
        }
        malformed(column_type, word)
    };
    let out_of_range = || out_of_range(column_type, word);
    let (negative, unsigned) = match word.as_bytes() {
        [b'-', ..] => (true, &word[1..]),
        [b'+', ..] => (false, &word[1..]),
        _ => (false, word),
    };
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], unsigned[at + 1..].parse::<i32>().map_err(|_| malformed())?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits = whole.bytes().chain(fraction.bytes());
    if whole.len() + fraction.len() == 0 || !digits.clone().all(|d| d.is_ascii_digit()) {
        return Err(malformed());
    }
    // How many digits stand before the last one kept; the first digit behind it rounds.
    let kept = whole.len() as i64 + i64::from(exponent) + i64::from(scale);
    let mut value: i128 = 0;
    let push = |value: i128, digit: u8| {
        value.checked_mul(10).and_then(|v| v.checked_add(i128::from(digit - b'0'))).ok_or_else(out_of_range)
    };
    let mut taken = 0;
    while taken < kept {
        match digits.next() {
            Some(digit) => value = push(value, digit)?,
            // Zero stays zero however large the exponent; any other value leaves the range within 39 steps.
            None if value == 0 => break,
            None => value = push(value, b'0')?,
        }
        taken += 1;
    }
    let exact = digits.clone().all(|digit| digit == b'0');
    if kept >= 0 && digits.next().is_some_and(|digit| digit >= b'5') {
        value = value.saturating_add(1);
    }
    if value >= 10_i128.pow(u32::from(precision)) {
        return Err(out_of_range());
    }
    Ok((if negative { -value } else { value }, exact))
}

fn format_decimal(value: i128, scale: i8, out: &mut Vec<u8>) {
    let scale = usize::from(scale.unsigned_abs());
    if value < 0 {
        out.push(b'-');
    }
    let start = out.len();
    display(value.unsigned_abs(), out);
    let digits = out.len() - start;
    if digits <= scale {
        out.splice(start..start, std::iter::repeat_n(b'0', scale + 1 - digits));
    }
    if scale > 0 {
        out.insert(out.len() - scale, b'.');
    }
}

/// Writes the shortest digits that read back as the same number (`shortest`: in scientific notation), with an
/// exponent where PostgreSQL uses one: below 1e-4 and from 10^`digits_max` on.
fn format_float(value: f64, shortest: &str, digits_max: i32, out: &mut Vec<u8>) {
    if value.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.extend_from_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
    let (mantissa, exponent) = shortest.split_once('e').expect("scientific notation has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    if (-4..digits_max).contains(&exponent) {
        let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |m| ("-", m));
        out.extend_from_slice(sign.as_bytes());
        let digits: Vec<u8> = mantissa.bytes().filter(|b| *b != b'.').collect();
        let point = exponent + 1;
        if point <= 0 {
            out.extend_from_slice(b"0.");
            out.extend(std::iter::repeat_n(b'0', point.unsigned_abs() as usize));
            out.extend_from_slice(&digits);
        } else if digits.len() <= point as usize {
            out.extend_from_slice(&digits);
            out.extend(std::iter::repeat_n(b'0', point as usize - digits.len()));
        } else {
            out.extend_from_slice(&digits[..point as usize]);
            out.push(b'.');
            out.extend_from_slice(&digits[point as usize..]);
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{mantissa}e{sign}{:02}", exponent.abs()).expect("a vector takes all that is written");
    }
}

/// Reads `\x` and hex digits, or text in which `\\` is a backslash and `\ooo` an octal byte.
fn parse_bytes(text: &str) -> Option<Vec<u8>> {
    if let Some(hex) = text.strip_prefix("\\x") {
        let mut nibbles = hex.bytes().filter(|b| !b.is_ascii_whitespace());
        let mut bytes = Vec::with_capacity(hex.len() / 2);
        while let Some(high) = nibbles.next() {
            bytes.push(nibble(high)? << 4 | nibble(nibbles.next()?)?);
        }
        return Some(bytes);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'\\' {
            bytes.push(*byte);
        } else if let [b'\\', tail @ ..] = rest {
            bytes.push(b'\\');
            rest = tail;
        } else if let [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] = rest {
            bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = tail;
        } else {
            return None;
        }
    }
    Some(bytes)
}

fn nibble(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|d| d as u8)
}

#[cfg(test)]
mod tests;
