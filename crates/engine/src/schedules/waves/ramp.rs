use super::{Kind, Shape, Stretch, Waveform, Words, profile, range};
use std::fmt;
use units::{ParseError, Rate, Span};

/// The rate changes linearly from one value to another, up or down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ramp {
    /// The rate at the start and at the end.
    pub rates: (Rate, Rate),
    /// Duration.
    pub over: Span,
    /// If true, restarts at the end; else the last rate continues.
    pub repeats: bool,
}

const EXAMPLE: &str = "ramp 1Gbps..9Gbps over 1s";

impl Waveform for Ramp {
    const KIND: Kind = Kind {
        name: "ramp",
        grammar: "ramp RATE..RATE over TIME [repeat|hold]",
        summary: "the rate changes linearly from one value to another, then holds or repeats",
        example: EXAMPLE,
    };

    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        words.take("ramp");
        let wrong = || ParseError::new("a ramp goes from one rate to another over a time", format!("write {EXAMPLE}"));
        let rates = range(words, wrong)?;
        let over = words.time_after("over")?.ok_or_else(wrong)?;
        if !profile::is_short_enough(over) {
            return Err(ParseError::new(format!("a ramp of {over} is longer than a day"), "write at most 86400s"));
        }
        let repeats = words.take("repeat");
        if !repeats {
            words.take("hold");
        }
        Ok(Ramp { rates, over, repeats })
    }

    fn shape(&self) -> Option<Shape> {
        let pieces = vec![Stretch::Rates(self.over, Some(self.rates.0), Some(self.rates.1))];
        Some(Shape { pieces, repeats: self.repeats })
    }
}

impl fmt::Display for Ramp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ramp ")?;
        super::write_range(f, self.rates)?;
        write!(f, " over {} {}", self.over, if self.repeats { "repeat" } else { "hold" })
    }
}
