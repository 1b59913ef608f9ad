//! PostgreSQL's syntax that DataFusion does not plan, as syntax that it does.
//!
//! The rules know no query of any client: they rewrite an operator, a type, a function, a kind of subquery, wherever it
//! stands. Those about subqueries touch only the ones that read system tables.

use super::names::{NAMELESS, apart, column_name};
use super::table::{Kind, SystemTable, system_tables};
use crate::functions::{UNARY_PLUS, extracted_scale};
use crate::syntax::fold;
use datafusion::sql::sqlparser::ast::{
    self, ArrayElemTypeDef, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SetExpr, Statement, TableFactor, UnaryOperator, Value, VisitMut, VisitorMut,
};
use std::collections::HashSet;
use std::ops::ControlFlow;

mod array;
mod tuples;

/// Rewrites a statement in place.
pub fn rewrite(statement: &mut Statement) {
    let _ = statement.visit(&mut Rewriter);
}

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if sources(select).any(SystemTable::is_always_empty) {
            // No row is ever made, so it does not matter what its subqueries would give.
            let _ = ast::visit_expressions_mut(&mut select.projection, |expr| {
                if let Some(null) = null_of(expr) {
                    *expr = null;
                }
                ControlFlow::<()>::Continue(())
            });
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(within) = in_subquery(expr) {
            *expr = within;
            return ControlFlow::Continue(());
        }
        // Before its parts are visited: whether a subquery reads system tables is seen from their names.
        let (query, with) = match &*expr {
            Expr::Subquery(query) => (query, "first_value"),
            Expr::Function(Function { name, args: FunctionArguments::Subquery(query), .. })
                if name_of(name) == "array" =>
            {
                (query, "array_agg")
            }
            _ => return ControlFlow::Continue(()),
        };
        let Some(select) = select_of(query) else {
            if with == "array_agg" {
                *expr = array::of_query(query);
            }
            return ControlFlow::Continue(());
        };
        let empty = sources(select).any(SystemTable::is_always_empty) && !counts(select);
        if empty || unnests_nothing(select) {
            *expr = null_of(expr).expect("it is a subquery");
        } else if with == "array_agg" {
            *expr = array::of_query(query);
        } else if sources(select).next().is_some() {
            *expr = aggregate(&mut query.clone(), with, Vec::new());
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(by_parts) = tuples::by_parts(expr) {
            *expr = by_parts;
            return ControlFlow::Continue(());
        }
        match expr {
            Expr::Collate { expr: inner, collation } if is_byte_order(collation) => {
                let inner = std::mem::replace(inner.as_mut(), Expr::Value(Value::Null.into()));
                *expr = inner;
            }
            Expr::BinaryOp { op, left, right } => {
                if let BinaryOperator::PGCustomBinaryOperator(name) = op
                    && let Some(plain) = name.last().and_then(|symbol| operator(symbol))
                {
                    *op = plain;
                }
                if matches!(op, BinaryOperator::Eq | BinaryOperator::NotEq) {
                    array_literal(left, right);
                    array_literal(right, left);
                }
            }
            Expr::Value(value) => {
                if let Value::UnicodeStringLiteral(text) = &mut value.value {
                    value.value = Value::SingleQuotedString(std::mem::take(text));
                }
            }
            Expr::Function(function) => strip_schema(&mut function.name),
            Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, .. } => rewrite_cast(expr),
            Expr::UnaryOp { op: ast::UnaryOperator::Plus, expr: of } if !is_number(of) => {
                *expr = call(UNARY_PLUS, vec![of.as_ref().clone()]);
            }
            Expr::UnaryOp { op: UnaryOperator::Not, expr: of } => as_boolean(of),
            Expr::Extract { field, expr: of, .. } => {
                let field = field.to_string();
                let field = field.trim_matches(['"', '\'']).to_owned();
                let function = match extracted_scale(&field) {
                    0 => "extract_whole",
                    3 => "extract_thousandths",
                    _ => "extract_millionths",
                };
                let field = Expr::Value(Value::SingleQuotedString(field).into());
                *expr = call(function, vec![field, of.as_ref().clone()]);
            }
            Expr::Interval(interval) => {
                if let Some(text) = interval_text(interval) {
                    let text = Box::new(Expr::Value(Value::SingleQuotedString(text).into()));
                    let data_type = DataType::Interval { fields: None, precision: None };
                    *expr = Expr::Cast {
                        kind: CastKind::Cast,
                        expr: text,
                        data_type,
                        array: false,
                        format: None,
                    };
                }
            }
            Expr::Substring {
                expr: text,
                substring_from: Some(pattern),
                substring_for: None,
                shorthand: false,
                ..
            } if matches!(pattern.as_ref(), Expr::Value(value) if matches!(value.value, Value::SingleQuotedString(_))) =>
            {
                *expr = call("substring_by_pattern", vec![text.as_ref().clone(), pattern.as_ref().clone()]);
            }
            Expr::Identifier(ident)
                if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("current_schema") =>
            {
                *expr = call("current_schema", Vec::new());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { name, args: Some(_), alias, .. }
            | TableFactor::Function { name, alias, .. } => {
                strip_schema(name);
                if name_of(name) == "generate_series" {
                    name_column(alias, "generate_series");
                }
            }
            TableFactor::UNNEST { alias, array_exprs, .. } if array_exprs.len() == 1 => {
                name_column(alias, "unnest");
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        select.selection.iter_mut().chain(&mut select.having).for_each(as_boolean);
        name_apart(select);
        ControlFlow::Continue(())
    }
}

/// A text where a condition stands is the boolean that it writes.
fn as_boolean(condition: &mut Expr) {
    if let Expr::Nested(inner) = condition {
        return as_boolean(inner);
    }
    if matches!(condition, Expr::Value(value) if matches!(value.value, Value::SingleQuotedString(_))) {
        let expr = Box::new(std::mem::replace(condition, Expr::Value(Value::Null.into())));
        let data_type = DataType::Boolean;
        *condition = Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None };
    }
}

/// The column of a function in `FROM` is called as the function is, or as its alias.
fn name_column(alias: &mut Option<ast::TableAlias>, function: &str) {
    let alias = alias.get_or_insert_with(|| ast::TableAlias {
        explicit: true,
        name: Ident::new(function),
        columns: Vec::new(),
        at: None,
    });
    if alias.columns.is_empty() {
        alias.columns.push(ast::TableAliasColumnDef { name: alias.name.clone(), data_type: None });
    }
}

fn is_number(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, Value::Number(..)))
}

