//! What Kudu's clients say of a column and expect to be told again, though it means nothing here: the length of a `VARCHAR`, to
//! which clients cut what they write, and how Kudu would encode and compress cells on disk.

use oribi_kudu::column::{ColumnTypeAttributes, DataType};
use oribi_kudu::messages::common::{ColumnSchema, ColumnSchemaDelta};
use oribi_types::schema::Attributes;
use oribi_types::{Column, ColumnType};

const VARCHAR_LENGTH: &str = "kudu.varchar_length";
const ENCODING: &str = "kudu.encoding";
const COMPRESSION: &str = "kudu.compression";
const BLOCK_SIZE: &str = "kudu.block_size";
const COMMENT: &str = "kudu.comment";

/// Those of a column as a client wants it.
pub(super) fn from_message(column: &ColumnSchema) -> Attributes {
    let varchar = column.data_type == i32::from(DataType::Varchar);
    let length = column.type_attributes.as_ref().and_then(|attributes| attributes.length).filter(|_| varchar);
    let text = |number: Option<i32>| number.map(|number| number.to_string());
    let attributes = [
        (VARCHAR_LENGTH, text(length)),
        (ENCODING, text(column.encoding.filter(|encoding| *encoding != 0))),
        (COMPRESSION, text(column.compression.filter(|compression| *compression != 0))),
        (BLOCK_SIZE, text(column.cfile_block_size.filter(|bytes| *bytes != 0))),
        (COMMENT, column.comment.clone().filter(|comment| !comment.is_empty())),
    ];
    attributes.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Those of a column after a change.
pub(super) fn altered(attributes: &Attributes, delta: &ColumnSchemaDelta) -> Attributes {
    let number = |number: Option<i32>| {
        number.map(|number| if number == 0 { String::new() } else { number.to_string() })
    };
    let changes = [
        (ENCODING, number(delta.encoding)),
        (COMPRESSION, number(delta.compression)),
        (BLOCK_SIZE, number(delta.block_size)),
        (COMMENT, delta.new_comment.clone()),
    ];
    let mut altered = attributes.clone();
    for (name, value) in changes {
        match value {
            None => {}
            Some(nothing) if nothing.is_empty() => drop(altered.remove(name)),
            Some(value) => drop(altered.insert(name.to_owned(), value)),
        }
    }
    altered
}

/// A column with these, and nothing else.
pub(super) fn to_message(attributes: &Attributes) -> ColumnSchema {
    ColumnSchema {
        encoding: number(attributes, ENCODING),
        compression: number(attributes, COMPRESSION),
        cfile_block_size: number(attributes, BLOCK_SIZE),
        comment: attributes.get(COMMENT).cloned(),
        ..ColumnSchema::default()
    }
}

/// The data type of a column as clients are told, and what belongs to it.
pub(super) fn data_type(column: &Column) -> (DataType, Option<ColumnTypeAttributes>) {
    let length = number(&column.attributes, VARCHAR_LENGTH);
    if column.column_type == ColumnType::String && length.is_some() {
        return (DataType::Varchar, Some(ColumnTypeAttributes { length, ..ColumnTypeAttributes::default() }));
    }
    let (data_type, attributes) = DataType::of(column.column_type);
    (data_type, attributes.precision.is_some().then_some(attributes))
}

fn number(attributes: &Attributes, name: &str) -> Option<i32> {
    attributes.get(name)?.parse().ok()
}
