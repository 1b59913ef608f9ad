//! A look-up by primary key answers what the planner would answer, without it.

use crate::db::Db;
use oribi_session::sql::{Outcome, Point, SqlEngine};
use oribi_types::{ColumnType, Value};

async fn table() -> Db {
    let db = Db::new();
    db.run(
        "create table t (a bigint, b text, n integer, primary key (a, b)) partition by hash (a) partitions 2",
    )
    .await;
    db.run("insert into t values (1, 'x', 10), (1, 'y', 11), (2, 'x', 20)").await;
    db.run("create table one (k integer primary key, v text)").await;
    db.run("insert into one select value, 'v' || value from generate_series(1, 100) as g(value)").await;
    db
}

async fn is_point(db: &Db, sql: &str) -> bool {
    db.explain(&format!("explain {sql}")).await.contains("point read")
}

#[tokio::test]
async fn look_ups_are_recognised_and_nothing_else() {
    let db = table().await;
    for sql in [
        "select * from one where k = 7",
        "select v, k as key from public.one o where 7 = o.k",
        "select one.* from one where (k = -7)",
        "select v from one where k in (1, 2, 3)",
        "select n from t where b = 'x' and a = 1",
        "select n from t where b in ('x', 'y') and a = 1",
    ] {
        assert!(is_point(&db, sql).await, "{sql}");
    }
    for sql in [
        "select * from one where k > 7",
        "select * from one where k = 7 or k = 8",
        "select * from one where k = 7 and v = 'x'",
        "select count(*) from one where k = 7",
        "select k + 1 from one where k = 7",
        "select * from one where k = 7 limit 0",
        "select * from one where k = 7 order by v",
        "select distinct v from one where k in (1, 2)",
        "select * from one where k = 1.5",
        "select * from one where k = null",
        "select * from one where k not in (1)",
        "select * from one, t where k = 1",
        "select n from t where a = 1",
        "select n from t where a = 1 and a = 2",
        "select n from t where a in (1, 2) and b in ('x', 'y')",
        "with one as (select 1 as k) select * from one where k = 1",
    ] {
        assert!(!is_point(&db, sql).await, "{sql}");
    }
}

#[tokio::test]
async fn they_answer_from_memory_and_from_files() {
    let db = table().await;
    for when in ["unflushed", "flushed", "compacted"] {
        assert_eq!(db.rows("select v from one where k = 42").await, ["v42"], "{when}");
        assert_eq!(db.rows("select v from one where k = 4200").await, Vec::<String>::new(), "{when}");
        let mut rows = db.rows("select k, v from one where k in (3, 1, 3, 999, 2)").await;
        rows.sort();
        assert_eq!(rows, ["1|v1", "2|v2", "3|v3"], "{when}");
        assert_eq!(db.rows("select n, b, a from t where a = 1 and b = 'y'").await, ["11|y|1"], "{when}");
        match when {
            "unflushed" => ["one", "t"].iter().for_each(|t| db.flush(t)),
            _ => ["one", "t"].iter().for_each(|t| db.compact(t)),
        }
    }
    db.run("delete from one where k = 42").await;
    assert_eq!(db.rows("select v from one where k = 42").await, Vec::<String>::new());
}

#[tokio::test]
async fn parameters_are_converted_to_the_type_of_the_key() {
    let db = table().await;
    let sql = "select v from one where k = $1";
    let prepared = db.query.prepare(&db.session, sql, &[]).await.unwrap();
    assert_eq!(prepared.parameters(), [ColumnType::Int32]);
    assert_eq!(prepared.columns().unwrap().field(0).name(), "v");
    let prepared = db.query.prepare(&db.session, sql, &[Some(ColumnType::Int64)]).await.unwrap();
    assert_eq!(prepared.parameters(), [ColumnType::Int64]);
    for (value, expected) in [(Value::Int64(5), 1), (Value::Int64(5_000_000_000), 0), (Value::Null, 0)] {
        let outcome = prepared.execute(&db.session, std::slice::from_ref(&value)).await.unwrap();
        let Outcome::Rows(rows) = outcome else { panic!("rows") };
        let rows: Vec<arrow::array::RecordBatch> = futures::TryStreamExt::try_collect(rows).await.unwrap();
        assert_eq!(rows.iter().map(|b| b.num_rows()).sum::<usize>(), expected, "{value:?}");
    }
}

