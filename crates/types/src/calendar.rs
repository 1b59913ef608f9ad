//! The Gregorian calendar, forwards and backwards without an end: days since 1970-01-01, and their dates.
//!
//! Years count astronomically: year 0 is 1 BC. The arithmetic is Howard Hinnant's ("chrono-Compatible Low-Level Date
//! Algorithms"), in which a year begins in March, so that the leap day is its last.

/// The first day that PostgreSQL knows, 4714-11-24 BC: the first Julian day.
pub const FIRST_DAY: i64 = -2_440_588;

/// The last one, 5874897-12-31.
pub const LAST_DAY: i64 = 2_145_042_905;

pub const MICROS_PER_DAY: i64 = 86_400_000_000;

const DAYS_PER_ERA: i64 = 146_097;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    pub year: i64,
    /// From 1.
    pub month: u32,
    /// From 1.
    pub day: u32,
}

/// The date of a day.
pub fn date_of(days: i64) -> Date {
    // Days since 0000-03-01.
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    Date { year, month: month as u32, day: day as u32 }
}

/// The day of a date; `None` if the month has no such day, or the year no such month.
pub fn days_of(date: Date) -> Option<i64> {
    let Date { year, month, day } = date;
    if !(1..=12).contains(&month) || day == 0 || day > days_in_month(year, month) {
        return None;
    }
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = i64::from((month + 9) % 12);
    let of_year = (153 * from_march + 2) / 5 + i64::from(day) - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    Some(era * DAYS_PER_ERA + of_era - 719_468)
}

/// How many days month `month` of a year has.
pub fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_each_other() {
        for (days, year, month, day) in [
            (0, 1970, 1, 1),
            (-1, 1969, 12, 31),
            (19_782, 2024, 2, 29),
            (-719_162, 1, 1, 1),
            (-719_163, 0, 12, 31),
            (FIRST_DAY, -4713, 11, 24),
            (LAST_DAY, 5_874_897, 12, 31),
        ] {
            assert_eq!(date_of(days), Date { year, month, day });
            assert_eq!(days_of(Date { year, month, day }), Some(days));
        }
        for days in (FIRST_DAY..100_000).step_by(997) {
            assert_eq!(days_of(date_of(days)), Some(days));
        }
        for (year, month, day) in [(2023, 2, 29), (1900, 2, 29), (2024, 4, 31), (2024, 0, 1), (2024, 13, 1)] {
            assert_eq!(days_of(Date { year, month, day }), None);
        }
    }
}
