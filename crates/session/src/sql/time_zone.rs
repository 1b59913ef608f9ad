//! Time zones of sessions.

use chrono::{DateTime, Offset, TimeZone as _};
use chrono_tz::{TZ_VARIANTS, Tz};

/// A zone in which moments have a wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeZone(Tz);

/// Whose clock is that of UTC.
const UTC: [&str; 9] = ["UTC", "UCT", "Zulu", "Universal", "Greenwich", "GMT", "GMT0", "GMT+0", "GMT-0"];

const THREE_HOURS: i64 = 3 * 3600 * 1_000_000;

impl TimeZone {
    /// The zone that a text means to PostgreSQL: by its name, letters of any case; whole hours east of UTC, `2`; or as
    /// POSIX has it with hours west, `GMT-2`, which is what JDBC says. `None` for others.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some(zone) = TZ_VARIANTS.iter().find(|zone| zone.name().eq_ignore_ascii_case(text)) {
            return Some(TimeZone(*zone));
        }
        if text == "+00:00" {
            return Some(TimeZone(Tz::UTC));
        }
        if let Ok(east) = text.parse::<i8>() {
            return TimeZone::west(east.checked_neg()?);
        }
        let hours = text.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let is_posix = text.len() - hours.len() >= 3 && hours.starts_with(['+', '-']);
        let hours = hours.strip_suffix(":00").unwrap_or(hours);
        TimeZone::west(hours.parse().ok().filter(|_| is_posix)?)
    }

    /// `Etc/GMT+5` lies five hours west.
    fn west(hours: i8) -> Option<Self> {
        let name = if hours == 0 { "Etc/GMT".to_owned() } else { format!("Etc/GMT{hours:+}") };
        name.parse().ok().map(TimeZone)
    }

    /// A name by which [`parse`](Self::parse) finds it.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    pub fn is_utc(self) -> bool {
        UTC.contains(&self.name().trim_start_matches("Etc/"))
    }

    /// What the zone's clocks show at a moment, both in microseconds since 1970. Infinity stays.
    pub fn wall_clock(self, micros: i64) -> i64 {
        micros.saturating_add(self.east(micros))
    }

    /// Whether no timestamp stands for the moment: PostgreSQL takes one in the hour that comes twice for that of winter, and
    /// one in the hour that is left out for an hour later, which another stands for. Changes are of less than
    /// three hours.
    pub fn is_between_clocks(self, micros: i64) -> bool {
        let east = self.east(micros);
        let gone = |beside: i64| {
            let ahead = east - self.east(micros.saturating_add(beside));
            ahead > 0 && self.east(micros.saturating_add(ahead * beside.signum())) != east
        };
        gone(-THREE_HOURS) || gone(THREE_HOURS)
    }

    /// What the clocks are ahead of UTC at a moment, in microseconds.
    fn east(self, micros: i64) -> i64 {
        let Some(moment) = DateTime::from_timestamp_micros(micros) else { return 0 };
        let east = self.0.offset_from_utc_datetime(&moment.naive_utc()).fix().local_minus_utc();
        i64::from(east) * 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_found_by_what_clients_call_it() {
        for (text, name) in [
            ("Europe/Berlin", Some("Europe/Berlin")),
            ("europe/berlin", Some("Europe/Berlin")),
            ("utc", Some("UTC")),
            ("+00:00", Some("UTC")),
            ("Z", None),
            ("2", Some("Etc/GMT-2")),
            ("-7", Some("Etc/GMT+7")),
            ("0", Some("Etc/GMT")),
            ("GMT-02:00", Some("Etc/GMT-2")),
            ("UTC+3", Some("Etc/GMT+3")),
            ("EST5EDT", Some("EST5EDT")),
            ("Europe/Atlantis", None),
            // PostgreSQL takes hours behind a bare sign for hours west: too easily misunderstood.
            ("+02:00", None),
            ("99", None),
            ("-128", None),
            ("", None),
        ] {
            let zone = TimeZone::parse(text);
            assert_eq!(zone.map(TimeZone::name), name, "{text}");
            assert_eq!(name.and_then(TimeZone::parse), zone, "{text}: its name finds it again");
        }
        for zone in ["UTC", "etc/utc", "GMT", "Etc/GMT0", "0", "Zulu", "UCT", "Etc/Greenwich"] {
            assert!(TimeZone::parse(zone).unwrap().is_utc(), "{zone}");
        }
        assert!(!TimeZone::parse("Europe/London").unwrap().is_utc(), "it has a summer");
    }

    #[test]
    fn clocks_go_forward_and_back() {
        let berlin = TimeZone::parse("Europe/Berlin").unwrap();
        let hours = |micros: i64| micros / 3_600_000_000;
        let at = |seconds: i64| hours(berlin.wall_clock(seconds * 1_000_000) - seconds * 1_000_000);
        assert_eq!([at(1_711_846_799), at(1_711_846_800)], [1, 2], "on 31 March 2024, at 1:00 UTC");
        assert_eq!([at(1_729_990_799), at(1_729_990_800)], [2, 1], "on 27 October 2024, at 1:00 UTC");
        assert_eq!(berlin.wall_clock(i64::MAX), i64::MAX, "infinity");
        let between = |seconds: i64| berlin.is_between_clocks(seconds * 1_000_000);
        let (forward, back) = (1_711_846_800, 1_729_990_800);
        assert_eq!([-1, 0, 3599, 3600].map(|s| between(forward + s)), [false, true, true, false]);
        assert_eq!([-3601, -3600, -1, 0].map(|s| between(back + s)), [false, true, true, false]);
        assert!(!berlin.is_between_clocks(i64::MAX) && !berlin.is_between_clocks(i64::MIN));
        assert_eq!(berlin.wall_clock(i64::MIN), i64::MIN);
    }
}
