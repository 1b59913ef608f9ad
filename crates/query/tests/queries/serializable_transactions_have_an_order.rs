//! Serializable transactions are as if one had run behind the other: of two that each read what the other writes one is
//! refused, in whatever way they read. Those that read other things, or write nothing, are not.

use super::db::Db;
use arrow::array::{Int64Array, RecordBatch};
use oribi_engine::EngineOptions;
use oribi_session::sql::Outcome;
use std::sync::Arc;

async fn rows() -> Db {
    let db = Db::new();
    db.run("create table t (id bigint primary key, n bigint)").await;
    db.run("create table other (id bigint primary key, n bigint)").await;
    db.run("insert into t select i, i from generate_series(1, 20) as g(i)").await;
    db.flush("t");
    db.run("insert into t values (21, 21)").await;
    db
}

/// What `COMMIT` says to the second of two blocks which read as `read` says, `{id}` being which, when the first has written what
/// the second read.
async fn second(read: &str) -> Result<(), &'static str> {
    let db = rows().await;
    let other = db.client("other");
    for (session, id) in [(&db, 1), (&other, 2)] {
        session.run("begin isolation level serializable").await;
        session.run(&read.replace("{id}", &id.to_string())).await;
        session.run(&format!("insert into other values ({id}, 0)")).await;
    }
    db.run("update t set n = n + 1 where id = 5").await;
    db.run("commit").await;
    match other.outcome("commit", &[]).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.sqlstate.expect("a state")),
    }
}

#[tokio::test]
async fn who_has_read_what_another_wrote_is_refused() {
    for read in [
        "select * from t where id = 5",
        "select * from t where id in (4, 5)",
        "select * from t where id between 4 and 6",
        "select * from t where n = 5",
        "select count(*) from t",
        "select sum(t.n) from t join other using (id)",
        "insert into other select id + 100 * {id}, n from t",
        "update other set n = (select max(n) from t)",
        "delete from t where id = 99 and n in (select n from t)",
    ] {
        assert_eq!(second(read).await, Err("40001"), "{read}");
    }
}

#[tokio::test]
async fn who_has_read_other_rows_by_key_is_not() {
    for read in
        ["select * from t where id = 6", "select * from t where id = 99", "update t set n = 0 where id = 99"]
    {
        assert_eq!(second(read).await, Ok(()), "{read}");
    }
}

#[tokio::test]
async fn rows_that_were_not_there_count_too() {
    for read in
        ["select * from t where id = 30", "update t set n = 1 where id = 30", "delete from t where id = 30"]
    {
        let db = rows().await;
        let other = db.client("other");
        db.run("begin isolation level serializable").await;
        db.run(read).await;
        db.run("insert into other values (1, 0)").await;
        other.run("insert into t values (30, 0)").await;
        assert_eq!(db.state("commit").await, "40001", "{read}");
        assert!(db.rows("select * from other").await.is_empty());
    }
}

#[tokio::test]
async fn who_writes_nothing_is_never_refused() {
    let db = rows().await;
    let other = db.client("other");
    db.run("begin isolation level serializable").await;
    assert_eq!(db.rows("select sum(n) from t").await, ["231"]);
    other.run("update t set n = 0").await;
    assert_eq!(db.rows("select sum(n) from t").await, ["231"]);
    assert_eq!(db.rows("select n from t where id = 5").await, ["5"]);
    db.run("commit").await;
    assert_eq!(db.rows("select sum(n) from t").await, ["0"]);
}

#[tokio::test]
async fn what_is_not_compared_is_refused() {
    let db = rows().await;
    db.run("begin isolation level serializable").await;
    db.run("select count(*) from t").await;
    assert_eq!(db.state("create table u (id int primary key)").await, "0A000");
    db.run("rollback").await;
    db.run("begin isolation level serializable").await;
    db.run("create table u (id int primary key)").await;
    db.run("select count(*) from t").await;
    assert_eq!(db.state("commit").await, "0A000");
    assert!(db.engine.table("public", "u").is_err());
}

#[tokio::test]
async fn it_can_be_the_default() {
    let db = rows().await;
    let other = db.client("other");
    for session in [&db, &other] {
        session.run("set session characteristics as transaction isolation level serializable").await;
        assert_eq!(session.rows("show default_transaction_isolation").await, ["serializable"]);
        session.run("begin").await;
        assert_eq!(session.rows("show transaction_isolation").await, ["serializable"]);
        session.run("select count(*) from t").await;
    }
    db.run("insert into t values (30, 0)").await;
    other.run("insert into t values (31, 0)").await;
    db.run("commit").await;
    assert_eq!(other.state("commit").await, "40001");
    assert_eq!(db.rows("select id from t where id >= 30").await, ["30"]);
}

#[tokio::test]
async fn a_statement_by_itself_is_one_too() {
    let db = rows().await;
    db.run("set default_transaction_isolation = 'serializable'").await;
    assert_eq!(db.tag("insert into other select id, n from t where n > 10").await, "INSERT 0 11");
    assert_eq!(db.rows("insert into other values (99, 1) returning id").await, ["99"]);
    assert_eq!(db.state("insert into other values (99, 1)").await, "23505");
    assert_eq!(db.rows("select count(*) from other").await, ["12"]);
    let Outcome::CopyIn(mut sink) = db.outcome("copy other from stdin", &[]).await.unwrap() else {
        panic!("a copy")
    };
    let values = [100, 1].map(|v| Arc::new(Int64Array::from(vec![v])) as _);
    sink.push(RecordBatch::try_new(Arc::clone(sink.schema()), values.to_vec()).unwrap()).await.unwrap();
    sink.finish().await.unwrap();
    assert_eq!(db.rows("select count(*) from other").await, ["13"]);
}

/// Whoever has locked a row that another has only read has written nothing yet.
#[tokio::test]
async fn a_commit_does_not_wait_for_rows_that_it_only_compares() {
    let db = rows().await;
    let other = db.client("other");
    other.run("begin").await;
    other.run("update t set n = 0 where id = 5").await;
    db.run("begin isolation level serializable").await;
    db.run("select n from t where id = 5").await;
    db.run("insert into other values (1, 0)").await;
    db.run("commit").await;
    other.run("commit").await;
}

#[tokio::test]
async fn rows_that_were_changed_where_they_lie_count_too() {
    for change in ["delete from t where n > 10", "update t set n = n + 1 where n > 10"] {
        let db = Db::with(EngineOptions { by_position_rows_min: 1, ..EngineOptions::default() });
        db.run("create table t (id bigint primary key, n bigint)").await;
        db.run("create table other (id bigint primary key)").await;
        db.run("insert into t select i, i from generate_series(1, 20) as g(i)").await;
        db.flush("t");
        let other = db.client("other");
        for read in ["select sum(n) from t", "select n from t where id = 15"] {
            db.run("begin isolation level serializable").await;
            db.run(read).await;
            db.run("insert into other values (1)").await;
            other.run(change).await;
            assert_eq!(db.state("commit").await, "40001", "{read}, {change}");
            other.run("delete from t").await;
            other.run("insert into t select i, i from generate_series(1, 20) as g(i)").await;
            db.flush("t");
        }
    }
}
