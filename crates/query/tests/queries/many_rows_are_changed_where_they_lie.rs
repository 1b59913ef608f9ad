//! Updates and deletes of many rows of files go past log and memtable, and end as they would otherwise.

use crate::db::Db;
use oribi_engine::EngineOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A database whose statements change so many rows by position.
fn db(rows_min: usize) -> Db {
    let options = EngineOptions { memory_bytes: 256 << 20, ..EngineOptions::default() };
    Db::with(EngineOptions { by_position_rows_min: rows_min, background: false, ..options })
}

async fn fill(db: &Db) {
    db.run(
        "create table t (a bigint, b text, n int not null, d numeric(12, 2) default 1.5, v text, primary key (a, b))
         partition by hash (a) partitions 2",
    )
    .await;
    db.run("insert into t select g, 'k' || g % 7, g % 10, g / 4.0, repeat('v', g % 20) from generate_series(1, 3000) as s(g)")
        .await;
    db.run("update t set v = null where a % 11 = 0").await;
    flush(db);
}

fn flush(db: &Db) {
    db.engine.flush(&db.engine.table("public", "t").unwrap()).unwrap();
}

fn rows_in_memory(db: &Db) -> u64 {
    db.engine.table("public", "t").unwrap().unflushed_rows()
}

const ALL: &str = "select * from t order by a, b";

/// Whether a statement goes by position if it changes enough rows.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    ByPosition,
    Common,
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_end_as_they_would_otherwise() {
    use Way::{ByPosition, Common};
    let statements = [
        (ByPosition, "update t set n = n + 1 where a % 10 = 3"),
        (ByPosition, "update t set v = 'same', d = null where n = 4"),
        (ByPosition, "update t set d = default, v = b || v where n > 5"),
        // Few rows between two keys are read by key.
        (Common, "update t set d = d + 1 where a between 500 and 1500"),
        (ByPosition, "delete from t where a % 10 = 4"),
        (ByPosition, "update t set n = n * 2, v = upper(v)"),
        (ByPosition, "update t set n = o.n from (select a as x, n from t where n > 3) o where o.x = t.a + 1"),
        (ByPosition, "delete from t where exists (select 1 from t o where o.a = t.a + 7 and o.n = 2)"),
        (Common, "update t set n = 0 where a < 10"),
        (Common, "update t set a = a + 10000 where a % 10 = 5"),
        (Common, "update t set n = n + 1 where a % 10 = 6 returning a"),
        // Some of its rows are in memory: they are flushed first.
        (ByPosition, "update t set n = n + 1"),
        (Common, "update t set n = null where a % 10 = 7"),
        (ByPosition, "delete from t"),
    ];
    let (ours, other) = (db(50), db(usize::MAX));
    fill(&ours).await;
    fill(&other).await;
    for (way, statement) in statements {
        let counted = match statement.contains("returning") {
            true => ours.rows(statement).await.len() == other.rows(statement).await.len(),
            false => match (ours.outcome(statement, &[]).await, other.outcome(statement, &[]).await) {
                (Ok(_), Ok(_)) => true,
                (Err(a), Err(b)) => a.sqlstate == b.sqlstate,
                _ => false,
            },
        };
        assert!(counted, "{statement}");
        assert_eq!(ours.rows(ALL).await, other.rows(ALL).await, "{statement}");
        let fails = statement.contains("= null where");
        assert!(fails || (rows_in_memory(&ours) == 0) == (way == ByPosition), "{statement}");
    }
    let ours = ours.reopen();
    assert_eq!(ours.rows("select count(*) from t").await, ["0"]);
}

/// What files know of their columns does not hold for values that were set since: nobody may leave out rows by it, or answer with it.
#[tokio::test(flavor = "multi_thread")]
async fn queries_find_what_was_set() {
    let updates = [
        "update t set n = 1000 where a % 10 = 3",
        "update t set n = -5, v = 'zz' || a where a > 2990",
        "update t set d = null where a % 3 = 0",
        "update t set d = -1e6 where a = 1500 or a % 1000 = 0",
        "update t set v = repeat('long ', 9000) where a % 500 = 1",
        "update t set v = null where n = 4",
        "delete from t where n = 6",
        "update t set n = n - 1, d = d * 2",
        "alter table t add column e int default 7",
        "update t set e = a where a % 4 = 0",
        "alter table t rename column n to m; alter table t rename column e to n",
        "update t set n = n + 1 where n > 2500",
        "alter table t drop column d; alter table t add column d numeric(12, 2) default 3",
        "update t set d = 0.25 where b = 'k2'",
    ];
    let queries = [
        "select count(*), count(d), count(v), min(n), max(n), min(d), max(d), max(v) from t",
        "select a, n from t where n >= 999 order by a",
        "select a, n, b from t where n < 0 order by a, b",
        "select a from t where d < -1000 or d is null order by a",
        "select a, v from t where v > 'zz' order by a",
        "select a, length(v) from t where length(v) > 100 order by a",
        "select a, d from t where d = 0.25 order by a",
        "select n, count(*), sum(d) from t group by n order by n",
        "select a, n from t order by n desc, a limit 7",
        "select n, a from t where n = (select max(n) from t) order by a",
        "select x.a, y.a from t x join t y on x.n = y.n and x.a < y.a where y.n > 990 order by 1, 2 limit 50",
        "select * from t where a = 2003 and b = 'k1'",
        "select * from t where a = 1501 and b = 'k3'",
        "select * from t where a between 995 and 1005 order by a",
        "select a, b from t where a > 2900 order by a, b limit 20",
        ALL,
    ];
    let (mut ours, other) = (db(1), db(usize::MAX));
    fill(&ours).await;
    fill(&other).await;
    let mut by_position = 0;
    for update in updates {
        for statement in update.split("; ") {
            ours.run(statement).await;
            other.run(statement).await;
        }
        // Few rows between two keys go the common way.
        by_position += u32::from(rows_in_memory(&ours) == 0);
        flush(&ours);
        for query in queries {
            assert_eq!(asked(&ours, query).await, asked(&other, query).await, "{query} behind {update}");
        }
    }
    assert!(by_position > 10, "{by_position} of them");
    ours = ours.reopen();
    for query in queries {
        assert_eq!(asked(&ours, query).await, asked(&other, query).await, "{query}, opened again");
    }
    ours.engine.compact(&ours.engine.table("public", "t").unwrap()).unwrap();
    for query in queries {
        assert_eq!(asked(&ours, query).await, asked(&other, query).await, "{query}, compacted");
    }
}

