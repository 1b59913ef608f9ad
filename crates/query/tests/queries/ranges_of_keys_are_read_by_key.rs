//! Filters on leading key columns: the rows are read by key, in key order, and are those of a scan.
//!
//! More cases: `PROPTEST_CASES=1000 cargo test -p oribi-query --test queries -- ranges_of_keys`.

use crate::db::Db;
use proptest::prelude::*;

async fn events() -> Db {
    let db = Db::new();
    db.run("create table e (u int, at bigint, s text, n bigint, primary key (u, at)) partition by hash (u) partitions 4")
        .await;
    db.run("insert into e select value / 1000, value % 1000, 'old', value from generate_series(0, 49999) as g(value)")
        .await;
    db.flush("e");
    db.run("insert into e select 7, value, 'new', -value from generate_series(990, 1009) as g(value) on conflict (u, at) do update set s = excluded.s, n = excluded.n").await;
    db.run("delete from e where u = 7 and at = 995").await;
    db
}

#[tokio::test]
async fn a_prefix_of_the_key_is_read_from_its_tablet() {
    let db = events().await;
    let sql = "select at, s from e where u = 7 and at >= 993 and at < 1003";
    let plan = db.explain(&format!("explain {sql}")).await;
    assert!(plan.contains("key range of public.e"), "{plan}");
    assert!(plan.contains("keys=[u = 7 AND at >= 993 AND at < 1003], tablets=1"), "{plan}");
    let rows: Vec<String> = (993..1003).filter(|at| *at != 995).map(|at| format!("{at}|new")).collect();
    assert_eq!(db.rows(sql).await, rows, "in key order, whatever they lie in");
    assert_eq!(db.rows("select count(*), min(s), max(s) from e where u = 7").await, ["1009|new|old"]);
    let analyzed = db.explain("explain analyze select * from e where u = 8 and at between 10 and 19").await;
    assert!(analyzed.contains("scan of public.e: memtable 0 rows, 0 bytes"), "{analyzed}");
    assert!(analyzed.contains("sstables 10 rows"), "{analyzed}");
    assert!(analyzed.contains("in 1 files"), "{analyzed}");
}

#[tokio::test]
async fn key_order_needs_no_sort() {
    let db = events().await;
    for sql in [
        "select at from e where u = 7 and at > 990 order by at limit 5",
        "select at, u from e where u = 7 order by u, at limit 5",
        "select * from e where u > 7 order by u, at limit 5",
        "select s, n from e order by u, at limit 5",
        "select x.when from (select u, at as when from e) x where x.u = 7 and x.when > 3 order by x.when limit 3",
    ] {
        let plan = db.explain(&format!("explain {sql}")).await;
        assert!(plan.contains("key range of") && !plan.contains("SortExec"), "{sql}: {plan}");
    }
    let page = "select u, at from e where u > 7 order by u, at limit 3";
    assert_eq!(db.rows(page).await, ["8|0", "8|1", "8|2"], "tablets are merged");
    assert_eq!(
        db.rows("select at from e where u = 7 and at > 993 order by at limit 2").await,
        ["994", "996"]
    );
    assert_eq!(db.rows("select u, at from e order by u, at offset 1 limit 2").await, ["0|1", "0|2"]);
    for sql in [
        "select u, at from e where u > 7 and n % 5 = 0 order by u, at limit 3",
        "select u, at from e where u > 7 order by at, u limit 3",
        "select u, at from e where u > 7 order by u desc, at limit 3",
        "select u, at from e where u > 7",
    ] {
        let plan = db.explain(&format!("explain {sql}")).await;
        assert!(!plan.contains("key range of"), "many rows would be read for few: {sql}: {plan}");
    }
}

#[tokio::test]
async fn writes_find_their_rows_by_key() {
    let db = events().await;
    assert_eq!(db.tag("update e set s = 'up' where u = 7 and at < 3").await, "UPDATE 3");
    assert_eq!(db.tag("delete from e where u = 7 and at between 1 and 2").await, "DELETE 2");
    assert_eq!(db.rows("select at, s from e where u = 7 and at < 5").await, ["0|up", "3|old", "4|old"]);
}

