//! Correlated gaps for any law. Φ and the quantile of the law turn a first-order chain of normal values, zₜ = ρ·zₜ₋₁ +
//! √(1 − ρ²)·εₜ, into gaps. The marginal distribution stays that of the law. ρ is solved so that Pearson's correlation
//! of neighbouring gaps has the configured value.
//!
//! Write the gap as a series of normalised Hermite polynomials of z with coefficients hₖ. The correlation is then Σ
//! hₖ²·ρᵏ ÷ Σ hₖ² over k ≥ 1 (Mehler's formula). For a smooth law the first orders suffice. For a law with steps
//! (single values, or many gaps at an edge) hₖ² falls only as k^(−3⁄2), and a tail of this form approximates the
//! remaining orders.

use super::GapDistribution;
use super::sampler::{CERTIFIED, Lines, Sampler};
use crate::random::Random;
use measure::special::{Probability, normal_cdf, normal_quantile};
use units::ParseError;

/// Number of polynomials of the series that are computed.
const ORDERS: usize = 1_000;
/// Half the integration range in z, and the number of steps.
const REACH: f64 = 9.0;
const STEPS: i32 = 3_600;

/// The coefficient ρ that gives neighbouring gaps of `law` this correlation.
pub(super) fn persistence(law: &GapDistribution, correlation: f64) -> Result<f64, ParseError> {
    let step = 2.0 * REACH / f64::from(STEPS);
    // Evaluates the middle of each step, so that a jump at the law's median falls between two steps.
    let values: Vec<(f64, f64, f64)> = (0..STEPS)
        .map(|i| {
            let z = -REACH + (f64::from(i) + 0.5) * step;
            let weight = libm::exp(-z * z / 2.0) / libm::sqrt(2.0 * std::f64::consts::PI) * step;
            (z, weight, law.quantile(normal_cdf(z)))
        })
        .collect();
    // Quantiles are monotonic: equal ends mean that all gaps are equal.
    if values[values.len() - 1].2 <= values[0].2 {
        return Err(ParseError::new("a law with equal gaps has no correlation", "leave corr out"));
    }
    let mean: f64 = values.iter().map(|(_, weight, value)| weight * value).sum();
    let variance: f64 = values.iter().map(|(_, weight, value)| weight * (value - mean) * (value - mean)).sum();
    let roots: Vec<f64> = (0..=ORDERS).map(|order| libm::sqrt(order as f64)).collect();
    let mut squares = vec![0.0; ORDERS];
    let mut sums = vec![0.0; ORDERS];
    for (z, weight, value) in &values {
        let (mut before, mut polynomial) = (0.0, 1.0);
        for (k, sum) in sums.iter_mut().enumerate() {
            (before, polynomial) = (polynomial, (z * polynomial - roots[k] * before) / roots[k + 1]);
            *sum += weight * (value - mean) * polynomial;
        }
    }
    for (square, sum) in squares.iter_mut().zip(sums) {
        *square = sum * sum / variance;
    }
    // With ρ = −1 each value is followed by its mirror image.
    let mirrored: f64 = values
        .iter()
        .zip(values.iter().rev())
        .map(|((_, weight, value), (_, _, mirror))| weight * (value - mean) * (mirror - mean) / variance)
        .sum();
    // The remaining variance and mirrored correlation. At ρ = ±1 the tail supplies them in full.
    let rest = (1.0 - squares.iter().sum::<f64>()).max(0.0);
    let rest_mirrored = mirrored - squares.iter().rev().fold(0.0, |sum, square| -(sum + square));
    let of = |rho: f64| {
        let computed = squares.iter().rev().fold(0.0, |sum, square| (sum + square) * rho);
        computed + if rho < 0.0 { rest_mirrored } else { rest } * tail(rho.abs())
    };
    if correlation >= 1.0 || correlation <= mirrored {
        return Err(ParseError::new(
            format!("neighbouring values of this law cannot have a correlation of {:.4} %", correlation * 100.0),
            format!("write one above {:.1}% and below 100%", mirrored * 100.0),
        ));
    }
    let (mut low, mut high) = (-1.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if of(middle) < correlation { low = middle } else { high = middle }
    }
    Ok(f64::midpoint(low, high))
}

/// Σ k^(−3⁄2)·ρᵏ ÷ Σ k^(−3⁄2) over the orders that are not computed, with integrals over k.
fn tail(rho: f64) -> f64 {
    let decay = -libm::log(rho) * ORDERS as f64;
    // Negligible, and the subtraction below would cancel.
    if decay > 50.0 {
        return 0.0;
    }
    libm::exp(-decay) - libm::sqrt(std::f64::consts::PI * decay) * libm::erfc(libm::sqrt(decay))
}

