//! What hash joins learn of their keys, for scans.
//!
//! A join that has read its first side knows which keys rows of the second may have. DataFusion tells the scan of these rows: between which
//! values they lie, which they are if they are few, and else to look each up in the join's hash table, once it is known which partition of
//! the join that is in. That takes longer than the rest of many scans: so what a join has [seen](seen) is told as a [set](key_set) of its keys
//! instead, in one process ([`with_key_sets`]) and over [several](crate::nodes), where the hash table is somewhere else.

mod key_set;
mod seen;

pub use key_set::KEY_SET_BYTES_MAX;
pub(crate) use seen::with_key_sets;
pub use seen::{KeysSeen, filter_of, leaves_little_out};

use crate::ipc;
use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::concat;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, DynamicFilterPhysicalExpr, InListExpr, Literal, lit,
};
use datafusion::physical_expr::utils::{conjunction, split_conjunction};
use key_set::{KeySet, MayBeIn};
use oribi_types::Error;
use prost::Message;
use std::collections::HashSet;
use std::sync::Arc;

/// The most values of a key that are told one by one, and the most bytes of a join's keys, each counted as often as it is there. A list is
/// copied for each row group that asks it: with 65,536 values TPC-H at scale 1 took longer than with bounds alone.
pub const VALUES_MAX: usize = 4096;
pub const VALUES_BYTES_MAX: usize = 1 << 20;

/// Of so many values DataFusion looks for each in the statistics of pages and row groups.
const SOUGHT_MAX: usize = 20;

/// Longer bounds are not told: what is told of a key without values is a few KiB.
const BOUND_BYTES_MAX: usize = 4 << 10;

