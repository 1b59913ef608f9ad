//! Values that come to one type, such as the results of a `CASE` or the columns of a `UNION`, come to it before anything is
//! computed of them: operators are those of PostgreSQL's common type, whichever value stands first.

use crate::db::Db;

/// Queries over the table `o`, and what PostgreSQL 15 answers: rows, or the SQLSTATE behind `!`. Numbers may have more digits.
const ANSWERS: &[(&str, &str)] = &[
    ("select v * case when k=1 then 1 else 0.5 end from o order by id", "10.00;1.250;"),
    ("select sum(case when k=1 then 1 else 0.5 end * v) from o", "11.250"),
    ("select sum(case when k=1 then 1 else 0.5 end) * 2 from o", "4.0"),
    ("select x + 1.5 from (select 1 as x union all select 2.5) u order by 1", "2.5;4.0"),
    (
        "select x / 2 from (select 1 as x union all select 2.5) u order by 1",
        "0.50000000000000000000;1.25000000000000000000",
    ),
    ("select x / 2 from (select 3 as x intersect select 3.0) u", "1.5000000000000000"),
    ("select x / 2 from (select 3 as x except select 4.0) u", "1.5000000000000000"),
    ("select case when id=1 then 1 else 3000000000 end + 1 from o order by id", "2;3000000001;3000000001"),
    ("select id * case when k=1 then 1 else 0.5 end from o order by id", "1;1.0;1.5"),
    ("select id + case when k=1 then 1 else a end from o order by id", "2;4.25;"),
    ("select case when v is null then 0 else v end * 2 from o order by id", "20.00;5.00;0"),
    (
        "select coalesce(x,0)+1 from (select 1 as x union all select 2.5 union all select null) u order by 1",
        "1;2;3.5",
    ),
    ("select max(x)+1 from (select 1 as x union all select 2.5) u", "3.5"),
    ("select sum(x), min(x) from (select 1 as x union all select 2.5) u", "3.5|1"),
    ("select sum(x)/3 from (select 1 as x union all select 3000000000) u", "1000000000.33333333"),
    ("select lag(id,1,0.5) over (order by id) from o order by id", "0.5;1;2"),
    ("select lag(id,1,2.7) over (order by id) + 1 from o order by id", "3.7;2;3"),
    ("select lead(k,1,1.5) over (order by id) from o order by id", "2;;1.5"),
    ("select lead(v,1,0) over (order by id) from o order by id", "2.50;;0"),
    ("select lag(v,1,0.125) over (order by id) from o order by id", "0.125;10.00;2.50"),
    ("select lag(id,1,3000000000) over (order by id) from o order by id", "3000000000;1;2"),
    ("select lag(id,1,1.5::float8) over (order by id) from o order by id", "1.5;1;2"),
    ("select lag(id,1,'7') over (order by id) from o order by id", "7;1;2"),
    ("select -9223372036854775808 / 10", "-922337203685477580"),
    ("select -9223372036854775808 + 1.5", "-9223372036854775806.5"),
    ("select -(-9223372036854775808)", "9223372036854775808"),
    ("select - 9223372036854775808 % 10", "-8"),
    ("select coalesce(null, k, 0.5) * 3 from o order by id", "3;6;1.5"),
    ("select coalesce(k, b) + 1 from o order by id", "2;3;"),
    (
        "select coalesce(k, 0.5) / 2 from o order by id",
        "0.50000000000000000000;1.00000000000000000000;0.25000000000000000000",
    ),
    (
        "select greatest(id, 1.5) / 2 from o order by id",
        "0.75000000000000000000;1.00000000000000000000;1.5000000000000000",
    ),
    ("select coalesce(case when k=1 then 1 else a end, 0.5) / 2 from o order by id", "0.5;1.125;0.25"),
    ("select coalesce(case when true then 1::smallint else null::float8 end, 0.5) / 2", "0.5"),
    (
        "select u::text from (select '00000000-0000-0000-0000-000000000001'::uuid as u \
         union select '00000000-0000-0000-0000-000000000001'::uuid) s",
        "00000000-0000-0000-0000-000000000001",
    ),
    ("select '2' * coalesce(0.5::numeric(12,4), null::float8)", "1"),
    ("select least(id, a) / 2 from o order by id", "0.5;1;1.5"),
    (
        "select nullif(id, 1.5) / 2 from o order by id",
        "0.50000000000000000000;1.00000000000000000000;1.5000000000000000",
    ),
    ("select nullif(k, b) + 1 from o order by id", "2;3;"),
    ("select nullif(v, 10) / 4 from o order by id", ";0.62500000000000000000;"),
    ("select (select 1 union all select 2.5 order by 1 desc limit 1) / 2", "1.25000000000000000000"),
    ("select (array[1, 2.5])[1] / 2", "0.50000000000000000000"),
    ("select case when id=1 then '3' else 1.5 end * 2 from o order by id", "6;3.0;3.0"),
    ("select case when id=1 then null else 1 end + 1 from o order by id", ";2;2"),
    (
        "select case when id=1 then null when id=2 then 3000000000 else 1 end + 1 from o order by id",
        ";3000000001;2",
    ),
    ("select x + '1.5' from (select 1 as x union all select 2.5) u order by 1", "2.5;4.0"),
    ("select round(case when k=1 then 1 else 0.55 end, 1) from o order by id", "1.0;0.6;0.6"),
    ("select -case when k=1 then 1 else 0.5 end from o order by id", "-1;-0.5;-0.5"),
    ("select abs(case when k=1 then 1 else -0.5 end) + 1 from o order by id", "2;1.5;1.5"),
    (
        "with c as (select 1 as x union all select 2.5) select x / 2 from c order by 1",
        "0.50000000000000000000;1.25000000000000000000",
    ),
    (
        "with c as (select case when k=1 then 1 else 0.5 end as x from o) select x / 2 from c order by 1",
        "0.25000000000000000000;0.25000000000000000000;0.50000000000000000000",
    ),
    (
        "with c as (select 1 as x), d as (select x from c union all select 2.5) select d.x / 2 from c, d order by 1",
        "0.50000000000000000000;1.25000000000000000000",
    ),
    (
        "select u.x / 2 from (select 1 as x union all select 2.5) u join o on o.id = 1 order by 1",
        "0.50000000000000000000;1.25000000000000000000",
    ),
    (
        "select x / 2 from ((select 1 as x union select 2) union all select 2.5) u order by 1",
        "0.50000000000000000000;1.00000000000000000000;1.25000000000000000000",
    ),
    ("select x / 2 from (select 1 as x union select 1.0) u", "0.50000000000000000000"),
    ("select x + 1 from (select id as x from o union all select a from o) u order by 1", "2;2.5;3;3.25;4;"),
    ("select x + 1 from (select r as x from o union all select v from o) u order by 1", "1.5;2.5;3.5;11;;"),
    (
        "select x / 2 from (values (1), (2.5)) t(x) order by 1",
        "0.50000000000000000000;1.25000000000000000000",
    ),
    ("select x / 2 from (values (case when true then 1 else 0.5 end)) t(x)", "0.50000000000000000000"),
    ("select x + 1 from (values (1), (3000000000)) t(x) order by 1", "2;3000000001"),
    ("select case when id=1 then s else id end / 2 from o order by id", "3;1;1"),
    ("select case when id=1 then r else v end + 1 from o order by id", "1.5;3.5;"),
    ("select case when id=1 then r else a end + 1 from o order by id", "1.5;3.25;"),
    (
        "select k, case when k=1 then 1 else 0.5 end + 1 from o group by k, case when k=1 then 1 else 0.5 end order by k",
        "1|2;2|1.5;|1.5",
    ),
    (
        "select sum(x) from (select case when k=1 then 1 else 0.5 end * count(*) as x from o group by case when k=1 then 1 else 0.5 end) u",
        "2.0",
    ),
    ("select sum(v) from o having sum(case when k=1 then 1 else 0.5 end) * 2 > 3.5", "12.50"),
    ("select id from o where case when k=1 then 1 else 0.5 end * 2 = 1 order by id", "2;3"),
    ("select id from o where v * case when k=1 then 1 else 0.5 end < 2 order by id", "2"),
    ("select id from o order by case when k=1 then 1 else 0.5 end * id, id", "1;2;3"),
    ("select sum(case when k=1 then 1 else 0.5 end * 2) over (order by id) from o order by id", "2;3.0;4.0"),
    ("select sum(case when k=1 then 1 else 0.5 end) over (order by id) * 2 from o order by id", "2;3.0;4.0"),
    (
        "with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select sum(n) / 2 from r",
        "7",
    ),
    (
        "with recursive r(n) as (select 1.0 union all select n * 2 from r where n < 500) select max(n) / 3 from r",
        "170.6666666666666667",
    ),
    (
        "with recursive r(n) as (select 1 union all select n * 1.5 from r where n < 5) select n from r",
        "!42804",
    ),
    (
        "with recursive r(n) as (select 1 union all select 3000000000 from r where n < 5) select n from r",
        "!42804",
    ),
    (
        "with recursive r(n) as (select 1.5 union all select (n + 1)::int from r where n < 5) select n from r order by 1",
        "1.5;3;4;5",
    ),
    (
        "with recursive r(n) as (select case when true then 1 else 0.5 end union all select n + 1 from r where n < 3) select n / 2 from r order by 1",
        "0.50000000000000000000;1.00000000000000000000;1.5000000000000000",
    ),
    (
        "with recursive r(n, m) as (select 1, 1 union all select n + 1, m * 2 from r where n < 4) select n, m from r order by 1",
        "1|1;2|2;3|4;4|8",
    ),
    (
        "with recursive r as (select id, k from o where id = 1 union all select o.id, o.k from o join r on o.id = r.id + 1) select id, k from r order by 1",
        "1|1;2|2;3|",
    ),
    ("select case when true then 1 else 0.5 end + case when true then 2 else 1.5::float8 end", "3"),
    ("select case when true then 1.5 else 1 end & 1", "!42883"),
    ("select case when true then 1 else 1.5 end & 1", "!42883"),
    ("select case when true then 1 else 2 end << 1", "2"),
    ("select 1 << case when true then 1 else 3000000000 end", "!42883"),
    ("select case when true then 5 else 0.5 end % 3", "2"),
    ("select mod(case when true then 5 else 0.5 end, 3)", "2"),
    ("select power(case when true then 5 else 0.5::float8 end, 2)", "25"),
    ("select avg(case when k=1 then 1 else 0.5 end) from o", "0.66666666666666666667"),
    ("select 7 / case when 1 = 1 then 2 else 2.0 end", "3.5000000000000000"),
    ("select 2147483647 + case when 1=1 then 1 else 3000000000 end", "2147483648"),
    ("select 2147483647 + case when 1=1 then 1 else 2 end", "!22003"),
    ("select x from (select 1 as x union all select 2.5) u where x + 0.5 = 3", "2.5"),
    ("select x * x from (select 1 as x union all select 2.5) u order by 1", "1;6.25"),
    ("select sum(x * 2) from (select 1 as x union all select 2.5) u group by x * 2 order by 1", "2;5.0"),
    (
        "select a.x + b.x from (select 1 as x union all select 2.5) a, (select 1 as x union all select 3000000000) b order by 1",
        "2;3.5;3000000001;3000000002.5",
    ),
    (
        "select case id when 1 then 1 when 2 then 2.5 else 3000000000 end / 2 from o order by id",
        "0.50000000000000000000;1.25000000000000000000;1500000000.00000000",
    ),
    ("select 1 where case when true then 1 else 0.5 end * 2.5 = 2.5", "1"),
    (
        "select 5 / x from (select 2 as x union all select null union all select 2.0) u order by 1",
        "2.5000000000000000;2.5000000000000000;",
    ),
    (
        "select u.x from (select 2 as x union all select 2.5) u where exists (select 1 from o where o.id / u.x = 1.2)",
        "2.5",
    ),
    ("select (select case when true then 1 else 0.5 end) / 2", "0.5"),
    (
        "select id, (select max(x) / 2 from (select 1 as x union all select 2.5) u) from o order by id",
        "1|1.25;2|1.25;3|1.25",
    ),
];

