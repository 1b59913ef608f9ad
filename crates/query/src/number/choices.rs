//! `nullif`, `greatest` and `least`, which compare values as the operators do, and `coalesce`.
//!
//! DataFusion's `nullif` gives the type that both arguments have in common, and its comparison of floats goes by their bits.
//! Its `coalesce` becomes a `CASE` with each argument twice, so that a plan doubles with each level of a nest.

use super::functions::same_floats;
use super::guards::may_be_wrong;
use super::planned;
use crate::functions::is_json;
use arrow::array::{Array, ArrayRef, BooleanArray, make_comparator};
use arrow::compute::kernels::{cmp, zip::zip};
use arrow::compute::{SortOptions, and, cast, is_not_null, is_null, nullif, or};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::functions::core::{coalesce, greatest, least};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

pub(super) fn functions() -> Vec<ScalarUDF> {
    let signature = || Signature::user_defined(Volatility::Immutable);
    let extreme = |inner: Arc<ScalarUDF>, least| {
        ScalarUDF::new_from_impl(Extreme { inner, least, signature: signature() })
    };
    vec![
        ScalarUDF::new_from_impl(Coalesce { inner: coalesce() }),
        ScalarUDF::new_from_impl(NullIf { signature: signature() }),
        extreme(greatest(), false),
        extreme(least(), true),
    ]
}

fn answer(args: &ScalarFunctionArgs, answer: ArrayRef) -> Result<ColumnarValue> {
    let constant = args.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
    Ok(match constant {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&answer, 0)?),
        false => ColumnarValue::Array(answer),
    })
}

/// The first argument, unless it equals the second; of the type in which numbers are compared, if an operator has but one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NullIf {
    signature: Signature,
}

/// The type in which values of two types are compared.
fn common(left: &DataType, right: &DataType) -> Option<DataType> {
    match (left, right) {
        (left, right) if left == right => Some(left.clone()),
        (left, right)
            if left.is_numeric() && right.is_numeric() && (left.is_floating() || right.is_floating()) =>
        {
            Some(DataType::Float64)
        }
        (left, right) => comparison_coercion(left, right),
    }
}

impl ScalarUDFImpl for NullIf {
    fn name(&self) -> &str {
        "nullif"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [left, right] = arguments else { return plan_err!("nullif takes two arguments") };
        let kept = left.is_integer() && right.is_integer() || left.is_floating() && right.is_floating();
        match common(left, right) {
            Some(_) if left.is_null() => Ok(vec![right.clone(), right.clone()]),
            Some(common) if *left == DataType::Float32 && right.is_numeric() => {
                Ok(vec![left.clone(), common])
            }
            Some(common) if left.is_numeric() && right.is_numeric() && !kept => Ok(vec![common; 2]),
            Some(_) => Ok(vec![left.clone(), right.clone()]),
            None => plan_err!("nullif of {left} and {right}"),
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [left, right] = arrays.as_slice() else { return plan_err!("nullif takes two arguments") };
        let Some(common) = common(left.data_type(), right.data_type()) else {
            return plan_err!("nullif of {} and {}", left.data_type(), right.data_type());
        };
        let compared = |array: &ArrayRef| {
            Ok::<_, datafusion::error::DataFusionError>(same_floats(&cast(array, &common)?))
        };
        let (one, two) = (compared(left)?, compared(right)?);
        let equal = if common.is_nested() { equal_nested(&one, &two)? } else { cmp::eq(&one, &two)? };
        answer(&args, nullif(left, &equal)?)
    }
}

fn equal_nested(left: &ArrayRef, right: &ArrayRef) -> Result<BooleanArray> {
    let compare = make_comparator(left, right, SortOptions::default())?;
    let equal = |i| (left.is_valid(i) && right.is_valid(i)).then(|| compare(i, i).is_eq());
    Ok((0..left.len()).map(equal).collect())
}

/// `greatest`, or `least`: of equal ones the first.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    inner: Arc<ScalarUDF>,
    least: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Extreme {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if !args.return_field.data_type().is_floating() {
            return self.inner.invoke_with_args(args);
        }
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [first, others @ ..] = arrays.as_slice() else { return plan_err!("{} of nothing", self.name()) };
        let mut kept = Arc::clone(first);
        for other in others {
            let (one, two) = (same_floats(&kept), same_floats(other));
            let better = if self.least { cmp::lt(&two, &one)? } else { cmp::gt(&two, &one)? };
            let better = and(&is_not_null(other)?, &or(&is_null(&kept)?, &known(&better))?)?;
            kept = zip(&better, other, &kept)?;
        }
        answer(&args, kept)
    }
}

/// The first argument that is not null.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Coalesce {
    inner: Arc<ScalarUDF>,
}

/// Arguments up to this size are computed twice.
const TWICE_MAX: usize = 8;

/// The largest argument that is written twice in a plan because what follows must not be computed where it is not null.
const GUARDING_MAX: usize = 2000;

/// The number of an expression's parts, up to `max`.
fn parts(expr: &Expr, max: usize) -> usize {
    let mut parts = 0;
    let counted = expr.apply(|_| {
        parts += 1;
        Ok(if parts < max { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    counted.map_or(max, |_| parts)
}

impl ScalarUDFImpl for Coalesce {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    /// JSON is a text that says so.
    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let json = args.arg_fields.iter().find(|field| is_json(field)).map(|f| f.metadata().clone());
        let field = self.inner.return_field_from_args(args)?;
        Ok(match json {
            Some(metadata) => Arc::new(field.as_ref().clone().with_metadata(metadata)),
            None => field,
        })
    }

    /// A `CASE`, unless it would be much larger: then all arguments are computed, if none can fail.
    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let guards = &args[..args.len().saturating_sub(1)];
        let largest = guards.iter().map(|guard| parts(guard, GUARDING_MAX)).max().unwrap_or(0);
        if largest <= TWICE_MAX {
            return self.inner.inner().simplify(args, info);
        }
        if !args.iter().skip(1).any(may_be_wrong) {
            return Ok(ExprSimplifyResult::Original(args));
        }
        if largest < GUARDING_MAX {
            return self.inner.inner().simplify(args, info);
        }
        Err(planned(
            super::error("54001", "COALESCE is nested too deeply").with_hint("nest it in its last argument"),
        ))
    }

    fn short_circuits(&self) -> bool {
        true
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(first) = args.args.first() else { return plan_err!("coalesce of nothing") };
        let mut found = first.to_array(args.number_rows)?;
        for other in &args.args[1..] {
            if found.null_count() == 0 {
                break;
            }
            let missing = is_null(&found)?;
            found = match other {
                ColumnarValue::Scalar(value) => zip(&missing, &value.to_scalar()?, &found)?,
                ColumnarValue::Array(array) => zip(&missing, array, &found)?,
            };
        }
        answer(&args, found)
    }
}

/// Null taken for false.
fn known(condition: &BooleanArray) -> BooleanArray {
    let values = match condition.nulls() {
        Some(nulls) => condition.values() & nulls.inner(),
        None => condition.values().clone(),
    };
    BooleanArray::new(values, None)
}
