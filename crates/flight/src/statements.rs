//! Prepared statements, which clients know by a handle.
//!
//! A handle outlives its connection, and clients forget to close theirs. So all together are bounded in number and in bytes, and when others
//! want their place, those give way that nobody has named for a while.

use crate::call::Call;
use crate::handles::Handles;
use crate::shared::Shared;
use crate::status::too_many;
use crate::types::{parameter_field, sent_schema};
use arrow::datatypes::{Schema, SchemaRef};
use bytes::Bytes;
use oribi_session::sql::{Prepared, SqlError, SqlSession};
use oribi_types::{ErrorKind, Value};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What a statement takes for each byte of its text, about, and besides.
const BYTES_PER_BYTE: usize = 4;
const BESIDES_BYTES: usize = 1024;

pub struct Statement {
    pub prepared: Arc<dyn Prepared>,
    /// The transaction that it was prepared in, if it was in one; otherwise executions have the settings of this session.
    transaction: Option<Bytes>,
    session: Arc<SqlSession>,
    /// The values that its next execution as a query has.
    bound: Mutex<(Vec<Value>, Option<Room>)>,
    _room: Room,
}

/// Bytes that count until this is dropped.
struct Room {
    used: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, SeqCst);
    }
}

pub struct Statements {
    handles: Handles<Arc<Statement>>,
    used: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl Statements {
    pub fn new(limit: usize, bytes_max: usize) -> Self {
        Statements { handles: Handles::new(limit), used: Arc::default(), bytes_max }
    }

    /// # Errors
    /// 26000 if there is none of the handle.
    pub fn get(&self, handle: &[u8]) -> Result<Arc<Statement>, SqlError> {
        self.handles.get(handle).ok_or_else(|| {
            SqlError::new(ErrorKind::NotFound, "there is no such prepared statement").with_sqlstate("26000")
        })
    }

    /// Closing what is not there is no error.
    pub fn close(&self, handle: &[u8]) {
        drop(self.handles.remove(handle));
    }

    fn take(&self, bytes: usize) -> Option<Room> {
        let add = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.bytes_max);
        self.used.fetch_update(SeqCst, SeqCst, add).ok()?;
        Some(Room { used: self.used.clone(), bytes })
    }

    /// Room for so many bytes, for which those give way that were silent for long.
    ///
    /// # Errors
    /// 53200 if there is none.
    fn room(&self, shared: &Shared, bytes: usize) -> Result<Room, SqlError> {
        if let Some(room) = self.take(bytes) {
            return Ok(room);
        }
        self.end_silent(shared);
        self.take(bytes).ok_or_else(|| {
            let limit = self.bytes_max;
            let message =
                format!("prepared statements would take too much memory: {limit} bytes are the limit");
            SqlError::new(ErrorKind::TooLarge, message)
                .with_sqlstate("53200")
                .with_hint("close those that are not used")
        })
    }

    fn end_silent(&self, shared: &Shared) {
        let until = Instant::now().checked_sub(shared.limits.statement_silence_max);
        until.into_iter().for_each(|until| drop(self.handles.take_until(until, |_| true)));
    }
}

/// Prepares a statement; its handle.
///
/// # Errors
/// Those of preparing; 53200 and 53300 if there are too many.
pub async fn create(
    shared: &Shared,
    call: &Call,
    sql: &str,
    transaction: Option<Bytes>,
) -> Result<(Bytes, Arc<Statement>), SqlError> {
    let statements = &shared.statements;
    let text_room = statements.room(shared, BESIDES_BYTES + BYTES_PER_BYTE * sql.len())?;
    let prepared = call.prepare(shared, sql, &[]).await?;
    let plan_room = statements.room(shared, prepared.plan_bytes())?;
    let room = Room { used: statements.used.clone(), bytes: text_room.bytes + plan_room.bytes };
    std::mem::forget((text_room, plan_room));
    let session = call.session.clone();
    let statement =
        Arc::new(Statement { prepared, transaction, session, bound: Mutex::default(), _room: room });
    if statements.handles.count() >= statements.handles.limit() {
        statements.end_silent(shared);
    }
    let handle = statements.handles.insert(statement.clone());
    let handle = handle.ok_or_else(|| too_many("prepared statements", statements.handles.limit()))?;
    Ok((handle, statement))
}

impl Statement {
    /// The call in which it is executed.
    ///
    /// # Errors
    /// 25P01 if its transaction has ended; those of authentication.
    pub fn call(&self, shared: &Shared, headers: &tonic::metadata::MetadataMap) -> Result<Call, SqlError> {
        match &self.transaction {
            Some(transaction) => Call::new(shared, headers, Some(transaction)),
            None => {
                shared.door.user(headers)?;
                Ok(Call::like(&self.session))
            }
        }
    }

    /// The columns of its result; none if it has none.
    pub fn schema(&self) -> SchemaRef {
        sent_schema(self.prepared.columns())
    }

    pub fn parameters(&self) -> Schema {
        let parameters = self.prepared.parameters().iter().enumerate();
        let field =
            |(n, column_type): (usize, &_)| parameter_field(n, *column_type, self.prepared.is_moment(n));
        Schema::new(parameters.map(field).collect::<Vec<_>>())
    }

    /// Keeps the values of a row for the next query.
    ///
    /// # Errors
    /// 53200 if they take too much.
    pub fn bind(&self, shared: &Shared, values: Vec<Value>) -> Result<(), SqlError> {
        let room = shared.statements.room(shared, values.iter().map(value_bytes).sum())?;
        *self.bound.lock().unwrap_or_else(PoisonError::into_inner) = (values, Some(room));
        Ok(())
    }

    pub fn bound(&self) -> Vec<Value> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

fn value_bytes(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) | Value::Json(text) => text.len(),
            Value::Binary(bytes) => bytes.len(),
            _ => 0,
        }
}
