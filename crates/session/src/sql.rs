//! The SQL engine as the doors see it. The `query` crate implements it.

mod advisory;
mod cursors;
mod session;
mod suspended;
mod time_zone;

pub use advisory::{AdvisoryHolder, AdvisoryKey, AdvisoryLocks, AdvisoryMode};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
pub use cursors::{CursorRows, Cursors, Taken};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
pub use oribi_engine::Obligation;
use oribi_types::{ColumnType, Error, ErrorKind, Value, ValueRef};
pub use session::{
    BlockModes, EndedBlock, IDLE_IN_TRANSACTION_TIMEOUT, LOCK_TIMEOUT, STATEMENT_TIMEOUT, SqlSession, Staged,
    TransactionStatus, parse_timeout,
};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
pub use suspended::{Suspended, Suspension};
pub use time_zone::TimeZone;

/// The PostgreSQL version whose dialect and protocol are spoken, as clients read it, and which server this is.
pub const POSTGRES_VERSION: &str = concat!("15.0 (Oribi ", env!("CARGO_PKG_VERSION"), ")");

/// Parses and plans statements.
#[async_trait]
pub trait SqlEngine: Send + Sync + 'static {
    /// Where in a script its statements stand, in bytes; semicolons, comments around them and empty statements are left
    /// out.
    ///
    /// # Errors
    /// `Invalid` with a position for text that does not tokenize, `TooLarge` (54000) for more than the engine reads at
    /// a time.
    async fn split(&self, script: &str) -> Result<Vec<Range<usize>>, SqlError>;

    /// Plans one statement. `parameter_types` are the types that the client gave for `$1`, `$2` …; the others are
    /// inferred.
    ///
    /// # Errors
    /// `Invalid`, `NotFound`, `Unsupported`, with a position where it is known.
    async fn prepare(
        &self,
        session: &Arc<SqlSession>,
        sql: &str,
        parameter_types: &[Option<ColumnType>],
    ) -> Result<Arc<dyn Prepared>, SqlError>;

    /// As [`prepare`](Self::prepare), for a text that was prepared before; `None` if that is to be done again.
    fn recall(
        &self,
        _session: &SqlSession,
        _sql: &str,
        _parameter_types: &[Option<ColumnType>],
    ) -> Option<Arc<dyn Prepared>> {
        None
    }

    /// As [`recall`](Self::recall), for a text that may differ in its literals, and be followed by a semicolon; with what is to be
    /// given for the parameters.
    fn recall_with_literals(
        &self,
        _session: &SqlSession,
        _sql: &str,
    ) -> Option<(Arc<dyn Prepared>, Vec<Value>)> {
        None
    }

    /// Makes a setting, as `SET` does; `name` is in lower case.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`, `Unsupported` for a setting or a value that there is not, `TooLarge`.
    fn set(&self, session: &SqlSession, name: &str, value: &str) -> Result<(), SqlError>;

    /// Begins what several statements are that came in one message, or up to one `Sync`: a transaction, unless the session is in
    /// one already.
    fn begin_series(&self, _session: &SqlSession) {}

    /// Ends it, if none of the statements has begun or ended a block: what they changed is applied, if it is to be committed.
    ///
    /// # Errors
    /// Those of `COMMIT`.
    async fn end_series(&self, _session: &Arc<SqlSession>, _commit: bool) -> Result<(), SqlError> {
        Ok(())
    }

    /// Waits until what [`Prepared::point`] observed or wrote may be told; `None` if it may at once. Obligations of
    /// several statements are merged and settled once.
    ///
    /// # Errors
    /// `Unavailable` if the log has stopped: nothing must be answered.
    fn settled(&self, obligation: Obligation) -> Option<BoxFuture<'static, Result<(), Error>>>;

    /// Whether statements wait for clients of others to take the rows that were made for them: one that takes none is in the
    /// way.
    fn awaits_clients(&self) -> bool {
        false
    }

    /// Ends cursors that nobody has fetched from since `time`: others wait for the room of their rows.
    fn end_cursors_until(&self, _time: Instant) {}

    /// Bytes that such rows count as, and for how many there is room.
    fn unread_bytes(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// A planned statement. It sees the catalog as of its execution; one whose table changed since fails or replans.
#[async_trait]
pub trait Prepared: Send + Sync + 'static {
    /// Types of `$1`, `$2` …
    fn parameters(&self) -> &[ColumnType];
    /// What its plan takes in memory beside what was written, about.
    fn plan_bytes(&self) -> usize;
    /// Whether parameter `n`, counted from 0, is only stored, so that a number is rounded to the parameter's type. One
    /// that is compared, or computed with, must be of the type exactly.
    fn rounds(&self, _n: usize) -> bool {
        false
    }
    /// Whether parameter `n` is a timestamp with a time zone, so that an offset in its text counts.
    fn is_moment(&self, _n: usize) -> bool {
        false
    }
    /// Whether it is a statement that ends a block, and so runs in one that failed.
    fn ends_block(&self) -> bool {
        false
    }
    /// What the door forgets once the statement has run.
    fn releases(&self) -> Option<&Release> {
        None
    }
    /// Columns of the result; `None` for a statement without one.
    fn columns(&self) -> Option<&SchemaRef>;
    /// What the command tag of a statement that gives rows says before their number: `SELECT`, or `INSERT 0` for an
    /// `INSERT … RETURNING`.
    fn verb(&self) -> &'static str {
        "SELECT"
    }
    /// For `COPY`, how the door is to move the bytes.
    fn copy(&self) -> Option<&CopyStatement>;
    /// For a statement about at most one row, named by its primary key: a way to it without plan, batches and
    /// allocations. `None` wherever that way might do anything else than [`execute`](Self::execute): if the catalog is
    /// another than the statement was planned for, inside of a transaction block whose statements see one snapshot, and under a
    /// `statement_timeout`.
    fn point(&self, _session: &SqlSession) -> Option<Point<'_>> {
        None
    }
    /// Runs the statement; `parameters` as many and of such types as [`parameters`](Self::parameters) says.
    /// Dropping the future or the stream cancels it.
    ///
    /// # Errors
    /// Any kind; nothing was changed then.
    async fn execute(&self, session: &Arc<SqlSession>, parameters: &[Value]) -> Result<Outcome, SqlError>;
}

