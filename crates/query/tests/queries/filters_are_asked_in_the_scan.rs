//! A scan hands on the rows that pass and that its snapshot sees, whichever way it finds them, and no operator asks again.

use crate::db::Db;
use std::collections::BTreeMap;

const ROWS: i64 = 300_000;

/// Rows of five row groups, `n` without any order.
async fn scattered() -> (Db, BTreeMap<i64, i64>) {
    let db = Db::new();
    db.run("create table t (k bigint primary key, n bigint, s text)").await;
    for rows in [1..ROWS / 2, ROWS / 2..ROWS + 1] {
        let series = format!("generate_series({}, {}) as g(v)", rows.start, rows.end - 1);
        db.run(&format!("insert into t select v, v * 1009 % 100003, 'the text of row ' || v from {series}"))
            .await;
    }
    db.flush("t");
    (db, (1..=ROWS).map(|k| (k, k * 1009 % 100_003)).collect())
}

async fn check(db: &Db, model: &BTreeMap<i64, i64>, when: &str) {
    for bound in [100, 40_000, 200_000] {
        let passing = || model.iter().filter(|(_, n)| **n < bound);
        let rows: Vec<String> = passing().map(|(k, _)| format!("the text of row {k}|{k}")).collect();
        let sql = format!("select s, k from t where n < {bound} order by k");
        assert_eq!(db.rows(&sql).await, rows, "{when}: {sql}");
        let sum: i64 = passing().map(|(_, n)| n).sum();
        let sql = format!("select count(*), sum(n) from t where n < {bound}");
        assert_eq!(db.rows(&sql).await, [format!("{}|{sum}", rows.len())], "{when}: {sql}");
        let some = rows.len().min(5);
        assert_eq!(
            db.rows(&format!("select k from t where n < {bound} limit 5")).await.len(),
            some,
            "{when}"
        );
    }
    let joined = "select t.k, t.s from t join few on few.n = t.n order by 1";
    let rows = model.iter().filter(|(_, n)| **n % 10_000 == 17);
    let rows: Vec<String> = rows.map(|(k, _)| format!("{k}|the text of row {k}")).collect();
    assert_eq!(db.rows(joined).await, rows, "{when}");
    let mut last: Vec<_> = model.iter().map(|(k, n)| (*n, *k)).collect();
    last.sort_unstable();
    let last: Vec<String> =
        last.iter().rev().take(3).map(|(n, k)| format!("{n}|the text of row {k}")).collect();
    assert_eq!(db.rows("select n, s from t order by n desc, k desc limit 3").await, last, "{when}");
}

#[tokio::test]
async fn many_pass_or_few_and_some_are_hidden() {
    let (db, mut model) = scattered().await;
    db.run("create table few (n bigint primary key)").await;
    db.run("insert into few select v * 10000 + 17 from generate_series(0, 9) as g(v)").await;
    check(&db, &model, "in a file").await;
    db.run("update t set n = n + 1 where k % 8 = 3").await;
    model.iter_mut().filter(|(k, _)| **k % 8 == 3).for_each(|(_, n)| *n += 1);
    check(&db, &model, "an eighth replaced in memory").await;
    db.run("delete from t where k between 70000 and 190000").await;
    model.retain(|k, _| !(70_000..=190_000).contains(k));
    check(&db, &model, "most rows of some row groups deleted").await;
    db.flush("t");
    check(&db, &model, "marked").await;
}

#[tokio::test]
async fn no_operator_asks_again() {
    let (db, _) = scattered().await;
    let plan = db.explain("explain select s from t where n < 100 and s like '%7%'").await;
    assert!(plan.contains("filter=n@1 < 100 AND s@2 LIKE %7%"), "{plan}");
    assert!(plan.contains("projection=[s]") && !plan.contains("FilterExec"), "{plan}");
    let above = db.explain("explain select * from (select * from t limit 7) as f where n < 100").await;
    assert!(above.contains("FilterExec") && !above.contains("filter="), "not of other rows: {above}");
}

#[tokio::test]
async fn rows_that_are_hidden_are_not_asked() {
    let db = Db::new();
    db.run("create table t (k bigint primary key, n bigint)").await;
    db.run("insert into t select v, v % 10 from generate_series(1, 1000) as g(v)").await;
    db.flush("t");
    let sql = "select count(*) from t where 100 / n > 20";
    assert_eq!(db.state(sql).await, "22012");
    db.run("update t set n = 1 where n = 0").await;
    assert_eq!(db.rows(sql).await, ["500"]);
    db.flush("t");
    assert_eq!(db.rows(sql).await, ["500"]);
}

#[tokio::test]
async fn columns_of_rows_that_do_not_pass_are_not_read() {
    let (db, _) = scattered().await;
    // A thousand pass side by side, of which bounds say nothing.
    db.run("create table u (k bigint primary key, n bigint, s text)").await;
    let half = ROWS / 2;
    for rows in [1..half, half..ROWS + 1] {
        let n = "case when k between 290000 and 291000 then 500 else n * 2 + 1 end";
        let part = format!("where k >= {} and k < {}", rows.start, rows.end);
        db.run(&format!("insert into u select k, {n}, s from t {part}")).await;
    }
    db.flush("u");
    let all = bytes_from_files(&db.explain("explain analyze select sum(length(s)), sum(n) from u").await);
    let sql = "explain analyze select sum(length(s)) from u where n = 500";
    let few = bytes_from_files(&db.explain(sql).await);
    assert!(few * 10 < all * 8, "{few} bytes of {all}");
    assert_eq!(
        db.rows("select count(*), min(s) from u where n = 500").await,
        ["1001|the text of row 290000"]
    );
}

/// The bytes in `sstables n rows, m bytes`.
fn bytes_from_files(explanation: &str) -> u64 {
    let line = explanation.lines().find(|l| l.contains("scan of")).unwrap_or_else(|| panic!("{explanation}"));
    let (_, after) = line.split_once("sstables").unwrap();
    let (_, after) = after.split_once("rows, ").unwrap();
    after.split(' ').next().unwrap().parse().unwrap()
}
