//! Types and literals in queries, read as PostgreSQL and our columns read them.
//!
//! In `key = '\x00ff'` and `id = '9f2c…'` the literal is untyped: it takes the type of the other side. DataFusion would
//! take the text's own bytes, and find nothing. And a cast to `uuid`, `jsonb` or `varchar(10)` means the type that a
//! column of that name has.

use crate::dml::{column_type, parse_text, scalar};
use crate::functions::{self, Kind};
use crate::jsonb;
use crate::number::{self, Purpose, marked_type};
use crate::one_type;
use arrow::datatypes::{DECIMAL128_MAX_SCALE, DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    DFSchema, DataFusionError, Result, ScalarValue, get_required_group_by_exprs_indices,
};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::{Alias, BinaryExpr, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr, TypePlanner};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Aggregate, Between, Cast, Distinct, Expr, ExprSchemable, LogicalPlan};
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
        let done = one_type::settled(plan)?.transform_up_with_subqueries(|plan| {
            match &plan {
                LogicalPlan::Join(join) => functions::check_join(join)?,
                LogicalPlan::Union(union) => functions::check_union(union)?,
                _ => {}
            }
            let schema = merge_schema(&plan.inputs());
            check_ordered(&plan, &schema)?;
            let names = NamePreserver::new(&plan);
            let yields = matches!(plan, LogicalPlan::Projection(_));
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let mut typed = typed(expr, &schema)?;
                if yields {
                    typed = typed.transform_data(shared)?;
                }
                Ok(typed.update_data(|expr| name.restore(expr)))
            })
        })?;
        Ok(done.data)
    }
}

/// What a query yields, of which a long text is one for all rows.
fn shared(expr: Expr) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Alias(alias) if matches!(*alias.expr, Expr::Literal(..)) => {
            let Alias { expr, relation, name, metadata } = alias;
            let expr = Box::new(functions::long_text(*expr));
            Ok(Transformed::yes(Expr::Alias(Alias { expr, relation, name, metadata })))
        }
        literal @ Expr::Literal(..) => Ok(Transformed::yes(functions::long_text(literal))),
        other => Ok(Transformed::no(other)),
    }
}

/// Checks what a plan sorts and groups by.
///
/// # Errors
/// Those of [`functions::check_order`].
fn check_ordered(plan: &LogicalPlan, schema: &DFSchema) -> Result<()> {
    let check = |expr: &Expr| functions::check_order(expr, schema);
    match plan {
        LogicalPlan::Sort(sort) => sort.expr.iter().try_for_each(|sort| check(&sort.expr)),
        LogicalPlan::Aggregate(aggregate) => {
            grouped_by(aggregate).into_iter().try_for_each(|expr| match expr {
                Expr::GroupingSet(set) => set.distinct_expr().into_iter().try_for_each(check),
                expr => check(expr),
            })
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            input.schema().columns().into_iter().try_for_each(|column| check(&Expr::Column(column)))
        }
        LogicalPlan::Distinct(Distinct::On(on)) => on.on_expr.iter().try_for_each(check),
        _ => Ok(()),
    }
}

/// What tells groups apart. DataFusion adds the other columns of a table to its key.
fn grouped_by(aggregate: &Aggregate) -> Vec<&Expr> {
    let names: Vec<String> = aggregate.group_expr.iter().map(|expr| expr.schema_name().to_string()).collect();
    match get_required_group_by_exprs_indices(aggregate.input.schema(), &names) {
        Some(required) => required.into_iter().map(|n| &aggregate.group_expr[n]).collect(),
        None => aggregate.group_expr.iter().collect(),
    }
}

/// `expr` with its literals typed, and checked: nothing in it is evaluated that PostgreSQL would not.
///
/// # Errors
/// Those of literals and of the [check](functions::checked).
pub(crate) fn typed(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| {
        type_literals(expr, schema)?.transform_data(|expr| functions::checked(expr, schema))
    })
}

