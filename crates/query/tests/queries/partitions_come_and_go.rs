//! Partitions by hash and range: defined, changed, shown, and left out by scans that need them not.

use crate::db::Db;
use futures::TryStreamExt;
use oribi_session::sql::Outcome;
use oribi_types::{ErrorKind, Partitioning};
use proptest::prelude::*;

/// Per range 4 × 2 tablets.
const EVENTS: &str = "create table e (host text, kind int, at bigint, n bigint, primary key (host, kind, at))
    partition by hash (host) partitions 4, hash (kind) partitions 2, range (at) (
        partition values < 10, partition 10 <= values < 20, partition value = 30, partition 40 <= values)";

async fn events() -> Db {
    let db = Db::new();
    db.run(EVENTS).await;
    db
}

#[tokio::test]
async fn defined_and_shown() {
    let db = events().await;
    let partitioning = db.table("e").definition().partitioning.clone();
    assert_eq!((partitioning.hash_dimensions().len(), partitioning.ranges().len()), (2, 4));
    assert_eq!(partitioning.tablets(), 32);
    let shown = ["VALUES < 10", "10 <= VALUES < 20", "VALUE = 30", "40 <= VALUES"];
    assert_eq!(db.rows("show range partitions e").await, shown);
    assert_eq!(db.rows("SHOW RANGE PARTITIONS public.e").await, shown);
    assert!(db.explain("show range partitions e").await.contains("RANGE (at)"));
    let tablets = db.rows("show partitions e").await;
    assert_eq!(tablets.len(), 32);
    assert!(tablets[13].ends_with("|2, 1|10 <= VALUES < 20"), "{}", tablets[13]);
    assert_eq!(db.state("show range partitions nope").await, "42P01");
    assert_eq!(db.rows("show application_name").await.len(), 1, "a setting is shown as before");

    let made = db.rows("show create table e").await.join("\n");
    db.run("alter table e rename to f").await;
    db.run(&made).await;
    assert_eq!(db.table("e").definition().partitioning, partitioning);
    db.run(
        "create table plain (k int primary key, v numeric(5,2) not null default 1.5) with (ttl = '1 day')",
    )
    .await;
    let made = db.rows("show create table plain").await.join("\n");
    assert_eq!(
        made,
        "CREATE TABLE public.plain (\nk integer NOT NULL,\nv numeric(5,2) NOT NULL DEFAULT 1.50,\nPRIMARY KEY (k)\n)\n\
         WITH (durability = 'sync', ttl = '86400000ms')"
    );
    assert!(db.rows("show range partitions plain").await.is_empty());
    assert_eq!(db.table("plain").definition().partitioning, Partitioning::none());
}

#[tokio::test]
async fn of_all_kinds_of_columns() {
    let db = Db::new();
    db.run(
        "create table d (day date, name text, amount numeric(9,2), primary key (day, name, amount))
         partition by hash (amount) partitions 3, range (name, day) (
            partition values < ('a''b', '2024-01-01'),
            partition ('a''b', '2024-01-01') <= values <= ('b', '2024-12-31'),
            partition ('c', '2025-01-01') < values hash (amount) partitions 5,
            partition value = ('bb', '2025-01-01'))",
    )
    .await;
    let shown = [
        "VALUES < ('a''b', '2024-01-01')",
        "('a''b', '2024-01-01') <= VALUES < ('b', '2025-01-01')",
        "VALUE = ('bb', '2025-01-01')",
        "('c', '2025-01-02') <= VALUES HASH (amount) PARTITIONS 5",
    ];
    assert_eq!(db.rows("show range partitions d").await, shown);
    let definition = db.table("d").definition();
    let made = db.rows("show create table d").await.join("\n");
    db.run("drop table d").await;
    db.run(&made).await;
    assert_eq!(db.table("d").definition().partitioning, definition.partitioning);
    db.run("insert into d values ('2024-05-05', 'aa', 1.5), ('2024-05-05', 'b', 1.5)").await;
    db.run("insert into d values ('2025-01-02', 'c', 2.5)").await;
    assert_eq!(db.rows("select name, amount from d order by name").await, ["aa|1.50", "b|1.50", "c|2.50"]);
    assert_eq!(db.rows("select name from d where amount = 2.5").await, ["c"]);
    let error = db.error("insert into d values ('2025-01-01', 'c', 2.5)").await;
    assert_eq!(error.error.kind(), ErrorKind::NotCovered);
}

