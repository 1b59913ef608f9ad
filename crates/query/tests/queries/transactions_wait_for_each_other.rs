//! Who would change a row that a transaction has changed or locked waits until that ends, without a thread, and then goes by what
//! became of it. Nobody waits for whoever waits for him.

use super::db::Db;
use futures::FutureExt;
use futures::future::join;
use oribi_session::sql::TransactionStatus;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

async fn two_rows() -> Db {
    let db = Db::new();
    db.run("create table t (id bigint primary key, n bigint)").await;
    db.run("insert into t values (1, 10), (2, 20)").await;
    db
}

/// Starts `work`, which must not come to its end.
async fn waits<'w, T>(work: impl Future<Output = T> + 'w) -> Pin<Box<dyn Future<Output = T> + 'w>> {
    let mut work = Box::pin(work);
    // That it goes on later is what the rest of a scenario shows.
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut work).await.is_err(), "it waits");
    work
}

#[tokio::test]
async fn the_second_writer_waits_and_decides_on_what_the_first_has_left() {
    for (second, after_commit, after_rollback) in [
        ("update t set n = n + 1 where id = 1", "1|101", "1|11"),
        ("update t set n = 7 where id = 1", "1|7", "1|7"),
        ("update t set n = n + 1", "1|101", "1|11"),
        ("update t set n = 0 where n = 10", "1|100", "1|0"),
        ("insert into t values (1, 5) on conflict (id) do update set n = t.n + 5", "1|105", "1|15"),
        ("delete from t where id = 1 and n = 10", "1|100", ""),
    ] {
        for (end, left) in [("commit", after_commit), ("rollback", after_rollback)] {
            let db = two_rows().await;
            let other = db.client("other");
            db.run("begin").await;
            db.run("update t set n = 100 where id = 1").await;
            let waiting = waits(other.run(second)).await;
            db.run(end).await;
            waiting.await;
            let rows = db.rows("select * from t where id = 1").await;
            assert_eq!(rows.join(""), left, "{second}, behind {end}");
        }
    }
}

#[tokio::test]
async fn a_key_that_is_being_inserted_is_waited_for() {
    for (end, state) in [("commit", Some("23505")), ("rollback", None)] {
        let db = two_rows().await;
        let other = db.client("other");
        db.run("begin").await;
        db.run("insert into t values (3, 1)").await;
        let waiting = waits(other.outcome("insert into t values (3, 2)", &[])).await;
        db.run(end).await;
        assert_eq!(waiting.await.err().and_then(|error| error.sqlstate), state, "{end}");
    }
}

#[tokio::test]
async fn blocks_of_readers_and_writers_of_other_rows_wait_for_nobody() {
    let db = two_rows().await;
    let other = db.client("other");
    db.run("begin").await;
    db.run("update t set n = 100 where id = 1").await;
    assert_eq!(other.rows("select n from t order by id").await, ["10", "20"]);
    other.run("update t set n = n + 1 where id = 2").await;
    other.run("insert into t values (3, 30)").await;
    db.run("commit").await;
    assert_eq!(db.rows("select n from t order by id").await, ["100", "21", "30"]);
}

#[tokio::test]
async fn of_those_who_wait_for_each_other_one_is_refused() {
    let db = two_rows().await;
    let other = db.client("other");
    db.run("begin").await;
    other.run("begin").await;
    db.run("update t set n = 1 where id = 1").await;
    other.run("update t set n = 2 where id = 2").await;
    let waiting = waits(db.tag("update t set n = 1 where id = 2")).await;
    assert_eq!(other.state("update t set n = 2 where id = 1").await, "40P01");
    assert_eq!(other.session.transaction(), TransactionStatus::Failed);
    assert_eq!(waiting.await, "UPDATE 1", "the other's rows are free at once");
    db.run("commit").await;
    assert_eq!(other.tag("commit").await, "ROLLBACK");
    assert_eq!(db.rows("select n from t order by id").await, ["1", "1"]);
}

#[tokio::test]
async fn that_is_found_behind_a_savepoint_too_which_gave_back_other_rows() {
    let db = two_rows().await;
    db.run("insert into t values (3, 30)").await;
    let other = db.client("other");
    db.run("begin").await;
    other.run("begin").await;
    db.run("update t set n = 1 where id = 1").await;
    db.run("savepoint s").await;
    db.run("update t set n = 1 where id = 3").await;
    other.run("update t set n = 2 where id = 2").await;
    let waiting = waits(other.tag("update t set n = 2 where id = 1")).await;
    db.run("rollback to s").await;
    assert_eq!(db.state("update t set n = 1 where id = 2").await, "40P01");
    db.run("rollback").await;
    assert_eq!(waiting.await, "UPDATE 1");
}

#[tokio::test]
async fn rows_are_not_locked_by_queries_that_would_see_others_then() {
    let db = two_rows().await;
    for sql in [
        "select * from t order by id limit 1 offset 1 for update",
        "select * from t where n > (select avg(n) from t) for update",
        "select id, (select count(*) from t) from t for share",
    ] {
        assert_eq!(db.state(sql).await, "0A000", "{sql}");
    }
}

#[tokio::test]
async fn a_wait_has_an_end_if_it_is_limited() {
    let db = two_rows().await;
    let other = db.client("other");
    db.run("begin").await;
    db.run("update t set n = 1 where id = 1").await;
    other.run("set lock_timeout = '20ms'").await;
    assert_eq!(other.state("update t set n = 2").await, "55P03");
    other.run("set lock_timeout = 0").await;
    other.run("set statement_timeout = '20ms'").await;
    assert_eq!(other.state("update t set n = 2").await, "57014");
    other.run("reset statement_timeout").await;
    // A statement that is given up leaves no lock.
    other.run("begin").await;
    assert!(other.outcome("update t set n = 2", &[]).now_or_never().is_none());
    db.run("commit").await;
    db.run("update t set n = n + 1").await;
    other.run("rollback").await;
    assert_eq!(db.rows("select n from t order by id").await, ["2", "21"]);
}

