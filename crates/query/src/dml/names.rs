//! Names of schemas, tables and columns in statements that change something.

use crate::catalog::find_table;
use crate::syntax::fold;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use oribi_engine::{Engine, Table};
use oribi_session::sql::{SqlError, SqlSession};
use oribi_types::{ColumnSource, ErrorKind, Schema};
use std::sync::Arc;

/// The parts of a possibly qualified name, folded. The database's own name may stand in front of a schema.
///
/// # Errors
/// `Unsupported` for a name in another database, `Invalid` for too many parts.
pub(crate) fn qualified(name: &ObjectName) -> Result<(Option<String>, String), SqlError> {
    let mut parts = Vec::new();
    for part in &name.0 {
        match part.as_ident() {
            Some(ident) => parts.push(fold(ident)),
            None => return Err(SqlError::new(ErrorKind::Invalid, format!("{name} is not a name"))),
        }
    }
    match (parts.pop(), parts.pop(), parts.len()) {
        (Some(table), schema, 0 | 1) => Ok((schema, table)),
        _ => Err(SqlError::new(ErrorKind::Invalid, format!("improper qualified name {name}"))
            .with_sqlstate("42601")),
    }
}

/// The schema and name of a table to create: the first schema of the search path if the name has none.
pub(crate) fn new_table_name(
    session: &SqlSession,
    engine: &Engine,
    name: &ObjectName,
) -> Result<(String, String), SqlError> {
    let (schema, table) = qualified(name)?;
    if let Some(schema) = schema {
        return Ok((schema, table));
    }
    let catalog = session.catalog(engine);
    let path = crate::catalog::search_path(session);
    let schema =
        path.into_iter().find(|s| catalog.schemas().any(|existing| existing == s)).ok_or_else(|| {
            SqlError::new(ErrorKind::Invalid, "no schema has been selected to create in")
                .with_sqlstate("3F000")
        })?;
    Ok((schema, table))
}

/// The table that a statement names.
///
/// # Errors
/// `NotFound` (42P01).
pub(crate) fn table(
    session: &SqlSession,
    engine: &Engine,
    name: &ObjectName,
) -> Result<Arc<Table>, SqlError> {
    let (schema, table) = qualified(name)?;
    find_table(&session.catalog(engine), session, schema.as_deref(), &table).cloned().ok_or_else(|| {
        let error = SqlError::new(ErrorKind::NotFound, format!("relation \"{name}\" does not exist"));
        located(error.with_sqlstate("42P01"), name.0.last().and_then(|p| p.as_ident()))
    })
}

/// The position of a column that a client may write.
///
/// # Errors
/// 42703 for a column that the table lacks, 428C9 for one that the engine fills in.
pub(crate) fn column(table: &Table, schema: &Schema, ident: &Ident) -> Result<usize, SqlError> {
    let name = fold(ident);
    let Some(position) = schema.position(&name) else {
        let error = SqlError::new(
            ErrorKind::Invalid,
            format!("column \"{name}\" of relation \"{}\" does not exist", table.name()),
        );
        return Err(located(error.with_sqlstate("42703"), Some(ident)));
    };
    if schema.columns()[position].source == ColumnSource::CommitTimestamp {
        let error = SqlError::new(ErrorKind::Invalid, format!("column \"{name}\" is set by the database"));
        return Err(located(error.with_sqlstate("428C9"), Some(ident)));
    }
    Ok(position)
}

/// `error` with the position of `ident`, if that is known and on the first line.
pub(crate) fn located(error: SqlError, ident: Option<&Ident>) -> SqlError {
    match ident.map(|i| i.span.start) {
        Some(start) if start.line == 1 && start.column > 0 => error.at(start.column as usize),
        _ => error,
    }
}
