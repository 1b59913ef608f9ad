//! `oribi import` and `oribi sql`: into a folder, into a server, and over files without either.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics
#![allow(clippy::disallowed_methods)]

mod process;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use process::{Server, Sql, import_refuses, oribi, oribi_ok};
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
    let said = import_refuses(&["import", "t", &files.write("t.csv", CSV), "--data", &data]);
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

const MALFORMED_CSV: &[u8] = b"id,name\n1,one\n2\n3,\xff\n4,four,4\n5,five\n6,\"open\n7,seven\n";
const MALFORMED_LINES: &[u8] =
    b"{\"id\":1,\"name\":\"one\"}\n{\"id\":2\nnot json\n[3]\n{\"id\":\xff}\n{\"id\":5,\"name\":\"five\"}\n";

/// Imports `file` into the new table `t`, with a way in of `to`; checks that what is well formed is there.
#[track_caller]
fn check_malformed(files: &Files, name: &str, text: &[u8], to: [&str; 2], refused: &[(&str, &str)]) {
    std::fs::write(files.path(name), text).unwrap();
    let said = import_refuses(&["import", "t", &files.name(name), "--primary-key", "id", to[0], to[1]]);
    assert!(said.contains("t: 2 rows"), "{said}");
    assert!(said.contains(&format!("{name}.rejected: {} rows were refused", refused.len())), "{said}");
    let rejected = std::fs::read_to_string(files.path(&format!("{name}.rejected"))).unwrap();
    let lines: Vec<Vec<&str>> = rejected.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), refused.len(), "{rejected}");
    for (line, (number, reason)) in lines.iter().zip(refused) {
        assert!(line[0] == *number && line[1].contains(reason), "{number} {reason}: {rejected}");
    }
}

const REFUSED_CSV: [(&str, &str); 4] =
    [("3", "1 fields, not 2"), ("4", "UTF-8"), ("5", "3 fields, not 2"), ("7", "a quote is not closed")];
const REFUSED_LINES: [(&str, &str); 4] =
    [("2", "invalid json"), ("3", "json object"), ("4", "json object"), ("5", "invalid json")];

#[test]
fn a_malformed_line_is_refused_and_a_table_made_of_the_others() {
    for (name, text, refused) in
        [("m.csv", MALFORMED_CSV, &REFUSED_CSV), ("m.jsonl", MALFORMED_LINES, &REFUSED_LINES)]
    {
        let files = Files::new();
        let data = files.name("data");
        check_malformed(&files, name, text, ["--data", &data], refused);
        let rows =
            oribi_ok(&["sql", "--data", &data, "--format", "csv", "-c", "select * from t order by id"]);
        assert_eq!(rows, "id,name\n1,one\n5,five\n");
    }
}

#[test]
fn a_malformed_line_is_refused_on_its_way_to_a_server_too() {
    let files = Files::new();
    let server = Server::start(&files.path("data"), &[]);
    let sql = Sql::connect(server.address("postgres"));
    for to in [["--host", server.address("postgres")], ["--master", server.address("kudu-master")]] {
        check_malformed(&files, "m.csv", MALFORMED_CSV, to, &REFUSED_CSV);
        sql.execute("delete from t").unwrap();
        // The table is there now.
        check_malformed(&files, "m.jsonl", MALFORMED_LINES, to, &REFUSED_LINES);
        sql.execute("drop table t").unwrap();
    }
}

