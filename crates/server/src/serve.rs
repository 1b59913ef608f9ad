//! `oribi serve`: opens the folder, opens the doors, says so, and serves until it is told to stop.

use crate::config::{Config, Layers};
use crate::database::Opened;
use crate::processor::VERSION;
use crate::sql::connection::{connect, describe};
use crate::{database, logging, nodes, runtime, store, trim};
use metrics::{counter, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use oribi_doors::couchbase::cluster::ClusterMap;
use oribi_doors::couchbase::sasl::Users;
use oribi_doors::couchbase::{self, CouchbaseDoor, CouchbaseOptions};
use oribi_doors::http::{HttpDoor, HttpLimits, HttpState};
use oribi_doors::kudu::{KuduAddresses, KuduDoor, KuduOptions};
use oribi_doors::memcached::{MemcachedDoor, MemcachedLimits};
use oribi_doors::postgres::{PostgresDoor, PostgresLimits};
use oribi_engine::{EngineStats, Part, Trouble};
use oribi_exchange::OwnerDoor;
use oribi_flight::{Credentials, FlightDoor, FlightLimits};
use oribi_net::{ClientLimits, Network, TlsIdentity, bind};
use oribi_session::Database;
use oribi_session::kv::{KvLimits, Locks};
use oribi_store::Store;
use oribi_types::{Error, Result};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// A door that does not answer its first request within this time never will, on a machine as busy as may be.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(60);

pub fn run(layers: &Layers) -> Result<()> {
    let config = layers.config()?;
    logging::start(&config.log, config.log_format)?;
    for variable in &layers.unknown_variables {
        tracing::warn!("environment variable {variable} names no setting");
    }
    let metrics = PrometheusBuilder::new()
        .install_recorder()
        .map_err(|e| Error::internal(format!("metrics recorder: {e}")))?;
    trim::begin(config.memory_bytes + config.network_memory() as u64)?;
    let runtime = runtime()?;
    match config.owner {
        Some(owner) => runtime.block_on(serve_compute(&config, owner, metrics)),
        None => runtime.block_on(serve(&config, metrics)),
    }
}

async fn serve(config: &Config, metrics: PrometheusHandle) -> Result<()> {
    let mut stop = StopSignals::listen()?;
    let opening = config.clone();
    let opened = tokio::task::spawn_blocking(move || database::open_configured(&opening))
        .await
        .map_err(|e| Error::internal(format!("opening the folder: {e}")))??;
    let ready = Arc::new(AtomicBool::new(false));
    let (shutdown, shut) = watch::channel(false);
    let nodes = nodes::listen(config, &opened, &shut)?;
    let Opened { database, store, .. } = opened;
    let doors = Doors::open(config, (&database, store), metrics, ready.clone(), &shut)?;
    doors.announce();
    if let Some(nodes) = &nodes {
        say(&format!("listening nodes {}", nodes.local_addr()));
    }
    doors.round_trip().await?;
    ready.store(true, Ordering::Release);
    say("ready");
    tracing::info!(version = VERSION, data = %config.data.display(), memory_bytes = config.memory_bytes, "ready");

    let reason = tokio::select! {
        reason = stop.wait() => reason,
        failure = database.engine.failure() => {
            // No answer may be sent any more, and the next start recovers what was promised.
            return Err(failure.context("the server ends at once"));
        }
    };
    tracing::info!(reason, "stopping");
    ready.store(false, Ordering::Release);
    shutdown.send_replace(true);
    nodes.into_iter().for_each(OwnerDoor::close);
    // A door that failed is no reason to leave the folder unflushed.
    // What clients were told of is not left out of files now: they come again.
    let snapshots = doors.kudu.as_ref().map(KuduDoor::snapshots);
    let joined = doors.join().await;
    tokio::task::spawn_blocking(move || database.engine.close())
        .await
        .map_err(|e| Error::internal(format!("closing the folder: {e}")))??;
    drop(snapshots);
    joined?;
    tracing::info!("stopped");
    Ok(())
}

/// Runs tasks of an owner's queries until it is told to stop.
async fn serve_compute(config: &Config, owner: SocketAddr, metrics: PrometheusHandle) -> Result<()> {
    let mut stop = StopSignals::listen()?;
    let opening = config.clone();
    let node = tokio::task::spawn_blocking(move || nodes::open(&opening));
    let node = node.await.map_err(|e| Error::internal(format!("opening the node: {e}")))??;
    let ready = Arc::new(AtomicBool::new(false));
    let (shutdown, shut) = watch::channel(false);
    let network = Network::new(config.network_memory())?;
    let http = config.http.map(|address| {
        let state = http_state(&node.database, node.store.clone(), metrics, &ready, &network);
        HttpDoor::start(bind(address)?, state, HttpLimits::default(), shut.clone())
    });
    let http = http.transpose().map_err(|e| e.context("http door"))?;
    let tasks = nodes::start(config, owner, &node, &shut).await?;
    say(&format!("listening nodes {}", tasks.local_addr()));
    if let Some(http) = &http {
        say(&format!("listening http {}", http.local_addr()));
    }
    ready.store(true, Ordering::Release);
    say("ready");
    let reason = stop.wait().await;
    tracing::info!(reason, "stopping");
    shutdown.send_replace(true);
    tasks.close();
    match http {
        Some(http) => http.join().await,
        None => Ok(()),
    }
}

/// What the HTTP door shows.
fn http_state(
    database: &Database,
    store: Option<Store>,
    metrics: PrometheusHandle,
    ready: &Arc<AtomicBool>,
    network: &Network,
) -> HttpState {
    let (engine, sql, network) = (database.engine.clone(), database.sql.clone(), network.clone());
    let asked = engine.clone();
    let refresh = Arc::new(move || {
        publish(&engine.stats(), &engine.troubles(), sql.unread_bytes());
        publish_network(&network);
        store.iter().for_each(|store| store::publish(&store.stats()));
    });
    HttpState { metrics, refresh, ready: ready.clone(), troubles: Arc::new(move || asked.troubles()) }
}

/// A line for whoever waits for the server to come up. Nobody need read it: a server outlives whoever started it.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The signals that stop a server.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn listen() -> Result<Self> {
        Ok(StopSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the first; returns its name.
    async fn wait(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// The doors that are open.
struct Doors {
    memcached: Option<MemcachedDoor>,
    couchbase: Option<CouchbaseDoor>,
    postgres: Option<PostgresDoor>,
    flight: Option<FlightDoor>,
    kudu: Option<KuduDoor>,
    http: Option<HttpDoor>,
}

impl Doors {
    fn open(
        config: &Config,
        (database, store): (&Database, Option<Store>),
        metrics: PrometheusHandle,
        ready: Arc<AtomicBool>,
        shut: &watch::Receiver<bool>,
    ) -> Result<Self> {
        let engine = &database.engine;
        let statement_bytes_max = engine.options().statement_bytes_max;
        let locks = Arc::<Locks>::default();
        let network = Network::new(config.network_memory())?;
        let memcached = config.memcached.map(|address| {
            let limits = memcached_limits(config, statement_bytes_max, &network);
            MemcachedDoor::start(address, engine, &locks, limits, config.threads, shut.clone())
        });
        let couchbase = config.couchbase.map(|address| {
            let options = couchbase_options(config, statement_bytes_max, &network)?;
            CouchbaseDoor::start(address, engine, &locks, options, ClusterMap::single, shut.clone())
        });
        let postgres = config.postgres.map(|address| {
            let limits = postgres_limits(config, &network);
            PostgresDoor::start(bind(address)?, database.sql.clone(), limits, shut.clone())
        });
        let flight = config.flight.map(|address| {
            let (limits, credentials) = (flight_limits(config, &network), flight_credentials(config)?);
            FlightDoor::start(bind(address)?, database.sql.clone(), limits, credentials, shut.clone())
        });
        let addresses = KuduAddresses { master: config.kudu_master, tserver: config.kudu_tserver };
        let kudu = addresses
            .any()
            .then(|| KuduDoor::start(addresses, engine, kudu_options(config, &network)?, shut.clone()));
        let http = config.http.map(|address| {
            let state = http_state(database, store, metrics, &ready, &network);
            HttpDoor::start(bind(address)?, state, HttpLimits::default(), shut.clone())
        });
        Ok(Doors {
            memcached: memcached.transpose().map_err(|e| e.context("memcached door"))?,
            couchbase: couchbase.transpose().map_err(|e| e.context("couchbase door"))?,
            postgres: postgres.transpose().map_err(|e| e.context("postgres door"))?,
            flight: flight.transpose().map_err(|e| e.context("flight door"))?,
            kudu: kudu.transpose().map_err(|e| e.context("kudu door"))?,
            http: http.transpose().map_err(|e| e.context("http door"))?,
        })
    }

    fn announce(&self) {
        let addresses = [
            ("memcached", self.memcached.as_ref().map(MemcachedDoor::local_addr)),
            ("couchbase", self.couchbase.as_ref().map(CouchbaseDoor::local_addr)),
            ("postgres", self.postgres.as_ref().map(PostgresDoor::local_addr)),
            ("flight", self.flight.as_ref().map(FlightDoor::local_addr)),
            ("kudu-master", self.kudu.as_ref().and_then(KuduDoor::master_addr)),
            ("kudu-tserver", self.kudu.as_ref().and_then(KuduDoor::tserver_addr)),
            ("http", self.http.as_ref().map(HttpDoor::local_addr)),
        ];
        for (door, address) in addresses {
            if let Some(address) = address {
                say(&format!("listening {door} {address}"));
            }
        }
    }

    /// Asks each door something, so that "ready" is a fact.
    async fn round_trip(&self) -> Result<()> {
        if let Some(door) = &self.memcached {
            ask("memcached", door.local_addr(), b"version\r\n", b"VERSION ").await?;
        }
        if let Some(door) = &self.couchbase {
            const NOOP: [u8; 24] =
                [0x80, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            ask("couchbase", door.local_addr(), &NOOP, b"\x81\x0a").await?;
        }
        if let Some(door) = &self.postgres {
            let select = async {
                let client = connect(&door.local_addr().to_string()).await?;
                client.batch_execute("select 1").await.map_err(|e| Error::internal(describe(&e)))
            };
            let answered = tokio::time::timeout(ROUND_TRIP_MAX, select).await;
            answered.map_err(|_| Error::unavailable("door postgres does not answer"))??;
        }
        if let Some(door) = &self.flight {
            // The preface of HTTP/2 with no settings, and the beginning of the server's: a frame on stream 0.
            const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
            ask("flight", door.local_addr(), HELLO, b"\0\0").await?;
        }
        if let Some(door) = &self.kudu {
            // The hello and the first step of a negotiation, and the beginning of its answer.
            const NEGOTIATE: &[u8] =
                b"hrpc\x09\0\0\0\0\0\x0f\x0b\x18\xdf\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02\x10\x01";
            for address in [door.master_addr(), door.tserver_addr()].into_iter().flatten() {
                ask("kudu", address, NEGOTIATE, b"\0\0\0\x1e\x0b\x08\xdf").await?;
            }
        }
        if let Some(door) = &self.http {
            let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
            ask("http", door.local_addr(), request, b"HTTP/1.1 200").await?;
        }
        Ok(())
    }

    /// Waits until all have finished what they were doing.
    ///
    /// # Errors
    /// Those of the first door that failed; the others were waited for too.
    async fn join(self) -> Result<()> {
        let memcached = match self.memcached {
            Some(door) => door.join().await,
            None => Ok(()),
        };
        let couchbase = match self.couchbase {
            Some(door) => door.join().await,
            None => Ok(()),
        };
        if let Some(door) = self.postgres {
            door.join().await;
        }
        if let Some(door) = self.flight {
            door.join().await;
        }
        let kudu = match self.kudu {
            Some(door) => door.join().await,
            None => Ok(()),
        };
        let http = match self.http {
            Some(door) => door.join().await,
            None => Ok(()),
        };
        memcached.and(couchbase).and(kudu).and(http)
    }
}

fn memcached_limits(config: &Config, statement_bytes_max: usize, network: &Network) -> MemcachedLimits {
    let most = KvLimits::value_bytes_most(config.key_bytes_max, statement_bytes_max);
    let value_bytes_max = config.value_bytes_max.unwrap_or(KvLimits::default().value_bytes_max.min(most));
    let relative_seconds_max = config.memcached_relative_seconds_max as i64;
    let idle_max = match config.memcached_idle_seconds_max {
        0 => None,
        seconds => Some(Duration::from_secs(seconds as u64)),
    };
    MemcachedLimits {
        kv: KvLimits { key_bytes_max: config.key_bytes_max, value_bytes_max, relative_seconds_max },
        clients: ClientLimits {
            connections_max: config.memcached_connections_max,
            idle_max,
            ..ClientLimits::default()
        },
        network: network.clone(),
    }
}

fn postgres_limits(config: &Config, network: &Network) -> PostgresLimits {
    let limits = PostgresLimits::default();
    let kept_bytes_max_of_all = config.network_memory();
    PostgresLimits {
        connections_max: config.postgres_connections_max,
        network: network.clone(),
        kept_bytes_max: limits.kept_bytes_max.min(kept_bytes_max_of_all),
        kept_bytes_max_of_all,
        ..limits
    }
}

fn flight_limits(config: &Config, network: &Network) -> FlightLimits {
    let limits = FlightLimits::default();
    FlightLimits {
        connections_max: config.flight_connections_max,
        network: network.clone(),
        statement_bytes_max: limits.statement_bytes_max.min(config.network_memory()),
        transaction_silence_max: Duration::from_millis(config.flight_silence_ms),
        ..limits
    }
}

/// # Errors
/// As [`password_of`].
fn flight_credentials(config: &Config) -> Result<Option<Credentials>> {
    let (user, file) = (&config.flight_user, &config.flight_password_file);
    let password = password_of("flight", user, file)?;
    Ok(password.map(|password| Credentials { user: user.clone(), password }))
}

/// The password of a door's user, if it has one.
///
/// # Errors
/// `Invalid` for a user without a password; those of reading it.
fn password_of(door: &str, user: &str, file: &Path) -> Result<Option<String>> {
    match (user.is_empty(), file.as_os_str().is_empty()) {
        (true, true) => Ok(None),
        (false, false) => {
            let password =
                std::fs::read_to_string(file).map_err(|e| Error::from(e).context(file.display()))?;
            Ok(Some(password.trim_end_matches(['\r', '\n']).to_owned()))
        }
        _ => Err(Error::invalid(format!("{door}_user and {door}_password_file go together"))),
    }
}

/// # Errors
/// `Invalid` for a user without a password; those of reading it.
fn couchbase_options(
    config: &Config,
    statement_bytes_max: usize,
    network: &Network,
) -> Result<CouchbaseOptions> {
    let limits = KvLimits::default();
    let most = KvLimits::value_bytes_most(limits.key_bytes_max, statement_bytes_max);
    let (user, file) = (&config.couchbase_user, &config.couchbase_password_file);
    let password = password_of("couchbase", user, file)?;
    let users = Users::new(password.as_deref().map(|password| (user.as_str(), password)))?;
    Ok(CouchbaseOptions {
        kv: KvLimits { value_bytes_max: couchbase::VALUE_BYTES_MAX.min(most), ..limits },
        clients: ClientLimits {
            connections_max: config.couchbase_connections_max,
            ..ClientLimits::default()
        },
        users,
        network: network.clone(),
        threads: config.threads,
    })
}

/// # Errors
/// Those of reading who this server is, or of writing it down; of its certificate.
fn kudu_options(config: &Config, network: &Network) -> Result<KuduOptions> {
    let options = KuduOptions::new(database::node_id(&config.data)?);
    let clients = ClientLimits { connections_max: config.kudu_connections_max, ..options.clients };
    let (threads, network) = (config.threads, network.clone());
    Ok(KuduOptions { clients, threads, network, identity: identity(config)?, ..options })
}

/// # Errors
/// `Invalid` for a certificate without a key, or one that does not fit; those of reading them.
fn identity(config: &Config) -> Result<Option<TlsIdentity>> {
    let (certificate, key) = (&config.tls_certificate, &config.tls_key);
    match (certificate.as_os_str().is_empty(), key.as_os_str().is_empty()) {
        (true, true) => Ok(None),
        (false, false) => {
            let read = |file: &Path| std::fs::read(file).map_err(|e| Error::from(e).context(file.display()));
            TlsIdentity::from_pem(&read(certificate)?, &read(key)?).map(Some)
        }
        _ => Err(Error::invalid("tls_certificate and tls_key go together")),
    }
}

/// Sends `request` to a door and checks how the answer begins.
async fn ask(door: &str, address: SocketAddr, request: &[u8], answer: &[u8]) -> Result<()> {
    let exchange = async {
        let mut socket = TcpStream::connect(address).await?;
        socket.write_all(request).await?;
        let mut begin = vec![0; answer.len()];
        socket.read_exact(&mut begin).await?;
        Ok::<_, std::io::Error>(begin)
    };
    let began = tokio::time::timeout(ROUND_TRIP_MAX, exchange)
        .await
        .map_err(|_| Error::unavailable(format!("door {door} does not answer")))?
        .map_err(|e| Error::from(e).context(format!("door {door}")))?;
    if began != answer {
        return Err(Error::internal(format!("door {door} answered {:?}", String::from_utf8_lossy(&began))));
    }
    Ok(())
}

/// Brings the gauges of what doors keep for clients up to date.
fn publish_network(network: &Network) {
    for (of, room) in [("requests", &network.requests), ("answers", &network.answers)] {
        gauge!("oribi_network_memory_used_bytes", "of" => of).set(room.used() as f64);
        gauge!("oribi_network_memory_limit_bytes", "of" => of).set(room.bytes_max() as f64);
    }
}

/// Brings the gauges of the engine up to date. `unread` are the bytes of rows that clients have not taken, and those that they may.
fn publish(stats: &EngineStats, troubles: &[Trouble], unread: (u64, u64)) {
    for part in Part::ALL {
        let fails = troubles.iter().any(|trouble| trouble.part == part);
        gauge!("oribi_engine_troubles_count", "part" => part.name()).set(f64::from(u8::from(fails)));
    }
    gauge!("oribi_memory_limit_bytes").set(stats.memory_limit_bytes as f64);
    gauge!("oribi_memory_used_bytes", "by" => "memtable").set(stats.memtable_bytes as f64);
    gauge!("oribi_memory_used_bytes", "by" => "row_cache").set(stats.row_cache_bytes as f64);
    gauge!("oribi_memory_used_bytes", "by" => "query").set(stats.query_bytes as f64);
    gauge!("oribi_memory_used_bytes", "by" => "index").set(stats.index_bytes as f64);
    gauge!("oribi_memory_used_bytes", "by" => "job").set(stats.job_bytes as f64);
    gauge!("oribi_memory_used_bytes", "by" => "result").set(stats.result_bytes as f64);
    gauge!("oribi_memory_used_bytes", "by" => "scan").set(stats.held_bytes as f64);
    gauge!("oribi_long_reads_bytes").set(stats.long_read_bytes as f64);
    gauge!("oribi_long_reads_limit_bytes").set(stats.long_read_bytes_max as f64);
    gauge!("oribi_long_reads_waiting_count").set(stats.long_reads_waiting as f64);
    gauge!("oribi_query_unread_bytes").set(unread.0 as f64);
    gauge!("oribi_query_unread_limit_bytes").set(unread.1 as f64);
    gauge!("oribi_row_index_rows_count").set(stats.rows_in_memory as f64);
    gauge!("oribi_log_size_bytes").set(stats.log_bytes as f64);
    gauge!("oribi_log_unsynced_records_count").set((stats.log_appended_lsn - stats.log_durable_lsn) as f64);
    gauge!("oribi_sstable_files_count").set(stats.sstables as f64);
    gauge!("oribi_sstable_size_bytes").set(stats.sstable_bytes as f64);
    gauge!("oribi_catalog_tables_count").set(stats.tables as f64);
    counter!("oribi_engine_rows_written_total").absolute(stats.rows_written);
    counter!("oribi_engine_file_reads_total").absolute(stats.file_reads);
    counter!("oribi_engine_flushes_total").absolute(stats.flushes);
    counter!("oribi_engine_flushed_rows_total").absolute(stats.flushed_rows);
    counter!("oribi_engine_compactions_total").absolute(stats.compactions);
    counter!("oribi_engine_compacted_rows_total").absolute(stats.compacted_rows);
}
