//! `ALTER TABLE`: one change of a table that exists.

use crate::ddl::{column_spec, default_value, invalid, unsupported};
use crate::dml::qualified;
use crate::options;
use crate::syntax::fold;
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, Ident, RenameTableNameKind,
};
use oribi_engine::{Alteration, Engine, Table};
use oribi_session::sql::{SqlError, SqlSession};
use oribi_types::ErrorKind;
use oribi_types::schema::ColumnSpec;

/// Applies `operation`, durably.
///
/// # Errors
/// `NotFound`, `AlreadyExists`, `Invalid`, `Unsupported`, each with its SQLSTATE.
pub(crate) fn alter(
    engine: &Engine,
    session: &SqlSession,
    table: &Table,
    operation: &AlterTableOperation,
) -> Result<(), SqlError> {
    let schema = table.schema();
    let known = |ident: &Ident| {
        let name = fold(ident);
        match schema.position(&name) {
            Some(_) => Ok(name),
            None => Err(invalid(
                "42703",
                format!("column \"{name}\" of relation \"{}\" does not exist", table.name()),
            )),
        }
    };
    let change = match operation {
        AlterTableOperation::AddColumn { if_not_exists, column_def, column_position: None, .. } => {
            let (spec, in_key) = column_spec(column_def)?;
            if in_key {
                return Err(unsupported("adding a column to the primary key"));
            }
            if schema.position(&spec.name).is_some() {
                let message =
                    format!("column \"{}\" of relation \"{}\" already exists", spec.name, table.name());
                if *if_not_exists {
                    session.warn(format!("{message}, skipping"));
                    return Ok(());
                }
                return Err(SqlError::new(ErrorKind::AlreadyExists, message).with_sqlstate("42701"));
            }
            if !spec.nullable && spec.default.is_none() {
                let message = format!(
                    "column \"{}\" of relation \"{}\" would contain null values",
                    spec.name,
                    table.name()
                );
                return Err(invalid("23502", message).with_hint("give it a default"));
            }
            Alteration::AddColumn(spec)
        }
        AlterTableOperation::DropColumn { column_names, if_exists, .. } => {
            let [column] = column_names.as_slice() else {
                return Err(unsupported("dropping several columns at once"));
            };
            match known(column) {
                Err(error) if *if_exists => {
                    session.warn(format!("{error}, skipping"));
                    return Ok(());
                }
                name => Alteration::DropColumn(name?),
            }
        }
        AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
            let (from, to) = (known(old_column_name)?, fold(new_column_name));
            if schema.position(&to).is_some() {
                let message = format!("column \"{to}\" of relation \"{}\" already exists", table.name());
                return Err(SqlError::new(ErrorKind::AlreadyExists, message).with_sqlstate("42701"));
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
            let column = known(column_name)?;
            let default = match op {
                AlterColumnOperation::DropDefault => None,
                AlterColumnOperation::SetDefault { value } => {
                    let position = schema.position(&column).expect("the column is known");
                    let spec = ColumnSpec::new(&column, schema.columns()[position].column_type);
                    Some(default_value(&spec, value)?).filter(|value| !value.is_null())
                }
                other => return Err(unsupported(&format!("ALTER COLUMN {other}"))),
            };
            Alteration::SetDefault { column, default }
        }
        AlterTableOperation::SetOptionsParens { options } => {
            let options = options::parse(options)?;
            if options.primary_key.is_some() {
                return Err(unsupported("changing the primary key"));
            }
            Alteration::SetOptions(options.table_options(&schema, table.definition().options.clone())?)
        }
        other => return Err(unsupported(&format!("ALTER TABLE {other}"))),
    };
    engine.alter_table(table.schema_name(), table.name(), &change).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => SqlError::from(e).with_sqlstate("42P07"),
        ErrorKind::NotFound => SqlError::from(e).with_sqlstate("42P01"),
        ErrorKind::Invalid => SqlError::from(e).with_sqlstate("42P16"),
        _ => e.into(),
    })
}
