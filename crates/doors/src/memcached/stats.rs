//! What the door counts, for its own `stats` command and for the metrics.

use super::reply::Kind;
use oribi_net::{ClientLimits, Counter, Traffic};
use oribi_session::kv::{Answer, BUCKET, KeyValue, Status};
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// memcached's version of the protocol that is spoken, in the form that clients parse.
pub const VERSION: &str = concat!("1.6.18-oribi-", env!("CARGO_PKG_VERSION"));

pub const VERSION_LINE: &str = concat!("VERSION 1.6.18-oribi-", env!("CARGO_PKG_VERSION"));

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident $metric:literal),* $(,)?) => {
        /// Counts of one batch.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Tally { $($(#[$doc])* pub $name: u64),* }

        /// Counts of one thread, which alone adds to them.
        pub struct Counters { $($name: Counter),* }

        impl Counters {
            pub fn new() -> Self {
                Counters { $($name: Counter::new($metric)),* }
            }

            pub fn add(&self, tally: &Tally) {
                $(self.$name.add(tally.$name);)*
            }

            fn add_to(&self, sum: &mut Tally) {
                $(sum.$name += self.$name.total();)*
            }
        }

        impl Tally {
            /// The counts that memcached's `stats` has too, by their names there.
            fn lines(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    cmd_get "oribi_memcached_gets_total",
    cmd_set "oribi_memcached_sets_total",
    cmd_flush "oribi_memcached_flushes_total",
    cmd_touch "oribi_memcached_touches_total",
    cmd_meta "oribi_memcached_metas_total",
    get_hits "oribi_memcached_get_hits_total",
    get_misses "oribi_memcached_get_misses_total",
    delete_misses "oribi_memcached_delete_misses_total",
    delete_hits "oribi_memcached_delete_hits_total",
    incr_misses "oribi_memcached_incr_misses_total",
    incr_hits "oribi_memcached_incr_hits_total",
    decr_misses "oribi_memcached_decr_misses_total",
    decr_hits "oribi_memcached_decr_hits_total",
    cas_misses "oribi_memcached_cas_misses_total",
    cas_hits "oribi_memcached_cas_hits_total",
    cas_badval "oribi_memcached_cas_mismatches_total",
    touch_hits "oribi_memcached_touch_hits_total",
    touch_misses "oribi_memcached_touch_misses_total",
    errors "oribi_memcached_errors_total",
}

impl Tally {
    /// Counts what became of a change.
    pub fn count(&mut self, change: Kind, status: &Status) {
        let done = matches!(status, Status::Done);
        let (hits, misses) = match change {
            Kind::Store { compares } => {
                self.cmd_set += 1;
                let count = match status {
                    Status::Done if compares => &mut self.cas_hits,
                    Status::Exists => &mut self.cas_badval,
                    Status::NotFound => &mut self.cas_misses,
                    _ => return,
                };
                *count += 1;
                return;
            }
            Kind::Touch => {
                self.cmd_touch += 1;
                (&mut self.touch_hits, &mut self.touch_misses)
            }
            Kind::Count { down: true } => (&mut self.decr_hits, &mut self.decr_misses),
            Kind::Count { down: false } => (&mut self.incr_hits, &mut self.incr_misses),
            Kind::Delete => (&mut self.delete_hits, &mut self.delete_misses),
        };
        *if done { hits } else { misses } += 1;
    }

    /// Counts a key that was read, or read and touched.
    pub fn count_read(&mut self, found: &Answer<'_>) {
        match found {
            Answer::Found(_) => {
                self.cmd_get += 1;
                self.get_hits += 1;
            }
            Answer::Absent => {
                self.cmd_get += 1;
                self.get_misses += 1;
            }
            Answer::Changed(outcome) => self.count(Kind::Touch, &outcome.status),
            Answer::Refused(_) => {}
        }
    }
}

/// What the whole door knows about itself.
pub struct Stats {
    pub local_addr: SocketAddr,
    pub limits: ClientLimits,
    pub traffic: Arc<Traffic>,
    /// Of each thread.
    pub counters: Vec<Arc<Counters>>,
    pub started: Instant,
}

/// What there is to say about a topic.
pub enum Listed {
    /// Statistics, which were given.
    All,
    Reset,
    Unknown,
}

impl Stats {
    /// Gives `put` the name and value of each statistic of `topic`.
    pub fn list(&self, topic: &[u8], kv: &KeyValue, put: &mut dyn FnMut(&str, &str)) -> Listed {
        let mut lines = Lines { put };
        match topic {
            b"" => self.general(kv, &mut lines),
            b"settings" => self.settings(kv, &mut lines),
            b"items" => lines.put("items:1:number", items(kv)),
            b"slabs" => {
                lines.put("1:used_chunks", items(kv));
                lines.put("active_slabs", 1);
                lines.put("total_malloced", kv.engine().memory().used());
            }
            b"sizes" | b"sizes_disable" | b"sizes_enable" => lines.put("sizes_status", "disabled"),
            b"conns" => {}
            // Counters serve the metrics too, which must not go back: they are kept.
            b"reset" => return Listed::Reset,
            _ => return Listed::Unknown,
        }
        Listed::All
    }

    fn general(&self, kv: &KeyValue, lines: &mut Lines<'_>) {
        lines.put("pid", std::process::id());
        lines.put("uptime", self.started.elapsed().as_secs());
        lines.put("time", kv.now_micros() / 1_000_000);
        lines.put("version", VERSION);
        lines.put("pointer_size", usize::BITS);
        lines.put("max_connections", self.limits.connections_max);
        lines.put("curr_connections", self.traffic.open());
        let mut sum = Tally::default();
        for counters in &self.counters {
            counters.add_to(&mut sum);
        }
        for (name, count) in sum.lines() {
            lines.put(name, count);
        }
        let traffic = self.traffic.sum();
        lines.put("bytes_read", traffic.received_bytes);
        lines.put("bytes_written", traffic.sent_bytes);
        lines.put("total_connections", traffic.accepted);
        lines.put("rejected_connections", traffic.rejected);
        lines.put("idle_kicks", traffic.idle);
        lines.put("threads", self.counters.len());
        lines.put("curr_items", items(kv));
        lines.put("bytes", kv.engine().memory().used());
        lines.put("limit_maxbytes", kv.engine().memory().limit());
        // What is stored stays stored.
        lines.put("evictions", 0);
    }

    fn settings(&self, kv: &KeyValue, lines: &mut Lines<'_>) {
        lines.put("maxbytes", kv.engine().memory().limit());
        lines.put("maxconns", self.limits.connections_max);
        lines.put("tcpport", self.local_addr.port());
        lines.put("udpport", 0);
        lines.put("inter", self.local_addr.ip());
        lines.put("evictions", "off");
        lines.put("num_threads", self.counters.len());
        lines.put("cas_enabled", "yes");
        lines.put("auth_enabled_sasl", "no");
        lines.put("item_size_max", kv.limits().value_bytes_max);
        lines.put("flush_enabled", "yes");
        lines.put("idle_timeout", self.limits.idle_max.map_or(0, |time| time.as_secs()));
        lines.put("binding_protocol", "auto-negotiate");
    }
}

/// About how many documents there are.
fn items(kv: &KeyValue) -> u64 {
    kv.engine().table(BUCKET.0, BUCKET.1).map_or(0, |table| table.estimated_rows())
}

struct Lines<'p> {
    put: &'p mut dyn FnMut(&str, &str),
}

impl Lines<'_> {
    fn put(&mut self, name: &str, value: impl Display) {
        (self.put)(name, &value.to_string());
    }
}
