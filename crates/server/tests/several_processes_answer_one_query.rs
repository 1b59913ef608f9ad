//! An owner and two compute nodes, as processes, answer TPC-H as the owner does alone, whatever is done to tables and nodes meanwhile.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics
#![allow(clippy::disallowed_methods)]

mod process;

use process::{ORIBI, Server, Sql, oribi_ok};
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TABLES: [&str; 8] =
    ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"];

/// After it, a query with a node that does not answer has been executed by the owner alone, on a machine that is busy with others.
const RETRIED_WITHIN: Duration = Duration::from_secs(120);

struct Cluster {
    owner: Server,
    nodes: Vec<Server>,
    /// Goes when they have ended.
    folder: tempfile::TempDir,
}

/// Nothing is written to files by itself.
const UNFLUSHED: [&str; 2] = ["--flush-quiet-ms", "600000"];

impl Cluster {
    /// TPC-H's tables, a tenth of whose larger rows is changed and only in memory, and no compute node.
    fn new(scale: &str) -> Self {
        Cluster::with(scale, &[])
    }

    /// The same, with more flags for the owner.
    fn with(scale: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (data, files) = (folder.path().join("data"), folder.path().join("files"));
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        oribi_ok(&["generate", "--scale", scale, "--out", &text(&files)]);
        let schema = std::fs::read_to_string(queries().join("schema.sql")).unwrap();
        oribi_ok(&["sql", "--data", &text(&data), "-c", &schema]);
        for table in TABLES {
            let file = text(&files.join(format!("{table}.parquet")));
            oribi_ok(&["import", table, &file, "--data", &text(&data)]);
        }
        let owner = owner(&data, "127.0.0.1:0", &[&UNFLUSHED[..], flags].concat());
        let sql = Sql::connect(owner.address("postgres"));
        sql.execute("update lineitem set l_quantity = l_quantity + 1 where l_orderkey % 10 = 3").unwrap();
        sql.execute("update orders set o_totalprice = o_totalprice + 1 where o_orderkey % 10 = 3").unwrap();
        sql.execute("delete from lineitem where l_orderkey % 50 = 7").unwrap();
        Cluster { folder, owner, nodes: Vec::new() }
    }

    /// With two nodes, which share queries by now, and a session.
    fn of_two() -> (Self, Sql) {
        let mut cluster = Cluster::new("0.01");
        let sql = cluster.sql();
        cluster.add("a");
        cluster.add("b");
        wait_for_nodes(&sql, 2);
        (cluster, sql)
    }

    /// Kills the owner, and starts it again where its nodes look for it.
    fn owner_comes_again(&mut self, flags: &[&str]) {
        let address = self.owner.address("nodes").to_owned();
        self.owner.kill();
        self.owner = owner(&self.data(), &address, flags);
    }

    fn sql(&self) -> Sql {
        Sql::connect(self.owner.address("postgres"))
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn flags<'a>(&'a self, name: &'a str) -> [&'a str; 6] {
        ["--owner", self.owner.address("nodes"), "--nodes", "127.0.0.1:0", "--node", name]
    }

    fn add(&mut self, name: &str) {
        self.add_with(name, &[]);
    }

    fn add_with(&mut self, name: &str, flags: &[&str]) {
        let node = Server::start(&self.data(), &[&self.flags(name)[..], flags].concat());
        self.nodes.push(node);
    }

    /// Adds one that reads the store, with a folder of its own.
    fn add_over(&mut self, store: &str, name: &str) {
        let own = self.folder.path().join(name);
        let node = Server::start(&own, &[&self.flags(name)[..], &["--store", store]].concat());
        self.nodes.push(node);
    }

    /// How many queries were executed by the owner after all.
    fn retries(&self) -> f64 {
        self.owner.metric("oribi_exchange_retries_total")
    }

    /// Runs a node that is to be refused.
    fn refused(&self, data: &Path, flags: &[&str]) -> String {
        let mut command = Command::new(ORIBI);
        command.args(["serve", "--http", "off", "--log", "warn", "--data"]).arg(data).args(flags);
        let Output { status, stderr, .. } = command.output().unwrap();
        assert!(!status.success());
        String::from_utf8(stderr).unwrap()
    }
}

