//! The table that is loaded.

use super::LoadgenCommand;
use oribi_client::{Client, Column, CreateTable};
use oribi_types::{ColumnType, Error, Result, Value};
use std::hash::{BuildHasher, RandomState};

/// The table's name, and whether it was made for this load.
pub(super) async fn prepare(client: &Client, command: &LoadgenCommand) -> Result<(String, bool)> {
    if let Some(name) = &command.table_name {
        return Ok((name.clone(), false));
    }
    let number = || RandomState::new().hash_one(0);
    let database = match command.auto_database.as_str() {
        "" => String::new(),
        name => format!("{name}."),
    };
    let name = format!("{database}loadgen_auto_{:016x}{:016x}", number(), number());
    client.create_table(definition(name.clone(), command)?).await?;
    Ok((name, true))
}

fn definition(name: String, command: &LoadgenCommand) -> Result<CreateTable> {
    let (hashes, ranges) = (command.table_num_hash_partitions, command.table_num_range_partitions);
    if hashes == 0 || ranges == 0 {
        return Err(Error::invalid("a table has at least one hash partition and one range partition"));
    }
    let mut table = CreateTable::new(name)
        .column(Column::new("key", ColumnType::Int64).key())
        .column(Column::new("int_val", ColumnType::Int32))
        .column(Column::new("string_val", ColumnType::String))
        .range(&["key"]);
    let span_of_range = command.span(1) * command.num_threads / ranges;
    for range in 1..ranges {
        let split = command.seq_start + range * span_of_range;
        table = table.split(&[Value::Int64(i64::try_from(split).unwrap_or(i64::MAX))]);
    }
    if hashes > 1 {
        table = table.hash(&["key"], hashes);
    }
    if command.table_num_replicas > 0 {
        table = table.replicas(command.table_num_replicas);
    }
    Ok(table)
}
