//! `oribi import` and `oribi sql`: into a folder, into a server, and over files without either.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics
#![allow(clippy::disallowed_methods)]

mod process;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use process::{Server, oribi, oribi_ok};
use std::path::PathBuf;
use std::sync::Arc;

struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Files { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.name(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

const CSV: &str =
    "id,name,price,day\n1,one,1.5,2024-01-02\n2,,2.5,2024-01-03\nthree,bad,3,2024-01-04\n4,four,4\n";

#[test]
fn rows_that_do_not_fit_are_kept_beside_the_file_with_line_and_reason() {
    let files = Files::new();
    // The first rows decide that id is a number, since types are inferred from what a table already has.
    let data = files.name("data");
    let create = "create table t (id bigint primary key, name text, price double precision, day date)";
    oribi_ok(&["sql", "--data", &data, "-c", create]);
    let said = oribi_ok(&["import", "t", &files.write("t.csv", CSV), "--data", &data]);
    assert!(said.contains("t: 2 rows") && said.contains("t.csv.rejected: 2 rows were refused"), "{said}");
    let rejected = std::fs::read_to_string(files.path("t.csv.rejected")).unwrap();
    let lines: Vec<Vec<&str>> = rejected.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines[0][0], "4");
    assert!(lines[0][1].contains("column \"id\"") && lines[0][2].starts_with("three,bad"), "{rejected}");
    assert_eq!(lines[1], ["5", "3 fields, not 4", "4,four,4"]);
    let rows = oribi_ok(&["sql", "--data", &data, "--format", "json", "-c", "select * from t order by id"]);
    assert_eq!(
        rows,
        "{\"id\":1,\"name\":\"one\",\"price\":1.5,\"day\":\"2024-01-02\"}\n\
         {\"id\":2,\"name\":null,\"price\":2.5,\"day\":\"2024-01-03\"}\n"
    );
}

#[test]
fn a_table_is_made_from_the_columns_of_a_file() {
    let files = Files::new();
    let data = files.name("data");
    let lines = files.write("d.jsonl", "{\"id\":1,\"tags\":[\"a\"],\"ok\":true}\n{\"id\":2,\"ok\":false}\n");
    let refused = oribi(&["import", "docs", &lines, "--data", &data]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--primary-key"));
    oribi_ok(&["import", "docs", &lines, "--primary-key", "id", "--data", &data]);
    let rows = oribi_ok(&[
        "sql",
        "--data",
        &data,
        "--format",
        "csv",
        "-c",
        "select id, ok, tags from docs order by id",
    ]);
    assert_eq!(rows, "id,ok,tags\n1,true,\"[\"\"a\"\"]\"\n2,false,\n");
    // The same key again is refused, and nothing of the file is kept.
    let again = oribi(&["import", "docs", &lines, "--data", &data]);
    assert!(!again.status.success());
    let count =
        oribi_ok(&["sql", "--data", &data, "--format", "csv", "-c", "select count(*) as n from docs"]);
    assert_eq!(count, "n\n2\n");
}

#[test]
fn parquet_goes_into_a_server_and_both_clients_read_it() {
    let files = Files::new();
    oribi_ok(&["generate", "--scale", "0.001", "--out", &files.name("tpch")]);
    let server = Server::start(&files.path("data"), &[]);
    let host = server.address("postgres");
    let said = oribi_ok(&[
        "import",
        "orders",
        &files.name("tpch/orders.parquet"),
        "--primary-key",
        "o_orderkey",
        "--host",
        host,
    ]);
    assert!(said.starts_with("orders: 1,500 rows"), "{said}");
    let query = "select count(*) as n, sum(o_totalprice) as total from orders";
    let through_server = oribi_ok(&["sql", "--host", host, "--format", "json", "-c", query]);
    let from_file = query.replace("orders", &format!("'{}'", files.name("tpch/orders.parquet")));
    assert_eq!(through_server, oribi_ok(&["sql", "--format", "json", "-c", &from_file]));
    let row = server.memcached().get("public/orders/1").unwrap().unwrap();
    assert!(row.starts_with("{\"o_orderkey\":1,\"o_custkey\":"), "{row}");
}

/// Writes a Parquet file; returns its name.
fn parquet(files: &Files, name: &str, columns: Vec<(&str, ArrayRef)>) -> String {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(column, array)| (column, array, true)),
    )
    .unwrap();
    let file = std::fs::File::create(files.path(name)).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    files.name(name)
}

#[test]
fn values_of_a_parquet_file_that_do_not_fit_are_refused_and_never_become_null() {
    let files = Files::new();
    let data = files.name("data");
    let create = "create table t (id int primary key, n int, x json, d text not null default 'new')";
    oribi_ok(&["sql", "--data", &data, "-c", create]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "id",
            Arc::new(Int64Array::from(vec![Some(1), Some(2), Some(3_000_000_000), None, Some(5), Some(6)])),
        ),
        (
            "n",
            Arc::new(Float64Array::from(vec![Some(1.0), Some(3e9), Some(3.0), Some(4.0), None, Some(1.5)])),
        ),
        ("x", Arc::new(StringArray::from(vec![Some("[1]"), None, None, None, Some("{}"), None]))),
    ];
    let said = oribi_ok(&["import", "t", &parquet(&files, "t.parquet", columns), "--data", &data]);
    assert!(said.contains("t: 2 rows") && said.contains("t.parquet.rejected: 4 rows"), "{said}");
    let rejected = std::fs::read_to_string(files.path("t.parquet.rejected")).unwrap();
    let lines: Vec<Vec<&str>> = rejected.lines().map(|line| line.split('\t').collect()).collect();
    let about: Vec<(&str, bool)> = ["column \"n\"", "column \"id\"", "column \"id\"", "column \"n\""]
        .iter()
        .zip(&lines)
        .map(|(column, line)| (line[0], line[1].contains(column)))
        .collect();
    assert_eq!(about, [("2", true), ("3", true), ("4", true), ("6", true)], "{rejected}");
    assert_eq!(lines[1][2], "3000000000,3.0,");
    let rows = oribi_ok(&["sql", "--data", &data, "--format", "csv", "-c", "select * from t order by id"]);
    assert_eq!(rows, "id,n,x,d\n1,1,[1],new\n5,,{},new\n");
}