#[tokio::test]
async fn an_open_range_keeps_its_snapshot() {
    use futures::TryStreamExt;
    use oribi_session::sql::Outcome;
    let db = Db::new();
    db.run("create table t (k bigint primary key, n bigint)").await;
    db.run("insert into t select value, 1 from generate_series(1, 3000) as g(value)").await;
    let sql = "select k, n from t where k > 100";
    assert!(db.explain(&format!("explain {sql}")).await.contains("key range of"));
    let Outcome::Rows(open) = db.outcome(sql, &[]).await.unwrap() else { panic!("rows") };
    db.run("update t set n = 2").await;
    db.run("delete from t where k < 1000").await;
    db.flush("t");
    db.compact("t");
    let batches: Vec<arrow::array::RecordBatch> = open.try_collect().await.unwrap();
    assert_eq!(batches.iter().map(|b| b.num_rows()).sum::<usize>(), 2900);
    for batch in &batches {
        let n = arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(batch.column(1));
        assert!(n.values().iter().all(|n| *n == 1), "an open range saw a later write");
    }
}

/// A type of key column, and values of it in ascending order, as SQL has them.
const TYPES: [(&str, [&str; 5]); 7] = [
    ("int", ["-2147483648", "-1", "0", "7", "2147483647"]),
    ("bigint", ["-9000000000", "-256", "-1", "255", "256"]),
    ("text", ["''", "'a'", "'a' || chr(1)", "'ab'", "'ä'"]),
    ("bytea", ["'\\x'", "'\\x00'", "'\\x0000'", "'\\x0001'", "'\\xff'"]),
    ("date", ["'1815-06-18'", "'1969-12-31'", "'1970-01-01'", "'1999-12-31'", "'2262-01-01'"]),
    ("numeric(10,2)", ["-99999999.99", "-0.01", "0", "0.01", "3.14"]),
    ("boolean", ["false", "false", "true", "true", "true"]),
];

#[derive(Clone, Debug)]
enum Step {
    /// Positions of the values of the key columns.
    Upsert([usize; 3]),
    Delete([usize; 3]),
    DeleteWhere(usize),
    Flush,
    Compact,
    Query(Query),
}

/// `where` some leading columns have values and the next is compared with one or two.
#[derive(Clone, Debug)]
struct Query {
    values: [usize; 3],
    equal: usize,
    bounds: Vec<(&'static str, usize)>,
    /// A filter that is none of the key.
    other: bool,
    limit: Option<usize>,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || prop::array::uniform3(0..5usize);
    let op = prop::sample::select(vec!["<", "<=", ">", ">=", "="]);
    let bounds = prop::collection::vec((op, 0..5usize), 0..3);
    let query = (key(), 0..4usize, bounds, prop::bool::weighted(0.2), prop::option::of(0..6usize));
    prop_oneof![
        12 => key().prop_map(Step::Upsert),
        4 => key().prop_map(Step::Delete),
        1 => (0..5usize).prop_map(Step::DeleteWhere),
        2 => Just(Step::Flush),
        1 => Just(Step::Compact),
        8 => query.prop_map(|(values, equal, bounds, other, limit)| {
            Step::Query(Query { values, equal, bounds, other, limit })
        }),
    ]
}

struct Subject {
    db: Db,
    types: [usize; 3],
    inserted: usize,
}

impl Subject {
    async fn new(types: [usize; 3], partitions: Option<usize>) -> Self {
        let db = Db::new();
        let [a, b, c] = types.map(|t| TYPES[t].0);
        let partitioned =
            partitions.map_or(String::new(), |n| format!(" partition by hash (a) partitions {n}"));
        db.run(&format!(
            "create table t (v bigint, a {a}, b {b}, c {c}, primary key (a, b, c)){partitioned}"
        ))
        .await;
        Subject { db, types, inserted: 0 }
    }

    fn value(&self, column: usize, value: usize) -> &'static str {
        TYPES[self.types[column]].1[value]
    }

