//! A batch of long rows has few of them, wherever they lie and whatever they pass; one of short rows has 8,192.

use crate::db::Db;

/// Of rows of 1 MiB.
const ROWS_MAX: usize = 8;

async fn long_rows() -> Db {
    let db = Db::new();
    db.run("create table t (k integer primary key, n integer, v text)").await;
    for first in [1, 11, 21, 31] {
        let last = first + 9;
        let rows = format!("select n, n, repeat('x', 1048576) from generate_series({first}, {last}) as s(n)");
        db.run(&format!("insert into t {rows}")).await;
    }
    db
}

async fn batches(db: &Db, sql: &str) -> Vec<usize> {
    db.try_rows(sql, &[]).await.unwrap().iter().map(|batch| batch.num_rows()).collect()
}

async fn check_long_rows(db: &Db) {
    for (rows, sql) in [
        (40, "select * from t"),
        (40, "select v from t where v like 'x%'"),
        (20, "select v from t where v like 'x%' and n <= 20"),
        (30, "select v from t where v like 'x%' limit 30"),
        (28, "select v from t where k between 3 and 30 and v like 'x%'"),
        (40, "select k, v from t order by k"),
        (40, "select a.k, a.v from t a join t b on a.k = b.k where a.v like 'x%'"),
    ] {
        let batches = batches(db, sql).await;
        assert_eq!(batches.iter().sum::<usize>(), rows, "{sql}");
        // What joins is gathered by numbers of rows.
        let most = if sql.contains("join") { rows } else { ROWS_MAX };
        assert!(batches.iter().all(|rows| *rows <= most), "{sql}: {batches:?}");
    }
    assert!(batches(db, "select k from t").await.iter().any(|rows| *rows > ROWS_MAX));
    assert_eq!(db.rows("select count(*), max(length(v)) from t where v like 'x%'").await, ["40|1048576"]);
}

#[tokio::test]
async fn batches_of_long_rows_in_memory_are_short() {
    check_long_rows(&long_rows().await).await;
}

#[tokio::test]
async fn batches_of_long_rows_in_files_are_short() {
    let db = long_rows().await;
    db.flush("t");
    check_long_rows(&db).await;
}

#[tokio::test]
async fn batches_of_short_rows_are_as_large_as_ever() {
    let db = Db::new();
    db.run("create table t (k integer primary key, v text)").await;
    db.run("insert into t select n, repeat('x', 500) from generate_series(1, 20000) as s(n)").await;
    for sql in ["select * from t", "select v from t where v like 'x%'"] {
        assert_eq!(batches(&db, sql).await.iter().max(), Some(&8192), "in memory: {sql}");
    }
    db.flush("t");
    for sql in ["select * from t", "select v from t where v like 'x%'"] {
        assert_eq!(batches(&db, sql).await.iter().max(), Some(&8192), "in a file: {sql}");
    }
}
