//! Partitions in SQL: how they are defined, changed and shown.

mod clause;
mod show;

pub(crate) use clause::{PartitionClause, take};
pub(crate) use show::ShowTable;

use crate::ddl::{blocking, default_value};
use crate::dml::Run;
use crate::error::{invalid, unsupported};
use crate::syntax::fold;
use clause::{BoundSpec, HashClause, RangeClause, RangeSpec};
use datafusion::sql::sqlparser::ast::{AlterTableOperation, Ident};
use oribi_engine::{RangeChange, Table};
use oribi_session::sql::SqlError;
use oribi_types::partition::{HashDimension, RangeDimension, RangePartition, encode_range_key, next_values};
use oribi_types::schema::ColumnSpec;
use oribi_types::{ColumnType, ErrorKind, Partitioning, Schema, Value};
use std::sync::Arc;

/// More hash partitions than this in one range are refused: each has files and memory of its own.
const BUCKETS_MAX: u64 = 256;

/// The partitioning of a table to create: one tablet if nothing is said.
///
/// # Errors
/// `Invalid` (42P16, 42P17, 22023); those of the constants that are bounds.
pub(crate) fn define(schema: &Schema, clause: Option<&PartitionClause>) -> Result<Partitioning, SqlError> {
    let Some(PartitionClause::By { hash, range }) = clause else { return Ok(Partitioning::none()) };
    let hash = dimensions(schema, hash)?;
    let range = match range {
        None => None,
        Some(RangeClause { columns, ranges }) => {
            let columns = components(schema, columns)?;
            let ranges = ranges.iter().map(|spec| range_partition(schema, &columns, spec));
            let mut ranges = ranges.collect::<Result<Vec<_>, _>>()?;
            ranges.sort_by(|a, b| a.lower.cmp(&b.lower));
            Some(RangeDimension { columns, ranges })
        }
    };
    Partitioning::new(hash, range)
        .and_then(|partitioning| partitioning.check(schema).map(|()| partitioning))
        .map_err(|e| SqlError::from(e).with_sqlstate("42P17"))
}

/// Adds or drops a range partition, durably.
///
/// # Errors
/// `AlreadyExists` (42P07), `NotFound` (42704), `Invalid` (42P17).
pub(crate) async fn alter(
    run: Run<'_>,
    table: Arc<Table>,
    operation: &AlterTableOperation,
    clause: &PartitionClause,
) -> Result<(), SqlError> {
    let PartitionClause::Range(spec) = clause else { return Err(unsupported("PARTITION BY in ALTER TABLE")) };
    let definition = table.definition();
    let Some(dimension) = definition.partitioning.range_dimension() else {
        let message = format!("table \"{}\" is not partitioned by range", table.name());
        return Err(invalid("42P17", message));
    };
    let range = range_partition(&definition.schema, &dimension.columns, spec)?;
    let text = show::range(&definition.schema, &dimension.columns, &range);
    let (change, skips) = match operation {
        AlterTableOperation::AddPartitions { if_not_exists, .. } => (RangeChange::Add(range), *if_not_exists),
        AlterTableOperation::DropPartitions { if_exists, .. } => {
            (RangeChange::Drop { lower: range.lower, upper: range.upper }, *if_exists)
        }
        other => return Err(unsupported(&format!("ALTER TABLE {other}"))),
    };
    let name = table.name().to_owned();
    let altered = blocking(run.query, move |engine| {
        engine.alter_partitions(table.schema_name(), table.name(), &[change])
    });
    let (message, sqlstate, error) = match altered.await {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => ("already exists in", "42P07", e),
        Err(e) if e.kind() == ErrorKind::NotFound => ("does not exist in", "42704", e),
        Err(e) if e.kind() == ErrorKind::Invalid => return Err(SqlError::from(e).with_sqlstate("42P17")),
        Err(e) => return Err(e.into()),
    };
    let message = format!("range partition {text} {message} table \"{name}\"");
    if skips {
        run.session.warn(format!("{message}, skipping"));
        return Ok(());
    }
    Err(SqlError::new(error.kind(), message).with_sqlstate(sqlstate))
}

/// One bucket is no dimension.
fn dimensions(schema: &Schema, clauses: &[HashClause]) -> Result<Vec<HashDimension>, SqlError> {
    let all: u64 = clauses.iter().fold(1, |all, clause| all.saturating_mul(u64::from(clause.buckets)));
    if all > BUCKETS_MAX {
        return Err(invalid("22023", format!("a table has at most {BUCKETS_MAX} hash partitions")));
    }
    let mut dimensions = Vec::new();
    for clause in clauses {
        let columns = components(schema, &clause.columns)?;
        if clause.buckets > 1 {
            dimensions.push(HashDimension::new(schema, columns, clause.buckets, 0));
        }
    }
    Ok(dimensions)
}

/// The positions in the key of the columns named; of all, if none is.
fn components(schema: &Schema, columns: &[Ident]) -> Result<Vec<u16>, SqlError> {
    if columns.is_empty() {
        return Ok((0..schema.key().len() as u16).collect());
    }
    let mut components = Vec::new();
    for ident in columns {
        let name = fold(ident);
        let component = schema.key_columns().position(|c| c.name == name).ok_or_else(|| {
            invalid("42P16", format!("partition column \"{name}\" is not part of the primary key"))
        })? as u16;
        if !components.contains(&component) {
            components.push(component);
        }
    }
    Ok(components)
}

fn range_partition(schema: &Schema, columns: &[u16], spec: &RangeSpec) -> Result<RangePartition, SqlError> {
    let key = |bound: &BoundSpec, next: bool| -> Result<Option<Vec<u8>>, SqlError> {
        let mut values = values(schema, columns, bound)?;
        let types: Vec<ColumnType> = key_types(schema, columns);
        if next && !next_values(&types, &mut values) {
            return Ok(None);
        }
        Ok(Some(encode_range_key(schema, columns, &values)?))
    };
    let lower = match &spec.lower {
        None => Vec::new(),
        Some(bound) => key(bound, !bound.inclusive)?
            .ok_or_else(|| invalid("42P17", "no value is above the lower bound of the range partition"))?,
    };
    let upper = match &spec.upper {
        None => None,
        // Up to the last value of all there is no bound.
        Some(bound) => key(bound, bound.inclusive)?,
    };
    let hash = match spec.hash.as_slice() {
        [] => None,
        own => Some(dimensions(schema, own)?),
    };
    Ok(RangePartition { lower, upper, hash })
}

fn key_types(schema: &Schema, columns: &[u16]) -> Vec<ColumnType> {
    let types: Vec<ColumnType> = schema.key_columns().map(|c| c.column_type).collect();
    columns.iter().map(|c| types[usize::from(*c)]).collect()
}

/// The values of a bound, as the columns take them.
fn values(schema: &Schema, columns: &[u16], bound: &BoundSpec) -> Result<Vec<Value>, SqlError> {
    if bound.values.len() != columns.len() {
        let (wanted, given) = (columns.len(), bound.values.len());
        return Err(invalid("42P17", format!("a bound has {given} values, the range has {wanted} columns")));
    }
    let keys: Vec<_> = schema.key_columns().collect();
    let value = |(expr, component): (_, &u16)| {
        let column = keys[usize::from(*component)];
        let value = default_value(&ColumnSpec::new(&column.name, column.column_type), expr)?;
        if value.is_null() {
            return Err(invalid("42P17", format!("a bound of column \"{}\" is null", column.name)));
        }
        Ok(value)
    };
    bound.values.iter().zip(columns).map(value).collect()
}
