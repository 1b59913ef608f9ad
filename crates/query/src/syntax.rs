//! SQL text to syntax trees: splitting scripts, and parsing one statement. The clauses about
//! [partitions](crate::partitions) are taken out of its tokens first.

use crate::depth::{self, CHAIN_MAX, Excess, RELATIONS_MAX};
use crate::forms;
use crate::functions;
use crate::lexical;
use crate::limits;
use crate::order;
use crate::partitions::{self, PartitionClause};
use crate::pg_catalog;
use crate::precedence::Postgres;
use crate::upkeep::{self, Upkeep};
use datafusion::sql::sqlparser::ast::{Ident, Query, Statement, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};
use oribi_session::sql::SqlError;
use oribi_types::ErrorKind;
use std::ops::{ControlFlow, Range};
use std::str::Chars;

/// The longest text of a statement, or of a script that comes as one message. The tokens and trees of a text take some
/// hundred times its size.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// The most tokens of a text; a tree and a plan take about a kilobyte for each.
const TOKENS_MAX: usize = 1 << 20;

/// Expressions nested deeper than this are refused, so that no statement can exhaust the stack.
const DEPTH_MAX: usize = 64;

/// A parsed statement.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub statement: Statement,
    /// `PARTITION BY …` of a `CREATE TABLE`, the range partition of an `ALTER TABLE`.
    pub partition: Option<PartitionClause>,
    /// `VACUUM` or `ANALYZE`; the statement says nothing then.
    pub upkeep: Option<Upkeep>,
}

/// Where in `script` its statements stand, in bytes; those that are empty or only comments are left out.
///
/// # Errors
/// `Invalid` with a position for text that does not tokenize; `TooLarge` (54000).
pub fn split(script: &str) -> Result<Vec<Range<usize>>, SqlError> {
    let mut statements: Vec<(Location, Location)> = Vec::new();
    let mut open = false;
    for TokenWithSpan { token, span } in tokenize(script)? {
        match (token, statements.last_mut()) {
            (Token::SemiColon, _) => open = false,
            (Token::Whitespace(_) | Token::EOF, _) => {}
            (_, Some((_, end))) if open => *end = span.end,
            _ => {
                statements.push((span.start, span.end));
                open = true;
            }
        }
    }
    let mut walk = Walk::new(script);
    Ok(statements.into_iter().map(|(start, end)| walk.byte(start)..walk.byte(end)).collect())
}

/// Parses exactly one statement; a semicolon may follow it.
///
/// # Errors
/// `Invalid` (42601) with a position; `TooLarge` (54000, 54001).
pub fn parse(sql: &str) -> Result<Parsed, SqlError> {
    let mut tokens = tokenize(sql)?;
    while tokens
        .last()
        .is_some_and(|t| matches!(t.token, Token::SemiColon | Token::Whitespace(_) | Token::EOF))
    {
        tokens.pop();
    }
    if tokens.is_empty() {
        return Err(syntax_error("the statement is empty"));
    }
    depth::check(tokens.iter().map(|t| &t.token)).map_err(|excess| {
        let message = match excess {
            Excess::Chain => format!("an expression chains more than {CHAIN_MAX} operators"),
            Excess::Relations => format!("a statement has more than {RELATIONS_MAX} queries and joins"),
        };
        let hint = "use lists, as in IN (…) and VALUES …, instead of chains of OR and UNION";
        too_large("54001", message).with_hint(hint)
    })?;
    lexical::check_numbers(&tokens)
        .and_then(|()| lexical::check_operators(sql, &tokens))
        .and_then(|()| forms::rewrite(&mut tokens))
        .map_err(|(error, token)| error.at(position(sql, tokens[token].span.start)))?;
    let upkeep = upkeep::take(&mut tokens).map_err(|e| parser_error(e, sql))?;
    limits::open_parentheses(&mut tokens);
    let partition = partitions::take(&mut tokens).map_err(|e| parser_error(e, sql))?;
    let dialect = Postgres::of(tokens.len());
    let mut parser = Parser::new(&dialect).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens);
    let mut statement = parser.parse_statement().map_err(|e| parser_error(e, sql))?;
    let rest = parser.peek_token();
    if rest.token != Token::EOF {
        let error = syntax_error(format!("syntax error at or near \"{}\"", rest.token));
        return Err(error.at(position(sql, rest.span.start)));
    }
    functions::check_names(&statement)?;
    pg_catalog::rewrite(&mut statement);
    if let ControlFlow::Break(error) = statement.visit(&mut Queries) {
        return Err(error);
    }
    Ok(Parsed { statement, partition, upkeep })
}

