//! Regular expressions as PostgreSQL reads them, translated for the engine that runs them.
//!
//! Both know the same language where it is regular, with other words for some things. Two things differ in kind.
//! PostgreSQL takes the longest of the leftmost matches, the engine the first that it comes to: so the engine finds where
//! a match begins, and a second search from there how far one goes. And what is not regular (references back, looking
//! around, quantifiers that take as little as they can where it matters how much) is refused.

use crate::error::{invalid, unsupported};
use oribi_session::sql::SqlError;
use regex::{Regex, RegexBuilder};
use regex_automata::nfa::thompson;
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};

type Result<T> = std::result::Result<T, SqlError>;

/// A regular expression, ready to search with.
pub(super) struct Pattern {
    first: Regex,
    /// Finds the longest match from a place on.
    longest: PikeVM,
    traits: Traits,
}

/// What decides whether the extent of a match, and of its parts, is known.
#[derive(Clone, Copy, Default)]
struct Traits {
    lazy: bool,
    /// Whether the parts of a match could be divided otherwise.
    ambiguous: bool,
}

/// The letters that say how a pattern is read.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Flags {
    ignore_case: bool,
    /// Whether `.` and `[^…]` leave out line ends.
    lines_apart: bool,
    /// Whether `^` and `$` match at line ends.
    line_ends: bool,
    literal: bool,
    /// All matches rather than the first.
    pub(super) global: bool,
}

impl Flags {
    /// # Errors
    /// 22023 for letters that mean nothing; `Unsupported` for those that change how a pattern is read.
    pub(super) fn parse(letters: &str) -> Result<Flags> {
        let mut flags = Flags::default();
        for letter in letters.chars() {
            match letter {
                'i' => flags.ignore_case = true,
                'c' => flags.ignore_case = false,
                'n' | 'm' => (flags.lines_apart, flags.line_ends) = (true, true),
                'p' => (flags.lines_apart, flags.line_ends) = (true, false),
                'w' => (flags.lines_apart, flags.line_ends) = (false, true),
                's' => (flags.lines_apart, flags.line_ends) = (false, false),
                'g' => flags.global = true,
                'q' => flags.literal = true,
                't' => {}
                'b' | 'e' | 'x' => {
                    return Err(unsupported(&format!("regular expression option \"{letter}\"")));
                }
                _ => {
                    return Err(invalid("22023", format!("invalid regular expression option: \"{letter}\"")));
                }
            }
        }
        Ok(flags)
    }

    pub(super) fn ignoring_case(self) -> Flags {
        Flags { ignore_case: true, ..self }
    }
}

impl Pattern {
    /// # Errors
    /// 2201B for what is no regular expression; `Unsupported` for what is no regular one.
    pub(super) fn new(pattern: &str, flags: Flags) -> Result<Pattern> {
        let (translated, traits) = if flags.literal {
            (regex::escape(pattern), Traits::default())
        } else {
            let mut translation = Translation::new(pattern, flags);
            translation.run()?;
            (translation.out, translation.traits)
        };
        let malformed = || invalid("2201B", format!("invalid regular expression: \"{pattern}\""));
        let first = RegexBuilder::new(&translated)
            .case_insensitive(flags.ignore_case)
            .multi_line(flags.line_ends)
            .dot_matches_new_line(!flags.lines_apart)
            .build();
        let longest = PikeVM::builder()
            .syntax(
                syntax::Config::new()
                    .case_insensitive(flags.ignore_case)
                    .multi_line(flags.line_ends)
                    .dot_matches_new_line(!flags.lines_apart),
            )
            .thompson(thompson::Config::new().nfa_size_limit(Some(10 << 20)))
            .configure(PikeVM::config().match_kind(MatchKind::All))
            .build(&translated);
        Ok(Pattern {
            first: first.map_err(|_| malformed())?,
            longest: longest.map_err(|_| malformed())?,
            traits,
        })
    }

    pub(super) fn is_match(&self, text: &str) -> bool {
        self.first.is_match(text)
    }

    /// The leftmost match at `from` or behind it, and the longest of those.
    ///
    /// # Errors
    /// `Unsupported` where quantifiers take as little as they can.
    pub(super) fn find(&self, text: &str, from: usize) -> Result<Option<(usize, usize)>> {
        if self.traits.lazy {
            return Err(unsupported("the extent of a match with a non-greedy quantifier"));
        }
        let Some(first) = self.first.find_at(text, from) else { return Ok(None) };
        let input = Input::new(text).range(first.start()..).anchored(Anchored::Yes);
        let longest = self.longest.find(&mut self.longest.create_cache(), input);
        Ok(Some((first.start(), longest.map_or(first.end(), |found| found.end()))))
    }

