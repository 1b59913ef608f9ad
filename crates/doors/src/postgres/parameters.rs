//! Parameters of a `Bind` as values of the types that the statement expects.

use super::encode::{EPOCH_DAYS, EPOCH_MICROS, Format};
use super::error::invalid_text;
use super::numeric::read_binary_numeric;
use super::types::{oid, oid_of, parameter_type};
use oribi_session::sql::{SqlError, TimeZone};
use oribi_types::{ColumnType, Error, ErrorKind, Result, Value, text};

/// What a statement wants of a parameter.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub column_type: ColumnType,
    /// Whether a number is rounded to the type: it is only stored. Otherwise one that does not fit is refused.
    pub rounds: bool,
    /// The session's zone, if it is not UTC: what its clocks show at a moment is the timestamp.
    pub zone: Option<TimeZone>,
}

impl Wanted {
    fn parse(self, text: &str) -> Result<Value> {
        if self.rounds {
            text::parse_sql(self.column_type, text)
        } else {
            text::parse_exact(self.column_type, text)
        }
    }
}

/// Decodes one parameter as [`decode`] does, over the value of an earlier one, whose memory it takes over if it can.
///
/// # Errors
/// As `decode`.
pub fn decode_into(
    bytes: Option<&[u8]>,
    format: Format,
    declared: u32,
    wanted: Wanted,
    value: &mut Value,
) -> Result<(), SqlError> {
    let declared_text = matches!(declared, oid::UNSPECIFIED | oid::UNKNOWN | oid::TEXT | oid::VARCHAR);
    let declared_bytes = matches!(declared, oid::UNSPECIFIED | oid::UNKNOWN | oid::BYTEA);
    match (bytes, format, wanted.column_type, value) {
        (Some(bytes), _, ColumnType::String, Value::String(text)) if declared_text => {
            let sent = utf8(bytes).map_err(|e| match format {
                Format::Text => invalid_text(e),
                Format::Binary => SqlError::from(e).with_sqlstate("22P03"),
            })?;
            text.clear();
            text.push_str(sent);
        }
        (Some(bytes), Format::Binary, ColumnType::Binary, Value::Binary(value)) if declared_bytes => {
            value.clear();
            value.extend_from_slice(bytes);
        }
        (bytes, format, _, value) => *value = decode(bytes, format, declared, wanted)?,
    }
    Ok(())
}

/// Gives back the memory of a value that was large; that of others is for [`decode_into`].
pub fn shrink(value: &mut Value) {
    const BYTES_KEPT: usize = 4 << 10;
    let capacity = match value {
        Value::String(text) => text.capacity(),
        Value::Binary(bytes) => bytes.capacity(),
        _ => 0,
    };
    if capacity > BYTES_KEPT {
        *value = Value::Null;
    }
}

/// Decodes one parameter. `declared` is the type oid that the client gave in `Parse` (0: none).
///
/// # Errors
/// `Invalid` (22P02, 22P03) for bytes that are no such value, `Unsupported` for types we have no values of.
pub fn decode(
    bytes: Option<&[u8]>,
    format: Format,
    declared: u32,
    wanted: Wanted,
) -> Result<Value, SqlError> {
    let Some(bytes) = bytes else { return Ok(Value::Null) };
    if !matches!(declared, oid::UNSPECIFIED | oid::UNKNOWN) && parameter_type(declared).is_none() {
        let message = format!("parameters of the type with oid {declared} are not supported");
        return Err(SqlError::new(ErrorKind::Unsupported, message));
    }
    let is_moment = declared == oid::TIMESTAMPTZ && wanted.column_type == ColumnType::Timestamp;
    let value = match format {
        // The offset of a moment counts.
        Format::Text if is_moment => {
            utf8(bytes).and_then(|text| text::parse(wanted.column_type, text)).map_err(invalid_text)
        }
        Format::Text => utf8(bytes).and_then(|text| wanted.parse(text)).map_err(invalid_text),
        Format::Binary => {
            let sent = if matches!(declared, oid::UNSPECIFIED | oid::UNKNOWN) {
                oid_of(wanted.column_type)
            } else {
                declared
            };
            binary(bytes, sent, wanted).map_err(|e| SqlError::from(e).with_sqlstate("22P03"))
        }
    }?;
    match (value, wanted.zone) {
        (Value::Timestamp(micros), Some(zone))
            if is_moment && (format == Format::Binary || has_offset(bytes)) =>
        {
            // A number is rounded where it is stored and not compared; so is this.
            if !wanted.rounds && zone.is_between_clocks(micros) {
                let message = format!(
                    "comparing timestamps with a moment about which the clocks of {} change is not supported",
                    zone.name()
                );
                return Err(SqlError::new(ErrorKind::Unsupported, message)
                    .with_hint("set the session's time zone to UTC"));
            }
            Ok(Value::Timestamp(zone.wall_clock(micros)))
        }
        (value, _) => Ok(value),
    }
}

