//! `LIMIT`, `OFFSET` and `FETCH FIRST`, as PostgreSQL has them: `FETCH` is another way to write `LIMIT`, and each takes
//! a parameter, or any constant, that becomes a `bigint`.

use crate::error::{invalid, unsupported};
use crate::syntax::syntax_error;
use datafusion::sql::sqlparser::ast::{CastKind, DataType, Expr, Fetch, LimitClause, Query, Value};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};
use oribi_session::sql::SqlError;
use oribi_types::{ColumnType, text};

/// `FETCH FIRST ($1) ROWS ONLY` without the parentheses, which the parser does not know there.
pub(crate) fn open_parentheses(tokens: &mut [TokenWithSpan]) {
    let is_code = |t: &TokenWithSpan| !matches!(t.token, Token::Whitespace(_));
    let code: Vec<usize> = (0..tokens.len()).filter(|i| is_code(&tokens[*i])).collect();
    for words in code.windows(6) {
        let token = |n: usize| &tokens[words[n]].token;
        let is_one = |n: usize, keywords: &[Keyword]| match token(n) {
            Token::Word(word) => keywords.contains(&word.keyword),
            _ => false,
        };
        if is_one(0, &[Keyword::FETCH])
            && is_one(1, &[Keyword::FIRST, Keyword::NEXT])
            && (token(2), token(4)) == (&Token::LParen, &Token::RParen)
            && is_one(5, &[Keyword::ROW, Keyword::ROWS])
        {
            for n in [2, 4] {
                tokens[words[n]].token = Token::Whitespace(Whitespace::Space);
            }
        }
    }
}

/// Rewrites the limits of a query, of none of those in it.
///
/// # Errors
/// `Unsupported` for `WITH TIES` and `PERCENT`; `Invalid` (42601) for two limits, and for MySQL's `LIMIT 1, 2`.
pub(crate) fn rewrite(query: &mut Query) -> Result<(), SqlError> {
    if let Some(fetch) = query.fetch.take() {
        let fetched = Some(quantity(fetch)?);
        match &mut query.limit_clause {
            None => {
                let none = LimitClause::LimitOffset { limit: fetched, offset: None, limit_by: Vec::new() };
                query.limit_clause = Some(none);
            }
            Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => *limit = fetched,
            Some(_) => return Err(syntax_error("multiple LIMIT clauses not allowed")),
        }
    }
    match &mut query.limit_clause {
        None => {}
        Some(LimitClause::OffsetCommaLimit { .. }) => {
            return Err(syntax_error("LIMIT #,# syntax is not supported")
                .with_hint("use separate LIMIT and OFFSET clauses"));
        }
        Some(LimitClause::LimitOffset { limit, offset, limit_by }) => {
            if !limit_by.is_empty() {
                return Err(syntax_error("LIMIT … BY is not SQL of PostgreSQL"));
            }
            if let Some(limit) = limit {
                as_bigint(limit, "LIMIT")?;
            }
            if let Some(offset) = offset {
                as_bigint(&mut offset.value, "OFFSET")?;
            }
        }
    }
    Ok(())
}

fn quantity(fetch: Fetch) -> Result<Expr, SqlError> {
    if fetch.with_ties {
        return Err(unsupported("FETCH FIRST … WITH TIES"));
    }
    if fetch.percent {
        return Err(unsupported("FETCH FIRST … PERCENT"));
    }
    Ok(fetch.quantity.unwrap_or_else(|| Expr::Value(Value::Number("1".to_owned(), false).into())))
}

fn as_bigint(expr: &mut Expr, clause: &str) -> Result<(), SqlError> {
    let inner = match &*expr {
        Expr::Subquery(_) => return Err(unsupported(&format!("a subquery in {clause}"))),
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => Expr::Value(Value::Number(rounded(digits)?, false).into()),
            Value::SingleQuotedString(text) if text.trim_ascii().parse::<i64>().is_err() => {
                let message = format!("invalid input syntax for type bigint: \"{text}\"");
                return Err(invalid("22P02", message));
            }
            _ => expr.clone(),
        },
        _ => expr.clone(),
    };
    *expr = Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(inner),
        data_type: DataType::BigInt(None),
        array: false,
        format: None,
    };
    Ok(())
}

/// A number as the `bigint` that PostgreSQL makes of it: halves are rounded away from zero.
fn rounded(digits: &str) -> Result<String, SqlError> {
    let whole = ColumnType::Decimal { precision: 19, scale: 0 };
    let rounded = text::parse(whole, digits).map(|value| text::to_string(value.as_ref(), whole));
    let fits = rounded.ok().filter(|rounded| rounded.parse::<i64>().is_ok());
    fits.ok_or_else(|| invalid("22003", "bigint out of range"))
}
