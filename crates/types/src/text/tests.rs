use super::*;
use crate::ErrorKind;

const NUMERIC: ColumnType = ColumnType::Decimal { precision: 10, scale: 2 };

/// The text that a value read from `text` is written as.
fn rewritten(column_type: ColumnType, text: &str) -> String {
    let value = parse(column_type, text).unwrap_or_else(|e| panic!("{text}: {e}"));
    to_string(value.as_ref(), column_type)
}

fn refused(column_type: ColumnType, texts: &[&str]) {
    for text in texts {
        let error = parse(column_type, text).expect_err(text);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
    }
}

#[test]
fn booleans_are_read_from_every_word_postgresql_knows() {
    for (text, value) in [("t", true), ("YES", true), ("on", true), ("1", true), ("tru", true)] {
        assert_eq!(parse(ColumnType::Bool, text).unwrap(), Value::Bool(value));
    }
    for text in ["f", "No", "off", "0", " false "] {
        assert_eq!(parse(ColumnType::Bool, text).unwrap(), Value::Bool(false));
    }
    refused(ColumnType::Bool, &["", "o", "truey", "2", "ä"]);
}

#[test]
fn integers_keep_to_their_range() {
    assert_eq!(rewritten(ColumnType::Int8, " -128 "), "-128");
    assert_eq!(rewritten(ColumnType::Int64, "+9223372036854775807"), "9223372036854775807");
    let error = parse(ColumnType::Int8, "128").unwrap_err();
    assert_eq!(error.message(), "value \"128\" is out of range for type tinyint");
    let error = parse(ColumnType::Int32, "1.5").unwrap_err();
    assert_eq!(error.message(), "invalid input syntax for type integer: \"1.5\"");
    refused(ColumnType::Int64, &["", "-", "0x10", "1e3", "9223372036854775808"]);
}

#[test]
fn decimals_round_half_away_from_zero() {
    for (text, written) in [
        ("1", "1.00"),
        ("-0.005", "-0.01"),
        ("0.004999", "0.00"),
        ("1.005", "1.01"),
        (".5", "0.50"),
        ("5.", "5.00"),
        ("12345678.99", "12345678.99"),
        ("1e3", "1000.00"),
        ("1234E-3", "1.23"),
        ("0e2147483647", "0.00"),
        ("9e-2147483648", "0.00"),
        ("-99999999.99", "-99999999.99"),
    ] {
        assert_eq!(rewritten(NUMERIC, text), written, "{text}");
    }
    refused(NUMERIC, &["", ".", "-", "1e", "1.2.3", "+-1", "100000000", "99999999.995", "1e2147483647"]);
    for text in ["NaN", "-Infinity"] {
        assert_eq!(parse(NUMERIC, text).unwrap_err().kind(), ErrorKind::Unsupported, "{text}");
    }
    let widest = ColumnType::Decimal { precision: 38, scale: 0 };
    let nines = "9".repeat(38);
    assert_eq!(rewritten(widest, &nines), nines);
    refused(widest, &[&"9".repeat(39), &i128::MAX.to_string(), &format!("{}.9", i128::MAX)]);
}

#[test]
fn floats_are_as_short_as_they_can_be() {
    for (text, written) in [
        ("0.1", "0.1"),
        ("-0", "-0"),
        ("100000", "100000"),
        ("123456789012345", "123456789012345"),
        ("1e15", "1e+15"),
        ("0.0001", "0.0001"),
        ("0.00001", "1e-05"),
        ("1.5e300", "1.5e+300"),
        ("-12.5", "-12.5"),
        ("nan", "NaN"),
        ("-inf", "-Infinity"),
    ] {
        assert_eq!(rewritten(ColumnType::Double, text), written, "{text}");
    }
    assert_eq!(rewritten(ColumnType::Float, "1234567"), "1.234567e+06");
    assert_eq!(rewritten(ColumnType::Float, "0.1"), "0.1");
    refused(ColumnType::Double, &["1e400", "", "1,5"]);
    refused(ColumnType::Float, &["1e39"]);
}