#[tokio::test]
async fn ranges_are_added_and_dropped() {
    let db = events().await;
    let row = |at: i64| format!("insert into e values ('h', 1, {at}, 0)");
    db.run(&row(15)).await;
    let error = db.error(&row(25)).await;
    assert_eq!(error.error.message(), "no partition of table \"e\" covers key (h, 1, 25)");
    assert_eq!(error.error.kind(), ErrorKind::NotCovered);
    assert_eq!(db.tag("update e set n = 1 where host = 'h' and kind = 1 and at = 25").await, "UPDATE 0");
    assert_eq!(db.tag("delete from e where at = 25").await, "DELETE 0");
    assert_eq!(db.tag("alter table e add range partition 20 <= values < 30").await, "ALTER TABLE");
    db.run(&row(25)).await;
    db.flush("e");
    db.run(&row(26)).await;
    for (sql, state) in [
        ("alter table e add range partition 20 <= values < 30", "42P07"),
        ("alter table e add range partition 25 <= values < 27", "42P17"),
        ("alter table e add range partition 35 <= values <= 40", "42P17"),
        ("alter table e add range partition 35 <= values < 35", "42P17"),
        ("alter table e add range partition 9223372036854775807 < values", "42P17"),
        ("alter table e drop range partition values < 11", "42704"),
        ("alter table e add range partition values < ('a', 1)", "42P17"),
        ("alter table e add range partition value = null", "42P17"),
        ("alter table e add range partition value = 'x'", "22P02"),
        ("alter table nope add range partition values < 1", "42P01"),
        ("alter table e add partition (5)", "0A000"),
    ] {
        assert_eq!(db.state(sql).await, state, "{sql}");
    }
    db.session.take_warnings();
    db.run("alter table e add if not exists range partition 20 <= values < 30").await;
    db.run("alter table e drop if exists range partition values < 11").await;
    db.run("alter table if exists nope drop range partition values < 11").await;
    let warnings = db.session.take_warnings();
    assert_eq!(warnings.len(), 3);
    assert!(
        warnings[0].contains("range partition 20 <= VALUES < 30 already exists in table \"e\", skipping")
    );

    let prepared = db.prepare("select at from e order by at").await;
    assert_eq!(db.rows("select at from e order by at").await, ["15", "25", "26"]);
    assert_eq!(db.tag("alter table e drop range partition 20 <= values < 30").await, "ALTER TABLE");
    assert_eq!(db.rows("select at from e order by at").await, ["15"]);
    let Outcome::Rows(rows) = prepared.execute(&db.session, &[]).await.unwrap() else { panic!("rows") };
    let batches: Vec<arrow::array::RecordBatch> = rows.try_collect().await.unwrap();
    assert_eq!(batches.iter().map(|b| b.num_rows()).sum::<usize>(), 1, "planned for the partitions of now");
    drop(prepared);
    db.run("alter table e add range partition 20 <= values < 30").await;
    assert_eq!(db.rows("select count(*) from e").await, ["1"], "it comes back empty");
    let db = db.reopen();
    assert_eq!(db.rows("select at from e order by at").await, ["15"]);
    assert_eq!(db.rows("show range partitions e").await.len(), 5);
    db.run("insert into e select 'i', 1, value, 0 from generate_series(0, 19) as g(value) ").await;
    let beyond = "insert into e select 'j', 1, value, 0 from generate_series(0, 300000) as g(value)";
    assert_eq!(db.error(beyond).await.error.kind(), ErrorKind::NotCovered, "an import too is all or nothing");
    assert_eq!(db.rows("select count(*) from e").await, ["21"]);
}

#[tokio::test]
async fn what_cannot_be_is_refused() {
    let db = Db::new();
    let create = |partitions: &str| {
        format!("create table t (a int, b text, v int, primary key (a, b)) partition by {partitions}")
    };
    for (partitions, state) in [
        ("hash (v) partitions 2", "42P16"),
        ("range (v) (partition values < 1)", "42P16"),
        ("hash (a) partitions 2, hash (a) partitions 2", "42P17"),
        ("hash (a) partitions 20, hash (b) partitions 20", "22023"),
        ("range (a) (partition values < 5, partition 4 <= values)", "42P17"),
        ("range (a) (partition values < 5, partition value = 4)", "42P17"),
        ("range (a) (partition 5 <= values < 4)", "42P17"),
        (
            "hash (b) partitions 2, range (a) (partition values < 5 hash (b) partitions 2 hash (a) partitions 2)",
            "42P17",
        ),
        ("range (a, b) (partition values < 5)", "42P17"),
    ] {
        assert_eq!(db.state(&create(partitions)).await, state, "{partitions}");
    }
    db.run(&create("hash (a) partitions 2")).await;
    assert_eq!(db.state("alter table t add range partition values < 5").await, "42P17");
}

