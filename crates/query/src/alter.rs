//! `ALTER TABLE`: changes of a table that exists, all or none.

use crate::ddl::{change_all, check_column_count, column_spec, default_value};
use crate::dml::{self, Run, qualified};
use crate::error::{invalid, unsupported};
use crate::options;
use crate::sequences;
use crate::syntax::fold;
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, ColumnDef, Ident, RenameTableNameKind, SqlOption,
};
use oribi_engine::{Alteration, CatalogChange, Engine, Table};
use oribi_session::sql::{SqlError, SqlSession};
use oribi_types::schema::{ColumnSpec, Generated, OfSequence};
use oribi_types::{Column, ErrorKind, Schema};
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
    let engine = run.query.engine();
    let altered = Altered { session: run.session, engine, table: &table, schema: table.schema() };
    let planned = operations.iter().map(|operation| altered.plan(operation));
    let changes: Vec<Alteration> = planned.filter_map(Result::transpose).collect::<Result<_, _>>()?;
    if changes.is_empty() {
        return Ok(());
    }
    let (schema, name) = (table.schema_name().to_owned(), table.name().to_owned());
    let catalog = run.session.catalog(run.query.engine());
    let dropped = changes.iter().flat_map(|change| match change {
        Alteration::DropColumn(column) => sequences::owned_by(&catalog, &table, Some(column)),
        _ => Vec::new(),
    });
    let dropped: Vec<_> = dropped.collect();
    let goes = |of: &Table, column: &Column| {
        let is_it =
            |change: &Alteration| matches!(change, Alteration::DropColumn(name) if *name == column.name);
        of.id() == table.id() && changes.iter().any(is_it)
    };
    for sequence in &dropped {
        sequences::check_unused(&catalog, sequence, &format!("a column of table {name}"), goes)?;
    }
    let mut all = vec![CatalogChange::AlterTable { schema, name, changes }];
    all.extend(dropped.into_iter().map(|sequence| CatalogChange::DropTable {
        schema: sequence.schema_name().to_owned(),
        name: sequence.name().to_owned(),
    }));
    change_all(run, all).await.map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => SqlError::from(e).with_sqlstate("42P07"),
        ErrorKind::NotFound => SqlError::from(e).with_sqlstate("42P01"),
        ErrorKind::Invalid => SqlError::from(e).with_sqlstate("42P16"),
        _ => e.into(),
    })
}

/// The table to alter, as it is.
struct Altered<'a> {
    session: &'a SqlSession,
    engine: &'a Engine,
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
        let (definition, wanted) = sequences::take(definition)?;
        if wanted.is_some() {
            return Err(unsupported("adding a column that has its values from a sequence"));
        }
        let (spec, in_key) = column_spec(&definition)?;
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
        check_column_count(self.schema.shown().len() + 1)?;
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
            AlterColumnOperation::DropDefault | AlterColumnOperation::SetDefault { .. }
                if self.schema.columns()[position].sequence().is_some_and(|of| of.identity.is_some()) =>
            {
                let table = self.table.name();
                let message = format!("column \"{column}\" of relation \"{table}\" is an identity column");
                return Err(invalid("42601", message));
            }
            AlterColumnOperation::SetDefault { value } if sequences::taken_from(value)?.is_some() => {
                let name = sequences::taken_from(value)?.unwrap_or_default();
                return self.set_sequence(column, position, name).map(Some);
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

    /// `SET DEFAULT nextval('…')`.
    fn set_sequence(&self, column: String, position: usize, name: &str) -> Result<Alteration, SqlError> {
        if !self.schema.columns()[position].column_type.is_integer() {
            return Err(unsupported("nextval as the default of a column that is no integer"));
        }
        let id = sequences::named(self.session, self.engine, name)?.id();
        // The column keeps the sequence that is its own.
        let owned = self.schema.columns()[position].sequence().is_some_and(|of| of.owned && of.id == id);
        let generated = Some(Generated::Sequence(OfSequence { id, owned, identity: None }));
        Ok(Alteration::SetGenerated { column, generated })
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