#[tokio::test]
async fn a_prepared_look_up_follows_a_change_of_the_table() {
    let db = table().await;
    let prepared = db.query.prepare(&db.session, "select k, v from one where k = $1", &[]).await.unwrap();
    db.run("alter table one add column extra bigint").await;
    db.run("insert into one values (1000, 'new', 5)").await;
    let outcome = prepared.execute(&db.session, &[Value::Int32(1000)]).await.unwrap();
    let Outcome::Rows(rows) = outcome else { panic!("rows") };
    let rows: Vec<arrow::array::RecordBatch> = futures::TryStreamExt::try_collect(rows).await.unwrap();
    assert_eq!(rows.iter().map(|b| b.num_rows()).sum::<usize>(), 1);
}

#[tokio::test]
async fn one_row_is_read_without_a_batch() {
    let db = table().await;
    let prepared =
        db.query.prepare(&db.session, "select n, b from t where b = $1 and a = 1", &[]).await.unwrap();
    let mut seen = Vec::new();
    let mut get = |key: &str| {
        let Some(Point::Read(point)) = prepared.point(&db.session) else { panic!("a look-up of one row") };
        let key = [Value::String(key.to_owned())];
        let found = point
            .try_get(&db.session, &key, &mut |columns| seen.extend(columns.iter().map(|c| (*c).to_owned())))
            .unwrap();
        found.expect("it is in memory").0
    };
    assert!(get("y"));
    assert!(!get("z"));
    assert_eq!(seen, [Value::Int32(11), Value::String("y".to_owned())]);
    db.run("alter table t drop column n").await;
    assert!(prepared.point(&db.session).is_none(), "the plan is of another catalog");
    let several = db.query.prepare(&db.session, "select v from one where k in (1, 2)", &[]).await.unwrap();
    assert!(several.point(&db.session).is_none());
}

#[tokio::test]
async fn a_key_is_shown_as_it_was_written() {
    let db = Db::new();
    db.run("create table e (a bytea, b text, c bytea, n integer, primary key (a, b, c))").await;
    db.run("insert into e values ('\\x00ff00', 'naïve', '\\x0001', 7)").await;
    let prepared = db.prepare("select c, n, a, b, a from e where a = $1 and b = 'naïve' and c = $2").await;
    let Some(Point::Read(point)) = prepared.point(&db.session) else { panic!("a look-up of one row") };
    let key = [Value::Binary(vec![0, 255, 0]), Value::Binary(vec![0, 1])];
    let mut seen = Vec::new();
    let found = point.get(&key, &mut |columns| seen.extend(columns.iter().map(|c| (*c).to_owned()))).unwrap();
    assert!(found.0);
    let [a, c] = key;
    assert_eq!(seen, [c, Value::Int32(7), a.clone(), Value::String("naïve".to_owned()), a]);
}

/// Rounded to the key's scale, a number would find a row that it does not equal.
#[tokio::test]
async fn a_number_of_more_digits_than_the_key_finds_nothing() {
    let db = Db::new();
    db.run("create table t (id numeric(10,2) primary key, n numeric(10,2))").await;
    db.run("insert into t values (1.24, 1.24)").await;
    for column in ["id", "n"] {
        for value in ["= 1.239", "= '1.239'", "in (1.239)", "= 1.2400001", "= -1.24"] {
            let sql = format!("select id from t where {column} {value}");
            assert_eq!(db.rows(&sql).await, Vec::<String>::new(), "{sql}");
        }
        for value in ["= 1.24", "= '1.24'", "= 1.240", "in (1.2400, 5)"] {
            let sql = format!("select id from t where {column} {value}");
            assert_eq!(db.rows(&sql).await, ["1.24"], "{sql}");
        }
    }
    assert!(is_point(&db, "select id from t where id = 1.240").await);
    assert_eq!(db.rows("select id from t where n between '1.239' and '1.2401'").await, ["1.24"]);
    assert_eq!(db.rows("select id from t where n > '1.2399' and n < '12399e-4'").await, Vec::<String>::new());
    assert_eq!(db.state("select id from t where n = 'many'").await, "22P02");
    for (sql, rounds) in [
        ("select id from t where id = $1", false),
        ("select id from t where n = $1", false),
        ("update t set n = 1 where id = $1", false),
        ("delete from t where n > $1", false),
        ("insert into t values (5, $1)", true),
        ("update t set n = $1 where id = 1", true),
    ] {
        assert_eq!(db.prepare(sql).await.rounds(0), rounds, "{sql}");
    }
}
