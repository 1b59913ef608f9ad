//! A scan that was planned in one process has the same rows in another that opens the same folder, at the same snapshot.
//!
//! More cases: `PROPTEST_CASES=1000 cargo test -p oribi-query --test queries -- scans_travel`.

use crate::db::Db;
use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use futures::TryStreamExt;
use oribi_engine::EngineOptions;
use oribi_types::ErrorKind;
use proptest::prelude::*;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const TABLE: &str = "create table t (
    k bigint, g int, b bigint, s text, x numeric(10,2), f double precision, day date, gone timestamp, primary key (g, k)
) partition by hash (g) partitions 3 with (expires_at = 'gone')";

/// Conditions that are asked in the scan, or in a range of keys.
const CONDITIONS: [&str; 24] = [
    "true",
    "b > 40 and b <= 700",
    "b = 7 or s = 'row 12' or g is null",
    "b is null",
    "s is not null and not (b < 100)",
    "s like 'row 1%'",
    "s like '%o%1%'",
    "s ilike '%ROW 2_' or s not like '%3'",
    "b in (1, 2, 3, 50, 51, 52, 53)",
    "s not in ('row 1', 'row 2')",
    "b * 3 + 1 > 500",
    "b % 7 = 3",
    "b + 9223372036854775000 > 0",
    "x > 3.5 and x * 2 < 40.25",
    "-x < -7",
    "f between 0.5 and 2.5e1",
    "day >= date '2024-01-20'",
    "case when b > 300 then s like '%9' when b > 100 then x > 2 else f < 3 end",
    "case g when 1 then b > 10 when 2 then b < 90 end",
    "coalesce(b, 5) = 5",
    "length(s) > 6 or upper(s) = 'ROW 3'",
    "b is distinct from 7 and b::int = x",
    "g = 1 and k >= 10",
    "g = 2 and k = 7",
];

fn sorted(batches: &[RecordBatch]) -> Vec<String> {
    let text = pretty_format_batches(batches).unwrap().to_string();
    let rows = text.lines().filter(|line| line.starts_with('|')).skip(1);
    let mut rows: Vec<String> = rows.map(str::to_owned).collect();
    rows.sort_unstable();
    rows
}

/// The rows of a query, or the SQLSTATE of its error.
async fn asked(db: &Db, sql: &str) -> Result<Vec<String>, Option<&'static str>> {
    db.try_rows(sql, &[]).await.map(|rows| sorted(&rows)).map_err(|error| error.sqlstate)
}

async fn read(db: &Db, bytes: &[u8]) -> Result<Vec<String>, Option<&'static str>> {
    let (_, rows) = db.query.scan_rows(&db.session, bytes).unwrap();
    let rows: Result<Vec<RecordBatch>, _> = rows.try_collect().await;
    rows.map(|rows| sorted(&rows)).map_err(|error| error.sqlstate)
}

/// Changes rows of some keys.
async fn change(db: &Db, (what, from, count): (u8, i64, i64)) {
    let values = |by: &str| {
        format!(
            "select i, i % 4, {by}, 'row ' || i, i::numeric / 7, i::double precision / 9, date '2024-01-01' + i::int % 60,
                case when i % 11 = 0 then timestamp '2001-01-01' when i % 13 = 0 then timestamp '2999-01-01' end
             from generate_series({from}, {}) as s(i)",
            from + count
        )
    };
    let of_range = format!("k >= {from} and k < {}", from + count / 2);
    match what {
        0 | 1 => {
            let set = "b = excluded.b, s = excluded.s, x = excluded.x, gone = excluded.gone";
            let rows = values(if what == 0 { "nullif(i, 30)" } else { "i * 3" });
            db.run(&format!("insert into t {rows} on conflict (g, k) do update set {set}")).await;
        }
        2 => db.run(&format!("delete from t where {of_range}")).await,
        3 => db.run(&format!("update t set b = b + 1, s = null where {of_range}")).await,
        4 => db.flush("t"),
        _ => db.compact("t"),
    }
}

fn changes() -> impl Strategy<Value = Vec<(u8, i64, i64)>> {
    prop::collection::vec((0..6_u8, 0..800_i64, 0..300_i64), 1..8)
}

