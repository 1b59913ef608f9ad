//! What rows of a scan must pass.
//!
//! A predicate has parts of two kinds. Those of the statement are *exact*: rows that do not pass are not handed on, and nobody
//! checks the others again. What operators above *learn* while they run, a join the keys that it wants, an `ORDER BY … LIMIT` the
//! values that can still come first, they check themselves: it is asked only as long as it leaves out many rows.

use crate::runtime_filters::{KeysSeen, RuntimeFilter};
use arrow::array::{Array, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::SchemaRef;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::{Result, ScalarValue, project_schema};
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, Column, DynamicFilterPhysicalExpr, DynamicFilterTracking, InListExpr, Literal,
};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns, split_conjunction};
use datafusion::physical_expr_common::physical_expr::{snapshot_generation, snapshot_physical_expr};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// After so many rows it is known how many of them what was learned leaves out.
const TRIED_ROWS: usize = 16_384;
/// What leaves out fewer than one of so many is not worth asking.
const WORTH: usize = 4;
/// Where fewer than one of so many rows are left, the rest of a test is put to these alone.
const FEW: usize = 5;

/// Whether an operator above has a part in a predicate.
pub(in crate::provider) fn learns(part: &Arc<dyn PhysicalExpr>) -> bool {
    DynamicFilterTracking::classify(part).contains_dynamic_filter()
}

/// The predicate of a scan, as one partition asks it.
pub(super) struct Filter {
    exact: Vec<Arc<dyn PhysicalExpr>>,
    learned: Vec<Learned>,
    columns: SchemaRef,
}

struct Learned {
    part: Arc<dyn PhysicalExpr>,
    /// By the join whose filter it is.
    seen: Option<Arc<KeysSeen>>,
    generation: u64,
    /// `None` while nothing is.
    known: Option<Arc<dyn PhysicalExpr>>,
    /// Rows that it was asked about since it became known, and those that passed.
    tested: usize,
    passed: usize,
}

/// The predicate about batches of certain columns.
pub(super) struct Test {
    exact: Vec<Part>,
    /// With their places in the filter.
    learned: Vec<(usize, Part)>,
}

/// A part of the predicate, about some columns of a batch.
struct Part {
    condition: Arc<dyn PhysicalExpr>,
    /// Where those are in the batch.
    columns: Vec<usize>,
    /// To take out rows first costs more, however few they are.
    is_quick: bool,
}

impl Filter {
    /// A predicate about `columns`, with what joins have seen whose filters are in it.
    pub(super) fn new(
        predicate: Option<&Arc<dyn PhysicalExpr>>,
        columns: &SchemaRef,
        seen: &HashMap<u64, Arc<KeysSeen>>,
    ) -> Self {
        let parts = predicate.map(split_conjunction).unwrap_or_default().into_iter().cloned();
        let (learned, exact): (Vec<_>, Vec<_>) = parts.partition(learns);
        let nothing = |part: Arc<dyn PhysicalExpr>| {
            let filter = part.downcast_ref::<DynamicFilterPhysicalExpr>();
            let seen = filter.and_then(|filter| seen.get(&filter.expression_id()?)).cloned();
            Learned { part, seen, generation: 0, known: None, tested: 0, passed: 0 }
        };
        Filter { exact, learned: learned.into_iter().map(nothing).collect(), columns: Arc::clone(columns) }
    }

    /// The columns that a test reads which is made now, by their positions.
    pub(super) fn columns(&mut self) -> Result<BTreeSet<usize>> {
        self.learned.iter_mut().try_for_each(|learned| learned.look(&self.columns))?;
        let learned = self.learned.iter().filter_map(Learned::asked);
        let read = self.exact.iter().chain(learned).flat_map(collect_columns);
        Ok(read.map(|column| column.index()).collect())
    }

