//! Batches through both kinds of blocks, against bytes written by hand, and bytes that nobody sends.

use super::columnar::{ColumnSidecars, ColumnarBlock};
use super::rowwise::{PAD_UNIXTIME, RowwiseBlock, RowwiseLayout};
use super::*;
use crate::testing::{columns, rows};
use arrow::array::RecordBatchOptions;
use arrow::compute::cast;
use bytes::Bytes;
use oribi_types::batch::ColumnBuilder;
use oribi_types::{ColumnType, Value};
use proptest::collection::vec;
use proptest::prelude::*;

/// A batch as an encoder takes it.
fn batch(columns: &[WireColumn], rows: &[Vec<Value>]) -> RecordBatch {
    let arrays = columns.iter().enumerate().map(|(i, column)| {
        let mut builder = ColumnBuilder::new(column.column_type);
        rows.iter().for_each(|row| builder.push(row[i].as_ref()));
        builder.finish(column.column_type).unwrap()
    });
    let field = |c: &WireColumn| Field::new(&c.name, c.column_type.arrow(), c.nullable);
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::new(schema), arrays.collect(), &options).unwrap()
}

/// The same as a decoder makes it.
fn decoded(columns: &[WireColumn], batch: &RecordBatch) -> RecordBatch {
    let schema = arrow_schema(columns);
    let arrays = batch.columns().iter().zip(schema.fields());
    let arrays = arrays.map(|(array, field)| cast(array, field.data_type()).unwrap()).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema, arrays, &options).unwrap()
}

fn table() -> (Vec<WireColumn>, Vec<Vec<Value>>) {
    let columns = vec![
        WireColumn::new("k", ColumnType::Int16, false),
        WireColumn::new("s", ColumnType::String, true),
        WireColumn::new("b", ColumnType::Bool, true),
    ];
    let rows = vec![
        vec![Value::Int16(1), Value::String("abc".into()), Value::Null],
        vec![Value::Int16(-1), Value::Null, Value::Bool(true)],
    ];
    (columns, rows)
}

#[test]
fn a_rowwise_block_has_these_bytes() {
    let (columns, rows) = table();
    let layout = RowwiseLayout::new(columns.clone(), 0);
    let mut block = RowwiseBlock::default();
    block.append(&layout, &batch(&columns, &rows)).unwrap();
    let expected = b"\x01\0\0\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\x04\
        \xff\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x02";
    assert_eq!((block.num_rows(), layout.stride(), block.bytes()), (2, 20, 43));
    assert_eq!(block.into_sidecars(), (expected.to_vec(), b"abc".to_vec()));
}

#[test]
fn a_columnar_block_has_these_bytes() {
    let (columns, rows) = table();
    let mut block = ColumnarBlock::new(columns.clone());
    block.append(&batch(&columns, &rows)).unwrap();
    assert_eq!((block.num_rows(), block.bytes()), (2, 4 + 12 + 3 + 1 + 2 + 1));
    let sidecars = block.into_sidecars();
    assert_eq!(sidecars[0].data, b"\x01\0\xff\xff");
    assert_eq!((&sidecars[0].varlen, &sidecars[0].non_null), (&None, &None));
    assert_eq!(sidecars[1].data, b"\0\0\0\0\x03\0\0\0\x03\0\0\0");
    assert_eq!(sidecars[1].varlen.as_deref(), Some(&b"abc"[..]));
    assert_eq!(sidecars[1].non_null.as_deref(), Some(&[0b01][..]));
    assert_eq!(sidecars[2].data, [0, 1]);
    assert_eq!(sidecars[2].non_null.as_deref(), Some(&[0b10][..]));
}

#[test]
fn a_timestamp_is_padded_on_request() {
    let columns = vec![
        WireColumn::new("t", ColumnType::Timestamp, false),
        WireColumn::new("i", ColumnType::Int8, false),
    ];
    let layout = RowwiseLayout::new(columns.clone(), PAD_UNIXTIME);
    assert_eq!(layout.stride(), 17);
    let mut block = RowwiseBlock::default();
    let rows = batch(&columns, &[vec![Value::Timestamp(-2), Value::Int8(3)]]);
    block.append(&layout, &rows).unwrap();
    let (bytes, _) = block.into_sidecars();
    assert_eq!(bytes, [&[0xfe], &[0xff; 7][..], &[0; 8], &[3]].concat());
    assert_eq!(super::rowwise::decode(&layout, 1, &bytes, &Bytes::new()).unwrap(), rows);
}