async fn db() -> Db {
    let db = Db::new();
    db.run(
        "CREATE TABLE o (id integer PRIMARY KEY, k integer, v numeric(10,2), a double precision, b bigint, r real, s smallint)",
    )
    .await;
    db.run("INSERT INTO o VALUES (1, 1, 10.00, 1.5, 3000000000, 0.5, 7), (2, 2, 2.50, 2.25, 5, 1.5, 8)")
        .await;
    db.run("INSERT INTO o (id) VALUES (3)").await;
    db
}

fn is_same(ours: &str, theirs: &str) -> bool {
    match (ours.parse::<f64>(), theirs.parse::<f64>()) {
        (Ok(ours), Ok(theirs)) => (ours - theirs).abs() <= 1e-13 * theirs.abs(),
        _ => ours == theirs,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_computed_of_a_choice_is_that_of_its_common_type() {
    let db = db().await;
    let mut wrong = Vec::new();
    for (sql, expected) in ANSWERS {
        let answer = match db.try_rows(sql, &[]).await {
            Ok(_) => db.rows(sql).await.join(";"),
            Err(error) => format!("!{} {error}", error.sqlstate.unwrap_or("none")),
        };
        let same = match expected.strip_prefix('!') {
            Some(state) => answer.starts_with(&format!("!{state}")),
            None => {
                let (ours, theirs): (Vec<&str>, Vec<&str>) =
                    (answer.split([';', '|']).collect(), expected.split([';', '|']).collect());
                ours.len() == theirs.len()
                    && ours.iter().zip(theirs).all(|(ours, theirs)| is_same(ours, theirs))
            }
        };
        if !same {
            wrong.push(format!("{sql}\n  expected {expected}\n  got      {answer}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), ANSWERS.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_is_computed_of_the_common_type() {
    let db = db().await;
    db.run("UPDATE o SET v = v + CASE WHEN k = 1 THEN 1 ELSE 1.5 END").await;
    assert_eq!(db.rows("SELECT v FROM o ORDER BY id").await, ["11.00", "4.00", ""]);
    db.run("INSERT INTO o (id, v) SELECT x * 2, x FROM (SELECT 5 AS x UNION ALL SELECT 5.5) u").await;
    assert_eq!(db.rows("SELECT v FROM o WHERE id > 3 ORDER BY id").await, ["5.00", "5.50"]);
    db.run("INSERT INTO o (id, v) VALUES (20, CASE WHEN true THEN 1 ELSE 0.5 END / 2)").await;
    assert_eq!(db.rows("SELECT v FROM o WHERE id = 20").await, ["0.50"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_among_the_choices_are_no_exception() {
    let db = db().await;
    let one = [oribi_types::Value::Int32(1)];
    for (sql, expected) in [
        ("SELECT CASE WHEN id = $1 THEN 1 ELSE 0.5 END * 2 FROM o WHERE id < 3 ORDER BY id", ["2.0", "1.0"]),
        ("SELECT x / 2 FROM (SELECT 1 AS x UNION ALL SELECT 2.5) u WHERE $1 = 1 ORDER BY 1", ["0.5", "1.25"]),
    ] {
        let rows = db.rows_with(sql, &one).await;
        let same = rows.iter().zip(expected).all(|(ours, theirs)| is_same(ours, theirs));
        assert!(same && rows.len() == 2, "{sql}: {rows:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recursive_term_that_would_be_rounded_is_refused() {
    let db = db().await;
    let sql =
        "WITH RECURSIVE r(n) AS (SELECT 1.5 UNION ALL SELECT n * 1.5 FROM r WHERE n < 5) SELECT n FROM r";
    assert_eq!(db.state(sql).await, "0A000");
}
