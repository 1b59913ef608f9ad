//! `INSERT`: values, defaults, queries, conflicts, and what each refusal says.

use crate::db::{Db, text};
use oribi_types::Value;

#[tokio::test]
async fn literals_of_every_type() {
    let db = Db::new();
    db.run(
        "create table t (id int primary key, b bool, i1 tinyint, i2 smallint, i8 bigint, r real, d double precision,
         n numeric(10,2), s varchar(3), y bytea, dt date, ts timestamp, u uuid, j jsonb)",
    )
    .await;
    db.run(
        "insert into t values (1, true, 2, 3, 4, 1.5, 2.5, 12.345, 'long text', '\\x00ff', '2026-01-02',
         '2026-01-02 03:04:05+01', '00000000-0000-0000-0000-000000000001', '{\"a\": [1]}')",
    )
    .await;
    db.run("insert into t (id) values (-2)").await;
    assert_eq!(
        db.rows("select i1, i2, i8, r, d, n, s, dt, ts, j from t where id = 1").await,
        ["2|3|4|1.5|2.5|12.35|long text|2026-01-02|2026-01-02T03:04:05|{\"a\": [1]}"]
    );
    assert_eq!(db.rows("select count(*) from t where b is null and y is null and id = -2").await, ["1"]);
    let id = "'00000000-0000-0000-0000-000000000001'";
    for condition in [
        "y = '\\x00ff'",
        "'\\x00FF' in (y)",
        "y between '\\x00' and '\\x01'",
        &format!("u = {id}"),
        &format!("u = cast({id} as uuid)"),
    ] {
        assert_eq!(db.rows(&format!("select id from t where {condition}")).await, ["1"], "{condition}");
    }
    assert_eq!(db.state("select 1 from t where u = 'no uuid'").await, "22P02");
    assert_eq!(db.state("select cast('{' as jsonb)").await, "22P02");
    assert_eq!(
        db.rows(
            "select cast(i8 as varchar(5)), '2026-01-02 03:04:05+01'::timestamp = ts from t where id = 1"
        )
        .await,
        ["4|true"]
    );
}

#[tokio::test]
async fn columns_may_be_named_and_left_to_their_defaults() {
    let db = Db::new();
    db.run("create table t (id int primary key, a int not null default 7, s text default 'x', z int)").await;
    assert_eq!(db.tag("insert into t (s, id) values ('b', 1), (default, 2)").await, "INSERT 0 2");
    db.run("insert into t values (3, default, null), (4, 5, 'c')").await;
    assert_eq!(
        db.rows("select id, a, s, z from t order by id").await,
        ["1|7|b|", "2|7|x|", "3|7||", "4|5|c|"]
    );
    assert_eq!(db.state("insert into t (id, a) values (9, null)").await, "23502");
    assert_eq!(db.state("insert into t default values").await, "23502");
    db.run("create table all_defaults (id int primary key default 1)").await;
    db.run("insert into all_defaults default values").await;
    assert_eq!(db.rows("select id from all_defaults").await, ["1"]);
}

#[tokio::test]
async fn expressions_are_computed() {
    let db = Db::new();
    db.run("create table t (id int primary key, s text, d date)").await;
    db.run("insert into t values (1 + 1, upper('a') || 'b', '2026-01-01'::date), (3, 'plain', null)").await;
    assert_eq!(db.rows("select * from t order by id").await, ["2|Ab|2026-01-01", "3|plain|"]);
    let sql = "insert into t values ($1 * 10, lower($2), null)";
    assert_eq!(db.tag_with(sql, &[Value::Int32(7), text("ABC")]).await, "INSERT 0 1");
    assert_eq!(db.rows("select s from t where id = 70").await, ["abc"]);
}

