use super::{Grammar, Kind, Probability, Shape, Words};
use std::fmt;
use units::ParseError;

/// The exponential law: gaps of a Poisson process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exponential;

impl Grammar for Exponential {
    const KIND: Kind = Kind {
        name: "exp",
        grammar: "exp",
        summary: "the exponential law, the gaps of a Poisson process",
        example: "exp mean 10us",
    };

    fn parse(_: &mut Words<'_>) -> Result<Self, ParseError> {
        Ok(Exponential)
    }
}

impl Shape for Exponential {
    fn cdf(&self, x: f64) -> Probability {
        let x = x.max(0.0);
        Probability { below: -libm::expm1(-x), above: libm::exp(-x) }
    }

    fn quantile(&self, p: Probability) -> f64 {
        if p.below < 0.5 { -libm::log1p(-p.below) } else { -libm::log(p.above) }
    }

    fn moments(&self) -> (Option<f64>, Option<f64>) {
        (Some(1.0), Some(1.0))
    }

    fn is_scaled_by_mean(&self) -> bool {
        true
    }
}

impl fmt::Display for Exponential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("exp")
    }
}
