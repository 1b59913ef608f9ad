//! Plans as compute nodes are sent them, with bytes that are others, and any bytes as a plan or a ticket: a node reads
//! a plan, or has an error.
//!
//! Where DataFusion panics about bytes a node has an error, so that such a panic is no finding; one that comes through
//! is.
#![no_main]

mod feed;

use feed::Feed;
use futures::TryStreamExt;
use futures::executor::block_on;
use libfuzzer_sys::fuzz_target;
use oribi_engine::{Engine, EngineOptions};
use oribi_exchange::{SentPlans, asks_for_rows};
use oribi_query::{QueryEngine, QueryOptions};
use oribi_session::sql::{Outcome, SqlEngine, SqlSession};
use oribi_sim::{SimFiles, env};
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// A table without rows is not scanned.
const TABLES: [&str; 4] = [
    "create table a (k bigint primary key, n numeric(15, 2), t text, d date, f double precision, b boolean, j jsonb)",
    "create table b (x integer, y integer, k bigint not null, t text, primary key (x, y))",
    "insert into a values (1, 1.5, 'text', '2000-01-01', 0.5, true, '{\"a\": 1}')",
    "insert into b values (1, 1, 1, 'text')",
];

const QUERIES: [&str; 10] = [
    "select t, sum(n * (1 - n)), avg(f), count(distinct d) filter (where b) from a group by t order by 2 desc limit 7",
    "select a.t, b.t from a join b on a.k = b.k and a.n > b.y where a.d >= date '1999-01-01' and b.x in (1, 2, 3)",
    "select * from a left join b on a.k = b.k order by a.t nulls first, b.y desc",
    "select * from a where exists (select 1 from b where b.k = a.k and b.y <> a.f) and t like '%e_t%'",
    "select * from a where k not in (select k from b)",
    "select k from a union all select k + x from b union select 7",
    "select case when b then upper(t) when f > 1 then 'x' || t end, n::double precision, j ->> 'a' from a",
    "select extract(year from d), substring(t from 2 for 3), round(n, 1) from a where abs(f) < 2 or t is null",
    "select max(t) from b where y > (select sum(n) from a)",
    "select x, y from b, a where a.t <> b.t limit 3 offset 1",
];

struct Sent {
    /// Without it no scan and no function is read.
    _query: Arc<QueryEngine>,
    plans: SentPlans,
    bytes: Vec<Vec<u8>>,
}

static SENT: LazyLock<Sent> = LazyLock::new(|| {
    let env = env(&SimFiles::new());
    let engine =
        Engine::open(env, Path::new("/data"), EngineOptions::with_memory(64 << 20)).expect("an empty disk");
    let options = QueryOptions { threads: 2, ..QueryOptions::default() };
    let query = QueryEngine::new(engine, options).expect("threads and a folder to spill to");
    let plans = SentPlans::new(&query);
    let of_query = Arc::clone(&query);
    let sent = block_on(query.spawn(async move { sent(&of_query).await })).expect("queries are planned");
    assert!(sent.iter().all(|plan| plans.decode(plan).is_ok()), "what is sent comes");
    Sent { _query: query, plans, bytes: sent }
});

async fn sent(query: &Arc<QueryEngine>) -> Vec<Vec<u8>> {
    let (session, plans) = (SqlSession::new("fuzzer", "oribi"), SentPlans::new(query));
    for sql in TABLES {
        let prepared = query.prepare(&session, sql, &[]).await.expect(sql);
        if let Outcome::Rows(rows) = prepared.execute(&session, &[]).await.expect(sql) {
            rows.try_collect::<Vec<_>>().await.expect(sql);
        }
    }
    let mut sent = Vec::new();
    for sql in QUERIES {
        let (plan, _kept) = query.plan_of(&session, sql).await.expect(sql);
        sent.extend(plans.encode(&plan));
    }
    assert!(sent.len() > QUERIES.len() / 2, "most of these queries travel");
    sent
}

fuzz_target!(init: std::panic::set_hook(Box::new(|_| {})), |input: &[u8]| {
    let _ = asks_for_rows(input);
    let (sent, mut feed) = (&*SENT, Feed::new(input));
    let bytes = match usize::from(feed.byte()) {
        0 => input[1.min(input.len())..].to_vec(),
        which => damaged(sent.bytes[which % sent.bytes.len()].clone(), feed),
    };
    let _ = sent.plans.decode(&bytes);
});

/// The bytes with as many changes as the feed has.
fn damaged(mut bytes: Vec<u8>, mut feed: Feed<'_>) -> Vec<u8> {
    while !feed.is_empty() && !bytes.is_empty() {
        let (kind, at) = (feed.byte(), usize::from(feed.byte()) | usize::from(feed.byte()) << 8);
        let at = at % bytes.len();
        match kind % 5 {
            0 => bytes[at] ^= feed.byte(),
            1 => bytes[at] = feed.byte(),
            2 => drop(bytes.splice(at..at, feed.short().iter().copied())),
            3 => drop(bytes.drain(at..(at + usize::from(feed.byte())).min(bytes.len()))),
            _ => {
                let until = (at + usize::from(feed.byte())).min(bytes.len());
                let repeated = bytes[at..until].to_vec();
                drop(bytes.splice(until..until, repeated));
            }
        }
    }
    bytes
}
