//! A database in a temporary folder, and SQL on it.

#![allow(dead_code, reason = "each scenario uses its part")]

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use futures::TryStreamExt;
use oribi_engine::{Engine, EngineOptions, Table};
use oribi_env::{Env, Priority};
use oribi_query::{QueryEngine, QueryOptions};
use oribi_session::sql::{Outcome, SqlEngine, SqlError, SqlSession};
use oribi_types::{ErrorKind, Value};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct Db {
    pub engine: Arc<Engine>,
    pub query: Arc<QueryEngine>,
    pub session: Arc<SqlSession>,
    dir: Option<tempfile::TempDir>,
}

impl Db {
    pub fn new() -> Self {
        Db::with(EngineOptions { memory_bytes: 256 << 20, ..EngineOptions::default() })
    }

    pub fn with(options: EngineOptions) -> Self {
        Db::open(tempfile::tempdir().unwrap(), options)
    }

    /// Of a machine with one processor.
    pub fn with_one_thread() -> Self {
        let (dir, options) = (tempfile::tempdir().unwrap(), EngineOptions::default());
        let mut db = Db::open_in(dir.path(), options, (1, false));
        db.dir = Some(dir);
        db
    }

    /// As on the command line: `FROM 'file'` reads the file.
    pub fn with_file_tables() -> Self {
        let options = EngineOptions { memory_bytes: 256 << 20, ..EngineOptions::default() };
        Db::open_with(tempfile::tempdir().unwrap(), options, true)
    }

    /// In a folder that is somebody else's to remove. It is not closed.
    pub fn at(dir: &Path, options: EngineOptions) -> Self {
        Db::open_in(dir, options, (2, false))
    }

    fn open(dir: tempfile::TempDir, options: EngineOptions) -> Self {
        Db::open_with(dir, options, false)
    }

    fn open_with(dir: tempfile::TempDir, options: EngineOptions, file_tables: bool) -> Self {
        let mut db = Db::open_in(dir.path(), options, (2, file_tables));
        db.dir = Some(dir);
        db
    }

    fn open_in(dir: &Path, options: EngineOptions, (threads, file_tables): (usize, bool)) -> Self {
        let engine = engine(dir, &options);
        let options = QueryOptions {
            threads,
            // So that a test ends in time on a machine that is busy with others.
            priority: Priority::Normal,
            spill_dir: Some(dir.join("spill")),
            file_tables,
            ..QueryOptions::default()
        };
        let query = QueryEngine::new(Arc::clone(&engine), options).unwrap();
        Db { engine, query, session: SqlSession::new("tester", "oribi"), dir: None }
    }

    /// Closes the database and opens its folder again.
    pub fn reopen(mut self) -> Self {
        let (dir, options) = (self.dir.take().unwrap(), self.engine.options().clone());
        self.engine.close().unwrap();
        drop(self);
        Db::open(dir, options)
    }

    pub fn spill_dir(&self) -> std::path::PathBuf {
        self.dir.as_ref().unwrap().path().join("spill")
    }

    /// Another client of the same database.
    pub fn client(&self, name: &str) -> Db {
        let (engine, query) = (Arc::clone(&self.engine), Arc::clone(&self.query));
        Db { engine, query, session: SqlSession::new(name, "oribi"), dir: None }
    }

    pub async fn outcome(&self, sql: &str, parameters: &[Value]) -> Result<Outcome, SqlError> {
        self.query.prepare(&self.session, sql, &[]).await?.execute(&self.session, parameters).await
    }

    pub async fn try_rows(&self, sql: &str, parameters: &[Value]) -> Result<Vec<RecordBatch>, SqlError> {
        match self.outcome(sql, parameters).await? {
            Outcome::Rows(rows) => rows.try_collect().await,
            Outcome::Done { .. } => Ok(Vec::new()),
            Outcome::CopyIn(_) => panic!("COPY FROM STDIN"),
        }
    }

    /// Runs a statement; panics if it fails.
    pub async fn run(&self, sql: &str) {
        self.try_rows(sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    }

    /// The command tag of a statement; panics if it fails.
    pub async fn tag(&self, sql: &str) -> String {
        self.tag_with(sql, &[]).await
    }

    pub async fn tag_with(&self, sql: &str, parameters: &[Value]) -> String {
        match self.outcome(sql, parameters).await.unwrap_or_else(|e| panic!("{sql}: {e}")) {
            Outcome::Done { tag } => tag,
            _ => panic!("{sql}: gave rows"),
        }
    }

    /// The error of a statement, also one that comes with its rows; panics if there is none.
    pub async fn error(&self, sql: &str) -> SqlError {
        match self.try_rows(sql, &[]).await {
            Err(error) => error,
            Ok(_) => panic!("{sql}: succeeded"),
        }
    }

    /// The SQLSTATE of a statement's error; `0A000` for one that is unsupported.
    pub async fn state(&self, sql: &str) -> &'static str {
        let error = self.error(sql).await;
        match (error.sqlstate, error.error.kind()) {
            (Some(state), _) => state,
            (None, oribi_types::ErrorKind::Unsupported) => "0A000",
            (None, _) => panic!("{sql}: no sqlstate: {error}"),
        }
    }

    pub async fn prepare(&self, sql: &str) -> Arc<dyn oribi_session::sql::Prepared> {
        self.query.prepare(&self.session, sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e}"))
    }

    /// The rows of a query as text: columns joined by `|`, a line each.
    pub async fn rows(&self, sql: &str) -> Vec<String> {
        self.rows_with(sql, &[]).await
    }

    pub async fn rows_with(&self, sql: &str, parameters: &[Value]) -> Vec<String> {
        let batches = self.try_rows(sql, parameters).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
        let text = pretty_format_batches(&batches).unwrap().to_string();
        text.lines()
            .filter(|line| line.starts_with('|'))
            .skip(1)
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>().join("|"))
            .collect()
    }

    /// All lines of an explanation.
    pub async fn explain(&self, sql: &str) -> String {
        self.explain_with(sql, &[]).await
    }

    pub async fn explain_with(&self, sql: &str, parameters: &[Value]) -> String {
        let batches = self.try_rows(sql, parameters).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
        pretty_format_batches(&batches).unwrap().to_string()
    }

    pub fn table(&self, name: &str) -> Arc<Table> {
        self.engine.table("public", name).unwrap()
    }

    pub fn flush(&self, name: &str) {
        self.engine.flush(&self.table(name)).unwrap();
    }

    pub fn compact(&self, name: &str) {
        self.engine.compact(&self.table(name)).unwrap();
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // A client leaves the database to the others.
        if self.dir.is_some() {
            self.engine.close().unwrap();
        }
    }
}

pub fn int(value: i64) -> Value {
    Value::Int64(value)
}

pub fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

/// Once the thread of a query that has just ended has let go of the one before, which has the folder as long.
fn engine(dir: &Path, options: &EngineOptions) -> Arc<Engine> {
    let begun = Instant::now();
    loop {
        match Engine::open(Env::real(), &dir.join("data"), options.clone()) {
            Err(e) if e.kind() == ErrorKind::Unavailable && begun.elapsed() < Duration::from_secs(60) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return opened.unwrap(),
        }
    }
}
