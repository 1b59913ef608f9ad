//! The engine's catalog as DataFusion sees it: one database, the engine's schemas, and those of `pg_catalog`.
//!
//! Two schema names are ours alone. [`SEARCH_PATH_SCHEMA`] is where an unqualified name is looked up: it walks the
//! session's `search_path`. A name made by [`with_ts`] shows the tables of a schema with the hidden column `_ts`, which
//! `UPDATE` and `DELETE` need to tell at write time whether a row is still the one they read.

use crate::context::StatementView;
use crate::pg_catalog;
use crate::provider::OribiTable;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::Result;
use oribi_engine::{Catalog, Table};
use oribi_session::sql::SqlSession;
use std::sync::Arc;

/// The schema of names without one.
pub(crate) const SEARCH_PATH_SCHEMA: &str = "$path";

/// Ends the name of a schema whose tables show `_ts`. No identifier of a client contains a zero byte.
const TS_SUFFIX: &str = "\0ts";

/// The name by which a plan finds the tables of `schema` with their hidden column `_ts`, at the end.
pub(crate) fn with_ts(schema: &str) -> String {
    format!("{schema}{TS_SUFFIX}")
}

/// The name of the one database, as the session calls it.
pub(crate) fn database_name(session: &SqlSession) -> &str {
    if session.database.is_empty() { "oribi" } else { &session.database }
}

/// The schemas that a name without one is looked up in, in this order, whether they exist or not.
pub(crate) fn search_path(session: &SqlSession) -> Vec<String> {
    let Some(setting) = session.setting("search_path") else {
        return vec![pg_catalog::SCHEMA.to_owned(), "public".to_owned()];
    };
    let mut path: Vec<String> = setting
        .split(',')
        .map(|name| match name.trim() {
            "$user" | "\"$user\"" => session.user.clone(),
            name => match name.strip_prefix('"').and_then(|n| n.strip_suffix('"')) {
                Some(quoted) => quoted.replace("\"\"", "\""),
                None => name.trim_matches('\'').to_ascii_lowercase(),
            },
        })
        .filter(|name| !name.is_empty())
        .collect();
    if !path.iter().any(|name| name == pg_catalog::SCHEMA) {
        path.insert(0, pg_catalog::SCHEMA.to_owned());
    }
    path
}

/// The table that `name`, which is no sequence, means in `schema`, or in the session's search path.
pub(crate) fn find_table<'c>(
    catalog: &'c Catalog,
    session: &SqlSession,
    schema: Option<&str>,
    name: &str,
) -> Option<&'c Arc<Table>> {
    let found = match schema {
        Some(schema) => catalog.table(schema, name),
        None => search_path(session).iter().find_map(|schema| catalog.table(schema, name)),
    };
    found.filter(|table| table.is_shown())
}

/// The list of catalogs: one.
#[derive(Debug)]
pub(crate) struct Catalogs {
    database: Arc<Database>,
}

impl Catalogs {
    pub(crate) fn new(view: Arc<StatementView>) -> Self {
        Catalogs { database: Arc::new(Database { view }) }
    }
}

impl CatalogProviderList for Catalogs {
    fn register_catalog(
        &self,
        _name: String,
        _catalog: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![database_name(&self.database.view.session).to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        (name == database_name(&self.database.view.session)).then(|| Arc::clone(&self.database) as _)
    }
}

#[derive(Debug)]
struct Database {
    view: Arc<StatementView>,
}

impl CatalogProvider for Database {
    fn schema_names(&self) -> Vec<String> {
        self.view.catalog.schemas().map(str::to_owned).collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        if name == SEARCH_PATH_SCHEMA {
            let path = search_path(&self.view.session);
            return Some(Arc::new(Path(path.iter().filter_map(|name| self.schema(name)).collect())));
        }
        // A schema of somebody's own that has the name `system` hides that.
        let of_system = pg_catalog::schema(name).filter(|_| !self.view.catalog.schemas().any(|s| s == name));
        if of_system.is_some() {
            return of_system;
        }
        let (schema, ts) = match name.strip_suffix(TS_SUFFIX) {
            Some(schema) => (schema, true),
            None => (name, false),
        };
        let schema = self.view.catalog.schemas().find(|s| *s == schema)?.to_owned();
        Some(Arc::new(Schema { view: Arc::clone(&self.view), schema, ts }))
    }
}

/// The tables of one schema of the engine.
#[derive(Debug)]
struct Schema {
    view: Arc<StatementView>,
    schema: String,
    ts: bool,
}

#[async_trait]
impl SchemaProvider for Schema {
    fn table_names(&self) -> Vec<String> {
        let shown = self.view.catalog.tables(&self.schema).filter(|table| table.is_shown());
        shown.map(|t| t.name().to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let table = self.view.catalog.table(&self.schema, name).filter(|table| table.is_shown());
        let Some(table) = table else { return Ok(None) };
        Ok(Some(Arc::new(OribiTable::new(Arc::clone(table), self.ts))))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.view.catalog.table(&self.schema, name).is_some_and(|table| table.is_shown())
    }
}

/// Several schemas, the first that has a name wins.
#[derive(Debug)]
struct Path(Vec<Arc<dyn SchemaProvider>>);

#[async_trait]
impl SchemaProvider for Path {
    fn table_names(&self) -> Vec<String> {
        self.0.iter().flat_map(|schema| schema.table_names()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.0.iter().find(|schema| schema.table_exist(name)) {
            Some(schema) => schema.table(name).await,
            None => Ok(None),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.0.iter().any(|schema| schema.table_exist(name))
    }
}
