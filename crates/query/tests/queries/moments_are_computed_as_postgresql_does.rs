//! Dates, timestamps and intervals: what is computed of them is what PostgreSQL computes, or is refused.

use crate::db::{Db, text};
use oribi_types::Value;

async fn days() -> Db {
    let db = Db::new();
    db.run("create table days (id int primary key, d date, t timestamp)").await;
    db.run(
        "insert into days values (1, '2024-01-31', '2024-02-29 23:59:59.5'), (2, '0001-01-01', '0044-03-15 12:00 BC'),
         (3, 'infinity', '-infinity'), (4, null, null)",
    )
    .await;
    db
}

/// The texts of an expression over all rows.
async fn over_rows(db: &Db, expression: &str) -> Vec<String> {
    db.rows(&format!("select ({expression})::text from days order by id")).await
}

#[tokio::test]
async fn a_date_and_an_interval_make_a_timestamp() {
    let db = days().await;
    for (expression, first, second) in [
        ("d + interval '1 month'", "2024-02-29 00:00:00", "0001-02-01 00:00:00"),
        ("interval '1 day 2 hours' + d", "2024-02-01 02:00:00", "0001-01-02 02:00:00"),
        ("d - interval '1 month 1 day'", "2023-12-30 00:00:00", "0001-11-30 00:00:00 BC"),
        ("t + interval '1 year'", "2025-02-28 23:59:59.5", "0043-03-15 12:00:00 BC"),
        ("d + id", "2024-02-01", "0001-01-03"),
        ("d - 1", "2024-01-30", "0001-12-31 BC"),
        ("d::timestamp", "2024-01-31 00:00:00", "0001-01-01 00:00:00"),
        ("t::date", "2024-02-29", "0044-03-15 BC"),
        ("date_trunc('century', t)", "2001-01-01 00:00:00", "0100-01-01 00:00:00 BC"),
        ("date_trunc('month', d)", "2024-01-01 00:00:00+00", "0001-01-01 00:00:00+00"),
    ] {
        let rows = over_rows(&db, expression).await;
        assert_eq!(rows[..2], [first, second], "{expression}");
        assert!(rows[2].ends_with("infinity") && rows[3].is_empty(), "{expression}: {rows:?}");
    }
    let derived = "select (x - interval '1 day')::text from (select d + interval '1 month' as x from days where id = 1) s";
    assert_eq!(db.rows(derived).await, ["2024-02-28 00:00:00"]);
}

#[tokio::test]
async fn differences_are_days_and_intervals() {
    let db = days().await;
    for (expression, answer) in [
        ("d - date '2023-12-31'", "31"),
        ("d - '2023-12-31'", "31"),
        ("t - d", "29 days 23:59:59.5"),
        ("d - t", "-29 days -23:59:59.5"),
        ("t - '2024-02-29'", "23:59:59.5"),
        ("(t - d) * 2", "58 days 47:59:59"),
        ("interval '1 mon' / 4", "7 days 12:00:00"),
        ("- interval '1 mon -2 days'", "-1 mons +2 days"),
        ("t - d > interval '29 days 23 hours'", "true"),
        ("interval '1 mon' = interval '30 days'", "true"),
        ("interval '25:00' is distinct from interval '1 day 1 hour'", "false"),
        ("extract(second from t)", "59.500000"),
        ("extract(year from d) + 1", "2025"),
        ("date_part('week', d)", "5"),
        ("extract(epoch from t - d)", "2591999.500000"),
        ("to_timestamp(1.5)", "1970-01-01 00:00:01.5+00"),
        ("make_date(-44, 3, 15)", "0044-03-15 BC"),
    ] {
        let sql = format!("select ({expression})::text from days where id = 1");
        assert_eq!(db.rows(&sql).await, [answer], "{expression}");
    }
}