fn keeping_history() -> EngineOptions {
    EngineOptions { memory_bytes: 256 << 20, keeps_history: true, ..EngineOptions::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn the_rows_are_the_same(before in changes(), after in changes(), seed in 0..CONDITIONS.len()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.unwrap().block_on(async {
            let db = Db::with(keeping_history());
            db.run(TABLE).await;
            change(&db, (0, 0, 400)).await;
            for step in before {
                change(&db, step).await;
            }
            let mut sent = Vec::new();
            for condition in CONDITIONS.iter().cycle().skip(seed).take(6) {
                let sql = format!("select * from t where {condition}");
                let (scans, kept) = db.query.scans(&db.session, &sql).await.unwrap();
                let rows = asked(&db, &sql).await;
                let [bytes] = scans.try_into().unwrap();
                assert_eq!(read(&db, &bytes).await, rows, "{sql}");
                sent.push((sql, bytes, rows, kept));
            }
            for step in after {
                change(&db, step).await;
            }
            for (sql, bytes, rows, _) in &sent {
                assert_eq!(&read(&db, bytes).await, rows, "after changes: {sql}");
            }
            // What is kept until the folder is closed is there when it is opened.
            let other = db.reopen();
            let _history = other.engine.take_history();
            for (sql, bytes, rows, _) in &sent {
                assert_eq!(&read(&other, bytes).await, rows, "opened again: {sql}");
            }
        });
    }
}

/// Set where a test runs as another process: the folder.
const FOLDER: &str = "ORIBI_TEST_SCANS_TRAVEL";
const FAR: &str = "select k, b, s, gone from t where b > 100 and s like 'row %'";

/// As another process: writes, tells of a scan, and is killed.
#[tokio::test]
async fn writer() {
    let Some(dir) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let db = Db::at(&dir, keeping_history());
    db.run(TABLE).await;
    for step in [(0, 0, 400), (4, 0, 0), (1, 50, 100), (2, 100, 90), (4, 0, 0), (3, 200, 80), (2, 300, 40)] {
        change(&db, step).await;
    }
    let (scans, _kept) = db.query.scans(&db.session, FAR).await.unwrap();
    let rows = asked(&db, FAR).await.unwrap();
    change(&db, (1, 0, 400)).await;
    std::fs::write(dir.join("rows"), rows.join("\n")).unwrap();
    std::fs::write(dir.join("scan"), &scans[0]).unwrap();
    std::process::abort();
}

#[tokio::test]
async fn another_process_reads_what_a_killed_one_saw() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Command::new(std::env::current_exe().unwrap());
    writer.args(["--exact", "scans_travel_as_bytes::writer"]).env(FOLDER, dir.path());
    let ended = writer.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(!ended.success(), "it was not killed");
    let (scan, rows) = (dir.path().join("scan"), dir.path().join("rows"));
    let (scan, rows) = (std::fs::read(scan).unwrap(), std::fs::read_to_string(rows).unwrap());
    assert!(rows.lines().count() > 100);
    let db = Db::at(dir.path(), keeping_history());
    let _history = db.engine.take_history();
    assert_eq!(read(&db, &scan).await.unwrap(), rows.lines().collect::<Vec<_>>());
    assert_ne!(asked(&db, FAR).await.unwrap(), rows.lines().collect::<Vec<_>>(), "it has changed since");
}

#[tokio::test]
async fn what_does_not_travel_is_refused_by_name() {
    let db = Db::new();
    db.run(TABLE).await;
    change(&db, (0, 0, 10)).await;
    let refusal = async |sql: &str| {
        let error = db.query.scans(&db.session, sql).await.map(|_| ()).unwrap_err();
        assert_eq!(error.error.kind(), ErrorKind::Unsupported, "{sql}: {error}");
        error.to_string()
    };
    let named = refusal("select k from t where s = pg_get_userbyid(b::int)").await;
    assert!(named.contains("the function pg_get_userbyid does not travel"), "{named}");
    db.run("begin").await;
    db.run("insert into t (g, k) values (1, 1000)").await;
    let named = refusal("select k from t where b > 3").await;
    assert!(named.contains("what a transaction sees does not travel"), "{named}");
    db.run("rollback").await;
}

#[tokio::test]
async fn what_an_operator_above_learns_stays_there() {
    let db = Db::new();
    db.run(TABLE).await;
    change(&db, (0, 0, 400)).await;
    db.flush("t");
    let first = "select b from t where b > 10 order by b limit 3";
    let (scans, _kept) = db.query.scans(&db.session, first).await.unwrap();
    assert_eq!(read(&db, &scans[0]).await, asked(&db, "select b from t where b > 10").await);
}

#[tokio::test]
async fn damage_and_what_is_gone_are_named() {
    let db = Db::new();
    db.run(TABLE).await;
    change(&db, (0, 0, 10)).await;
    let sql = "select k, b from t where b in (1, 2, 3) and s like 'r%'";
    let (scans, kept) = db.query.scans(&db.session, sql).await.unwrap();
    let refusal = |bytes: &[u8]| db.query.scan_rows(&db.session, bytes).map(|_| ()).unwrap_err().error;
    for at in 0..scans[0].len() {
        let mut damaged = scans[0].clone();
        damaged[at] ^= 0x10;
        assert_eq!(refusal(&damaged).kind(), ErrorKind::Corrupt, "byte {at}");
        assert_eq!(refusal(&scans[0][..at]).kind(), ErrorKind::Corrupt, "cut at {at}");
    }
    // A renamed column is the same; one that was dropped is not there any more.
    db.run("alter table t rename column s to r").await;
    assert_eq!(read(&db, &scans[0]).await.unwrap().len(), 3);
    db.run("delete from t where k = 1").await;
    drop(kept);
    // Without history.
    let db = db.reopen();
    let refusal = |bytes: &[u8]| db.query.scan_rows(&db.session, bytes).map(|_| ()).unwrap_err().error;
    assert_eq!(refusal(&scans[0]).kind(), ErrorKind::Conflict);
    let (scans, _kept) = db.query.scans(&db.session, "select k from t where b = 1").await.unwrap();
    db.run("drop table t").await;
    assert_eq!(refusal(&scans[0]).kind(), ErrorKind::NotFound);
}
