//! The names in `ORDER BY` and `DISTINCT ON`: one that stands alone is a column of the result, one within an expression
//! a column of the tables. DataFusion's planner looks for both among the columns of the result first.
//!
//! So a query whose keys are expressions with such a name in them computes the keys as columns of a query below it, where
//! nothing of the result is seen: `SELECT -a AS a FROM t ORDER BY a + 1` becomes
//! `SELECT c1 AS a FROM (SELECT -a AS a, a + 1 FROM t) AS keyed (c1, c2) ORDER BY c2`.

use crate::error::{invalid, unsupported};
use crate::pg_catalog::{apart, column_name, shown};
use crate::syntax::fold;
use datafusion::sql::sqlparser::ast::{
    self, Distinct, Expr, GroupByExpr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, TableAlias,
    TableAliasColumnDef, TableFactor, TableWithJoins, Value,
};
use oribi_session::sql::SqlError;
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Rewrites one query, none of those in it.
///
/// # Errors
/// `Unsupported` beside a wildcard; `Invalid`: 42702 for a name that two columns have, 42P10 for a number that none has, and
/// for a key that `SELECT DISTINCT` has dropped.
pub(crate) fn rewrite(query: &mut Query) -> Result<(), SqlError> {
    name_placed(query);
    name_given_twice(query)?;
    if !needs_columns(query) {
        return Ok(());
    }
    let mut below = query.clone();
    (below.with, below.order_by, below.limit_clause, below.fetch) = (None, None, None, None);
    below.locks.clear();
    let (SetExpr::Select(select), SetExpr::Select(computed)) = (query.body.as_mut(), below.body.as_mut())
    else {
        return Ok(());
    };
    let mut keys = Keys::new(select)?;
    if let Some(Distinct::On(on)) = &mut select.distinct {
        on.iter_mut().try_for_each(|key| keys.place(key))?;
    }
    if let Some(OrderByKind::Expressions(order)) = query.order_by.as_mut().map(|order| &mut order.kind) {
        order.iter_mut().try_for_each(|key| keys.place(&mut key.expr))?;
    }
    (computed.distinct, computed.into) = (None, None);
    computed.projection = keys.columns().collect();
    select.projection = keys.result();
    let columns = 0..computed.projection.len();
    select.from = vec![keyed(below, columns.map(column).collect())];
    (select.selection, select.having) = (None, None);
    select.group_by = GroupByExpr::Expressions(Vec::new(), Vec::new());
    select.named_window.clear();
    Ok(())
}

/// Names the computed columns of the result whose places are keys: where rows are grouped, DataFusion finds no other.
fn name_placed(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let Some(OrderByKind::Expressions(order)) = query.order_by.as_ref().map(|order| &order.kind) else {
        return;
    };
    let wild = select.projection.iter().position(|item| expr_of(item).is_none());
    let named = wild.unwrap_or(select.projection.len());
    for n in order.iter().filter_map(|key| place(&key.expr)?.checked_sub(1)).filter(|n| *n < named) {
        if let SelectItem::UnnamedExpr(expr) = &select.projection[n]
            && !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_))
        {
            let alias = Ident::with_quote('"', apart(&column_name(expr), n + 1));
            select.projection[n] = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}

/// The place that a key names.
fn place(key: &Expr) -> Option<usize> {
    match key {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Orders by a name that several columns were given, which then are the same.
fn name_given_twice(query: &mut Query) -> Result<(), SqlError> {
    let SetExpr::Select(select) = query.body.as_ref() else { return Ok(()) };
    let Some(OrderByKind::Expressions(order)) = query.order_by.as_mut().map(|order| &mut order.kind) else {
        return Ok(());
    };
    for key in order {
        let Expr::Identifier(name) = &key.expr else { continue };
        let name = fold(name);
        let mut given = select.projection.iter().filter_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if shown(&alias.value) == Some(name.as_str()) => {
                (column_name(expr) != name).then_some((alias, expr))
            }
            _ => None,
        });
        let Some((alias, expr)) = given.next() else { continue };
        if given.any(|(_, other)| other != expr) {
            return Err(invalid("42702", format!("ORDER BY \"{name}\" is ambiguous")));
        }
        key.expr = Expr::Identifier(alias.clone());
    }
    Ok(())
}

