//! Configuration: one table of settings, filled from a file, the environment and flags, in this order.
//!
//! Each setting is a line of [`SETTINGS`]; its flag (`--statement-bytes-max`), its variable
//! (`ORIBI_STATEMENT_BYTES_MAX`) and its key in the file (`statement_bytes_max`) follow from its
//! name, so the three
//! can never disagree. Values travel as text until [`Layers::config`] parses the winning ones into a [`Config`].

use clap::{Arg, ArgMatches, Command};
use oribi_exchange::{Compression, ExchangeOptions};
use oribi_types::{Durability, Error, Result};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// What a server is told. Built from text by [`Layers`].
#[derive(Clone, Debug)]
pub struct Config {
    pub data: PathBuf,
    /// Where the tables' files are kept; empty: in the folder alone, unless that was made with another.
    pub store: String,
    pub store_cache_bytes: u64,
    /// Addresses of the doors; `None` for a door that stays shut.
    pub memcached: Option<SocketAddr>,
    pub couchbase: Option<SocketAddr>,
    pub postgres: Option<SocketAddr>,
    /// The two ports of the Kudu door.
    pub kudu_master: Option<SocketAddr>,
    pub kudu_tserver: Option<SocketAddr>,
    pub flight: Option<SocketAddr>,
    pub http: Option<SocketAddr>,
    /// Where other nodes come to this one; `None`: it shares its queries with nobody.
    pub nodes: Option<SocketAddr>,
    /// Whose compute node this is; `None`: it owns its folder.
    pub owner: Option<SocketAddr>,
    /// By which a compute node is known; empty: its address.
    pub node: String,
    /// By what nodes of one cluster know each other; none: they are on one machine.
    pub cluster_secret_file: PathBuf,
    pub exchange: ExchangeOptions,
    /// Budget for memtables, row cache and queries together.
    pub memory_bytes: u64,
    /// For long requests and answers; `None`: by the other memory.
    pub network_memory_bytes: Option<usize>,
    /// Of tables that do not say.
    pub durability: Durability,
    /// How long a tablet is quiet before what it has in memory becomes a file.
    pub flush_quiet_ms: u64,
    /// How long a transaction of the Kudu door lives that nobody names.
    pub transaction_silence_ms: u64,
    /// `None`: as the engine finds fit for the memory.
    pub statement_bytes_max: Option<usize>,
    /// Longest key and value that the memcached door takes. `None`: memcached's, as far as a statement holds it.
    pub key_bytes_max: usize,
    pub value_bytes_max: Option<usize>,
    pub memcached_connections_max: usize,
    /// 0: connections may be idle for ever.
    pub memcached_idle_seconds_max: usize,
    pub memcached_relative_seconds_max: usize,
    pub couchbase_connections_max: usize,
    /// Who may come in through the Couchbase door, and where the password stands; none: everybody.
    pub couchbase_user: String,
    pub couchbase_password_file: PathBuf,
    pub postgres_connections_max: usize,
    pub flight_connections_max: usize,
    /// How long a transaction of the Flight door lives that nobody names.
    pub flight_silence_ms: u64,
    /// Who may come in through the Flight door, and where the password stands; none: everybody.
    pub flight_user: String,
    pub flight_password_file: PathBuf,
    /// Of each of the two ports.
    pub kudu_connections_max: usize,
    /// What the Kudu door shows to clients that ask for TLS; none: it declines.
    pub tls_certificate: PathBuf,
    pub tls_key: PathBuf,
    /// Threads that serve each of the key-value doors and Kudu's tablet server; 0 for one per core.
    pub threads: usize,
    /// Off only to measure what they bring: see [`EngineOptions`](oribi_engine::EngineOptions).
    pub prefetch: bool,
    pub one_source: bool,
    pub log: String,
    pub log_format: LogFormat,
}

impl Config {
    /// What doors have for long requests and answers, in bytes.
    pub fn network_memory(&self) -> usize {
        let of_memory = || (self.memory_bytes / 4).clamp(64 << 20, 256 << 20) as usize;
        self.network_memory_bytes.unwrap_or_else(of_memory)
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Layers::default().config().expect("the defaults are valid")
    }
}

