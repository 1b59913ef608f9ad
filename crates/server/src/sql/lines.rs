//! Lines of a conversation as statements and commands, by the rules of psql: a semicolon ends a statement and a backslash begins
//! a command, wherever in a line they stand, but not inside of a literal, a quoted name, a dollar quote or a comment; and no
//! semicolon ends a statement inside of parentheses.

/// What was entered.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    /// A statement with its semicolon.
    Statement(String),
    /// From the backslash to the end of the line.
    Command(String),
}

/// What a line ended inside of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Open {
    #[default]
    Nothing,
    /// `'…'`; in `E'…'` a backslash escapes.
    Literal { escapes: bool },
    /// `"…"`
    Name,
    /// `$tag$…$tag$`, with its dollars.
    Dollar(String),
    /// `/* … */`, which nests.
    Comment { depth: usize },
}

/// Gathers lines.
#[derive(Default)]
pub struct Lines {
    statement: String,
    open: Open,
    parentheses: usize,
}

impl Lines {
    /// What to ask for the next line with: psql's, which says what is open.
    pub fn prompt(&self) -> &'static str {
        match &self.open {
            Open::Literal { .. } => "oribi'> ",
            Open::Name => "oribi\"> ",
            Open::Dollar(_) => "oribi$> ",
            Open::Comment { .. } => "oribi*> ",
            Open::Nothing if self.parentheses > 0 => "oribi(> ",
            Open::Nothing if self.statement.is_empty() => "oribi> ",
            Open::Nothing => "oribi-> ",
        }
    }

    /// Forgets the statement that was begun.
    pub fn clear(&mut self) {
        *self = Lines::default();
    }

    /// What is complete with `line`, in order.
    pub fn push(&mut self, line: &str) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            if self.open == Open::Nothing {
                if c == '\\' {
                    entries.push(Entry::Command(rest.trim_end().to_owned()));
                    break;
                }
                if rest.starts_with("--") {
                    break;
                }
            }
            let len = self.step(c, rest);
            self.statement.push_str(&rest[..len]);
            rest = &rest[len..];
            if c == ';' && self.open == Open::Nothing && self.parentheses == 0 {
                let statement = std::mem::take(&mut self.statement).trim().to_owned();
                if statement != ";" {
                    entries.push(Entry::Statement(statement));
                }
            }
        }
        if self.open == Open::Nothing && self.statement.trim().is_empty() {
            self.statement.clear();
        } else {
            self.statement.push('\n');
        }
        entries
    }

    /// Takes what `rest` begins with, whose first character is `c`; returns how many bytes that is.
    fn step(&mut self, c: char, rest: &str) -> usize {
        let next = rest[c.len_utf8()..].chars().next();
        match &mut self.open {
            Open::Nothing => return self.step_outside(c, rest),
            Open::Literal { escapes: true } if c == '\\' => return 1 + next.map_or(0, char::len_utf8),
            Open::Literal { .. } if c == '\'' && next == Some('\'') => return 2,
            Open::Literal { .. } if c == '\'' => self.open = Open::Nothing,
            Open::Name if c == '"' => self.open = Open::Nothing,
            Open::Dollar(tag) if rest.starts_with(tag.as_str()) => {
                let len = tag.len();
                self.open = Open::Nothing;
                return len;
            }
            Open::Comment { depth } if rest.starts_with("/*") => {
                *depth += 1;
                return 2;
            }
            Open::Comment { depth } if rest.starts_with("*/") => {
                *depth -= 1;
                if *depth == 0 {
                    self.open = Open::Nothing;
                }
                return 2;
            }
            _ => {}
        }
        c.len_utf8()
    }

    fn step_outside(&mut self, c: char, rest: &str) -> usize {
        let begins_word = |text: &str| !text.ends_with(|c: char| is_of_word(c) || c == '$');
        match c {
            '\'' => {
                let before = self.statement.strip_suffix(['e', 'E']);
                self.open = Open::Literal { escapes: before.is_some_and(begins_word) };
            }
            '"' => self.open = Open::Name,
            '(' => self.parentheses += 1,
            ')' => self.parentheses = self.parentheses.saturating_sub(1),
            '/' if rest.starts_with("/*") => {
                self.open = Open::Comment { depth: 1 };
                return 2;
            }
            '$' if begins_word(&self.statement) => {
                if let Some(tag) = dollar_tag(rest) {
                    self.open = Open::Dollar(tag.to_owned());
                    return tag.len();
                }
            }
            _ => {}
        }
        c.len_utf8()
    }
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii()
}

