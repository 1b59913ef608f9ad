//! Functions of dates, timestamps and intervals, as PostgreSQL computes them: infinite moments stay infinite, and what
//! leaves the calendar is an error. DataFusion counts in nanoseconds, which end in 2262, and in its own units.

use super::moment_fields::{field, trunc};
use super::rows::{Answer, Arg, Returns, RowFunction};
use crate::error::{invalid, unsupported};
use arrow::array::ArrayRef;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ScalarUDF};
use oribi_session::sql::SqlError;
use oribi_types::calendar::{Date, FIRST_DAY, LAST_DAY, MICROS_PER_DAY, date_of, days_in_month, days_of};
use oribi_types::text::{self, Interval};
use oribi_types::{ColumnType, ValueRef};
use std::sync::Arc;

type Answered = std::result::Result<Answer, SqlError>;

/// The functions that have a name in SQL.
pub(super) const FUNCTIONS: &[RowFunction] = &[
    RowFunction::strict("date_part", Returns::Double, |args| {
        Ok(field(args[0].text(), &as_timestamp(&args[1])?)?
            .map_or(Answer::Null, |value| Answer::Double(value.float)))
    }),
    RowFunction::strict("extract_whole", Returns::Numeric(24, 0), |args| extracted(args, 0)),
    RowFunction::strict("extract_thousandths", Returns::Numeric(24, 3), |args| extracted(args, 3)),
    RowFunction::strict("extract_millionths", Returns::Numeric(24, 6), |args| extracted(args, 6)),
    RowFunction::strict("date_trunc", Returns::LikeMoment, |args| {
        Ok(Answer::Timestamp(match timestamp(&args[1])? {
            infinite if is_infinite(infinite) => infinite,
            micros => trunc(args[0].text(), micros)?,
        }))
    }),
    RowFunction::strict("make_date", Returns::Date, |args| {
        make_date(args[0].int(), args[1].int(), args[2].int())
    }),
    RowFunction::strict("to_timestamp", Returns::LikeMoment, |args| to_timestamp(&args[0])),
];

