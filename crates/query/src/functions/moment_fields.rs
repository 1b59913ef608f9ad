//! Fields of moments, which `date_part` and `extract` tell and `date_trunc` cuts behind.

use super::rows::Arg;
use crate::error::{invalid, unsupported};
use oribi_session::sql::SqlError;
use oribi_types::calendar::{Date, MICROS_PER_DAY, date_of, days_of};
use oribi_types::text::{Interval, Unit};

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_MINUTE: i64 = 60 * MICROS_PER_SECOND;
const MICROS_PER_HOUR: i64 = 60 * MICROS_PER_MINUTE;

/// From the first Julian day to 1970.
const JULIAN_EPOCH: i64 = 2_440_588;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Unit(Unit),
    Epoch,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
    Julian,
    /// The offset of the time zone, or its hours or minutes.
    TimeZone,
}

impl Field {
    /// The field that a word means. PostgreSQL looks at its first ten letters.
    fn named(word: &str) -> Option<Field> {
        if let Some(unit) = Unit::named(word) {
            return Some(Field::Unit(unit));
        }
        let word = word.to_ascii_lowercase();
        Some(match word.get(..10).unwrap_or(&word) {
            "epoch" => Field::Epoch,
            "dow" => Field::DayOfWeek,
            "isodow" => Field::IsoDayOfWeek,
            "doy" => Field::DayOfYear,
            "isoyear" => Field::IsoYear,
            "j" | "jd" | "julian" => Field::Julian,
            "timezone" | "timezone_h" | "timezone_m" => Field::TimeZone,
            _ => return None,
        })
    }

    /// Whether the field grows with time, and so is infinite at its ends. The others have no value there.
    fn is_monotone(self) -> bool {
        use Unit::{Century, Decade, Millennium, Year};
        matches!(
            self,
            Field::Unit(Year | Decade | Century | Millennium) | Field::Epoch | Field::IsoYear | Field::Julian
        )
    }
}

/// How many digits a numeric of the field has behind its point.
pub(crate) fn extracted_scale(field: &str) -> u8 {
    match Field::named(field) {
        Some(Field::Unit(Unit::Second) | Field::Epoch) => 6,
        Some(Field::Unit(Unit::Millisecond)) => 3,
        _ => 0,
    }
}

/// What a field has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    /// As `date_part` gives it, with the roundings of PostgreSQL's own sums.
    pub(super) float: f64,
    /// As `extract` gives it, in millionths; `None` where a numeric has more digits, or would be infinite.
    pub(super) millionths: Option<i128>,
}

impl Value {
    fn whole(n: i64) -> Value {
        Value { float: n as f64, millionths: Some(i128::from(n) * 1_000_000) }
    }

    /// Wholes, and a part of one, of which `of` make a whole.
    fn parts(whole: i64, part: i64, of: i64) -> Value {
        let millionths = i128::from(whole) * 1_000_000 + i128::from(part) * 1_000_000 / i128::from(of);
        Value { float: whole as f64 + part as f64 / of as f64, millionths: Some(millionths) }
    }

    fn float(float: f64) -> Value {
        Value { float, millionths: None }
    }
}

/// The field of a date, a timestamp or an interval; `None` is null.
///
/// # Errors
/// 22023 for a word that is no field, 0A000 for one that the moment does not have.
pub(super) fn field(word: &str, of: &Arg<'_>) -> Result<Option<Value>, SqlError> {
    let type_name = match of {
        Arg::Interval(_) => "interval",
        Arg::Date(_) => "date",
        _ => "timestamp",
    };
    let unrecognized = || invalid("22023", format!("unit \"{word}\" not recognized for type {type_name}"));
    let field = Field::named(word).ok_or_else(unrecognized)?;
    let value = match *of {
        Arg::Interval(interval) => field_of_interval(field, interval),
        Arg::Date(days @ (i32::MAX | i32::MIN)) => {
            let infinity = if days > 0 { f64::INFINITY } else { f64::NEG_INFINITY };
            field_of_day(field, 0).and_then(|_| at_infinity(field, infinity))
        }
        Arg::Date(days) => field_of_day(field, i64::from(days)).map(Some),
        Arg::Timestamp(i64::MAX) => at_infinity(field, f64::INFINITY),
        Arg::Timestamp(i64::MIN) => at_infinity(field, f64::NEG_INFINITY),
        Arg::Timestamp(micros) => field_of_timestamp(field, micros).map(Some),
        _ => Some(None),
    };
    value.ok_or_else(|| unsupported(&format!("unit \"{word}\" for type {type_name}")))
}

fn at_infinity(field: Field, infinity: f64) -> Option<Option<Value>> {
    Some(field.is_monotone().then_some(Value::float(infinity)))
}

