use super::{Configuration, Item, Kind, Outlet, Stage, Timed, frames_of_10g};
use crate::random::Random;
use crate::schedules::Files;
use crate::schedules::laws::{Correlation, Distribution, GapLaw, Values};
use packet::Frame;
use std::fmt;
use units::{ParseError, Span, Time};

/// Holds each frame for a fixed time, or for a random time.
///
/// With random times, a frame may overtake another. `keep-order` prevents this, but distorts the distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Delay {
    /// The delay.
    pub by: Amount,
    /// If true, no frame leaves before one that arrived earlier.
    pub keep_order: bool,
}

/// The delay of frames.
#[derive(Clone, Debug, PartialEq)]
pub enum Amount {
    /// The same for all frames.
    Fixed(Span),
    /// Around a mean, as in tc-netem.
    Around {
        /// The mean.
        mean: Span,
        /// The jitter: half the width of a uniform distribution; for other distributions, the unit of their values.
        jitter: Span,
        /// The distribution.
        distribution: Distribution,
        /// Pearson's correlation of each delay with the next.
        correlation: Option<Correlation>,
    },
    /// Drawn from a law of gaps.
    Law(Box<GapLaw>),
}

const HOW: &str = "write delay 20ms, delay 20ms 2ms normal corr 25%, or a law: delay exp mean 5ms";

impl Configuration for Delay {
    const KIND: Kind = Kind {
        name: "delay",
        grammar: "delay TIME [JITTER [uniform|normal|pareto|paretonormal|FILE.dist] [corr C]] [keep-order] | delay LAW [keep-order]",
        summary: "delays each frame by TIME, by TIME with jitter, or by a time drawn from a law",
        example: "delay 20ms 2ms normal corr 25%",
    };

    fn parse(words: &[&str]) -> Result<Self, ParseError> {
        let (words, keep_order) = match words {
            [rest @ .., "keep-order"] => (rest, true),
            all => (all, false),
        };
        let Some(first) = words.first() else { return Err(ParseError::new("a delay has no time", HOW)) };
        if first.starts_with(|c: char| c.is_ascii_alphabetic()) {
            let law = GapLaw::parse(&words.join(" "))
                .unwrap_or_else(|| Err(ParseError::new(format!("'{first}' is neither a time nor a law"), HOW)))?;
            Values::allow(&law)?;
            return Ok(Delay { by: Amount::Law(Box::new(law)), keep_order });
        }
        let mean: Span = first.parse()?;
        let mut rest = &words[1..];
        let mut next = || {
            let (word, after) = rest.split_first()?;
            rest = after;
            Some(*word)
        };
        let Some(jitter) = next() else { return Ok(Delay { by: Amount::Fixed(mean), keep_order }) };
        if jitter.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(ParseError::new(format!("'{jitter}' is where the jitter should be"), HOW));
        }
        let jitter: Span = jitter.parse()?;
        let mut distribution = Distribution::Uniform;
        let mut correlation = None;
        while let Some(word) = next() {
            match word {
                "corr" => {
                    let share = next().ok_or_else(|| ParseError::new("corr has no value", "write corr 25%"))?;
                    correlation = Some(Correlation::parse(share)?);
                }
                name if Distribution::NAMES.contains(&name) || name.ends_with(".dist") => {
                    distribution = Distribution::named(name);
                }
                other => return Err(ParseError::new(format!("'{other}' is unexpected after a jitter"), HOW)),
            }
        }
        if jitter == Span::ZERO {
            return Err(ParseError::new("a jitter of zero has no effect", "leave it out"));
        }
        if !matches!(distribution, Distribution::File(_)) {
            Values::of_distribution(&distribution, mean, jitter, correlation, Random::stream(0, "check"))?;
        }
        Ok(Delay { by: Amount::Around { mean, jitter, distribution, correlation }, keep_order })
    }

    fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
        match &mut self.by {
            Amount::Fixed(_) => Ok(()),
            Amount::Around { mean, jitter, distribution, correlation } => {
                distribution.load(files)?;
                let check = Random::stream(0, "check");
                Values::of_distribution(distribution, *mean, *jitter, *correlation, check).map(drop)
            }
            Amount::Law(law) => law.load(files),
        }
    }

    fn room(&self) -> u64 {
        frames_of_10g(match &self.by {
            Amount::Fixed(by) => *by,
            Amount::Around { mean, jitter, .. } => *mean + *jitter * 4,
            Amount::Law(law) => law.distribution().map_or(Span::ZERO, |law| {
                Span::from_ps(law.quantile(measure::special::Probability::above(1e-4)) as u64)
            }),
        })
    }

    fn build<F: Frame + Send + 'static>(&self, random: Random) -> Box<dyn Stage<F>> {
        const CHECKED: &str = "impossible delays were refused when parsed";
        let times = match &self.by {
            Amount::Fixed(by) => Times::Fixed(*by),
            Amount::Around { mean, jitter, distribution, correlation } => {
                let values = Values::of_distribution(distribution, *mean, *jitter, *correlation, random);
                Times::Drawn(Box::new(values.expect(CHECKED)))
            }
            Amount::Law(law) => Times::Drawn(Box::new(Values::of_law(law, random).expect(CHECKED))),
        };
        let queue =
            if matches!(times, Times::Fixed(_)) || self.keep_order { Timed::default() } else { Timed::sorting() };
        Box::new(Holding { times, keep_order: self.keep_order, last: Time::ZERO, number: 0, queue })
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            Amount::Fixed(by) => write!(f, "delay {by}")?,
            Amount::Around { mean, jitter, distribution, correlation } => {
                write!(f, "delay {mean} {jitter} {distribution}")?;
                if let Some(correlation) = correlation {
                    write!(f, " corr {correlation}")?;
                }
            }
            Amount::Law(law) => write!(f, "delay {law}")?,
        }
        f.write_str(if self.keep_order { " keep-order" } else { "" })
    }
}

