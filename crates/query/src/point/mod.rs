//! Look-ups by primary key, without DataFusion.
//!
//! A look-up is recognised once, when the statement is prepared ([`recognise`]). Executing it encodes the key and
//! asks the engine: no plan, no batch operators, and no change of thread unless a file must be read.

mod recognise;
mod single;

use crate::context::QueryEngine;
use crate::delivery;
use crate::dml::Run;
use crate::unread::{self, Counted, Made, Place, Unread};
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema as ArrowSchema, SchemaRef};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::sql::sqlparser::ast::Statement;
use futures::future::OptionFuture;
use oribi_engine::{Engine, Lookup, Obligation, ReadView, RowVersion, Table, Transaction, UpTo};
use oribi_session::sql::{RowStream, SqlError, SqlSession};
use oribi_types::batch::BatchBuilder;
use oribi_types::key::encode_key;
use oribi_types::{ColumnType, Error, ErrorKind, Result, Schema, Timestamp, Value, ValueRef};
use recognise::{KeyLookup, Operand};
use std::fmt;
use std::sync::Arc;

/// A prepared look-up by primary key.
#[derive(Clone)]
pub struct PointRead(Arc<Plan>);

struct Plan {
    engine: Arc<Engine>,
    table: Arc<Table>,
    schema: Arc<Schema>,
    projection: Vec<usize>,
    key: Vec<Vec<Operand>>,
    parameters: Vec<ColumnType>,
    columns: SchemaRef,
    /// Whether every key column has one value, so that there is at most one row.
    single: bool,
}

/// Where the rows of a look-up were found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sources {
    memtable: Found,
    row_cache: Found,
    sstables: Found,
}

/// Rows, and the bytes of their encoded keys and rows.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    rows: usize,
    bytes: usize,
}

impl Found {
    fn add(&mut self, row: RowVersion<'_>) {
        self.rows += 1;
        self.bytes += row.key.len() + row.row.len();
    }
}

impl fmt::Display for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sources { memtable, row_cache, sstables } = self;
        write!(f, "memtable {memtable}; row cache {row_cache}; sstables {sstables}")
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows, {} bytes", self.rows, self.bytes)
    }
}

impl PointRead {
    /// The look-up that `statement` is, or `None`.
    pub(crate) fn recognise(
        query: &QueryEngine,
        session: &SqlSession,
        statement: &Statement,
        given: &[Option<ColumnType>],
    ) -> Option<Self> {
        let KeyLookup { table, schema, projection, key, parameters } =
            recognise::recognise(&session.catalog(query.engine()), session, statement, given)?;
        let field = |(position, name): &(usize, String)| -> Field {
            schema.arrow().field(*position).clone().with_name(name)
        };
        let columns = Arc::new(ArrowSchema::new(projection.iter().map(field).collect::<Vec<_>>()));
        let projection = projection.into_iter().map(|(position, _)| position).collect();
        let single = key.iter().all(|values| values.len() == 1);
        let engine = Arc::clone(query.engine());
        Some(PointRead(Arc::new(Plan {
            engine,
            table,
            schema,
            projection,
            key,
            parameters,
            columns,
            single,
        })))
    }

    /// Types of `$1`, `$2` …
    pub fn parameters(&self) -> &[ColumnType] {
        &self.0.parameters
    }

    /// Columns of the result.
    pub fn columns(&self) -> &SchemaRef {
        &self.0.columns
    }

    /// What the look-up does, for `EXPLAIN`.
    pub(crate) fn describe(&self) -> String {
        let plan = &self.0;
        let keys: usize = plan.key.iter().map(Vec::len).product();
        let what = if keys == 1 { "primary key".to_owned() } else { format!("{keys} primary keys") };
        format!("point read of {}.{} by {what}", plan.table.schema_name(), plan.table.name())
    }

    /// The rows, settled. Files are read on threads made for that.
    ///
    /// # Errors
    /// `Corrupt`, `Unavailable`; `Conflict` if the table was altered since the statement was prepared.
    pub(crate) async fn run(&self, run: Run<'_>) -> Result<RowStream, SqlError> {
        let unread = (!unread::is_short(&self.0.columns)).then(|| run.query.unread());
        let (batch, counted) = self.read(run, unread, None).await?;
        Ok(delivery::made(batch, counted))
    }

