//! `DECLARE`, `FETCH`, `MOVE` and `CLOSE`: a query whose rows a client takes part by part.
//!
//! A cursor shows what its query saw when it was declared. Its rows are made as they are fetched, and a little ahead, and count as
//! those of a portal whose client takes only so many. One that is not fetched from has some batches, and its snapshot; it ends when
//! others need the room for long.

use crate::dml::{ParameterTypes, Run, Scope, SourceQuery};
use crate::error::{invalid, unsupported};
use crate::forms;
use crate::syntax::fold;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast::{self, FetchDirection, SetExpr, Statement};
use futures::{StreamExt, TryStreamExt, stream};
use oribi_session::sql::{
    CursorRows, Outcome, RowStream, SqlError, SqlSession, Suspended, Taken, TransactionStatus,
};
use oribi_types::ErrorKind;
use std::sync::Arc;
use std::time::Instant;

/// Each holds a snapshot, a plan, and what was made ahead.
const CURSORS_MAX: usize = 100;

/// A planned `DECLARE`.
pub(crate) struct Declare {
    name: String,
    is_held: bool,
    query: SourceQuery,
}

impl Declare {
    /// `None` if the statement is another.
    ///
    /// # Errors
    /// `Unsupported`, naming what it is; those of the query.
    pub(crate) async fn plan(
        scope: Scope<'_>,
        statement: &Statement,
        types: &mut ParameterTypes,
    ) -> Result<Option<Self>, SqlError> {
        let Statement::Declare { stmts } = statement else { return Ok(None) };
        let [ast::Declare { names, for_query: Some(query), binary, scroll, hold, .. }] = stmts.as_slice()
        else {
            return Err(unsupported("DECLARE of anything but a cursor"));
        };
        let refused = [
            (*binary == Some(true), "DECLARE … BINARY CURSOR"),
            (*scroll == Some(true), "DECLARE … SCROLL CURSOR"),
            (!query.locks.is_empty(), "DECLARE … CURSOR FOR SELECT … FOR UPDATE"),
            (selects_into(query), "DECLARE … CURSOR FOR SELECT INTO"),
            (writes(query), "DECLARE … CURSOR FOR a statement that writes"),
        ];
        if let Some((_, what)) = refused.iter().find(|(found, _)| *found) {
            return Err(unsupported(what));
        }
        let name = names.first().map(fold).unwrap_or_default();
        let query = SourceQuery::plan(scope, Statement::Query(query.clone()), types).await?;
        Ok(Some(Declare { name, is_held: *hold == Some(true), query }))
    }

    pub(crate) fn query(&self) -> &SourceQuery {
        &self.query
    }

    /// # Errors
    /// 25P01 outside of a block, unless it is held; 42P03 for a name in use; 53000 beyond so many.
    pub(crate) async fn execute(&self, run: Run<'_>) -> Result<Outcome, SqlError> {
        let session = run.session;
        let in_block = session.transaction() != TransactionStatus::Idle && !session.modes().implicit;
        if !in_block && !self.is_held {
            return Err(invalid("25P01", "DECLARE CURSOR can only be used in transaction blocks"));
        }
        let exists = || invalid("42P03", format!("cursor \"{}\" already exists", self.name));
        if session.cursors().columns(&self.name).is_some() {
            return Err(exists());
        }
        if session.cursors().names().len() >= CURSORS_MAX {
            return Err(invalid("53000", format!("a session has at most {CURSORS_MAX} cursors")));
        }
        let rows = self.query.run_for_cursor(run).await?;
        let rows = run.query.cursors().keep(CursorRows { rows, left: None }, Instant::now());
        let columns = Arc::clone(self.query.schema());
        match session.cursors().open(&self.name, columns, rows, self.is_held, in_block) {
            true => Ok(Outcome::Done { tag: "DECLARE CURSOR".to_owned() }),
            false => Err(exists()),
        }
    }
}

fn selects_into(query: &ast::Query) -> bool {
    matches!(query.body.as_ref(), SetExpr::Select(select) if select.into.is_some())
}

fn writes(query: &ast::Query) -> bool {
    matches!(*query.body, SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_))
}

/// A planned `FETCH` or `MOVE`.
pub(crate) struct Fetch {
    name: String,
    rows_max: u64,
    columns: SchemaRef,
    /// It says how many there were, and not which.
    moves: bool,
}

