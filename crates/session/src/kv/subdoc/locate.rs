//! Where in a text the value of a path stands.
//!
//! The text is JSON, which somebody has made sure of; if not, the answers are `DocumentNotJson` or wrong, and nothing
//! worse. What is passed over on the way must not nest deeper than [`LEVELS_MAX`]; the rest is not looked at.

use super::path::{Component, same_string};
use super::{LEVELS_MAX, Status};
use std::ops::Range;

/// What JSON takes for white space.
pub const WHITESPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    Found(Entry),
    /// Only the first `depth` components lead somewhere: to a container that lacks the next.
    Absent {
        depth: usize,
        parent: Container,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// Of its key, if it has one, else of its value.
    pub start: usize,
    pub value: Range<usize>,
}

/// An object or array, of the kind that the path asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Container {
    /// Position of the closing bracket.
    pub close: usize,
    /// How many entries it has.
    pub len: usize,
}

/// Finds what `path` leads to. Of members with the same key, the first counts.
///
/// # Errors
/// `PathMismatch` where the path takes something for what it is not; `DocumentTooDeep`.
pub fn locate(text: &str, path: &[Component<'_>]) -> Result<Place, Status> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.peek()?;
    let mut start = scanner.at;
    for (depth, component) in path.iter().enumerate() {
        let mut entries = Entries::open(text, scanner.at, depth + 1)?;
        let fits = entries.is_object == matches!(component, Component::Key(_));
        if !fits {
            return Err(Status::PathMismatch);
        }
        let Some(found) = entries.find(component)? else {
            let Entries { scanner, len, .. } = entries;
            return Ok(Place::Absent { depth, parent: Container { close: scanner.at, len } });
        };
        (start, scanner.at) = found;
    }
    let begin = scanner.at;
    scanner.skip_value(LEVELS_MAX - path.len())?;
    Ok(Place::Found(Entry { start, value: begin..scanner.at }))
}

/// Checks that the value `text` has at most `levels` levels, itself included.
///
/// # Errors
/// `DocumentTooDeep`.
pub fn check_levels(text: &str, levels: usize) -> Result<(), Status> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.peek()?;
    scanner.skip_value(levels)
}

/// The entries of a container, one after the other.
pub struct Entries<'t> {
    scanner: Scanner<'t>,
    is_object: bool,
    /// Levels that an entry may have.
    levels: usize,
    /// Entries so far.
    len: usize,
}

impl<'t> Entries<'t> {
    /// Of the container that begins at `start` and is at `level`.
    ///
    /// # Errors
    /// `PathMismatch` if there is none.
    pub fn open(text: &'t str, start: usize, level: usize) -> Result<Self, Status> {
        let is_object = match text.as_bytes().get(start) {
            Some(b'{') => true,
            Some(b'[') => false,
            _ => return Err(Status::PathMismatch),
        };
        let levels = LEVELS_MAX.saturating_sub(level);
        Ok(Entries { scanner: Scanner { text, at: start + 1 }, is_object, levels, len: 0 })
    }

    /// How many entries there are.
    pub fn count(mut self) -> Result<usize, Status> {
        while self.next_value()?.is_some() {}
        Ok(self.len)
    }

    /// The text of the next value; `None` after the last.
    pub fn next_value(&mut self) -> Result<Option<&'t str>, Status> {
        if self.advance()?.is_none() {
            return Ok(None);
        }
        let start = self.scanner.at;
        self.scanner.skip_value(self.levels)?;
        self.scanner.text.get(start..self.scanner.at).map(Some).ok_or(Status::DocumentNotJson)
    }

    /// Where the entry that `component` names begins, and where its value does. `None` leaves the scanner at the
    /// closing bracket.
    fn find(&mut self, component: &Component<'_>) -> Result<Option<(usize, usize)>, Status> {
        let mut last = None;
        while let Some((start, key)) = self.advance()? {
            let found = (start, self.scanner.at);
            let matches = match component {
                Component::Key(wanted) => key.is_some_and(|key| same_string(key, wanted)),
                Component::Index(index) => *index == self.len - 1,
                Component::Last => false,
            };
            if matches {
                return Ok(Some(found));
            }
            last = Some(found);
            self.scanner.skip_value(self.levels)?;
        }
        Ok(last.filter(|_| *component == Component::Last))
    }

    /// Goes to the value of the next entry; the value before has been passed. Where the entry begins, and its key.
    fn advance(&mut self) -> Result<Option<(usize, Option<&'t str>)>, Status> {
        let mut byte = self.scanner.peek()?;
        if matches!(byte, b'}' | b']') {
            return Ok(None);
        }
        if self.len > 0 {
            self.scanner.expect(b',')?;
            byte = self.scanner.peek()?;
        }
        let start = self.scanner.at;
        self.len += 1;
        if !self.is_object {
            return Ok(Some((start, None)));
        }
        if byte != b'"' {
            return Err(Status::DocumentNotJson);
        }
        let key = self.scanner.string()?;
        self.scanner.peek()?;
        self.scanner.expect(b':')?;
        self.scanner.peek()?;
        Ok(Some((start, Some(key))))
    }
}

struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scanner<'t> {
    /// The next byte that is not white space; the scanner stays before it.
    fn peek(&mut self) -> Result<u8, Status> {
        while let Some(byte) = self.text.as_bytes().get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Ok(*byte);
            }
            self.at += 1;
        }
        Err(Status::DocumentNotJson)
    }

    fn expect(&mut self, byte: u8) -> Result<(), Status> {
        if self.text.as_bytes().get(self.at) != Some(&byte) {
            return Err(Status::DocumentNotJson);
        }
        self.at += 1;
        Ok(())
    }

    /// Passes the string that begins here; what stands between its quotes.
    fn string(&mut self) -> Result<&'t str, Status> {
        let bytes = self.text.as_bytes();
        let start = self.at + 1;
        let mut at = start;
        loop {
            let rest = bytes.get(at..).ok_or(Status::DocumentNotJson)?;
            at += rest.iter().position(|b| matches!(b, b'"' | b'\\')).ok_or(Status::DocumentNotJson)?;
            if bytes[at] == b'"' {
                break;
            }
            at += 2;
        }
        self.at = at + 1;
        self.text.get(start..at).ok_or(Status::DocumentNotJson)
    }

    /// Passes the value that begins here, which may have `levels` levels.
    fn skip_value(&mut self, levels: usize) -> Result<(), Status> {
        let mut open = 0;
        loop {
            match self.peek()? {
                b'}' | b']' => {
                    open = usize::checked_sub(open, 1).ok_or(Status::DocumentNotJson)?;
                    self.at += 1;
                }
                b',' | b':' => {
                    self.at += 1;
                    continue;
                }
                _ if open == levels => return Err(Status::DocumentTooDeep),
                b'{' | b'[' => {
                    open += 1;
                    self.at += 1;
                    continue;
                }
                b'"' => {
                    self.string()?;
                }
                _ => self.skip_word(),
            }
            if open == 0 {
                return Ok(());
            }
        }
    }

    /// Passes a number or a name.
    fn skip_word(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        let is_end = |b: &u8| matches!(b, b',' | b'}' | b']' | b':' | b' ' | b'\t' | b'\n' | b'\r');
        self.at += rest.iter().position(is_end).unwrap_or(rest.len());
    }
}
