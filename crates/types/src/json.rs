//! Rows as JSON objects.
//!
//! A column is a member named like it, in SQL order. Integers, floats and decimals are numbers with all their digits;
//! what JSON has no number for (`NaN`, `Infinity`) is a string. Binary is base64 (RFC 4648, padded), a `json` column
//! is embedded as it is, and everything else is a string: dates and timestamps in ISO 8601 (`2024-01-02`,
//! `2024-01-02T03:04:05.5`, in UTC), uuids hyphenated.
//!
//! Read back, a number may also come as a string. Unknown members and members named twice are errors; a member that
//! is left out takes the column's default; the commit timestamp may be given and is ignored.

use crate::schema::{Generated, check_value};
use crate::{Column, ColumnSource, ColumnType, Error, Result, Schema, Timestamp, Value, ValueRef, key, text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiter::{Jiter, JiterError, Peek};

/// Appends the row of an encoded key and an encoded row, written at `ts`.
///
/// # Errors
/// `Corrupt` if the key does not decode.
pub fn write_row(schema: &Schema, key: &[u8], row: &[u8], ts: Timestamp, out: &mut Vec<u8>) -> Result<()> {
    let key = key::decode_key(schema, key)?;
    for (i, column) in schema.shown().iter().enumerate() {
        out.push(if i == 0 { b'{' } else { b',' });
        write_string(&column.name, out);
        out.push(b':');
        let value = match column.source {
            ColumnSource::Key(component) => key[usize::from(component)].as_ref(),
            ColumnSource::Slot(slot) => schema.slot_value(column, slot, row),
            ColumnSource::CommitTimestamp => ValueRef::Int64(ts.0 as i64),
        };
        write_value(value, column.column_type, out);
    }
    out.push(b'}');
    Ok(())
}

/// Appends one value.
pub fn write_value(value: ValueRef<'_>, column_type: ColumnType, out: &mut Vec<u8>) {
    match value {
        ValueRef::Null => out.extend_from_slice(b"null"),
        ValueRef::String(v) => write_string(v, out),
        ValueRef::Binary(v) => {
            out.push(b'"');
            out.extend_from_slice(BASE64.encode(v).as_bytes());
            out.push(b'"');
        }
        ValueRef::Timestamp(v) => {
            out.push(b'"');
            text::format_timestamp(v, 'T', out);
            out.push(b'"');
        }
        ValueRef::Date(_) | ValueRef::Uuid(_) => write_quoted(value, column_type, out),
        ValueRef::Float(v) if !v.is_finite() => write_quoted(value, column_type, out),
        ValueRef::Double(v) if !v.is_finite() => write_quoted(value, column_type, out),
        ValueRef::Bool(_)
        | ValueRef::Int8(_)
        | ValueRef::Int16(_)
        | ValueRef::Int32(_)
        | ValueRef::Int64(_)
        | ValueRef::Float(_)
        | ValueRef::Double(_)
        | ValueRef::Decimal(_)
        | ValueRef::Json(_) => text::format(value, column_type, out),
    }
}

/// Appends the text of a value that has nothing to escape.
fn write_quoted(value: ValueRef<'_>, column_type: ColumnType, out: &mut Vec<u8>) {
    out.push(b'"');
    text::format(value, column_type, out);
    out.push(b'"');
}

/// Appends a JSON string.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a vector takes all that is written");
}

/// Reads an object as a whole row: a value for each column, in SQL order.
///
/// # Errors
/// `Invalid`, naming the column, for what [`read_members`] or [`complete`] refuses.
pub fn read_row(schema: &Schema, json: &[u8]) -> Result<Vec<Value>> {
    complete(schema, read_members(schema, json)?)
}

