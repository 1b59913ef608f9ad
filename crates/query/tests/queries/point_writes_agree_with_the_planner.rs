//! A write of one row by its primary key does what the planned statement does, without it.

use crate::db::{Db, int, text};
use oribi_session::sql::{Outcome, Point, Prepared, SqlEngine};
use oribi_types::{ColumnType, Value};
use std::sync::Arc;

const TABLE: &str = "create table t (
    a bigint, b text, n integer not null default 7, v text, price numeric(10,2), doc json, small smallint default 3,
    raw bytea, flag boolean, day date, primary key (a, b)
)";

/// Two databases that see the same statements: one lets its point writes write, the other plans them.
struct Pair {
    point: Db,
    planned: Db,
}

/// How a statement was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By the point write.
    Point,
    /// The point write left it to the plan.
    Left,
    /// It is none.
    Planned,
}

impl Pair {
    async fn new() -> Self {
        let pair = Pair { point: Db::new(), planned: Db::new() };
        for db in [&pair.point, &pair.planned] {
            db.run(TABLE).await;
            db.run("insert into t (a, b, n, v) values (1, 'x', 1, 'one'), (2, 'y', 2, null)").await;
        }
        pair
    }

    /// Runs a statement both ways; panics unless answer and table are the same afterwards.
    async fn run(&self, sql: &str, types: &[Option<ColumnType>], parameters: &[Value]) -> (Way, String) {
        let planned = match self.planned.query.prepare(&self.planned.session, sql, types).await {
            Ok(prepared) => execute(&self.planned, &prepared, parameters).await,
            Err(error) => format!("{error:?}"),
        };
        let (way, point) = match self.point.query.prepare(&self.point.session, sql, types).await {
            Ok(prepared) => write(&self.point, &prepared, parameters).await,
            Err(error) => (Way::Planned, format!("{error:?}")),
        };
        assert_eq!(point, planned, "{sql} {parameters:?}");
        assert_eq!(contents(&self.point).await, contents(&self.planned).await, "{sql} {parameters:?}");
        (way, point)
    }
}

