//! Opens a folder: the engine, and the SQL engine over it.

use crate::config::{Config, parse_size};
use crate::store;
use oribi_doors::kudu::random_id;
use oribi_engine::{Engine, EngineOptions};
use oribi_env::{Env, Priority, read_file, write_file};
use oribi_query::{QueryEngine, QueryOptions};
use oribi_session::Database;
use oribi_store::{Store, StoreOptions};
use oribi_types::{Error, Result};
use std::path::Path;
use std::sync::Arc;

/// A folder that is open.
pub struct Opened {
    pub database: Database,
    /// What `database` has its statements executed by.
    pub query: Arc<QueryEngine>,
    /// Where the tables' files are, if not in the folder.
    pub store: Option<Store>,
}

/// Opens `dir`, creating it if absent, with the defaults and a memory budget such as `512MiB`.
///
/// # Errors
/// `Unavailable` if another process has the folder; `Corrupt`; those of the file system.
pub fn open(dir: &Path, memory: &str) -> Result<Database> {
    open_flushing(dir, memory, Config::default().flush_quiet_ms, true)
}

/// As [`open`], but statements name no files, as a server has it: who measures statements measures those that clients send.
///
/// # Errors
/// As [`open`].
pub fn open_as_served(dir: &Path, memory: &str) -> Result<Database> {
    open_flushing(dir, memory, Config::default().flush_quiet_ms, false)
}

/// As [`open`], but rows stay in memory until there is need, however long nobody writes.
///
/// # Errors
/// As [`open`].
pub fn open_unflushed(dir: &Path, memory: &str) -> Result<Database> {
    open_flushing(dir, memory, u64::MAX, true)
}

fn open_flushing(dir: &Path, memory: &str, flush_quiet_ms: u64, file_tables: bool) -> Result<Database> {
    let memory_bytes = parse_size(memory).map_err(|e| e.context(format!("--memory {memory}")))?;
    let doors = Config { kudu_master: None, kudu_tserver: None, ..Config::default() };
    let config = Config { data: dir.to_owned(), memory_bytes, flush_quiet_ms, ..doors };
    // Whoever runs the command may read the files that it names; a client of a server may not. And
    // nobody is served beside it, to whom queries would yield.
    let options = QueryOptions { file_tables, priority: Priority::Normal, ..QueryOptions::default() };
    open_engines(&config, options).map(|opened| opened.database)
}

/// Opens the folder that `config` names; and the store of its tables' files, if there is one.
///
/// # Errors
/// As [`open`].
pub fn open_configured(config: &Config) -> Result<Opened> {
    open_engines(config, QueryOptions::default())
}

/// Opens an empty folder for a compute node, beside which nobody is served.
///
/// # Errors
/// As [`open`].
pub fn open_compute(config: &Config, dir: &Path) -> Result<Opened> {
    let doors = Config { kudu_master: None, kudu_tserver: None, ..config.clone() };
    let config = Config { data: dir.to_owned(), store: String::new(), ..doors };
    open_engines(&config, QueryOptions { priority: Priority::Normal, ..QueryOptions::default() })
}

/// The file that says who the server of a folder is (`docs/format/node.md`).
const NODE_FILE: &str = "node";

/// Who the server of the folder `dir` is: chosen at random when it is asked for the first time, and the same ever after. The
/// folder is open.
///
/// # Errors
/// `Corrupt` for a file that says something else; those of the file system.
pub fn node_id(dir: &Path) -> Result<[u8; 16]> {
    if let Some(id) = stored_node_id(dir)? {
        return Ok(id);
    }
    let (files, id) = (Env::real().files, random_id()?);
    let new = dir.join(format!("{NODE_FILE}.new"));
    // A crash may have left one.
    let _ = files.remove(&new);
    write_file(&*files, &new, node_line(id).as_bytes())?;
    files.rename(&new, &dir.join(NODE_FILE))?;
    files.sync_dir(dir)?;
    Ok(id)
}

/// Who the server of the folder `dir` is, if it was ever asked.
///
/// # Errors
/// `Corrupt` for a file that says something else; those of the file system.
pub fn stored_node_id(dir: &Path) -> Result<Option<[u8; 16]>> {
    let path = dir.join(NODE_FILE);
    match read_file(&*Env::real().files, &path) {
        Ok(line) => {
            let id = parse_node_line(&line);
            id.map(Some).ok_or_else(|| Error::corrupt(format!("{}: not a node's id", path.display())))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::from(error).context(path.display())),
    }
}

/// The id, and the CRC-32C of its digits.
fn node_line(id: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(id));
    let checksum = crc32c::crc32c(digits.as_bytes());
    format!("{digits} {checksum:08x}\n")
}

/// Servers before this one wrote no checksum.
fn parse_node_line(line: &[u8]) -> Option<[u8; 16]> {
    let digits = std::str::from_utf8(line).ok()?.get(..32)?;
    let id = u128::from_str_radix(digits, 16).ok()?.to_be_bytes();
    (line == node_line(id).as_bytes() || line == format!("{:032x}\n", u128::from_be_bytes(id)).as_bytes())
        .then_some(id)
}

fn open_engines(config: &Config, query: QueryOptions) -> Result<Opened> {
    let mut options = EngineOptions::with_memory(config.memory_bytes);
    options.durability = config.durability;
    options.flush_quiet_ms = config.flush_quiet_ms;
    options.transaction_silence_ms = config.transaction_silence_ms;
    if let Some(bytes) = config.statement_bytes_max {
        options.statement_bytes_max = bytes;
    }
    // Nobody else names timestamps.
    options.keeps_history = config.kudu_master.is_some() || config.kudu_tserver.is_some();
    (options.prefetch, options.one_source) = (config.prefetch, config.one_source);
    let cache = StoreOptions { cache_bytes_max: config.store_cache_bytes, ..StoreOptions::default() };
    let store = store::of_folder(&Env::real(), &config.data, &config.store, cache)?;
    let env = store.as_ref().map_or_else(Env::real, Store::env);
    let depot = store.as_ref().map(Store::depot);
    let engine = Engine::open_with(env, &config.data, options, depot)?;
    let query = QueryEngine::new(engine.clone(), query)?;
    Ok(Opened { database: Database { engine, sql: query.clone() }, query, store })
}

/// What a folder that nobody changes is looked at by.
///
/// # Errors
/// Those of its store, if it has one.
pub fn env_of(dir: &Path) -> Result<Env> {
    let store = store::of_folder(&Env::real(), dir, "", StoreOptions::default())?;
    store.map_or_else(|| Ok(Env::real()), |store| store.look().map(|()| store.env()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_of_who_a_server_is_is_found() {
        let line = node_line([0x5a; 16]);
        assert_eq!(parse_node_line(line.as_bytes()), Some([0x5a; 16]));
        for bit in 0..line.len() * 8 {
            let mut flipped = line.clone().into_bytes();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse_node_line(&flipped), None, "bit {bit}");
        }
        for end in 0..line.len() {
            assert_eq!(parse_node_line(&line.as_bytes()[..end]), None, "cut at {end}");
        }
    }

    #[test]
    fn an_id_without_a_checksum_is_read() {
        let line = format!("{:032x}\n", 0x5a_u128);
        assert_eq!(parse_node_line(line.as_bytes()), Some(0x5a_u128.to_be_bytes()));
    }
}
