//! Values that may be much larger than what they are made from.
//!
//! `repeat('x', 1000000000)` is a short text and a large value. What a function will make is known before it makes it: a
//! value of more than a gigabyte is refused, as PostgreSQL refuses it, and what is [large](LARGE_BYTES) takes its place in
//! the memory of queries, where it stays counted as long as the answer lives. It is made where nobody waits for the
//! thread ([`aside`]).
//!
//! While a statement is [planned](planning) only [small](FOLDED_BYTES_MAX) answers are given: DataFusion's planner leaves
//! an expression alone whose evaluation fails, and so it is computed when the statement runs. On threads that serve
//! clients nothing is evaluated that [may be large](may_be_large).

mod aggregate;
mod arguments;
mod concatenation;
mod scalar;

pub(super) use aggregate::{Bounded, NAMES as AGGREGATES};
pub(super) use concatenation::Concatenation;
pub(super) use scalar::measured;
pub(crate) use scalar::{measured_function, unmeasured};

use crate::carried::{Carried, Carry};
use arrow::array::{ArrayData, ArrayRef, UInt32Array, make_array};
use arrow::buffer::Buffer;
use arrow::compute::take;
use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use oribi_session::sql::SqlError;
use oribi_types::ErrorKind;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use tokio::runtime::{Handle, RuntimeFlavor};

/// The largest value: a gigabyte with its length before it. [PostgreSQL `src/include/utils/memutils.h`, `MaxAllocSize`]
const VALUE_BYTES_MAX: usize = (1 << 30) - 1 - 4;

/// Answers of a batch from this size on are counted in the memory of queries, one by one. Smaller ones are as their
/// arguments: a few batches at a time.
pub(super) const LARGE_BYTES: usize = 4 << 20;

/// The largest value that is computed while its statement is planned. The plan has it for a constant, of which a batch
/// may take a copy for each of its rows.
pub(super) const FOLDED_BYTES_MAX: usize = 1 << 10;

/// What is computed while a statement is planned, together.
const FOLDED_TOTAL_MAX: usize = 256 << 10;

/// One array has offsets of 32 bits.
const BATCH_BYTES_MAX: usize = i32::MAX as usize;

const _: () = assert!(FOLDED_TOTAL_MAX < LARGE_BYTES && VALUE_BYTES_MAX < BATCH_BYTES_MAX);

tokio::task_local! {
    /// The bytes that may yet be computed where only small answers are given.
    static LEFT: Cell<usize>;
}

/// Runs what plans a statement. Functions that it evaluates give small answers only.
pub(crate) async fn planning<T>(work: impl Future<Output = T>) -> T {
    LEFT.scope(Cell::new(FOLDED_TOTAL_MAX), work).await
}

/// As [`planning`], for what does not wait.
pub(crate) fn planned<T>(work: impl FnOnce() -> T) -> T {
    LEFT.sync_scope(Cell::new(FOLDED_TOTAL_MAX), work)
}

/// A value is computed when the statement runs.
#[derive(Debug)]
struct Postponed;

impl fmt::Display for Postponed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value is too large to be computed before the statement runs")
    }
}

impl std::error::Error for Postponed {}

/// Whether something was not computed because its statement does not run yet.
pub(crate) fn is_postponed(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::External(inner) => inner.is::<Postponed>(),
        _ => false,
    }
}

/// Whether evaluating an expression may take much memory: it makes texts, bytes or arrays.
pub(crate) fn may_be_large(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let makes = expr.downcast_ref::<ScalarFunctionExpr>().is_some_and(|call| {
        let made = call.return_type();
        made.is_nested() || made.is_string() || made.is_binary()
    });
    makes || expr.children().into_iter().any(may_be_large)
}

/// Runs `work`, which takes long, so that other work of its thread goes on elsewhere.
pub(crate) fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(work)
        }
        _ => work(),
    }
}

/// The memory of queries, as functions find it among the options that they are called with.
#[derive(Clone)]
pub(crate) struct ValueMemory(pub(crate) Arc<dyn MemoryPool>);

impl Carry for ValueMemory {
    const NAME: &'static str = "oribi";
}

/// How many bytes a batch of answers will have, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Size {
    /// Of the largest of them.
    pub(super) value: usize,
    pub(super) batch: usize,
}

impl Size {
    /// Adds a value.
    pub(super) fn push(&mut self, bytes: usize) {
        self.value = self.value.max(bytes);
        self.batch = self.batch.saturating_add(bytes);
    }
}

