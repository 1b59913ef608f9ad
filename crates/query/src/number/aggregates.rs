//! `sum` and `avg` with PostgreSQL's types, which never wrap around.
//!
//! Of `bigint` both are `numeric`, and so is `avg` of any integer: they are summed as decimals. Where the type of a sum has
//! ten digits more than its argument no number of rows can fill it, and nothing is checked; else each addition is.

use super::decimal::{self, DIGITS_MAX, Shape};
use super::operators::{digits_of, integer_type, type_name};
use super::{error, numeric_overflow, overflow, planned};
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Int64Array, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Float32Type, Float64Type, Int64Type};
use arrow::error::ArrowError;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::NullState;
use oribi_types::value::has_digits;
use std::collections::{HashSet, VecDeque};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

pub(super) fn aggregates() -> Vec<AggregateUDF> {
    let total = |name, average| {
        let signature = Signature::user_defined(Volatility::Immutable);
        AggregateUDF::new_from_impl(Total { name, average, signature })
    };
    vec![total("sum", false), total("avg", true)]
}

/// `sum` or `avg`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Total {
    name: &'static str,
    average: bool,
    signature: Signature,
}

impl Total {
    fn missing(&self, argument: &DataType) -> datafusion::common::DataFusionError {
        let message = format!("function {}({}) does not exist", self.name, type_name(argument));
        planned(error("42883", message))
    }
}

/// Runs `$body` with the kind of addition that sums of `$argument` need as `$adding`.
macro_rules! dispatch {
    ($argument:expr, $adding:ident => $body:expr) => {
        match $argument {
            DataType::Int32 => {
                type $adding = Integers;
                $body
            }
            DataType::Float32 => {
                type $adding = Reals;
                $body
            }
            DataType::Float64 => {
                type $adding = Doubles;
                $body
            }
            DataType::Decimal128(precision, _) if precision + 10 <= DIGITS_MAX => {
                type $adding = RoomyDecimals;
                $body
            }
            DataType::Decimal128(..) => {
                type $adding = Decimals;
                $body
            }
            other => exec_err!("no sum of {other}"),
        }
    };
}

impl AggregateUDFImpl for Total {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [argument] = arguments else {
            let message = format!("function {} takes one argument", self.name);
            return Err(planned(error("42883", message)));
        };
        Ok(vec![match (argument, integer_type(argument)) {
            (_, Some(integer)) if self.average || integer == DataType::Int64 => {
                DataType::Decimal128(digits_of(&integer), 0)
            }
            (_, Some(_)) => DataType::Int32,
            (DataType::Float32, _) if self.average => DataType::Float64,
            (DataType::Float32 | DataType::Float64 | DataType::Decimal128(..), _) => argument.clone(),
            (DataType::Null, _) => DataType::Float64,
            _ => return Err(self.missing(argument)),
        }])
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let argument = self.coerce_types(arguments)?.swap_remove(0);
        Ok(match Shape::of(&argument) {
            None => summed(&argument),
            Some(shape) if self.average => shape.average().data_type(),
            Some(shape) => Shape { precision: shape.precision + 10, ..shape }.data_type(),
        })
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let argument = args.expr_fields[0].data_type();
        let types = Types::new(argument, args.return_field.data_type(), self.average);
        if args.is_distinct {
            return dispatch!(argument, Adding => Ok(Box::new(Distinct::<Adding>::new(types)) as Box<dyn Accumulator>));
        }
        dispatch!(argument, Adding => Ok(Box::new(Single::<Adding>::new(types)) as Box<dyn Accumulator>))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let argument = args.expr_fields[0].data_type();
        let types = Types::new(argument, args.return_field.data_type(), self.average);
        dispatch!(argument, Adding => Ok(Box::new(Sliding::<Adding>::new(types)) as Box<dyn Accumulator>))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let argument = args.input_fields[0].data_type();
        let types = Types::new(argument, args.return_field.data_type(), self.average);
        let name = |what: &str| format_state_name(args.name, what);
        if args.is_distinct {
            let item = Field::new_list_field(types.argument, true);
            return Ok(vec![Arc::new(Field::new_list(name("distinct"), item, false))]);
        }
        let sum = Arc::new(Field::new(name("sum"), types.sum, true));
        if !self.average {
            return Ok(vec![sum]);
        }
        Ok(vec![sum, Arc::new(Field::new(name("count"), DataType::Int64, true))])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let argument = args.expr_fields[0].data_type();
        let types = Types::new(argument, args.return_field.data_type(), self.average);
        if self.average {
            return dispatch!(argument, Adding => Ok(Box::new(Groups::<Adding, true>::new(types)) as Box<dyn GroupsAccumulator>));
        }
        dispatch!(argument, Adding => Ok(Box::new(Groups::<Adding, false>::new(types)) as Box<dyn GroupsAccumulator>))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// What values of a type are taken for when they are added.
fn summed(argument: &DataType) -> DataType {
    if argument == &DataType::Int32 { DataType::Int64 } else { argument.clone() }
}

/// The values of a batch, as they are added.
fn values<A: Adding>(array: &ArrayRef) -> Result<PrimitiveArray<A::Arrow>, ArrowError> {
    if array.data_type() == &DataType::Int32 {
        return Ok(cast(array, &DataType::Int64)?.as_primitive().clone());
    }
    Ok(array.as_primitive().clone())
}

/// The types of an aggregate.
#[derive(Clone, Debug)]
struct Types {
    /// Of the values, as they are added.
    argument: DataType,
    /// Of the sum, which for an average is not the result.
    sum: DataType,
    result: DataType,
    average: bool,
}

impl Types {
    fn new(argument: &DataType, result: &DataType, average: bool) -> Self {
        let sum = match Shape::of(argument) {
            Some(shape) => Shape { precision: shape.precision + 10, ..shape }.data_type(),
            None => summed(argument),
        };
        Types { argument: summed(argument), sum, result: result.clone(), average }
    }
}

/// How values are added, and a sum divided.
trait Adding: Debug + Send + Sync + Sized + 'static {
    type Arrow: ArrowPrimitiveType<Native: Send> + Send;
    /// What sums begin with: what any value is added to without becoming another. Averages begin with 0.
    fn zero(_average: bool) -> Native<Self> {
        Native::<Self>::default()
    }
    /// Adds `value`; whether the sum is beyond its type then.
    fn add(sum: &mut Native<Self>, value: Native<Self>) -> bool;
    fn overflow() -> ArrowError;
    /// The average; `count` is not 0.
    fn average(sum: Native<Self>, count: i64, types: &Types) -> Result<Native<Self>, ArrowError>;
    /// What tells values apart, where they are to be distinct.
    fn identity(value: Native<Self>) -> i128;
    /// Takes `value` away again; `false` if that does not give what the sum was before.
    fn subtract(sum: &mut Native<Self>, value: Native<Self>) -> bool;
}

