//! Variances, correlations and regressions of doubles, added up as PostgreSQL adds them: by Youngs and Cramer's updates,
//! in the order of the rows. [PostgreSQL `src/backend/utils/adt/float.c`, `float8_accum` and `float8_regr_accum`]

use super::{overflow, unsupported};
use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use arrow::error::ArrowError;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use std::collections::VecDeque;
use std::sync::Arc;

pub(super) fn aggregates() -> Vec<AggregateUDF> {
    let of = |(name, finish): &(&'static str, Finish), arity| {
        let signature = Signature::exact(vec![DataType::Float64; arity], Volatility::Immutable);
        AggregateUDF::new_from_impl(Statistic { name, finish: *finish, arity, signature })
    };
    OF_ONE.iter().map(|one| of(one, 1)).chain(OF_TWO.iter().map(|two| of(two, 2))).collect()
}

type Finish = fn(&Sums) -> Option<f64>;

const OF_ONE: &[(&str, Finish)] = &[
    ("var_pop", |s| s.of(1, s.xx / s.n)),
    ("var_samp", |s| s.of(2, s.xx / (s.n - 1.0))),
    ("variance", |s| s.of(2, s.xx / (s.n - 1.0))),
    ("stddev_pop", |s| s.of(1, (s.xx / s.n).sqrt())),
    ("stddev_samp", |s| s.of(2, (s.xx / (s.n - 1.0)).sqrt())),
    ("stddev", |s| s.of(2, (s.xx / (s.n - 1.0)).sqrt())),
];

const OF_TWO: &[(&str, Finish)] = &[
    (COUNT, |s| Some(s.n)),
    ("regr_sxx", |s| s.of(1, s.xx)),
    ("regr_syy", |s| s.of(1, s.yy)),
    ("regr_sxy", |s| s.of(1, s.xy)),
    ("regr_avgx", |s| s.of(1, s.x / s.n)),
    ("regr_avgy", |s| s.of(1, s.y / s.n)),
    ("covar_pop", |s| s.of(1, s.xy / s.n)),
    ("covar_samp", |s| s.of(2, s.xy / (s.n - 1.0))),
    ("corr", |s| s.of(1, s.xy / (s.xx * s.yy).sqrt()).filter(|_| s.xx != 0.0 && s.yy != 0.0)),
    ("regr_r2", |s| {
        let r2 = if s.yy == 0.0 { 1.0 } else { (s.xy * s.xy) / (s.xx * s.yy) };
        s.of(1, r2).filter(|_| s.xx != 0.0)
    }),
    ("regr_slope", |s| s.of(1, s.xy / s.xx).filter(|_| s.xx != 0.0)),
    ("regr_intercept", |s| s.of(1, (s.y - s.x * s.xy / s.xx) / s.n).filter(|_| s.xx != 0.0)),
];

/// The one whose result is a `bigint`.
const COUNT: &str = "regr_count";

#[derive(Debug)]
struct Statistic {
    name: &'static str,
    finish: Finish,
    /// Of two arguments the first is y.
    arity: usize,
    signature: Signature,
}

impl PartialEq for Statistic {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Statistic {}

impl std::hash::Hash for Statistic {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Statistic {
    fn accumulator(
        &self,
        args: &AccumulatorArgs<'_>,
        within: Option<VecDeque<Pair>>,
    ) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return Err(unsupported(&format!("{} of DISTINCT values", self.name)));
        }
        let count = self.name == COUNT;
        Ok(Box::new(Running { sums: Sums::default(), finish: self.finish, arity: self.arity, count, within }))
    }
}

impl AggregateUDFImpl for Statistic {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(if self.name == COUNT { DataType::Int64 } else { DataType::Float64 })
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.accumulator(&args, None)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.accumulator(&args, Some(VecDeque::new()))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field = |name| Arc::new(Field::new(format_state_name(args.name, name), DataType::Float64, true));
        Ok(Sums::NAMES.into_iter().map(field).collect())
    }
}

/// y and x; of one argument, 0 and x.
type Pair = (f64, f64);

/// How many values, their sums, and the sums of the products of their distances from the averages.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    n: f64,
    x: f64,
    xx: f64,
    y: f64,
    yy: f64,
    xy: f64,
}

impl Sums {
    const NAMES: [&str; 6] = ["n", "x", "xx", "y", "yy", "xy"];

    /// `value`, if there are as many values as it needs.
    fn of(&self, needed: u32, value: f64) -> Option<f64> {
        (self.n >= f64::from(needed)).then_some(value)
    }