/// One setting: a flag, a variable and a key in the file.
struct Setting {
    /// As a flag, without the dashes in front.
    name: &'static str,
    /// What the value is, for the help text.
    metavar: &'static str,
    default: &'static str,
    help: &'static str,
    apply: fn(&mut Config, &str) -> Result<()>,
}

const SETTINGS: &[Setting] = &[
    Setting {
        name: "data",
        metavar: "DIR",
        default: "oribi-data",
        help: "Folder of the data, created if absent",
        apply: |config, text| {
            config.data = PathBuf::from(text);
            Ok(())
        },
    },
    Setting {
        name: "store",
        metavar: "URL",
        default: "",
        help: "Store that keeps the tables' files, s3://bucket/prefix or file:///folder: the folder has the log, and a cache of the \
               files. A folder goes on with the store that it began with. S3 is reached as AWS_ACCESS_KEY_ID, \
               AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL say",
        apply: |config, text| {
            config.store = text.to_owned();
            Ok(())
        },
    },
    Setting {
        name: "store-cache",
        metavar: "SIZE",
        default: "16GiB",
        help: "Most bytes of the tables' files that the folder has, where a store keeps them; what is being written and read comes on top",
        apply: |config, text| parse_size(text).map(|bytes| config.store_cache_bytes = bytes),
    },
    Setting {
        name: "memcached",
        metavar: "ADDR",
        default: "127.0.0.1:11211",
        help: "Address of the memcached door; \"off\" shuts it, port 0 takes a free one",
        apply: |config, text| parse_address(text).map(|address| config.memcached = address),
    },
    Setting {
        name: "couchbase",
        metavar: "ADDR",
        default: "127.0.0.1:11210",
        help: "Address of the Couchbase door",
        apply: |config, text| parse_address(text).map(|address| config.couchbase = address),
    },
    Setting {
        name: "postgres",
        metavar: "ADDR",
        default: "127.0.0.1:5432",
        help: "Address of the PostgreSQL door",
        apply: |config, text| parse_address(text).map(|address| config.postgres = address),
    },
    Setting {
        name: "kudu-master",
        metavar: "ADDR",
        default: "127.0.0.1:7051",
        help: "Address of the Kudu door, as clients know a master",
        apply: |config, text| parse_address(text).map(|address| config.kudu_master = address),
    },
    Setting {
        name: "kudu-tserver",
        metavar: "ADDR",
        default: "127.0.0.1:7050",
        help: "Address of the Kudu door, to which clients are sent for rows",
        apply: |config, text| parse_address(text).map(|address| config.kudu_tserver = address),
    },
    Setting {
        name: "flight",
        metavar: "ADDR",
        default: "127.0.0.1:32010",
        help: "Address of the Arrow Flight SQL door",
        apply: |config, text| parse_address(text).map(|address| config.flight = address),
    },
    Setting {
        name: "http",
        metavar: "ADDR",
        default: "127.0.0.1:8080",
        help: "Address of the HTTP door: /healthz, /readyz, /metrics",
        apply: |config, text| parse_address(text).map(|address| config.http = address),
    },
    Setting {
        name: "nodes",
        metavar: "ADDR",
        default: "off",
        help: "Address where compute nodes come to the owner, or tasks to a compute node; off: queries are executed here alone",
        apply: |config, text| parse_any_address(text).map(|address| config.nodes = address),
    },
    Setting {
        name: "owner",
        metavar: "ADDR",
        default: "off",
        help: "Makes this a compute node, which holds nothing: the address where the owner listens to nodes. --data is the owner's folder or, with --store, one for a cache of the files",
        apply: |config, text| parse_any_address(text).map(|address| config.owner = address),
    },
    Setting {
        name: "node",
        metavar: "NAME",
        default: "",
        help: "What a compute node is called, which says what it reads: the same after a restart; nothing: by its address",
        apply: |config, text| {
            config.node = text.to_owned();
            Ok(())
        },
    },
    Setting {
        name: "cluster-secret-file",
        metavar: "FILE",
        default: "",
        help: "File with what nodes of a cluster prove who they are by; none: nodes listen on loopback alone",
        apply: |config, text| {
            config.cluster_secret_file = PathBuf::from(text);
            Ok(())
        },
    },
    Setting {
        name: "nodes-rows-min",
        metavar: "N",
        default: "2000000",
        help: "Queries whose scans read fewer rows are executed by the owner alone",
        apply: |config, text| parse_count(text).map(|count| config.exchange.rows_min = count),
    },
    Setting {
        name: "nodes-queries-max",
        metavar: "N",
        default: "64",
        help: "So many queries are executed over the compute nodes at a time; others are executed by the owner alone",
        apply: |config, text| parse_count(text).map(|count| config.exchange.queries_max = count),
    },
    Setting {
        name: "exchange-local",
        metavar: "handover|loopback|loopback_compressed",
        default: "handover",
        help: "How rows go to a task of the same process: as they are, or, to measure the difference, as to another",
        apply: |config, text| {
            config.exchange.local = text.parse()?;
            Ok(())
        },
    },
    Setting {
        name: "exchange-compression",
        metavar: "auto|lz4|zstd|none",
        default: "auto",
        help: "How rows are compressed on their way to another process; auto: by LZ4, and not at all if all nodes have loopback addresses",
        apply: |config, text| {
            config.exchange.compression = Compression::chosen(text)?;
            Ok(())
        },
    },
    Setting {
        name: "memory",
        metavar: "SIZE",
        default: "1GiB",
        help: "Budget for memtables, row cache and queries together. Among what counts as queries, an eighth each may be: rows that \
               clients of the PostgreSQL door have not taken, rows that open scanners of the Kudu door have read and not returned, \
               answers that it makes ahead, and long rows that are being read from files",
        apply: |config, text| parse_size(text).map(|bytes| config.memory_bytes = bytes),
    },
    Setting {
        name: "network-memory",
        metavar: "SIZE",
        default: "auto",
        help: "Memory besides for long requests that clients are sending and long answers that they have not read, half each, and as \
               much again for what PostgreSQL clients keep under names; auto: a quarter of the memory, 64 to 256 MiB",
        apply: |config, text| {
            config.network_memory_bytes = if text == "auto" { None } else { Some(parse_usize_size(text)?) };
            Ok(())
        },
    },
    Setting {
        name: "durability",
        metavar: "sync|periodic:MS",
        default: "sync",
        help: "Durability of new tables that do not say",
        apply: |config, text| parse_durability(text).map(|durability| config.durability = durability),
    },
    Setting {
        name: "flush-quiet-ms",
        metavar: "MS",
        default: "5000",
        help: "How long a tablet takes no writes before what it has in memory becomes a file",
        apply: |config, text| parse_count(text).map(|count| config.flush_quiet_ms = count as u64),
    },
    Setting {
        name: "transaction-silence-ms",
        metavar: "MS",
        default: "30000",
        help: "How long a transaction of the Kudu door lives without a word of its clients, who are told and keep it alive",
        apply: |config, text| parse_count(text).map(|count| config.transaction_silence_ms = count as u64),
    },
    Setting {
        name: "statement-bytes-max",
        metavar: "SIZE",
        default: "auto",
        help: "Largest statement, in bytes of the rows that it writes; auto: an eighth of the memory, at most 256 MiB",
        apply: |config, text| {
            config.statement_bytes_max = if text == "auto" { None } else { Some(parse_usize_size(text)?) };
            Ok(())
        },
    },
    Setting {
        name: "key-bytes-max",
        metavar: "SIZE",
        default: "250",
        help: "Longest key that the memcached door takes",
        apply: |config, text| parse_usize_size(text).map(|bytes| config.key_bytes_max = bytes),
    },
    Setting {
        name: "value-bytes-max",
        metavar: "SIZE",
        default: "auto",
        help: "Longest value that the memcached door takes; auto: 1 MiB, or less if a statement cannot write that much",
        apply: |config, text| {
            config.value_bytes_max = if text == "auto" { None } else { Some(parse_usize_size(text)?) };
            Ok(())
        },
    },
    Setting {
        name: "memcached-connections-max",
        metavar: "N",
        default: "1024",
        help: "Most connections of the memcached door",
        apply: |config, text| parse_count(text).map(|count| config.memcached_connections_max = count),
    },
    Setting {
        name: "memcached-idle-seconds-max",
        metavar: "SECONDS",
        default: "0",
        help: "How long a connection of the memcached door may be silent before it is closed; 0: for ever",
        apply: |config, text| parse_count(text).map(|count| config.memcached_idle_seconds_max = count),
    },
    Setting {
        name: "memcached-relative-seconds-max",
        metavar: "SECONDS",
        default: "2592000",
        help: "Longest expiry that counts from now; a larger number is Unix time. memcached's is 30 days",
        apply: |config, text| parse_count(text).map(|count| config.memcached_relative_seconds_max = count),
    },
    Setting {
        name: "couchbase-connections-max",
        metavar: "N",
        default: "1024",
        help: "Most connections of the Couchbase door",
        apply: |config, text| parse_count(text).map(|count| config.couchbase_connections_max = count),
    },
    Setting {
        name: "couchbase-user",
        metavar: "NAME",
        default: "",
        help: "Who may come in through the Couchbase door; nobody: there is no authentication",
        apply: |config, text| {
            config.couchbase_user = text.to_owned();
            Ok(())
        },
    },
    Setting {
        name: "couchbase-password-file",
        metavar: "FILE",
        default: "",
        help: "File with the password of the Couchbase door's user",
        apply: |config, text| {
            config.couchbase_password_file = PathBuf::from(text);
            Ok(())
        },
    },
    Setting {
        name: "postgres-connections-max",
        metavar: "N",
        default: "100",
        help: "Most connections of the PostgreSQL door",
        apply: |config, text| parse_count(text).map(|count| config.postgres_connections_max = count),
    },
    Setting {
        name: "flight-connections-max",
        metavar: "N",
        default: "100",
        help: "Most connections of the Arrow Flight SQL door",
        apply: |config, text| parse_count(text).map(|count| config.flight_connections_max = count),
    },
    Setting {
        name: "flight-silence-ms",
        metavar: "MS",
        default: "300000",
        help: "How long a transaction of the Arrow Flight SQL door lives that no call names",
        apply: |config, text| parse_count(text).map(|count| config.flight_silence_ms = count as u64),
    },
    Setting {
        name: "flight-user",
        metavar: "NAME",
        default: "",
        help: "Who may come in through the Arrow Flight SQL door; nobody: there is no authentication",
        apply: |config, text| {
            config.flight_user = text.to_owned();
            Ok(())
        },
    },
    Setting {
        name: "flight-password-file",
        metavar: "FILE",
        default: "",
        help: "File with the password of the Arrow Flight SQL door's user",
        apply: |config, text| {
            config.flight_password_file = PathBuf::from(text);
            Ok(())
        },
    },
    Setting {
        name: "kudu-connections-max",
        metavar: "N",
        default: "1024",
        help: "Most connections of each of the Kudu door's two ports",
        apply: |config, text| parse_count(text).map(|count| config.kudu_connections_max = count),
    },
    Setting {
        name: "tls-certificate",
        metavar: "FILE",
        default: "",
        help: "PEM file with the certificate of the Kudu door, which then offers TLS",
        apply: |config, text| {
            config.tls_certificate = PathBuf::from(text);
            Ok(())
        },
    },
    Setting {
        name: "tls-key",
        metavar: "FILE",
        default: "",
        help: "PEM file with the key of that certificate, not encrypted",
        apply: |config, text| {
            config.tls_key = PathBuf::from(text);
            Ok(())
        },
    },
    Setting {
        name: "threads",
        metavar: "N",
        default: "0",
        help: "Threads that serve each of the key-value doors and Kudu's tablet server; 0: one per core",
        apply: |config, text| parse_count(text).map(|count| config.threads = count),
    },
    Setting {
        name: "measure-without",
        metavar: "prefetch|one-source",
        default: "",
        help: "Leaves out a part of the read path, to measure what it brings",
        apply: |config, text| {
            (config.prefetch, config.one_source) = match text {
                "" => (true, true),
                "prefetch" => (false, true),
                "one-source" => (true, false),
                _ => return Err(Error::invalid("is neither prefetch nor one-source")),
            };
            Ok(())
        },
    },
    Setting {
        name: "log",
        metavar: "FILTER",
        default: "info",
        help: "Least level of log lines, also per part: \"warn,oribi_engine=debug\"",
        apply: |config, text| {
            config.log = text.to_owned();
            Ok(())
        },
    },
    Setting {
        name: "log-format",
        metavar: "text|json",
        default: "text",
        help: "Form of log lines on standard error",
        apply: |config, text| {
            config.log_format = match text {
                "text" => LogFormat::Text,
                "json" => LogFormat::Json,
                _ => return Err(Error::invalid("is neither text nor json")),
            };
            Ok(())
        },
    },
];