#[test]
fn a_projection_of_no_columns_counts_rows() {
    let layout = RowwiseLayout::new(vec![], 0);
    let mut block = RowwiseBlock::default();
    block.append(&layout, &batch(&[], &[vec![], vec![], vec![]])).unwrap();
    assert_eq!((block.num_rows(), block.bytes()), (3, 0));
    assert_eq!(super::rowwise::decode(&layout, 3, b"", &Bytes::new()).unwrap().num_rows(), 3);
}

#[test]
fn a_batch_of_another_shape_is_refused() {
    let (columns, rows) = table();
    let layout = RowwiseLayout::new(columns[..2].to_vec(), 0);
    assert!(RowwiseBlock::default().append(&layout, &batch(&columns, &rows)).is_err());
    let other = RowwiseLayout::new(columns.iter().rev().cloned().collect(), 0);
    assert!(RowwiseBlock::default().append(&other, &batch(&columns, &rows)).is_err());
}

#[test]
fn a_block_of_another_length_is_refused() {
    let (columns, rows) = table();
    let layout = RowwiseLayout::new(columns.clone(), 0);
    let mut block = RowwiseBlock::default();
    block.append(&layout, &batch(&columns, &rows)).unwrap();
    let (bytes, indirect) = block.into_sidecars();
    let indirect = Bytes::from(indirect);
    let decode = |rows: usize, bytes: &[u8]| super::rowwise::decode(&layout, rows, bytes, &indirect);
    assert!(decode(2, &bytes).is_ok());
    assert!(decode(3, &bytes).is_err());
    assert!(decode(2, &bytes[1..]).is_err());
    assert!(decode(usize::MAX, &bytes).is_err());
    assert!(super::rowwise::decode(&layout, 2, &bytes, &indirect.slice(1..)).is_err());
}

fn columnar(columns: &[WireColumn], batches: &[RecordBatch]) -> (usize, Vec<ColumnSidecars<Bytes>>) {
    filled(ColumnarBlock::new(columns.to_vec()), batches)
}

fn filled(mut block: ColumnarBlock, batches: &[RecordBatch]) -> (usize, Vec<ColumnSidecars<Bytes>>) {
    batches.iter().for_each(|batch| block.append(batch).unwrap());
    let shared = |s: ColumnSidecars<Vec<u8>>| ColumnSidecars {
        data: s.data.into(),
        varlen: s.varlen.map(Bytes::from),
        non_null: s.non_null.map(Bytes::from),
    };
    (block.num_rows(), block.into_sidecars().into_iter().map(shared).collect())
}

#[test]
fn sidecars_of_another_length_are_refused() {
    let (columns, rows) = table();
    let (n, sidecars) = columnar(&columns, &[batch(&columns, &rows)]);
    assert!(super::columnar::decode(&columns, n, &sidecars).is_ok());
    let broken = |change: &dyn Fn(&mut Vec<ColumnSidecars<Bytes>>)| {
        let mut sidecars = sidecars.clone();
        change(&mut sidecars);
        super::columnar::decode(&columns, n, &sidecars).is_err()
    };
    assert!(broken(&|s| s[0].data = s[0].data.slice(1..)));
    assert!(broken(&|s| s[1].varlen = None));
    assert!(broken(&|s| s[1].varlen = Some(Bytes::from_static(b"ab"))));
    assert!(broken(&|s| s[1].varlen = Some(Bytes::from_static(b"ab\xff"))));
    assert!(broken(&|s| s[1].non_null = None));
    assert!(broken(&|s| s[1].data = Bytes::from_static(b"\x01\0\0\0\0\0\0\0\x03\0\0\0")));
    assert!(broken(&|s| {
        s.pop();
    }));
    assert!(super::columnar::decode(&columns, usize::MAX, &sidecars).is_err());
}