#[tokio::test]
async fn queries_are_inserted() {
    let db = Db::new();
    db.run("create table t (id bigint primary key, s text, n numeric(5,1))").await;
    let sql = "insert into t (id, n) select value, value / 2.0 from generate_series(1, 5) as g(value)";
    assert_eq!(db.tag(sql).await, "INSERT 0 5");
    assert_eq!(db.rows("select id, s, n from t where id = 3").await, ["3||1.5"]);
    let sql = "with w as (select id + 100 as id from t) insert into t (id) select id from w";
    assert_eq!(db.tag(sql).await, "INSERT 0 5");
    assert_eq!(db.state("insert into t (id) select id from t").await, "23505");
    assert_eq!(db.rows("select count(*) from t").await, ["10"]);
}

#[tokio::test]
async fn an_existing_key_refuses_the_whole_statement() {
    let db = Db::new();
    db.run("create table orders (a int, b text, v int, primary key (a, b))").await;
    db.run("insert into orders values (1, 'x', 1)").await;
    let error = db.error("insert into orders values (2, 'y', 1), (1, 'x', 2)").await;
    assert_eq!(error.sqlstate, Some("23505"));
    assert!(error.to_string().contains("key (a, b)=(1, x) already exists in table \"orders\""), "{error}");
    assert_eq!(db.rows("select count(*), max(v) from orders").await, ["1|1"]);
    assert_eq!(db.state("insert into orders values (3, 'z', 1), (3, 'z', 2)").await, "23505");
    db.run("delete from orders where a = 1").await;
    db.run("insert into orders values (1, 'x', 3)").await;
    db.flush("orders");
    assert_eq!(db.state("insert into orders values (1, 'x', 4)").await, "23505");
}

