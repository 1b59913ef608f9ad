//! Columns that rows of several queries have in common: of `UNION`, `INTERSECT`, `EXCEPT`, `VALUES`, and of the two terms of
//! a recursive query, where PostgreSQL lets the first say the type.

use super::relations::is_recursive_term;
use crate::error::{invalid, unsupported};
use crate::functions::Kind;
use crate::number::{self, Purpose};
use arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, DFSchemaRef, DataFusionError, NullEquality, Result};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, Join, JoinType, LogicalPlan, Projection, RecursiveQuery, Union, Values,
};
use oribi_session::sql::SqlError;
use std::sync::Arc;

/// Whether a node's columns come from several queries.
pub(super) fn is_open(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Union(_) | LogicalPlan::RecursiveQuery(_) => true,
        LogicalPlan::Join(join) => is_set_operation(join),
        _ => false,
    }
}

/// `INTERSECT` and `EXCEPT`; no join that is written takes a null for equal to another.
fn is_set_operation(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
}

/// A node whose inputs have the same types of numbers, if it puts their rows together.
///
/// # Errors
/// 42804 and `Unsupported` for a recursive term that is not of the other's type.
pub(super) fn alike(plan: LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Union(Union { inputs, .. }) => {
            let wanted = common(&inputs);
            let inputs = inputs.into_iter().map(|input| retyped(input, &wanted)).collect::<Result<_>>()?;
            Union::try_new_with_loose_types(inputs).map(LogicalPlan::Union)
        }
        LogicalPlan::Join(mut join) if is_set_operation(&join) => {
            let wanted = common(&[Arc::clone(&join.left), Arc::clone(&join.right)]);
            join.left = match Arc::unwrap_or_clone(join.left) {
                // Two values may become one.
                LogicalPlan::Distinct(Distinct::All(input)) => {
                    Arc::new(LogicalPlan::Distinct(Distinct::All(retyped(input, &wanted)?)))
                }
                left => retyped(Arc::new(left), &wanted)?,
            };
            join.right = retyped(join.right, &wanted)?;
            Ok(LogicalPlan::Join(join))
        }
        LogicalPlan::RecursiveQuery(query) => {
            check_recursive(&query)?;
            Ok(LogicalPlan::RecursiveQuery(query))
        }
        plan => Ok(plan),
    }
}

/// The types that columns have in common; `None` where they are not numbers.
fn common(inputs: &[Arc<LogicalPlan>]) -> Vec<Option<DataType>> {
    let Some((first, others)) = inputs.split_first() else { return Vec::new() };
    let columns = first.schema().fields().iter().enumerate();
    let of = |(n, field): (usize, &Arc<Field>)| {
        others.iter().try_fold(field.data_type().clone(), |one, input| {
            number::common(&one, input.schema().fields().get(n)?.data_type())
        })
    };
    columns.map(of).collect()
}

/// `input` with columns of the wanted types.
fn retyped(input: Arc<LogicalPlan>, wanted: &[Option<DataType>]) -> Result<Arc<LogicalPlan>> {
    let mut changed = false;
    let columns = input.schema().iter().zip(wanted).map(|((relation, field), wanted)| {
        let column = Expr::from((relation, field));
        match wanted {
            Some(wanted) if wanted != field.data_type() => {
                changed = true;
                let cast = Expr::Cast(Cast::new(Box::new(column), wanted.clone()));
                cast.alias_qualified(relation.cloned(), field.name())
            }
            _ => column,
        }
    });
    let columns: Vec<Expr> = columns.collect();
    if !changed {
        return Ok(input);
    }
    Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(columns, input)?)))
}

/// `plan` with as many digits in each column of decimals as there can be: what comes later is rounded to no fewer.
pub(super) fn with_room(plan: LogicalPlan) -> Result<LogicalPlan> {
    let roomy = |field: &Arc<Field>| number::with_room(field.data_type());
    let wanted: Vec<Option<DataType>> = plan.schema().fields().iter().map(roomy).collect();
    Ok(Arc::unwrap_or_clone(retyped(Arc::new(plan), &wanted)?))
}

/// `VALUES`, whose rows have the same types of numbers.
///
/// # Errors
/// Those of expressions' types.
pub(super) fn values(mut values: Values) -> Result<Values> {
    let none = DFSchema::empty();
    let mut fields = Vec::with_capacity(values.schema.fields().len());
    for (n, (relation, field)) in values.schema.iter().enumerate() {
        let mut cells: Vec<&mut Expr> = values.values.iter_mut().filter_map(|row| row.get_mut(n)).collect();
        number::alike(&mut cells, &none, Purpose::Result)?;
        let first = cells.first().map(|cell| cell.get_type(&none)).transpose()?;
        let data_type = first.filter(DataType::is_numeric).unwrap_or_else(|| field.data_type().clone());
        fields.push((relation.cloned(), Arc::new(field.as_ref().clone().with_data_type(data_type))));
    }
    let schema = DFSchema::new_with_metadata(fields, values.schema.metadata().clone())?;
    values.schema = DFSchemaRef::new(schema);
    Ok(values)
}

/// Refuses a recursive term that would be cast to less than it is.
fn check_recursive(query: &RecursiveQuery) -> Result<()> {
    let LogicalPlan::Projection(Projection { input, .. }) = query.recursive_term.as_ref() else {
        return Ok(());
    };
    if !is_recursive_term(input) {
        return Ok(());
    }
    let columns = query.static_term.schema().fields().iter().zip(input.schema().fields());
    for (n, (first, then)) in columns.enumerate() {
        let Some(overall) = number::common(first.data_type(), then.data_type()) else { continue };
        let (kind, overall_kind) = (Kind::of(first), Kind::of_arrow(&overall));
        if kind != overall_kind {
            let message = format!(
                "recursive query \"{}\" column {} has type {kind} in non-recursive term but type {overall_kind} overall",
                query.name,
                n + 1
            );
            let hint = "Cast the output of the non-recursive term to the correct type.";
            return Err(foreign(invalid("42804", message).with_hint(hint)));
        }
        if number::scale(&overall) > number::scale(first.data_type()) {
            let what = "a recursive term with more digits behind the point than the non-recursive term";
            return Err(foreign(unsupported(what).with_hint("cast one of them to numeric(p,s)")));
        }
    }
    Ok(())
}

fn foreign(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
