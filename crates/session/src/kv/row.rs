//! Rows of typed tables, shown and written as JSON objects.

use super::{Document, Expiry};
use oribi_engine::{RowVersion, Table};
use oribi_types::key::decode_key;
use oribi_types::{ColumnSource, Error, Result, RowRef, Schema, Value, ValueRef, json};

/// Shows a row as a document whose value is written to `out`. Rows have no flags.
pub fn read<'a>(
    table: &Table,
    schema: &Schema,
    version: &RowVersion<'_>,
    out: &'a mut Vec<u8>,
) -> Result<Document<'a>> {
    out.clear();
    json::write_row(schema, version.key, version.row, version.ts, out)?;
    Ok(Document {
        value: out,
        flags: 0,
        cas: version.ts.0,
        expires_at: expires_at(table, schema, version.row),
        written_at: version.ts.micros(),
        stale: false,
        promised: false,
    })
}

/// Encodes the JSON object `value` as the row of `key`. Key columns may be left out; what is given must agree with the
/// key. An expiry goes into the table's expiry column.
///
/// # Errors
/// `Invalid`, naming table and column.
pub fn encode(table: &Table, schema: &Schema, key: &[u8], value: &[u8], expiry: Expiry) -> Result<Vec<u8>> {
    let of_table = |e: Error| e.context(format_args!("table {}.{}", table.schema_name(), table.name()));
    let mut members = json::read_members(schema, value).map_err(of_table)?;
    for (component, position) in decode_key(schema, key)?.into_iter().zip(schema.key()) {
        if members[*position].as_ref().is_some_and(|given| *given != component) {
            let name = &schema.columns()[*position].name;
            return Err(of_table(Error::invalid(format!("column \"{name}\" differs from the key"))));
        }
        members[*position] = Some(component);
    }
    if let Expiry::At(_) = expiry {
        members[expiry_position(table, schema)?] = Some(expiry.as_value().to_owned());
    }
    let values = json::complete(schema, members).map_err(of_table)?;
    let values: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
    let (mut same_key, mut row) = (Vec::new(), Vec::new());
    schema.encode(&values, &mut same_key, &mut row)?;
    Ok(row)
}

/// Appends `row` with another expiry.
///
/// # Errors
/// `Unsupported` if the table has no expiry column.
pub fn with_expiry(
    table: &Table,
    schema: &Schema,
    row: &[u8],
    expiry: Expiry,
    out: &mut Vec<u8>,
) -> Result<()> {
    let expiry_column = &schema.columns()[expiry_position(table, schema)?];
    let ColumnSource::Slot(slot) = expiry_column.source else {
        return Err(Error::unsupported("the expiry column of a table cannot be in its key"));
    };
    schema.replace_slots(row, &[(slot, expiry.as_value())], out);
    Ok(())
}

/// When `row` expires, as its expiry column says; microseconds since the Unix epoch.
pub fn expires_at(table: &Table, schema: &Schema, row: &[u8]) -> Option<i64> {
    let column = schema.column_by_id(table.options().expires_at?)?;
    match column.source {
        ColumnSource::Slot(slot) => match RowRef::new(schema.layout(), row).get(usize::from(slot)) {
            Some(ValueRef::Timestamp(at)) => Some(at),
            _ => None,
        },
        _ => None,
    }
}

fn expiry_position(table: &Table, schema: &Schema) -> Result<usize> {
    let id = table.definition().options.expires_at;
    id.and_then(|id| schema.columns().iter().position(|c| c.id == id)).ok_or_else(|| {
        let (schema, name) = (table.schema_name(), table.name());
        Error::unsupported(format!("table {schema}.{name} has no expiry column"))
    })
}
