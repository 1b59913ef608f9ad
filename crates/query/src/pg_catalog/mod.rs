//! What PostgreSQL's clients expect to find: the schemas `pg_catalog` and `information_schema`, functions about the
//! catalog and the session, and syntax that DataFusion does not plan.
//!
//! System tables are [declarations](table) whose rows are drawn from a [`Picture`] of the statement's catalog when they
//! are scanned. [`rewrite`](fn@rewrite) turns PostgreSQL's syntax into DataFusion's, by rules that know no particular
//! query.

mod empty;
mod functions;
mod names;
mod picture;
mod relations;
mod rewrite;
mod server;
mod standard;
mod table;
mod types;

pub(crate) use functions::names as function_names;
pub(crate) use names::{apart, column_name, output_schema, shown};
pub(crate) use picture::quote;
pub(crate) use rewrite::{call, rewrite};

use crate::context::StatementView;
use async_trait::async_trait;
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::common::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use functions::Scope;
use std::sync::Arc;
use table::{SystemTable, system_tables};

/// The schema that every search path begins with, unless it says otherwise.
pub(crate) const SCHEMA: &str = "pg_catalog";

/// The schema `name`, if it is one of those that exist in no engine.
pub(crate) fn schema(name: &str, view: &Arc<StatementView>) -> Option<Arc<dyn SchemaProvider>> {
    let name = [SCHEMA, "information_schema"].into_iter().find(|n| *n == name)?;
    Some(Arc::new(SystemSchema { name, scope: Scope::new(view) }))
}

/// Adds the functions that look at the session or the catalog.
///
/// # Errors
/// If a function of the name cannot be replaced.
pub(crate) fn register_functions(state: &mut SessionState, view: &Arc<StatementView>) -> Result<()> {
    register(state, &Scope::new(view))
}

fn register(state: &mut SessionState, scope: &Arc<Scope>) -> Result<()> {
    for function in functions::functions(scope) {
        state.register_udf(Arc::new(function))?;
    }
    Ok(())
}

/// `pg_catalog` or `information_schema`.
#[derive(Debug)]
struct SystemSchema {
    name: &'static str,
    scope: Arc<Scope>,
}

impl SystemSchema {
    fn find(&self, name: &str) -> Option<&'static SystemTable> {
        system_tables().iter().find(|t| t.schema == self.name && t.name == name)
    }
}

#[async_trait]
impl SchemaProvider for SystemSchema {
    fn table_names(&self) -> Vec<String> {
        system_tables().iter().filter(|t| t.schema == self.name).map(|t| t.name.to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(table) = self.find(name) else { return Ok(None) };
        let batch = table.batch(self.scope.picture())?;
        Ok(Some(Arc::new(MemTable::try_new(table.arrow(), vec![vec![batch]])?)))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.find(name).is_some()
    }
}

#[cfg(test)]
mod tests;
