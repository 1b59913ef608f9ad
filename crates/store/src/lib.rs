//! SSTables in a store: a bucket that speaks S3, or a folder.
//!
//! The engine goes on as if all were in its folder. Its files ([`Files`]) put what was finished into the store before the engine
//! names it, and read back what the folder, which is a cache of bounded size, does not have. What the tables are made of is told
//! to the store, which has one owner, by conditional writes. All of it blocks, and is asked by threads that may. How it is used,
//! and what a crash finds: `docs/store.md`.

mod bucket;
mod cache;
mod cached;
mod examine;
mod files;
mod folder;
mod owner;
mod patient;
mod s3;

pub use bucket::{Body, Bucket, Expected, Listed, Sink};
pub use examine::examine;
pub use folder::FolderBucket;
pub use owner::{MANIFEST, store_of};
pub use patient::Patience;
pub use s3::{S3Bucket, S3Options};

use cache::Cache;
use files::StoreFiles;
use oribi_engine::Depot;
use oribi_env::{Clock, Env, Files};
use oribi_types::{Error, Result};
use owner::Owner;
use patient::Patient;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How a store is used.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Of the tables' files that are in the folder too. What is being written and read comes on top.
    pub cache_bytes_max: u64,
    pub patience: Patience,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions { cache_bytes_max: 16 << 30, patience: Patience::default() }
    }
}

/// Gauges and counters since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    pub cache_bytes: u64,
    pub cache_bytes_max: u64,
    pub fetches: u64,
    pub evictions: u64,
    pub requests: u64,
    /// Attempts that failed and are followed by another.
    pub retries: u64,
    /// Requests that were given up, or refused.
    pub failures: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Since when no request succeeds, in microseconds.
    pub failing_micros: u64,
}

/// The store of a folder.
#[derive(Clone)]
pub struct Store {
    patient: Arc<Patient>,
    files: Arc<StoreFiles>,
    owner: Arc<Owner>,
    clock: Arc<dyn Clock>,
}

impl Store {
    /// The store that keeps the tables of the folder `dir`, whose own files are `env`'s. Nothing is read or written yet.
    pub fn new(bucket: Arc<dyn Bucket>, env: &Env, dir: &Path, options: StoreOptions) -> Self {
        let patient = Arc::new(Patient::new(bucket, env.clock.clone(), options.patience));
        let cache = Cache::new(patient.clone(), env.files.clone(), dir, options.cache_bytes_max);
        let files =
            Arc::new(StoreFiles { local: env.files.clone(), dir: dir.to_owned(), cache: Arc::new(cache) });
        let owner = Arc::new(Owner::new(patient.clone(), env.clone(), dir, files.clone()));
        Store { patient, files, owner, clock: env.clock.clone() }
    }

    pub fn url(&self) -> &str {
        self.patient.url()
    }

    /// What the engine of the folder is to live in.
    pub fn env(&self) -> Env {
        let files: Arc<dyn Files> = self.files.clone();
        Env { files, clock: self.clock.clone() }
    }

    /// What it is to tell what the tables are made of.
    pub fn depot(&self) -> Arc<dyn Depot> {
        self.owner.clone()
    }

    /// Makes the files of the store known without owning them, also those that the owner adds meanwhile: to look at a folder, of
    /// which nothing is removed or changed. What is read and not there is fetched.
    ///
    /// # Errors
    /// Those of the store, and of the file system.
    pub fn look(&self) -> Result<()> {
        self.files.cache.set_guest();
        let kept = self.patient.list(&format!("{}/", files::TABLES))?;
        Ok(self.files.note_all(kept, u64::MAX)?)
    }

    /// Makes the folder, which has neither tables nor a log, the owner of the tables in the store, as they were last told.
    ///
    /// # Errors
    /// `AlreadyExists` if it has some of these; `NotFound` if the store has no tables; those of both.
    pub fn restore(&self) -> Result<()> {
        self.owner.restore()
    }

    pub fn stats(&self) -> StoreStats {
        let counters = &self.patient.counters;
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        StoreStats {
            cache_bytes: self.files.cache.bytes(),
            cache_bytes_max: self.files.cache.bytes_max(),
            fetches: count(&counters.fetches),
            evictions: count(&counters.evictions),
            requests: count(&counters.requests),
            retries: count(&counters.retries),
            failures: count(&counters.failures),
            sent_bytes: count(&counters.sent_bytes),
            received_bytes: count(&counters.received_bytes),
            failing_micros: self.patient.failing_micros(),
        }
    }
}

/// The store that a URL names: `s3://bucket/prefix`, or `file:///folder`. `s3` is asked for the former only.
///
/// # Errors
/// `Invalid` for another; those of `s3`; those of opening it.
pub fn open_bucket(url: &str, s3: impl FnOnce() -> Result<S3Options>) -> Result<Arc<dyn Bucket>> {
    if let Some(folder) = url.strip_prefix("file://").filter(|folder| folder.starts_with('/')) {
        return Ok(Arc::new(FolderBucket::open(Path::new(folder))?));
    }
    let of_s3 = url.strip_prefix("s3://").map(|rest| rest.split_once('/').unwrap_or((rest, "")));
    let Some((bucket, prefix)) = of_s3.filter(|(bucket, _)| !bucket.is_empty()) else {
        return Err(Error::invalid(format!("{url} is neither s3://bucket/prefix nor file:///folder")));
    };
    Ok(Arc::new(S3Bucket::open(bucket, prefix.trim_matches('/'), &s3()?)?))
}
