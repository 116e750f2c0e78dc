use units::{BitRate, PS_PER_S, Span, Time};

/// A line with a constant bit rate. A position on it is a number of byte times.
///
/// At Ethernet speeds a byte takes a whole number of picoseconds (800 at 10 Gbit/s). At other rates each conversion
/// starts from the exact rational and rounds to the nearest picosecond, so no error accumulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    rate: BitRate,
    /// Picoseconds per byte, if that is a whole number.
    byte_ps: Option<WholeByte>,
}

/// Picoseconds per byte, and ⌊2⁶⁴ / that number⌋. Division would be the most expensive part of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WholeByte {
    ps: u64,
    reciprocal: u64,
}

impl WholeByte {
    fn of(ps: u64) -> Self {
        WholeByte { ps, reciprocal: u64::MAX / ps }
    }

    /// ⌊ps / byte⌋, exactly.
    #[inline]
    fn bytes_in(self, ps: u64) -> u64 {
        // Too small by at most 1, since the reciprocal is less than 1 below 2⁶⁴ / byte.
        let guess = ((u128::from(ps) * u128::from(self.reciprocal)) >> 64) as u64;
        guess + u64::from(ps - guess * self.ps >= self.ps)
    }
}

/// Duration of one byte × bit rate, in bit·ps.
const BYTE: u128 = 8 * PS_PER_S as u128;

impl Line {
    /// A line at `rate`.
    #[must_use]
    pub fn new(rate: BitRate) -> Self {
        let byte = BYTE as u64;
        let byte_ps = byte.is_multiple_of(rate.bps()).then(|| WholeByte::of(byte / rate.bps()));
        Line { rate, byte_ps }
    }

    /// The bit rate.
    #[must_use]
    pub fn rate(&self) -> BitRate {
        self.rate
    }

    /// The start of byte time `position`.
    #[must_use]
    #[inline]
    pub fn time(&self, position: u64) -> Time {
        let ps = match self.byte_ps {
            Some(byte) => position * byte.ps,
            None => {
                let bps = u128::from(self.rate.bps());
                ((u128::from(position) * BYTE + bps / 2) / bps) as u64
            }
        };
        Time::from_ps(ps)
    }

    /// The byte time that starts nearest to `time`; the later one on a tie.
    #[must_use]
    #[inline]
    pub fn position(&self, time: Time) -> u64 {
        match self.byte_ps {
            Some(byte) => byte.bytes_in(time.as_ps().saturating_add(byte.ps / 2)),
            None => ((u128::from(time.as_ps()) * u128::from(self.rate.bps()) + BYTE / 2) / BYTE) as u64,
        }
    }

    /// The duration of `bytes` byte times.
    #[must_use]
    pub fn span(&self, bytes: u64) -> Span {
        Span::from_ps(self.time(bytes).as_ps())
    }

    /// The whole number of byte times nearest to `span`. `span` must be less than 100 days.
    #[must_use]
    pub fn nearest(&self, span: Span) -> Span {
        self.span(self.position(Time::from_ps(span.as_ps())))
    }

    /// The duration of a byte, rounded to a picosecond.
    #[must_use]
    pub fn byte_time(&self) -> Span {
        self.span(1)
    }

    /// Alignment of frame starts by the MACs of this speed, in bytes: 4 at 10 and 25 Gbit/s, 8 from 40 Gbit/s on (IEEE
    /// 802.3 clauses 46 and 81), 1 below.
    #[must_use]
    pub fn lane_alignment(&self) -> u64 {
        match self.rate.bps() {
            ..10_000_000_000 => 1,
            10_000_000_000..40_000_000_000 => 4,
            _ => 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernet_speeds_have_whole_byte_times() {
        for (mbps, ps) in [
            (10, 800_000),
            (100, 80_000),
            (1_000, 8_000),
            (2_500, 3_200),
            (10_000, 800),
            (25_000, 320),
            (40_000, 200),
            (50_000, 160),
            (100_000, 80),
            (200_000, 40),
            (400_000, 20),
        ] {
            let line = Line::new(BitRate::from_bps(mbps * 1_000_000));
            assert_eq!(line.byte_ps.map(|byte| byte.ps), Some(ps));
            assert_eq!(line.position(Time::from_ps(12_345 * ps)), 12_345);
        }
    }

    #[test]
    fn whole_byte_times_divide_exactly() {
        for ps in [1, 2, 3, 20, 40, 80, 160, 200, 320, 800, 8_000, 800_000] {
            let byte = WholeByte::of(ps);
            let near = |middle: u64| middle.saturating_sub(2 * ps)..middle.saturating_add(2 * ps);
            for value in near(0).chain(near(1 << 40)).chain(near(u64::MAX / ps * ps)).chain([u64::MAX, u64::MAX - 1]) {
                assert_eq!(byte.bytes_in(value), value / ps, "{value} / {ps}");
            }
        }
    }

    #[test]
    fn positions_saturate_at_the_end_of_time() {
        let last = Time::from_ps(u64::MAX);
        for (gbps, byte) in [(1, 8_000), (10, 800), (400, 20)] {
            assert_eq!(Line::new(BitRate::from_gbps(gbps)).position(last), u64::MAX / byte);
        }
        assert_eq!(Line::new(BitRate::from_gbps(3)).position(last), (u128::from(u64::MAX) * 3 / 8_000) as u64 + 1);
    }

    #[test]
    fn odd_rates_do_not_drift() {
        // 3 Gbit/s: 2 666.666… ps per byte.
        let line = Line::new(BitRate::from_gbps(3));
        assert_eq!(line.time(3), Time::from_ps(8_000));
        assert_eq!(line.time(3_000_000_000_000), Time::from_ps(8_000_000_000_000_000));
        for position in (0..1_000).chain(5_000_000_000_000..5_000_000_001_000) {
            assert_eq!(line.position(line.time(position)), position);
        }
    }
}
