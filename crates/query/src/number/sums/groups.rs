//! The sums of many groups.

use super::Types;
use super::adding::{self, Adding, Native};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::NullState;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

/// Sums of groups.
#[derive(Debug)]
pub(super) struct Groups<A: Adding, const AVERAGE: bool> {
    types: Types,
    sums: Vec<Native<A>>,
    /// Values of each group; only kept for averages.
    counts: Vec<i64>,
    nulls: NullState,
    adding: PhantomData<A>,
}

impl<A: Adding, const AVERAGE: bool> Groups<A, AVERAGE> {
    pub fn new(types: Types) -> Self {
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
        let values = adding::values::<A>(&values[0])?;
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
        let values = adding::values::<A>(&values[0])?;
        let taken = opt_filter.map(|filter| {
            NullBuffer::new(match filter.nulls() {
                Some(nulls) => filter.values() & nulls.inner(),
                None => filter.values().clone(),
            })
        });
        let nulls = NullBuffer::union(values.nulls(), taken.as_ref());
        let counted = |i| i64::from(nulls.as_ref().is_none_or(|nulls| nulls.is_valid(i)));
        let counts = AVERAGE.then(|| Int64Array::from_iter_values((0..values.len()).map(counted)));
        let sums = PrimitiveArray::<A::Arrow>::new(values.values().clone(), nulls);
        let mut state: Vec<ArrayRef> = vec![Arc::new(sums.with_data_type(self.types.sum.clone()))];
        state.extend(counts.map(|counts| Arc::new(counts) as ArrayRef));
        Ok(state)
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<Native<A>>()
            + self.counts.capacity() * size_of::<i64>()
            + self.nulls.size()
    }
}