/// The text of an interval, with the unit that stands behind it.
fn interval_text(interval: &ast::Interval) -> Option<String> {
    let Expr::Value(value) = interval.value.as_ref() else { return None };
    let Value::SingleQuotedString(text) = &value.value else { return None };
    Some(match &interval.leading_field {
        Some(unit) => format!("{text} {unit}"),
        None => text.clone(),
    })
}

/// `= ANY (SELECT …)` is `IN`, `<> ALL (SELECT …)` is `NOT IN`; more parentheses around the subquery mean nothing.
fn in_subquery(expr: &mut Expr) -> Option<Expr> {
    let (left, right, negated) = match expr {
        Expr::InList { expr, list, negated } if list.len() == 1 => (expr, &mut list[0], *negated),
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => (left, right.as_mut(), false),
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => (left, right.as_mut(), true),
        _ => return None,
    };
    let Expr::Subquery(query) = right else { return None };
    Some(Expr::InSubquery { expr: left.clone(), subquery: query.clone(), negated })
}

/// The last part of a name, in lower case.
fn name_of(name: &ObjectName) -> String {
    name.0.last().and_then(ObjectNamePart::as_ident).map(|i| i.value.to_ascii_lowercase()).unwrap_or_default()
}

/// `pg_catalog.f` is `f`.
fn strip_schema(name: &mut ObjectName) {
    let is_catalog =
        |part: &ObjectNamePart| part.as_ident().is_some_and(|i| i.value.eq_ignore_ascii_case("pg_catalog"));
    if name.0.len() == 2 && is_catalog(&name.0[0]) {
        name.0.remove(0);
    }
}

/// Text is compared by its bytes, which is what these collations do or, for the default, may do.
fn is_byte_order(collation: &ObjectName) -> bool {
    matches!(name_of(collation).as_str(), "default" | "c" | "posix" | "ucs_basic")
}

fn operator(symbol: &str) -> Option<BinaryOperator> {
    Some(match symbol {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "||" => BinaryOperator::StringConcat,
        _ => return None,
    })
}

