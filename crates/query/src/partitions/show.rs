//! `SHOW RANGE PARTITIONS t`, `SHOW PARTITIONS t` and `SHOW CREATE TABLE t`.

use crate::dml::{self, Run};
use crate::pg_catalog::quote;
use crate::sequences::Rules;
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, ShowCreateObject, Statement};
use oribi_engine::{Catalog, Engine, Table};
use oribi_session::sql::{SqlError, SqlSession};
use oribi_types::partition::{HashDimension, RangeDimension, RangePartition, decode_range_key, next_values};
use oribi_types::schema::{Identity, OfSequence};
use oribi_types::{Column, ColumnSource, ColumnType, Durability, Error, Schema, Value};
use std::sync::Arc;

/// A statement that shows how a table is defined.
pub(crate) struct ShowTable {
    name: ObjectName,
    what: What,
    columns: SchemaRef,
}

#[derive(Clone, Copy)]
enum What {
    /// A row a range.
    Ranges,
    /// A row a tablet.
    Tablets,
    /// The statement that makes the table.
    Definition,
}

impl ShowTable {
    /// `None` if the statement is of another kind.
    ///
    /// # Errors
    /// `NotFound` (42P01).
    pub(crate) fn plan(
        session: &SqlSession,
        engine: &Engine,
        statement: &Statement,
    ) -> Result<Option<Self>, SqlError> {
        let (what, name) = match statement {
            Statement::ShowVariable { variable } => match variable.as_slice() {
                [a, b, name @ ..] if is(a, "range") && is(b, "partitions") && !name.is_empty() => {
                    (What::Ranges, ObjectName::from(name.to_vec()))
                }
                [a, name @ ..] if is(a, "partitions") && !name.is_empty() => {
                    (What::Tablets, ObjectName::from(name.to_vec()))
                }
                _ => return Ok(None),
            },
            Statement::ShowCreate { obj_type: ShowCreateObject::Table, obj_name } => {
                (What::Definition, obj_name.clone())
            }
            _ => return Ok(None),
        };
        let table = dml::table(session, engine, &name)?;
        let columns = match what {
            What::Ranges => vec![range_columns(&table)],
            What::Tablets => ["tablet", "buckets", "range"].map(str::to_owned).to_vec(),
            What::Definition => vec!["result".to_owned()],
        };
        let fields: Vec<Field> = columns.into_iter().map(|c| Field::new(c, DataType::Utf8, true)).collect();
        Ok(Some(ShowTable { name, what, columns: Arc::new(ArrowSchema::new(fields)) }))
    }

    pub(crate) fn columns(&self) -> &SchemaRef {
        &self.columns
    }

    /// # Errors
    /// `NotFound` (42P01).
    pub(crate) fn run(&self, run: Run<'_>) -> Result<RecordBatch, SqlError> {
        let table = dml::table(run.session, run.query.engine(), &self.name)?;
        let rows = match self.what {
            What::Ranges => ranges(&table).into_iter().map(|range| vec![range]).collect(),
            What::Tablets => tablets(&table),
            What::Definition => {
                let catalog = run.session.catalog(run.query.engine());
                vec![vec![definition(&catalog, &table)]]
            }
        };
        let column = |i: usize| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row[i].as_str())))
        };
        let columns = (0..self.columns.fields().len()).map(column).collect();
        Ok(RecordBatch::try_new(Arc::clone(&self.columns), columns).map_err(Error::from)?)
    }
}

fn is(ident: &Ident, word: &str) -> bool {
    ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case(word)
}

/// `RANGE (a, b)`.
fn range_columns(table: &Table) -> String {
    let definition = table.definition();
    match definition.partitioning.range_dimension() {
        Some(dimension) => format!("RANGE ({})", names(&definition.schema, &dimension.columns)),
        None => "RANGE ()".to_owned(),
    }
}

fn names(schema: &Schema, columns: &[u16]) -> String {
    let key: Vec<&Column> = schema.key_columns().collect();
    let names: Vec<String> = columns.iter().map(|c| quote(&key[usize::from(*c)].name)).collect();
    names.join(", ")
}

fn ranges(table: &Table) -> Vec<String> {
    let definition = table.definition();
    let Some(RangeDimension { columns, ranges }) = definition.partitioning.range_dimension() else {
        return Vec::new();
    };
    let text = |r: &RangePartition| {
        let own = r.hash.iter().flatten().map(|d| format!(" {}", hash(&definition.schema, d)));
        own.fold(range(&definition.schema, columns, r), |text, own| text + &own)
    };
    ranges.iter().map(text).collect()
}

fn tablets(table: &Table) -> Vec<Vec<String>> {
    let definition = table.definition();
    let tablet = |(number, id): (usize, u64)| {
        let place = definition.partitioning.place_of(number);
        let buckets: Vec<String> = place.buckets.iter().map(u32::to_string).collect();
        let columns = definition.partitioning.range_dimension().map(|dimension| &dimension.columns);
        let range = columns.zip(place.range).map(|(columns, r)| range(&definition.schema, columns, r));
        vec![id.to_string(), buckets.join(", "), range.unwrap_or_default()]
    };
    table.tablet_ids().enumerate().map(tablet).collect()
}

fn hash(schema: &Schema, dimension: &HashDimension) -> String {
    format!("HASH ({}) PARTITIONS {}", names(schema, &dimension.columns), dimension.buckets)
}

