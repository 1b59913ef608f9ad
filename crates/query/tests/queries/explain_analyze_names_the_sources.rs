//! `EXPLAIN ANALYZE` says how many rows and bytes came from memory and from SSTables.

use crate::db::Db;

#[tokio::test]
async fn of_a_scan() {
    let db = Db::new();
    db.run("create table t (k bigint primary key, s text)").await;
    db.run("insert into t select value, 'text' from generate_series(1, 100) as g(value)").await;
    db.flush("t");
    db.run("insert into t values (101, 'new')").await;
    db.run("update t set s = 'changed' where k = 1").await;
    let text = db.explain("explain analyze select s, count(*) from t group by s").await;
    assert!(text.contains("QUERY PLAN"), "{text}");
    assert!(text.contains("rows: 3, time: "), "{text}");
    assert!(text.contains("scan of public.t: memtable 2 rows, "), "{text}");
    assert!(text.contains("sstables 99 rows, "), "{text}");
    assert!(text.contains("bytes in 1 files"), "{text}");
    assert!(text.contains("AggregateExec"), "{text}");
}

#[tokio::test]
async fn of_a_count_that_statistics_answer() {
    let db = Db::new();
    db.run("create table t (k bigint primary key, s text)").await;
    db.run("insert into t select value, 'text' from generate_series(1, 100) as g(value)").await;
    db.flush("t");
    let text = db.explain("explain analyze select count(*) from t").await;
    assert!(text.contains("scan of public.t: none, statistics answered"), "{text}");
}

#[tokio::test]
async fn of_a_look_up() {
    let db = Db::new();
    db.run("create table t (k bigint primary key, s text)").await;
    db.run("insert into t values (1, 'a'), (2, 'b')").await;
    let sql = "explain analyze select s from t where k in (1, 3)";
    let text = db.explain(sql).await;
    assert!(text.contains("point read of public.t by 2 primary keys: memtable 1 rows, "), "{text}");
    assert!(text.contains("row cache 0 rows, 0 bytes; sstables 0 rows, 0 bytes"), "{text}");
    db.flush("t");
    let text = db.explain(sql).await;
    assert!(text.contains("memtable 0 rows, 0 bytes; row cache 1 rows, "), "{text}");
    db.run("truncate t").await;
    db.run("insert into t select value, 'text' from generate_series(1, 10) as g(value)").await;
    db.flush("t");
    let db = db.reopen();
    let text = db.explain(sql).await;
    assert!(text.contains("row cache 0 rows, 0 bytes; sstables 2 rows, "), "nothing is cached yet: {text}");
    let text = db.explain(sql).await;
    assert!(text.contains("row cache 2 rows, "), "the read left its rows behind: {text}");
}
