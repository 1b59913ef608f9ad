//! `CREATE`, `ALTER`, `DROP`, `TRUNCATE`.

use crate::db::Db;
use oribi_types::{Durability, Partitioning};
use std::time::Duration;

#[tokio::test]
async fn a_table_with_everything() {
    let db = Db::new();
    db.run("create schema shop").await;
    let sql = "create table shop.\"Order\" (id bigint, at timestamp, line smallint not null default 1, \"note\" text,
               gone timestamp, constraint pk primary key (id, line))
               partition by hash (id) partitions 4
               with (durability = 'periodic 100ms', ttl = '1 day', expires_at = 'gone')";
    assert_eq!(db.tag(sql).await, "CREATE TABLE");
    let table = db.engine.table("shop", "Order").unwrap();
    let definition = table.definition();
    assert_eq!(definition.partitioning, Partitioning::hash(vec![0], 4));
    assert_eq!(definition.options.durability, Durability::Periodic(100));
    assert_eq!(definition.options.ttl_ms, Some(86_400_000));
    assert_eq!(definition.options.expires_at, Some(5));
    assert_eq!(definition.schema.key(), [0, 2]);
    db.run("insert into shop.\"Order\" (id) values (1)").await;
    assert_eq!(db.rows("select line from shop.\"Order\"").await, ["1"]);
    db.run("set search_path = shop, public").await;
    assert_eq!(db.rows("select id from \"Order\"").await, ["1"]);
    db.run("create table made_in_shop (id int primary key)").await;
    assert!(db.engine.table("shop", "made_in_shop").is_ok());
    assert_eq!(db.state("drop schema shop").await, "2BP01");
    db.run("drop schema shop cascade").await;
    assert_eq!(db.state("select * from shop.made_in_shop").await, "42P01");
}

#[tokio::test]
async fn from_a_query() {
    let db = Db::new();
    db.run("create table t (id int primary key, n numeric(6,2), j json)").await;
    db.run("insert into t values (1, 1.25, '[1]'), (2, 2.5, null)").await;
    let sql = "create table c (primary key (key)) as select id + 10 as key, n, j, 'x' as s from t";
    assert_eq!(db.tag(sql).await, "SELECT 2");
    assert_eq!(db.rows("select * from c order by key").await, ["11|1.25|[1]|x", "12|2.50||x"]);
    db.run("create table d with (primary_key = 'id, n') as select id, n from t where false").await;
    assert_eq!(db.rows("select count(*) from d").await, ["0"]);
    assert_eq!(db.tag("create table keyless as select id from t").await, "SELECT 2");
    // The rows collide, so there is no table either.
    assert_eq!(db.state("create table e (primary key (k)) as select 1 as k from t").await, "23505");
    assert_eq!(db.state("select * from e").await, "42P01");
}

