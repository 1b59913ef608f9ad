//! The rounds of a statement that reads its rows at a snapshot and then writes them all at once.
//!
//! Another write may come between. As in PostgreSQL under READ COMMITTED, the statement does not fail then: the rows that
//! changed, and no others, are decided again on their newest versions, by the same query for their keys alone.
//!
//! 1. Beside everybody: all rows are read, latched and compared. As a rule none has changed.
//! 2. Alone among statements of this kind, the rows that had changed are read again. What is left to disturb it are point
//!    writes, which come faster than any query: so the table is then [held](oribi_engine::Held), and the few rows that changed in
//!    this last moment are read once more, while nobody changes them. The write finds them so, unless it lets the table go to read
//!    others from files: then those that changed meanwhile are read again, a few times at most.
//!
//! Nothing is written before the last round, and then everything.

use super::destination::Write;
use super::matched::{Matched, Selection, Target};
use super::room::Room;
use super::{Destination, Parameters, Run, Writer};
use crate::context::{Narrowed, QueryEngine};
use oribi_engine::{Author, Commit, Decision, ReadAhead, RowVersion, Table, WriteOp};
use oribi_session::sql::{SqlError, SqlSession};
use oribi_types::{ColumnType, Value};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::OwnedRwLockReadGuard;

/// The end of a round.
pub(super) enum Round<T> {
    Written(T),
    /// These rows, by their numbers, are not as they were read, and nothing was written.
    Changed(Vec<usize>),
}

impl<T> Round<T> {
    /// With what else the statement has to say of what it wrote.
    pub(super) fn with<U>(self, more: U) -> Round<(T, U)> {
        match self {
            Round::Written(written) => Round::Written((written, more)),
            Round::Changed(rows) => Round::Changed(rows),
        }
    }
}

