//! `oribi perf kv`: a load of gets and sets in batches, in the manner of pillowfight, against any server that speaks
//! memcached's protocols, or Couchbase's.
//!
//! Each thread owns its connections and keeps one batch under way on each. Building and checking an operation copies
//! a key and skips an answer, without an allocation or a lock; a batch costs one write(2) and at least two read(2), the
//! first of which finds nothing yet. The generator's own CPU time is printed, so that it can be told from the server's.
//! The latency of a batch includes waiting for its thread's other connections.

mod connection;
mod couchbase;
mod cpu;
mod load;
mod protocol;
mod report;

use crate::stdout::say;
use couchbase::Login;
pub(super) use cpu::CpuTime;
use load::{Counts, Worker};
use oribi_types::{Error, Result};
use protocol::Protocol;
use report::Report;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// A load of gets and sets
#[derive(Clone, Debug, clap::Args)]
pub struct KvCommand {
    /// Server
    #[arg(long, default_value = "127.0.0.1:11211", value_name = "HOST:PORT")]
    host: String,
    #[arg(long, value_enum, default_value_t = Protocol::Text)]
    protocol: Protocol,
    /// Keys; all are set once before the measurement
    #[arg(long, default_value_t = 1_000_000)]
    num_items: u64,
    /// Operations that a connection sends before it waits for their answers
    #[arg(long, default_value_t = 100)]
    batch_size: usize,
    /// Share of sets among the operations, in percent
    #[arg(long, default_value_t = 33, value_parser = clap::value_parser!(u8).range(0..=100))]
    set_pct: u8,
    /// Bytes of the smallest value
    #[arg(long, default_value_t = 50)]
    min_size: usize,
    /// Bytes of the largest value
    #[arg(long, default_value_t = 5120)]
    max_size: usize,
    #[arg(long, default_value_t = 1)]
    num_threads: usize,
    /// Connections of each thread
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Operations to measure in all, instead of a duration
    #[arg(long, conflicts_with = "duration")]
    operations: Option<u64>,
    /// Seconds to measure
    #[arg(long, default_value_t = 10)]
    duration: u64,
    /// Leave out setting every key first
    #[arg(long)]
    no_population: bool,
    /// Process of the server, whose CPU time is to be told too
    #[arg(long)]
    server_pid: Option<u32>,
    /// Print the result as a line of JSON
    #[arg(long)]
    json: bool,
    /// User, for the couchbase protocol
    #[arg(long, default_value = "default")]
    user: String,
    /// Password of the user; the couchbase protocol sends it as it is
    #[arg(long, env = "ORIBI_PERF_PASSWORD", default_value = "", hide_env_values = true)]
    password: String,
    /// Bucket, for the couchbase protocol
    #[arg(long, default_value = "default")]
    bucket: String,
}

impl KvCommand {
    fn validate(&self) -> Result<()> {
        let counts = [
            ("num-items", self.num_items as usize),
            ("batch-size", self.batch_size),
            ("num-threads", self.num_threads),
            ("connections", self.connections),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(Error::invalid(format!("--{name} is 0")));
        }
        if self.min_size > self.max_size || self.max_size > load::VALUE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "--min-size {} and --max-size {} must be in order and at most {}",
                self.min_size,
                self.max_size,
                load::VALUE_BYTES_MAX
            )));
        }
        Ok(())
    }

    fn login(&self) -> Login<'_> {
        Login { user: &self.user, password: &self.password, bucket: &self.bucket }
    }

    fn address(&self) -> Result<SocketAddr> {
        let mut addresses = self
            .host
            .to_socket_addrs()
            .map_err(|e| Error::from(e).context(format!("--host {}", self.host)))?;
        addresses.next().ok_or_else(|| Error::not_found(format!("--host {}", self.host)))
    }
}

/// When the threads stop: at a time, or once the operations are used up.
pub(super) struct Until {
    stop: AtomicBool,
    /// Operations that nobody has taken yet; `i64::MAX` if only the time counts.
    left: AtomicI64,
}

impl Until {
    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for `duration`, unless somebody else stops before.
    fn stop_after(&self, duration: Duration) {
        let end = Instant::now() + duration;
        while Instant::now() < end && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20).min(end.saturating_duration_since(Instant::now())));
        }
        self.stop();
    }

    /// Takes up to `wanted` operations; 0 ends the thread.
    pub(super) fn take(&self, wanted: usize) -> usize {
        if self.stop.load(Ordering::Relaxed) {
            return 0;
        }
        let left = self.left.fetch_sub(wanted as i64, Ordering::Relaxed);
        left.clamp(0, wanted as i64) as usize
    }
}

pub fn run(command: &KvCommand) -> Result<()> {
    command.validate()?;
    let address = command.address()?;
    let workers = (0..command.num_threads).map(|thread| Worker::open(command, address, thread as u64));
    let mut workers = workers.collect::<Result<Vec<_>>>()?;
    if !command.no_population {
        let started = Instant::now();
        in_threads(&mut workers, Worker::populate)?;
        if !command.json {
            say!("set {} items in {:.2} s", command.num_items, started.elapsed().as_secs_f64())?;
        }
    }
    let until = Until {
        stop: AtomicBool::new(false),
        left: AtomicI64::new(command.operations.map_or(i64::MAX / 2, |n| n as i64)),
    };
    let server = || command.server_pid.map(CpuTime::of_process).transpose();
    let (client_before, server_before, started) = (CpuTime::of_this_process(), server()?, Instant::now());
    std::thread::scope(|scope| {
        if command.operations.is_none() {
            let until = &until;
            scope.spawn(move || until.stop_after(Duration::from_secs(command.duration)));
        }
        // If one fails, the others need not go on.
        let measure = |worker: &mut Worker| worker.measure(&until).inspect_err(|_| until.stop());
        in_threads(&mut workers, measure)
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let (mut counts, mut latency) = (Counts::default(), load::latency_histogram());
    workers.iter().for_each(|worker| worker.report(&mut counts, &mut latency));
    let client = CpuTime::of_this_process() - client_before;
    let server = server().ok().flatten().zip(server_before).map(|(after, before)| after - before);
    let report = Report { seconds, counts, latency, client, server };
    if command.json { say!("{}", report.json()) } else { report.print() }
}

/// Runs `work` on every worker at the same time; the first error counts.
fn in_threads(workers: &mut [Worker], work: impl Fn(&mut Worker) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(|| work(worker))).collect();
        let ended = |thread: ScopedJoinHandle<'_, Result<()>>| {
            thread.join().unwrap_or_else(|_| Err(Error::internal("a thread of the load panicked")))
        };
        threads.into_iter().try_for_each(ended)
    })
}

#[cfg(test)]
mod tests;
