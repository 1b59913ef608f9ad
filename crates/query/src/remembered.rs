//! Statements that come as text again and again, and are prepared once.
//!
//! They are those that take less to execute than to prepare: about one row, named by its primary key, of literals alone, and `BEGIN` and `COMMIT`. A
//! text is remembered when it comes for the second time, for all sessions for which its names mean the same, and holds as any
//! prepared statement does: for one version of the catalog and the settings that planning looks at.
//!
//! Where a client writes values into the text, its [shape](Shape) is remembered, if the shape is such a statement too. Its
//! parameters are of the types that the literals have, so that no operator is another; what they are compared with, stored in or
//! added to, they become as the literals would. What would not is prepared as it was written, and so is what is refused.

use crate::context::{MadeFor, QueryEngine};
use crate::dml::parse_text;
use crate::shape::{Literal, Shape};
use crate::statement::Preparation;
use oribi_engine::MemoryBudget;
use oribi_session::sql::{SqlSession, TransactionStatus};
use oribi_types::{ColumnType, Value};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sessions that ask at the same time seldom meet.
const SHARDS: usize = 16;
/// Statements that a shard has, and bytes that they take.
const STATEMENTS_MAX: usize = 128;
const BYTES_MAX: usize = 512 << 10;

/// Of texts that came once, so many are known to a shard.
const MET_MAX: usize = 256;

/// Memory is taken from the budget in steps of so much. A few statements take none.
const STEP_BYTES: usize = 256 << 10;

/// What a statement takes, about: itself, and for each byte of its text.
const STATEMENT_BYTES: usize = 4 << 10;
const BYTES_PER_BYTE: usize = 32;

pub(crate) struct Remembered {
    shards: [Mutex<Shard>; SHARDS],
    hashes: RandomState,
    memory: Arc<MemoryBudget>,
    bytes: AtomicUsize,
}

/// What a text is remembered by.
#[derive(Clone, Copy)]
struct Key<'a> {
    hash: u64,
    text: &'a str,
    /// The types of parameters that the client gave.
    given: &'a [Option<ColumnType>],
}

#[derive(Default)]
struct Shard {
    statements: HashMap<u64, Statement>,
    /// Their hashes. The first was there for longest without being asked for.
    order: VecDeque<u64>,
    bytes: usize,
    /// Hashes of texts that came once.
    met: Vec<u64>,
}

struct Statement {
    text: Box<str>,
    given: Box<[Option<ColumnType>]>,
    made_for: MadeFor,
    /// `None` for one that is not to be asked about again.
    prepared: Option<Arc<Preparation>>,
    was_asked_for: bool,
    bytes: usize,
}

/// What is known of a text.
enum Known {
    Prepared(Arc<Preparation>),
    /// That it was none of those that are remembered, under this catalog.
    No(MadeFor),
    Nothing,
}

impl Remembered {
    pub(crate) fn new(memory: Arc<MemoryBudget>) -> Self {
        let bytes = AtomicUsize::new(0);
        Remembered { shards: Default::default(), hashes: RandomState::new(), memory, bytes }
    }

    /// The statement of this text, if it was remembered and holds for `session`.
    pub(crate) fn recall(
        &self,
        query: &QueryEngine,
        session: &SqlSession,
        text: &str,
        given: &[Option<ColumnType>],
    ) -> Option<Arc<Preparation>> {
        let now = made_for(query, session)?;
        let key = self.key(now, text, given);
        let known = self.shard(key.hash).known(key);
        match known {
            Known::Prepared(prepared) if prepared.is_made_for(now) => Some(prepared),
            _ => None,
        }
    }

    /// As [`recall`](Self::recall), of a statement that was remembered as it stands, or whose shape was, with the values of its literals.
    pub(crate) fn recall_with_literals(
        &self,
        query: &QueryEngine,
        session: &SqlSession,
        text: &str,
    ) -> Option<(Arc<Preparation>, Vec<Value>)> {
        self.recall_shape(query, session, text).or_else(|| {
            let text = text.trim_ascii_end();
            let text = text.strip_suffix(';').unwrap_or(text).trim_ascii();
            if text.len() > TEXT_BYTES_MAX {
                return None;
            }
            let prepared = self.recall(query, session, text, &[])?;
            prepared.is_literal().then(|| (prepared, Vec::new()))
        })
    }

