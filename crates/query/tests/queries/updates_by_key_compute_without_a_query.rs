//! An update that names its row by the primary key computes what it sets from the row itself, and does what the query would have
//! done: the values, errors and types are the same, wherever the row is.

use super::db::Db;
use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use futures::TryStreamExt;
use futures::future::join_all;
use oribi_session::sql::{Outcome, SqlEngine};
use oribi_types::Value;

async fn rows() -> Db {
    let db = Db::new();
    db.run("create table t (id bigint primary key, n integer not null, s text, at timestamp)").await;
    db.run("insert into t values (1, 10, 'a', null), (2, 20, null, null)").await;
    db.flush("t");
    db.run("insert into t values (3, 30, 'c', null)").await;
    db
}

/// Updates that do the same, the second by a query.
#[tokio::test]
async fn it_does_what_a_query_does() {
    for set in [
        "n = n + 1",
        "n = n * 2 - id, s = s || '!'",
        "n = case when n > 15 then 0 else n end",
        "s = coalesce(s, 'nothing') || n",
        "n = n / 4, s = upper(s)",
        "n = n::text::integer, s = id",
        "n = t.n + length(t.s)",
        "n = n + 2147483647",
        "n = n / (id - 1)",
        "n = nullif(n, 20)",
        "n = 1.5 * n",
        "n = n = 10",
        "n = (select max(n) from t)",
        "n = m",
    ] {
        for id in 1..=4 {
            let (by_key, by_query) = (rows().await, rows().await);
            let said = outcome(&by_key, &format!("update t set {set} where id = {id}")).await;
            let expected = outcome(&by_query, &format!("update t set {set} where id + 0 = {id}")).await;
            assert_eq!(said, expected, "{set}, {id}");
            let all = "select * from t order by id";
            assert_eq!(by_key.rows(all).await, by_query.rows(all).await, "{set}, {id}");
        }
    }
}

/// The command tag, or the error.
async fn outcome(db: &Db, sql: &str) -> String {
    match db.outcome(sql, &[]).await {
        Ok(Outcome::Done { tag }) => tag,
        Ok(_) => "rows".into(),
        Err(error) => format!("{:?} {}", error.sqlstate, error),
    }
}

async fn shown(outcome: Outcome) -> String {
    let Outcome::Rows(rows) = outcome else { panic!("no rows") };
    let rows: Vec<RecordBatch> = rows.try_collect().await.unwrap();
    pretty_format_batches(&rows).unwrap().to_string()
}

#[tokio::test]
async fn it_is_prepared_once() {
    let db = rows().await;
    let add = db.prepare("update t set n = n + $1, s = s || $2 where id = $3").await;
    for id in [1, 3, 9] {
        let parameters = [Value::Int32(5), Value::String("+".into()), Value::Int64(id)];
        add.execute(&db.session, &parameters).await.unwrap();
    }
    assert_eq!(db.rows("select n, s from t order by id").await, ["15|a+", "20|", "35|c+"]);
    let of_many = "update t set n = sum(n) + $1 where id = 1";
    assert!(db.query.prepare(&db.session, of_many, &[]).await.is_err());
    let shown = db.explain("explain update t set n = n + 1 where id = 1").await;
    assert!(shown.contains("by primary key"), "{shown}");
}

#[tokio::test]
async fn time_is_that_of_the_execution() {
    let db = rows().await;
    let update = db.prepare("update t set at = now() where id = 1").await;
    let upsert =
        db.prepare("insert into t values (2, 0, null, null) on conflict (id) do update set at = now()").await;
    let returning = db.prepare("update t set n = 1 where id = 3 returning now()").await;
    let mut seen: Vec<Vec<String>> = vec![Vec::new(); 3];
    for _ in 0..2 {
        update.execute(&db.session, &[]).await.unwrap();
        upsert.execute(&db.session, &[]).await.unwrap();
        seen[0].extend(db.rows("select at from t where id = 1").await);
        seen[1].extend(db.rows("select at from t where id = 2").await);
        seen[2].push(shown(returning.execute(&db.session, &[]).await.unwrap()).await);
    }
    for times in seen {
        assert_ne!(times[0], times[1]);
    }
}

#[tokio::test]
async fn a_block_computes_from_what_it_has_made_of_the_row() {
    let db = rows().await;
    let other = db.client("other");
    db.run("begin").await;
    for _ in 0..3 {
        db.run("update t set n = n + 1 where id = 1").await;
    }
    assert_eq!(other.rows("select n from t where id = 1").await, ["10"]);
    db.run("delete from t where id = 2").await;
    assert_eq!(db.tag("update t set n = n + 1 where id = 2").await, "UPDATE 0");
    db.run("commit").await;
    assert_eq!(db.rows("select n from t order by id").await, ["13", "30"]);

    db.run("begin isolation level repeatable read").await;
    db.run("select 1 from t").await;
    other.run("update t set n = n + 1 where id = 1").await;
    assert_eq!(db.state("update t set n = n + 1 where id = 1").await, "40001");
    db.run("rollback").await;
}

#[tokio::test]
async fn nobodys_change_is_lost() {
    let db = rows().await;
    let clients: Vec<Db> = (0..8).map(|n| db.client(&format!("client {n}"))).collect();
    let count = |client: &Db| {
        let client = client.client("counts");
        async move {
            for _ in 0..50 {
                client.run("update t set n = n + 1 where id = 1").await;
            }
        }
    };
    join_all(clients.iter().map(count)).await;
    assert_eq!(db.rows("select n from t where id = 1").await, ["410"]);
}
