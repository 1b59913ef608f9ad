//! Errors as clients see them: DataFusion's with kind, SQLSTATE and position, and those that many statements share.

use crate::foreign_words;
use arrow::error::ArrowError;
use datafusion::common::{DataFusionError, SchemaError};
use oribi_session::sql::SqlError;
use oribi_types::{Error, ErrorKind};
use std::error::Error as StdError;

/// The error as a client should see it; without a position, unless the message carries one.
pub(crate) fn sql_error(error: DataFusionError) -> SqlError {
    convert(&error)
}

/// As [`sql_error`], with the position in `sql` of what the error is about where DataFusion says.
pub(crate) fn sql_error_in(sql: &str, error: DataFusionError) -> SqlError {
    let mut converted = convert(&error);
    if converted.position.is_none() {
        let span = error.diagnostic().and_then(|d| d.span);
        converted.position = match span {
            Some(span) => offset(sql, span.start.line, span.start.column),
            None => parse_location(converted.error.message()).and_then(|(l, c)| offset(sql, l, c)),
        };
    }
    converted
}

/// A statement that asks for what there is not.
pub(crate) fn unsupported(what: &str) -> SqlError {
    SqlError::new(ErrorKind::Unsupported, format!("{what} is not supported"))
}

/// A statement that is wrong.
pub(crate) fn invalid(sqlstate: &'static str, message: impl Into<String>) -> SqlError {
    SqlError::new(ErrorKind::Invalid, message).with_sqlstate(sqlstate)
}

fn convert(error: &DataFusionError) -> SqlError {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => convert(inner),
        DataFusionError::Shared(inner) => convert(inner),
        DataFusionError::Collection(errors) if !errors.is_empty() => convert(&errors[0]),
        DataFusionError::External(inner) => from_foreign(inner.as_ref()),
        DataFusionError::ArrowError(inner, _) => from_arrow(inner),
        DataFusionError::ParquetError(inner) => match inner.source() {
            Some(source) => from_foreign(source),
            None => SqlError::new(ErrorKind::Corrupt, inner.to_string()),
        },
        DataFusionError::SQL(inner, _) => {
            let message = inner.to_string();
            let message = message.strip_prefix("sql parser error: ").unwrap_or(&message);
            SqlError::new(ErrorKind::Invalid, sentence(message)).with_sqlstate("42601")
        }
        DataFusionError::Plan(message) => from_plan(message),
        DataFusionError::SchemaError(inner, _) => from_schema(inner),
        DataFusionError::Configuration(message) => SqlError::new(ErrorKind::Invalid, sentence(message)),
        DataFusionError::NotImplemented(message) if message.contains("logical expression") => {
            unsupported("a correlated subquery of this form").with_hint("write it as a join")
        }
        DataFusionError::NotImplemented(message) => SqlError::new(ErrorKind::Unsupported, sentence(message)),
        // `a.b` where `a` is a column, not a table.
        DataFusionError::Execution(message) if message.to_lowercase().contains("cannot access field at") => {
            invalid("42703", "a field of a column that has none does not exist")
        }
        DataFusionError::Execution(message) if message.contains("returned more than one row") => {
            invalid("21000", "more than one row returned by a subquery used as an expression")
        }
        DataFusionError::Execution(message) => {
            SqlError::new(ErrorKind::Invalid, sentence(message)).with_sqlstate("22000")
        }
        DataFusionError::ResourcesExhausted(message) => out_of_memory(message),
        DataFusionError::IoError(inner) => {
            use std::io::ErrorKind as Io;
            let kind = match inner.kind() {
                Io::StorageFull | Io::QuotaExceeded => ErrorKind::DiskFull,
                _ => ErrorKind::Internal,
            };
            SqlError::new(kind, inner.to_string())
        }
        DataFusionError::ExecutionJoin(_) => SqlError::new(ErrorKind::Internal, "a query thread stopped"),
        other => SqlError::new(ErrorKind::Internal, sentence(&other.strip_backtrace())),
    }
}

fn out_of_memory(message: &str) -> SqlError {
    let first = message.lines().next().unwrap_or_default();
    SqlError::new(
        ErrorKind::TooLarge,
        format!("the query needs more memory than it may use: {}", sentence(first)),
    )
    .with_sqlstate("53200")
    .with_hint("raise --memory, or make the query touch fewer rows or columns")
}