/// Reads the members of an object: for each column, in SQL order, its value if the object names it.
///
/// # Errors
/// `Invalid`, naming the column, for a value that is not of its type, an unknown or repeated member, or bytes that
/// are not one JSON object.
pub fn read_members(schema: &Schema, json: &[u8]) -> Result<Vec<Option<Value>>> {
    let mut jiter = Jiter::new(json);
    let malformed =
        |e: JiterError| Error::invalid(format!("invalid json at byte {}: {}", e.index, e.error_type));
    let mut members: Vec<Option<Value>> = vec![None; schema.columns().len()];
    if jiter.peek().map_err(malformed)? != Peek::Object {
        return Err(Error::invalid("a row is written as a json object"));
    }
    let mut name = jiter.known_object().map_err(malformed)?;
    while let Some(member) = name {
        let position = schema
            .position(member)
            .ok_or_else(|| Error::invalid(format!("column \"{member}\" does not exist")))?;
        let column = &schema.columns()[position];
        let value = read_member(&mut jiter, column)?;
        if members[position].replace(value).is_some() {
            return Err(Error::invalid(format!("column \"{}\" is given twice", column.name)));
        }
        name = jiter.next_key().map_err(malformed)?;
    }
    jiter.finish().map_err(malformed)?;
    Ok(members)
}

/// Fills in the columns that were not given: default, or null. Commit timestamps and hidden keys become null.
///
/// # Errors
/// `Invalid`, naming the column, for null where it may not be.
pub fn complete(schema: &Schema, members: Vec<Option<Value>>) -> Result<Vec<Value>> {
    let fill = |(column, value): (&Column, Option<Value>)| {
        if column.source == ColumnSource::CommitTimestamp || column.generated == Some(Generated::RowId) {
            return Ok(Value::Null);
        }
        let value = match (value, &column.default) {
            (Some(value), _) => value,
            (None, Some(default)) => default.clone(),
            (None, None) if column.nullable => Value::Null,
            (None, None) => {
                return Err(Error::invalid(format!(
                    "column \"{}\" of type {} is missing and has no default",
                    column.name, column.column_type
                )));
            }
        };
        check_value(column, value.as_ref())?;
        Ok(value)
    };
    schema.columns().iter().zip(members).map(fill).collect()
}

fn read_member(jiter: &mut Jiter<'_>, column: &Column) -> Result<Value> {
    let column_type = column.column_type;
    let of_column = |e: Error| e.context(format_args!("column \"{}\"", column.name));
    let malformed = |e: JiterError| {
        of_column(Error::invalid(format!("invalid json at byte {}: {}", e.index, e.error_type)))
    };
    let peek = jiter.peek().map_err(malformed)?;
    let expected = |found: &str| {
        Err(of_column(Error::invalid(format!("expected a value of type {column_type}, found {found}"))))
    };
    // A json column's null is SQL's null, as in every other column.
    if column_type == ColumnType::Json && peek != Peek::Null {
        let start = jiter.current_index();
        jiter.known_skip(peek).map_err(malformed)?;
        let document = std::str::from_utf8(jiter.slice_to_current(start))
            .map_err(|_| of_column(Error::invalid("json is not UTF-8")))?;
        text::check_json(document).map_err(of_column)?;
        return Ok(Value::Json(document.to_owned()));
    }
    match peek {
        Peek::Null => {
            jiter.known_null().map_err(malformed)?;
            Ok(Value::Null)
        }
        Peek::True | Peek::False => {
            let value = jiter.known_bool(peek).map_err(malformed)?;
            if column_type == ColumnType::Bool { Ok(Value::Bool(value)) } else { expected("a boolean") }
        }
        Peek::String => {
            let text = jiter.known_str().map_err(malformed)?;
            read_string(text, column_type).map_err(of_column)
        }
        Peek::Array => expected("an array"),
        Peek::Object => expected("an object"),
        _ => {
            let digits = jiter.known_number_bytes(peek).map_err(malformed)?;
            let digits = std::str::from_utf8(digits).expect("a number is ASCII");
            if is_numeric(column_type) {
                text::parse(column_type, digits).map_err(of_column)
            } else {
                expected("a number")
            }
        }
    }
}

fn read_string(text: &str, column_type: ColumnType) -> Result<Value> {
    match column_type {
        ColumnType::Binary => BASE64
            .decode(text)
            .map(Value::Binary)
            .map_err(|e| Error::invalid(format!("binary is written as base64: {e}"))),
        ColumnType::Bool => Err(Error::invalid("expected a value of type boolean, found a string")),
        _ => text::parse(column_type, text),
    }
}

fn is_numeric(column_type: ColumnType) -> bool {
    matches!(
        column_type,
        ColumnType::Int8
            | ColumnType::Int16
            | ColumnType::Int32
            | ColumnType::Int64
            | ColumnType::Float
            | ColumnType::Double
            | ColumnType::Decimal { .. }
    )
}

#[cfg(test)]
mod tests;
