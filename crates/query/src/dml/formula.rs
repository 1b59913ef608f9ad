//! Arithmetic on integers, computed where a row is written: `n = n + $1`, `hits = t.hits + excluded.hits`.
//!
//! A number that it yields is the exact one and fits every type on the way, so that it is what PostgreSQL's operators yield,
//! whichever of the integer types these are of. Where a number does not fit, it yields nothing: whoever plans the expression knows
//! whether that is an error, and which.

use super::constant::parameter_number;
use super::types::column_type;
use crate::syntax::fold;
use datafusion::sql::sqlparser::ast::{self, BinaryOperator, CastKind, Expr, UnaryOperator};
use oribi_types::{ColumnSource, ColumnType, RowRef, Schema, ValueRef};

/// An expression over a row, parameters and what an `INSERT` proposes.
pub(super) struct Formula {
    node: Node,
    /// Of the integers.
    column_type: ColumnType,
}

enum Node {
    /// The column at a position, and its slot in the row.
    Column(usize, u16),
    /// What is proposed for the column at a position.
    Excluded(usize),
    Number(i64),
    Parameter(usize),
    Negative(Box<Formula>),
    Cast(Box<Formula>),
    Pair(Operator, Box<Formula>, Box<Formula>),
}

#[derive(Clone, Copy)]
enum Operator {
    Plus,
    Minus,
    Times,
}

/// What the names in a formula mean.
pub(super) struct Names<'s> {
    pub(super) schema: &'s Schema,
    /// What the row that is there is called; `None` if there is none.
    pub(super) alias: Option<&'s str>,
    /// Whether `excluded` is what is proposed: then a column without the name of either is of neither.
    pub(super) proposes: bool,
}

/// What a formula is computed from.
#[derive(Clone, Copy)]
pub(super) struct From<'v> {
    pub(super) schema: &'v Schema,
    pub(super) row: Option<RowRef<'v>>,
    pub(super) proposed: &'v [ValueRef<'v>],
    pub(super) values: &'v [oribi_types::Value],
}

impl Formula {
    /// `None` if the expression is another. `parameters` are the types of the statement's.
    pub(super) fn compile(expr: &Expr, names: &Names<'_>, parameters: &[ColumnType]) -> Option<Self> {
        let compile = |expr: &Expr| Formula::compile(expr, names, parameters);
        let formula = match expr {
            Expr::Nested(inner) => return compile(inner),
            Expr::Identifier(name) if !names.proposes => names.column(None, &fold(name))?,
            Expr::CompoundIdentifier(parts) => {
                let [relation, name] = parts.as_slice() else { return None };
                names.column(Some(&fold(relation)), &fold(name))?
            }
            Expr::Value(value) => literal(&value.value, parameters)?,
            Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, .. } => {
                let node = Node::Cast(Box::new(compile(expr)?));
                Formula { node, column_type: column_type(data_type).ok()? }
            }
            Expr::UnaryOp { op: UnaryOperator::Plus, expr } => return compile(expr),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
                let inner = compile(expr)?;
                Formula { column_type: inner.column_type, node: Node::Negative(Box::new(inner)) }
            }
            Expr::BinaryOp { left, op, right } => {
                let operator = match op {
                    BinaryOperator::Plus => Operator::Plus,
                    BinaryOperator::Minus => Operator::Minus,
                    BinaryOperator::Multiply => Operator::Times,
                    _ => return None,
                };
                let (left, right) = (compile(left)?, compile(right)?);
                let wider = match left.column_type.fixed_width() >= right.column_type.fixed_width() {
                    true => left.column_type,
                    false => right.column_type,
                };
                Formula { node: Node::Pair(operator, Box::new(left), Box::new(right)), column_type: wider }
            }
            _ => return None,
        };
        formula.column_type.is_integer().then_some(formula)
    }

    /// The number as one of `column_type`, or null; `None` if it does not fit somewhere on the way.
    pub(super) fn value<'v>(&self, from: From<'v>, column_type: ColumnType) -> Option<ValueRef<'v>> {
        Some(match self.number(from)? {
            None => ValueRef::Null,
            Some(number) => match column_type {
                ColumnType::Int8 => ValueRef::Int8(number.try_into().ok()?),
                ColumnType::Int16 => ValueRef::Int16(number.try_into().ok()?),
                ColumnType::Int32 => ValueRef::Int32(number.try_into().ok()?),
                ColumnType::Int64 => ValueRef::Int64(number),
                _ => return None,
            },
        })
    }

    fn number(&self, from: From<'_>) -> Option<Option<i64>> {
        let number = match &self.node {
            Node::Number(number) => Some(*number),
            Node::Column(position, slot) => {
                integer(from.schema.value_in(&from.schema.columns()[*position], *slot, from.row?))?
            }
            Node::Excluded(position) => integer(*from.proposed.get(*position)?)?,
            Node::Parameter(n) => {
                let value = from.values.get(*n)?.as_ref();
                let is_declared = value.is_null() || value.fits(self.column_type);
                is_declared.then(|| integer(value)).flatten()?
            }
            Node::Cast(inner) => inner.number(from)?,
            Node::Negative(inner) => match inner.number(from)? {
                Some(number) => Some(number.checked_neg()?),
                None => None,
            },
            Node::Pair(operator, left, right) => match (left.number(from)?, right.number(from)?) {
                (Some(left), Some(right)) => Some(match operator {
                    Operator::Plus => left.checked_add(right)?,
                    Operator::Minus => left.checked_sub(right)?,
                    Operator::Times => left.checked_mul(right)?,
                }),
                _ => None,
            },
        };
        number.is_none_or(|number| fits(number, self.column_type)).then_some(number)
    }
}

