//! What PostgreSQL calls the columns of a result: `count`, not `count(*)`; `?column?` where it has no better name.
//! [PostgreSQL `src/backend/parser/parse_target.c`, `FigureColname`]

use crate::functions::UNARY_PLUS;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    DataType, Expr, ObjectNamePart, Query, Select, SelectItem, SetExpr, Statement, Value,
};
use std::sync::Arc;

/// Ends the name proper of a column whose name another has too: DataFusion wants them apart.
const APART: char = '\0';

/// What a column is called that has no better name.
pub(super) const NAMELESS: &str = "?column?";

/// A name that is shown as `name` but is unlike that of any other column of its `SELECT`.
pub(crate) fn apart(name: &str, position: usize) -> String {
    format!("{name}{APART}{position}")
}

/// What is shown of a name that [`apart`] made; `None` of any other.
pub(crate) fn shown(name: &str) -> Option<&str> {
    name.split_once(APART).map(|(shown, _)| shown)
}

/// The result's columns, by the names that PostgreSQL would give them.
pub(crate) fn output_schema(statement: &Statement, planned: &Schema) -> SchemaRef {
    let names = match statement {
        Statement::Query(query) => first_select(query).and_then(|s| column_names(s, planned.fields().len())),
        _ => None,
    };
    let field = |(i, field): (usize, &Arc<Field>)| {
        let name = names.as_ref().and_then(|n| n[i].as_deref()).unwrap_or(field.name());
        let name = name.split(APART).next().unwrap_or_default();
        if name == field.name() {
            Arc::clone(field)
        } else {
            Arc::new(field.as_ref().clone().with_name(name))
        }
    };
    let fields: Vec<_> = planned.fields().iter().enumerate().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, planned.metadata().clone()))
}

/// The `SELECT` that names a query's columns: of a set operation the first.
fn first_select(query: &Query) -> Option<&Select> {
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Query(inner) => body = inner.body.as_ref(),
            _ => return None,
        }
    }
}

/// A name for each of `count` columns; `None` for those that keep theirs, which a wildcard gave.
fn column_names(select: &Select, count: usize) -> Option<Vec<Option<String>>> {
    let wildcards = select.projection.iter().filter(|item| named(item).is_none()).count();
    let expanded = (count + wildcards).checked_sub(select.projection.len())?;
    // With two wildcards, nobody knows here which columns are whose.
    let each = match wildcards {
        0 if expanded == 0 => 0,
        1 => expanded,
        _ => return None,
    };
    let names = select.projection.iter().flat_map(|item| match named(item) {
        Some(name) => vec![Some(name)],
        None => vec![None; each],
    });
    Some(names.collect())
}

fn named(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr) => Some(column_name(expr)),
        SelectItem::ExprWithAlias { alias, .. } => Some(match alias.quote_style {
            Some(_) => alias.value.clone(),
            None => alias.value.to_ascii_lowercase(),
        }),
        _ => None,
    }
}

/// What PostgreSQL calls the column of an expression.
pub(crate) fn column_name(expr: &Expr) -> String {
    figure(expr).unwrap_or_else(|| NAMELESS.to_owned())
}

fn figure(expr: &Expr) -> Option<String> {
    let fold = |ident: &datafusion::sql::sqlparser::ast::Ident| match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    };
    Some(match expr {
        Expr::Identifier(ident) => fold(ident),
        Expr::CompoundIdentifier(parts) => fold(parts.last()?),
        Expr::Function(function) => {
            let name = function.name.0.last().and_then(ObjectNamePart::as_ident).map(fold)?;
            match name.as_str() {
                // Our spelling of a cast.
                "regclass" | "regtype" | "regproc" | "regrole" | "regnamespace" | UNARY_PLUS => {
                    NAMELESS.to_owned()
                }
                name if name.starts_with("extract_") => "extract".to_owned(),
                "substring_by_pattern" => "substring".to_owned(),
                _ => name,
            }
        }
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => return figure(inner),
        Expr::Cast { expr, data_type, .. } => return figure(expr).or_else(|| type_name(data_type)),
        Expr::TypedString(typed) => return type_name(&typed.data_type),
        Expr::Interval(_) => "interval".to_owned(),
        Expr::Case { else_result, .. } => {
            else_result.as_deref().and_then(figure).unwrap_or_else(|| "case".to_owned())
        }
        Expr::Exists { .. } => "exists".to_owned(),
        Expr::Array(_) => "array".to_owned(),
        Expr::Subquery(query) => return first_select(query).and_then(|s| named(s.projection.first()?)),
        Expr::Extract { .. } => "extract".to_owned(),
        Expr::Substring { .. } => "substring".to_owned(),
        Expr::Trim { .. } => "btrim".to_owned(),
        Expr::Position { .. } => "position".to_owned(),
        Expr::Ceil { .. } => "ceil".to_owned(),
        Expr::Floor { .. } => "floor".to_owned(),
        Expr::Overlay { .. } => "overlay".to_owned(),
        Expr::AtTimeZone { .. } => "timezone".to_owned(),
        Expr::Value(value) if matches!(value.value, Value::Boolean(_)) => "bool".to_owned(),
        _ => return None,
    })
}

/// The internal name of a type, which a cast lends to what has no name.
fn type_name(data_type: &DataType) -> Option<String> {
    let written = data_type.to_string();
    super::types::by_name(&written).map(|t| t.name.to_owned())
}