/// Which rows of its second side may have a partner in a join.
#[derive(Clone, Debug, PartialEq)]
pub enum RuntimeFilter {
    Any,
    None,
    /// Those whose keys, in the join's order, lie so, and may be in a set.
    Keys(Vec<Between>, Option<Arc<KeySet>>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Between {
    least: ScalarValue,
    greatest: ScalarValue,
    /// All that there are, if they are few, and the key is the only one.
    values: Option<ArrayRef>,
}

impl RuntimeFilter {
    /// What a join knows by now.
    ///
    /// # Errors
    /// Those of the expression.
    pub fn learned(filter: &DynamicFilterPhysicalExpr) -> Result<Self> {
        let keys: Vec<_> = filter.children().into_iter().cloned().collect();
        Ok(Self::of(&filter.current()?, &keys))
    }

    /// As DataFusion writes it (`hash_join/shared_bounds.rs` of 55.2). What is written otherwise says nothing.
    fn of(known: &Arc<dyn PhysicalExpr>, keys: &[Arc<dyn PhysicalExpr>]) -> Self {
        if let Some(literal) = known.downcast_ref::<Literal>() {
            let is_none = *literal.value() == ScalarValue::Boolean(Some(false));
            return if is_none { RuntimeFilter::None } else { RuntimeFilter::Any };
        }
        if let Some(case) = known.downcast_ref::<CaseExpr>() {
            // Which partition of the join a row goes to is another one here than there.
            let Some(rest) = case.else_expr() else { return RuntimeFilter::Any };
            let partitions = case.when_then_expr().iter().map(|(_, then)| then).chain([rest]);
            return partitions.map(|of| Self::of(of, keys)).fold(RuntimeFilter::None, Self::or);
        }
        let place = |operand: &Arc<dyn PhysicalExpr>| keys.iter().position(|key| key == operand);
        let mut bounds = vec![(None, None, None); keys.len()];
        for part in split_conjunction(known) {
            if let Some(binary) = part.downcast_ref::<BinaryExpr>()
                && let (Some(key), Some(bound)) =
                    (place(binary.left()), binary.right().downcast_ref::<Literal>())
            {
                match binary.op() {
                    Operator::GtEq => bounds[key].0 = Some(bound.value().clone()),
                    Operator::LtEq => bounds[key].1 = Some(bound.value().clone()),
                    _ => {}
                }
            } else if let Some(list) = part.downcast_ref::<InListExpr>()
                && let ([_], Some(key), false) = (keys, place(list.expr()), list.negated())
            {
                bounds[key].2 = values(list);
            }
        }
        // All keys that there are have a NULL, which equals nothing.
        if bounds.iter().any(|(least, ..)| least.as_ref().is_some_and(ScalarValue::is_null)) {
            return RuntimeFilter::None;
        }
        let is_short = |bound: &ScalarValue| bound.size() <= BOUND_BYTES_MAX;
        let between = bounds.into_iter().map(|(least, greatest, values)| {
            Some(Between { least: least.filter(is_short)?, greatest: greatest.filter(is_short)?, values })
        });
        between.collect::<Option<Vec<_>>>().map_or(RuntimeFilter::Any, |keys| RuntimeFilter::Keys(keys, None))
    }

    /// What a join has learned, of which `filter` tells a scan, with the keys that it has seen; `None` if these are not known.
    ///
    /// # Errors
    /// Those of the expressions.
    pub(crate) fn seen(
        filter: &DynamicFilterPhysicalExpr,
        seen: &KeysSeen,
        schema: &Schema,
    ) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let told = Self::learned(filter)?.of_seen(seen);
        let RuntimeFilter::Keys(_, Some(_)) = told else { return Ok(None) };
        let keys: Vec<_> = filter.children().into_iter().cloned().collect();
        let condition = told.condition(&keys, schema)?;
        Ok(Some(condition).filter(|condition| !condition.is::<Literal>()))
    }

    /// The same of the keys that a join has seen, if it is about keys: it is not before the join has seen all.
    #[must_use]
    pub fn of_seen(self, seen: &KeysSeen) -> Self {
        match self {
            RuntimeFilter::Keys(..) => match seen.key_set() {
                Some(set) => self.with(set),
                None => self,
            },
            other => other,
        }
    }

    fn with(self, set: Arc<KeySet>) -> Self {
        match self {
            RuntimeFilter::Keys(keys, _) => RuntimeFilter::Keys(keys, Some(set)),
            other => other,
        }
    }

    /// The same, counted in `room`, or what of it takes none.
    #[must_use]
    pub(crate) fn within(self, room: MemoryReservation) -> Self {
        match self {
            RuntimeFilter::Keys(keys, set) => {
                let set = set.and_then(|set| Arc::unwrap_or_clone(set).within(room));
                RuntimeFilter::Keys(keys, set.map(Arc::new))
            }
            other => other,
        }
    }

    /// Rows that pass either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (RuntimeFilter::Any, _) | (_, RuntimeFilter::Any) => RuntimeFilter::Any,
            (RuntimeFilter::None, other) | (other, RuntimeFilter::None) => other,
            (RuntimeFilter::Keys(left, of_left), RuntimeFilter::Keys(right, of_right))
                if left.len() == right.len() =>
            {
                let set = of_left.map(Arc::unwrap_or_clone).zip(of_right.map(Arc::unwrap_or_clone));
                let set = set.map(|(left, right)| Arc::new(left.or(right)));
                let keys = left.into_iter().zip(right).map(|(left, right)| left.or(right));
                let keys = keys.collect::<Option<Vec<_>>>();
                keys.map_or(RuntimeFilter::Any, |keys| RuntimeFilter::Keys(keys, set))
            }
            _ => RuntimeFilter::Any,
        }
    }

    /// As a condition on `columns` of `schema`, which have the keys.
    ///
    /// # Errors
    /// Those of the expressions.
    pub(crate) fn condition(
        &self,
        columns: &[Arc<dyn PhysicalExpr>],
        schema: &Schema,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let (keys, set) = match self {
            RuntimeFilter::Keys(keys, set) if keys.len() == columns.len() => (keys, set),
            RuntimeFilter::None => return Ok(lit(false)),
            _ => return Ok(lit(true)),
        };
        // Bits are quicker than a list.
        let is_sought = |values: &ArrayRef| match set {
            Some(set) if set.has_bits() => values.len() <= SOUGHT_MAX,
            _ => true,
        };
        let values = |key: &Between| key.values.clone().filter(is_sought);
        let mut parts = Vec::new();
        for (column, key) in columns.iter().zip(keys) {
            if column.data_type(schema)? != key.least.data_type() {
                return Ok(lit(true));
            }
            for (operator, bound) in [(Operator::GtEq, &key.least), (Operator::LtEq, &key.greatest)] {
                let compared = BinaryExpr::new(Arc::clone(column), operator, lit(bound.clone()));
                parts.push(Arc::new(compared) as Arc<dyn PhysicalExpr>);
            }
            if let Some(values) = values(key) {
                let list = InListExpr::try_new_from_array(Arc::clone(column), values, false, schema)?;
                parts.push(Arc::new(list));
            }
        }
        if let Some(set) = set
            && keys.iter().all(|key| values(key).is_none())
        {
            parts.push(Arc::new(MayBeIn { keys: columns.to_vec(), set: Arc::clone(set) }));
        }
        Ok(conjunction(parts))
    }

    /// # Errors
    /// Those of Arrow's format.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let (kind, keys, set) = match self {
            RuntimeFilter::Any => (Kind::Any, &[][..], None),
            RuntimeFilter::None => (Kind::None, &[][..], None),
            RuntimeFilter::Keys(keys, set) => (Kind::Keys, keys.as_slice(), set.as_deref()),
        };
        let has_values = keys.iter().any(|key| key.values.is_some());
        let columns = keys.iter().map(Between::to_array).collect::<Result<Vec<_>>>()?;
        let fields = columns.iter().map(|column| Field::new("", column.data_type().clone(), true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let keys = match columns.is_empty() {
            true => Vec::new(),
            false => ipc::to_bytes(&RecordBatch::try_new(schema, columns)?)?,
        };
        let (set, first, in_all) = set.map_or((&[][..], None, 0), KeySet::parts);
        let in_all = in_all as u64;
        Ok(Told { kind: kind as i32, has_values, keys, first, in_all, set: set.to_vec() }.encode_to_vec())
    }

    /// What [`to_bytes`](Self::to_bytes) made.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn from_bytes(bytes: &[u8]) -> oribi_types::Result<Self> {
        let damaged = |why: &dyn std::fmt::Display| Error::corrupt(format!("a runtime filter: {why}"));
        let told = Told::decode(bytes).map_err(|e| damaged(&e))?;
        match Kind::try_from(told.kind) {
            Ok(Kind::Any) => return Ok(RuntimeFilter::Any),
            Ok(Kind::None) => return Ok(RuntimeFilter::None),
            Ok(Kind::Keys) => {}
            Err(error) => return Err(damaged(&error)),
        }
        let batch = ipc::from_bytes(&told.keys)?;
        let is_read = batch.num_rows() >= 2 && (!told.has_values || batch.num_columns() == 1);
        if !is_read || batch.columns().iter().any(|column| column.null_count() > 0) {
            return Err(damaged(&"its keys have no bounds"));
        }
        let keys = batch.columns().iter().map(|column| Between::from_array(column, told.has_values));
        let set = match told.set.is_empty() {
            true => None,
            false => {
                let set = KeySet::from_parts(told.set, told.first, told.in_all as usize);
                Some(set.ok_or_else(|| damaged(&"its bits are none"))?)
            }
        };
        Ok(RuntimeFilter::Keys(keys.collect::<Result<_>>().map_err(|e| damaged(&e))?, set.map(Arc::new)))
    }
}

