//! The instant of `--start-at`, and the clock it refers to.

use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use std::fmt;
use std::str::FromStr;
use toml_datetime::{Datetime, Offset};
use units::{PS_PER_NS, ParseError, Span};

/// When a run starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartAt {
    /// At this UNIX time in ns.
    Utc(u64),
    /// At this TAI instant, in ns since 1970 on that scale.
    Tai(u64),
    /// This long after the command began.
    After(Span),
    /// At the instant in the next line of stdin, which is read once all ports are open.
    Stdin,
}

/// TAI − UTC in s since 2017 (IERS Bulletin C), used if the kernel does not know it.
const TAI_AHEAD_S: u64 = 37;
const NS: u64 = 1_000_000_000;

/// UNIX seconds below this one, which is in 2262, are accepted: their ns fit in an `i64`.
const LAST_S: i64 = 9_223_372_036;

/// The longest wait in ns. The clock of a run overflows after 213 days.
#[cfg(feature = "service")]
pub(crate) const LONGEST_NS: u64 = 100 * 86_400 * NS;

const REMEDY: &str = "write 2026-11-25T18:00:00Z, 2026-11-25T18:00:37 TAI, +5s, or stdin";

impl FromStr for StartAt {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let text = text.trim();
        if text == "stdin" {
            return Ok(StartAt::Stdin);
        }
        if let Some(after) = text.strip_prefix('+') {
            return Ok(StartAt::After(after.parse()?));
        }
        match text.strip_suffix("TAI") {
            Some(tai) => Ok(StartAt::Tai(instant(text, tai.trim_end(), false)?)),
            None => Ok(StartAt::Utc(instant(text, text, true)?)),
        }
    }
}

/// Parses a date and a time of day as ns since 1970. UTC requires an offset such as `Z`, TAI permits none.
fn instant(whole: &str, text: &str, with_offset: bool) -> Result<u64, ParseError> {
    let bad = |why: &str| ParseError::new(format!("'{whole}' {why}"), REMEDY);
    let read: Datetime = text.parse().map_err(|_| bad("is not an instant"))?;
    let (Some(date), Some(time)) = (read.date, read.time) else {
        return Err(bad("has no date, or no time of day"));
    };
    let ahead_min = match (read.offset, with_offset) {
        (Some(Offset::Z), true) => 0,
        (Some(Offset::Custom { minutes }), true) => i64::from(minutes),
        (None, true) => return Err(bad("has no time zone (end it with Z for UTC)")),
        (None, false) => 0,
        (Some(_), false) => return Err(bad("has a time zone, and TAI has none")),
    };
    let second = time.second.unwrap_or(0);
    if second > 59 {
        return Err(bad("is in a leap second, which UNIX time cannot express (write it in TAI)"));
    }
    let days = days_since_1970(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let minutes = (days * 24 + i64::from(time.hour)) * 60 + i64::from(time.minute) - ahead_min;
    let seconds = minutes * 60 + i64::from(second);
    if !(0..LAST_S).contains(&seconds) {
        return Err(bad("is not between 1970 and 2262"));
    }
    Ok(seconds.unsigned_abs() * NS + u64::from(time.nanosecond.unwrap_or(0)))
}

/// Returns the days from 1970-01-01 to a Gregorian date. Years start in March here, so that the leap day is the last
/// day of the year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + day_of_year - 719_468
}

impl StartAt {
    /// Returns the UNIX time in ns for a command that began at `begun`, or `None` if it is still to be read from stdin.
    pub(crate) fn unix_ns(self, begun: u64) -> Option<u64> {
        match self {
            StartAt::Utc(ns) => Some(ns),
            StartAt::Tai(ns) => Some(ns.saturating_sub(tai_ahead_ns())),
            StartAt::After(span) => Some(begun.saturating_add(span.as_ps() / PS_PER_NS)),
            StartAt::Stdin => None,
        }
    }
}

/// Checks a UNIX time at which a run is to start.
///
/// # Errors The time has passed, or is more than `LONGEST_NS` ahead.
#[cfg(feature = "service")]
pub(crate) fn check(at: u64, now: u64) -> Result<(), ParseError> {
    let away = |ns: u64| crate::output::time(ns as f64);
    match at.checked_sub(now) {
        None | Some(0) => Err(ParseError::new(
            format!("{} was {} ago by this host's clock", Utc(at), away(now - at)),
            "name an instant to come, or +5s",
        )),
        Some(ahead) if ahead > LONGEST_NS => Err(ParseError::new(
            format!(
                "{} is {} ahead, and a run may wait for {}",
                Utc(at),
                away(ahead),
                Span::from_ms(LONGEST_NS / 1_000_000)
            ),
            "start it later",
        )),
        Some(_) => Ok(()),
    }
}

