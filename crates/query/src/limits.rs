//! `LIMIT`, `OFFSET` and `FETCH FIRST`, as PostgreSQL has them: `FETCH` is another way to write `LIMIT`, and each takes
//! any constant that becomes a `bigint`. Parameters, and numbers with digits behind the point, are left to be refused.

use crate::error::unsupported;
use crate::syntax::syntax_error;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Fetch, LimitClause, Query, Statement, Value, VisitMut, VisitorMut,
};
use oribi_session::sql::SqlError;
use std::ops::ControlFlow;

/// Rewrites the limits of all queries of a statement.
///
/// # Errors
/// `Unsupported` for `WITH TIES` and `PERCENT`; `Invalid` (42601) for two limits, and for MySQL's `LIMIT 1, 2`.
pub(crate) fn rewrite(statement: &mut Statement) -> Result<(), SqlError> {
    match statement.visit(&mut Limits) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Limits;

impl VisitorMut for Limits {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        match limit(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

fn limit(query: &mut Query) -> Result<(), SqlError> {
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
            limit.iter_mut().for_each(as_bigint);
            offset.iter_mut().for_each(|offset| as_bigint(&mut offset.value));
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

fn as_bigint(expr: &mut Expr) {
    if let Expr::Value(value) = &*expr
        && matches!(value.value, Value::Number(..) | Value::Placeholder(_))
    {
        return;
    }
    let inner = std::mem::replace(expr, Expr::Value(Value::Null.into()));
    *expr = Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(inner),
        data_type: DataType::BigInt(None),
        array: false,
        format: None,
    };
}