impl Names<'_> {
    fn column(&self, relation: Option<&str>, name: &str) -> Option<Formula> {
        let position = self.schema.position(name)?;
        let column = &self.schema.columns()[position];
        let node = if self.proposes && relation == Some("excluded") {
            Node::Excluded(position)
        } else {
            let ColumnSource::Slot(slot) = column.source else { return None };
            let alias = self.alias?;
            relation.is_none_or(|relation| relation == alias).then_some(Node::Column(position, slot))?
        };
        Some(Formula { node, column_type: column.column_type })
    }
}

fn literal(value: &ast::Value, parameters: &[ColumnType]) -> Option<Formula> {
    match value {
        ast::Value::Number(digits, false) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            let number = digits.parse::<i64>().ok()?;
            let column_type = match i32::try_from(number) {
                Ok(_) => ColumnType::Int32,
                Err(_) => ColumnType::Int64,
            };
            Some(Formula { node: Node::Number(number), column_type })
        }
        ast::Value::Placeholder(name) => {
            let n = parameter_number(name).ok()?;
            Some(Formula { node: Node::Parameter(n), column_type: *parameters.get(n)? })
        }
        _ => None,
    }
}

/// The integer that a value is, if it is not null; `None` for one of another type.
fn integer(value: ValueRef<'_>) -> Option<Option<i64>> {
    Some(Some(match value {
        ValueRef::Null => return Some(None),
        ValueRef::Int8(number) => number.into(),
        ValueRef::Int16(number) => number.into(),
        ValueRef::Int32(number) => number.into(),
        ValueRef::Int64(number) => number,
        _ => return None,
    }))
}

fn fits(number: i64, column_type: ColumnType) -> bool {
    match column_type {
        ColumnType::Int8 => i8::try_from(number).is_ok(),
        ColumnType::Int16 => i16::try_from(number).is_ok(),
        ColumnType::Int32 => i32::try_from(number).is_ok(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax;
    use oribi_types::Value;
    use oribi_types::schema::ColumnSpec;

    fn computed(expression: &str, values: &[Value]) -> Option<ValueRef<'static>> {
        let parsed = syntax::parse(&format!("select {expression}")).unwrap().statement;
        let ast::Statement::Query(query) = parsed else { panic!("a query") };
        let ast::SetExpr::Select(select) = query.body.as_ref() else { panic!("a select") };
        let (ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. }) =
            &select.projection[0]
        else {
            panic!("an expression")
        };
        let key = ColumnSpec::new("id", ColumnType::Int64).not_null();
        let schema = Schema::new(vec![key], &["id"]).unwrap();
        let names = Names { schema: &schema, alias: None, proposes: false };
        let formula = Formula::compile(expr, &names, &[ColumnType::Int32, ColumnType::Int64])?;
        let from = From { schema: &schema, row: None, proposed: &[], values };
        let number = formula.number(from)?;
        Some(number.map_or(ValueRef::Null, ValueRef::Int64))
    }

    #[test]
    fn what_it_yields_is_exact_and_fits_every_type_on_the_way() {
        let values = [Value::Int32(7), Value::Int64(1 << 40)];
        for (expression, expected) in [
            ("1 + 2 * 3", Some(7)),
            ("-(1 - $1)", Some(6)),
            ("$2 + $1", Some((1 << 40) + 7)),
            ("$1::bigint * 1000000000", Some(7_000_000_000)),
            ("$1 * 1000000000", None),
            ("2147483647 + 1", None),
            ("2147483648 + 1", Some(2_147_483_649)),
            ("9223372036854775807 + 1", None),
            ("-9223372036854775807 - 2", None),
            ("$2::int", None),
            ("($1 + 2147483647)::bigint", None),
            ("7 / 2", None),
            ("1.5 + 1", None),
            ("n + 1", None),
            ("'1' + 1", None),
        ] {
            assert_eq!(computed(expression, &values), expected.map(ValueRef::Int64), "{expression}");
        }
        assert_eq!(computed("$1 + 1", &[Value::Null, Value::Null]), Some(ValueRef::Null));
    }
}
