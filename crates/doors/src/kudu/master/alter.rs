//! Changes of tables.
//!
//! The steps about columns are tried on the table's schema first, so that one that is not possible leaves all undone; then
//! those about ranges are made, all or none, and after them all others, all or none, durable when it is done.

use super::table::durability_of;
use crate::kudu::node::Node;
use crate::kudu::{attributes, name, partitions, schema as columns, status};
use oribi_engine::{Alteration, Table};
use oribi_kudu::messages::common::ColumnSchemaDelta;
use oribi_kudu::messages::master::{
    AlterTableRequest, AlterTableResponse, AlterTableStep, IsAlterTableDoneRequest, IsAlterTableDoneResponse,
    MasterError, MasterErrorCode, StepType,
};
use oribi_types::{Error, ErrorKind, Result, Schema, TableOptions};
use std::sync::Arc;

pub(super) fn alter(node: &Arc<Node>, request: AlterTableRequest) -> AlterTableResponse {
    let directory = node.directory();
    let altered = match directory.table(&request.table) {
        Ok(entry) => try_alter(node, &entry.table, &request).map_err(|e| refuse(&e)).map(|()| &entry.id),
        Err(error) => Err(status::master(&error)),
    };
    match altered {
        Ok(table_id) => AlterTableResponse {
            error: None,
            schema_version: Some(version(node)),
            table_id: Some(table_id.clone()),
        },
        Err(error) => AlterTableResponse { error: Some(error), ..AlterTableResponse::default() },
    }
}

/// An error about a table that is there: what is not found is a column.
fn refuse(error: &Error) -> MasterError {
    let error = status::master(error);
    match MasterErrorCode::try_from(error.code) {
        Ok(MasterErrorCode::TableNotFound) => {
            MasterError { code: MasterErrorCode::InvalidSchema.into(), ..error }
        }
        _ => error,
    }
}

/// Clients compare it only with itself.
fn version(node: &Node) -> u32 {
    node.directory().version() as u32
}

pub(super) fn is_done(node: &Node, request: &IsAlterTableDoneRequest) -> IsAlterTableDoneResponse {
    match node.directory().table(&request.table) {
        Ok(_) => {
            IsAlterTableDoneResponse { error: None, schema_version: Some(version(node)), done: Some(true) }
        }
        Err(error) => IsAlterTableDoneResponse { error: Some(status::master(&error)), ..Default::default() },
    }
}

fn try_alter(node: &Node, table: &Table, request: &AlterTableRequest) -> Result<()> {
    let mut schema = (*table.schema()).clone();
    let (mut changes, mut ranges) = (Vec::new(), Vec::new());
    for step in &request.alter_schema_steps {
        if let Some(change) = partitions::range_change(table, request.schema.as_ref(), step)? {
            ranges.push(change);
            continue;
        }
        for change in changes_of(step, &schema)? {
            schema = try_on(schema, &change)?;
            changes.push(change);
        }
    }
    changes.extend(options_of(table, request)?);
    changes.extend(rename_of(node, table, request)?);
    let (schema_name, name) = (table.schema_name(), table.name());
    if !ranges.is_empty() {
        node.engine.alter_partitions(schema_name, name, &ranges).map_err(no_range)?;
    }
    if !changes.is_empty() {
        node.engine.alter_table_by(schema_name, name, &changes)?;
    }
    Ok(())
}

/// As Kudu answers it; to a client the table would not be there.
fn no_range(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::invalid(error.message()),
        _ => error,
    }
}

