//! What a scan leaves out that joins do not want makes no difference to their rows.

use crate::db::Db;

/// Far more keys than are told one by one, some of them NULL, and rows of both sides without a partner.
const ROWS: &str = "select n,
    case when n % 11 = 0 then null else (n * 7 % 9001 - 4500)::smallint end,
    case when n % 13 = 0 then null else (n * 7 % 9001 - 4500)::int end,
    case n when 1 then 9223372036854775807 when 2 then -9223372036854775808 else n * 7 % 9001 * 5 end,
    (n * 7 % 9001)::bigint * 1000000007,
    date '1970-01-01' + (n * 7 % 9001 - 4500)::int,
    case when n % 17 = 0 then null else 'key ' || n * 7 % 9001 end";

#[tokio::test]
async fn joins_have_the_same_rows() {
    let db = Db::new();
    for (table, rows) in [("few", "generate_series(1, 900)"), ("many", "generate_series(401, 4400)")] {
        db.run(&format!(
            "create table {table} (id bigint primary key, s smallint, i int, b bigint, f bigint, d date, t text)"
        ))
        .await;
        db.run(&format!("insert into {table} {ROWS} from {rows} as g(n)")).await;
        db.flush(table);
    }
    // Every key of the one is one of the other's, or nearly none is.
    db.run("insert into many select id + 100000, s, i, b, f, d, t from few where id % 3 = 0").await;
    for key in ["s", "i", "b", "f", "d", "t", "s i", "t d"] {
        let keys: Vec<&str> = key.split(' ').collect();
        let equal: Vec<_> = keys.iter().map(|key| format!("few.{key} = many.{key}")).collect();
        let within = keys.iter().map(|key| format!("few.{key} <= many.{key} and few.{key} >= many.{key}"));
        let (equal, within) = (equal.join(" and "), Vec::from_iter(within).join(" and "));
        for query in [
            "select count(*), sum(few.id), sum(many.id) from few join many on KEYS where few.id % 5 < 3",
            "select count(*), sum(few.id), sum(many.id) from few left join many on KEYS",
            "select count(*), sum(few.id), sum(many.id) from few right join many on KEYS",
            "select count(*), sum(few.id), sum(many.id) from few full join many on KEYS",
            "select count(*), sum(id) from many where exists (select from few where KEYS and few.id % 5 < 3)",
            "select count(*), sum(id) from many where not exists (select from few where KEYS and few.id % 5 < 3)",
            "select count(*), sum(id) from few where not exists (select from many where KEYS)",
        ] {
            let (hashed, looped) = (query.replace("KEYS", &equal), query.replace("KEYS", &within));
            let plans = [
                db.explain(&format!("explain {hashed}")).await,
                db.explain(&format!("explain {looped}")).await,
            ];
            assert!(plans[0].contains("HashJoinExec") && !plans[1].contains("HashJoinExec"), "{plans:?}");
            assert_eq!(db.rows(&hashed).await, db.rows(&looped).await, "{hashed}");
        }
    }
}

#[tokio::test]
async fn a_join_in_partitions_has_the_same_rows() {
    let db = Db::new();
    // So many rows that neither side is gathered.
    for (table, rows) in [("a", 700_000), ("b", 800_000)] {
        db.run(&format!("create table {table} (id bigint primary key, k bigint, t text)")).await;
        let series = format!("generate_series(1, {rows}) as g(n)");
        db.run(&format!("insert into {table} select n, n * 3, 'text ' || n from {series}")).await;
        db.flush(table);
    }
    let sql = "select count(*), sum(a.id), sum(b.id) from a join b using (k) where a.id % 10 in (1, 2, 7)";
    let plan = db.explain(&format!("explain {sql}")).await;
    assert!(plan.contains("mode=Partitioned"), "{plan}");
    let sum: u64 = (1..=700_000).filter(|id| matches!(id % 10, 1 | 2 | 7)).sum();
    assert_eq!(db.rows(sql).await, [format!("210000|{sum}|{sum}")]);
    // Again as prepared, and with texts.
    let prepared = db
        .rows_with(
            "select count(*), sum(a.id) from a join b using (t) where a.id % 10 = $1",
            &[crate::db::int(7)],
        )
        .await;
    let sum: u64 = (1..=700_000).filter(|id| id % 10 == 7).sum();
    assert_eq!(prepared, [format!("70000|{sum}")]);
    let plan = db.explain(&format!("explain analyze {sql}")).await;
    let scan = plan.lines().find(|line| line.contains("DataSourceExec: scan of public.b")).unwrap();
    assert!(scan.contains("output_rows=210.0 K"), "others are left out: {scan}");
}

