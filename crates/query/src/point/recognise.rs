//! Finds out whether a statement is a look-up by primary key, from its syntax tree alone.
//!
//! What is recognised: `SELECT columns FROM table WHERE …`, where the condition names every key column once, joined
//! by `AND`, each as `column = value` or (one of them) `column IN (values)`, and a value is a literal or a parameter.
//! Everything else is left to the planner, which answers the same.

use crate::catalog::{database_name, find_table};
use crate::syntax::fold;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement, TableFactor, TableWithJoins, UnaryOperator,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use oribi_engine::{Catalog, Table};
use oribi_session::sql::SqlSession;
use oribi_types::{ColumnType, Schema, Value, text};
use std::sync::{Arc, LazyLock};

/// A look-up by primary key.
pub(super) struct KeyLookup {
    pub(super) table: Arc<Table>,
    pub(super) schema: Arc<Schema>,
    /// Positions of the result's columns in the schema, and their names.
    pub(super) projection: Vec<(usize, String)>,
    /// For each key column, in key order, the values it may have.
    pub(super) key: Vec<Vec<Operand>>,
    /// Types of the parameters.
    pub(super) parameters: Vec<ColumnType>,
}

/// A value that a key column is compared with.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operand {
    /// Of the column's type.
    Constant(Value),
    /// The parameter at this position, counted from 0.
    Parameter(usize),
}

/// The plainest query: all clauses that a recognised one may not have are absent here.
static PLAIN: LazyLock<Query> = LazyLock::new(|| {
    let statements = Parser::parse_sql(&PostgreSqlDialect {}, "SELECT 1").expect("it is SQL");
    match statements.into_iter().next() {
        Some(Statement::Query(query)) => *query,
        _ => unreachable!("it is a query"),
    }
});

/// The look-up by primary key that `statement` is. `given` are the types of parameters that the client
/// named.
pub(super) fn recognise(
    catalog: &Catalog,
    session: &SqlSession,
    statement: &Statement,
    given: &[Option<ColumnType>],
) -> Option<KeyLookup> {
    let Statement::Query(query) = statement else { return None };
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    if !is_plain(query, select) {
        return None;
    }
    let (name, alias) = only_table(select)?;
    let table = resolve(catalog, session, name)?;
    let schema = table.schema();
    let names = Names { schema: &schema, qualifier: alias.unwrap_or_else(|| table.name().to_owned()) };

    let projection = names.projection(&select.projection)?;
    let mut equalities = Vec::new();
    conjuncts(select.selection.as_ref()?, &mut equalities);
    let mut parameters = given.to_vec();
    let mut key: Vec<Option<Vec<Operand>>> = vec![None; schema.key().len()];
    for expression in equalities {
        let (column, values) = names.comparison(expression)?;
        let component = schema.key().iter().position(|k| *k == column)?;
        let column_type = schema.columns()[column].column_type;
        let operands = values
            .into_iter()
            .map(|value| operand(value, column_type, &mut parameters))
            .collect::<Option<Vec<_>>>()?;
        if key[component].replace(operands).is_some() {
            return None;
        }
    }
    let key = key.into_iter().collect::<Option<Vec<_>>>()?;
    if key.iter().filter(|values| values.len() > 1).count() > 1 {
        return None;
    }
    let parameters = parameters.into_iter().collect::<Option<Vec<_>>>()?;
    Some(KeyLookup { table: Arc::clone(table), schema, projection, key, parameters })
}

/// Whether the query has no clauses but `SELECT`, `FROM` and `WHERE`.
fn is_plain(query: &Query, select: &Select) -> bool {
    let mut stripped = query.clone();
    let SetExpr::Select(plain) = PLAIN.body.as_ref() else { return false };
    let rest = Select {
        projection: plain.projection.clone(),
        from: plain.from.clone(),
        selection: plain.selection.clone(),
        ..select.clone()
    };
    *stripped.body = SetExpr::Select(Box::new(rest));
    stripped == *PLAIN
}

/// The name and alias of the only table.
fn only_table(select: &Select) -> Option<(&ObjectName, Option<String>)> {
    let [TableWithJoins { relation, joins }] = select.from.as_slice() else { return None };
    let TableFactor::Table {
        name,
        alias,
        args: None,
        with_hints,
        version: None,
        with_ordinality: false,
        partitions,
        json_path: None,
        sample: None,
        index_hints,
    } = relation
    else {
        return None;
    };
    if !joins.is_empty() || !with_hints.is_empty() || !partitions.is_empty() || !index_hints.is_empty() {
        return None;
    }
    match alias {
        None => Some((name, None)),
        Some(alias) if alias.columns.is_empty() && alias.at.is_none() => {
            Some((name, Some(fold(&alias.name))))
        }
        Some(_) => None,
    }
}

