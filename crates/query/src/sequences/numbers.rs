//! The numbers of sequences: each is given out once, whatever becomes of the statement or the block that has asked for it.
//!
//! They are taken a block at a time: that so many may be given out is written to the sequence's row, as a write of its own, before the
//! first of them is. What a crash finds there is the end of the last block, and the numbers between are nobody's. Whoever stores a
//! number comes behind that write in the log; who is told of one otherwise waits until it is durable.
//!
//! A sequence that a block has created is nobody else's until the block is committed: its row is the block's then, and says what was
//! given out last. `ROLLBACK TO` takes numbers of such a sequence back, with all that has been made of them.

use super::Rules;
use crate::error::invalid;
use oribi_engine::{
    Author, Decide, Decision, Engine, Obligation, Read, ReadAhead, RowVersion, Table, WriteOp,
};
use oribi_session::sql::{SqlError, SqlSession};
use oribi_types::key::encode_key;
use oribi_types::{Error, ErrorKind, Schema, Value, ValueRef};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// So many numbers are in a block, if there are.
const BLOCK: u64 = 32;

/// The key of a sequence's row.
const KEY: i16 = 1;

/// The sequences that numbers were asked of, by the ids of their tables.
#[derive(Default)]
pub(crate) struct Numbers(Mutex<HashMap<u64, Arc<Sequence>>>);

/// A sequence, as it gives out numbers.
pub(crate) struct Sequence {
    id: u64,
    state: Mutex<State>,
}

/// Numbers that may be given out.
#[derive(Default)]
struct State {
    next: i64,
    left: u64,
    increment: i64,
    /// What has to be on the disk before anybody is told of them.
    obligation: Obligation,
}

/// Numbers that were given out, and what has to be settled before they are told.
#[derive(Default)]
pub(crate) struct Drawn {
    pub(crate) numbers: Vec<i64>,
    pub(crate) obligation: Obligation,
}

impl Numbers {
    pub(crate) fn of(&self, engine: &Engine, id: u64) -> Arc<Sequence> {
        let mut sequences = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sequences.len() == sequences.capacity() && !sequences.contains_key(&id) {
            // Before it grows: those that were dropped, or are some block's own, of which nothing is known here.
            sequences.retain(|id, _| engine.latest(*id).is_some());
        }
        let sequence = || Arc::new(Sequence { id, state: Mutex::default() });
        Arc::clone(sequences.entry(id).or_insert_with(sequence))
    }
}

impl Sequence {
    /// The next number, on the spot.
    pub(crate) fn draw_one(&self, engine: &Arc<Engine>, session: &SqlSession) -> Option<(i64, Obligation)> {
        let mut state = self.lock(false).ok()?;
        if state.left == 0 {
            self.reserve(engine, &mut state, 1, false).ok()?;
        }
        let number = state.take();
        session.note_drawn(self.id, number, state.obligation);
        Some((number, state.obligation))
    }

    /// The next `count` numbers. Unless it `waits`, for nobody.
    ///
    /// # Errors
    /// 2200H behind the last number; `NotFound` for a sequence that was dropped; `WouldBlock`.
    pub(crate) fn draw(
        &self,
        engine: &Arc<Engine>,
        session: &SqlSession,
        count: usize,
        waits: bool,
    ) -> Result<Drawn, SqlError> {
        let mut drawn = Drawn { numbers: Vec::with_capacity(count), ..Drawn::default() };
        if let Some(table) = self.of_block(engine, session) {
            draw_in_block(engine, session, &table, count, waits, &mut drawn)?;
        } else {
            let mut state = self.lock(waits)?;
            while drawn.numbers.len() < count {
                if state.left == 0 {
                    let missing = (count - drawn.numbers.len()) as u64;
                    self.reserve(engine, &mut state, missing, waits)?;
                }
                drawn.numbers.push(state.take());
            }
            drawn.obligation = state.obligation;
        }
        if let Some(last) = drawn.numbers.last() {
            session.note_drawn(self.id, *last, drawn.obligation);
        }
        Ok(drawn)
    }

