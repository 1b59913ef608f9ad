//! `ALTER TABLE`: changes of a table that exists, all or none.

use crate::ddl::{change, check_column_count, column_spec, default_value};
use crate::dml::{self, Run, qualified};
use crate::error::{invalid, unsupported};
use crate::options;
use crate::syntax::fold;
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, ColumnDef, Ident, RenameTableNameKind, SqlOption,
};
use oribi_engine::{Alteration, CatalogChange, Table};
use oribi_session::sql::{SqlError, SqlSession};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ErrorKind, Schema};
use std::sync::Arc;

/// Applies `operations`: all are about the table as it is before.
///
/// # Errors
/// `NotFound`, `AlreadyExists`, `Invalid`, `Unsupported`, each with its SQLSTATE.
pub(crate) async fn alter(
    run: Run<'_>,
    table: Arc<Table>,
    operations: &[AlterTableOperation],
) -> Result<(), SqlError> {
    let altered = Altered { session: run.session, table: &table, schema: table.schema() };
    let planned = operations.iter().map(|operation| altered.plan(operation));
    let changes: Vec<Alteration> = planned.filter_map(Result::transpose).collect::<Result<_, _>>()?;
    if changes.is_empty() {
        return Ok(());
    }
    let (schema, name) = (table.schema_name().to_owned(), table.name().to_owned());
    let altered = change(run, CatalogChange::AlterTable { schema, name, changes }).await;
    altered.map(|_| ()).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => SqlError::from(e).with_sqlstate("42P07"),
        ErrorKind::NotFound => SqlError::from(e).with_sqlstate("42P01"),
        ErrorKind::Invalid => SqlError::from(e).with_sqlstate("42P16"),
        _ => e.into(),
    })
}

/// The table to alter, as it is.
struct Altered<'a> {
    session: &'a SqlSession,
    table: &'a Table,
    schema: Arc<Schema>,
}

impl Altered<'_> {
    /// The change; `None` if `IF EXISTS` or `IF NOT EXISTS` says that there is none.
    fn plan(&self, operation: &AlterTableOperation) -> Result<Option<Alteration>, SqlError> {
        Ok(Some(match operation {
            AlterTableOperation::AddColumn { if_not_exists, column_def, column_position: None, .. } => {
                return self.add_column(column_def, *if_not_exists);
            }
            AlterTableOperation::DropColumn { column_names, if_exists, .. } => {
                return self.drop_column(column_names, *if_exists);
            }
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                let (from, to) = (self.existing(old_column_name)?, fold(new_column_name));
                if self.schema.position(&to).is_some() {
                    return Err(self.column_exists(&to));
                }
                Alteration::RenameColumn { from, to }
            }
            AlterTableOperation::RenameTable { table_name: RenameTableNameKind::To(to) } => {
                match qualified(to)? {
                    (None, to) => Alteration::Rename { to },
                    _ => return Err(unsupported("moving a table to another schema")),
                }
            }
            AlterTableOperation::AlterColumn { column_name, op } => {
                return self.alter_column(column_name, op);
            }
            AlterTableOperation::SetOptionsParens { options } => self.set_options(options)?,
            other => return Err(unsupported(&format!("ALTER TABLE {other}"))),
        }))
    }

    fn add_column(
        &self,
        definition: &ColumnDef,
        if_not_exists: bool,
    ) -> Result<Option<Alteration>, SqlError> {
        let (spec, in_key) = column_spec(definition)?;
        if in_key {
            return Err(unsupported("adding a column to the primary key"));
        }
        if self.schema.position(&spec.name).is_some() {
            let error = self.column_exists(&spec.name);
            if if_not_exists {
                self.session.warn(format!("{error}, skipping"));
                return Ok(None);
            }
            return Err(error);
        }
        if !spec.nullable && spec.default.is_none() {
            let (column, table) = (&spec.name, self.table.name());
            let message = format!("column \"{column}\" of relation \"{table}\" would contain null values");
            return Err(invalid("23502", message).with_hint("give it a default"));
        }
        check_column_count(self.schema.columns().len() + 1)?;
        Ok(Some(Alteration::AddColumn(spec)))
    }

    fn drop_column(&self, names: &[Ident], if_exists: bool) -> Result<Option<Alteration>, SqlError> {
        let [column] = names else { return Err(unsupported("dropping several columns at once")) };
        match self.existing(column) {
            Err(error) if if_exists => {
                self.session.warn(format!("{error}, skipping"));
                Ok(None)
            }
            name => Ok(Some(Alteration::DropColumn(name?))),
        }
    }

    fn alter_column(
        &self,
        column: &Ident,
        change: &AlterColumnOperation,
    ) -> Result<Option<Alteration>, SqlError> {
        let column = self.existing(column)?;
        let position = self.schema.position(&column).expect("the column is known");
        let default = match change {
            AlterColumnOperation::DropNotNull => return Ok(Some(Alteration::DropNotNull(column))),
            // Of another length, maybe, which is not enforced.
            AlterColumnOperation::SetDataType { data_type, using: None, .. }
                if dml::column_type(data_type)? == self.schema.columns()[position].column_type =>
            {
                return Ok(None);
            }
            AlterColumnOperation::DropDefault => None,
            AlterColumnOperation::SetDefault { value } => {
                let spec = ColumnSpec::new(&column, self.schema.columns()[position].column_type);
                Some(default_value(&spec, value)?).filter(|value| !value.is_null())
            }
            other => return Err(unsupported(&format!("ALTER COLUMN {other}"))),
        };
        Ok(Some(Alteration::SetDefault { column, default }))
    }

    fn set_options(&self, options: &[SqlOption]) -> Result<Alteration, SqlError> {
        let options = options::parse(options)?;
        if options.primary_key.is_some() {
            return Err(unsupported("changing the primary key"));
        }
        let current = self.table.definition().options.clone();
        Ok(Alteration::SetOptions(options.table_options(&self.schema, current)?))
    }

    /// The name of a column that there is.
    fn existing(&self, ident: &Ident) -> Result<String, SqlError> {
        let name = fold(ident);
        match self.schema.position(&name) {
            Some(_) => Ok(name),
            None => {
                let table = self.table.name();
                Err(invalid("42703", format!("column \"{name}\" of relation \"{table}\" does not exist")))
            }
        }
    }

    fn column_exists(&self, name: &str) -> SqlError {
        let message = format!("column \"{name}\" of relation \"{}\" already exists", self.table.name());
        SqlError::new(ErrorKind::AlreadyExists, message).with_sqlstate("42701")
    }
}
