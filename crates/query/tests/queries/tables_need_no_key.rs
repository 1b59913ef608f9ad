//! A table without a primary key has rows that are told apart by a key which statements do not know, and may be given one later.

use crate::db::{Db, int};
use oribi_session::sql::{Point, SqlEngine};

/// All rows, in order.
async fn rows(db: &Db) -> Vec<String> {
    db.rows("select * from t order by a, b").await
}

#[tokio::test]
async fn rows_may_be_the_same() {
    let db = Db::new();
    assert_eq!(db.tag("create table t (a int, b text default 'x')").await, "CREATE TABLE");
    assert_eq!(db.tag("insert into t values (1, 'x'), (1, 'x')").await, "INSERT 0 2");
    assert_eq!(db.tag("insert into t (a) select g from generate_series(1, 2) as g(g)").await, "INSERT 0 2");
    assert_eq!(db.tag("insert into t default values").await, "INSERT 0 1");
    assert_eq!(db.rows("insert into t values (3, 'y') returning *, a + 1 as more").await, ["3|y|4"]);
    assert_eq!(rows(&db).await, ["1|x", "1|x", "1|x", "2|x", "3|y", "|x"]);
    assert_eq!(db.tag("update t set b = 'z' where a = 1").await, "UPDATE 3");
    assert_eq!(db.rows("update t set a = 4 where a = 3 returning *").await, ["4|y"]);
    assert_eq!(db.tag("delete from t where a is null").await, "DELETE 1");
    db.flush("t");
    assert_eq!(db.tag("insert into t values (1, 'z')").await, "INSERT 0 1");
    assert_eq!(db.tag("update t set b = 'f' where a = 2 or b = 'y'").await, "UPDATE 2");
    assert_eq!(rows(&db).await, ["1|z", "1|z", "1|z", "1|z", "2|f", "4|f"]);
    let db = db.reopen();
    assert_eq!(db.tag("insert into t select a, b from t").await, "INSERT 0 6");
    assert_eq!(db.rows("select count(*), count(distinct a) from t").await, ["12|3"]);
    assert_eq!(
        db.rows("select x.a, y.b from t x join t y on x.a = y.a where x.a = 4 limit 1").await,
        ["4|f"]
    );
    assert_eq!(db.tag("insert into t values (1) on conflict do nothing").await, "INSERT 0 1");
    assert_eq!(db.state("insert into t values (1) on conflict (a) do nothing").await, "42P10");
    assert_eq!(db.tag("create table u as select a from t").await, "SELECT 13");
    assert_eq!(
        db.rows("select count(*), sum(a) from u").await,
        db.rows("select count(*), sum(a) from t").await
    );
    db.run("truncate t").await;
    assert_eq!(db.tag("insert into t values (1)").await, "INSERT 0 1");
    db.run("alter table t add column c int default 5").await;
    db.run("insert into t values (2, 'b', 6)").await;
    assert_eq!(rows(&db).await, ["1|x|5", "2|b|6"]);
    db.run("alter table t drop column b").await;
    assert_eq!(db.rows("select * from t order by a").await, ["1|5", "2|6"]);
}

