//! Schemas and functions that PostgreSQL's clients expect.

use crate::context::StatementView;
use datafusion::catalog::SchemaProvider;
use datafusion::common::Result;
use datafusion::execution::session_state::SessionState;
use std::sync::Arc;

/// The schema that every search path begins with, unless it says otherwise.
pub(crate) const SCHEMA: &str = "pg_catalog";

/// The schema `name`, if it is one of those that exist in no engine.
pub(crate) fn schema(_name: &str, _view: &Arc<StatementView>) -> Option<Arc<dyn SchemaProvider>> {
    None
}

/// Adds the functions that look at the session or the catalog.
///
/// # Errors
/// If a function of the name cannot be replaced.
pub(crate) fn register_functions(_state: &mut SessionState, _view: &Arc<StatementView>) -> Result<()> {
    Ok(())
}
