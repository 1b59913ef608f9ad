//! The data file is plain Parquet: the stock reader of the Parquet crate, told nothing, reads it.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "reads files as a stranger does")]

mod common;

use arrow::datatypes::DataType;
use common::{every_type, generate, sstable};
use oribi_sstable::SstableOptions;
use oribi_types::batch::{BatchBuilder, TS_FIELD_ID};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Encoding, LogicalType};

#[test]
fn by_the_stock_reader() {
    let schema = every_type();
    let rows = generate(&schema, 3_000, 1);
    let dir = tempfile::tempdir().unwrap();
    let sstable = sstable(dir.path(), &schema, &SstableOptions::default(), &rows);

    let file = std::fs::File::open(sstable.path()).unwrap();
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let descriptor = builder.parquet_schema();
    let logical = |name: &str| {
        let column = descriptor.columns().iter().find(|c| c.name() == name).unwrap();
        column.logical_type_ref().cloned()
    };
    assert_eq!(logical("uuid"), Some(LogicalType::Uuid));
    assert_eq!(logical("json"), Some(LogicalType::Json));
    assert_eq!(logical("string"), Some(LogicalType::String));
    assert_eq!(logical("binary"), None);
    let ids: Vec<i32> = descriptor.columns().iter().map(|c| c.self_type().get_basic_info().id()).collect();
    let expected: Vec<i32> = schema.columns().iter().map(|c| c.id as i32).chain([TS_FIELD_ID]).collect();
    assert_eq!(ids, expected);
    assert_eq!(builder.schema().field_with_name("string").unwrap().data_type(), &DataType::Utf8);

    let metadata = builder.metadata().clone();
    let key_values = metadata.file_metadata().key_value_metadata().unwrap();
    assert!(key_values.iter().any(|kv| kv.key == "oribi.schema"));
    assert!(key_values.iter().all(|kv| kv.key != "ARROW:schema"));
    for group in metadata.row_groups() {
        let k1 = group.columns().iter().find(|c| c.column_descr().name() == "k1").unwrap();
        assert!(k1.encodings().all(|e| matches!(e, Encoding::DELTA_BINARY_PACKED | Encoding::RLE)));
        let k2 = group.columns().iter().find(|c| c.column_descr().name() == "k2").unwrap();
        assert!(k2.encodings().all(|e| matches!(e, Encoding::PLAIN | Encoding::RLE)));
        assert!(k1.dictionary_page_offset().is_none() && k1.statistics().is_some());
        assert_eq!(group.sorting_columns().unwrap().len(), 3);
    }

    let all: Vec<usize> = (0..schema.columns().len()).collect();
    let mut expected = BatchBuilder::new(&schema, &all, true);
    for row in &rows {
        expected.push(&row.key, &row.row, row.ts).unwrap();
    }
    let expected = expected.finish().unwrap();
    let batches: Vec<_> = builder.with_batch_size(10_000).build().unwrap().map(|b| b.unwrap()).collect();
    assert_eq!(batches.len(), 1);
    for (i, column) in expected.columns().iter().enumerate() {
        let read = arrow::compute::cast(batches[0].column(i), column.data_type()).unwrap();
        assert_eq!(&read, column, "column {i}");
    }
}
