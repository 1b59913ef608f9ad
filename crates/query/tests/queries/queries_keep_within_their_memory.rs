//! A query that needs more memory than there is spills or fails with a clear error; the process goes on.

use crate::db::Db;
use oribi_engine::EngineOptions;
use oribi_types::ErrorKind;

async fn small() -> Db {
    let db = Db::with(EngineOptions { memory_bytes: 64 << 20, ..EngineOptions::default() });
    db.run("create table t (k bigint primary key, s text)").await;
    for start in (0..400_000).step_by(50_000) {
        let end = start + 49_999;
        db.run(&format!(
            "insert into t select value, md5(cast(value as text)) || md5(cast(value as text)) \
             from generate_series({start}, {end}) as g(value)"
        ))
        .await;
    }
    db.flush("t");
    db
}

#[tokio::test]
async fn a_sort_spills_and_leaves_nothing_behind() {
    let db = small().await;
    let sql =
        "select count(*) from (select row_number() over (order by s) as r, k, s from t) where r % 2 = 1";
    assert_eq!(db.rows(sql).await, ["200000"]);
    let plan = db.explain(&format!("explain analyze {sql}")).await;
    let sort = plan.lines().find(|line| line.contains("SortExec")).unwrap_or_default();
    assert!(sort.contains("spill_count=") && !sort.contains("spill_count=0,"), "{sort}");
    assert_eq!(db.engine.memory().queries(), 0);
    assert_eq!(files_below(&db.spill_dir()), 0, "spill files are removed with their query");
}

#[tokio::test]
async fn a_join_beyond_the_budget_fails_clearly() {
    let db = small().await;
    let sql = "select count(*) from t a join t b on a.s = b.s join t c on b.s = c.s where a.s || c.s <> ''";
    let error = db.try_rows(sql, &[]).await.unwrap_err();
    assert_eq!(error.error.kind(), ErrorKind::TooLarge, "{error}");
    assert_eq!(error.sqlstate, Some("53200"));
    assert!(error.error.message().contains("memory"), "{error}");
    assert_eq!(db.rows("select count(*) from t").await, ["400000"]);
}

#[tokio::test]
async fn a_nested_loop_without_room_for_one_side_has_all_of_it() {
    let db = small().await;
    // The left side is read until there is no room, and then again, part by part.
    let sql = "select count(*), sum(length(a.s)) from (select k, s || s || s as s from t) a
        join generate_series(0, 9) as g(n) on a.k % 10 < n";
    assert_eq!(db.rows(sql).await, ["1800000|345600000"]);
    let plan = db.explain(&format!("explain analyze {sql}")).await;
    let join = plan.lines().find(|line| line.contains("NestedLoopJoinExec")).unwrap_or_default();
    assert!(join.contains("spill_count=") && !join.contains("spill_count=0,"), "{plan}");
}

fn files_below(dir: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries.map(|path| if path.is_dir() { files_below(&path) } else { 1 }).sum()
}

#[tokio::test]
async fn a_statement_that_keeps_too_many_rows_stops_while_it_gathers_them() {
    let options =
        EngineOptions { memory_bytes: 256 << 20, statement_bytes_max: 1 << 20, ..EngineOptions::default() };
    let db = Db::with(options);
    db.run("create table t (id bigint primary key, s text)").await;
    let endless =
        "insert into t select value, repeat('x', 100) from generate_series(1, 1000000000) as g(value)";
    for end in ["on conflict do nothing", "on conflict (id) do update set s = excluded.s", "returning id"] {
        assert_eq!(db.state(&format!("{endless} {end}")).await, "54000", "{end}");
    }
    assert_eq!(
        db.tag("insert into t select value, repeat('x', 100000) from generate_series(1, 50) as g(value)")
            .await,
        "INSERT 0 50"
    );
    let read = "insert into t select id, '' from t on conflict (id) do update set s = 'y' where t.s = 'none'";
    assert_eq!(db.state(read).await, "54000");
    assert_eq!(db.state("delete from t returning s").await, "54000");
    assert_eq!(db.tag("delete from t").await, "DELETE 50");
}

#[tokio::test]
async fn rows_of_a_statement_are_memory_of_queries() {
    let options =
        EngineOptions { memory_bytes: 32 << 20, statement_bytes_max: 256 << 20, ..EngineOptions::default() };
    let db = Db::with(options);
    db.run("create table t (id bigint primary key, s text)").await;
    let sql = "insert into t select value, repeat('x', 1000) from generate_series(1, 100000) as g(value) on conflict do nothing";
    assert_eq!(db.state(sql).await, "53200");
    // What it held is given back.
    assert_eq!(db.tag(&sql.replace("100000)", "5000)")).await, "INSERT 0 5000");
}