#[test]
fn members_of_several_kinds_make_a_column_that_holds_them() {
    let files = Files::new();
    let data = files.name("data");
    let lines = "{\"id\":1,\"a\":1,\"b\":1,\"c\":null}\n{\"id\":2,\"a\":{\"x\":1},\"b\":1.5}\n{\"id\":3,\"a\":\"s\"}\n";
    oribi_ok(&["import", "t", &files.write("k.jsonl", lines), "--primary-key", "id", "--data", &data]);
    let rows =
        oribi_ok(&["sql", "--data", &data, "--format", "json", "-c", "select a, b, c from t order by id"]);
    assert_eq!(
        rows,
        "{\"a\":1,\"b\":1,\"c\":null}\n{\"a\":{\"x\":1},\"b\":1.5,\"c\":null}\n{\"a\":\"s\",\"b\":null,\"c\":null}\n"
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
    let rows =
        oribi_ok(&["sql", "--data", &data, "--format", "json", "-c", "select tags from docs where id = 1"]);
    assert_eq!(rows, "{\"tags\":[\"a\"]}\n");
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

#[test]
fn rows_go_to_tablets_one_by_one_and_those_that_are_there_are_refused() {
    let files = Files::new();
    let server = Server::start(&files.path("data"), &[]);
    let (host, master) = (server.address("postgres"), server.address("kudu-master"));
    let import = |file| ["import", "t", file, "--primary-key", "id", "--master", master];
    let first = files.write("a.csv", "name,id\none,1\n\"two, too\",2\n,3\n");
    let said = oribi_ok(&import(&first));
    assert!(said.contains("t: 3 rows") && !said.contains("refused"), "{said}");
    let second = files.write("b.csv", "id,name\n2,again\nx,y\n4,four\n");
    let said = import_refuses(&import(&second));
    assert!(said.contains("t: 1 rows") && said.contains("b.csv.rejected: 2 rows were refused"), "{said}");
    let rejected = std::fs::read_to_string(files.path("b.csv.rejected")).unwrap();
    let lines: Vec<Vec<&str>> = rejected.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!((lines[0][0], lines[1][0], lines[1][2]), ("3", "-", "2,again"), "{rejected}");
    assert!(lines[1][1].contains("already present"), "{rejected}");
    let rows = oribi_ok(&["sql", "--host", host, "--format", "csv", "-c", "select * from t order by id"]);
    assert_eq!(rows, "id,name\n1,one\n2,\"two, too\"\n3,\n4,four\n");
}

#[test]
fn of_very_many_rows_that_are_refused_the_last_are_only_counted() {
    const TOLD: usize = 100_000;
    let files = Files::new();
    let server = Server::start(&files.path("data"), &[]);
    let master = server.address("kudu-master");
    let rows: String = (0..TOLD + 7).map(|id| format!("{id}\n")).collect();
    let file = files.write("ids.csv", &format!("id\n{rows}"));
    let import = ["import", "t", &file, "--primary-key", "id", "--master", master];
    let said = oribi_ok(&import);
    assert!(said.contains("t: 100,007 rows") && !said.contains("refused"), "{said}");
    let said = import_refuses(&import);
    assert!(said.contains("t: 0 rows") && said.contains("100,007 rows were refused"), "{said}");
    let rejected = std::fs::read_to_string(files.path("ids.csv.rejected")).unwrap();
    let lines: Vec<&str> = rejected.lines().collect();
    assert_eq!(lines.len(), TOLD + 1);
    assert!(lines[..TOLD].iter().all(|line| line.contains("already present")));
    assert_eq!(lines[TOLD], "-\t7 more rows were refused\t");
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
    let said = import_refuses(&["import", "t", &parquet(&files, "t.parquet", columns), "--data", &data]);
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

#[test]
fn an_import_into_a_server_is_all_or_nothing() {
    let files = Files::new();
    // Much more than a server gathers before it writes SSTables, and the last row repeats the first one's key.
    let text = "x".repeat(3000);
    let mut csv = "id,text\n".to_owned();
    (0..9000).chain([0]).for_each(|id| csv += &format!("{id},{text}\n"));
    let csv = files.write("t.csv", &csv);
    let server = Server::start(&files.path("data"), &[]);
    let sql = Sql::connect(server.address("postgres"));
    sql.execute("create table t (id bigint primary key, text text)").unwrap();
    let refused = oribi(&["import", "t", &csv, "--host", server.address("postgres")]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("t_pkey"), "{said}");
    assert_eq!(sql.rows("select count(*) from t"), [[Some("0".to_owned())]]);
}

#[test]
fn a_server_describes_key_nulls_and_defaults_to_an_import() {
    let files = Files::new();
    let server = Server::start(&files.path("data"), &[]);
    let host = server.address("postgres");
    let sql = Sql::connect(host);
    sql.execute(
        "create table t (note text, id bigint primary key, n int not null default 7, s text default 'it''s new')",
    )
    .unwrap();
    oribi_ok(&["import", "t", &files.write("a.csv", "id,note\n1,one\n2,\n"), "--host", host]);
    let lines = files.write("b.jsonl", "{\"id\":3,\"n\":3}\n{\"id\":4,\"s\":null}\n{\"note\":\"no key\"}\n");
    let said = import_refuses(&["import", "t", &lines, "--host", host]);
    assert!(said.contains("b.jsonl.rejected: 1 rows"), "{said}");
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        sql.rows("select * from t order by id"),
        [
            [text("one"), text("1"), text("7"), text("it's new")],
            [None, text("2"), text("7"), text("it's new")],
            [None, text("3"), text("3"), text("it's new")],
            [None, text("4"), text("7"), None],
        ]
    );
    // The commit timestamp is nobody's to write.
    oribi_ok(&[
        "import",
        "default.kv",
        &files.write("kv.csv", "key,value,flags\n\\x6b,\\x76,0\n"),
        "--host",
        host,
    ]);
    assert_eq!(server.memcached().get("k").unwrap().as_deref(), Some("v"));
}
