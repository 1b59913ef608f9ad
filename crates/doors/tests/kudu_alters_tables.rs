//! Changes of tables through the Kudu door, as clients state them.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "a client of a test runs on a thread of its own")]

mod kudu_client;

use kudu_client::{Client, Subject, column, named};
use oribi_engine::Alteration;
use oribi_kudu::column::{DataType, WireColumn};
use oribi_kudu::messages::common::{
    ColumnIdentifier, ColumnSchema, ColumnSchemaDelta, PartitionSchema, RangeSchema, RowOperations, Schema,
    StatusCode,
};
use oribi_kudu::messages::master::{
    AddColumn, AddRangePartition, AlterColumn, AlterTableRequest, AlterTableResponse, AlterTableStep,
    CreateTableRequest, CreateTableResponse, DropColumn, DropRangePartition, GetTableSchemaRequest,
    GetTableSchemaResponse, MasterErrorCode, StepType,
};
use oribi_kudu::row_operations::PartialRow;
use oribi_kudu::row_operations::{OperationLayout, OperationType, OperationsBuilder};
use oribi_kudu::service::MasterMethod;
use oribi_types::{ColumnType, ValueRef};
use std::sync::Arc;

/// Columns k (bigint key) and n (int).
fn columns() -> Vec<ColumnSchema> {
    vec![column("k", DataType::Int64, true), column("n", DataType::Int32, false)]
}

/// The range from `lower` on and below `upper`, as rows of [`columns`].
fn bounds(lower: i64, upper: i64) -> RowOperations {
    let wire =
        vec![WireColumn::new("k", ColumnType::Int64, false), WireColumn::new("n", ColumnType::Int32, true)];
    let mut builder = OperationsBuilder::new(Arc::new(OperationLayout::new(wire)));
    let bounds = [(OperationType::RangeLowerBound, lower), (OperationType::RangeUpperBound, upper)];
    for (bound, value) in bounds {
        let mut row = builder.begin(bound);
        row.set(0, ValueRef::Int64(value)).unwrap();
        row.finish();
    }
    let (rows, indirect) = builder.into_parts();
    RowOperations { rows: Some(rows.into()), indirect_data: Some(indirect.into()) }
}

/// Creates a table of [`columns`] with the range 0 to 10.
fn create(client: &mut Client) {
    let request = CreateTableRequest {
        name: "t".into(),
        schema: Schema { columns: columns() },
        split_rows_range_bounds: Some(bounds(0, 10)),
        partition_schema: Some(PartitionSchema {
            range_schema: Some(RangeSchema { columns: vec![ColumnIdentifier::name("k")] }),
            ..PartitionSchema::default()
        }),
        ..CreateTableRequest::default()
    };
    let created: CreateTableResponse = client.master(MasterMethod::CreateTable, &request);
    assert_eq!(created.error, None);
}

fn add(range: RowOperations) -> AlterTableStep {
    let add = AddRangePartition { range_bounds: Some(range), ..AddRangePartition::default() };
    AlterTableStep {
        step_type: Some(StepType::AddRangePartition.into()),
        add_range_partition: Some(add),
        ..AlterTableStep::default()
    }
}

fn drop_range(range: RowOperations) -> AlterTableStep {
    AlterTableStep {
        step_type: Some(StepType::DropRangePartition.into()),
        drop_range_partition: Some(DropRangePartition { range_bounds: Some(range) }),
        ..AlterTableStep::default()
    }
}

/// The codes of the answer to a change by these steps.
fn alter(client: &mut Client, steps: Vec<AlterTableStep>) -> Result<(), (MasterErrorCode, StatusCode)> {
    alter_as(client, AlterTableRequest { alter_schema_steps: steps, ..AlterTableRequest::default() })
}

fn alter_as(client: &mut Client, request: AlterTableRequest) -> Result<(), (MasterErrorCode, StatusCode)> {
    let schema = Some(Schema { columns: columns() });
    let request = AlterTableRequest { table: named("t"), schema, ..request };
    let altered: AlterTableResponse = client.master(MasterMethod::AlterTable, &request);
    altered.error.map_or(Ok(()), |error| {
        Err((error.code.try_into().unwrap(), StatusCode::try_from(error.status.code).unwrap()))
    })
}

