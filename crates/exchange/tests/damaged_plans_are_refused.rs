//! Plans of TPC-H as nodes are sent them, with bytes that are others: a node has an error, or another plan, and goes on.
//!
//! More cases: `PROPTEST_CASES=100000 cargo test -p oribi-exchange --test damaged_plans_are_refused`.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics
#![allow(clippy::disallowed_methods, reason = "reads the queries from their folder")]

use datafusion::physical_plan::displayable;
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{PhysicalExtensionNode, PhysicalPlanNode};
use futures::TryStreamExt;
use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use oribi_exchange::{SentPlans, asks_for_rows};
use oribi_query::{QueryEngine, QueryOptions};
use oribi_session::sql::{Outcome, SqlEngine, SqlSession};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use prost::Message;
use std::path::Path;
use std::sync::Arc;

/// A row for each table: of one without rows there is no scan.
const ROWS: [&str; 8] = [
    "region values (0, 'ASIA', '')",
    "nation values (0, 'CHINA', 0, '')",
    "supplier values (1, 's', 'a', 0, '1', 1, '')",
    "customer values (1, 'c', 'a', 0, '13', 1, 'BUILDING', '')",
    "part values (1, 'green', 'm', 'Brand#12', 'ECONOMY ANODIZED STEEL', 15, 'SM CASE', 1, '')",
    "partsupp values (1, 1, 1, 1, '')",
    "orders values (1, 1, 'F', 1, '1995-01-01', '1-URGENT', 'c', 0, '')",
    "lineitem values (1, 1, 1, 1, 1, 1, 0.06, 0, 'N', 'O', '1995-01-01', '1995-01-01', '1995-01-01', 'NONE', 'MAIL', '')",
];

struct Tpch {
    query: Arc<QueryEngine>,
    session: Arc<SqlSession>,
    queries: Vec<String>,
}

impl Tpch {
    async fn new(dir: &Path) -> Self {
        // From the folder of the package, where Cargo runs its tests.
        let of_server = Path::new("../server/queries");
        let text = |name: String| std::fs::read_to_string(of_server.join(name)).unwrap();
        let engine = Engine::open(Env::real(), dir, EngineOptions::with_memory(256 << 20)).unwrap();
        let query = QueryEngine::new(engine, QueryOptions { threads: 2, ..QueryOptions::default() }).unwrap();
        let session = SqlSession::new("tester", "oribi");
        let queries = (1..=22).map(|number| text(format!("q{number}.sql"))).collect();
        let tpch = Tpch { query, session, queries };
        let schema = text("schema.sql".to_owned());
        for table in schema.split(';').filter(|statement| statement.contains("create table")) {
            tpch.run(table).await;
        }
        for row in ROWS {
            tpch.run(&format!("insert into {row}")).await;
        }
        tpch
    }

    async fn run(&self, sql: &str) {
        let prepared = self.query.prepare(&self.session, sql, &[]).await.unwrap();
        if let Outcome::Rows(rows) = prepared.execute(&self.session, &[]).await.unwrap() {
            rows.try_collect::<Vec<_>>().await.unwrap();
        }
    }

    /// The plans of queries that travel.
    async fn sent(&self, plans: &SentPlans) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        for sql in &self.queries {
            let (plan, _kept) = self.query.plan_of(&self.session, sql).await.unwrap();
            let Ok(bytes) = plans.encode(&plan) else { continue };
            let come = plans.decode(&bytes).unwrap_or_else(|e| panic!("{sql}: {e}"));
            let shown = |plan| displayable(plan).indent(false).to_string().lines().count();
            assert_eq!(shown(come.as_ref()), shown(plan.as_ref()), "{sql}");
            sent.push(bytes);
        }
        assert!(sent.len() > 15, "{} of 22 travel", sent.len());
        sent
    }
}

