//! `ARRAY(SELECT …)` is the aggregate of the rows, and an array without elements where there are none.

use arrow::array::{Array, AsArray, ListArray, new_empty_array};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// An array in place of null.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ArrayOrEmpty {
    signature: Signature,
}

impl ArrayOrEmpty {
    pub(super) fn new() -> Self {
        ArrayOrEmpty { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for ArrayOrEmpty {
    fn name(&self) -> &str {
        "array_or_empty"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&args.arg_fields[0]))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = matches!(args.args[0], ColumnarValue::Scalar(_));
        let array = args.args[0].to_array(if scalar { 1 } else { args.number_rows })?;
        let Some(list) = array.as_list_opt::<i32>() else {
            return plan_err!("array_or_empty needs an array");
        };
        let DataType::List(item) = list.data_type() else {
            return plan_err!("array_or_empty needs an array");
        };
        // The elements anew: below a null there may be some.
        let lengths =
            (0..list.len()).map(|row| if list.is_null(row) { 0 } else { list.value_length(row) as usize });
        let offsets = OffsetBuffer::from_lengths(lengths);
        let values: Vec<_> =
            (0..list.len()).filter(|row| list.is_valid(*row)).map(|row| list.value(row)).collect();
        let values = match values.as_slice() {
            [] => new_empty_array(item.data_type()),
            values => arrow::compute::concat(&values.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>())?,
        };
        let filled = Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, None)?);
        if scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(filled.as_ref(), 0)?));
        }
        Ok(ColumnarValue::Array(filled))
    }
}
