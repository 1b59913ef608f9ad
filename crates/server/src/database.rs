//! Opens a folder: the engine, and the SQL engine over it.

use crate::config::{Config, parse_size};
use oribi_engine::{Engine, EngineOptions};
use oribi_env::Env;
use oribi_query::{QueryEngine, QueryOptions};
use oribi_session::Database;
use oribi_types::Result;
use std::path::Path;

/// Opens `dir`, creating it if absent, with the defaults and a memory budget such as `512MiB`.
///
/// # Errors
/// `Unavailable` if another process has the folder; `Corrupt`; those of the file system.
pub fn open(dir: &Path, memory: &str) -> Result<Database> {
    let memory_bytes = parse_size(memory).map_err(|e| e.context(format!("--memory {memory}")))?;
    let config = Config { data: dir.to_owned(), memory_bytes, ..Config::default() };
    // Whoever runs the command may read the files that it names; a client of a server may not.
    open_engines(&config, QueryOptions { file_tables: true, ..QueryOptions::default() })
}

/// Opens the folder that `config` names.
///
/// # Errors
/// As [`open`].
pub fn open_configured(config: &Config) -> Result<Database> {
    open_engines(config, QueryOptions::default())
}

fn open_engines(config: &Config, query: QueryOptions) -> Result<Database> {
    let mut options = EngineOptions::with_memory(config.memory_bytes);
    options.durability = config.durability;
    if let Some(bytes) = config.statement_bytes_max {
        options.statement_bytes_max = bytes;
    }
    (options.prefetch, options.one_source) = (config.prefetch, config.one_source);
    let engine = Engine::open(Env::real(), &config.data, options)?;
    let sql = QueryEngine::new(engine.clone(), query)?;
    Ok(Database { engine, sql })
}
