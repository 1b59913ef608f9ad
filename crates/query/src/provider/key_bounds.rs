//! The range of keys that filters leave: equality on leading columns of the primary key, and bounds on the next.

use arrow::array::Array;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::{Between, Expr, Operator, lit};
use oribi_engine::{KeyRange, Table};
use oribi_types::batch::value_at;
use oribi_types::key::{after_prefix, encode_component};
use oribi_types::partition::KeyFilter;
use oribi_types::{ColumnType, Schema, Value};
use std::ops::Bound;

/// What filters say of the primary key.
#[derive(Clone, Debug)]
pub(super) struct KeyBounds {
    /// Encoded keys.
    pub keys: KeyRange,
    /// So many leading columns of the key have one value each.
    pub equal: usize,
    /// Those values, encoded.
    prefix: Vec<u8>,
    /// What is left of each column of the key, whichever comes before it.
    filter: KeyFilter,
    /// The filters that made the bounds, for display.
    pub filters: Vec<String>,
    /// Whether they are all filters there are: every row of the range passes.
    pub exact: bool,
}

/// A column of the key beside a constant.
struct Comparison {
    /// Position among the columns of the key.
    component: usize,
    op: Operator,
    value: Value,
}

impl Comparison {
    fn narrow(&self, filter: &mut KeyFilter) {
        let value = || self.value.clone();
        let (lower, upper) = match self.op {
            Operator::Eq => (Bound::Included(value()), Bound::Included(value())),
            Operator::GtEq => (Bound::Included(value()), Bound::Unbounded),
            Operator::Gt => (Bound::Excluded(value()), Bound::Unbounded),
            Operator::LtEq => (Bound::Unbounded, Bound::Included(value())),
            Operator::Lt => (Bound::Unbounded, Bound::Excluded(value())),
            _ => return,
        };
        filter.narrow(self.component, lower, upper);
    }
}

impl KeyBounds {
    pub fn of(schema: &Schema, filters: &[Expr]) -> Self {
        let comparisons: Vec<Vec<Comparison>> =
            filters.iter().map(|filter| comparisons(schema, filter).unwrap_or_default()).collect();
        let mut bounds = KeyBounds {
            keys: KeyRange::default(),
            equal: 0,
            prefix: Vec::new(),
            filter: KeyFilter::all(schema),
            filters: Vec::new(),
            exact: false,
        };
        comparisons.iter().flatten().for_each(|comparison| comparison.narrow(&mut bounds.filter));
        let mut used = vec![false; filters.len()];
        let last = schema.key().len() - 1;
        for component in 0..=last {
            let of_component = comparisons.iter().enumerate().flat_map(|(filter, comparisons)| {
                let of_component = comparisons.iter().filter(|c| c.component == component);
                of_component.map(move |comparison| (filter, comparison))
            });
            let mut equal = of_component.clone().filter(|(_, comparison)| comparison.op == Operator::Eq);
            if let Some((filter, comparison)) = equal.next() {
                encode_component(comparison.value.as_ref(), component == last, &mut bounds.prefix);
                bounds.equal += 1;
                used[filter] = true;
                continue;
            }
            bounds.keys = KeyRange::of_prefix(&bounds.prefix);
            for (filter, comparison) in of_component {
                bounds.narrow(comparison, component == last);
                used[filter] = true;
            }
            break;
        }
        if bounds.equal > last {
            bounds.keys = KeyRange::of_key(&bounds.prefix);
        }
        let shown = filters.iter().zip(&used).filter(|(_, used)| **used);
        bounds.filters = shown.map(|(filter, _)| filter.human_display().to_string()).collect();
        bounds.exact = used.iter().all(|used| *used);
        bounds
    }

    /// Those that were [made](Self::of) elsewhere, of which is known by which keys rows are read, and by which filters.
    pub fn received(schema: &Schema, keys: KeyRange, equal: usize, filters: Vec<String>) -> Self {
        let filter = KeyFilter::all(schema);
        KeyBounds { keys, equal, prefix: Vec::new(), filter, filters, exact: false }
    }

    /// Whether there are any.
    pub fn is_bounded(&self) -> bool {
        !self.filters.is_empty()
    }

    /// The tablets that rows can be in which pass the filters.
    pub fn tablets(&self, table: &Table) -> Vec<usize> {
        table.tablets_of(&self.filter)
    }

    /// Takes in a bound on the column that follows the prefix; `last`: it is the last of the key.
    fn narrow(&mut self, comparison: &Comparison, last: bool) {
        let mut at = self.prefix.clone();
        encode_component(comparison.value.as_ref(), last, &mut at);
        // The first key behind all those that have this value.
        let behind = |mut at: Vec<u8>| {
            if !last {
                return after_prefix(&at);
            }
            at.push(0);
            Some(at)
        };
        let KeyRange { from, to } = &mut self.keys;
        match comparison.op {
            Operator::GtEq => *from = at.max(std::mem::take(from)),
            Operator::Gt => match behind(at) {
                Some(at) => *from = at.max(std::mem::take(from)),
                None => *to = Some(Vec::new()),
            },
            Operator::Lt | Operator::LtEq => {
                let end = if comparison.op == Operator::Lt { Some(at) } else { behind(at) };
                *to = [to.take(), end].into_iter().flatten().min();
            }
            _ => {}
        }
    }
}