fn values(list: &InListExpr) -> Option<ArrayRef> {
    let values = list.list().iter().map(|value| Some(value.downcast_ref::<Literal>()?.value().clone()));
    let mut values = values.collect::<Option<Vec<_>>>()?;
    let mut seen = HashSet::new();
    values.retain(|value| seen.insert(value.clone()));
    ScalarValue::iter_to_array(values).ok().filter(|values| values.null_count() == 0 && are_few(values))
}

fn are_few(values: &ArrayRef) -> bool {
    values.len() <= VALUES_MAX && values.get_array_memory_size() <= VALUES_BYTES_MAX
}

impl Between {
    /// `None` if one cannot be compared with the other.
    fn or(self, other: Self) -> Option<Self> {
        let least = if self.least <= other.least { self.least.clone() } else { other.least.clone() };
        let greatest = if self.greatest >= other.greatest { &self.greatest } else { &other.greatest };
        let greatest = greatest.clone();
        self.least.partial_cmp(&other.least)?;
        self.greatest.partial_cmp(&other.greatest)?;
        let values = self.values.zip(other.values);
        let values = values.and_then(|(left, right)| concat(&[left.as_ref(), right.as_ref()]).ok());
        let values = values.filter(are_few);
        Some(Between { least, greatest, values })
    }