/// Returns TAI − UTC in ns from the kernel, or the value since 2017 if no time service has set it.
fn tai_ahead_ns() -> u64 {
    let read = || Some((clock_gettime_dynamic(DynamicClockId::Tai).ok()?, clock_gettime(ClockId::Realtime)));
    // The two clocks are read far less than half a second apart, so rounding gives the whole seconds.
    let ns = |time: Timespec| time.tv_sec.max(0).unsigned_abs() * NS + time.tv_nsec.unsigned_abs();
    let ahead = read().map_or(0, |(tai, utc)| (ns(tai).saturating_sub(ns(utc)) + NS / 2) / NS);
    NS * if ahead == 0 { TAI_AHEAD_S } else { ahead }
}

/// Returns the current UNIX time of the kernel in ns.
pub(crate) fn unix_kernel_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec.max(0).unsigned_abs() * NS + now.tv_nsec.unsigned_abs()
}

/// A UNIX time in ns that is displayed as in RFC 3339, in UTC with nine digits of the second.
pub(crate) struct Utc(pub(crate) u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ns) = (self.0 / NS, self.0 % NS);
        let (days, second) = ((seconds / 86_400).cast_signed(), seconds % 86_400);
        // Start with an estimate that is never too late, then go to the last year that begins on or before the day.
        let mut year = 1970 + days / 366;
        while days_since_1970(year + 1, 1, 1) <= days {
            year += 1;
        }
        let month = (1..=12).rev().find(|month| days_since_1970(year, *month, 1) <= days).unwrap_or(1);
        let day = days - days_since_1970(year, month, 1) + 1;
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ns:09}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_utc_tai_and_relative_instants() {
        let utc = |text: &str| text.parse::<StartAt>().map_err(|error| error.to_string());
        assert_eq!(utc("1970-01-01T00:00:00Z"), Ok(StartAt::Utc(0)));
        assert_eq!(utc("2026-11-25T18:00:00Z"), Ok(StartAt::Utc(1_795_629_600 * NS)));
        assert_eq!(utc("2026-11-25T18:00:00.123456789Z"), Ok(StartAt::Utc(1_795_629_600 * NS + 123_456_789)));
        assert_eq!(utc("2026-11-25T19:30:00+01:30"), Ok(StartAt::Utc(1_795_629_600 * NS)));
        assert_eq!(utc("2000-02-29T00:00:00Z"), Ok(StartAt::Utc(951_782_400 * NS)));
        assert_eq!(utc("2026-11-25T18:00:37 TAI"), Ok(StartAt::Tai(1_795_629_637 * NS)));
        assert_eq!(utc("2026-11-25T18:00:37TAI"), Ok(StartAt::Tai(1_795_629_637 * NS)));
        assert_eq!(utc("+1.5s"), Ok(StartAt::After(Span::from_ms(1_500))));
        assert_eq!(utc("stdin"), Ok(StartAt::Stdin));
    }

    #[test]
    fn refuses_other_texts_with_what_to_write() {
        for text in [
            "", "now", "18:00:00", "2026-11-25", "2026-11-25T18:00:00", "2026-13-25T18:00:00Z",
            "2026-11-25T18:00:00Z TAI", "2016-12-31T23:59:60Z", "1969-12-31T23:59:59Z", "+5", "5s", "1795629600",
        ] {
            let error = text.parse::<StartAt>().expect_err(text).to_string();
            assert!(error.contains("write"), "{text}: {error}");
        }
    }

    #[test]
    fn tai_is_ahead_of_utc_by_the_leap_seconds() {
        let tai = StartAt::Tai(1_795_629_637 * NS).unix_ns(0).expect("it is known");
        assert_eq!(tai / NS, 1_795_629_600, "37 s since 2017");
        assert_eq!(StartAt::After(Span::from_ms(5)).unix_ns(7), Some(5_000_007));
        assert_eq!(StartAt::Stdin.unix_ns(7), None);
    }

    #[test]
    fn writes_the_instant_that_it_reads() {
        for text in [
            "1970-01-01T00:00:00.000000000Z",
            "2026-11-25T18:00:00.000000042Z",
            "2024-02-29T23:59:59.999999999Z",
            "2099-12-31T00:00:01.000000000Z",
        ] {
            let Ok(StartAt::Utc(ns)) = text.parse() else { panic!("{text}") };
            assert_eq!(Utc(ns).to_string(), text);
        }
    }
}
