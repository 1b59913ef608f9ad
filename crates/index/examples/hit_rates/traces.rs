//! Requests: point reads by a distribution, and scans that read cold rows one after the other.

/// Rows that point readers ask for.
pub const KEYS: u64 = 1_000_000;
/// Point reads of a trace.
const READS: usize = 8_000_000;
/// Point reads between two scans, and rows of a scan: over half of the cache.
const SCAN_EVERY: usize = 200_000;
const SCAN_ROWS: u32 = 60_000;
/// Rows of the table that is scanned: five times the cache.
const COLD_ROWS: u32 = 500_000;

/// A request for a row; the highest bit says that a scan makes it.
#[derive(Clone, Copy)]
pub struct Request(u32);

impl Request {
    const SCAN: u32 = 1 << 31;

    pub fn is_scan(self) -> bool {
        self.0 & Self::SCAN != 0
    }

    pub fn key(self) -> u64 {
        u64::from(self.0)
    }
}

pub struct Trace {
    pub name: &'static str,
    pub what: &'static str,
    pub requests: fn() -> Vec<Request>,
}

pub fn all() -> Vec<Trace> {
    let trace = |name, what, requests| Trace { name, what, requests };
    vec![
        trace("zipf-0.9", "Zipf, s = 0.9", || zipf(0.9)),
        trace("zipf-0.99", "Zipf, s = 0.99", || zipf(0.99)),
        trace("zipf-1.1", "Zipf, s = 1.1", || zipf(1.1)),
        trace("scans-0.9", "Zipf, s = 0.9, and scans", || with_scans(zipf(0.9), SCAN_EVERY, SCAN_ROWS)),
        trace("scans-0.99", "Zipf, s = 0.99, and scans", || with_scans(zipf(0.99), SCAN_EVERY, SCAN_ROWS)),
        trace("table", "Zipf, s = 0.99, and scans of a table five times the cache", || {
            with_scans(zipf(0.99), READS / 5, COLD_ROWS)
        }),
        trace("shift", "a working set of 0.8 caches, of which 1 % changes every 20,000 reads", shifting),
        trace("jump", "Zipf, s = 0.99, all of whose keys change every 2,000,000 reads", jumping),
    ]
}

/// xorshift64* (Vigna 2016).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    /// Uniform in 0..1.
    fn unit(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 53) as f64
    }
}

fn zipf(s: f64) -> Vec<Request> {
    let (ranks, mut random) = (Ranks::new(s), Random(0x9E37_79B9_7F4A_7C15));
    (0..READS).map(|_| Request(ranks.draw(&mut random))).collect()
}

/// Every 2,000,000 reads the popular keys become others.
fn jumping() -> Vec<Request> {
    let shifted = |(i, request): (usize, Request)| {
        let shift = (i / 2_000_000) as u64 * KEYS / 4;
        Request(((request.key() + shift) % KEYS) as u32)
    };
    zipf(0.99).into_iter().enumerate().map(shifted).collect()
}

/// A window of keys that are read uniformly, and that moves on.
fn shifting() -> Vec<Request> {
    let mut random = Random(7);
    let window = KEYS / 10 * 8 / 10;
    let read = |i: usize| (i as u64 / 20_000 * (window / 100) + random.next() % window) % KEYS;
    (0..READS).map(read).map(|key| Request(key as u32)).collect()
}

/// Before every `every` reads come `rows` rows of the cold table, where the last scan left off.
fn with_scans(reads: Vec<Request>, every: usize, rows: u32) -> Vec<Request> {
    let mut requests = Vec::with_capacity(reads.len() / every * (every + rows as usize));
    let mut cold = 0;
    for chunk in reads.chunks(every) {
        requests.extend((cold..cold + rows).map(|row| Request(Request::SCAN | (row % COLD_ROWS))));
        cold = (cold + rows) % COLD_ROWS;
        requests.extend_from_slice(chunk);
    }
    requests
}

/// Ranks 0 to [`KEYS`], the n-th with a probability proportional to n^-s: by bisection of the cumulated probabilities.
struct Ranks {
    cumulated: Vec<f64>,
    /// Where in `cumulated` each of these equal parts of 0..1 begins.
    parts: Vec<usize>,
}

const PARTS: usize = 1 << 16;

impl Ranks {
    fn new(s: f64) -> Self {
        let mut sum = 0.0;
        let weights = (1..=KEYS).map(|rank| (rank as f64).powf(-s));
        let mut cumulated: Vec<f64> = weights
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        cumulated.iter_mut().for_each(|c| *c /= sum);
        let begin = |part: usize| cumulated.partition_point(|c| *c < part as f64 / PARTS as f64);
        let parts = (0..=PARTS).map(begin).collect();
        Ranks { cumulated, parts }
    }

    fn draw(&self, random: &mut Random) -> u32 {
        let at = random.unit();
        let part = (at * PARTS as f64) as usize;
        let (from, to) = (self.parts[part], (self.parts[part + 1] + 1).min(self.cumulated.len()));
        let rank = from + self.cumulated[from..to].partition_point(|c| *c < at);
        rank.min(KEYS as usize - 1) as u32
    }
}