/// What operators and casts are made of; no client can call them.
pub(super) const INTERNAL: &[RowFunction] = &[
    // Sums, in either order: that which the client wrote tells two columns apart.
    RowFunction::strict("date_plus_days", Returns::Date, |args| match (args[0], args[1]) {
        (days, date @ Arg::Date(_)) | (date, days) => date_plus_days(date, days.int()),
    }),
    RowFunction::strict("date_minus_days", Returns::Date, |args| date_plus_days(args[0], -args[1].int())),
    RowFunction::strict("days_between", Returns::Int4, |args| match (args[0], args[1]) {
        (Arg::Date(i32::MIN | i32::MAX), _) | (_, Arg::Date(i32::MIN | i32::MAX)) => {
            Err(invalid("22008", "cannot subtract infinite dates"))
        }
        (Arg::Date(left), Arg::Date(right)) => Ok(Answer::Int(i64::from(left) - i64::from(right))),
        _ => Ok(Answer::Null),
    }),
    RowFunction::strict("timestamp_plus", Returns::LikeTimestamp, |args| match (&args[0], &args[1]) {
        (Arg::Interval(interval), moment) | (moment, Arg::Interval(interval)) => {
            plus(timestamp(moment)?, *interval)
        }
        _ => Ok(Answer::Null),
    }),
    RowFunction::strict("timestamp_minus", Returns::LikeTimestamp, |args| {
        plus(timestamp(&args[0])?, interval(&args[1]).negated().ok_or_else(interval_out_of_range)?)
    }),
    RowFunction::strict("time_between", Returns::Interval, |args| {
        between(timestamp(&args[0])?, timestamp(&args[1])?)
    }),
    RowFunction::strict("interval_plus", Returns::Interval, |args| {
        some(interval(&args[0]).plus(interval(&args[1])))
    }),
    RowFunction::strict("interval_minus", Returns::Interval, |args| {
        some(interval(&args[1]).negated().and_then(|right| interval(&args[0]).plus(right)))
    }),
    RowFunction::strict("interval_negated", Returns::Interval, |args| some(interval(&args[0]).negated())),
    RowFunction::strict("interval_times", Returns::Interval, |args| {
        let factor = double(&args[1]);
        some(scaled(interval(&args[0]), |part| part * factor))
    }),
    RowFunction::strict("interval_divided", Returns::Interval, |args| match double(&args[1]) {
        0.0 => Err(invalid("22012", "division by zero")),
        divisor => some(scaled(interval(&args[0]), |part| part / divisor)),
    }),
    // Intervals are compared as if a month had 30 days and a day 24 hours.
    RowFunction::strict("interval_order", Returns::Numeric(38, 0), |args| {
        let Interval { months, days, micros } = interval(&args[0]);
        let days = i128::from(months) * 30 + i128::from(days);
        Ok(Answer::Numeric(days * i128::from(MICROS_PER_DAY) + i128::from(micros)))
    }),
    RowFunction::strict(AS_TIMESTAMP, Returns::Timestamp, |args| Ok(Answer::Timestamp(timestamp(&args[0])?))),
    RowFunction::strict(AS_DATE, Returns::Date, |args| {
        Ok(Answer::Date(match timestamp(&args[0])? {
            i64::MAX => i32::MAX,
            i64::MIN => i32::MIN,
            micros => micros.div_euclid(MICROS_PER_DAY) as i32,
        }))
    }),
    RowFunction::strict(AS_INTERVAL, Returns::Interval, |args| {
        parse_interval(args[0].text()).map(Answer::Interval)
    }),
    RowFunction::strict(INTERVAL_TEXT, Returns::Text, |args| {
        let mut out = Vec::new();
        interval(&args[0]).format(&mut out);
        Ok(Answer::Text(String::from_utf8(out).expect("an interval is written as ASCII")))
    }),
    RowFunction::strict(ZONED_TEXT, Returns::Text, |args| {
        let text = text::to_string(ValueRef::Timestamp(timestamp(&args[0])?), ColumnType::Timestamp);
        Ok(Answer::Text(match text.strip_suffix(" BC") {
            _ if text.ends_with("infinity") => text,
            Some(rest) => format!("{rest}+00 BC"),
            None => format!("{text}+00"),
        }))
    }),
];

pub(super) const AS_TIMESTAMP: &str = "as_timestamp";
pub(super) const AS_DATE: &str = "as_date";
pub(super) const AS_INTERVAL: &str = "as_interval";
pub(super) const INTERVAL_TEXT: &str = "interval_text";
pub(super) const ZONED_TEXT: &str = "zoned_text";

/// Dates and timestamps as they are assigned to a column of either.
///
/// # Errors
/// 22008 for a date that no timestamp has.
pub(crate) fn assigned(moments: &ArrayRef, to: ColumnType) -> Result<ArrayRef> {
    let name = if to == ColumnType::Date { AS_DATE } else { AS_TIMESTAMP };
    let function = INTERNAL.iter().find(|function| function.name() == name);
    function.expect("it is one of ours").of_column(moments)
}

/// A call of one of the internal functions.
pub(super) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let function =
        INTERNAL.iter().find(|function| function.name() == name).expect("it is one of ours").clone();
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(function)), arguments))
}

/// A call of one of the internal functions, or its answer if that is known: so a date column is compared with a date
/// in `day < date '2024-01-01' + interval '1 year'`.
///
/// # Errors
/// Those of the function.
pub(super) fn folded(call: ScalarFunction) -> Result<Transformed<Expr>> {
    let constant = |argument: &Expr| match argument {
        Expr::Literal(value, _) => Some(value.clone()),
        _ => None,
    };
    let function = INTERNAL.iter().find(|function| function.name() == call.func.name());
    match (function, call.args.iter().map(constant).collect::<Option<Vec<_>>>()) {
        (Some(function), Some(constants)) => {
            let constants: Vec<&ScalarValue> = constants.iter().collect();
            Ok(Transformed::yes(Expr::Literal(function.of_constants(&constants)?, None)))
        }
        _ => Ok(Transformed::no(Expr::ScalarFunction(call))),
    }
}

