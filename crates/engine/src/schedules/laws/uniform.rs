use super::{Grammar, Kind, Probability, Shape, Words};
use std::fmt;
use units::{ParseError, Span};

/// The uniform law: all times of a range are equally likely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uniform {
    /// The smallest and the largest time.
    pub range: (Span, Span),
}

impl Grammar for Uniform {
    const KIND: Kind = Kind {
        name: "uniform",
        grammar: "uniform A..B",
        summary: "every time from A to B is equally likely",
        example: "uniform 80us..120us",
    };

    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        Ok(Uniform { range: words.range("uniform")? })
    }
}

impl Uniform {
    fn ends(&self) -> (f64, f64) {
        (self.range.0.as_ps() as f64, self.range.1.as_ps() as f64)
    }
}

impl Shape for Uniform {
    fn cdf(&self, x: f64) -> Probability {
        let (from, to) = self.ends();
        let share = |distance: f64| (distance / (to - from)).clamp(0.0, 1.0);
        Probability { below: share(x - from), above: share(to - x) }
    }

    fn quantile(&self, p: Probability) -> f64 {
        let (from, to) = self.ends();
        from + p.below * (to - from)
    }

    fn moments(&self) -> (Option<f64>, Option<f64>) {
        let (from, to) = self.ends();
        (Some((from + to) / 2.0), Some((to - from) / libm::sqrt(12.0)))
    }

    fn is_timed(&self) -> bool {
        true
    }

    fn is_fast(&self) -> bool {
        true
    }
}

impl fmt::Display for Uniform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uniform {}..{}", self.range.0, self.range.1)
    }
}
