//! Delays of operations, and their grammar.

use crate::operations::Operations;
use engine::random::Random;
use engine::schedules::Files;
use engine::schedules::laws::{Correlation, Distribution, GapLaw, Values};
use std::fmt;
use units::{ParseError, Share, Span};

/// Delay of operations. With names in front it applies only to those: `read,write 10ms`.
///
/// The grammar is that of `tc netem` delays, `T [J [C]] [distribution NAME]`, or any law of gaps: `exp mean 10ms`,
/// `lognormal mean 10ms sd 5ms`.
#[derive(Clone, Debug)]
pub struct Delay {
    text: String,
    /// The operations it applies to, if named.
    pub(crate) operations: Option<Operations>,
    how: How,
}

#[derive(Clone, Debug)]
enum How {
    Fixed(Span),
    Law(Box<GapLaw>),
    /// As in netem: the mean, plus the jitter times a value of a distribution.
    Spread {
        mean: Span,
        jitter: Span,
        correlation: Option<Correlation>,
        distribution: Distribution,
    },
}

/// Key of the random numbers of delays.
const PATH: &str = "disk/delay";

impl Delay {
    /// Parses several delays for different operations: `read 5ms; write,fsync 20ms 2ms`.
    ///
    /// # Errors
    /// As [`Delay::parse`].
    pub fn parse_each(text: &str) -> Result<Vec<Self>, ParseError> {
        text.split(';').map(Delay::parse).collect()
    }

