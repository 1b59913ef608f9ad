//! `'{1,NULL,"a b"}'`: an array as PostgreSQL writes it, of one dimension.

use crate::dml::{parse_text, scalar};
use crate::error::{invalid, unsupported};
use arrow::datatypes::Field;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::Expr;
use oribi_session::sql::SqlError;
use oribi_types::ColumnType;
use std::iter::Peekable;
use std::str::Chars;

/// The array that `text` writes, of items of the type of `item`.
///
/// # Errors
/// 22P02 for a text that is no array, and what is wrong with an item; `Unsupported` for arrays of arrays.
pub(crate) fn array_literal(text: &str, item: &Field) -> Result<Expr> {
    array(text, item).map_err(|error| DataFusionError::External(Box::new(error)))
}

fn array(text: &str, item: &Field) -> Result<Expr, SqlError> {
    let column_type = ColumnType::from_arrow(item.data_type())?;
    let items = read(text)?.into_iter().map(|element| match element {
        None => ScalarValue::try_from(item.data_type()).map_err(crate::error::sql_error),
        Some(element) => {
            let value = scalar(parse_text(&element, column_type)?.as_ref(), column_type)?;
            value.cast_to(item.data_type()).map_err(crate::error::sql_error)
        }
    });
    let items = items.collect::<Result<Vec<_>, SqlError>>()?;
    let list = ScalarValue::new_list_nullable(&items, item.data_type());
    Ok(Expr::Literal(ScalarValue::List(list), None))
}

/// The texts of the elements; `None` is null.
fn read(text: &str) -> Result<Vec<Option<String>>, SqlError> {
    let malformed = || invalid("22P02", format!("malformed array literal: \"{text}\""));
    let inner =
        text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(malformed)?;
    let mut elements = Vec::new();
    if inner.trim().is_empty() {
        return Ok(elements);
    }
    let mut rest = inner.chars().peekable();
    loop {
        elements.push(element(&mut rest)?.ok_or_else(malformed)?);
        match rest.next() {
            None => return Ok(elements),
            Some(',') => {}
            Some(_) => return Err(malformed()),
        }
    }
}

/// The next element, up to its comma; `None` if there is no such element.
fn element(rest: &mut Peekable<Chars<'_>>) -> Result<Option<Option<String>>, SqlError> {
    while rest.next_if(|c| c.is_ascii_whitespace()).is_some() {}
    let (mut text, mut quoted, mut open, mut kept) = (String::new(), false, false, 0);
    while let Some(&c) = rest.peek() {
        match c {
            '"' if !open && !text.is_empty() && !quoted => return Ok(None),
            '"' => (quoted, open) = (true, !open),
            '\\' => {
                rest.next();
                match rest.peek() {
                    Some(escaped) => text.push(*escaped),
                    None => return Ok(None),
                }
                kept = text.len();
            }
            ',' if !open => break,
            '{' if !open => return Err(unsupported("an array literal of several dimensions")),
            '}' if !open => return Ok(None),
            c => {
                // Space behind an element in quotes is none of it, and nothing else may follow.
                if quoted && !open && !c.is_ascii_whitespace() {
                    return Ok(None);
                }
                if open || !quoted {
                    text.push(c);
                }
                if open || !c.is_ascii_whitespace() {
                    kept = text.len();
                }
            }
        }
        rest.next();
    }
    if open {
        return Ok(None);
    }
    text.truncate(kept);
    if !quoted && text.is_empty() {
        return Ok(None);
    }
    let null = !quoted && text.eq_ignore_ascii_case("null");
    Ok(Some((!null).then_some(text)))
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn arrays_are_read_as_they_are_written() {
        let of = |text: &str| read(text).ok();
        let some = |texts: &[&str]| Some(texts.iter().map(|t| Some((*t).to_owned())).collect());
        assert_eq!(of("{}"), Some(vec![]));
        assert_eq!(of(" { a , b c } "), some(&["a", "b c"]));
        assert_eq!(of(r#"{"a b","","NULL",x\,y,"q\"\\"}"#), some(&["a b", "", "NULL", "x,y", "q\"\\"]));
        assert_eq!(of("{1,null}"), Some(vec![Some("1".into()), None]));
        for wrong in ["", "1", "{1", "{1,}", "{,1}", "{\"a}", "{a}b", "{\"a\"b}", "{a\"b\"}", "{a}}"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert!(read("{{1}}").is_err());
    }
}