/// An error that passed through DataFusion: ours, if it is one or was caused by one.
fn from_foreign(error: &(dyn StdError + 'static)) -> SqlError {
    let mut next = Some(error);
    while let Some(current) = next {
        if let Some(ours) = current.downcast_ref::<Error>() {
            return ours.clone().into();
        }
        if let Some(ours) = current.downcast_ref::<SqlError>() {
            return ours.clone();
        }
        if let Some(theirs) = current.downcast_ref::<DataFusionError>() {
            return convert(theirs);
        }
        next = current.source();
    }
    SqlError::new(ErrorKind::Internal, error.to_string())
}

fn from_arrow(error: &ArrowError) -> SqlError {
    let invalid =
        |message: &str, state| SqlError::new(ErrorKind::Invalid, sentence(message)).with_sqlstate(state);
    match error {
        ArrowError::ExternalError(inner) => from_foreign(inner.as_ref()),
        ArrowError::DivideByZero => invalid("division by zero", "22012"),
        ArrowError::ArithmeticOverflow(message) => invalid(message, "22003"),
        ArrowError::CastError(message) | ArrowError::ParseError(message) => {
            foreign_words::of_cast(message).unwrap_or_else(|| invalid(message, "22P02"))
        }
        ArrowError::ComputeError(message) | ArrowError::InvalidArgumentError(message) => {
            invalid(message, "22000")
        }
        ArrowError::NotYetImplemented(message) => SqlError::new(ErrorKind::Unsupported, sentence(message)),
        ArrowError::MemoryError(message) => out_of_memory(message),
        other => SqlError::new(ErrorKind::Internal, other.to_string()),
    }
}

fn from_schema(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let error =
                SqlError::new(ErrorKind::Invalid, format!("column \"{}\" does not exist", field.flat_name()))
                    .with_sqlstate("42703");
            if valid_fields.is_empty() {
                return error;
            }
            let mut names: Vec<String> = valid_fields.iter().take(20).map(|f| f.flat_name()).collect();
            if valid_fields.len() > names.len() {
                names.push("…".into());
            }
            error.with_hint(format!("there are {}", names.join(", ")))
        }
        SchemaError::AmbiguousReference { field } => {
            SqlError::new(ErrorKind::Invalid, format!("column reference \"{}\" is ambiguous", field.name))
                .with_sqlstate("42702")
        }
        other => SqlError::new(ErrorKind::Invalid, sentence(&other.to_string())).with_sqlstate("42701"),
    }
}

/// DataFusion says what kind of thing is missing only in its sentences.
fn from_plan(message: &str) -> SqlError {
    if let Some(name) = between(message, "table '", "' not found") {
        let name = name.rsplit_once("$path.").map_or(name, |(_, bare)| bare);
        let name = name.split_once('.').filter(|(_, rest)| rest.contains('.')).map_or(name, |(_, rest)| rest);
        return SqlError::new(ErrorKind::NotFound, format!("relation \"{name}\" does not exist"))
            .with_sqlstate("42P01");
    }
    if message.starts_with("LIMIT must") {
        return invalid("2201W", "LIMIT must not be negative");
    }
    if message.starts_with("OFFSET must") {
        return invalid("2201X", "OFFSET must not be negative");
    }
    if let Some((_, types)) = message.split_once("Inconsistent data type across values list") {
        return foreign_words::of_values(types);
    }
    if message.starts_with("Inconsistent metadata across values list") {
        return unsupported("a list of VALUES with JSON and other types").with_hint("cast each value");
    }
    foreign_words::of_planner(message)
        .unwrap_or_else(|| SqlError::new(ErrorKind::Invalid, sentence(message)).with_sqlstate("42000"))
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(start)?;
    rest.split_once(end).map(|(found, _)| found)
}

/// Lowercase at the start, no full stop at the end, like our own messages.
fn sentence(message: &str) -> String {
    let message = message.trim().trim_end_matches('.');
    let mut chars = message.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => message.to_owned(),
    }
}

/// The line and column in `… at Line: 1, Column: 8`, the parser's way to say where.
fn parse_location(message: &str) -> Option<(u64, u64)> {
    let (_, rest) = message.rsplit_once("Line: ")?;
    let (line, rest) = rest.split_once(", Column: ")?;
    let column: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((line.parse().ok()?, column.parse().ok()?))
}

/// The 1-based character offset of a 1-based line and column; `None` for the parser's "unknown" (0, 0).
fn offset(sql: &str, line: u64, column: u64) -> Option<usize> {
    let before: usize =
        sql.split_inclusive('\n').take(line.checked_sub(1)? as usize).map(|l| l.chars().count()).sum();
    (column > 0).then_some(before + column as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_errors_survive_the_way_through_datafusion() {
        let ours = Error::corrupt("sstable 7: checksum mismatch");
        let wrapped = DataFusionError::External(Box::new(ours)).context("scan");
        let back = sql_error(DataFusionError::Shared(std::sync::Arc::new(wrapped)));
        assert_eq!(back.error.kind(), ErrorKind::Corrupt);
        assert_eq!(back.error.message(), "sstable 7: checksum mismatch");
    }

    #[test]
    fn a_location_is_an_offset_in_characters() {
        assert_eq!(offset("select\n é, x", 2, 5), Some(12));
        assert_eq!(offset("select", 0, 0), None);
        assert_eq!(parse_location("Expected: x, found: y at Line: 12, Column: 7"), Some((12, 7)));
    }
}
