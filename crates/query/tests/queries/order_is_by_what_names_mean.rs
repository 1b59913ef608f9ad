//! A name in `ORDER BY`, `DISTINCT ON` and `GROUP BY` means the column that it means to PostgreSQL: of the result where it
//! stands alone in the first two, of the tables in expressions.

use crate::db::Db;

async fn items() -> Db {
    let db = Db::new();
    db.run("create table items (id int primary key, k int, t text)").await;
    db.run("insert into items values (1, 3, 'a'), (2, 1, 'b'), (3, 2, 'c')").await;
    db
}

#[tokio::test]
async fn names_in_keys_that_are_expressions_are_columns_of_the_tables() {
    let db = items().await;
    for (query, rows) in [
        ("select -id as id from items order by id+0", vec!["-1", "-2", "-3"]),
        ("select -id as id from items order by -id", vec!["-3", "-2", "-1"]),
        ("select id * -1 as id, k from items order by id + k", vec!["-2|1", "-1|3", "-3|2"]),
        ("select -id as id from items order by id+0 limit 1", vec!["-1"]),
        ("select -id as id from items order by id+0 desc offset 1 fetch first row only", vec!["-2"]),
        ("select -id as id from items order by abs(id)", vec!["-1", "-2", "-3"]),
        ("select -id as id from items order by id::text", vec!["-1", "-2", "-3"]),
        ("select -id as id from items order by items.id", vec!["-1", "-2", "-3"]),
        (
            "select -id as id from items order by case when id > 1 then 0 else 1 end, id",
            vec!["-3", "-2", "-1"],
        ),
        ("select -id as id from items order by id, id+0", vec!["-3", "-2", "-1"]),
        ("select -id as id from items order by 1 desc, id+0", vec!["-1", "-2", "-3"]),
        ("select -id as id, t from items order by k, id+0", vec!["-2|b", "-3|c", "-1|a"]),
        ("select x.id as k, x.k as id from items x order by id", vec!["2|1", "3|2", "1|3"]),
        ("select x.id as k, x.k as id from items x order by id+0", vec!["1|3", "2|1", "3|2"]),
        (
            "select -id as id, k from items order by row_number() over (order by id)",
            vec!["-1|3", "-2|1", "-3|2"],
        ),
        ("select -id as \"Id\" from items order by Id", vec!["-1", "-2", "-3"]),
        (
            "select s.id from (select -id as id from items order by id+0 limit 2) s order by 1",
            vec!["-2", "-1"],
        ),
        ("with r as (select id from items) select -id as id from r order by id+0", vec!["-1", "-2", "-3"]),
        ("select array(select -id as id from items order by id+0)", vec!["[-1, -2, -3]"]),
        ("select id as x, id from items order by x, id+0", vec!["1|1", "2|2", "3|3"]),
        ("select -id as id, lower(t), lower(t) from items order by id+0", vec!["-1|a|a", "-2|b|b", "-3|c|c"]),
    ] {
        assert_eq!(db.rows(query).await, rows, "{query}");
    }
    for (query, state) in [
        ("select id as x from items order by x+0", "42703"),
        ("select 1 as id order by id+0", "42703"),
        ("select max(id) as m from items order by m+1", "42703"),
        ("select id as x, k as x from items order by x, x+0", "42702"),
        ("select id as x, k from items order by 3, id+x", "42P10"),
        ("select *, -id as id from items order by id+0", "0A000"),
    ] {
        assert_eq!(db.state(query).await, state, "{query}");
    }
}

#[tokio::test]
async fn names_alone_are_columns_of_the_result() {
    let db = items().await;
    for (query, rows) in [
        ("select -id as id from items order by id", vec!["-3", "-2", "-1"]),
        ("select -id as id from items order by (id)", vec!["-3", "-2", "-1"]),
        ("select -id as \"Id\" from items order by \"Id\"", vec!["-3", "-2", "-1"]),
        ("select row_number() over (order by id) as id from items order by id desc", vec!["3", "2", "1"]),
        (
            "select -id as id, row_number() over (order by id) from items order by 2",
            vec!["-1|1", "-2|2", "-3|3"],
        ),
    ] {
        assert_eq!(db.rows(query).await, rows, "{query}");
    }
}

#[tokio::test]
async fn groups_are_by_columns_of_the_tables_first() {
    let db = items().await;
    for (query, rows) in [
        ("select -id as id, count(*) from items group by id order by id", vec!["-3|1", "-2|1", "-1|1"]),
        ("select -id as id, count(*) from items group by id order by id+0", vec!["-1|1", "-2|1", "-3|1"]),
        ("select -k as id, count(*) from items group by id, k order by 1", vec!["-3|1", "-2|1", "-1|1"]),
        ("select k+1 as kk, count(*) from items group by kk order by kk", vec!["2|1", "3|1", "4|1"]),
        (
            "select k+1 as kk, -sum(id) as id from items group by kk order by sum(id)",
            vec!["4|-1", "2|-2", "3|-3"],
        ),
        ("select -k as k, sum(id) from items group by k having k > 1 order by 1", vec!["-3|1", "-2|3"]),
        ("select -sum(k) as k from items group by k order by k+0", vec!["-1", "-2", "-3"]),
        ("select -sum(k) as k from items group by k order by sum(k)", vec!["-1", "-2", "-3"]),
        ("select max(-id) as id from items order by max(id)", vec!["-1"]),
        ("select sum(k) as k from items group by t order by sum(k) desc limit 1", vec!["3"]),
    ] {
        assert_eq!(db.rows(query).await, rows, "{query}");
    }
    let ungrouped = "select -k as id, count(*) from items group by -k order by id+0";
    assert_eq!(db.state(ungrouped).await, "42803");
}