    /// As [`run`](Self::run), and where the rows came from.
    pub(crate) async fn run_counted(&self, run: Run<'_>) -> Result<(RecordBatch, Sources), SqlError> {
        let mut sources = Sources::default();
        let (batch, _) = self.read(run, None, Some(&mut sources)).await?;
        Ok((batch, sources))
    }

    /// The rows; where a client may leave them `unread`, once there is room for them.
    async fn read(
        &self,
        run: Run<'_>,
        unread: Option<&Arc<Unread>>,
        mut sources: Option<&mut Sources>,
    ) -> Result<(RecordBatch, Vec<Counted>), SqlError> {
        let plan = &self.0;
        let query = run.query;
        let keys = plan.keys(run.parameters.values)?;
        let own = run.session.open_transaction().filter(|own| own.writes_to(&plan.table));
        let memory = query.memory_pool();
        let (mut place, mut bytes_max) = (None, bytes_without_room(unread));
        // Several rows are read as of one moment; the snapshot lives until the last of them is.
        let (snapshot, looked) = loop {
            let of_block = run.session.block_snapshot(&plan.engine);
            let snapshot = of_block.or_else(|| (keys.len() > 1).then(|| Arc::new(plan.engine.snapshot())));
            let view = snapshot.as_ref().map_or_else(|| plan.engine.read_view(), |snapshot| snapshot.view());
            if let Some(looked) =
                plan.look(&keys, own.as_deref(), view, memory, bytes_max, sources.as_deref_mut())?
            {
                break (snapshot, looked);
            }
            drop(snapshot);
            (place, bytes_max) = (place_of(unread).await?, usize::MAX);
        };
        if let Some(transaction) = run.session.serializable_transaction() {
            transaction.note_keys(&plan.table, keys.iter().map(Vec::as_slice));
        }
        let InMemory { mut batch, pending, mut obligation } = looked;
        // Before anything is waited for: others look whether there is room.
        let mut counted = Vec::from_iter(place.and_then(|place| place.count(&batch)));
        if !pending.is_empty() {
            let pending: Arc<[Vec<u8>]> = pending.into();
            let has_turn = counted.iter().any(Counted::has_turn);
            let (mut place, mut bytes_max) =
                (None, if has_turn { usize::MAX } else { bytes_without_room(unread) });
            let (more, found, seen) = loop {
                let view = snapshot.as_ref().map_or_else(|| plan.engine.read_view(), |s| s.view());
                let (plan, pending, memory) = (Arc::clone(plan), Arc::clone(&pending), Arc::clone(memory));
                let counts = unread.cloned();
                let read = move || {
                    // Others have taken the room meanwhile.
                    if place.as_ref().is_some_and(|place: &Place| !place.holds()) {
                        return Ok(None);
                    }
                    let Some(read) = plan.read_files(&pending, view, &memory, bytes_max)? else {
                        return Ok(None);
                    };
                    let counted = match place {
                        Some(place) => place.count(&read.0),
                        None => counts.and_then(|unread| unread.count(&read.0)),
                    };
                    Ok(Some((read, counted)))
                };
                if let Some((read, more)) = query.runtime().lookup(read).await? {
                    counted.extend(more);
                    break read;
                }
                (place, bytes_max) = (place_of(unread).await?, usize::MAX);
            };
            batch = concat_batches(&self.0.columns, [&batch, &more]).map_err(Error::from)?;
            obligation.merge(seen);
            if let Some(sources) = sources {
                sources.sstables = found;
            }
        }
        drop(snapshot);
        plan.engine.settled(obligation).await?;
        Ok((batch, counted))
    }

    /// Whether there is at most one row, so that the session's point read applies.
    pub(crate) fn is_single(&self) -> bool {
        self.0.single
    }
}

