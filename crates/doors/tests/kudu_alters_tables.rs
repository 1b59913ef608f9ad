//! Changes of tables through the Kudu door, as clients state them.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "a client of a test runs on a thread of its own")]

mod kudu_client;

use kudu_client::{Client, Subject, column, named};
use oribi_engine::Alteration;
use oribi_kudu::column::{DataType, WireColumn};
use oribi_kudu::messages::common::{
    ColumnIdentifier, ColumnSchema, PartitionSchema, RangeSchema, RowOperations, Schema, StatusCode,
};
use oribi_kudu::messages::master::{
    AddRangePartition, AlterTableRequest, AlterTableResponse, AlterTableStep, CreateTableRequest,
    CreateTableResponse, DropRangePartition, GetTableSchemaRequest, GetTableSchemaResponse, MasterErrorCode,
    StepType,
};
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
    let wire = vec![
        WireColumn::new("k", ColumnType::Int64, false),
        WireColumn::new("n", ColumnType::Int32, true),
    ];
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
    let request = GetTableSchemaRequest { table: named("t"), ..GetTableSchemaRequest::default() };
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
