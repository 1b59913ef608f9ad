//! `SET`, `SHOW`, `RESET`, `BEGIN … COMMIT`, scripts.

use crate::db::Db;
use arrow::array::{Int64Array, RecordBatch};
use futures::TryStreamExt;
use oribi_session::sql::{Outcome, SqlEngine, SqlSession, TransactionStatus};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn settings_are_kept_shown_and_reset() {
    let db = Db::new();
    assert_eq!(db.rows("show server_encoding").await, ["UTF8"]);
    assert_eq!(db.tag("set application_name = 'psql'").await, "SET");
    db.run("set search_path to \"Mixed\", public").await;
    db.run("set my.own = 5").await;
    assert_eq!(db.rows("show application_name").await, ["psql"]);
    assert_eq!(db.rows("show search_path").await, ["\"Mixed\", public"]);
    assert_eq!(db.rows("show my.own").await, ["5"]);
    assert_eq!(db.tag("reset application_name").await, "RESET");
    assert_eq!(db.rows("show application_name").await, [""]);
    assert!(db.rows("show all").await.iter().any(|row| row == "search_path|\"Mixed\", public"));
    db.run("reset all").await;
    assert_eq!(db.rows("show search_path").await, ["\"$user\", public"]);
    assert_eq!(db.rows("show transaction isolation level").await, ["read committed"]);
    let wrong = [
        ("show nope", "42704"),
        ("set nope = 1", "42704"),
        ("set server_version = '1'", "55P02"),
        ("set client_encoding = 'latin1'", "0A000"),
        ("set standard_conforming_strings = off", "0A000"),
        ("set datestyle to german", "0A000"),
        ("set intervalstyle = roman", "0A000"),
        ("set lock_timeout = 'soon'", "22023"),
        ("set client_min_messages = 'loud'", "0A000"),
        ("set statement_timeout = 'soon'", "22023"),
        ("set statement_timeout = -1", "22023"),
    ];
    for (sql, state) in wrong {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
    // What pg_dump and drivers say at their start.
    for sql in [
        "set datestyle = ISO",
        "set datestyle to iso, mdy",
        "set datestyle to 'ISO,DMY'",
        "set intervalstyle = POSTGRES",
        "set intervalstyle = iso_8601",
        "set lock_timeout = '2s'",
        "set idle_in_transaction_session_timeout = 1000",
        "set jit = off",
        "set client_min_messages = warning",
        "set extra_float_digits = 3",
        "set synchronize_seqscans to off",
        "set row_security = off",
        "set statement_timeout = '1min'",
    ] {
        assert_eq!(db.tag(sql).await, "SET", "{sql}");
    }
    assert_eq!(db.tag("discard all").await, "DISCARD ALL");
}

#[tokio::test]
async fn a_local_setting_ends_with_its_block() {
    let db = Db::new();
    db.run("set statement_timeout = '1min'").await;
    for end in ["commit", "rollback"] {
        db.run("begin").await;
        db.run("set local statement_timeout = '1s'").await;
        db.run("set local statement_timeout = '2s'").await;
        db.run("set local my.own = 'x'").await;
        assert_eq!(db.rows("show statement_timeout").await, ["2s"]);
        db.run(end).await;
        assert_eq!(db.rows("show statement_timeout").await, ["1min"], "{end}");
        assert_eq!(db.state("show my.own").await, "42704");
    }
    // Outside of a block it does nothing.
    db.run("set local statement_timeout = '1s'").await;
    assert_eq!(db.rows("show statement_timeout").await, ["1min"]);
}

#[tokio::test]
async fn settings_of_ones_own_are_bounded() {
    let db = Db::new();
    assert_eq!(db.state(&format!("set my.own = '{}'", "x".repeat(10_000))).await, "54000");
    for n in 0..100 {
        db.run(&format!("set my.n{n} = {n}")).await;
    }
    assert_eq!(db.state("set my.n100 = 1").await, "54000");
    db.run("set my.n99 = 'changed'").await;
}

#[tokio::test]
async fn a_statement_ends_when_its_time_is_up() {
    let db = Db::new();
    let endless = "select count(*) from generate_series(1, 1000000000) a, generate_series(1, 1000000000) b";
    db.run("set statement_timeout = '50ms'").await;
    assert_eq!(db.state(endless).await, "57014");
    db.run("set statement_timeout = 0").await;
    db.run("select count(*) from generate_series(1, 100000)").await;
}

#[tokio::test]
async fn what_a_block_writes_is_there_when_it_is_committed() {
    let db = Db::new();
    db.run("create table t (id int primary key)").await;
    assert_eq!(db.tag("begin").await, "BEGIN");
    assert_eq!(db.session.transaction(), TransactionStatus::Open);
    db.run("select * from t").await;
    assert_eq!(db.tag("insert into t values (1)").await, "INSERT 0 1");
    assert!(db.session.take_warnings().is_empty());
    assert_eq!(of_another(&db, "select count(*) from t").await, ["0"], "it is not there before COMMIT");
    assert_eq!(db.tag("commit").await, "COMMIT");
    assert_eq!(db.session.transaction(), TransactionStatus::Idle);
    assert_eq!(db.rows("select count(*) from t").await, ["1"]);
}

/// The rows of a query of another session.
async fn of_another(db: &Db, sql: &str) -> Vec<String> {
    let session = SqlSession::new("another", "oribi");
    let prepared = db.query.prepare(&session, sql, &[]).await.unwrap();
    let Outcome::Rows(rows) = prepared.execute(&session, &[]).await.unwrap() else { panic!("rows") };
    let batches: Vec<RecordBatch> = rows.try_collect().await.unwrap();
    let text = |batch: &RecordBatch, row| {
        let columns = batch.columns().iter();
        let values = columns.map(|c| arrow::util::display::array_value_to_string(c, row).unwrap());
        values.collect::<Vec<_>>().join("|")
    };
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| text(batch, row))).collect()
}

