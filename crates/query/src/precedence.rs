//! Which operators bind tighter than others, and which do not chain, where sqlparser has it otherwise than PostgreSQL.
//!
//! PostgreSQL, the loosest first: `OR`, `AND`, `NOT`; `IS`; comparisons; `BETWEEN`, `IN`, `LIKE`; every operator without
//! a place of its own, before or between its operands; `+ -`; `* / %`; `^`; `AT TIME ZONE`; `COLLATE`; a sign; `[]`; `::`.
//! So `-2 ^ 2` is 4, and `@ -5 + 3` is `@ (-5 + 3)`. `IS DISTINCT FROM`, comparisons, and `BETWEEN` and `LIKE` are not
//! followed by another of the same place.

use crate::forms;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, Word};
use std::any::TypeId;
use std::cell::Cell;

/// The dialect of PostgreSQL, but for the precedence of operators and for arguments that are named by an expression: all
/// else that `PostgreSqlDialect` overrides is its own answer, and what it begins to override in a later version belongs
/// here.
///
/// It counts the steps of its parser, which tries some forms one after the other: `position(… in …)`, then a call of a
/// function `position`. In a nest of those each level would take twice as long as the one within.
#[derive(Debug)]
pub(crate) struct Postgres {
    steps_left: Cell<usize>,
}

impl Postgres {
    /// The dialect for a text of so many tokens.
    pub(crate) fn of(tokens: usize) -> Self {
        Postgres { steps_left: Cell::new(STEPS_MIN + STEPS_PER_TOKEN * tokens) }
    }
}

impl Postgres {
    /// # Errors
    /// The one behind which nothing else is tried.
    pub(crate) fn spend(&self, steps: usize) -> Result<(), ParserError> {
        let left = self.steps_left.get().checked_sub(steps).ok_or(ParserError::RecursionLimitExceeded)?;
        self.steps_left.set(left);
        Ok(())
    }
}

/// An expression begins at most of the tokens, and few begin twice: those below a form that was tried.
const STEPS_PER_TOKEN: usize = 16;

const STEPS_MIN: usize = 1000;

const BASE: PostgreSqlDialect = PostgreSqlDialect {};

/// Of a sign: between those that `BASE` gives `COLLATE` and `[`.
const SIGN: u8 = 125;

/// Of a word that is no operator.
const NONE: u8 = 0;

pub(crate) type Parse = Option<Result<Expr, ParserError>>;

/// Where the operator at the root of `expr` stands, if another of that place may not follow.
fn closed(expr: &Expr) -> Option<Precedence> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    match expr {
        Expr::BinaryOp { op: Eq | NotEq | Lt | LtEq | Gt | GtEq, .. } => Some(Precedence::Eq),
        Expr::Like { .. } | Expr::ILike { .. } | Expr::SimilarTo { .. } | Expr::Between { .. } => {
            Some(Precedence::Between)
        }
        Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => Some(Precedence::Is),
        _ => None,
    }
}

/// Whether a word is `ISNULL`, which is no keyword to the parser.
fn is_null_test(word: &Word) -> bool {
    word.quote_style.is_none() && word.value.eq_ignore_ascii_case("isnull")
}

/// Methods without arguments that answer as those of [`BASE`].
macro_rules! as_base {
    ($($name:ident)*) => { $(fn $name(&self) -> bool { BASE.$name() })* };
}

