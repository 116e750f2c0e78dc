//! Correlated gaps of any law: normal values of a first-order chain, zₜ = ρ·zₜ₋₁ + √(1 − ρ²)·εₜ, turned
//! into gaps by Φ and the law's quantile. The marginal stays that of the law; ρ is solved so that
//! Pearson's correlation of neighbouring gaps is the one asked.
//!
//! With the gap as a series of normalised Hermite polynomials of z, of coefficients hₖ, that
//! correlation is Σ hₖ²·ρᵏ ÷ Σ hₖ² over k ≥ 1 (Mehler's formula).

use super::Placed;
use crate::random::Random;
use measure::special::{Probability, normal_cdf, normal_quantile};
use units::ParseError;

/// Polynomials of the series; what is left of the variance counts as one of the next order.
const ORDERS: usize = 120;
/// Half the range of z over which is integrated, and its steps.
const REACH: f64 = 9.0;
const STEPS: i32 = 3_600;

/// The coefficient ρ with which neighbouring gaps of `law` have this correlation.
pub(super) fn persistence(law: &Placed, correlation: f64) -> Result<f64, ParseError> {
    let step = 2.0 * REACH / f64::from(STEPS);
    let values: Vec<(f64, f64, f64)> = (0..=STEPS)
        .map(|i| {
            let z = -REACH + f64::from(i) * step;
            let weight = libm::exp(-z * z / 2.0) / libm::sqrt(2.0 * std::f64::consts::PI) * step;
            (z, weight, law.quantile(normal_cdf(z)))
        })
        .collect();
    let mean: f64 = values.iter().map(|(_, weight, value)| weight * value).sum();
    let variance: f64 = values.iter().map(|(_, weight, value)| weight * (value - mean) * (value - mean)).sum();
    let mut squares = [0.0; ORDERS];
    let mut sums = [0.0; ORDERS];
    for (z, weight, value) in &values {
        let (mut before, mut polynomial) = (0.0, 1.0);
        for (k, sum) in sums.iter_mut().enumerate() {
            let order = k as f64;
            (before, polynomial) =
                (polynomial, (z * polynomial - libm::sqrt(order) * before) / libm::sqrt(order + 1.0));
            *sum += weight * (value - mean) * polynomial;
        }
    }
    for (square, sum) in squares.iter_mut().zip(sums) {
        *square = sum * sum / variance;
    }
    let rest = (1.0 - squares.iter().sum::<f64>()).max(0.0);
    let of = |rho: f64| squares.iter().rev().fold(rest * rho.max(0.0), |sum, square| (sum + square) * rho);
    // With ρ = −1 each value is followed by its mirror image.
    let mirrored: f64 = values
        .iter()
        .zip(values.iter().rev())
        .map(|((_, weight, value), (_, _, mirror))| weight * (value - mean) * (mirror - mean) / variance)
        .sum();
    if correlation >= 1.0 || correlation <= mirrored {
        return Err(ParseError::new(
            format!("neighbouring gaps of this law cannot have a correlation of {:.4} %", correlation * 100.0),
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

/// The chain of normal values.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    random: Random,
    rho: f64,
    fresh: f64,
    last: Option<f64>,
}

impl Chain {
    pub(super) fn new(rho: f64, random: Random) -> Self {
        Chain { random, rho, fresh: libm::sqrt(1.0 - rho * rho), last: None }
    }

    /// The next uniform value as a fraction of 2⁶⁴.
    pub(super) fn bits(&mut self) -> u64 {
        let drawn = normal_quantile(fraction(self.random.bits()));
        let z = self.last.map_or(drawn, |last| self.rho * last + self.fresh * drawn);
        self.last = Some(z);
        let tail = (0.5 * libm::erfc(z.abs() * std::f64::consts::FRAC_1_SQRT_2) * TWO_64) as u64;
        if z < 0.0 { tail } else { !tail }
    }
}

/// 2⁶⁴
pub(super) const TWO_64: f64 = 18_446_744_073_709_551_616.0;

/// The middle of the interval that 64 bits stand for.
pub(super) fn fraction(bits: u64) -> Probability {
    let middle = |bits: u64| (bits as f64 + 0.5) / TWO_64;
    Probability { below: middle(bits), above: middle(!bits) }
}
