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
mod queries;
mod relations;
mod rewrite;
mod server;
mod standard;
mod table;
mod transactions;
mod types;

pub(crate) use functions::{Scope, names as function_names};
pub(crate) use names::{apart, column_name, output_schema, shown};
pub(crate) use picture::{quote, split_name};
pub(crate) use rewrite::{call, rewrite};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{MemTable, SchemaProvider, Session, TableProvider};
use datafusion::common::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;
use table::{SystemTable, system_tables};

/// The schema that every search path begins with, unless it says otherwise.
pub(crate) const SCHEMA: &str = "pg_catalog";

/// The schema `name`, if it is one of those that exist in no engine.
pub(crate) fn schema(name: &str) -> Option<Arc<dyn SchemaProvider>> {
    let name = [SCHEMA, "information_schema", transactions::SCHEMA].into_iter().find(|n| *n == name)?;
    Some(Arc::new(SystemSchema { name }))
}

/// Adds the functions that look at the session or the catalog: those of the [`Scope`] that a statement's options carry.
///
/// # Errors
/// If a function of the name cannot be replaced.
pub(crate) fn register(state: &mut SessionState) -> Result<()> {
    for function in functions::functions() {
        state.register_udf(Arc::new(function))?;
    }
    Ok(())
}

/// `pg_catalog`, `information_schema` or `system`.
#[derive(Debug)]
struct SystemSchema {
    name: &'static str,
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
        Ok(self.find(name).map(|table| Arc::new(System(table)) as _))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.find(name).is_some()
    }
}

/// A table whose rows are drawn when it is scanned.
#[derive(Debug)]
struct System(&'static SystemTable);

#[async_trait]
impl TableProvider for System {
    fn schema(&self) -> SchemaRef {
        self.0.arrow()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let batch = self.0.batch(Scope::of_statement(state.config_options())?.picture())?;
        let rows = MemTable::try_new(self.schema(), vec![vec![batch]])?;
        rows.scan(state, projection, filters, limit).await
    }
}

#[cfg(test)]
mod tests;