fn owner(data: &Path, address: &str, flags: &[&str]) -> Server {
    Server::start(data, &[&["--nodes", address, "--nodes-rows-min", "1"][..], flags].concat())
}

/// In the folder of the package, where Cargo runs its tests.
fn queries() -> PathBuf {
    PathBuf::from("queries")
}

fn query(number: usize) -> String {
    std::fs::read_to_string(queries().join(format!("q{number}.sql"))).unwrap()
}

type Rows = Vec<Vec<Option<String>>>;

fn answer(sql: &Sql, query: &str) -> Rows {
    let mut rows = sql.rows(query);
    rows.sort();
    rows
}

fn answers(sql: &Sql) -> Vec<Rows> {
    (1..=22).map(|number| answer(sql, &query(number))).collect()
}

/// That these are the answers.
fn assert_answers(sql: &Sql, expected: &[Rows], when: &str) {
    for (number, expected) in (1..).zip(expected) {
        assert_eq!(&answer(sql, &query(number)), expected, "query {number} {when}");
    }
}

/// What `EXPLAIN` says of where a query is executed.
fn place(sql: &Sql, query: &str) -> String {
    let plan = sql.rows(&format!("explain {query}"));
    plan[0][0].clone().unwrap()
}

fn until(is_so: &dyn Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a node executes something.
fn is_running(node: &Server) -> bool {
    node.metric("oribi_exchange_partitions_running_count") > 0.0
}

/// Until as many nodes share a query.
fn wait_for_nodes(sql: &Sql, count: usize) {
    let begun = Instant::now();
    loop {
        let said = place(sql, "select sum(l_quantity) from lineitem");
        let is_alone = count < 2 && said.contains("fewer than two compute nodes");
        if said.starts_with(&format!("nodes: {count} (")) || is_alone {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{said}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn answers_are_those_of_one_process() {
    let mut cluster = Cluster::new("0.01");
    let sql = cluster.sql();
    let alone = answers(&sql);
    assert!(place(&sql, &query(1)).contains("fewer than two compute nodes"));
    cluster.add("a");
    cluster.add("b");
    wait_for_nodes(&sql, 2);
    let places: Vec<String> = (1..=22).map(|number| place(&sql, &query(number))).collect();
    let is_shared = |number: usize| places[number - 1].starts_with("nodes: 2 (a, b)");
    // Of small tables one thread reads all.
    let is_small = |number: usize| places[number - 1].contains("nothing to share");
    assert!((1..=22).all(|number| is_shared(number) || is_small(number)), "{places:#?}");
    assert!([1, 3, 6].into_iter().all(is_shared), "{places:#?}");
    assert_answers(&sql, &alone, "with two nodes");
    let in_order = [
        "select l_orderkey, l_linenumber from lineitem order by l_orderkey desc, l_linenumber",
        "select o_custkey, count(*) c, max(o_totalprice) from orders group by o_custkey order by c desc, o_custkey",
        "select l_partkey, sum(l_tax) from lineitem group by l_partkey order by l_partkey limit 20 offset 5",
    ];
    for query in in_order {
        assert!(place(&sql, query).starts_with("nodes: 2"), "{}", place(&sql, query));
        let shared = sql.rows(query);
        sql.execute("set oribi.nodes = 'off'").unwrap();
        assert!(sql.rows(query) == shared, "{query}");
        sql.execute("set oribi.nodes = 'on'").unwrap();
    }
    assert_eq!(cluster.retries(), 0.0);
    assert!(cluster.nodes[0].metric("oribi_exchange_handed_over_bytes_total") > 0.0);
    let sent = |cluster: &Cluster| cluster.nodes[0].metric("oribi_exchange_sent_bytes_total");
    for setting in [
        "exchange_local = 'loopback'",
        "exchange_local = 'loopback_compressed'",
        "exchange_compression = 'zstd'",
        "exchange_compression = 'none'",
        "exchange_compression = 'lz4'",
    ] {
        sql.execute(&format!("set oribi.{setting}")).unwrap();
        let before = sent(&cluster);
        for number in [3, 5, 18] {
            assert_eq!(answer(&sql, &query(number)), alone[number - 1], "query {number}, {setting}");
        }
        assert!(sent(&cluster) > before, "{setting}");
    }
    assert_eq!(cluster.retries(), 0.0);
    // The owner dies; its nodes wait until it is there again. What was in its memory is in its log.
    cluster.owner_comes_again(&["--flush-quiet-ms", "50"]);
    let sql = cluster.sql();
    wait_for_nodes(&sql, 2);
    while_rows_move(&cluster, || assert_answers(&sql, &alone, "while rows move"));
    assert_eq!(cluster.retries(), 0.0);
    assert!(cluster.owner.metric("oribi_engine_flushes_total") > 0.0);
    until(&|| cluster.owner.metric("oribi_engine_compactions_total") > 0.0);
}

/// Statements that change nothing, and pauses in which rows move from memory to files, and files become one.
fn while_rows_move(cluster: &Cluster, work: impl FnOnce()) {
    let (ends, writer) = (AtomicBool::new(false), cluster.sql());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for share in (0..10).cycle() {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                let change = format!(
                    "update lineitem set l_quantity = l_quantity + 0 where l_orderkey % 10 = {share}"
                );
                writer.execute(&change).unwrap();
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let worked = catch_unwind(AssertUnwindSafe(work));
        ends.store(true, Ordering::Relaxed);
        worked.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

#[test]
fn nodes_read_a_store_by_themselves() {
    let bucket = tempfile::tempdir().unwrap();
    let store = format!("file://{}", bucket.path().display());
    let mut cluster = Cluster::with("0.01", &["--store", &store]);
    let sql = cluster.sql();
    let alone = answers(&sql);
    cluster.add_over(&store, "a");
    cluster.add_over(&store, "b");
    wait_for_nodes(&sql, 2);
    assert_answers(&sql, &alone, "over a store");
    for node in &cluster.nodes {
        assert!(node.metric("oribi_store_fetches_total") > 0.0);
    }
    // One that was killed has left files, which are not taken for its own.
    cluster.nodes.remove(0).kill();
    wait_for_nodes(&sql, 1);
    cluster.add_over(&store, "a");
    wait_for_nodes(&sql, 2);
    // What the owner writes meanwhile, and what it removes.
    cluster.owner_comes_again(&["--flush-quiet-ms", "50"]);
    let sql = cluster.sql();
    wait_for_nodes(&sql, 2);
    while_rows_move(&cluster, || assert_answers(&sql, &alone, "while rows move"));
    assert_eq!(cluster.retries(), 0.0);
    // The store is the owner's: a node of its folder reads something else.
    let said = cluster.refused(&cluster.data(), &cluster.flags("c"));
    assert!(said.contains("reads other files than the owner's"), "{said}");
}

#[test]
fn exchanges_are_told_of() {
    let (cluster, sql) = Cluster::of_two();
    let told = |query: &str| -> String {
        let told = sql.rows(&format!("explain analyze {query}"));
        let told: Vec<&str> = told.iter().map(|line| line[0].as_deref().unwrap()).collect();
        told.join("\n")
    };
    let executed = || cluster.owner.metric("oribi_exchange_queries_total");
    let query = "select l_partkey, count(*) from lineitem group by l_partkey";
    let before = executed();
    let planned = as_json(&sql, &format!("explain (format json) {query}"));
    assert!(place(&sql, query).starts_with("nodes: 2 (a, b)"), "{}", place(&sql, query));
    assert_eq!(executed(), before, "a plan is no query");
    let shuffled = told(query);
    assert_eq!(executed(), before + 1.0);
    for word in [
        "NetworkShuffleExec",
        "waiting_for_network=",
        "waiting_for_receiver=",
        " (min ",
        "scan of public.lineitem: memtable ",
        "exchanged: ",
        " of those scanned",
    ] {
        assert!(shuffled.contains(word), "{word}: {shuffled}");
    }
    for counter in ["batches", "bytes_handed_over", "bytes_sent", "bytes_before_compression", "encoding"] {
        let is_counted = |digit: char| ('1'..='9').contains(&digit);
        let named = format!(" {counter}=");
        assert!(
            shuffled.split(&named).skip(1).any(|value| value.starts_with(is_counted)),
            "{counter}: {shuffled}"
        );
    }
    assert!(!shuffled.contains("here alone"), "{shuffled}");
    // So are programs.
    assert_eq!((&planned["Nodes"], &planned["Node Names"]), (&json!(2), &json!(["a", "b"])), "{planned}");
    let ran = as_json(&sql, &format!("explain (analyze, format json) {query}"));
    assert_eq!(ran["Nodes"], 2, "{ran}");
    assert!(ran["Exchange Scan Ratio"].as_f64() > Some(0.0), "{ran}");
    let operators = operators(&ran["Plan"]);
    let sum = |key: &str| operators.iter().filter_map(|operator| operator[key].as_u64()).sum::<u64>();
    assert_eq!(
        Some(sum("Bytes Handed Over") + sum("Bytes Before Compression")),
        ran["Exchanged Bytes"].as_u64()
    );
    // And whoever asks afterwards, a moment later.
    let parts = sql.rows(query).len();
    let listed = format!(
        "select nodes, state, rows from system.queries where query = '{query}' and exchanged_rows >= rows \
         and handed_over_bytes + before_compression_bytes > 0 and exchange_scan_ratio > 0"
    );
    let listed = || sql.rows(&listed);
    until(&|| listed() == [["2 (a, b)", "done", &parts.to_string()].map(|cell| Some(cell.to_owned()))]);
    let rows: u64 = sql.rows("select count(*) from lineitem")[0][0].as_deref().unwrap().parse().unwrap();
    assert_eq!(sum("File Rows") + sum("Memory Rows"), rows, "{ran}");
    sql.execute("set oribi.nodes = 'off'").unwrap();
    let alone = as_json(&sql, &format!("explain (format json) {query}"));
    assert_eq!((&alone["Nodes"], &alone["Reason"]), (&json!(0), &json!("oribi.nodes = off")), "{alone}");
}

/// What `EXPLAIN (FORMAT JSON)` says.
fn as_json(sql: &Sql, explain: &str) -> Value {
    let told: Value = serde_json::from_str(sql.rows(explain)[0][0].as_deref().unwrap()).unwrap();
    told[0].clone()
}

/// All operators of a plan.
fn operators(plan: &Value) -> Vec<&Value> {
    let below = plan["Plans"].as_array().into_iter().flatten();
    std::iter::once(plan).chain(below.flat_map(operators)).collect()
}

#[test]
fn what_cannot_travel_stays() {
    let (cluster, sql) = Cluster::of_two();
    // What a transaction sees of its own.
    let count = "select count(*) from lineitem where l_quantity >= 0";
    let before: i64 = sql.rows(count)[0][0].as_deref().unwrap().parse().unwrap();
    sql.execute("begin; delete from lineitem where l_orderkey = 1").unwrap();
    assert!(place(&sql, count).contains("what a transaction sees"), "{}", place(&sql, count));
    let after: i64 = sql.rows(count)[0][0].as_deref().unwrap().parse().unwrap();
    assert!(after < before);
    sql.execute("rollback").unwrap();
    // What a session does not want to be shared.
    sql.execute("set oribi.nodes = 'off'").unwrap();
    assert!(place(&sql, count).contains("oribi.nodes = off"), "{}", place(&sql, count));
    sql.execute("set oribi.nodes = 'on'; set oribi.exchange_local = 'by pigeon'").unwrap();
    let error = sql.execute(count).unwrap_err();
    assert!(error.as_db_error().unwrap().message().contains("by pigeon"), "{error:?}");
    sql.execute("set oribi.exchange_local = 'handover'").unwrap();
    let stays = |query: &str, why: &str| {
        let place = place(&sql, query);
        assert!(place.starts_with("nodes: here alone: ") && place.contains(why), "{query}: {place}");
    };
    stays("select * from lineitem where l_orderkey = 1", "read by key");
    stays("select count(*) from lineitem where pg_get_userbyid(l_linenumber) is null", "pg_get_userbyid");
    stays("select count(*) from lineitem where random() < 2", "random");
    // Both lose something on their way as DataFusion writes them.
    stays(
        "select sum(l_tax) filter (where l_linenumber > 1) over (partition by l_suppkey) from lineitem",
        "Window",
    );
    stays(
        "select count(*) from lineitem where l_tax > (select l_tax from lineitem limit 1)",
        "ScalarSubquery",
    );
    // Wherever they are joined, each task has the same ones.
    for join in ["join orders on k = o_orderkey", "cross join orders", "join orders on k <> o_orderkey"] {
        let first = format!(
            "select count(distinct 10 * k + n) from
            (select l_orderkey k, l_linenumber n from lineitem limit 10) x {join}"
        );
        assert_eq!(answer(&sql, &first), [[Some("10".to_owned())]], "{first}");
    }
    let error = sql.execute("select (select l_tax from lineitem) from orders").unwrap_err();
    assert_eq!(error.code().unwrap().code(), "21000", "{error:?}");
    sql.execute("set time zone 'Asia/Tokyo'").unwrap();
    assert!(place(&sql, count).starts_with("nodes: 2"), "{}", place(&sql, count));
    // Arithmetic is checked wherever it is done, and the error is the owner's.
    let overflow = "select sum((l_orderkey + 9223372036854775000)::numeric) from lineitem";
    assert!(place(&sql, overflow).starts_with("nodes: 2"), "{}", place(&sql, overflow));
    let error = sql.execute(overflow).unwrap_err();
    assert_eq!(error.code().unwrap().code(), "22003", "{error:?}");
    assert_eq!(cluster.retries(), 1.0);
}

/// Rows of a join of all with many others, which takes long.
const LONG: &str = "select count(*), sum(a.l_quantity + b.l_quantity) from lineitem a join lineitem b
    on a.l_suppkey = b.l_suppkey and a.l_partkey % 3 = b.l_partkey % 3";

#[test]
fn operators_and_casts_are_the_same_elsewhere() {
    let (_cluster, sql) = Cluster::of_two();
    // Each of some rows.
    for condition in [
        "l_comment || l_linenumber || '!' like '%e3!'",
        "l_shipdate + interval '1 month' > '1995-06-17'",
        "l_shipdate - l_commitdate < 10",
        "l_comment ~ 'a.*b' or l_comment ~* 'FOX' or l_comment !~ 'e'",
        "l_comment similar to '%(fox|deposits)%'",
        "l_comment like '%' || lower(l_shipmode) || '%' escape '!' or l_comment like '%s'",
        "l_linenumber::text::bigint > 3",
        "(l_linenumber || '.5')::numeric(10, 1) > 3.5",
        "l_linenumber = any (array[l_suppkey % 7, l_partkey % 7])",
        "l_shipdate::text like '1995%'",
        "(l_linenumber > 3)::text = 'true'",
    ] {
        let query = format!("select count(*), min(l_comment || '!') from lineitem where {condition}");
        assert!(place(&sql, &query).starts_with("nodes: 2"), "{query}: {}", place(&sql, &query));
        let over_nodes = answer(&sql, &query);
        let count: usize = over_nodes[0][0].as_deref().unwrap().parse().unwrap();
        assert!((1..55_000).contains(&count), "{query}: {count}");
        sql.execute("set oribi.nodes = 'off'").unwrap();
        assert_eq!(answer(&sql, &query), over_nodes, "{query}");
        sql.execute("set oribi.nodes = 'on'").unwrap();
    }
}

#[test]
fn scans_leave_out_what_joins_of_other_processes_do_not_want() {
    let (_cluster, sql) = Cluster::of_two();
    let all: u64 = sql.rows("select count(*) from lineitem")[0][0].as_deref().unwrap().parse().unwrap();
    let scanned = |of: &str| {
        let query = format!("select count(*), sum(l_tax) from {of}");
        let plan = sql.rows(&format!("explain (analyze, format json) {query}"));
        let plan: Value = serde_json::from_str(plan[0][0].as_deref().unwrap()).unwrap();
        assert_eq!(plan[0]["Nodes"], 2, "{plan}");
        let rows = rows_of_scan(&plan[0]["Plan"], "public.lineitem").expect("it is scanned");
        let over_nodes = answer(&sql, &query);
        sql.execute("set oribi.nodes = 'off'").unwrap();
        assert_eq!(answer(&sql, &query), over_nodes, "{query}");
        sql.execute("set oribi.nodes = 'on'").unwrap();
        rows
    };
    // More keys than are told one by one, and between them many others: integers that have bits each, and pairs in a Bloom filter.
    for joined in [
        "orders join lineitem on o_orderkey = l_orderkey where o_custkey % 5 in (1, 2)",
        "partsupp join lineitem on ps_partkey = l_partkey and ps_suppkey = l_suppkey where ps_availqty % 5 in (1, 2)",
    ] {
        let rows = scanned(joined);
        assert!(rows * 2 < all, "{joined}: {rows} of {all}");
    }
    // All orders leave nothing out: nobody waits for their keys.
    let whole = "explain select count(*) from orders join lineitem on o_orderkey = l_orderkey";
    let plan: Vec<_> = sql.rows(whole).into_iter().flatten().flatten().collect();
    assert!(!plan.iter().any(|line| line.contains("runtime_filters")), "{plan:?}");
}

fn rows_of_scan(node: &Value, table: &str) -> Option<u64> {
    if node["Relation Name"] == table {
        return node["Actual Rows"].as_u64();
    }
    node["Plans"].as_array()?.iter().find_map(|node| rows_of_scan(node, table))
}

/// None of ten trillion rows meets its condition.
const IN_TRIPLES: &str = "select count(*) from lineitem a join lineitem b using (l_linestatus) join lineitem c using (l_linestatus)
    where length(a.l_comment) + length(b.l_comment) + length(c.l_comment) < 0";

#[test]
fn who_cancels_cancels_everywhere() {
    let (cluster, sql) = Cluster::of_two();
    let parts: Vec<_> = (50..110).map(|times| format!("md5(repeat(l_comment, {times})) <> ''")).collect();
    let in_batches =
        format!("select l_partkey, count(*) from lineitem where {} group by l_partkey", parts.join(" and "));
    for long in [&in_batches, IN_TRIPLES] {
        assert!(place(&sql, long).starts_with("nodes: 2 (a, b)"), "{}", place(&sql, long));
        let error = sql.cancelled(long, || until(&|| cluster.nodes.iter().all(is_running)));
        assert_eq!(error.code().unwrap().code(), "57014", "{error:?}");
        until(&|| !cluster.nodes.iter().any(is_running));
        assert_eq!(cluster.retries(), 0.0);
    }
    assert_eq!(sql.rows("select count(*) from region")[0][0].as_deref(), Some("5"));
}

#[test]
fn a_node_keeps_to_its_memory() {
    let mut cluster = Cluster::new("0.01");
    let sql = cluster.sql();
    // All of it is in memory at once.
    let large = "select array_length(array_agg(repeat(l_comment, 40)), 1) from lineitem";
    let alone = answer(&sql, large);
    cluster.add_with("a", &["--memory", "16MiB"]);
    cluster.add_with("b", &["--memory", "16MiB"]);
    wait_for_nodes(&sql, 2);
    assert!(place(&sql, large).starts_with("nodes: 2"), "{}", place(&sql, large));
    assert_eq!(answer(&sql, large), alone);
    assert_eq!(cluster.retries(), 1.0, "the nodes had no room");
    let count = "select count(*) from lineitem where l_tax >= 0";
    assert_eq!(answer(&sql, count), answer(&sql, "select count(*) from lineitem"));
    assert_eq!(cluster.retries(), 1.0, "they have room again");
}

#[test]
fn as_many_queries_go_over_nodes_as_may() {
    let mut cluster = Cluster::with("0.01", &["--nodes-queries-max", "1"]);
    let sql = cluster.sql();
    let count = "select count(*) from lineitem where l_tax >= 0";
    let alone = answer(&sql, count);
    cluster.add("a");
    cluster.add("b");
    wait_for_nodes(&sql, 2);
    let refusals = || cluster.owner.metric("oribi_exchange_refusals_total");
    let error = sql.cancelled(IN_TRIPLES, || {
        until(&|| cluster.nodes.iter().all(is_running));
        let other = cluster.sql();
        assert_eq!(answer(&other, count), alone);
        assert_eq!(refusals(), 1.0, "one is executed over them");
        let explained = other.rows(&format!("explain analyze {count}"));
        let said: Vec<_> = explained.iter().flatten().flatten().map(String::as_str).collect();
        assert!(said.join("\n").contains("nodes_queries_max"), "{said:?}");
    });
    assert_eq!(error.code().unwrap().code(), "57014", "{error:?}");
    let refused = refusals();
    assert_eq!(answer(&sql, count), alone);
    assert_eq!((refusals(), cluster.retries()), (refused, 0.0), "there is a place again");
}

#[test]
fn nodes_that_die_or_freeze_change_no_answer() {
    let mut cluster = Cluster::new("0.01");
    let sql = cluster.sql();
    let alone = answer(&sql, LONG);
    cluster.add("a");
    cluster.add("b");
    wait_for_nodes(&sql, 2);
    assert_eq!(answer(&sql, LONG), alone);
    for (name, freezes) in [("b", false), ("c", true)] {
        let mut node = cluster.nodes.pop().unwrap();
        let (begun, retries) = (Instant::now(), cluster.retries());
        std::thread::scope(|threads| {
            let asked = threads.spawn(|| answer(&cluster.sql(), LONG));
            until(&|| is_running(&node));
            if freezes {
                node.signal("STOP")
            } else {
                node.kill()
            }
            assert_eq!(asked.join().unwrap(), alone, "with {name} gone");
        });
        assert!(begun.elapsed() < RETRIED_WITHIN, "{:?}", begun.elapsed());
        assert!(cluster.retries() > retries, "{name} was not needed");
        assert_eq!(answer(&sql, LONG), alone, "the query after {name} has gone");
        wait_for_nodes(&sql, 1);
        if freezes {
            node.signal("CONT");
            wait_for_nodes(&sql, 2);
            assert_eq!(answer(&sql, LONG), alone, "{name} is back");
        } else {
            cluster.add("c");
            wait_for_nodes(&sql, 2);
        }
    }
}

#[test]
fn garbage_on_a_port_hurts_nobody() {
    let (cluster, sql) = Cluster::of_two();
    let count = "select count(*) from lineitem where l_tax >= 0";
    let before = answer(&sql, count);
    let mut random = 0x0123_4567_89ab_cdef_u64;
    for address in [cluster.owner.address("nodes"), cluster.nodes[0].address("nodes")] {
        for round in 0..50 {
            let mut socket = TcpStream::connect(address).unwrap();
            if round % 2 == 0 {
                // What comes then is taken for frames.
                let _ = socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
            }
            let bytes = std::iter::repeat_with(|| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random as u8
            });
            let _ = socket.write_all(&bytes.take(1000).collect::<Vec<_>>());
        }
    }
    assert_eq!(answer(&sql, count), before);
    assert_eq!(cluster.retries(), 0.0);
}

#[test]
fn who_is_no_node_of_the_cluster_is_refused() {
    let cluster = Cluster::new("0.01");
    let (secret, other) = (cluster.folder.path().join("secret"), cluster.folder.path().join("other"));
    std::fs::write(&secret, "something else\n").unwrap();
    let flags = [&cluster.flags("a")[..], &["--cluster-secret-file", secret.to_str().unwrap()]].concat();
    let said = cluster.refused(&cluster.data(), &flags);
    assert!(said.contains("has not the secret of this cluster"), "{said}");
    // A folder that is another server's.
    Server::start(&other, &["--nodes", "127.0.0.1:0"]).terminate();
    let said = cluster.refused(&other, &cluster.flags("a"));
    assert!(said.contains("reads other files than the owner's"), "{said}");
    let said = cluster.refused(cluster.folder.path(), &cluster.flags("a"));
    assert!(said.contains("is not the folder of an owner"), "{said}");
    let beyond = ["--owner", cluster.owner.address("nodes"), "--nodes", "0.0.0.0:0"];
    let said = cluster.refused(&cluster.data(), &beyond);
    assert!(said.contains("is not loopback") && said.contains("cluster_secret_file"), "{said}");
    // A server that is no node: it speaks gRPC, and knows no nodes.
    let flight = ["--owner", cluster.owner.address("flight"), "--nodes", "127.0.0.1:0"];
    let said = cluster.refused(&cluster.data(), &flight);
    assert!(said.contains("owner 127.0.0.1"), "{said}");
}
