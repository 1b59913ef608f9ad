//! What rows of a scan must pass.
//!
//! A predicate has parts of two kinds. Those of the statement are *exact*: rows that do not pass are not handed on, and nobody
//! checks the others again. What operators above *learn* while they run, a join the keys that it wants, an `ORDER BY … LIMIT` the
//! values that can still come first, they check themselves: it is asked only as long as it leaves out many rows.

use arrow::array::{Array, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::SchemaRef;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::{Result, ScalarValue, project_schema};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{DynamicFilterTracking, Literal};
use datafusion::physical_expr::utils::{
    collect_columns, conjunction_opt, reassign_expr_columns, split_conjunction,
};
use datafusion::physical_expr_common::physical_expr::{snapshot_generation, snapshot_physical_expr};
use std::collections::BTreeSet;
use std::sync::Arc;

/// After so many rows it is known how many of them what was learned leaves out.
const TRIED_ROWS: usize = 16_384;
/// What leaves out fewer than one of so many is not worth asking.
const WORTH: usize = 4;
/// Where fewer than one of so many rows are left, the rest of a test is put to these alone.
const FEW: usize = 5;

/// Whether an operator above has a part in a predicate.
pub(super) fn learns(part: &Arc<dyn PhysicalExpr>) -> bool {
    DynamicFilterTracking::classify(part).contains_dynamic_filter()
}

/// The predicate of a scan, as one partition asks it.
pub(super) struct Filter {
    exact: Option<Arc<dyn PhysicalExpr>>,
    learned: Vec<Learned>,
    columns: SchemaRef,
}

struct Learned {
    part: Arc<dyn PhysicalExpr>,
    generation: u64,
    /// `None` while nothing is.
    known: Option<Arc<dyn PhysicalExpr>>,
    /// Rows that it was asked about since it became known, and those that passed.
    tested: usize,
    passed: usize,
}

/// The predicate about batches of certain columns.
pub(super) struct Test {
    exact: Option<Arc<dyn PhysicalExpr>>,
    /// With their places in the filter.
    learned: Vec<(usize, Arc<dyn PhysicalExpr>)>,
}

impl Filter {
    /// A predicate about `columns`.
    pub(super) fn new(predicate: Option<&Arc<dyn PhysicalExpr>>, columns: &SchemaRef) -> Self {
        let parts = predicate.map(split_conjunction).unwrap_or_default().into_iter().cloned();
        let (learned, exact): (Vec<_>, Vec<_>) = parts.partition(learns);
        let nothing = |part| Learned { part, generation: 0, known: None, tested: 0, passed: 0 };
        Filter {
            exact: conjunction_opt(exact),
            learned: learned.into_iter().map(nothing).collect(),
            columns: Arc::clone(columns),
        }
    }

    /// The columns that a test reads which is made now, by their positions.
    pub(super) fn columns(&mut self) -> Result<BTreeSet<usize>> {
        self.learned.iter_mut().try_for_each(Learned::look)?;
        let learned = self.learned.iter().filter_map(Learned::asked);
        let read = self.exact.iter().chain(learned).flat_map(collect_columns);
        Ok(read.map(|column| column.index()).collect())
    }

    /// A test of batches of the columns at these positions.
    pub(super) fn test(&self, columns: &[usize]) -> Result<Test> {
        let batch = project_schema(&self.columns, Some(&columns.to_vec()))?;
        let about = |part: &Arc<dyn PhysicalExpr>| reassign_expr_columns(Arc::clone(part), &batch);
        let learned = self.learned.iter().enumerate();
        let learned = learned.filter_map(|(i, learned)| Some((i, learned.asked()?)));
        Ok(Test {
            exact: self.exact.as_ref().map(about).transpose()?,
            learned: learned.map(|(i, part)| Ok((i, about(part)?))).collect::<Result<_>>()?,
        })
    }

    /// Which rows of a batch pass, of those that `seen` has, or of all; `None` if these all do.
    pub(super) fn passing(
        &mut self,
        test: &Test,
        batch: &RecordBatch,
        seen: Option<BooleanBuffer>,
    ) -> Result<Option<BooleanBuffer>> {
        let mut passing = match &test.exact {
            Some(exact) => Some(pass(exact, batch, seen)?),
            None => seen,
        };
        for (i, part) in &test.learned {
            let asked = passing.as_ref().map_or(batch.num_rows(), BooleanBuffer::count_set_bits);
            if asked == 0 {
                break;
            }
            let passed = match passing {
                Some(rows) if asked * FEW < batch.num_rows() => pass_of_few(part, batch, rows)?,
                rows => pass(part, batch, rows)?,
            };
            self.learned[*i].tested += asked;
            self.learned[*i].passed += passed.count_set_bits();
            passing = Some(passed);
        }
        Ok(passing)
    }
}

impl Learned {
    /// Takes note of what is known by now.
    fn look(&mut self) -> Result<()> {
        let generation = snapshot_generation(&self.part);
        if generation != self.generation {
            let known = snapshot_physical_expr(Arc::clone(&self.part))?;
            let is_nothing = known
                .downcast_ref::<Literal>()
                .is_some_and(|literal| matches!(literal.value(), ScalarValue::Boolean(Some(true))));
            let known = (!is_nothing).then_some(known);
            *self = Learned { part: Arc::clone(&self.part), generation, known, tested: 0, passed: 0 };
        }
        Ok(())
    }

    /// What is asked, if it is worth it.
    fn asked(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        let left_out = self.tested - self.passed;
        self.known.as_ref().filter(|_| self.tested < TRIED_ROWS || left_out * WORTH >= self.tested)
    }
}

/// Which rows of a batch pass, of those that `seen` has, or of all.
fn pass(
    part: &Arc<dyn PhysicalExpr>,
    batch: &RecordBatch,
    seen: Option<BooleanBuffer>,
) -> Result<BooleanBuffer> {
    match (part.evaluate(batch), seen) {
        (passed, None) => bits(passed?, batch.num_rows()),
        (Ok(passed), Some(seen)) => Ok(&bits(passed, batch.num_rows())? & &seen),
        // What it cannot be evaluated for may be hidden.
        (Err(_), Some(seen)) => pass_of_few(part, batch, seen),
    }
}

/// As [`pass`], asking about no other rows.
fn pass_of_few(
    part: &Arc<dyn PhysicalExpr>,
    batch: &RecordBatch,
    seen: BooleanBuffer,
) -> Result<BooleanBuffer> {
    let rows = BooleanArray::from(seen);
    let passed = part.evaluate_selection(batch, &rows)?;
    Ok(&bits(passed, batch.num_rows())? & rows.values())
}

fn bits(passed: ColumnarValue, rows: usize) -> Result<BooleanBuffer> {
    let passed = passed.into_array(rows)?;
    let passed = as_boolean_array(&passed)?;
    Ok(match passed.nulls() {
        Some(known) => passed.values() & known.inner(),
        None => passed.values().clone(),
    })
}
