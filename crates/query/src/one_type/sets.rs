//! Columns that rows of several queries have in common: of `UNION`, `INTERSECT`, `EXCEPT`, `VALUES`, and of the two terms of
//! a recursive query, where PostgreSQL lets the first say the type.

use super::brought_together;
use super::relations::is_recursive_term;
use crate::error::{invalid, unsupported};
use crate::functions::{self, Kind};
use crate::literals;
use crate::number::{self, Purpose};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DFSchema, DFSchemaRef, DataFusionError, NullEquality, Result};
use datafusion::logical_expr::expr::{Alias, Cast};
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, Join, JoinType, LogicalPlan, Projection, RecursiveQuery, Union, Values,
};
use oribi_session::sql::SqlError;
use std::sync::Arc;

/// Whether a node's columns come from several queries.
pub(super) fn is_open(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Union(_) | LogicalPlan::RecursiveQuery(_) | LogicalPlan::Values(_) => true,
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
            let inputs = with_literals(inputs)?;
            let wanted = common(&inputs);
            let inputs = inputs.into_iter().map(|input| retyped(input, &wanted)).collect::<Result<_>>()?;
            Union::try_new_with_loose_types(inputs).map(LogicalPlan::Union)
        }
        LogicalPlan::Join(mut join) if is_set_operation(&join) => {
            let [left, right] = <[_; 2]>::try_from(with_literals(vec![join.left, join.right])?)
                .expect("there are as many as there were");
            let wanted = common(&[Arc::clone(&left), Arc::clone(&right)]);
            (join.left, join.right) = (left, right);
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

/// The queries, with the texts that they select as values of the type of the others' columns.
fn with_literals(mut inputs: Vec<Arc<LogicalPlan>>) -> Result<Vec<Arc<LogicalPlan>>> {
    let columns = inputs.first().map_or(0, |first| first.schema().fields().len());
    for n in 0..columns {
        let untyped = |input: &Arc<LogicalPlan>| selected(input, n).is_some_and(literals::is_text);
        let typed = inputs.iter().filter(|input| !untyped(input));
        let typed: Vec<FieldRef> =
            typed.filter_map(|input| input.schema().fields().get(n).cloned()).collect();
        for input in inputs.iter_mut().filter(|input| untyped(input)) {
            let Some(mut literal) = selected(input, n).cloned() else { continue };
            if literals::among(&mut literal, typed.iter())? {
                *input = Arc::new(selecting(Arc::unwrap_or_clone(Arc::clone(input)), n, literal)?);
            }
        }
    }
    Ok(inputs)
}

/// What a query selects as its column `n`.
fn selected(plan: &LogicalPlan, n: usize) -> Option<&Expr> {
    match plan {
        LogicalPlan::Distinct(Distinct::All(input)) => selected(input, n),
        LogicalPlan::Projection(projection) => match projection.expr.get(n)? {
            Expr::Alias(alias) => Some(&alias.expr),
            expr => Some(expr),
        },
        _ => None,
    }
}

/// The query, which selects `value` as its column `n`.
fn selecting(plan: LogicalPlan, n: usize, value: Expr) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let input = selecting(Arc::unwrap_or_clone(input), n, value)?;
            Ok(LogicalPlan::Distinct(Distinct::All(Arc::new(input))))
        }
        LogicalPlan::Projection(Projection { mut expr, input, .. }) => {
            let (relation, name) = expr[n].qualified_name();
            expr[n] = value.alias_qualified(relation, name);
            Projection::try_new(expr, input).map(LogicalPlan::Projection)
        }
        plan => Ok(plan),
    }
}

