//! `x = ANY (array)`: true if an element is equal, null if none is and one might be, else false.

use arrow::array::{Array, AsArray, BooleanBuilder, Scalar};
use arrow::compute::kernels::cmp::eq;
use arrow::datatypes::{DataType, Field};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

pub(super) const NAME: &str = "is_any_of";

/// DataFusion's test whether an array has an element, as the comparison that it stands for.
pub(super) fn compared(call: ScalarFunction) -> Expr {
    let Ok([array, element]) = <[Expr; 2]>::try_from(call.args) else {
        unreachable!("the call was checked: it has two arguments")
    };
    let elements = match &array {
        Expr::ScalarFunction(made) if made.func.name() == "make_array" => Some(made.args.clone()),
        Expr::Literal(ScalarValue::List(list), _) if list.is_valid(0) => {
            let items = list.value(0);
            let literal = |n| ScalarValue::try_from_array(&items, n).map(|value| Expr::Literal(value, None));
            (0..items.len()).map(literal).collect::<Result<Vec<_>>>().ok()
        }
        _ => None,
    };
    match elements {
        Some(list) if !list.is_empty() => {
            Expr::InList(InList { expr: Box::new(element), list, negated: false })
        }
        _ => {
            let function = Arc::new(IsAnyOf::function());
            Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![array, element]))
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct IsAnyOf {
    signature: Signature,
}

impl IsAnyOf {
    pub(super) fn function() -> ScalarUDF {
        ScalarUDF::new_from_impl(IsAnyOf { signature: Signature::user_defined(Volatility::Immutable) })
    }
}

impl ScalarUDFImpl for IsAnyOf {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The elements and the value come to one type.
    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [DataType::List(item), value] = arguments else {
            return plan_err!("{NAME} needs an array and a value");
        };
        match comparison_coercion(item.data_type(), value) {
            Some(one) => Ok(vec![DataType::List(Arc::new(Field::new("item", one.clone(), true))), one]),
            None => plan_err!("{NAME} needs a value of the type of the elements"),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let (arrays, values) = (args.args[0].to_array(rows)?, args.args[1].to_array(rows)?);
        let arrays = arrays.as_list::<i32>();
        let mut answers = BooleanBuilder::with_capacity(rows);
        for row in 0..rows {
            if arrays.is_null(row) {
                answers.append_null();
                continue;
            }
            let elements = arrays.value(row);
            let equal = eq(&elements, &Scalar::new(values.slice(row, 1)))?;
            let found = equal.iter().any(|equal| equal == Some(true));
            let unknown = !found && equal.null_count() > 0;
            answers.append_option((!unknown).then_some(found));
        }
        let answers = answers.finish();
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&answers, 0)?));
        }
        Ok(ColumnarValue::Array(Arc::new(answers)))
    }
}
