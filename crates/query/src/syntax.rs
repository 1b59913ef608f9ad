//! SQL text to syntax trees: splitting scripts, parsing one statement, and the clause of our own.
//!
//! `PARTITION BY HASH (a, b) PARTITIONS n` is not in sqlparser's grammar; it is taken out of a `CREATE TABLE`'s tokens
//! before the parser sees them.

use crate::pg_catalog;
use datafusion::sql::sqlparser::ast::{Ident, Statement};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use oribi_session::sql::SqlError;
use oribi_types::ErrorKind;

/// Expressions nested deeper than this are refused, so that no statement can exhaust the stack.
const DEPTH_MAX: usize = 64;

/// A parsed statement.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub statement: Statement,
    /// `PARTITION BY HASH (…) PARTITIONS n` of a `CREATE TABLE`.
    pub partition: Option<PartitionClause>,
}

/// Key columns by which rows are hashed, and into how many tablets.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionClause {
    pub columns: Vec<Ident>,
    pub partitions: u32,
}

/// The statements of `script`, without those that are empty or only comments.
///
/// # Errors
/// `Invalid` with a position for text that does not tokenize.
pub fn split(script: &str) -> Result<Vec<String>, SqlError> {
    let tokens = tokenize(script)?;
    let offsets = Offsets::new(script);
    let mut statements = Vec::new();
    let mut span: Option<(usize, usize)> = None;
    let mut flush = |span: &mut Option<(usize, usize)>| {
        if let Some((start, end)) = span.take() {
            statements.push(script[start..end].to_owned());
        }
    };
    for token in &tokens {
        match token.token {
            Token::SemiColon => flush(&mut span),
            Token::Whitespace(_) | Token::EOF => {}
            _ => {
                let start = span.map_or_else(|| offsets.byte(token.span.start), |(start, _)| start);
                span = Some((start, offsets.byte(token.span.end)));
            }
        }
    }
    flush(&mut span);
    Ok(statements)
}

/// Parses exactly one statement; a semicolon may follow it.
///
/// # Errors
/// `Invalid` (42601) with a position.
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
    let partition = take_partition_clause(&mut tokens, sql)?;
    let dialect = PostgreSqlDialect {};
    let mut parser = Parser::new(&dialect).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens);
    let mut statement = parser.parse_statement().map_err(|e| parser_error(e, sql))?;
    let rest = parser.peek_token();
    if rest.token != Token::EOF {
        let error = syntax_error(format!("syntax error at or near \"{}\"", rest.token));
        return Err(error.at(Offsets::new(sql).character(rest.span.start)));
    }
    pg_catalog::rewrite(&mut statement);
    Ok(Parsed { statement, partition })
}

/// A syntax error (42601).
pub fn syntax_error(message: impl Into<String>) -> SqlError {
    SqlError::new(ErrorKind::Invalid, message).with_sqlstate("42601")
}

/// The name that an identifier stands for: as written if quoted, else in lower case.
pub fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

fn tokenize(sql: &str) -> Result<Vec<TokenWithSpan>, SqlError> {
    Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize_with_location().map_err(|e| {
        let position = Offsets::new(sql).character(e.location);
        syntax_error(decapitalize(e.message.trim_end())).at(position)
    })
}

/// sqlparser appends ` at Line: 1, Column: 8` to its messages: that becomes the position.
fn parser_error(error: ParserError, sql: &str) -> SqlError {
    let message = match error {
        ParserError::ParserError(message) | ParserError::TokenizerError(message) => message,
        ParserError::RecursionLimitExceeded => {
            return SqlError::new(
                ErrorKind::TooLarge,
                format!("expression is nested more than {DEPTH_MAX} deep"),
            )
            .with_sqlstate("54001");
        }
    };
    let (text, location) = match message.rsplit_once(" at Line: ") {
        Some((text, location)) => (text, location.split_once(", Column: ")),
        None => (message.as_str(), None),
    };
    let error = syntax_error(format!("syntax error: {}", decapitalize(text)));
    match location.map(|(line, column)| (line.parse(), column.parse())) {
        Some((Ok(line), Ok(column))) => error.at(Offsets::new(sql).character(Location { line, column })),
        // "found: EOF" carries no location.
        _ => error.at(sql.chars().count() + 1),
    }
}

fn decapitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// Turns the tokenizer's lines and columns into offsets in the text.
struct Offsets<'a> {
    sql: &'a str,
    /// Byte offset of each line.
    lines: Vec<usize>,
}

