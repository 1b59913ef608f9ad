//! Columns as Kudu's clients see them: those of the key first, in key order.

use super::attributes;
use bytes::Bytes;
use oribi_kudu::cell::{read_value, write_value};
use oribi_kudu::column::{DataType, WireColumn};
use oribi_kudu::messages::common as message;
use oribi_types::schema::ColumnSpec;
use oribi_types::{Column, ColumnSource, ColumnType, Error, Result, Schema, Value};

/// Positions of a table's columns, in the order in which clients see them.
pub(super) fn shown(schema: &Schema) -> Vec<usize> {
    let rest = (0..schema.columns().len()).filter(|i| !schema.key().contains(i));
    schema.key().iter().copied().chain(rest).collect()
}

/// A column as it travels. What the server itself sets is nullable, so that clients need not set it.
pub(super) fn wire_column(column: &Column) -> WireColumn {
    let nullable = column.nullable || column.source == ColumnSource::CommitTimestamp;
    WireColumn::new(column.name.clone(), column.column_type, nullable)
}

/// The key columns as they travel.
pub(super) fn wire_key(schema: &Schema) -> Vec<WireColumn> {
    schema.key_columns().map(wire_column).collect()
}

/// A table's columns as clients are told.
pub(super) fn to_message(schema: &Schema) -> message::Schema {
    let column = |position: usize| {
        let column = &schema.columns()[position];
        let (data_type, attributes) = attributes::data_type(column);
        let default = column.default.as_ref().filter(|value| !value.is_null());
        let default = default.map(|value| default_bytes(value, column.column_type));
        message::ColumnSchema {
            id: Some(column.id),
            name: column.name.clone(),
            data_type: data_type.into(),
            is_key: Some(matches!(column.source, ColumnSource::Key(_))),
            is_nullable: Some(wire_column(column).nullable),
            read_default_value: default.clone(),
            write_default_value: default,
            type_attributes: attributes,
            ..attributes::to_message(&column.attributes)
        }
    };
    message::Schema { columns: shown(schema).into_iter().map(column).collect() }
}

fn default_bytes(value: &Value, column_type: ColumnType) -> Bytes {
    let mut bytes = Vec::new();
    write_value(value, column_type, &mut bytes);
    bytes.into()
}

/// The columns that a client wants a table to have.
///
/// # Errors
/// `Invalid` for columns that a table cannot have; `Unsupported`, naming it, for what Kudu has and Oribi does not.
pub(super) fn from_message(schema: &message::Schema) -> Result<Schema> {
    let is_key = |column: &message::ColumnSchema| column.is_key.unwrap_or(false);
    let key_columns = schema.columns.iter().take_while(|c| is_key(c)).count();
    let (key, rest) = schema.columns.split_at(key_columns);
    if rest.iter().any(is_key) {
        return Err(Error::invalid("the columns of the primary key must come first"));
    }
    let specs = schema.columns.iter().map(column_spec).collect::<Result<Vec<_>>>()?;
    if let Some(column) = key.iter().find(|column| column.is_nullable.unwrap_or(false)) {
        return Err(Error::invalid(format!("key column \"{}\" may not be nullable", column.name)));
    }
    let types = key.iter().zip(&specs).map(|(column, spec)| (column, DataType::of(spec.column_type).0));
    if let Some((column, data_type)) = types.into_iter().find(|(_, data_type)| !data_type.is_key_type()) {
        return Err(Error::invalid(format!("key column \"{}\" may not be of type {data_type}", column.name)));
    }
    let key: Vec<&str> = key.iter().map(|column| column.name.as_str()).collect();
    Schema::new(specs, &key)
}

/// One column that a client wants a table to have.
///
/// # Errors
/// As [`from_message`].
pub(super) fn column_spec(column: &message::ColumnSchema) -> Result<ColumnSpec> {
    let name = &column.name;
    let unsupported = |what: &str| Err(Error::unsupported(format!("column \"{name}\": {what}")));
    if column.id.is_some() {
        return Err(Error::invalid(format!("column \"{name}\": a client must not choose ids")));
    }
    if column.immutable.unwrap_or(false) {
        return unsupported("immutable columns are not supported");
    }
    if column.is_auto_incrementing.unwrap_or(false) {
        return unsupported("auto-incrementing columns, as of keys that are not unique, are not supported");
    }
    let data_type = DataType::from_number(column.data_type)?;
    if data_type == DataType::IsDeleted {
        return unsupported("columns of type IS_DELETED are not stored");
    }
    let attributes = column.type_attributes.clone().unwrap_or_default();
    let column_type =
        data_type.column_type(&attributes).map_err(|e| e.context(format_args!("column \"{name}\"")))?;
    let default = column.write_default_value.as_ref().or(column.read_default_value.as_ref());
    let default = default.map(|bytes| default_value(name, column_type, bytes)).transpose()?;
    Ok(ColumnSpec {
        name: name.clone(),
        column_type,
        nullable: column.is_nullable.unwrap_or(false),
        default,
        generated: None,
        attributes: attributes::from_message(column),
    })
}

/// A default as a client states it.
///
/// # Errors
/// `Invalid` for bytes that are no value of the type.
pub(super) fn default_value(name: &str, column_type: ColumnType, bytes: &[u8]) -> Result<Value> {
    let value = read_value(column_type, bytes);
    value.map(|value| value.to_owned()).map_err(|e| e.context(format_args!("default of column \"{name}\"")))
}

/// The column of a table that a column of a request means: found by name, of the same type.
///
/// # Errors
/// `Invalid` if there is none.
pub(super) fn find(schema: &Schema, column: &message::ColumnSchema) -> Result<usize> {
    let name = &column.name;
    let position = schema.position(name).ok_or_else(|| {
        Error::invalid(format!("Some columns are not present in the current schema: {name}"))
    })?;
    let (data_type, ours) = (DataType::from_number(column.data_type)?, &schema.columns()[position]);
    let attributes = column.type_attributes.clone().unwrap_or_default();
    let nullable = column.is_nullable.unwrap_or(false);
    if !data_type.is_of(ours.column_type, &attributes) || nullable != wire_column(ours).nullable {
        let null = if nullable { "NULLABLE" } else { "NOT NULL" };
        return Err(Error::invalid(format!(
            "The column '{name}' must have type {} {}, found {data_type} {null}",
            DataType::of(ours.column_type).0,
            if wire_column(ours).nullable { "NULLABLE" } else { "NOT NULL" },
        )));
    }
    Ok(position)
}
