//! Everything that a client offers, against clusters.
#![allow(clippy::unwrap_used)]

mod cluster;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Decimal128Type, Int32Type, Int64Type, TimestampMicrosecondType};
use cluster::with_each_cluster;
use oribi_client::*;
use oribi_types::{ColumnType, ErrorKind, Value};
use std::time::{Duration, Instant};

/// A table of that name, made anew.
async fn create(client: &Client, definition: CreateTable, name: &str) -> Table {
    match client.delete_table(name).await {
        Ok(()) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
    }
    client.create_table(definition.replicas(1)).await.unwrap()
}

async fn read(scan: Scan) -> Vec<RecordBatch> {
    let (mut scanner, mut batches) = (scan.scanner(), Vec::new());
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        batches.push(batch);
    }
    batches
}

async fn keys(scan: Scan) -> Vec<i64> {
    let mut keys = Vec::new();
    for batch in read(scan).await {
        keys.extend_from_slice(batch.column_by_name("key").unwrap().as_primitive::<Int64Type>().values());
    }
    keys.sort_unstable();
    keys
}

async fn upsert(session: &mut Session, table: &Table, key: i64) {
    let mut row = session.upsert(table);
    row.set_i64(0, key).unwrap();
    row.apply().await.unwrap();
}

#[test]
fn values_of_every_type_come_back() {
    with_each_cluster(async |client| types(&client).await);
}

async fn types(client: &Client) {
    let name = "client_types";
    let numeric = |precision| ColumnType::Decimal { precision, scale: 2 };
    let types = [
        (ColumnType::Bool, Value::Bool(true)),
        (ColumnType::Int8, Value::Int8(-8)),
        (ColumnType::Int16, Value::Int16(-16)),
        (ColumnType::Int32, Value::Int32(-32)),
        (ColumnType::Float, Value::Float(1.5)),
        (ColumnType::Double, Value::Double(-2.5)),
        (ColumnType::Date, Value::Date(19_000)),
        (ColumnType::Timestamp, Value::Timestamp(1_700_000_000_000_000)),
        (numeric(9), Value::Decimal(-12_345)),
        (numeric(18), Value::Decimal(1_234_567_890_123)),
        (numeric(38), Value::Decimal(-12_345_678_901_234_567_890_123)),
        (ColumnType::String, Value::String("grüße".into())),
        (ColumnType::Binary, Value::Binary(vec![0, 1, 255])),
    ];
    let mut definition = CreateTable::new(name)
        .column(Column::new("key", ColumnType::Int64).key())
        .column(Column::new("name", ColumnType::String).key())
        .hash(&["key", "name"], 3);
    for (i, (column_type, _)) in types.iter().enumerate() {
        definition = definition.column(Column::new(format!("c{i}"), *column_type));
    }
    let table = create(client, definition, name).await;
    let mut session = client.session(SessionOptions::default());
    for key in 0..100 {
        let text = format!("name {key}");
        let mut row = session.insert(&table);
        row.set_i64(0, key).unwrap();
        row.set_str(1, &text).unwrap();
        for (i, (_, value)) in types.iter().enumerate() {
            match key % 3 {
                0 => row.set(2 + i, value.as_ref()).unwrap(),
                1 => row.set_null(2 + i).unwrap(),
                _ => {}
            }
        }
        row.apply().await.unwrap();
    }
    session.flush().await.unwrap();
    for is_columnar in [false, true] {
        let batches = read(table.scan().read_mode(ReadMode::YourWrites).columnar(is_columnar)).await;
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 100);
        for batch in &batches {
            let keys = batch.column(0).as_primitive::<Int64Type>();
            for row in 0..batch.num_rows() {
                let key = keys.value(row);
                assert_eq!(batch.column(1).as_string::<i32>().value(row), format!("name {key}"));
                assert!((2..15).all(|column| batch.column(column).is_valid(row) == (key % 3 == 0)));
                if key % 3 == 0 {
                    assert_eq!(batch.column(5).as_primitive::<Int32Type>().value(row), -32);
                    let timestamp = batch.column(9).as_primitive::<TimestampMicrosecondType>().value(row);
                    assert_eq!(timestamp, 1_700_000_000_000_000);
                    assert_eq!(batch.column(10).as_primitive::<Decimal128Type>().value(row), -12_345);
                    let wide = batch.column(12).as_primitive::<Decimal128Type>().value(row);
                    assert_eq!(wide, -12_345_678_901_234_567_890_123);
                    assert_eq!(batch.column(13).as_string::<i32>().value(row), "grüße");
                    assert_eq!(batch.column(14).as_binary::<i32>().value(row), [0, 1, 255]);
                }
            }
        }
    }
    client.delete_table(name).await.unwrap();
}

