//! `FROM 'file'` reads a file where that is allowed, and only there.

use crate::db::Db;
use arrow::array::{Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use std::fs;
use std::sync::Arc;

#[tokio::test]
async fn parquet_csv_and_json_lines() {
    let db = Db::with_file_tables();
    let dir = tempfile::tempdir().unwrap();
    let batch = RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![1, 2, 3])) as _)]).unwrap();
    let file = fs::File::create(dir.path().join("a.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    fs::write(dir.path().join("b.csv"), "n,s\n4,x\n5,y\n").unwrap();
    fs::write(dir.path().join("c.json"), "{\"n\": 6}\n{\"n\": 7}\n").unwrap();
    db.run("create table t (n bigint primary key)").await;
    db.run("insert into t values (2)").await;
    let path = |name: &str| dir.path().join(name).display().to_string();
    for (name, expected) in [("a.parquet", "3|6"), ("b.csv", "2|9"), ("c.json", "2|13")] {
        let sql = format!("select count(*), sum(n) from '{}'", path(name));
        assert_eq!(db.rows(&sql).await, [expected], "{name}");
    }
    let sql = format!("select f.n from '{}' f join t on t.n = f.n", path("a.parquet"));
    assert_eq!(db.rows(&sql).await, ["2"]);
}

#[tokio::test]
async fn a_server_reads_no_files_for_its_clients() {
    let db = Db::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("b.csv");
    fs::write(&path, "n\n4\n").unwrap();
    let error = db.try_rows(&format!("select * from '{}'", path.display()), &[]).await.unwrap_err();
    assert_eq!(error.sqlstate, Some("42P01"), "{error}");
}