#[tokio::test]
async fn locks_that_a_savepoint_undoes_are_given_back() {
    let db = two_rows().await;
    let other = db.client("other");
    db.run("begin").await;
    db.run("update t set n = 1 where id = 1").await;
    db.run("savepoint a").await;
    db.run("update t set n = 1 where id = 2").await;
    let waiting = waits(other.tag("update t set n = 2 where id = 2")).await;
    db.run("rollback to a").await;
    assert_eq!(waiting.await, "UPDATE 1");
    let waiting = waits(other.tag("update t set n = 2 where id = 1")).await;
    db.run("commit").await;
    assert_eq!(waiting.await, "UPDATE 1");
}

#[tokio::test]
async fn rows_are_locked_before_they_are_changed() {
    let db = two_rows().await;
    let other = db.client("other");
    db.run("begin").await;
    assert_eq!(db.rows("select n from t where id = 1 for no key update").await, ["10"]);
    assert_eq!(other.rows("select n from t where id = 1").await, ["10"]);
    other.run("begin").await;
    assert_eq!(other.state("select n from t where id = 1 for update nowait").await, "55P03");
    other.run("rollback").await;
    other.run("begin").await;
    let free = "select id from t order by id limit 1 for update skip locked";
    assert_eq!(other.rows(free).await, ["2"], "the limit counts those that are free");
    assert!(
        db.client("third").rows("select * from t for share skip locked").await.len() == 2,
        "no block, no lock"
    );
    let waiting = waits(other.rows("select n from t where id = 1 for key share")).await;
    db.run("update t set n = 11 where id = 1").await;
    db.run("commit").await;
    assert_eq!(waiting.await, ["11"]);
    other.run("commit").await;

    // What does not match any more is not shown.
    db.run("begin").await;
    db.run("update t set n = 0 where id = 1").await;
    other.run("begin").await;
    let waiting = waits(other.rows("select id from t where n > 0 order by id for update")).await;
    db.run("commit").await;
    assert_eq!(waiting.await, ["2"]);
    other.run("rollback").await;
    for sql in [
        "select * from t a, t b for update",
        "select count(*) from t group by n for update",
        "select distinct n from t for update",
    ] {
        assert_eq!(db.state(sql).await, "0A000", "{sql}");
    }
    db.run("begin read only").await;
    assert_eq!(db.state("select * from t for update").await, "25006");
    db.run("rollback").await;
}

#[tokio::test]
async fn a_truncate_in_between_is_noticed_by_commit() {
    let db = two_rows().await;
    let other = db.client("other");
    db.run("begin").await;
    db.run("update t set n = 1 where id = 1").await;
    other.run("truncate t").await;
    assert_eq!(db.state("commit").await, "40001");
    assert_eq!(db.rows("select count(*) from t").await, ["0"]);
}

/// What is left of a table is not what the block's snapshot saw.
#[tokio::test]
async fn a_truncated_table_is_not_empty_for_an_older_snapshot() {
    for where_ in ["", " where id > 0", " where id = 1"] {
        let db = two_rows().await;
        let other = db.client("other");
        let count = format!("select count(*) from t{where_}");
        db.run("begin isolation level repeatable read").await;
        assert_eq!(db.rows("select 1").await, ["1"]);
        other.run("truncate t").await;
        assert_eq!(db.error(&count).await.error.kind(), oribi_types::ErrorKind::Conflict, "{count}");
        db.run("rollback").await;
        assert_eq!(db.rows(&count).await, ["0"]);
    }
}

/// Clients that move money between accounts, some in blocks and some by single statements.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn transfers_keep_the_sum() {
    let db = Db::new();
    db.run("create table t (id bigint primary key, n bigint)").await;
    db.run("insert into t select i, 100 from generate_series(1, 8) as g(i)").await;
    let transfers = async |name: &'static str, seed: u64| {
        let client = db.client(name);
        let mut state = seed;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below + 1
        };
        let mut moved = 0;
        for _ in 0..40 {
            let (from, to, amount) = (next(8), next(8), next(5));
            client.run("begin").await;
            let mut failed = false;
            for (id, amount) in [(from, -(amount as i64)), (to, amount as i64)] {
                let sql = format!("update t set n = n + {amount} where id = {id}");
                match client.outcome(&sql, &[]).await {
                    Ok(_) => {}
                    Err(error) => {
                        assert_eq!(error.sqlstate, Some("40P01"), "seed {seed}: {error}");
                        failed = true;
                        break;
                    }
                }
            }
            let sum = if failed { None } else { Some(client.rows("select sum(n) from t").await) };
            assert!(sum.is_none_or(|sum| sum == ["800"]), "seed {seed}: all or nothing is seen");
            assert_eq!(client.tag("commit").await, if failed { "ROLLBACK" } else { "COMMIT" });
            moved += u32::from(!failed);
        }
        moved
    };
    let single = async {
        let client = db.client("single");
        for id in (1..=8).cycle().take(60) {
            client.run(&format!("update t set n = n + 1 where id = {id}")).await;
            client.run(&format!("update t set n = n - 1 where id = {id}")).await;
        }
    };
    // What single statements do in between may be seen: they keep to rows by themselves.
    let ((one, two), ()) = join(join(transfers("one", 1), transfers("two", 2)), async {}).await;
    assert!(one > 0 && two > 0);
    single.await;
    assert_eq!(db.rows("select sum(n) from t").await, ["800"]);
}
