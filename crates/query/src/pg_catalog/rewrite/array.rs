//! `ARRAY(SELECT …)`: the aggregate of the query's rows, in their order.

use super::{aggregate, call, is_aggregate, select_of};
use crate::precedence::Postgres;
use datafusion::sql::sqlparser::ast::{
    self, Expr, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Value,
};
use datafusion::sql::sqlparser::parser::Parser;

/// The array as an expression; without rows it has no elements.
pub(super) fn of_query(query: &Query) -> Expr {
    let aggregated = match order(query) {
        Some(order) if select_of(query).is_some_and(|select| is_plain(query, select)) => {
            aggregate(&mut query.clone(), "array_agg", order)
        }
        Some(order) => over_rows(query, &order).unwrap_or_else(|| Expr::Subquery(Box::new(query.clone()))),
        None => Expr::Subquery(Box::new(query.clone())),
    };
    call("array_or_empty", vec![aggregated])
}

/// Whether each row that is read makes an element.
fn is_plain(query: &Query, select: &Select) -> bool {
    let grouped = !matches!(&select.group_by, ast::GroupByExpr::Expressions(keys, _) if keys.is_empty());
    let aggregates = select.projection.iter().any(|item| item_expr(item).is_some_and(is_aggregate));
    !grouped
        && !aggregates
        && select.having.is_none()
        && select.distinct.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.with.is_none()
}

fn item_expr(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// What the rows are ordered by, the selected expression in place of its number or name; `None` for `ORDER BY ALL`.
fn order(query: &Query) -> Option<Vec<OrderByExpr>> {
    let Some(order) = &query.order_by else { return Some(Vec::new()) };
    let OrderByKind::Expressions(keys) = &order.kind else { return None };
    let selected = select_of(query).and_then(|select| select.projection.first());
    let keys = keys.iter().cloned().map(|mut key| {
        let is_selected = match (&key.expr, selected) {
            (Expr::Value(value), _) => matches!(&value.value, Value::Number(n, _) if n == "1"),
            (Expr::Identifier(name), Some(SelectItem::ExprWithAlias { alias, .. })) => {
                name.value.eq_ignore_ascii_case(&alias.value)
            }
            _ => false,
        };
        if let (true, Some(expr)) = (is_selected, selected.and_then(item_expr)) {
            key.expr = expr.clone();
        }
        key
    });
    Some(keys.collect())
}

/// The aggregate over the rows of any query, which are numbered if they have an order.
fn over_rows(query: &Query, order: &[OrderByExpr]) -> Option<Expr> {
    let mut inner = query.clone();
    let by = match inner.body.as_mut() {
        _ if order.is_empty() => String::new(),
        SetExpr::Select(select) if select.distinct.is_none() => {
            let [item] = select.projection.as_slice() else { return None };
            let keys = order.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let place = parsed(&format!("row_number() OVER (ORDER BY {keys})"))?;
            let value = SelectItem::UnnamedExpr(item_expr(item)?.clone());
            select.projection = vec![value, SelectItem::UnnamedExpr(place)];
            " ORDER BY place".to_owned()
        }
        // The rows are distinct, or of several queries: they can be ordered by their values alone.
        _ => {
            let [key] = order else { return None };
            let mut key = key.clone();
            let selected = select_of(query).and_then(|select| select.projection.first()).and_then(item_expr);
            let number = matches!(&key.expr, Expr::Value(value) if matches!(&value.value, Value::Number(n, _) if n == "1"));
            if !number && selected != Some(&key.expr) {
                return None;
            }
            key.expr = Expr::Identifier("element".into());
            format!(" ORDER BY {key}")
        }
    };
    let columns = if by.contains("place") { "element, place" } else { "element" };
    parsed(&format!("(SELECT array_agg(element{by}) FROM ({inner}) AS elements ({columns}))"))
}

fn parsed(sql: &str) -> Option<Expr> {
    Parser::new(&Postgres::of(sql.len())).try_with_sql(sql).ok()?.parse_expr().ok()
}
