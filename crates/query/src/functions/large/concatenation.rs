//! `||` of texts.

use super::arguments::Argument;
use super::{Grant, Size, repeated};
use arrow::array::{ArrayRef, AsArray};
use arrow::compute::kernels::concat_elements::concat_elements_string_view_array;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::{Arc, LazyLock};

/// The operator as a function, for what it makes may be larger than a text can be.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::functions) struct Concatenation {
    signature: Signature,
}

impl Concatenation {
    pub(in crate::functions) const NAME: &'static str = "||";

    /// `left || right`.
    pub(in crate::functions) fn of(left: Expr, right: Expr) -> Expr {
        static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
            let signature = Signature::user_defined(Volatility::Immutable);
            Arc::new(ScalarUDF::new_from_impl(Concatenation { signature }))
        });
        FUNCTION.call(vec![left, right])
    }
}

impl ScalarUDFImpl for Concatenation {
    fn name(&self) -> &str {
        Concatenation::NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        Ok(vec![DataType::Utf8View; arguments.len()])
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let sides = args.args.iter().map(Argument::of).collect::<Result<Vec<_>>>()?;
        let mut size = Size::default();
        let lengths = |argument: &Argument| -> Vec<usize> {
            argument.values.as_string_view().views().iter().map(|view| *view as u32 as usize).collect()
        };
        let [left, right] = [lengths(&sides[0]), lengths(&sides[1])];
        (0..rows).for_each(|row| size.push(left[sides[0].place(row)] + right[sides[1].place(row)]));
        let grant = Grant::of(self.name(), &args.config_options, size)?;
        grant.answer(constant, args.number_rows, || {
            let [left, right] = [spread(&sides[0], rows)?, spread(&sides[1], rows)?];
            let answers = concat_elements_string_view_array(left.as_string_view(), right.as_string_view())?;
            Ok(Arc::new(answers))
        })
    }
}

fn spread(argument: &Argument, rows: usize) -> Result<ArrayRef> {
    if argument.constant { repeated(&argument.values, rows) } else { Ok(Arc::clone(&argument.values)) }
}
