//! `UPDATE`: assignments, conditions of every shape, keys that change, and refusals.

use crate::db::{Db, text};
use oribi_types::Value;

async fn people() -> Db {
    let db = Db::new();
    db.run("create table t (id int primary key, n int not null, s text, d numeric(8,2) default 1.5)").await;
    db.run("insert into t values (1, 10, 'a', 1), (2, 20, 'b', 2), (3, 30, 'c', 3), (4, 40, null, null)")
        .await;
    db
}

#[tokio::test]
async fn constants_and_expressions_are_assigned() {
    let db = people().await;
    assert_eq!(db.tag("update t set n = n + 1, s = upper(s), d = default where n >= 20").await, "UPDATE 3");
    assert_eq!(
        db.rows("select * from t order by id").await,
        ["1|10|a|1.00", "2|21|B|1.50", "3|31|C|1.50", "4|41||1.50"]
    );
    assert_eq!(db.tag("update t set s = 'all'").await, "UPDATE 4");
    assert_eq!(db.tag("update t set d = n / 3.0 where id = 3").await, "UPDATE 1");
    assert_eq!(db.rows("select d from t where id = 3").await, ["10.33"]);
    assert_eq!(db.tag("update t set (s, d) = ('all', d + 0) where id = 2").await, "UPDATE 1");
    assert_eq!(db.tag("update t set s = 'none' where false").await, "UPDATE 0");
    assert_eq!(db.tag("update t set s = 'none' where id = null").await, "UPDATE 0");
    assert_eq!(db.rows("select count(*) from t where s = 'all'").await, ["4"]);
}

#[tokio::test]
async fn rows_in_sstables_and_in_memory_are_changed_alike() {
    let db = people().await;
    db.flush("t");
    db.run("insert into t values (5, 50, 'e', 5)").await;
    assert_eq!(db.tag("update t set n = n * 2").await, "UPDATE 5");
    db.flush("t");
    assert_eq!(db.tag("update t set n = n + 1 where id in (2, 5)").await, "UPDATE 2");
    db.compact("t");
    assert_eq!(db.rows("select n from t order by id").await, ["20", "41", "60", "80", "101"]);
}

#[tokio::test]
async fn subqueries_and_joins_decide_and_compute() {
    let db = people().await;
    db.run("create table s (id int primary key, ref int, v int)").await;
    db.run("insert into s values (1, 1, 100), (2, 3, 300), (3, 9, 900)").await;
    assert_eq!(db.tag("update t set n = 0 where id in (select ref from s)").await, "UPDATE 2");
    let sql = "update t set n = (select max(v) from s where s.ref = t.id) where exists (select 1 from s where s.ref = t.id)";
    assert_eq!(db.tag(sql).await, "UPDATE 2");
    assert_eq!(db.rows("select n from t order by id").await, ["100", "20", "300", "40"]);
    assert_eq!(db.tag("update t as x set n = x.n + s.v from s where s.ref = x.id").await, "UPDATE 2");
    assert_eq!(db.rows("select n from t order by id").await, ["200", "20", "600", "40"]);
    db.run("insert into s values (4, 1, 1)").await;
    assert_eq!(db.tag("update t set s = 'joined' from s where s.ref = t.id and s.ref = 1").await, "UPDATE 1");
    let sql = "with w as (select 2 as id) update t set s = 'with' where id in (select id from w)";
    assert_eq!(db.tag(sql).await, "UPDATE 1");
    assert_eq!(db.tag("update public.t set s = 'named' where public.t.id = 4 and t.n > 1").await, "UPDATE 1");
    assert_eq!(db.rows("select s from t order by id").await, ["joined", "with", "c", "named"]);
}