    fn key(&self, key: [usize; 3]) -> String {
        (0..3).map(|column| self.value(column, key[column])).collect::<Vec<_>>().join(", ")
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Upsert(key) => {
                self.inserted += 1;
                let row = format!("{}, {}", self.inserted, self.key(*key));
                let conflict = "on conflict (a, b, c) do update set v = excluded.v";
                self.db.run(&format!("insert into t values ({row}) {conflict}")).await;
            }
            Step::Delete(key) => {
                let [a, b, c] = [0, 1, 2].map(|column| self.value(column, key[column]));
                self.db.run(&format!("delete from t where a = {a} and b = {b} and c = {c}")).await;
            }
            Step::DeleteWhere(a) => {
                self.db.run(&format!("delete from t where a = {}", self.value(0, *a))).await;
            }
            Step::Flush => self.db.flush("t"),
            Step::Compact => self.db.compact("t"),
            Step::Query(query) => self.query(query).await,
        }
    }

    /// The rows of a query by key are those of the same query over all rows, which is a scan.
    async fn query(&self, query: &Query) {
        let columns = ["a", "b", "c"];
        let mut filters: Vec<(usize, String)> = Vec::new();
        for column in 0..query.equal.min(3) {
            filters.push((column, format!("= {}", self.value(column, query.values[column]))));
        }
        if query.equal < 3 {
            let compared = |(op, value): &(&str, usize)| {
                (query.equal, format!("{op} {}", self.value(query.equal, *value)))
            };
            filters.extend(query.bounds.iter().map(compared));
        }
        let sql = |table: &str| {
            let mut conditions: Vec<String> =
                filters.iter().map(|(column, filter)| format!("{} {filter}", columns[*column])).collect();
            conditions.extend(query.other.then(|| "v % 2 = 0".to_owned()));
            let condition = if conditions.is_empty() { "true".to_owned() } else { conditions.join(" and ") };
            let limit = query.limit.map_or(String::new(), |n| format!(" limit {n}"));
            format!("select a, b, c, v from {table} where {condition} order by a, b, c{limit}")
        };
        let by_key = sql("t");
        // No filter goes below a limit.
        let scanned = sql("(select * from t limit 1000000) x");
        let rows = self.db.rows(&by_key).await;
        assert_eq!(rows, self.db.rows(&scanned).await, "{by_key}");
        let plan = self.db.explain(&format!("explain {scanned}")).await;
        assert!(!plan.contains("key range"), "{plan}");
        let bounded = !filters.is_empty() || (query.limit.is_some() && !query.other);
        let plan = self.db.explain(&format!("explain {by_key}")).await;
        let none = plan.contains("EmptyExec") || plan.contains("PlaceholderRowExec");
        assert!(
            !bounded || none || plan.contains("key range") || plan.contains("point read"),
            "{by_key}: {plan}"
        );
    }
}

#[tokio::test]
async fn empty_tablets_are_not_read() {
    let db = Db::new();
    db.run("create table t (a bigint, b bigint, primary key (a, b)) partition by hash (a) partitions 8")
        .await;
    let first = "select a, b from t order by a, b limit 3";
    assert_eq!(db.rows(first).await, [""; 0], "there is none that has rows");
    db.run("insert into t values (1, 1), (1, 2)").await;
    let plan = db.explain(&format!("explain {first}")).await;
    assert!(plan.contains("tablets=8 of 8") && !plan.contains("SortPreservingMergeExec"), "{plan}");
    assert_eq!(db.rows(first).await, ["1|1", "1|2"]);
    db.flush("t");
    db.run("insert into t select value, 0 from generate_series(2, 40) as g(value)").await;
    let plan = db.explain(&format!("explain {first}")).await;
    assert!(plan.contains("SortPreservingMergeExec"), "now others have some: {plan}");
    assert_eq!(db.rows(first).await, ["1|1", "1|2", "2|0"]);
    let nowhere = "select a, b from t where a = 1 and a > 1 order by a, b";
    assert_eq!(db.rows(nowhere).await, [""; 0], "conditions leave no tablet at all");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn rows_by_key_are_those_of_a_scan(
        types in prop::array::uniform3(0..TYPES.len()),
        partitions in prop::option::of(1..4usize),
        steps in prop::collection::vec(step(), 20..60),
    ) {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let mut subject = Subject::new(types, partitions).await;
            for step in &steps {
                subject.step(step).await;
            }
        });
    }
}
