//! `SET`, `SHOW`, `RESET`, `BEGIN … COMMIT`, scripts.

use crate::db::Db;
use oribi_session::sql::{Outcome, SqlEngine, TransactionStatus};
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
async fn a_block_may_read_and_write_once() {
    let db = Db::new();
    db.run("create table t (id int primary key)").await;
    assert_eq!(db.tag("begin").await, "BEGIN");
    assert_eq!(db.session.transaction(), TransactionStatus::Open { wrote: false });
    db.run("select * from t").await;
    db.run("insert into t values (1)").await;
    assert_eq!(db.session.transaction(), TransactionStatus::Open { wrote: true });
    assert!(db.session.take_warnings()[0].contains("applied already"));
    assert_eq!(db.tag("commit").await, "COMMIT");
    assert_eq!(db.session.transaction(), TransactionStatus::Idle);
    assert_eq!(db.rows("select count(*) from t").await, ["1"]);
}

#[tokio::test]
async fn what_cannot_be_undone_is_refused_and_said() {
    let db = Db::new();
    db.run("create table t (id int primary key)").await;
    db.run("begin").await;
    db.run("insert into t values (1)").await;
    let error = db.error("insert into t values (2)").await;
    assert!(error.to_string().contains("more than one writing statement"), "{error}");
    assert_eq!(db.session.transaction(), TransactionStatus::Failed { wrote: true });
    assert_eq!(db.state("select 1").await, "25P02");
    let error = db.error("rollback").await;
    assert!(error.to_string().contains("cannot roll back"), "{error}");
    assert_eq!(db.session.transaction(), TransactionStatus::Idle);
    assert_eq!(db.rows("select id from t").await, ["1"]);

    db.run("begin").await;
    assert_eq!(db.state("select * from nope").await, "42P01");
    assert_eq!(db.session.transaction(), TransactionStatus::Failed { wrote: false });
    assert_eq!(db.tag("commit").await, "ROLLBACK");
    db.run("begin").await;
    assert_eq!(db.tag("rollback").await, "ROLLBACK");
    for sql in ["begin isolation level serializable", "savepoint a"] {
        assert_eq!(db.state(sql).await, "0A000", "{sql}");
    }
}

#[tokio::test]
async fn a_write_counts_from_when_it_may_have_been_applied() {
    let db = Db::new();
    db.run("create table t (id int primary key)").await;
    let wrote = |wrote| TransactionStatus::Open { wrote };

    // A `COPY` has written nothing before its rows are all there.
    db.run("begin").await;
    let Outcome::CopyIn(sink) = db.outcome("copy t from stdin", &[]).await.unwrap() else { panic!("a copy") };
    assert_eq!(db.session.transaction(), wrote(false));
    assert!(db.session.take_warnings().is_empty());
    drop(sink);
    assert_eq!(db.tag("rollback").await, "ROLLBACK");
    db.run("begin").await;
    let Outcome::CopyIn(sink) = db.outcome("copy t from stdin", &[]).await.unwrap() else { panic!("a copy") };
    assert_eq!(sink.finish().await.unwrap(), 0);
    assert_eq!(db.session.transaction(), wrote(true));
    assert!(db.session.take_warnings()[0].contains("applied already"));
    assert_eq!(db.state("rollback").await, "0A000");

    // One that is refused has written nothing.
    db.run("insert into t values (1)").await;
    db.run("begin").await;
    assert_eq!(db.state("insert into t values (1)").await, "23505");
    assert_eq!(db.tag("rollback").await, "ROLLBACK");

    // One that is cancelled may have: it is dropped while it waits for its rows here.
    db.run("begin").await;
    let endless = db.prepare("insert into t select a.value from generate_series(2, 100000000) a").await;
    let cancelled = endless.execute(&db.session, &[]);
    assert!(tokio::time::timeout(Duration::from_millis(20), cancelled).await.is_err());
    assert_eq!(db.session.transaction(), wrote(true));
    assert_eq!(db.state("rollback").await, "0A000");
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
