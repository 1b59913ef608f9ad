//! Opens a folder: the engine, and the SQL engine over it.

use crate::config::{Config, parse_size};
use oribi_doors::kudu::random_id;
use oribi_engine::{Engine, EngineOptions};
use oribi_env::{Env, read_file, write_file};
use oribi_query::{QueryEngine, QueryOptions};
use oribi_session::Database;
use oribi_types::{Error, Result};
use std::path::Path;

/// Opens `dir`, creating it if absent, with the defaults and a memory budget such as `512MiB`.
///
/// # Errors
/// `Unavailable` if another process has the folder; `Corrupt`; those of the file system.
pub fn open(dir: &Path, memory: &str) -> Result<Database> {
    let memory_bytes = parse_size(memory).map_err(|e| e.context(format!("--memory {memory}")))?;
    let doors = Config { kudu_master: None, kudu_tserver: None, ..Config::default() };
    let config = Config { data: dir.to_owned(), memory_bytes, ..doors };
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

/// The file that says who the server of a folder is, in 32 hexadecimal digits.
const NODE_FILE: &str = "node";

/// Who the server of the folder `dir` is: chosen at random when it is asked for the first time, and the same ever after. The
/// folder is open.
///
/// # Errors
/// `Corrupt` for a file that says something else; those of the file system.
pub fn node_id(dir: &Path) -> Result<[u8; 16]> {
    let (files, path) = (Env::real().files, dir.join(NODE_FILE));
    match read_file(&*files, &path) {
        Ok(text) => {
            let number =
                std::str::from_utf8(&text).ok().and_then(|t| u128::from_str_radix(t.trim_end(), 16).ok());
            let number =
                number.ok_or_else(|| Error::corrupt(format!("{}: not a node's id", path.display())))?;
            Ok(number.to_be_bytes())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let id = random_id()?;
            let new = dir.join(format!("{NODE_FILE}.new"));
            // A crash may have left one.
            let _ = files.remove(&new);
            write_file(&*files, &new, format!("{:032x}\n", u128::from_be_bytes(id)).as_bytes())?;
            files.rename(&new, &path)?;
            files.sync_dir(dir)?;
            Ok(id)
        }
        Err(error) => Err(Error::from(error).context(path.display())),
    }
}

fn open_engines(config: &Config, query: QueryOptions) -> Result<Database> {
    let mut options = EngineOptions::with_memory(config.memory_bytes);
    options.durability = config.durability;
    if let Some(bytes) = config.statement_bytes_max {
        options.statement_bytes_max = bytes;
    }
    // Nobody else names timestamps.
    options.keeps_history = config.kudu_master.is_some() || config.kudu_tserver.is_some();
    (options.prefetch, options.one_source) = (config.prefetch, config.one_source);
    let engine = Engine::open(Env::real(), &config.data, options)?;
    let sql = QueryEngine::new(engine.clone(), query)?;
    Ok(Database { engine, sql })
}