impl<'a> Offsets<'a> {
    fn new(sql: &'a str) -> Self {
        let lines = std::iter::once(0).chain(sql.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Offsets { sql, lines }
    }

    fn byte(&self, location: Location) -> usize {
        let line = (location.line.max(1) as usize - 1).min(self.lines.len() - 1);
        let rest = &self.sql[self.lines[line]..];
        let column = location.column.max(1) as usize - 1;
        self.lines[line] + rest.char_indices().nth(column).map_or(rest.len(), |(i, _)| i)
    }

    /// 1-based, in characters.
    fn character(&self, location: Location) -> usize {
        self.sql[..self.byte(location)].chars().count() + 1
    }
}

/// Removes the partition clause from the tokens of a `CREATE TABLE`.
fn take_partition_clause(
    tokens: &mut Vec<TokenWithSpan>,
    sql: &str,
) -> Result<Option<PartitionClause>, SqlError> {
    let words: Vec<usize> =
        (0..tokens.len()).filter(|&i| !matches!(tokens[i].token, Token::Whitespace(_))).collect();
    let keyword = |n: usize| match words.get(n).map(|&i| &tokens[i].token) {
        Some(Token::Word(word)) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    };
    if keyword(0) != Keyword::CREATE || keyword(1) != Keyword::TABLE {
        return Ok(None);
    }
    let mut depth = 0;
    let Some(start) = (0..words.len()).find(|&n| {
        match tokens[words[n]].token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0 && keyword(n) == Keyword::PARTITION && keyword(n + 1) == Keyword::BY
    }) else {
        return Ok(None);
    };
    let dialect = PostgreSqlDialect {};
    let mut parser = Parser::new(&dialect).with_tokens_with_locations(tokens[words[start]..].to_vec());
    let clause = parse_partition_clause(&mut parser).map_err(|e| parser_error(e, sql))?;
    let end = parser.peek_token();
    let end = tokens.iter().position(|t| t.span == end.span).unwrap_or(tokens.len());
    tokens.drain(words[start]..end.max(words[start]));
    Ok(Some(clause))
}

fn parse_partition_clause(parser: &mut Parser<'_>) -> Result<PartitionClause, ParserError> {
    parser.expect_keywords(&[Keyword::PARTITION, Keyword::BY, Keyword::HASH])?;
    parser.expect_token(&Token::LParen)?;
    let columns = parser.parse_comma_separated(Parser::parse_identifier)?;
    parser.expect_token(&Token::RParen)?;
    let word = parser.next_token();
    if !matches!(&word.token, Token::Word(w) if w.value.eq_ignore_ascii_case("partitions")) {
        return parser.expected("PARTITIONS and their number", word);
    }
    let number = parser.next_token();
    match &number.token {
        Token::Number(text, _) if text.parse::<u32>().is_ok_and(|n| n > 0) => {
            Ok(PartitionClause { columns, partitions: text.parse().expect("checked") })
        }
        _ => parser.expected("a number of partitions above 0", number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_split_at_semicolons_outside_of_strings_and_comments() {
        let script =
            "select ';' ; -- a; comment\n ;; insert into t values ($$a;b$$);\n /* ; */ select 'é',\n 2";
        assert_eq!(
            split(script).unwrap(),
            ["select ';'", "insert into t values ($$a;b$$)", "select 'é',\n 2"]
        );
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
    fn the_partition_clause_may_stand_anywhere_behind_the_columns() {
        for sql in [
            "create table t (a int, b int, primary key (a, b)) partition by hash (a, \"B\") partitions 4 with (ttl = '1 day')",
            "CREATE TABLE t (a int, b int, primary key (a, b)) WITH (ttl = '1 day') PARTITION BY HASH (a, \"B\") PARTITIONS 4;",
        ] {
            let parsed = parse(sql).unwrap();
            let clause = parsed.partition.unwrap();
            assert_eq!(clause.columns.iter().map(fold).collect::<Vec<_>>(), ["a", "B"]);
            assert_eq!(clause.partitions, 4);
            assert!(parsed.statement.to_string().contains("ttl"), "{}", parsed.statement);
        }
        let windowed = "create table t as select row_number() over (partition by a) from s";
        assert_eq!(parse(windowed).unwrap().partition, None);
        for wrong in [
            "create table t (a int primary key) partition by hash (a)",
            "create table t (a int primary key) partition by range (a) partitions 4",
            "create table t (a int primary key) partition by hash (a) partitions 0",
        ] {
            let error = parse(wrong).unwrap_err();
            assert_eq!(error.sqlstate, Some("42601"));
            assert!(error.position.is_some());
        }
    }
}