impl Plan {
    /// The encoded keys to look up, without repetitions.
    fn keys<'v>(&'v self, parameters: &'v [Value]) -> Result<Vec<Vec<u8>>> {
        let mut tuples: Vec<Vec<ValueRef<'_>>> = vec![Vec::new()];
        for (operands, column) in self.key.iter().zip(self.schema.key_columns()) {
            let value = |operand: &'v Operand| operand.value(parameters, column.column_type);
            // Null equals nothing.
            let values: Vec<_> = operands.iter().map(value).filter(|value| !value.is_null()).collect();
            tuples = tuples
                .iter()
                .flat_map(|tuple| values.iter().map(|value| [tuple.as_slice(), &[*value]].concat()))
                .collect();
        }
        let encode = |tuple: Vec<ValueRef<'_>>| {
            let mut key = Vec::new();
            encode_key(&self.schema, tuple, &mut key)?;
            Ok(key)
        };
        let mut keys = tuples.into_iter().map(encode).collect::<Result<Vec<_>>>()?;
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// What memory, or the block's own transaction, has of `keys`; `None` if its rows have more than `bytes_max` bytes.
    fn look(
        &self,
        keys: &[Vec<u8>],
        own: Option<&Transaction>,
        view: ReadView,
        memory: &Arc<dyn MemoryPool>,
        bytes_max: usize,
        mut sources: Option<&mut Sources>,
    ) -> Result<Option<InMemory>> {
        let mut rows = Rows::new(self, memory, bytes_max);
        let mut pending = Vec::new();
        let mut obligation = Obligation::default();
        for key in keys {
            // What the block has made of it, its statements see.
            let made = own.map(|own| {
                own.own(&self.table, key, |row| {
                    row.map_or(Ok(true), |row| rows.push(RowVersion { key, row, ts: Timestamp::MAX }))
                })
            });
            match made.transpose()?.flatten().transpose()? {
                None => {}
                Some(true) => continue,
                Some(false) => return Ok(None),
            }
            let mut found = sources.as_mut().map(|sources| match self.engine.is_cached(&self.table, key) {
                true => &mut sources.row_cache,
                false => &mut sources.memtable,
            });
            let answer = |row: RowVersion<'_>| {
                if let Some(found) = &mut found {
                    found.add(row);
                }
                rows.push(row)
            };
            match self.engine.try_get(&self.table, key, view, answer) {
                Lookup::Found(pushed, seen) => {
                    if !pushed? {
                        return Ok(None);
                    }
                    obligation.merge(seen);
                }
                Lookup::Absent(seen) => obligation.merge(seen),
                Lookup::Pending => pending.push(key.clone()),
            }
        }
        Ok(Some(InMemory { batch: rows.finish()?, pending, obligation }))
    }

    /// The rows of keys that memory could not answer; `None` if they have more than `bytes_max` bytes.
    fn read_files(
        &self,
        keys: &[Vec<u8>],
        view: ReadView,
        memory: &Arc<dyn MemoryPool>,
        bytes_max: usize,
    ) -> Result<Option<(RecordBatch, Found, Obligation)>> {
        let mut rows = Rows::new(self, memory, bytes_max);
        let mut found = Found::default();
        let mut obligation = Obligation::default();
        for key in keys {
            let answer = |row: RowVersion<'_>| {
                found.add(row);
                rows.push(row)
            };
            let probe = self.engine.probe(&self.table, key);
            let UpTo::Read(pushed, seen) = self.engine.read_up_to(bytes_max, probe, view, answer)? else {
                return Ok(None);
            };
            if pushed.transpose()? == Some(false) {
                return Ok(None);
            }
            obligation.merge(seen);
        }
        Ok(Some((rows.finish()?, found, obligation)))
    }
}

/// What memory knows of the keys of a look-up.
struct InMemory {
    /// Its rows.
    batch: RecordBatch,
    /// The keys that it could not answer.
    pending: Vec<Vec<u8>>,
    obligation: Obligation,
}

/// What a look-up may find before it asks for room: so much is not counted.
fn bytes_without_room(unread: Option<&Arc<Unread>>) -> usize {
    unread.map_or(usize::MAX, |_| unread::SHORT_BATCH_BYTES as usize)
}

