//! Functions of text and bytes that are ours, since DataFusion's of the same name answer otherwise or do not exist.

use super::array_or_empty::ArrayOrEmpty;
use super::itself;
use super::large::{self, Bounded, FOLDED_BYTES_MAX};
use super::moments;
use super::patterns;
use super::rows::{Answer, Arg, Returns, RowFunction};
use super::series;
use crate::error::{invalid, unsupported};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{AggregateUDF, Expr, ScalarUDF};
use oribi_session::sql::SqlError;
use oribi_types::text::to_string;
use oribi_types::{ColumnType, ErrorKind, Value, ValueRef, text};
use std::sync::Arc;

/// Puts our functions in place of DataFusion's.
///
/// # Errors
/// None are expected.
pub(crate) fn register(state: &mut SessionState) -> Result<()> {
    series::register(state)?;
    let pool = Arc::clone(&state.runtime_env().memory_pool);
    let registry: &mut dyn FunctionRegistry = state;
    for name in large::AGGREGATES {
        let bounded = Bounded::new(registry.udaf(name)?.as_ref(), &pool);
        registry.register_udaf(Arc::new(AggregateUDF::new_from_impl(bounded)))?;
    }
    for function in FUNCTIONS.iter().chain(patterns::FUNCTIONS).chain(moments::FUNCTIONS) {
        registry.register_udf(Arc::new(ScalarUDF::new_from_impl(function.clone())))?;
    }
    registry.register_udf(Arc::new(ScalarUDF::new_from_impl(ArrayOrEmpty::new())))?;
    registry.register_udf(Arc::new(itself::unary_plus()))?;
    Ok(())
}