/// What a step changes.
fn changes_of(step: &AlterTableStep, schema: &Schema) -> Result<Vec<Alteration>> {
    let missing = || Error::invalid("a step of the change says nothing");
    Ok(match step.step_type() {
        StepType::AddColumn => {
            let column = &step.add_column.as_ref().ok_or_else(missing)?.schema;
            vec![Alteration::AddColumn(columns::column_spec(column)?)]
        }
        StepType::DropColumn => {
            vec![Alteration::DropColumn(step.drop_column.as_ref().ok_or_else(missing)?.name.clone())]
        }
        StepType::RenameColumn => {
            let rename = step.rename_column.as_ref().ok_or_else(missing)?;
            vec![Alteration::RenameColumn { from: rename.old_name.clone(), to: rename.new_name.clone() }]
        }
        StepType::AlterColumn => {
            let delta = step.alter_column.as_ref().and_then(|alter| alter.delta.as_ref());
            column_changes(delta.ok_or_else(missing)?, schema)?
        }
        StepType::AddRangePartition | StepType::DropRangePartition => return Err(missing()),
        StepType::Unknown => return Err(Error::unsupported("a step of the change is not known")),
    })
}

fn column_changes(delta: &ColumnSchemaDelta, schema: &Schema) -> Result<Vec<Alteration>> {
    let name = delta.name.as_ref().ok_or_else(|| Error::invalid("no column is named"))?;
    let position = schema.position(name);
    let position = position.ok_or_else(|| Error::not_found(format!("column \"{name}\" does not exist")))?;
    if delta.immutable.unwrap_or(false) {
        return Err(Error::unsupported(format!("column \"{name}\": immutable columns are not supported")));
    }
    let mut changes = Vec::new();
    if delta.remove_default.unwrap_or(false) {
        changes.push(Alteration::SetDefault { column: name.clone(), default: None });
    }
    if let Some(bytes) = &delta.default_value {
        let default = columns::default_value(name, schema.columns()[position].column_type, bytes)?;
        changes.push(Alteration::SetDefault { column: name.clone(), default: Some(default) });
    }
    let column = &schema.columns()[position];
    let attributes = attributes::altered(&column.attributes, delta);
    if attributes != column.attributes {
        changes.push(Alteration::SetAttributes { column: name.clone(), attributes });
    }
    if let Some(to) = delta.new_name.as_ref().filter(|to| *to != name) {
        changes.push(Alteration::RenameColumn { from: name.clone(), to: to.clone() });
    }
    Ok(changes)
}

/// The schema after a change.
fn try_on(schema: Schema, change: &Alteration) -> Result<Schema> {
    match change {
        Alteration::AddColumn(spec) => schema.with_column(spec.clone()),
        Alteration::DropColumn(name) => schema.without_column(name),
        Alteration::RenameColumn { from, to } => schema.with_renamed(from, to),
        Alteration::SetDefault { column, default } => schema.with_default(column, default.clone()),
        Alteration::SetAttributes { column, attributes } => {
            schema.with_attributes(column, attributes.clone())
        }
        _ => Ok(schema),
    }
}

fn options_of(table: &Table, request: &AlterTableRequest) -> Result<Option<Alteration>> {
    let before = table.options();
    let (owner, comment) = (request.new_table_owner.as_deref(), request.new_table_comment.as_deref());
    let options = TableOptions {
        durability: durability_of(&request.new_extra_configs)?.unwrap_or(before.durability),
        attributes: attributes::of_table(&before.attributes, owner, comment)?,
        ..before.clone()
    };
    Ok(Some(options).filter(|options| options != before).map(Alteration::SetOptions))
}

fn rename_of(node: &Node, table: &Table, request: &AlterTableRequest) -> Result<Option<Alteration>> {
    let Some(new_name) = &request.new_table_name else { return Ok(None) };
    let (schema, to) = name::parse(new_name);
    if schema != table.schema_name() {
        return Err(Error::unsupported(format!(
            "a table cannot move to another schema, as {new_name} asks for"
        )));
    }
    if to == table.name() {
        return Ok(None);
    }
    // Before anything is changed.
    if node.engine.table(schema, to).is_ok() {
        return Err(Error::already_exists(format!("table {new_name} already exists")));
    }
    Ok(Some(Alteration::Rename { to: to.to_owned() }))
}