#[test]
fn bytes_are_written_as_hex_however_many_there_are() {
    for length in [0, 1, 63, 64, 65, 128, 300] {
        let bytes = Vec::from_iter((0..length).map(|n| n as u8));
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(to_string(ValueRef::Binary(&bytes), ColumnType::Binary), format!("\\x{hex}"));
    }
}

#[test]
fn binary_is_read_as_hex_or_escaped() {
    assert_eq!(rewritten(ColumnType::Binary, "\\x00fF 10"), "\\x00ff10");
    assert_eq!(rewritten(ColumnType::Binary, "a\\\\b\\001"), "\\x615c6201");
    refused(ColumnType::Binary, &["\\x0", "\\xzz", "\\", "\\9", "\\400"]);
}

#[test]
fn dates_are_iso() {
    for (text, written) in [
        ("1970-01-01", "1970-01-01"),
        ("20240229", "2024-02-29"),
        ("epoch", "1970-01-01"),
        ("5874897-12-31", "5874897-12-31"),
        ("4714-11-24 BC", "4714-11-24 BC"),
        ("2024-2-29", "2024-02-29"),
        ("2024-01-02 03:04:05", "2024-01-02"),
        ("0044-03-15 BC", "0044-03-15 BC"),
        ("12345-06-07", "12345-06-07"),
        ("infinity", "infinity"),
        ("-Infinity", "-infinity"),
    ] {
        assert_eq!(rewritten(ColumnType::Date, text), written, "{text}");
    }
    assert_eq!(parse(ColumnType::Date, "1969-12-31").unwrap(), Value::Date(-1));
    let strange =
        ["", "2023-02-29", "2024-13-01", "0000-01-01", "24-01-01", "2024-01", "2024-01-01 x", "2024-01-01-1"];
    refused(ColumnType::Date, &strange);
    refused(ColumnType::Date, &["5874898-01-01", "4714-11-23 BC", "2024-01-01 12"]);
    for text in ["today", "1/2/2024"] {
        assert_eq!(parse(ColumnType::Date, text).unwrap_err().kind(), ErrorKind::Unsupported, "{text}");
    }
}

#[test]
fn timestamps_are_in_utc() {
    for (text, written) in [
        ("2024-01-02 03:04:05.123456", "2024-01-02 03:04:05.123456"),
        ("2024-01-02T03:04:05.5Z", "2024-01-02 03:04:05.5"),
        ("2024-01-02", "2024-01-02 00:00:00"),
        ("2024-01-02 03:04", "2024-01-02 03:04:00"),
        ("2024-01-02 24:00:00", "2024-01-03 00:00:00"),
        ("2024-12-31 23:59:60", "2025-01-01 00:00:00"),
        ("294247-01-10 04:00:54.775806", "294247-01-10 04:00:54.775806"),
        ("2024-01-02 03:04:05+02", "2024-01-02 01:04:05"),
        ("2024-01-01 00:30:00 +01:00", "2023-12-31 23:30:00"),
        ("2024-01-01 00:30:00-0530", "2024-01-01 06:00:00"),
        ("2024-12-31 23:59:59.9999995", "2025-01-01 00:00:00"),
        ("0001-01-01 00:00:00.000001 BC", "0001-01-01 00:00:00.000001 BC"),
        ("infinity", "infinity"),
    ] {
        assert_eq!(rewritten(ColumnType::Timestamp, text), written, "{text}");
    }
    assert_eq!(parse(ColumnType::Timestamp, "1970-01-01 00:00:00.000001").unwrap(), Value::Timestamp(1));
    let strange =
        ["", "2024-01-02 25:00", "2024-01-02 3", "2024-01-02 03:04:05.x", "2024-01-02 03:04:05+99", "12:00"];
    refused(ColumnType::Timestamp, &strange);
}

