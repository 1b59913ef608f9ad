//! Whoever writes to a table that others have in hand waits without the thread that serves it, and without many of those that may
//! wait.

use crate::db::Db;
use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, poll};
use oribi_session::sql::{Outcome, Point, Prepared, SqlEngine, SqlError, SqlSession, TransactionStatus};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// One thread that serves, and so many that may wait.
fn runtime(may_wait: usize) -> Runtime {
    Builder::new_current_thread().max_blocking_threads(may_wait).enable_all().build().unwrap()
}

/// The table `t`, to which nobody else writes until it is released.
struct Held {
    end: mpsc::Sender<()>,
    thread: JoinHandle<bool>,
}

impl Held {
    fn new(db: &Db) -> Self {
        let (engine, table) = (Arc::clone(&db.engine), db.table("t"));
        let (end, ended) = mpsc::channel();
        let (begin, begun) = mpsc::channel();
        let thread = thread::spawn(move || {
            let _held = engine.hold(&table).unwrap();
            begin.send(()).unwrap();
            // For a test that fails: the thread that would release it waits.
            ended.recv_timeout(Duration::from_secs(60)).is_ok()
        });
        begun.recv().unwrap();
        Held { end, thread }
    }

    fn release(self) {
        let _ = self.end.send(());
        assert!(self.thread.join().unwrap(), "others waited until the table was released");
    }
}

/// A statement on its way.
type Answer = BoxFuture<'static, Result<String, SqlError>>;

async fn prepare(db: &Db, session: &Arc<SqlSession>, sql: &str) -> Arc<dyn Prepared> {
    db.query.prepare(session, sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e}"))
}

fn execute(session: &Arc<SqlSession>, prepared: Arc<dyn Prepared>) -> Answer {
    let session = Arc::clone(session);
    let executed = async move {
        match prepared.execute(&session, &[]).await? {
            Outcome::Done { tag } => Ok(tag),
            _ => panic!("rows"),
        }
    };
    executed.boxed()
}

async fn run(db: &Db, session: &Arc<SqlSession>, sql: &str) -> Result<String, SqlError> {
    execute(session, prepare(db, session, sql).await).await
}

fn session() -> Arc<SqlSession> {
    SqlSession::new("tester", "oribi")
}

/// An insert of so many rows, with all ids from `first` on.
fn insert(table: &str, first: usize, rows: usize) -> String {
    let rows: Vec<String> = (first..first + rows).map(|id| format!("({id}, 0)")).collect();
    format!("insert into {table} values {}", rows.join(", "))
}

async fn tables(db: &Db) {
    db.run("create table t (id int primary key, n int)").await;
    db.run("create table other (id int primary key, n int)").await;
}

/// What others have to do meanwhile.
async fn go_on(db: &Db, id: usize) {
    assert_eq!(db.tag(&insert("other", id, 1)).await, "INSERT 0 1");
    assert_eq!(db.rows(&format!("select n from other where id = {id}")).await, ["0"]);
}

#[test]
fn small_statements_leave_their_thread_to_others() {
    let db = Db::new();
    runtime(1).block_on(async {
        tables(&db).await;
        db.run(&insert("t", 1, 20)).await;
        let statements = [
            ("update t set n = 1 where id = 1", "UPDATE 1"),
            ("delete from t where id = 2", "DELETE 1"),
            ("delete from t where id = 1000", "DELETE 0"),
            ("insert into t values (101, 1)", "INSERT 0 1"),
            ("insert into t values (102, 1), (103, 1)", "INSERT 0 2"),
            ("insert into t values (3, 1), (104, 1) on conflict do nothing", "INSERT 0 1"),
            ("insert into t values (4, 1) on conflict (id) do update set n = excluded.n", "INSERT 0 1"),
            (
                "insert into t values (5, 1), (105, 1) on conflict (id) do update set n = t.n + 1",
                "INSERT 0 2",
            ),
            ("update t set n = 1 where id = 6 and n = 0", "UPDATE 1"),
            ("insert into t values (106, 1), (7, 1)", "23505"),
        ];
        let mut prepared = Vec::new();
        for (sql, _) in statements {
            prepared.push(prepare(&db, &db.session, sql).await);
        }
        let held = Held::new(&db);
        let mut answers = Vec::new();
        for statement in prepared {
            if let Some(Point::Write(point)) = statement.point(&db.session) {
                assert!(point.write(&db.session, &[]).is_none(), "it would have to wait");
            }
            let mut answer = execute(&db.session, statement);
            assert!(poll!(&mut answer).is_pending());
            answers.push(answer);
        }
        go_on(&db, 1).await;
        assert_eq!(db.rows("select count(*), sum(n) from t").await, ["20|0"]);
        for answer in &mut answers {
            assert!(poll!(answer).is_pending());
        }
        held.release();
        for (answer, (sql, tag)) in join_all(answers).await.into_iter().zip(statements) {
            let answered = answer.unwrap_or_else(|error| error.sqlstate.unwrap_or_default().to_owned());
            assert_eq!(answered, tag, "{sql}");
        }
        let written = db.rows("select id from t where n = 1 order by id").await;
        assert_eq!(written, ["1", "4", "5", "6", "101", "102", "103", "104", "105"]);
        assert_eq!(db.rows("select count(*), sum(n) from t").await, ["24|9"]);
    });
}

