//! A stored SSTable of each version of the format. Whoever changes the format adds a fixture; none is ever replaced.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "reads files as a stranger does")]

mod common;

use common::{TestRow, every_type, get, row_of, scan, sorted, write};
use oribi_env::Env;
use oribi_sstable::{Compression, Sstable, SstableMeta, SstableOptions};
use oribi_types::{ColumnType, Schema, Value};
use std::path::{Path, PathBuf};

/// In the folder of the package, where Cargo runs its tests: a name that was built in would be that of another clone, if that has built them.
fn fixtures(version: &str) -> PathBuf {
    ["tests", "fixtures", version].iter().collect()
}

fn rows(schema: &Schema) -> Vec<TestRow> {
    let value = |column: usize, n: i64| {
        let column_type = schema.columns()[column].column_type;
        let distinct = n * 31 % 17;
        match column_type {
            _ if schema.columns()[column].nullable && (n + column as i64) % 6 == 0 => Value::Null,
            ColumnType::Bool => Value::Bool(distinct % 2 == 0),
            ColumnType::Int8 => Value::Int8(distinct as i8 - 8),
            ColumnType::Int16 => Value::Int16(distinct as i16 * 1_000),
            ColumnType::Int32 => Value::Int32(n as i32 / 10 - 3),
            ColumnType::Int64 => Value::Int64(n << 40),
            ColumnType::Float => Value::Float(n as f32 / 4.0),
            ColumnType::Double => Value::Double(n as f64 / -8.0),
            ColumnType::Decimal { .. } => Value::Decimal(i128::from(distinct) * -99),
            ColumnType::String => Value::String(format!("s{distinct}")),
            ColumnType::Binary => Value::Binary(vec![0, n as u8, 0]),
            ColumnType::Date => Value::Date(20_000 + n as i32),
            ColumnType::Timestamp => Value::Timestamp(n * 1_000_000),
            ColumnType::Uuid => Value::Uuid([n as u8; 16]),
            ColumnType::Json => Value::Json(format!("[{distinct}]")),
        }
    };
    let row = |n: i64| {
        let values = (0..schema.columns().len()).map(|column| value(column, n)).collect();
        row_of(schema, values, 1_000 + n as u64 % 50)
    };
    sorted((0..90).map(row).collect())
}

#[test]
fn version_1() {
    check(&fixtures("v1"));
}

#[test]
fn version_2() {
    check(&fixtures("v2"));
}

fn check(fixtures: &Path) {
    let (schema, env) = (every_type(), Env::real());
    let rows = rows(&schema);
    let meta = std::fs::read_to_string(fixtures.join("meta.json")).unwrap();
    for meta in serde_json::from_str::<Vec<SstableMeta>>(&meta).unwrap() {
        let sstable = Sstable::open(&env, fixtures, &meta, &schema).unwrap();
        sstable.verify(&schema).unwrap();
        let expected: Vec<_> = rows.iter().map(|r| (r.values.clone(), r.ts)).collect();
        assert_eq!(scan(&sstable, &schema).unwrap(), expected);
        for (i, row) in rows.iter().enumerate() {
            assert_eq!(get(&sstable, &schema, &row.key).unwrap(), Some((i as u32, row.ts, row.row.clone())));
        }
    }
}

/// How the fixture of the newest version was made.
#[test]
#[ignore = "writes the fixture, for a version that has none yet"]
fn write_the_fixture() {
    let (schema, fixtures) = (every_type(), fixtures("v2"));
    std::fs::create_dir_all(&fixtures).unwrap();
    let metas: Vec<SstableMeta> = [Compression::None, Compression::Lz4, Compression::Zstd]
        .into_iter()
        .zip(1..)
        .map(|(compression, id)| {
            let options =
                SstableOptions { row_group_rows: 60, page_rows: 25, compression, ..Default::default() };
            write(&Env::real(), &fixtures, id, &schema, &options, &rows(&schema))
        })
        .collect();
    std::fs::write(fixtures.join("meta.json"), serde_json::to_string_pretty(&metas).unwrap()).unwrap();
}