async fn execute(db: &Db, prepared: &Arc<dyn Prepared>, parameters: &[Value]) -> String {
    match prepared.execute(&db.session, parameters).await {
        Ok(Outcome::Done { tag }) => tag,
        Ok(_) => "rows".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}

async fn write(db: &Db, prepared: &Arc<dyn Prepared>, parameters: &[Value]) -> (Way, String) {
    let Some(Point::Write(point)) = prepared.point(&db.session) else {
        return (Way::Planned, execute(db, prepared, parameters).await);
    };
    let Some((rows, obligation)) = point.write(&db.session, parameters) else {
        return (Way::Left, execute(db, prepared, parameters).await);
    };
    if let Some(settled) = db.query.settled(obligation) {
        settled.await.unwrap();
    }
    (Way::Point, format!("{} {rows}", prepared.verb()))
}

async fn contents(db: &Db) -> Vec<String> {
    db.rows("select * from t order by a, b").await
}

#[tokio::test]
async fn a_table_of_statements_is_answered_the_same() {
    use Way::{Left, Planned, Point};
    let pair = Pair::new().await;
    let null = Value::Null;
    let table: Vec<(&str, Vec<Value>, Way)> = vec![
        ("update t set v = $1, n = 5 where a = $2 and b = 'x'", vec![text("new"), int(1)], Point),
        ("update t set v = null where b = $1 and a = 1", vec![text("x")], Point),
        ("update t set v = default, small = default where (a = 2) and t.b = 'y'", vec![], Point),
        ("update t set (v, price) = ('w', 1.239) where a = 2 and b = 'y'", vec![], Point),
        ("update t x set v = 'alias' where x.a = 2 and b = 'y'", vec![], Point),
        ("update t set v = 'z' where a = 3 and b = 'z'", vec![], Point),
        ("update t set v = 'z' where a = $1 and b = 'z'", vec![null.clone()], Left),
        ("update t set n = $1 where a = 1 and b = 'x'", vec![null.clone()], Left),
        ("update t set n = $1 where a = 9 and b = 'x'", vec![null.clone()], Left),
        ("update t set n = null where a = 1 and b = 'x'", vec![], Left),
        ("update t set v = 'k' where a = 1", vec![], Planned),
        ("update t set v = 'k' where a = 1 and b = 'x' and n = 5", vec![], Planned),
        ("update t set v = v || 'k' where a = 1 and b = 'x'", vec![], Planned),
        ("update t set b = 'w' where a = 1 and b = 'x'", vec![], Planned),
        ("update t set b = 'x' where a = 1 and b = 'w' returning b", vec![], Planned),
        ("update t set v = 'k' where a = 1.5 and b = 'x'", vec![], Planned),
        ("update t set nothing = 1 where a = 1 and b = 'x'", vec![], Planned),
        ("update t set n = 'many' where a = 1 and b = 'x'", vec![], Planned),
        ("update t set n = 3000000000 where a = 1 and b = 'x'", vec![], Planned),
        ("update t set n = $1::bigint where a = 1 and b = 'x'", vec![int(6)], Point),
        ("update t set n = $1::bigint where a = 1 and b = 'x'", vec![int(1 << 40)], Left),
        (
            "update t set doc = '{\"a\": 1}', raw = '\\x00ff', flag = true, day = '2024-02-29' where a = 1 and b = 'x'",
            vec![],
            Point,
        ),
        ("update t set doc = 'no json' where a = 1 and b = 'x'", vec![], Planned),
        (
            "insert into t values ($1, $2, 1, 'in', 2.5, '[]', 1, '\\x00', false, '1969-12-31')",
            vec![int(4), text("i")],
            Point,
        ),
        (
            "insert into t values ($1, $2, 1, 'in', 2.5, '[]', 1, '\\x00', false, '1969-12-31')",
            vec![int(4), text("i")],
            Left,
        ),
        ("insert into t (b, a) values ('d', 5)", vec![], Point),
        ("insert into t (b, a, n) values ('d', 6, default)", vec![], Point),
        ("insert into t (a) values (5)", vec![], Left),
        ("insert into t (a, b, n) values (7, 'n', $1)", vec![null.clone()], Left),
        ("insert into t (a, b, v) values (7, 'n', $1)", vec![null.clone()], Point),
        ("insert into t (a, b) values (8, 'two'), (9, 'rows')", vec![], Planned),
        ("insert into t (a, b) values (1 + 9, 'sum')", vec![], Point),
        (
            "insert into t (a, b, n) values ($1 * 2 + 1, 'sum', 7 - $2)",
            vec![Value::Int32(10), Value::Int32(5)],
            Point,
        ),
        ("insert into t (a, b, n) values ($1 * 2 + 1, 'sum', 7 - $2)", vec![int(20), Value::Int32(5)], Left),
        ("insert into t (a, b, n) values (30, 'sum', 2147483647 + $1)", vec![Value::Int32(1)], Left),
        ("insert into t (a, b, n) values (31, 'sum', length('four'))", vec![], Planned),
        ("update t set n = n + 1 where a = 1 and b = 'x'", vec![], Point),
        (
            "update t set n = $1 - t.n * 2, small = small + 1 where a = 1 and b = 'x'",
            vec![Value::Int32(9)],
            Point,
        ),
        ("update t set n = n + $1 where a = 1 and b = 'x'", vec![Value::Int32(i32::MAX)], Point),
        ("update t set n = n + $1 where a = 1 and b = 'x'", vec![Value::Int32(i32::MAX)], Left),
        ("update t set small = (n + 2147483647)::bigint where a = 1 and b = 'x'", vec![], Left),
        ("update t set small = small + $1 where a = 2 and b = 'y'", vec![null.clone()], Point),
        ("update t set small = small + 1 where a = 2 and b = 'y'", vec![], Point),
        ("update t set n = n + $1 where a = 2 and b = 'y'", vec![null.clone()], Left),
        ("update t set n = n + 1 where a = 99 and b = 'x'", vec![], Point),
        ("update t set n = n / 2 where a = 1 and b = 'x'", vec![], Planned),
        ("update t set v = n + 1 where a = 1 and b = 'x'", vec![], Planned),
        (
            "insert into t (a, b, n) values (1, 'x', 5) on conflict (a, b) do update set n = t.n + excluded.n, v = 'met'",
            vec![],
            Point,
        ),
        (
            "insert into t (a, b, n) values (32, 'x', 5) on conflict (a, b) do update set n = t.n + excluded.n",
            vec![],
            Point,
        ),
        (
            "insert into t (a, b, n) values (1, 'x', 5) on conflict (a, b) do update set n = t.n + 2147483647",
            vec![],
            Left,
        ),
        ("insert into t (a, b) select 11, 'from'", vec![], Planned),
        ("insert into t (a, b) values (12, 'r') returning a", vec![], Planned),
        ("insert into t (a, b, small) values (13, 's', $1::int)", vec![Value::Int32(14)], Point),
        ("insert into t (a, b, small) values (14, 's', $1::int)", vec![Value::Int32(70_000)], Left),
        ("insert into t (a, b, price) values (14, 's', $1)", vec![Value::Decimal(125)], Point),
        ("insert into t (a, b) values (4, 'i') on conflict do nothing", vec![], Point),
        ("insert into t (a, b) values (15, 'i') on conflict (b, a) do nothing", vec![], Point),
        (
            "insert into t (a, b, v) values (15, 'i', 'up') on conflict (a, b) do update set v = excluded.v",
            vec![],
            Point,
        ),
        (
            "insert into t (a, b, v) values (16, 'i', 'up') on conflict (a, b) do update set v = excluded.b, n = $1",
            vec![Value::Int32(3)],
            Point,
        ),
        (
            "insert into t (a, b, v) values (16, 'i', 'up') on conflict (a, b) do update set v = excluded.b, n = $1",
            vec![Value::Int32(4)],
            Point,
        ),
        (
            "insert into t (a, b, v) values (16, 'i', 'up') on conflict (a, b) do update set n = $1",
            vec![null.clone()],
            Left,
        ),
        (
            "insert into t (a, b, v) values (17, 'i', 'up') on conflict (a, b) do update set n = $1",
            vec![null.clone()],
            Left,
        ),
        (
            "insert into t (a, b, v) values (16, 'i', 'q') on conflict (a, b) do update set v = t.v || excluded.v",
            vec![],
            Planned,
        ),
        (
            "insert into t (a, b, v) values (16, 'i', 'q') on conflict (a, b) do update set v = 'c' where t.n > 1",
            vec![],
            Planned,
        ),
        ("insert into t (a, b) values (16, 'i') on conflict (a) do nothing", vec![], Planned),
        ("delete from t where a = 5 and b = $1", vec![text("d")], Point),
        ("delete from t where a = 5 and b = $1", vec![text("d")], Point),
        ("delete from t where a = 6 and b = $1", vec![null.clone()], Left),
        ("delete from t where a = 6 and b = 'd' returning n", vec![], Planned),
        ("delete from t where a = 7", vec![], Planned),
        ("insert into t values (1)", vec![], Left),
        ("update t set v = $1 where a = 1 and b = 'x'", vec![], Left),
    ];
    for _ in ["in memory", "in files"] {
        for (sql, parameters, way) in &table {
            let (done, answer) = pair.run(sql, &[], parameters).await;
            assert_eq!(done, *way, "{sql} {parameters:?}: {answer}");
        }
        for db in [&pair.point, &pair.planned] {
            db.run("delete from t where a > 3").await;
            // With no room in memory no clean row stays there.
            let memory = db.engine.memory();
            memory.reserve(memory.limit());
            db.flush("t");
            memory.release(memory.limit());
        }
    }
}

#[tokio::test]
async fn a_row_of_which_all_columns_are_set_is_replaced_as_it_would_be_changed() {
    use Way::{Left, Planned, Point};
    let pair = Pair::new().await;
    let all = |n: &str| {
        format!(
            "update t set day = '2024-03-01', flag = true, raw = '\\x01', small = 4, doc = '[2]', price = 1.5, v = $2, \
             n = {n} where a = 1 and b = 'x'"
        )
    };
    let (null, v) = (Value::Null, text("new"));
    let statements = [
        (all("$1"), vec![Value::Int32(11), v.clone()], Point),
        (all("$1"), vec![Value::Int32(12), null.clone()], Point),
        (all("$1"), vec![null, v.clone()], Left),
        (all("$1::bigint"), vec![int(13), v.clone()], Point),
        (all("$1::bigint"), vec![int(1 << 40), v.clone()], Left),
        (all("$1").replace("a = 1", "a = 5"), vec![Value::Int32(14), v.clone()], Point),
        // What the dropped column leaves behind in the row is no column to set.
        ("alter table t drop column price".into(), vec![], Planned),
        (all("$1").replace("price = 1.5, ", ""), vec![Value::Int32(15), v.clone()], Point),
        ("alter table t add column extra bigint default 5".into(), vec![], Planned),
        (all("$1").replace("price = 1.5, ", ""), vec![Value::Int32(16), v.clone()], Point),
        (all("$1").replace("price = 1.5, ", "extra = 6, "), vec![Value::Int32(17), v], Point),
    ];
    for (sql, parameters, way) in statements {
        let (done, answer) = pair.run(&sql, &[], &parameters).await;
        assert_eq!(done, way, "{sql} {parameters:?}: {answer}");
    }
}

#[tokio::test]
async fn types_that_clients_give_are_converted_or_refused_the_same() {
    let pair = Pair::new().await;
    let (i2, i4, i8) = (ColumnType::Int16, ColumnType::Int32, ColumnType::Int64);
    let numeric = ColumnType::Decimal { precision: 38, scale: 10 };
    let update = "update t set n = $1 where a = $2 and b = 'x'";
    let insert = "insert into t (a, b, n, price) values ($1, 'c', 1, $2) on conflict (a, b) do nothing";
    let table = [
        (update, [i2, i2], [Value::Int16(-5), Value::Int16(1)], Way::Point),
        (update, [i4, i4], [Value::Int32(5), Value::Int32(1)], Way::Point),
        (update, [i8, i8], [Value::Int64(5), Value::Int64(1)], Way::Point),
        (update, [i8, i8], [Value::Int64(1 << 40), Value::Int64(1)], Way::Left),
        (update, [ColumnType::Double, i8], [Value::Double(2.5), Value::Int64(1)], Way::Planned),
        (update, [ColumnType::String, i8], [text("12"), Value::Int64(1)], Way::Planned),
        (update, [ColumnType::String, i8], [text("a dozen"), Value::Int64(1)], Way::Planned),
        (update, [ColumnType::Bool, i8], [Value::Bool(true), Value::Int64(1)], Way::Planned),
        (update, [i4, numeric], [Value::Int32(6), Value::Decimal(10_000_000_000)], Way::Planned),
        (insert, [i2, numeric], [Value::Int16(30), Value::Decimal(12_390_000_000)], Way::Planned),
        (insert, [i8, i4], [Value::Int64(31), Value::Int32(5)], Way::Planned),
        // Not of the type that was given.
        (update, [i4, i8], [text("no number"), Value::Int64(1)], Way::Left),
    ];
    for (sql, types, parameters, way) in table {
        let (done, answer) = pair.run(sql, &types.map(Some), &parameters).await;
        assert_eq!(done, way, "{sql} {types:?} {parameters:?}: {answer}");
    }
}

#[tokio::test]
async fn snapshots_time_limits_and_changed_tables_are_left_to_the_plan() {
    let db = Db::new();
    db.run(TABLE).await;
    let insert = db.prepare("insert into t (a, b) values ($1, 'k')").await;
    let update = db.prepare("update t set v = 'u' where a = $1 and b = 'k'").await;
    let select = db.prepare("select v from t where a = $1 and b = 'k'").await;
    let all = [&insert, &update, &select];
    let offered = || all.map(|prepared| prepared.point(&db.session).is_some());
    assert_eq!(offered(), [true; 3]);
    for (begin, end, expected) in [
        ("begin", "commit", [true; 3]),
        ("begin read only", "commit", [false, false, true]),
        ("begin isolation level repeatable read", "commit", [false; 3]),
        ("begin isolation level serializable", "rollback", [false; 3]),
        ("set statement_timeout = '1min'", "set statement_timeout = 0", [false; 3]),
    ] {
        db.run(begin).await;
        assert_eq!(offered(), expected, "{begin}");
        db.run(end).await;
        assert_eq!(offered(), [true; 3], "{end}");
    }
    db.run("begin").await;
    db.run("create table other (id bigint primary key)").await;
    assert_eq!(offered(), [false; 3], "the block has a catalog of its own");
    db.error("select nothing").await;
    assert_eq!(offered(), [false; 3], "a failed block");
    db.run("rollback").await;
    assert_eq!(write(&db, &insert, &[int(1)]).await, (Way::Point, "INSERT 0 1".to_owned()));
    db.run("alter table t add column more bigint default 4").await;
    assert_eq!(offered(), [false; 3], "the plans are of another catalog");
    assert_eq!(write(&db, &insert, &[int(2)]).await, (Way::Planned, "INSERT 0 1".to_owned()));
    assert_eq!(write(&db, &update, &[int(1)]).await, (Way::Planned, "UPDATE 1".to_owned()));
    assert_eq!(db.rows("select a, v, more from t order by a").await, ["1|u|4", "2||4"]);
}

#[tokio::test]
async fn a_block_sees_what_its_points_write_and_nobody_else_does() {
    let pair = Pair::new().await;
    let statements: [(&str, Vec<Value>, Way); 9] = [
        ("insert into t (a, b, n) values ($1, 'k', 1)", vec![int(5)], Way::Point),
        ("update t set n = n + $1 where a = 5 and b = 'k'", vec![Value::Int32(2)], Way::Point),
        ("update t set n = n + $1 where a = 1 and b = 'x'", vec![Value::Int32(2)], Way::Point),
        ("update t set v = 'twice' where a = 1 and b = 'x'", vec![], Way::Point),
        ("delete from t where a = 2 and b = 'y'", vec![], Way::Point),
        ("delete from t where a = 2 and b = 'y'", vec![], Way::Point),
        ("insert into t (a, b) values (2, 'y') on conflict do nothing", vec![], Way::Point),
        ("update t set n = n + 1 where n > 0", vec![], Way::Planned),
        ("update t set n = n * 2 where a = 2 and b = 'y'", vec![], Way::Point),
    ];
    for end in ["rollback", "commit"] {
        let before = contents(&pair.point).await;
        for db in [&pair.point, &pair.planned] {
            db.run("begin").await;
        }
        for (sql, parameters, way) in &statements {
            assert_eq!(pair.run(sql, &[], parameters).await.0, *way, "{sql}");
            assert_eq!(contents(&pair.point.client("other")).await, before, "{sql}");
        }
        let select = pair.point.prepare("select n from t where a = $1 and b = $2").await;
        for (key, expected) in
            [((5, "k"), Some(4)), ((1, "x"), Some(4)), ((2, "y"), Some(16)), ((3, "z"), None)]
        {
            let Some(Point::Read(point)) = select.point(&pair.point.session) else { panic!("a look-up") };
            let (key, mut seen) = ([int(key.0), text(key.1)], None);
            let found = point.try_get(&pair.point.session, &key, &mut |row| seen = Some(row[0].to_owned()));
            assert_eq!(found.unwrap().unwrap().0, expected.is_some(), "{key:?}");
            assert_eq!(seen, expected.map(Value::Int32), "{key:?}");
        }
        let refused = "insert into t (a, b) values (5, 'k')";
        for db in [&pair.point, &pair.planned] {
            if end == "rollback" {
                assert_eq!(db.state(refused).await, "23505");
            }
            db.run(end).await;
        }
        assert_eq!(contents(&pair.point).await, contents(&pair.planned).await, "{end}");
        assert_eq!(contents(&pair.point).await == before, end == "rollback");
    }
}

/// A row that another block has locked is waited for by the plan.
#[tokio::test]
async fn who_would_write_a_locked_row_leaves_it() {
    let pair = Pair::new().await;
    let (db, other) = (&pair.point, pair.point.client("other"));
    other.run("begin").await;
    other.run("update t set n = n + 1 where a = 1 and b = 'x'").await;
    let update = db.prepare("update t set n = n + 10 where a = 1 and b = 'x'").await;
    for begin in [None, Some("begin")] {
        if let Some(begin) = begin {
            db.run(begin).await;
        }
        let Some(Point::Write(point)) = update.point(&db.session) else { panic!("a write of one row") };
        assert!(point.write(&db.session, &[]).is_none());
    }
    let (waited, ()) =
        futures::join!(async { update.execute(&db.session, &[]).await.map(|_| ()) }, other.run("commit"));
    waited.unwrap();
    db.run("commit").await;
    assert_eq!(db.rows("select n from t where a = 1").await, ["12"]);
}

#[tokio::test]
async fn now_is_when_the_block_began() {
    let db = Db::new();
    db.run("create table t (id int primary key, at timestamp, day date)").await;
    let insert = db.prepare("insert into t values ($1, now(), null)").await;
    let update = db.prepare("update t set at = current_timestamp where id = $1").await;
    let put = async |prepared: &Arc<dyn Prepared>, id: i32| {
        let Some(Point::Write(point)) = prepared.point(&db.session) else { panic!("a write of one row") };
        let (_, obligation) = point.write(&db.session, &[Value::Int32(id)]).expect("it is plain");
        if let Some(settled) = db.query.settled(obligation) {
            settled.await.unwrap();
        }
    };
    put(&insert, 1).await;
    let alone = db.rows("select at from t").await;
    put(&update, 1).await;
    assert_ne!(db.rows("select at from t").await, alone, "each statement has its own");
    db.run("begin").await;
    for id in 2..5 {
        put(&insert, id).await;
    }
    put(&update, 1).await;
    db.run("insert into t values (5, now() - interval '0 days', now())").await;
    db.run("update t set at = now() where id = 2 and at is not null").await;
    assert_eq!(db.rows("select count(*), count(distinct at) from t where at = now()").await, ["5|1"]);
    db.run("commit").await;
    assert_eq!(db.rows("select count(*) from t where at = now()").await, ["0"]);
    db.run("set timezone = 'Asia/Tokyo'").await;
    db.run("insert into t values (6, now(), null)").await;
    assert_eq!(db.rows("select count(*) from t where id = 6 and at > (select max(at) from t where id < 6) + interval '8 hours'").await, ["1"]);
}

/// Keys, values, types and statements drawn at random; the seed is in the message of a failure.
#[tokio::test]
async fn random_statements_are_answered_the_same() {
    let pair = Pair::new().await;
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1;
    println!("seed {seed}");
    let mut state = seed;
    let mut draw = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    let statements = [
        "insert into t (a, b, n, v) values ($1, $2, $3, $4)",
        "insert into t (a, b, n, v) values ($1, $2, $3, $4) on conflict do nothing",
        "insert into t (a, b, n, v) values ($1, $2, $3, $4) on conflict (a, b) do update set n = excluded.n, v = $4",
        "update t set n = $3, v = $4 where a = $1 and b = $2",
        "update t set n = n + $3, v = $4 where a = $1 and b = $2",
        "insert into t (a, b, n, v) values ($1, $2, $3, $4) on conflict (a, b) do update set n = excluded.n - t.n * $3",
        "delete from t where a = $1 and b = $2",
    ];
    let integers = [ColumnType::Int16, ColumnType::Int32, ColumnType::Int64];
    let mut ways = [0; 3];
    for step in 0..400 {
        let sql = statements[draw(7) as usize];
        let used = if sql.starts_with("delete") { 2 } else { 4 };
        let mut integer = |n: u64, bits: u64| {
            let column_type = integers[draw(3) as usize];
            let value = (draw(n) as i64) << if draw(10) == 0 { bits } else { 0 };
            let value = match column_type {
                _ if draw(12) == 0 => Value::Null,
                ColumnType::Int16 => Value::Int16(value as i16),
                ColumnType::Int32 => Value::Int32(value as i32),
                _ => Value::Int64(value),
            };
            (Some(column_type), value)
        };
        let (a, n) = (integer(4, 0), integer(100, 40));
        let mut string = || match draw(6) {
            0 => (None, Value::Null),
            1 => (Some(ColumnType::String), text("")),
            n => (Some(ColumnType::String), text(&"naïve".repeat(n as usize - 2))),
        };
        let (b, v) = (string(), string());
        let (types, values): (Vec<_>, Vec<_>) = [a, b, n, v].into_iter().take(used).unzip();
        let (way, answer) = pair.run(sql, &types, &values).await;
        ways[way as usize] += 1;
        if step % 150 == 149 {
            [&pair.point, &pair.planned].iter().for_each(|db| db.flush("t"));
        }
        assert!(!answer.contains("internal"), "seed {seed}, step {step}: {answer}");
    }
    assert!(ways[Way::Point as usize] > 200 && ways[Way::Left as usize] > 30, "seed {seed}: {ways:?}");
}