/// Whether a function of a plan is one of the internal ones.
pub(super) fn is_ours(name: &str) -> bool {
    INTERNAL.iter().any(|function| function.name() == name)
}

/// The interval that a text writes.
///
/// # Errors
/// 22007.
pub(super) fn parse_interval(text: &str) -> std::result::Result<Interval, SqlError> {
    Interval::parse(text).map_err(|e| SqlError::from(e).with_sqlstate("22007"))
}

fn is_infinite(micros: i64) -> bool {
    micros == i64::MAX || micros == i64::MIN
}

fn interval_out_of_range() -> SqlError {
    invalid("22008", "interval out of range")
}

fn timestamp_out_of_range() -> SqlError {
    invalid("22008", "timestamp out of range")
}

fn some(interval: Option<Interval>) -> Answered {
    interval.map(Answer::Interval).ok_or_else(interval_out_of_range)
}

fn interval(arg: &Arg<'_>) -> Interval {
    match arg {
        Arg::Interval(interval) => *interval,
        _ => Interval::default(),
    }
}

fn double(arg: &Arg<'_>) -> f64 {
    match arg {
        Arg::Double(x) => *x,
        other => other.int() as f64,
    }
}

/// A date or a timestamp in microseconds.
fn timestamp(arg: &Arg<'_>) -> std::result::Result<i64, SqlError> {
    match *arg {
        Arg::Date(i32::MAX) => Ok(i64::MAX),
        Arg::Date(i32::MIN) => Ok(i64::MIN),
        Arg::Date(days) => {
            let micros = i64::from(days).checked_mul(MICROS_PER_DAY);
            micros.ok_or_else(|| invalid("22008", "date out of range for timestamp"))
        }
        Arg::Timestamp(micros) => Ok(micros),
        _ => Ok(0),
    }
}

/// A date as the timestamp at its beginning; other moments as they are.
fn as_timestamp<'a>(arg: &Arg<'a>) -> std::result::Result<Arg<'a>, SqlError> {
    match arg {
        Arg::Date(_) => Ok(Arg::Timestamp(timestamp(arg)?)),
        other => Ok(*other),
    }
}

fn date_plus_days(date: Arg<'_>, days: i64) -> Answered {
    match date {
        Arg::Date(infinite @ (i32::MIN | i32::MAX)) => Ok(Answer::Date(infinite)),
        Arg::Date(first) => {
            let days = i64::from(first) + days;
            let in_range = (FIRST_DAY..=LAST_DAY).contains(&days);
            if in_range { Ok(Answer::Date(days as i32)) } else { Err(invalid("22008", "date out of range")) }
        }
        _ => Ok(Answer::Null),
    }
}

/// Months first, the last day of the month where it has no such day; then days; then the time.
fn plus(micros: i64, interval: Interval) -> Answered {
    if is_infinite(micros) {
        return Ok(Answer::Timestamp(micros));
    }
    let (mut day, time) = (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
    if interval.months != 0 {
        let date = date_of(day);
        let months = date.year * 12 + i64::from(date.month) - 1 + i64::from(interval.months);
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) as u32 + 1);
        let date = Date { year, month, day: date.day.min(days_in_month(year, month)) };
        day = days_of(date).ok_or_else(timestamp_out_of_range)?;
    }
    let midnight = (day + i64::from(interval.days)).checked_mul(MICROS_PER_DAY);
    let sum = midnight.and_then(|midnight| midnight.checked_add(time)?.checked_add(interval.micros));
    sum.and_then(in_calendar).map(Answer::Timestamp).ok_or_else(timestamp_out_of_range)
}

fn in_calendar(micros: i64) -> Option<i64> {
    (FIRST_DAY * MICROS_PER_DAY..i64::MAX).contains(&micros).then_some(micros)
}

