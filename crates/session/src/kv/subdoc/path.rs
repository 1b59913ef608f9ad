//! Paths into a document: `a.b[0].c`, `` `a.b`[-1] ``.
//!
//! A component is a key or an index in brackets; `-1` is the last element. A key stands as it would between the quotes
//! of a JSON string, without `\u` escapes. Backticks quote what would end it, and a doubled backtick is one backtick.

use super::{LEVELS_MAX, Status};
use std::borrow::Cow;

/// The document itself is the first level.
pub const COMPONENTS_MAX: usize = LEVELS_MAX - 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Component<'p> {
    /// What stands between the quotes of a JSON string.
    Key(Cow<'p, str>),
    Index(usize),
    /// The last element.
    Last,
}

/// At most [`COMPONENTS_MAX`] components; none means the whole document.
///
/// # Errors
/// `PathInvalid`, `PathTooBig`.
pub fn parse(path: &[u8]) -> Result<Vec<Component<'_>>, Status> {
    let mut rest = std::str::from_utf8(path).map_err(|_| Status::PathInvalid)?;
    let mut components = Vec::new();
    while !rest.is_empty() {
        let (component, after) = match rest.strip_prefix('[') {
            Some(index) => parse_index(index)?,
            None => parse_key(rest)?,
        };
        if components.len() == COMPONENTS_MAX {
            return Err(Status::PathTooBig);
        }
        components.push(component);
        rest = match after.strip_prefix('.') {
            Some("") => return Err(Status::PathInvalid),
            Some(next) => next,
            None if after.is_empty() || after.starts_with('[') => after,
            None => return Err(Status::PathInvalid),
        };
    }
    Ok(components)
}

/// The index that `text` begins with, after its bracket, and what follows it.
fn parse_index(text: &str) -> Result<(Component<'_>, &str), Status> {
    let (index, after) = text.split_once(']').ok_or(Status::PathInvalid)?;
    if index == "-1" {
        return Ok((Component::Last, after));
    }
    if !index.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Status::PathInvalid);
    }
    let index = index.parse().map_err(|_| Status::PathInvalid)?;
    Ok((Component::Index(index), after))
}

/// The key that `text` begins with, and what follows it.
fn parse_key(text: &str) -> Result<(Component<'_>, &str), Status> {
    let bytes = text.as_bytes();
    let (mut end, mut quoted) = (0, false);
    while let Some(byte) = bytes.get(end) {
        end += match byte {
            b'`' if end > 0 && bytes.get(end + 1) == Some(&b'`') => 2,
            b'`' => {
                quoted = !quoted;
                1
            }
            b'\\' => match bytes.get(end + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
                _ => return Err(Status::PathInvalid),
            },
            b'"' | 0..0x20 => return Err(Status::PathInvalid),
            b'.' | b'[' if !quoted => break,
            b']' if !quoted => return Err(Status::PathInvalid),
            _ => 1,
        };
    }
    let (key, after) = text.split_at(end);
    let key = unquote(key);
    if quoted || key.is_empty() {
        return Err(Status::PathInvalid);
    }
    Ok((Component::Key(key), after))
}

fn unquote(key: &str) -> Cow<'_, str> {
    if !key.contains('`') {
        return Cow::Borrowed(key);
    }
    let mut plain = String::with_capacity(key.len());
    let mut chars = key.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        let doubled = char == '`' && at > 0 && chars.next_if(|(_, next)| *next == '`').is_some();
        if char != '`' || doubled {
            plain.push(char);
        }
    }
    Cow::Owned(plain)
}

/// Whether two JSON strings, given without their quotes, mean the same: `a` and `\u0061` do.
pub fn same_string(a: &str, b: &str) -> bool {
    a == b || Unescaped(a).eq(Unescaped(b))
}

/// The code points of what stands between the quotes of a JSON string; half of a surrogate pair that stands alone
/// counts as one.
struct Unescaped<'t>(&'t str);

impl Iterator for Unescaped<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let mut chars = self.0.chars();
        let escaped = match chars.next()? {
            '\\' => chars.next(),
            char => {
                self.0 = chars.as_str();
                return Some(char.into());
            }
        };
        self.0 = chars.as_str();
        Some(match escaped? {
            'b' => 0x08,
            'f' => 0x0c,
            'n' => '\n'.into(),
            'r' => '\r'.into(),
            't' => '\t'.into(),
            'u' => self.utf16()?,
            char => char.into(),
        })
    }
}