/// Writes what `decide` says of each operation, all or nothing. The first operations are those about `rows` of `matched`: it
/// gets them as they were read, and not those that were passed over.
///
/// # Errors
/// Those of `decide` and of the engine.
pub(super) fn write(
    writer: &Writer<'_>,
    matched: &Matched,
    rows: &[usize],
    operations: &[WriteOp<'_>],
    mut decide: impl FnMut(usize, Option<RowVersion<'_>>, &mut Vec<u8>) -> Result<Decision, SqlError>,
) -> Result<Round<Commit>, SqlError> {
    let (mut refused, mut changed) = (None, Vec::new());
    let result = writer.write(operations, &mut |n, mut current, row| {
        if let Some(&i) = rows.get(n) {
            current = matched.unchanged(i, current, &mut changed);
            match (changed.is_empty(), current) {
                // It goes on to the last row to learn which have changed.
                (false, _) if n + 1 == rows.len() => return Err(super::changed()),
                (false, _) | (true, None) => return Ok(Decision::Keep),
                (true, Some(_)) => {}
            }
        }
        decide(n, current, row).map_err(|error| {
            refused = Some(error);
            super::changed()
        })
    });
    match refused {
        Some(error) => Err(error),
        None if !changed.is_empty() => Ok(Round::Changed(changed)),
        None => Ok(Round::Written(result?)),
    }
}

/// Times that a statement looks at rows that it holds: they may be others than it knows when it holds them first, and each time that
/// its write has let them go. The rest is for rows that expire between, and for imports. Beyond it the statement begins anew.
const LOOKS_MAX: usize = 1 + ReadAhead::ROUNDS_MAX as usize + 4;

/// What writes rows that were found.
type WriteFound<T> = dyn Fn(&Matched, &Room, &Writer<'_>) -> Result<Round<T>, SqlError> + Send + Sync;

/// Reads the rows of `selection` and writes what `write` makes of them, until none has changed in between.
///
/// # Errors
/// Those of the query and of `write`.
pub(super) async fn read_and_write<T: Send + 'static>(
    run: Run<'_>,
    target: &Arc<Target>,
    selection: &Arc<Selection>,
    write: impl Fn(&Matched, &Room, &Writer<'_>) -> Result<Round<T>, SqlError> + Send + Sync + 'static,
) -> Result<T, SqlError> {
    let rounds = Rounds::new(run, target, selection, write);
    let turn = rounds.turn().await;
    let found = selection.find(run, target, &rounds.room).await?;
    rounds.write(turn, &Arc::new(Mutex::new(found))).await
}

/// The turn of a statement that reads and writes beside others.
pub(super) type Turn = Option<OwnedRwLockReadGuard<()>>;

/// A statement that writes rows which it has found.
pub(super) struct Rounds<'a, T> {
    pub(super) run: Run<'a>,
    pub(super) target: &'a Arc<Target>,
    pub(super) selection: &'a Arc<Selection>,
    pub(super) destination: Destination,
    pub(super) room: Arc<Room>,
    /// What a query sees that finds rows again, if not all.
    pub(super) narrowed: Option<Arc<Narrowed>>,
    write: Arc<WriteFound<T>>,
}

impl<'a, T: Send + 'static> Rounds<'a, T> {
    pub(super) fn new(
        run: Run<'a>,
        target: &'a Arc<Target>,
        selection: &'a Arc<Selection>,
        write: impl Fn(&Matched, &Room, &Writer<'_>) -> Result<Round<T>, SqlError> + Send + Sync + 'static,
    ) -> Self {
        let (destination, room) = (run.destination(), Arc::new(Room::new(run.query)));
        Rounds {
            run,
            target,
            selection,
            destination,
            room,
            narrowed: run.narrowed.cloned(),
            write: Arc::new(write),
        }
    }

    /// Waits for it, if the statement reads before it writes.
    pub(super) async fn turn(&self) -> Turn {
        match self.selection.reads_first() {
            true => Some(self.run.query.writers().beside(self.target.table.id()).await),
            false => None,
        }
    }

    /// Writes rows that were found, until none has changed in between: those that have are found again.
    ///
    /// # Errors
    /// Those of the query and of what writes.
    pub(super) async fn write(&self, turn: Turn, found: &Arc<Mutex<Matched>>) -> Result<T, SqlError> {
        let Rounds { run, target, selection, destination, room, narrowed, write } = self;
        let rows = lock(found).len();
        let attempt = (Arc::clone(found), Arc::clone(room), Arc::clone(write));
        let (_, round) = destination
            .write(&target.table, rows, attempt, |(found, room, write), writer| {
                write(&lock(found), room, writer)
            })
            .await?;
        let changed = match round? {
            Round::Written(written) => return Ok(written),
            // No later snapshot shows the rows.
            Round::Changed(_) if run.session.modes().repeatable_read => return Err(super::changed().into()),
            Round::Changed(rows) => rows,
        };
        drop(turn);
        let _alone = run.query.writers().alone(target.table.id()).await;
        let run = Run { narrowed: narrowed.as_ref(), ..*run };
        let mut matched = std::mem::take(&mut *lock(found));
        let again = selection.find_again(run, target, room, &mut matched, &changed).await;
        *lock(found) = matched;
        again?;
        let statement = Statement::of(run);
        let (target, selection, found) = (Arc::clone(target), Arc::clone(selection), Arc::clone(found));
        let (room, write, threads) = (Arc::clone(room), Arc::clone(write), Handle::current());
        alone(destination, &Arc::clone(&target.table), move |writer| {
            let matched = &mut *lock(&found);
            match write(matched, &room, writer)? {
                Round::Changed(rows) => {
                    let run = statement.run();
                    threads.block_on(selection.find_again(run, &target, &room, matched, &rows))?;
                    Ok(None)
                }
                Round::Written(written) => Ok(Some(written)),
            }
        })
        .await
    }
}

pub(super) fn lock(found: &Mutex<Matched>) -> MutexGuard<'_, Matched> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `look` until it gives something, while nobody else changes rows of `table`.
///
/// # Errors
/// Those of `look`; `Conflict` if the rows are others each time.
pub(super) async fn alone<T: Send + 'static>(
    destination: &Destination,
    table: &Arc<Table>,
    look: impl FnMut(&Writer<'_>) -> Result<Option<T>, SqlError> + Send + 'static,
) -> Result<T, SqlError> {
    let of = Arc::clone(table);
    // Where it may wait: for those who have latches, and for its query.
    let (_, found) = destination
        .write(table, usize::MAX, look, move |look, writer| {
            let held = writer.engine.hold(&of)?;
            let write: &Write<'_> = &|(within, blocked), ops, decide, ahead| {
                let author = Author { within, held: Some(&held), blocked };
                writer.engine.write_as(&author, true, ops, decide, ahead)
            };
            for _ in 0..LOOKS_MAX {
                if let Some(found) = look(&writer.holding(write))? {
                    return Ok(found);
                }
            }
            Err(super::changed().into())
        })
        .await?;
    found
}

/// What a [`Run`] borrows.
struct Statement {
    query: Arc<QueryEngine>,
    session: Arc<SqlSession>,
    types: Vec<ColumnType>,
    values: Vec<Value>,
    now_micros: i64,
    narrowed: Option<Arc<Narrowed>>,
}

impl Statement {
    fn of(run: Run<'_>) -> Self {
        Statement {
            query: Arc::clone(run.query),
            session: Arc::clone(run.session),
            types: run.parameters.types.to_vec(),
            values: run.parameters.values.to_vec(),
            now_micros: run.parameters.now_micros,
            narrowed: run.narrowed.cloned(),
        }
    }

    fn run(&self) -> Run<'_> {
        let Statement { types, values, now_micros, .. } = self;
        let parameters = Parameters { types, values, now_micros: *now_micros };
        let narrowed = self.narrowed.as_ref();
        Run { query: &self.query, session: &self.session, parameters, narrowed }
    }
}
