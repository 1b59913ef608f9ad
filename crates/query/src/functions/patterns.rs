//! Functions and operators that match texts: regular expressions, `SIMILAR TO`, and `LIKE` where its pattern is not
//! written out or has an escape character of its own.

use super::regex::{Flags, Pattern, of_similar};
use super::rows::{Answer, Arg, Returns, RowFunction};
use crate::error::invalid;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ScalarUDF};
use oribi_session::sql::SqlError;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

type Result<T> = std::result::Result<T, SqlError>;

pub(super) const FUNCTIONS: &[RowFunction] = &[
    RowFunction::strict("regexp_like", Returns::Bool, |args| {
        let flags = flags(args.get(2), "regexp_like()")?;
        Ok(Answer::Bool(pattern(args[1].text(), flags)?.is_match(args[0].text())))
    }),
    RowFunction::strict("regexp_count", Returns::Int4, |args| {
        let text = args[0].text();
        let from = start(text, args.get(2))?;
        let pattern = pattern(args[1].text(), flags(args.get(3), "regexp_count()")?)?;
        let Some(from) = from else { return Ok(Answer::Int(0)) };
        Ok(Answer::Int(matches(text, &pattern, from)?.len() as i64))
    }),
    RowFunction::strict("regexp_match", Returns::Texts, |args| {
        let flags = flags(args.get(2), "regexp_match()")?;
        let (text, pattern) = (args[0].text(), pattern(args[1].text(), flags)?);
        let Some(parts) = pattern.parts(text, 0)? else { return Ok(Answer::Null) };
        let groups = if pattern.groups() > 0 { &parts[1..] } else { &parts[..] };
        Ok(Answer::Texts(groups.iter().map(|group| group.map(|(s, e)| text[s..e].to_owned())).collect()))
    }),
    RowFunction::strict("regexp_split_to_array", Returns::Texts, |args| {
        let flags = flags(args.get(2), "regexp_split_to_array()")?;
        let text = args[0].text();
        let (mut pieces, mut done) = (Vec::new(), 0);
        for (start, end) in matches(text, &*pattern(args[1].text(), flags)?, 0)? {
            // An empty match at an end of the text, or at that of the last one, divides nothing.
            if start < text.len() && end > done {
                pieces.push(Some(text[done..start].to_owned()));
                done = end;
            }
        }
        pieces.push(Some(text[done..].to_owned()));
        Ok(Answer::Texts(pieces))
    })
    .growing(split_bytes),
    RowFunction::strict("regexp_replace", Returns::Text, |args| {
        let flags = match args.get(3) {
            Some(letters) => Flags::parse(letters.text())?,
            None => Flags::default(),
        };
        let mut out = String::new();
        replace(args[0].text(), &*pattern(args[1].text(), flags)?, args[2].text(), flags.global, &mut out)?;
        Ok(Answer::Text(out))
    })
    .growing(replaced_bytes),
    RowFunction::strict("like_escape", Returns::Text, |args| {
        Ok(Answer::Text(with_backslash(args[0].text(), escape_character(args[1].text())?)))
    }),
    RowFunction::strict(SUBSTRING, Returns::Text, |args| {
        let (text, pattern) = (args[0].text(), pattern(args[1].text(), Flags::default())?);
        let Some(parts) = pattern.parts(text, 0)? else { return Ok(Answer::Null) };
        let part = if pattern.groups() > 0 { parts[1] } else { parts[0] };
        Ok(part.map_or(Answer::Null, |(start, end)| Answer::Text(text[start..end].to_owned())))
    }),
];

/// Functions that stand for operators.
pub(super) const OPERATORS: &[RowFunction] = &[
    RowFunction::strict("matches", Returns::Bool, |args| {
        Ok(Answer::Bool(pattern(args[1].text(), Flags::default())?.is_match(args[0].text())))
    }),
    RowFunction::strict("matches_ignoring_case", Returns::Bool, |args| {
        let flags = Flags::default().ignoring_case();
        Ok(Answer::Bool(pattern(args[1].text(), flags)?.is_match(args[0].text())))
    }),
    RowFunction::strict("is_similar", Returns::Bool, |args| {
        let escape = match args.get(2) {
            Some(escape) => escape_character(escape.text())?,
            None => Some('\\'),
        };
        let regex = of_similar(args[1].text(), escape)?;
        Ok(Answer::Bool(pattern(&regex, Flags::default())?.is_match(args[0].text())))
    }),
    RowFunction::strict("is_like", Returns::Bool, |args| {
        let escape = escape_character(args[2].text())?;
        Ok(Answer::Bool(is_like(args[0].text(), args[1].text(), escape)?))
    }),
    RowFunction::strict("is_like_ignoring_case", Returns::Bool, |args| {
        let escape = escape_character(args[2].text())?;
        let (text, pattern) = (args[0].text().to_lowercase(), args[1].text().to_lowercase());
        Ok(Answer::Bool(is_like(&text, &pattern, escape)?))
    }),
];

