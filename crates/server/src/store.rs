//! The store in which a folder keeps its tables' files, if it has one: by the settings, or because it had one before.

use crate::stdout::say;
use metrics::{counter, gauge};
use oribi_env::Env;
use oribi_store::{S3Options, Store, StoreOptions, StoreStats, open_bucket, store_of};
use oribi_types::{Error, Result};
use std::path::Path;

const ROUNDS: usize = 25;

/// The store of the folder `dir`: that which it had before, and else the one of this URL, if it is not empty.
///
/// # Errors
/// `Invalid` if these are two; those of opening it.
pub fn of_folder(env: &Env, dir: &Path, url: &str, options: StoreOptions) -> Result<Option<Store>> {
    let before = store_of(env, dir)?;
    let Some(named) = Some(url).filter(|url| !url.is_empty()).or(before.as_deref()) else { return Ok(None) };
    let bucket = open_bucket(named, s3_options)?;
    if let Some(before) = before.filter(|before| before != bucket.url()) {
        let (dir, named) = (dir.display(), bucket.url());
        return Err(Error::invalid(format!(
            "the tables of folder {dir} are kept in {before}, not in {named}"
        )));
    }
    Ok(Some(Store::new(bucket, env, dir, options)))
}

/// The store of this URL, to be read by who does not own it, with what was fetched in `cache`.
///
/// # Errors
/// Those of opening it, and of listing what it has.
pub fn to_read(cache: &Path, url: &str, options: StoreOptions) -> Result<Store> {
    let store = Store::new(open_bucket(url, s3_options)?, &Env::real(), cache, options);
    store.look()?;
    Ok(store)
}

/// What Amazon's tools and libraries read from the environment too.
fn s3_options() -> Result<S3Options> {
    let mut variables = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with("AWS_")) else { continue };
        let value = value.to_str().ok_or_else(|| Error::invalid(format!("{name} is not UTF-8")))?;
        variables.push((name.to_owned(), value.to_owned()));
    }
    let bundle = variables.iter().find(|(name, path)| name == "AWS_CA_BUNDLE" && !path.is_empty());
    let read = |(_, path): &(String, String)| {
        std::fs::read(path).map_err(|error| Error::from(error).context(format!("AWS_CA_BUNDLE {path}")))
    };
    let certificates = bundle.map(read).transpose()?.unwrap_or_default();
    Ok(S3Options { variables, certificates })
}

/// Says whether a store does what it must.
///
/// # Errors
/// `Unsupported` for one that does not; those of reaching it.
pub fn doctor(url: &str) -> Result<()> {
    let bucket = open_bucket(url, s3_options)?;
    oribi_store::examine(bucket.clone(), ROUNDS)?;
    say!("{}: of 8 who put at the same time exactly one has won, {} times", bucket.url(), 2 * ROUNDS)
}

/// Makes `dir` the owner of the tables in a store.
///
/// # Errors
/// Those of [`Store::restore`].
pub fn restore(url: &str, dir: &Path) -> Result<()> {
    let env = Env::real();
    let store = of_folder(&env, dir, url, StoreOptions::default())?;
    let store = store.ok_or_else(|| Error::invalid("--store names no store"))?;
    store.restore()?;
    say!("{}: owns the tables of {url}, as they were last told", dir.display())
}

/// Brings the gauges of the store up to date.
pub fn publish(stats: &StoreStats) {
    gauge!("oribi_store_cache_used_bytes").set(stats.cache_bytes as f64);
    gauge!("oribi_store_cache_limit_bytes").set(stats.cache_bytes_max as f64);
    gauge!("oribi_store_failing_seconds").set(stats.failing_micros as f64 / 1e6);
    counter!("oribi_store_fetches_total").absolute(stats.fetches);
    counter!("oribi_store_evictions_total").absolute(stats.evictions);
    counter!("oribi_store_requests_total").absolute(stats.requests);
    counter!("oribi_store_retries_total").absolute(stats.retries);
    counter!("oribi_store_failures_total").absolute(stats.failures);
    counter!("oribi_store_sent_bytes_total").absolute(stats.sent_bytes);
    counter!("oribi_store_received_bytes_total").absolute(stats.received_bytes);
}