const FUNCTIONS: &[RowFunction] = &[
    RowFunction::strict("bit_length", Returns::Int4, |args| {
        Ok(Answer::Int(8 * bytes(&args[0]).len() as i64))
    }),
    RowFunction::strict("octet_length", Returns::Int4, |args| Ok(Answer::Int(bytes(&args[0]).len() as i64))),
    RowFunction::strict("length", Returns::Int4, |args| {
        Ok(Answer::Int(match args[0] {
            Arg::Bytes(bytes) => bytes.len() as i64,
            _ => args[0].text().chars().count() as i64,
        }))
    }),
    RowFunction::strict("chr", Returns::Text, |args| chr(args[0].int())),
    RowFunction::strict("lower", Returns::Text, |args| {
        Ok(Answer::Text(args[0].text().chars().map(lower).collect()))
    }),
    RowFunction::strict("upper", Returns::Text, |args| {
        Ok(Answer::Text(args[0].text().chars().map(upper).collect()))
    }),
    RowFunction::strict("initcap", Returns::Text, |args| Ok(Answer::Text(initcap(args[0].text())))),
    RowFunction::strict("encode", Returns::Text, |args| encode(bytes(&args[0]), args[1].text())).growing(
        |args| {
            let per_byte = if args[1].text().eq_ignore_ascii_case("escape") { 4 } else { 2 };
            bytes(&args[0]).len() * per_byte
        },
    ),
    RowFunction::strict("decode", Returns::Bytes, |args| decode(args[0].text(), args[1].text())),
    RowFunction::strict("convert_from", Returns::Text, |args| {
        check_encoding(args[1].text())?;
        match std::str::from_utf8(bytes(&args[0])) {
            Ok(text) if !text.contains('\0') => Ok(Answer::Text(text.to_owned())),
            _ => Err(invalid("22021", "invalid byte sequence for encoding \"UTF8\"")),
        }
    }),
    RowFunction::strict("convert_to", Returns::Bytes, |args| {
        check_encoding(args[1].text())?;
        Ok(Answer::Bytes(bytes(&args[0]).to_vec()))
    }),
    RowFunction::strict("json_array_length", Returns::Int4, |args| json_array_length(args[0].text())),
    RowFunction::strict("jsonb_array_length", Returns::Int4, |args| json_array_length(args[0].text())),
    RowFunction::strict(LONG_TEXT, Returns::Text, |args| Ok(Answer::Text(args[0].text().to_owned()))),
    RowFunction::strict(HAS_KEY, Returns::Bool, |args| {
        Ok(Answer::Bool(has_key(args[0].text(), args[1].text())))
    }),
    RowFunction::strict("lpad", Returns::Text, |args| {
        let (kept, fill) = padding(args)?;
        Ok(Answer::Text(fill + &kept))
    })
    .growing(padded_bytes),
    RowFunction::strict("rpad", Returns::Text, |args| {
        let (kept, fill) = padding(args)?;
        Ok(Answer::Text(kept + &fill))
    })
    .growing(padded_bytes),
    RowFunction::strict(OVERLAY, Returns::Text, overlay),
    RowFunction::strict("right", Returns::Text, |args| {
        let (text, n) = (args[0].text(), args[1].int());
        let skipped = match n {
            // PostgreSQL's integer has no such positive number.
            n if n == i64::from(i32::MIN) => 0,
            n if n < 0 => n.unsigned_abs(),
            n => (text.chars().count() as u64).saturating_sub(n as u64),
        };
        Ok(Answer::Text(text.chars().skip(usize::try_from(skipped).unwrap_or(usize::MAX)).collect()))
    })
    .growing(|args| {
        let (bytes, n) = (args[0].text().len(), args[1].int());
        usize::try_from(n).map_or(bytes, |n| bytes.min(n.saturating_mul(4)))
    }),
    RowFunction::strict("quote_literal", Returns::Text, |args| {
        Ok(Answer::Text(quote_literal(args[0].text())))
    })
    .growing(quoted_bytes),
    RowFunction::lenient("quote_nullable", Returns::Text, |args| {
        Ok(Answer::Text(match args[0] {
            Arg::Null => "NULL".into(),
            _ => quote_literal(args[0].text()),
        }))
    })
    .growing(quoted_bytes),
    RowFunction::lenient("concat", Returns::Text, |args| {
        Ok(Answer::Text(args.iter().map(Arg::text).collect()))
    })
    .growing(|args| args.iter().map(|arg| arg.text().len()).sum()),
    RowFunction::lenient("concat_ws", Returns::Text, |args| match args {
        [Arg::Null, ..] => Ok(Answer::Null),
        [separator, parts @ ..] => {
            let parts: Vec<&str> = parts.iter().filter(|part| !part.is_null()).map(Arg::text).collect();
            Ok(Answer::Text(parts.join(separator.text())))
        }
        [] => Ok(Answer::Null),
    })
    .growing(|args| {
        let between = args.len().saturating_sub(2) * args[0].text().len();
        between + args[1..].iter().map(|arg| arg.text().len()).sum::<usize>()
    }),
];

/// A text that is written out, or a parameter, which is long: rows that are made of it share it.
pub(crate) fn long_text(text: Expr) -> Expr {
    let is_long = matches!(&text, Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), None)
        if text.len() > FOLDED_BYTES_MAX);
    if is_long { call(LONG_TEXT, vec![text]) } else { text }
}

pub(super) const LONG_TEXT: &str = "long_text";

fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let function = FUNCTIONS.iter().find(|function| function.name() == name);
    let function = function.expect("it is one of ours").clone();
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(function)), arguments))
}

/// Whether a JSON value has a member of a name, or is or has a string of it.
pub(crate) fn json_has_key(document: Expr, key: Expr) -> Expr {
    call(HAS_KEY, vec![document, key])
}

pub(super) const HAS_KEY: &str = "json_has_key";

fn has_key(document: &str, key: &str) -> bool {
    use serde_json::Value;
    match serde_json::from_str(document) {
        Ok(Value::Object(members)) => members.contains_key(key),
        Ok(Value::Array(elements)) => elements.iter().any(|element| element.as_str() == Some(key)),
        Ok(scalar) => scalar.as_str() == Some(key),
        Err(_) => false,
    }
}

fn bytes<'a>(arg: &Arg<'a>) -> &'a [u8] {
    match arg {
        Arg::Bytes(bytes) => bytes,
        other => other.text().as_bytes(),
    }
}

fn json_array_length(json: &str) -> std::result::Result<Answer, SqlError> {
    match serde_json::from_str::<serde_json::Value>(json) {
        Ok(serde_json::Value::Array(elements)) => Ok(Answer::Int(elements.len() as i64)),
        Ok(serde_json::Value::Object(_)) => Err(invalid("22023", "cannot get array length of a non-array")),
        _ => Err(invalid("22023", "cannot get array length of a scalar")),
    }
}

