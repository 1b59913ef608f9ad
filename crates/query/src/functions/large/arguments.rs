//! How large arguments are.

use arrow::array::{Array, ArrayRef, AsArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::ColumnarValue;

/// The bytes of all values of an array, each counted as if nothing of it were shared.
pub(super) fn bytes_of(array: &dyn Array) -> usize {
    let of_views = |views: &[u128]| views.iter().map(|view| *view as u32 as usize).sum::<usize>();
    let views = array.len() * size_of::<u128>();
    match array.data_type() {
        DataType::Utf8View => views + of_views(array.as_string_view().views()),
        DataType::BinaryView => views + of_views(array.as_binary_view().views()),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets();
            let (first, last) = (offsets[0] as usize, offsets[list.len()] as usize);
            size_of_val(offsets) + bytes_of(list.values().slice(first, last - first).as_ref())
        }
        _ => array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_buffer_memory_size()),
    }
}

/// One argument, of which a constant is one row.
pub(super) struct Argument {
    pub(super) values: ArrayRef,
    pub(super) constant: bool,
}

impl Argument {
    pub(super) fn of(value: &ColumnarValue) -> Result<Self> {
        Ok(match value {
            ColumnarValue::Scalar(value) => Argument { values: value.to_array()?, constant: true },
            ColumnarValue::Array(array) => Argument { values: array.clone(), constant: false },
        })
    }

    /// The bytes of its values, a constant's once for each row.
    pub(super) fn bytes(&self, rows: usize) -> usize {
        let bytes = bytes_of(self.values.as_ref());
        if self.constant { bytes.saturating_mul(rows) } else { bytes }
    }

    /// Where the value of a row is.
    pub(super) fn place(&self, row: usize) -> usize {
        if self.constant { 0 } else { row }
    }

    /// How many elements the array of a row has, and how many bytes they are on the average.
    pub(super) fn elements(&self, row: usize) -> (usize, usize) {
        let Some(list) = self.values.as_list_opt::<i32>() else { return (0, 0) };
        let row = self.place(row);
        if list.is_null(row) { (0, 0) } else { (list.value_length(row) as usize, self.element_bytes()) }
    }

    fn element_bytes(&self) -> usize {
        let Some(list) = self.values.as_list_opt::<i32>() else { return 0 };
        bytes_of(list.values().as_ref()).div_ceil(list.values().len().max(1))
    }

    /// Its texts, without a copy of them; texts of what is written out otherwise.
    pub(super) fn texts(&self) -> Result<StringViewArray> {
        Ok(cast(&self.values, &DataType::Utf8View)?.as_string_view().clone())
    }
}