/// The comparisons of key columns with constants that `filter` is, all of one column; `None` if it is anything else.
fn comparisons(schema: &Schema, filter: &Expr) -> Option<Vec<Comparison>> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => Some(vec![
            comparison(schema, left, *op, right).or_else(|| comparison(schema, right, op.swap()?, left))?,
        ]),
        Expr::Between(Between { expr, negated: false, low, high }) => Some(vec![
            comparison(schema, expr, Operator::GtEq, low)?,
            comparison(schema, expr, Operator::LtEq, high)?,
        ]),
        // What `= true` and `= false` are simplified to.
        Expr::Column(_) => Some(vec![comparison(schema, filter, Operator::Eq, &lit(true))?]),
        Expr::Not(column) => Some(vec![comparison(schema, column, Operator::Eq, &lit(false))?]),
        _ => None,
    }
}

fn comparison(schema: &Schema, column: &Expr, op: Operator, constant: &Expr) -> Option<Comparison> {
    let (Expr::Column(column), Expr::Literal(constant, _)) = (column, constant) else { return None };
    let position = schema.columns().iter().position(|of| of.name == column.name)?;
    let component = schema.key().iter().position(|k| *k == position)?;
    let known = matches!(op, Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq);
    let value = value_of(constant, schema.columns()[position].column_type)?;
    known.then_some(Comparison { component, op, value })
}

/// The constant as a value of a column's type, if it is one.
fn value_of(constant: &ScalarValue, column_type: ColumnType) -> Option<Value> {
    let array = constant.to_array().ok()?;
    if *array.data_type() != column_type.arrow() || array.is_null(0) {
        return None;
    }
    Some(value_at(&array, column_type, 0).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::col;
    use oribi_types::schema::ColumnSpec;

    fn schema() -> Schema {
        let columns = vec![
            ColumnSpec::new("b", ColumnType::String).not_null(),
            ColumnSpec::new("n", ColumnType::Int64),
            ColumnSpec::new("a", ColumnType::Int32).not_null(),
        ];
        Schema::new(columns, &["a", "b"]).unwrap()
    }

    fn bounds(filters: &[Expr]) -> KeyBounds {
        KeyBounds::of(&schema(), filters)
    }

    fn text(text: &str) -> Expr {
        lit(ScalarValue::Utf8View(Some(text.into())))
    }

    #[test]
    fn leading_columns_with_one_value_and_bounds_on_the_next() {
        let all = bounds(&[]);
        assert!(!all.is_bounded() && all.exact && all.keys == KeyRange::default());
        let one = bounds(&[col("a").eq(lit(7))]);
        assert_eq!((one.equal, one.exact), (1, true));
        assert_eq!(one.keys, KeyRange::of_prefix(&[0x80, 0, 0, 7]));
        let both = bounds(&[col("b").lt_eq(text("x")), lit(7).eq(col("a")), col("n").gt(lit(1_i64))]);
        assert_eq!((both.equal, both.exact), (1, false));
        assert_eq!(both.keys.from, [0x80, 0, 0, 7]);
        assert_eq!(both.keys.to.as_deref(), Some(&b"\x80\0\0\x07x\0"[..]));
        let whole = bounds(&[col("a").eq(lit(7)), col("b").eq(text("x"))]);
        assert_eq!((whole.equal, whole.keys), (2, KeyRange::of_key(b"\x80\0\0\x07x")));
    }

    #[test]
    fn what_bounds_no_leading_column_leaves_all_keys() {
        for filters in [[col("b").eq(text("x"))], [col("a").not_eq(lit(7))], [col("a").eq(lit(7_i64))]] {
            let bounds = bounds(&filters);
            assert!(!bounds.is_bounded() && !bounds.exact, "{filters:?}");
            assert_eq!(bounds.keys, KeyRange::default());
        }
    }

    #[test]
    fn the_narrowest_bounds_count() {
        let filters = [col("a").between(lit(3), lit(9)), col("a").gt(lit(4)), col("a").lt(lit(8))];
        let narrow = bounds(&filters);
        assert_eq!(narrow.keys.from, [0x80, 0, 0, 5]);
        assert_eq!(narrow.keys.to.as_deref(), Some(&[0x80, 0, 0, 8][..]));
        assert!(bounds(&[col("a").gt(lit(i32::MAX))]).keys.is_empty());
        assert_eq!(bounds(&[col("a").lt_eq(lit(i32::MAX))]).keys, KeyRange::default());
    }
}
