//! Whatever lies in memory, in one file or in several: a query sees each key's live row once.

use crate::db::Db;
use futures::TryStreamExt;
use oribi_session::sql::Outcome;
use std::collections::BTreeMap;

/// What the table should hold: n by k.
type Model = BTreeMap<i64, i64>;

async fn check(db: &Db, model: &Model, when: &str) {
    let count = model.len();
    let sum: i64 = model.values().sum();
    let (min, max) = (model.keys().next().unwrap(), model.keys().last().unwrap());
    let expected = vec![format!("{count}|{sum}|{min}|{max}")];
    assert_eq!(db.rows("select count(*), sum(n), min(k), max(k) from t").await, expected, "{when}");
    assert_eq!(db.rows("select count(*) from t").await, vec![count.to_string()], "{when}");
    let all: Vec<String> = model.iter().map(|(k, n)| format!("{k}|{n}")).collect();
    assert_eq!(db.rows("select k, n from t order by k").await, all, "{when}");
    let some: Vec<String> =
        model.iter().filter(|(k, n)| **k >= 900 && *n % 3 == 0).map(|(k, _)| k.to_string()).collect();
    assert_eq!(db.rows("select k from t where k >= 900 and n % 3 = 0 order by k").await, some, "{when}");
}

async fn write(db: &Db, model: &mut Model, keys: impl Iterator<Item = i64>, factor: i64) {
    let values: Vec<String> = keys
        .map(|k| {
            model.insert(k, k * factor);
            format!("({k}, {}, 'v{k}')", k * factor)
        })
        .collect();
    let values = values.join(", ");
    db.run(&format!("insert into t values {values} on conflict (k) do update set n = excluded.n")).await;
}

#[tokio::test]
async fn through_flush_overwrite_delete_and_compaction() {
    let db = Db::new();
    db.run("create table t (k bigint primary key, n bigint, s text) partition by hash (k) partitions 3")
        .await;
    let mut model = Model::new();
    write(&db, &mut model, 0..1000, 1).await;
    check(&db, &model, "in memory").await;
    db.flush("t");
    check(&db, &model, "in files").await;
    write(&db, &mut model, (0..1200).step_by(3), 7).await;
    check(&db, &model, "unflushed rows hide older copies").await;
    db.run("delete from t where k % 5 = 0").await;
    model.retain(|k, _| k % 5 != 0);
    check(&db, &model, "unflushed deletes hide older copies").await;
    db.flush("t");
    check(&db, &model, "in two files with marks").await;
    write(&db, &mut model, (0..1000).step_by(10), 2).await;
    check(&db, &model, "deleted keys written again").await;
    db.compact("t");
    check(&db, &model, "compacted, with rows in memory").await;
    db.flush("t");
    db.compact("t");
    check(&db, &model, "compacted").await;
}

#[tokio::test]
async fn an_open_query_keeps_its_snapshot() {
    let db = Db::new();
    db.run("create table t (k bigint primary key, n bigint)").await;
    db.run("insert into t select value, 1 from generate_series(1, 20000) as g(value)").await;
    db.flush("t");
    db.run("insert into t values (0, 1)").await;
    let Outcome::Rows(open) = db.outcome("select k, n from t", &[]).await.unwrap() else { panic!("rows") };
    db.run("update t set n = 2").await;
    db.run("delete from t where k < 100").await;
    db.flush("t");
    db.compact("t");
    let batches: Vec<arrow::array::RecordBatch> = open.try_collect().await.unwrap();
    let rows: usize = batches.iter().map(|b| b.num_rows()).sum();
    assert_eq!(rows, 20_001);
    for batch in &batches {
        let n = arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(batch.column(1));
        assert!(n.values().iter().all(|n| *n == 1), "an open query saw a later write");
    }
    assert_eq!(db.rows("select count(*), sum(n) from t").await, vec!["19901|39802"]);
}

#[tokio::test]
async fn one_statement_sees_one_snapshot_of_all_tables() {
    let db = Db::new();
    db.run("create table a (k bigint primary key)").await;
    db.run("create table b (k bigint primary key)").await;
    db.run("insert into a values (1), (2)").await;
    db.run("insert into b values (2), (3)").await;
    db.flush("a");
    let sql =
        "select a.k from a join b on a.k = b.k union all select count(*) from a x join a y on x.k <> y.k";
    assert_eq!(db.rows(sql).await, vec!["2", "2"]);
}

#[tokio::test]
async fn names_are_found_by_the_search_path() {
    let db = Db::new();
    db.run("create schema other").await;
    db.run("create table other.t (k bigint primary key)").await;
    db.run("insert into other.t values (7)").await;
    let missing = db.try_rows("select * from t", &[]).await.unwrap_err();
    assert_eq!(missing.sqlstate, Some("42P01"), "{missing}");
    assert_eq!(db.rows("select k from other.t").await, vec!["7"]);
    db.run("set search_path to other, public").await;
    assert_eq!(db.rows("select t.k from t").await, vec!["7"]);
}
