use crate::random::Random;
use std::fmt;
use units::Share;

/// A probability, and the correlation of each decision with the preceding one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chance {
    /// The share of hits.
    pub share: Share,
    /// Pearson's correlation of a decision with the next: P(hit | hit) = P + C(1 − P).
    pub correlation: Share,
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.share, self.correlation)
    }
}

/// Random decisions: a two-state chain, stationary from its first decision.
pub(super) struct Decisions {
    random: Random,
    /// Thresholds in 10⁻¹⁸: for the first decision, after a hit, after a miss.
    first: u64,
    after_hit: u64,
    after_miss: u64,
    last: Option<bool>,
    /// The configured share.
    pub(super) asked: f64,
}

/// One, in the unit of the thresholds.
const ONE: u64 = 1_000_000_000_000_000_000;

impl Decisions {
    pub(super) fn new(chance: Chance, random: Random) -> Self {
        let one = u64::from(Share::ONE.ppb());
        let (p, c) = (u64::from(chance.share.ppb()), u64::from(chance.correlation.ppb()));
        let (after_hit, after_miss) = (p * one + c * (one - p), p * (one - c));
        Decisions { random, first: p * one, after_hit, after_miss, last: None, asked: chance.share.as_f64() }
    }

    pub(super) fn next(&mut self) -> bool {
        let threshold = match self.last {
            None => self.first,
            Some(true) => self.after_hit,
            Some(false) => self.after_miss,
        };
        let hit = self.random.below(ONE) < threshold;
        self.last = Some(hit);
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(share: &str, correlation: &str) -> (f64, f64) {
        let chance =
            Chance { share: share.parse().expect("a share"), correlation: correlation.parse().expect("a share") };
        let mut decisions = Decisions::new(chance, Random::stream(11, "test"));
        let hits: Vec<f64> = (0..1_000_000).map(|_| f64::from(u8::from(decisions.next()))).collect();
        let mean = hits.iter().sum::<f64>() / hits.len() as f64;
        let lag: f64 = hits.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
        (mean, lag / hits.len() as f64 / (mean * (1.0 - mean)))
    }

    #[test]
    fn effect_share_and_correlation_match_the_request() {
        for (share, correlation, p, c) in
            [("2%", "25%", 0.02, 0.25), ("0.3%", "25%", 0.003, 0.25), ("25%", "50%", 0.25, 0.5)]
        {
            let (mean, lag) = drawn(share, correlation);
            // Four standard deviations. Correlation widens the variance of the mean by (1 + C)/(1 − C).
            let deviation = f64::sqrt(p * (1.0 - p) / 1e6 * (1.0 + c) / (1.0 - c));
            assert!((mean - p).abs() < 4.0 * deviation, "{share} {correlation}: {mean}");
            assert!((lag - c).abs() < 0.04, "{share} {correlation}: {lag}");
        }
    }

    #[test]
    fn shares_of_zero_and_one_are_exact() {
        let of = |share: &str, correlation: &str| drawn(share, correlation).0;
        assert!(of("0%", "50%") < 1e-9 && of("100%", "50%") > 1.0 - 1e-9);
    }
}
