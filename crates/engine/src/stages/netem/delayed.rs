//! Delays of frames, and steps of the delay over time.

use super::Netem;
use crate::random::Random;
use crate::schedules::laws::{Distribution, Values};
use std::collections::VecDeque;
use std::fmt;
use units::{Share, Span, Time};

/// Delay of frames.
#[derive(Clone, Debug, PartialEq)]
pub struct Delayed {
    /// The mean.
    pub mean: Span,
    /// The jitter.
    pub jitter: Span,
    /// Pearson's correlation of each delay with the next.
    pub correlation: Share,
    /// The distribution.
    pub distribution: Distribution,
    /// Later means, each from a time since the start of the run.
    pub steps: Vec<DelayStep>,
}

/// A later mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayStep {
    /// Applies to frames that arrive from this time on.
    pub at: Span,
    /// The mean.
    pub mean: Span,
}

impl Delayed {
    /// The means, in order of time.
    pub(super) fn means(&self) -> impl Iterator<Item = Span> {
        std::iter::once(self.mean).chain(self.steps.iter().map(|step| step.mean))
    }

    /// The largest mean.
    pub(super) fn most(&self) -> Span {
        self.means().max().unwrap_or_default()
    }

    /// The delays in ps at equal steps of probability. Empty if there are steps of the mean, because the number of
    /// frames per mean then depends on the traffic.
    pub(super) fn evenly(&self) -> Vec<u64> {
        match self.jitter {
            _ if !self.steps.is_empty() => Vec::new(),
            Span::ZERO => vec![self.mean.as_ps()],
            jitter => Values::evenly(&self.distribution, self.mean, jitter),
        }
    }
}

impl fmt::Display for Delayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Delayed { mean, jitter, correlation, distribution, steps } = self;
        write!(f, "{mean}")?;
        if *jitter != Span::ZERO {
            write!(f, " {jitter} {correlation}")?;
        }
        for DelayStep { at, mean } in steps {
            write!(f, " then {mean} at {at}")?;
        }
        if *jitter != Span::ZERO { write!(f, " distribution {distribution}") } else { Ok(()) }
    }
}

/// The running delays.
pub(super) struct Delays {
    now: Held,
    later: VecDeque<(Time, Held)>,
}

enum Held {
    Fixed(Span),
    Drawn(Box<Values>),
}

impl Delays {
    /// Creates the delays from `random`, the random stream of the whole stage.
    pub(super) fn new(config: &Netem, random: &Random) -> Self {
        let Some(delay) = &config.delay else {
            return Delays { now: Held::Fixed(Span::ZERO), later: VecDeque::new() };
        };
        let held = |mean: Span, name: &str| match delay.jitter {
            Span::ZERO => Held::Fixed(mean),
            jitter => {
                let correlation = config.delay_correlation();
                let values =
                    Values::of_distribution(&delay.distribution, mean, jitter, correlation, random.child(name));
                Held::Drawn(Box::new(values.expect("impossible delays were refused when parsed")))
            }
        };
        let later =
            delay.steps.iter().map(|step| (Time::ZERO + step.at, held(step.mean, &format!("delay at {}", step.at))));
        Delays { later: later.collect(), now: held(delay.mean, "delay") }
    }

    /// The delay of the next frame, which arrived at `at`.
    pub(super) fn draw(&mut self, at: Time) -> Span {
        while self.later.front().is_some_and(|(from, _)| *from <= at) {
            if let Some((_, held)) = self.later.pop_front() {
                self.now = held;
            }
        }
        match &mut self.now {
            Held::Fixed(mean) => *mean,
            Held::Drawn(values) => values.draw(),
        }
    }
}