    /// Parses `10ms`, `10ms 2ms`, `10ms 2ms 25%`, `10ms 2ms distribution normal` and laws, optionally after `read` or
    /// `write,fsync`.
    ///
    /// # Errors
    /// A time without a unit, words outside the grammar, or an impossible law.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        let (operations, words) = Operations::before(&words);
        let how = match GapLaw::parse(&words.join(" ")) {
            Some(law) => {
                let law = law?;
                Values::allow(&law)?;
                How::Law(Box::new(law))
            }
            None => as_netem(words)?,
        };
        Ok(Delay { text, operations, how })
    }

    /// Reads the delay's table, if it has one.
    ///
    /// # Errors
    /// The file cannot be read or is not a table.
    pub fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
        match &mut self.how {
            How::Law(law) => law.load(files),
            How::Spread { distribution, .. } => distribution.load(files),
            How::Fixed(_) => Ok(()),
        }
    }

    /// The stream of delays. Delays for named operations have their own random numbers.
    pub(crate) fn draws(&self, seed: u64) -> Result<Draws, ParseError> {
        let path = self.operations.map_or_else(|| PATH.to_owned(), |operations| format!("{PATH}/{operations}"));
        Ok(match &self.how {
            How::Fixed(span) => Draws::Fixed(*span),
            How::Law(law) => Draws::Law(Box::new(Values::new(law, seed, &path)?)),
            How::Spread { mean, jitter, correlation, distribution } => {
                let random = Random::stream(seed, &path);
                let values = Values::of_distribution(distribution, *mean, *jitter, *correlation, random)?;
                Draws::Law(Box::new(values))
            }
        })
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A stream of delays.
#[derive(Debug)]
pub(crate) enum Draws {
    Fixed(Span),
    Law(Box<Values>),
}

impl Draws {
    pub(crate) fn draw(&mut self) -> Span {
        match self {
            Draws::Fixed(span) => *span,
            Draws::Law(values) => values.draw(),
        }
    }
}

const REMEDY: &str = "write --delay 10ms, --delay 10ms 2ms, --delay 10ms 2ms distribution normal, or a law as 'exp mean 10ms'; \
     or --delay 'read 5ms; write,fsync 20ms' per operation";

/// Parses `T [J [C]] [[distribution] NAME] [corr C]`.
fn as_netem(words: &[&str]) -> Result<How, ParseError> {
    let (mean, mut rest) = words.split_first().ok_or_else(|| ParseError::new("the delay is missing", REMEDY))?;
    if mean.starts_with(char::is_alphabetic) {
        return Err(ParseError::new(format!("'{mean}' is neither a time nor an operation nor a law"), REMEDY));
    }
    let mean: Span = mean.parse()?;
    let mut jitter = Span::ZERO;
    let mut correlation: Option<Share> = None;
    let mut distribution = None;
    if let Some((word, after)) = rest.split_first()
        && word.starts_with(|c: char| c.is_ascii_digit() || c == '-')
    {
        jitter = word.parse()?;
        rest = after;
        if let Some((word, after)) = rest.split_first()
            && word.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        {
            correlation = Some(word.parse()?);
            rest = after;
        }
    }
    while let Some((word, after)) = rest.split_first() {
        let twice = || ParseError::new(format!("'{word}' is given twice"), "leave one out");
        let next =
            || after.split_first().ok_or_else(|| ParseError::new(format!("'{word}' needs a value after it"), REMEDY));
        match *word {
            "corr" if correlation.is_some() => return Err(twice()),
            "corr" => {
                let (share, after) = next()?;
                correlation = Some(share.parse()?);
                rest = after;
            }
            _ if distribution.is_some() => {
                return Err(ParseError::new(format!("'{word}' is not part of a delay"), REMEDY));
            }
            "distribution" => {
                let (name, after) = next()?;
                distribution = Some(*name);
                rest = after;
            }
            // As in stages: 10ms 2ms normal.
            name => {
                distribution = Some(name);
                rest = after;
            }
        }
    }
    if jitter == Span::ZERO {
        return match distribution {
            Some(name) => Err(ParseError::new(
                format!("distribution {name} has no jitter to spread"),
                "write the jitter after the delay, as 10ms 2ms distribution normal",
            )),
            None => Ok(How::Fixed(mean)),
        };
    }
    let correlation = correlation.filter(|share| *share != Share::default()).map(Correlation::of_share);
    let distribution = named(distribution.unwrap_or("uniform"))?;
    Ok(How::Spread { mean, jitter, correlation, distribution })
}

/// One of netem's distributions, or a file.
fn named(name: &str) -> Result<Distribution, ParseError> {
    let is_file = name.contains('/') || name.ends_with(".dist") || name == "experimental";
    if is_file || Distribution::NAMES.contains(&name) {
        return Ok(Distribution::named(name));
    }
    let names = Distribution::NAMES.join(", ");
    Err(ParseError::new(
        format!("'{name}' is not a distribution"),
        format!("write {names}, experimental or FILE.dist, or a law as 'exp mean 10ms'"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_and_deviation(text: &str, draws: u32) -> (f64, f64) {
        let delay = Delay::parse(text).expect(text);
        let mut values = delay.draws(3).expect(text);
        let drawn: Vec<f64> = (0..draws).map(|_| values.draw().as_ps() as f64 / 1e9).collect();
        let mean = drawn.iter().sum::<f64>() / f64::from(draws);
        let variance = drawn.iter().map(|ms| (ms - mean) * (ms - mean)).sum::<f64>() / f64::from(draws);
        (mean, variance.sqrt())
    }

    #[test]
    fn delays_follow_their_law() {
        assert_eq!(mean_and_deviation("10ms", 10), (10.0, 0.0));
        assert_eq!(mean_and_deviation("10ms 0ms", 10), (10.0, 0.0));
        for (text, mean, deviation) in [
            ("10ms 2ms", 10.0, 2.0 / 3_f64.sqrt()),
            ("10ms 2ms distribution uniform", 10.0, 2.0 / 3_f64.sqrt()),
            ("10ms 2ms 25%", 10.0, 2.0 / 3_f64.sqrt()),
            ("10ms 2ms distribution normal", 10.0, 2.0),
            ("10ms 2ms normal corr 25%", 10.0, 2.0),
            ("exp mean 10ms", 10.0, 10.0),
            ("uniform 5ms..15ms", 10.0, 5.0 / 3_f64.sqrt()),
        ] {
            let (m, d) = mean_and_deviation(text, 40_000);
            assert!((m - mean).abs() < 0.03 * mean, "{text}: mean {m}");
            assert!((d - deviation).abs() < 0.05 * deviation, "{text}: deviation {d}");
        }
        // The tables of `emulate`, cut at four times the jitter.
        for name in ["pareto", "paretonormal"] {
            let (mean, deviation) = mean_and_deviation(&format!("10ms 2ms distribution {name}"), 40_000);
            assert!((mean - 10.0).abs() < 0.15 && (1.5..1.9).contains(&deviation), "{name}: {mean}, {deviation}");
        }
    }

    #[test]
    fn negative_delays_become_zero() {
        let (mean, _) = mean_and_deviation("1ms 10ms", 40_000);
        // Uniform from −9 to 11 ms: 55 % of the values are above zero, with a mean of 5.5 ms.
        assert!((mean - 3.025).abs() < 0.1, "{mean}");
        let delay = Delay::parse("1ms 10ms distribution normal").expect("a delay");
        let mut values = delay.draws(1).expect("it can be had");
        let zeros = (0..10_000).filter(|_| values.draw() == Span::ZERO).count();
        // Φ(−0.1) = 46 %.
        assert!((4_300..4_900).contains(&zeros), "{zeros}");
    }

    #[test]
    fn refuses_invalid_delays_with_a_remedy() {
        for text in [
            "10",
            "",
            "10ms 5",
            "10ms 2ms 25",
            "10ms 2ms distribution",
            "10ms 2ms corr",
            "10ms 2ms 25% corr 25%",
            "10ms 2ms normal uniform",
            "10ms 2ms distribution normal 5",
            "10ms distribution normal",
            "10ms 2ms distribution nromal",
            "10ms 2ms 25% 3ms",
            "fast",
            "-1ms",
            "exp mean 10ms idle",
            "exp mean 10",
            "reed 10ms",
            "read",
            "read 10ms 2ms 25% 3ms",
        ] {
            let error = match Delay::parse(text) {
                Err(error) => error.to_string(),
                Ok(_) => panic!("'{text}' was taken"),
            };
            assert!(error.contains("write") || error.contains("leave"), "{text}: {error}");
        }
    }
}
