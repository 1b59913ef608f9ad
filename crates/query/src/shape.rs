//! The shape of a statement: its text with a parameter in place of each literal.
//!
//! Clients of the simple protocol write values into the text, so that hardly two texts are the same. Their shapes are. Whoever uses
//! one sees to it that a parameter means there what the literal did.
//!
//! A shape is taken of plain text only: words, quoted names, numbers, strings in quotes and the usual signs. Whatever needs to be
//! known better (comments, escapes, dollars, several statements) has none, and costs the look at its letters up to there.

use oribi_types::ColumnType;
use smallvec::SmallVec;

/// A statement without its literals.
#[derive(Debug, PartialEq)]
pub(crate) struct Shape {
    /// The n-th literal is `$n`. Without a semicolon.
    pub(crate) text: String,
    pub(crate) literals: SmallVec<[Literal; 8]>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    /// A whole number, with the type that PostgreSQL gives it: `integer` if its digits fit, or else `bigint`.
    Integer(i64, ColumnType),
    /// One with a fraction or an exponent.
    Number(String),
    /// In quotes, what is between them.
    Text(String),
}

/// Longer texts have none, and those of more literals.
const TEXT_BYTES_MAX: usize = 2 << 10;
const LITERALS_MAX: u8 = 99;

/// What stands before a sign.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    /// An operator, a comma, a parenthesis that opens: a minus behind it is of the number that follows.
    Operator,
    /// What a minus subtracts from, or may.
    Operand,
}

struct Reader<'t> {
    bytes: &'t [u8],
    text: &'t str,
    at: usize,
    shape: Shape,
    before: Before,
    /// A minus that is the last thing read, and is of a number if one follows at once.
    is_signed: bool,
}

impl Shape {
    /// `None` if the text has none.
    pub(crate) fn of(text: &str) -> Option<Shape> {
        let text = text.trim_ascii();
        let text = text.strip_suffix(';').unwrap_or(text).trim_ascii_end();
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let shape = Shape { text: String::with_capacity(text.len() + 8), literals: SmallVec::new() };
        let (bytes, before) = (text.as_bytes(), Before::Operand);
        let mut reader = Reader { bytes, text, at: 0, shape, before, is_signed: false };
        while reader.at < bytes.len() {
            reader.read()?;
        }
        Some(reader.shape)
    }
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Copies what lies before `end`.
    fn copy_to(&mut self, end: usize, before: Before) {
        self.shape.text.push_str(&self.text[self.at..end]);
        (self.at, self.before) = (end, before);
    }

    /// Where something ends that begins here and of which `is_part` are the bytes.
    fn end_of(&self, is_part: impl Fn(u8) -> bool) -> usize {
        self.bytes[self.at..]
            .iter()
            .position(|byte| !is_part(*byte))
            .map_or(self.bytes.len(), |n| self.at + n)
    }

    fn read(&mut self) -> Option<()> {
        let byte = self.bytes[self.at];
        let is_signed = std::mem::take(&mut self.is_signed);
        match byte {
            b'0'..=b'9' => self.number(is_signed)?,
            byte if is_of_word(byte) => {
                self.copy_to(self.end_of(is_of_word), Before::Operand);
                // `e'…'`, `U&"…"` and the like.
                if matches!(self.peek(), Some(b'\'' | b'"')) {
                    return None;
                }
            }
            b' ' | b'\t' | b'\n' | b'\r' => self.copy_to(self.at + 1, self.before),
            b'\'' => self.string()?,
            b'"' => {
                let inner = self.bytes[self.at + 1..].iter().position(|byte| *byte == b'"')?;
                self.copy_to(self.at + inner + 2, Before::Operand);
            }
            b')' | b']' => self.copy_to(self.at + 1, Before::Operand),
            b'-' => {
                let is_sign = self.before == Before::Operator;
                self.copy_to(self.at + 1, Before::Operator);
                if self.peek() == Some(b'-') {
                    return None;
                }
                self.is_signed = is_sign;
            }
            b'/' if self.bytes.get(self.at + 1) == Some(&b'*') => return None,
            b'(' | b'[' | b',' | b'.' | b':' | b'=' | b'<' | b'>' | b'+' | b'*' | b'/' | b'%' | b'|'
            | b'!' => {
                self.copy_to(self.at + 1, Before::Operator);
            }
            _ => return None,
        }
        Some(())
    }