/// `substring(text from pattern)`.
pub(super) const SUBSTRING: &str = "substring_by_pattern";

/// Whether a function of a plan stands for an operator.
pub(super) fn is_operator(name: &str) -> bool {
    OPERATORS.iter().any(|function| function.name() == name)
}

/// A call of the function that stands for an operator.
pub(super) fn operator(name: &'static str, arguments: Vec<Expr>, negated: bool) -> Expr {
    let function = OPERATORS.iter().find(|function| function.name() == name);
    let function = function.expect("the operator is one of these").clone();
    let call = ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(function)), arguments);
    let call = Expr::ScalarFunction(call);
    if negated { Expr::Not(Box::new(call)) } else { call }
}

/// The pattern, ready to search with; rows one after the other have the same one mostly.
fn pattern(text: &str, flags: Flags) -> Result<Rc<Pattern>> {
    thread_local! {
        static LAST: RefCell<Option<(String, Flags, Rc<Pattern>)>> = const { RefCell::new(None) };
    }
    LAST.with_borrow_mut(|last| {
        if let Some((known, with, pattern)) = last
            && known == text
            && *with == flags
        {
            return Ok(Rc::clone(pattern));
        }
        let pattern = Rc::new(Pattern::new(text, flags)?);
        *last = Some((text.to_owned(), flags, Rc::clone(&pattern)));
        Ok(pattern)
    })
}

fn flags(letters: Option<&Arg<'_>>, function: &str) -> Result<Flags> {
    let flags = Flags::parse(letters.map_or("", Arg::text))?;
    if flags.global {
        return Err(invalid("22023", format!("{function} does not support the \"global\" option")));
    }
    Ok(flags)
}

/// Where the search begins, in bytes, of a place that counts characters from 1; `None` behind the text.
fn start(text: &str, from: Option<&Arg<'_>>) -> Result<Option<usize>> {
    let from = from.map_or(1, Arg::int);
    if from < 1 {
        return Err(invalid("22023", format!("invalid value for parameter \"start\": {from}")));
    }
    let characters = usize::try_from(from - 1).unwrap_or(usize::MAX);
    let mut ends = text.char_indices().map(|(at, _)| at).chain(std::iter::once(text.len()));
    Ok(ends.nth(characters))
}

/// All matches from `from` on. Behind an empty one the search goes on a character further.
fn matches(text: &str, pattern: &Pattern, from: usize) -> Result<Vec<(usize, usize)>> {
    let (mut found, mut from) = (Vec::new(), Some(from));
    while let Some(start) = from {
        let Some((start, end)) = pattern.find(text, start)? else { break };
        found.push((start, end));
        from = behind(text, start, end);
    }
    Ok(found)
}

fn behind(text: &str, start: usize, end: usize) -> Option<usize> {
    if start < end {
        return Some(end);
    }
    text[end..].chars().next().map(|c| end + c.len_utf8())
}

/// Where a text is written, or its length counted.
trait Written {
    fn text(&mut self, text: &str);
}

impl Written for String {
    fn text(&mut self, text: &str) {
        self.push_str(text);
    }
}

impl Written for usize {
    fn text(&mut self, text: &str) {
        *self = self.saturating_add(text.len());
    }
}

/// Above this, the bytes of an answer are counted before it is made, be it that they are found twice.
const COUNTED_BYTES: usize = 64 << 10;

