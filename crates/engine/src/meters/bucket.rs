use units::{BitRate, PS_PER_S, ParseError, Span, Time};

/// The rate and burst of a user, in ticks of a clock that fits the rate.
///
/// One bit takes 2^s ticks, so a second has rate × 2^s ticks. s is chosen so that a second has between 2³⁷ and 2³⁸
/// ticks; from 2³⁷ bit/s on, s is 0. Every frame is therefore a whole number of ticks at any rate, and sums of frames
/// are exact. Only instants are rounded. Each is rounded down independently, so no error accumulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Ticks per second.
    ticks: u64,
    /// log₂ of the ticks per bit.
    shift: u32,
    /// Capacity of the bucket in ticks.
    burst: u64,
}

/// An instant, converted once for use with many buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    at: Time,
    seconds: u64,
    /// The remainder below a second, in ps.
    ps: u64,
    /// The same remainder in units of 2⁻⁶⁴ s, rounded down; up to 10⁶ units too small.
    fraction: u64,
}

/// ⌊2⁸⁴ / 10¹²⌋.
const SCALE: u128 = (1 << 84) / PS_PER_S as u128;

impl Moment {
    /// Converts an instant.
    #[must_use]
    pub fn of(at: Time) -> Self {
        let ps = at.as_ps() % PS_PER_S;
        Moment { at, seconds: at.as_ps() / PS_PER_S, ps, fraction: ((u128::from(ps) * SCALE) >> 20) as u64 }
    }

    /// The instant.
    #[must_use]
    pub fn time(&self) -> Time {
        self.at
    }
}

impl Bucket {
    /// The maximum rate: that of the fastest Ethernet.
    pub(crate) const FASTEST: BitRate = BitRate::from_gbps(400);
    /// The maximum time that a bucket may take to fill.
    const SLOWEST: Span = Span::from_ms(86_400_000);

    /// A bucket that fills at `rate` and holds `burst` bytes.
    ///
    /// # Errors
    /// A rate above 400 Gbit/s, or a burst that takes more than a day to fill.
    pub fn new(rate: BitRate, burst: u64) -> Result<Self, ParseError> {
        if rate > Bucket::FASTEST {
            return Err(ParseError::new(format!("a rate of {rate} is too high for a meter"), "write 400Gbps or less"));
        }
        let shift = 37_u32.saturating_sub(rate.bps().ilog2());
        let ticks = rate.bps() << shift;
        let needed = (u128::from(burst) * 8) << shift;
        if needed > u128::from(ticks) * u128::from(Bucket::SLOWEST.as_ps() / PS_PER_S) {
            return Err(ParseError::new(
                format!("a burst of {burst} B takes more than a day at {rate}"),
                "write a smaller burst",
            ));
        }
        Ok(Bucket { ticks, shift, burst: needed as u64 })
    }

    /// The rate in bits per second.
    #[must_use]
    pub fn rate(&self) -> BitRate {
        BitRate::from_bps(self.ticks >> self.shift)
    }

    /// The burst in bytes.
    #[must_use]
    pub fn burst(&self) -> u64 {
        self.burst >> self.shift >> 3
    }

    /// The burst in ticks.
    #[must_use]
    pub(crate) fn depth(&self) -> u64 {
        self.burst
    }

    /// The cost of `bits` bits in ticks.
    #[must_use]
    pub(crate) fn cost(&self, bits: u64) -> u64 {
        bits.saturating_mul(1 << self.shift)
    }

    /// The bucket's clock at an instant: the last tick that is not later.
    #[must_use]
    #[inline]
    pub(crate) fn clock(&self, at: &Moment) -> u64 {
        let below = ((u128::from(at.fraction) * u128::from(self.ticks)) >> 64) as u64;
        // `fraction` is too small by less than a tick; the exact product shows whether a tick is missing.
        let exact = u128::from(at.ps) * u128::from(self.ticks);
        let rest = exact - u128::from(below) * u128::from(PS_PER_S);
        at.seconds * self.ticks + below + u64::from(rest >= u128::from(PS_PER_S))
    }

    /// The first picosecond at which the clock reads `ticks`.
    #[must_use]
    pub(crate) fn when(&self, ticks: u64) -> Time {
        let ps = (u128::from(ticks) * u128::from(PS_PER_S)).div_ceil(u128::from(self.ticks));
        Time::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
    }

    /// Converts `ticks` of `other`'s clock to ticks of this bucket's clock for the same number of bits. Rounds up; at
    /// most `u64::MAX`.
    #[must_use]
    pub(crate) fn convert(&self, other: &Bucket, ticks: u64) -> u64 {
        if self.shift >= other.shift {
            ticks.saturating_mul(1 << (self.shift - other.shift))
        } else {
            ticks.div_ceil(1 << (other.shift - self.shift))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stores_rates_and_bursts_exactly() {
        for bps in [1, 10_000, 333_333, 1_000_000, 9_999_999_999, 10_000_000_000, 400_000_000_000] {
            let bucket = Bucket::new(BitRate::from_bps(bps), 3_036).expect("a bucket");
            assert_eq!((bucket.rate().bps(), bucket.burst()), (bps, 3_036));
        }
        assert!(Bucket::new(BitRate::from_gbps(401), 3_036).is_err());
        assert!(Bucket::new(BitRate::from_bps(8), 86_401).is_err(), "a byte a second, a day and a second");
        assert!(Bucket::new(BitRate::from_bps(8), 86_400).is_ok());
    }

    proptest! {
        #[test]
        fn instants_are_rounded_once(bps in 1_u64..=400_000_000_000, ps in 0..u64::MAX) {
            let bucket = Bucket::new(BitRate::from_bps(bps), 1_500).or_else(|_| Bucket::new(BitRate::from_bps(bps), 1));
            let bucket = bucket.expect("a bucket");
            let exact = u128::from(ps) * u128::from(bucket.ticks);
            let shown = bucket.clock(&Moment::of(Time::from_ps(ps)));
            prop_assert_eq!(u128::from(shown), exact / u128::from(PS_PER_S));
            prop_assert!(bucket.when(shown) <= Time::from_ps(ps));
            let next = bucket.when(shown + 1);
            prop_assert!(next > Time::from_ps(ps) || next == Time::MAX);
            if next < Time::MAX {
                prop_assert!(bucket.clock(&Moment::of(next)) > shown);
            }
        }
    }
}