#[tokio::test]
async fn moments_far_from_now_are_compared() {
    let db = days().await;
    let ids =
        async |condition: &str| db.rows(&format!("select id from days where {condition} order by id")).await;
    assert_eq!(ids("t < d").await, ["2", "3"]);
    assert_eq!(ids("d > now()").await, ["3"]);
    assert_eq!(ids("t between '-infinity' and now() - interval '1 year'").await, ["1", "2", "3"]);
    assert_eq!(ids("d in (timestamp '2024-01-31', '0001-01-01')").await, ["1", "2"]);
    let sql = "select id from days where t > now() - $1::text::interval or d < timestamp '2024-01-01' + $1::text::interval";
    assert_eq!(db.rows_with(sql, &[text("1 day")]).await, ["2"]);
    let difference = "select (t - $1)::text from days where id = 1";
    assert_eq!(
        db.rows_with(difference, &[Value::Timestamp(1_706_745_600_000_000)]).await,
        ["28 days 23:59:59.5"]
    );
}

/// The column is compared as it is stored, so that statistics and keys leave rows out.
#[tokio::test]
async fn a_date_column_is_compared_with_a_date() {
    let db = days().await;
    let sql = "select id from days where d < date '2023-01-31' + interval '1 year 1 day'";
    let plan = db.explain(&format!("explain {sql}")).await;
    assert!(plan.contains("2024-02-01") && !plan.contains("as_timestamp"), "{plan}");
    assert_eq!(db.rows(&format!("{sql} order by id")).await, ["1", "2"]);
    let noon = "select id from days where d >= timestamp '2024-01-31 12:00' or d = '0001-01-01'::timestamp order by id";
    assert_eq!(db.rows(noon).await, ["2", "3"]);
}

#[tokio::test]
async fn what_has_no_answer_here_is_refused() {
    let db = days().await;
    for (sql, state) in [
        ("select d + '1 day' from days", "42725"),
        ("select d + 1::bigint from days", "42883"),
        ("select t + 1 from days", "42883"),
        ("select d * 2 from days", "42883"),
        ("select t + $1 from days", "0A000"),
        ("select d - d from days", "22008"),
        ("select date 'infinity' - date '2024-01-01'", "22008"),
        ("select date '5874897-12-31' + 1", "22008"),
        ("select interval '1 day 2 days'", "22007"),
        ("select interval '300 years' * 1e9", "22008"),
        ("select interval '1' year to month", "0A000"),
        ("select date_part('nosuch', d) from days", "22023"),
        ("select extract(hour from d) from days", "0A000"),
        ("select date_trunc('day', '2024-01-01')", "42725"),
        ("select coalesce(d, t) from days", "0A000"),
        ("select d from days union select t from days", "0A000"),
        ("select t - d from days order by 1", "0A000"),
        ("select distinct t - d from days", "0A000"),
        ("select max(t - d) from days", "42883"),
        ("select time '12:00'", "0A000"),
        ("select t::timestamp(0) from days", "0A000"),
        ("select 'today'::date", "0A000"),
    ] {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
}

#[tokio::test]
async fn infinite_moments_are_assigned_to_columns_of_either_type() {
    let db = Db::new();
    db.run("create table moments (id int primary key, d date, t timestamp)").await;
    db.run(
        "insert into moments values (1, 'infinity', '-infinity'), (2, '2024-02-29', '1969-12-31 23:59:59')",
    )
    .await;
    db.run("insert into moments (id, d, t) select id + 10, t, d from moments").await;
    db.run("update moments set t = d, d = t where id < 10").await;
    let shown = "select id, d::text, t::text from moments order by id";
    assert_eq!(
        db.rows(shown).await,
        [
            "1|-infinity|infinity",
            "2|1969-12-31|2024-02-29 00:00:00",
            "11|-infinity|infinity",
            "12|1969-12-31|2024-02-29 00:00:00",
        ]
    );
    let beyond = "insert into moments (id, t) select 3, date '5874897-12-31'";
    assert_eq!(db.state(beyond).await, "22008");
}
