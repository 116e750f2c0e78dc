use super::{Grammar, Kind, Probability, Shape, Words};
use measure::special::{gamma_cdf, gamma_quantile};
use std::fmt;
use units::ParseError;

/// The chi-square law: the sum of `df` squares of standard normal values.
#[derive(Clone, Debug, PartialEq)]
pub struct Chi2 {
    /// Degrees of freedom.
    pub df: f64,
}

impl Grammar for Chi2 {
    const KIND: Kind = Kind {
        name: "chi2",
        grammar: "chi2 df N",
        summary: "the chi-square law of N degrees of freedom",
        example: "chi2 df 6 in 80us..120us",
    };

    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        if !words.take("df") {
            return Err(ParseError::new("chi2 has no degrees of freedom", "write chi2 df 6"));
        }
        Ok(Chi2 { df: words.number("df", 0.2, 100_000.0)? })
    }
}

impl Shape for Chi2 {
    fn cdf(&self, x: f64) -> Probability {
        gamma_cdf(self.df / 2.0, x / 2.0)
    }

    fn quantile(&self, p: Probability) -> f64 {
        2.0 * gamma_quantile(self.df / 2.0, p)
    }

    fn moments(&self) -> (Option<f64>, Option<f64>) {
        (Some(self.df), Some(libm::sqrt(2.0 * self.df)))
    }
}

impl fmt::Display for Chi2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chi2 df {}", self.df)
    }
}