/// The `$tag$` that `text` begins with; `$1` begins none.
fn dollar_tag(text: &str) -> Option<&str> {
    let end = text[1..].find('$')? + 1;
    let tag = &text[1..end];
    let is_tag = tag.chars().all(is_of_word) && !tag.starts_with(|c: char| c.is_ascii_digit());
    is_tag.then(|| &text[..=end])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each entry of `lines`, and what they are prompted with at the end.
    fn read(lines: &str) -> (Vec<String>, &'static str) {
        let mut reader = Lines::default();
        let entries = lines.lines().flat_map(|line| reader.push(line));
        let entries = entries
            .map(|entry| match entry {
                Entry::Statement(text) | Entry::Command(text) => text,
            })
            .collect();
        (entries, reader.prompt())
    }

    #[track_caller]
    fn check(lines: &str, entries: &[&str], prompt: &str) {
        let (read, prompted) = read(lines);
        assert_eq!((read, prompted), (entries.iter().map(|e| e.to_string()).collect(), prompt), "{lines:?}");
    }

    #[test]
    fn a_semicolon_ends_a_statement_wherever_it_stands() {
        check("select 1;", &["select 1;"], "oribi> ");
        check("select 1; select\n2;; select", &["select 1;", "select\n2;"], "oribi-> ");
        check("  \n\n-- nothing; yet\nselect 1 -- one;\n;", &["select 1 \n;"], "oribi> ");
    }

    #[test]
    fn what_is_open_hides_semicolons_and_backslashes() {
        check("select 'a;\n\\q\nb'';' ;", &["select 'a;\n\\q\nb'';' ;"], "oribi> ");
        check("select \"a;\n\\q", &[], "oribi\"> ");
        check("select $$;\n\\q $x$", &[], "oribi$> ");
        check("select $x$ ; $$ $x$;", &["select $x$ ; $$ $x$;"], "oribi> ");
        check("select /* ; /* \\q */ ;\n", &[], "oribi*> ");
        check("select /* ; /* \\q */ ; */ 1;", &["select /* ; /* \\q */ ; */ 1;"], "oribi> ");
        check("select (1;\n);", &["select (1;\n);"], "oribi> ");
        check("select (", &[], "oribi(> ");
    }

    #[test]
    fn a_backslash_escapes_in_literals_that_say_so() {
        check("select E'\\';", &[], "oribi'> ");
        check("select '\\';", &["select '\\';"], "oribi> ");
        check("select e'\\'' ;", &["select e'\\'' ;"], "oribi> ");
        check("select name'\\';", &["select name'\\';"], "oribi> ");
    }

    #[test]
    fn dollars_of_parameters_and_names_quote_nothing() {
        check("select $1, $2;", &["select $1, $2;"], "oribi> ");
        check("select a$b$;", &["select a$b$;"], "oribi> ");
        check("select '$$';", &["select '$$';"], "oribi> ");
    }

    #[test]
    fn commands_come_in_the_middle_of_statements_too() {
        check("select 1\n\\q", &["\\q"], "oribi-> ");
        check("select 1; \\timing ", &["select 1;", "\\timing"], "oribi> ");
        check("select 1 \\d t\n;", &["\\d t", "select 1 \n;"], "oribi> ");
    }
}
