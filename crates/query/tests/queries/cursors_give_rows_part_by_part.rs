//! A cursor gives the rows of its query part by part, as they were when it was declared, in its block; one that is held stays.

use super::db::{Db, int};
use oribi_session::sql::{SqlEngine, SqlSession};
use oribi_types::ErrorKind;
use std::time::Instant;

async fn many_rows() -> Db {
    let db = Db::new();
    db.run("create table t (id bigint primary key, n bigint)").await;
    db.run("insert into t select i, i * 10 from generate_series(1, 20000) as g(i)").await;
    db.flush("t");
    db
}

fn names(session: &SqlSession) -> Vec<String> {
    session.cursors().names().into_iter().map(|(name, _)| name).collect()
}

#[tokio::test]
async fn rows_come_in_the_numbers_that_are_fetched() {
    let db = many_rows().await;
    db.run("begin").await;
    assert_eq!(
        db.tag("declare c no scroll cursor without hold for select id from t order by id").await,
        "DECLARE CURSOR"
    );
    assert_eq!(db.rows("fetch next from c").await, ["1"]);
    assert_eq!(db.rows("fetch forward 2 from c").await, ["2", "3"]);
    assert_eq!(db.rows("fetch 0 from c").await, [""; 0]);
    assert_eq!(db.rows("fetch 9000 in c").await.len(), 9000);
    assert_eq!(db.rows("fetch next from c").await, ["9004"]);
    let rest = db.rows("fetch forward all from c").await;
    assert_eq!((rest.len(), rest.last().unwrap().as_str()), (20000 - 9004, "20000"));
    assert_eq!(db.rows("fetch all from c").await, [""; 0]);
    assert_eq!(db.tag("close c").await, "CLOSE CURSOR");
    assert_eq!(db.state("fetch all from c").await, "34000");
    db.run("rollback").await;
}

#[tokio::test]
async fn a_cursor_shows_what_was_there_when_it_was_declared() {
    let db = many_rows().await;
    db.run("begin").await;
    db.run("update t set n = -1 where id = 1").await;
    db.run("declare c cursor for select id, n from t where id < 4 order by id").await;
    assert_eq!(db.rows("fetch next from c").await, ["1|-1"]);
    db.run("update t set n = -2 where id < 4").await;
    db.client("other").run("delete from t where id > 19990").await;
    assert_eq!(db.rows("fetch all from c").await, ["2|20", "3|30"]);
    db.run("commit").await;
    assert!(names(&db.session).is_empty());
}

#[tokio::test]
async fn cursors_end_with_their_blocks_unless_they_are_held() {
    let db = many_rows().await;
    assert_eq!(db.state("declare c cursor for select 1").await, "25P01");
    db.run("begin").await;
    db.run("declare a cursor for select id from t order by id").await;
    db.run("declare b cursor with hold for select id from t order by id").await;
    assert_eq!(db.rows("select name, is_holdable from pg_cursors order by 1").await, ["a|false", "b|true"]);
    assert_eq!(db.rows("fetch 2 from b").await, ["1", "2"]);
    db.run("commit").await;
    assert_eq!(names(&db.session), ["b"]);
    db.run("truncate t").await;
    db.run("begin").await;
    db.run("declare a cursor for select 1").await;
    db.run("declare d cursor with hold for select 1").await;
    assert_eq!(db.state("declare b cursor for select 2").await, "42P03");
    db.run("rollback").await;
    assert_eq!(names(&db.session), ["b"]);
    db.run("declare d cursor with hold for select 4").await;
    assert_eq!(db.rows("fetch all from d").await, ["4"]);
    assert_eq!(db.tag("close all").await, "CLOSE CURSOR ALL");
    assert!(names(&db.session).is_empty());
}

#[tokio::test]
async fn parameters_of_a_declaration_are_those_of_its_query() {
    let db = many_rows().await;
    db.run("begin").await;
    assert_eq!(
        db.tag_with("declare c cursor for select n from t where id = $1", &[int(7)]).await,
        "DECLARE CURSOR"
    );
    assert_eq!(db.rows("fetch all from c").await, ["70"]);
    db.run("rollback").await;
}