impl Setting {
    /// The key in a file.
    fn key(&self) -> String {
        self.name.replace('-', "_")
    }

    fn variable(&self) -> String {
        format!("{VARIABLE_PREFIX}{}", self.key().to_uppercase())
    }
}

const VARIABLE_PREFIX: &str = "ORIBI_";
/// The variable that names the file itself.
const FILE_VARIABLE: &str = "ORIBI_CONFIG";

/// Where the value of a setting came from; the later one wins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    Default,
    File(PathBuf),
    Environment(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "file {}", path.display()),
            Origin::Environment(variable) => write!(f, "environment {variable}"),
            Origin::Flag(flag) => write!(f, "flag --{flag}"),
        }
    }
}

/// The values of all settings, as text, with their origins.
pub struct Layers {
    values: Vec<(String, Origin)>,
    /// Variables that start with `ORIBI_` but name no setting. They are reported, not refused: an orchestrator may
    /// have put them there (Kubernetes makes `ORIBI_PORT` for a service of that name).
    pub unknown_variables: Vec<String>,
}

impl Default for Layers {
    fn default() -> Self {
        let values = SETTINGS.iter().map(|s| (s.default.to_owned(), Origin::Default)).collect();
        Layers { values, unknown_variables: Vec::new() }
    }
}