/// Whether a timestamp ends in an offset from UTC. Without one it is what the session's clocks show.
fn has_offset(timestamp: &[u8]) -> bool {
    let time = timestamp.iter().position(|b| *b == b':').map_or(&[][..], |colon| &timestamp[colon..]);
    time.iter().any(|b| matches!(b, b'+' | b'-' | b'z' | b'Z'))
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| Error::invalid("invalid byte sequence for encoding \"UTF8\""))
}

fn binary(bytes: &[u8], sent: u32, wanted: Wanted) -> Result<Value> {
    let value = match sent {
        oid::NUMERIC => {
            let number = read_binary_numeric(bytes)?;
            return match wanted.column_type {
                ColumnType::Decimal { .. } => wanted.parse(&number),
                _ => wanted.parse(trim_number(&number)),
            };
        }
        oid::JSONB => match bytes.split_first() {
            Some((1, json)) => return wanted.parse(utf8(json)?),
            _ => return Err(Error::invalid("unsupported jsonb version")),
        },
        oid::BYTEA => Value::Binary(bytes.to_owned()),
        oid::BOOL => Value::Bool(u8::from_be_bytes(fixed(bytes)?) != 0),
        oid::INT2 => Value::Int16(i16::from_be_bytes(fixed(bytes)?)),
        oid::INT4 => Value::Int32(i32::from_be_bytes(fixed(bytes)?)),
        oid::INT8 => Value::Int64(i64::from_be_bytes(fixed(bytes)?)),
        oid::OID => Value::Int64(i64::from(u32::from_be_bytes(fixed(bytes)?))),
        oid::FLOAT4 => Value::Float(f32::from_be_bytes(fixed(bytes)?)),
        oid::FLOAT8 => Value::Double(f64::from_be_bytes(fixed(bytes)?)),
        oid::DATE => Value::Date(i32::from_be_bytes(fixed(bytes)?).saturating_add(EPOCH_DAYS)),
        oid::TIMESTAMP | oid::TIMESTAMPTZ => {
            let micros = i64::from_be_bytes(fixed(bytes)?);
            Value::Timestamp(if micros == i64::MIN { micros } else { micros.saturating_add(EPOCH_MICROS) })
        }
        oid::UUID => Value::Uuid(fixed(bytes)?),
        // Text and JSON.
        _ => return wanted.parse(utf8(bytes)?),
    };
    if value.as_ref().fits(wanted.column_type) {
        return Ok(value);
    }
    // The client's type is not the statement's: the text of the one is read as the other, range checks included.
    let sent = parameter_type(sent).expect("oids without a type were refused");
    wanted.parse(&text::to_string(value.as_ref(), sent))
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes
        .try_into()
        .map_err(|_| Error::invalid(format!("incorrect binary data format: {} bytes, not {N}", bytes.len())))
}