#[test]
fn in_sql_the_offset_of_a_timestamp_is_passed_over() {
    for read in [parse_sql, parse_exact] {
        for (text, clock) in [
            ("2024-01-02 03:04:05+02", "2024-01-02 03:04:05"),
            (" 2024-01-01 00:30:00.5 -0530 ", "2024-01-01 00:30:00.5"),
            ("2024-01-02T03:04:05Z", "2024-01-02 03:04:05"),
            ("2024-01-02", "2024-01-02 00:00:00"),
            ("-infinity", "-infinity"),
        ] {
            let value = read(ColumnType::Timestamp, text).unwrap();
            assert_eq!(to_string(value.as_ref(), ColumnType::Timestamp), clock, "{text}");
        }
        assert!(read(ColumnType::Timestamp, "2024-01-02 03:04:05+99").is_err());
    }
}

#[test]
fn only_the_outermost_moments_are_infinite() {
    let written = |micros| to_string(ValueRef::Timestamp(micros), ColumnType::Timestamp);
    assert_eq!(written(i64::MAX), "infinity");
    assert_eq!(written(i64::MAX - 1), "294247-01-10 04:00:54.775806");
    assert_eq!(written(i64::MIN + 1), "290309-12-21 19:59:05.224193 BC");
    assert_eq!(written(i64::MIN), "-infinity");
    refused(ColumnType::Timestamp, &["294247-01-10 04:00:54.775807", "294277-01-01", "5000-01-01 BC"]);
    assert_eq!(to_string(ValueRef::Date(i32::MAX), ColumnType::Date), "infinity");
}

#[test]
fn intervals_are_read_and_written_as_postgresql_does() {
    for (text, written) in [
        ("1 day", "1 day"),
        ("0", "00:00:00"),
        (" 12 ", "00:00:12"),
        ("-5.5", "-00:00:05.5"),
        ("5.", "00:00:05"),
        ("20240101", "5622:15:01"),
        ("-1 month 02:03:04.5", "-1 mons +02:03:04.5"),
        ("1.5 months", "1 mon 15 days"),
        ("1.5 weeks", "10 days 12:00:00"),
        ("1.5 years", "1 year 6 mons"),
        ("1.2345 hours", "01:14:04.2"),
        ("1 02:03:04", "1 day 02:03:04"),
        ("-1-2", "-1 years -2 mons"),
        ("1-2 3 04:05:06", "1 year 2 mons 3 days 04:05:06"),
        ("12:34.5", "00:12:34.5"),
        ("@ 1day 3 hours ago", "-1 days -03:00:00"),
        ("P1Y2M3DT4H5M6S", "1 year 2 mons 3 days 04:05:06"),
        ("2 centuries 1 ms", "200 years 00:00:00.001"),
    ] {
        let mut out = Vec::new();
        Interval::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).format(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), written, "{text}");
    }
    for text in [
        "",
        "day",
        "1e3",
        "yes",
        "1 day 2 days",
        "2024-01-01",
        "infinity",
        "1 day x",
        "9223372036854775807",
        "12:60",
    ] {
        assert!(Interval::parse(text).is_err(), "{text}");
    }
}

#[test]
fn uuids_and_json_are_checked() {
    let uuid = "00112233-4455-6677-8899-aabbccddeeff";
    assert_eq!(rewritten(ColumnType::Uuid, &uuid.replace('-', "").to_uppercase()), uuid);
    refused(ColumnType::Uuid, &["", "0011"]);
    assert_eq!(rewritten(ColumnType::Json, " {\"a\": [1, 2.50]} "), " {\"a\": [1, 2.50]} ");
    refused(ColumnType::Json, &["", "{", "{} {}", "nul", "'a'"]);
}

#[test]
fn a_long_text_is_quoted_in_part() {
    let error = parse(ColumnType::Int32, &"ä".repeat(10_000)).unwrap_err();
    assert!(error.message().len() < 300, "{error}");
}