#[test]
fn predicates_projections_limits_and_tokens() {
    with_each_cluster(async |client| scans(&client).await);
}

async fn scans(client: &Client) {
    let name = "client_scans";
    let definition = CreateTable::new(name)
        .column(Column::new("key", ColumnType::Int64).key())
        .column(Column::new("third", ColumnType::Int64))
        .hash(&["key"], 4);
    let table = create(client, definition, name).await;
    let mut session = client.session(SessionOptions::default());
    for key in 0..30_000 {
        let mut row = session.insert(&table);
        row.set_i64(0, key).unwrap();
        if key % 3 == 0 {
            row.set_i64(1, key / 3).unwrap();
        }
        row.apply().await.unwrap();
    }
    session.flush().await.unwrap();
    let scan = || table.scan().read_mode(ReadMode::YourWrites);
    let below = scan().filter("key", Compare::Less, Value::Int64(7)).unwrap();
    assert_eq!(keys(below).await, (0..7).collect::<Vec<_>>());
    let above = scan().filter("key", Compare::Greater, Value::Int64(29_997)).unwrap();
    assert_eq!(keys(above).await, [29_998, 29_999]);
    let listed = scan().filter_in("third", vec![Value::Int64(5), Value::Int64(2), Value::Int64(-1)]).unwrap();
    assert_eq!(keys(listed.project(&["key"]).unwrap()).await, [6, 15]);
    let null =
        scan().filter_null("third", true).unwrap().filter("key", Compare::LessOrEqual, Value::Int64(4));
    assert_eq!(keys(null.unwrap()).await, [1, 2, 4]);
    assert_eq!(keys(scan().limit(17)).await.len(), 17);
    let ordered = scan().fault_tolerant().batch_bytes(20_000);
    assert_eq!(keys(ordered).await, (0..30_000).collect::<Vec<_>>());
    let count = read(scan().project(&[]).unwrap()).await;
    assert_eq!(count.iter().map(RecordBatch::num_rows).sum::<usize>(), 30_000);
    let tokens = scan().tokens().await.unwrap();
    assert_eq!(tokens.len(), 4);
    let mut rows = 0;
    for token in tokens {
        let mut scanner = ScanToken::deserialize(client, &token.serialize()).await.unwrap().scanner();
        while let Some(batch) = scanner.next_batch().await.unwrap() {
            rows += batch.num_rows();
        }
    }
    assert_eq!(rows, 30_000);
    client.delete_table(name).await.unwrap();
}

#[test]
fn errors_of_rows_and_the_operations_that_have_none() {
    with_each_cluster(async |client| operations(&client).await);
}