#[tokio::test]
async fn no_statement_knows_the_key() {
    let db = Db::new();
    db.run("create table t (a int, b text)").await;
    db.run("insert into t values (1, 'x')").await;
    for (sql, state) in [
        ("select _rowid from t", "42703"),
        ("select a from t where _rowid = 1", "42703"),
        ("insert into t (_rowid) values (1)", "42703"),
        ("insert into t values (1, 'x', 1)", "42601"),
        ("update t set _rowid = 1", "42703"),
        ("copy t (a, _rowid) from stdin", "42703"),
        ("alter table t drop column _rowid", "42703"),
        ("create table u (_rowid int)", "42P16"),
        ("create table u (a int) partition by hash (a) partitions 2", "0A000"),
    ] {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
    db.run("create table keyed (_rowid int primary key)").await;
    let columns = "select column_name from information_schema.columns where table_name = 't' order by 1";
    assert_eq!(db.rows(columns).await, ["a", "b"]);
    let attributes = "select attname from pg_attribute where attrelid = 't'::regclass order by 1";
    assert_eq!(db.rows(attributes).await, ["a", "b"]);
    let class = "select relhasindex, relnatts from pg_class where relname = 't'";
    assert_eq!(db.rows(class).await, ["false|2"]);
    for table in ["pg_index where indrelid", "pg_constraint where conrelid"] {
        assert_eq!(db.rows(&format!("select count(*) from {table} = 't'::regclass")).await, ["0"]);
    }
    let shown = db.rows("show create table t").await;
    assert!(shown.iter().all(|line| !line.contains("KEY") && !line.contains("_rowid")), "{shown:?}");
}

#[tokio::test]
async fn in_a_block_as_outside_of_one() {
    let db = Db::new();
    db.run("create table t (a int, b text)").await;
    db.run("insert into t values (1, 'x'), (1, 'x')").await;
    let other = db.client("other");
    db.run("begin").await;
    db.run("insert into t values (1, 'x')").await;
    db.run("update t set b = 'y' where a = 1").await;
    db.run("insert into t select a + 1, b from t").await;
    assert_eq!(rows(&db).await, ["1|y", "1|y", "1|y", "2|y", "2|y", "2|y"]);
    assert_eq!(db.rows("select a from t where a = 2 limit 1 for update").await, ["2"]);
    assert_eq!(db.rows("select count(*) from t").await, ["6"]);
    assert_eq!(rows(&other).await, ["1|x", "1|x"]);
    db.run("rollback").await;
    assert_eq!(rows(&db).await, ["1|x", "1|x"]);
    db.run("begin").await;
    db.run("delete from t").await;
    db.run("insert into t values (7, 'z')").await;
    db.run("commit").await;
    assert_eq!(rows(&other).await, ["7|z"]);
    db.run("begin").await;
    db.run("truncate t").await;
    db.run("insert into t values (8, 'z'), (8, 'z')").await;
    db.run("commit").await;
    assert_eq!(rows(&other).await, ["8|z", "8|z"]);
}

#[tokio::test]
async fn an_insert_of_one_row_needs_no_plan() {
    let db = Db::new();
    db.run("create table t (a int, b text)").await;
    let prepared = db.prepare("insert into t (a, b) values ($1, 'x')").await;
    for n in 0..3 {
        let Some(Point::Write(point)) = prepared.point(&db.session) else { panic!("it is planned") };
        // The first may find that timestamps are to be reserved.
        let written = point.write(&db.session, &[int(n)]);
        let (rows, obligation) = match written {
            Some(written) => written,
            None if n == 0 => {
                prepared.execute(&db.session, &[int(n)]).await.unwrap();
                continue;
            }
            None => panic!("the plan was asked"),
        };
        assert_eq!(rows, 1);
        if let Some(settled) = db.query.settled(obligation) {
            settled.await.unwrap();
        }
    }
    assert_eq!(rows(&db).await, ["0|x", "1|x", "2|x"]);
}

#[tokio::test]
async fn many_rows_come_as_files() {
    let db = Db::new();
    db.run("create table t (a int, b text)").await;
    let sql = "insert into t select g % 10, repeat('b', 100) from generate_series(1, 100000) as g(g)";
    assert_eq!(db.tag(sql).await, "INSERT 0 100000");
    assert_eq!(db.table("t").unflushed_rows(), 0);
    assert_eq!(db.tag("update t set b = 'c' where a = 3").await, "UPDATE 10000");
    assert_eq!(db.rows("select count(*) from t where b = 'c'").await, ["10000"]);
    assert_eq!(db.tag("insert into t select 11, b from t where a = 3").await, "INSERT 0 10000");
    db.compact("t");
    assert_eq!(db.rows("select count(*), sum(a) from t").await, ["110000|560000"]);
}

#[tokio::test]
async fn a_key_is_added() {
    let db = Db::new();
    db.run("create table t (a int, b text default 'd', e timestamp) with (expires_at = 'e')").await;
    db.run("insert into t values (2, 'x'), (1, 'y')").await;
    db.flush("t");
    db.run("insert into t (a) values (3)").await;
    for (sql, state) in [
        ("alter table t add primary key (nope)", "42703"),
        ("alter table t add primary key (e)", "42P16"),
        ("alter table nope add primary key (a)", "42P01"),
        ("alter table t add primary key (a), add column c int", "0A000"),
    ] {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
    db.run("alter table if exists nope add primary key (a)").await;
    assert_eq!(db.tag("alter table t add constraint t_pkey primary key (a)").await, "ALTER TABLE");
    assert_eq!(db.rows("select a, b from t order by a").await, ["1|y", "2|x", "3|d"]);
    assert_eq!(db.rows("select b from t where a = 2").await, ["x"]);
    assert_eq!(db.state("insert into t values (1)").await, "23505");
    assert_eq!(db.state("insert into t values (null)").await, "23502");
    assert_eq!(db.state("alter table t add primary key (b)").await, "42P16");
    let definition = db.table("t").definition();
    assert_eq!(definition.options.expires_at, Some(3));
    assert!(definition.options.attributes.is_empty());
    let index = "select indexdef from pg_indexes where tablename = 't'";
    assert_eq!(db.rows(index).await, ["CREATE UNIQUE INDEX t_pkey ON public.t USING btree (a)"]);
    let db = db.reopen();
    assert_eq!(db.rows("select a, b from t order by a").await, ["1|y", "2|x", "3|d"]);
}

#[tokio::test]
async fn rows_that_a_key_does_not_allow_stay_as_they_are() {
    let db = Db::new();
    db.run("create table t (a int, b text)").await;
    db.run("insert into t values (1, 'x'), (1, 'y')").await;
    let error = db.error("alter table t add primary key (a)").await;
    assert_eq!(error.sqlstate, Some("23505"));
    assert!(error.error.message().starts_with("could not create unique index \"t_pkey\""), "{error}");
    assert!(!error.error.message().contains("given"), "{error}");
    db.run("insert into t values (2)").await;
    let error = db.error("alter table t add primary key (b)").await;
    assert_eq!(error.sqlstate, Some("23502"));
    assert_eq!(error.error.message(), "column \"b\" of relation \"t\" contains null values");
    assert_eq!(rows(&db).await, ["1|x", "1|y", "2|"]);
    assert_eq!(
        db.rows("select count(*) from pg_class where relkind = 'r' and relnamespace = 2200").await,
        ["1"]
    );
    assert_eq!(db.engine.catalog().tables("public").count(), 1);
}

#[tokio::test]
async fn a_key_is_part_of_its_block() {
    let db = Db::new();
    let other = db.client("other");
    db.run("create table t (a int, b text)").await;
    db.run("insert into t values (1, 'x'), (2, 'y')").await;
    for end in ["rollback", "commit"] {
        db.run("begin").await;
        db.run("insert into t values (3, 'z')").await;
        db.run("savepoint s").await;
        assert_eq!(db.state("alter table t add primary key (nope)").await, "42703");
        db.run("rollback to s").await;
        db.run("alter table t add primary key (a)").await;
        assert_eq!(rows(&db).await, ["1|x", "2|y", "3|z"]);
        db.run("update t set b = 'w' where a = 1").await;
        assert_eq!(rows(&other).await, ["1|x", "2|y"]);
        db.run(end).await;
    }
    assert_eq!(rows(&other).await, ["1|w", "2|y", "3|z"]);
    assert_eq!(other.state("insert into t values (1)").await, "23505");
    db.run("begin").await;
    db.run("create table u (a int)").await;
    db.run("insert into u values (1)").await;
    db.run("alter table u add primary key (a)").await;
    db.run("insert into u values (2)").await;
    db.run("commit").await;
    assert_eq!(other.rows("select a from u order by a").await, ["1", "2"]);
    let db = {
        drop(other);
        db.reopen()
    };
    assert_eq!(rows(&db).await, ["1|w", "2|y", "3|z"]);
}

/// Its statements see what was there when it began: rows that others have written since would not be in the new table.
#[tokio::test]
async fn a_block_of_one_snapshot_adds_no_key() {
    let db = Db::new();
    let other = db.client("other");
    db.run("create table t (a int, b text)").await;
    db.run("insert into t values (1, 'x')").await;
    for level in ["repeatable read", "serializable"] {
        db.run(&format!("begin isolation level {level}")).await;
        db.rows("select a from t").await;
        other.run("insert into t values (2, 'theirs')").await;
        let error = db.error("alter table t add primary key (a)").await;
        assert_eq!(error.error.kind(), oribi_types::ErrorKind::Unsupported, "{error}");
        db.run("rollback").await;
        other.run("delete from t where a = 2").await;
    }
    db.run("alter table t add primary key (a)").await;
    assert_eq!(rows(&other).await, ["1|x"]);
}

/// Nobody waits for the block, and what they have written is not lost.
#[tokio::test]
async fn rows_that_others_write_meanwhile_are_not_lost() {
    let db = Db::new();
    let other = db.client("other");
    db.run("create table t (a int, b text)").await;
    db.run("insert into t values (1, 'x')").await;
    db.run("begin").await;
    db.run("alter table t add primary key (a)").await;
    other.run("insert into t values (2, 'theirs')").await;
    assert_eq!(db.state("commit").await, "40001");
    assert_eq!(rows(&other).await, ["1|x", "2|theirs"]);
    db.run("begin").await;
    db.run("alter table t add primary key (a)").await;
    other.run("create table elsewhere (a int)").await;
    other.run("insert into elsewhere values (1)").await;
    db.run("commit").await;
    assert_eq!(rows(&other).await, ["1|x", "2|theirs"]);
    assert_eq!(other.state("insert into t values (1)").await, "23505");
}

#[tokio::test]
async fn upkeep_is_accepted() {
    let db = Db::new();
    db.run("create table t (a int) with (fillfactor = 100)").await;
    for (sql, tag) in [
        ("vacuum", "VACUUM"),
        ("vacuum t", "VACUUM"),
        ("vacuum analyze t", "VACUUM"),
        ("VACUUM (FULL, ANALYZE, PARALLEL 2) public.t (a), t", "VACUUM"),
        ("vacuum full freeze verbose analyze", "VACUUM"),
        ("analyze", "ANALYZE"),
        ("analyze verbose t (a)", "ANALYZE"),
        ("analyze (verbose off) t;", "ANALYZE"),
    ] {
        assert_eq!(db.tag(sql).await, tag, "{sql}");
    }
    assert_eq!(db.state("vacuum nope").await, "42P01");
    assert_eq!(db.state("vacuum t t").await, "42601");
    assert_eq!(db.state("create table u (a int) with (fillfactor = 5)").await, "22023");
    db.run("begin").await;
    db.run("analyze t").await;
    assert_eq!(db.state("vacuum t").await, "25001");
}
