//! Bulk inserts: batches into a table, on the path of `COPY`.
//!
//! A table that is created for them, or replaced, comes into being with its rows: both are one transaction.

use crate::arrivals::Arrivals;
use crate::call::Call;
use crate::lengths::check_dictionaries;
use crate::metadata::{literal, rows};
use crate::shared::Shared;
use crate::status::{invalid, unsupported};
use crate::transactions::quoted;
use crate::types::{column_type, received_batch};
use arrow::datatypes::{Field, SchemaRef};
use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use oribi_session::sql::{CopySink, Outcome, SqlError, TransactionStatus};
use oribi_types::ErrorKind;

/// The option, or the metadata of the batches' schema, that names the primary key of a table that is created.
const PRIMARY_KEY: &str = "primary_key";

/// Where rows go.
struct Target {
    schema: String,
    table: String,
}

impl Target {
    fn quoted(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.table))
    }
}

/// What is done about the table before the rows come.
enum Preparation {
    None,
    Create,
    Replace,
}

/// Inserts what comes; returns the number of rows.
///
/// # Errors
/// 42P01, 42P07 if the table is not there, or is; those of the table's definition; those of an `INSERT` of the same rows.
pub async fn ingest(
    shared: &Shared,
    call: &mut Call,
    command: &CommandStatementIngest,
    mut arrivals: Arrivals,
) -> Result<i64, SqlError> {
    call.take_turn().await?;
    let call = &*call;
    let undone = call.undone();
    if command.temporary {
        return Err(unsupported("a temporary table"));
    }
    if let Some(catalog) =
        command.catalog.as_deref().filter(|name| !name.is_empty() && *name != crate::call::DATABASE)
    {
        return Err(unsupported(format!("the catalog \"{catalog}\"")).with_sqlstate("3D000"));
    }
    let columns = arrivals.schema().await?;
    let target = target(shared, call, command).await?;
    let preparation = preparation(shared, call, command, &target).await?;
    let is_series = !matches!(preparation, Preparation::None) && !call.is_in_transaction();
    if is_series {
        shared.sql.begin_series(&call.session);
    }
    let inserted = async {
        prepare_table(shared, call, command, &target, &columns, preparation).await?;
        insert(shared, call, &target, &columns, &mut arrivals).await
    };
    let inserted = inserted.await;
    match inserted {
        Ok(_) => undone.done(),
        Err(_) => drop(undone),
    }
    if is_series {
        let commits = inserted.is_ok() && call.session.transaction() == TransactionStatus::Open;
        let ended = shared.sql.end_series(&call.session, commits).await;
        return inserted.and_then(|rows| ended.map(|()| rows));
    }
    inserted
}

/// The table that is meant: without a schema, in the one where it would be created.
async fn target(shared: &Shared, call: &Call, command: &CommandStatementIngest) -> Result<Target, SqlError> {
    let table = command.table.clone();
    if let Some(schema) = command.schema.clone().filter(|schema| !schema.is_empty()) {
        return Ok(Target { schema, table });
    }
    let mut current = rows(shared, call, "select current_schema()").await?;
    match current.pop().and_then(|mut row| row.pop()).filter(|schema| !schema.is_empty()) {
        Some(schema) => Ok(Target { schema, table }),
        None => Err(invalid("no schema has been selected to create in").with_sqlstate("3F000")),
    }
}

/// # Errors
/// 42P01, 42P07 where the client wants it so; 22023 for options that are none.
async fn preparation(
    shared: &Shared,
    call: &Call,
    command: &CommandStatementIngest,
    target: &Target,
) -> Result<Preparation, SqlError> {
    let options = command.table_definition_options.unwrap_or_default();
    let exists = format!(
        "select 1 from information_schema.tables where table_schema = {} and table_name = {}",
        literal(&target.schema),
        literal(&target.table)
    );
    let name = &target.table;
    if rows(shared, call, &exists).await?.is_empty() {
        return match options.if_not_exist() {
            TableNotExistOption::Create => Ok(Preparation::Create),
            TableNotExistOption::Fail => {
                let message = format!("relation \"{name}\" does not exist");
                Err(SqlError::new(ErrorKind::NotFound, message).with_sqlstate("42P01"))
            }
            TableNotExistOption::Unspecified => {
                Err(invalid("what to do if the table does not exist is not said"))
            }
        };
    }
    match options.if_exists() {
        TableExistsOption::Append => Ok(Preparation::None),
        TableExistsOption::Replace => Ok(Preparation::Replace),
        TableExistsOption::Fail => {
            let message = format!("relation \"{name}\" already exists");
            Err(SqlError::new(ErrorKind::AlreadyExists, message).with_sqlstate("42P07"))
        }
        TableExistsOption::Unspecified => Err(invalid("what to do if the table exists is not said")),
    }
}