/// The chain of normal values.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    random: Random,
    /// The standard normal law as a table.
    normal: Lines,
    rho: f64,
    fresh: f64,
    last: f64,
}

impl Chain {
    pub(super) fn new(rho: f64, random: Random) -> Self {
        let normal = Lines::new(&normal_quantile, &normal_cdf, (f64::NEG_INFINITY, f64::INFINITY), 7);
        let mut chain = Chain { random, normal, rho, fresh: libm::sqrt(1.0 - rho * rho), last: 0.0 };
        // Starts in the stationary state.
        chain.last = chain.draw();
        chain
    }

    /// The next standard normal value.
    #[inline]
    pub(super) fn next(&mut self) -> f64 {
        self.last = self.rho * self.last + self.fresh * self.draw();
        self.last
    }

    fn draw(&mut self) -> f64 {
        let bits = self.random.bits();
        self.normal.value(bits).unwrap_or_else(|| normal_quantile(fraction(bits)))
    }
}

/// Turns standard normal values into gaps of a law.
#[derive(Clone, Debug)]
pub(super) enum Transfer {
    /// Linear pieces over equal steps of z, `steps` per unit: value and slope of each.
    Lines { law: Box<GapDistribution>, limits: (f64, f64), steps: f64, cells: Vec<(f64, f64)> },
    /// The sampler of the law, applied to the normal distribution function.
    Sampled(Sampler),
}

impl Transfer {
    /// Half the tabulated range of z.
    const REACH: i32 = 8;

    pub(super) fn new(law: &GapDistribution, sampler: Sampler) -> Self {
        // Takes the smallest table that is precise enough, because small tables fit into the CPU caches.
        let finer = [64, 128, 256, 512].into_iter().map(|steps| (steps, Self::cells(law, steps)));
        match finer.filter(|_| !law.is_discrete()).find(|(_, (_, worst))| *worst <= CERTIFIED) {
            Some((steps, (cells, _))) => {
                Transfer::Lines { law: Box::new(law.clone()), limits: law.limits(), steps: f64::from(steps), cells }
            }
            None => Transfer::Sampled(sampler),
        }
    }

    /// The linear pieces and their largest error, as a probability.
    fn cells(law: &GapDistribution, steps: i32) -> (Vec<(f64, f64)>, f64) {
        let position = |i: i32| f64::from(i) / f64::from(steps);
        let value = |z: f64| law.before_limits(normal_cdf(z));
        let limits = law.limits();
        let mut cells = Vec::new();
        let mut worst: f64 = 0.0;
        let mut from = value(position(-Self::REACH * steps));
        for i in -Self::REACH * steps..Self::REACH * steps {
            let to = value(position(i + 1));
            for part in [0.25, 0.5, 0.75] {
                let got = from + (to - from) * part;
                if got > limits.0 && got < limits.1 {
                    let z = position(i) + part / f64::from(steps);
                    worst = worst.max((law.cdf(got).below - normal_cdf(z).below).abs());
                }
            }
            cells.push((from, to - from));
            from = to;
        }
        (cells, worst)
    }

    /// The gap in ps at `z`.
    #[inline]
    pub(super) fn gap(&self, z: f64) -> f64 {
        match self {
            Transfer::Lines { law, limits, steps, cells } => {
                let position = (z + f64::from(Self::REACH)) * steps;
                let index = position as i64;
                // Outside the table once in 10¹⁵ draws. The cast also maps negative numbers outside.
                match cells.get(index.cast_unsigned() as usize) {
                    Some((from, rise)) => (from + rise * (position - index as f64)).clamp(limits.0, limits.1),
                    None => law.quantile(normal_cdf(z)),
                }
            }
            Transfer::Sampled(sampler) => {
                let tail = (0.5 * libm::erfc(z.abs() * std::f64::consts::FRAC_1_SQRT_2) * TWO_64) as u64;
                sampler.gap(if z < 0.0 { tail } else { !tail })
            }
        }
    }
}

/// 2⁶⁴
pub(super) const TWO_64: f64 = 18_446_744_073_709_551_616.0;

/// The middle of the interval that 64 bits represent.
pub(super) fn fraction(bits: u64) -> Probability {
    let middle = |bits: u64| (bits as f64 + 0.5) / TWO_64;
    Probability { below: middle(bits), above: middle(!bits) }
}
