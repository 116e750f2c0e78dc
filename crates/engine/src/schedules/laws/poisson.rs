use super::{Grammar, Kind, Probability, Shape, Words};
use measure::special::gamma_cdf;
use std::fmt;
use units::ParseError;

/// The Poisson law of a count. A mean or a range maps the counts to equidistant gaps.
#[derive(Clone, Debug, PartialEq)]
pub struct Poisson {
    /// Mean and variance of the count.
    pub lambda: f64,
}

impl Grammar for Poisson {
    const KIND: Kind = Kind {
        name: "poisson",
        grammar: "poisson lambda L",
        summary: "the Poisson law: discrete, evenly spaced values",
        example: "poisson lambda 2 in 80us..120us",
    };

    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        if !words.take("lambda") {
            return Err(ParseError::new("poisson has no lambda", "write poisson lambda 2"));
        }
        Ok(Poisson { lambda: words.number("lambda", 0.001, 10_000.0)? })
    }
}

impl Poisson {
    /// P(X ≤ k) = Q(k + 1, λ), the complement of the gamma law.
    fn at_most(&self, k: f64) -> Probability {
        if k < 0.0 {
            return Probability::NONE;
        }
        let gamma = gamma_cdf(k + 1.0, self.lambda);
        Probability { below: gamma.above, above: gamma.below }
    }
}

impl Shape for Poisson {
    fn cdf(&self, x: f64) -> Probability {
        self.at_most(libm::floor(x))
    }

    fn strictly(&self, x: f64) -> Probability {
        self.at_most(libm::ceil(x) - 1.0)
    }

    fn quantile(&self, p: Probability) -> f64 {
        let enough = |k: f64| {
            let at = self.at_most(k);
            if p.below < p.above { at.below >= p.below } else { at.above <= p.above }
        };
        // Doubles until the bound suffices, then bisects: a few dozen steps at most.
        let mut high = libm::ceil(self.lambda);
        while !enough(high) {
            high = high * 2.0 + 1.0;
        }
        let mut low = -1.0;
        while high - low > 1.0 {
            let middle = libm::floor(f64::midpoint(low, high));
            if enough(middle) { high = middle } else { low = middle }
        }
        high
    }

    fn moments(&self) -> (Option<f64>, Option<f64>) {
        (Some(self.lambda), Some(libm::sqrt(self.lambda)))
    }

    fn is_discrete(&self) -> bool {
        true
    }
}

impl fmt::Display for Poisson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "poisson lambda {}", self.lambda)
    }
}
