//! The text of a JSON value taken apart where it stands: its members, its elements, and the part at the end of a path.
//!
//! The texts are JSON, for they were checked when they came. One that is not has no parts; nothing in it is a panic.

use crate::error::invalid;
use oribi_session::sql::SqlError;

/// A step from a value to a part of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'a> {
    /// To a member.
    Key(&'a str),
    /// To an element, from the end if below zero.
    Index(i64),
    /// To a member or, of an array, to the element whose index the text is.
    Either(&'a str),
}

/// The part of a document that a step leads to. `jsonb` is written as an array of one where it is no array and no object,
/// and PostgreSQL finds it so.
pub(crate) fn part<'a>(document: &'a str, step: Step<'_>, jsonb: bool) -> Option<&'a str> {
    let value = document.trim_ascii();
    match (value.as_bytes().first()?, step) {
        // Of two members with one name the last one counts.
        (b'{', Step::Key(name) | Step::Either(name)) => {
            members(value).filter(|(key, _)| is_string(key, name)).last().map(|(_, value)| value)
        }
        (b'[', Step::Index(n)) => element(value, n),
        (b'[', Step::Either(index)) => element(value, index.trim_ascii_start().parse::<i32>().ok()?.into()),
        (b'{' | b'[', _) => None,
        (_, Step::Index(-1 | 0)) if jsonb => Some(value),
        _ => None,
    }
}

fn element(array: &str, index: i64) -> Option<&str> {
    let from_end = usize::try_from(-(index + 1)).ok().filter(|_| index < 0);
    match from_end {
        Some(n) => {
            let all: Vec<&str> = elements(array).collect();
            all.into_iter().nth_back(n)
        }
        None => elements(array).nth(usize::try_from(index).ok()?),
    }
}

/// The text of a string without its quotes, of another value as it is written; `None` for JSON's null.
///
/// # Errors
/// 22P05 for a string with a zero byte, 22P02 for half a character.
pub(crate) fn text_of(value: &str) -> Result<Option<String>, SqlError> {
    match value.as_bytes().first() {
        Some(b'"') => string(value).map(Some),
        Some(b'n') | None => Ok(None),
        Some(_) => Ok(Some(value.to_owned())),
    }
}

/// The characters of a string in quotes.
///
/// # Errors
/// As [`text_of`].
pub(crate) fn string(quoted: &str) -> Result<String, SqlError> {
    let text: String = serde_json::from_str(quoted)
        .map_err(|e| invalid("22P02", format!("invalid input syntax for type json: {e}")))?;
    if text.contains('\0') {
        return Err(invalid("22P05", "unsupported Unicode escape sequence: \\u0000"));
    }
    Ok(text)
}

/// Whether a string in quotes is `text`.
fn is_string(quoted: &str, text: &str) -> bool {
    let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or("");
    if inner.contains('\\') { string(quoted).is_ok_and(|string| string == text) } else { inner == text }
}

/// The members of an object: names in quotes, and values.
pub(crate) fn members(object: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = object.strip_prefix('{').unwrap_or("");
    std::iter::from_fn(move || {
        let (name, after) = take_value(rest)?;
        let (value, after) = take_value(after.trim_ascii_start().strip_prefix(':')?)?;
        rest = behind(after);
        Some((name, value))
    })
}

/// The elements of an array.
pub(crate) fn elements(array: &str) -> impl Iterator<Item = &str> {
    let mut rest = array.strip_prefix('[').unwrap_or("");
    std::iter::from_fn(move || {
        let (value, after) = take_value(rest)?;
        rest = behind(after);
        Some(value)
    })
}

/// What stands behind an item and its comma; nothing, if it was the last.
fn behind(after: &str) -> &str {
    after.trim_ascii_start().strip_prefix(',').unwrap_or("")
}

/// Cuts a value off; `None` before a closing bracket and at the end.
fn take_value(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_ascii_start();
    let bytes = text.as_bytes();
    let end = match bytes.first()? {
        b'"' => end_of_string(bytes, 0)?,
        b'{' | b'[' => {
            let (mut depth, mut at) = (0_usize, 0);
            loop {
                match bytes.get(at)? {
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    b'"' => at = end_of_string(bytes, at)? - 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    break at;
                }
            }
        }
        b'}' | b']' | b',' | b':' => return None,
        _ => {
            let ends = |b: &u8| matches!(b, b',' | b'}' | b']' | b':') || b.is_ascii_whitespace();
            bytes.iter().position(ends).unwrap_or(bytes.len())
        }
    };
    text.split_at_checked(end)
}

/// The place behind the quote that ends the string which begins at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_where_postgresql_finds_them() {
        let document =
            r#" {"a" : [1, {"b]": "x,}\""} ,[ ]], "0": {"1": 5}, "\u0061\"": 2, "d": 1, "d": null} "#;
        let find = |steps: &[Step<'_>]| {
            steps.iter().try_fold(document, |value, step| part(value, *step, false)).map(str::to_owned)
        };
        use Step::{Either, Index, Key};
        for (steps, found) in [
            (vec![Key("a"), Index(0)], Some("1")),
            (vec![Key("a"), Index(1), Key("b]")], Some(r#""x,}\"""#)),
            (vec![Key("a"), Index(-1)], Some("[ ]")),
            (vec![Key("a"), Index(-4)], None),
            (vec![Key("a"), Index(i64::MIN)], None),
            (vec![Key("a"), Key("0")], None),
            (vec![Either("a"), Either(" +1"), Either("b]")], Some(r#""x,}\"""#)),
            (vec![Either("a"), Either("x")], None),
            (vec![Either("0"), Either("1")], Some("5")),
            (vec![Index(0)], None),
            (vec![Key("a\"")], Some("2")),
            (vec![Key("d")], Some("null")),
        ] {
            assert_eq!(find(&steps).as_deref(), found, "{steps:?}");
        }
        assert_eq!(part("5", Index(0), true), Some("5"));
        assert_eq!(part("5", Index(0), false), None);
    }

    #[test]
    fn what_is_no_json_has_no_parts() {
        for text in ["", "{", "[", "[\"", "{\"a\"", "{\"a\":", "{\"a\\", "[1,", "]", "{a:1}}", "[[", "\u{e4}"]
        {
            assert!(members(text).count() < 2 && elements(text).count() < 2, "{text}");
            assert!(part(text, Step::Key("b"), false).is_none(), "{text}");
        }
    }
}
