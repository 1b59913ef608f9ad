//! The session's time zone: what depends on it is computed by it, or refused.

use crate::db::Db;
use oribi_session::sql::SqlEngine;
use oribi_types::{ColumnType, Value};

/// 2024-07-01 10:00:00 UTC.
const SUMMER: i64 = 1_719_828_000;

#[tokio::test]
async fn a_zone_is_kept_under_its_name_or_refused() {
    let db = Db::new();
    for (set, shown) in [
        ("set timezone = 'europe/berlin'", "Europe/Berlin"),
        ("set time zone 'America/New_York'", "America/New_York"),
        ("set time zone -7", "Etc/GMT+7"),
        ("set time zone default", "UTC"),
        ("set timezone to 'GMT-02:00'", "Etc/GMT-2"),
        ("set time zone local", "UTC"),
    ] {
        db.run(set).await;
        assert_eq!(db.rows("show timezone").await, [shown], "{set}");
        assert_eq!(db.session.take_warnings(), Vec::<String>::new(), "{set}");
    }
    assert_eq!(db.state("set timezone = 'Europe/Atlantis'").await, "22023");
    assert_eq!(db.state("set timezone = '+05:30'").await, "0A000");
    assert_eq!(db.rows("show timezone").await, ["UTC"]);
}

#[tokio::test]
async fn a_moment_that_is_stored_is_what_the_clock_shows() {
    let db = Db::new();
    db.run("create table t (id bigint primary key, at timestamp, day date)").await;
    db.run("set timezone = 'Europe/Berlin'").await;
    db.run(&format!("insert into t values (1, to_timestamp({SUMMER}), to_timestamp({SUMMER} + 50000))"))
        .await;
    assert_eq!(db.rows("select at, day from t").await, ["2024-07-01T12:00:00|2024-07-02"]);
    db.run(&format!("update t set at = to_timestamp({SUMMER} - 15552000) where day is not null")).await;
    assert_eq!(db.rows("select at from t").await, ["2024-01-03T11:00:00"]);
    let again =
        format!("insert into t values (1) on conflict (id) do update set at = to_timestamp({SUMMER})");
    db.run(&again).await;
    assert_eq!(db.rows("select at from t").await, ["2024-07-01T12:00:00"]);
    db.run(&format!("create table c (primary key (id)) as select 1 as id, to_timestamp({SUMMER}) as at"))
        .await;
    assert_eq!(db.rows("select at from c").await, ["2024-07-01T12:00:00"]);
    db.run("insert into t (id, at) values (2, now()), (3, current_timestamp)").await;
    db.run("set timezone = 'UTC'").await;
    let ahead = "select count(*) from t where id > 1 and at > now() + interval '50 minutes'";
    assert_eq!(db.rows(ahead).await, ["2"], "Berlin is ahead by an hour or two");
}

#[tokio::test]
async fn moments_become_timestamps_by_the_zone() {
    let db = Db::new();
    db.run("set timezone = 'Europe/Berlin'").await;
    // The clocks go forward in the night to 31 March, at 1:00 UTC.
    let evening = "to_timestamp(1711832400)";
    for (expression, expected) in [
        (format!("{evening}::timestamp"), "2024-03-30T22:00:00"),
        ("to_timestamp(1711839600)::date".to_owned(), "2024-03-31"),
        (format!("{evening} < now()"), "true"),
        ("current_date = now()::date".to_owned(), "true"),
    ] {
        assert_eq!(db.rows(&format!("select {expression}")).await, [expected], "{expression}");
    }
}