#[tokio::test]
async fn what_cursors_do_not_do_is_refused_by_name() {
    let db = many_rows().await;
    db.run("begin").await;
    for sql in [
        "declare c scroll cursor for select 1",
        "declare c binary cursor for select 1",
        "declare c cursor for select id from t for update",
        "declare c cursor for with w as (select 1) delete from t",
    ] {
        let error = db.error(sql).await;
        assert_eq!(error.error.kind(), ErrorKind::Unsupported, "{sql}: {error}");
        assert!(error.to_string().starts_with("DECLARE …"), "{sql}: {error}");
        db.run("rollback").await;
        db.run("begin").await;
    }
    db.run("declare c cursor for select 1").await;
    for sql in [
        "fetch prior from c",
        "fetch backward 2 from c",
        "fetch first from c",
        "fetch absolute 1 from c",
        "move -1 c",
        "fetch forward -1 from c",
        "fetch relative -1 c",
        "fetch absolute -1 from c",
    ] {
        db.run("savepoint s").await;
        assert_eq!(db.state(sql).await, "55000", "{sql}");
        db.run("rollback to s").await;
    }
    db.run("rollback").await;
}

#[tokio::test]
async fn words_may_be_left_out_and_rows_passed_over() {
    let db = many_rows().await;
    db.run("begin").await;
    db.run("declare c cursor for select id from t order by id").await;
    assert_eq!(db.rows("fetch c").await, ["1"]);
    assert_eq!(db.rows("fetch forward c").await, ["2"]);
    assert_eq!(db.rows("fetch forward from c").await, ["3"]);
    assert_eq!(db.rows("fetch 2 c").await, ["4", "5"]);
    assert_eq!(db.rows("FETCH NEXT c").await, ["6"]);
    assert_eq!(db.tag("move c").await, "MOVE 1");
    assert_eq!(db.tag("move forward 10000 in c").await, "MOVE 10000");
    assert_eq!(db.rows("fetch from c").await, ["10008"]);
    assert_eq!(db.tag("move all c").await, "MOVE 9992");
    assert_eq!(db.tag("move forward all from c").await, "MOVE 0");
    assert_eq!(db.rows("fetch all in c").await, [""; 0]);
    db.run("rollback").await;
    for sql in ["fetch", "move", "fetch 1 from c into move", "move 1 from c into t"] {
        assert_eq!(db.state(sql).await, "42601", "{sql}");
    }
}

#[tokio::test]
async fn a_cursor_that_nobody_fetches_from_ends_when_others_need_its_room() {
    let db = many_rows().await;
    db.run("begin").await;
    db.run("declare c cursor for select id from t").await;
    assert_eq!(db.rows("fetch 10 from c").await.len(), 10);
    assert!(db.query.unread_bytes().0 > 0, "it counts, short as its rows are");
    let until = Instant::now();
    assert_eq!(db.rows("fetch 10 from c").await.len(), 10);
    db.query.end_cursors_until(until);
    assert_eq!(db.rows("fetch 10 from c").await.len(), 10, "it was fetched from since");
    db.query.end_cursors_until(Instant::now());
    assert_eq!(db.state("fetch 10 from c").await, "53200");
    db.run("rollback").await;
    while db.query.unread_bytes().0 > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_block_that_fails_has_no_cursors() {
    let db = many_rows().await;
    db.run("begin").await;
    db.run("declare c cursor with hold for select id from t order by id").await;
    db.run("savepoint s").await;
    assert_eq!(db.state("select nothing").await, "42703");
    assert_eq!(db.state("fetch c").await, "25P02");
    db.run("rollback to s").await;
    assert_eq!(db.rows("fetch c").await, ["1"]);
    db.run("release s").await;
    assert_eq!(db.state("select nothing").await, "42703");
    assert!(names(&db.session).is_empty());
    db.run("commit").await;
    assert_eq!(db.state("fetch c").await, "34000");
}

#[tokio::test]
async fn a_session_that_ends_has_none() {
    let db = many_rows().await;
    db.run("declare c cursor with hold for select id, s.n from t join t s using (id)").await;
    assert_eq!(db.rows("fetch 3 from c").await.len(), 3);
    db.session.end();
    assert!(names(&db.session).is_empty());
    while db.query.unread_bytes().0 > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn reads_of_a_cursor_are_reads_of_its_serializable_block() {
    let db = many_rows().await;
    let other = db.client("other");
    db.run("begin isolation level serializable").await;
    db.run("declare c cursor for select n from t where id = 1").await;
    assert_eq!(db.rows("fetch all from c").await, ["10"]);
    other.run("update t set n = 11 where id = 1").await;
    db.run("update t set n = 21 where id = 2").await;
    assert_eq!(db.state("commit").await, "40001");
}