#[tokio::test]
async fn distinct_rows_are_ordered_by_what_names_mean() {
    let db = items().await;
    for (query, rows) in [
        ("select distinct -id as id from items order by -id", vec!["-3", "-2", "-1"]),
        ("select distinct -id as id from items order by id", vec!["-3", "-2", "-1"]),
        ("select distinct on (id) -k as id from items order by id", vec!["-3", "-2", "-1"]),
        ("select distinct on (-id) -id as id from items order by -id", vec!["-3", "-2", "-1"]),
        ("select distinct on (id + 0) -id as id from items order by id + 0", vec!["-1", "-2", "-3"]),
        ("select distinct on (id % 2) -id as id from items order by id % 2, id + 0 desc", vec!["-2", "-3"]),
    ] {
        assert_eq!(db.rows(query).await, rows, "{query}");
    }
    assert_eq!(db.state("select distinct -id as id from items order by id + 0").await, "42P10");
    assert_eq!(db.state("select distinct on (x + 0) k as x from items order by x").await, "42703");
}

#[tokio::test]
async fn columns_keep_their_names_and_types_where_keys_are_computed() {
    let db = items().await;
    let prepared = db
        .prepare("select -id as id, lower(t), k, k as \"K\", 1.5, '{}'::json j from items order by id+0")
        .await;
    let names: Vec<_> =
        prepared.columns().unwrap().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["id", "lower", "k", "K", "?column?", "j"]);
    db.run("create table kept (id int primary key, k int)").await;
    db.run("insert into kept select -id as id, k from items order by id+0 limit 2").await;
    assert_eq!(db.rows("select id, k from kept order by id").await, ["-2|1", "-1|3"]);
    let given = "select -id as id from items where id < $1 order by id + $1";
    assert_eq!(db.rows_with(given, &[oribi_types::Value::Int32(3)]).await, ["-1", "-2"]);
}

#[tokio::test]
async fn grouped_rows_are_sorted_by_all_keys_whatever_order_they_come_in() {
    let db = Db::new();
    db.run("create table items (id int primary key, g text)").await;
    db.run("insert into items select i, chr(97 + i % 5) from generate_series(1, 23) as s(i)").await;
    let counts = ["5|b", "5|c", "5|d", "4|a", "4|e"];
    let ranks = ["1|b", "1|c", "1|d", "4|a", "4|e"];
    let counted = "select g, count(*) as c from items group by g";
    let ordered = format!("select c, g from ({counted} order by c desc limit 9) s");
    let ranked = format!("select rank() over (order by c desc) as r, g from ({counted}) s");
    for (query, rows) in [
        (format!("{ordered} order by c desc, g"), &counts[..]),
        (format!("{ranked} order by r, g"), &ranks),
        (
            "select rank() over (order by count(*) desc), g from items group by g order by 1, 2".to_owned(),
            &ranks,
        ),
        // What windows sort by.
        (
            format!("select row_number() over (order by r, g) as n, g from ({ranked}) s order by n"),
            &["1|b", "2|c", "3|d", "4|a", "5|e"],
        ),
        (
            format!(
                "select row_number() over (partition by r order by g) as n, r, g from ({ranked}) s order by g"
            ),
            &["1|4|a", "1|1|b", "2|1|c", "3|1|d", "2|4|e"],
        ),
        (
            format!(
                "select row_number() over (order by c, g) as n, c, g from \
                 (select c, g, row_number() over (order by c) as r from ({counted}) s) s where r > 0 order by n"
            ),
            &["1|4|a", "2|4|e", "3|5|b", "4|5|c", "5|5|d"],
        ),
        // And those who share their first keys, one of them with more.
        (
            format!(
                "select rank() over (partition by c order by -c) as k, \
                 row_number() over (partition by c order by -c, g desc) as n, g from ({counted}) s order by g"
            ),
            &["1|2|a", "1|3|b", "1|2|c", "1|1|d", "1|1|e"],
        ),
        // What aggregates take their rows by.
        (format!("select string_agg(g, '' order by r, g) from ({ranked}) s"), &["bcdae"]),
        (format!("select string_agg(g, '' order by c desc, g) from ({ordered}) s"), &["bcdae"]),
        (format!("select distinct on (r) r, g from ({ranked}) s order by r, g"), &["1|b", "4|a"]),
    ] {
        assert_eq!(db.rows(&query).await, rows, "{query}");
    }
}
