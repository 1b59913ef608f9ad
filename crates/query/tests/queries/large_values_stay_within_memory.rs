//! A short statement may ask for a value of gigabytes: it is refused before it is made, or takes its place in the memory
//! of queries. No plan has it.

use crate::db::{Db, text};
use oribi_engine::EngineOptions;
use oribi_session::sql::Outcome;

async fn small() -> Db {
    let db = Db::with(EngineOptions { memory_bytes: 64 << 20, ..EngineOptions::default() });
    db.run("create table t (id int primary key, s text)").await;
    db.run("insert into t select value, 'x' from generate_series(1, 20000) as g(value)").await;
    db
}

/// Waits until what statements held is given back: a task that is cancelled drops it a little later.
async fn given_back(db: &Db) {
    while db.engine.memory().queries() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_value_of_more_than_a_gigabyte_is_refused_as_postgresql_does() {
    let db = small().await;
    for value in [
        "repeat('x', 2000000000)",
        "repeat(repeat('x', 1000), 2000000)",
        "repeat(s, 1073741820)",
        "lpad(s, 300000000)",
        "rpad('', 2147483647, 'xy')",
        "replace(repeat('x', 1000000), 'x', repeat('y', 10000))",
        "regexp_replace(repeat('x', 1000000), 'x', repeat('y', 10000), 'g')",
        "regexp_replace(repeat('x', 100000), '^(x*)$', repeat('\\1', 100000))",
    ] {
        let error = db.error(&format!("select length({value}) from t where id = 1 or id = 2")).await;
        assert_eq!(error.sqlstate, Some("54000"), "{value}: {error}");
        assert_eq!(error.error.message(), "requested length too large", "{value}");
    }
    given_back(&db).await;
}

#[tokio::test]
async fn a_value_beyond_the_memory_of_queries_is_refused() {
    let db = small().await;
    for value in [
        "length(repeat('x', 100000000))",
        "length(lpad('', 100000000))",
        "length(repeat('x', 40000000) || repeat('x', 40000000))",
        "length(concat(repeat('x', 40000000), repeat('x', 40000000)))",
        "length(overlay(repeat('x', 40000000) placing repeat('x', 40000000) from 3))",
        "length(encode(convert_to(repeat('x', 20000000), 'UTF8'), 'escape'))",
        "length(quote_literal(repeat('''', 20000000)))",
        "length(translate(repeat('x', 20000000), 'x', '€'))",
        "length(array_to_string(string_to_array(repeat('x,', 300000), ','), repeat('-', 1000)))",
        "cardinality(regexp_split_to_array(repeat('x,', 2000000), ','))",
        "cardinality(array_replace(string_to_array(repeat('x,', 300000), ','), 'x', repeat('y', 1000)))",
    ] {
        assert_eq!(db.state(&format!("select {value}")).await, "53200", "{value}");
    }
    // All values of a batch together.
    for value in [
        "repeat(s, 100000)",
        "lpad(s, 100000)",
        "s || repeat('x', 100000)",
        "replace(s, 'x', repeat('y', 100000))",
    ] {
        assert_eq!(db.state(&format!("select sum(length({value})) from t")).await, "53200", "{value}");
    }
    given_back(&db).await;
    assert_eq!(db.rows("select sum(length(repeat(s, 1000))) from t").await, ["20000000"]);
}

#[tokio::test]
async fn a_value_is_counted_as_long_as_it_lives() {
    let db = small().await;
    let rows = db
        .try_rows("select repeat('x', 20000000), repeat(s, 10000000) from t where id = 7", &[])
        .await
        .unwrap();
    let held = db.engine.memory().queries();
    assert!((30_000_000..32_000_000).contains(&held), "{held}");
    drop(rows);
    given_back(&db).await;
}

#[tokio::test]
async fn a_constant_is_made_once_for_many_rows() {
    let db = small().await;
    let sql =
        "select count(*), sum(length(s)), min(right(s, 1)) from (select repeat('xy', 500000) as s from t) q";
    assert_eq!(db.rows(sql).await, ["20000|20000000000|y"]);
    let written = "x".repeat(100_000);
    let sql = format!("select count(*), sum(length(s)) from (select '{written}' as s from t) q");
    assert_eq!(db.rows(&sql).await, ["20000|2000000000"]);
    let parameter = "select count(*), sum(length(s)) from (select $1 as s from t) q";
    assert_eq!(db.rows_with(parameter, &[text(&written)]).await, ["20000|2000000000"]);
    let joined = "select sum(length(a || 'z')) from (select repeat('x', 10000000) as a) q, t where id < 2";
    assert_eq!(db.rows(joined).await, ["10000001"]);
}

#[tokio::test]
async fn a_plan_has_small_constants_only() {
    let db = small().await;
    for (value, folded) in [
        ("repeat('x', 3)", "xxx"),
        ("lpad('a', 3)", "  a"),
        ("'a' || 'b'", "ab"),
        ("replace('abc', 'b', 'dd')", "addc"),
        ("array_to_string(array[1, 2], ',')", "1,2"),
    ] {
        let plan = db.explain(&format!("explain select {value} from t")).await;
        assert!(plan.contains(&format!("[{folded} as")), "{value}: {plan}");
    }
    for value in ["repeat('x', 100000)", "repeat(repeat('x', 1000), 1000)", "lpad('', 100000)"] {
        let plan = db.explain(&format!("explain select {value} from t")).await;
        assert!(plan.len() < 10_000, "{value}");
    }
    // Each is small; together they are not.
    let many = vec!["length(repeat('x', 1000))"; 1000].join(" + ");
    let halves: Vec<&str> = many.split(" + ").collect();
    let sum =
        halves.chunks(100).map(|terms| format!("({})", terms.join(" + "))).collect::<Vec<_>>().join(" + ");
    assert_eq!(db.rows(&format!("select {sum}")).await, ["1000000"]);
}

#[tokio::test]
async fn what_is_not_asked_for_is_not_refused() {
    let db = small().await;
    let sql = "select case when id > 0 then 'small' else repeat('x', 2000000000) end from t where id = 1";
    assert_eq!(db.rows(sql).await, ["small"]);
    assert_eq!(db.rows("select coalesce(s, repeat('x', 2000000000)) from t where id = 1").await, ["x"]);
}

#[tokio::test]
async fn answers_do_not_change_with_their_size() {
    let db = small().await;
    for n in [10, 1000, 100_000, 5_000_000] {
        for (value, length) in [
            (format!("repeat('äb', {n})"), 2 * n),
            (format!("lpad('ä', {n}, 'öx')"), n),
            (format!("rpad(s, {n}, 'öx')"), n),
            (format!("replace(repeat('x', {n}), 'x', 'yz')"), 2 * n),
            (format!("repeat('x', {n}) || s"), n + 1),
            (format!("s || repeat('x', {n}) || null"), 0),
            (format!("reverse(repeat('x', {n}))"), n),
            (format!("regexp_replace(repeat('ab', {n}), 'a', '<\\&>', 'g')"), 4 * n),
            (format!("left(repeat('x', {n}), 7)"), 7),
        ] {
            let sql = format!("select coalesce(length({value}), 0) from t where id = 3");
            assert_eq!(db.rows(&sql).await, [length.to_string()], "{value}");
        }
    }
    let parameter = "select length(repeat($1, 3000000)), repeat($1, 2)";
    assert_eq!(db.rows_with(parameter, &[text("ab")]).await, ["6000000|abab"]);
}

#[tokio::test]
async fn aggregates_of_texts_and_arrays_are_bounded() {
    let db = small().await;
    for sql in [
        "select length(string_agg(repeat(s, 5000), ',')) from t",
        "select length(string_agg(s, DASHES)) from t",
        "select id % 2, length(string_agg(s, DASHES)) from t group by 1",
        "select count(a) from (select string_agg(md5(id::text), ',') over (order by id) as a from t) q",
        "select count(a) from (select array_agg(id) over (order by id) as a from t) q",
    ] {
        let sql = sql.replace("DASHES", &format!("'{}'", "-".repeat(10_000)));
        assert_eq!(db.state(&sql).await, "53200", "{}", &sql[..40]);
    }
    given_back(&db).await;
    assert_eq!(db.rows("select length(string_agg(repeat(s, 100), ',')) from t").await, ["2019999"]);
    let few =
        "select string_agg(s, ',') over (order by id), array_agg(id) over (order by id) from t where id < 3";
    assert_eq!(db.rows(few).await, ["x|[1]", "x,x|[1, 2]"]);
}

#[tokio::test]
async fn statements_that_write_make_their_values_within_memory() {
    let db = small().await;
    for (sql, state) in [
        ("insert into t values (0, repeat('x', 2000000000))", "54000"),
        ("insert into t values (0, repeat('x', 100000000))", "53200"),
        ("update t set s = repeat(s, 2000000000) where id = 1", "54000"),
        ("insert into t values (1, 'y') on conflict (id) do update set s = repeat(t.s, 2000000000)", "54000"),
        ("insert into t values (1, 'y') on conflict (id) do update set s = repeat(t.s, 100000000)", "53200"),
        (
            "insert into t values (1, 'y') on conflict (id) do update set s = 'y' where length(repeat(t.s, 2000000000)) > 0",
            "54000",
        ),
        ("delete from t where length(repeat(s, 2000000000)) > 0", "54000"),
    ] {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
    assert_eq!(
        db.rows("insert into t values (0, 'y') returning length(repeat(s, 3000000))").await,
        ["3000000"]
    );
    let upsert =
        "insert into t values (0, 'z') on conflict (id) do update set s = t.s || excluded.s returning s";
    assert_eq!(db.rows(upsert).await, ["yz"]);
    given_back(&db).await;
}

#[tokio::test]
async fn rows_of_too_many_columns_are_refused_wherever_they_stand() {
    let db = Db::new();
    let list = |n: usize| (1..=n).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
    let columns = |n: usize| (1..=n).map(|i| format!("c{i} int")).collect::<Vec<_>>().join(", ");
    db.run(&format!("create table wide (id int primary key, {})", columns(900))).await;
    let many = list(1665);
    for sql in [
        format!("select {many}"),
        format!("select count(*) from (select {many}) q"),
        format!("with q as (select {many}) select count(*) from q"),
        format!("select 1 where exists (select {many})"),
        format!("select {many} union all select {many}"),
        format!("select 1 union all (select 1 from (select {many}) q)"),
        format!("values ({many})"),
        format!("select count(*) from (values ({many})) q"),
        format!("insert into wide select {many}"),
        format!("create table other as select {many}"),
        "select * from wide a, wide b".to_owned(),
        "select a.*, b.* from wide a join wide b using (id)".to_owned(),
        "select * from wide a join wide b using (id)".to_owned(),
        "select count(*) from (select * from wide a, wide b) q".to_owned(),
    ] {
        assert_eq!(db.state(&sql).await, "54011", "{}", &sql[..40.min(sql.len())]);
    }
    assert_eq!(db.rows("select count(*) from wide a, wide b").await, ["0"]);
    let Outcome::Rows(_) = db.outcome(&format!("select {}", list(1664)), &[]).await.unwrap() else {
        panic!("rows")
    };
}

#[tokio::test]
async fn nested_choices_are_planned_in_time() {
    let db = Db::new();
    db.run("create table n (id int primary key, a int, b int)").await;
    db.run("insert into n values (1, null, 7)").await;
    let nested = |start: &str, level: &dyn Fn(String) -> String| {
        (0..30).fold(start.to_owned(), |inner, _| level(inner))
    };
    for (expression, answer) in [
        (nested("a", &|inner| format!("coalesce({inner}, a)")), ""),
        (nested("a", &|inner| format!("coalesce({inner}, b)")), "7"),
        (nested("a", &|inner| format!("coalesce(a, {inner})")), ""),
        (nested("a", &|inner| format!("coalesce(-{inner}, b)")), "-7"),
        (nested("a", &|inner| format!("coalesce({inner} + 1, b)")), "36"),
        (nested("b", &|inner| format!("nullif({inner}, a)")), "7"),
        (nested("a", &|inner| format!("greatest({inner}, a, b)")), "7"),
    ] {
        assert_eq!(db.rows(&format!("select {expression} from n")).await, [answer], "{expression}");
    }
    assert_eq!(db.rows("select coalesce(b, 1 / 0) from n").await, ["7"]);
    assert_eq!(
        db.rows("select coalesce(coalesce(coalesce(coalesce(b, a), a), a), 1 / 0) from n").await,
        ["7"]
    );
}
