//! Writes of one row by its primary key, without plan, batch or allocation of our own.
//!
//! A planned statement is looked at once: one that names its only row by constants and sets nothing but constants and what
//! [formulas](Formula) yield (for a `DO UPDATE`, proposed values too) becomes a [`PointWrite`], which encodes key and row straight into the engine's
//! write. It knows one way through: whatever is not plain (a refusal, a parameter of a type that must be converted, a
//! row so large that its memory is counted, a table that changed meanwhile, others that would have to be waited for) it leaves
//! to the planned statement, having written nothing. So it can differ from that statement only in what both succeed at.

use super::changed;
use super::constant::{Constant, clock};
use super::formula::{self, Formula};
use crate::point::convert;
use crate::sequences::Sequence;
use oribi_engine::{
    Author, Commit, Decide, Decision, Engine, Obligation, Read, ReadAhead, RowVersion, Table, WriteOp,
};
use oribi_session::sql::{self, SqlSession, TransactionStatus};
use oribi_types::key::encode_key;
use oribi_types::{ColumnSource, ColumnType, Result, RowRef, Schema, Value, ValueRef};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// A prepared write of one row.
pub(crate) struct PointWrite {
    engine: Arc<Engine>,
    table: Arc<Table>,
    schema: Arc<Schema>,
    operation: Operation,
    /// Whether the changes set all slots of a row that is there, and in order: then nothing of it stays.
    replaces: bool,
    /// Whether changes are computed from the row that is there.
    computes: bool,
    asks_time: bool,
}

pub(super) enum Operation {
    /// Of the row with this key, one constant for each key column.
    Update {
        key: Vec<Constant>,
        changes: Vec<Change>,
    },
    Delete {
        key: Vec<Constant>,
    },
    /// Of these values, one for each column of the table.
    Insert {
        values: Vec<Source>,
        conflict: Conflict,
    },
}

pub(super) enum Conflict {
    Refuse,
    Ignore,
    Update(Vec<Change>),
}

/// What the column at a position is set to.
pub(super) struct Change {
    pub(super) position: usize,
    pub(super) source: Source,
}

pub(super) enum Source {
    Constant(Constant),
    /// The value proposed for the column at this position.
    Excluded(usize),
    Formula(Formula),
    /// A number that no row has had.
    RowId,
    /// The next number of a sequence.
    Next(Arc<Sequence>),
}

/// What a write is executed with.
#[derive(Clone, Copy)]
struct Given<'v> {
    session: &'v SqlSession,
    parameters: &'v [Value],
    now_micros: i64,
}

/// Values and slots up to this number need no allocation.
const COLUMNS_INLINE: usize = 16;

type Values<'v> = SmallVec<[ValueRef<'v>; COLUMNS_INLINE]>;
/// What each slot of the row is set to; what is `None` stays.
type Slots<'v> = SmallVec<[Option<ValueRef<'v>>; COLUMNS_INLINE]>;

/// Rows from this size on are the planned statement's, which counts them against the memory of queries.
const ROW_BYTES_MAX: usize = 128 << 10;

#[derive(Default)]
struct Scratch {
    key: Vec<u8>,
    row: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch { key: Vec::new(), row: Vec::new() }) };
}

