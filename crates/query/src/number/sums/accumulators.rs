//! One sum: of all values, of those within a frame that slides, of those that are distinct.

use super::Types;
use super::adding::{self, Adding, Native};
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Int64Type};
use arrow::error::ArrowError;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use std::collections::{HashSet, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;

/// One sum.
#[derive(Debug)]
pub(super) struct Single<A: Adding> {
    types: Types,
    sum: Native<A>,
    count: i64,
}

impl<A: Adding> Single<A> {
    pub fn new(types: Types) -> Self {
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
        let values = adding::values::<A>(&values[0])?;
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
pub(super) struct Sliding<A: Adding> {
    single: Single<A>,
    /// The values within, where they are needed again.
    within: VecDeque<Native<A>>,
    exact: bool,
}

impl<A: Adding> Sliding<A> {
    pub fn new(types: Types) -> Self {
        let exact = A::subtract(&mut Native::<A>::default(), Native::<A>::default());
        Sliding { single: Single::new(types), within: VecDeque::new(), exact }
    }
}

impl<A: Adding> Accumulator for Sliding<A> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if self.exact {
            return self.single.update_batch(values);
        }
        self.within.extend(adding::values::<A>(&values[0])?.iter().flatten());
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in adding::values::<A>(&values[0])?.iter().flatten() {
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
pub(super) struct Distinct<A: Adding> {
    types: Types,
    seen: HashSet<i128>,
    values: Vec<Native<A>>,
}

impl<A: Adding> Distinct<A> {
    pub fn new(types: Types) -> Self {
        Distinct { types, seen: HashSet::new(), values: Vec::new() }
    }
}

impl<A: Adding> Accumulator for Distinct<A> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in adding::values::<A>(&values[0])?.iter().flatten() {
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
        let list = SingleRowListArrayBuilder::new(Arc::new(values));
        Ok(vec![list.build_list_scalar()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for values in states[0].as_list::<i32>().iter().flatten() {
            self.update_batch(&[values])?;
        }
        Ok(())
    }
}