/// Room for rows that a client may leave `unread`, once there is some.
async fn place_of(unread: Option<&Arc<Unread>>) -> Result<Option<Place>, SqlError> {
    OptionFuture::from(unread.map(|unread| unread.place(Made::WhenPolled))).await.transpose()
}

/// The rows found so far, as columns.
struct Rows<'p> {
    schema: &'p Schema,
    columns: &'p SchemaRef,
    builder: BatchBuilder<'p>,
    bytes: usize,
    bytes_max: usize,
    memory: &'p Arc<dyn MemoryPool>,
    /// Of that memory, if they are long.
    reservation: Option<MemoryReservation>,
}

/// Rows of a look-up that take less are not worth a turn at the memory of queries, of which more is taken by as much.
const STEP_BYTES: usize = 256 << 10;

impl<'p> Rows<'p> {
    fn new(plan: &'p Plan, memory: &'p Arc<dyn MemoryPool>, bytes_max: usize) -> Self {
        let builder = BatchBuilder::new(&plan.schema, &plan.projection, false);
        let (schema, columns) = (&plan.schema, &plan.columns);
        Rows { schema, columns, builder, bytes: 0, bytes_max, memory, reservation: None }
    }

    /// False if the rows have too many bytes with this one.
    fn push(&mut self, row: RowVersion<'_>) -> Result<bool> {
        check_layout(self.schema, row.row)?;
        self.bytes += row.row.len();
        if self.bytes > self.bytes_max {
            return Ok(false);
        }
        if self.bytes >= STEP_BYTES {
            self.reserve()?;
        }
        self.builder.push(row.key, row.row, row.ts)?;
        Ok(true)
    }

    /// # Errors
    /// `TooLarge`.
    fn reserve(&mut self) -> Result<()> {
        let register = || MemoryConsumer::new("rows of a look-up").register(self.memory);
        let reservation = self.reservation.get_or_insert_with(register);
        let none =
            |_| Error::new(ErrorKind::TooLarge, "there is not enough memory for the rows of a look-up");
        reservation.try_resize(self.bytes / STEP_BYTES * STEP_BYTES).map_err(none)
    }

    fn finish(mut self) -> Result<RecordBatch> {
        let batch = self.builder.finish()?;
        let rows = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns().to_vec();
        Ok(RecordBatch::try_new_with_options(Arc::clone(self.columns), columns, &rows)?)
    }
}

/// A row written under a later schema than the statement was prepared for cannot be read by the earlier.
fn check_layout(schema: &Schema, row: &[u8]) -> Result<()> {
    let slots = row.first_chunk().map_or(0, |n| usize::from(u16::from_le_bytes(*n)));
    if slots <= schema.layout().slots().len() {
        return Ok(());
    }
    Err(Error::conflict("the table was altered while the statement ran"))
}

impl Operand {
    /// The value, as one of a key column's type; null if none equals it.
    fn value<'v>(&'v self, parameters: &'v [Value], column_type: ColumnType) -> ValueRef<'v> {
        match self {
            Operand::Constant(value) => value.as_ref(),
            Operand::Parameter(position) => {
                parameters.get(*position).map_or(ValueRef::Null, |value| convert(value.as_ref(), column_type))
            }
        }
    }
}

/// The value as one of `column_type`; null if none equals it.
pub(crate) fn convert(value: ValueRef<'_>, column_type: ColumnType) -> ValueRef<'_> {
    let integer = match value {
        ValueRef::Int8(v) => i64::from(v),
        ValueRef::Int16(v) => i64::from(v),
        ValueRef::Int32(v) => i64::from(v),
        ValueRef::Int64(v) => v,
        other => return other,
    };
    match column_type {
        ColumnType::Int8 => integer.try_into().map_or(ValueRef::Null, ValueRef::Int8),
        ColumnType::Int16 => integer.try_into().map_or(ValueRef::Null, ValueRef::Int16),
        ColumnType::Int32 => integer.try_into().map_or(ValueRef::Null, ValueRef::Int32),
        ColumnType::Int64 => ValueRef::Int64(integer),
        _ => value,
    }
}
