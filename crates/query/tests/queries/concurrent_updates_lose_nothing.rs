//! Statements that read before they write, beside each other.

use crate::db::Db;
use oribi_types::Value;
use std::sync::Arc;

const TASKS: usize = 4;
const ROUNDS: usize = 25;

async fn hammer(db: &Arc<Db>, statement: impl Fn(usize, usize) -> String + Send + Sync + 'static) {
    let statement = Arc::new(statement);
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let (db, statement) = (Arc::clone(db), Arc::clone(&statement));
        tasks.push(tokio::spawn(async move {
            for round in 0..ROUNDS {
                db.run(&statement(task, round)).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_increment_counts() {
    let db = Arc::new(Db::new());
    db.run("create table t (id int primary key, n int)").await;
    db.run("insert into t values (1, 0), (2, 0)").await;
    hammer(&db, |_, _| "update t set n = n + 1".into()).await;
    let expected = TASKS * ROUNDS;
    assert_eq!(db.rows("select n from t").await, [expected.to_string(), expected.to_string()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_upsert_counts() {
    let db = Arc::new(Db::new());
    db.run("create table t (id int primary key, n int)").await;
    hammer(&db, |_, round| {
        format!("insert into t values ({}, 1) on conflict (id) do update set n = t.n + excluded.n", round % 3)
    })
    .await;
    assert_eq!(db.rows("select sum(n), count(*) from t").await, [format!("{}|3", TASKS * ROUNDS)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn money_moves_but_its_sum_stays() {
    let db = Arc::new(Db::new());
    db.run("create table account (id int primary key, balance int)").await;
    db.run("insert into account values (0, 100), (1, 100), (2, 100)").await;
    hammer(&db, |task, round| {
        let (from, to) = ((task + round) % 3, (task + 2 * round + 1) % 3);
        format!(
            "update account set balance = case id when {from} then balance - 1 else balance + 1 end
             where id in ({from}, {to}) and {from} <> {to}"
        )
    })
    .await;
    assert_eq!(db.rows("select sum(balance) from account").await, ["300"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_inserts_of_a_key_wins() {
    let db = Arc::new(Db::new());
    db.run("create table t (id int primary key, task int)").await;
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let db = Arc::clone(&db);
        tasks.push(tokio::spawn(async move {
            let prepared = db.prepare("insert into t values ($1, $2)").await;
            let mut won = 0;
            for id in 0..100 {
                let values = [Value::Int32(id), Value::Int32(task as i32)];
                match prepared.execute(&db.session, &values).await {
                    Ok(_) => won += 1,
                    Err(error) => assert_eq!(error.sqlstate, Some("23505")),
                }
            }
            won
        }));
    }
    let mut won = 0;
    for task in tasks {
        won += task.await.unwrap();
    }
    assert_eq!(won, 100);
    assert_eq!(db.rows("select count(*) from t").await, ["100"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_many_rows_is_seen_whole_or_not_at_all() {
    let db = Arc::new(Db::new());
    db.run("create table t (id bigint primary key, v bigint) partition by hash (id) partitions 3").await;
    db.run("insert into t select value, 0 from generate_series(1, 300)").await;
    let writer = {
        let db = Arc::clone(&db);
        tokio::spawn(async move {
            for round in 1..=20 {
                db.run(&format!("update t set v = {round} where v < {round}")).await;
            }
        })
    };
    while !writer.is_finished() {
        assert_eq!(db.rows("select count(distinct v) from t").await, ["1"]);
    }
    writer.await.unwrap();
    assert_eq!(db.rows("select min(v), max(v) from t").await, ["20|20"]);
}
