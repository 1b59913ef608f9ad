//! What Kudu's clients say of a column or a table and expect to be told again, though it means nothing here: the length of a
//! `VARCHAR`, to which clients cut what they write, how Kudu would encode and compress cells on disk, whose a table is.

use oribi_kudu::column::{ColumnTypeAttributes, DataType};
use oribi_kudu::messages::common::{ColumnSchema, ColumnSchemaDelta};
use oribi_types::schema::Attributes;
use oribi_types::{Column, ColumnType, Error, Result};

const VARCHAR_LENGTH: &str = "kudu.varchar_length";
const ENCODING: &str = "kudu.encoding";
const COMPRESSION: &str = "kudu.compression";
const BLOCK_SIZE: &str = "kudu.block_size";
const COMMENT: &str = "kudu.comment";
const OWNER: &str = "kudu.owner";

/// Bytes of the owner and the comment of a table; Kudu's limit for names and comments (`--max_identifier_length`,
/// `--max_table_comment_length`).
pub(super) const TEXT_BYTES_MAX: usize = 256;

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
    with(attributes, changes)
}

/// Those of a table of which a client says this. What it leaves out stays.
///
/// # Errors
/// `Invalid` for a text that is too long.
pub(super) fn of_table(
    attributes: &Attributes,
    owner: Option<&str>,
    comment: Option<&str>,
) -> Result<Attributes> {
    for (what, text) in [("owner", owner), ("comment", comment)] {
        if text.is_some_and(|text| text.len() > TEXT_BYTES_MAX) {
            return Err(Error::invalid(format!(
                "invalid table {what}: longer than maximum permitted length {TEXT_BYTES_MAX}"
            )));
        }
    }
    Ok(with(attributes, [(OWNER, owner.map(str::to_owned)), (COMMENT, comment.map(str::to_owned))]))
}

/// Whose a table is; nobody's, if none of Kudu's clients made it.
pub(super) fn owner(attributes: &Attributes) -> Option<String> {
    attributes.get(OWNER).cloned()
}

pub(super) fn comment(attributes: &Attributes) -> Option<String> {
    attributes.get(COMMENT).cloned()
}

/// An empty text takes an attribute away.
fn with<const N: usize>(attributes: &Attributes, changes: [(&str, Option<String>); N]) -> Attributes {
    let mut changed = attributes.clone();
    for (name, value) in changes {
        match value {
            None => {}
            Some(nothing) if nothing.is_empty() => drop(changed.remove(name)),
            Some(value) => drop(changed.insert(name.to_owned(), value)),
        }
    }
    changed
}

/// A column with these, and nothing else.
pub(super) fn to_message(attributes: &Attributes) -> ColumnSchema {
    ColumnSchema {
        encoding: number(attributes, ENCODING),
        compression: number(attributes, COMPRESSION),
        cfile_block_size: number(attributes, BLOCK_SIZE),
        comment: comment(attributes),
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