/// The rows of a query, or the SQLSTATE of its error.
async fn asked(db: &Db, query: &str) -> Result<Vec<String>, &'static str> {
    match db.outcome(query, &[]).await {
        Ok(_) => Ok(db.rows(query).await),
        Err(error) => Err(error.sqlstate.unwrap_or_default()),
    }
}

/// A row that somebody else's statement has passed by is not changed by it.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_at_one_snapshot_writes_rows_that_others_left_alone() {
    let db = db(50);
    fill(&db).await;
    let other = db.client("other");
    other.run("begin isolation level repeatable read").await;
    other.rows("select 1 from t limit 1").await;
    db.run("update t set n = n + 1 where a % 2 = 0").await;
    let upsert = "insert into t values (5, 'k5', 0) on conflict (a, b) do update set n = 70";
    assert_eq!(other.tag(upsert).await, "INSERT 0 1");
    assert_eq!(other.state(&upsert.replace("5", "6")).await, "40001");
    other.run("rollback").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_are_counted() {
    let db = db(50);
    fill(&db).await;
    assert_eq!(db.tag("update t set n = 7 where a % 10 = 3").await, "UPDATE 300");
    assert_eq!(db.tag("delete from t where a % 10 = 3").await, "DELETE 300");
    assert_eq!(rows_in_memory(&db), 0);
    assert_eq!(db.rows("select count(*), count(distinct a) from t").await, ["2700|2700"]);
}

/// What is written in a block counts with its commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_decides_for_itself() {
    let db = db(50);
    fill(&db).await;
    let before = db.rows(ALL).await;
    db.run("begin").await;
    db.run("update t set n = n + 1").await;
    db.run("rollback").await;
    assert_eq!(db.rows(ALL).await, before);
}

/// A block at one snapshot goes on seeing the rows as they were, and does not overwrite what they became.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_at_one_snapshot_is_not_overtaken() {
    let db = db(50);
    fill(&db).await;
    let other = db.client("other");
    other.run("begin isolation level repeatable read").await;
    let seen = other.rows("select sum(n) from t").await;
    db.run("update t set n = n + 1").await;
    assert_eq!(other.rows("select sum(n) from t").await, seen);
    assert_eq!(other.state("update t set n = 0 where a = 5 and b = 'k5'").await, "40001");
    other.run("rollback").await;
    assert_ne!(other.rows("select sum(n) from t").await, seen);
}

/// A row that a block has locked is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn locked_rows_are_waited_for() {
    let db = Arc::new(db(50));
    fill(&db).await;
    let other = db.client("other");
    other.run("begin").await;
    other.run("update t set n = 100 where a = 5 and b = 'k5'").await;
    let all = tokio::spawn({
        let db = Arc::clone(&db);
        async move { db.tag("update t set n = n + 1").await }
    });
    tokio::task::yield_now().await;
    other.run("commit").await;
    assert_eq!(all.await.unwrap(), "UPDATE 3000");
    assert_eq!(db.rows("select n from t where a = 5").await, ["101"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_increment_is_lost_beside_points_flushes_and_compactions() {
    const ROUNDS: usize = 12;
    let db = Arc::new(db(20));
    db.run("create table t (id bigint primary key, n bigint)").await;
    db.run("insert into t select g, 0 from generate_series(0, 199) as s(g)").await;
    flush(&db);
    let mut tasks = Vec::new();
    for task in 0..2 {
        let db = Arc::clone(&db);
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                db.run(&format!("update t set n = n + 1 where id % 2 = {task} or id < 50")).await;
            }
        }));
    }
    let points = {
        let db = Arc::clone(&db);
        tokio::spawn(async move {
            for round in 0..ROUNDS * 10 {
                db.run(&format!("update t set n = n + 1 where id = {}", round * 7 % 200)).await;
            }
        })
    };
    let end = Arc::new(AtomicBool::new(false));
    let files = {
        let (db, end) = (Arc::clone(&db), Arc::clone(&end));
        tokio::task::spawn_blocking(move || {
            let table = db.engine.table("public", "t").unwrap();
            while !end.load(Relaxed) {
                db.engine.flush(&table).unwrap();
                db.engine.compact(&table).unwrap();
            }
        })
    };
    for task in tasks {
        task.await.unwrap();
    }
    points.await.unwrap();
    end.store(true, Relaxed);
    files.await.unwrap();
    // Of 200 rows each statement changes the half, and 25 more.
    let expected = 2 * ROUNDS * 125 + ROUNDS * 10;
    assert_eq!(db.rows("select sum(n), count(*) from t").await, [format!("{expected}|200")]);
}
