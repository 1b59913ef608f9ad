//! `generate_series` and `unnest` in `FROM`: their column is called as they are, or as their alias; what they do not take
//! is refused by name.

use crate::db::Db;

#[tokio::test]
async fn the_column_of_a_function_has_its_name_or_its_aliass() {
    let db = Db::new();
    for (query, rows) in [
        ("select x from unnest(array[7,8]) x", vec!["7", "8"]),
        ("select x.x from unnest(array[7,8]) as x", vec!["7", "8"]),
        ("select unnest from unnest(array[7,8])", vec!["7", "8"]),
        ("select y from unnest(array[7,8]) as x(y)", vec!["7", "8"]),
        (
            "select unnest, count(*) from unnest(array['a','b']) group by unnest order by 1",
            vec!["a|1", "b|1"],
        ),
        ("select * from unnest(array[1,2], array[3]) as u(a, b)", vec!["1|3", "2|"]),
        ("select x + y from unnest(array[1,2]) x, generate_series(3, 3) y order by 1", vec!["4", "5"]),
        ("select x from generate_series(1, 2) x", vec!["1", "2"]),
    ] {
        assert_eq!(db.rows(query).await, rows, "{query}");
    }
}

#[tokio::test]
async fn a_series_is_of_two_or_three_integers() {
    let db = Db::new();
    db.run("create table items (id int primary key)").await;
    for (series, rows) in [
        ("1, 3", vec!["1", "2", "3"]),
        ("3, 1, -1", vec!["3", "2", "1"]),
        ("1, length('abc')", vec!["1", "2", "3"]),
        ("1::int, 2::bigint", vec!["1", "2"]),
        ("null, 3", vec![]),
        ("null::int, 3", vec![]),
    ] {
        assert_eq!(db.rows(&format!("select * from generate_series({series})")).await, rows, "{series}");
    }
    for (series, state) in [
        ("1", "42883"),
        ("1, 2, 3, 4", "42883"),
        ("3, 1, 0", "22023"),
        ("1, 2.5", "0A000"),
        ("date '2024-01-01', date '2024-01-02', interval '1 day'", "0A000"),
        ("timestamp '2024-01-01', timestamp '2024-01-02', interval '1 day'", "0A000"),
        ("1, (select max(id) from items)", "0A000"),
        ("1, nowhere", "0A000"),
    ] {
        let query = format!("select * from generate_series({series})");
        assert_eq!(db.state(&query).await, state, "{series}");
        assert!(db.error(&query).await.error.message().contains("series") || state == "22023", "{series}");
    }
    for query in [
        "select * from items, generate_series(1, items.id)",
        "select * from items i cross join lateral generate_series(1, i.id)",
        "select * from generate_series(1, 2) with ordinality",
    ] {
        assert_eq!(db.state(query).await, "0A000", "{query}");
    }
}
