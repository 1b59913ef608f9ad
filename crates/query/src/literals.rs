//! Types and literals in queries, read as PostgreSQL and our columns read them.
//!
//! In `key = '\x00ff'` and `id = '9f2c…'` the literal is untyped: it takes the type of the other side. DataFusion would
//! take the text's own bytes, and find nothing. And a cast to `uuid`, `jsonb` or `varchar(10)` means the type that a
//! column of that name has.

use crate::dml::column_type;
use arrow::datatypes::{DECIMAL128_MAX_SCALE, DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::{BinaryExpr, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Between, Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast;
use oribi_session::sql::SqlError;
use oribi_types::schema::TYPE_METADATA;
use oribi_types::{ColumnType, Value, text};
use std::sync::Arc;

/// Runs before DataFusion's own coercion of types.
#[derive(Debug)]
pub(crate) struct TypedLiterals;

impl AnalyzerRule for TypedLiterals {
    fn name(&self) -> &str {
        "typed_literals"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let typed = plan.transform_up_with_subqueries(|plan| {
            let schema = merge_schema(&plan.inputs());
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let typed = expr.transform_up(|expr| type_literals(expr, &schema))?;
                Ok(typed.update_data(|expr| name.restore(expr)))
            })
        })?;
        Ok(typed.data)
    }
}

fn type_literals(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) if op.supports_propagation() => {
            let changed = beside(&left, &mut right, schema)? | beside(&right, &mut left, schema)?;
            Transformed::new_transformed(Expr::BinaryExpr(BinaryExpr { left, op, right }), changed)
        }
        Expr::InList(InList { mut expr, mut list, negated }) => {
            let mut changed = match list.first() {
                Some(first) => beside(first, &mut expr, schema)?,
                None => false,
            };
            for item in &mut list {
                changed |= beside(&expr, item, schema)?;
            }
            Transformed::new_transformed(Expr::InList(InList { expr, list, negated }), changed)
        }
        Expr::Between(Between { expr, negated, mut low, mut high }) => {
            let changed = beside(&expr, &mut low, schema)? | beside(&expr, &mut high, schema)?;
            Transformed::new_transformed(Expr::Between(Between { expr, negated, low, high }), changed)
        }
        Expr::Cast(cast) => match (text_of(&cast.expr), taken(cast.field.data_type())) {
            (Some(text), Some(column_type)) => Transformed::yes(literal(column_type, text)?),
            (Some(json), None) if cast.field.metadata().get(TYPE_METADATA).is_some_and(|t| t == "json") => {
                parse(ColumnType::Json, json)?;
                Transformed::no(Expr::Cast(cast))
            }
            _ => Transformed::no(Expr::Cast(cast)),
        },
        other => Transformed::no(other),
    })
}

/// Gives `literal` the type of `other`, if it is a text and that a type which is read in its own way.
fn beside(other: &Expr, expr: &mut Expr, schema: &DFSchema) -> Result<bool> {
    let Some(text) = text_of(expr) else { return Ok(false) };
    let other = other.get_type(schema)?;
    *expr = match (taken(&other), &other) {
        (Some(column_type), _) => literal(column_type, text)?,
        (None, DataType::Decimal128(precision, scale)) => decimal(*precision, *scale, text)?,
        _ => return Ok(false),
    };
    Ok(true)
}

/// A decimal that is compared with one of `precision` and `scale`: of the same type if it fits, else of more digits. It
/// is not rounded, or it would equal what it does not.
fn decimal(precision: u8, scale: i8, text: &str) -> Result<Expr> {
    let types = std::iter::once((precision, scale)).chain((scale..DECIMAL128_MAX_SCALE).map(|s| (38, s)));
    let mut refused = None;
    for (precision, scale) in types {
        match text::parse_exact(ColumnType::Decimal { precision, scale }, text) {
            Ok(Value::Decimal(value)) => {
                return Ok(Expr::Literal(ScalarValue::Decimal128(Some(value), precision, scale), None));
            }
            Ok(other) => return Err(DataFusionError::Internal(format!("{other:?} is no decimal"))),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(malformed(refused.expect("the first type was refused")))
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => Some(text),
        _ => None,
    }
}

fn taken(arrow: &DataType) -> Option<ColumnType> {
    match arrow {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Some(ColumnType::Binary),
        DataType::FixedSizeBinary(16) => Some(ColumnType::Uuid),
        _ => None,
    }
}

fn literal(column_type: ColumnType, text: &str) -> Result<Expr> {
    let scalar = match parse(column_type, text)? {
        Value::Binary(bytes) => ScalarValue::BinaryView(Some(bytes)),
        Value::Uuid(bytes) => ScalarValue::FixedSizeBinary(16, Some(bytes.to_vec())),
        other => return Err(DataFusionError::Internal(format!("{other:?} is no {column_type}"))),
    };
    Ok(Expr::Literal(scalar, None))
}

fn parse(column_type: ColumnType, text: &str) -> Result<Value> {
    text::parse(column_type, text).map_err(malformed)
}

fn malformed(error: oribi_types::Error) -> DataFusionError {
    DataFusionError::External(Box::new(SqlError::from(error).with_sqlstate("22P02")))
}

/// Types in casts: those that a column may have are the column's.
#[derive(Debug)]
pub(crate) struct ColumnTypes;

impl TypePlanner for ColumnTypes {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        // Others, such as intervals and arrays, are DataFusion's to know or refuse.
        let Ok(column_type) = column_type(sql_type) else { return Ok(None) };
        let field = Field::new("", column_type.arrow(), true);
        let named = matches!(column_type, ColumnType::Json | ColumnType::Uuid);
        let metadata = named.then(|| (TYPE_METADATA.to_owned(), column_type.to_string()));
        Ok(Some(Arc::new(field.with_metadata(metadata.into_iter().collect()))))
    }
}