#[tokio::test]
async fn altered_in_place() {
    let db = Db::new();
    db.run("create table t (id int primary key, a text)").await;
    db.run("insert into t values (1, 'x')").await;
    db.flush("t");
    db.run("alter table t add column n int not null default 7").await;
    db.run("alter table t add column if not exists n int").await;
    db.run("insert into t (id) values (2)").await;
    db.run("alter table t alter column n set default 8").await;
    db.run("insert into t (id) values (3)").await;
    assert_eq!(db.rows("select id, a, n from t order by id").await, ["1|x|7", "2||7", "3||8"]);
    db.run("update t set a = 'y' where id = 1").await;
    assert_eq!(db.rows("select n from t where id = 1").await, ["7"]);
    db.run("alter table t rename column a to b").await;
    db.run("alter table t drop column n").await;
    db.run("alter table t drop column if exists n").await;
    db.run("alter table t add column n text").await;
    assert_eq!(db.rows("select * from t order by id").await, ["1|y|", "2||", "3||"]);
    db.run("alter table t rename to u").await;
    db.run("alter table u set (durability = 'periodic 1s', ttl = 'none')").await;
    assert_eq!(
        db.engine.table("public", "u").unwrap().definition().options.durability,
        Durability::Periodic(1000)
    );
    let wrong = [
        ("alter table t add column z int", "42P01"),
        ("alter table u add column b int", "42701"),
        ("alter table u add column z int not null", "23502"),
        ("alter table u drop column nope", "42703"),
        ("alter table u drop column id", "42P16"),
        ("alter table u rename column b to id", "42701"),
        ("alter table u alter column b type int", "0A000"),
        ("alter table u set (fillfactor = 7)", "22023"),
    ];
    for (sql, state) in wrong {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
    db.run("alter table if exists nope add column z int").await;
}

#[tokio::test]
async fn emptied_and_dropped() {
    let db = Db::new();
    db.run("create table a (id int primary key)").await;
    db.run("create table b (id int primary key)").await;
    db.run("insert into a values (1)").await;
    db.flush("a");
    db.run("insert into a values (2)").await;
    assert_eq!(db.tag("truncate table a, b").await, "TRUNCATE TABLE");
    assert_eq!(db.rows("select count(*) from a").await, ["0"]);
    db.run("insert into a values (1)").await;
    assert_eq!(db.tag("drop table a, b").await, "DROP TABLE");
    assert_eq!(db.state("drop table a").await, "42P01");
    db.run("drop table if exists a").await;
    assert!(db.session.take_warnings().iter().any(|w| w.contains("skipping")));
    db.run("create table a (id int primary key)").await;
    assert_eq!(db.rows("select count(*) from a").await, ["0"]);
}

#[tokio::test]
async fn what_names_something_missing_changes_nothing() {
    let db = Db::new();
    db.run("create schema s").await;
    db.run("create schema full").await;
    db.run("create table full.t (id int primary key)").await;
    db.run("create table a (id int primary key)").await;
    db.run("insert into a values (1)").await;
    for (sql, state) in [
        ("drop table a, nope", "42P01"),
        ("truncate a, nope", "42P01"),
        ("drop schema s, nope", "3F000"),
        ("drop schema s, full", "2BP01"),
    ] {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
    assert_eq!(db.rows("select id from a").await, ["1"]);
    assert_eq!(db.tag("drop schema if exists s, nope, s").await, "DROP SCHEMA");
    assert_eq!(db.tag("truncate a, a").await, "TRUNCATE TABLE");
    assert_eq!(db.tag("drop table if exists a, nope, a").await, "DROP TABLE");
}

#[tokio::test]
async fn a_table_that_was_not_filled_goes_again() {
    let db = Db::new();
    let sql = "create table t (primary key (value)) as select value from generate_series(1, 10000000000) as g(value)";
    let prepared = db.prepare(sql).await;
    let exists = || db.engine.table("public", "t").is_ok();
    {
        let create = prepared.execute(&db.session, &[]);
        tokio::pin!(create);
        while !exists() {
            assert!(tokio::time::timeout(Duration::from_millis(5), &mut create).await.is_err());
        }
    }
    // It was cancelled. Nobody waits for the table to go.
    while exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let fails = "create table t (primary key (v)) as select 1 / (value - 1) as v from generate_series(1, 9) as g(value)";
    assert_eq!(db.state(fails).await, "22012");
    assert!(!exists());
}

#[tokio::test]
async fn refusals_say_what_is_wrong() {
    let db = Db::new();
    db.run("create table t (id int primary key)").await;
    let wrong = [
        ("create table t (id int primary key)", "42P07"),
        ("create table nope.t (id int primary key)", "3F000"),
        ("create table u (id int primary key, id text)", "42701"),
        ("create table u (id int, primary key (nope))", "42703"),
        ("create table u (id int primary key, b int primary key)", "42P16"),
        ("create table u (id real primary key)", "42P16"),
        ("create table u (id int primary key, b nonsense)", "42704"),
        ("create table u (id int primary key, b int unique)", "0A000"),
        ("create table u (id int primary key, b int references t)", "0A000"),
        ("create table u (id int primary key, b int check (b > 0))", "0A000"),
        ("create table u (id int primary key, b timestamp default now())", "0A000"),
        ("create table u (id int primary key, b int default 'x')", "22P02"),
        ("create table u (id int primary key) with (durability = 'never')", "22023"),
        ("create table u (id int primary key, b int) partition by hash (b) partitions 2", "42P16"),
        ("create table u (id int primary key) partition by range (id)", "42601"),
        ("create temporary table u (id int primary key)", "0A000"),
        ("create schema public", "42P06"),
        ("create schema pg_mine", "42939"),
        ("drop schema nope", "3F000"),
        ("create view v as select 1", "0A000"),
        ("create index i on t (id)", "0A000"),
        ("grant select on t to public", "0A000"),
        ("select 1 into u", "0A000"),
        ("select * from t a, t b for update", "0A000"),
    ];
    for (sql, state) in wrong {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
    db.run("create table if not exists t (id int primary key)").await;
    db.run("create schema if not exists public").await;
}