/// A range as it is written in a statement: `10 <= VALUES < 20`.
pub(super) fn range(schema: &Schema, columns: &[u16], range: &RangePartition) -> String {
    let types = super::key_types(schema, columns);
    // Bounds are checked when they come.
    let values = |bound: &[u8]| decode_range_key(schema, columns, bound).unwrap_or_default();
    let lower = Some(values(&range.lower)).filter(|_| !range.lower.is_empty());
    let upper = range.upper.as_deref().map(values);
    if let (Some(lower), Some(upper)) = (&lower, &upper) {
        let mut next = lower.clone();
        if next_values(&types, &mut next) && next == *upper {
            return format!("VALUE = {}", tuple(&types, lower));
        }
    }
    let lower = lower.map_or(String::new(), |lower| format!("{} <= ", tuple(&types, &lower)));
    let upper = upper.map_or(String::new(), |upper| format!(" < {}", tuple(&types, &upper)));
    format!("{lower}VALUES{upper}")
}

fn tuple(types: &[ColumnType], values: &[Value]) -> String {
    let literals: Vec<String> = values.iter().zip(types).map(|(value, t)| literal(value, *t)).collect();
    match literals.as_slice() {
        [one] => one.clone(),
        several => format!("({})", several.join(", ")),
    }
}

fn literal(value: &Value, column_type: ColumnType) -> String {
    let mut text = Vec::new();
    oribi_types::text::format(value.as_ref(), column_type, &mut text);
    let text = String::from_utf8_lossy(&text);
    match value {
        Value::Null => "NULL".to_owned(),
        Value::String(_)
        | Value::Binary(_)
        | Value::Date(_)
        | Value::Timestamp(_)
        | Value::Uuid(_)
        | Value::Json(_) => {
            format!("'{}'", text.replace('\'', "''"))
        }
        _ => text.into_owned(),
    }
}

/// The type of a column that has its numbers from a sequence, and the rest of its definition.
fn numbers(catalog: &Catalog, column: &Column, of: &OfSequence) -> String {
    let (column_type, null) = (column.column_type, if column.nullable { "" } else { " NOT NULL" });
    let Some(sequence) = catalog.table_by_id(of.id) else { return format!("{column_type}{null}") };
    let how = match of.identity {
        Some(Identity::Always) => "ALWAYS",
        Some(Identity::ByDefault) => "BY DEFAULT",
        None if of.owned => {
            return match column_type {
                ColumnType::Int16 => "smallserial".to_owned(),
                ColumnType::Int32 => "serial".to_owned(),
                _ => "bigserial".to_owned(),
            };
        }
        None => {
            let name = format!("{}.{}", quote(sequence.schema_name()), quote(sequence.name()));
            return format!("{column_type}{null} DEFAULT nextval('{}')", name.replace('\'', "''"));
        }
    };
    let rules = Rules::read(sequence.sequence().unwrap_or_default()).ok();
    let options = rules.filter(|rules| Some(*rules) != Rules::of(column_type, &[]).ok()).map(|rules| {
        let Rules { start, increment, min, max, cycles, cache, .. } = rules;
        let cycle = if cycles { "CYCLE" } else { "NO CYCLE" };
        format!(" (INCREMENT BY {increment} MINVALUE {min} MAXVALUE {max} START WITH {start} CACHE {cache} {cycle})")
    });
    format!("{column_type}{null} GENERATED {how} AS IDENTITY{}", options.unwrap_or_default())
}

/// The statement that makes the table again.
fn definition(catalog: &Catalog, table: &Table) -> String {
    let definition = table.definition();
    let schema = &definition.schema;
    let column = |column: &Column| {
        let null = if column.nullable { "" } else { " NOT NULL" };
        if let Some(of) = column.sequence() {
            return format!("    {} {}", quote(&column.name), numbers(catalog, column, of));
        }
        let default = column.default.as_ref().map(|value| literal(value, column.column_type));
        let default = default.map_or(String::new(), |default| format!(" DEFAULT {default}"));
        format!("    {} {}{null}{default}", quote(&column.name), column.column_type)
    };
    let stored = schema.shown().iter().filter(|c| c.source != ColumnSource::CommitTimestamp);
    let mut parts: Vec<String> = stored.map(column).collect();
    let all: Vec<u16> = (0..schema.key().len() as u16).collect();
    let (schema_name, name) = (quote(&definition.schema_name), quote(&definition.name));
    let partitions = partition_by(table);
    let options = &definition.options;
    let mut with = match options.durability {
        Durability::Sync => "durability = 'sync'".to_owned(),
        Durability::Periodic(ms) => format!("durability = 'periodic {ms}ms'"),
    };
    if let Some(ms) = options.ttl_ms {
        with += &format!(", ttl = '{ms}ms'");
    }
    if let Some(column) = options.expires_at.and_then(|id| schema.column_by_id(id)) {
        with += &format!(", expires_at = '{}'", column.name.replace('\'', "''"));
    }
    if schema.row_id().is_none() {
        parts.push(format!("    PRIMARY KEY ({})", names(schema, &all)));
    }
    let parts = parts.join(",\n");
    format!("CREATE TABLE {schema_name}.{name} (\n{parts}\n){partitions}\nWITH ({with})")
}

fn partition_by(table: &Table) -> String {
    let definition = table.definition();
    let (schema, partitioning) = (&definition.schema, &definition.partitioning);
    let mut clauses: Vec<String> = partitioning.hash_dimensions().iter().map(|d| hash(schema, d)).collect();
    if partitioning.range_dimension().is_some() {
        let ranges: Vec<String> =
            ranges(table).iter().map(|range| format!("    PARTITION {range}")).collect();
        clauses.push(format!("{} (\n{}\n)", range_columns(table), ranges.join(",\n")));
    }
    if clauses.is_empty() { String::new() } else { format!("\nPARTITION BY {}", clauses.join(", ")) }
}