    /// How many groups in parentheses there are.
    pub(super) fn groups(&self) -> usize {
        self.first.captures_len() - 1
    }

    /// The groups of the match that [`find`](Self::find) finds: where each is.
    ///
    /// # Errors
    /// As `find`, and `Unsupported` for patterns whose parts can be divided in several ways.
    pub(super) fn parts(&self, text: &str, from: usize) -> Result<Option<Parts>> {
        let Some((start, end)) = self.find(text, from)? else { return Ok(None) };
        if self.groups() == 0 {
            return Ok(Some(vec![Some((start, end))]));
        }
        let captures = self.first.captures_at(text, from);
        let captures = captures.filter(|captures| captures.get(0).is_some_and(|whole| whole.end() == end));
        match captures {
            Some(captures) if !self.traits.ambiguous => {
                Ok(Some(captures.iter().map(|group| group.map(|g| (g.start(), g.end()))).collect()))
            }
            _ => {
                Err(unsupported("a regular expression with groups beside alternatives or under quantifiers")
                    .with_hint("groups in (?:…) capture nothing and may be anywhere"))
            }
        }
    }
}

/// The places of a match and of its groups; `None` for a group that took no part.
pub(super) type Parts = Vec<Option<(usize, usize)>>;

/// A walk through a pattern that writes it anew.
struct Translation<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    pattern: &'a str,
    flags: Flags,
    out: String,
    traits: Traits,
    /// Open groups: whether each captures.
    open: Vec<bool>,
    /// Whether a quantifier may come next, and whether it would be of a group that captures.
    quantifiable: bool,
    captured: bool,
    alternatives: bool,
    groups: bool,
}

const WORD: &str = r"\p{Alphabetic}\p{Nd}_";
const SPACE: &str = r"\t-\r \x{1680}\x{2000}-\x{2006}\x{2008}-\x{200a}\x{2028}\x{2029}\x{205f}\x{3000}";

impl<'a> Translation<'a> {
    fn new(pattern: &'a str, flags: Flags) -> Self {
        Translation {
            rest: pattern.chars().peekable(),
            pattern,
            flags,
            out: String::new(),
            traits: Traits::default(),
            open: Vec::new(),
            quantifiable: false,
            captured: false,
            alternatives: false,
            groups: false,
        }
    }

    fn malformed(&self, what: &str) -> SqlError {
        invalid("2201B", format!("invalid regular expression: {what}"))
    }