async fn prepare_table(
    shared: &Shared,
    call: &Call,
    command: &CommandStatementIngest,
    target: &Target,
    columns: &SchemaRef,
    preparation: Preparation,
) -> Result<(), SqlError> {
    if matches!(preparation, Preparation::None) {
        return Ok(());
    }
    // It is refused before the old table is gone.
    let definition = definition(command, target, columns)?;
    if matches!(preparation, Preparation::Replace) {
        run(shared, call, &format!("DROP TABLE {}", target.quoted())).await?;
    }
    run(shared, call, &definition).await.map(drop)
}

/// The statement that creates a table for these columns.
///
/// # Errors
/// 0A000 for columns that there are not.
fn definition(
    command: &CommandStatementIngest,
    target: &Target,
    columns: &SchemaRef,
) -> Result<String, SqlError> {
    let key = command.options.get(PRIMARY_KEY).or_else(|| columns.metadata().get(PRIMARY_KEY));
    let column = |field: &Field| column_type(field).map(|t| format!("{} {t}", quoted(field.name())));
    let mut parts = columns.fields().iter().map(|field| column(field)).collect::<Result<Vec<_>, _>>()?;
    if let Some(key) = key {
        let key = key.split(',').map(|name| quoted(name.trim())).collect::<Vec<_>>().join(", ");
        parts.push(format!("PRIMARY KEY ({key})"));
    }
    Ok(format!("CREATE TABLE {} ({})", target.quoted(), parts.join(", ")))
}

async fn insert(
    shared: &Shared,
    call: &Call,
    target: &Target,
    columns: &SchemaRef,
    arrivals: &mut Arrivals,
) -> Result<i64, SqlError> {
    let names = columns.fields().iter().map(|field| quoted(field.name())).collect::<Vec<_>>().join(", ");
    let copy = format!("COPY {} ({names}) FROM STDIN", target.quoted());
    let mut sink: Box<dyn CopySink> = match run(shared, call, &copy).await? {
        Outcome::CopyIn(sink) => sink,
        _ => return Err(SqlError::new(ErrorKind::Internal, "a COPY that takes no rows")),
    };
    let zone = call.session.time_zone().map(|zone| zone.name());
    while let Some(batch) = arrivals.next().await? {
        // As many rows at a time as a COPY has: what others want is let in between.
        for first in (0..batch.num_rows()).step_by(PART_ROWS) {
            let part = batch.slice(first, PART_ROWS.min(batch.num_rows() - first));
            check_dictionaries(&part, shared.limits.message_bytes_max)?;
            sink.push(received_batch(&part, zone)?).await?;
        }
    }
    sink.finish().await.map(|rows| rows as i64)
}

/// Rows of a batch that are looked at together.
pub const PART_ROWS: usize = 8192;

async fn run(shared: &Shared, call: &Call, sql: &str) -> Result<Outcome, SqlError> {
    let prepared = shared.sql.prepare(&call.session, sql, &[]).await?;
    call.execute(&prepared, &[]).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Schema};
    use std::collections::HashMap;
    use std::sync::Arc;

    #[test]
    fn a_table_is_defined_by_the_batches_columns() {
        let fields = vec![
            Field::new("id", DataType::Int64, false),
            Field::new("the \"name\"", DataType::LargeUtf8, true),
            Field::new("price", DataType::Decimal128(10, 2), true),
        ];
        let target = Target { schema: "public".into(), table: "t".into() };
        let command = CommandStatementIngest::default();
        let columns = Arc::new(Schema::new(fields.clone()));
        let list = "\"id\" bigint, \"the \"\"name\"\"\" text, \"price\" numeric(10,2)";
        assert_eq!(
            definition(&command, &target, &columns).unwrap(),
            format!("CREATE TABLE \"public\".\"t\" ({list})")
        );
        let key = HashMap::from([(PRIMARY_KEY.to_owned(), "id, price".to_owned())]);
        let columns = Arc::new(Schema::new(fields).with_metadata(key));
        assert_eq!(
            definition(&command, &target, &columns).unwrap(),
            format!("CREATE TABLE \"public\".\"t\" ({list}, PRIMARY KEY (\"id\", \"price\"))")
        );
        let nested = DataType::List(Arc::new(Field::new("item", DataType::Int64, true)));
        let columns = Schema::new(vec![Field::new("a", nested, true)]);
        let command =
            CommandStatementIngest { options: [(PRIMARY_KEY.into(), "a".into())].into(), ..command };
        assert_eq!(definition(&command, &target, &Arc::new(columns)).unwrap_err().sqlstate(), "0A000");
    }
}
