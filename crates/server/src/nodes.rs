//! Several processes for one query: what the owner of a folder listens to, and what a compute node is.

use crate::config::Config;
use crate::database::{self, Opened};
use crate::store;
use oribi_env::Env;
use oribi_exchange::{ComputeNode, ComputeOptions, Coordinator, OwnerDoor, Secret, bind};
use oribi_query::QueryEngine;
use oribi_query::nodes::SharedFolder;
use oribi_session::Database;
use oribi_store::{Store, StoreOptions};
use oribi_types::{Error, Result};
use std::any::Any;
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What nodes of a cluster know each other by, and whether they do.
fn secret(config: &Config) -> Result<(Secret, bool)> {
    let file = &config.cluster_secret_file;
    if file.as_os_str().is_empty() {
        return Ok((Secret::new(b""), false));
    }
    let secret = std::fs::read(file).map_err(|e| Error::from(e).context(file.display()))?;
    let secret = secret.trim_ascii();
    if secret.is_empty() {
        return Err(Error::invalid(format!("{}: there is no secret in it", file.display())));
    }
    Ok((Secret::new(secret), true))
}

/// What a folder is called among nodes: by who serves it.
fn called(id: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

/// Listens to compute nodes, if the owner is to have some.
///
/// # Errors
/// Those of the address, the secret, and of who the server is.
pub fn listen(config: &Config, opened: &Opened, shut: &watch::Receiver<bool>) -> Result<Option<OwnerDoor>> {
    let Some(address) = config.nodes else { return Ok(None) };
    let (secret, has_secret) = secret(config)?;
    let listener = bind(address, has_secret)?;
    let read = match &opened.store {
        Some(store) => store.url().to_owned(),
        None => called(database::node_id(&config.data)?),
    };
    let door = Coordinator::start(&opened.query, listener, read, (&secret, config.exchange), shut.clone());
    door.map(Some).map_err(|e| e.context("nodes"))
}

/// A process in which tasks run.
pub struct Node {
    pub database: Database,
    /// Where it reads the tables' files, if not in the owner's folder.
    pub store: Option<Store>,
    query: Arc<QueryEngine>,
    files: Arc<SharedFolder>,
    /// What the owner calls where they are.
    read: String,
    /// Where its own engine is, which has no tables, unless that is beside a cache.
    _scratch: Option<Scratch>,
}

/// Makes one that reads the owner's folder, or the store that has the tables' files.
///
/// # Errors
/// `NotFound` for a folder that no server has served; those of the file system, and of the store.
pub fn open(config: &Config) -> Result<Node> {
    if !config.store.is_empty() {
        return open_with_cache(config);
    }
    let read = owners_folder(&config.data)?;
    let scratch = Scratch::new(&std::env::temp_dir())?;
    let Opened { database, query, .. } = database::open_compute(config, scratch.dir.path())?;
    let files = SharedFolder::new(Env::real(), config.data.clone());
    Ok(Node { database, store: None, query, files, read, _scratch: Some(scratch) })
}

/// A folder for what a node puts aside while it runs, which goes with it.
struct Scratch {
    dir: tempfile::TempDir,
    /// While it is held the folder is in use.
    _lock: Box<dyn Any + Send + Sync>,
}

impl Scratch {
    const PREFIX: &str = "oribi-node-";
    const LOCK: &str = "IN_USE";
    /// A younger one may be about to be locked.
    const AGE_MIN: Duration = Duration::from_secs(60);

    /// One in `above`, from which those go that nodes have left which were killed.
    fn new(above: &Path) -> Result<Self> {
        let left_over = fs::read_dir(above)?.flatten().filter(|entry| {
            entry.file_name().to_string_lossy().starts_with(Self::PREFIX) && Self::is_left_over(&entry.path())
        });
        for entry in left_over {
            // What is not ours to remove stays.
            if let Err(error) = fs::remove_dir_all(entry.path()) {
                tracing::debug!(%error, folder = %entry.path().display(), "a folder of another node stays");
            }
        }
        let dir = tempfile::Builder::new().prefix(Self::PREFIX).tempdir_in(above)?;
        let lock = Env::real().files.lock(&dir.path().join(Self::LOCK), "a compute node")?;
        Ok(Scratch { dir, _lock: lock })
    }

    fn is_left_over(dir: &Path) -> bool {
        let age = dir.metadata().and_then(|of| of.modified()).ok().and_then(|at| at.elapsed().ok());
        age.is_some_and(|age| age >= Self::AGE_MIN)
            && Env::real().files.lock(&dir.join(Self::LOCK), "a node that removes what another left").is_ok()
    }
}

/// A node's own files in the folder that it is given, which is another's if there are others.
const NODE_FOLDER: &str = "compute";

fn open_with_cache(config: &Config) -> Result<Node> {
    let dir = config.data.join(NODE_FOLDER);
    fs::create_dir_all(&dir)?;
    // That is open, and so nobody else's.
    let Opened { database, query, .. } = database::open_compute(config, &dir)?;
    let cache = emptied(dir.join("cache"))?;
    let options = StoreOptions { cache_bytes_max: config.store_cache_bytes, ..StoreOptions::default() };
    let store = store::to_read(&cache, &config.store, options)?;
    let (files, read) = (SharedFolder::new(store.env(), cache), store.url().to_owned());
    Ok(Node { database, store: Some(store), query, files, read, _scratch: None })
}

/// A folder without what a process that was killed has left there.
fn emptied(dir: PathBuf) -> Result<PathBuf> {
    match fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => fs::create_dir(&dir)?,
    }
    Ok(dir)
}

