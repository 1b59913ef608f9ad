//! Log lines on standard error.

use crate::config::LogFormat;
use oribi_types::{Error, Result};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Sends log lines of at least the level that `filter` names to standard error.
///
/// # Errors
/// `Invalid` if `filter` does not parse.
pub fn start(filter: &str, format: LogFormat) -> Result<()> {
    let filter =
        EnvFilter::try_new(filter).map_err(|e| Error::invalid(format!("log filter \"{filter}\": {e}")))?;
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        // It tells of a line that could not be written on standard error, and panics if that is closed.
        .log_internal_errors(false);
    let started = match format {
        LogFormat::Text => lines.with_target(false).try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    started.map_err(|e| Error::internal(format!("logging: {e}")))
}
