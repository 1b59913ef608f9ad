//! Functions, operators and casts answer as PostgreSQL does or are refused by name. The clients' differential test
//! compares all of them with a PostgreSQL; here stand those that answered wrongly.

use crate::db::Db;

async fn numbers() -> Db {
    let db = Db::new();
    db.run("create table numbers (id int primary key, g int, n int)").await;
    db.run("insert into numbers values (1, 1, 10), (2, 1, null), (3, 2, 30), (4, 2, 30), (5, 3, -5)").await;
    db
}

#[tokio::test]
async fn arrays_of_queries_keep_their_order() {
    let db = numbers().await;
    for (query, array) in [
        ("select id from numbers order by id desc", "[5, 4, 3, 2, 1]"),
        ("select id from numbers order by n desc nulls last, id limit 2", "[3, 4]"),
        ("select distinct g from numbers order by g desc", "[3, 2, 1]"),
        ("select count(*) from numbers group by g order by 1", "[1, 2, 2]"),
        ("select id from numbers where false", "[]"),
        ("select 2 union all select 1 order by 1", "[1, 2]"),
    ] {
        assert_eq!(db.rows(&format!("select array({query})")).await, [array], "{query}");
    }
    let each = "select array(select m.id from numbers m where m.g = numbers.g order by m.id desc) from numbers order by id";
    assert_eq!(db.rows(each).await, ["[2, 1]", "[2, 1]", "[4, 3]", "[4, 3]", "[5]"]);
}

#[tokio::test]
async fn patterns_match_as_they_are_read() {
    let db = Db::new();
    for (condition, answer) in [
        ("'abc' similar to 'a%'", "true"),
        ("'abc' similar to '(a|x)_c'", "true"),
        ("'abc' similar to 'b'", "false"),
        ("'abc' like 'a!%c' escape '!'", "false"),
        ("'a%c' like 'a!%c' escape '!'", "true"),
        ("'special requests' like '%ec%que%'", "true"),
        ("'special requests' not like '%que%ec%'", "true"),
        ("'special requests' like '%ec%sts'", "true"),
        ("null like '%a%b%'", ""),
        (r"'a b' ~ '\mb'", "true"),
        ("regexp_replace('xabcabc', 'a|abc', '<\\&>', 'g')", "x<abc><abc>"),
        ("substring('foobar' from 'o(.)b')", "o"),
        ("(1, null) = (2, null)", "false"),
        ("(1, 2) < (1, 3)", "true"),
    ] {
        assert_eq!(db.rows(&format!("select {condition}")).await, [answer], "{condition}");
    }
    db.run("create table texts (id int primary key, t text)").await;
    db.run("insert into texts values (1, 'a\nb'), (2, 'ba'), (3, null)").await;
    let like = "select id, t like '%a%b%', t not like '%a%b' from texts order by id";
    assert_eq!(db.rows(like).await, ["1|true|false", "2|false|true", "3||"]);
    let plan = db.explain("explain select id from texts where t like '%a%b%'").await;
    assert!(plan.contains("like(t"), "it is no regular expression: {plan}");
    assert_eq!(db.state("select 'a' ~ '('").await, "2201B");
    assert_eq!(db.state(r"select 'aa' ~ '(a)\1'").await, "0A000");
}

#[tokio::test]
async fn values_are_cast_from_and_to_text_as_columns_are() {
    let db = Db::new();
    for (cast, answer) in [
        ("lower('YES')::boolean", "true"),
        ("(lower(' 12 '))::int", "12"),
        ("'1e300'::double precision::text", "1e+300"),
        ("concat(true, '-', false)", "t-f"),
        ("true::text || 1.5::double precision", "true1.5"),
        ("cast('abcdef' as varchar(3))", "abc"),
        ("'{1,NULL,3}'::int[]", "[1, , 3]"),
    ] {
        assert_eq!(db.rows(&format!("select {cast}")).await, [answer], "{cast}");
    }
    assert_eq!(db.state("select lower('maybe')::boolean").await, "22P02");
    assert_eq!(db.state("select '2020-01-01'::date::boolean").await, "42846");
}

#[tokio::test]
async fn what_postgresql_does_not_have_is_refused_by_name() {
    let db = numbers().await;
    for (sql, state) in [
        ("select nvl(1, 2)", "42883"),
        ("select array_sort(array[2, 1])", "42883"),
        ("select list_append(array[1], 2)", "42883"),
        ("select lpad(true, 2)", "42883"),
        ("select lower(id) from numbers", "42883"),
        ("select g = 'a'::text from numbers", "42883"),
        ("select 1 and true", "42883"),
        ("select '{}'::jsonb || '{}'::jsonb", "42883"),
        ("select '1'::json = '1'::json", "42883"),
        ("select generate_series(1, 3)", "0A000"),
        ("select value from generate_series(1, 3)", "42703"),
        ("select array[]", "42P18"),
        ("select array[1] || array['a']", "42883"),
        ("select 'a' == 'a'", "42883"),
        ("select substr('a', 'a')", "42883"),
        ("select lpad(1, 'a')", "42883"),
        ("select 'a' || '\\x61'::bytea", "42883"),
        ("select null << 1::smallint", "42725"),
        ("select + date '2024-01-01'", "42883"),
        ("select true + 'a'", "42883"),
        (
            "select x from numbers, lateral (select max(n) as x from numbers m where m.id < numbers.id) s",
            "0A000",
        ),
        ("select * from range(1, 3)", "42883"),
        ("select try_cast('x' as int)", "0A000"),
        ("select id from numbers where n > all (select n from numbers)", "0A000"),
        ("select coalesce(n, true) from numbers", "42883"),
        ("select first_value(n) from numbers", "42809"),
        ("select nth_value(n, 0) over (order by id) from numbers", "22016"),
    ] {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
    assert_eq!(
        db.rows("select g + generate_series from generate_series(1, 2) g, generate_series(3, 3)").await,
        ["4", "5"]
    );
    assert_eq!(db.rows("select (array[])::int[], cast(array[] as text[])").await, ["[]|[]"]);
    let any = "select id from numbers where n = any (select n from numbers where id < 3) order by id";
    assert_eq!(db.rows(any).await, ["1"]);
}