/// The bytes that are left of a text when matches have been replaced; of a pattern that is refused, none.
fn replaced_bytes(args: &[Arg<'_>]) -> usize {
    let (text, with) = (args[0].text(), args[2].text());
    // A match at each place, and each reference the whole text.
    let references = with.bytes().filter(|byte| *byte == b'\\').count();
    let most = references
        .saturating_mul(text.len())
        .saturating_add(with.len())
        .saturating_mul(text.len() + 1)
        .saturating_add(text.len());
    if most <= COUNTED_BYTES {
        return most;
    }
    let count = || -> Result<usize> {
        let flags = args.get(3).map_or(Ok(Flags::default()), |letters| Flags::parse(letters.text()))?;
        let mut bytes = 0;
        replace(text, &*pattern(args[1].text(), flags)?, with, flags.global, &mut bytes)?;
        Ok(bytes)
    };
    count().unwrap_or(0)
}

/// What each piece of a text takes, beside itself.
const PIECE_BYTES: usize = 64;

fn split_bytes(args: &[Arg<'_>]) -> usize {
    let text = args[0].text();
    if text.len() * PIECE_BYTES <= COUNTED_BYTES {
        return text.len() * PIECE_BYTES;
    }
    let count = || -> Result<usize> {
        let pattern = pattern(args[1].text(), flags(args.get(2), "regexp_split_to_array()")?)?;
        let (mut pieces, mut from) = (1_usize, Some(0));
        while let Some(start) = from {
            let Some((start, end)) = pattern.find(text, start)? else { break };
            pieces += 1;
            from = behind(text, start, end);
        }
        Ok(text.len() + pieces * PIECE_BYTES)
    };
    count().unwrap_or(0)
}

fn replace(text: &str, pattern: &Pattern, with: &str, global: bool, out: &mut impl Written) -> Result<()> {
    let groups = refers_to_groups(with);
    let (mut copied, mut from) = (0, Some(0));
    while let Some(start) = from {
        let parts = if groups {
            pattern.parts(text, start)?
        } else {
            pattern.find(text, start)?.map(|whole| vec![Some(whole)])
        };
        let Some(parts) = parts else { break };
        let (start, end) = parts[0].expect("a match has an extent");
        out.text(&text[copied..start]);
        put(out, with, text, &parts);
        copied = end;
        if !global {
            break;
        }
        from = behind(text, start, end);
    }
    out.text(&text[copied..]);
    Ok(())
}

fn refers_to_groups(with: &str) -> bool {
    let mut chars = with.chars();
    while let Some(c) = chars.next() {
        if c == '\\' && chars.next().is_some_and(|c| ('1'..='9').contains(&c)) {
            return true;
        }
    }
    false
}

/// Appends a replacement, in which `\1` is the first group, `\&` the match and `\\` a backslash.
fn put(out: &mut impl Written, with: &str, text: &str, parts: &[Option<(usize, usize)>]) {
    let part = |n: usize| match parts.get(n) {
        Some(Some((start, end))) => &text[*start..*end],
        _ => "",
    };
    let mut rest = with;
    while let Some(at) = rest.find('\\') {
        out.text(&rest[..at]);
        let behind = &rest[at + 1..];
        let (placed, taken) = match behind.bytes().next() {
            Some(digit @ b'1'..=b'9') => (part(usize::from(digit - b'0')), 1),
            Some(b'&') => (part(0), 1),
            Some(b'\\') => ("\\", 1),
            _ => ("\\", 0),
        };
        out.text(placed);
        rest = &behind[taken..];
    }
    out.text(rest);
}

fn escape_character(text: &str) -> Result<Option<char>> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (_, Some(_)) => {
            let error = invalid("22025", "invalid escape string");
            Err(error.with_hint("an escape string is empty or one character"))
        }
        (escape, None) => Ok(escape),
    }
}

/// A pattern in which the backslash escapes what `escape` does.
fn with_backslash(pattern: &str, escape: Option<char>) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut escaped = false;
    for c in pattern.chars() {
        let escapes = Some(c) == escape && !escaped;
        match c {
            _ if escapes => out.push('\\'),
            '\\' if !escaped => out.push_str("\\\\"),
            c => out.push(c),
        }
        escaped = escapes;
    }
    out
}

/// The furthest `%` so far: where the pattern goes on behind it, and where in the text that was tried last.
struct Back {
    pattern: usize,
    text: usize,
}

/// Whether `text` is like `pattern`: `%` is any text, `_` any character.
fn is_like(text: &str, pattern: &str, escape: Option<char>) -> Result<bool> {
    let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    let (mut t, mut p, mut back) = (0, 0, None::<Back>);
    let unfinished = || invalid("22025", "LIKE pattern must not end with escape character");
    loop {
        let fits = match pattern.get(p) {
            Some('%') if escape != Some('%') => {
                p += 1;
                back = Some(Back { pattern: p, text: t });
                continue;
            }
            Some('_') if escape != Some('_') => text.get(t).map(|_| 1),
            Some(c) if Some(*c) == escape => {
                let escaped = pattern.get(p + 1);
                if escaped.is_none() && t < text.len() {
                    return Err(unfinished());
                }
                text.get(t).filter(|c| Some(*c) == escaped).map(|_| 2)
            }
            Some(c) => text.get(t).filter(|known| *known == c).map(|_| 1),
            None if t == text.len() => return Ok(true),
            None => None,
        };
        match (fits, &mut back) {
            (Some(width), _) => (t, p) = (t + 1, p + width),
            (None, Some(back)) if back.text < text.len() => {
                back.text += 1;
                (t, p) = (back.text, back.pattern);
            }
            _ => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_like;

    #[test]
    fn like_matches_with_any_escape() {
        let like = |text: &str, pattern: &str, escape: Option<char>| is_like(text, pattern, escape).ok();
        assert_eq!(like("abc", "a%c", Some('\\')), Some(true));
        assert_eq!(like("abc", "a%b", Some('\\')), Some(false));
        assert_eq!(like("a%c", "a!%c", Some('!')), Some(true));
        assert_eq!(like("abc", "a!%c", Some('!')), Some(false));
        assert_eq!(like("aab", "%ab", None), Some(true));
        assert_eq!(like("ä", "_", None), Some(true));
        assert_eq!(like("", "%", None), Some(true));
        assert_eq!(like("a", "%\\", Some('\\')), None);
    }
}
