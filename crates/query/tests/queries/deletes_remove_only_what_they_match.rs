//! `DELETE`, above all those whose condition DataFusion's own hooks would lose.

use crate::db::Db;
use oribi_types::Value;

async fn numbers() -> Db {
    let db = Db::new();
    db.run("create table t (id bigint primary key, n bigint)").await;
    db.run("insert into t select value, value % 3 from generate_series(1, 9) as g(value)").await;
    db.run("create table s (id bigint primary key, n bigint)").await;
    db.run("insert into s values (1, 2), (2, 4), (3, 40)").await;
    db
}

async fn left(db: &Db) -> Vec<String> {
    db.rows("select id from t order by id").await
}

#[tokio::test]
async fn a_subquery_deletes_only_matches() {
    for flush in [false, true] {
        let db = numbers().await;
        if flush {
            db.flush("t");
        }
        assert_eq!(db.tag("delete from t where id in (select n from s)").await, "DELETE 2");
        assert_eq!(left(&db).await, ["1", "3", "5", "6", "7", "8", "9"]);
        assert_eq!(
            db.tag("delete from t where exists (select 1 from s where s.id = t.id)").await,
            "DELETE 2"
        );
        assert_eq!(left(&db).await, ["5", "6", "7", "8", "9"]);
        assert_eq!(
            db.tag("delete from t where not exists (select 1 from s where s.n = t.id * 5)").await,
            "DELETE 4"
        );
        assert_eq!(left(&db).await, ["8"]);
    }
}

#[tokio::test]
async fn a_condition_that_is_never_true_deletes_nothing() {
    let db = numbers().await;
    for condition in
        ["false", "1 = 0", "null", "n = null", "id in (select id from s where false)", "id = 3 and id = 4"]
    {
        assert_eq!(db.tag(&format!("delete from t where {condition}")).await, "DELETE 0", "{condition}");
    }
    assert_eq!(left(&db).await.len(), 9);
    assert_eq!(db.state("delete from t where n = 1 limit 1").await, "0A000");
    assert_eq!(left(&db).await.len(), 9);
}

#[tokio::test]
async fn scalar_subqueries_joins_and_the_table_itself() {
    let db = numbers().await;
    assert_eq!(db.tag("delete from t where id > (select max(id) + 4 from s)").await, "DELETE 2");
    assert_eq!(db.tag("delete from t using s where t.id = s.n").await, "DELETE 2");
    assert_eq!(db.tag("delete from t as x using s where x.id = s.id and s.n > 1").await, "DELETE 2");
    assert_eq!(left(&db).await, ["5", "6", "7"]);
    assert_eq!(db.tag("delete from t where id = (select min(id) from t)").await, "DELETE 1");
    let sql = "with w as (select 6 as id) delete from t where id in (select id from w)";
    assert_eq!(db.tag(sql).await, "DELETE 1");
    assert_eq!(left(&db).await, ["7"]);
}

#[tokio::test]
async fn everything_by_key_and_by_parameter() {
    let db = numbers().await;
    assert_eq!(db.tag_with("delete from t where id = $1", &[Value::Int64(4)]).await, "DELETE 1");
    assert_eq!(db.tag_with("delete from t where id = $1", &[Value::Int64(4)]).await, "DELETE 0");
    assert_eq!(
        db.tag_with("delete from t where n = $1 and id > $2", &[Value::Int64(1), Value::Int64(1)]).await,
        "DELETE 1"
    );
    db.flush("t");
    assert_eq!(db.tag("delete from t where id = 1").await, "DELETE 1");
    assert_eq!(left(&db).await, ["2", "3", "5", "6", "8", "9"]);
    assert_eq!(db.tag("delete from t").await, "DELETE 6");
    assert!(left(&db).await.is_empty());
    db.run("insert into t values (1, 1)").await;
    db.flush("t");
    assert_eq!(left(&db).await, ["1"]);
}

#[tokio::test]
async fn composite_keys_are_deleted_by_all_their_columns() {
    let db = Db::new();
    db.run("create table t (a int, b text, v int, primary key (b, a)) partition by hash (a) partitions 4")
        .await;
    db.run("insert into t values (1, 'x', 1), (1, 'y', 2), (2, 'x', 3)").await;
    assert_eq!(db.tag("delete from t where a = 1 and b = 'x'").await, "DELETE 1");
    assert_eq!(db.tag("delete from t where b = 'x'").await, "DELETE 1");
    assert_eq!(db.rows("select a, b, v from t").await, ["1|y|2"]);
}