fn type_literals(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) if op.supports_propagation() => {
            let mut changed = operands(&mut left, &mut right, schema)?;
            changed |= number::compared(&mut left, op, &mut right, schema)?;
            Transformed::new_transformed(Expr::BinaryExpr(BinaryExpr { left, op, right }), changed)
        }
        Expr::BinaryExpr(binary) => number::ours(binary, schema)?,
        Expr::InList(InList { mut expr, mut list, negated }) => {
            let is_null =
                |item: &&Expr| matches!(item, Expr::Literal(value, _) if value.data_type().is_null());
            let mut changed = match list.iter().find(|item| !is_null(item)) {
                Some(typed) => beside(typed, &mut expr, schema)?,
                None => false,
            };
            for item in &mut list {
                changed |= beside(&expr, item, schema)?;
            }
            let mut values: Vec<&mut Expr> = std::iter::once(expr.as_mut()).chain(&mut list).collect();
            changed |= number::alike(&mut values, schema, Purpose::Comparison)?;
            Transformed::new_transformed(Expr::InList(InList { expr, list, negated }), changed)
        }
        Expr::Between(Between { mut expr, negated, mut low, mut high }) => {
            let mut changed = beside(&expr, &mut low, schema)? | beside(&expr, &mut high, schema)?;
            changed |= number::alike(&mut [&mut expr, &mut low, &mut high], schema, Purpose::Comparison)?;
            Transformed::new_transformed(Expr::Between(Between { expr, negated, low, high }), changed)
        }
        Expr::Case(mut case) => {
            let mut changed = false;
            if let Some(value) = &mut case.expr {
                for (when, _) in &mut case.when_then_expr {
                    changed |= operands(value, when, schema)?;
                }
                let whens = case.when_then_expr.iter_mut().map(|(when, _)| when.as_mut());
                let mut values: Vec<&mut Expr> = std::iter::once(value.as_mut()).chain(whens).collect();
                changed |= number::alike(&mut values, schema, Purpose::Comparison)?;
            }
            let results = one_type::alike(Expr::Case(case), schema)?;
            or_changed(results, changed)
        }
        Expr::ScalarFunction(call) if functions::is_of_one_type(call.func.name()) => {
            one_type::alike(Expr::ScalarFunction(call), schema)?
        }
        Expr::ScalarFunction(mut call) => {
            let mut changed = false;
            // What a text is read as is known once it is known which function is meant.
            if call.args.iter().any(|argument| text_of(argument).is_some()) {
                functions::check_arguments(&call, schema)?;
            }
            let (name, arity) = (call.func.name(), call.args.len());
            for (n, argument) in call.args.iter_mut().enumerate() {
                let Some(text) = text_of(argument) else { continue };
                if let Some(column_type) = functions::parameter_type(name, arity, n) {
                    *argument = literal(column_type, text)?;
                    changed = true;
                }
            }
            Transformed::new_transformed(Expr::ScalarFunction(call), changed)
        }
        Expr::Cast(cast) => match number::bare_cast(&cast, schema)? {
            Some(with_digits) => Transformed::yes(with_digits),
            None => cast_of(cast)?,
        },
        Expr::WindowFunction(mut call) => {
            let changed = number::ranges(&mut call, schema)?;
            or_changed(one_type::alike(Expr::WindowFunction(call), schema)?, changed)
        }
        Expr::ScalarSubquery(subquery) => {
            let (value, changed) = functions::of_subquery(subquery);
            Transformed::new_transformed(value, changed)
        }
        other => Transformed::no(other),
    })
}

fn or_changed(mut expr: Transformed<Expr>, changed: bool) -> Transformed<Expr> {
    expr.transformed |= changed;
    expr
}

/// A cast of a text that is written out: the value that it writes.
fn cast_of(cast: Cast) -> Result<Transformed<Expr>> {
    let Some(text) = text_of(&cast.expr) else { return Ok(Transformed::no(Expr::Cast(cast))) };
    Ok(match (Reading::of(&cast.field), cast.field.data_type()) {
        (Some(Reading::Json), _) => {
            parse_text(text, ColumnType::Json).map_err(foreign)?;
            Transformed::no(Expr::Cast(cast))
        }
        (Some(Reading::Jsonb), _) => {
            let normalized = jsonb::normalize(text).map_err(foreign)?;
            let changed = normalized != text;
            Transformed::new_transformed(json_literal(normalized, cast.field), changed)
        }
        (Some(reading), _) => Transformed::yes(reading.literal(text)?),
        (None, DataType::List(item)) => Transformed::yes(functions::array_literal(text, item)?),
        (None, _) => Transformed::no(Expr::Cast(cast)),
    })
}

