//! Literals, signs and limits, as PostgreSQL reads them.

use crate::db::Db;

#[tokio::test]
async fn an_operator_may_be_followed_by_a_sign() {
    let db = Db::new();
    let sql = "select 1 >-1, 1>=-1, 1<>-1, 1<-1, 1=-1, 2*-1, 4/-2, 5%-3, 1-+1, 3||'-', 1>--c\n0";
    assert_eq!(db.rows(sql).await, ["true|true|true|false|false|-2|-2|2|0|3-|true"]);
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
    ] {
        assert_eq!(db.rows(&format!("{ordered}{limit}")).await, rows, "{limit}");
    }
    assert_eq!(db.state("select id from t limit -1").await, "2201W");
    assert_eq!(db.state("select id from t offset -1").await, "2201X");
    assert_eq!(db.state("select id from t fetch first 1 rows with ties").await, "0A000");
    assert_eq!(db.state("select id from t limit 1, 2").await, "42601");
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
