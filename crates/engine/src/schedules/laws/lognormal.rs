use super::{Grammar, Kind, Probability, Shape, Words};
use measure::special::{normal_cdf, normal_quantile};
use std::fmt;
use units::{ParseError, Span};

/// The lognormal law, with the mean and deviation of the gaps, not of their logarithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogNormal {
    /// The mean of the gaps.
    pub mean: Span,
    /// The standard deviation of the gaps.
    pub sd: Span,
}

impl Grammar for LogNormal {
    const KIND: Kind = Kind {
        name: "lognormal",
        grammar: "lognormal mean T sd T",
        summary: "the lognormal law, by mean and deviation of the gaps",
        example: "lognormal mean 100us sd 30us",
    };

    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        let missing = |what: &str| {
            ParseError::new(format!("lognormal has no {what} of the gaps"), "write lognormal mean 100us sd 30us")
        };
        let mean = words.time_after("mean")?.ok_or_else(|| missing("mean"))?;
        let sd = words.time_after("sd")?.ok_or_else(|| missing("sd"))?;
        Ok(LogNormal { mean, sd })
    }
}

impl LogNormal {
    /// Mean and standard deviation of the logarithm.
    fn of_logarithm(&self) -> (f64, f64) {
        let (mean, sd) = (self.mean.as_ps() as f64, self.sd.as_ps() as f64);
        let ratio = sd / mean;
        let variance = libm::log1p(ratio * ratio);
        (libm::log(mean) - variance / 2.0, libm::sqrt(variance))
    }
}

impl Shape for LogNormal {
    fn cdf(&self, x: f64) -> Probability {
        if x <= 0.0 {
            return Probability::NONE;
        }
        let (mean, sd) = self.of_logarithm();
        normal_cdf((libm::log(x) - mean) / sd)
    }

    fn quantile(&self, p: Probability) -> f64 {
        let (mean, sd) = self.of_logarithm();
        libm::exp(mean + sd * normal_quantile(p))
    }

    fn moments(&self) -> (Option<f64>, Option<f64>) {
        (Some(self.mean.as_ps() as f64), Some(self.sd.as_ps() as f64))
    }

    fn is_timed(&self) -> bool {
        true
    }
}

impl fmt::Display for LogNormal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lognormal mean {} sd {}", self.mean, self.sd)
    }
}