type Native<A> = <<A as Adding>::Arrow as ArrowPrimitiveType>::Native;

/// Of `smallint` and `integer`, as `bigint`.
#[derive(Debug)]
struct Integers;
#[derive(Debug)]
struct Reals;
#[derive(Debug)]
struct Doubles;
/// Whose sum has room for as many rows as there can be.
#[derive(Debug)]
struct RoomyDecimals;
#[derive(Debug)]
struct Decimals;

impl Adding for Integers {
    type Arrow = Int64Type;

    #[inline]
    fn add(sum: &mut i64, value: i64) -> bool {
        let (added, overflown) = sum.overflowing_add(value);
        *sum = added;
        overflown
    }

    fn overflow() -> ArrowError {
        super::out_of_range("bigint")
    }

    fn average(sum: i64, count: i64, _types: &Types) -> Result<i64, ArrowError> {
        Ok(sum / count)
    }

    fn identity(value: i64) -> i128 {
        i128::from(value)
    }

    fn subtract(sum: &mut i64, value: i64) -> bool {
        *sum = sum.wrapping_sub(value);
        true
    }
}

macro_rules! floats {
    ($adding:ty, $arrow:ty, $native:ty) => {
        impl Adding for $adding {
            type Arrow = $arrow;

            fn zero(average: bool) -> $native {
                if average { 0.0 } else { -0.0 }
            }

            #[inline]
            fn add(sum: &mut $native, value: $native) -> bool {
                let added = *sum + value;
                let overflown = added.is_infinite() && !sum.is_infinite() && !value.is_infinite();
                *sum = if added.is_nan() { <$native>::NAN } else { added };
                overflown
            }

            fn overflow() -> ArrowError {
                overflow()
            }

            fn average(sum: $native, count: i64, _types: &Types) -> Result<$native, ArrowError> {
                Ok(sum / count as $native)
            }

            fn identity(value: $native) -> i128 {
                let value = f64::from(value);
                let same = if value.is_nan() { f64::NAN } else { value + 0.0 };
                i128::from(same.to_bits())
            }

            fn subtract(_sum: &mut $native, _value: $native) -> bool {
                false
            }
        }
    };
}

floats!(Reals, Float32Type, f32);
floats!(Doubles, Float64Type, f64);