fn describe(client: &mut Client) -> GetTableSchemaResponse {
    let request = GetTableSchemaRequest { table: named("t") };
    client.master(MasterMethod::GetTableSchema, &request)
}

#[test]
fn bounds_are_read_by_the_columns_that_come_with_them() {
    let subject = Subject::new();
    let mut client = subject.client();
    create(&mut client);
    // Without it no column is nullable, and rows have no bitmap of nulls; this client does not know.
    subject.engine.alter_table("public", "t", &Alteration::DropColumn("n".into())).unwrap();
    assert_eq!(alter(&mut client, vec![add(bounds(10, 20)), drop_range(bounds(0, 10))]), Ok(()));
    let table = subject.engine.table("public", "t").unwrap();
    let ranges = table.definition().partitioning.ranges().to_vec();
    let key = |k: i64| (k ^ i64::MIN).to_be_bytes().to_vec();
    assert_eq!(ranges.len(), 1);
    assert_eq!((&ranges[0].lower, ranges[0].upper.as_ref()), (&key(10), Some(&key(20))));
}

#[test]
fn a_range_that_is_not_there_is_an_invalid_argument() {
    let subject = Subject::new();
    let mut client = subject.client();
    create(&mut client);
    let invalid = Err((MasterErrorCode::InvalidSchema, StatusCode::InvalidArgument));
    assert_eq!(alter(&mut client, vec![drop_range(bounds(0, 9))]), invalid);
    assert_eq!(alter(&mut client, vec![drop_range(bounds(0, 10))]), Ok(()));
}

fn drop_column(name: &str) -> AlterTableStep {
    AlterTableStep {
        step_type: Some(StepType::DropColumn.into()),
        drop_column: Some(DropColumn { name: name.into() }),
        ..AlterTableStep::default()
    }
}

fn add_column(name: &str) -> AlterTableStep {
    AlterTableStep {
        step_type: Some(StepType::AddColumn.into()),
        add_column: Some(AddColumn { schema: column(name, DataType::String, false) }),
        ..AlterTableStep::default()
    }
}

fn change_column(delta: ColumnSchemaDelta) -> AlterTableStep {
    AlterTableStep {
        step_type: Some(StepType::AlterColumn.into()),
        alter_column: Some(AlterColumn { delta: Some(delta) }),
        ..AlterTableStep::default()
    }
}

#[test]
fn a_change_is_made_as_a_whole_or_not_at_all() {
    let subject = Subject::new();
    let mut client = subject.client();
    create(&mut client);
    client.create("other", 1);
    let version = subject.engine.catalog_version();
    let not_found = Err((MasterErrorCode::InvalidSchema, StatusCode::NotFound));
    assert_eq!(alter(&mut client, vec![add_column("a"), drop_column("b")]), not_found);
    let present = Err((MasterErrorCode::TableAlreadyPresent, StatusCode::AlreadyPresent));
    let rename = AlterTableRequest {
        alter_schema_steps: vec![add_column("a"), drop_range(bounds(0, 10))],
        new_table_name: Some("other".into()),
        ..AlterTableRequest::default()
    };
    assert_eq!(alter_as(&mut client, rename), present);
    assert_eq!(subject.engine.catalog_version(), version);
    assert_eq!(alter(&mut client, vec![add_column("a"), add_column("b"), drop_column("n")]), Ok(()));
    assert_eq!(subject.engine.catalog_version(), version + 1);
    let columns = describe(&mut client).schema.unwrap().columns;
    assert_eq!(columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["k", "a", "b"]);
}

#[test]
fn what_is_said_of_a_column_is_told_again() {
    let subject = Subject::new();
    let mut client = subject.client();
    create(&mut client);
    let delta = |comment: &str, encoding| ColumnSchemaDelta {
        name: Some("n".into()),
        new_comment: Some(comment.into()),
        encoding: Some(encoding),
        ..ColumnSchemaDelta::default()
    };
    let mut told = |delta| {
        assert_eq!(alter(&mut client, vec![change_column(delta)]), Ok(()));
        let column = describe(&mut client).schema.unwrap().columns.remove(1);
        (column.comment, column.encoding)
    };
    assert_eq!(told(delta("counts", 4)), (Some("counts".into()), Some(4)));
    assert_eq!(told(delta("", 0)), (None, None));
}
