//! Dates and timestamps as text.

use super::{excerpt, malformed};
use crate::{ColumnType, Error, Result};
use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveDateTime, NaiveTime, Timelike};
use std::io::Write;

const MICROS_PER_SECOND: i64 = 1_000_000;

pub fn parse_date(word: &str) -> Result<i32> {
    match infinity(word) {
        Some(true) => return Ok(i32::MAX),
        Some(false) => return Ok(i32::MIN),
        None => {}
    }
    let malformed = || malformed(ColumnType::Date, word);
    let (text, bc) = split_era(word);
    let (date, rest) = take_date(text, bc, ColumnType::Date, word)?;
    // A time behind a date is dropped, as PostgreSQL does, but it must be one.
    if !rest.is_empty() {
        take_time(rest).ok_or_else(malformed)?;
    }
    Ok(date.to_epoch_days())
}

pub fn parse_timestamp(word: &str) -> Result<i64> {
    match infinity(word) {
        Some(true) => return Ok(i64::MAX),
        Some(false) => return Ok(i64::MIN),
        None => {}
    }
    let malformed = || malformed(ColumnType::Timestamp, word);
    let (text, bc) = split_era(word);
    let (date, rest) = take_date(text, bc, ColumnType::Timestamp, word)?;
    let midnight = date.and_time(NaiveTime::MIN).and_utc().timestamp_micros();
    if rest.is_empty() {
        return Ok(midnight);
    }
    Ok(midnight + take_time(rest).ok_or_else(malformed)?)
}

fn infinity(word: &str) -> Option<bool> {
    let (positive, name) = word.strip_prefix('-').map_or((true, word), |rest| (false, rest));
    name.eq_ignore_ascii_case("infinity").then_some(positive)
}

/// Cuts off ` BC`.
fn split_era(word: &str) -> (&str, bool) {
    let cut = word.len().saturating_sub(2);
    match word.get(cut..) {
        Some(era) if era.eq_ignore_ascii_case("bc") && word[..cut].ends_with(' ') => {
            (word[..cut].trim_ascii_end(), true)
        }
        _ => (word, false),
    }
}

/// Reads `YYYY-MM-DD` and what separates it from a time.
fn take_date<'a>(
    text: &'a str,
    bc: bool,
    column_type: ColumnType,
    word: &str,
) -> Result<(NaiveDate, &'a str)> {
    let malformed = || malformed(column_type, word);
    let end = text.find([' ', 'T', 't']).unwrap_or(text.len());
    let mut parts = text[..end].split('-');
    let mut part = |digits_min: usize, digits_max: usize| -> Option<u32> {
        let part = parts.next()?;
        let fits =
            (digits_min..=digits_max).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        if fits { part.parse().ok() } else { None }
    };
    let year = part(4, 6).ok_or_else(malformed)? as i32;
    let month = part(1, 2).ok_or_else(malformed)?;
    let day = part(1, 2).ok_or_else(malformed)?;
    let rest = text.get(end + 1..).unwrap_or("");
    if parts.next().is_some() || (end < text.len() && rest.is_empty()) {
        return Err(malformed());
    }
    let year = match (year, bc) {
        (0, _) => None,
        (year, true) => Some(1 - year),
        (year, false) => Some(year),
    };
    // The calendar's very last days are left out, so that no offset leads beyond it.
    let date = year
        .and_then(|year| NaiveDate::from_ymd_opt(year, month, day))
        .filter(|date| {
            date.checked_add_days(Days::new(2)).is_some() && date.checked_sub_days(Days::new(2)).is_some()
        })
        .ok_or_else(|| {
            Error::invalid(format!("date/time field value out of range: \"{}\"", excerpt(word)))
        })?;
    Ok((date, rest))
}

/// Reads `HH:MM[:SS[.f…]][Z|±HH[[:]MM]]` as microseconds since midnight UTC (below zero or beyond a day by as much as
/// the offset is).
fn take_time(text: &str) -> Option<i64> {
    let text = text.trim_ascii();
    let (clock, offset) = match text.find(['Z', 'z', '+', '-']) {
        Some(at) => (text[..at].trim_ascii_end(), &text[at..]),
        None => (text, ""),
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut parts = clock.split(':');
    let hour = two_digits(parts.next()?)?;
    let minute = two_digits(parts.next()?)?;
    let second = match parts.next() {
        Some(part) => two_digits(part)?,
        None if fraction.is_empty() => 0,
        None => return None,
    };
    if parts.next().is_some() {
        return None;
    }
    let time = NaiveTime::from_hms_opt(hour, minute, second)?;
    let seconds = i64::from(time.num_seconds_from_midnight()) - offset_seconds(offset)?;
    Some(seconds * MICROS_PER_SECOND + fraction_micros(fraction)?)
}

/// A fraction of a second, rounded to microseconds.
fn fraction_micros(digits: &str) -> Option<i64> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let micros =
        (0..6).fold(0, |sum, i| sum * 10 + i64::from(digits.as_bytes().get(i).map_or(0, |d| d - b'0')));
    let round_up = digits.as_bytes().get(6).is_some_and(|digit| *digit >= b'5');
    Some(micros + i64::from(round_up))
}

fn offset_seconds(offset: &str) -> Option<i64> {
    let (sign, digits) = match offset.as_bytes() {
        [] | [b'Z' | b'z'] => return Some(0),
        [b'+', ..] => (1, &offset[1..]),
        [b'-', ..] => (-1, &offset[1..]),
        _ => return None,
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None if digits.len() == 4 => digits.split_at_checked(2)?,
        None => (digits, "0"),
    };
    let (hours, minutes) = (two_digits(hours)?, two_digits(minutes)?);
    (hours <= 15 && minutes < 60).then(|| sign * i64::from(hours * 3600 + minutes * 60))
}

fn two_digits(digits: &str) -> Option<u32> {
    let fits = (1..=2).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    if fits { digits.parse().ok() } else { None }
}

pub fn format_date(days: i32, out: &mut Vec<u8>) {
    match NaiveDate::from_epoch_days(days) {
        Some(date) => {
            write_date(date, out);
            write_era(date, out);
        }
        None => write_infinity(days > 0, out),
    }
}

/// Writes microseconds since the Unix epoch as date, `separator` and time; the fraction only if there is one.
pub fn format_timestamp(micros: i64, separator: char, out: &mut Vec<u8>) {
    let Some(moment) = DateTime::from_timestamp_micros(micros).map(|moment| moment.naive_utc()) else {
        return write_infinity(micros > 0, out);
    };
    write_date(moment.date(), out);
    write_time(moment, separator, out);
    write_era(moment.date(), out);
}

fn write_date(date: NaiveDate, out: &mut Vec<u8>) {
    let year = if date.year() > 0 { date.year() } else { 1 - date.year() };
    write!(out, "{year:04}-{:02}-{:02}", date.month(), date.day())
        .expect("a vector takes all that is written");
}

fn write_time(moment: NaiveDateTime, separator: char, out: &mut Vec<u8>) {
    write!(out, "{separator}{:02}:{:02}:{:02}", moment.hour(), moment.minute(), moment.second())
        .expect("a vector takes all that is written");
    let micros = moment.nanosecond() / 1000;
    if micros > 0 {
        write!(out, ".{micros:06}").expect("a vector takes all that is written");
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

fn write_era(date: NaiveDate, out: &mut Vec<u8>) {
    if date.year() <= 0 {
        out.extend_from_slice(b" BC");
    }
}

fn write_infinity(positive: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if positive { b"infinity" } else { b"-infinity" });
}