/// Statements that write, in as many ways as there are, with their tags; `t` has the rows (1, 10), (2, 20).
const WRITES: [(&str, &str); 17] = [
    ("insert into t values (3, 30)", "INSERT 0 1"),
    ("insert into t values (3, 30), (4, 40)", "INSERT 0 2"),
    ("insert into t select id + 10, n from t", "INSERT 0 2"),
    ("insert into t values (1, 0), (3, 0), (3, 1) on conflict do nothing", "INSERT 0 1"),
    ("insert into t values (1, 0), (3, 0) on conflict (id) do update set n = excluded.n", "INSERT 0 2"),
    ("insert into t values (1, 0) on conflict (id) do update set n = t.n + 1 where t.n > 5", "INSERT 0 1"),
    ("insert into t select i, i from generate_series(1000, 400000) as s(i)", "INSERT 0 399001"),
    ("update t set n = 7 where id = 1", "UPDATE 1"),
    ("update t set n = n + 1", "UPDATE 2"),
    ("update t set id = id + 1", "UPDATE 2"),
    ("delete from t where id = 1", "DELETE 1"),
    ("delete from t where n > 0", "DELETE 2"),
    ("truncate t", "TRUNCATE TABLE"),
    ("drop table t", "DROP TABLE"),
    ("alter table t add column more text", "ALTER TABLE"),
    ("create table u (id int primary key)", "CREATE TABLE"),
    ("create schema s", "CREATE SCHEMA"),
];

async fn two_rows() -> Db {
    let db = Db::new();
    db.run("create table t (id bigint primary key, n bigint)").await;
    db.run("insert into t values (1, 10), (2, 20)").await;
    db
}

/// What there is: tables, columns and rows.
async fn contents(db: &Db) -> Vec<String> {
    let mut all = of_another(
        db,
        "select table_schema, table_name, column_name from information_schema.columns \
        where table_schema not in ('pg_catalog', 'information_schema') order by 1, 2, 3",
    )
    .await;
    all.extend(of_another(db, "select nspname from pg_namespace order by 1").await);
    if db.engine.table("public", "t").is_ok() {
        all.extend(of_another(db, "select count(*), sum(id), sum(n) from t").await);
    }
    all
}

#[tokio::test]
async fn what_ends_a_block_but_commit_undoes_its_write() {
    let ends: [&[&str]; 3] = [&["rollback"], &["select nope", "rollback"], &["select nope", "commit"]];
    let db = two_rows().await;
    let before = contents(&db).await;
    for (sql, tag) in WRITES {
        for end in ends {
            db.run("begin").await;
            assert_eq!(db.tag(sql).await, tag, "{sql}");
            for step in end {
                match db.outcome(step, &[]).await {
                    Ok(Outcome::Done { tag }) => assert_eq!(tag, "ROLLBACK", "{sql}"),
                    Ok(_) => panic!("{step} gave rows"),
                    Err(_) => assert_eq!(*step, "select nope"),
                }
            }
            assert_eq!(contents(&db).await, before, "{sql}, then {end:?}");
        }
    }
}

