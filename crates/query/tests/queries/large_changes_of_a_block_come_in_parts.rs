//! One statement of a block may change more rows than there is memory for: they are its transaction's part by part, and it ends as it
//! would at once. It does not see what it writes itself; whatever stops it leaves nothing of it.

use super::db::Db;
use futures::future::join;
use oribi_engine::EngineOptions;
use oribi_types::ErrorKind;
use std::time::Duration;

const ROWS: usize = 5000;

/// A database whose statements may be so large.
async fn db(statement_bytes_max: usize) -> Db {
    let options = EngineOptions { memory_bytes: 256 << 20, background: false, ..EngineOptions::default() };
    let db = Db::with(EngineOptions { statement_bytes_max, ..options });
    db.run(
        "create table t (a bigint, b text, n bigint not null, v text, primary key (a, b))
         partition by hash (a) partitions 2",
    )
    .await;
    for (from, to) in [(0, ROWS / 2), (ROWS / 2, ROWS)] {
        db.flush("t");
        db.run(&format!("insert into t select g, 'k' || g % 7, g % 10, repeat('v', g % 20) from generate_series({from}, {to} - 1) as s(g)"))
            .await;
    }
    db
}

/// Of which a part is some 500 rows, and of which a transaction keeps some 1,000 in memory.
const SMALL: usize = 512 << 10;

const ALL: &str = "select * from t order by a, b";

