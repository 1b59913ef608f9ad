//! What is grouped by a table's primary key may show the table's other columns, as in PostgreSQL; what is grouped by
//! anything else may not.

use crate::db::Db;

async fn shop() -> Db {
    let db = Db::new();
    db.run("create table person (id bigint primary key, name text, data jsonb, note json)").await;
    db.run("create table item (person bigint, number bigint, cost bigint, primary key (person, number))")
        .await;
    db.run("insert into person values (1, 'ada', '{\"a\": 1}', '{}'), (2, 'bo', null, null), (3, 'cy', null, null)").await;
    db.run("insert into item values (1, 1, 10), (1, 2, 20), (2, 1, 5)").await;
    db
}

#[tokio::test]
async fn other_columns_are_those_of_the_row() {
    let db = shop().await;
    let sums =
        "select p.name, sum(cost) from person p join item i on i.person = p.id group by p.id order by p.name";
    assert_eq!(db.rows(sums).await, ["ada|30", "bo|5"]);
    let all = "select p.*, count(i.person) from person p left join item i on i.person = p.id group by p.id having p.name <> 'bo' order by p.id";
    assert_eq!(db.rows(all).await, ["1|ada|{\"a\": 1}|{}|2", "3|cy|||0"]);
    let absent = "select p.name, count(*) from item i left join person p on p.id = i.person + 1 group by p.id order by 1";
    assert_eq!(db.rows(absent).await, ["bo|2", "cy|1"]);
    let of_two = "select number, cost from item group by person, number order by cost";
    assert_eq!(db.rows(of_two).await, ["1|5", "1|10", "2|20"]);
    assert_eq!(
        db.rows("select id, count(*) from person group by id order by id").await,
        ["1|1", "2|1", "3|1"]
    );
}

#[tokio::test]
async fn what_does_not_follow_from_a_key_is_refused() {
    let db = shop().await;
    for sql in [
        "select name from person group by data",
        "select cost from item group by person",
        "select p.name from person p join item i on i.person = p.id group by i.person",
        "select x.name from (select * from person) x group by x.id",
        "with x as (select * from person) select name from x group by id",
        "select x.s from (select person, sum(cost) as s from item group by person) x group by x.person",
    ] {
        assert_eq!(db.state(sql).await, "42803", "{sql}");
    }
}

#[tokio::test]
async fn rows_of_one_key_are_one_but_others_repeat() {
    let db = shop().await;
    assert_eq!(db.rows("select distinct id, name from person order by id").await.len(), 3);
    assert_eq!(
        db.rows("select distinct p.id from person p join item i on i.person = p.id order by 1").await,
        ["1", "2"]
    );
    assert_eq!(db.rows("select count(*) from item i join person p on p.id = i.person").await, ["3"]);
    assert_eq!(db.rows("select count(*) from item i left join person p on p.id = i.person").await, ["3"]);
    assert_eq!(db.rows("select count(*) from person p left join item i on p.id = i.person").await, ["4"]);
    assert_eq!(db.rows("select distinct person from item order by 1").await, ["1", "2"]);
}
