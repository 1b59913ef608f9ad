//! `SET column = value` of an `UPDATE` or a `DO UPDATE`.

use super::names;
use super::rows::check_not_null;
use crate::syntax::syntax_error;
use datafusion::sql::sqlparser::ast::{self, AssignmentTarget, Expr};
use oribi_engine::Table;
use oribi_session::sql::SqlError;
use oribi_types::schema::Identity;
use oribi_types::{Column, ColumnSource, ErrorKind, Schema, ValueRef};

/// The slots of assigned columns, checked for nulls.
pub(crate) fn assigned_slots<'v>(
    table: &Table,
    schema: &Schema,
    values: Vec<(usize, ValueRef<'v>)>,
) -> Result<Vec<(u16, ValueRef<'v>)>, SqlError> {
    let mut slots = Vec::with_capacity(values.len());
    for (position, value) in values {
        let column = &schema.columns()[position];
        if value.is_null() && !column.nullable {
            let mut row = vec![ValueRef::Bool(true); position];
            row.push(ValueRef::Null);
            check_not_null(table, schema, &row)?;
        }
        if let ColumnSource::Slot(slot) = column.source {
            slots.push((slot, value));
        }
    }
    Ok(slots)
}

/// The column that an assignment is for.
pub(crate) fn assigned_column(
    table: &Table,
    schema: &Schema,
    target: &AssignmentTarget,
) -> Result<usize, SqlError> {
    let AssignmentTarget::ColumnName(name) = target else {
        return Err(SqlError::new(
            ErrorKind::Unsupported,
            format!("assigning a query to {target} is not supported"),
        )
        .with_hint("assign each column by itself"));
    };
    match name.0.last().and_then(|part| part.as_ident()) {
        Some(ident) => names::column(table, schema, ident),
        None => Err(SqlError::new(ErrorKind::Invalid, format!("{name} is not a column name"))),
    }
}

/// Whether `column` may be set to a value, or to its default.
///
/// # Errors
/// 428C9 for a value of a column that is always generated; `Unsupported` for a default that comes from a sequence.
pub(crate) fn check_generated(column: &Column, is_default: bool) -> Result<(), SqlError> {
    let Some(of) = column.sequence() else { return Ok(()) };
    if is_default {
        let message =
            "setting a column of a row that exists to the next number of a sequence is not supported";
        return Err(SqlError::new(ErrorKind::Unsupported, message));
    }
    if of.identity != Some(Identity::Always) {
        return Ok(());
    }
    let message = format!("column \"{}\" can only be updated to DEFAULT", column.name);
    Err(SqlError::new(ErrorKind::Invalid, message).with_sqlstate("428C9"))
}

/// `(a, b) = (1, 2)` as `a = 1, b = 2`.
///
/// # Errors
/// 42601 if the lists are not of one length.
pub(crate) fn single_assignments(
    assignments: Vec<ast::Assignment>,
) -> Result<Vec<ast::Assignment>, SqlError> {
    let mut single = Vec::with_capacity(assignments.len());
    for assignment in assignments {
        match (assignment.target, assignment.value) {
            (AssignmentTarget::Tuple(columns), Expr::Tuple(values)) => {
                if columns.len() != values.len() {
                    return Err(syntax_error("number of columns does not match number of values"));
                }
                let pairs = columns.into_iter().zip(values);
                single.extend(pairs.map(|(column, value)| ast::Assignment {
                    target: AssignmentTarget::ColumnName(column),
                    value,
                }));
            }
            (target, value) => single.push(ast::Assignment { target, value }),
        }
    }
    Ok(single)
}
