use super::{Grammar, Kind, Probability, Shape, Words};
use measure::special::{gamma_cdf, gamma_quantile};
use std::fmt;
use units::{ParseError, Span};

/// The gamma law.
#[derive(Clone, Debug, PartialEq)]
pub struct Gamma {
    /// Shape parameter.
    pub shape: f64,
    /// Scale parameter; the mean is shape × scale. Without it the law needs a range, or a mean.
    pub scale: Option<Span>,
}

impl Grammar for Gamma {
    const KIND: Kind = Kind {
        name: "gamma",
        grammar: "gamma shape A [scale T]",
        summary: "the gamma law; its mean is A × T",
        example: "gamma shape 2 scale 5us",
    };

    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        if !words.take("shape") {
            return Err(ParseError::new("gamma has no shape", "write gamma shape 2 scale 5us"));
        }
        let shape = words.number("shape", 0.1, 100_000.0)?;
        let scale = words.time_after("scale")?;
        Ok(Gamma { shape, scale })
    }
}

impl Gamma {
    fn unit(&self) -> f64 {
        self.scale.map_or(1.0, |scale| scale.as_ps() as f64)
    }
}

impl Shape for Gamma {
    fn cdf(&self, x: f64) -> Probability {
        gamma_cdf(self.shape, x / self.unit())
    }

    fn quantile(&self, p: Probability) -> f64 {
        self.unit() * gamma_quantile(self.shape, p)
    }

    fn moments(&self) -> (Option<f64>, Option<f64>) {
        (Some(self.shape * self.unit()), Some(libm::sqrt(self.shape) * self.unit()))
    }

    fn is_timed(&self) -> bool {
        self.scale.is_some()
    }
}

impl fmt::Display for Gamma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gamma shape {}", self.shape)?;
        self.scale.map_or(Ok(()), |scale| write!(f, " scale {scale}"))
    }
}
