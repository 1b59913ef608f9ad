//! `+ x`, which is `x` if that is a number: DataFusion's planner takes it away from all types.

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// What the sign is called; no client can call it.
pub(crate) const NAME: &str = "unary_plus";

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct UnaryPlus {
    signature: Signature,
}

impl UnaryPlus {
    pub(super) fn new() -> Self {
        UnaryPlus { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for UnaryPlus {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [one] => Ok(one.clone()),
            _ => plan_err!("{NAME} has one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&args.arg_fields[0]))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args.swap_remove(0))
    }
}
