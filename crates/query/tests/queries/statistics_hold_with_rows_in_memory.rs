//! What statistics answer, or say about a plan, is true of rows in memory too: those that are new, changed or deleted.

use crate::db::Db;

/// A table of 1,000 rows in files, whose `n` goes from 1 to 1,000.
async fn in_files() -> Db {
    let db = Db::new();
    db.run("create table t (k bigint primary key, n bigint, v text)").await;
    db.run("insert into t select i, i, 'v' || (1000 + i) from generate_series(1, 1000) as s(i)").await;
    db.flush("t");
    db
}

const ALL: &str = "select count(*), count(v), min(n), max(n), min(v), max(v), min(k), max(k) from t";

#[tokio::test]
async fn aggregates_are_those_of_all_rows() {
    let db = in_files().await;
    assert_eq!(db.rows(ALL).await, ["1000|1000|1|1000|v1001|v2000|1|1000"]);
    db.run("insert into t values (5000, 7000, 'z'), (-3, -9, null)").await;
    assert_eq!(db.rows(ALL).await, ["1002|1001|-9|7000|v1001|z|-3|5000"]);
    db.run("delete from t where k in (1000, -3)").await;
    assert_eq!(db.rows(ALL).await, ["1000|1000|1|7000|v1001|z|1|5000"]);
    db.run("update t set n = 0, v = 'a' where k = 500").await;
    assert_eq!(db.rows(ALL).await, ["1000|1000|0|7000|a|z|1|5000"]);
    db.run("delete from t where k in (1, 500, 5000)").await;
    assert_eq!(db.rows(ALL).await, ["997|997|2|999|v1002|v1999|2|999"]);
    db.flush("t");
    assert_eq!(db.rows(ALL).await, ["997|997|2|999|v1002|v1999|2|999"]);
}

#[tokio::test]
async fn filters_at_the_ends_of_files_find_what_is_in_memory() {
    let db = in_files().await;
    db.run("insert into t values (0, 1001, 'x'), (-1, 1002, 'y'), (-2, 1000, 'w')").await;
    // Of the files alone, one value or none is left.
    assert_eq!(
        db.rows("select n, k from t where n >= 1000 order by n, k").await,
        ["1000|-2", "1000|1000", "1001|0", "1002|-1"]
    );
    assert_eq!(db.rows("select max(n), min(n), count(*) from t where n >= 1000").await, ["1002|1000|4"]);
    assert_eq!(db.rows("select max(n), count(distinct n) from t where n > 1000").await, ["1002|2"]);
    assert_eq!(db.rows("select min(k), max(k) from t where k < 1").await, ["-2|0"]);
    assert_eq!(db.rows("select v from t where v > 'v2000' order by v desc").await, ["y", "x", "w"]);
    assert_eq!(
        db.rows("select a.n from t a join t b on a.n = b.k + 1001 where b.k < 1 order by 1").await,
        ["999", "1000", "1000", "1001"]
    );
}

#[tokio::test]
async fn rows_that_have_expired_count_nowhere() {
    let db = Db::new();
    db.run("create table e (k bigint primary key, n bigint, gone timestamp) with (expires_at = 'gone')")
        .await;
    db.run("insert into e values (1, 1, null), (2, 2, '2999-01-01'), (3, 3000, '2001-01-01')").await;
    db.flush("e");
    let all = "select count(*), min(n), max(n) from e";
    assert_eq!(db.rows(all).await, ["2|1|2"]);
    db.run("insert into e values (4, 4000, '2001-01-01'), (5, -5, '2999-01-01')").await;
    assert_eq!(db.rows(all).await, ["3|-5|2"]);
    db.run("update e set gone = '2001-01-01' where k = 2").await;
    assert_eq!(db.rows(all).await, ["2|-5|1"]);
    assert_eq!(db.rows("select n from e where n >= 1 order by n desc").await, ["1"]);
}

#[tokio::test]
async fn what_is_known_of_many_rows_in_memory_is_true_after_each_write() {
    let db = in_files().await;
    db.run("insert into t select i, i, 'w' from generate_series(2001, 42000) as s(i)").await;
    let ends = "select n from t where n >= 42000 or n <= 1 order by n desc";
    let largest = "select n from t where n >= 42000 order by n desc";
    for (write, all, above) in [
        ("select 1", vec!["42000", "1"], vec!["42000"]),
        ("update t set n = 50000 where k = 30000", vec!["50000", "42000", "1"], vec!["50000", "42000"]),
        (
            "update t set n = 42001 where k = 2001",
            vec!["50000", "42001", "42000", "1"],
            vec!["50000", "42001", "42000"],
        ),
        ("delete from t where k in (2001, 42000)", vec!["50000", "1"], vec!["50000"]),
        ("insert into t values (-1, -1, null)", vec!["50000", "1", "-1"], vec!["50000"]),
    ] {
        db.run(write).await;
        // The first finds the rows changed, the second looks at them, the third remembers.
        for time in 1..=3 {
            assert_eq!(db.rows(ends).await, all, "{write}, {time}");
            assert_eq!(db.rows(largest).await, above, "{write}, {time}");
        }
    }
}

#[tokio::test]
async fn what_is_known_now_is_not_told_to_older_snapshots() {
    let db = in_files().await;
    db.run("insert into t select i, i, 'w' from generate_series(2001, 42000) as s(i)").await;
    let other = db.client("other");
    other.run("begin isolation level repeatable read").await;
    let largest = "select n from t where n >= 42000 order by n desc";
    assert_eq!(other.rows(largest).await, ["42000"]);
    db.run("update t set n = 43000 where k = 40000").await;
    db.run("update t set n = 41000 where k = 42000").await;
    for _ in 0..3 {
        assert_eq!(db.rows(largest).await, ["43000"]);
    }
    for _ in 0..3 {
        assert_eq!(other.rows(largest).await, ["42000"]);
    }
    other.run("commit").await;
}

#[tokio::test]
async fn bounds_of_many_rows_in_memory_are_known_while_they_change() {
    let db = in_files().await;
    db.run("insert into t select i, i, 'w' from generate_series(2001, 42000) as s(i)").await;
    db.run("create table u (k bigint primary key)").await;
    db.run("insert into u select i from generate_series(1, 1000) as s(i)").await;
    let query = "select count(*) from t join u on t.k = u.k where t.n > 41990";
    // The join keeps in memory the side that is thought to be the smaller one: nothing is known when the rows are first found.
    let mut is_known = Vec::new();
    for round in 0..4 {
        db.run(&format!("update t set n = {round} where k = 30000")).await;
        db.run(&format!("insert into t values ({0}, {0}, 'x')", 42001 + round)).await;
        let plan = db.explain(&format!("explain {query}")).await;
        let place = |table| plan.find(table).expect("it is scanned");
        is_known.push(place("public.t") < place("public.u"));
    }
    assert_eq!(is_known, [false, true, true, true]);
}
