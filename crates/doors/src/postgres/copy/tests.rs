use super::*;
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use oribi_session::sql::{CopyFormat, CopyStatement, SqlError};
use std::sync::Arc;

fn text() -> CopyStatement {
    CopyStatement {
        to_stdout: false,
        format: CopyFormat::Text,
        header: false,
        delimiter: b'\t',
        null: "\\N".to_owned(),
        quote: b'"',
        escape: b'"',
    }
}

fn csv() -> CopyStatement {
    CopyStatement { format: CopyFormat::Csv, delimiter: b',', null: String::new(), ..text() }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8View, true),
    ]))
}

fn rows(batch: &RecordBatch) -> Vec<(i64, Option<String>)> {
    let ids = batch.column(0).as_primitive::<Int64Type>();
    let names = batch.column(1).as_string_view();
    (0..batch.num_rows()).map(|i| (ids.value(i), names.iter().nth(i).flatten().map(str::to_owned))).collect()
}

/// Reads `data` in one piece and in pieces of every small size: the rows must not depend on it.
fn read(options: &CopyStatement, data: &[u8]) -> Result<Vec<(i64, Option<String>)>, SqlError> {
    let read_in = |piece: usize| {
        let mut reader = CopyReader::new(options, &schema(), 1 << 20)?;
        let mut all = Vec::new();
        for part in data.chunks(piece) {
            reader.feed(part);
            while let Some(batch) = reader.next_batch()? {
                all.extend(rows(&batch));
            }
        }
        all.extend(reader.finish()?.iter().flat_map(rows));
        Ok(all)
    };
    let whole = read_in(data.len().max(1));
    for piece in 1..8 {
        match (&whole, read_in(piece)) {
            (Ok(whole), Ok(pieces)) => assert_eq!(*whole, pieces),
            (Err(whole), Err::<_, SqlError>(pieces)) => {
                assert_eq!(whole.error.message(), pieces.error.message())
            }
            (whole, pieces) => panic!("{whole:?} but in pieces of {piece} {pieces:?}"),
        }
    }
    whole
}

fn row(id: i64, name: &str) -> (i64, Option<String>) {
    (id, Some(name.to_owned()))
}

#[test]
fn text_escapes_nulls_and_its_end() {
    let data = b"1\tplain\n2\t\\N\n3\ttab\\tline\\nback\\\\\n4\t\\x41\\102\\q\r\n5\tbroken\\\nline\n6\t\n\\.\n7\tafter the end\n";
    assert_eq!(
        read(&text(), data).unwrap(),
        [
            row(1, "plain"),
            (2, None),
            row(3, "tab\tline\nback\\"),
            row(4, "ABq"),
            row(5, "broken\nline"),
            row(6, ""),
        ]
    );
}

#[test]
fn csv_quotes_hold_breaks_and_nulls_are_unquoted() {
    let options = CopyStatement { header: true, ..csv() };
    let data = b"id,name\n1,plain\n2,\n3,\"\"\n4,\"a \"\"quote\"\", a comma\nand a break\"\n5,\"x\"y\"z\"";
    assert_eq!(
        read(&options, data).unwrap(),
        [row(1, "plain"), (2, None), row(3, ""), row(4, "a \"quote\", a comma\nand a break"), row(5, "xyz")]
    );
    let backslash = CopyStatement { escape: b'\\', ..csv() };
    assert_eq!(read(&backslash, b"1,\"a \\\" b \\\\ \\n\"\n").unwrap(), [row(1, "a \" b \\ \\n")]);
}

#[test]
fn errors_name_line_and_column() {
    let message = |options: &CopyStatement, data: &[u8]| {
        let error = read(options, data).unwrap_err();
        (error.sqlstate.unwrap_or("-"), error.error.message().to_owned())
    };
    let (state, text_error) = message(&text(), b"1\ta\nx\tb\n");
    assert_eq!(state, "22P02");
    assert!(text_error.starts_with("line 2: column \"id\": invalid input syntax"), "{text_error}");
    assert_eq!(
        message(&text(), b"1\ta\tb\n"),
        ("22P04", "line 1: extra data after last expected column".into())
    );
    assert_eq!(message(&text(), b"1\n"), ("22P04", "line 1: missing data for column \"name\"".into()));
    assert_eq!(
        message(&csv(), b"1,a\n2,\"open\n"),
        ("22P04", "line 2: unterminated CSV quoted field".into())
    );
    assert_eq!(message(&text(), b"1\t\xff\n").0, "22P02");
}

#[test]
fn an_endless_line_is_refused_before_it_fills_memory() {
    let mut reader = CopyReader::new(&text(), &schema(), 100).unwrap();
    reader.feed(&[b'1'; 101]);
    assert!(reader.next_batch().unwrap_err().error.message().contains("limit of 100 bytes"));
}

#[test]
fn full_batches_are_handed_on_before_the_end() {
    let mut reader = CopyReader::new(&text(), &schema(), 1 << 20).unwrap();
    let mut data = Vec::new();
    for i in 0..10_000 {
        data.extend_from_slice(format!("{i}\tx\n").as_bytes());
    }
    reader.feed(&data);
    assert_eq!(reader.next_batch().unwrap().unwrap().num_rows(), 8192);
    assert!(reader.next_batch().unwrap().is_none());
    assert_eq!(reader.finish().unwrap().unwrap().num_rows(), 10_000 - 8192);
    assert!(reader.finish().unwrap().is_none());
}