/// Rewrites each query of a statement, what is in it first.
struct Queries;

impl VisitorMut for Queries {
    type Break = SqlError;

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        match limits::rewrite(query).and_then(|()| order::rewrite(query)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// A syntax error (42601).
pub fn syntax_error(message: impl Into<String>) -> SqlError {
    SqlError::new(ErrorKind::Invalid, message).with_sqlstate("42601")
}

/// The name that an identifier stands for: as written if quoted, else with its ASCII letters in lower case. PostgreSQL
/// folds no others in a database of UTF-8.
pub fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    }
}

fn too_large(sqlstate: &'static str, message: String) -> SqlError {
    SqlError::new(ErrorKind::TooLarge, message).with_sqlstate(sqlstate)
}

fn tokenize(sql: &str) -> Result<Vec<TokenWithSpan>, SqlError> {
    let hint = "COPY takes any number of rows, and a parameter a value of any size";
    if sql.len() > TEXT_BYTES_MAX {
        let message = format!("the statement's text has {} bytes, the limit is {TEXT_BYTES_MAX}", sql.len());
        return Err(too_large("54000", message).with_hint(hint));
    }
    let tokens = lexical::tokens(sql)
        .map_err(|e| syntax_error(decapitalize(e.message.trim_end())).at(position(sql, e.location)))?;
    if tokens.len() > TOKENS_MAX {
        let message = format!("the statement's text has {} tokens, the limit is {TOKENS_MAX}", tokens.len());
        return Err(too_large("54000", message).with_hint(hint));
    }
    Ok(tokens)
}

/// sqlparser appends ` at Line: 1, Column: 8` to its messages: that becomes the position.
fn parser_error(error: ParserError, sql: &str) -> SqlError {
    let message = match error {
        ParserError::ParserError(message) | ParserError::TokenizerError(message) => message,
        ParserError::RecursionLimitExceeded => {
            return too_large("54001", format!("expression is nested more than {DEPTH_MAX} deep"));
        }
    };
    let (text, location) = match message.rsplit_once(" at Line: ") {
        Some((text, location)) => (text, location.split_once(", Column: ")),
        None => (message.as_str(), None),
    };
    let error = syntax_error(format!("syntax error: {}", decapitalize(text)));
    match location.map(|(line, column)| (line.parse(), column.parse())) {
        Some((Ok(line), Ok(column))) => error.at(position(sql, Location { line, column })),
        // "found: EOF" carries no location.
        _ => error.at(sql.chars().count() + 1),
    }
}

fn decapitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// The 1-based offset of `location`, in characters.
fn position(sql: &str, location: Location) -> usize {
    let byte = Walk::new(sql).byte(location);
    sql[..byte].chars().count() + 1
}