impl Layers {
    /// Layers file, environment and flags over the defaults.
    ///
    /// # Errors
    /// `NotFound` if the file that a flag or `ORIBI_CONFIG` names does not exist; `Invalid` if it is not TOML or has
    /// a key that names no setting.
    pub fn load(flags: &Flags, environment: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        let environment: Vec<_> =
            environment.into_iter().filter(|(name, _)| name.starts_with(VARIABLE_PREFIX)).collect();
        let mut layers = Layers::default();
        let from_environment = environment.iter().find(|(name, _)| name == FILE_VARIABLE);
        let file = flags.file.clone().or_else(|| from_environment.map(|(_, path)| PathBuf::from(path)));
        if let Some(path) = file {
            let text = std::fs::read_to_string(&path).map_err(|e| Error::from(e).context(path.display()))?;
            layers.add_file(&path, &text).map_err(|e| e.context(path.display()))?;
        }
        for (variable, value) in environment {
            match SETTINGS.iter().position(|s| s.variable() == variable) {
                Some(i) => layers.values[i] = (value, Origin::Environment(variable)),
                None if variable == FILE_VARIABLE => {}
                None => layers.unknown_variables.push(variable),
            }
        }
        for (i, value) in &flags.values {
            layers.values[*i] = (value.clone(), Origin::Flag(SETTINGS[*i].name));
        }
        Ok(layers)
    }

