//! A prepared statement is about the tables that the session's settings name when it is executed.

use crate::db::{Db, int};
use arrow::array::{Int64Array, RecordBatch};
use futures::TryStreamExt;
use oribi_session::sql::{Outcome, Point, Prepared};
use oribi_types::Value;
use std::sync::Arc;

/// Two schemas with a table `t` each; in `a`, the row 1 says 10, in `b` it says 20.
async fn tenants() -> Db {
    let db = Db::new();
    for (schema, n) in [("a", 10), ("b", 20)] {
        db.run(&format!("create schema {schema}")).await;
        db.run(&format!("create table {schema}.t (id bigint primary key, n bigint)")).await;
        db.run(&format!("insert into {schema}.t values (1, {n})")).await;
    }
    db.run("set search_path to a").await;
    db
}

/// Runs a prepared statement as a door does: on the spot if it may be; returns what it read or its tag.
async fn execute(db: &Db, prepared: &Arc<dyn Prepared>, parameters: &[Value]) -> String {
    match prepared.point(&db.session) {
        Some(Point::Read(read)) => {
            let mut seen = String::new();
            read.get(parameters, &mut |row| seen = format!("{row:?}")).unwrap();
            return seen;
        }
        Some(Point::Write(write)) => {
            if let Some((rows, _)) = write.write(&db.session, parameters) {
                return format!("{} {rows}", prepared.verb());
            }
        }
        None => {}
    }
    match prepared.execute(&db.session, parameters).await.unwrap() {
        Outcome::Done { tag } => tag,
        Outcome::Rows(rows) => {
            let rows: Vec<RecordBatch> = rows.try_collect().await.unwrap();
            let column = |batch: &RecordBatch| batch.column(0).as_any().downcast_ref::<Int64Array>().cloned();
            format!(
                "{:?}",
                rows.iter().flat_map(|batch| column(batch).unwrap().values().to_vec()).collect::<Vec<_>>()
            )
        }
        Outcome::CopyIn(mut sink) => {
            let values = [7, 7].map(|v| Arc::new(Int64Array::from(vec![v])) as _);
            sink.push(RecordBatch::try_new(Arc::clone(sink.schema()), values.to_vec()).unwrap())
                .await
                .unwrap();
            format!("COPY {}", sink.finish().await.unwrap())
        }
    }
}

/// The ways to change which table is meant, and to go back.
const SWITCHES: [(&[&str], &[&str]); 5] = [
    (&["set search_path to b"], &["set search_path to a"]),
    (&["begin", "set local search_path to b"], &["commit"]),
    (&["begin", "set search_path to b"], &["rollback"]),
    (&["begin", "set local search_path to b"], &["rollback"]),
    (&["set search_path to b"], &["reset search_path", "set search_path to a"]),
];

#[tokio::test]
async fn reads_find_the_table_of_the_path_that_holds() {
    let db = tenants().await;
    for sql in [
        "select n from t where id = $1",
        "select n from t where id + 0 = $1",
        "select n from t where id in ($1, 5)",
    ] {
        let prepared = db.prepare(sql).await;
        for (switch, back) in SWITCHES {
            assert!(execute(&db, &prepared, &[int(1)]).await.contains("10"), "{sql}");
            for step in switch {
                db.run(step).await;
            }
            assert!(execute(&db, &prepared, &[int(1)]).await.contains("20"), "{sql} after {switch:?}");
            for step in back {
                db.run(step).await;
            }
        }
        assert!(execute(&db, &prepared, &[int(1)]).await.contains("10"), "{sql}");
    }
}

#[tokio::test]
async fn writes_go_to_the_table_of_the_path_that_holds() {
    let writes = [
        ("insert into t values (7, 7)", "INSERT 0 1"),
        ("insert into t select 7, 7", "INSERT 0 1"),
        ("insert into t values (1, 7) on conflict (id) do update set n = excluded.n", "INSERT 0 1"),
        ("insert into t values (1, 7) on conflict (id) do update set n = t.n + 1", "INSERT 0 1"),
        ("update t set n = 7 where id = 1", "UPDATE 1"),
        ("update t set n = n + 7 where id > 0", "UPDATE 1"),
        ("delete from t where id = 1", "DELETE 1"),
        ("delete from t where n > 0", "DELETE 1"),
        ("copy t from stdin", "COPY 1"),
    ];
    for (sql, tag) in writes {
        for (switch, back) in &SWITCHES[..2] {
            let db = tenants().await;
            let prepared = db.prepare(sql).await;
            for step in *switch {
                db.run(step).await;
            }
            assert_eq!(execute(&db, &prepared, &[]).await, tag, "{sql}");
            for step in *back {
                db.run(step).await;
            }
            let (a, b) = (db.rows("select id, n from a.t").await, db.rows("select id, n from b.t").await);
            assert_eq!(a, ["1|10"], "{sql} after {switch:?} changed the table that it was prepared for");
            assert_ne!(b, ["1|20"], "{sql} after {switch:?} did nothing");
            assert_eq!(execute(&db, &prepared, &[]).await, tag, "{sql}");
            assert_ne!(db.rows("select id, n from a.t").await, a, "{sql} after {back:?}");
        }
    }
}

#[tokio::test]
async fn a_result_of_another_shape_is_refused_and_a_point_read_is_one_again() {
    let db = tenants().await;
    db.run("create schema c").await;
    db.run("create table c.t (id bigint primary key, n text)").await;
    let prepared = db.prepare("select n from t where id = $1").await;
    assert!(prepared.point(&db.session).is_some());
    db.run("set search_path to c").await;
    assert!(prepared.point(&db.session).is_none());
    let error = prepared.execute(&db.session, &[int(1)]).await.err().unwrap();
    assert_eq!(error.sqlstate, Some("0A000"), "{error}");
    for step in ["set search_path to a", "discard all", "set search_path to a"] {
        db.run(step).await;
    }
    assert!(prepared.point(&db.session).is_some());
}