fn owners_folder(dir: &Path) -> Result<String> {
    let missing = || Error::not_found(format!("{} is not the folder of an owner", dir.display()));
    database::stored_node_id(dir)?.map(called).ok_or_else(missing)
}

/// Has it run tasks for `owner`.
///
/// # Errors
/// Those of the address and the secret; why the owner refuses the node.
pub async fn start(
    config: &Config,
    owner: SocketAddr,
    node: &Node,
    shut: &watch::Receiver<bool>,
) -> Result<ComputeNode> {
    let (secret, has_secret) = secret(config)?;
    let missing = || Error::invalid("a compute node listens to tasks: nodes = \"off\" is no address");
    let listener = bind(config.nodes.ok_or_else(missing)?, has_secret)?;
    let name = match config.node.as_str() {
        "" => listener.local_addr()?.to_string(),
        name => name.to_owned(),
    };
    let (files, read) = (Arc::clone(&node.files), node.read.clone());
    let options = ComputeOptions { name, owner, files, read, secret };
    ComputeNode::start(&node.query, listener, options, shut.clone()).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::time::SystemTime;

    fn grown_old(dir: &Path) {
        File::open(dir).unwrap().set_modified(SystemTime::now() - 2 * Scratch::AGE_MIN).unwrap();
    }

    #[test]
    fn what_killed_nodes_have_left_goes() {
        let above = tempfile::tempdir().unwrap();
        let path = |name: &str| above.path().join(format!("{}{name}", Scratch::PREFIX));
        let running = Scratch::new(above.path()).unwrap();
        grown_old(running.dir.path());
        for name in ["killed", "just made"] {
            fs::create_dir_all(path(name).join("spilled")).unwrap();
        }
        grown_old(&path("killed"));
        let others = above.path().join("of others");
        fs::create_dir(&others).unwrap();
        grown_old(&others);
        let next = Scratch::new(above.path()).unwrap();
        assert!(!path("killed").exists() && path("just made").exists() && others.exists());
        assert!(running.dir.path().exists());
        drop((running, next));
        assert_eq!(fs::read_dir(above.path()).unwrap().count(), 2);
    }
}