/// The bytes of a text that is brought to a length, at most.
fn padded_bytes(args: &[Arg<'_>]) -> usize {
    let (text, length) = (args[0].text(), args[1].int().max(0) as usize);
    let widest = if args.get(2).is_none_or(|fill| fill.text().is_ascii()) { 1 } else { 4 };
    let fill = if args.get(2).is_some_and(|fill| fill.text().is_empty()) { 0 } else { length };
    // The body refuses it by its characters.
    if length > CHARS_MAX { 0 } else { text.len().min(4 * length) + fill * widest }
}

/// The bytes of a text in quotes, of which each character may be doubled.
fn quoted_bytes(args: &[Arg<'_>]) -> usize {
    let text = args[0].text();
    text.len() + text.bytes().filter(|byte| matches!(byte, b'\'' | b'\\')).count() + 3
}

/// What is kept of a text that is brought to a length, and what fills it up.
fn padding(args: &[Arg<'_>]) -> std::result::Result<(String, String), SqlError> {
    let (text, length) = (args[0].text(), args[1].int().max(0) as usize);
    let fill = args.get(2).map_or(" ", Arg::text);
    if length > CHARS_MAX {
        let error = SqlError::new(ErrorKind::TooLarge, "requested length too large");
        return Err(error.with_sqlstate("54000"));
    }
    let kept: String = text.chars().take(length).collect();
    let missing = if fill.is_empty() { 0 } else { length - kept.chars().count() };
    Ok((kept, fill.chars().cycle().take(missing).collect()))
}

/// The most characters of a text that is made: four bytes each, and a gigabyte together.
const CHARS_MAX: usize = (1 << 28) - 2;

const OVERLAY: &str = "overlay";

/// Whether the planner called DataFusion's function of a name that is ours: it does so for a clause of its own.
pub(super) fn is_replaced(call: &ScalarFunction) -> bool {
    call.func.name() == OVERLAY && !call.func.inner().is::<RowFunction>()
}

/// The call of our function of the name.
pub(super) fn ours(replaced: ScalarFunction) -> Expr {
    call(replaced.func.name(), replaced.args)
}

/// The text with another in place of some of its characters.
fn overlay(args: &[Arg<'_>]) -> std::result::Result<Answer, SqlError> {
    let (text, placed, from) = (args[0].text(), args[1].text(), args[2].int());
    let length = args.get(3).map_or(placed.chars().count() as i64, Arg::int);
    if from < 1 {
        return Err(invalid("22011", "negative substring length not allowed"));
    }
    let behind = from + length;
    if i32::try_from(behind).is_err() {
        return Err(invalid("22003", "integer out of range"));
    }
    let before = text.chars().take((from - 1) as usize);
    let after = text.chars().skip((behind - 1).max(0) as usize);
    Ok(Answer::Text(before.chain(placed.chars()).chain(after).collect()))
}

/// All text is UTF-8.
fn check_encoding(name: &str) -> std::result::Result<(), SqlError> {
    match name.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
        "utf8" | "unicode" => Ok(()),
        _ => Err(unsupported(&format!("encoding \"{name}\""))),
    }
}

fn chr(code: i64) -> std::result::Result<Answer, SqlError> {
    let refused = |message: String| SqlError::new(ErrorKind::TooLarge, message).with_sqlstate("54000");
    match u32::try_from(code) {
        Err(_) => Err(invalid("22023", "character number must be positive")),
        Ok(0) => Err(refused("null character not permitted".into())),
        Ok(code) => {
            let c = char::from_u32(code)
                .ok_or_else(|| refused(format!("requested character too large for encoding: {code}")))?;
            Ok(Answer::Text(c.to_string()))
        }
    }
}

/// A character has one in the other case or stays: PostgreSQL folds by character, so `ß` has no capital.
fn lower(c: char) -> char {
    let mut folded = c.to_lowercase();
    match (folded.next(), folded.next()) {
        (Some(one), None) => one,
        // İ, the only one with two.
        _ => 'i',
    }
}

fn upper(c: char) -> char {
    let mut folded = c.to_uppercase();
    match (folded.next(), folded.next()) {
        (Some(one), None) => one,
        _ => match c {
            // Greek with iota below: the capital with iota beside it.
            '\u{1f80}'..='\u{1faf}' => char::from_u32(c as u32 | 8).unwrap_or(c),
            '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => char::from_u32(c as u32 + 9).unwrap_or(c),
            _ => c,
        },
    }
}

/// The first letter of each word as a capital, the others small; words are of letters and digits.
fn initcap(text: &str) -> String {
    let mut inside = false;
    let capital = |c: char| {
        let folded = if inside { lower(c) } else { upper(c) };
        inside = c.is_alphanumeric();
        folded
    };
    text.chars().map(capital).collect()
}

fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\\', "\\\\").replace('\'', "''");
    if text.contains('\\') { format!("E'{quoted}'") } else { format!("'{quoted}'") }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn encode(bytes: &[u8], format: &str) -> std::result::Result<Answer, SqlError> {
    Ok(Answer::Text(match format.to_ascii_lowercase().as_str() {
        "hex" => to_string(ValueRef::Binary(bytes), ColumnType::Binary)[2..].to_owned(),
        "base64" => {
            let mut out = String::new();
            for (n, group) in bytes.chunks(3).enumerate() {
                // A line has 76 digits.
                if n > 0 && n.is_multiple_of(19) {
                    out.push('\n');
                }
                let number = group.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte))
                    << (8 * (3 - group.len()));
                for place in 0..4 {
                    let digit = DIGITS[(number >> (18 - 6 * place) & 63) as usize];
                    out.push(if place > group.len() { '=' } else { digit as char });
                }
            }
            out
        }
        "escape" => {
            let mut out = String::new();
            for byte in bytes {
                match byte {
                    b'\\' => out.push_str("\\\\"),
                    0 | 128.. => out.push_str(&format!("\\{byte:03o}")),
                    byte => out.push(*byte as char),
                }
            }
            out
        }
        _ => return Err(invalid("22023", format!("unrecognized encoding: \"{format}\""))),
    }))
}