#[tokio::test]
async fn scans_below_several_joins_have_the_same_rows() {
    let db = Db::new();
    for (table, rows) in [("s", 1000), ("o", 150_000), ("l", 300_000), ("x", 100_000)] {
        db.run(&format!("create table {table} (id bigint primary key, a bigint, b bigint, t text)")).await;
        let series = format!("generate_series(1, {rows}) as g(n)");
        db.run(&format!(
            "insert into {table} select n, n * 7 % 1009, n * 11 % 100003, 'text ' || n from {series}"
        ))
        .await;
        db.flush(table);
    }
    // One is asked by two joins, one is the first side of a join and asked by another.
    let sql = "select count(*), sum(l.id), sum(x.id) from s join o on o.a = s.id join l on l.a = o.a and l.id = o.id join x on x.id = o.b
        where s.b < 5000 and x.a % 3 = 1";
    let (mut count, mut sum, mut sum_x) = (0, 0, 0);
    for id in 1..=150_000_i64 {
        let (s, x) = (id * 7 % 1009, id * 11 % 100_003);
        let is_s = (1..=1000).contains(&s) && s * 11 % 100_003 < 5000;
        if is_s && (1..=100_000).contains(&x) && x * 7 % 1009 % 3 == 1 {
            (count, sum, sum_x) = (count + 1, sum + id, sum_x + x);
        }
    }
    for _ in 0..5 {
        assert_eq!(db.rows(sql).await, [format!("{count}|{sum}|{sum_x}")]);
    }
}

#[tokio::test]
async fn a_recursive_query_joins_what_it_has_found_by_one_thread() {
    let db = Db::with_one_thread();
    db.run("create table t (id bigint primary key, parent bigint)").await;
    db.run("insert into t select n, n / 2 from generate_series(1, 3000) as g(n)").await;
    let sql = "with recursive r as (select id from t where id = 1 union all select t.id from r join t on t.parent = r.id) select count(*), sum(id) from r";
    assert_eq!(db.rows(sql).await, ["3000|4501500"]);
}

/// Such a join goes by the unique key alone, and tells it to a scan that has not the others.
#[tokio::test]
async fn a_join_by_a_unique_key_and_more_has_the_same_rows() {
    let db = Db::new();
    for sql in [
        "create table suppliers (id bigint primary key, nation int, part int, rate double precision)",
        "create table orders (id bigint primary key, nation int, rate double precision)",
        "create table lines (id bigint primary key, an_order bigint, supplier bigint, part int)",
        "create table offers (supplier bigint, part int, nation int, primary key (supplier, part))",
        "insert into suppliers select n, n % 5, n % 3, n % 2 from generate_series(1, 200) as g(n)",
        "insert into orders select n, nullif(n % 6, 5), n % 2 from generate_series(1, 3000) as g(n)",
        "insert into lines select n, n % 3001, n * 7 % 250, n % 4 from generate_series(1, 9000) as g(n)",
        "insert into offers select id, part, nation from suppliers",
    ] {
        db.run(sql).await;
    }
    let lines = "from lines join orders on orders.id = lines.an_order";
    for (joined, keys, is_alone) in [
        ("suppliers", "suppliers.id = lines.supplier and suppliers.nation = orders.nation", true),
        ("suppliers", "suppliers.nation = orders.nation and lines.supplier = suppliers.id", true),
        ("suppliers", "suppliers.id = lines.supplier and suppliers.rate = orders.rate", false),
        ("suppliers", "suppliers.part = lines.part and suppliers.nation = orders.nation", false),
        ("suppliers", "suppliers.id = lines.supplier and suppliers.nation = lines.part", false),
        (
            "offers",
            "offers.supplier = lines.supplier and offers.part = lines.part and offers.nation = orders.nation",
            true,
        ),
    ] {
        for sums in ["count(*), sum(lines.id)", "count(*), sum(lines.id), min(JOINED.nation)"] {
            let sums = sums.replace("JOINED", joined);
            let query = format!("select {sums} {lines} join {joined} on {keys} where orders.id % 10 < 7");
            let plan = db.explain(&format!("explain {query}")).await;
            let by_more = plan.lines().any(|line| {
                let on = line.split(" on=[").nth(1).and_then(|on| on.split(']').next()).unwrap_or_default();
                on.contains("nation") || on.contains("rate")
            });
            assert_eq!(by_more, !is_alone, "{plan}");
            let looped = query.replace(keys, &keys.replace(" = ", " - 1 = -1 + "));
            assert_eq!(db.rows(&query).await, db.rows(&looped).await, "{query}");
        }
    }
    // Both sides have a column of the name, and one of them no table.
    let twice = "select count(*), sum(id) from (select id, id % 2 as part from orders)
        where part in (select offers.part from offers where offers.supplier = id)";
    let once = "select count(*), sum(id) from suppliers where id % 2 = part";
    assert_eq!(db.rows(twice).await, db.rows(once).await);
}