/// Memory for answers that are to be made.
#[derive(Debug)]
pub(super) struct Grant {
    bytes: usize,
    /// What counts them, if they are large.
    reservation: Option<MemoryReservation>,
}

impl Grant {
    /// Memory for `size`, of the pool that is in `options`.
    ///
    /// # Errors
    /// 54000 for a value of more than a gigabyte, 53200 where there is not as much memory; while planning, that it is
    /// [postponed](Postponed).
    pub(super) fn of(name: &str, options: &ConfigOptions, size: Size) -> Result<Grant> {
        Grant::from(name, options.extensions.get::<Carried<ValueMemory>>().map(|carried| &carried.0.0), size)
    }

    fn from(name: &str, pool: Option<&Arc<dyn MemoryPool>>, size: Size) -> Result<Grant> {
        let small = Grant { bytes: size.batch, reservation: None };
        if let Ok(folded) = LEFT.try_with(|left| fold(left, size)) {
            return if folded { Ok(small) } else { Err(DataFusionError::External(Box::new(Postponed))) };
        }
        if size.value > VALUE_BYTES_MAX {
            return Err(too_large());
        }
        let Some(pool) = pool.filter(|_| size.batch >= LARGE_BYTES) else { return Ok(small) };
        if size.batch > BATCH_BYTES_MAX {
            let message = format!("{name} would make {} bytes for a batch of rows", size.batch);
            return Err(DataFusionError::ResourcesExhausted(message));
        }
        let reservation = MemoryConsumer::new(name).register(pool);
        reservation.try_grow(size.batch)?;
        Ok(Grant { bytes: size.batch, reservation: Some(reservation) })
    }

    /// Makes the answers, where it holds up nobody if they are large, and counts them as long as one of their buffers
    /// lives. One answer to `constant` arguments is the answer for each of `rows` rows, without a copy of it where it is a
    /// text or bytes.
    ///
    /// # Errors
    /// Those of making them.
    pub(super) fn answer(
        self,
        constant: bool,
        rows: usize,
        make: impl FnOnce() -> Result<ArrayRef>,
    ) -> Result<ColumnarValue> {
        let answers = if self.reservation.is_some() { aside(make)? } else { make()? };
        if !constant {
            return Ok(ColumnarValue::Array(self.held_by(answers)?));
        }
        if self.bytes <= FOLDED_BYTES_MAX {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&answers, 0)?));
        }
        Ok(ColumnarValue::Array(match is_shared(answers.data_type()) {
            true => repeated(&self.held_by(answers)?, rows)?,
            false => self.held_by(repeated(&answers, rows)?)?,
        }))
    }

    fn held_by(self, answers: ArrayRef) -> Result<ArrayRef> {
        let Some(reservation) = self.reservation else { return Ok(answers) };
        reservation.resize(answers.get_buffer_memory_size());
        Ok(make_array(held(&answers.to_data(), &Arc::new(reservation))?))
    }
}

/// Takes `size` of what may be computed while planning; `false` if it is too large for that.
fn fold(left: &Cell<usize>, size: Size) -> bool {
    match left.get().checked_sub(size.batch) {
        Some(rest) if size.value <= FOLDED_BYTES_MAX => {
            left.set(rest);
            true
        }
        _ => false,
    }
}

fn held(data: &ArrayData, by: &Arc<MemoryReservation>) -> Result<ArrayData> {
    let buffers = data.buffers().iter().map(|buffer| {
        let held = HeldBuffer { buffer: buffer.clone(), _by: Arc::clone(by) };
        Buffer::from(bytes::Bytes::from_owner(held))
    });
    let children = data.child_data().iter().map(|child| held(child, by));
    let builder = data.clone().into_builder().buffers(buffers.collect());
    Ok(builder.child_data(children.collect::<Result<_>>()?).build()?)
}

/// A buffer with what counts it.
struct HeldBuffer {
    buffer: Buffer,
    _by: Arc<MemoryReservation>,
}

impl AsRef<[u8]> for HeldBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

fn too_large() -> DataFusionError {
    let error = SqlError::new(ErrorKind::TooLarge, "requested length too large").with_sqlstate("54000");
    DataFusionError::External(Box::new(error))
}

/// The value for each of `rows` rows.
fn repeated(value: &ArrayRef, rows: usize) -> Result<ArrayRef> {
    if rows == 1 {
        return Ok(Arc::clone(value));
    }
    Ok(take(value.as_ref(), &UInt32Array::from(vec![0; rows]), None)?)
}

/// Whether one value of a type is shared by those who take it.
fn is_shared(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}