/// What a door keeps for a session and is to forget: prepared statements, which the SQL engine does not know by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// `DEALLOCATE name`.
    Statement(String),
    /// `DEALLOCATE ALL`.
    Statements,
    /// `DISCARD ALL`.
    Everything,
}

/// A prepared statement about one row.
#[derive(Clone, Copy)]
pub enum Point<'p> {
    Read(&'p dyn PointRead),
    Write(&'p dyn PointWrite),
}

/// A prepared look-up of at most one row by its primary key.
pub trait PointRead: Send + Sync {
    /// Hands the row's columns, as `session` sees them, to `visit`, if there is such a row, and allocates nothing on the way. Returns
    /// whether there is one, and what must be [settled](SqlEngine::settled) before that is told to anybody; `None` if a file
    /// must be read to know, or the row is long. `visit` runs under a lock and must not call the engine.
    ///
    /// # Errors
    /// Those of the engine; `Conflict` if the table was altered since the statement was prepared. Executing the
    /// statement says it in the client's terms, or does not fail.
    fn try_get(
        &self,
        session: &SqlSession,
        parameters: &[Value],
        visit: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<Option<(bool, Obligation)>, Error>;

    /// As [`try_get`](Self::try_get) outside of a block, but blocks if a file must be read.
    ///
    /// # Errors
    /// As `try_get`.
    fn get(
        &self,
        parameters: &[Value],
        visit: &mut dyn FnMut(&[ValueRef<'_>]),
    ) -> Result<(bool, Obligation), Error>;
}

/// A prepared write of one row by its primary key.
pub trait PointWrite: Send + Sync {
    /// Writes, in the block that `session` is in. Returns the number of rows written, 0 or 1, and what must be [settled](SqlEngine::settled) before that
    /// is told to anybody. It waits for nobody, but may read a file.
    ///
    /// `None`: nothing was written, because the statement is refused, or not plain after all with these parameters, or has to
    /// wait for others. Executing it says why, or does it.
    fn write(&self, session: &SqlSession, parameters: &[Value]) -> Option<(u64, Obligation)>;
}

pub type RowStream = BoxStream<'static, Result<RecordBatch, SqlError>>;

/// What a statement gave.
pub enum Outcome {
    Rows(RowStream),
    /// The command tag, as PostgreSQL writes it: `INSERT 0 5`, `CREATE TABLE`.
    Done {
        tag: String,
    },
    /// `COPY … FROM STDIN`: the door pushes what the client sends.
    CopyIn(Box<dyn CopySink>),
}

/// Takes the rows of a `COPY … FROM STDIN`; all or nothing. Dropping it aborts.
#[async_trait]
pub trait CopySink: Send {
    /// The columns to push, in order.
    fn schema(&self) -> &SchemaRef;
    /// # Errors
    /// As an `INSERT` of the same rows.
    async fn push(&mut self, batch: RecordBatch) -> Result<(), SqlError>;
    /// Commits; returns the rows copied.
    ///
    /// # Errors
    /// As an `INSERT` of the same rows.
    async fn finish(self: Box<Self>) -> Result<u64, SqlError>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    Text,
    Csv,
}

/// The format of a `COPY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyStatement {
    /// To the client; otherwise from it.
    pub to_stdout: bool,
    pub format: CopyFormat,
    pub header: bool,
    pub delimiter: u8,
    /// The text that stands for null.
    pub null: String,
    pub quote: u8,
    pub escape: u8,
}

/// An error of a statement, with what PostgreSQL's protocol can say beyond the message.
#[derive(Clone, Debug)]
pub struct SqlError {
    pub error: Error,
    /// Overrides the SQLSTATE that the kind of `error` maps to.
    pub sqlstate: Option<&'static str>,
    /// 1-based, in characters of the statement.
    pub position: Option<usize>,
    pub hint: Option<String>,
}

impl From<Error> for SqlError {
    fn from(error: Error) -> Self {
        SqlError { error, sqlstate: None, position: None, hint: None }
    }
}

impl SqlError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error::new(kind, message).into()
    }

    /// The SQLSTATE: the one that was chosen for it, or that of its kind.
    pub fn sqlstate(&self) -> &'static str {
        self.sqlstate.unwrap_or_else(|| sqlstate_of(self.error.kind()))
    }

    #[must_use]
    pub fn with_sqlstate(mut self, sqlstate: &'static str) -> Self {
        self.sqlstate = Some(sqlstate);
        self
    }

    #[must_use]
    pub fn at(mut self, position: usize) -> Self {
        self.position = Some(position);
        self
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The SQLSTATE of an error whose maker did not choose one.
fn sqlstate_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid => "22023",         // invalid_parameter_value
        ErrorKind::NotFound => "42P01",        // undefined_table
        ErrorKind::NotCovered => "23514",      // check_violation: no partition found for the row
        ErrorKind::AlreadyExists => "42710",   // duplicate_object
        ErrorKind::Conflict => "40001",        // serialization_failure: clients retry the statement
        ErrorKind::Retry => "40001",           // the same advice
        ErrorKind::WouldBlock => "40001",      // likewise
        ErrorKind::Unavailable => "57P03",     // cannot_connect_now
        ErrorKind::DiskFull => "53100",        // disk_full
        ErrorKind::Unauthenticated => "28000", // invalid_authorization_specification
        ErrorKind::Forbidden => "42501",       // insufficient_privilege
        ErrorKind::Unsupported => "0A000",     // feature_not_supported
        ErrorKind::Corrupt => "XX001",         // data_corrupted
        ErrorKind::TooLarge => "54000",        // program_limit_exceeded
        ErrorKind::Internal => "XX000",        // internal_error
    }
}

impl std::fmt::Display for SqlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for SqlError {}
