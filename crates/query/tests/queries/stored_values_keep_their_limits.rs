//! Whatever computes a stored value checks the limits of its column's type.

use crate::db::Db;

/// 38 nines, the most that a `numeric(38,0)` holds.
const MOST: &str = "99999999999999999999999999999999999999";

#[tokio::test]
async fn thirty_nine_digits_are_never_stored() {
    let db = Db::new();
    for t in ["t", "o"] {
        db.run(&format!("create table {t} (id bigint primary key, n numeric(38,0))")).await;
    }
    db.run(&format!("insert into t values (1, {MOST})")).await;
    for sql in [
        "update t set n = n + 1",
        "update t set n = n + 1 where id = 1",
        "insert into t values (1, 0) on conflict (id) do update set n = t.n + 1",
        "insert into t values (1, 1) on conflict (id) do update set n = t.n + excluded.n",
        "insert into o select id, n + n from t",
        "insert into o select id, sum(n) + 1 from t group by id",
        "insert into o (n, id) select n + 1, id from t",
        "insert into o values (2, (select n + 1 from t))",
        "insert into o values (2, 100000000000000000000000000000000000000)",
        "insert into o values (2, '100000000000000000000000000000000000000')",
        "create table c (primary key (id)) as select id, n + 1 as n from t",
        "update o set n = t.n + t.n from t",
    ] {
        db.run("delete from o").await;
        db.run("insert into o values (9, 0)").await;
        assert_eq!(db.state(sql).await, "22003", "{sql}");
        assert_eq!(db.rows("select n from t").await, [MOST], "{sql}");
    }
}

#[tokio::test]
async fn a_numeric_with_many_digits_is_stored_as_the_nearest_double() {
    let db = Db::new();
    db.run("create table halves (id int primary key, d double precision, r real)").await;
    db.run("insert into halves select i, i / 2.0, i / 2.0 from generate_series(0, 999) as s(i)").await;
    db.run("update halves set d = id / 2.0, r = id / 2.0 where id % 2 = 1").await;
    assert_eq!(db.rows("select id from halves where d * 2 <> id or r * 2 <> id").await, Vec::<String>::new());
}
