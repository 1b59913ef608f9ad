//! Names of functions in a statement's syntax tree: those that are not in the table are refused.
//!
//! This comes before the statement is planned, for then a name is what the client wrote: DataFusion's planner makes
//! calls of its own from operators and clauses, and knows a function by other names too.

use super::table;
use crate::advisory;
use crate::error::{invalid, unsupported};
use crate::sequences;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArguments, ObjectName, ObjectNamePart,
    SetExpr, SetOperator, SetQuantifier, Statement, TableFactor, TimezoneInfo, Visit, Visitor,
};
use oribi_session::sql::SqlError;
use std::ops::ControlFlow;

/// Functions that stand in `FROM`.
const IN_FROM: [&str; 2] = ["generate_series", "unnest"];

/// # Errors
/// 42883 for a function that there is not, `Unsupported` for syntax that means one.
pub(crate) fn check_names(statement: &Statement) -> Result<(), SqlError> {
    if advisory::call(statement).is_some() {
        return Ok(());
    }
    if let Some(arguments) = sequences::call(statement) {
        return check_names(&arguments);
    }
    let has_columns = match statement {
        Statement::Insert(insert) => {
            insert.source.as_ref().is_some_and(|source| matches!(source.body.as_ref(), SetExpr::Values(_)))
        }
        Statement::CreateTable(create) => create.query.is_none(),
        Statement::AlterTable(_) => true,
        _ => false,
    };
    match statement.visit(&mut Names { has_columns, ..Names::default() }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

#[derive(Default)]
struct Names {
    /// Whether there may be columns that have their values, or defaults, from sequences.
    has_columns: bool,
    /// Whether the expression that comes is cast: an empty array has its type from that.
    cast: bool,
}

impl Visitor for Names {
    type Break = SqlError;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        let cast = std::mem::replace(&mut self.cast, matches!(expr, Expr::Cast { .. }));
        self.cast |= cast && matches!(expr, Expr::Nested(_));
        if matches!(expr, Expr::Array(array) if array.elem.iter().any(is_empty)) {
            return ControlFlow::Break(unsupported("an array of arrays without elements"));
        }
        if matches!(expr, Expr::Array(array) if array.elem.is_empty() && array.named && !cast) {
            let error = invalid("42P18", "cannot determine type of empty array");
            return ControlFlow::Break(error.with_hint("cast it, as in ARRAY[]::integer[]"));
        }
        if self.has_columns && matches!(sequences::taken_from(expr), Ok(Some(_))) {
            return ControlFlow::Continue(());
        }
        match check(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<SqlError> {
        match check_set(&query.body) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn pre_visit_select(&mut self, select: &ast::Select) -> ControlFlow<SqlError> {
        match check_select(select) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<SqlError> {
        let name = match factor {
            TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => name,
            TableFactor::Derived { lateral: true, subquery, .. } if !is_plain(subquery) => {
                let error = unsupported("LATERAL with an aggregate, a limit or an order");
                return ControlFlow::Break(error);
            }
            TableFactor::TableFunction { .. } => return ControlFlow::Break(unsupported("TABLE (…) in FROM")),
            _ => return ControlFlow::Continue(()),
        };
        match plain(name) {
            Some(name) if IN_FROM.contains(&name.as_str()) => match check_in_from(factor) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            },
            Some(name) if table::has(&name) => {
                ControlFlow::Break(unsupported(&format!("function {name} in FROM")))
            }
            _ => ControlFlow::Break(missing(name)),
        }
    }
}

fn is_empty(expr: &Expr) -> bool {
    matches!(expr, Expr::Array(array) if array.elem.is_empty())
}

/// What DataFusion would plan without, or without a word about it.
fn check_in_from(factor: &TableFactor) -> Result<(), SqlError> {
    match factor {
        TableFactor::Table { with_ordinality: true, .. }
        | TableFactor::Function { with_ordinality: true, .. } => Err(unsupported("WITH ORDINALITY")),
        _ => Ok(()),
    }
}

/// DataFusion's `EXCEPT ALL` and `INTERSECT ALL` do not count rows.
fn check_set(body: &SetExpr) -> Result<(), SqlError> {
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else { return Ok(()) };
    if *op != SetOperator::Union && *set_quantifier == SetQuantifier::All {
        return Err(unsupported(&format!("{op} ALL")));
    }
    check_set(left)?;
    check_set(right)
}

/// Clauses of other databases. A text in quotes is no name: two texts beside each other are an error.
fn check_select(select: &ast::Select) -> Result<(), SqlError> {
    if select.qualify.is_some() {
        return Err(unsupported("QUALIFY"));
    }
    if matches!(select.group_by, ast::GroupByExpr::All(_)) {
        return Err(unsupported("GROUP BY ALL"));
    }
    let quoted = |item: &&ast::SelectItem| matches!(item, ast::SelectItem::ExprWithAlias { alias, .. } if alias.quote_style == Some('\''));
    match select.projection.iter().find(quoted) {
        Some(ast::SelectItem::ExprWithAlias { alias, .. }) => {
            Err(crate::syntax::syntax_error(format!("syntax error at or near \"'{}'\"", alias.value)))
        }
        _ => Ok(()),
    }
}

fn check(expr: &Expr) -> Result<(), SqlError> {
    match expr {
        Expr::Function(function) => check_function(function),
        Expr::Cast { kind: CastKind::TryCast | CastKind::SafeCast, .. } => Err(unsupported("TRY_CAST")),
        // Blanks at the end count or not, as the type of what they meet says: text has no such rules.
        Expr::Cast { data_type: ast::DataType::Char(_) | ast::DataType::Character(_), .. } => {
            Err(unsupported("a cast to character").with_hint("use text or varchar"))
        }
        Expr::AtTimeZone { .. } => Err(unsupported("AT TIME ZONE")),
        Expr::Cast { data_type, .. } => check_cast(data_type),
        Expr::TypedString(typed) => check_cast(&typed.data_type),
        Expr::Interval(interval) if !is_plain_interval(interval) => {
            Err(unsupported("an interval with fields")
                .with_hint("write the units in the text: interval '1 day'"))
        }
        Expr::AnyOp { compare_op, right, .. }
            if matches!(right.as_ref(), Expr::Subquery(_)) && *compare_op != BinaryOperator::Eq =>
        {
            Err(unsupported("ANY of a subquery, but for = ANY,"))
        }
        Expr::AllOp { compare_op, right, .. }
            if matches!(right.as_ref(), Expr::Subquery(_)) && *compare_op != BinaryOperator::NotEq =>
        {
            Err(unsupported("ALL of a subquery, but for <> ALL,"))
        }
        Expr::Substring { substring_from: None, substring_for: None, .. } => {
            Err(invalid("42883", "function substring does not exist for one argument"))
        }
        Expr::BinaryOp { op: BinaryOperator::Spaceship, .. } => Err(unsupported("operator <=>")),
        Expr::RLike { .. } => Err(unsupported("RLIKE")),
        Expr::Dictionary(_) | Expr::Map(_) | Expr::Struct { .. } => Err(unsupported("a structure in braces")),
        Expr::Array(ast::Array { named: false, .. }) => Err(unsupported("an array without the word ARRAY")),
        Expr::Lambda(_) => Err(unsupported("a lambda")),
        _ => Ok(()),
    }
}

/// Types that are cast to, though no column has them, or that say more than columns know.
fn check_cast(data_type: &DataType) -> Result<(), SqlError> {
    match data_type {
        DataType::Timestamp(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => {
            Err(unsupported("a cast to timestamp with time zone")
                .with_hint("cast to timestamp, which is in UTC"))
        }
        DataType::Timestamp(Some(0..=5), _) => {
            Err(unsupported("a cast to timestamp of fewer digits than six").with_hint("use date_trunc"))
        }
        DataType::Time(..) => Err(unsupported("type time")),
        DataType::Interval { fields: None, precision: None } => Ok(()),
        DataType::Interval { .. } => Err(unsupported("an interval with fields or digits")),
        _ => Ok(()),
    }
}

/// Whether an interval is a text alone, or a whole number and its unit.
fn is_plain_interval(interval: &ast::Interval) -> bool {
    let Expr::Value(value) = interval.value.as_ref() else { return false };
    let ast::Value::SingleQuotedString(text) = &value.value else { return false };
    let whole = || text.trim().parse::<i32>().is_ok();
    let precise = interval.leading_precision.is_some() || interval.fractional_seconds_precision.is_some();
    interval.last_field.is_none() && !precise && (interval.leading_field.is_none() || whole())
}

/// Whether a subquery is a `SELECT` of rows as they come: DataFusion loses the outer row of what has none, or does not
/// find it.
fn is_plain(query: &ast::Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let grouped = !matches!(&select.group_by, ast::GroupByExpr::Expressions(keys, _) if keys.is_empty());
    let aggregates = ast::visit_expressions(&select.projection, |expr| match expr {
        Expr::Function(function) if plain(&function.name).is_some_and(|name| table::is_aggregate(&name)) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    let limited = query.limit_clause.is_some() || query.fetch.is_some() || query.order_by.is_some();
    !grouped && aggregates.is_continue() && !limited && select.distinct.is_none() && query.with.is_none()
}

fn check_function(function: &Function) -> Result<(), SqlError> {
    if function.over.is_some() {
        let distinct = matches!(
            &function.args,
            FunctionArguments::List(list) if list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct)
        );
        match plain(&function.name) {
            _ if distinct => return Err(unsupported("DISTINCT in a window function")),
            Some(name) if table::has(&name) && !table::is_aggregate(&name) => {
                let message =
                    format!("OVER specified, but {name} is not a window function nor an aggregate function");
                return Err(invalid("42809", message));
            }
            _ => {}
        }
    }
    if function.null_treatment.is_some() {
        return Err(unsupported("IGNORE NULLS and RESPECT NULLS"));
    }
    match plain(&function.name) {
        // `ARRAY(SELECT …)` reads as a function.
        Some(name) if name == "json_object_keys" => {
            Err(unsupported("json_object_keys").with_hint("json_get_keys gives the names as an array"))
        }
        Some(name) if name == "array" && matches!(function.args, FunctionArguments::Subquery(_)) => Ok(()),
        Some(name) if table::has(&name) => check_form(&name, function),
        _ => Err(missing(&function.name)),
    }
}

/// What is asked of some functions beyond their arguments.
fn check_form(name: &str, function: &Function) -> Result<(), SqlError> {
    let none = matches!(&function.args, FunctionArguments::List(list) if list.args.is_empty());
    match name {
        "first_value" | "last_value" | "nth_value" if function.over.is_none() => {
            Err(invalid("42809", format!("window function {name} requires an OVER clause")))
        }
        "percentile_cont" if function.within_group.is_empty() => {
            Err(invalid("42809", "WITHIN GROUP is required for ordered-set aggregate percentile_cont"))
        }
        "count" if none => {
            let message = "count(*) must be used to call a parameterless aggregate function";
            Err(invalid("42809", message))
        }
        "array_cat" if !matches!(&function.args, FunctionArguments::List(list) if list.args.len() == 2) => {
            Err(missing(&function.name))
        }
        "generate_series" => {
            Err(unsupported("generate_series in a select list").with_hint("it can stand in FROM"))
        }
        _ => Ok(()),
    }
}

/// The name of a function that stands alone or in `pg_catalog`, in lower case unless quoted.
fn plain(name: &ObjectName) -> Option<String> {
    let parts: Vec<String> =
        name.0.iter().filter_map(ObjectNamePart::as_ident).map(crate::syntax::fold).collect();
    match parts.as_slice() {
        [name] => Some(name.clone()),
        [schema, name] if schema == "pg_catalog" => Some(name.clone()),
        _ => None,
    }
}

fn missing(name: &ObjectName) -> SqlError {
    let shown = plain(name).unwrap_or_else(|| name.to_string());
    if sequences::is_function(&shown) {
        return unsupported(&format!("{shown} as part of another statement")).with_hint(
            "SELECT it by itself; nextval may also be the value of a column in VALUES, or its default",
        );
    }
    if advisory::is_function(&shown) {
        return unsupported(&format!("{shown} as part of another statement"))
            .with_hint("SELECT it by itself, of numbers or parameters");
    }
    invalid("42883", format!("function {shown} does not exist"))
        .with_hint("information_schema.routines lists the functions that there are")
}