    /// One value more. With one argument the last digit is another than that of two with the same values: PostgreSQL
    /// divides there, and here multiplies.
    fn add(&mut self, (y, x): Pair, arity: usize) -> Result<(), ArrowError> {
        let before = *self;
        self.n += 1.0;
        self.x += x;
        self.y += y;
        if before.n == 0.0 {
            self.xx = if x.is_finite() { 0.0 } else { f64::NAN };
            self.yy = if y.is_finite() { 0.0 } else { f64::NAN };
            self.xy = self.xx + self.yy;
            return Ok(());
        }
        let (dx, dy) = (x * self.n - self.x, y * self.n - self.y);
        if arity == 1 {
            self.xx += dx * dx / (self.n * before.n);
        } else {
            let scale = 1.0 / (self.n * before.n);
            self.xx += dx * dx * scale;
            self.yy += dy * dy * scale;
            self.xy += dx * dy * scale;
        }
        let finite = |sum: f64, value: f64| !sum.is_infinite() && !value.is_infinite();
        let (finite_x, finite_y) = (finite(before.x, x), finite(before.y, y));
        let beyond = |sum: f64| sum.is_infinite();
        if (beyond(self.x) || beyond(self.xx)) && finite_x
            || (beyond(self.y) || beyond(self.yy)) && finite_y
            || beyond(self.xy) && finite_x && finite_y
        {
            return Err(overflow());
        }
        for sum in [&mut self.xx, &mut self.yy, &mut self.xy] {
            *sum = if sum.is_infinite() { f64::NAN } else { *sum };
        }
        Ok(())
    }

    /// The sums of both.
    fn merge(self, other: Sums) -> Result<Sums, ArrowError> {
        if self.n == 0.0 || other.n == 0.0 {
            return Ok(if self.n == 0.0 { other } else { self });
        }
        let n = self.n + other.n;
        let (dx, dy) = (self.x / self.n - other.x / other.n, self.y / self.n - other.y / other.n);
        let both = |a: f64, b: f64, more: f64| {
            let sum = a + b + more;
            if sum.is_infinite() && !a.is_infinite() && !b.is_infinite() { Err(overflow()) } else { Ok(sum) }
        };
        let weight = self.n * other.n;
        Ok(Sums {
            n,
            x: both(self.x, other.x, 0.0)?,
            xx: both(self.xx, other.xx, weight * dx * dx / n)?,
            y: both(self.y, other.y, 0.0)?,
            yy: both(self.yy, other.yy, weight * dy * dy / n)?,
            xy: both(self.xy, other.xy, weight * dx * dy / n)?,
        })
    }
}

#[derive(Debug)]
struct Running {
    sums: Sums,
    finish: Finish,
    arity: usize,
    count: bool,
    /// The values of a frame that others leave: they are added up anew, as PostgreSQL does.
    within: Option<VecDeque<Pair>>,
}

impl Running {
    fn pairs(&self, values: &[ArrayRef]) -> Vec<Pair> {
        let first = values[0].as_primitive::<Float64Type>();
        match self.arity {
            1 => first.iter().flatten().map(|x| (0.0, x)).collect(),
            _ => {
                let second = values[1].as_primitive::<Float64Type>();
                first.iter().zip(second.iter()).filter_map(|(y, x)| Some((y?, x?))).collect()
            }
        }
    }
}

impl Accumulator for Running {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let pairs = self.pairs(values);
        match &mut self.within {
            Some(within) => within.extend(pairs),
            None => pairs.into_iter().try_for_each(|pair| self.sums.add(pair, self.arity))?,
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let gone = self.pairs(values).len();
        if let Some(within) = &mut self.within {
            within.drain(..gone.min(within.len()));
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        self.within.is_some()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if let Some(within) = &self.within {
            self.sums = Sums::default();
            within.iter().try_for_each(|pair| self.sums.add(*pair, self.arity))?;
        }
        let value = (self.finish)(&self.sums);
        Ok(if self.count {
            ScalarValue::Int64(value.map(|count| count as i64))
        } else {
            ScalarValue::Float64(value.map(|value| if value.is_nan() { f64::NAN } else { value }))
        })
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.within.as_ref().map_or(0, |within| within.capacity() * size_of::<Pair>())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let Sums { n, x, xx, y, yy, xy } = self.sums;
        Ok([n, x, xx, y, yy, xy].into_iter().map(|sum| ScalarValue::Float64(Some(sum))).collect())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let sums: Vec<&Float64Array> = states.iter().map(|sums| sums.as_primitive::<Float64Type>()).collect();
        let [n, x, xx, y, yy, xy] = sums.as_slice() else {
            return datafusion::common::internal_err!("{} sums of six", sums.len());
        };
        for i in 0..n.len() {
            let other = Sums {
                n: n.value(i),
                x: x.value(i),
                xx: xx.value(i),
                y: y.value(i),
                yy: yy.value(i),
                xy: xy.value(i),
            };
            self.sums = self.sums.merge(other)?;
        }
        Ok(())
    }
}