impl PointWrite {
    /// `parameters` are the types of the statement's parameters. `None` if one of them must be converted by more than
    /// a change of an integer's width.
    pub(super) fn new(
        engine: &Arc<Engine>,
        table: &Arc<Table>,
        schema: &Arc<Schema>,
        mut operation: Operation,
        parameters: &[ColumnType],
    ) -> Option<Self> {
        let columns = schema.columns();
        let plain = |position: usize, constant: &Constant| {
            constant.is_plain(columns[position].column_type, parameters)
        };
        let plain_source = |position: usize, source: &Source| match source {
            Source::Constant(constant) => plain(position, constant),
            Source::Excluded(_) | Source::RowId => true,
            Source::Next(_) | Source::Formula(_) => columns[position].column_type.is_integer(),
        };
        let plain_change = |change: &Change| plain_source(change.position, &change.source);
        let plain_key = |key: &[Constant]| schema.key().iter().zip(key).all(|(&p, c)| plain(p, c));
        let is_plain = match &operation {
            Operation::Update { key, changes } => plain_key(key) && changes.iter().all(plain_change),
            Operation::Delete { key } => plain_key(key),
            Operation::Insert { values, conflict } => {
                values.iter().enumerate().all(|(position, source)| plain_source(position, source))
                    && match conflict {
                        Conflict::Update(changes) => changes.iter().all(plain_change),
                        Conflict::Refuse | Conflict::Ignore => true,
                    }
            }
        };
        let replaces = match &mut operation {
            Operation::Update { changes, .. } => {
                let slot = |change: &Change| change.slot(schema);
                changes.sort_by_key(slot);
                changes.iter().map(slot).eq((0..schema.layout().slots().len()).map(Some))
            }
            _ => false,
        };
        let computes = operation.changes().iter().any(|change| matches!(change.source, Source::Formula(_)));
        let asks_time =
            operation.sources().any(|source| matches!(source, Source::Constant(Constant::Now(_))));
        let (engine, table, schema) = (Arc::clone(engine), Arc::clone(table), Arc::clone(schema));
        let replaces = replaces && !computes;
        is_plain.then_some(PointWrite { engine, table, schema, operation, replaces, computes, asks_time })
    }