fn resolve<'c>(catalog: &'c Catalog, session: &SqlSession, name: &ObjectName) -> Option<&'c Arc<Table>> {
    let parts = name
        .0
        .iter()
        .map(|part| match part {
            ObjectNamePart::Identifier(ident) => Some(fold(ident)),
            ObjectNamePart::Function(_) => None,
        })
        .collect::<Option<Vec<_>>>()?;
    match parts.as_slice() {
        [table] => find_table(catalog, session, None, table),
        [schema, table] => find_table(catalog, session, Some(schema), table),
        [database, schema, table] if database == database_name(session) => {
            find_table(catalog, session, Some(schema), table)
        }
        _ => None,
    }
}

/// The operands of `AND`.
fn conjuncts<'e>(expression: &'e Expr, out: &mut Vec<&'e Expr>) {
    match expression {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            conjuncts(left, out);
            conjuncts(right, out);
        }
        Expr::Nested(inner) => conjuncts(inner, out),
        other => out.push(other),
    }
}

/// What column names mean in the statement.
struct Names<'s> {
    schema: &'s Schema,
    /// What columns may be qualified with.
    qualifier: String,
}

impl Names<'_> {
    /// The position of the column that `expression` names.
    fn column(&self, expression: &Expr) -> Option<usize> {
        match expression {
            Expr::Identifier(ident) => self.schema.position(&fold(ident)),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [qualifier, column] if fold(qualifier) == self.qualifier => {
                    self.schema.position(&fold(column))
                }
                _ => None,
            },
            Expr::Nested(inner) => self.column(inner),
            _ => None,
        }
    }

    fn projection(&self, items: &[SelectItem]) -> Option<Vec<(usize, String)>> {
        let mut projection = Vec::new();
        for item in items {
            match item {
                SelectItem::UnnamedExpr(expression) => {
                    let position = self.column(expression)?;
                    projection.push((position, self.schema.columns()[position].name.clone()));
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    projection.push((self.column(expr)?, fold(alias)))
                }
                SelectItem::Wildcard(options) if *options == Default::default() => self.all(&mut projection),
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
                    if *options == Default::default() =>
                {
                    match name.0.as_slice() {
                        [ObjectNamePart::Identifier(ident)] if fold(ident) == self.qualifier => {
                            self.all(&mut projection);
                        }
                        _ => return None,
                    }
                }
                _ => return None,
            }
        }
        Some(projection)
    }

    fn all(&self, projection: &mut Vec<(usize, String)>) {
        projection.extend(self.schema.shown().iter().enumerate().map(|(i, c)| (i, c.name.clone())));
    }

    /// A column and the values it is compared with.
    fn comparison<'e>(&self, expression: &'e Expr) -> Option<(usize, Vec<&'e Expr>)> {
        match expression {
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => match self.column(left) {
                Some(column) => Some((column, vec![right])),
                None => Some((self.column(right)?, vec![left])),
            },
            Expr::InList { expr, list, negated: false } => Some((self.column(expr)?, list.iter().collect())),
            _ => None,
        }
    }
}

/// A literal that is exactly a value of the column's type, or a parameter that converts to it.
fn operand(
    expression: &Expr,
    column_type: ColumnType,
    parameters: &mut Vec<Option<ColumnType>>,
) -> Option<Operand> {
    let (value, negative) = match expression {
        Expr::Value(value) => (&value.value, false),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(value) => (&value.value, true),
            _ => return None,
        },
        Expr::Nested(inner) => return operand(inner, column_type, parameters),
        _ => return None,
    };
    match value {
        ast::Value::Placeholder(name) if !negative => parameter(name, column_type, parameters),
        ast::Value::Number(digits, false) if is_numeric(column_type) => {
            let sign = if negative { "-" } else { "" };
            text::parse_exact(column_type, &format!("{sign}{digits}")).ok().map(Operand::Constant)
        }
        ast::Value::SingleQuotedString(value) if !negative => match column_type {
            // A string literal of bytes has escapes of its own: the planner knows them.
            ColumnType::Binary => None,
            _ => text::parse_exact(column_type, value).ok().map(Operand::Constant),
        },
        ast::Value::Boolean(value) if !negative && column_type == ColumnType::Bool => {
            Some(Operand::Constant(Value::Bool(*value)))
        }
        _ => None,
    }
}

fn parameter(
    name: &str,
    column_type: ColumnType,
    parameters: &mut Vec<Option<ColumnType>>,
) -> Option<Operand> {
    let number: usize = name.strip_prefix('$')?.parse().ok()?;
    let position = number.checked_sub(1).filter(|p| *p < usize::from(u16::MAX))?;
    if parameters.len() <= position {
        parameters.resize(position + 1, None);
    }
    let declared = *parameters[position].get_or_insert(column_type);
    let converts = declared == column_type || (declared.is_integer() && column_type.is_integer());
    converts.then_some(Operand::Parameter(position))
}

fn is_numeric(column_type: ColumnType) -> bool {
    column_type.is_integer() || matches!(column_type, ColumnType::Decimal { .. })
}