impl Fetch {
    /// `None` if the statement is another.
    ///
    /// # Errors
    /// 34000 for no cursor; 55000 for a direction other than forward.
    pub(crate) fn plan(session: &SqlSession, statement: &Statement) -> Result<Option<Self>, SqlError> {
        let Statement::Fetch { name, direction, into, .. } = statement else { return Ok(None) };
        let rows_max = match direction {
            FetchDirection::Next | FetchDirection::Forward { limit: None } => 1,
            FetchDirection::All | FetchDirection::ForwardAll => u64::MAX,
            FetchDirection::Count { limit } | FetchDirection::Forward { limit: Some(limit) } => {
                let count = limit.to_string();
                count.parse().map_err(|_| invalid("42601", format!("FETCH {count} is not understood")))?
            }
            other => {
                let message = format!("cursor can only scan forward: FETCH {other}");
                return Err(invalid("55000", message).with_hint("there are no scrollable cursors"));
            }
        };
        let name = fold(name);
        let columns = session.cursors().columns(&name).ok_or_else(|| no_cursor(&name))?;
        let moves = into.as_ref().is_some_and(forms::is_moved);
        Ok(Some(Fetch { name, rows_max, columns, moves }))
    }

    pub(crate) fn columns(&self) -> Option<&SchemaRef> {
        (!self.moves).then_some(&self.columns)
    }

    /// # Errors
    /// 34000; 53200 if its rows had to go; 55000 while others fetch from it; 0A000 if the cursor of the name is another by now, whose
    /// columns are others.
    pub(crate) async fn execute(&self, run: Run<'_>) -> Result<Outcome, SqlError> {
        if run.session.cursors().columns(&self.name).is_some_and(|columns| columns != self.columns) {
            return Err(invalid("0A000", "cached plan must not change result type"));
        }
        let (rows, number) = match run.session.cursors().take(&self.name) {
            Taken::Rows(rows, number) => (rows, number),
            Taken::Missing => return Err(no_cursor(&self.name)),
            Taken::Busy => {
                return Err(invalid("55000", format!("cursor \"{}\" is being fetched from", self.name)));
            }
            Taken::Ended => return Err(ended(&self.name)),
        };
        let mut fetching = Fetching {
            session: Arc::clone(run.session),
            suspended: Arc::clone(run.query.cursors()),
            name: self.name.clone(),
            number,
            rows: Some(rows),
            left: self.rows_max,
        };
        if fetching.left == 0 {
            fetching.put_back();
        }
        let mut rows: RowStream = Box::pin(stream::unfold(fetching, |mut fetching| async move {
            let batch = fetching.next().await?;
            Some((batch, fetching))
        }));
        if !self.moves {
            return Ok(Outcome::Rows(rows));
        }
        let mut count = 0;
        while let Some(batch) = rows.try_next().await? {
            count += batch.num_rows();
        }
        Ok(Outcome::Done { tag: format!("MOVE {count}") })
    }
}

fn no_cursor(name: &str) -> SqlError {
    invalid("34000", format!("cursor \"{name}\" does not exist"))
}

fn ended(name: &str) -> SqlError {
    let message = format!(
        "cursor \"{name}\" was closed: it had rows that nobody fetched, and other statements needed their memory"
    );
    SqlError::new(ErrorKind::Unavailable, message).with_sqlstate("53200")
}

/// Closes a cursor, or all.
///
/// # Errors
/// 34000.
pub(crate) fn close(session: &SqlSession, name: Option<&str>) -> Result<&'static str, SqlError> {
    match name {
        Some(name) if !session.cursors().close(name) => Err(no_cursor(name)),
        Some(_) => Ok("CLOSE CURSOR"),
        None => {
            session.cursors().close_all();
            Ok("CLOSE CURSOR ALL")
        }
    }
}

/// The rows of one `FETCH`. What is left is brought back behind the last, or when nobody wants more.
struct Fetching {
    session: Arc<SqlSession>,
    suspended: Arc<Suspended<CursorRows>>,
    name: String,
    number: u64,
    rows: Option<CursorRows>,
    left: u64,
}

impl Fetching {
    fn put_back(&mut self) {
        if let Some(rows) = self.rows.take() {
            let kept = self.suspended.keep(rows, Instant::now());
            self.session.cursors().put_back(&self.name, self.number, kept);
        }
    }

    /// The next batch; a cursor whose query has failed is closed.
    async fn next(&mut self) -> Option<Result<RecordBatch, SqlError>> {
        let cursor = self.rows.as_mut()?;
        let batch = match cursor.left.take() {
            Some(batch) => batch,
            None => match cursor.rows.next().await {
                Some(Ok(batch)) => batch,
                Some(Err(error)) => {
                    self.rows = None;
                    self.session.cursors().close(&self.name);
                    return Some(Err(error));
                }
                None => {
                    // It stays, and has no more rows.
                    cursor.rows = Box::pin(stream::empty());
                    self.put_back();
                    return None;
                }
            },
        };
        let rows = usize::try_from(self.left).unwrap_or(usize::MAX).min(batch.num_rows());
        if rows < batch.num_rows() {
            cursor.left = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        self.left -= rows as u64;
        if self.left == 0 {
            self.put_back();
        }
        Some(Ok(batch.slice(0, rows)))
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.put_back();
    }
}
