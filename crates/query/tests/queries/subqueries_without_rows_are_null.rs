//! The value of a subquery that finds no row is null, also where the selected column has no nulls.

use crate::db::Db;

async fn items() -> Db {
    let db = Db::new();
    db.run("create table items (id int primary key, k int not null, n int)").await;
    db.run("insert into items values (1, 10, 1), (2, 20, null), (3, 20, 3)").await;
    db
}

#[tokio::test]
async fn a_subquery_without_rows_is_null_to_every_question() {
    let db = items().await;
    for (expression, answer) in [
        ("(select id from items where id = 77) is null", "true"),
        ("(select id from items where id = 77) is not null", "false"),
        ("(select id from items where id = 2) is null", "false"),
        ("coalesce((select id from items where id = 77), 0)", "0"),
        ("coalesce((select id from items where id = 3), 0)", "3"),
        ("case when (select k from items where id = 77) is null then 'none' else 'some' end", "none"),
        ("(select id from items where id = 77) is distinct from 1", "true"),
        ("nullif((select id from items where id = 77), 1) is null", "true"),
        ("(select (select id from items where id = 77)) is null", "true"),
        ("(select count(*) from items having count(*) > 5) is null", "true"),
        ("(select k from items group by k having count(*) > 5) is null", "true"),
        ("(select 1 where false) is null", "true"),
        ("(select 1 limit 0) is null", "true"),
        ("(select 1) is null", "false"),
        ("(select case when true then id end from items where id = 77) is null", "true"),
        ("(select count(*) from items where id = 77) is null", "false"),
        ("(select count(*) from items where id = 77) + 1", "1"),
        ("concat('[', (select id::text from items where id = 77), ']')", "[]"),
    ] {
        assert_eq!(db.rows(&format!("select {expression}")).await, [answer], "{expression}");
    }
    let rows = db.rows("select (select id from items where id = 77), id from items where id = 1").await;
    assert_eq!(rows, ["|1"]);
}

#[tokio::test]
async fn conditions_see_that_a_subquery_has_no_row() {
    let db = items().await;
    for (condition, ids) in [
        ("(select id from items where id = 77) is null", vec!["1", "2", "3"]),
        ("coalesce((select id from items where id = 77), 0) = 0", vec!["1", "2", "3"]),
        ("id = coalesce((select id from items where id = 77), 2)", vec!["2"]),
        ("id > (select id from items where id = 77)", vec![]),
        ("id = (select id from items where id = 3)", vec!["3"]),
        ("(select count(*) from items i where i.k = items.k having count(*) > 1) is null", vec!["1"]),
        ("(select max(i.id) from items i where i.n = items.id) is null", vec!["2"]),
        ("(select count(*) from items i where i.n = items.id) = 0", vec!["2"]),
        ("id in ((select id from items where id > 1))", vec!["2", "3"]),
        ("id not in ((select id from items where id > 1))", vec!["1"]),
    ] {
        let query = format!("select id from items where {condition} order by id");
        assert_eq!(db.rows(&query).await, ids, "{condition}");
    }
    let outer = "select s.found is null from (select (select id from items where id = 77) as found) s";
    assert_eq!(db.rows(outer).await, ["true"]);
}

#[tokio::test]
async fn writes_take_the_null_of_a_subquery_without_rows() {
    let db = items().await;
    db.run("insert into items values (4, 40, (select id from items where id = 77))").await;
    db.run("insert into items select 5, 50, (select k from items where id = 77)").await;
    db.run("update items set n = (select id from items where id = 77) where id = 1").await;
    db.run("update items set k = coalesce((select k from items where id = 77), 99) where id = 2").await;
    db.run("delete from items where (select id from items where id = 77) is not null").await;
    let rows = db.rows("select id, k, n from items order by id").await;
    assert_eq!(rows, ["1|10|", "2|99|", "3|20|3", "4|40|", "5|50|"]);
    assert_eq!(
        db.state("update items set k = (select id from items where id = 77) where id = 1").await,
        "23502"
    );
}
