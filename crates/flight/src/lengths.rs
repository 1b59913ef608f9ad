//! How long values are where each stands for itself: in views and dictionaries many may be one, until they are brought to another form.

use crate::status::unsupported;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use oribi_session::sql::SqlError;
use oribi_types::ErrorKind;

/// Bytes of a value of no width of its own, and besides those of one that has none.
const BESIDES_BYTES: usize = 16;

/// The bytes of a value, about.
pub fn value_bytes(array: &dyn Array, at: usize) -> usize {
    use DataType as D;
    if let Some(width) = width(array.data_type()) {
        return width;
    }
    if array.is_null(at) {
        return BESIDES_BYTES;
    }
    let all = |values: &dyn Array| (0..values.len()).map(|n| value_bytes(values, n)).sum();
    let bytes: usize = match array.data_type() {
        D::Utf8 => array.as_string::<i32>().value_length(at) as usize,
        D::LargeUtf8 => array.as_string::<i64>().value_length(at) as usize,
        D::Binary => array.as_binary::<i32>().value_length(at) as usize,
        D::LargeBinary => array.as_binary::<i64>().value_length(at) as usize,
        D::Utf8View => array.as_string_view().value(at).len(),
        D::BinaryView => array.as_binary_view().value(at).len(),
        D::Dictionary(..) => {
            let one = array.slice(at, 1);
            let one = one.as_any_dictionary();
            match one.values().is_empty() {
                true => 0,
                false => value_bytes(one.values(), one.normalized_keys()[0]),
            }
        }
        D::List(_) => all(&array.as_list::<i32>().value(at)),
        D::LargeList(_) => all(&array.as_list::<i64>().value(at)),
        D::FixedSizeList(..) => all(&array.as_fixed_size_list().value(at)),
        D::Struct(_) => array.as_struct().columns().iter().map(|column| value_bytes(column, at)).sum(),
        _ => array.slice(at, 1).to_data().get_slice_memory_size().unwrap_or_default(),
    };
    BESIDES_BYTES.saturating_add(bytes)
}

/// The bytes of each value of a type, if they are all as long.
pub fn width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Null | DataType::Boolean => Some(1),
        DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
        other => other.primitive_width(),
    }
}

/// # Errors
/// 54000 if the dictionaries of a batch were longer than so many bytes, with each value in its row; 0A000 for values that SQL has none of.
pub fn check_dictionaries(batch: &RecordBatch, bytes_max: usize) -> Result<(), SqlError> {
    let mut bytes = 0_usize;
    for column in batch.columns() {
        let DataType::Dictionary(_, values) = column.data_type() else { continue };
        if values.is_nested() || matches!(**values, DataType::RunEndEncoded(..)) {
            return Err(unsupported(format!("a column of type {}", column.data_type())));
        }
        let dictionary = column.as_any_dictionary();
        if dictionary.values().is_empty() {
            continue;
        }
        for (row, key) in dictionary.normalized_keys().into_iter().enumerate() {
            if column.is_valid(row) {
                bytes = bytes.saturating_add(value_bytes(dictionary.values(), key));
            }
        }
        if bytes > bytes_max {
            let message = format!("rows with what their dictionaries say are longer than {bytes_max} bytes");
            return Err(SqlError::new(ErrorKind::TooLarge, message).with_hint("send shorter batches"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, DictionaryArray, Int64Array, ListArray, StringViewArray};
    use arrow::datatypes::{Int8Type, Int64Type};
    use std::sync::Arc;

    #[test]
    fn a_value_that_many_share_counts_for_each() {
        let long = "a".repeat(1000);
        let dictionary: DictionaryArray<Int8Type> =
            [Some(long.as_str()); 8].into_iter().chain([None]).collect();
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), Some(2)])]);
        let view = StringViewArray::from(vec![long.as_str()]);
        assert_eq!(value_bytes(&view, 0), BESIDES_BYTES + 1000);
        assert_eq!(value_bytes(&list, 0), BESIDES_BYTES + 16);
        assert_eq!(value_bytes(&Int64Array::from(vec![1]), 0), 8);
        assert_eq!(value_bytes(&dictionary, 0), 2 * BESIDES_BYTES + 1000);
        assert_eq!(value_bytes(&dictionary, 8), BESIDES_BYTES);
        let batch = RecordBatch::try_from_iter([("a", Arc::new(dictionary) as ArrayRef)]).unwrap();
        let bytes = 8 * (BESIDES_BYTES + 1000);
        assert!(check_dictionaries(&batch, bytes).is_ok());
        assert_eq!(check_dictionaries(&batch, bytes - 1).unwrap_err().sqlstate(), "54000");
        assert!(check_dictionaries(&batch.slice(1, 8), bytes - 1).is_ok());
    }
}
