//! Any row operations under any columns: they are read or refused, and what is read is built again and reads as itself.
//! As bounds of ranges they make ranges or are refused.
#![no_main]

mod feed;

use feed::Feed;
use libfuzzer_sys::fuzz_target;
use oribi_kudu::column::WireColumn;
use oribi_kudu::partition::{PartitionSchema, TABLETS_MAX};
use oribi_kudu::row_operations::{OperationLayout, OperationReader, OperationsBuilder, PartialRow};
use oribi_types::ColumnType;
use std::sync::Arc;

const TYPES: [ColumnType; 16] = [
    ColumnType::Bool,
    ColumnType::Int8,
    ColumnType::Int16,
    ColumnType::Int32,
    ColumnType::Int64,
    ColumnType::Float,
    ColumnType::Double,
    ColumnType::Decimal { precision: 2, scale: 1 },
    ColumnType::Decimal { precision: 18, scale: 0 },
    ColumnType::Decimal { precision: 38, scale: 9 },
    ColumnType::String,
    ColumnType::Binary,
    ColumnType::Date,
    ColumnType::Timestamp,
    ColumnType::Uuid,
    ColumnType::Json,
];

fuzz_target!(|input: &[u8]| {
    let mut feed = Feed::new(input);
    let columns: Vec<WireColumn> = feed
        .short()
        .iter()
        .enumerate()
        .map(|(i, b)| WireColumn::new(format!("c{i}"), TYPES[usize::from(b & 15)], b & 16 != 0))
        .collect();
    let (rows, indirect) = (feed.bytes(), feed.bytes());
    let layout = Arc::new(OperationLayout::new(columns.clone()));
    let mut built = OperationsBuilder::new(layout.clone());
    let mut reader = OperationReader::new(&layout, rows, indirect);
    while let Ok(Some(operation)) = reader.read() {
        let mut writer = built.begin(operation.operation_type);
        for (i, value) in operation.values.iter().enumerate() {
            if let Some(value) = value {
                writer.set(i, *value).expect("what was read fits its column");
            }
        }
        writer.finish();
    }
    let mut again = OperationReader::new(&layout, built.rows(), built.indirect());
    let mut count = 0;
    while again.read().expect("what was built is read").is_some() {
        count += 1;
    }
    assert_eq!(count, built.len());
    // A value that cannot be spoils its row only, so that there are as many rows as before it, and more.
    let mut by_row = OperationReader::new(&layout, rows, indirect);
    let mut good = 0;
    while let Ok(Some(row)) = by_row.read_row() {
        good += usize::from(row.is_ok());
    }
    assert!(good >= built.len());

    let key = columns.iter().take_while(|c| !c.nullable).count();
    let Ok(schema) = PartitionSchema::new(&columns[..key], vec![], (0..key).collect(), vec![]) else { return };
    if let Ok(ranges) = schema.range_keys().ranges(&mut OperationReader::new(&layout, rows, indirect)) {
        let partitions = schema.partitions(&ranges);
        assert!(partitions.is_ok_and(|p| p.len() == ranges.len()) || ranges.len() > TABLETS_MAX);
    }
});