#[tokio::test]
async fn commit_makes_of_a_write_what_it_is_without_a_block() {
    for (sql, tag) in WRITES {
        let (block, alone) = (two_rows().await, two_rows().await);
        let before = contents(&block).await;
        block.run("begin").await;
        assert_eq!(block.tag(sql).await, tag, "{sql}");
        assert_eq!(contents(&block).await, before, "{sql}");
        assert_eq!(block.tag("commit").await, "COMMIT", "{sql}");
        assert_eq!(alone.tag(sql).await, tag, "{sql}");
        assert_eq!(contents(&block).await, contents(&alone).await, "{sql}");
    }
}

#[tokio::test]
async fn a_block_returns_the_rows_that_it_will_write() {
    let db = two_rows().await;
    db.run("begin").await;
    assert_eq!(db.rows("update t set n = n + 1 returning id, n").await, ["1|11", "2|21"]);
    assert_eq!(of_another(&db, "select n from t order by id").await, ["10", "20"]);
    db.run("commit").await;
    assert_eq!(db.rows("select n from t order by id").await, ["11", "21"]);
}

#[tokio::test]
async fn what_a_block_cannot_undo_or_see_is_refused_by_name() {
    let db = two_rows().await;
    db.run("create table u (id int primary key)").await;
    db.run("create table p (id int primary key) partition by range (id) (partition values < 10)").await;
    let partition = "alter table p add range partition 10 <= values";
    db.run("begin").await;
    db.run(partition).await;
    for sql in
        ["select * from p", "insert into u values (1)", "create table x (id int primary key)", "savepoint a"]
    {
        let error = db.error(sql).await;
        assert!(error.to_string().contains("behind a change of partitions"), "{sql}: {error}");
        db.run("rollback").await;
        db.run("begin").await;
        db.run(partition).await;
    }
    db.run("rollback").await;
    for sql in ["insert into u values (1)", "create table x (id int primary key)"] {
        db.run("begin").await;
        db.run(sql).await;
        let error = db.error(partition).await;
        assert!(error.to_string().contains("a change of partitions behind others"), "{error}");
        assert_eq!(db.state("select 1").await, "25P02");
        assert_eq!(db.tag("commit").await, "ROLLBACK");
    }

    // However many rows an insert has, they are the block's.
    let bulk = "insert into t select i, i from generate_series(1000, 400000) as s(i)";
    for (first, second) in [(bulk, "insert into u values (1)"), ("insert into u values (1)", bulk)] {
        db.run("begin").await;
        db.run(first).await;
        db.run(second).await;
        assert_eq!(db.rows("select count(*), max(n) from t").await, ["399003|400000"]);
        assert_eq!(of_another(&db, "select count(*) from t").await, ["2"]);
        db.run("rollback").await;
        assert_eq!(db.rows("select count(*) from t").await, ["2"]);
    }
    db.run("create schema s").await;
    db.run("begin").await;
    db.run(partition).await;
    db.run("set local search_path to s").await;
    assert_eq!(db.state("commit").await, "0A000");
    // So they are of a table that the block has made.
    db.run("begin").await;
    db.run("create table w (id bigint primary key, n bigint)").await;
    db.run("insert into w select i, i from generate_series(1, 400000) as g(i)").await;
    db.run("alter table w add column m bigint").await;
    assert_eq!(db.rows("select count(n), count(m) from w").await, ["400000|0"]);
    db.run("rollback").await;
    assert_eq!(of_another(&db, "select count(*) from t").await, ["2"]);

    db.run("begin").await;
    assert_eq!(db.state("discard all").await, "25001");
    db.run("rollback").await;
    assert_eq!(db.state("begin isolation level snapshot").await, "0A000");
}

#[tokio::test]
async fn a_block_that_failed_reads_nothing_but_its_end() {
    let db = Db::new();
    db.run("begin").await;
    assert_eq!(db.state("select * from nope").await, "42P01");
    assert_eq!(db.session.transaction(), TransactionStatus::Failed);
    for sql in ["select * from nope", "select 1", "show all", "set search_path to x", "begin"] {
        assert_eq!(db.state(sql).await, "25P02", "{sql}");
    }
    assert_eq!(db.tag("commit").await, "ROLLBACK");
    db.run("begin").await;
    assert_eq!(db.tag("rollback").await, "ROLLBACK");
}