#[tokio::test]
async fn conflicts_do_nothing_or_update() {
    let db = Db::new();
    db.run("create table t (id int primary key, n int not null, s text)").await;
    db.run("insert into t values (1, 10, 'a'), (2, 20, 'b')").await;
    assert_eq!(
        db.tag("insert into t values (1, 0, ''), (3, 30, 'c'), (3, 31, 'd') on conflict do nothing").await,
        "INSERT 0 1"
    );
    let sql =
        "insert into t values (1, 11, 'new'), (4, 40, 'e') on conflict (id) do update set n = excluded.n";
    assert_eq!(db.tag(sql).await, "INSERT 0 2");
    let sql = "insert into t as old values (1, 5, 'x'), (2, 100, 'y'), (5, 50, 'f')
               on conflict on constraint t_pkey do update set n = old.n + excluded.n, s = old.s || '!'
               where old.n < 15";
    assert_eq!(db.tag(sql).await, "INSERT 0 2");
    assert_eq!(
        db.rows("select * from t order by id").await,
        ["1|16|a!", "2|20|b", "3|30|c", "4|40|e", "5|50|f"]
    );
    let sql = "insert into t values ($1, 0, '') on conflict (id) do update set (n, s) = (t.n + $2, $3) where t.n > $4";
    let values = |n| [Value::Int32(1), Value::Int32(n), text("p"), Value::Int32(10)];
    assert_eq!(db.tag_with(sql, &values(4)).await, "INSERT 0 1");
    assert_eq!(db.tag_with(sql, &values(-15)).await, "INSERT 0 1");
    assert_eq!(db.tag_with(sql, &values(1)).await, "INSERT 0 0");
    assert_eq!(db.rows("select n, s from t where id = 1").await, ["5|p"]);
    let wrong = [
        ("insert into t values (1, 1, '') on conflict (n) do nothing", "42P10"),
        ("insert into t values (1, 1, '') on conflict do update set n = 1", "42601"),
        ("insert into t values (9, 1, ''), (9, 2, '') on conflict (id) do update set n = 1", "21000"),
        ("insert into t values (1, 1, '') on conflict (id) do update set n = null", "23502"),
        ("insert into t values (1, 1, '') on conflict (id) do update set n = excluded.nope + 1", "42703"),
        ("insert into t values (1, 1, '') on conflict (id) do update set id = 2", "0A000"),
    ];
    for (sql, state) in wrong {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
}

#[tokio::test]
async fn a_condition_guards_what_an_update_computes() {
    let db = Db::new();
    db.run("create table t (id int primary key, v int)").await;
    db.run("insert into t values (1, 0), (2, 5), (3, null)").await;
    let sql = "insert into t values (1, 1), (2, 1), (3, 1), (4, 9) on conflict (id) do update set v = 10 / t.v where t.v <> 0";
    assert_eq!(db.tag(sql).await, "INSERT 0 2");
    assert_eq!(
        db.tag("insert into t values (1, 1) on conflict (id) do update set v = 10 / t.v where t.v <> 0")
            .await,
        "INSERT 0 0"
    );
    assert_eq!(db.rows("select v from t order by id").await, ["0", "2", "", "9"]);
    assert_eq!(db.tag("update t set v = 10 / v where v <> 0").await, "UPDATE 2");
    db.flush("t");
    assert_eq!(db.tag("update t set v = 20 / v where v <> 0").await, "UPDATE 2");
    assert_eq!(db.rows("select v from t order by id").await, ["0", "4", "", "20"]);
    let sql = "insert into t values (1, 1) on conflict (id) do update set v = 10 / t.v";
    assert_eq!(db.state(sql).await, "22012");
}

#[tokio::test]
async fn numbers_are_rounded_exactly() {
    let db = Db::new();
    db.run("create table t (id int primary key, v bigint)").await;
    db.run(
        "insert into t values (1, 9007199254740993.0), (2, 9223372036854775807.4), (3, -2.5), (4, 1.5e3), (5, 0.5e0)",
    )
    .await;
    let halves = "(values (11, 2.5), (12, -3.5), (13, 1.4)) as halves (id, v)";
    db.run(&format!("insert into t select id, v from {halves}")).await;
    db.run("insert into t values (21, 2.5::numeric(9,1)), (22, -0.5::numeric(38,1))").await;
    assert_eq!(
        db.rows("select v from t order by id").await,
        ["9007199254740993", "9223372036854775807", "-3", "1500", "1", "3", "-4", "1", "3", "-1"]
    );
    assert_eq!(db.state("insert into t values (9, 9223372036854775807.5)").await, "22003");
    assert_eq!(db.state("insert into t values (9, 1e400)").await, "22003");
}

#[tokio::test]
async fn refusals_say_what_is_wrong() {
    let db = Db::new();
    db.run("create table t (id int primary key, i2 smallint, n numeric(4,1), b bool, ts timestamp, u uuid, j json)").await;
    let wrong = [
        ("insert into nope values (1)", "42P01"),
        ("insert into t (id, nope) values (1, 2)", "42703"),
        ("insert into t (id, id) values (1, 2)", "42701"),
        ("insert into t (id) values (1, 2)", "42601"),
        ("insert into t (id, i2) values (1)", "42601"),
        ("insert into t values (1), (2, 3)", "42601"),
        ("insert into t (id) values ('x')", "22P02"),
        ("insert into t (id, i2) values (1, 40000)", "22003"),
        ("insert into t (id, i2) values (1, 20000 * 2)", "22003"),
        ("insert into t (id, n) values (1, 12345.6)", "22003"),
        ("insert into t (id, b) values (1, 1)", "42804"),
        ("insert into t (id, ts) values (1, 'yesterday-ish')", "22007"),
        ("insert into t (id, u) values (1, 'no uuid')", "22P02"),
        ("insert into t (id, j) values (1, '{')", "22P02"),
        ("insert into t (id) values (1) returning nope", "42703"),
        ("insert into t values (", "42601"),
    ];
    for (sql, state) in wrong {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
    assert_eq!(db.error("insert into t (id, nope) values (1, 2)").await.position, Some(20));
    assert_eq!(db.rows("select count(*) from t").await, ["0"]);
}

#[tokio::test]
async fn parameters_take_the_type_of_their_column() {
    let db = Db::new();
    db.run("create table t (id bigint primary key, s text, n numeric(6,2))").await;
    let prepared = db.prepare("insert into t values ($1, $2, $3)").await;
    let types: Vec<String> = prepared.parameters().iter().map(ToString::to_string).collect();
    assert_eq!(types, ["bigint", "text", "numeric(6,2)"]);
    assert!(prepared.columns().is_none());
    for id in 0..3 {
        let values = [oribi_types::Value::Int64(id), text("s"), oribi_types::Value::Decimal(125)];
        prepared.execute(&db.session, &values).await.unwrap();
    }
    assert_eq!(db.rows("select count(*), sum(n) from t").await, ["3|3.75"]);
    // The table is another one now, so the statement is planned again.
    db.run("alter table t add column z int default 5").await;
    let values = [oribi_types::Value::Int64(9), text("s"), oribi_types::Value::Decimal(1)];
    prepared.execute(&db.session, &values).await.unwrap();
    assert_eq!(db.rows("select z from t where id = 9").await, ["5"]);
    let error = prepared.execute(&db.session, &[]).await.err().unwrap();
    assert_eq!(error.sqlstate, Some("08P01"));
}

#[tokio::test]
async fn returning_gives_the_rows_written() {
    let db = Db::new();
    db.run("create table t (id int primary key, n int default 4, s text)").await;
    let sql = "insert into t (id, s) values (1, 'a'), (2, 'b') returning *, n + id as sum";
    assert_eq!(db.rows(sql).await, ["1|4|a|5", "2|4|b|6"]);
    let sql = "insert into t values (2, 0, ''), (3, 1, 'c') on conflict do nothing returning id";
    assert_eq!(db.rows(sql).await, ["3"]);
    assert_eq!(db.rows("update t set n = n * 10 where id < 3 returning t.id, n").await, ["1|40", "2|40"]);
    assert_eq!(db.rows("delete from t where s = 'b' returning s").await, ["b"]);
}

#[tokio::test]
async fn returning_is_computed_as_in_a_query() {
    let db = Db::new();
    db.run("create table t (id int primary key, k int, v numeric(10,2))").await;
    let sql =
        "insert into t values (1, 2, 2.50) returning coalesce(k, 0), v::int, current_date - current_date";
    assert_eq!(db.rows(sql).await, ["2|3|0"]);
    let sql = "update t set k = null where id = 1
               returning coalesce(k, 7), case when k is null then 1 else 1 / k end, now() - now() = interval '0 hours'";
    assert_eq!(db.rows(sql).await, ["7|1|true"]);
    let sql = "insert into t values (1, 5) on conflict (id) do update set k = coalesce(t.k, 0) + excluded.k
               returning greatest(k, 4)";
    assert_eq!(db.rows(sql).await, ["5"]);
    assert_eq!(db.rows("delete from t returning current_timestamp is null").await, ["false"]);
    for (returning, state) in
        [("(select max(id) from t)", "0A000"), ("exists (select 1)", "0A000"), ("1 / 0", "22012")]
    {
        assert_eq!(
            db.state(&format!("insert into t values (2) returning {returning}")).await,
            state,
            "{returning}"
        );
    }
    assert_eq!(db.rows("select count(*) from t").await, ["0"]);
}

#[tokio::test]
async fn a_large_insert_of_new_keys_goes_by_import_and_is_all_or_nothing() {
    let options = oribi_engine::EngineOptions { statement_bytes_max: 1 << 20, ..Default::default() };
    let db = Db::with(options);
    db.run("create table t (id bigint primary key, s text not null)").await;
    let all = "insert into t select value, repeat('x', 100) from generate_series(1, 30000) as g(value)";
    assert_eq!(db.tag(all).await, "INSERT 0 30000");
    assert_eq!(db.rows("select count(*), sum(length(s)) from t").await, ["30000|3000000"]);
    assert_eq!(
        db.state(
            "insert into t select value, repeat('y', 100) from generate_series(29999, 70000) as g(value)"
        )
        .await,
        "23505"
    );
    let null = "insert into t select value, case when value < 60000 then repeat('y', 100) end from generate_series(30001, 60000) as g(value)";
    assert_eq!(db.state(null).await, "23502");
    let upsert = format!("{all} on conflict do nothing");
    assert_eq!(db.state(&upsert).await, "54000");
    assert_eq!(db.rows("select count(*), max(id) from t").await, ["30000|30000"]);
}
