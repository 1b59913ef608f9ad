//! `WITH (…)` of a table: `durability`, `ttl`, `expires_at`, and `primary_key` for `CREATE TABLE … AS`.

use crate::error::invalid;
use crate::syntax::fold;
use datafusion::sql::sqlparser::ast::{Expr, SqlOption, Value};
use oribi_session::sql::SqlError;
use oribi_types::{ColumnSource, ColumnType, Durability, Schema, TableOptions};

/// The options given; the others stay as they are.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Options {
    durability: Option<Durability>,
    /// `Some(None)`: rows do not expire.
    ttl_ms: Option<Option<u64>>,
    /// The column that holds when a row expires; `Some(None)`: none.
    expires_at: Option<Option<String>>,
    pub(crate) primary_key: Option<Vec<String>>,
}

/// # Errors
/// `Invalid` (22023) for an unknown option or value.
pub(crate) fn parse(options: &[SqlOption]) -> Result<Options, SqlError> {
    let mut parsed = Options::default();
    for option in options {
        let SqlOption::KeyValue { key, value } = option else {
            return Err(invalid("22023", format!("{option} is not a table option")));
        };
        let name = fold(key);
        let text =
            text(value).ok_or_else(|| invalid("22023", format!("table option \"{name}\" is not a text")))?;
        let malformed = || invalid("22023", format!("invalid value for table option \"{name}\": \"{text}\""));
        match name.as_str() {
            "durability" => parsed.durability = Some(durability(&text).ok_or_else(malformed)?),
            "ttl" if text == "none" => parsed.ttl_ms = Some(None),
            "ttl" => parsed.ttl_ms = Some(Some(millis(&text).filter(|ms| *ms > 0).ok_or_else(malformed)?)),
            "expires_at" if text == "none" => parsed.expires_at = Some(None),
            "expires_at" => parsed.expires_at = Some(Some(text)),
            // Of PostgreSQL's pages, which there are none of.
            "fillfactor" => {
                let percent = text.parse::<u8>().ok();
                percent.filter(|percent| (10..=100).contains(percent)).ok_or_else(malformed)?;
            }
            "primary_key" => {
                let columns = text.split(',').map(|column| column.trim().to_owned());
                parsed.primary_key = Some(columns.filter(|column| !column.is_empty()).collect());
            }
            _ => {
                return Err(invalid("22023", format!("unrecognized table option \"{name}\""))
                    .with_hint("there are durability, ttl, expires_at and primary_key"));
            }
        }
    }
    Ok(parsed)
}

impl Options {
    /// `current` with what was given.
    ///
    /// # Errors
    /// `Invalid` if the column that holds when a row expires cannot.
    pub(crate) fn table_options(
        &self,
        schema: &Schema,
        current: TableOptions,
    ) -> Result<TableOptions, SqlError> {
        let expires_at = match &self.expires_at {
            None => current.expires_at,
            Some(None) => None,
            Some(Some(name)) => {
                let column = schema.shown().iter().find(|c| c.name == *name);
                let fits = |c: &&oribi_types::Column| {
                    c.column_type == ColumnType::Timestamp
                        && c.nullable
                        && matches!(c.source, ColumnSource::Slot(_))
                };
                let column = column.filter(fits).ok_or_else(|| {
                    invalid("22023", format!("expires_at: \"{name}\" is not a nullable timestamp column"))
                })?;
                Some(column.id)
            }
        };
        Ok(TableOptions {
            durability: self.durability.unwrap_or(current.durability),
            ttl_ms: self.ttl_ms.unwrap_or(current.ttl_ms),
            expires_at,
            attributes: current.attributes.clone(),
        })
    }
}

fn text(value: &Expr) -> Option<String> {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::Number(text, _) => Some(text.clone()),
            _ => None,
        },
        Expr::Identifier(ident) => Some(fold(ident)),
        _ => None,
    }
}

/// `sync`, or `periodic` with a time.
fn durability(text: &str) -> Option<Durability> {
    let text = text.trim().to_lowercase();
    if text == "sync" {
        return Some(Durability::Sync);
    }
    let time = text.strip_prefix("periodic")?.trim_start_matches(|c: char| c == ':' || c.is_whitespace());
    let millis = match time.parse::<u64>() {
        Ok(millis) => millis,
        Err(_) => millis(time)?,
    };
    u32::try_from(millis).ok().filter(|ms| *ms > 0).map(Durability::Periodic)
}

/// A length of time such as `1 day`, `90s`, `1 hour 30 minutes`, in milliseconds; a bare number counts seconds.
fn millis(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = match rest[..letters].to_lowercase().as_str() {
            "ms" | "millisecond" | "milliseconds" => 1,
            "" | "s" | "sec" | "second" | "seconds" => 1000,
            "m" | "min" | "minute" | "minutes" => 60_000,
            "h" | "hour" | "hours" => 3_600_000,
            "d" | "day" | "days" => 86_400_000,
            "w" | "week" | "weeks" => 604_800_000,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = rest[letters..].trim_start();
    }
    (!text.trim().is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_and_durability_are_read_as_written() {
        assert_eq!(millis("1 day"), Some(86_400_000));
        assert_eq!(millis("1 hour 30 minutes"), Some(5_400_000));
        assert_eq!(millis("250ms"), Some(250));
        assert_eq!(millis("30"), Some(30_000));
        assert_eq!(millis("a while"), None);
        assert_eq!(millis(""), None);
        assert_eq!(durability("sync"), Some(Durability::Sync));
        assert_eq!(durability("periodic 100ms"), Some(Durability::Periodic(100)));
        assert_eq!(durability("periodic:100"), Some(Durability::Periodic(100)));
        assert_eq!(durability("periodic"), None);
        assert_eq!(durability("never"), None);
    }
}