impl Dialect for Postgres {
    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        match &parser.peek_token_ref().token {
            Token::Tilde
            | Token::TildeAsterisk
            | Token::ExclamationMarkTilde
            | Token::ExclamationMarkTildeAsterisk
            | Token::DoubleTilde
            | Token::DoubleTildeAsterisk
            | Token::ExclamationMarkDoubleTilde
            | Token::ExclamationMarkDoubleTildeAsterisk => Some(Ok(self.prec_value(Precedence::PgOther))),
            Token::Word(word) => match word.keyword {
                Keyword::OPERATOR => Some(Ok(self.prec_value(Precedence::PgOther))),
                _ if is_null_test(word) => Some(Ok(self.prec_value(Precedence::Is))),
                // Operators of MySQL and others.
                Keyword::DIV
                | Keyword::XOR
                | Keyword::RLIKE
                | Keyword::REGEXP
                | Keyword::MATCH
                | Keyword::MEMBER => Some(Ok(NONE)),
                _ => BASE.get_next_precedence(parser),
            },
            _ => BASE.get_next_precedence(parser),
        }
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Parse {
        if let Err(error) = self.spend(1) {
            return Some(Err(error));
        }
        let other = self.prec_value(Precedence::PgOther);
        let (op, precedence) = match parser.peek_token_ref().token {
            Token::Plus => (UnaryOperator::Plus, SIGN),
            Token::Minus => (UnaryOperator::Minus, SIGN),
            Token::Tilde => (UnaryOperator::BitwiseNot, other),
            Token::AtSign => (UnaryOperator::PGAbs, other),
            Token::PGSquareRoot => (UnaryOperator::PGSquareRoot, other),
            Token::PGCubeRoot => (UnaryOperator::PGCubeRoot, other),
            _ => return None,
        };
        parser.advance_token();
        Some(parser.parse_subexpr(precedence).map(|expr| Expr::UnaryOp { op, expr: Box::new(expr) }))
    }

    fn parse_infix(&self, parser: &mut Parser, left: &Expr, precedence: u8) -> Parse {
        if closed(left).is_some_and(|place| self.prec_value(place) == precedence) {
            let next = parser.peek_token();
            return Some(parser.expected("parentheses around one of two comparisons", next));
        }
        if matches!(&parser.peek_token_ref().token, Token::Word(word) if is_null_test(word)) {
            parser.advance_token();
            return Some(Ok(Expr::IsNull(Box::new(left.clone()))));
        }
        let next = parser.peek_token();
        if parser.parse_keywords(&[Keyword::NOT, Keyword::NULL]) {
            return Some(parser.expected("IS before NOT NULL", next));
        }
        if let Some(read) = forms::infix(self, parser, left) {
            return Some(read);
        }
        // The parser of `BASE` would read an `AND` behind it as part of the right side.
        let is_distinct = parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]);
        if !is_distinct
            && !parser.parse_keywords(&[Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM])
        {
            return None;
        }
        let compare = if is_distinct { Expr::IsDistinctFrom } else { Expr::IsNotDistinctFrom };
        let right = parser.parse_subexpr(precedence);
        Some(right.map(|right| compare(Box::new(left.clone()), Box::new(right))))
    }

    /// What the parser does for this dialect by its type, it does for `BASE`.
    fn dialect(&self) -> TypeId {
        BASE.dialect()
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        BASE.prec_value(precedence)
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        BASE.identifier_quote_style(identifier)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        BASE.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        BASE.is_identifier_part(ch)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        BASE.is_delimited_identifier_start(ch)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        BASE.is_custom_operator_part(ch)
    }

    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        BASE.is_reserved_for_identifier(keyword)
    }

    /// All arguments would be parsed twice, and those of a nest of calls once more at each level.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    as_base! {
        allow_extract_custom allow_extract_single_quotes supports_alter_column_type_using
        supports_array_typedef_with_brackets supports_bitwise_shift_operators supports_comma_separated_trim
        supports_comment_on supports_comment_optimizer_hint supports_create_index_with_clause
        supports_create_table_like_parenthesized supports_empty_projections supports_explain_with_utility_options
        supports_factorial_operator supports_filter_during_aggregation supports_geometric_types
        supports_group_by_expr supports_insert_table_alias supports_interval_options supports_listen_notify
        supports_load_extension supports_named_fn_args_with_colon_operator
        supports_nested_comments supports_notnull_operator supports_numeric_literal_underscores
        supports_select_wildcard_with_alias supports_set_names supports_string_escape_constant
        supports_unicode_string_literal supports_xml_expressions
    }
}
