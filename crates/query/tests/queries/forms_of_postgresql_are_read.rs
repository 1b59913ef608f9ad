//! Forms of statements that are PostgreSQL's alone: they mean here what they mean there, or are refused by name.

use crate::db::Db;

async fn numbers() -> Db {
    let db = Db::new();
    db.run("create table numbers (id int primary key, n int, numbers int, a text, b text, c text)").await;
    db.run("insert into numbers values (1, 10, 1, 'x_y', 'x!_y', '!'), (2, null, 5, 'xzy', 'x!_y', '!')")
        .await;
    db
}

#[tokio::test]
async fn forms_mean_what_they_mean_in_postgresql() {
    let db = numbers().await;
    for (sql, rows) in [
        ("table numbers", vec!["1|10|1|x_y|x!_y|!", "2||5|xzy|x!_y|!"]),
        ("select count(*) from (table numbers union all table public.numbers) t", vec!["4"]),
        (
            "with c as (table numbers) select id from c where id in (select t.id from (table c) t) order by id",
            vec!["1", "2"],
        ),
        ("select trim(both from '  x '), trim(trailing from 'x '), trim(from ' x')", vec!["x|x|x"]),
        (
            "select id between symmetric 2 and 0, id not between symmetric 2 and 2 from numbers",
            vec!["true|true", "true|false"],
        ),
        ("select 3 between symmetric null and 5, 7 between symmetric null and 5", vec!["|"]),
        ("select 3 between symmetric 5 and 4 and true, 1 between asymmetric 0 and 2", vec!["false|true"]),
        ("select a like b escape c, a not like b escape c from numbers", vec!["true|false", "false|true"]),
        (
            "select 'a\\b' like 'a\\b' escape '', 'AB' ilike 'a!b' escape '!', 'x' like 'x' escape null",
            vec!["true|true|"],
        ),
        ("select like_escape('a\\b!%!!', '!')", vec!["a\\\\b\\%\\!"]),
        ("select not 'no', 1 where 'yes'", vec!["true|1"]),
        ("select + '2.5', + null", vec!["2.5|"]),
    ] {
        assert_eq!(db.rows(sql).await, rows, "{sql}");
    }
    for (sql, state) in [
        ("select count(*) over (order by id rows 1 preceding exclude current row) from numbers", "0A000"),
        ("select not 'perhaps'", "22P02"),
        ("select 'x' like 'x' escape 'ab'", "22025"),
        ("select array[array[]]::int[]", "0A000"),
        ("table nowhere", "42P01"),
        ("values (1), (true)", "42804"),
    ] {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
}

#[tokio::test]
async fn columns_may_be_given_one_name() {
    let db = numbers().await;
    assert_eq!(db.rows("select id as a, n as a from numbers order by 1").await, ["1|10", "2|"]);
    assert_eq!(db.rows("select id as x, id as x from numbers order by x desc").await, ["2|2", "1|1"]);
    assert_eq!(db.prepare("select 1 as a, 2 as a").await.columns().unwrap().field(1).name(), "a");
    assert_eq!(db.state("select id as a, n as a from numbers order by a").await, "42702");
    assert_eq!(db.state("select a from (select 1 as a, 2 as a) s").await, "42703");
    assert_eq!(db.state("create table twice (primary key (a)) as select 1 as a, 2 as a").await, "42701");
}

#[tokio::test]
async fn tables_may_have_the_name_of_a_column() {
    let db = numbers().await;
    for (sql, rows) in [
        (
            "select n.id from numbers n where exists (select 1 from numbers m where m.id = n.id and n.n = 10)",
            vec!["1"],
        ),
        (
            "select id from numbers where (select max(m.id) from numbers m where m.id = numbers.id) = 2",
            vec!["2"],
        ),
        (
            "select n.*, (select count(*) from numbers m where m.id = n.id) from numbers n where id = 2",
            vec!["2||5|xzy|x!_y|!|1"],
        ),
    ] {
        assert_eq!(db.rows(sql).await, rows, "{sql}");
    }
    assert_eq!(db.state("select id.n from numbers").await, "42703");
}
