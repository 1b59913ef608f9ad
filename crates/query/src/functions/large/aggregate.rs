//! Aggregates whose answer grows with each row: `array_agg` and `string_agg`.
//!
//! DataFusion counts what an aggregate holds once it holds it. Here memory is asked for before a batch is added, a value
//! is bounded as others are, and what a window gives out for each of its rows is counted, since it keeps all of them.

use super::arguments::bytes_of;
use super::{Grant, Size, VALUE_BYTES_MAX, too_large};
use crate::functions::Kind;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
};
use datafusion::physical_expr::expressions::Literal;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The names of these aggregates.
pub(in crate::functions) const NAMES: [&str; 2] = ["array_agg", "string_agg"];

/// One of DataFusion's aggregates, within bounds.
#[derive(Debug)]
pub(in crate::functions) struct Bounded {
    inner: Arc<dyn AggregateUDFImpl>,
    pool: Arc<dyn MemoryPool>,
}

impl Bounded {
    pub(in crate::functions) fn new(inner: &AggregateUDF, pool: &Arc<dyn MemoryPool>) -> Self {
        Bounded { inner: Arc::clone(inner.inner()), pool: Arc::clone(pool) }
    }

    fn growth(&self, args: &AccumulatorArgs<'_>) -> Growth {
        let between = match args.exprs.get(1).and_then(|expr| expr.downcast_ref::<Literal>()) {
            Some(delimiter) => delimiter.value().try_as_str().flatten().map_or(0, str::len),
            None => 0,
        };
        Growth { name: self.inner.name().to_owned(), between, pool: Arc::clone(&self.pool) }
    }

    fn accumulator(&self, growth: Growth, inner: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
        Box::new(BoundedAccumulator { inner, growth, answered: false, answers: None })
    }
}

impl PartialEq for Bounded {
    fn eq(&self, other: &Self) -> bool {
        self.inner.name() == other.inner.name()
    }
}

impl Eq for Bounded {}

impl Hash for Bounded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.name().hash(state);
    }
}

impl AggregateUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        let field = self.inner.return_field(arguments)?;
        Ok(match arguments.first().and_then(|argument| Kind::of(argument).json_metadata()) {
            Some(metadata) if field.data_type().is_nested() => {
                Arc::new(field.as_ref().clone().with_metadata(metadata))
            }
            _ => field,
        })
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let growth = self.growth(&args);
        Ok(self.accumulator(growth, self.inner.accumulator(args)?))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let growth = self.growth(&args);
        Ok(self.accumulator(growth, self.inner.create_sliding_accumulator(args)?))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let growth = self.growth(&args);
        Ok(Box::new(BoundedGroups { inner: self.inner.create_groups_accumulator(args)?, growth }))
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        beneficial_ordering: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let ordered = Arc::clone(&self.inner).with_beneficial_ordering(beneficial_ordering)?;
        let pool = Arc::clone(&self.pool);
        Ok(ordered.map(|inner| Arc::new(Bounded { inner, pool }) as Arc<dyn AggregateUDFImpl>))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.inner.simplify()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_expr()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }
}

/// What an aggregate asks for before it grows.
#[derive(Debug)]
struct Growth {
    name: String,
    /// Bytes between two values.
    between: usize,
    pool: Arc<dyn MemoryPool>,
}

impl Growth {
    /// Whether a batch of values has room beside what is held. Whoever drives the aggregate counts the batch then.
    ///
    /// # Errors
    /// 53200.
    fn admit(&self, values: &[ArrayRef]) -> Result<()> {
        let Some(values) = values.first() else { return Ok(()) };
        let between = self.between.saturating_mul(values.len());
        let batch = bytes_of(values.as_ref()).saturating_add(between);
        Grant::from(&self.name, Some(&self.pool), Size { value: 0, batch }).map(drop)
    }
}

/// # Errors
/// 54000 for a value of more than a gigabyte.
fn check(answers: &dyn Array) -> Result<()> {
    let largest = match answers.data_type() {
        DataType::LargeUtf8 => answers.as_string::<i64>().offsets().lengths().max(),
        DataType::List(_) if bytes_of(answers) > VALUE_BYTES_MAX => {
            let list = answers.as_list::<i32>();
            list.iter().flatten().map(|array| bytes_of(array.as_ref())).max()
        }
        _ => None,
    };
    if largest.is_some_and(|bytes| bytes > VALUE_BYTES_MAX) { Err(too_large()) } else { Ok(()) }
}

#[derive(Debug)]
struct BoundedAccumulator {
    inner: Box<dyn Accumulator>,
    growth: Growth,
    /// Whether it was evaluated: one that is so again is a window's.
    answered: bool,
    /// Counts what a window keeps.
    answers: Option<MemoryReservation>,
}

impl BoundedAccumulator {
    fn check(&self) -> Result<()> {
        // A text is what is held.
        if self.growth.name == "string_agg" && self.inner.size() > VALUE_BYTES_MAX {
            return Err(too_large());
        }
        Ok(())
    }
}

impl Accumulator for BoundedAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.growth.admit(values)?;
        self.inner.update_batch(values)?;
        self.check()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.growth.admit(states)?;
        self.inner.merge_batch(states)?;
        self.check()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if std::mem::replace(&mut self.answered, true) {
            let answers = self
                .answers
                .get_or_insert_with(|| MemoryConsumer::new(&self.growth.name).register(&self.growth.pool));
            answers.try_grow(self.inner.size())?;
        }
        let value = self.inner.evaluate()?;
        if let ScalarValue::List(list) = &value {
            check(list.as_ref())?;
        }
        Ok(value)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

struct BoundedGroups {
    inner: Box<dyn GroupsAccumulator>,
    growth: Growth,
}

impl GroupsAccumulator for BoundedGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.growth.admit(values)?;
        self.inner.update_batch(values, group_indices, opt_filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let answers = self.inner.evaluate(emit_to)?;
        check(answers.as_ref())?;
        Ok(answers)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.growth.admit(values)?;
        self.inner.merge_batch(values, group_indices, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, opt_filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}