    /// The next number is behind `value`, if that `is_called`, or else is it.
    ///
    /// # Errors
    /// 22003 for a value that is none of the sequence's; `NotFound`.
    pub(crate) fn set(
        &self,
        engine: &Arc<Engine>,
        session: &SqlSession,
        value: i64,
        is_called: bool,
    ) -> Result<Obligation, SqlError> {
        let in_block = self.of_block(engine, session);
        let table = match &in_block {
            Some(table) => Arc::clone(table),
            None => self.table(engine)?,
        };
        let rules = rules(&table)?;
        if !(rules.min..=rules.max).contains(&value) {
            let (name, min, max) = (table.name(), rules.min, rules.max);
            let message =
                format!("setval: value {value} is out of bounds for sequence \"{name}\" ({min}..{max})");
            return Err(invalid("22003", message));
        }
        let mut state = self.lock(true)?;
        let decide = &mut |_: usize, _: Option<RowVersion<'_>>, row: &mut Vec<u8>| {
            encode_row(table.schema_ref(), value, is_called, row);
            Ok(Decision::Put)
        };
        let obligation = match in_block {
            Some(_) => write_in_block(engine, session, &table, true, decide)?,
            None => write(engine, &table, true, decide)?,
        };
        *state = State { obligation, ..State::default() };
        if is_called {
            session.note_drawn(self.id, value, obligation);
        }
        Ok(obligation)
    }

    fn lock(&self, waits: bool) -> Result<MutexGuard<'_, State>, SqlError> {
        if waits {
            return Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner));
        }
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(state)) => Ok(state.into_inner()),
            Err(TryLockError::WouldBlock) => Err(would_block()),
        }
    }

    /// The table, if the session's block has created it.
    fn of_block(&self, engine: &Engine, session: &SqlSession) -> Option<Arc<Table>> {
        let transaction = session.open_transaction()?;
        let own = transaction.changes_catalog() && engine.latest(self.id).is_none();
        own.then(|| transaction.catalog().table_by_id(self.id).cloned()).flatten()
    }

    fn table(&self, engine: &Engine) -> Result<Arc<Table>, SqlError> {
        let dropped = || Error::not_found("the sequence was dropped");
        Ok(engine.latest(self.id).ok_or_else(dropped)?)
    }

    /// Writes that the next block of numbers is given out, of so many at least.
    fn reserve(&self, engine: &Engine, state: &mut State, wanted: u64, waits: bool) -> Result<(), SqlError> {
        let table = self.table(engine)?;
        let rules = rules(&table)?;
        let schema = table.schema_ref();
        let mut block = None;
        let decide = &mut |_: usize, current: Option<RowVersion<'_>>, row: &mut Vec<u8>| {
            block = block_behind(&rules, read_row(schema, &rules, current), wanted.max(BLOCK));
            let Some((first, count)) = block else { return Ok(Decision::Keep) };
            encode_row(schema, nth(&rules, first, count as i64 - 1), true, row);
            Ok(Decision::Put)
        };
        let obligation = write(engine, &table, waits, decide)?;
        let (first, count) = block.ok_or_else(|| exhausted(&table, &rules))?;
        *state = State { next: first, left: count, increment: rules.increment, obligation };
        Ok(())
    }
}

fn draw_in_block(
    engine: &Engine,
    session: &SqlSession,
    table: &Arc<Table>,
    count: usize,
    waits: bool,
    drawn: &mut Drawn,
) -> Result<(), SqlError> {
    let rules = rules(table)?;
    while drawn.numbers.len() < count {
        let wanted = (count - drawn.numbers.len()) as u64;
        let mut block = None;
        let decide = &mut |_: usize, current: Option<RowVersion<'_>>, row: &mut Vec<u8>| {
            block = block_behind(&rules, read_row(table.schema_ref(), &rules, current), wanted);
            let Some((first, count)) = block else { return Ok(Decision::Keep) };
            encode_row(table.schema_ref(), nth(&rules, first, count as i64 - 1), true, row);
            Ok(Decision::Put)
        };
        write_in_block(engine, session, table, waits, decide)?;
        let (first, count) = block.ok_or_else(|| exhausted(table, &rules))?;
        drawn.numbers.extend((0..count as i64).map(|n| nth(&rules, first, n)));
    }
    Ok(())
}

impl State {
    fn take(&mut self) -> i64 {
        let number = self.next;
        self.left -= 1;
        self.next = self.next.wrapping_add(self.increment);
        number
    }
}

fn rules(table: &Table) -> Result<Rules, SqlError> {
    Ok(Rules::read(table.sequence().unwrap_or_default())?)
}