/// Without the zeros that a reader of integers would not take.
fn trim_number(number: &str) -> &str {
    match number.split_once('.') {
        Some((whole, fraction)) if fraction.bytes().all(|b| b == b'0') => whole,
        _ => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(column_type: ColumnType) -> Wanted {
        Wanted { column_type, rounds: false, zone: None }
    }

    fn from_binary(bytes: &[u8], declared: u32, expected: ColumnType) -> Result<Value, SqlError> {
        decode(Some(bytes), Format::Binary, declared, compared(expected))
    }

    #[test]
    fn the_clients_type_is_brought_to_the_statements() {
        let seven = 7_i16.to_be_bytes();
        assert_eq!(from_binary(&seven, oid::INT2, ColumnType::Int64).unwrap(), Value::Int64(7));
        assert_eq!(from_binary(&seven, oid::INT2, ColumnType::Double).unwrap(), Value::Double(7.0));
        assert_eq!(from_binary(&seven, oid::INT2, ColumnType::String).unwrap(), Value::String("7".into()));
        let decimal = ColumnType::Decimal { precision: 10, scale: 2 };
        assert_eq!(from_binary(&seven, oid::INT2, decimal).unwrap(), Value::Decimal(700));
        assert_eq!(from_binary(&seven, oid::UNSPECIFIED, ColumnType::Int16).unwrap(), Value::Int16(7));
        let error = from_binary(&70_000_i32.to_be_bytes(), oid::INT4, ColumnType::Int16).unwrap_err();
        assert!(error.error.message().contains("out of range"), "{error}");
    }

    #[test]
    fn numerics_that_are_compared_are_exact_or_refused() {
        let mut bytes = Vec::new();
        super::super::numeric::write_binary_numeric("1234", 3, &mut bytes);
        let narrow = ColumnType::Decimal { precision: 10, scale: 2 };
        assert!(from_binary(&bytes, oid::NUMERIC, narrow).is_err());
        let stored = Wanted { rounds: true, ..compared(narrow) };
        for (format, bytes) in [(Format::Binary, bytes.as_slice()), (Format::Text, b"1.234")] {
            assert_eq!(decode(Some(bytes), format, oid::NUMERIC, stored).unwrap(), Value::Decimal(123));
            assert!(decode(Some(bytes), format, oid::NUMERIC, compared(narrow)).is_err());
        }
        for (text, is_exact) in
            [("1.240", true), ("1.2401", false), ("124e-2", true), ("1e-3", false), ("0e-9", true)]
        {
            let decoded = decode(Some(text.as_bytes()), Format::Text, 0, compared(narrow));
            assert_eq!(decoded.is_ok(), is_exact, "{text}");
        }
        let wide = ColumnType::Decimal { precision: 38, scale: 10 };
        assert_eq!(from_binary(&bytes, oid::NUMERIC, wide).unwrap(), Value::Decimal(12_340_000_000));
    }

    #[test]
    fn dates_and_times_move_their_epoch() {
        assert_eq!(
            from_binary(&0_i32.to_be_bytes(), oid::DATE, ColumnType::Date).unwrap(),
            Value::Date(10_957)
        );
        let micros = from_binary(&0_i64.to_be_bytes(), oid::TIMESTAMPTZ, ColumnType::Timestamp).unwrap();
        assert_eq!(micros, Value::Timestamp(946_684_800_000_000));
    }

    #[test]
    fn a_moment_is_what_the_clocks_of_the_session_show() {
        let wanted = Wanted { zone: TimeZone::parse("Europe/Berlin"), ..compared(ColumnType::Timestamp) };
        let from_text = |text: &str, declared| {
            let decoded = decode(Some(text.as_bytes()), Format::Text, declared, wanted).unwrap();
            text::to_string(decoded.as_ref(), ColumnType::Timestamp)
        };
        for (sent, clock) in [
            ("2024-07-01 10:00:00+00", "2024-07-01 12:00:00"),
            ("2024-01-01T10:00:00Z", "2024-01-01 11:00:00"),
            ("2024-01-01 10:00:00-05", "2024-01-01 16:00:00"),
            ("2024-01-01 10:00:00", "2024-01-01 10:00:00"),
            ("2024-01-01", "2024-01-01 00:00:00"),
            ("infinity", "infinity"),
        ] {
            assert_eq!(from_text(sent, oid::TIMESTAMPTZ), clock, "{sent}");
        }
        for (sent, clock) in [
            ("2024-07-01 10:00:00+00", "2024-07-01 10:00:00"),
            ("2024-01-01T10:00:00.5-05:30", "2024-01-01 10:00:00.5"),
            ("infinity", "infinity"),
        ] {
            assert_eq!(from_text(sent, oid::UNSPECIFIED), clock, "{sent}: the offset is passed over");
            assert_eq!(from_text(sent, oid::TIMESTAMP), clock, "{sent}");
        }
        let noon = (EPOCH_MICROS + 43_200_000_000, 43_200_000_000_i64.to_be_bytes());
        let from_binary = |declared| decode(Some(&noon.1), Format::Binary, declared, wanted).unwrap();
        assert_eq!(from_binary(oid::TIMESTAMP), Value::Timestamp(noon.0));
        assert_eq!(from_binary(oid::TIMESTAMPTZ), Value::Timestamp(noon.0 + 3_600_000_000));
        let twice = b"2024-10-27 00:30:00+00";
        let state = |rounds| {
            let decoded = decode(Some(twice), Format::Text, oid::TIMESTAMPTZ, Wanted { rounds, ..wanted });
            decoded.map_err(|e| e.error.kind())
        };
        assert_eq!(state(false), Err(ErrorKind::Unsupported), "no timestamp is equal to it");
        assert!(state(true).is_ok(), "it may be stored");
        let forever = decode(Some(&i64::MAX.to_be_bytes()), Format::Binary, oid::TIMESTAMPTZ, wanted);
        assert_eq!(forever.unwrap(), Value::Timestamp(i64::MAX));
    }

    #[test]
    fn wrong_bytes_are_errors_with_a_sqlstate() {
        let state = |result: Result<Value, SqlError>| result.unwrap_err().sqlstate;
        assert_eq!(state(from_binary(b"abc", oid::INT4, ColumnType::Int32)), Some("22P03"));
        assert_eq!(state(decode(Some(b"abc"), Format::Text, 0, compared(ColumnType::Int32))), Some("22P02"));
        assert_eq!(
            state(decode(Some(b"\xff"), Format::Text, 0, compared(ColumnType::String))),
            Some("22P02")
        );
        assert_eq!(
            decode(Some(b"{}"), Format::Text, 1007, compared(ColumnType::Int32)).unwrap_err().error.kind(),
            ErrorKind::Unsupported
        );
        assert_eq!(decode(None, Format::Binary, 0, compared(ColumnType::Int32)).unwrap(), Value::Null);
    }
}
