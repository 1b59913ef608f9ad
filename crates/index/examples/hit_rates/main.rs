//! Hit rates of cache policies: `cargo run --release -p oribi-index --example hit_rates [TRACE…]`
//!
//! Each policy replays the same requests with a cache that holds a tenth of the rows. The first half of a trace warms
//! up; of the second half the requests of the point readers count, those of scans do not. Nothing here depends on the
//! time or the machine: two runs print the same table, but for the concurrent crates, which clean up in the background.

mod policies;
mod traces;

use policies::Policy;
use traces::{Request, Trace};

/// Rows that fit the cache.
const CACHE_ROWS: u64 = traces::KEYS / 10;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<&str> = policies::all(1).iter().map(|(name, _)| *name).collect();
    println!("| trace | {} |", names.join(" | "));
    println!("|---|{}", "---:|".repeat(names.len()));
    for trace in traces::all().into_iter().filter(|t| wanted.is_empty() || wanted.iter().any(|w| w == t.name))
    {
        let requests = (trace.requests)();
        print!("| {} |", trace.title());
        for (_, mut policy) in policies::all(CACHE_ROWS) {
            print!(" {:.2} % |", 100.0 * hit_rate(&requests, &mut *policy));
            std::io::Write::flush(&mut std::io::stdout()).expect("stdout");
        }
        println!();
    }
}

/// The share of the point reads of the second half that found their row in the cache.
fn hit_rate(requests: &[Request], policy: &mut dyn Policy) -> f64 {
    let (mut reads, mut hits) = (0u64, 0u64);
    for (i, request) in requests.iter().enumerate() {
        let hit = policy.get(request.key());
        if i >= requests.len() / 2 && !request.is_scan() {
            reads += 1;
            hits += u64::from(hit);
        }
    }
    hits as f64 / reads as f64
}

impl Trace {
    fn title(&self) -> String {
        format!("{}: {}", self.name, self.what)
    }
}
