//! The store in which a folder keeps its tables' files, if it has one: by the settings, or because it had one before.

use crate::stdout::say;
use metrics::{counter, gauge};
use oribi_env::Env;
use oribi_store::{Bucket, Credentials, S3Options, Store, StoreOptions, StoreStats, open_bucket, store_of};
use oribi_types::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// As systems with Debian's or Red Hat's layout have the certificates that they trust.
const CERTIFICATES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];
const ROUNDS: usize = 25;

/// The store of the folder `dir`: that which it had before, and else the one of this URL, if it is not empty.
///
/// # Errors
/// `Invalid` if these are two; those of opening it.
pub fn of_folder(env: &Env, dir: &Path, url: &str, options: StoreOptions) -> Result<Option<Store>> {
    let before = store_of(env, dir)?;
    let Some(named) = Some(url).filter(|url| !url.is_empty()).or(before.as_deref()) else { return Ok(None) };
    let bucket = open(named, env)?;
    if let Some(before) = before.filter(|before| before != bucket.url()) {
        let (dir, named) = (dir.display(), bucket.url());
        return Err(Error::invalid(format!(
            "the tables of folder {dir} are kept in {before}, not in {named}"
        )));
    }
    Ok(Some(Store::new(bucket, env, dir, options)))
}

fn open(url: &str, env: &Env) -> Result<Arc<dyn Bucket>> {
    open_bucket(url, env.clock.clone(), s3_options)
}

/// What Amazon's tools and libraries read from the environment too.
fn s3_options() -> Result<S3Options> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let needed = |name: &str| {
        variable(name).ok_or_else(|| Error::invalid(format!("a store in S3 needs the variable {name}")))
    };
    let certificates = variable("AWS_CA_BUNDLE").map(PathBuf::from);
    let systems = || CERTIFICATES.map(PathBuf::from).into_iter().find(|path| path.exists());
    Ok(S3Options {
        credentials: Credentials {
            access_key: needed("AWS_ACCESS_KEY_ID")?,
            secret_key: needed("AWS_SECRET_ACCESS_KEY")?,
            session_token: variable("AWS_SESSION_TOKEN"),
        },
        region: variable("AWS_REGION")
            .or_else(|| variable("AWS_DEFAULT_REGION"))
            .unwrap_or_else(|| "us-east-1".to_owned()),
        endpoint: variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL")),
        certificates: certificates.or_else(systems).unwrap_or_else(|| CERTIFICATES[0].into()),
    })
}

/// Says whether a store does what it must.
///
/// # Errors
/// `Unsupported` for one that does not; those of reaching it.
pub fn doctor(url: &str) -> Result<()> {
    let bucket = open(url, &Env::real())?;
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