#[tokio::test(flavor = "multi_thread")]
async fn statements_end_as_they_would_at_once() {
    let statements = [
        "update t set n = n + 1",
        "savepoint s",
        "update t set v = 'same', n = n * 2 where a % 3 > 0",
        // What it writes changes neither what it looks for nor what it computes.
        "update t set n = n + 1000 where n < (select avg(n) from t)",
        "update t set n = t.n + o.n from (select a, b, n from t) o where o.a = t.a + 1",
        // A row comes several times.
        "update t set n = -1 from t o where o.a / 2 = t.a",
        "insert into t select a + 10000, b, n, v from t",
        "update t set v = v || v where a >= 10000",
        "delete from t where exists (select 1 from t o where o.a = t.a + 1 and o.n % 2 = 0)",
        "rollback to savepoint s",
        "update t set n = n + 1",
        "delete from t where n % 3 = 0",
        "update t set n = n + 1 where a >= 0 and a < 4000",
        "savepoint f",
        // Some of it is written by then.
        "update t set n = 10 / (a - 4500)",
        "rollback to savepoint f",
        "update t set n = null where a > 4000",
        "rollback to savepoint f",
        // Keys are changed at once, and rows are shown at once.
        "update t set a = a + 1 where a < 100",
        "update t set n = n + 1 where a < 200 returning a",
        "update t set n = n + 1",
    ];
    let (ours, other) = (db(SMALL).await, db(64 << 20).await);
    for db in [&ours, &other] {
        db.run("begin").await;
    }
    for statement in statements {
        let ends = [ours.outcome(statement, &[]).await, other.outcome(statement, &[]).await];
        let [ours_ends, other_ends] = ends.map(|end| match end {
            Ok(oribi_session::sql::Outcome::Done { tag }) => tag,
            Ok(_) => "rows".to_owned(),
            Err(error) => format!("{:?}", error.sqlstate),
        });
        assert_eq!(ours_ends, other_ends, "{statement}");
        if !ours_ends.contains("Some") {
            assert_eq!(ours.rows(ALL).await, other.rows(ALL).await, "{statement}");
        }
    }
    let (seen, elsewhere) = (ours.rows(ALL).await, ours.client("other"));
    assert_eq!(
        elsewhere.rows("select count(*), sum(n) from t").await,
        [format!("{ROWS}|{}", ROWS / 10 * 45)]
    );
    for db in [&ours, &other] {
        db.run("commit").await;
    }
    assert_eq!(elsewhere.rows(ALL).await, seen);
    drop(elsewhere);
    let ours = ours.reopen();
    assert_eq!(ours.rows(ALL).await, seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_longer_than_expected_make_parts_smaller() {
    let db = db(SMALL).await;
    for from in (0..200).step_by(20) {
        db.run(&format!("update t set v = repeat('w', 20000) where a >= {from} and a < {from} + 20")).await;
    }
    db.flush("t");
    db.run("begin").await;
    assert_eq!(db.tag("update t set n = 7").await, format!("UPDATE {ROWS}"));
    assert_eq!(
        db.rows("select count(*), sum(length(v)) from t where n = 7 and a < 200").await,
        ["200|4000000"]
    );
    assert_eq!(db.tag("delete from t where a < 1000").await, "DELETE 1000");
    db.run("commit").await;
    assert_eq!(db.rows("select count(*), min(a), min(n), max(n) from t").await, ["4000|1000|7|7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_a_later_part_is_waited_for_and_decided_on_anew() {
    for (end, level, left) in [
        ("commit", "read committed", format!("{}|0|-1", ROWS - 1)),
        ("rollback", "read committed", format!("{ROWS}|0|0")),
        ("rollback", "repeatable read", format!("{ROWS}|0|0")),
    ] {
        let db = db(SMALL).await;
        db.run("update t set n = 0").await;
        let other = db.client("other");
        other.run("begin").await;
        // The last in the order of the scan is among them.
        other.run("update t set n = -1 where a = 4999").await;
        other.run("delete from t where a = 4998").await;
        db.run(&format!("begin isolation level {level}")).await;
        // What it has written before does not count when it looks at the row again.
        let update = db.tag("update t set n = 1 + (select count(*) from t where n > 0)");
        let release = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            other.run(end).await;
        };
        let (tag, ()) = join(update, release).await;
        let count: usize = left.split('|').next().unwrap().parse().unwrap();
        assert_eq!(tag, format!("UPDATE {count}"), "{end}, {level}");
        assert_eq!(db.rows("select count(*), min(n), max(n) from t").await, [format!("{count}|1|1")]);
        db.run("rollback").await;
        let after = db.rows("select count(*), max(n), min(n) from t").await;
        assert_eq!(after, [left], "{end}, {level}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_changed_since_is_an_error_of_one_snapshot() {
    let db = db(SMALL).await;
    let other = db.client("other");
    db.run("begin isolation level repeatable read").await;
    assert_eq!(db.rows("select count(*) from t").await, [ROWS.to_string()]);
    db.run("savepoint s").await;
    other.run("update t set n = n + 1 where a = 4990").await;
    assert_eq!(db.state("update t set n = n + 1").await, "40001");
    db.run("rollback to savepoint s").await;
    assert_eq!(db.tag("update t set n = n + 1 where a < 2000").await, "UPDATE 2000");
    db.run("commit").await;
    assert_eq!(db.rows("select sum(n) from t").await, [(ROWS / 10 * 45 + 2001).to_string()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stays_in_memory_is_refused_as_before() {
    let db = db(SMALL).await;
    db.run("begin isolation level serializable").await;
    assert_eq!(db.error("update t set n = n + 1").await.error.kind(), ErrorKind::TooLarge);
    db.run("rollback").await;
    db.run("begin").await;
    let error = db.error("update t set n = n + 1 returning a, b, n, v").await;
    assert_eq!(error.error.kind(), ErrorKind::TooLarge);
    db.run("rollback").await;
    assert_eq!(db.rows("select sum(n) from t").await, [(ROWS / 10 * 45).to_string()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_begin_alike_keep_their_rows() {
    let db = db(SMALL).await;
    db.run("create table u (k text primary key, n bigint not null)").await;
    db.run("insert into u select 'account-' || g, g from generate_series(1, 4000) as s(g)").await;
    let expected = "select 'account-' || g, g + 2 from generate_series(1, 4000) as s(g) where (g + 2) % 3 <> 0 order by 1";
    let expected = db.rows(expected).await;
    let rows = "select k, n from u order by k";
    db.run("begin").await;
    db.run("update u set n = n + 1").await;
    db.run("update u set n = n + 1").await;
    db.run("delete from u where n % 3 = 0").await;
    assert_eq!(db.rows(rows).await, expected);
    db.run("commit").await;
    assert_eq!(db.rows(rows).await, expected);
}
