use super::GapDistribution;
use super::copula::{TWO_64, fraction};
use measure::special::Probability;

/// Turns uniform values into gaps: a fast quantile of the law.
#[derive(Clone, Debug)]
pub(crate) enum Sampler {
    /// The quantile itself.
    Direct(Box<GapDistribution>),
    /// Linear interpolation between exact quantiles; outside them, the law itself.
    Lines(Lines, Box<GapDistribution>),
    /// Discrete values.
    Atoms(Box<Atoms>),
}

impl Sampler {
    pub(crate) fn new(law: &GapDistribution) -> Self {
        if law.is_discrete() {
            Sampler::Atoms(Box::new(Atoms::new(&law.atoms())))
        } else if law.is_fast() {
            Sampler::Direct(Box::new(law.clone()))
        } else {
            // Refines the table while the law is too curved. A law that is curved at every scale gets no table.
            let lines = |bits| Lines::new(&|p| law.before_limits(p), &|ps| law.cdf(ps), law.limits(), bits);
            let finer = (7..=11).map(lines).find(|lines| lines.worst <= CERTIFIED);
            let law = Box::new(law.clone());
            match finer {
                Some(lines) => Sampler::Lines(lines, law),
                None => Sampler::Direct(law),
            }
        }
    }

    /// The gap in ps at quantile `bits` ÷ 2⁶⁴.
    #[inline]
    pub(crate) fn gap(&self, bits: u64) -> f64 {
        match self {
            Sampler::Direct(law) => law.quantile(fraction(bits)),
            Sampler::Lines(lines, law) => lines.value(bits).unwrap_or_else(|| law.quantile(fraction(bits))),
            Sampler::Atoms(atoms) => atoms.gap(bits),
        }
    }
}

/// Maximum distance, as a probability, between a law and its table. A Kolmogorov–Smirnov test with four million gaps
/// resolves 7e-4.
pub(super) const CERTIFIED: f64 = 1e-5;

/// Number of halvings of the probability at each end that have their own cells. Values further out, one in 2²⁵ draws,
/// are computed.
const OCTAVES: u32 = 24;

/// The quantile of a law, linear between exact values. Each halving of the probability towards either end has the same
/// number of cells, so that the tails are as precise as the middle.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    limits: (f64, f64),
    bits: u32,
    /// Start value and slope of each cell: lower half, then upper half, outwards.
    cells: Vec<(f64, f64)>,
    /// Largest error as a probability, measured at three points of each cell.
    pub(super) worst: f64,
}

impl Lines {
    /// Tabulates this quantile function and checks the table against its distribution function. Values beyond `limits`
    /// are clamped to them.
    pub(super) fn new(
        quantile: &dyn Fn(Probability) -> f64,
        cdf: &dyn Fn(f64) -> Probability,
        limits: (f64, f64),
        bits: u32,
    ) -> Self {
        let count = 1_u32 << bits;
        let mut cells = Vec::with_capacity(2 * OCTAVES as usize * count as usize);
        let mut worst: f64 = 0.0;
        for upper in [false, true] {
            let at = |p: f64| if upper { Probability::above(p) } else { Probability::below(p) };
            let mut width = 0.25;
            for _ in 0..OCTAVES {
                let step = width / f64::from(count);
                let mut from = quantile(at(width));
                for cell in 0..count {
                    let p = width + f64::from(cell) * step;
                    let to = quantile(at(p + step));
                    for part in [0.25, 0.5, 0.75] {
                        let value = from + (to - from) * part;
                        // The error is irrelevant where values are clamped.
                        if value > limits.0 && value < limits.1 {
                            let got = cdf(value);
                            let got = if upper { got.above } else { got.below };
                            worst = worst.max((got - (p + step * part)).abs());
                        }
                    }
                    cells.push((from, to - from));
                    from = to;
                }
                width /= 2.0;
            }
        }
        Lines { limits, bits, cells, worst }
    }

    /// The value at quantile `bits` ÷ 2⁶⁴; `None` if that is too close to 0 or 1.
    #[inline]
    pub(super) fn value(&self, bits: u64) -> Option<f64> {
        let upper = bits >> 63;
        // The distance from the nearer end.
        let near = if upper == 1 { !bits } else { bits };
        let zeros = near.leading_zeros();
        if zeros > OCTAVES {
            return None;
        }
        let mantissa = near << zeros << 1;
        let cell = (mantissa >> (64 - self.bits)) as usize;
        // The lowest bit is zero, so the value fits a signed number, which converts faster.
        let part = (mantissa << self.bits >> 1).cast_signed() as f64 * (2.0 / TWO_64);
        let half = upper as usize * OCTAVES as usize;
        let (from, rise) = self.cells[((half + zeros as usize - 1) << self.bits) + cell];
        Some((from + rise * part).clamp(self.limits.0, self.limits.1))
    }
}

/// Discrete values with their probabilities.
#[derive(Clone, Debug)]
pub(crate) struct Atoms {
    /// Each value, after the largest 64-bit number that selects it.
    values: Vec<(u64, f64)>,
    /// Start index of the search, by the highest byte.
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
