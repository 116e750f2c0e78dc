use crate::number::{Decimal, ParseError, spaced, write_scaled};
use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};
use std::str::FromStr;

/// Picoseconds in a second.
pub const PS_PER_S: u64 = 1_000_000_000_000;
/// Picoseconds in a nanosecond.
pub const PS_PER_NS: u64 = 1_000;

/// An instant: picoseconds since the start of the run (the epoch is stored separately).
///
/// 64 bits last for 213 days. One picosecond is one bit at 1 Tbit/s, so the byte time of every Ethernet speed from 10
/// Mbit/s to 400 Gbit/s is a whole number of picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A non-negative length of time in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Time {
    /// The start of the run.
    pub const ZERO: Time = Time(0);
    /// Later than any instant of a run.
    pub const MAX: Time = Time(u64::MAX);

    /// The instant `ps` picoseconds after the start of the run.
    #[must_use]
    pub const fn from_ps(ps: u64) -> Self {
        Time(ps)
    }

    /// Picoseconds since the start of the run.
    #[must_use]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// The time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Signed difference `self − other` in picoseconds. Saturates at 106 days, the range of 63 bits.
    #[must_use]
    pub const fn signed_ps_since(self, other: Time) -> i64 {
        if self.0 >= other.0 { Span(self.0 - other.0).signed_ps() } else { -Span(other.0 - self.0).signed_ps() }
    }

    /// This instant plus a span, or `None` beyond the end of time.
    #[must_use]
    pub fn checked_add(self, span: Span) -> Option<Time> {
        self.0.checked_add(span.0).map(Time)
    }
}

impl Span {
    /// Zero.
    pub const ZERO: Span = Span(0);

    /// `ps` picoseconds.
    #[must_use]
    pub const fn from_ps(ps: u64) -> Self {
        Span(ps)
    }

    /// `ns` nanoseconds.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Span(ns * PS_PER_NS)
    }

    /// `us` microseconds.
    #[must_use]
    pub const fn from_us(us: u64) -> Self {
        Span(us * 1_000_000)
    }

    /// `ms` milliseconds.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Span(ms * 1_000_000_000)
    }

    /// Picoseconds.
    #[must_use]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Picoseconds as a signed number. Saturates at 106 days, the range of 63 bits.
    #[must_use]
    pub const fn signed_ps(self) -> i64 {
        if self.0 > i64::MAX.cast_unsigned() { i64::MAX } else { self.0.cast_signed() }
    }

    /// Nanoseconds as a float, for reports only.
    #[must_use]
    pub fn as_ns_f64(self) -> f64 {
        self.0 as f64 / PS_PER_NS as f64
    }

    /// Seconds as a float, for reports only.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / PS_PER_S as f64
    }

    /// The span in the standard library's type, rounded down to nanoseconds.
    #[must_use]
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0 / PS_PER_NS)
    }
}

// Sums saturate at the end of time instead of wrapping to zero; drivers end a run before that.
impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0 - other.0)
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, n: u64) -> Span {
        Span(self.0.saturating_mul(n))
    }
}

/// Suffixes, longest unit last, so that printing picks the largest exact one.
const UNITS: [(&str, u64); 5] =
    [("ps", 1), ("ns", PS_PER_NS), ("us", 1_000_000), ("ms", 1_000_000_000), ("s", PS_PER_S)];

/// Units that are parsed but not printed.
const LONG: [(&str, u64); 3] = [("min", 60 * PS_PER_S), ("h", 3_600 * PS_PER_S), ("d", 86_400 * PS_PER_S)];

/// The correct spelling of a misspelt unit, if its meaning is clear.
fn meant(unit: &str) -> Option<&'static str> {
    Some(match unit.to_ascii_lowercase().trim_end_matches('s') {
        "p" | "psec" | "picosecond" => "ps",
        "n" | "nsec" | "nanosecond" => "ns",
        "u" | "usec" | "microsecond" | "µ" | "μ" => "us",
        "msec" | "milli" | "millisecond" => "ms",
        "" | "sec" | "second" => "s",
        "min" | "minute" => "min",
        "h" | "hr" | "hour" => "h",
        "d" | "day" => "d",
        // A capital M does not mean milli.
        "m" if !unit.starts_with('M') && unit.len() > 1 => "ms",
        _ => return None,
    })
}

impl FromStr for Span {
    type Err = ParseError;

