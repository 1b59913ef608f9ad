//! A query is planned when it is prepared, and its rows, settings and time are those of when it is executed.

use crate::db::Db;
use arrow::util::pretty::pretty_format_batches;
use futures::TryStreamExt;
use oribi_session::sql::{Outcome, Prepared, SqlError};
use oribi_types::Value;

async fn try_execute(db: &Db, prepared: &dyn Prepared, parameters: &[Value]) -> Result<String, SqlError> {
    let Outcome::Rows(rows) = prepared.execute(&db.session, parameters).await? else { panic!("no rows") };
    let rows: Vec<_> = rows.try_collect().await?;
    Ok(pretty_format_batches(&rows).unwrap().to_string())
}

async fn execute(db: &Db, prepared: &dyn Prepared) -> String {
    try_execute(db, prepared, &[]).await.unwrap()
}

#[tokio::test]
async fn rows_are_those_of_the_execution() {
    let db = Db::new();
    db.run("create table t (k bigint primary key, n bigint)").await;
    let sum = db.prepare("select count(*) as c, sum(n) as s, max(k) as m from t where n >= 0").await;
    let above = db.prepare("select count(*) as c from t where n > $1 - 1").await;
    for n in 1..4 {
        db.run(&format!("insert into t values ({n}, {n})")).await;
        if n == 2 {
            db.flush("t");
        }
        let row = format!("| {n} | {} | {n} |", n * (n + 1) / 2);
        let shown = execute(&db, sum.as_ref()).await;
        assert!(shown.contains(&row), "{shown}");
        let shown = try_execute(&db, above.as_ref(), &[Value::Int32(2)]).await.unwrap();
        assert!(shown.contains(&format!("| {} |", n - 1)), "{shown}");
    }
}

#[tokio::test]
async fn settings_and_the_catalog_are_those_of_the_execution() {
    let db = Db::new();
    let named = db.prepare("select current_setting('application_name') as a").await;
    let shown = db.prepare("select setting from pg_settings where name = 'application_name'").await;
    let tables = db
        .prepare("select relname from pg_class c where pg_table_is_visible(oid) and relname like 'made%'")
        .await;
    for name in ["one", "two"] {
        db.run(&format!("set application_name = '{name}'")).await;
        db.run(&format!("create table made_{name} (k bigint primary key)")).await;
        for prepared in [&named, &shown, &tables] {
            let rows = execute(&db, prepared.as_ref()).await;
            assert!(rows.contains(name), "{rows}");
        }
    }
}

#[tokio::test]
async fn time_is_that_of_the_execution() {
    let db = Db::new();
    let now = db.prepare("select extract(epoch from now()) as t").await;
    let first = execute(&db, now.as_ref()).await;
    assert_ne!(first, execute(&db, now.as_ref()).await);
    let hour = db.prepare("select extract(hour from now()) as h").await;
    // Elsewhere it is refused.
    for (zone, is_answered) in [("UTC", true), ("Asia/Tokyo", false), ("UTC", true)] {
        db.run(&format!("set timezone = '{zone}'")).await;
        assert_eq!(try_execute(&db, hour.as_ref(), &[]).await.is_ok(), is_answered, "{zone}");
    }
}

#[tokio::test]
async fn what_the_block_has_changed_since_is_read() {
    let db = Db::new();
    db.run("create table t (k bigint primary key, n bigint)").await;
    let prepared = db.prepare("select sum(n) from t").await;
    execute(&db, prepared.as_ref()).await;
    db.run("begin").await;
    execute(&db, prepared.as_ref()).await;
    db.run("insert into t values (1, 1)").await;
    let written = execute(&db, prepared.as_ref()).await;
    db.run("rollback").await;
    assert_ne!(execute(&db, prepared.as_ref()).await, written);
}

#[tokio::test]
async fn a_parameter_may_stand_in_several_places() {
    let db = Db::new();
    db.run("create table t (k integer primary key, big bigint, small smallint)").await;
    db.run("insert into t values (1, 1, 1), (2, 2, 2), (3, 3, 1)").await;
    let prepared = db
        .prepare("select k from t where k between $1 and $1 + 1 and big = $1 and small >= $1 and $1 < 5")
        .await;
    let shown = try_execute(&db, prepared.as_ref(), &[Value::Int32(2)]).await.unwrap();
    assert!(shown.contains("| 2 |") && !shown.contains("| 1 |") && !shown.contains("| 3 |"), "{shown}");
}
