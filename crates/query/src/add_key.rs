//! `ALTER TABLE … ADD PRIMARY KEY`: the rows are written again, in a table of that key, which takes the place of the first.
//!
//! In a block that is part of its transaction. Outside of one the new table is a draft, which may have any size: it is seen by nobody
//! who does not look for it, goes with the statement if that fails, and when the folder is opened if the process ended before. Others
//! may write meanwhile; then the statement begins anew, and fails (40001) if that happens again and again.

use crate::ddl::{Unfilled, change, fill, key_column};
use crate::dml::{self, ParameterTypes, Run, Scope, SourceQuery};
use crate::error::{invalid, unsupported};
use crate::syntax;
use datafusion::sql::sqlparser::ast::{
    AlterTableOperation, Expr, Ident, ObjectName, ObjectNamePart, SelectItem, SetExpr, Statement,
    TableConstraint, TableFactor,
};
use oribi_engine::{CatalogChange, DRAFT, Table};
use oribi_session::sql::{SqlError, TransactionStatus};
use oribi_types::schema::ColumnSpec;
use oribi_types::{Column, Error, ErrorKind, Partitioning, Schema, TableDefinition};
use std::sync::Arc;

/// How often the rows are read if others change them meanwhile.
const ATTEMPTS_MAX: usize = 3;

/// A planned `ADD PRIMARY KEY`.
pub(crate) struct AddKey {
    name: ObjectName,
    key: Vec<String>,
    /// The table as it was planned for, by its id.
    table: u64,
    schema: Arc<Schema>,
    /// The rows.
    query: SourceQuery,
}

impl AddKey {
    /// `None` if the `operations` are others, or the table is not there and need not be.
    ///
    /// # Errors
    /// `NotFound` (42P01, 42703); `Invalid` (42P16) for a table that has a key; `Unsupported` beside other changes.
    pub(crate) async fn plan(
        scope: Scope<'_>,
        name: &ObjectName,
        if_exists: bool,
        operations: &[AlterTableOperation],
        types: &mut ParameterTypes,
    ) -> Result<Option<Self>, SqlError> {
        let key = |operation: &AlterTableOperation| match operation {
            AlterTableOperation::AddConstraint { constraint: TableConstraint::PrimaryKey(key), .. } => {
                Some(key.columns.iter().map(key_column).collect::<Result<Vec<String>, _>>())
            }
            _ => None,
        };
        let Some(key) = operations.iter().find_map(key).transpose()? else { return Ok(None) };
        if operations.len() > 1 {
            return Err(unsupported("ADD PRIMARY KEY beside other changes of one ALTER TABLE"));
        }
        let table = match dml::table(scope.session, scope.query.engine(), name) {
            Err(error) if error.error.kind() == ErrorKind::NotFound && if_exists => return Ok(None),
            table => table?,
        };
        let schema = table.schema();
        if schema.row_id().is_none() {
            let message = format!("multiple primary keys for table \"{}\" are not allowed", table.name());
            return Err(invalid("42P16", message));
        }
        if let Some(missing) = key.iter().find(|column| schema.position(column).is_none()) {
            return Err(invalid("42703", format!("column \"{missing}\" named in key does not exist")));
        }
        let query = SourceQuery::plan(scope, rows_of(&table)?, types).await?;
        Ok(Some(AddKey { name: name.clone(), key, table: table.id(), schema, query }))
    }

    /// # Errors
    /// 23502 for null in a column of the key, 23505 for a key that comes twice; 40001 if others change the rows again and again;
    /// `Unsupported` in a block whose statements see one snapshot; `Conflict` if it has to be planned again.
    pub(crate) async fn execute(&self, run: Run<'_>) -> Result<(), SqlError> {
        let is_alone = run.session.transaction() == TransactionStatus::Idle;
        if run.session.modes().repeatable_read {
            // The rows are those of the snapshot; whether they have changed is asked of what came after this statement began.
            return Err(unsupported("ADD PRIMARY KEY in a block that is REPEATABLE READ or SERIALIZABLE"));
        }
        let mut attempts_left = ATTEMPTS_MAX;
        loop {
            attempts_left -= 1;
            let table = dml::table(run.session, run.query.engine(), &self.name)?;
            if table.id() != self.table || table.schema_ref().columns() != self.schema.columns() {
                return Err(Error::conflict("the table was altered meanwhile").into());
            }
            match self.rewrite(run, &table).await {
                Err(error) if error.error.kind() == ErrorKind::Conflict && is_alone && attempts_left > 0 => {}
                Err(error) if error.error.kind() == ErrorKind::Conflict && error.sqlstate.is_none() => {
                    return Err(error.with_sqlstate("40001"));
                }
                rewritten => return rewritten,
            }
        }
    }