    fn update(
        &self,
        key: &[Constant],
        changes: &[Change],
        given: Given<'_>,
        scratch: &mut Scratch,
    ) -> Option<(Commit, bool)> {
        self.encode_key(key, given, &mut scratch.key)?;
        if self.replaces && self.encode_replacing(changes, given, &mut scratch.row) {
            let proposed = |current: Option<RowVersion<'_>>, _: &mut Vec<u8>| match current {
                Some(_) => Ok(Decision::Proposed),
                None => Ok(Decision::Keep),
            };
            return self.write(given, &scratch.key, &scratch.row, proposed);
        }
        if self.computes {
            return self.write(given, &scratch.key, &[], |current, row| {
                let Some(current) = current else { return Ok(Decision::Keep) };
                self.change(changes, given, &[], current.row, row).ok_or_else(changed)
            });
        }
        let mut slots = Slots::new();
        self.put_slots(changes, given, &[], None, &mut slots)?;
        self.write(given, &scratch.key, &[], |current, row| {
            let Some(current) = current else { return Ok(Decision::Keep) };
            self.schema.overlay(current.row, &slots, row);
            Ok(Decision::Put)
        })
    }

    fn delete(&self, key: &[Constant], given: Given<'_>, scratch: &mut Scratch) -> Option<(Commit, bool)> {
        self.encode_key(key, given, &mut scratch.key)?;
        self.write(given, &scratch.key, &[], |current, _| {
            Ok(if current.is_some() { Decision::Delete } else { Decision::Keep })
        })
    }

    fn insert(
        &self,
        values: &[Source],
        conflict: &Conflict,
        given: Given<'_>,
        scratch: &mut Scratch,
    ) -> Option<(Commit, bool)> {
        let mut proposed = Values::new();
        for (column, source) in self.schema.columns().iter().zip(values) {
            proposed.push(self.source_value(source, column.column_type, given, &[], None)?);
        }
        let Scratch { key, row: encoded } = scratch;
        // It checks what a column may hold, null included.
        self.schema.encode(&proposed, key, encoded).ok()?;
        if key.len() + encoded.len() > ROW_BYTES_MAX.min(self.engine.options().statement_bytes_max / 2) {
            return None;
        }
        let mut slots = Slots::new();
        if let Conflict::Update(changes) = conflict
            && !self.computes
        {
            self.put_slots(changes, given, &proposed, None, &mut slots)?;
        }
        self.write(given, key, encoded, |current, row| match (current, conflict) {
            (None, _) => Ok(Decision::Proposed),
            (Some(_), Conflict::Refuse) => Err(changed()),
            (Some(_), Conflict::Ignore) => Ok(Decision::Keep),
            (Some(current), Conflict::Update(changes)) if self.computes => {
                self.change(changes, given, &proposed, current.row, row).ok_or_else(changed)
            }
            (Some(current), Conflict::Update(_)) => {
                self.schema.overlay(current.row, &slots, row);
                Ok(Decision::Put)
            }
        })
    }

    /// Appends the row that changes which are computed make of the encoded row `old`.
    fn change(
        &self,
        changes: &[Change],
        given: Given<'_>,
        proposed: &[ValueRef<'_>],
        old: &[u8],
        row: &mut Vec<u8>,
    ) -> Option<Decision> {
        let mut slots = Slots::new();
        self.put_slots(changes, given, proposed, Some(RowRef::new(self.schema.layout(), old)), &mut slots)?;
        self.schema.overlay(old, &slots, row);
        Some(Decision::Put)
    }

    /// Appends the encoded key; `None` if a part of it is null, which equals nothing.
    fn encode_key(&self, key: &[Constant], given: Given<'_>, out: &mut Vec<u8>) -> Option<()> {
        // What is not plain goes the way of null, which no key takes.
        let values = self.schema.key_columns().zip(key).map(|(column, constant)| {
            constant.plain_value(column.column_type, given).unwrap_or(ValueRef::Null)
        });
        encode_key(&self.schema, values, out).ok()
    }

    /// Encodes the row that `changes` make, which set every slot in order; whether each value is of its column's type
    /// and may stand there.
    fn encode_replacing(&self, changes: &[Change], given: Given<'_>, out: &mut Vec<u8>) -> bool {
        let mut fits = true;
        let values = changes.iter().map(|change| {
            let column = &self.schema.columns()[change.position];
            let value = change.value(given);
            let stored = value.filter(|value| match value {
                ValueRef::Null => column.nullable,
                value => value.fits(column.column_type),
            });
            fits &= stored.is_some();
            stored.unwrap_or(ValueRef::Null)
        });
        self.schema.layout().encode_each(values, out);
        fits
    }

    /// Fills `slots`, which is empty; `None` if one gets a null that it must not have, or what is not plain after all.
    fn put_slots<'v>(
        &'v self,
        changes: &'v [Change],
        given: Given<'v>,
        proposed: &'v [ValueRef<'v>],
        row: Option<RowRef<'v>>,
        slots: &mut Slots<'v>,
    ) -> Option<()> {
        slots.resize(self.schema.layout().slots().len(), None);
        for change in changes {
            let column = &self.schema.columns()[change.position];
            let value = self.source_value(&change.source, column.column_type, given, proposed, row)?;
            if value.is_null() && !column.nullable {
                return None;
            }
            slots[change.slot(&self.schema)?] = Some(value);
        }
        Some(())
    }

    #[inline]
    fn source_value<'v>(
        &'v self,
        source: &'v Source,
        column_type: ColumnType,
        given: Given<'v>,
        proposed: &'v [ValueRef<'v>],
        row: Option<RowRef<'v>>,
    ) -> Option<ValueRef<'v>> {
        match source {
            Source::Constant(constant) => constant.plain_value(column_type, given),
            Source::Excluded(from) => proposed.get(*from).copied(),
            Source::RowId => self.engine.row_ids(1, false).ok().map(ValueRef::Int64),
            Source::Next(sequence) => {
                let (number, _) = sequence.draw_one(&self.engine, given.session)?;
                let number = convert(ValueRef::Int64(number), column_type);
                (!number.is_null() && number.fits(column_type)).then_some(number)
            }
            Source::Formula(formula) => {
                let from = formula::From { schema: &self.schema, row, proposed, values: given.parameters };
                formula.value(from, column_type)
            }
        }
    }

    /// Writes one row, or the one `proposed`, as `decide` says; returns whether it was written or deleted.
    fn write(
        &self,
        given: Given<'_>,
        key: &[u8],
        proposed: &[u8],
        decide: impl Fn(Option<RowVersion<'_>>, &mut Vec<u8>) -> Result<Decision>,
    ) -> Option<(Commit, bool)> {
        let mut written = false;
        let operation = [WriteOp { table: &self.table, key, read: Read::Existing, row: proposed }];
        let decide = &mut |_: usize, current: Option<RowVersion<'_>>, row: &mut Vec<u8>| {
            let decision = decide(current, row)?;
            written = decision != Decision::Keep;
            Ok(decision)
        };
        let commit = match given.session.transaction() {
            TransactionStatus::Idle => self.engine.try_write(&operation, decide),
            _ => self.write_in_block(given.session, &operation, decide)?,
        };
        Some((commit.ok()?, written))
    }

    /// `None` if files may have to be read.
    #[cold]
    fn write_in_block(
        &self,
        session: &SqlSession,
        operation: &[WriteOp<'_>],
        decide: &mut Decide<'_>,
    ) -> Option<Result<Commit>> {
        let transaction = session.begin_transaction(&self.engine);
        if transaction.needs_files() {
            return None;
        }
        let (within, blocked) = (transaction.begin_statement(None), Cell::new(None));
        let author = Author { within: Some(&within), held: None, blocked: &blocked };
        let commit = self.engine.write_as(&author, false, operation, decide, &mut ReadAhead::default());
        if let Some(by) = blocked.take() {
            session.note_blocked(by);
        }
        Some(commit)
    }
}