macro_rules! decimals {
    ($adding:ty, $add:expr) => {
        impl Adding for $adding {
            type Arrow = Decimal128Type;

            #[inline]
            fn add(sum: &mut i128, value: i128) -> bool {
                let add: fn(&mut i128, i128) -> bool = $add;
                add(sum, value)
            }

            fn overflow() -> ArrowError {
                numeric_overflow()
            }

            fn average(sum: i128, count: i64, types: &Types) -> Result<i128, ArrowError> {
                let scale = |data_type: &DataType| Shape::of(data_type).map_or(0, |shape| shape.scale);
                let power = scale(&types.result).saturating_sub(scale(&types.argument));
                decimal::divide(sum, power, i128::from(count))
            }

            fn identity(value: i128) -> i128 {
                value
            }

            fn subtract(sum: &mut i128, value: i128) -> bool {
                *sum = sum.wrapping_sub(value);
                true
            }
        }
    };
}

decimals!(RoomyDecimals, |sum, value| {
    *sum = sum.wrapping_add(value);
    false
});
decimals!(Decimals, |sum, value| {
    // A sum of two numbers of 38 digits has 39 if it does not fit, wrapped around or not.
    *sum = sum.wrapping_add(value);
    let overflown = !has_digits(*sum, DIGITS_MAX);
    if overflown {
        *sum = 0;
    }
    overflown
});

/// Sums of groups.
#[derive(Debug)]
struct Groups<A: Adding, const AVERAGE: bool> {
    types: Types,
    sums: Vec<Native<A>>,
    /// Values of each group; only kept for averages.
    counts: Vec<i64>,
    nulls: NullState,
    adding: PhantomData<A>,
}

impl<A: Adding, const AVERAGE: bool> Groups<A, AVERAGE> {
    fn new(types: Types) -> Self {
        Groups { types, sums: Vec::new(), counts: Vec::new(), nulls: NullState::new(), adding: PhantomData }
    }

    fn resize(&mut self, groups: usize) {
        self.sums.resize(groups, A::zero(AVERAGE));
        if AVERAGE {
            self.counts.resize(groups, 0);
        }
    }

    fn array(values: Vec<Native<A>>, nulls: Option<NullBuffer>, data_type: &DataType) -> ArrayRef {
        Arc::new(PrimitiveArray::<A::Arrow>::new(values.into(), nulls).with_data_type(data_type.clone()))
    }
}

impl<A: Adding, const AVERAGE: bool> GroupsAccumulator for Groups<A, AVERAGE> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        let (sums, counts) = (self.sums.as_mut_slice(), self.counts.as_mut_slice());
        let mut overflown = false;
        let values = self::values::<A>(&values[0])?;
        self.nulls.accumulate(group_indices, &values, opt_filter, total_num_groups, |group, value| {
            overflown |= A::add(&mut sums[group], value);
            if AVERAGE {
                counts[group] += 1;
            }
        });
        if overflown { Err(A::overflow().into()) } else { Ok(()) }
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        let sums = self.sums.as_mut_slice();
        let mut overflown = false;
        let partial = values[0].as_primitive::<A::Arrow>();
        self.nulls.accumulate(group_indices, partial, None, total_num_groups, |group, value| {
            overflown |= A::add(&mut sums[group], value);
        });
        if AVERAGE {
            let counts = values[1].as_primitive::<Int64Type>();
            for (group, count) in group_indices.iter().zip(counts.iter()) {
                self.counts[*group] += count.unwrap_or(0);
            }
        }
        if overflown { Err(A::overflow().into()) } else { Ok(()) }
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let nulls = self.nulls.build(emit_to);
        let mut sums = emit_to.take_needed(&mut self.sums);
        if AVERAGE {
            let counts = emit_to.take_needed(&mut self.counts);
            for (sum, count) in sums.iter_mut().zip(counts) {
                if count > 0 {
                    *sum = A::average(*sum, count, &self.types)?;
                }
            }
        }
        Ok(Self::array(sums, nulls, &self.types.result))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let nulls = self.nulls.build(emit_to);
        let sums = emit_to.take_needed(&mut self.sums);
        let mut state = vec![Self::array(sums, nulls, &self.types.sum)];
        if AVERAGE {
            state.push(Arc::new(Int64Array::from(emit_to.take_needed(&mut self.counts))));
        }
        Ok(state)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = self::values::<A>(&values[0])?;
        let taken = opt_filter.map(|filter| {
            NullBuffer::new(match filter.nulls() {
                Some(nulls) => filter.values() & nulls.inner(),
                None => filter.values().clone(),
            })
        });
        let nulls = NullBuffer::union(values.nulls(), taken.as_ref());
        let mut state = Vec::with_capacity(2);
        if AVERAGE {
            let count = |i| i64::from(nulls.as_ref().is_none_or(|nulls| nulls.is_valid(i)));
            let counts: Vec<i64> = (0..values.len()).map(count).collect();
            state.push(Arc::new(Int64Array::from(counts)) as ArrayRef);
        }
        let sums = PrimitiveArray::<A::Arrow>::new(values.values().clone(), nulls);
        state.insert(0, Arc::new(sums.with_data_type(self.types.sum.clone())));
        Ok(state)
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<Native<A>>()
            + self.counts.capacity() * size_of::<i64>()
            + self.nulls.size()
    }
}