#[test]
fn blocks_decide_and_commit_without_a_thread() {
    let db = Db::new();
    runtime(1).block_on(async {
        tables(&db).await;
        db.run(&insert("t", 1, 2)).await;
        let (decided, deciding) = (session(), session());
        run(&db, &decided, "begin").await.unwrap();
        run(&db, &decided, "update t set n = n + 1 where id = 1").await.unwrap();
        let commit = prepare(&db, &decided, "commit").await;
        run(&db, &deciding, "begin").await.unwrap();
        let update = prepare(&db, &deciding, "update t set n = 5 where id = 2").await;
        let held = Held::new(&db);
        let (mut commit, mut update) = (execute(&decided, commit), execute(&deciding, update));
        assert!(poll!(&mut commit).is_pending() && poll!(&mut update).is_pending());
        go_on(&db, 1).await;
        held.release();
        assert_eq!((commit.await.unwrap().as_str(), update.await.unwrap().as_str()), ("COMMIT", "UPDATE 1"));
        assert_eq!(db.rows("select n from t order by id").await, ["1", "0"]);
        run(&db, &deciding, "commit").await.unwrap();
        assert_eq!(db.rows("select n from t order by id").await, ["1", "5"]);
    });
}

#[test]
fn a_commit_that_is_given_up_has_ended_its_block() {
    let db = Db::new();
    runtime(1).block_on(async {
        tables(&db).await;
        db.run(&insert("t", 1, 1)).await;
        let session = session();
        run(&db, &session, "begin").await.unwrap();
        run(&db, &session, "set application_name = 'of the block'").await.unwrap();
        run(&db, &session, "update t set n = 1 where id = 1").await.unwrap();
        let commit = prepare(&db, &session, "commit").await;
        let held = Held::new(&db);
        assert!(poll!(&mut execute(&session, commit)).is_pending());
        assert_eq!(session.transaction(), TransactionStatus::Idle);
        assert_eq!(session.setting("application_name"), None);
        held.release();
        assert_eq!(db.rows("select n from t").await, ["0"]);
    });
}

/// More of them than there are threads.
#[test]
fn large_statements_of_one_table_leave_threads_to_those_of_others() {
    const STATEMENTS: usize = 40;
    let db = Db::new();
    runtime(20).block_on(async {
        tables(&db).await;
        let mut prepared = Vec::new();
        for i in 0..STATEMENTS {
            prepared.push(prepare(&db, &db.session, &insert("t", 100 * i, 100)).await);
        }
        let held = Held::new(&db);
        let mut answers: Vec<Answer> =
            prepared.into_iter().map(|statement| execute(&db.session, statement)).collect();
        for answer in &mut answers {
            assert!(poll!(answer).is_pending());
        }
        assert_eq!(db.tag(&insert("other", 0, 100)).await, "INSERT 0 100");
        go_on(&db, 100).await;
        held.release();
        for answer in join_all(answers).await {
            assert_eq!(answer.unwrap(), "INSERT 0 100");
        }
        assert_eq!(db.rows("select count(*) from t").await, [(100 * STATEMENTS).to_string()]);
    });
}

#[test]
fn whoever_gives_up_waiting_has_written_nothing() {
    let db = Db::new();
    let waits = runtime(4);
    waits.block_on(async {
        tables(&db).await;
        let timed = session();
        let late = prepare(&db, &timed, &insert("t", 0, 1)).await;
        run(&db, &timed, "set statement_timeout = '1ms'").await.unwrap();
        let small = prepare(&db, &db.session, &insert("t", 1, 1)).await;
        let large = prepare(&db, &db.session, &insert("t", 100, 100)).await;
        let held = Held::new(&db);
        for statement in [small, large] {
            assert!(poll!(&mut execute(&db.session, statement)).is_pending());
        }
        assert_eq!(execute(&timed, late).await.unwrap_err().sqlstate, Some("57014"));
        held.release();
    });
    // Threads that are at it come to their end.
    drop(waits);
    assert_eq!(runtime(1).block_on(db.rows("select count(*) from t")), ["0"]);
}

/// Others are faster each time that it tries.
#[test]
fn a_small_statement_that_has_tried_in_vain_is_written_in_its_turn() {
    let db = Db::new();
    runtime(1).block_on(async {
        tables(&db).await;
        let statement = prepare(&db, &db.session, &insert("t", 1, 1)).await;
        let held = Held::new(&db);
        let mut answer = execute(&db.session, statement);
        for i in 0..30 {
            // Each is a reason to try again.
            assert!(poll!(&mut answer).is_pending());
            db.run(&insert("other", 2 * i, 2)).await;
        }
        held.release();
        // It does not try any more, and is written.
        while db.rows("select id from t").await.is_empty() {}
        assert_eq!(answer.await.unwrap(), "INSERT 0 1");
    });
}

#[test]
fn what_an_upsert_computes_from_rows_in_files_is_read_by_another_thread() {
    let db = Db::new();
    let db = runtime(1).block_on(async move {
        tables(&db).await;
        db.run(&insert("t", 1, 20)).await;
        db.flush("t");
        db.reopen()
    });
    runtime(1).block_on(async {
        let upsert = "insert into t values (5, 1), (105, 1) on conflict (id) do update set n = t.n + 3";
        let mut answer = execute(&db.session, prepare(&db, &db.session, upsert).await);
        let (end, ended) = mpsc::channel();
        let busy = tokio::task::spawn_blocking(move || ended.recv_timeout(Duration::from_secs(60)));
        assert!(poll!(&mut answer).is_pending());
        go_on(&db, 1).await;
        assert!(poll!(&mut answer).is_pending(), "the only thread that may read files is busy");
        end.send(()).unwrap();
        busy.await.unwrap().unwrap();
        assert_eq!(answer.await.unwrap(), "INSERT 0 2");
        // Memory has them now.
        assert_eq!(db.tag(upsert).await, "INSERT 0 2");
        assert_eq!(
            db.rows("select id, n from t where id in (4, 5, 105) order by id").await,
            ["4|0", "5|6", "105|4"]
        );
    });
}
