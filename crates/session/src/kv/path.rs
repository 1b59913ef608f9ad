//! Which table and key a key-value key means.
//!
//! `schema/table/rest`, where the schema has such a table, means a row of it; any other key means the document of that
//! name in `default.kv`. In a key-value table, `rest` is the document's key as it stands. In a typed table, `rest` is
//! one component for each key column, separated by `/`: the value's text (bytes for a binary column), in which `%XX`
//! stands for any byte and must for `/` and `%`.

use super::{BUCKET, KvLimits};
use oribi_engine::{Catalog, Table};
use oribi_types::key::encode_component;
use oribi_types::{Column, ColumnType, Error, Result, ValueRef, text};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A row of a key-value table.
    Document,
    /// A row of a typed table.
    Row,
}

/// What a key-value operation is about.
#[derive(Clone, Copy)]
pub struct Key<'a> {
    /// The table in which `name` names a document or row; `None`: `name` is a path.
    pub table: Option<&'a Arc<Table>>,
    pub name: &'a [u8],
}

impl std::fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let table = self.table.map(|table| (table.schema_name(), table.name()));
        f.debug_struct("Key").field("table", &table).field("name", &self.name.escape_ascii()).finish()
    }
}

impl<'a> From<&'a [u8]> for Key<'a> {
    fn from(path: &'a [u8]) -> Self {
        Key { table: None, name: path }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Key<'a> {
    fn from(path: &'a [u8; N]) -> Self {
        Key::from(&path[..])
    }
}

/// The row that a key means.
pub struct Target<'a> {
    pub table: &'a Arc<Table>,
    pub shape: Shape,
    key: EncodedKey<'a>,
}

enum EncodedKey<'a> {
    /// The end of the key that named it.
    Borrowed(&'a [u8]),
    /// Where it is in the scratch buffer that [`resolve`] was given.
    Scratch(Range<usize>),
}

impl<'a> Target<'a> {
    /// The encoded key, given the scratch buffer.
    pub fn key(&self, scratch: &'a [u8]) -> &'a [u8] {
        match &self.key {
            EncodedKey::Borrowed(key) => key,
            EncodedKey::Scratch(range) => &scratch[range.clone()],
        }
    }
}

/// Finds the row that `key` means. A document's encoded key is the end of its name; that of a row is appended to
/// `scratch`.
///
/// # Errors
/// `Invalid`, naming table and column, for a key that names a typed table but no row of it, or one without a primary key, and for one that is empty
/// or too long; `NotFound` if there is no `default.kv`.
pub fn resolve<'a>(
    tables: &'a Catalog,
    limits: &KvLimits,
    key: Key<'a>,
    scratch: &mut Vec<u8>,
) -> Result<Target<'a>> {
    let Key { table, name } = key;
    if name.is_empty() || name.len() > limits.key_bytes_max {
        return Err(Error::invalid(format!("a key has 1 to {} bytes", limits.key_bytes_max)));
    }
    let named = match table {
        Some(table) => Some((table, name)),
        None => split_table(tables, name),
    };
    let Some((table, rest)) = named else {
        let bucket = tables
            .bucket()
            .ok_or_else(|| Error::not_found(format!("table {}.{} does not exist", BUCKET.0, BUCKET.1)))?;
        return Ok(Target { table: bucket, key: EncodedKey::Borrowed(name), shape: Shape::Document });
    };
    if table.is_key_value() {
        return Ok(Target { table, key: EncodedKey::Borrowed(rest), shape: Shape::Document });
    }
    if table.schema_ref().row_id().is_some() || !table.is_shown() {
        let (schema, name) = (table.schema_name(), table.name());
        return Err(Error::invalid(format!("table {schema}.{name} has no primary key to name a row by")));
    }
    let start = scratch.len();
    encode_components(table, rest, scratch)
        .map_err(|e| e.context(format_args!("table {}.{}", table.schema_name(), table.name())))?;
    Ok(Target { table, key: EncodedKey::Scratch(start..scratch.len()), shape: Shape::Row })
}

/// The table that `key` begins with, and what follows it.
fn split_table<'c, 'k>(catalog: &'c Catalog, key: &'k [u8]) -> Option<(&'c Arc<Table>, &'k [u8])> {
    // Most keys end here.
    let (schema, rest) = key.split_at(memchr::memchr(b'/', key)?);
    let (table, rest) = rest[1..].split_at(memchr::memchr(b'/', &rest[1..])?);
    let rest = &rest[1..];
    let table = catalog.table(std::str::from_utf8(schema).ok()?, std::str::from_utf8(table).ok()?)?;
    Some((table, rest))
}

fn encode_components(table: &Table, rest: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let schema = table.schema();
    let columns = schema.key_columns();
    let given = rest.split(|b| *b == b'/').count();
    if given != columns.len() {
        return Err(Error::invalid(format!("the primary key has {} columns, not {given}", columns.len())));
    }
    let last = given - 1;
    for (i, (column, component)) in columns.zip(rest.split(|b| *b == b'/')).enumerate() {
        encode_text(column, component, i == last, out)
            .map_err(|e| e.context(format_args!("column \"{}\"", column.name)))?;
    }
    Ok(())
}

fn encode_text(column: &Column, component: &[u8], last: bool, out: &mut Vec<u8>) -> Result<()> {
    let bytes = percent_decoded(component)?;
    let as_text = || std::str::from_utf8(&bytes).map_err(|_| Error::invalid("not UTF-8"));
    match column.column_type {
        ColumnType::Binary => encode_component(ValueRef::Binary(&bytes), last, out),
        ColumnType::String => encode_component(ValueRef::String(as_text()?), last, out),
        column_type => encode_component(text::parse(column_type, as_text()?)?.as_ref(), last, out),
    }
    Ok(())
}

fn percent_decoded(component: &[u8]) -> Result<Cow<'_, [u8]>> {
    if !component.contains(&b'%') {
        return Ok(Cow::Borrowed(component));
    }
    let mut decoded = Vec::with_capacity(component.len());
    let mut rest = component;
    while let [byte, tail @ ..] = rest {
        if *byte != b'%' {
            decoded.push(*byte);
            rest = tail;
            continue;
        }
        let digit = |i: usize| tail.get(i).and_then(|d| (*d as char).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err(Error::invalid("% must be followed by two hex digits"));
        };
        decoded.push((high << 4 | low) as u8);
        rest = &tail[2..];
    }
    Ok(Cow::Owned(decoded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_signs_stand_for_any_byte() {
        assert_eq!(&*percent_decoded(b"a%2Fb%25%00%fF").unwrap(), b"a/b%\0\xff");
        assert!(matches!(percent_decoded(b"plain").unwrap(), Cow::Borrowed(_)));
        for malformed in [&b"%"[..], b"a%2", b"%zz", b"%%41"] {
            assert!(percent_decoded(malformed).is_err());
        }
    }
}