/// `'{1,2}'` beside a system column that is an array of numbers is one.
fn array_literal(expr: &mut Expr, beside: &Expr) {
    let column = match beside {
        Expr::Identifier(name) => name,
        Expr::CompoundIdentifier(parts) => &parts[parts.len() - 1],
        _ => return,
    };
    let kinds = [(Kind::OidArray, DataType::BigInt(None)), (Kind::Int2Array, DataType::SmallInt(None))];
    let Some((_, element)) =
        kinds.into_iter().find(|(array, _)| is_column(&column.value, |kind| kind == *array))
    else {
        return;
    };
    let Expr::Value(value) = &*expr else { return };
    let Value::SingleQuotedString(text) = &value.value else { return };
    let Some(items) = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')) else { return };
    let items: Option<Vec<Expr>> = items
        .split(',')
        .map(|item| {
            let number: i64 = item.trim().parse().ok()?;
            Some(Expr::Value(Value::Number(number.to_string(), false).into()))
        })
        .collect();
    if let Some(elem) = items {
        *expr = Expr::Cast {
            kind: CastKind::DoubleColon,
            expr: Box::new(Expr::Array(ast::Array { elem, named: true })),
            data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(element), None)),
            array: false,
            format: None,
        };
    }
}

/// Casts to types that only PostgreSQL names, and to texts of a length: that many characters are left of them.
fn rewrite_cast(cast: &mut Expr) {
    let Expr::Cast { expr, data_type, .. } = cast else { return };
    if let Some(length) = varchar_length(data_type) {
        *data_type = DataType::Text;
        let text = std::mem::replace(cast, Expr::Value(Value::Null.into()));
        let length = Expr::Value(Value::Number(length.to_string(), false).into());
        *cast = call("left", vec![text, length]);
        return;
    }
    if let Some(function) = reg_function(data_type) {
        let inner = std::mem::replace(expr.as_mut(), Expr::Value(Value::Null.into()));
        *cast = call(function, vec![inner]);
    } else if let Some(plain) = plain_type(data_type) {
        *data_type = plain;
    }
}

fn varchar_length(data_type: &DataType) -> Option<u64> {
    let (DataType::Varchar(length) | DataType::CharacterVarying(length) | DataType::CharVarying(length)) =
        data_type
    else {
        return None;
    };
    match length {
        Some(ast::CharacterLength::IntegerLength { length, .. }) => Some(*length),
        _ => None,
    }
}

fn reg_function(data_type: &DataType) -> Option<&'static str> {
    let name = match data_type {
        DataType::Regclass => return Some("regclass"),
        DataType::Custom(name, _) => name_of(name),
        _ => return None,
    };
    ["regclass", "regtype", "regnamespace", "regrole", "regproc"]
        .into_iter()
        .find(|f| *f == name)
        .or((name == "regprocedure").then_some("regproc"))
}

/// `pg_catalog.text` and the like.
fn plain_type(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Custom(name, arguments) if arguments.is_empty() => match name_of(name).as_str() {
            "text" | "name" | "char" | "varchar" | "bpchar" | "cstring" => DataType::Text,
            "oid" | "int8" | "xid" => DataType::BigInt(None),
            "int4" => DataType::Integer(None),
            "int2" => DataType::SmallInt(None),
            "bool" => DataType::Boolean,
            "float4" => DataType::Real,
            "float8" => DataType::DoublePrecision,
            _ => return None,
        },
        DataType::Array(ast::ArrayElemTypeDef::SquareBracket(item, n)) => {
            let item = plain_type(item)?;
            DataType::Array(ast::ArrayElemTypeDef::SquareBracket(Box::new(item), *n))
        }
        _ => return None,
    })
}

pub(crate) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let argument = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: ObjectName::from(Ident::new(name)),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.into_iter().map(argument).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// The system table that a name means: in its schema, or by a name that begins as theirs do.
fn system_table(name: &ObjectName) -> Option<&'static SystemTable> {
    let parts: Vec<String> =
        name.0.iter().filter_map(ObjectNamePart::as_ident).map(|i| i.value.to_ascii_lowercase()).collect();
    let (schema, table) = match parts.as_slice() {
        [table] => ("pg_catalog", table),
        [.., schema, table] => (schema.as_str(), table),
        [] => return None,
    };
    system_tables().iter().find(|t| t.schema == schema && t.name == table)
}