/// A row-wise block of one column of text that may be null, from offsets and lengths.
fn texts(cells: &[(u64, u64)], indirect: &'static [u8]) -> Result<RecordBatch> {
    let layout = RowwiseLayout::new(vec![WireColumn::new("s", ColumnType::String, true)], 0);
    let row = |(offset, len): &(u64, u64)| [&offset.to_le_bytes()[..], &len.to_le_bytes(), &[0]].concat();
    let rows = cells.iter().map(row).collect::<Vec<_>>().concat();
    super::rowwise::decode(&layout, cells.len(), &rows, &Bytes::from_static(indirect))
}

#[test]
fn cells_may_lie_in_any_order_but_not_have_more_bytes_than_there_are() {
    let column = [WireColumn::new("s", ColumnType::String, true)];
    let expected = |texts: &[&str]| {
        let rows: Vec<_> = texts.iter().map(|text| vec![Value::String((*text).into())]).collect();
        decoded(&column, &batch(&column, &rows))
    };
    assert_eq!(texts(&[(1, 2), (3, 0), (3, 1)], b"xaby\xff").unwrap(), expected(&["ab", "", "y"]));
    assert_eq!(texts(&[(2, 2), (0, 0), (0, 2)], b"xaby").unwrap(), expected(&["by", "", "xa"]));
    assert!(texts(&[(0, 4), (0, 1)], b"xaby").is_err());
    assert!(texts(&[(0, 4), (4, 1)], b"xaby").is_err());
    assert!(texts(&[(5, 0)], b"xaby").is_err());
}

/// Each half is none by itself, though the whole is.
#[test]
fn text_that_is_split_within_a_character_is_refused() {
    assert!(texts(&[(0, 1), (1, 1)], "é".as_bytes()).is_err());
    assert!(texts(&[(0, 2), (2, 1)], "éx".as_bytes()).is_ok());
    let columns = [WireColumn::new("s", ColumnType::String, false)];
    let decode = |column_type, ends: [u32; 3]| {
        let data: Vec<u8> = ends.into_iter().flat_map(u32::to_le_bytes).collect();
        let varlen = Some(Bytes::from_static("éx".as_bytes()));
        let sidecars = [ColumnSidecars { data: data.into(), varlen, non_null: None }];
        super::columnar::decode(&[WireColumn { column_type, ..columns[0].clone() }], 2, &sidecars)
    };
    assert!(decode(ColumnType::String, [0, 2, 3]).is_ok());
    for ends in
        [[0, 1, 3], [1, 2, 3], [0, 2, 4], [0, 3, 2], [0, 2, 1 << 31], [u32::MAX, 2, 3], [0, 1 << 31, 3]]
    {
        assert!(decode(ColumnType::String, ends).is_err(), "{ends:?}");
        assert!(decode(ColumnType::Json, ends).is_err(), "{ends:?}");
    }
    assert!(decode(ColumnType::Binary, [0, 1, 3]).is_ok());
    assert!(decode(ColumnType::Binary, [0, 1, 4]).is_err());
}

/// They lie in their views or behind each other, and are copied by steps or as they are.
#[test]
fn strings_of_all_lengths_come_back() {
    let columns = vec![WireColumn::new("s", ColumnType::String, true)];
    let text = |len: usize| "é".repeat(len / 2) + &"x".repeat(len % 2);
    let value = |len: usize| if len % 9 == 8 { Value::Null } else { Value::String(text(len)) };
    let rows: Vec<Vec<Value>> = (0..90).map(|len| vec![value(len)]).collect();
    let whole = batch(&columns, &rows);
    let layout = RowwiseLayout::new(columns.clone(), 0);
    let mut block = RowwiseBlock::default();
    block.append(&layout, &whole).unwrap();
    let (bytes, indirect) = block.into_sidecars();
    let (indirect, expected) = (Bytes::from(indirect), decoded(&columns, &whole));
    assert_eq!(super::rowwise::decode(&layout, rows.len(), &bytes, &indirect).unwrap(), expected);
    let (n, sidecars) = columnar(&columns, std::slice::from_ref(&whole));
    assert_eq!(super::columnar::decode(&columns, n, &sidecars).unwrap(), expected);
}

