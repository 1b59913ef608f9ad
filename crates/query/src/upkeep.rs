//! `VACUUM` and `ANALYZE`, for which there is nothing to do: what rows leave behind is removed in the background, and plans go by
//! what files and memory say of themselves.
//!
//! Their grammar is PostgreSQL's, which sqlparser does not read: it is taken out of a statement's tokens.

use crate::dml::{self, Run};
use crate::error::invalid;
use crate::precedence::Postgres;
use datafusion::sql::sqlparser::ast::{Expr, ObjectName};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use oribi_session::sql::{SqlError, TransactionStatus};

/// One of the statements, about these tables or all.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Upkeep {
    is_vacuum: bool,
    tables: Vec<ObjectName>,
}

/// The words that may stand before the tables, without parentheses.
const WORDS: &[Keyword] = &[Keyword::FULL, Keyword::FREEZE, Keyword::VERBOSE, Keyword::ANALYZE];

/// Reads the statement, if it is one; `VACUUM` alone is left of its tokens.
///
/// # Errors
/// Those of the grammar.
pub(crate) fn take(tokens: &mut Vec<TokenWithSpan>) -> Result<Option<Upkeep>, ParserError> {
    let is_code = |t: &&TokenWithSpan| !matches!(t.token, Token::Whitespace(_));
    let first = tokens.iter().find(is_code).map(|t| t.token.clone());
    let is_vacuum = match &first {
        Some(Token::Word(word)) if word.quote_style.is_none() && word.keyword == Keyword::VACUUM => true,
        Some(Token::Word(word)) if word.quote_style.is_none() && word.keyword == Keyword::ANALYZE => false,
        _ => return Ok(None),
    };
    let dialect = Postgres::of(tokens.len());
    let mut parser = Parser::new(&dialect).with_tokens_with_locations(std::mem::take(tokens));
    parser.next_token();
    if parser.consume_token(&Token::LParen) {
        parser.parse_comma_separated(parse_option)?;
        parser.expect_token(&Token::RParen)?;
    } else {
        while parser.parse_one_of_keywords(WORDS).is_some() {}
    }
    let tables = match parser.peek_token().token {
        Token::EOF => Vec::new(),
        _ => parser.parse_comma_separated(parse_table)?,
    };
    let rest = parser.peek_token();
    if rest.token != Token::EOF {
        return parser.expected("the end of the statement", rest);
    }
    tokens.push(TokenWithSpan::wrap(Token::make_keyword("VACUUM")));
    Ok(Some(Upkeep { is_vacuum, tables }))
}

/// `FREEZE`, `PARALLEL 2`, `INDEX_CLEANUP auto`.
fn parse_option(parser: &mut Parser<'_>) -> Result<(), ParserError> {
    parser.parse_identifier()?;
    match parser.peek_token().token {
        Token::Comma | Token::RParen => Ok(()),
        _ => parser.parse_expr().map(|_: Expr| ()),
    }
}

/// A table, perhaps with some of its columns.
fn parse_table(parser: &mut Parser<'_>) -> Result<ObjectName, ParserError> {
    let name = parser.parse_object_name(false)?;
    if parser.consume_token(&Token::LParen) {
        parser.parse_comma_separated(Parser::parse_identifier)?;
        parser.expect_token(&Token::RParen)?;
    }
    Ok(name)
}

impl Upkeep {
    pub(crate) fn tag(&self) -> &'static str {
        if self.is_vacuum { "VACUUM" } else { "ANALYZE" }
    }

    /// # Errors
    /// `NotFound` (42P01); 25001 for a `VACUUM` in a block.
    pub(crate) fn execute(&self, run: Run<'_>) -> Result<(), SqlError> {
        let is_in_block =
            run.session.transaction() != TransactionStatus::Idle && !run.session.modes().implicit;
        if self.is_vacuum && is_in_block {
            return Err(invalid("25001", "VACUUM cannot run inside a transaction block"));
        }
        let find = |name| dml::table(run.session, run.query.engine(), name).map(|_| ());
        self.tables.iter().try_for_each(find)
    }
}
