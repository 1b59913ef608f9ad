//! What DataFusion and Arrow say about types, as PostgreSQL says it: their sentences name types of their own.

use crate::error::{invalid, unsupported};
use oribi_session::sql::SqlError;

/// Words of a planner's sentence, and the SQLSTATE and the sentence for them.
const SENTENCES: &[(&str, (&str, &str))] = &[
    ("LIMIT must be >= 0", ("2201W", "LIMIT must not be negative")),
    ("OFFSET must be >=0", ("2201X", "OFFSET must not be negative")),
    ("frame offsets for ROWS", ("22013", "frame starting or ending offset must not be negative")),
    ("LIMIT to be an integer", ("42804", "argument of LIMIT must be a number")),
    ("OFFSET to be an integer", ("42804", "argument of OFFSET must be a number")),
    (
        "must be in GROUP BY",
        ("42803", "a selected column must appear in the GROUP BY clause or be used in an aggregate function"),
    ),
    ("is not in grouping columns", ("42803", "arguments to GROUPING must be grouping expressions")),
];

/// A planner's sentence about a call or an operator whose arguments do not fit.
pub(crate) fn of_planner(message: &str) -> Option<SqlError> {
    if let Some(call) = between(message, "argument types '", "'. ") {
        let (name, types) = call.split_once('(')?;
        let types = split(types.strip_suffix(')')?, ',');
        let types: Vec<String> = types.into_iter().map(sql_name).collect();
        return Some(no_function(&format!("{name}({})", types.join(", "))));
    }
    if message.contains("non-boolean predicate") {
        return Some(invalid("42804", "argument of WHERE must be type boolean"));
    }
    if let Some(arrow) = message.strip_prefix("Unary operator 'NOT' requires a boolean expression, got ") {
        let name = sql_name(arrow.trim_end_matches('.'));
        return Some(invalid("42804", format!("argument of NOT must be type boolean, not type {name}")));
    }
    if let Some((_, error)) = SENTENCES.iter().find(|(words, _)| message.contains(words)) {
        return Some(invalid(error.0, error.1));
    }
    if message.contains("The subquery should only return one column") {
        return Some(unsupported("a subquery of several columns"));
    }
    if message.starts_with("Step cannot be zero") {
        return Some(invalid("22023", "step size cannot equal zero"));
    }
    if message.starts_with("Invalid escape character in LIKE") {
        return Some(unsupported("an escape for LIKE that is not one character"));
    }
    if let Some(operator) = message.strip_prefix("Unary operator '").and_then(|rest| rest.chars().next()) {
        return Some(invalid(
            "42883",
            format!("operator does not exist: {operator} for a value of this type"),
        ));
    }
    if message.contains("Correlated scalar subquery must be aggregated") {
        return Some(unsupported("a correlated subquery that is no aggregate"));
    }
    let named = ["Invalid function '", "Function '", "function '", "call to '"];
    if let Some(name) = named.iter().find_map(|before| between(message, before, "'")) {
        return Some(no_function(name));
    }
    let operation = ["arithmetic expression ", " operation "];
    let described = operation.iter().find_map(|before| message.split_once(before)).map(|(_, after)| after)?;
    let described = described.split_once(" to valid types").map_or(described, |(operation, _)| operation);
    let described = described.split_once(": ").map_or(described, |(operation, _)| operation);
    let words = split(described, ' ');
    let [left, operator @ .., right] = words.as_slice() else { return None };
    let (left, right) = (sql_name(left), sql_name(right));
    Some(invalid("42883", format!("operator does not exist: {left} {} {right}", operator.join(" "))))
}

/// The two types of a column of `VALUES`, in ` … Was Int64 but found Boolean`. A text may have been written for the other.
pub(crate) fn of_values(types: &str) -> SqlError {
    let (one, other) = types.split_once(" but found ").unwrap_or_default();
    let one = sql_name(one.split_once("Was ").unwrap_or_default().1);
    let other = sql_name(other);
    if one == "text" || other == "text" {
        return unsupported(&format!("VALUES of {one} and {other}")).with_hint("cast each text");
    }
    invalid("42804", format!("VALUES types {one} and {other} cannot be matched"))
}

/// A sentence about a value that a type does not have.
pub(crate) fn of_cast(message: &str) -> Option<SqlError> {
    if let Some((_, text)) =
        message.split_once("Cannot cast string '").or_else(|| message.split_once("Cannot cast value '"))
    {
        let (text, arrow) = text.rsplit_once("' to value of ")?;
        let name = sql_name(arrow.trim_end_matches('.').strip_suffix(" type").unwrap_or(arrow));
        return Some(invalid("22P02", format!("invalid input syntax for type {name}: \"{text}\"")));
    }
    let (_, arrow) = message.split_once("Can't cast value ")?.1.split_once(" to type ")?;
    Some(invalid("22003", format!("{} out of range", sql_name(arrow))))
}

fn no_function(call: &str) -> SqlError {
    invalid("42883", format!("function {call} does not exist"))
        .with_hint("no function of the name takes such arguments; a cast may help")
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

/// Splits at `separator` outside of parentheses.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_usize, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if c == separator && depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// The name in SQL of a type that Arrow displays so.
fn sql_name(arrow: &str) -> String {
    let (head, inside) = arrow.split_once('(').map_or((arrow, ""), |(head, rest)| (head, rest));
    let name = match head {
        "Null" => "unknown",
        "Boolean" => "boolean",
        "Int8" | "Int16" | "UInt8" => "smallint",
        "Int32" | "UInt16" => "integer",
        "Int64" | "UInt32" | "UInt64" => "bigint",
        "Float16" | "Float32" => "real",
        "Float64" => "double precision",
        "Decimal32" | "Decimal64" | "Decimal128" | "Decimal256" => "numeric",
        "Utf8" | "LargeUtf8" | "Utf8View" => "text",
        "Binary" | "LargeBinary" | "BinaryView" => "bytea",
        "FixedSizeBinary" => "uuid",
        "Date32" | "Date64" => "date",
        "Time32" | "Time64" => "time without time zone",
        "Timestamp" if inside.contains('"') => "timestamp with time zone",
        "Timestamp" => "timestamp without time zone",
        "Interval" | "Duration" => "interval",
        "List" | "LargeList" | "FixedSizeList" => {
            let item = inside.trim_end_matches(')').trim_start_matches("nullable ");
            return format!("{}[]", sql_name(item));
        }
        _ => "record",
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_names_of_sql() {
        let said = |error: Option<SqlError>| error.map(|e| e.error.message().to_owned());
        assert_eq!(
            said(of_planner(
                "Cannot infer common argument type for comparison operation Boolean = Decimal128(12, 4)"
            )),
            Some("operator does not exist: boolean = numeric".into())
        );
        assert_eq!(
            said(of_planner("Cannot coerce arithmetic expression Utf8View - List(Int64) to valid types")),
            Some("operator does not exist: text - bigint[]".into())
        );
        assert_eq!(
            said(of_planner(
                "x. No function matches the given name and argument types 'lpad(Boolean, Int64)'. You might"
            )),
            Some("function lpad(boolean, bigint) does not exist".into())
        );
        assert_eq!(
            said(of_cast("Cannot cast string 'abc' to value of Int64 type")),
            Some("invalid input syntax for type bigint: \"abc\"".into())
        );
        assert_eq!(said(of_cast("Can't cast value 9 to type Int32")), Some("integer out of range".into()));
        assert!(of_planner("table 'x' not found").is_none());
    }
}