    fn add_file(&mut self, path: &Path, text: &str) -> Result<()> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| Error::invalid(e.to_string()))?;
        for (key, value) in table {
            let Some(i) = SETTINGS.iter().position(|s| s.key() == key) else {
                return Err(Error::invalid(format!("unknown key \"{key}\"")));
            };
            let text = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                other => {
                    return Err(Error::invalid(format!(
                        "key \"{key}\" is a {}, not a string or an integer",
                        other.type_str()
                    )));
                }
            };
            self.values[i] = (text, Origin::File(path.to_owned()));
        }
        Ok(())
    }

    /// The parsed values.
    ///
    /// # Errors
    /// `Invalid`, naming the setting and the origin of its value.
    pub fn config(&self) -> Result<Config> {
        let mut config = Config {
            data: PathBuf::new(),
            store: String::new(),
            store_cache_bytes: 0,
            memcached: None,
            couchbase: None,
            postgres: None,
            kudu_master: None,
            kudu_tserver: None,
            flight: None,
            http: None,
            nodes: None,
            owner: None,
            node: String::new(),
            cluster_secret_file: PathBuf::new(),
            exchange: ExchangeOptions::default(),
            memory_bytes: 0,
            network_memory_bytes: None,
            durability: Durability::Sync,
            flush_quiet_ms: 0,
            transaction_silence_ms: 0,
            statement_bytes_max: None,
            key_bytes_max: 0,
            value_bytes_max: None,
            memcached_connections_max: 0,
            memcached_idle_seconds_max: 0,
            memcached_relative_seconds_max: 0,
            couchbase_connections_max: 0,
            couchbase_user: String::new(),
            couchbase_password_file: PathBuf::new(),
            postgres_connections_max: 0,
            flight_connections_max: 0,
            flight_silence_ms: 0,
            flight_user: String::new(),
            flight_password_file: PathBuf::new(),
            kudu_connections_max: 0,
            tls_certificate: PathBuf::new(),
            tls_key: PathBuf::new(),
            threads: 0,
            prefetch: true,
            one_source: true,
            log: String::new(),
            log_format: LogFormat::Text,
        };
        for (setting, (text, origin)) in SETTINGS.iter().zip(&self.values) {
            (setting.apply)(&mut config, text)
                .map_err(|e| e.context(format!("{} = \"{text}\" ({origin})", setting.key())))?;
        }
        Ok(config)
    }

    /// Key, value and origin of each setting.
    pub fn iter(&self) -> impl Iterator<Item = (String, &str, &Origin)> {
        SETTINGS.iter().zip(&self.values).map(|(s, (text, origin))| (s.key(), text.as_str(), origin))
    }
}

