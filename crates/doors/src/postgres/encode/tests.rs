use super::*;
use arrow::array::{
    ArrayRef, BooleanArray, Date64Array, DictionaryArray, DurationSecondArray, Float64Array, Int8Array,
    Int32Array, LargeStringArray, ListArray, NullArray, StructArray, TimestampNanosecondArray,
    TimestampSecondArray, UInt64Array,
};
use arrow::datatypes::{Field, Int32Type, i256};
use std::sync::Arc;

/// `array` as a column of its own type.
fn encoder(array: &ArrayRef, format: Format) -> Result<Column, SqlError> {
    Column::new(array, &Field::new("c", array.data_type().clone(), true), format)
}

/// The values of a column as the client gets them.
fn texts(array: ArrayRef) -> Vec<Option<String>> {
    let column = encoder(&array, Format::Text).unwrap();
    let text = |row| {
        let mut out = Vec::new();
        column.write(row, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    (0..array.len()).map(|row| (!column.is_null(row)).then(|| text(row))).collect()
}

fn text(array: impl Array + 'static) -> String {
    texts(Arc::new(array)).remove(0).unwrap()
}

fn binary(array: impl Array + 'static) -> Vec<u8> {
    let array: ArrayRef = Arc::new(array);
    let column = encoder(&array, Format::Binary).unwrap();
    let mut out = Vec::new();
    column.write(0, &mut out).unwrap();
    out
}

#[test]
fn json_computed_by_a_query_is_its_text() {
    let json = [(oribi_types::schema::TYPE_METADATA.to_owned(), "json".to_owned())];
    let field = Field::new("c", DataType::Utf8, true).with_metadata(json.into_iter().collect());
    assert_eq!(crate::postgres::types::wire_type(&field).oid, crate::postgres::types::oid::JSON);
    let parts = StringArray::from(vec![Some(r#"{"b":5}"#), Some("null"), None]);
    let shown = texts(Arc::new(parts.clone()));
    assert_eq!(shown, [Some(r#"{"b":5}"#.to_owned()), Some("null".to_owned()), None]);
    assert_eq!(binary(parts), br#"{"b":5}"#);
}

#[test]
fn jsonb_has_a_version_before_its_text_where_it_is_binary() {
    let jsonb = ["oribi.type", "oribi.jsonb"].map(|key| (key.to_owned(), "json".to_owned()));
    let field = Field::new("c", DataType::Utf8, true).with_metadata(jsonb.into_iter().collect());
    let array = field.clone().with_data_type(DataType::new_list(DataType::Utf8, true));
    assert_eq!(crate::postgres::types::wire_type(&field).oid, crate::postgres::types::oid::JSONB);
    assert_eq!(crate::postgres::types::wire_type(&array).oid, 3807);
    let parts: ArrayRef = Arc::new(StringArray::from(vec!["[1]"]));
    for (format, written) in [(Format::Text, &b"[1]"[..]), (Format::Binary, b"\x01[1]")] {
        let mut out = Vec::new();
        Column::new(&parts, &field, format).unwrap().write(0, &mut out).unwrap();
        assert_eq!(out, written);
    }
    let list = ListArray::new(
        Arc::new(Field::new("item", DataType::Utf8, true)),
        OffsetBuffer::new(vec![0, 1].into()),
        parts,
        None,
    );
    let mut out = Vec::new();
    Column::new(&(Arc::new(list) as ArrayRef), &array, Format::Binary).unwrap().write(0, &mut out).unwrap();
    assert!(out.ends_with(b"\0\0\0\x04\x01[1]"));
}

#[test]
fn text_is_what_postgres_prints() {
    assert_eq!(text(BooleanArray::from(vec![true])), "t");
    assert_eq!(text(Int8Array::from(vec![-7])), "-7");
    assert_eq!(text(UInt64Array::from(vec![u64::MAX])), "18446744073709551615");
    assert_eq!(text(Float64Array::from(vec![1e20])), "1e+20");
    assert_eq!(text(Decimal128Array::from(vec![-5]).with_precision_and_scale(10, 2).unwrap()), "-0.05");
    let wide =
        Decimal256Array::from(vec![i256::from_i128(i128::MAX)]).with_precision_and_scale(76, 3).unwrap();
    assert_eq!(text(wide), "170141183460469231731687303715884105.727");
    assert_eq!(text(LargeStringArray::from(vec!["é"])), "é");
    assert_eq!(text(BinaryArray::from(vec![&b"\x00\xff"[..]])), "\\x00ff");
    assert_eq!(text(Date64Array::from(vec![86_400_000])), "1970-01-02");
    assert_eq!(text(TimestampNanosecondArray::from(vec![1_500_000_000])), "1970-01-01 00:00:01.5");
    assert_eq!(text(TimestampSecondArray::from(vec![0]).with_timezone("+02:00")), "1970-01-01 00:00:00+00");
    assert_eq!(text(Time64MicrosecondArray::from(vec![3_723_040_000])), "01:02:03.04");
    assert_eq!(text(DurationSecondArray::from(vec![90])), "00:01:30");
    let words = DictionaryArray::<Int32Type>::from_iter([Some("b"), None, Some("b")]);
    assert_eq!(texts(Arc::new(words)), [Some("b".to_owned()), None, Some("b".to_owned())]);
    assert_eq!(texts(Arc::new(NullArray::new(1))), [None]);
}

#[test]
fn intervals_have_signs_where_they_change() {
    let interval = |months, days, nanoseconds| {
        text(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano { months, days, nanoseconds }]))
    };
    assert_eq!(interval(14, 3, 14_706_789_000_000), "1 year 2 mons 3 days 04:05:06.789");
    assert_eq!(interval(-1, 2, 0), "-1 mons +2 days");
    assert_eq!(interval(0, -1, 1_000_000_000), "-1 days +00:00:01");
    assert_eq!(interval(0, 0, -1_000_000), "-00:00:00.001");
    assert_eq!(interval(0, 0, 0), "00:00:00");
}

#[test]
fn lists_are_arrays_in_both_formats() {
    let numbers = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1), None])]);
    assert_eq!(text(numbers.clone()), "{1,NULL}");
    let expected: Vec<u8> = [1, 1, 23, 2, 1, 4, 1, -1].into_iter().flat_map(i32::to_be_bytes).collect();
    assert_eq!(binary(numbers), expected);
    let empty = ListArray::from_iter_primitive::<Int32Type, _, _>([Some::<[Option<i32>; 0]>([])]);
    assert_eq!((text(empty.clone()).as_str(), binary(empty).len()), ("{}", 12));

    let words: ArrayRef =
        Arc::new(StringArray::from(vec!["plain", "two words", "", "null", "a\"b\\c", "{}"]));
    let item = Arc::new(Field::new("item", DataType::Utf8, true));
    let list = ListArray::new(item, OffsetBuffer::new(vec![0, 6].into()), words, None);
    assert_eq!(text(list), r#"{plain,"two words","","null","a\"b\\c","{}"}"#);
}

#[test]
fn binary_is_big_endian_and_counts_from_2000() {
    assert_eq!(binary(Int32Array::from(vec![258])), [0, 0, 1, 2]);
    assert_eq!(binary(Date32Array::from(vec![10_958])), [0, 0, 0, 1]);
    assert_eq!(binary(TimestampSecondArray::from(vec![946_684_801])), 1_000_000_i64.to_be_bytes());
    assert_eq!(binary(StringViewArray::from(vec!["hi"])), b"hi");
    assert_eq!(binary(Float64Array::from(vec![1.5])), 1.5_f64.to_be_bytes());
    let uuid = FixedSizeBinaryArray::try_from_iter([[7_u8; 16]].into_iter()).unwrap();
    assert_eq!(binary(uuid), [7; 16]);
}

#[test]
fn what_has_no_counterpart_is_shown_as_text_in_both_formats() {
    let fields = vec![Field::new("a", DataType::Int32, true)];
    let of =
        |fields: Vec<Field>| StructArray::new(fields.into(), vec![Arc::new(Int32Array::from(vec![1]))], None);
    assert_eq!(text(of(fields.clone())), "{a: 1}");
    assert_eq!(binary(of(fields)), b"{a: 1}");
}

#[test]
fn a_batch_of_another_type_than_described_is_cast_or_refused() {
    let array: ArrayRef = Arc::new(Int32Array::from(vec![7]));
    let column = Column::new(&array, &Field::new("c", DataType::Int64, true), Format::Binary).unwrap();
    let mut out = Vec::new();
    column.write_with_length(0, &mut out).unwrap();
    assert_eq!(out, [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7]);
    let far: ArrayRef = Arc::new(TimestampSecondArray::from(vec![i64::MAX]));
    let error = encoder(&far, Format::Text).err().unwrap();
    assert_eq!(error.sqlstate, Some("22003"));
}
