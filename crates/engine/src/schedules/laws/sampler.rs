use super::Placed;
use super::copula::{TWO_64, fraction};
use measure::special::Probability;

/// Turns uniform values into gaps: the law's quantile, fast.
#[derive(Clone, Debug)]
pub(super) enum Sampler {
    /// The quantile itself.
    Direct(Box<Placed>),
    /// Straight lines between quantiles.
    Lines(Box<Lines>),
    /// Single values.
    Atoms(Box<Atoms>),
}

impl Sampler {
    pub(super) fn new(law: &Placed) -> Self {
        if law.is_discrete() {
            Sampler::Atoms(Box::new(Atoms::new(&law.atoms())))
        } else if law.is_fast() {
            Sampler::Direct(Box::new(law.clone()))
        } else {
            // A finer division as long as the law is too bent; a law that is bent at any scale is
            // not drawn from a table.
            let finer = (7..=11).map(|bits| Lines::new(law, bits)).find(|lines| lines.worst <= CERTIFIED);
            finer.map_or_else(|| Sampler::Direct(Box::new(law.clone())), |lines| Sampler::Lines(Box::new(lines)))
        }
    }

    /// The gap in ps at `bits` ÷ 2⁶⁴ of the distribution.
    pub(super) fn gap(&self, bits: u64) -> f64 {
        match self {
            Sampler::Direct(law) => law.quantile(fraction(bits)),
            Sampler::Lines(lines) => lines.gap(bits),
            Sampler::Atoms(atoms) => atoms.gap(bits),
        }
    }
}

/// The largest distance, as a probability, between the law and what is drawn from a table of it. The
/// Kolmogorov–Smirnov test resolves 7e-4 with four million gaps.
pub(super) const CERTIFIED: f64 = 1e-5;

/// Halvings of the probability at each end that have cells of their own; what is beyond, once in 2²⁵
/// draws, is computed.
const OCTAVES: u32 = 24;

/// The quantile of a law as straight lines between exact values. Each halving of the probability
/// towards either end is divided in the same number of cells, so that tails are as good as the middle.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    law: Placed,
    limits: (f64, f64),
    bits: u32,
    /// Value at the start and rise over each cell: lower half, then upper half, outwards.
    cells: Vec<(f64, f64)>,
    /// How far the lines are off, as a probability: measured at three places of every cell.
    pub(super) worst: f64,
}

impl Lines {
    fn new(law: &Placed, bits: u32) -> Self {
        let count = 1_u32 << bits;
        let mut cells = Vec::with_capacity(2 * OCTAVES as usize * count as usize);
        let mut worst: f64 = 0.0;
        for upper in [false, true] {
            let at = |p: f64| if upper { Probability::above(p) } else { Probability::below(p) };
            let mut width = 0.25;
            for _ in 0..OCTAVES {
                let step = width / f64::from(count);
                let mut from = law.before_limits(at(width));
                for cell in 0..count {
                    let p = width + f64::from(cell) * step;
                    let to = law.before_limits(at(p + step));
                    for part in [0.25, 0.5, 0.75] {
                        let got = law.cdf((from + (to - from) * part).clamp(law.limits().0, law.limits().1));
                        let got = if upper { got.above } else { got.below };
                        let value = from + (to - from) * part;
                        // Beyond the limits all that counts is being beyond them.
                        if value > law.limits().0 && value < law.limits().1 {
                            worst = worst.max((got - (p + step * part)).abs());
                        }
                    }
                    cells.push((from, to - from));
                    from = to;
                }
                width /= 2.0;
            }
        }
        Lines { law: law.clone(), limits: law.limits(), bits, cells, worst }
    }

    fn gap(&self, bits: u64) -> f64 {
        let upper = bits >> 63;
        // The distance from the nearer end.
        let near = if upper == 1 { !bits } else { bits };
        let zeros = near.leading_zeros();
        if zeros > OCTAVES {
            return self.law.quantile(fraction(bits));
        }
        let mantissa = near << zeros << 1;
        let cell = (mantissa >> (64 - self.bits)) as usize;
        let part = (mantissa << self.bits) as f64 * (1.0 / TWO_64);
        let half = upper as usize * OCTAVES as usize;
        let (from, rise) = self.cells[((half + zeros as usize - 1) << self.bits) + cell];
        (from + rise * part).clamp(self.limits.0, self.limits.1)
    }
}

/// Single values with their probabilities.
#[derive(Clone, Debug)]
pub(super) struct Atoms {
    /// Each value, and the last uniform value that is its.
    values: Vec<(u64, f64)>,
    /// Where to begin to look, by the highest byte.
    guide: [u32; 256],
}

impl Atoms {
    fn new(atoms: &[(f64, f64)]) -> Self {
        let mut sum = 0.0;
        let mut values: Vec<(u64, f64)> = Vec::new();
        for (value, probability) in atoms {
            sum += probability;
            values.push(((sum * TWO_64) as u64, *value));
        }
        if let Some(last) = values.last_mut() {
            last.0 = u64::MAX;
        }
        let guide = std::array::from_fn(|byte| {
            let least = (byte as u64) << 56;
            values.partition_point(|(last, _)| *last < least) as u32
        });
        Atoms { values, guide }
    }

    fn gap(&self, bits: u64) -> f64 {
        let mut index = self.guide[(bits >> 56) as usize] as usize;
        while self.values[index].0 < bits {
            index += 1;
        }
        self.values[index].1
    }
}