    fn recall_shape(
        &self,
        query: &QueryEngine,
        session: &SqlSession,
        text: &str,
    ) -> Option<(Arc<Preparation>, Vec<Value>)> {
        let shape = Shape::of(text)?;
        let given: Given = shape.literals.iter().map(Literal::column_type).collect();
        let prepared = self.recall(query, session, &shape.text, &given)?;
        let literals = shape.literals.iter().enumerate();
        let values = literals.map(|(n, literal)| literal.value(&prepared, n)).collect::<Option<_>>()?;
        Some((prepared, values))
    }

    /// Notes that a text was prepared. When it comes for the second time it is remembered.
    pub(crate) fn note(&self, prepared: &Arc<Preparation>, text: &str, given: &[Option<ColumnType>]) {
        let key = self.key(prepared.made_for(), text, given);
        if text.len() <= TEXT_BYTES_MAX && self.shard(key.hash).meets_again(key.hash) {
            self.insert(key, prepared.made_for(), Some(Arc::clone(prepared)));
        }
    }

    /// Whether a shape that was just prepared with its literals, for `made_for`, is to be prepared without them.
    pub(crate) fn asks_for(&self, made_for: MadeFor, shape: &Shape) -> bool {
        let given: Given = shape.literals.iter().map(Literal::column_type).collect();
        let key = self.key(made_for, &shape.text, &given);
        let mut shard = self.shard(key.hash);
        match shard.known(key) {
            Known::No(then) => then != made_for,
            Known::Prepared(prepared) => !prepared.is_made_for(made_for),
            Known::Nothing => shard.meets_again(key.hash),
        }
    }

    /// Remembers what the shape is that was asked for, or that it is nothing to remember.
    pub(crate) fn insert_shape(&self, made_for: MadeFor, shape: &Shape, prepared: Option<Arc<Preparation>>) {
        let given: Given = shape.literals.iter().map(Literal::column_type).collect();
        let becomes = |prepared: &Arc<Preparation>| {
            let mut literals = shape.literals.iter().enumerate();
            prepared.is_made_for(made_for)
                && literals.all(|(n, literal)| literal.becomes_parameter(prepared, n))
        };
        self.insert(self.key(made_for, &shape.text, &given), made_for, prepared.filter(becomes));
    }

    fn insert(&self, key: Key<'_>, made_for: MadeFor, prepared: Option<Arc<Preparation>>) {
        let bytes = STATEMENT_BYTES + BYTES_PER_BYTE * key.text.len();
        if !self.grow(bytes) {
            return;
        }
        let (text, given) = (key.text.into(), key.given.into());
        let statement = Statement { text, given, made_for, prepared, was_asked_for: false, bytes };
        let gone = self.shard(key.hash).insert(key.hash, statement);
        self.shrink(gone.iter().map(|statement| statement.bytes).sum());
    }

    /// False if there is no room for so many bytes more.
    fn grow(&self, added: usize) -> bool {
        let before = self.bytes.fetch_add(added, Ordering::Relaxed);
        let step = in_steps(before + added) - in_steps(before);
        if step == 0 || self.memory.try_reserve(step) {
            return true;
        }
        self.memory.reserve(step);
        self.shrink(added);
        false
    }

    fn shrink(&self, taken: usize) {
        let before = self.bytes.fetch_sub(taken, Ordering::Relaxed);
        self.memory.release(in_steps(before) - in_steps(before - taken));
    }

