//! `SET`, `SHOW`, `RESET`, `BEGIN … COMMIT`, scripts.

use crate::db::Db;
use oribi_session::sql::{SqlEngine, TransactionStatus};

#[tokio::test]
async fn settings_are_kept_shown_and_reset() {
    let db = Db::new();
    assert_eq!(db.rows("show server_encoding").await, ["UTF8"]);
    assert_eq!(db.tag("set application_name = 'psql'").await, "SET");
    db.run("set search_path to \"Mixed\", public").await;
    db.run("set my.own = 5").await;
    assert_eq!(db.rows("show application_name").await, ["psql"]);
    assert_eq!(db.rows("show search_path").await, ["\"Mixed\", public"]);
    assert_eq!(db.rows("show my.own").await, ["5"]);
    assert_eq!(db.tag("reset application_name").await, "RESET");
    assert_eq!(db.rows("show application_name").await, [""]);
    assert!(db.rows("show all").await.iter().any(|row| row == "search_path|\"Mixed\", public"));
    db.run("reset all").await;
    assert_eq!(db.rows("show search_path").await, ["\"$user\", public"]);
    assert_eq!(db.rows("show transaction isolation level").await, ["read committed"]);
    let wrong = [
        ("show nope", "42704"),
        ("set nope = 1", "42704"),
        ("set server_version = '1'", "55P02"),
        ("set client_encoding = 'latin1'", "0A000"),
        ("set standard_conforming_strings = off", "0A000"),
    ];
    for (sql, state) in wrong {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
}

#[tokio::test]
async fn a_block_may_read_and_write_once() {
    let db = Db::new();
    db.run("create table t (id int primary key)").await;
    assert_eq!(db.tag("begin").await, "BEGIN");
    assert_eq!(db.session.transaction(), TransactionStatus::Open { wrote: false });
    db.run("select * from t").await;
    db.run("insert into t values (1)").await;
    assert_eq!(db.session.transaction(), TransactionStatus::Open { wrote: true });
    assert!(db.session.take_warnings()[0].contains("applied already"));
    assert_eq!(db.tag("commit").await, "COMMIT");
    assert_eq!(db.session.transaction(), TransactionStatus::Idle);
    assert_eq!(db.rows("select count(*) from t").await, ["1"]);
}

#[tokio::test]
async fn what_cannot_be_undone_is_refused_and_said() {
    let db = Db::new();
    db.run("create table t (id int primary key)").await;
    db.run("begin").await;
    db.run("insert into t values (1)").await;
    let error = db.error("insert into t values (2)").await;
    assert!(error.to_string().contains("more than one writing statement"), "{error}");
    assert_eq!(db.session.transaction(), TransactionStatus::Failed { wrote: true });
    assert_eq!(db.state("select 1").await, "25P02");
    let error = db.error("rollback").await;
    assert!(error.to_string().contains("cannot roll back"), "{error}");
    assert_eq!(db.session.transaction(), TransactionStatus::Idle);
    assert_eq!(db.rows("select id from t").await, ["1"]);

    db.run("begin").await;
    assert_eq!(db.state("select * from nope").await, "42P01");
    assert_eq!(db.session.transaction(), TransactionStatus::Failed { wrote: false });
    assert_eq!(db.tag("commit").await, "ROLLBACK");
    db.run("begin").await;
    assert_eq!(db.tag("rollback").await, "ROLLBACK");
    for sql in ["begin isolation level serializable", "savepoint a"] {
        assert_eq!(db.state(sql).await, "0A000", "{sql}");
    }
}

#[tokio::test]
async fn scripts_are_split() {
    let db = Db::new();
    assert_eq!(db.query.split("select 1; -- x;\nselect ';';").unwrap(), ["select 1", "select ';'"]);
}

#[tokio::test]
async fn errors_name_their_place() {
    let db = Db::new();
    db.run("create table t (id int primary key)").await;
    assert_eq!(db.error("select nope from t").await.position, Some(8));
    assert_eq!(db.error("select 1 +").await.sqlstate, Some("42601"));
    assert_eq!(db.error("selec 1").await.position, Some(1));
    assert_eq!(db.state("select * from nope").await, "42P01");
}