async fn operations(client: &Client) {
    let name = "client_errors";
    let definition = CreateTable::new(name)
        .column(Column::new("key", ColumnType::Int64).key())
        .column(Column::new("v", ColumnType::Int64))
        .hash(&["key"], 2);
    let table = create(client, definition, name).await;
    let mut session = client.session(SessionOptions { mode: FlushMode::Sync, ..SessionOptions::default() });
    let outcomes = [
        (OperationType::Insert, 1, None),
        (OperationType::Insert, 1, Some(ErrorKind::AlreadyExists)),
        (OperationType::InsertIgnore, 1, None),
        (OperationType::Update, 2, Some(ErrorKind::NotFound)),
        (OperationType::UpdateIgnore, 2, None),
        (OperationType::Upsert, 2, None),
        (OperationType::Update, 2, None),
        (OperationType::Delete, 2, None),
        (OperationType::Delete, 2, Some(ErrorKind::NotFound)),
        (OperationType::DeleteIgnore, 2, None),
    ];
    for (operation, key, expected) in outcomes {
        let mut row = session.row(&table, operation);
        row.set_i64(0, key).unwrap();
        if !matches!(operation, OperationType::Delete | OperationType::DeleteIgnore) {
            row.set_i64(1, 5).unwrap();
        }
        let error = row.apply().await.err().map(|error| error.kind());
        assert_eq!(error, expected, "{operation:?} of {key}");
        session.take_errors();
    }
    assert_eq!(keys(table.scan().read_mode(ReadMode::YourWrites)).await, [1]);
    client.delete_table(name).await.unwrap();
}

#[test]
fn tables_change() {
    with_each_cluster(async |client| changes(&client).await);
}

async fn changes(client: &Client) {
    let name = "client_alter";
    let int = |v| [Value::Int64(v)];
    let definition = || {
        CreateTable::new(name)
            .column(Column::new("key", ColumnType::Int64).key())
            .column(Column::new("v", ColumnType::Int32).with_default(Value::Int32(7)))
            .hash(&["key"], 2)
            .range(&["key"])
            .range_partition(&int(0), &int(10))
            .range_partition(&int(10), &int(20))
    };
    let table = create(client, definition(), name).await;
    assert_eq!(client.create_table(definition()).await.err().unwrap().kind(), ErrorKind::AlreadyExists);
    let mut session = client.session(SessionOptions::default());
    for key in 0..20 {
        upsert(&mut session, &table, key).await;
    }
    session.flush().await.unwrap();
    let batches = read(table.scan().read_mode(ReadMode::YourWrites)).await;
    assert!(batches.iter().all(|b| b.column(1).as_primitive::<Int32Type>().values().iter().all(|v| *v == 7)));
    let mut row = session.upsert(&table);
    row.set_i64(0, 25).unwrap();
    assert_eq!(row.apply().await.unwrap_err().kind(), ErrorKind::NotFound);

    let ranges =
        AlterTable::new().add_range_partition(&int(20), &int(30)).drop_range_partition(&int(0), &int(10));
    client.alter_table(name, ranges).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    // A table that was opened before knows of its ranges, at once. Kudu takes rows of the one that was dropped until its servers
    // have deleted the tablets.
    let error = loop {
        for key in [5, 15, 25] {
            upsert(&mut session, &table, key).await;
        }
        match session.flush().await {
            Ok(()) => assert!(Instant::now() < deadline, "a range that was dropped takes rows"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let errors = session.take_errors().errors;
    assert_eq!(errors.iter().map(RowError::key).collect::<Vec<_>>(), ["5"]);
    let columns = AlterTable::new()
        .add_column(&Column::new("w", ColumnType::String).not_null().with_default(Value::String("w".into())))
        .rename_column("v", "u");
    client.alter_table(name, columns).await.unwrap();
    let table = client.open_table(name).await.unwrap();
    assert_eq!(table.columns().iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["key", "u", "w"]);
    upsert(&mut session, &table, 25).await;
    session.flush().await.unwrap();
    let expected: Vec<i64> = (10..20).chain([25]).collect();
    assert_eq!(keys(table.scan().read_mode(ReadMode::YourWrites)).await, expected);
    let other = format!("{name}_2");
    client.alter_table(name, AlterTable::new().drop_column("u").rename(&other)).await.unwrap();
    assert_eq!(client.open_table(name).await.err().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(client.open_table(&other).await.unwrap().columns().len(), 2);
    assert_eq!(client.list_tables(name).await.unwrap()[0].name, other);
    client.delete_table(&other).await.unwrap();
    assert!(client.list_tables(name).await.unwrap().is_empty());
}