/// Gives `literal` the type of `other`, if it is a text and that a type which is read in its own way.
fn beside(other: &Expr, expr: &mut Expr, schema: &DFSchema) -> Result<bool> {
    let Some(text) = text_of(expr) else { return Ok(false) };
    // A parameter may have no type yet.
    let Ok((_, other)) = other.to_field(schema) else { return Ok(false) };
    functions::check_zones("a text beside a moment", std::iter::once(&Kind::of(&other)))?;
    let Some(reading) = Reading::of(&other) else { return Ok(false) };
    // No operator takes JSON on both sides.
    if matches!(reading, Reading::Json | Reading::Jsonb) {
        return Ok(false);
    }
    *expr = reading.literal(text)?;
    Ok(true)
}

/// Gives the texts among values that come to one type, as the results of a `CASE` do, the type of the others.
pub(crate) fn together(values: &mut [&mut Expr], schema: &DFSchema) -> Result<bool> {
    let others = values.iter().filter(|value| text_of(value).is_none());
    let fields: Vec<FieldRef> = others.filter_map(|value| Some(value.to_field(schema).ok()?.1)).collect();
    let mut changed = false;
    for value in values {
        changed |= among(value, fields.iter())?;
    }
    Ok(changed)
}

/// Gives a text that comes to one type with values of `others` their type.
pub(crate) fn among<'a>(text: &mut Expr, others: impl Iterator<Item = &'a FieldRef>) -> Result<bool> {
    let Some(written) = text_of(text) else { return Ok(false) };
    let widest = |reading: &Reading| match reading {
        Reading::Column(ColumnType::Double | ColumnType::Float) => 2,
        Reading::Column(ColumnType::Decimal { .. }) => 1,
        _ => 0,
    };
    let Some(one) = others.filter_map(|field| Reading::of(field)).max_by_key(widest) else {
        return Ok(false);
    };
    *text = one.literal(written)?;
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

/// Whether an expression is a text that is written out.
pub(crate) fn is_text(expr: &Expr) -> bool {
    text_of(expr).is_some()
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => Some(text),
        _ => None,
    }
}

/// How a text is read beside a value of another type.
#[derive(Clone, Debug, PartialEq)]
enum Reading {
    Column(ColumnType),
    Json,
    Jsonb,
    Interval,
    /// As a timestamp with time zone, of an Arrow type.
    Zoned(Arc<str>),
    /// As an array of such elements.
    Array(FieldRef),
}

impl Reading {
    /// `None` if it stays a text.
    fn of(field: &Field) -> Option<Reading> {
        match (functions::Kind::of(field), field.data_type()) {
            (functions::Kind::Json, _) => Some(Reading::Json),
            (functions::Kind::Jsonb, _) => Some(Reading::Jsonb),
            (functions::Kind::Interval, _) => Some(Reading::Interval),
            (_, DataType::Timestamp(_, Some(zone))) => Some(Reading::Zoned(Arc::clone(zone))),
            (_, DataType::List(item)) => Some(Reading::Array(Arc::clone(item))),
            (_, arrow) => {
                let column_type = ColumnType::from_arrow(arrow).ok()?;
                (column_type != ColumnType::String).then_some(Reading::Column(column_type))
            }
        }
    }

    fn literal(&self, text: &str) -> Result<Expr> {
        match self {
            Reading::Column(ColumnType::Decimal { precision, scale }) => decimal(*precision, *scale, text),
            Reading::Column(column_type) => literal(*column_type, text),
            Reading::Json => {
                parse_text(text, ColumnType::Json).map_err(foreign)?;
                Ok(json_literal(text.to_owned(), field(ColumnType::Json, "")))
            }
            Reading::Jsonb => Ok(json_literal(jsonb::normalize(text).map_err(foreign)?, jsonb::field(""))),
            Reading::Interval => functions::interval_literal(text),
            Reading::Array(item) => functions::array_literal(text, item),
            // Unlike in a timestamp, the offset counts.
            Reading::Zoned(zone) => {
                match text::parse(ColumnType::Timestamp, text).map_err(malformed_moment)? {
                    Value::Timestamp(micros) => {
                        let zone = Some(Arc::clone(zone));
                        Ok(Expr::Literal(ScalarValue::TimestampMicrosecond(Some(micros), zone), None))
                    }
                    other => Err(DataFusionError::Internal(format!("{other:?} is no timestamp"))),
                }
            }
        }
    }
}