    fn number(&mut self, is_signed: bool) -> Option<()> {
        if self.shape.text.ends_with('.') {
            return None;
        }
        let start = self.at;
        let mut end = self.end_of(|byte| byte.is_ascii_digit());
        let is_whole = self.bytes.get(end) != Some(&b'.');
        if !is_whole {
            self.at = end + 1;
            end = self.end_of(|byte| byte.is_ascii_digit());
        }
        // Digits alone: exponents, other bases and `1.` are left to those who know them.
        if self.bytes[end - 1] == b'.'
            || self.bytes.get(end).is_some_and(|byte| is_of_word(*byte) || *byte == b'.')
        {
            return None;
        }
        let digits = &self.text[start..end];
        // `-32768::smallint` casts what is out of range, and then negates.
        let is_negative = is_signed && !self.text[end..].trim_ascii_start().starts_with(':');
        if is_negative {
            self.shape.text.pop();
        }
        let literal = if is_whole {
            let number = digits.parse::<i64>().ok()?;
            let column_type =
                if i32::try_from(number).is_ok() { ColumnType::Int32 } else { ColumnType::Int64 };
            Literal::Integer(if is_negative { -number } else { number }, column_type)
        } else {
            Literal::Number(if is_negative { format!("-{digits}") } else { digits.to_owned() })
        };
        self.at = end;
        self.push(literal)
    }

    fn string(&mut self) -> Option<()> {
        let mut value = String::new();
        loop {
            let start = self.at + 1;
            let end = start + self.bytes[start..].iter().position(|byte| *byte == b'\'')?;
            value.push_str(&self.text[start..end]);
            self.at = end + 1;
            if self.peek() != Some(b'\'') {
                break;
            }
            value.push('\'');
        }
        if self.peek().is_some_and(is_of_word) {
            return None;
        }
        self.push(Literal::Text(value))
    }

    fn push(&mut self, literal: Literal) -> Option<()> {
        let Shape { text, literals } = &mut self.shape;
        literals.push(literal);
        let n = u8::try_from(literals.len()).ok().filter(|n| *n <= LITERALS_MAX)?;
        text.push('$');
        if n >= 10 {
            text.push(char::from(b'0' + n / 10));
        }
        text.push(char::from(b'0' + n % 10));
        self.before = Before::Operand;
        Some(())
    }
}

/// Whether a byte may be part of a word: letters of any script too.
fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(number: i64) -> Literal {
        Literal::Integer(number, ColumnType::Int32)
    }

    fn text(text: &str) -> Literal {
        Literal::Text(text.into())
    }

    #[test]
    fn literals_become_parameters() {
        for (sql, shape, literals) in [
            ("BEGIN;", "BEGIN", vec![]),
            (" select a from t where id = 5 ; ", "select a from t where id = $1", vec![int(5)]),
            (
                "update t set a = a + -7 where id=8",
                "update t set a = a + $1 where id=$2",
                vec![int(-7), int(8)],
            ),
            (
                "update t set a = a -7, b2 = a - 7",
                "update t set a = a -$1, b2 = a - $2",
                vec![int(7), int(7)],
            ),
            ("values (-1, - 1, (2)-3)", "values ($1, - $2, ($3)-$4)", vec![int(-1), int(1), int(2), int(3)]),
            ("values (-32768::int2)", "values (-$1::int2)", vec![int(32768)]),
            ("values (-32768 ::int2)", "values (-$1 ::int2)", vec![int(32768)]),
            ("values ('it''s', '', E)", "values ($1, $2, E)", vec![text("it's"), text("")]),
            ("values ('naïve'::text)", "values ($1::text)", vec![text("naïve")]),
            ("select \"a 'b' 1\" from \"t\"", "select \"a 'b' 1\" from \"t\"", vec![]),
            (
                "values (2147483648, -1.50)",
                "values ($1, $2)",
                vec![Literal::Integer(2_147_483_648, ColumnType::Int64), Literal::Number("-1.50".into())],
            ),
            ("select schläger1 from t", "select schläger1 from t", vec![]),
        ] {
            let expected = Shape { text: shape.into(), literals: literals.into() };
            assert_eq!(Shape::of(sql), Some(expected), "{sql}");
        }
    }

    #[test]
    fn what_is_not_plain_has_none() {
        for sql in [
            "select 1; select 2",
            "select 1 -- one",
            "select /* one */ 1",
            "select $1",
            "select $$a$$",
            "select e'\\n'",
            "select U&\"a\"",
            "select 1e5",
            "select 0x1f",
            "select 1_000",
            "select .5",
            "select 1.",
            "select 1.2.3",
            "select 'open",
            "select \"open",
            "select 'a'b",
            "select 99999999999999999999",
            "select a #> b",
        ] {
            assert_eq!(Shape::of(sql), None, "{sql}");
        }
    }
}