#[tokio::test]
async fn what_would_forget_the_zone_is_refused() {
    let db = Db::new();
    db.run("create table t (id bigint primary key, at timestamp, note text)").await;
    db.run("insert into t values (1, '2024-01-01')").await;
    let refused = [
        ("select id from t where at < now()", "0A000"),
        ("select id from t where at between now() and now()", "0A000"),
        ("select id from t where now() in (at)", "0A000"),
        ("select id from t where at = (select max(now()) from t)", "0A000"),
        ("select now() = current_date", "0A000"),
        ("select a.id from t as a join (select now() as n) as b on a.at = b.n", "0A000"),
        ("select coalesce(at, now()) from t", "0A000"),
        ("select case when id = 1 then at else now() end from t", "0A000"),
        ("select at from t union select now()", "42804"),
        ("select now() + interval '1 day'", "0A000"),
        ("select now() - now()", "0A000"),
        ("select date_part('hour', now())", "0A000"),
        ("select date_trunc('day', now())", "0A000"),
        ("select extract(day from now())", "0A000"),
        ("select now()::text", "0A000"),
        ("select now() > '2024-03-30 22:00:00'", "0A000"),
        ("insert into t values (2, null, now())", "42804"),
    ];
    for (sql, _) in refused.iter().filter(|(sql, _)| !sql.starts_with("insert")) {
        assert!(db.try_rows(sql, &[]).await.is_ok(), "{sql}: in UTC clocks and moments agree");
    }
    db.run("set timezone = 'Europe/Berlin'").await;
    for (sql, state) in refused {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
    let prepared = db.query.prepare(&db.session, "select now() > $1", &[Some(ColumnType::Timestamp)]).await;
    let run = prepared.unwrap().execute(&db.session, &[Value::Timestamp(0)]).await;
    assert!(run.is_err(), "a parameter is what the clock shows");
    assert_eq!(db.rows("select id from t where at < now()::timestamp").await, ["1"]);
}

#[tokio::test]
async fn a_statement_is_planned_for_the_zone_it_is_executed_in() {
    let db = Db::new();
    let prepared = db.prepare(&format!("select to_timestamp({SUMMER})::timestamp::text")).await;
    let rows = async |zone: &str| {
        db.run(&format!("set timezone = '{zone}'")).await;
        let oribi_session::sql::Outcome::Rows(rows) = prepared.execute(&db.session, &[]).await.unwrap()
        else {
            panic!("no rows")
        };
        let batches: Vec<arrow::array::RecordBatch> = futures::TryStreamExt::try_collect(rows).await.unwrap();
        arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string()
    };
    for _ in 0..2 {
        assert!(rows("Asia/Tokyo").await.contains("2024-07-01 19:00:00"));
        assert!(rows("UTC").await.contains("2024-07-01 10:00:00"));
    }
}

/// In a session of any zone. Beside a moment the offset counts.
#[tokio::test]
async fn the_offset_behind_a_timestamp_is_passed_over() {
    let db = Db::new();
    db.run("create table t (at timestamp primary key, id int)").await;
    for zone in ["UTC", "Europe/Berlin"] {
        db.run(&format!("set timezone = '{zone}'")).await;
        db.run("insert into t values ('2024-01-01 00:00:00+02', 1), (timestamp '2024-06-01 12:00:00Z', 2)")
            .await;
        assert_eq!(
            db.rows("select at::text, id from t order by id").await,
            ["2024-01-01 00:00:00|1", "2024-06-01 12:00:00|2"]
        );
        for condition in [
            "at = '2024-01-01 00:00:00-07'",
            "at in ('2024-01-01 00:00:00+05', '1999-01-01')",
            "at <= '2024-01-01 00:00:00+05:30'",
            "at between '2023-01-01 00:00Z' and '2024-01-01 00:00:00+13'",
            "at = cast('2024-01-01 00:00:00.0 -02:30' as timestamp)",
            "at = ('2024-01-01 00:00:00' || '+02')::timestamp",
            "at - '2024-01-01 00:00:00+05' = interval '0'",
        ] {
            assert_eq!(db.rows(&format!("select id from t where {condition}")).await, ["1"], "{condition}");
        }
        assert_eq!(db.state("select timestamp '2024-01-01 00:00:00+99'").await, "22007");
        assert_eq!(db.tag("update t set id = 3 where at = '2024-01-01 00:00:00+11'").await, "UPDATE 1");
        assert_eq!(db.tag("delete from t where at = '2024-01-01 00:00:00+11'").await, "DELETE 1");
        db.run("delete from t").await;
    }
    db.run("set timezone = 'UTC'").await;
    for expression in [
        "to_timestamp(0) = '1970-01-01 02:00:00+02'",
        "to_timestamp(0) in ('1970-01-01 02:00:00+02')",
        "to_timestamp(0) between '1970-01-01 02:00:00+02' and '1970-01-01 01:00:00+01'",
        "to_timestamp(0) - '1970-01-01 02:00:00+02' = interval '0'",
        "'1970-01-01 02:00:00+02' - to_timestamp(0) = interval '0'",
    ] {
        assert_eq!(db.rows(&format!("select {expression}")).await, ["true"], "{expression}");
    }
    for (sql, is_moment) in [
        ("select to_timestamp(0) = $1", true),
        ("select to_timestamp(0) - $1", true),
        ("select id from t where at = $1", false),
        ("insert into t values ($1, 1)", false),
    ] {
        assert_eq!(db.prepare(sql).await.is_moment(0), is_moment, "{sql}");
    }
}