    fn run(&mut self) -> Result<()> {
        if self.pattern.starts_with("***") {
            return Err(unsupported("a regular expression that begins with ***"));
        }
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => self.escape()?,
                '[' => self.bracket()?,
                '(' => self.open_group()?,
                ')' => self.close_group()?,
                '|' => {
                    self.alternatives = true;
                    self.quantifiable = false;
                    self.out.push('|');
                }
                '*' | '+' | '?' => {
                    self.check_quantifiable()?;
                    self.out.push(c);
                    self.after_quantifier();
                }
                '{' if self.rest.peek().is_some_and(char::is_ascii_digit) => self.bound()?,
                '^' | '$' => {
                    self.quantifiable = false;
                    self.out.push(c);
                }
                '.' => self.atom("."),
                c => self.literal(c),
            }
        }
        if !self.open.is_empty() {
            return Err(self.malformed("parentheses () not balanced"));
        }
        self.traits.ambiguous |= self.groups && self.alternatives;
        Ok(())
    }

    fn atom(&mut self, written: &str) {
        self.out.push_str(written);
        (self.quantifiable, self.captured) = (true, false);
    }

    fn literal(&mut self, c: char) {
        if c.is_ascii_punctuation() {
            self.out.push('\\');
        }
        self.out.push(c);
        (self.quantifiable, self.captured) = (true, false);
    }

    fn check_quantifiable(&self) -> Result<()> {
        if self.quantifiable { Ok(()) } else { Err(self.malformed("quantifier operand invalid")) }
    }

    /// `?` behind a quantifier has it take as little as it can.
    fn after_quantifier(&mut self) {
        if self.rest.next_if_eq(&'?').is_some() {
            self.out.push('?');
            self.traits.lazy = true;
        }
        self.traits.ambiguous |= self.captured;
        self.quantifiable = false;
    }

    /// `{2}`, `{2,}`, `{2,3}`.
    fn bound(&mut self) -> Result<()> {
        self.check_quantifiable()?;
        let mut text = String::new();
        loop {
            match self.rest.next() {
                Some('}') => break,
                Some(c) if c.is_ascii_digit() || c == ',' => text.push(c),
                _ => return Err(self.malformed("invalid repetition count(s)")),
            }
        }
        let counts: Vec<&str> = text.split(',').collect();
        let number = |digits: &str| digits.parse::<u32>().ok().filter(|n| *n <= 255);
        let valid = match counts.as_slice() {
            [exactly] => number(exactly).is_some(),
            [least, ""] => number(least).is_some(),
            [least, most] => matches!((number(least), number(most)), (Some(l), Some(m)) if l <= m),
            _ => false,
        };
        if !valid {
            return Err(self.malformed("invalid repetition count(s)"));
        }
        self.out.push_str(&format!("{{{text}}}"));
        self.after_quantifier();
        Ok(())
    }

    fn open_group(&mut self) -> Result<()> {
        let captures = match self.rest.next_if_eq(&'?') {
            None => true,
            Some(_) => match self.rest.next() {
                Some(':') => false,
                _ => return Err(unsupported("looking around and options inside of a regular expression")),
            },
        };
        self.groups |= captures;
        self.open.push(captures);
        self.out.push_str(if captures { "(" } else { "(?:" });
        self.quantifiable = false;
        Ok(())
    }

    fn close_group(&mut self) -> Result<()> {
        let Some(captures) = self.open.pop() else {
            return Err(self.malformed("parentheses () not balanced"));
        };
        self.out.push(')');
        (self.quantifiable, self.captured) = (true, captures);
        Ok(())
    }

    fn escape(&mut self) -> Result<()> {
        let Some(c) = self.rest.next() else { return Err(self.malformed("invalid escape \\ sequence")) };
        match c {
            'd' => self.atom("[0-9]"),
            'D' => self.negated("0-9"),
            's' => self.atom(&format!("[{SPACE}]")),
            'S' => self.negated(SPACE),
            'w' => self.atom(&format!("[{WORD}]")),
            'W' => self.negated(WORD),
            'A' => self.constraint("\\A"),
            'Z' => self.constraint("\\z"),
            'm' => self.constraint("\\b{start}"),
            'M' => self.constraint("\\b{end}"),
            'y' => self.constraint("\\b"),
            'Y' => self.constraint("\\B"),
            '1'..='9' => return Err(unsupported("a back reference in a regular expression")),
            c => {
                let c = self.character(c)?;
                self.literal(c);
            }
        }
        Ok(())
    }

    fn negated(&mut self, class: &str) {
        let line_end = if self.flags.lines_apart { "\\n" } else { "" };
        self.atom(&format!("[^{class}{line_end}]"));
    }

    fn constraint(&mut self, written: &str) {
        self.out.push_str(written);
        self.quantifiable = false;
    }

    /// The character that stands behind a backslash.
    fn character(&mut self, c: char) -> Result<char> {
        Ok(match c {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'B' => '\\',
            'e' => '\u{1b}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            'u' | 'U' => {
                let digits = if c == 'u' { 4 } else { 8 };
                let code: String =
                    std::iter::from_fn(|| self.rest.next_if(char::is_ascii_hexdigit)).take(digits).collect();
                let code = u32::from_str_radix(&code, 16).ok().filter(|_| code.len() == digits);
                let c = code.and_then(char::from_u32).filter(|c| *c != '\0');
                c.ok_or_else(|| self.malformed("invalid escape \\ sequence"))?
            }
            c if c.is_ascii_alphanumeric() => {
                return Err(unsupported(&format!("\\{c} in a regular expression")));
            }
            c => c,
        })
    }

    /// `[…]`.
    fn bracket(&mut self) -> Result<()> {
        let unbalanced = "brackets [] not balanced";
        let mut class = String::from("[");
        if self.rest.next_if_eq(&'^').is_some() {
            class.push('^');
            if self.flags.lines_apart {
                class.push_str("\\n");
            }
        }
        let start = class.len();
        let push = |class: &mut String, c: char| {
            if c.is_ascii_punctuation() {
                class.push('\\');
            }
            class.push(c);
        };
        loop {
            let Some(c) = self.rest.next() else { return Err(self.malformed(unbalanced)) };
            match c {
                ']' if class.len() > start => break,
                '[' if matches!(self.rest.peek(), Some(':' | '.' | '=')) => {
                    if self.rest.next() != Some(':') {
                        return Err(unsupported("a collating element in a regular expression"));
                    }
                    let name: String = std::iter::from_fn(|| self.rest.next_if(|c| *c != ':')).collect();
                    if (self.rest.next(), self.rest.next()) != (Some(':'), Some(']')) {
                        return Err(self.malformed("invalid character class"));
                    }
                    class.push_str(self.class(&name)?);
                }
                '\\' => match self.rest.next() {
                    Some('d') => class.push_str("0-9"),
                    Some('s') => class.push_str(SPACE),
                    Some('w') => class.push_str(WORD),
                    Some(c) if c.is_ascii_digit() => {
                        return Err(unsupported("a number of a character in a regular expression"));
                    }
                    Some(c) => {
                        let c = self.character(c)?;
                        push(&mut class, c);
                    }
                    None => return Err(self.malformed(unbalanced)),
                },
                // A minus is one at the start and at the end; otherwise it is between two characters.
                '-' if class.len() == start || self.rest.peek() == Some(&']') => class.push_str("\\-"),
                '-' => class.push('-'),
                c => push(&mut class, c),
            }
        }
        class.push(']');
        self.atom(&class);
        Ok(())
    }

    fn class(&self, name: &str) -> Result<&'static str> {
        Ok(match name {
            "alnum" => r"\p{Alphabetic}\p{Nd}",
            "alpha" => r"\p{Alphabetic}",
            "digit" => "0-9",
            "space" => SPACE,
            "xdigit" => "0-9A-Fa-f",
            "punct" => r"\p{P}\p{S}",
            "cntrl" => r"\p{Cc}",
            "upper" if !self.flags.ignore_case => r"\p{Uppercase}",
            "lower" if !self.flags.ignore_case => r"\p{Lowercase}",
            "upper" | "lower" | "blank" | "graph" | "print" | "word" => {
                return Err(unsupported(&format!("[:{name}:] in this regular expression")));
            }
            _ => return Err(self.malformed("invalid character class")),
        })
    }
}