impl sql::PointWrite for PointWrite {
    fn write(&self, session: &SqlSession, parameters: &[Value]) -> Option<(u64, Obligation)> {
        if self.asks_time {
            session.begin_statement(|| self.engine.read_view().now_micros as i64);
        }
        let given = Given { session, parameters, now_micros: session.now_micros() };
        let written = SCRATCH.with_borrow_mut(|scratch| {
            scratch.key.clear();
            scratch.row.clear();
            let written = match &self.operation {
                Operation::Update { key, changes } => self.update(key, changes, given, scratch),
                Operation::Delete { key } => self.delete(key, given, scratch),
                Operation::Insert { values, conflict } => self.insert(values, conflict, given, scratch),
            };
            if scratch.row.capacity() > ROW_BYTES_MAX {
                *scratch = Scratch::default();
            }
            written
        });
        written.map(|(commit, written)| (u64::from(written), commit.obligation))
    }
}

impl Operation {
    /// What it changes of a row that is there.
    fn changes(&self) -> &[Change] {
        match self {
            Operation::Update { changes, .. }
            | Operation::Insert { conflict: Conflict::Update(changes), .. } => changes,
            _ => &[],
        }
    }

    fn sources(&self) -> impl Iterator<Item = &Source> {
        let inserted = match self {
            Operation::Insert { values, .. } => values.as_slice(),
            _ => &[],
        };
        inserted.iter().chain(self.changes().iter().map(|change| &change.source))
    }
}

impl Change {
    /// The literal or the parameter that the column is set to, or the time.
    #[inline]
    fn value<'v>(&'v self, given: Given<'v>) -> Option<ValueRef<'v>> {
        match &self.source {
            Source::Constant(Constant::Value(value)) => Some(value.as_ref()),
            Source::Constant(Constant::Parameter { n, .. }) => given.parameters.get(*n).map(Value::as_ref),
            Source::Constant(Constant::Now(zone)) => {
                Some(ValueRef::Timestamp(clock(*zone, given.now_micros)))
            }
            Source::Excluded(_) | Source::Formula(_) | Source::RowId | Source::Next(_) => None,
        }
    }

    /// The slot of the column, unless it is part of the key or the commit timestamp.
    fn slot(&self, schema: &Schema) -> Option<usize> {
        match schema.columns()[self.position].source {
            ColumnSource::Slot(slot) => Some(usize::from(slot)),
            _ => None,
        }
    }
}

impl Constant {
    /// Whether [`plain_value`](Self::plain_value) may be asked: the value is of `column_type`, or becomes one by a
    /// change of an integer's width.
    fn is_plain(&self, column_type: ColumnType, parameters: &[ColumnType]) -> bool {
        let Constant::Parameter { n, cast } = self else { return true };
        let Some(from) = parameters.get(*n) else { return false };
        let converts = *from == column_type || (from.is_integer() && column_type.is_integer());
        converts && cast.is_none_or(|cast| cast == *from)
    }

    /// The value, of `column_type`; `None` for a parameter that does not fit, or is not of its declared type.
    #[inline]
    fn plain_value<'v>(&'v self, column_type: ColumnType, given: Given<'v>) -> Option<ValueRef<'v>> {
        let value = match self {
            Constant::Value(value) => return Some(value.as_ref()),
            Constant::Parameter { n, .. } => given.parameters.get(*n)?.as_ref(),
            Constant::Now(zone) => return Some(ValueRef::Timestamp(clock(*zone, given.now_micros))),
        };
        if value.fits(column_type) {
            return Some(value);
        }
        let converted = convert(value, column_type);
        (!converted.is_null() && converted.fits(column_type)).then_some(converted)
    }
}
