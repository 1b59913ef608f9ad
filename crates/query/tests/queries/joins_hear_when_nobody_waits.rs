//! A join that goes through billions of pairs ends when its client has gone.

use crate::db::Db;
use futures::{FutureExt, StreamExt};
use oribi_session::sql::{Outcome, SqlEngine};
use std::time::Duration;
use tokio::time::{sleep, timeout};

#[tokio::test]
async fn a_join_ends_with_its_client() {
    let db = Db::new();
    for sql in [
        "create table pairs (id bigint primary key, k int, t text)",
        // All pairs have the same key: there are 90 billion.
        "insert into pairs select n, 7, 't' || n from generate_series(1, 300000) as g(n)",
    ] {
        db.run(sql).await;
    }
    for (join, of) in [
        ("a join pairs b using (k) where a.id + b.id < 0", "HashJoinExec"),
        ("a join pairs b using (k) where a.t < b.t", "HashJoinExec"),
        ("a join pairs b using (k)", "HashJoinExec"),
        ("a where k in (select k from pairs b where b.id > 7)", "HashJoinExec"),
        ("a where not exists (select from pairs b where b.k = a.k and b.id > 7)", "HashJoinExec"),
        ("a where k not in (select k from pairs b where b.id > 7)", "HashJoinExec"),
        ("a join pairs b on a.id + b.id < 0", "NestedLoopJoinExec"),
        ("a where exists (select from pairs b where b.id > 7)", "NestedLoopJoinExec"),
        ("a cross join pairs b", "CrossJoinExec"),
    ] {
        let sql = format!("select sum(length(a.t)) from pairs {join}");
        let plan = db.explain(&format!("explain {sql}")).await;
        assert!(plan.contains(of), "{plan}");
        let prepared = db.query.prepare(&db.session, &sql, &[]).await.unwrap();
        let Outcome::Rows(mut rows) = prepared.execute(&db.session, &[]).await.unwrap() else { panic!() };
        // Its first side, for which it has memory until it ends.
        let first_side = || db.query.runtime_env().memory_pool.reserved() > 0;
        until(&sql, first_side).await;
        assert!(rows.next().now_or_never().is_none(), "{sql}");
        drop(rows);
        until(&sql, || !first_side()).await;
    }
}

async fn until(sql: &str, is_so: impl Fn() -> bool) {
    let waits = async {
        while !is_so() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(60), waits).await.unwrap_or_else(|_| panic!("{sql}"));
}