/// Turns the tokenizer's lines and columns into offsets, on one way through the text.
pub(crate) struct Walk<'a> {
    sql: &'a str,
    rest: Chars<'a>,
    /// Where `rest` begins.
    line: u64,
    column: u64,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(sql: &'a str) -> Self {
        Walk { sql, rest: sql.chars(), line: 1, column: 1 }
    }

    /// The offset of `location`, or of the last one asked for if that lies behind it.
    pub(crate) fn byte(&mut self, location: Location) -> usize {
        while (self.line, self.column) < (location.line, location.column) {
            match self.rest.next() {
                None => break,
                Some('\n') => (self.line, self.column) = (self.line + 1, 1),
                Some(_) => self.column += 1,
            }
        }
        self.sql.len() - self.rest.as_str().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_split_at_semicolons_outside_of_strings_and_comments() {
        let script =
            "select ';' ; -- a; comment\n ;; insert into t values ($$a;b$$);\n /* ; */ select 'é',\n 2";
        let statements: Vec<&str> = split(script).unwrap().into_iter().map(|range| &script[range]).collect();
        assert_eq!(statements, ["select ';'", "insert into t values ($$a;b$$)", "select 'é',\n 2"]);
        assert!(split(" -- nothing\n;").unwrap().is_empty());
        assert!(split("select 'open").unwrap_err().position.is_some());
    }

    #[test]
    fn syntax_errors_name_their_position() {
        let error = parse("select 'é',\n  from from t").unwrap_err();
        assert_eq!(error.sqlstate, Some("42601"));
        assert_eq!(error.position, Some(20), "{error}");
        assert_eq!(parse("select 1 select 2").unwrap_err().position, Some(10));
        assert!(parse("").is_err());
        let deep = format!("select {}1{}", "(".repeat(5000), ")".repeat(5000));
        assert_eq!(parse(&deep).unwrap_err().sqlstate, Some("54001"));
    }

    #[test]
    fn texts_without_bounds_are_refused_before_they_cost_memory_or_the_stack() {
        let list = |items: usize| format!("select 1{}", ",1".repeat(items));
        assert!(parse(&list(10_000)).is_ok());
        for text in [list(TOKENS_MAX / 2 + 1), format!("select '{}'", "x".repeat(TEXT_BYTES_MAX))] {
            assert_eq!(split(&text).unwrap_err().sqlstate, Some("54000"));
            let error = parse(&text).unwrap_err();
            assert_eq!(error.sqlstate, Some("54000"));
            assert!(error.hint.unwrap().contains("COPY"));
        }
        let chain = format!("select 1{}", "+1".repeat(100_000));
        assert_eq!(parse(&chain).unwrap_err().sqlstate, Some("54001"));
    }

    #[test]
    fn a_nest_is_parsed_in_time() {
        for (start, end, wrong) in [
            ("coalesce(", ", 1)", "1 1"),
            ("abs(", ")", "1 1"),
            ("position(", " in 'a')", "1 1"),
            ("position(", ", 'a')", ""),
            ("substring(", " from 1)", "1 1"),
            ("trim(", ")", "1 1"),
            ("cast(", " as text)", "1 1"),
            ("overlay(", " placing 'a' from 1)", "1 1"),
            ("extract(day from ", ")", "1 1"),
            ("case when ", " then 1 end", "1 1"),
            ("1 in (", ")", "1 1"),
            ("array[", "]", "1 1"),
            ("(", ", 1)", "1 1"),
            ("t.f(", ")", "1 1"),
        ] {
            let nest = |levels: usize, inner: &str| {
                format!("select {}{inner}{}", start.repeat(levels), end.repeat(levels))
            };
            if !wrong.is_empty() {
                let _ =
                    parse(&nest(10, "1")).map_err(|e| assert_ne!(e.sqlstate, Some("54001"), "{start}: {e}"));
            }
            for levels in [30, 60] {
                let _ = parse(&nest(levels, "1"));
                assert!(parse(&nest(levels, wrong)).is_err(), "{start}");
            }
        }
        assert!(parse(&format!("select {}1{}", "coalesce(".repeat(25), ", 1)".repeat(25))).is_ok());
    }

    /// Offsets used to be counted from the start of the line for every token: a megabyte took minutes.
    #[test]
    fn a_long_line_is_split_on_one_way_through_it() {
        let line = format!("insert into t values (1, 'é'){}; select 1", ", (1, 'é')".repeat(60_000));
        let statements = split(&line).unwrap();
        assert_eq!(statements.len(), 2);
        assert_eq!(&line[statements[1].clone()], "select 1");
    }
}
