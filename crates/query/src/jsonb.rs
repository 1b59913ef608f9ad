//! JSON as PostgreSQL writes `jsonb`: members by the length of their names, then by their bytes, of two with one name the
//! last; a space behind each comma and colon; numbers without an exponent, with the zeros that were written.
//!
//! What a cast makes is of that form. A column keeps the text that it was given: it may go out through a door that gives
//! back each byte.

use crate::dml::parse_text;
use crate::error::invalid;
use crate::json_text::{elements, members, string};
use crate::literals;
use arrow::array::{ArrayRef, AsArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DataFusionError, Result};
use oribi_session::sql::SqlError;
use oribi_types::ColumnType;
use oribi_types::schema::JSONB_METADATA;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// The field of a value of the form.
pub(crate) fn field(name: &str) -> FieldRef {
    let field = literals::field(ColumnType::Json, name);
    let mut metadata = field.metadata().clone();
    metadata.insert(JSONB_METADATA.to_owned(), String::new());
    Arc::new(Field::clone(&field).with_metadata(metadata))
}

/// Texts in the form.
///
/// # Errors
/// As [`normalize`].
pub(crate) fn normalize_all(texts: &ArrayRef) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let normalized = texts.as_string_view().iter().map(|text| text.map(normalize).transpose());
    let normalized: Result<StringViewArray, SqlError> = normalized.collect();
    Ok(Arc::new(normalized.map_err(|error| DataFusionError::External(Box::new(error)))?))
}

/// `text` in the form.
///
/// # Errors
/// 22P02 for a text that is no JSON, 22P05 for a string with a zero byte, 22003 for a number that PostgreSQL's numeric
/// does not hold.
pub(crate) fn normalize(text: &str) -> Result<String, SqlError> {
    parse_text(text, ColumnType::Json)?;
    let mut out = String::with_capacity(text.len());
    read(text)?.write(&mut out);
    Ok(out)
}

enum Node {
    /// A string, a number or a word, as it is written.
    Scalar(String),
    Array(Vec<Node>),
    /// Members by length and bytes of their names.
    Object(BTreeMap<(usize, String), Node>),
}

impl Node {
    fn write(&self, out: &mut String) {
        match self {
            Node::Scalar(text) => out.push_str(text),
            Node::Array(elements) => {
                out.push('[');
                for (i, element) in elements.iter().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    element.write(out);
                }
                out.push(']');
            }
            Node::Object(members) => {
                out.push('{');
                for (i, ((_, name), value)) in members.iter().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    write_string(name, out);
                    out.push_str(": ");
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// The value that a text writes, nested no deeper than the check of JSON allows.
fn read(text: &str) -> Result<Node, SqlError> {
    let text = text.trim_ascii();
    Ok(match text.as_bytes()[0] {
        b'{' => {
            let member = |(name, value)| {
                let name = string(name)?;
                Ok(((name.len(), name), read(value)?))
            };
            Node::Object(members(text).map(member).collect::<Result<_, SqlError>>()?)
        }
        b'[' => Node::Array(elements(text).map(read).collect::<Result<_, SqlError>>()?),
        b'"' => {
            let mut out = String::new();
            write_string(&string(text)?, &mut out);
            Node::Scalar(out)
        }
        b't' | b'f' | b'n' => Node::Scalar(text.to_owned()),
        _ => Node::Scalar(number(text)?),
    })
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => write!(out, "\\u{:04x}", u32::from(c)).expect("a string takes all"),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The most digits before and behind the point of PostgreSQL's numeric.
const WHOLE_DIGITS_MAX: i64 = 131_072;
const FRACTION_DIGITS_MAX: i64 = 16_383;

/// A number as a numeric is written.
fn number(word: &str) -> Result<String, SqlError> {
    let (mantissa, exponent) = word.split_once(['e', 'E']).unwrap_or((word, "0"));
    let out_of_range = || invalid("22003", "value overflows numeric format");
    let exponent: i64 = exponent.parse().map_err(|_| out_of_range())?;
    let (negative, mantissa) = mantissa.strip_prefix('-').map_or((false, mantissa), |rest| (true, rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let is_zero = digits.bytes().all(|b| b == b'0');
    // Where the point stands among the digits, and how many are to be behind it.
    let point = whole.len() as i64 + exponent;
    let scale = (fraction.len() as i64 - exponent).max(0);
    if scale > FRACTION_DIGITS_MAX || (!is_zero && point > WHOLE_DIGITS_MAX) {
        return Err(out_of_range());
    }
    let point = if is_zero { 1 } else { point };
    let digit = |place: i64| usize::try_from(place).ok().and_then(|place| digits.as_bytes().get(place));
    let text = |places: std::ops::Range<i64>| -> String {
        places.map(|place| digit(place).map_or('0', |digit| char::from(*digit))).collect()
    };
    let whole = text(0..point.max(0));
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let sign = if negative && !is_zero { "-" } else { "" };
    let dot = if scale > 0 { "." } else { "" };
    Ok(format!("{sign}{whole}{dot}{}", text(point..point + scale)))
}

#[cfg(test)]
mod tests {
    use super::normalize;

    #[test]
    fn json_is_written_as_jsonb() {
        for (text, written) in [
            (
                r#" {"b":1,"aa":2,"a":3,"a":{"x":1e2,"y":-0.0,"z":1.50e1}} "#,
                r#"{"a": {"x": 100, "y": 0.0, "z": 15.0}, "b": 1, "aa": 2}"#,
            ),
            ("[ ]", "[]"),
            ("{ }", "{}"),
            ("[1 , [ ] ,{\"a\" : [ {} ]}, true,null]", "[1, [], {\"a\": [{}]}, true, null]"),
            (r#""\u00e9\u0001\n\/\"\\""#, r#""é\u0001\n/\"\\""#),
            (r#"{"a,}]\"": "[{"}"#, r#"{"a,}]\"": "[{"}"#),
            ("1e-3", "0.001"),
            ("-1.5E+3", "-1500"),
            ("0.050", "0.050"),
            ("0e5", "0"),
            ("12345678901234567890.10", "12345678901234567890.10"),
            ("-0", "0"),
        ] {
            assert_eq!(normalize(text).unwrap(), written, "{text}");
        }
        for (text, state) in [
            ("{", "22P02"),
            (r#""\u0000""#, "22P05"),
            (r#""\ud800""#, "22P02"),
            ("1e400000", "22003"),
            ("1e-20000", "22003"),
        ] {
            assert_eq!(normalize(text).unwrap_err().sqlstate, Some(state), "{text}");
        }
    }
}
