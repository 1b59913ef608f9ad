//! Intervals as text: PostgreSQL's style `postgres`, and what it reads (`1 day 02:03`, `1-2`, `P1DT2H`).

use super::excerpt;
use super::moment::write_time;
use crate::{Error, Result};
use std::io::Write;

/// A span of time. Its parts are apart, for a month has no number of days, and a day has 23 to 25 hours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    pub months: i32,
    pub days: i32,
    pub micros: i64,
}

/// A unit of time, or a field of a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
}

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

impl Unit {
    /// The unit that a word means. PostgreSQL looks at its first ten letters.
    pub fn named(word: &str) -> Option<Unit> {
        let word = word.to_ascii_lowercase();
        let end = word.char_indices().nth(10).map_or(word.len(), |(end, _)| end);
        Some(match &word[..end] {
            "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecon" => Unit::Microsecond,
            "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecon" => Unit::Millisecond,
            "s" | "sec" | "secs" | "second" | "seconds" => Unit::Second,
            "m" | "min" | "mins" | "minute" | "minutes" => Unit::Minute,
            "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Hour,
            "d" | "day" | "days" => Unit::Day,
            "w" | "week" | "weeks" => Unit::Week,
            "mon" | "mons" | "month" | "months" => Unit::Month,
            "qtr" | "quarter" => Unit::Quarter,
            "y" | "yr" | "yrs" | "year" | "years" => Unit::Year,
            "dec" | "decs" | "decade" | "decades" => Unit::Decade,
            "c" | "cent" | "century" | "centuries" => Unit::Century,
            "mil" | "mils" | "millennium" | "millennia" => Unit::Millennium,
            _ => return None,
        })
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl Interval {
    /// Reads an interval.
    ///
    /// # Errors
    /// `Invalid`, quoting the text, if it is none or beyond what an interval holds.
    pub fn parse(text: &str) -> Result<Interval> {
        let malformed =
            || Error::invalid(format!("invalid input syntax for type interval: \"{}\"", excerpt(text)));
        let word = text.trim_ascii();
        match word.strip_prefix('P') {
            Some(rest) => parse_iso(rest),
            None => parse_words(word),
        }
        .ok_or_else(malformed)
    }

    /// Appends the text: `1 year 2 mons -3 days +04:05:06`.
    pub fn format(self, out: &mut Vec<u8>) {
        let parts = [(self.months / 12, "year"), (self.months % 12, "mon"), (self.days, "day")];
        let start = out.len();
        let mut after_negative = false;
        for (value, unit) in parts.into_iter().filter(|(value, _)| *value != 0) {
            let space = if out.len() > start { " " } else { "" };
            let plus = if after_negative && value > 0 { "+" } else { "" };
            let plural = if value == 1 { "" } else { "s" };
            write!(out, "{space}{plus}{value} {unit}{plural}").expect("a vector takes all that is written");
            after_negative = value < 0;
        }
        if self.micros == 0 && out.len() > start {
            return;
        }
        if out.len() > start {
            out.push(b' ');
        }
        match self.micros {
            ..0 => out.push(b'-'),
            _ if after_negative => out.push(b'+'),
            _ => {}
        }
        write_time(self.micros.unsigned_abs(), out);
    }

    /// The sum; `None` beyond what an interval holds.
    pub fn plus(self, other: Interval) -> Option<Interval> {
        Some(Interval {
            months: self.months.checked_add(other.months)?,
            days: self.days.checked_add(other.days)?,
            micros: self.micros.checked_add(other.micros)?,
        })
    }

    pub fn negated(self) -> Option<Interval> {
        Some(Interval {
            months: self.months.checked_neg()?,
            days: self.days.checked_neg()?,
            micros: self.micros.checked_neg()?,
        })
    }

    /// Adds `number` of a unit, of which a fraction spills into the smaller ones.
    fn add(&mut self, number: Number, unit: Unit) -> Option<()> {
        let Number { whole, fraction } = number;
        match unit {
            Unit::Microsecond => self.add_micros(whole, fraction, 1),
            Unit::Millisecond => self.add_micros(whole, fraction, 1000),
            Unit::Second => self.add_micros(whole, fraction, MICROS_PER_SECOND),
            Unit::Minute => self.add_micros(whole, fraction, 60 * MICROS_PER_SECOND),
            Unit::Hour => self.add_micros(whole, fraction, 3600 * MICROS_PER_SECOND),
            Unit::Day => {
                self.add_days(whole)?;
                self.add_micros(0, fraction, SECONDS_PER_DAY * MICROS_PER_SECOND)
            }
            Unit::Week => {
                self.add_days(whole.checked_mul(7)?)?;
                self.add_fraction_of_days(fraction, 7)
            }
            Unit::Month => {
                self.add_months(whole)?;
                self.add_fraction_of_days(fraction, 30)
            }
            Unit::Year => self.add_years(number, 1),
            Unit::Decade => self.add_years(number, 10),
            Unit::Century => self.add_years(number, 100),
            Unit::Millennium => self.add_years(number, 1000),
            Unit::Quarter => None,
        }
    }

    fn add_years(&mut self, number: Number, each: i64) -> Option<()> {
        let months = (number.fraction * (each * 12) as f64).round_ties_even() as i64;
        self.add_months(number.whole.checked_mul(each * 12)?.checked_add(months)?)
    }

    fn add_months(&mut self, months: i64) -> Option<()> {
        self.months = self.months.checked_add(i32::try_from(months).ok()?)?;
        Some(())
    }

    fn add_days(&mut self, days: i64) -> Option<()> {
        self.days = self.days.checked_add(i32::try_from(days).ok()?)?;
        Some(())
    }

    fn add_fraction_of_days(&mut self, fraction: f64, days: i32) -> Option<()> {
        let days = fraction * f64::from(days);
        self.add_days(days as i64)?;
        self.add_micros(0, days.fract(), SECONDS_PER_DAY * MICROS_PER_SECOND)
    }

    fn add_micros(&mut self, whole: i64, fraction: f64, each: i64) -> Option<()> {
        let micros = (fraction * each as f64).round_ties_even() as i64;
        self.micros = self.micros.checked_add(whole.checked_mul(each)?.checked_add(micros)?)?;
        Some(())
    }
}

/// A number with a fraction of the same sign.
#[derive(Clone, Copy, Debug)]
struct Number {
    whole: i64,
    fraction: f64,
}

impl Number {
    /// Cuts a number off: `-1.5`, `.5`, `5.`.
    fn take(text: &str) -> Option<(Number, &str)> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(digits(unsigned));
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let fraction: f64 = format!("0.{fraction}0").parse().ok()?;
        let number = Number { whole, fraction };
        Some((if text.starts_with('-') { number.negated() } else { number }, rest))
    }

    fn negated(self) -> Number {
        Number { whole: -self.whole, fraction: -self.fraction }
    }
}

/// `[@] 1 year -2 mons 3 04:05:06 [ago]`; a number at the end is one of seconds.
fn parse_words(text: &str) -> Option<Interval> {
    let mut interval = Interval::default();
    let mut seen = 0;
    let mut rest = text.trim_start_matches(['@', ' ']);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (field, units, after) = take_field(rest)?;
        if seen & units != 0 {
            return None;
        }
        seen |= units;
        interval = interval.plus(field)?;
        rest = after.trim_start_matches(is_space);
        if rest.eq_ignore_ascii_case("ago") {
            return interval.negated();
        }
    }
    Some(interval)
}

fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || c == ','
}

/// Cuts one field off: its value, the units that it says (a bit for each), and what stands behind it.
fn take_field(text: &str) -> Option<(Interval, u16, &str)> {
    let end = text.find(is_space).unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    if word.contains(':') {
        return Some((take_clock(word)?, Unit::Hour.bit() | Unit::Minute.bit() | Unit::Second.bit(), after));
    }
    let (number, rest) = Number::take(text)?;
    if let Some(months) = rest.strip_prefix('-') {
        return take_months(text, number, months);
    }
    let rest = rest.trim_ascii_start();
    let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let unit = match &rest[..letters] {
        "" if rest.is_empty() => Unit::Second,
        // `3 04:05:06`
        "" if rest.split_ascii_whitespace().next().is_some_and(|word| word.contains(':')) => Unit::Day,
        word => Unit::named(word)?,
    };
    let mut interval = Interval::default();
    interval.add(number, unit)?;
    Some((interval, unit.bit(), &rest[letters..]))
}

/// `1-2`, a year and two months, whose `years` and sign are known and whose `months` are not.
fn take_months<'a>(text: &str, years: Number, months: &'a str) -> Option<(Interval, u16, &'a str)> {
    let digits = months.bytes().take_while(u8::is_ascii_digit).count();
    let (months, after) = months.split_at(digits);
    let months: i64 = months.parse().ok().filter(|months| *months < 12)?;
    if years.fraction != 0.0 || !(after.is_empty() || after.starts_with(is_space)) {
        return None;
    }
    let mut interval = Interval::default();
    interval.add(years, Unit::Year)?;
    interval.add_months(if text.starts_with('-') { -months } else { months })?;
    Some((interval, Unit::Month.bit(), after))
}

/// `[-]HH:MM[:SS[.f]]`, and `MM:SS.f`.
fn take_clock(word: &str) -> Option<Interval> {
    let unsigned = word.strip_prefix(['+', '-']).unwrap_or(word);
    let mut parts: Vec<&str> = unsigned.split(':').collect();
    if parts.len() == 2 && parts[1].contains('.') {
        parts.insert(0, "0");
    }
    let (hours, minutes, seconds) = match parts.as_slice() {
        [hours, minutes] => (*hours, *minutes, "0"),
        [hours, minutes, seconds] => (*hours, *minutes, *seconds),
        _ => return None,
    };
    let whole =
        |digits: &str| digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<i64>().ok())?;
    let (hours, minutes) = (whole(hours)?, whole(minutes).filter(|minutes| *minutes < 60)?);
    let (seconds, rest) = Number::take(seconds)?;
    if !rest.is_empty() || !(0..=60).contains(&seconds.whole) {
        return None;
    }
    let mut interval = Interval::default();
    interval.add(Number { whole: hours, fraction: 0.0 }, Unit::Hour)?;
    interval.add(Number { whole: minutes, fraction: 0.0 }, Unit::Minute)?;
    interval.add(seconds, Unit::Second)?;
    if word.starts_with('-') { interval.negated() } else { Some(interval) }
}

/// `1Y2M3DT4H5M6S` of ISO 8601.
fn parse_iso(text: &str) -> Option<Interval> {
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    if text.is_empty() || text.ends_with('T') {
        return None;
    }
    let mut interval = Interval::default();
    for (mut part, is_time) in [(date, false), (time, true)] {
        while !part.is_empty() {
            let (number, rest) = Number::take(part)?;
            let unit = match (rest.chars().next()?, is_time) {
                ('Y', false) => Unit::Year,
                ('M', false) => Unit::Month,
                ('W', false) => Unit::Week,
                ('D', false) => Unit::Day,
                ('H', true) => Unit::Hour,
                ('M', true) => Unit::Minute,
                ('S', true) => Unit::Second,
                _ => return None,
            };
            interval.add(number, unit)?;
            part = &rest[1..];
        }
    }
    Some(interval)
}
