//! Files keep the columns of the time they were written; queries see the table's.

use crate::db::Db;

async fn table() -> Db {
    let db = Db::new();
    db.run("create table t (k bigint primary key, a bigint, b text)").await;
    db.run("insert into t values (1, 10, 'x'), (2, 20, 'y')").await;
    db.flush("t");
    db
}

#[tokio::test]
async fn an_added_column_answers_its_default_for_old_rows() {
    let db = table().await;
    db.run("alter table t add column c bigint not null default 5").await;
    db.run("alter table t add column d text").await;
    db.run("insert into t values (3, 30, 'z', 6, 'new')").await;
    for when in ["unflushed", "flushed"] {
        assert_eq!(db.rows("select k, c, d from t order by k").await, ["1|5|", "2|5|", "3|6|new"], "{when}");
        assert_eq!(db.rows("select k from t where c = 5 order by k").await, ["1", "2"], "{when}");
        assert_eq!(db.rows("select k from t where d is null order by k").await, ["1", "2"], "{when}");
        assert_eq!(db.rows("select min(c), max(c), count(d), count(c) from t").await, ["5|6|1|3"], "{when}");
        assert_eq!(db.rows("select c + k from t where k = 2").await, ["7"], "{when}");
        db.flush("t");
    }
}

#[tokio::test]
async fn a_renamed_column_is_found_under_its_old_name() {
    let db = table().await;
    db.run("alter table t rename column b to a2").await;
    db.run("insert into t values (3, 30, 'z')").await;
    for when in ["unflushed", "flushed"] {
        assert_eq!(db.rows("select a2, a from t order by k").await, ["x|10", "y|20", "z|30"], "{when}");
        assert_eq!(db.rows("select k from t where a2 = 'y'").await, ["2"], "{when}");
        assert_eq!(db.rows("select min(a2), max(a2) from t").await, ["x|z"], "{when}");
        db.flush("t");
    }
}

#[tokio::test]
async fn names_that_change_places_do_not_mix_values() {
    let db = table().await;
    db.run("alter table t add column c bigint").await;
    db.run("update t set c = a + 1").await;
    db.flush("t");
    db.run("alter table t rename column a to tmp").await;
    db.run("alter table t rename column c to a").await;
    db.run("alter table t rename column tmp to c").await;
    assert_eq!(db.rows("select a, c from t order by k").await, ["11|10", "21|20"]);
    assert_eq!(db.rows("select k from t where a = 11 and c = 10").await, ["1"]);
    assert_eq!(db.rows("select k from t where c = 11").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_dropped_and_added_name_brings_nothing_back() {
    let db = table().await;
    db.run("alter table t drop column a").await;
    db.run("alter table t add column a bigint").await;
    assert_eq!(db.rows("select k, a from t order by k").await, ["1|", "2|"]);
    assert_eq!(db.rows("select count(*) from t where a = 10").await, ["0"]);
    assert_eq!(db.rows("select max(a) from t").await, [""]);
    db.run("update t set a = 1 where k = 1").await;
    db.flush("t");
    db.compact("t");
    assert_eq!(db.rows("select k, a from t order by k").await, ["1|1", "2|"]);
}

#[tokio::test]
async fn the_key_value_bucket_shows_its_commit_timestamps() {
    let db = Db::new();
    db.run("insert into \"default\".kv (key, value, flags) values ('\\x61', '\\x62', 7)").await;
    let before = db.rows("select cas from \"default\".kv").await;
    db.engine.flush(&db.engine.table("default", "kv").unwrap()).unwrap();
    assert_eq!(db.rows("select cas from \"default\".kv").await, before, "flushing changed cas");
    assert_eq!(db.rows(&format!("select flags from \"default\".kv where cas = {}", before[0])).await, ["7"]);
    assert_eq!(db.rows("select count(*) from \"default\".kv where cas = 1").await, ["0"]);
}