/// Whether a key is an expression in which a name stands that a column of the result was given.
fn needs_columns(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let on = match &select.distinct {
        Some(Distinct::On(on)) => on.as_slice(),
        _ => &[],
    };
    let order = match query.order_by.as_ref().map(|order| &order.kind) {
        Some(OrderByKind::Expressions(order)) => order.as_slice(),
        _ => &[],
    };
    let mut keys = on.iter().chain(order.iter().map(|key| &key.expr)).map(bare).peekable();
    if keys.peek().is_none() {
        return false;
    }
    let given: Vec<(String, &Expr)> = select.projection.iter().filter_map(given_name).collect();
    let names_given = |part: &Expr| {
        let name = match part {
            Expr::Identifier(name) => fold(name),
            // Though it says of which table: the planner would have two columns of the name.
            Expr::CompoundIdentifier(parts) => parts.last().map(fold).unwrap_or_default(),
            _ => return ControlFlow::Continue(()),
        };
        match given.iter().any(|(given, expr)| *given == name && *expr != part) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    keys.any(|key| !matches!(key, Expr::Identifier(_)) && ast::visit_expressions(key, names_given).is_break())
}

/// The name that a column of the result was given, and what it is.
fn given_name(item: &SelectItem) -> Option<(String, &Expr)> {
    match item {
        SelectItem::ExprWithAlias { expr, alias } => Some((fold(alias), expr)),
        _ => None,
    }
}

fn bare(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

/// The columns of the query below: those of the result, and behind them the keys that are none of these.
struct Keys {
    selected: Vec<SelectItem>,
    further: Vec<Expr>,
    /// Whether rows are told apart by the columns of the result alone.
    distinct: bool,
}

impl Keys {
    fn new(select: &Select) -> Result<Self, SqlError> {
        if select.projection.iter().any(|item| expr_of(item).is_none()) {
            let what = "an order by an expression with the name of a column of the result, beside *,";
            return Err(unsupported(what).with_hint("write the columns in place of the *"));
        }
        let distinct = matches!(select.distinct, Some(Distinct::Distinct));
        Ok(Keys { selected: select.projection.clone(), further: Vec::new(), distinct })
    }

    /// Puts a column in the place of `key`.
    fn place(&mut self, key: &mut Expr) -> Result<(), SqlError> {
        let n = match self.selected(bare(key))? {
            Some(n) => n,
            None if self.distinct => {
                let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
                return Err(invalid("42P10", message));
            }
            None => self.selected.len() + self.further(key),
        };
        // Behind `DISTINCT` there are no columns but those of the result.
        *key = match self.distinct {
            true => Expr::Value(Value::Number((n + 1).to_string(), false).into()),
            false => Expr::Identifier(column(n)),
        };
        Ok(())
    }

    fn further(&mut self, key: &Expr) -> usize {
        let written = key.to_string();
        let known = self.further.iter().position(|known| known.to_string() == written);
        known.unwrap_or_else(|| {
            self.further.push(key.clone());
            self.further.len() - 1
        })
    }

    /// Which column of the result a key is.
    fn selected(&self, key: &Expr) -> Result<Option<usize>, SqlError> {
        if let Some(position) = place(key) {
            let message = || format!("ORDER BY position {position} is not in select list");
            let n = position.checked_sub(1).filter(|n| *n < self.selected.len());
            return n.map(Some).ok_or_else(|| invalid("42P10", message()));
        }
        let written = key.to_string();
        let same = |item: &SelectItem| expr_of(item).is_some_and(|expr| bare(expr).to_string() == written);
        let Expr::Identifier(name) = key else { return Ok(self.selected.iter().position(same)) };
        let name = fold(name);
        let mut named = (0..self.selected.len()).filter(|n| output_name(&self.selected[*n]) == name);
        let Some(first) = named.next() else { return Ok(None) };
        let written = |n: usize| expr_of(&self.selected[n]).map(ToString::to_string);
        if named.any(|other| written(other) != written(first)) {
            return Err(invalid("42702", format!("ORDER BY \"{name}\" is ambiguous")));
        }
        Ok(Some(first))
    }

    /// What the query below selects.
    fn columns(&self) -> impl Iterator<Item = SelectItem> {
        let further = self.further.iter().enumerate().map(|(n, expr)| SelectItem::ExprWithAlias {
            expr: expr.clone(),
            alias: Ident::with_quote('"', format!("key {n} of the order")),
        });
        self.selected.iter().cloned().chain(further)
    }

    /// What the query itself selects: the columns by their names.
    fn result(&self) -> Vec<SelectItem> {
        let mut seen = HashSet::new();
        let named = self.selected.iter().enumerate().map(|(n, item)| {
            let name = output_name(item);
            let name = if seen.insert(name.clone()) { name } else { apart(&name, n) };
            SelectItem::ExprWithAlias {
                expr: Expr::Identifier(column(n)),
                alias: Ident::with_quote('"', name),
            }
        });
        named.collect()
    }
}

fn expr_of(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

fn output_name(item: &SelectItem) -> String {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => fold(alias),
        item => expr_of(item).map(column_name).unwrap_or_default(),
    }
}

/// What column `n` of the query below is called.
fn column(n: usize) -> Ident {
    Ident::with_quote('"', format!("column {n}"))
}

fn keyed(below: Query, columns: Vec<Ident>) -> TableWithJoins {
    let columns = columns.into_iter().map(|name| TableAliasColumnDef { name, data_type: None });
    let alias =
        TableAlias { explicit: true, name: Ident::new("keyed"), columns: columns.collect(), at: None };
    TableWithJoins {
        relation: TableFactor::Derived {
            lateral: false,
            subquery: Box::new(below),
            alias: Some(alias),
            sample: None,
        },
        joins: Vec::new(),
    }
}
