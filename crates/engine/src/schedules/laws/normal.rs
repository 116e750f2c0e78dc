use super::{Grammar, Kind, Probability, Shape, Words};
use measure::special::{normal_cdf, normal_quantile};
use std::fmt;
use units::ParseError;

/// The standard normal law. A mean and a deviation place it in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Normal;

impl Grammar for Normal {
    const KIND: Kind =
        Kind { name: "normal", grammar: "normal", summary: "the normal law", example: "normal mean 100us sd 5us" };

    fn parse(_: &mut Words<'_>) -> Result<Self, ParseError> {
        Ok(Normal)
    }
}

impl Shape for Normal {
    fn cdf(&self, x: f64) -> Probability {
        normal_cdf(x)
    }

    fn quantile(&self, p: Probability) -> f64 {
        normal_quantile(p)
    }

    fn moments(&self) -> (Option<f64>, Option<f64>) {
        (Some(0.0), Some(1.0))
    }
}

impl fmt::Display for Normal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("normal")
    }
}
