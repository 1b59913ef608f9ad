//! `EXPLAIN ANALYZE` says how many rows and bytes came from memory and from SSTables.

mod common;

use common::Db;

#[tokio::test]
async fn of_a_scan() {
    let db = Db::new();
    db.run("create table t (k bigint primary key, s text)").await;
    db.run("insert into t select value, 'text' from generate_series(1, 100)").await;
    db.flush("t");
    db.run("insert into t values (101, 'new'), (1, 'changed')").await;
    let text = db.explain("explain analyze select s, count(*) from t group by s").await;
    assert!(text.contains("QUERY PLAN"), "{text}");
    assert!(text.contains("rows: 3, time: "), "{text}");
    assert!(text.contains("scan of public.t: memtable 2 rows, "), "{text}");
    assert!(text.contains("sstables 99 rows, "), "{text}");
    assert!(text.contains("bytes in 1 files"), "{text}");
    assert!(text.contains("AggregateExec"), "{text}");
}

#[tokio::test]
async fn of_a_look_up() {
    let db = Db::new();
    db.run("create table t (k bigint primary key, s text)").await;
    db.run("insert into t values (1, 'a'), (2, 'b')").await;
    let sql = "explain analyze select s from t where k in (1, 3)";
    let text = db.explain(sql).await;
    assert!(text.contains("point read of public.t by 2 primary keys: memtable 1 rows"), "{text}");
    db.flush("t");
    db.compact("t");
    let text = db.explain("explain analyze select s from t where k = 2").await;
    assert!(text.contains("rows: 1"), "{text}");
    assert!(text.contains("memtable 0 rows"), "{text}");
}