    /// Parses `10us`, `1.5ms`, `0.8ns`, `2h`. The unit is required, and fractions of a picosecond are refused.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Some(error) = spaced::<Self>(text) {
            return Err(error);
        }
        let number = Decimal::split(text, "a time", "10us, 1.5ms or 2s")?;
        let scale = match number.unit {
            "µs" | "μs" => 1_000_000,
            unit => {
                let found = UNITS.iter().chain(&LONG).find(|(name, _)| *name == unit);
                found.map(|(_, scale)| *scale).ok_or_else(|| {
                    let written = |unit: &str| format!("{}{unit}", number.number());
                    let meant = meant(unit.trim()).map(written).filter(|text| text.parse::<Span>().is_ok());
                    let remedy = match meant {
                        Some(text) => format!("write {text}"),
                        None if unit == "m" => format!("write {} or {}", written("ms"), written("min")),
                        None => "write ps, ns, us, ms, s, min, h or d".to_owned(),
                    };
                    ParseError::new(format!("'{unit}' in '{text}' is not a unit of time"), remedy)
                })?
            }
        };
        number.whole(scale.into(), "1 ps", "213 days, 18446744s").map(Span)
    }
}

impl fmt::Display for Span {
    /// Prints exactly, in the largest unit with a value of at least one. Parsing gives the same span.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = UNITS.iter().rev().find(|(_, scale)| self.0 >= *scale);
        let (name, scale) = fits.unwrap_or(&UNITS[3]);
        write_scaled(f, self.0, *scale)?;
        f.write_str(name)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Span(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parses_exactly() {
        for (text, ps) in [
            ("10us", 10_000_000),
            ("1234.567ns", 1_234_567),
            ("15000.001ns", 15_000_001),
            ("0.8ns", 800),
            ("1.5ms", 1_500_000_000),
            ("2s", 2 * PS_PER_S),
            ("20µs", 20_000_000),
            ("0s", 0),
            ("1min", 60 * PS_PER_S),
            ("1.5h", 5_400 * PS_PER_S),
            ("2d", 172_800 * PS_PER_S),
        ] {
            assert_eq!(text.parse::<Span>().map(Span::as_ps), Ok(ps), "{text}");
        }
    }

    #[test]
    fn refuses_invalid_times() {
        for text in [
            "10", "", "us", "-5us", "1e3us", "1.us", ".5us", "10 us", "10US", "0.5ps", "1m", "300d", "300days",
            "99999999s",
        ] {
            let error = text.parse::<Span>().expect_err(text).to_string();
            assert!(error.contains("write"), "{text}: {error}");
        }
    }

    #[test]
    fn errors_suggest_the_intended_unit() {
        for (text, expected) in [
            ("1minutes", "write 1min"),
            ("1.5hours", "write 1.5h"),
            ("2days", "write 2d"),
            ("10usec", "write 10us"),
            ("1US", "write 1us"),
            ("1mS", "write 1ms"),
            ("3sec", "write 3s"),
            ("3 s", "has a space between a number and its unit: write 3s"),
            (" 3 s", "write 3s"),
            ("3 sec", "write 3s"),
            ("1m", "write 1ms or 1min"),
            ("1Ms", "write ps, ns, us, ms, s, min, h or d"),
            ("999999hours", "write ps, ns, us, ms, s, min, h or d"),
            ("300d", "write at most 213 days"),
            ("1,5us", "has a ',' in its number"),
            ("1_000us", "has a '_' in its number"),
        ] {
            let error = text.parse::<Span>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn distant_instants_saturate_with_the_right_sign() {
        let (near, far) = (Time::from_ps(7), Time::from_ps(i64::MAX.cast_unsigned() + 7));
        for (late, early, ps) in [(far, near, i64::MAX), (Time::MAX, near, i64::MAX), (Time::MAX, Time::ZERO, i64::MAX)]
        {
            assert_eq!((late.signed_ps_since(early), early.signed_ps_since(late)), (ps, -ps));
        }
        assert_eq!((near.signed_ps_since(Time::ZERO), Time::ZERO.signed_ps_since(near)), (7, -7));
        assert_eq!(Span::from_ps(u64::MAX).signed_ps(), i64::MAX);
    }

    proptest! {
        #[test]
        fn survives_printing_and_parsing(ps in any::<u64>()) {
            let span = Span::from_ps(ps);
            prop_assert_eq!(span.to_string().parse::<Span>(), Ok(span));
        }
    }
}
