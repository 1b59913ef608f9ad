//! Literals, signs and limits, as PostgreSQL reads them.

use crate::db::Db;
use oribi_session::sql::SqlEngine;
use oribi_types::{ColumnType, Value};

#[tokio::test]
async fn an_operator_may_be_followed_by_a_sign() {
    let db = Db::new();
    let sql = "select 1 >-1, 1>=-1, 1<>-1, 1<-1, 1=-1, 2*-1, 4/-2, 5% -3, 1-+1, 3||'-', 1>--c\n0, 5#--it's\n3, 1</*c*/2";
    assert_eq!(db.rows(sql).await, ["true|true|true|false|false|-2|-2|2|0|3-|true|6|true"]);
    // These are operators of their own, which nobody has made.
    for sql in ["select 1 !=-1", "select 5%-3", "select 'a'||-1", "select 5&+3"] {
        assert_eq!(db.state(sql).await, "42883", "{sql}");
    }
}

#[tokio::test]
async fn limits_are_numbers_or_null() {
    let db = Db::new();
    db.run("create table t (id bigint primary key)").await;
    db.run("insert into t values (1), (2), (3), (4)").await;
    let ordered = "select id from t order by id ";
    for (limit, rows) in [
        ("limit 2", vec!["1", "2"]),
        ("fetch first 2 rows only", vec!["1", "2"]),
        ("fetch next row only", vec!["1"]),
        ("offset 1 rows fetch first row only", vec!["2"]),
        ("offset 2", vec!["3", "4"]),
        ("limit all", vec!["1", "2", "3", "4"]),
        ("limit null offset 3", vec!["4"]),
        ("limit 1+1", vec!["1", "2"]),
        ("limit '1'", vec!["1"]),
        ("limit 1.5", vec!["1", "2"]),
        ("limit 24e-1 offset 0.5", vec!["2", "3"]),
        ("fetch first (2) rows only", vec!["1", "2"]),
    ] {
        assert_eq!(db.rows(&format!("{ordered}{limit}")).await, rows, "{limit}");
    }
    assert_eq!(db.state("select id from t limit -1").await, "2201W");
    assert_eq!(db.state("select id from t limit 'x'").await, "22P02");
    assert_eq!(db.state("select id from t offset -1").await, "2201X");
    assert_eq!(db.state("select id from t fetch first 1 rows with ties").await, "0A000");
    assert_eq!(db.state("select id from t limit 1, 2").await, "42601");
    assert_eq!(db.state("select id from t limit (select 1)").await, "0A000");
    assert_eq!(db.state("select id from t limit 9223372036854775808").await, "22003");
    assert_eq!(db.state("select id from t limit 1e50").await, "22003");
}

