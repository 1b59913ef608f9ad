//! What a query does not need is not read: columns, rows beyond a limit, row groups that cannot match.

use crate::db::Db;

async fn flushed() -> Db {
    let db = Db::new();
    db.run("create table t (k bigint primary key, n bigint, s text)").await;
    db.run("insert into t select value, value * 2, 'some text' from generate_series(1, 200000) as g(value)")
        .await;
    db.flush("t");
    db
}

#[tokio::test]
async fn a_column_that_equals_a_constant_is_not_sorted_by() {
    let db = flushed().await;
    let plan = db.explain("explain select n, k from t where n = 40 order by n").await;
    assert!(plan.contains("filter=n@1 = 40") && !plan.contains("SortExec"), "{plan}");
    let plan = db.explain("explain select k from t where n = 40 and s > 'a' order by n").await;
    assert!(!plan.contains("SortExec"), "{plan}");
    let plan = db.explain("explain select n, k from t where n in (40, 42) order by n").await;
    assert!(plan.contains("SortExec"), "{plan}");
    assert_eq!(db.rows("select n, k from t where n = 40 and s > 'a' order by n, k").await, ["40|20"]);
}

#[tokio::test]
async fn projection_filter_and_limit() {
    let db = flushed().await;
    let plan = db.explain("explain select n from t where n > 399980").await;
    assert!(plan.contains("filter=n@1 > 399980"), "{plan}");
    assert!(plan.contains("projection=[n]"), "{plan}");
    let plan = db.explain("explain select s from t limit 3").await;
    assert!(plan.contains("limit=3"), "{plan}");
    assert!(plan.contains("projection=[s]"), "{plan}");
}

#[tokio::test]
async fn row_groups_that_cannot_match_are_not_read() {
    let db = flushed().await;
    let all = bytes_from_files(&db.explain("explain analyze select sum(n) from t").await);
    let few = bytes_from_files(&db.explain("explain analyze select sum(n) from t where n > 399980").await);
    assert!(few * 10 < all, "{few} bytes of {all}");
}

#[tokio::test]
async fn counts_and_bounds_come_from_statistics() {
    let db = flushed().await;
    for sql in ["explain select count(*) from t", "explain select min(k), max(k) from t"] {
        let plan = db.explain(sql).await;
        assert!(!plan.contains("DataSourceExec"), "{plan}");
    }
    db.run("delete from t where k = 200000").await;
    db.flush("t");
    let plan = db.explain("explain select count(*) from t").await;
    assert!(!plan.contains("DataSourceExec"), "the number of live rows is known: {plan}");
    let plan = db.explain("explain select max(k) from t").await;
    assert!(plan.contains("DataSourceExec"), "whether the largest key lives is not: {plan}");
    assert_eq!(db.rows("select count(*), max(k) from t").await, ["199999|199999"]);
}

#[tokio::test]
async fn dynamic_filters_reach_the_scan_beside_unflushed_rows() {
    let db = flushed().await;
    db.run("create table few (k bigint primary key)").await;
    db.run("insert into few values (17), (18)").await;
    db.run("insert into t values (200001, 1, 'unflushed')").await;
    let plan = db.explain("explain select t.n from t join few on t.k = few.k").await;
    assert!(plan.contains("DynamicFilter"), "{plan}");
    assert_eq!(db.rows("select t.n from t join few on t.k = few.k order by 1").await, ["34", "36"]);
    let plan = db.explain("explain select k from t order by k desc limit 2").await;
    assert!(plan.contains("DynamicFilter"), "{plan}");
    assert_eq!(db.rows("select k from t order by k desc limit 2").await, ["200001", "200000"]);
}

#[tokio::test]
async fn what_is_not_a_number_is_not_left_out_as_a_small_one() {
    let db = Db::new();
    db.run("create table t (k bigint primary key, f double precision)").await;
    db.run("insert into t values (1, 1.5), (2, 'NaN'), (3, 2.5)").await;
    db.flush("t");
    assert_eq!(db.rows("select k from t where f > 1000").await, ["2"]);
    assert_eq!(db.rows("select k from t where f > 2 and k < 3").await, ["2"]);
    assert_eq!(db.rows("select f from t order by f desc limit 1").await, ["NaN"]);
    assert_eq!(db.rows("select max(f) from t").await, ["NaN"]);
}

/// The bytes in `sstables n rows, m bytes`.
fn bytes_from_files(explanation: &str) -> u64 {
    let line = explanation.lines().find(|l| l.contains("scan of")).unwrap_or_else(|| panic!("{explanation}"));
    let (_, after) = line.split_once("sstables").unwrap();
    let (_, after) = after.split_once("rows, ").unwrap();
    after.split(' ').next().unwrap().parse().unwrap()
}
