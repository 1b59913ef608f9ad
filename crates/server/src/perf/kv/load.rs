//! One thread of the load: its keys, its values and its connections.

use super::connection::Connection;
use super::protocol::{Answer, Protocol};
use super::{KvCommand, Until};
use crate::perf::random::Xorshift;
use futures::future::try_join_all;
use hdrhistogram::Histogram;
use oribi_types::{Error, Result};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use tokio::runtime::{Builder, Runtime};

/// Values are slices of this many random bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Values begin at one of so many bytes, which stay in the processor's cache: it is the server that is measured.
const VALUE_STARTS: usize = 16 << 10;
/// Decimal digits of a key, as pillowfight writes them.
const KEY_DIGITS: usize = 20;

/// Answers by kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub sets: u64,
    pub hits: u64,
    pub misses: u64,
    pub errors: u64,
    /// Operations sent; a quiet batch does not answer each.
    sent: u64,
}

impl Counts {
    pub fn operations(&self) -> u64 {
        self.sent
    }

    pub fn add(&mut self, other: &Counts) {
        self.sets += other.sets;
        self.hits += other.hits;
        self.misses += other.misses;
        self.errors += other.errors;
        self.sent += other.sent;
    }

    fn note(&mut self, answer: Answer) {
        match answer {
            Answer::Hit => self.hits += 1,
            Answer::Miss => self.misses += 1,
            Answer::Error => self.errors += 1,
            // Sets are counted when they are sent: a quiet one is not answered.
            Answer::Stored | Answer::End => {}
        }
    }
}

/// What a thread owns.
pub struct Worker {
    runtime: Runtime,
    connections: Vec<Connection>,
    shared: RefCell<Shared>,
    batch_size: usize,
    /// The keys that this thread sets before the measurement.
    population: std::ops::Range<u64>,
}

/// What the connections of a thread share.
struct Shared {
    operations: Operations,
    counts: Counts,
    /// Nanoseconds from the begin of a batch to its last answer.
    latency: Histogram<u64>,
}

impl Worker {
    /// # Errors
    /// Those of connecting.
    pub fn open(command: &KvCommand, address: SocketAddr, thread: u64) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connect = |_| runtime.block_on(Connection::open(address, command.protocol, command.login()));
        let connections = (0..command.connections).map(connect).collect::<Result<_>>()?;
        let share = |thread: u64| command.num_items * thread / command.num_threads as u64;
        let shared = Shared {
            operations: Operations::new(command, thread),
            counts: Counts::default(),
            latency: latency_histogram(),
        };
        Ok(Worker {
            runtime,
            connections,
            shared: RefCell::new(shared),
            batch_size: command.batch_size,
            population: share(thread)..share(thread + 1),
        })
    }

    /// Adds what this thread has seen.
    pub fn report(&self, counts: &mut Counts, latency: &mut Histogram<u64>) {
        let shared = self.shared.borrow();
        counts.add(&shared.counts);
        latency.add(&shared.latency).expect("histograms of one kind");
    }

    /// Sets every key of this thread's share.
    ///
    /// # Errors
    /// Those of the connections; `Unavailable` if the server refused a set.
    pub fn populate(&mut self) -> Result<()> {
        let end = self.population.end;
        let next = Cell::new(self.population.start);
        let batch = self.batch_size as u64;
        self.run(|shared, out| {
            let first = next.get();
            next.set(end.min(first + batch));
            (first..next.get()).for_each(|item| shared.operations.set(item, out));
            (next.get() - first) as usize
        })?;
        let shared = self.shared.get_mut();
        (shared.counts, shared.latency) = match shared.counts.errors {
            0 => (Counts::default(), latency_histogram()),
            n => return Err(Error::unavailable(format!("the server refused {n} of the first sets"))),
        };
        Ok(())
    }

    /// Sends gets and sets of random keys.
    ///
    /// # Errors
    /// Those of the connections.
    pub fn measure(&mut self, until: &Until) -> Result<()> {
        let batch = self.batch_size;
        self.run(|shared, out| {
            let wanted = until.take(batch);
            (0..wanted).for_each(|_| shared.counts.sets += u64::from(shared.operations.random(out)));
            wanted
        })
    }

    /// Keeps a batch under way on each connection until `fill` appends none.
    fn run(&mut self, fill: impl Fn(&mut Shared, &mut Vec<u8>) -> usize) -> Result<()> {
        let (shared, fill) = (&self.shared, &fill);
        let one = async |connection: &mut Connection| -> Result<()> {
            while connection.begin(|out| {
                let mut shared = shared.borrow_mut();
                let sent = fill(&mut shared, out);
                shared.counts.sent += sent as u64;
                sent
            }) {
                let took = connection.exchange(&mut |answer| shared.borrow_mut().counts.note(answer)).await?;
                shared.borrow_mut().latency.saturating_record(took.as_nanos() as u64);
            }
            Ok(())
        };
        self.runtime.block_on(try_join_all(self.connections.iter_mut().map(one))).map(drop)
    }
}

/// Of nanoseconds, from a microsecond to a minute, to three digits.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 60_000_000_000, 3).expect("these bounds are valid")
}

/// Makes operations: keys, values and their bytes.
struct Operations {
    protocol: Protocol,
    items: u64,
    set_pct: u8,
    sizes: std::ops::RangeInclusive<usize>,
    values: Vec<u8>,
    random: Xorshift,
}

impl Operations {
    fn new(command: &KvCommand, thread: u64) -> Self {
        let mut operations = Operations {
            protocol: command.protocol,
            items: command.num_items,
            set_pct: command.set_pct,
            sizes: command.min_size..=command.max_size,
            values: Vec::new(),
            random: Xorshift::new(thread + 1),
        };
        operations.values = (0..VALUE_BYTES_MAX).map(|_| b'a' + operations.below(26) as u8).collect();
        operations
    }

    /// A number below `n`.
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.random.next()) * u128::from(n)) >> 64) as u64
    }

    fn set(&mut self, item: u64, out: &mut Vec<u8>) {
        let (smallest, largest) = (*self.sizes.start(), *self.sizes.end());
        let size = smallest + self.below((largest - smallest + 1) as u64) as usize;
        let starts = VALUE_STARTS.min(self.values.len() - size + 1);
        let start = self.below(starts as u64) as usize;
        self.protocol.set(&key(item), &self.values[start..start + size], out);
    }

    /// A get or a set of a random key; whether it is a set.
    fn random(&mut self, out: &mut Vec<u8>) -> bool {
        let item = self.below(self.items);
        let is_set = self.below(100) < u64::from(self.set_pct);
        if is_set {
            self.set(item, out);
        } else {
            self.protocol.get(&key(item), out);
        }
        is_set
    }
}

/// The number of an item in decimal, with leading zeros.
fn key(mut item: u64) -> [u8; KEY_DIGITS] {
    let mut digits = [b'0'; KEY_DIGITS];
    for digit in digits.iter_mut().rev() {
        if item == 0 {
            break;
        }
        *digit = b'0' + (item % 10) as u8;
        item /= 10;
    }
    digits
}