#[tokio::test]
async fn a_changed_key_moves_the_row() {
    let db = people().await;
    assert_eq!(db.tag("update t set id = id + 1").await, "UPDATE 4");
    assert_eq!(db.rows("select id, n from t order by id").await, ["2|10", "3|20", "4|30", "5|40"]);
    assert_eq!(db.tag("update t set id = 7 - id where id in (2, 5)").await, "UPDATE 2");
    assert_eq!(db.rows("select id, n from t order by id").await, ["2|40", "3|20", "4|30", "5|10"]);
    assert_eq!(db.state("update t set id = 3 where id = 4").await, "23505");
    assert_eq!(db.state("update t set id = 9 where id > 3").await, "23505");
    assert_eq!(db.state("update t set id = null where id = 4").await, "23502");
    db.flush("t");
    assert_eq!(db.tag("update t set id = id, s = 'same' where id = 4").await, "UPDATE 1");
    assert_eq!(db.rows("select id, n from t order by id").await, ["2|40", "3|20", "4|30", "5|10"]);
}

#[tokio::test]
async fn a_row_is_found_by_its_key_without_a_plan() {
    let db = people().await;
    let text_of = db.explain("explain update t set s = 'x' where id = 2").await;
    assert!(text_of.contains("update of public.t by primary key"), "{text_of}");
    let prepared = db.prepare("update t set s = $1, n = $2 where id = $3").await;
    let types: Vec<String> = prepared.parameters().iter().map(ToString::to_string).collect();
    assert_eq!(types, ["text", "integer", "integer"]);
    prepared.execute(&db.session, &[text("y"), Value::Int32(7), Value::Int32(2)]).await.unwrap();
    prepared.execute(&db.session, &[text("y"), Value::Int32(7), Value::Int32(99)]).await.unwrap();
    assert_eq!(db.rows("select count(*), max(s) from t where n = 7").await, ["1|y"]);
    // 2.5 is no key; it must not be rounded to one.
    assert_eq!(db.tag("update t set s = 'z' where id = 2.5").await, "UPDATE 0");
    assert_eq!(db.tag("update t set s = 'z' where id = 2 and n = 0").await, "UPDATE 0");
}

#[tokio::test]
async fn refusals_say_what_is_wrong() {
    let db = people().await;
    let wrong = [
        ("update nope set a = 1", "42P01"),
        ("update t set nope = 1", "42703"),
        ("update t set n = nope", "42703"),
        ("update t set n = 1, n = 2", "42601"),
        ("update t set n = null where id = 1", "23502"),
        ("update t set n = nullif(n, n) where id = 1", "23502"),
        ("update t set n = 'x'", "22P02"),
        ("update t set n = n + 3000000000", "22003"),
        ("update t set n = 1 / 0", "22012"),
        ("update t set d = 12345678.9", "22003"),
        ("update t set n = n > 1", "42804"),
        ("update t set n = row_number() over ()", "42P20"),
        ("update t set n = 1 where rank() over (order by n) = 1", "42P20"),
        ("update t set n = 1 returning 1 + row_number() over ()", "42P20"),
        ("delete from t where row_number() over () = 1", "42P20"),
        ("update \"default\".kv set cas = 1", "428C9"),
    ];
    for (sql, state) in wrong {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
    assert_eq!(db.rows("select sum(n) from t").await, ["100"]);
}

#[tokio::test]
async fn arithmetic_beyond_its_type_is_an_error() {
    let db = Db::new();
    db.run("create table o (id int primary key, v bigint, i int)").await;
    db.run("insert into o values (1, 9223372036854775807, 2147483647)").await;
    for sql in [
        "update o set v = v + 1",
        "update o set v = 1 where v + 1 > 0",
        "insert into o values (1, 1, 1) on conflict (id) do update set v = o.v + 1",
        "select v * 2 from o",
        "select -v - 2 from o",
        "select i * i * i * i from o",
        "insert into o select id + 1, v + id, i from o",
    ] {
        assert_eq!(db.state(sql).await, "22003", "{sql}");
    }
    assert_eq!(db.rows("select v, i from o").await, ["9223372036854775807|2147483647"]);
    assert_eq!(db.state("update o set v = 0 returning v - 9223372036854775807 - 2").await, "22003");
}
