use super::{Grammar, Kind, Probability, Shape, Words};
use std::fmt;
use units::{ParseError, Span};

/// The Pareto law of the first kind: P(X > x) = (scale ÷ x)^shape from `scale` on.
#[derive(Clone, Debug, PartialEq)]
pub struct Pareto {
    /// Tail exponent. The mean exists above 1, the deviation above 2.
    pub shape: f64,
    /// The smallest value. Without it the law needs a mean or a range.
    pub scale: Option<Span>,
}

impl Grammar for Pareto {
    const KIND: Kind = Kind {
        name: "pareto",
        grammar: "pareto shape A [scale T]",
        summary: "the Pareto law: P(gap > t) = (T ÷ t)^A from T on",
        example: "pareto shape 2.5 scale 10us",
    };

    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        if !words.take("shape") {
            return Err(ParseError::new("pareto has no shape", "write pareto shape 2.5 scale 10us"));
        }
        let shape = words.number("shape", 0.1, 1_000.0)?;
        let scale = words.time_after("scale")?;
        Ok(Pareto { shape, scale })
    }
}

impl Pareto {
    fn unit(&self) -> f64 {
        self.scale.map_or(1.0, |scale| scale.as_ps() as f64)
    }
}

impl Shape for Pareto {
    fn cdf(&self, x: f64) -> Probability {
        if x <= self.unit() {
            return Probability::NONE;
        }
        let exponent = self.shape * libm::log(self.unit() / x);
        Probability { below: -libm::expm1(exponent), above: libm::exp(exponent) }
    }

    fn quantile(&self, p: Probability) -> f64 {
        let log_above = if p.below < 0.5 { libm::log1p(-p.below) } else { libm::log(p.above) };
        self.unit() * libm::exp(-log_above / self.shape)
    }

    fn moments(&self) -> (Option<f64>, Option<f64>) {
        let (a, unit) = (self.shape, self.unit());
        let mean = (a > 1.0).then(|| unit * a / (a - 1.0));
        let deviation = (a > 2.0).then(|| unit / (a - 1.0) * libm::sqrt(a / (a - 2.0)));
        (mean, deviation)
    }

    fn is_timed(&self) -> bool {
        self.scale.is_some()
    }
}

impl fmt::Display for Pareto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pareto shape {}", self.shape)?;
        self.scale.map_or(Ok(()), |scale| write!(f, " scale {scale}"))
    }
}