fn decode(data: &str, format: &str) -> std::result::Result<Answer, SqlError> {
    let malformed = |what: &str| invalid("22023", format!("invalid {what} data"));
    Ok(Answer::Bytes(match format.to_ascii_lowercase().as_str() {
        // Blanks may stand between bytes, not within one.
        "hex" if data.split_ascii_whitespace().any(|digits| !digits.len().is_multiple_of(2)) => {
            return Err(malformed("hexadecimal"));
        }
        "hex" => match text::parse(ColumnType::Binary, &format!("\\x{data}")) {
            Ok(Value::Binary(bytes)) => bytes,
            _ => return Err(malformed("hexadecimal")),
        },
        "base64" => from_base64(data).ok_or_else(|| malformed("base64"))?,
        // A text that begins as hexadecimal digits do is none here.
        "escape" if data.starts_with("\\x") => {
            return Err(invalid("22P02", "invalid input syntax for type bytea"));
        }
        "escape" => match text::parse(ColumnType::Binary, data) {
            Ok(Value::Binary(bytes)) => bytes,
            _ => return Err(invalid("22P02", "invalid input syntax for type bytea")),
        },
        _ => return Err(invalid("22023", format!("unrecognized encoding: \"{format}\""))),
    }))
}

fn from_base64(data: &str) -> Option<Vec<u8>> {
    let mut digits: Vec<u8> = data.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    if !digits.len().is_multiple_of(4) {
        return None;
    }
    while digits.last() == Some(&b'=') {
        digits.pop();
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut number = 0_u32;
        for digit in group {
            number = number << 6 | DIGITS.iter().position(|known| known == digit)? as u32;
        }
        let whole = (number << (6 * (4 - group.len()))).to_be_bytes();
        match group.len() {
            4 => bytes.extend_from_slice(&whole[1..4]),
            3 => bytes.extend_from_slice(&whole[1..3]),
            2 => bytes.push(whole[1]),
            _ => return None,
        }
    }
    Some(bytes)
}