    /// A test of batches of the columns at these positions.
    pub(super) fn test(&self, columns: &[usize]) -> Result<Test> {
        let about = |part| Part::new(part, &self.columns, columns);
        let learned = self.learned.iter().enumerate();
        let learned = learned.filter_map(|(i, learned)| Some((i, learned.asked()?)));
        let mut exact = self.exact.iter().map(about).collect::<Result<Vec<_>>>()?;
        // They cannot fail, and leave few rows to others, perhaps.
        exact.sort_by_key(|part| !part.is_quick);
        Ok(Test { exact, learned: learned.map(|(i, part)| Ok((i, about(part)?))).collect::<Result<_>>()? })
    }

    /// Which rows of a batch pass, of those that `seen` has, or of all; `None` if these all do.
    pub(super) fn passing(
        &mut self,
        test: &Test,
        batch: &RecordBatch,
        seen: Option<BooleanBuffer>,
    ) -> Result<Option<BooleanBuffer>> {
        let mut passing = seen;
        let mut asked = passing.as_ref().map_or(batch.num_rows(), BooleanBuffer::count_set_bits);
        let exact = test.exact.iter().map(|part| (None, part));
        let learned = test.learned.iter().map(|(i, part)| (Some(*i), part));
        for (learned, part) in exact.chain(learned) {
            if asked == 0 {
                break;
            }
            let passed = part.pass(batch, passing, asked)?;
            let left = passed.count_set_bits();
            if let Some(i) = learned {
                self.learned[i].tested += asked;
                self.learned[i].passed += left;
            }
            (passing, asked) = (Some(passed), left);
        }
        Ok(passing)
    }
}

impl Part {
    /// `condition`, about `table`, of batches of the columns at the positions `read`.
    fn new(condition: &Arc<dyn PhysicalExpr>, table: &SchemaRef, read: &[usize]) -> Result<Self> {
        let about: BTreeSet<usize> = collect_columns(condition).iter().map(Column::index).collect();
        let about: Vec<usize> = about.into_iter().collect();
        let columns = (0..read.len()).filter(|place| about.contains(&read[*place])).collect();
        let schema = project_schema(table, Some(&about))?;
        let condition = reassign_expr_columns(Arc::clone(condition), &schema)?;
        let is_quick = is_quick(&condition, &schema);
        Ok(Part { condition, columns, is_quick })
    }

    /// Which rows of a batch pass, of the `asked` that `rows` has, or of all.
    fn pass(&self, batch: &RecordBatch, rows: Option<BooleanBuffer>, asked: usize) -> Result<BooleanBuffer> {
        let batch = &batch.project(&self.columns)?;
        match rows {
            Some(rows) if asked * FEW < batch.num_rows() && !self.is_quick => self.pass_of(batch, rows),
            rows => match (self.condition.evaluate(batch), rows) {
                (passed, None) => bits(passed?, batch.num_rows()),
                (Ok(passed), Some(rows)) => Ok(&bits(passed, batch.num_rows())? & &rows),
                // What it cannot be evaluated for may be hidden, or not have passed before.
                (Err(_), Some(rows)) => self.pass_of(batch, rows),
            },
        }
    }

    /// As [`pass`](Self::pass), asking about no other rows.
    fn pass_of(&self, batch: &RecordBatch, rows: BooleanBuffer) -> Result<BooleanBuffer> {
        let rows = BooleanArray::from(rows);
        let passed = self.condition.evaluate_selection(batch, &rows)?;
        Ok(&bits(passed, batch.num_rows())? & rows.values())
    }
}

impl Learned {
    /// Takes note of what is known by now.
    fn look(&mut self, columns: &SchemaRef) -> Result<()> {
        let generation = snapshot_generation(&self.part);
        if generation != self.generation {
            let known = match self.known_keys(columns)? {
                Some(keys) => keys,
                None => without_partitions(snapshot_physical_expr(Arc::clone(&self.part))?, columns)?,
            };
            let is_nothing = known
                .downcast_ref::<Literal>()
                .is_some_and(|literal| matches!(literal.value(), ScalarValue::Boolean(Some(true))));
            let known = (!is_nothing).then_some(known);
            let (part, seen) = (Arc::clone(&self.part), self.seen.clone());
            *self = Learned { part, seen, generation, known, tested: 0, passed: 0 };
        }
        Ok(())
    }