    async fn rewrite(&self, run: Run<'_>, table: &Arc<Table>) -> Result<(), SqlError> {
        let made_from = Arc::new(run.query.engine().as_it_is(table));
        let definition = draft(table, &self.key)?;
        let draft_name = definition.name.clone();
        let created =
            change(run, CatalogChange::CreateTable(definition)).await.map_err(|e| match e.kind() {
                ErrorKind::AlreadyExists => Error::conflict(e.message()).into(),
                ErrorKind::Invalid => SqlError::from(e).with_sqlstate("42P16"),
                _ => SqlError::from(e),
            })?;
        let draft = created.ok_or_else(|| SqlError::new(ErrorKind::Internal, "no table was created"))?;
        let is_alone = run.session.transaction() == TransactionStatus::Idle;
        // A block undoes what its statement has changed.
        let unfilled = is_alone.then(|| Unfilled::new(run.query, &draft));
        let replaced = match fill(run, &draft, &self.query).await {
            Ok(_) => {
                let by = Arc::clone(&draft);
                let replace = CatalogChange::Replace { table: Arc::clone(table), by, made_from };
                change(run, replace).await.map(|_| ()).map_err(SqlError::from)
            }
            Err(error) => Err(self.refused(table, &draft_name, error)),
        };
        if let Some(unfilled) = unfilled {
            if replaced.is_ok() { unfilled.keep() } else { unfilled.undo().await? }
        }
        replaced
    }

    /// What the rows are refused for, about the table that they are from.
    fn refused(&self, table: &Table, draft_name: &str, mut error: SqlError) -> SqlError {
        let name = table.name();
        match error.sqlstate {
            Some("23505") => {
                let message = error.error.message().replace(draft_name, name);
                let message = format!("could not create unique index \"{name}_pkey\": {message}");
                error.error = Error::new(ErrorKind::AlreadyExists, message);
            }
            Some("23502") => {
                let message = error.error.message();
                let column = self.key.iter().find(|column| message.contains(&format!("column \"{column}\"")));
                let column = column.map_or("", String::as_str);
                let message = format!("column \"{column}\" of relation \"{name}\" contains null values");
                error.error = Error::new(ErrorKind::Invalid, message);
            }
            _ => {}
        }
        error
    }
}

/// `SELECT columns FROM table`.
fn rows_of(table: &Table) -> Result<Statement, SqlError> {
    let quoted = |text: &str| Ident::with_quote('"', text);
    let mut parsed = syntax::parse("select 1 from t")?.statement;
    if let Statement::Query(query) = &mut parsed
        && let SetExpr::Select(select) = query.body.as_mut()
    {
        if let TableFactor::Table { name, .. } = &mut select.from[0].relation {
            let parts =
                [table.schema_name(), table.name()].map(|part| ObjectNamePart::Identifier(quoted(part)));
            *name = ObjectName(parts.into());
        }
        let column = |column: &Column| SelectItem::UnnamedExpr(Expr::Identifier(quoted(&column.name)));
        select.projection = table.schema_ref().shown().iter().map(column).collect();
    }
    Ok(parsed)
}

/// The table with this key, by a name that is its own.
fn draft(table: &Table, key: &[String]) -> Result<TableDefinition, SqlError> {
    let before = table.definition();
    let spec = |column: &Column| ColumnSpec {
        name: column.name.clone(),
        column_type: column.column_type,
        nullable: column.nullable,
        default: column.default.clone(),
        generated: column.generated.clone(),
        attributes: column.attributes.clone(),
    };
    let key: Vec<&str> = key.iter().map(String::as_str).collect();
    let of_schema = |e: Error| SqlError::from(e).with_sqlstate("42P16");
    let schema = Schema::new(before.schema.shown().iter().map(spec).collect(), &key).map_err(of_schema)?;
    let mut options = before.options.clone();
    let expires_at = options.expires_at.and_then(|id| before.schema.column_by_id(id));
    let expires_at = expires_at.and_then(|column| schema.position(&column.name));
    options.expires_at = expires_at.map(|position| schema.columns()[position].id);
    options.attributes.insert(DRAFT.to_owned(), table.name().to_owned());
    Ok(TableDefinition {
        schema_name: before.schema_name.clone(),
        name: format!("{} (is given a primary key)", before.name),
        schema,
        partitioning: Partitioning::none(),
        options,
    })
}