/// The types that columns have in common; `None` where they are neither numbers nor nulls.
fn common(inputs: &[Arc<LogicalPlan>]) -> Vec<Option<FieldRef>> {
    let Some((first, others)) = inputs.split_first() else { return Vec::new() };
    let columns = first.schema().fields().iter().enumerate();
    let of = |(n, field): (usize, &FieldRef)| {
        let common = others.iter().try_fold(Arc::clone(field), |one, input| {
            let other = input.schema().fields().get(n)?;
            match (one.data_type(), other.data_type()) {
                (DataType::Null, _) => Some(Arc::clone(other)),
                (_, DataType::Null) => Some(one),
                (left, right) if left == right => Some(one),
                (left, right) => Some(Arc::new(Field::new("", number::common(left, right)?, true))),
            }
        })?;
        // Nulls without a type among themselves are texts.
        Some(if common.data_type().is_null() {
            Arc::new(Field::new("", DataType::Utf8, true))
        } else {
            common
        })
    };
    columns.map(of).collect()
}

/// `input` with columns of the wanted types.
fn retyped(input: Arc<LogicalPlan>, wanted: &[Option<FieldRef>]) -> Result<Arc<LogicalPlan>> {
    let mut changed = false;
    let columns = input.schema().iter().zip(wanted).map(|((relation, field), wanted)| {
        let column = Expr::from((relation, field));
        match wanted {
            Some(wanted) if wanted.data_type() != field.data_type() => {
                changed = true;
                // A null of JSON is marked as such.
                let wanted =
                    Field::new("", wanted.data_type().clone(), true).with_metadata(wanted.metadata().clone());
                let cast = Expr::Cast(Cast::new_from_field(Box::new(column), Arc::new(wanted)));
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
    let roomy = |field: &FieldRef| {
        number::with_room(field.data_type()).map(|roomy| Arc::new(Field::new("", roomy, true)))
    };
    let wanted: Vec<Option<FieldRef>> = plan.schema().fields().iter().map(roomy).collect();
    Ok(Arc::unwrap_or_clone(retyped(Arc::new(plan), &wanted)?))
}

/// `VALUES`, whose rows have the same types.
///
/// # Errors
/// Those of expressions' types, 42804 for types that have none in common.
pub(super) fn values(mut values: Values) -> Result<Values> {
    let none = DFSchema::empty();
    let mut fields = Vec::with_capacity(values.schema.fields().len());
    for (n, (relation, field)) in values.schema.iter().enumerate() {
        let mut cells: Vec<&mut Expr> = values.values.iter_mut().filter_map(|row| row.get_mut(n)).collect();
        cells.iter_mut().for_each(|cell| as_written(cell));
        brought_together(&mut cells, &none, Purpose::Result)?;
        functions::check_cells(&cells, &none)?;
        let types: Vec<DataType> = cells.iter().filter_map(|cell| cell.get_type(&none).ok()).collect();
        let alike = types.len() == cells.len() && types.windows(2).all(|two| two[0] == two[1]);
        let data_type = types.first().filter(|_| alike).unwrap_or(field.data_type()).clone();
        if !alike {
            for cell in cells {
                *cell = Expr::Cast(Cast::new(Box::new(std::mem::take(cell)), data_type.clone()));
            }
        }
        fields.push((relation.cloned(), Arc::new(field.as_ref().clone().with_data_type(data_type))));
    }
    let schema = DFSchema::new_with_metadata(fields, values.schema.metadata().clone())?;
    values.schema = DFSchemaRef::new(schema);
    Ok(values)
}

/// Takes away the mark of a value, and what DataFusion has cast it to above.
fn as_written(cell: &mut Expr) {
    if !is_marked(cell) {
        return;
    }
    *cell = match std::mem::take(cell) {
        Expr::ScalarFunction(mut call) => call.args.swap_remove(0),
        Expr::Cast(Cast { expr: mut inner, .. }) | Expr::Alias(Alias { expr: mut inner, .. }) => {
            as_written(&mut inner);
            *inner
        }
        other => other,
    };
}

fn is_marked(cell: &Expr) -> bool {
    match cell {
        Expr::ScalarFunction(call) => call.func.name() == functions::CELL,
        Expr::Cast(Cast { expr: inner, .. }) | Expr::Alias(Alias { expr: inner, .. }) => is_marked(inner),
        _ => false,
    }
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