/// The tables that every row of a `FROM` item is made of: outer joins add none.
fn tables(from: &ast::TableWithJoins) -> impl Iterator<Item = &ObjectName> {
    let inner = |join: &&ast::Join| {
        matches!(
            join.join_operator,
            ast::JoinOperator::Join(_) | ast::JoinOperator::Inner(_) | ast::JoinOperator::CrossJoin(_)
        )
    };
    let joined = from.joins.iter().filter(inner).map(|join| &join.relation);
    std::iter::once(&from.relation).chain(joined).filter_map(|factor| match factor {
        TableFactor::Table { name, args: None, .. } => Some(name),
        _ => None,
    })
}

fn select_of(query: &Query) -> Option<&Select> {
    match query.body.as_ref() {
        SetExpr::Select(select) => Some(select),
        _ => None,
    }
}

/// The system tables that every row of a `SELECT` is made of.
fn sources(select: &Select) -> impl Iterator<Item = &'static SystemTable> {
    select.from.iter().flat_map(tables).filter_map(system_table)
}

/// What a subquery without rows is worth.
fn null_of(expr: &Expr) -> Option<Expr> {
    let null = Expr::Value(Value::Null.into());
    match expr {
        Expr::Subquery(_) => Some(null),
        Expr::Function(f) if matches!(f.args, FunctionArguments::Subquery(_)) => {
            let item = Box::new(DataType::Text);
            Some(Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(null),
                data_type: DataType::Array(ast::ArrayElemTypeDef::SquareBracket(item, None)),
                array: false,
                format: None,
            })
        }
        _ => None,
    }
}

/// Whether a `SELECT` gives a row although it reads none.
fn counts(select: &Select) -> bool {
    select.projection.iter().any(|item| item.to_string().to_lowercase().contains("count("))
}

/// Whether some system table has a column of the name and of such a kind.
fn is_column(name: &str, such: impl Fn(Kind) -> bool) -> bool {
    system_tables().iter().flat_map(|t| &t.columns).any(|c| c.name == name && such(c.kind))
}

/// Whether a `SELECT` reads the items of a text array in a system table: those are all null.
fn unnests_nothing(select: &Select) -> bool {
    select.from.iter().any(|from| match &from.relation {
        TableFactor::Table { name, args: Some(args), .. } if name_of(name) == "unnest" => {
            matches!(args.args.as_slice(), [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::CompoundIdentifier(column)))]
                if column.last().is_some_and(|c| is_column(&c.value, |kind| kind == Kind::TextArray)))
        }
        _ => false,
    })
}

/// DataFusion plans a correlated subquery only if it is an aggregate, and if each condition names its own tables.
/// What gives one row at most may as well be an aggregate; a condition on outer columns alone may as well stand around
/// it.
fn aggregate(query: &mut Query, with: &str, order: Vec<ast::OrderByExpr>) -> Expr {
    let unchanged = Expr::Subquery(Box::new(query.clone()));
    let limited = query.limit_clause.is_some();
    let SetExpr::Select(select) = query.body.as_mut() else { return unchanged };
    let outer = take_outer_conditions(select);
    let grouped = !matches!(&select.group_by, ast::GroupByExpr::Expressions(keys, _) if keys.is_empty());
    let [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] =
        select.projection.as_mut_slice()
    else {
        return unchanged;
    };
    if grouped || is_aggregate(expr) || select.distinct.is_some() || limited {
        return unchanged;
    }
    let inner = std::mem::replace(expr, Expr::Value(Value::Null.into()));
    *expr = call(with, vec![inner]);
    if let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = expr
        && !order.is_empty()
    {
        list.clauses.push(ast::FunctionArgumentClause::OrderBy(order));
    }
    query.order_by = None;
    let subquery = Expr::Subquery(Box::new(query.clone()));
    match outer {
        None => subquery,
        Some(condition) => Expr::Case {
            case_token: ast::helpers::attached_token::AttachedToken::empty(),
            end_token: ast::helpers::attached_token::AttachedToken::empty(),
            operand: None,
            conditions: vec![ast::CaseWhen { condition, result: subquery }],
            else_result: None,
        },
    }
}

/// Whether an expression is a call of an aggregate.
fn is_aggregate(expr: &Expr) -> bool {
    const AGGREGATES: [&str; 9] =
        ["count", "min", "max", "sum", "avg", "string_agg", "array_agg", "bool_or", "first_value"];
    matches!(expr, Expr::Function(f) if AGGREGATES.contains(&name_of(&f.name).as_str()))
}