#[tokio::test]
async fn a_statement_that_was_dropped_reaches_no_block() {
    let db = two_rows().await;
    db.run("begin").await;
    let endless =
        db.prepare("insert into t select a.value, 0 from generate_series(3, 100000000) a(value)").await;
    let cancelled = endless.execute(&db.session, &[]);
    assert!(tokio::time::timeout(Duration::from_millis(20), cancelled).await.is_err());
    assert_eq!(db.tag("commit").await, "COMMIT");
    assert_eq!(db.rows("select count(*) from t").await, ["2"]);

    // A `COPY` counts once its rows are there.
    db.run("begin").await;
    let Outcome::CopyIn(sink) = db.outcome("copy t from stdin", &[]).await.unwrap() else { panic!("a copy") };
    drop(sink);
    db.run("insert into t values (3, 30)").await;
    db.run("rollback").await;
    db.run("begin").await;
    let Outcome::CopyIn(mut sink) = db.outcome("copy t from stdin", &[]).await.unwrap() else {
        panic!("a copy")
    };
    let values = [7, 7].map(|v| Arc::new(Int64Array::from(vec![v])) as _);
    sink.push(RecordBatch::try_new(Arc::clone(sink.schema()), values.to_vec()).unwrap()).await.unwrap();
    assert_eq!(sink.finish().await.unwrap(), 1);
    assert_eq!(of_another(&db, "select count(*) from t").await, ["2"]);
    db.run("rollback").await;
    assert_eq!(db.rows("select count(*) from t").await, ["2"]);
}

#[tokio::test]
async fn scripts_are_split() {
    let db = Db::new();
    let script = "select 1; -- x;\nselect ';';";
    let places = db.query.split(script).await.unwrap();
    assert_eq!(places.into_iter().map(|p| &script[p]).collect::<Vec<_>>(), ["select 1", "select ';'"]);
}

#[tokio::test]
async fn errors_name_their_place() {
    let db = Db::new();
    db.run("create table t (id int primary key)").await;
    assert_eq!(db.error("select nope from t").await.position, Some(8));
    assert_eq!(db.error("select 1 +").await.sqlstate, Some("42601"));
    assert_eq!(db.error("selec 1").await.position, Some(1));
    assert_eq!(db.state("select * from nope").await, "42P01");
}

/// Beyond these bounds a tree or a plan overflows the stack, which no error handler survives.
#[tokio::test]
async fn what_is_nearly_too_deep_runs_and_what_is_deeper_is_refused() {
    let db = Db::new();
    /// The link of a chain, by its number.
    type Link = fn(usize) -> String;
    let chains: [(&str, Link, usize); 6] = [
        ("select 1", |_| "+1".to_owned(), 490),
        ("select 1 where 1=1", |_| " or 1=1".to_owned(), 490),
        ("select 1", |_| "::int".to_owned(), 240),
        ("select 1", |_| " union all select 1".to_owned(), 240),
        ("select 1 from (values (1)) t(a)", |i| format!(" join (values (1)) t{i} on true"), 120),
        ("select 1 from (values (1)) t(a)", |i| format!(", (values (1)) t{i}"), 240),
    ];
    for (start, link, fits) in chains {
        let chain = |links| format!("{start}{}", (0..links).map(link).collect::<String>());
        for sql in [chain(fits), format!("explain {}", chain(fits))] {
            if let Err(error) = db.try_rows(&sql, &[]).await {
                panic!("{sql:.80}: {error}");
            }
        }
        let sql = chain(10_000);
        assert_eq!(db.state(&sql).await, "54001", "{sql:.80}");
    }
}

#[tokio::test]
async fn long_texts_are_read_and_longer_ones_refused() {
    let db = Db::new();
    db.run("create table t (id int primary key)").await;
    let rows: Vec<String> = (0..20_000).map(|id| format!("({id})")).collect();
    assert_eq!(db.tag(&format!("insert into t values {}", rows.join(","))).await, "INSERT 0 20000");
    assert_eq!(db.state(&format!("select '{}'", "x".repeat(5 << 20))).await, "54000");
}

#[tokio::test]
async fn a_truncate_of_the_bucket_stands_alone_whatever_it_is_called() {
    for (path, name) in [("public", "\"default\".kv"), ("public, \"default\"", "kv")] {
        let db = Db::new();
        db.run(&format!("set search_path to {path}")).await;
        db.run("insert into \"default\".kv (key, value, flags) values ('a', 'b', 0)").await;
        let count = "select count(*) from \"default\".kv";
        db.run("begin").await;
        assert_eq!(db.tag(&format!("truncate {name}")).await, "TRUNCATE TABLE");
        assert_eq!(db.client("other").rows(count).await, ["1"], "{name}");
        db.run("commit").await;
        assert_eq!(db.rows(count).await, ["0"], "{name}");
    }
}