fn field_of_timestamp(field: Field, micros: i64) -> Option<Value> {
    let (day, time) = (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
    Some(match field {
        Field::Epoch => Value::parts(0, micros, MICROS_PER_SECOND),
        Field::Julian => {
            let seconds = (time / MICROS_PER_SECOND) as f64 + (time % MICROS_PER_SECOND) as f64 / 1e6;
            Value::float((day + JULIAN_EPOCH) as f64 + seconds / 86_400.0)
        }
        Field::Unit(unit) => match field_of_time(unit, time) {
            Some(value) => value,
            None => return field_of_day(field, day),
        },
        _ => return field_of_day(field, day),
    })
}

/// The fields of a time of day, and of the time of an interval.
fn field_of_time(unit: Unit, time: i64) -> Option<Value> {
    let (second, micros) = (time % MICROS_PER_MINUTE / MICROS_PER_SECOND, time % MICROS_PER_SECOND);
    Some(match unit {
        Unit::Microsecond => Value::whole(time % MICROS_PER_MINUTE),
        Unit::Millisecond => Value::parts(second * 1000, micros, 1000),
        Unit::Second => Value::parts(second, micros, MICROS_PER_SECOND),
        Unit::Minute => Value::whole(time / MICROS_PER_MINUTE % 60),
        Unit::Hour => Value::whole(time / MICROS_PER_HOUR),
        _ => return None,
    })
}

fn field_of_day(field: Field, days: i64) -> Option<Value> {
    let Date { year, month, day } = date_of(days);
    Some(Value::whole(match field {
        Field::Epoch => days * 86_400,
        Field::Julian => days + JULIAN_EPOCH,
        Field::DayOfWeek => iso_day_of_week(days) % 7,
        Field::IsoDayOfWeek => iso_day_of_week(days),
        Field::DayOfYear => days - first_day(year) + 1,
        Field::IsoYear => without_zero(iso_week(days).0),
        Field::Unit(Unit::Week) => iso_week(days).1,
        Field::Unit(Unit::Day) => i64::from(day),
        Field::Unit(Unit::Month) => i64::from(month),
        Field::Unit(Unit::Quarter) => i64::from(month - 1) / 3 + 1,
        Field::Unit(Unit::Year) => without_zero(year),
        Field::Unit(Unit::Decade) => year.div_euclid(10),
        Field::Unit(Unit::Century) => count_of_years(year, 100),
        Field::Unit(Unit::Millennium) => count_of_years(year, 1000),
        _ => return None,
    }))
}

fn field_of_interval(field: Field, interval: Interval) -> Option<Option<Value>> {
    let (years, months) = (i64::from(interval.months / 12), i64::from(interval.months % 12));
    let Field::Unit(unit) = field else {
        return (field == Field::Epoch).then(|| Some(seconds_of(years, months, interval)));
    };
    let value = match unit {
        Unit::Day => i64::from(interval.days),
        Unit::Month => months,
        Unit::Quarter => months / 3 + 1,
        Unit::Year => years,
        Unit::Decade => years / 10,
        Unit::Century => years / 100,
        Unit::Millennium => years / 1000,
        unit => return field_of_time(unit, interval.micros).map(Some),
    };
    Some(Some(Value::whole(value)))
}

/// The length of an interval, whose years have 365 days and a quarter, and whose months 30.
fn seconds_of(years: i64, months: i64, interval: Interval) -> Value {
    const DAY: f64 = 86_400.0;
    let time = interval.micros as f64 / MICROS_PER_SECOND as f64;
    let float =
        time + 365.25 * DAY * years as f64 + 30.0 * DAY * months as f64 + DAY * f64::from(interval.days);
    let quarters = i128::from(1461 * years + 120 * months + 4 * i64::from(interval.days));
    Value { float, millionths: Some(quarters * i128::from(MICROS_PER_DAY / 4) + i128::from(interval.micros)) }
}

/// A year as it is told: before the year 1 comes -1.
fn without_zero(year: i64) -> i64 {
    if year > 0 { year } else { year - 1 }
}

/// The century or millennium of a year: the first one ends with the year 100 or 1000.
fn count_of_years(year: i64, each: i64) -> i64 {
    if year > 0 { (year + each - 1) / each } else { -((each - year) / each) }
}

fn first_day(year: i64) -> i64 {
    days_of(Date { year, month: 1, day: 1 }).expect("every year has a first day")
}

/// From Monday, 1, to Sunday, 7. The first day of 1970 was a Thursday.
fn iso_day_of_week(days: i64) -> i64 {
    (days + 3).rem_euclid(7) + 1
}

/// Year and number of the week of a day: a week is of the year that has its Thursday.
fn iso_week(days: i64) -> (i64, i64) {
    let thursday = days + 4 - iso_day_of_week(days);
    let year = date_of(thursday).year;
    (year, (thursday - first_day(year)) / 7 + 1)
}

/// The beginning of the unit that a timestamp is in.
///
/// # Errors
/// As [`field`].
pub(super) fn trunc(word: &str, micros: i64) -> Result<i64, SqlError> {
    let unit = match Field::named(word) {
        Some(Field::Unit(unit)) => unit,
        Some(_) => return Err(unsupported(&format!("unit \"{word}\" for type timestamp"))),
        None => return Err(invalid("22023", format!("unit \"{word}\" not recognized for type timestamp"))),
    };
    let whole = |each: i64| Ok(micros - micros.rem_euclid(each));
    let days = micros.div_euclid(MICROS_PER_DAY);
    let Date { year, month, .. } = date_of(days);
    let (year, month) = match unit {
        Unit::Microsecond => return Ok(micros),
        Unit::Millisecond => return whole(1000),
        Unit::Second => return whole(MICROS_PER_SECOND),
        Unit::Minute => return whole(MICROS_PER_MINUTE),
        Unit::Hour => return whole(MICROS_PER_HOUR),
        Unit::Day => return whole(MICROS_PER_DAY),
        Unit::Week => return Ok((days + 1 - iso_day_of_week(days)) * MICROS_PER_DAY),
        Unit::Month => (year, month),
        Unit::Quarter => (year, (month - 1) / 3 * 3 + 1),
        Unit::Year => (year, 1),
        Unit::Decade => (year.div_euclid(10) * 10, 1),
        // The first century began with the year 1.
        Unit::Century => ((year - 1).div_euclid(100) * 100 + 1, 1),
        Unit::Millennium => ((year - 1).div_euclid(1000) * 1000 + 1, 1),
    };
    let first = days_of(Date { year, month, day: 1 }).expect("every month has a first day");
    first.checked_mul(MICROS_PER_DAY).ok_or_else(|| invalid("22008", "timestamp out of range"))
}