#[tokio::test]
async fn scans_leave_out_tablets() {
    let db = events().await;
    db.run("insert into e select 'h' || value % 50, value % 3, value % 20, value from generate_series(0, 29999) as g(value) on conflict do nothing").await;
    db.flush("e");
    db.run(
        "insert into e select 'new', value % 3, 40 + value, value from generate_series(0, 9999) as g(value)",
    )
    .await;
    let read = async |condition: &str| -> String {
        let plan = db.explain(&format!("explain select * from e where {condition}")).await;
        let line = plan.lines().find_map(|line| line.split("tablets of public.e: ").nth(1));
        let by_key = || plan.split("tablets=").nth(1).map(|rest| rest.split(',').next().unwrap_or_default());
        line.or_else(by_key).unwrap_or("none").trim_matches([' ', '|']).to_owned()
    };
    for (condition, tablets) in [
        ("n > 0", "32 of 32"),
        ("n > 0 and at < 10", "8 of 32"),
        ("n > 0 and at between 5 and 15", "16 of 32"),
        ("n > 0 and at >= 20 and at < 30", "0 of 32"),
        ("n > 0 and kind = 1", "16 of 32"),
        ("n > 0 and kind = 1 and at > 40", "4 of 32"),
        ("n > 0 and host = 'h1'", "8 of 32"),
        ("host = 'h1' and kind = 2 and at >= 40", "1 of 32"),
        ("host = 'h1' and at = 30 and n > 5", "2 of 32"),
    ] {
        assert_eq!(read(condition).await, tablets, "{condition}");
    }
    let analyzed = db.explain("explain analyze select count(*) from e where at < 5 and n > 0").await;
    assert!(analyzed.contains("tablets of public.e: 8 of 32"), "{analyzed}");
    let join = "explain select * from e a, e b where a.at < 10 and b.at >= 40 and a.n = b.n";
    let plan = db.explain(join).await;
    assert_eq!(plan.matches("tablets of public.e: 8 of 32").count(), 2, "{plan}");
    assert_eq!(db.rows("select count(*) from e where at >= 40").await, ["10000"]);
    assert_eq!(
        db.rows("select count(*) from e a join e b on a.n = b.n where a.at < 10 and b.at >= 40").await.len(),
        1
    );
    let ordered = "select host, kind, at from e where at >= 40 order by host, kind, at limit 3";
    assert_eq!(
        db.rows(ordered).await,
        ["new|0|40", "new|0|43", "new|0|46"],
        "tablets are merged in key order"
    );
    let first = "select host, kind, at from e order by host, kind, at limit 4";
    let plan = db.explain(&format!("explain {first}")).await;
    assert!(plan.contains("tablets=32 of 32") && !plan.contains("SortExec"), "{plan}");
    let sorted = db
        .rows("select host, kind, at from (select * from e limit 1000000) x order by host, kind, at limit 4")
        .await;
    assert_eq!(db.rows(first).await, sorted);
    let nowhere =
        "select host, kind, at from e where at > 20 and at < 20 and host = 'h1' order by host, kind, at";
    assert!(db.rows(nowhere).await.is_empty());
    assert_eq!(db.tag("delete from e where at < 10").await, "DELETE 150");
    assert_eq!(db.rows("select count(*) from e where at < 10").await, ["0"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// What is left out has no row that passes.
    #[test]
    fn rows_of_the_tablets_left_are_those_of_all(
        partitions in prop::sample::select(vec![
            "hash (a) partitions 3, range (b) (partition values < '5', partition '5' <= values)",
            "hash (a, b) partitions 4, range (c) (partition values < 0, partition value = 0, partition 2 <= values)",
            "range (c, a) (partition values < (3, 2), partition (3, 2) <= values <= (5, 5), partition (6, 1) <= values)",
            "hash (c) partitions 2, hash (a) partitions 3",
        ]),
        conditions in prop::collection::vec(
            prop::collection::vec((0..3usize, prop::sample::select(vec!["=", "<", "<=", ">", ">="]), -1..9i64), 0..4),
            12,
        ),
    ) {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let db = Db::new();
            db.run(&format!("create table t (a bigint, b text, c bigint, primary key (a, b, c)) partition by {partitions}")).await;
            for v in 0..8 {
                for w in 0..8 {
                    let sql = format!("insert into t values ({v}, '{w}', {})", (v * 3 + w) % 8);
                    if let Err(error) = db.try_rows(&sql, &[]).await {
                        assert_eq!(error.error.kind(), ErrorKind::NotCovered);
                    }
                }
                if v == 3 {
                    db.flush("t");
                }
            }
            for conditions in &conditions {
                let condition = |(column, op, value): &(usize, &str, i64)| match column {
                    1 => format!("b {op} '{value}'"),
                    column => format!("{} {op} {value}", ["a", "", "c"][*column]),
                };
                let mut all: Vec<String> = conditions.iter().map(condition).collect();
                all.push("true".to_owned());
                let all = all.join(" and ");
                let pruned = db.rows(&format!("select a, b, c from t where {all} order by a, b, c")).await;
                let whole = format!("select a, b, c from (select * from t limit 100000) x where {all} order by a, b, c");
                assert_eq!(pruned, db.rows(&whole).await, "{all}");
            }
        });
    }
}