#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    /// As of a length, or a count.
    Number(Index, u32),
    Insert(Index, Vec<u8>),
    Remove(Index, u8),
    /// What is elsewhere stands here, too.
    Repeat(Index, Index, u8),
    Cut(Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    let number = prop_oneof![any::<u32>(), Just(u32::MAX), Just(i32::MAX as u32), 0..300_u32];
    prop_oneof![
        8 => (at(), 1..=u8::MAX).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        4 => (at(), number).prop_map(|(at, number)| Damage::Number(at, number)),
        2 => (at(), vec(any::<u8>(), 1..9)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        2 => (at(), any::<u8>()).prop_map(|(at, count)| Damage::Remove(at, count)),
        2 => (at(), at(), any::<u8>()).prop_map(|(from, to, count)| Damage::Repeat(from, to, count)),
        1 => at().prop_map(Damage::Cut),
    ]
}

impl Damage {
    fn befall(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        if len == 0 {
            return;
        }
        let until = |at: usize, count: u8| (at + usize::from(count)).min(len);
        match self {
            Damage::Flip(at, bits) => bytes[at.index(len)] ^= bits,
            Damage::Number(at, number) => {
                let at = at.index(len);
                let number = number.to_le_bytes();
                bytes[at..until(at, 4)].iter_mut().zip(number).for_each(|(byte, new)| *byte = new);
            }
            Damage::Insert(at, new) => {
                let at = at.index(len);
                bytes.splice(at..at, new.iter().copied());
            }
            Damage::Remove(at, count) => drop(bytes.drain(at.index(len)..until(at.index(len), *count))),
            Damage::Repeat(from, to, count) => {
                let repeated = bytes[from.index(len)..until(from.index(len), *count)].to_vec();
                let to = to.index(len);
                bytes.splice(to..to, repeated);
            }
            Damage::Cut(at) => bytes.truncate(at.index(len)),
        }
    }
}

#[tokio::test]
async fn damaged_plans_are_errors_or_other_plans() {
    let dir = tempfile::tempdir().unwrap();
    let tpch = Tpch::new(dir.path()).await;
    let plans = SentPlans::new(&tpch.query);
    let sent = tpch.sent(&plans).await;
    let cases = (any::<Index>(), vec(damage(), 1..6));
    let ran = TestRunner::default().run(&cases, |(which, damages)| {
        let mut bytes = which.get(&sent).clone();
        damages.iter().for_each(|damage| damage.befall(&mut bytes));
        let _ = plans.decode(&bytes);
        Ok(())
    });
    ran.unwrap();
}

#[tokio::test]
async fn a_plan_that_ends_early_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let tpch = Tpch::new(dir.path()).await;
    let plans = SentPlans::new(&tpch.query);
    for sent in tpch.sent(&plans).await {
        for end in (0..sent.len()).step_by(97).chain([sent.len() - 1]) {
            assert!(plans.decode(&sent[..end]).is_err(), "cut at {end} of {}", sent.len());
        }
    }
}

/// What datafusion-distributed's list of codecs reads.
#[derive(Clone, PartialEq, Message)]
struct OfCodec {
    #[prost(uint32, tag = "1")]
    position: u32,
    #[prost(bytes = "vec", tag = "2")]
    node: Vec<u8>,
}

fn node_of(node: Vec<u8>) -> Vec<u8> {
    let node = OfCodec { position: 1, node }.encode_to_vec();
    let node = PhysicalPlanType::Extension(PhysicalExtensionNode { node, inputs: Vec::new() });
    PhysicalPlanNode { physical_plan_type: Some(node) }.encode_to_vec()
}

#[tokio::test]
async fn a_plan_that_is_in_a_plan_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let tpch = Tpch::new(dir.path()).await;
    let plans = SentPlans::new(&tpch.query);
    let sent = tpch.sent(&plans).await.swap_remove(0);
    let whole = PhysicalPlanNode::decode(sent.as_slice()).unwrap();
    let Some(PhysicalPlanType::Extension(whole)) = whole.physical_plan_type else { panic!("a node of ours") };
    let whole = OfCodec::decode(whole.node.as_slice()).unwrap().node;
    // The bytes of a whole plan, and of a node as it is among others.
    let (kind, plan) = whole.split_first().unwrap();
    assert_eq!(node_of(whole.clone()), sent);
    let mut nested = plan.to_vec();
    for _ in 0..3000 {
        let node = PhysicalExtensionNode { node: [&[*kind], nested.as_slice()].concat(), inputs: Vec::new() };
        let node = PhysicalPlanType::Extension(node);
        nested = PhysicalPlanNode { physical_plan_type: Some(node) }.encode_to_vec();
    }
    let error = plans.decode(&node_of([&[*kind], nested.as_slice()].concat())).unwrap_err().to_string();
    assert!(error.contains("a node of it is none"), "{error}");
}

proptest! {
    #[test]
    fn tickets_that_nobody_wrote_are_refused_or_others(ticket in vec(any::<u8>(), 0..200)) {
        let _ = asks_for_rows(&ticket);
    }
}
