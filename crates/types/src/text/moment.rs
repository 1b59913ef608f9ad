//! Dates and timestamps as text.

use super::{excerpt, malformed};
use crate::calendar::{Date, FIRST_DAY, LAST_DAY, MICROS_PER_DAY, date_of, days_of};
use crate::{ColumnType, Error, Result};
use std::io::Write;

const MICROS_PER_SECOND: i64 = 1_000_000;

pub fn parse_date(word: &str) -> Result<i32> {
    match infinity(word) {
        Some(true) => return Ok(i32::MAX),
        Some(false) => return Ok(i32::MIN),
        None => {}
    }
    let (day, time) = take_day(word, ColumnType::Date)?;
    // A time behind a date is dropped, as PostgreSQL does, but it must be one.
    if !time.is_empty() {
        take_time(time).ok_or_else(|| malformed(ColumnType::Date, word))?;
    }
    Ok(i32::try_from(day).expect("the last day is below 2^31"))
}

/// A timestamp in UTC.
pub fn parse_timestamp(word: &str) -> Result<i64> {
    timestamp(word, |clock, offset| clock - offset)
}

/// What a clock shows: an offset from UTC must be one, and is passed over.
pub fn parse_clock(word: &str) -> Result<i64> {
    timestamp(word, |clock, _| clock)
}

fn timestamp(word: &str, since_midnight: impl Fn(i64, i64) -> i64) -> Result<i64> {
    match infinity(word) {
        Some(true) => return Ok(i64::MAX),
        Some(false) => return Ok(i64::MIN),
        None => {}
    }
    let (day, time) = take_day(word, ColumnType::Timestamp)?;
    let time = if time.is_empty() { Some((0, 0)) } else { take_time(time) };
    let (clock, offset) = time.ok_or_else(|| malformed(ColumnType::Timestamp, word))?;
    let midnight = day.checked_mul(MICROS_PER_DAY);
    let micros = midnight.and_then(|midnight| midnight.checked_add(since_midnight(clock, offset)));
    // The last value is infinity.
    micros
        .filter(|micros| *micros < i64::MAX && *micros >= FIRST_DAY * MICROS_PER_DAY)
        .ok_or_else(|| out_of_range(word))
}

fn out_of_range(word: &str) -> Error {
    Error::invalid(format!("date/time field value out of range: \"{}\"", excerpt(word)))
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

/// Reads `YYYY-MM-DD` or `YYYYMMDD`, an era, and what separates them from a time.
fn take_day(word: &str, column_type: ColumnType) -> Result<(i64, &str)> {
    if word.eq_ignore_ascii_case("epoch") {
        return Ok((0, ""));
    }
    let words = ["now", "today", "tomorrow", "yesterday"];
    if words.iter().any(|known| word.eq_ignore_ascii_case(known)) || word.contains('/') {
        let message = format!("\"{}\": a {column_type} that is not written as YYYY-MM-DD", excerpt(word));
        return Err(Error::unsupported(message));
    }
    let (text, bc) = split_era(word);
    let end = text.find([' ', 'T', 't']).unwrap_or(text.len());
    let rest = text.get(end + 1..).unwrap_or("");
    let (year, month, day) = parts_of_date(&text[..end])
        .filter(|_| end == text.len() || !rest.is_empty())
        .ok_or_else(|| malformed(column_type, word))?;
    let year = match (i64::from(year), bc) {
        (0, _) => None,
        (year, true) => Some(1 - year),
        (year, false) => Some(year),
    };
    let day = year.and_then(|year| days_of(Date { year, month, day }));
    day.filter(|day| (FIRST_DAY..=LAST_DAY).contains(day))
        .map(|day| (day, rest))
        .ok_or_else(|| out_of_range(word))
}

/// Year, month and day as they are written.
fn parts_of_date(date: &str) -> Option<(u32, u32, u32)> {
    let number = |digits: &str, lengths: std::ops::RangeInclusive<usize>| -> Option<u32> {
        let fits = lengths.contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        if fits { digits.parse().ok() } else { None }
    };
    if date.len() == 8
        && let Some(all) = number(date, 8..=8)
    {
        return Some((all / 10_000, all / 100 % 100, all % 100));
    }
    let mut parts = date.split('-');
    let date = (number(parts.next()?, 4..=7)?, number(parts.next()?, 1..=2)?, number(parts.next()?, 1..=2)?);
    parts.next().is_none().then_some(date)
}

/// Reads `HH:MM[:SS[.f…]][Z|±HH[[:]MM]]`: what the clock shows since midnight, and how far it is ahead of UTC, both in
/// microseconds.
fn take_time(text: &str) -> Option<(i64, i64)> {
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
    // A leap second and the end of a day are the moments behind them.
    if hour > 24 || minute > 59 || second > 60 || (hour == 24 && (minute, second) != (0, 0)) {
        return None;
    }
    let seconds = i64::from(hour * 3600 + minute * 60 + second);
    let offset = offset_seconds(offset)? * MICROS_PER_SECOND;
    Some((seconds * MICROS_PER_SECOND + fraction_micros(fraction)?, offset))
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
    if days == i32::MAX || days == i32::MIN {
        return write_infinity(days > 0, out);
    }
    let date = date_of(i64::from(days));
    write_date(date, out);
    write_era(date, out);
}

/// Writes microseconds since the Unix epoch as date, `separator` and time; the fraction only if there is one.
pub fn format_timestamp(micros: i64, separator: char, out: &mut Vec<u8>) {
    if micros == i64::MAX || micros == i64::MIN {
        return write_infinity(micros > 0, out);
    }
    let date = date_of(micros.div_euclid(MICROS_PER_DAY));
    write_date(date, out);
    out.push(separator as u8);
    write_time(micros.rem_euclid(MICROS_PER_DAY).unsigned_abs(), out);
    write_era(date, out);
}

fn write_date(date: Date, out: &mut Vec<u8>) {
    let Date { year, month, day } = date;
    let year = if year > 0 { year } else { 1 - year };
    write!(out, "{year:04}-{month:02}-{day:02}").expect("a vector takes all that is written");
}

/// Microseconds as `HH:MM:SS[.ffffff]`; more than a day are more hours.
pub(super) fn write_time(micros: u64, out: &mut Vec<u8>) {
    let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    write!(out, "{hour:02}:{minute:02}:{second:02}").expect("a vector takes all that is written");
    if fraction > 0 {
        write!(out, ".{fraction:06}").expect("a vector takes all that is written");
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

fn write_era(date: Date, out: &mut Vec<u8>) {
    if date.year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

fn write_infinity(positive: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if positive { b"infinity" } else { b"-infinity" });
}