/// Takes the conditions that name none of the `SELECT`'s own tables out of its `WHERE`.
fn take_outer_conditions(select: &mut Select) -> Option<Expr> {
    let own: HashSet<String> = select.from.iter().flat_map(own_names).collect();
    let mut conditions = Vec::new();
    split_and(select.selection.take()?, &mut conditions);
    let (outer, inner): (Vec<_>, Vec<_>) =
        conditions.into_iter().partition(|condition| is_outer(condition, &own));
    let and = |left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    };
    select.selection = inner.into_iter().reduce(and);
    outer.into_iter().reduce(and)
}

fn split_and(expr: Expr, out: &mut Vec<Expr>) {
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            split_and(*left, out);
            split_and(*right, out);
        }
        other => out.push(other),
    }
}

/// The names by which a `FROM` item's columns are called.
fn own_names(from: &ast::TableWithJoins) -> Vec<String> {
    let factors = std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation));
    let name = |factor: &TableFactor| match factor {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            Some(alias.name.value.to_ascii_lowercase())
        }
        TableFactor::Table { name, .. } => Some(name_of(name)),
        _ => None,
    };
    factors.filter_map(name).collect()
}

/// Whether an expression has columns, all of them qualified by names that are not `own`.
fn is_outer(expr: &Expr, own: &HashSet<String>) -> bool {
    let (mut columns, mut foreign) = (0, true);
    let _ = ast::visit_expressions(expr, |part| {
        match part {
            Expr::CompoundIdentifier(parts) => {
                columns += 1;
                foreign &= !own.contains(&parts[0].value.to_ascii_lowercase());
            }
            Expr::Identifier(_) | Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                foreign = false
            }
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
    columns > 0 && foreign
}

/// Names columns that would be called as an earlier one: `select 1, 1` is no error. Of columns that were given one name
/// nobody can tell which is meant, so none has it.
fn name_apart(select: &mut Select) {
    let mut seen = HashSet::new();
    let given = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
        _ => None,
    };
    let names: Vec<String> = select.projection.iter().filter_map(given).collect();
    for (i, item) in select.projection.iter_mut().enumerate() {
        if let SelectItem::ExprWithAlias { alias, .. } = item {
            let name = fold(alias);
            if names.iter().filter(|other| **other == name).count() > 1 {
                *alias = Ident::with_quote('"', apart(&name, i + 1));
            }
        }
    }
    // A wildcard may stand for a column of any name.
    let wild =
        |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    let wild = select.projection.iter().any(wild);
    for (i, item) in select.projection.iter_mut().enumerate() {
        let names = match &*item {
            SelectItem::UnnamedExpr(expr) => [Some(planned_name(expr)), function_name(expr)],
            SelectItem::ExprWithAlias { alias, .. } => [Some(alias.value.clone()), None],
            _ => continue,
        };
        let taken = names.into_iter().flatten().filter(|name| !seen.insert(name.clone())).count() > 0;
        if (taken || wild)
            && let SelectItem::UnnamedExpr(expr) = item
        {
            let alias = Ident::with_quote('"', apart(&column_name(expr), i + 1));
            let expr = std::mem::replace(expr, Expr::Value(Value::Null.into()));
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    }
}

/// What is planned for `1 + 1` and `2`, or for `round` of two types, may have one name: that of the function it becomes.
fn function_name(expr: &Expr) -> Option<String> {
    Some(match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => return None,
        // It is called as the column that it selects.
        Expr::Subquery(_) => column_name(expr),
        Expr::UnaryOp { op: UnaryOperator::PGAbs, .. } => "abs()".to_owned(),
        Expr::UnaryOp { op: UnaryOperator::PGSquareRoot, .. } => "sqrt()".to_owned(),
        Expr::UnaryOp { op: UnaryOperator::PGCubeRoot, .. } => "cbrt()".to_owned(),
        computed => match column_name(computed).as_str() {
            "mod" | "pow" | "power" => format!("{NAMELESS}()"),
            name => format!("{name}()"),
        },
    })
}

/// What tells DataFusion columns apart: a cast keeps the name. That two are taken for one only costs an alias.
fn planned_name(expr: &Expr) -> String {
    let mut expr = expr.clone();
    let _ = ast::visit_expressions_mut(&mut expr, |part| {
        while let Expr::Cast { expr: inner, .. } | Expr::Nested(inner) = part {
            *part = inner.as_ref().clone();
        }
        if let Expr::TypedString(typed) = part {
            *part = Expr::Value(typed.value.clone());
        }
        ControlFlow::<()>::Continue(())
    });
    expr.to_string().to_lowercase()
}
