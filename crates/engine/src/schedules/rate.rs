use super::every_nth::EveryNth;
use super::{Due, Lengths, Schedule, counted, gcd, wire_share};
use units::{BitRate, FrameRate, Layer, PS_PER_S, Share, Span, Time};

/// A constant rate: each frame departs once all frames before it have been carried at the rate.
///
/// A frame takes `amount × numerator / denominator` picoseconds, which is rarely a whole number. The remainder is
/// carried over, so departure k is the exact sum, rounded down once.
#[derive(Clone, Debug)]
pub struct ConstantRate {
    amount: Amount,
    numerator: u128,
    denominator: u128,
    remainder: u128,
    next: Option<Time>,
    short: Span,
}

/// The unit that the rate counts.
#[derive(Clone, Copy, Debug)]
enum Amount {
    Bytes(Layer),
    Frames,
}

impl ConstantRate {
    /// A rate in bit/s of one layer.
    #[must_use]
    pub fn bits(rate: BitRate, layer: Layer) -> Self {
        Self::new(Amount::Bytes(layer), 8 * u128::from(PS_PER_S), rate.bps().into())
    }

    /// A rate in frames per second.
    #[must_use]
    pub fn frames(rate: FrameRate) -> Self {
        Self::new(Amount::Frames, 1_000 * u128::from(PS_PER_S), rate.millis().into())
    }

    /// A share of line rate, including preamble and inter-frame gap.
    #[must_use]
    pub fn share(share: Share, line: BitRate) -> Self {
        let (numerator, denominator) = wire_share(share, line);
        Self::new(Amount::Bytes(Layer::Wire), 8 * u128::from(PS_PER_S) * numerator, denominator)
    }

    fn new(amount: Amount, numerator: u128, denominator: u128) -> Self {
        // In lowest terms, the products below fit 64 bits at all common rates, so division is fast.
        let divisor = gcd(numerator, denominator);
        ConstantRate {
            amount,
            numerator: numerator / divisor,
            denominator: denominator / divisor,
            remainder: 0,
            next: None,
            short: Span::ZERO,
        }
    }
}

impl Schedule for ConstantRate {
    fn depart(&mut self, ready: Time, lengths: &Lengths) -> Due {
        let due = self.next.unwrap_or(ready);
        let starved = ready > due;
        if starved {
            self.short = self.short + ready.since(due);
            self.remainder = 0;
        }
        let at = due.max(ready);
        let amount = match self.amount {
            Amount::Bytes(layer) => counted(layer, lengths),
            Amount::Frames => 1,
        };
        let product = u128::from(amount) * self.numerator + self.remainder;
        let (span, remainder) = match (u64::try_from(product), u64::try_from(self.denominator)) {
            (Ok(product), Ok(denominator)) => (product / denominator, u128::from(product % denominator)),
            // With a tiny share, the frame takes longer than any representable time.
            _ => (u64::try_from(product / self.denominator).unwrap_or(u64::MAX), product % self.denominator),
        };
        self.remainder = remainder;
        self.next = Some(at + Span::from_ps(span));
        Due { at, starved }
    }

    fn next(&self) -> Option<Time> {
        self.next
    }

    fn forgive(&mut self, late: Span) {
        self.next = self.next.map(|next| next + late);
    }

    fn short(&self) -> Option<Span> {
        Some(self.short)
    }

    fn counts_lengths(&self) -> bool {
        matches!(self.amount, Amount::Bytes(_))
    }

    fn share(&self, queue: u64, queues: u64) -> Option<Box<dyn Schedule>> {
        Some(Box::new(EveryNth::new(self.clone(), queue, queues)))
    }

    fn counts_packets(&self) -> bool {
        matches!(self.amount, Amount::Bytes(Layer::Ip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use units::FrameLen;

    fn lengths(bytes: u32) -> Lengths {
        Lengths { frame: FrameLen::new(bytes), packet: bytes - 18 }
    }

    #[test]
    fn layers_count_their_bytes() {
        let gap = |mut schedule: ConstantRate| {
            schedule.depart(Time::ZERO, &lengths(64));
            schedule.depart(Time::ZERO, &lengths(64)).at.as_ps()
        };
        let gbps = BitRate::from_gbps(1);
        assert_eq!(gap(ConstantRate::bits(gbps, Layer::Frame)), 64 * 8_000);
        assert_eq!(gap(ConstantRate::bits(gbps, Layer::Wire)), 84 * 8_000);
        assert_eq!(gap(ConstantRate::bits(gbps, Layer::Ip)), 46 * 8_000);
        assert_eq!(gap(ConstantRate::frames(FrameRate::from_millis(50_000_000))), 20_000_000);
        assert_eq!(gap(ConstantRate::share(Share::ONE, BitRate::from_gbps(10))), 84 * 800);
        assert_eq!(gap(ConstantRate::share(Share::from_ppb(250_000_000), BitRate::from_gbps(10))), 84 * 3_200);
    }

    #[test]
    fn frame_that_takes_longer_than_time_never_departs() {
        // A billionth of 100 kbit/s: 1 538 B take 3.9 years.
        let mut schedule = ConstantRate::share(Share::from_ppb(1), BitRate::from_bps(100_000));
        assert_eq!(schedule.depart(Time::ZERO, &lengths(1_518)).at, Time::ZERO);
        assert_eq!(schedule.depart(Time::ZERO, &lengths(1_518)).at, Time::MAX);
    }

    #[test]
    fn no_drift_after_two_to_the_33_frames() {
        // 3.7 Gbit/s: 2 162.162… ps per byte. Starts after 2³³ frames.
        let mut schedule = ConstantRate::bits(BitRate::from_bps(3_700_000_000), Layer::Frame);
        let gone: u128 = 1 << 33;
        let exact = |frames: u128| (frames * 64 * 8 * u128::from(PS_PER_S) / 3_700_000_000) as u64;
        schedule.next = Some(Time::from_ps(exact(gone)));
        schedule.remainder = (gone * 64 * schedule.numerator) % schedule.denominator;
        for k in 0..1_000 {
            let due = schedule.depart(Time::ZERO, &lengths(64));
            assert_eq!(due.at.as_ps(), exact(gone + k));
        }
    }

    proptest! {
        /// Departure n is the exact rational sum, rounded down, for all rates and lengths.
        #[test]
        fn departures_are_exact(bps in 1_000_u64..400_000_000_000, sizes in prop::collection::vec(64_u32..9216, 1..200)) {
            let mut schedule = ConstantRate::bits(BitRate::from_bps(bps), Layer::Frame);
            let mut bits: u128 = 0;
            for size in sizes {
                let due = schedule.depart(Time::ZERO, &lengths(size));
                prop_assert_eq!(u128::from(due.at.as_ps()), bits * u128::from(PS_PER_S) / u128::from(bps));
                bits += u128::from(size) * 8;
            }
        }
    }
}