/// `SIMILAR TO`'s pattern as a regular expression: the whole text is matched, `%` is any text and `_` any character.
///
/// # Errors
/// 22025 for an escape character without what it escapes.
pub(super) fn of_similar(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut out = String::from("^(?:");
    let mut chars = pattern.chars();
    let mut bracket = false;
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            match chars.next() {
                Some('"') => return Err(unsupported("an escape and a quote in a pattern of SIMILAR TO")),
                Some(escaped) => {
                    out.push('\\');
                    out.push(escaped);
                }
                None => return Err(invalid("22025", "a pattern must not end with its escape character")),
            }
            continue;
        }
        match c {
            ']' if bracket => {
                bracket = false;
                out.push(c);
            }
            c if bracket => {
                if c == '\\' {
                    out.push('\\');
                }
                out.push(c);
            }
            '[' => {
                bracket = true;
                out.push(c);
            }
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            '(' => out.push_str("(?:"),
            '\\' | '.' | '^' | '$' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out.push_str(")$");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text, Flags::default()).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn the_longest_of_the_leftmost_matches_is_found() {
        assert_eq!(pattern("a|abc").find("xabcd", 0).unwrap(), Some((1, 4)));
        assert_eq!(pattern("(a?)(ab)?").find("ab", 0).unwrap(), Some((0, 2)));
        assert_eq!(pattern("b*").find("abb", 0).unwrap(), Some((0, 0)));
        assert!(pattern("a+?").find("aaa", 0).is_err());
    }

    #[test]
    fn words_of_the_language_mean_the_same() {
        for (regex, text, matches) in [
            (r"\mfoo\M", "a foo b", true),
            (r"\mfoo\M", "afoo", false),
            (r"^a.c$", "a\nc", true),
            (r"[[:alpha:]]+", "ä", true),
            (r"\d", "٣", false),
            (r"[]a]", "]", true),
            (r"[a\]]", "]", true),
            (r"a{,2}", "a{,2}", true),
            (r"[a&&b]", "&", true),
        ] {
            assert_eq!(pattern(regex).is_match(text), matches, "{regex} {text}");
        }
        for wrong in ["(", "a)", "[a", "*a", "a**", "a{2,1}", "a{999}", "\\", "a|*"] {
            assert!(Pattern::new(wrong, Flags::default()).is_err(), "{wrong}");
        }
        for refused in [r"(a)\1", "(?=a)", "(?i)a"] {
            let error = Pattern::new(refused, Flags::default()).err().map(|e| e.error.kind());
            assert_eq!(error, Some(oribi_types::ErrorKind::Unsupported), "{refused}");
        }
    }
}
