//! A join of several partitions may have nothing to look for in some of them.

use crate::db::Db;

#[tokio::test]
async fn a_join_below_one_that_asks_for_no_rows_of_a_partition_ends() {
    let db = Db::new();
    for sql in [
        "create table large (id bigint primary key, k bigint, t text)",
        "create table left_side (id bigint primary key, k bigint)",
        "create table right_side (id bigint primary key, k bigint, x bigint)",
        "create table small (x bigint primary key, v text)",
        "insert into large select n, n, 't' || n from generate_series(1, 700000) as g(n)",
        "insert into left_side select n, n from generate_series(1, 200000) as g(n)",
        "insert into right_side select n, n, n % 10 from generate_series(1, 200000) as g(n)",
        "insert into small select n, 'v' || n from generate_series(0, 9) as g(n)",
        "set statement_timeout = '60s'",
    ] {
        db.run(sql).await;
    }
    // One row, which is in one partition; but it is not known that there are so few.
    let sql = "select count(*), max(s.v) from left_side join right_side r using (k) join small s on s.x = r.x \
               join large using (k) where large.t like '%t12345'";
    let plan = db.explain(&format!("explain {sql}")).await;
    let joins: Vec<&str> = plan.split("HashJoinExec: mode=").skip(1).collect();
    let modes: Vec<&str> = joins.iter().map(|join| join.split(',').next().unwrap()).collect();
    assert_eq!(modes, ["Partitioned", "CollectLeft", "Partitioned"], "{plan}");
    assert_eq!(db.rows(sql).await, ["1|v5"]);
}
