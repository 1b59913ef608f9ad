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
             from generate_series({start}, {end})"
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

fn files_below(dir: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries.map(|path| if path.is_dir() { files_below(&path) } else { 1 }).sum()
}