/// The first of up to `wanted` numbers behind those that were given out, and how many there are; `None` behind the last.
fn block_behind(rules: &Rules, (last, is_called): (i64, bool), wanted: u64) -> Option<(i64, u64)> {
    let Rules { increment, min, max, cycles, .. } = *rules;
    let next = if is_called { last.checked_add(increment) } else { Some(last) };
    let first = match next.filter(|next| (min..=max).contains(next)) {
        Some(next) => next,
        None if cycles => {
            if increment > 0 {
                min
            } else {
                max
            }
        }
        None => return None,
    };
    let bound = if increment > 0 { max } else { min };
    let behind = (i128::from(bound) - i128::from(first)) / i128::from(increment);
    Some((first, (behind as u128 + 1).min(u128::from(wanted)) as u64))
}

/// The `n`th number behind `first`. It is between the bounds, though what is computed on the way need not be.
fn nth(rules: &Rules, first: i64, n: i64) -> i64 {
    first.wrapping_add(n.wrapping_mul(rules.increment))
}

/// What was given out last, and whether it was.
fn read_row(schema: &Schema, rules: &Rules, row: Option<RowVersion<'_>>) -> (i64, bool) {
    let Some(row) = row else { return (rules.start, false) };
    match (
        schema.slot_value(&schema.columns()[1], 0, row.row),
        schema.slot_value(&schema.columns()[2], 1, row.row),
    ) {
        (ValueRef::Int64(last), ValueRef::Bool(is_called)) => (last, is_called),
        _ => (rules.start, false),
    }
}

fn encode_row(schema: &Schema, last: i64, is_called: bool, row: &mut Vec<u8>) {
    schema.encode_slots(&[ValueRef::Int16(KEY), ValueRef::Int64(last), ValueRef::Bool(is_called)], row);
}

fn encoded_key(table: &Table) -> oribi_types::Result<Vec<u8>> {
    let mut key = Vec::new();
    encode_key(table.schema_ref(), [ValueRef::Int16(KEY)], &mut key)?;
    Ok(key)
}

fn write(
    engine: &Engine,
    table: &Arc<Table>,
    waits: bool,
    decide: &mut Decide<'_>,
) -> Result<Obligation, SqlError> {
    let key = encoded_key(table)?;
    let operation = [WriteOp { table, key: &key, read: Read::Existing, row: &[] }];
    let commit =
        if waits { engine.write(&operation, decide)? } else { engine.try_write(&operation, decide)? };
    Ok(commit.obligation)
}

/// In the block of a session, which has created the sequence: nobody else has its row.
fn write_in_block(
    engine: &Engine,
    session: &SqlSession,
    table: &Arc<Table>,
    waits: bool,
    decide: &mut Decide<'_>,
) -> Result<Obligation, SqlError> {
    let transaction = session.open_transaction().ok_or_else(|| Error::internal("a block has ended"))?;
    let key = encoded_key(table)?;
    let operation = [WriteOp { table, key: &key, read: Read::Existing, row: &[] }];
    let (within, blocked) = (transaction.begin_statement(None), Cell::new(None));
    let author = Author { within: Some(&within), held: None, blocked: &blocked };
    engine.write_as(&author, waits, &operation, decide, &mut ReadAhead::default())?;
    Ok(Obligation::default())
}

fn exhausted(table: &Table, rules: &Rules) -> SqlError {
    let (which, bound) = if rules.increment > 0 { ("maximum", rules.max) } else { ("minimum", rules.min) };
    let message = format!("nextval: reached {which} value of sequence \"{}\" ({bound})", table.name());
    SqlError::new(ErrorKind::Invalid, message).with_sqlstate("2200H")
}

fn would_block() -> SqlError {
    SqlError::new(ErrorKind::WouldBlock, "others take numbers of the sequence")
}

/// A number as the value of a column; `None` if it is none.
pub(crate) fn as_value(number: i64, column_type: oribi_types::ColumnType) -> Option<Value> {
    use oribi_types::ColumnType;
    Some(match column_type {
        ColumnType::Int8 => Value::Int8(number.try_into().ok()?),
        ColumnType::Int16 => Value::Int16(number.try_into().ok()?),
        ColumnType::Int32 => Value::Int32(number.try_into().ok()?),
        ColumnType::Int64 => Value::Int64(number),
        _ => return None,
    })
}
