//! Functions that give the value that they are given, and stand for what DataFusion does not know of it.

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// `+ x`, which is `x` if that is a number: DataFusion's planner takes the sign away from all types. No client can call it.
pub(crate) const UNARY_PLUS: &str = "unary_plus";

/// The function of `+ x`.
pub(super) fn unary_plus() -> ScalarUDF {
    function(UNARY_PLUS, false)
}

/// The function `name`, whose value may be null though that of its argument is not.
pub(super) fn or_null(name: &'static str) -> ScalarUDF {
    function(name, true)
}

/// A value in a list of `VALUES`, as it was written.
pub(crate) const CELL: &str = "value_as_written";

/// The function around a value in a list of `VALUES`.
pub(crate) fn cell() -> ScalarUDF {
    function(CELL, false)
}

/// The function around a key of a sort, which DataFusion takes for a column of its input no more.
pub(crate) fn sort_key() -> ScalarUDF {
    function("sort_key", false)
}

fn function(name: &'static str, nullable: bool) -> ScalarUDF {
    let signature = Signature::any(1, Volatility::Immutable);
    ScalarUDF::new_from_impl(Itself { name, nullable, signature })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Itself {
    name: &'static str,
    nullable: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Itself {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [one] => Ok(one.clone()),
            _ => plan_err!("{} has one argument", self.name),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = &args.arg_fields[0];
        Ok(match self.nullable {
            true => Arc::new(field.as_ref().clone().with_nullable(true)),
            false => Arc::clone(field),
        })
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args.swap_remove(0))
    }
}
