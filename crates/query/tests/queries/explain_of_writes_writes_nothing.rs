//! `EXPLAIN` of a statement that changes rows.

use crate::db::Db;

#[tokio::test]
async fn the_plan_is_that_of_the_query_it_reads_from() {
    let db = Db::new();
    db.run("create table t (id int primary key, n int)").await;
    db.run("insert into t values (1, 1), (2, 2)").await;
    let text = db.explain("explain update t set n = n + 1 where n > 1").await;
    assert!(text.contains("update of public.t"), "{text}");
    assert!(text.contains("_ts"), "{text}");
    let text = db.explain("explain (analyze, verbose off) delete from t where n in (select n from t)").await;
    assert!(text.contains("delete from public.t; nothing was written"), "{text}");
    assert!(text.contains("rows: 2"), "{text}");
    let text = db.explain("explain analyze insert into t values (3, 3)").await;
    assert!(text.contains("insert into public.t"), "{text}");
    assert_eq!(db.rows("select sum(n), count(*) from t").await, ["3|2"]);
    assert_eq!(db.state("explain create table u (id int primary key)").await, "0A000");
    assert_eq!(db.state("explain (format xml) select 1").await, "0A000");
}
