//! Statements that read before they write, beside each other.

use crate::db::Db;
use oribi_engine::{Decision, Engine, Read, WriteOp};
use oribi_types::{RowRef, Value, ValueRef, key};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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
    db.run("insert into t select value, 0 from generate_series(1, 300) as g(value)").await;
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

/// An update of all columns that was planned before a column was added must not take the column's value away.
#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_is_added_keeps_its_values_under_updates() {
    const COLUMNS: usize = 12;
    let db = Arc::new(Db::new());
    db.run("create table t (id int primary key, n int) with (durability = 'periodic:10ms')").await;
    db.run("insert into t select value, 0 from generate_series(0, 3) as g(value)").await;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut tasks = Vec::new();
    for task in 0..TASKS as i32 {
        let (db, stop) = (Arc::clone(&db), Arc::clone(&stop));
        tasks.push(tokio::spawn(async move {
            let update = db.prepare("update t set n = $2 where id = $1").await;
            let upsert = db
                .prepare("insert into t (id, n) values ($1, $2) on conflict (id) do update set n = $2")
                .await;
            for n in 0.. {
                let values = [Value::Int32((task + n) % 4), Value::Int32(n)];
                for statement in [&update, &upsert] {
                    let point = statement.point(&db.session);
                    let point = point.as_ref().and_then(|point| match point {
                        oribi_session::sql::Point::Write(write) => Some(write),
                        oribi_session::sql::Point::Read(_) => None,
                    });
                    // Between planning and writing.
                    tokio::task::yield_now().await;
                    if point.and_then(|write| write.write(&db.session, &values)).is_none() {
                        statement.execute(&db.session, &values).await.unwrap();
                    }
                }
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
            }
        }));
    }
    for c in 0..COLUMNS {
        db.run(&format!("alter table t add column c{c} int default -1")).await;
        for id in 0..4 {
            db.run(&format!("update t set c{c} = {c} where id = {id}")).await;
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    for c in 0..COLUMNS {
        assert_eq!(db.rows(&format!("select distinct c{c} from t")).await, [c.to_string()]);
    }
}

/// Sets `n` of ten rows of `t` again and again, past SQL, and each time checks that it is what was set last. Returns how often.
fn set_ten_rows(engine: &Engine, stop: &AtomicBool) -> i32 {
    let table = engine.table("public", "t").unwrap();
    let layout = table.schema_ref().layout();
    for round in 1.. {
        for id in 0..10 {
            let mut key = Vec::new();
            key::encode_component(ValueRef::Int32(id), true, &mut key);
            let op = WriteOp { table: &table, key: &key, read: Read::Existing, row: &[] };
            let set = engine.write(&[op], &mut |_, current, row| {
                let old = RowRef::new(layout, current.expect("nobody deletes it").row);
                assert_eq!(old.get(0), Some(ValueRef::Int32(round - 1)), "what was set is lost");
                layout.encode(&[ValueRef::Int32(round), old.get(1).expect("m is not null")], row);
                Ok(Decision::Put)
            });
            set.unwrap();
        }
        if stop.load(Relaxed) {
            return round;
        }
    }
    unreachable!("rounds are many");
}

/// Each statement reads all rows, which takes longer than it takes to set ten.
#[tokio::test(flavor = "multi_thread")]
async fn bulk_statements_end_beside_a_client_that_sets_ten_rows_again_and_again() {
    let db = Arc::new(Db::new());
    db.run("create table t (id int primary key, n int, m int not null) with (durability = 'periodic:10ms')")
        .await;
    db.run("insert into t select value, 0, 0 from generate_series(0, 2999) as g(value)").await;
    let stop = Arc::new(AtomicBool::new(false));
    let setting = {
        let (engine, stop) = (Arc::clone(&db.engine), Arc::clone(&stop));
        tokio::task::spawn_blocking(move || set_ten_rows(&engine, &stop))
    };
    for _ in 0..3 {
        assert_eq!(db.tag("update t set m = m + 1").await, "UPDATE 3000");
        assert_eq!(db.tag("update t set m = m + 1 where n >= 0 and id >= 0").await, "UPDATE 3000");
        let from_another =
            "update t set m = t.m + 1 from (select id from t where m >= 0) as o where o.id = t.id";
        assert_eq!(db.tag(from_another).await, "UPDATE 3000");
        let upsert =
            "insert into t select id, 0, 1 from t on conflict (id) do update set m = t.m + excluded.m";
        assert_eq!(db.tag(upsert).await, "INSERT 0 3000");
        assert_eq!(db.tag("delete from t where id >= 0 and m < 0").await, "DELETE 0");
        assert_eq!(db.tag("delete from t where n >= 0 and id >= 3000").await, "DELETE 0");
    }
    // Rows that move, among those that are set.
    assert_eq!(db.tag("update t set id = case when id < 10 then id else id + 3000 end").await, "UPDATE 3000");
    stop.store(true, Relaxed);
    let rounds = setting.await.unwrap();
    assert!(rounds > 1);
    assert_eq!(db.rows("select distinct m from t").await, ["12"]);
    assert_eq!(db.rows("select distinct n from t where id < 10").await, [rounds.to_string()]);
    assert_eq!(db.rows("select count(*), max(id) from t where id >= 10").await, ["2990|5999"]);
}

/// A row that is no longer one of those that a statement is about stays as it is; one that has become one, too, as for a
/// statement that came before the change.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_changed_is_decided_again() {
    let db = Arc::new(Db::new());
    db.run("create table t (id int primary key, n int, m int) with (durability = 'periodic:10ms')").await;
    db.run("insert into t select value, 0, 0 from generate_series(0, 999) as g(value)").await;
    for round in 1..=20 {
        let set = {
            let db = Arc::clone(&db);
            tokio::spawn(async move {
                for id in 0..10 {
                    db.run(&format!("update t set n = {round}, m = 0 where id = {id}")).await;
                }
                db.run("delete from t where id = 10").await;
            })
        };
        // Whichever comes first.
        db.run(&format!("update t set m = case when n = {round} then n else 0 end where n >= 0")).await;
        db.run("update t set m = -1 where n < 0 and id < 10").await;
        set.await.unwrap();
        let wrong = format!("select count(*) from t where m not in (0, {round}) or (id > 10 and m <> 0)");
        assert_eq!(db.rows(&wrong).await, ["0"]);
        assert_eq!(
            db.rows("select count(*) from t where id = 10").await,
            ["0"],
            "a deleted row stays deleted"
        );
        db.run("insert into t values (10, 0, 0)").await;
    }
}