/// The settings that flags give: position in [`SETTINGS`] and text.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    file: Option<PathBuf>,
    values: Vec<(usize, String)>,
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("config").long("config").value_name("FILE");
        let file = file.value_parser(clap::value_parser!(PathBuf)).help("TOML file of settings");
        SETTINGS.iter().fold(command.arg(file), |command, s| {
            let help = format!("{} [default: {}] [env: {}]", s.help, s.default, s.variable());
            // Of a flag that is given twice, the last one counts: scripts add theirs behind those of their caller.
            command.arg(Arg::new(s.name).long(s.name).value_name(s.metavar).help(help).overrides_with(s.name))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |(i, s): (usize, &Setting)| Some((i, matches.get_one::<String>(s.name)?.clone()));
        Ok(Flags {
            file: matches.get_one::<PathBuf>("config").cloned(),
            values: SETTINGS.iter().enumerate().filter_map(value).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Parses the address of a door: `HOST:PORT`, or `off`.
///
/// # Errors
/// `Invalid` if it is no address; `Forbidden` for one beyond loopback.
fn parse_address(text: &str) -> Result<Option<SocketAddr>> {
    let Some(address) = parse_any_address(text)? else { return Ok(None) };
    if !address.ip().is_loopback() {
        return Err(Error::new(
            oribi_types::ErrorKind::Forbidden,
            "refuses to listen beyond loopback: there is no authentication yet, so whoever reaches the port could \
             read and write everything; use 127.0.0.1",
        ));
    }
    Ok(Some(address))
}

/// Parses the address of a node, which [may be](oribi_exchange::bind) beyond loopback: `HOST:PORT`, or `off`.
///
/// # Errors
/// `Invalid` if it is no address.
fn parse_any_address(text: &str) -> Result<Option<SocketAddr>> {
    if text == "off" {
        return Ok(None);
    }
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
        None => text.to_owned(),
    };
    let address = numeric.parse();
    address.map(Some).map_err(|_| Error::invalid("is not an address such as 127.0.0.1:11211, nor off"))
}

/// Parses a number of bytes: `64MiB`, `2GB`, `1048576`.
///
/// # Errors
/// `Invalid`.
pub fn parse_size(text: &str) -> Result<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(Error::invalid("is not a size such as 512MiB")),
    };
    let number: f64 = number.parse().map_err(|_| Error::invalid("is not a size such as 512MiB"))?;
    let bytes = number * scale as f64;
    if bytes >= i64::MAX as f64 {
        return Err(Error::invalid("is larger than any machine"));
    }
    Ok(bytes as u64)
}

fn parse_usize_size(text: &str) -> Result<usize> {
    parse_size(text).map(|bytes| bytes as usize)
}

fn parse_count(text: &str) -> Result<usize> {
    text.parse().map_err(|_| Error::invalid("is not a number"))
}

/// Parses `sync` or `periodic:<ms>`.
///
/// # Errors
/// `Invalid`.
fn parse_durability(text: &str) -> Result<Durability> {
    let invalid = || Error::invalid("is neither sync nor periodic:<milliseconds>");
    match text.split_once(':') {
        None if text == "sync" => Ok(Durability::Sync),
        Some(("periodic", ms)) => {
            ms.trim_end_matches("ms").parse().map(Durability::Periodic).map_err(|_| invalid())
        }
        _ => Err(invalid()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn flags(args: &[&str]) -> Flags {
        let command = Flags::augment_args(Command::new("oribi").no_binary_name(true));
        Flags::from_arg_matches(&command.try_get_matches_from(args).unwrap()).unwrap()
    }

    fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    #[test]
    fn later_layers_win() {
        let mut layers = Layers::load(&flags(&[]), variables(&[])).unwrap();
        layers.add_file(Path::new("a.toml"), "memory = \"2GiB\"\nthreads = 3").unwrap();
        let config = layers.config().unwrap();
        assert_eq!((config.memory_bytes, config.threads), (2 << 30, 3));

        let layers = Layers::load(
            &flags(&["--memory", "64MiB"]),
            variables(&[("ORIBI_MEMORY", "1GiB"), ("ORIBI_HTTP", "off")]),
        )
        .unwrap();
        let config = layers.config().unwrap();
        assert_eq!((config.memory_bytes, config.http), (64 << 20, None));
        let origin = |name| layers.iter().find(|(n, _, _)| *n == name).unwrap().2.to_string();
        assert_eq!(origin("memory"), "flag --memory");
        assert_eq!(origin("http"), "environment ORIBI_HTTP");
        assert_eq!(origin("threads"), "default");
    }

    #[test]
    fn unknown_keys_are_named() {
        let error = Layers::default().add_file(Path::new("a.toml"), "memroy = 1").unwrap_err();
        assert_eq!(error.message(), "unknown key \"memroy\"");
        let layers = Layers::load(&flags(&[]), variables(&[("ORIBI_MEMROY", "1")])).unwrap();
        assert_eq!(layers.unknown_variables, ["ORIBI_MEMROY"]);
    }

    #[test]
    fn values_are_checked_and_their_origin_is_named() {
        let layers = Layers::load(&flags(&["--memcached", "0.0.0.0:11211"]), variables(&[])).unwrap();
        let error = layers.config().unwrap_err();
        assert!(
            error.message().starts_with("memcached = \"0.0.0.0:11211\" (flag --memcached): refuses"),
            "{error}"
        );
        for (value, bytes) in [("1", 1), ("1k", 1024), ("1.5KiB", 1536), ("2GB", 2_000_000_000)] {
            assert_eq!(parse_size(value).unwrap(), bytes);
        }
        for bad in ["", "x", "1xb", "-1", "1e99TiB", "99999999999TiB"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_durability("periodic:50").unwrap(), Durability::Periodic(50));
        assert!(parse_durability("periodic").is_err());
    }
}