/// More than are written at once, in memory that is longer than they are; nulls are in a part of them.
#[test]
fn many_rows_come_back() {
    let columns = vec![
        WireColumn::new("i", ColumnType::Int32, true),
        WireColumn::new("s", ColumnType::String, true),
        WireColumn::new("t", ColumnType::Timestamp, false),
        WireColumn::new("u", ColumnType::String, false),
    ];
    let row = |n: i32| {
        let has = |every: i32| !(700..1_300).contains(&n) || n % every > 0;
        let text = |len: i32| Value::String("abcdefg".repeat(len as usize % 9));
        let or_null = |has: bool, value: Value| if has { value } else { Value::Null };
        vec![
            or_null(has(3), Value::Int32(n)),
            or_null(has(5), text(n)),
            Value::Timestamp(n.into()),
            text(n + 1),
        ]
    };
    let rows: Vec<Vec<Value>> = (0..2_000).map(row).collect();
    let whole = batch(&columns, &rows);
    for flags in [0, PAD_UNIXTIME] {
        let layout = RowwiseLayout::new(columns.clone(), flags);
        let before = vec![0x77; 1 << 20];
        let blocks = [RowwiseBlock::default(), RowwiseBlock::with_buffers(before.clone(), before)];
        let [bytes, in_used_memory] = blocks.map(|mut block| {
            block.append(&layout, &whole).unwrap();
            block.into_sidecars()
        });
        assert!(in_used_memory == bytes);
        let indirect = Bytes::from(bytes.1);
        let decoded_rows = super::rowwise::decode(&layout, rows.len(), &bytes.0, &indirect).unwrap();
        assert!(decoded_rows == decoded(&columns, &whole));
    }
}

proptest! {
    #[test]
    fn batches_come_back(
        (columns, rows) in rows(),
        cut: prop::sample::Index,
        flags in 0_u64..2,
        before in vec(any::<u8>(), 0..8_192),
    ) {
        let whole = batch(&columns, &rows);
        // In two pieces, so that the second begins within a byte of a bitmap.
        let cut = cut.index(rows.len() + 1);
        let pieces = [whole.slice(0, cut), whole.slice(cut, rows.len() - cut)];
        let layout = RowwiseLayout::new(columns.clone(), flags);
        // What was in the memory before shows nowhere.
        let blocks = [RowwiseBlock::default(), RowwiseBlock::with_buffers(before.clone(), before.clone())];
        let [bytes, in_used_memory] = blocks.map(|mut block| {
            pieces.iter().for_each(|piece| block.append(&layout, piece).unwrap());
            assert_eq!(block.num_rows(), rows.len());
            block.into_sidecars()
        });
        prop_assert_eq!(&in_used_memory, &bytes);
        let (indirect, expected) = (Bytes::from(bytes.1), decoded(&columns, &whole));
        let decoded = super::rowwise::decode(&layout, rows.len(), &bytes.0, &indirect);
        prop_assert_eq!(&decoded.unwrap(), &expected);
        let (n, sidecars) = columnar(&columns, &pieces);
        let in_used_memory = ColumnarBlock::with_buffers(columns.clone(), || before.clone());
        prop_assert_eq!(&filled(in_used_memory, &pieces).1, &sidecars);
        prop_assert_eq!(&super::columnar::decode(&columns, n, &sidecars).unwrap(), &expected);
    }

    #[test]
    fn any_bytes_are_a_batch_or_refused(
        (columns, n) in (columns(), 0_usize..4),
        bytes in vec(prop_oneof![3 => Just(0_u8), 1 => Just(1), 1 => any::<u8>()], 1300),
        indirect in vec(any::<u8>(), 0..4),
    ) {
        let indirect = Bytes::from(indirect);
        let layout = RowwiseLayout::new(columns.clone(), 0);
        let _ = super::rowwise::decode(&layout, n, &bytes[..n * layout.stride()], &indirect);
        let sidecars: Vec<_> = columns.iter().map(|column| {
            let slices = crate::cell::is_slice(column.column_type);
            let width = if slices { 4 * (n + 1) } else { crate::cell::cell_bytes(column.column_type) * n };
            ColumnSidecars {
                data: Bytes::copy_from_slice(&bytes[..width]),
                varlen: slices.then(|| indirect.clone()),
                non_null: column.nullable.then(|| Bytes::copy_from_slice(&bytes[..n.div_ceil(8)])),
            }
        }).collect();
        let _ = super::columnar::decode(&columns, n, &sidecars);
    }
}