#[tokio::test]
async fn limits_are_parameters() {
    let db = Db::new();
    db.run("create table t (a bigint, b bigint, primary key (a, b))").await;
    db.run("insert into t select 1 + n % 2, n from generate_series(1, 8) as g(n)").await;
    let int = Value::Int64;
    for (sql, parameters, rows) in [
        ("select b from t order by b limit $1", vec![int(2)], vec!["1", "2"]),
        ("select b from t order by b limit $1 offset $2", vec![int(2), int(3)], vec!["4", "5"]),
        ("select b from t order by b limit $1 offset $2", vec![Value::Null, int(6)], vec!["7", "8"]),
        ("select b from t order by b limit $1 offset $2", vec![int(1), Value::Null], vec!["1"]),
        ("select b from t order by b fetch first $1 rows only", vec![int(1)], vec!["1"]),
        (
            "select b from t order by b offset $1 rows fetch next ($2) rows only",
            vec![int(1), int(1)],
            vec!["2"],
        ),
        ("select b from t where a = $1 order by b limit $2", vec![int(2), int(2)], vec!["1", "3"]),
        ("select b from t where a = $1 and b = $2 limit $3", vec![int(2), int(3), int(1)], vec!["3"]),
        ("select b from t where a = $1 and b = $2 limit $3", vec![int(2), int(3), int(0)], vec![]),
        ("select max(b) from (select b from t order by b limit $1) as s", vec![int(3)], vec!["3"]),
    ] {
        let prepared = db.prepare(sql).await;
        assert!(
            prepared.parameters().iter().all(|t| *t == ColumnType::Int64),
            "{sql}: {:?}",
            prepared.parameters()
        );
        assert_eq!(db.rows_with(sql, &parameters).await, rows, "{sql}");
    }
    // What is beside a number is of its type.
    let page = "select b from t order by b offset ($1 - 1) * $2 limit $2";
    assert_eq!(db.prepare(page).await.parameters(), [ColumnType::Int32; 2]);
    assert_eq!(db.rows_with(page, &[Value::Int32(2), Value::Int32(3)]).await, ["4", "5", "6"]);
    let explained =
        db.explain_with("explain select b from t where a = $1 order by b limit $2", &[int(2), int(2)]).await;
    assert!(explained.contains("key range"), "{explained}");
    let state = async |sql: &str| db.try_rows(sql, &[int(-1)]).await.unwrap_err().sqlstate;
    assert_eq!(state("select b from t limit $1").await, Some("2201W"));
    assert_eq!(state("select b from t offset $1").await, Some("2201X"));
    let narrow = db.query.prepare(&db.session, "select b from t limit $1", &[Some(ColumnType::Int16)]);
    let narrow = narrow.await.unwrap();
    assert_eq!(narrow.parameters(), [ColumnType::Int16], "what the client says stays");
    assert!(narrow.execute(&db.session, &[Value::Int16(1)]).await.is_ok());
    db.run("insert into t select a + 10, b from t where a = 1").await;
    let deleted = "delete from t where b in (select b from t where a = 11 order by b limit $1) and a = 11";
    assert_eq!(db.tag_with(deleted, &[int(3)]).await, "DELETE 3");
}

#[tokio::test]
async fn a_cast_says_what_a_parameter_is() {
    let db = Db::new();
    for (sql, expected) in [
        ("select $1::int", ColumnType::Int32),
        ("select cast($1 as date)", ColumnType::Date),
        ("select $1::timestamp", ColumnType::Timestamp),
        ("select $1::uuid", ColumnType::Uuid),
        ("select $1::jsonb", ColumnType::Json),
        ("select $1::text", ColumnType::String),
        ("select $1::bytea", ColumnType::Binary),
        ("select $1::boolean", ColumnType::Bool),
    ] {
        assert_eq!(db.prepare(sql).await.parameters(), [expected], "{sql}");
    }
    assert_eq!(db.rows_with("select $1::int + 1", &[Value::Int32(4)]).await, ["5"]);
    db.run("create table c (id bigint primary key)").await;
    db.run("insert into c values (5)").await;
    let sql = "select id from c where $1::int is null or id = $1";
    assert_eq!(
        db.prepare(sql).await.parameters(),
        [ColumnType::Int64],
        "what it is compared with says it too"
    );
    assert_eq!(db.rows_with(sql, &[Value::Int64(5)]).await, ["5"]);
}

#[tokio::test]
async fn names_are_folded_in_ascii_alone() {
    let db = Db::new();
    db.run("create table Ärzte (Id bigint primary key, Öl bigint)").await;
    db.run("insert into Ärzte (ID, Öl) values (1, 2)").await;
    assert_eq!(db.rows("select Öl, Ärzte.ID from Ärzte where iD = 1").await, ["2|1"]);
    assert_eq!(db.rows("select \"Öl\" from \"Ärzte\" order by ÖL").await.len(), 1, "Ö folds not, L does");
    assert_eq!(db.state("select 1 from ärzte").await, "42P01");
    db.run("update Ärzte set Öl = Öl + 1 where Ärzte.Öl = 2").await;
    assert_eq!(db.rows("select Öl from Ärzte where id = 1").await, ["3"]);
}