impl Unescaped<'_> {
    /// What follows `\u`: a code point, or the first half of a surrogate pair and then the second.
    fn utf16(&mut self) -> Option<u32> {
        let unit = hex4(self.0)?;
        self.0 = &self.0[4..];
        if let 0xd800..0xdc00 = unit
            && let Some(second) = self.0.strip_prefix("\\u").and_then(hex4)
            && let 0xdc00..0xe000 = second
        {
            self.0 = &self.0[6..];
            return Some(0x10000 + ((unit - 0xd800) << 10) + (second - 0xdc00));
        }
        Some(unit)
    }
}

/// The number that four hexadecimal digits at the beginning of `text` stand for.
fn hex4(text: &str) -> Option<u32> {
    let digits = text.get(..4)?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key: &str) -> Component<'_> {
        Component::Key(key.into())
    }

    #[test]
    fn paths_are_keys_and_indexes() {
        use Component::{Index, Last};
        for (path, components) in [
            ("", vec![]),
            ("a", vec![key("a")]),
            ("a.b.c", vec![key("a"), key("b"), key("c")]),
            ("a[1].item[9]", vec![key("a"), Index(1), key("item"), Index(9)]),
            ("[1][2][3]", vec![Index(1), Index(2), Index(3)]),
            ("[-1].[-1].a[-1]", vec![Last, Last, key("a"), Last]),
            ("`simple`.`quoted`", vec![key("simple"), key("quoted")]),
            ("x.`a.b[0]`[9]", vec![key("x"), key("a.b[0]"), Index(9)]),
            ("`tick``tock`.`a`", vec![key("tick`tock"), key("a")]),
            ("trailing``", vec![key("trailing`")]),
            ("````", vec![key("`")]),
            ("Fútbol.\u{1f600}", vec![key("Fútbol"), key("\u{1f600}")]),
            ("\\\"quoted.a\\\\b", vec![key("\\\"quoted"), key("a\\\\b")]),
            ("a b. c", vec![key("a b"), key(" c")]),
            ("1", vec![key("1")]),
        ] {
            assert_eq!(parse(path.as_bytes()), Ok(components), "{path}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in [
            ".",
            "....",
            "a.",
            ".a",
            "a..b",
            "a[0].",
            "a[0]b",
            "a]",
            "[",
            "[]",
            "[0",
            "a[x]",
            "a[-2]",
            "[+1]",
            "[ 1]",
            "``",
            "`a",
            "a`",
            "\"a",
            "a\"",
            "\\u0061",
            "a\\",
            "\\x",
            "a\nb",
            "[99999999999999999999999]",
            "a.``",
        ] {
            assert_eq!(parse(path.as_bytes()), Err(Status::PathInvalid), "{path}");
        }
        assert_eq!(parse(b"a\xff"), Err(Status::PathInvalid));
    }

    #[test]
    fn a_path_has_31_components_at_most() {
        let path = |components: usize| vec!["a"; components].join(".");
        assert_eq!(parse(path(31).as_bytes()).map(|p| p.len()), Ok(31));
        assert_eq!(parse(path(32).as_bytes()), Err(Status::PathTooBig));
        assert_eq!(parse("[0]".repeat(32).as_bytes()), Err(Status::PathTooBig));
    }

    #[test]
    fn strings_are_the_same_however_they_are_escaped() {
        for (a, b) in [
            ("a", "\\u0061"),
            ("a/b", "a\\/b"),
            ("\\n", "\\u000A"),
            ("\u{1f600}", "\\ud83d\\uDE00"),
            ("\\\"", "\\u0022"),
            ("\\ud83dx", "\\ud83d\\u0078"),
            ("\\t\\b\\f\\r", "\\u0009\\u0008\\u000c\\u000d"),
        ] {
            assert!(same_string(a, b) && same_string(b, a), "{a} {b}");
        }
        for (a, b) in
            [("a", "b"), ("a", "a\\u0061"), ("n", "\\n"), ("\\\\u0061", "\\u0061"), ("\\ud83d", "\\ude00")]
        {
            assert!(!same_string(a, b) && !same_string(b, a), "{a} {b}");
        }
    }
}