enum Times {
    Fixed(Span),
    Drawn(Box<Values>),
}

struct Holding<F> {
    times: Times,
    keep_order: bool,
    /// Latest departure so far.
    last: Time,
    number: u64,
    queue: Timed<(u64, F)>,
}

impl<F: Frame + Send> Stage<F> for Holding<F> {
    fn push(&mut self, now: Time, batch: &mut Vec<Item<F>>, out: &mut Outlet<F>) {
        for mut item in batch.drain(..) {
            let at = item.arrived();
            item.frame.forget_wait();
            let by = match &mut self.times {
                Times::Fixed(by) => *by,
                Times::Drawn(values) => values.draw(),
            };
            let mut leaves = at + by;
            if self.keep_order {
                leaves = leaves.max(self.last);
                self.last = leaves;
            }
            self.queue.push(leaves, (self.number, item.frame));
            self.number += 1;
        }
        self.wake(now, out);
    }

    fn wake(&mut self, now: Time, out: &mut Outlet<F>) {
        while let Some((at, (number, frame))) = self.queue.pop(now) {
            out.effects.leaves(number);
            out.release(Item { frame, at });
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.queue.first()
    }

    fn delays(&self) -> bool {
        true
    }

    fn keeps_order(&self) -> bool {
        self.keep_order || matches!(self.times, Times::Fixed(_))
    }

    fn held(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedules::Text;
    use packet::HeapFrame;

    fn stage(text: &str) -> Box<dyn Stage<HeapFrame>> {
        let words: Vec<&str> = text.split_whitespace().collect();
        Delay::parse(&words).expect(text).build(Random::stream(1, "test"))
    }

    #[test]
    fn effect_both_sides_of_the_delay() {
        let mut stage = stage("5us");
        let mut out = Outlet::default();
        let item = Item { frame: HeapFrame::new(vec![1; 60]), at: Time::from_ps(1_000) };
        stage.push(Time::from_ps(1_000), &mut vec![item], &mut out);
        assert_eq!((out.released.len(), stage.held()), (0, 1));
        assert_eq!(stage.deadline(), Some(Time::from_ps(5_001_000)));
        stage.wake(Time::from_ps(5_000_999), &mut out);
        assert_eq!(out.released.len(), 0, "one picosecond early");
        stage.wake(Time::from_ps(9_000_000), &mut out);
        assert_eq!(out.released[0].at, Time::from_ps(5_001_000), "a late driver does not move the frame");
    }

    /// Departure times of 10 000 frames that arrive 1 µs apart, in order of departure, and the share of
    /// reordered frames.
    fn leave(text: &str) -> (Vec<Time>, f64) {
        let mut stage = stage(text);
        let mut out = Outlet::default();
        for i in 0..10_000 {
            let at = Time::from_ps(i * 1_000_000);
            stage.push(at, &mut vec![Item { frame: HeapFrame::default(), at }], &mut out);
        }
        stage.wake(Time::MAX, &mut out);
        let ratio = out.effects.reorder().expect("an order").ratio;
        (out.released.iter().map(|item| item.at).collect(), ratio)
    }

    #[test]
    fn jitter_reorders_unless_order_is_kept() {
        let (free, ratio) = leave("100us 10us normal");
        assert!(free.is_sorted() && ratio > 0.5, "{ratio}");
        let (kept, ratio) = leave("100us 10us normal keep-order");
        assert!(kept.is_sorted() && ratio == 0.0, "{ratio}");
    }

    #[test]
    fn accepts_any_law() {
        let (times, _) = leave("chi2 df 6 in 80us..120us");
        assert!(times[0] >= Time::from_ps(80_000_000) && times[9_999] <= Time::from_ps(10_119_000_000));
    }

    #[test]
    fn refuses_unsuitable_laws_when_parsing() {
        let load = |text: &str| {
            let words: Vec<&str> = text.split_whitespace().collect();
            let mut delay = Delay::parse(&words)?;
            delay.load(&Text("10us\n20us\n30us\n"))?;
            drop(delay.build::<HeapFrame>(Random::stream(1, "test")));
            Ok::<(), ParseError>(())
        };
        assert_eq!(load("table gaps.txt"), Ok(()));
        for text in ["table gaps.txt sampling stratified", "exp mean 5ms sampling stratified"] {
            let error = load(text).expect_err(text).to_string();
            assert!(error.contains("leave sampling stratified out"), "{text}: {error}");
        }
        for text in ["table gaps.txt idle", "exp mean 5ms idle"] {
            let error = load(text).expect_err(text).to_string();
            assert!(error.contains("leave idle out"), "{text}: {error}");
        }
    }

    #[test]
    fn errors_of_bad_delays_name_the_spelling_to_use() {
        for text in
            ["", "10", "10ms 2", "10ms 0s", "10ms 2ms normal corr", "10ms 2ms often", "sometimes", "10ms 2ms corr 100%"]
        {
            let words: Vec<&str> = text.split_whitespace().collect();
            let error = Delay::parse(&words).expect_err(text).to_string();
            assert!(error.contains("write") || error.contains("leave"), "{text}: {error}");
        }
        for text in ["exp 5ms", "5ms exp", "10ms 2ms exp"] {
            let words: Vec<&str> = text.split_whitespace().collect();
            let error = Delay::parse(&words).expect_err(text).to_string();
            assert!(error.contains("exp mean "), "{text}: {error}");
        }
    }
}