    fn key<'a>(&self, made_for: MadeFor, text: &'a str, given: &'a [Option<ColumnType>]) -> Key<'a> {
        Key { hash: self.hashes.hash_one((made_for.settings(), text, given)), text, given }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shards[hash as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Remembered {
    fn drop(&mut self) {
        self.memory.release(in_steps(*self.bytes.get_mut()));
    }
}

impl Shard {
    fn known(&mut self, key: Key<'_>) -> Known {
        let Some(statement) = self.statements.get_mut(&key.hash) else { return Known::Nothing };
        if *statement.text != *key.text || *statement.given != *key.given {
            return Known::Nothing;
        }
        statement.was_asked_for = statement.prepared.is_some();
        let prepared = statement.prepared.as_ref();
        prepared.map_or(Known::No(statement.made_for), |prepared| Known::Prepared(Arc::clone(prepared)))
    }

    /// Whether a text has come before, lately.
    fn meets_again(&mut self, hash: u64) -> bool {
        self.met.resize(MET_MAX, 0);
        let place = (hash / SHARDS as u64) as usize % MET_MAX;
        std::mem::replace(&mut self.met[place], hash) == hash
    }

    /// Returns those that have to go.
    fn insert(&mut self, hash: u64, statement: Statement) -> Vec<Statement> {
        self.bytes += statement.bytes;
        let mut gone = Vec::new();
        match self.statements.insert(hash, statement) {
            Some(before) => gone.push(before),
            None => self.order.push_back(hash),
        }
        self.bytes -= gone.iter().map(|statement| statement.bytes).sum::<usize>();
        while self.statements.len() > STATEMENTS_MAX || self.bytes > BYTES_MAX {
            let Some(first) = self.order.pop_front() else { break };
            let asked_for = self.statements.get_mut(&first).map(|s| std::mem::take(&mut s.was_asked_for));
            if asked_for == Some(true) {
                self.order.push_back(first);
            } else if let Some(statement) = self.statements.remove(&first) {
                self.bytes -= statement.bytes;
                gone.push(statement);
            }
        }
        gone
    }
}

/// What so many bytes take of the budget.
fn in_steps(bytes: usize) -> u64 {
    (bytes / STEP_BYTES * STEP_BYTES) as u64
}

/// What plans are to be made for that are remembered; `None` where they are of one block alone.
fn made_for(query: &QueryEngine, session: &SqlSession) -> Option<MadeFor> {
    let is_of_all = match session.transaction() {
        TransactionStatus::Idle => true,
        TransactionStatus::Failed => false,
        TransactionStatus::Open => {
            !session.open_transaction().is_some_and(|transaction| transaction.changes_catalog())
        }
    };
    is_of_all.then(|| MadeFor::now(query, session))
}

/// Longer texts are not remembered.
const TEXT_BYTES_MAX: usize = 2 << 10;

fn takes_fractions(column_type: ColumnType) -> bool {
    matches!(column_type, ColumnType::Decimal { .. } | ColumnType::Float | ColumnType::Double)
}

type Given = smallvec::SmallVec<[Option<ColumnType>; 8]>;

impl Literal {
    /// The type that it has by itself; `None` if it takes the one that is wanted in its place.
    pub(crate) fn column_type(&self) -> Option<ColumnType> {
        match self {
            Literal::Integer(_, column_type) => Some(*column_type),
            Literal::Number(_) | Literal::Text(_) => None,
        }
    }

    /// Whether parameter `n` does there what the literal did, if the value is one of its type. One that is compared must equal
    /// exactly what the literal did.
    fn becomes_parameter(&self, prepared: &Preparation, n: usize) -> bool {
        let types = prepared.types();
        let Some(wanted) = types.get(n) else { return false };
        let is_compared = types.is_compared(n);
        match self {
            Literal::Integer(_, column_type) if is_compared => wanted == *column_type,
            Literal::Integer(..) => wanted.is_integer() || takes_fractions(wanted),
            Literal::Number(_) => takes_fractions(wanted) && !is_compared,
            Literal::Text(_) if is_compared => wanted == ColumnType::String,
            Literal::Text(_) => wanted != ColumnType::Json && !types.is_moment(n),
        }
    }

    fn value(&self, prepared: &Preparation, n: usize) -> Option<Value> {
        let wanted = prepared.types().get(n)?;
        Some(match (self, wanted) {
            (Literal::Integer(number, _), ColumnType::Int8) => Value::Int8((*number).try_into().ok()?),
            (Literal::Integer(number, _), ColumnType::Int16) => Value::Int16((*number).try_into().ok()?),
            (Literal::Integer(number, _), ColumnType::Int32) => Value::Int32((*number).try_into().ok()?),
            (Literal::Integer(number, _), ColumnType::Int64) => Value::Int64(*number),
            (Literal::Integer(number, _), wanted) => parse_text(&number.to_string(), wanted).ok()?,
            (Literal::Text(text), ColumnType::String) => Value::String(text.clone()),
            (Literal::Text(text) | Literal::Number(text), wanted) => parse_text(text, wanted).ok()?,
        })
    }
}
