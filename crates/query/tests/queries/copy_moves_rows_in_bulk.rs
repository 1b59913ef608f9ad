//! `COPY` at the seam to the doors: formats, columns, sinks.

use crate::db::Db;
use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringViewArray};
use oribi_session::sql::{CopyFormat, CopySink, Outcome, SqlError};
use std::sync::Arc;

async fn sink(db: &Db, sql: &str) -> Box<dyn CopySink> {
    match db.outcome(sql, &[]).await.unwrap() {
        Outcome::CopyIn(sink) => sink,
        _ => panic!("{sql} takes no rows"),
    }
}

fn batch(sink: &dyn CopySink, ids: &[i32], names: &[Option<&str>]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(names.iter().copied().collect::<StringViewArray>()),
        Arc::new(Int32Array::from(ids.to_vec())),
    ];
    RecordBatch::try_new(Arc::clone(sink.schema()), columns).unwrap()
}

async fn push(db: &Db, ids: &[i32], names: &[Option<&str>]) -> Result<u64, SqlError> {
    let mut sink = sink(db, "copy t (name, id) from stdin").await;
    let rows = batch(sink.as_ref(), ids, names);
    sink.push(rows).await?;
    sink.finish().await
}

#[tokio::test]
async fn in_all_or_nothing() {
    let db = Db::new();
    db.run("create table t (id int primary key, name text not null, n int default 3)").await;
    assert_eq!(push(&db, &[2, 1], &[Some("b"), Some("a")]).await.unwrap(), 2);
    assert_eq!(db.rows("select * from t order by id").await, ["1|a|3", "2|b|3"]);
    assert!(matches!(db.outcome("copy t from stdin with (freeze on)", &[]).await, Ok(Outcome::CopyIn(_))));
    assert_eq!(push(&db, &[7, 1], &[Some("x"), Some("y")]).await.unwrap_err().sqlstate, Some("23505"));
    assert_eq!(push(&db, &[8], &[None]).await.unwrap_err().sqlstate, Some("23502"));
    let mut dropped = sink(&db, "copy t (name, id) from stdin").await;
    let rows = batch(dropped.as_ref(), &[9], &[Some("z")]);
    dropped.push(rows).await.unwrap();
    drop(dropped);
    assert_eq!(db.rows("select count(*) from t").await, ["2"]);
}

#[tokio::test]
async fn out_of_tables_and_queries() {
    let db = Db::new();
    db.run("create table t (id int primary key, name text)").await;
    db.run("insert into t values (1, 'a'), (2, 'b')").await;
    assert_eq!(db.rows("copy (select name from t where id = 2) to stdout").await, ["b"]);
    assert_eq!(db.rows("copy t (name) to stdout with (format csv, header)").await.len(), 2);
    let prepared = db.prepare("copy t to stdout (format csv, delimiter ';', null 'NULL', quote '''')").await;
    let copy = prepared.copy().unwrap();
    assert!(copy.to_stdout && !copy.header);
    assert_eq!((copy.format, copy.delimiter, copy.quote, copy.escape), (CopyFormat::Csv, b';', b'\'', b'\''));
    assert_eq!(copy.null, "NULL");
    let prepared = db.prepare("copy t from stdin csv header").await;
    let copy = prepared.copy().unwrap();
    assert!(!copy.to_stdout && copy.header && copy.null.is_empty());
    let text = db.prepare("copy t from stdin").await;
    assert_eq!((text.copy().unwrap().delimiter, text.copy().unwrap().null.as_str()), (b'\t', "\\N"));
}

#[tokio::test]
async fn refusals_say_what_is_wrong() {
    let db = Db::new();
    db.run("create table t (id int primary key, name text)").await;
    let wrong = [
        ("copy nope from stdin", "42P01"),
        ("copy t (nope) from stdin", "42703"),
        ("copy t from '/etc/passwd'", "0A000"),
        ("copy t to program 'cat'", "0A000"),
        ("copy t from stdin (format parquet)", "0A000"),
        ("copy t from stdin (format csv, delimiter 'ab')", "42601"),
        ("copy t from stdin (format csv, delimiter '\"')", "42601"),
    ];
    for (sql, state) in wrong {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
}

/// The rows cannot be asked for again: they become rows of the table as it is when they are written.
#[tokio::test]
async fn in_to_a_table_that_is_altered_meanwhile() {
    let db = Db::new();
    db.run("create table t (id int primary key, name text)").await;
    let mut sink = sink(&db, "copy t (name, id) from stdin").await;
    let rows = batch(sink.as_ref(), &[1, 2], &[Some("a"), None]);
    sink.push(rows).await.unwrap();
    db.run("alter table t add column n int not null default 7").await;
    let rows = batch(sink.as_ref(), &[3], &[Some("c")]);
    sink.push(rows).await.unwrap();
    db.run("alter table t drop column name").await;
    assert_eq!(sink.finish().await.unwrap(), 3);
    assert_eq!(db.rows("select * from t order by id").await, ["1|7", "2|7", "3|7"]);
    db.run("update t set n = 8 where id = 2").await;
    assert_eq!(db.rows("select sum(n) from t").await, ["22"]);
}