    /// What is known of a join by the keys that it has seen.
    fn known_keys(&self, columns: &SchemaRef) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        match (&self.seen, self.part.downcast_ref::<DynamicFilterPhysicalExpr>()) {
            (Some(seen), Some(filter)) => RuntimeFilter::seen(filter, seen, columns),
            _ => Ok(None),
        }
    }

    /// What is asked, if it is worth it.
    fn asked(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        let left_out = self.tested - self.passed;
        self.known.as_ref().filter(|_| self.tested < TRIED_ROWS || left_out * WORTH >= self.tested)
    }
}

/// Whether values of a fixed length are compared, all in one loop.
fn is_quick(condition: &Arc<dyn PhysicalExpr>, schema: &SchemaRef) -> bool {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    let is_short = |operand: &Arc<dyn PhysicalExpr>| {
        (operand.is::<Column>() || operand.is::<Literal>())
            && operand.data_type(schema).is_ok_and(|data_type| data_type.is_primitive())
    };
    condition.downcast_ref::<BinaryExpr>().is_some_and(|binary| {
        let is_comparison = matches!(binary.op(), Eq | NotEq | Lt | LtEq | Gt | GtEq);
        is_comparison && is_short(binary.left()) && is_short(binary.right())
    })
}

/// What a join with several partitions has learned, without asking each row for its partition first: that costs more than to
/// look for its key in what all of them want.
fn without_partitions(known: Arc<dyn PhysicalExpr>, columns: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>> {
    let Some(case) = known.downcast_ref::<CaseExpr>() else { return Ok(known) };
    let is_false = |expr: &Arc<dyn PhysicalExpr>| {
        let value = expr.downcast_ref::<Literal>().map(Literal::value);
        matches!(value, Some(ScalarValue::Boolean(Some(false))))
    };
    // What is in none of the partitions may be wanted otherwise.
    if case.expr().is_none() || case.else_expr().is_some_and(|expr| !is_false(expr)) {
        return Ok(known);
    }
    let wanted: Vec<_> = case.when_then_expr().iter().map(|(_, wanted)| wanted).collect();
    if let Some((key, values)) = listed(&wanted) {
        let values = ScalarValue::iter_to_array(values)?;
        return Ok(Arc::new(InListExpr::try_new_from_array(key, values, false, columns)?));
    }
    Ok(known)
}

/// The key that all of `conditions` look for in lists of constants, and those; `None` if one looks in none. What else it asks
/// for holds for what is in its list.
fn listed(conditions: &[&Arc<dyn PhysicalExpr>]) -> Option<(Arc<dyn PhysicalExpr>, Vec<ScalarValue>)> {
    let mut found: Option<(Arc<dyn PhysicalExpr>, Vec<ScalarValue>)> = None;
    for condition in conditions {
        let parts = split_conjunction(condition);
        let mut lists = parts.into_iter().filter_map(|part| part.downcast_ref::<InListExpr>());
        let list = lists.next().filter(|list| !list.negated() && !list.is_empty())?;
        let (key, values) = found.get_or_insert_with(|| (Arc::clone(list.expr()), Vec::new()));
        if key != list.expr() || lists.next().is_some() {
            return None;
        }
        for value in list.list() {
            values.push(value.downcast_ref::<Literal>()?.value().clone());
        }
    }
    found
}

fn bits(passed: ColumnarValue, rows: usize) -> Result<BooleanBuffer> {
    let passed = passed.into_array(rows)?;
    let passed = as_boolean_array(&passed)?;
    Ok(match passed.nulls() {
        Some(known) => passed.values() & known.inner(),
        None => passed.values().clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array};
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
    use datafusion::physical_expr::expressions::{binary, in_list, lit};

    #[test]
    fn what_partitions_want_is_asked_in_one_list() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
        let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new("k", 0));
        let wanted = |values: &[i64], least: i64| {
            let list = in_list(Arc::clone(&key), values.iter().map(|v| lit(*v)).collect(), &false, &schema);
            let bound = binary(Arc::clone(&key), Operator::GtEq, lit(least), &schema);
            binary(bound.unwrap(), Operator::And, list.unwrap(), &schema).unwrap()
        };
        let modulo = binary(Arc::clone(&key), Operator::Modulo, lit(2_i64), &schema).unwrap();
        let branches = vec![(lit(0_i64), wanted(&[2, 8], 2)), (lit(1_i64), wanted(&[1, 5], 1))];
        let of = |otherwise: bool| -> Arc<dyn PhysicalExpr> {
            let modulo = Some(Arc::clone(&modulo));
            Arc::new(CaseExpr::try_new(modulo, branches.clone(), Some(lit(otherwise))).unwrap())
        };
        let keys: ArrayRef =
            Arc::new(Int64Array::from(vec![Some(1), Some(2), Some(3), None, Some(8), Some(6)]));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![keys]).unwrap();
        let rows = |expr: &Arc<dyn PhysicalExpr>| bits(expr.evaluate(&batch).unwrap(), 6).unwrap();
        let plain = without_partitions(of(false), &schema).unwrap();
        assert!(plain.is::<InListExpr>());
        assert_eq!(rows(&plain), rows(&of(false)));
        assert_eq!(rows(&plain).iter().collect::<Vec<_>>(), [true, true, false, false, true, false]);
        assert!(without_partitions(of(true), &schema).unwrap().is::<CaseExpr>());
    }

    #[test]
    fn keys_that_a_join_has_seen_are_asked_for_in_a_set() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
        let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new("k", 0));
        let batch = |keys: Vec<Option<i64>>| {
            let keys: ArrayRef = Arc::new(Int64Array::from(keys));
            RecordBatch::try_new(Arc::clone(&schema), vec![keys]).unwrap()
        };
        let told = Arc::new(DynamicFilterPhysicalExpr::new(vec![Arc::clone(&key)], lit(true)));
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let seen = Arc::new(KeysSeen::of_keys(vec![Arc::clone(&key)]));
        let keys = |from: i64| batch((from..from + 50).map(|n| Some(2 * n)).collect());
        seen.see(&keys(0), &pool).unwrap();
        let of_joins = HashMap::from([(told.expression_id().unwrap(), Arc::clone(&seen))]);
        let predicate: Arc<dyn PhysicalExpr> = Arc::clone(&told) as _;
        let mut filter = Filter::new(Some(&predicate), &schema, &of_joins);
        // Whoever looks before all have come knows nothing.
        assert_eq!(filter.columns().unwrap(), BTreeSet::new());
        seen.see(&keys(50), &pool).unwrap();
        // As DataFusion writes it, what each of two partitions wants. That the first wants nothing is not heeded.
        let bound = |operator, bound: i64| binary(Arc::clone(&key), operator, lit(bound), &schema).unwrap();
        let between = binary(bound(Operator::GtEq, 0), Operator::And, bound(Operator::LtEq, 198), &schema);
        let nothing = binary(bound(Operator::GtEq, 5), Operator::And, bound(Operator::LtEq, 5), &schema);
        let modulo = binary(Arc::clone(&key), Operator::Modulo, lit(2_i64), &schema).unwrap();
        let branches = vec![(lit(0_i64), nothing.unwrap()), (lit(1_i64), between.unwrap())];
        let known = CaseExpr::try_new(Some(modulo), branches, Some(lit(false))).unwrap();
        told.update(Arc::new(known)).unwrap();
        assert_eq!(filter.columns().unwrap(), BTreeSet::from([0]));
        let test = filter.test(&[0]).unwrap();
        let asked = batch(vec![Some(4), Some(5), None, Some(198), Some(200), Some(-2)]);
        let passing = filter.passing(&test, &asked, None).unwrap().unwrap();
        assert_eq!(passing.iter().collect::<Vec<_>>(), [true, false, false, true, false, false]);
    }
}
