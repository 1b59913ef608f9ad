//! `EXPLAIN ANALYZE` says how many rows and bytes came from memory and from SSTables.

use crate::db::Db;
use arrow::array::AsArray;
use oribi_types::schema::TYPE_METADATA;

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

/// The one row that `EXPLAIN (FORMAT JSON)` answers.
async fn told(db: &Db, sql: &str) -> serde_json::Value {
    let batches = db.try_rows(sql, &[]).await.unwrap();
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1);
    let text = batches[0].column(0).as_string::<i32>().value(0);
    serde_json::from_str(text).unwrap()
}

/// All operators of a plan.
fn operators(plan: &serde_json::Value) -> Vec<&serde_json::Value> {
    let below = plan["Plans"].as_array().into_iter().flatten();
    std::iter::once(plan).chain(below.flat_map(operators)).collect()
}

#[tokio::test]
async fn in_json_operator_by_operator() {
    let db = Db::new();
    db.run("create table t (k bigint primary key, s text)").await;
    db.run("insert into t select value, 'text' from generate_series(1, 100) as g(value)").await;
    db.flush("t");
    db.run("insert into t values (101, 'new')").await;
    let sql = "explain (analyze, format json) select s, count(*) from t group by s";
    assert_eq!(db.prepare(sql).await.columns().unwrap().field(0).metadata()[TYPE_METADATA], "json");
    let told = told(&db, sql).await;
    assert!(told[0]["Planning Time"].as_f64().unwrap() > 0.0, "{told}");
    assert!(told[0]["Execution Time"].as_f64().unwrap() > 0.0, "{told}");
    assert_eq!(told[0]["Plan"]["Actual Rows"], 2, "{told}");
    let operators = operators(&told[0]["Plan"]);
    assert!(operators.iter().all(|operator| operator["Compute Time"].is_f64()), "{told}");
    assert!(operators.iter().any(|operator| operator["Node Type"] == "AggregateExec"), "{told}");
    let mut scans = operators.iter().filter(|operator| operator["Relation Name"] == "public.t");
    let rows = |scan: &serde_json::Value| (scan["File Rows"].as_u64(), scan["Memory Rows"].as_u64());
    assert_eq!(scans.next().map(|scan| rows(scan)), Some((Some(100), Some(1))), "{told}");
    assert!(scans.next().is_none(), "{told}");
}

#[tokio::test]
async fn in_json_of_what_has_no_plan() {
    let db = Db::new();
    db.run("create table t (k bigint primary key, s text)").await;
    db.run("insert into t values (1, 'a')").await;
    let read = told(&db, "explain (analyze, format json) select s from t where k = 1").await;
    assert_eq!(read[0]["Plan"]["Node Type"], "Point Read");
    assert_eq!(read[0]["Plan"]["Actual Rows"], 1);
    let write = told(&db, "explain (format json) delete from t where s = 'a'").await;
    assert_eq!(write[0]["Plan"]["Node Type"], "ModifyTable");
    assert!(write[0]["Plan"]["Plans"][0]["Node Type"].is_string(), "{write}");
    assert_eq!(write[0]["Execution Time"], serde_json::Value::Null);
    let insert = told(&db, "explain (format json) insert into t values (2, 'b')").await;
    assert_eq!(insert[0]["Plan"]["Node Type"], "ModifyTable");
}