fn json_literal(text: String, field: FieldRef) -> Expr {
    let text = Expr::Literal(ScalarValue::Utf8View(Some(text)), None);
    Expr::Cast(Cast::new_from_field(Box::new(text), field))
}

fn literal(column_type: ColumnType, text: &str) -> Result<Expr> {
    let scalar = parse_text(text, column_type).and_then(|value| scalar(value.as_ref(), column_type));
    Ok(Expr::Literal(scalar.map_err(foreign)?, None))
}

fn foreign(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

fn malformed(error: oribi_types::Error) -> DataFusionError {
    foreign(SqlError::from(error).with_sqlstate("22P02"))
}

fn malformed_moment(error: oribi_types::Error) -> DataFusionError {
    foreign(SqlError::from(error).with_sqlstate("22007"))
}

/// Types the literals beside operators while a statement is planned: DataFusion asks for the type of an expression long
/// before it analyzes the plan, and refuses operands that do not fit.
#[derive(Debug)]
pub(crate) struct TypedOperands;

impl ExprPlanner for TypedOperands {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        use ast::BinaryOperator as B;
        let typed = match expr.op {
            B::Eq | B::NotEq | B::Lt | B::LtEq | B::Gt | B::GtEq => true,
            B::Plus | B::Minus | B::Multiply | B::Divide | B::Modulo => {
                functions::kind(&expr.left, schema)?.is_number()
                    || functions::kind(&expr.right, schema)?.is_number()
            }
            _ => false,
        };
        if let Some(planned) = functions::arithmetic(&expr, schema)? {
            return Ok(PlannerResult::Planned(planned));
        }
        if typed {
            operands(&mut expr.left, &mut expr.right, schema)?;
        }
        Ok(PlannerResult::Original(expr))
    }
}

/// Gives a text beside a value of another type that type; beside a moment, the operator says what is meant.
fn operands(left: &mut Expr, right: &mut Expr, schema: &DFSchema) -> Result<bool> {
    Ok(beside(left, right, schema)? | beside(right, left, schema)?)
}

/// Types in casts: those that a column may have are the column's.
#[derive(Debug)]
pub(crate) struct ColumnTypes;

impl TypePlanner for ColumnTypes {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        if let ast::DataType::Numeric(info) | ast::DataType::Decimal(info) | ast::DataType::Dec(info) =
            sql_type
            && matches!(info, ast::ExactNumberInfo::None)
        {
            return Ok(Some(Arc::new(number::bare_numeric())));
        }
        if let Some(marked) = marked_type(sql_type) {
            return Ok(Some(Arc::new(Field::new("", marked, true))));
        }
        if matches!(sql_type, ast::DataType::JSONB) {
            return Ok(Some(jsonb::field("")));
        }
        // Others, such as intervals and arrays, are DataFusion's to know or refuse.
        let Ok(column_type) = column_type(sql_type) else { return Ok(None) };
        Ok(Some(field(column_type, "")))
    }
}

/// The type of a parameter that is cast to the type of `field`; `None` if no column has it. The digits of a number are
/// for the cast to round.
pub(crate) fn type_of_parameter(field: &Field) -> Option<ColumnType> {
    match ColumnType::from_arrow(field.data_type()).ok()? {
        _ if field.metadata().get(TYPE_METADATA).is_some_and(|name| name == "json") => Some(ColumnType::Json),
        ColumnType::Decimal { .. } => Some(ColumnType::Decimal { precision: 38, scale: 10 }),
        column_type => Some(column_type),
    }
}

/// The field of a value that has the type of a column.
pub(crate) fn field(column_type: ColumnType, name: &str) -> FieldRef {
    let field = Field::new(name, column_type.arrow(), true);
    let named = matches!(column_type, ColumnType::Json | ColumnType::Uuid);
    let metadata = named.then(|| (TYPE_METADATA.to_owned(), column_type.to_string()));
    Arc::new(field.with_metadata(metadata.into_iter().collect()))
}
