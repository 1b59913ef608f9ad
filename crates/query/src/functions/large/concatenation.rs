//! `||` of texts.

use super::arguments::Argument;
use super::{Grant, Size};
use arrow::array::{Array, ArrayRef, AsArray, StringBuilder, StringViewArray};
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::fmt::Write;
use std::sync::{Arc, LazyLock};

/// The operator as a function, for what it makes may be larger than a text can be.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::functions) struct Concatenation {
    signature: Signature,
}

impl Concatenation {
    pub(in crate::functions) const NAME: &'static str = "||";

    pub(in crate::functions) fn function() -> ScalarUDF {
        ScalarUDF::new_from_impl(Concatenation { signature: Signature::user_defined(Volatility::Immutable) })
    }

    /// `left || right`. A chain is one call of many arguments: a call in a call would be typed, named and copied anew for
    /// each.
    pub(in crate::functions) fn of(left: Expr, right: Expr) -> Expr {
        static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(Concatenation::function()));
        let mut texts = match left {
            Expr::ScalarFunction(chain) if chain.func.name() == Concatenation::NAME => chain.args,
            left => vec![left],
        };
        texts.push(right);
        FUNCTION.call(texts)
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
        let texts = args.args.iter().map(Argument::of).collect::<Result<Vec<_>>>()?;
        let mut lengths = vec![0; rows];
        for text in &texts {
            let views = text.values.as_string_view().views();
            lengths.iter_mut().enumerate().for_each(|(row, length)| {
                *length += views[text.place(row)] as u32 as usize;
            });
        }
        let mut size = Size::default();
        lengths.into_iter().for_each(|length| size.push(length));
        let grant = Grant::of(self.name(), &args.config_options, size)?;
        grant.answer(constant, args.number_rows, || concatenated(&texts, rows, size.batch))
    }
}

/// The texts of each row one after the other, null if one of them is, in one buffer of `bytes`.
fn concatenated(texts: &[Argument], rows: usize, bytes: usize) -> Result<ArrayRef> {
    let parts: Vec<_> = texts.iter().map(|text| (text, text.values.as_string_view())).collect();
    let mut answers = StringBuilder::with_capacity(rows, bytes);
    for row in 0..rows {
        if parts.iter().any(|(text, values)| values.is_null(text.place(row))) {
            answers.append_null();
            continue;
        }
        for (text, values) in &parts {
            answers.write_str(values.value(text.place(row)))?;
        }
        answers.append_value("");
    }
    Ok(Arc::new(StringViewArray::from(&answers.finish())))
}