/// One sum.
#[derive(Debug)]
struct Single<A: Adding> {
    types: Types,
    sum: Native<A>,
    count: i64,
}

impl<A: Adding> Single<A> {
    fn new(types: Types) -> Self {
        Single { sum: A::zero(types.average), types, count: 0 }
    }

    fn add(&mut self, value: Native<A>) -> Result<(), ArrowError> {
        self.count += 1;
        if A::add(&mut self.sum, value) { Err(A::overflow()) } else { Ok(()) }
    }

    fn constant(&self, value: Option<Native<A>>, data_type: &DataType) -> Result<ScalarValue> {
        let null = value.is_none().then(|| NullBuffer::new_null(1));
        let values = vec![value.unwrap_or_default()].into();
        let array = PrimitiveArray::<A::Arrow>::new(values, null).with_data_type(data_type.clone());
        ScalarValue::try_from_array(&array, 0)
    }

    fn result(&self) -> Result<ScalarValue> {
        let value = match self.count {
            0 => None,
            count if self.types.average => Some(A::average(self.sum, count, &self.types)?),
            _ => Some(self.sum),
        };
        self.constant(value, &self.types.result)
    }
}

impl<A: Adding> Accumulator for Single<A> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = self::values::<A>(&values[0])?;
        if values.null_count() == 0 {
            values.values().iter().try_for_each(|value| self.add(*value))?;
        } else {
            values.iter().flatten().try_for_each(|value| self.add(value))?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.result()
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = self.constant((self.count > 0).then_some(self.sum), &self.types.sum)?;
        if !self.types.average {
            return Ok(vec![sum]);
        }
        Ok(vec![sum, ScalarValue::Int64(Some(self.count))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let before = self.count;
        self.update_batch(&states[..1])?;
        if self.types.average {
            let counts = states[1].as_primitive::<Int64Type>();
            self.count = before + counts.iter().flatten().sum::<i64>();
        }
        Ok(())
    }
}

/// A sum over values that leave it again. Floats are summed anew each time, as PostgreSQL does: what rounding took is
/// not given back by a subtraction.
#[derive(Debug)]
struct Sliding<A: Adding> {
    single: Single<A>,
    /// The values within, where they are needed again.
    within: VecDeque<Native<A>>,
    exact: bool,
}

impl<A: Adding> Sliding<A> {
    fn new(types: Types) -> Self {
        let exact = A::subtract(&mut Native::<A>::default(), Native::<A>::default());
        Sliding { single: Single::new(types), within: VecDeque::new(), exact }
    }
}

impl<A: Adding> Accumulator for Sliding<A> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if self.exact {
            return self.single.update_batch(values);
        }
        self.within.extend(self::values::<A>(&values[0])?.iter().flatten());
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in self::values::<A>(&values[0])?.iter().flatten() {
            if self.exact {
                A::subtract(&mut self.single.sum, value);
                self.single.count -= 1;
            } else {
                self.within.pop_front();
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if !self.exact {
            self.single = Single::new(self.single.types.clone());
            self.within.iter().try_for_each(|value| self.single.add(*value))?;
        }
        self.single.result()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.within.capacity() * size_of::<Native<A>>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.evaluate()?;
        self.single.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.single.merge_batch(states)
    }
}

/// A sum of values that are not equal to each other.
#[derive(Debug)]
struct Distinct<A: Adding> {
    types: Types,
    seen: HashSet<i128>,
    values: Vec<Native<A>>,
}

impl<A: Adding> Distinct<A> {
    fn new(types: Types) -> Self {
        Distinct { types, seen: HashSet::new(), values: Vec::new() }
    }
}

impl<A: Adding> Accumulator for Distinct<A> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in self::values::<A>(&values[0])?.iter().flatten() {
            if self.seen.insert(A::identity(value)) {
                self.values.push(value);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut single = Single::<A>::new(self.types.clone());
        self.values.iter().try_for_each(|value| single.add(*value))?;
        single.result()
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.values.capacity() * size_of::<Native<A>>()
            + self.seen.capacity() * size_of::<i128>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = PrimitiveArray::<A::Arrow>::from_iter_values(self.values.iter().copied())
            .with_data_type(self.types.argument.clone());
        let list = datafusion::common::utils::SingleRowListArrayBuilder::new(Arc::new(values));
        Ok(vec![list.build_list_scalar()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for values in states[0].as_list::<i32>().iter().flatten() {
            self.update_batch(&[values])?;
        }
        Ok(())
    }
}