/// `left - right`, in days and a time.
fn between(left: i64, right: i64) -> Answered {
    if is_infinite(left) || is_infinite(right) {
        return Err(invalid("22008", "cannot subtract infinite timestamps"));
    }
    let micros = left.checked_sub(right).ok_or_else(interval_out_of_range)?;
    some(Some(Interval {
        months: 0,
        days: (micros / MICROS_PER_DAY) as i32,
        micros: micros % MICROS_PER_DAY,
    }))
}

/// An interval of which each part is multiplied or divided. What is left of months becomes days, of which there are 30
/// in a month, and what is left of days becomes time: PostgreSQL's `interval_mul`, with its roundings.
fn scaled(interval: Interval, scale: impl Fn(f64) -> f64) -> Option<Interval> {
    const SECONDS_PER_DAY: f64 = 86_400.0;
    let whole = |part: f64| (-2_147_483_648.0..2_147_483_648.0).contains(&part).then_some(part.trunc());
    let rounded = |part: f64| (part * 1e6).round_ties_even() / 1e6;
    let (months, days) = (scale(f64::from(interval.months)), scale(f64::from(interval.days)));
    let (whole_months, mut whole_days) = (whole(months)?, whole(days)?);
    let days_of_months = rounded((months - whole_months) * 30.0);
    let mut seconds = rounded((days - whole_days + days_of_months.fract()) * SECONDS_PER_DAY);
    if seconds.abs() >= SECONDS_PER_DAY {
        whole_days += (seconds / SECONDS_PER_DAY).trunc();
        seconds %= SECONDS_PER_DAY;
    }
    let days = whole(whole_days + days_of_months.trunc())?;
    let micros = (scale(interval.micros as f64) + seconds * 1e6).round_ties_even();
    // 2^63 is the first float that is too large.
    (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&micros).then_some(Interval {
        months: whole_months as i32,
        days: days as i32,
        micros: micros as i64,
    })
}

fn extracted(args: &[Arg<'_>], scale: u32) -> Answered {
    let Some(value) = field(args[0].text(), &args[1])? else { return Ok(Answer::Null) };
    let millionths = value.millionths.ok_or_else(|| unsupported("this field as a numeric"))?;
    Ok(Answer::Numeric(millionths / 10_i128.pow(6 - scale)))
}

fn make_date(year: i64, month: i64, day: i64) -> Answered {
    let out_of_range =
        || invalid("22008", format!("date field value out of range: {year}-{month:02}-{day:02}"));
    // There is no year zero: -1 is 1 BC.
    let astronomical = if year < 0 { year + 1 } else { year };
    let (Ok(month), Ok(day)) = (u32::try_from(month), u32::try_from(day)) else { return Err(out_of_range()) };
    let days =
        days_of(Date { year: astronomical, month, day }).filter(|_| year != 0).ok_or_else(out_of_range)?;
    if !(FIRST_DAY..=LAST_DAY).contains(&days) {
        return Err(invalid("22008", format!("date out of range: {year}-{month:02}-{day:02}")));
    }
    Ok(Answer::Date(days as i32))
}

/// Seconds since 1970, which PostgreSQL rounds to microseconds from 2000 on.
fn to_timestamp(seconds: &Arg<'_>) -> Answered {
    const FROM_1970_TO_2000: f64 = 946_684_800.0;
    let seconds = double(seconds);
    if seconds.is_nan() {
        return Err(invalid("22008", "timestamp cannot be NaN"));
    }
    if seconds.is_infinite() {
        return Ok(Answer::Timestamp(if seconds > 0.0 { i64::MAX } else { i64::MIN }));
    }
    let out_of_range = || invalid("22008", format!("timestamp out of range: \"{seconds:e}\""));
    let since_2000 = ((seconds - FROM_1970_TO_2000) * 1e6).round_ties_even();
    if since_2000.abs() >= 9_223_372_036_854_775_808.0 {
        return Err(out_of_range());
    }
    let micros = (since_2000 as i64).checked_add(FROM_1970_TO_2000 as i64 * 1_000_000);
    micros.and_then(in_calendar).map(Answer::Timestamp).ok_or_else(out_of_range)
}