    /// Its bounds, and behind them its values.
    fn to_array(&self) -> Result<ArrayRef> {
        let bounds = ScalarValue::iter_to_array([self.least.clone(), self.greatest.clone()])?;
        match &self.values {
            Some(values) => Ok(concat(&[bounds.as_ref(), values.as_ref()])?),
            None => Ok(bounds),
        }
    }

    fn from_array(array: &ArrayRef, has_values: bool) -> Result<Self> {
        let bound = |place| ScalarValue::try_from_array(array, place);
        let values = has_values.then(|| array.slice(2, array.len() - 2)).filter(are_few);
        Ok(Between { least: bound(0)?, greatest: bound(1)?, values })
    }
}

#[derive(Clone, PartialEq, Message)]
struct Told {
    #[prost(enumeration = "Kind", tag = "1")]
    kind: i32,
    #[prost(bool, tag = "2")]
    has_values: bool,
    /// In Arrow's format of streams: a column for each key.
    #[prost(bytes = "vec", tag = "3")]
    keys: Vec<u8>,
    /// Of the set: the integer of its first bit, if it is of integers; how many keys there will be in all; and its bits, if there are some.
    #[prost(sint64, optional, tag = "4")]
    first: Option<i64>,
    #[prost(uint64, tag = "5")]
    in_all: u64,
    #[prost(bytes = "vec", tag = "6")]
    set: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Kind {
    Any = 0,
    None = 1,
    Keys = 2,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::key_set::Codes;
    use super::*;
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::DataType;
    use datafusion::physical_expr::expressions::Column;

    pub(crate) fn between(least: i64, greatest: i64, values: Option<Vec<i64>>) -> RuntimeFilter {
        let values = values.map(|values| Arc::new(Int64Array::from(values)) as ArrayRef);
        RuntimeFilter::Keys(vec![Between { least: least.into(), greatest: greatest.into(), values }], None)
    }

    fn key() -> Vec<Arc<dyn PhysicalExpr>> {
        vec![Arc::new(Column::new("k", 0))]
    }

    fn schema() -> Schema {
        Schema::new(vec![Field::new("k", DataType::Int64, true)])
    }

    #[test]
    fn what_is_written_is_read_again() {
        for filter in [
            RuntimeFilter::Any,
            RuntimeFilter::None,
            between(-7, 9, None),
            between(-7, 9, Some(vec![-7, 3, 9])),
        ] {
            assert_eq!(RuntimeFilter::from_bytes(&filter.to_bytes().unwrap()).unwrap(), filter);
            // A condition says what it was made from.
            let condition = filter.condition(&key(), &schema()).unwrap();
            assert_eq!(RuntimeFilter::of(&condition, &key()), filter);
            for codes in [Codes::Integers(vec![-7, 9]), Codes::Hashes(vec![7, 9])] {
                let with_set = filter.clone().with(Arc::new(KeySet::new(&[codes], 1000)));
                assert_eq!(RuntimeFilter::from_bytes(&with_set.to_bytes().unwrap()).unwrap(), with_set);
            }
        }
    }

    #[test]
    fn keys_that_are_all_null_want_nothing() {
        let null = lit(ScalarValue::Int64(None));
        let compared = |operator| -> Arc<dyn PhysicalExpr> {
            Arc::new(BinaryExpr::new(Arc::clone(&key()[0]), operator, Arc::clone(&null)))
        };
        let known = conjunction([compared(Operator::GtEq), compared(Operator::LtEq)]);
        assert_eq!(RuntimeFilter::of(&known, &key()), RuntimeFilter::None);
    }

    #[test]
    fn garbage_is_no_filter() {
        let filter = between(-7, 9, Some(vec![-7, 3, 9]));
        let shorter = [Some(RuntimeFilter::Any), Some(filter.clone())];
        for codes in [Codes::Integers(vec![-7, 3, 9]), Codes::Hashes(vec![7, 9])] {
            let bytes = filter.clone().with(Arc::new(KeySet::new(&[codes], 10))).to_bytes().unwrap();
            for at in 0..bytes.len() {
                let read = RuntimeFilter::from_bytes(&bytes[..at]).ok();
                assert!(read.is_none() || shorter.contains(&read), "cut at {at}: {read:?}");
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x15;
                let _ = RuntimeFilter::from_bytes(&damaged);
            }
        }
    }

    #[test]
    fn rows_of_all_tasks_pass() {
        let (any, none) = (RuntimeFilter::Any, RuntimeFilter::None);
        let (left, right) = (between(1, 5, Some(vec![1, 5])), between(3, 9, Some(vec![3, 9])));
        assert_eq!(left.clone().or(right), between(1, 9, Some(vec![1, 5, 3, 9])));
        assert_eq!(left.clone().or(between(0, 2, None)), between(0, 5, None));
        assert_eq!(left.clone().or(none.clone()), left);
        assert_eq!(left.clone().or(any.clone()), any);
        assert_eq!(none.clone().or(none.clone()), none);
        let other = ScalarValue::from("x");
        let other = Between { least: other.clone(), greatest: other, values: None };
        assert_eq!(left.or(RuntimeFilter::Keys(vec![other], None)), any);
    }

    #[test]
    fn many_keys_pass_by_a_set_of_them() {
        // Close together, and far apart.
        for apart in [3, 300] {
            let of = |from: i64| {
                let keys: Vec<i64> = (from..from + 5000).map(|n| apart * n).collect();
                let (least, greatest) = (keys[0], keys[4999]);
                between(least, greatest, None).with(Arc::new(KeySet::new(&[Codes::Integers(keys)], 10_000)))
            };
            let both = of(0).or(of(5000));
            let rows = Int64Array::from_iter_values(0..10_000 * apart);
            let rows = RecordBatch::try_from_iter([("k", Arc::new(rows) as ArrayRef)]).unwrap();
            let passed = |filter: &RuntimeFilter| {
                let passed = filter.condition(&key(), &schema()).unwrap().evaluate(&rows).unwrap();
                let passed = passed.into_array(rows.num_rows()).unwrap();
                passed.as_boolean().clone()
            };
            let of_both = passed(&both);
            assert!((0..rows.num_rows()).step_by(apart as usize).all(|key| of_both.value(key)));
            let wrong = of_both.true_count() - 10_000;
            let allowed = if apart == 3 { 0 } else { rows.num_rows() / 15 };
            assert!(wrong <= allowed && (apart == 3 || wrong > 0), "{wrong} of {}", rows.num_rows());
            // Of one that has none, all between its bounds may be there.
            for filter in [both.clone().or(between(1, 2, None)), between(1, 2, None).or(both)] {
                assert_eq!(passed(&filter).true_count(), rows.num_rows() - apart as usize + 1);
            }
        }
    }

    #[test]
    fn few_values_are_sought_and_more_have_bits() {
        for count in [20, 21] {
            let keys: Vec<i64> = (0..count).collect();
            let set = KeySet::new(&[Codes::Integers(keys.clone())], keys.len());
            let filter = between(0, count - 1, Some(keys)).with(Arc::new(set));
            let condition = filter.condition(&key(), &schema()).unwrap();
            let parts = split_conjunction(&condition);
            assert_eq!(parts.iter().any(|part| part.is::<InListExpr>()), count == 20);
            assert_eq!(parts.iter().any(|part| part.is::<MayBeIn>()), count == 21);
        }
    }
}
