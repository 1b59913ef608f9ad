//! The grammar of partitions, which is Impala's for Kudu tables:
//!
//! ```sql
//! CREATE TABLE … PARTITION BY HASH (a, b) PARTITIONS 4, HASH (c) PARTITIONS 2, RANGE (d) (
//!     PARTITION VALUES < 10, PARTITION 10 <= VALUES < 20, PARTITION VALUE = 30,
//!     PARTITION 40 <= VALUES HASH (a, b) PARTITIONS 8 HASH (c) PARTITIONS 2)
//! ALTER TABLE … ADD [IF NOT EXISTS] RANGE PARTITION 20 <= VALUES < 30
//! ALTER TABLE … DROP [IF EXISTS] RANGE PARTITION 20 <= VALUES < 30
//! ```
//!
//! It is not in sqlparser's: the clauses are taken out of a statement's tokens before the parser sees them. Without
//! columns a dimension is of the whole primary key; a bound of several columns is a list in parentheses.

use crate::precedence::Postgres;
use datafusion::sql::sqlparser::ast::{Expr, Ident};
use datafusion::sql::sqlparser::dialect::{Dialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// How a table is partitioned, or, for `ALTER TABLE`, the range partition that comes or goes.
#[derive(Clone, Debug, PartialEq)]
pub enum PartitionClause {
    By { hash: Vec<HashClause>, range: Option<RangeClause> },
    Range(RangeSpec),
}

/// Columns by which rows are hashed, and into how many buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct HashClause {
    pub columns: Vec<Ident>,
    pub buckets: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RangeClause {
    pub columns: Vec<Ident>,
    pub ranges: Vec<RangeSpec>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RangeSpec {
    pub lower: Option<BoundSpec>,
    pub upper: Option<BoundSpec>,
    /// Dimensions of its own.
    pub hash: Vec<HashClause>,
}

/// A value for each column, and whether it belongs to the range itself.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundSpec {
    pub values: Vec<Expr>,
    pub inclusive: bool,
}

/// Removes the partition clause from the tokens of a statement. Of an `ALTER TABLE`, `ADD PARTITION (0)` or `DROP
/// PARTITION (0)` is left, which the parser knows.
///
/// # Errors
/// Those of the grammar.
pub fn take(tokens: &mut Vec<TokenWithSpan>) -> Result<Option<PartitionClause>, ParserError> {
    let words: Vec<usize> =
        (0..tokens.len()).filter(|&i| !matches!(tokens[i].token, Token::Whitespace(_))).collect();
    let keyword = |n: usize| match words.get(n).map(|&i| &tokens[i].token) {
        Some(Token::Word(word)) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    };
    let statement = (keyword(0), keyword(1));
    if statement.1 != Keyword::TABLE || !matches!(statement.0, Keyword::CREATE | Keyword::ALTER) {
        return Ok(None);
    }
    let is_create = statement.0 == Keyword::CREATE;
    let mut depth = 0;
    let Some(start) = (2..words.len()).find(|&n| {
        match tokens[words[n]].token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        let begins = match is_create {
            true => keyword(n) == Keyword::PARTITION && keyword(n + 1) == Keyword::BY,
            false => keyword(n) == Keyword::RANGE && keyword(n + 1) == Keyword::PARTITION,
        };
        depth == 0 && begins
    }) else {
        return Ok(None);
    };
    let dialect = Postgres::of(tokens.len());
    let mut parser = Parser::new(&dialect).with_tokens_with_locations(tokens[words[start]..].to_vec());
    let clause = match is_create {
        true => parse_partition_by(&mut parser)?,
        false => {
            parser.expect_keyword(Keyword::RANGE)?;
            parser.expect_keyword(Keyword::PARTITION)?;
            PartitionClause::Range(parse_range(&mut parser)?)
        }
    };
    let end = parser.peek_token();
    let end = tokens.iter().position(|t| t.span == end.span).unwrap_or(tokens.len()).max(words[start]);
    let left = match is_create {
        true => Vec::new(),
        false => {
            let zero = Token::Number("0".into(), false);
            let place = tokens[words[start]].span;
            let left = [tokens[words[start + 1]].token.clone(), Token::LParen, zero, Token::RParen];
            left.into_iter().map(|token| TokenWithSpan { token, span: place }).collect()
        }
    };
    tokens.splice(words[start]..end, left);
    Ok(Some(clause))
}

fn parse_partition_by(parser: &mut Parser<'_>) -> Result<PartitionClause, ParserError> {
    parser.expect_keywords(&[Keyword::PARTITION, Keyword::BY])?;
    let (mut hash, mut range) = (Vec::new(), None);
    loop {
        if parser.parse_keyword(Keyword::RANGE) {
            range = Some(parse_range_clause(parser)?);
            break;
        }
        hash.push(parse_hash(parser)?);
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    Ok(PartitionClause::By { hash, range })
}

fn parse_hash(parser: &mut Parser<'_>) -> Result<HashClause, ParserError> {
    parser.expect_keyword(Keyword::HASH)?;
    let columns = parse_columns(parser)?;
    let word = parser.next_token();
    if !is_word(&word, "partitions") {
        return parser.expected("PARTITIONS and their number", word);
    }
    let number = parser.next_token();
    match &number.token {
        Token::Number(text, _) if text.parse::<u32>().is_ok_and(|n| n > 0) => {
            Ok(HashClause { columns, buckets: text.parse().expect("checked") })
        }
        _ => parser.expected("a number of partitions above 0", number),
    }
}

/// The columns in parentheses, if any.
fn parse_columns(parser: &mut Parser<'_>) -> Result<Vec<Ident>, ParserError> {
    if !parser.consume_token(&Token::LParen) {
        return Ok(Vec::new());
    }
    let columns = parser.parse_comma_separated(Parser::parse_identifier)?;
    parser.expect_token(&Token::RParen)?;
    Ok(columns)
}

fn parse_range_clause(parser: &mut Parser<'_>) -> Result<RangeClause, ParserError> {
    // Of two lists in parentheses the first names columns.
    let names_columns = parser.peek_token().token == Token::LParen
        && !matches!(parser.peek_nth_token(1).token, Token::Word(w) if w.keyword == Keyword::PARTITION);
    let columns = if names_columns { parse_columns(parser)? } else { Vec::new() };
    parser.expect_token(&Token::LParen)?;
    let ranges = parser.parse_comma_separated(|parser| {
        parser.expect_keyword(Keyword::PARTITION)?;
        parse_range(parser)
    })?;
    parser.expect_token(&Token::RParen)?;
    Ok(RangeClause { columns, ranges })
}

fn parse_range(parser: &mut Parser<'_>) -> Result<RangeSpec, ParserError> {
    let is_values = |token: &TokenWithSpan| is_word(token, "value") || is_word(token, "values");
    let mut lower = None;
    if !is_values(&parser.peek_token()) {
        let values = parse_values(parser)?;
        lower = Some(BoundSpec { values, inclusive: parse_below(parser)? });
    }
    let word = parser.next_token();
    if !is_values(&word) {
        return parser.expected("VALUES", word);
    }
    let mut upper = None;
    if lower.is_none() && parser.consume_token(&Token::Eq) {
        let bound = BoundSpec { values: parse_values(parser)?, inclusive: true };
        (lower, upper) = (Some(bound.clone()), Some(bound));
    } else if lower.is_none() || matches!(parser.peek_token().token, Token::Lt | Token::LtEq) {
        let inclusive = parse_below(parser)?;
        upper = Some(BoundSpec { values: parse_values(parser)?, inclusive });
    }
    let mut hash = Vec::new();
    while parser.peek_keyword(Keyword::HASH) {
        hash.push(parse_hash(parser)?);
    }
    Ok(RangeSpec { lower, upper, hash })
}

/// `<` or `<=`; whether the latter.
fn parse_below(parser: &mut Parser<'_>) -> Result<bool, ParserError> {
    let token = parser.next_token();
    match token.token {
        Token::Lt => Ok(false),
        Token::LtEq => Ok(true),
        _ => parser.expected("< or <=", token),
    }
}

/// A constant, or several in parentheses; comparisons end it.
fn parse_values(parser: &mut Parser<'_>) -> Result<Vec<Expr>, ParserError> {
    Ok(match parser.parse_subexpr(Postgres::of(0).prec_value(Precedence::PgOther))? {
        Expr::Tuple(values) => values,
        Expr::Nested(value) => vec![*value],
        value => vec![value],
    })
}

fn is_word(token: &TokenWithSpan, wanted: &str) -> bool {
    matches!(&token.token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::{fold, parse};

    #[test]
    fn the_partition_clause_may_stand_anywhere_behind_the_columns() {
        for sql in [
            "create table t (a int, b int, primary key (a, b)) partition by hash (a, \"B\") partitions 4 with (ttl = '1 day')",
            "CREATE TABLE t (a int, b int, primary key (a, b)) WITH (ttl = '1 day') PARTITION BY HASH (a, \"B\") PARTITIONS 4;",
        ] {
            let parsed = parse(sql).unwrap();
            let Some(PartitionClause::By { hash, range: None }) = parsed.partition else { panic!("{sql}") };
            assert_eq!(hash[0].columns.iter().map(fold).collect::<Vec<_>>(), ["a", "B"]);
            assert_eq!(hash[0].buckets, 4);
            assert!(parsed.statement.to_string().contains("ttl"), "{}", parsed.statement);
        }
        let windowed = "create table t as select row_number() over (partition by a) from s";
        assert_eq!(parse(windowed).unwrap().partition, None);
        for wrong in [
            "create table t (a int primary key) partition by hash (a)",
            "create table t (a int primary key) partition by range (a) partitions 4",
            "create table t (a int primary key) partition by hash (a) partitions 0",
            "create table t (a int primary key) partition by range (a)",
            "create table t (a int primary key) partition by range (a) (partition 1 > values)",
            "create table t (a int primary key) partition by range (a) (partition values)",
            "create table t (a int primary key) partition by range (a) (values < 1)",
            "create table t (a int primary key) partition by range (a) (partition values < 1), hash (a) partitions 2",
            "alter table t add range partition",
            "alter table t add range partition values < 1 5",
            "alter table t add range partition (1, 2",
        ] {
            let error = parse(wrong).unwrap_err();
            assert_eq!(error.sqlstate, Some("42601"));
            assert!(error.position.is_some());
        }
    }

    #[test]
    fn ranges_are_read_as_impala_has_them() {
        let sql = "create table t (a int, b text, primary key (a, b)) partition by hash partitions 4, hash (b) partitions 2,
                   range (a, b) (partition values < (1, 'x'), partition (1, 'x') <= values <= (2, 'y') hash (a) partitions 3
                   hash (b) partitions 5, partition value = (7, 'z'), partition (8, '') < values)";
        let Some(PartitionClause::By { hash, range: Some(range) }) = parse(sql).unwrap().partition else {
            panic!()
        };
        assert_eq!(hash.iter().map(|h| (h.columns.len(), h.buckets)).collect::<Vec<_>>(), [(0, 4), (1, 2)]);
        assert_eq!(range.columns.len(), 2);
        let bound = |bound: &Option<BoundSpec>| {
            bound.as_ref().map_or("-".to_owned(), |bound| {
                let values: Vec<String> = bound.values.iter().map(Expr::to_string).collect();
                format!("{}{}", values.join(" "), if bound.inclusive { "=" } else { "" })
            })
        };
        let ranges: Vec<_> =
            range.ranges.iter().map(|r| (bound(&r.lower), bound(&r.upper), r.hash.len())).collect();
        let expected =
            [("-", "1 'x'", 0), ("1 'x'=", "2 'y'=", 2), ("7 'z'=", "7 'z'=", 0), ("8 ''", "-", 0)];
        assert_eq!(ranges, expected.map(|(lower, upper, own)| (lower.to_owned(), upper.to_owned(), own)));
        let sql =
            "create table t (a int primary key) partition by range (partition -1 - 1 <= values < 1::int)";
        assert!(matches!(parse(sql).unwrap().partition, Some(PartitionClause::By { range: Some(_), .. })));
    }

    #[test]
    fn a_range_partition_of_alter_table_is_taken_out() {
        for (sql, left) in [
            ("alter table s.t add range partition 1 <= values < 2", "ALTER TABLE s.t ADD PARTITION (0)"),
            (
                "alter table t add if not exists range partition value = 1;",
                "ALTER TABLE t ADD IF NOT EXISTS PARTITION (0)",
            ),
            (
                "alter table if exists t drop range partition values < 1",
                "ALTER TABLE IF EXISTS t DROP PARTITION (0)",
            ),
            (
                "alter table t drop if exists range partition 1 <= values",
                "ALTER TABLE t DROP IF EXISTS PARTITION (0)",
            ),
        ] {
            let parsed = parse(sql).unwrap();
            assert_eq!(parsed.statement.to_string().replace("  ", " "), left);
            assert!(matches!(parsed.partition, Some(PartitionClause::Range(_))), "{sql}");
        }
        assert_eq!(parse("alter table t add column range int").unwrap().partition, None);
    }
}
