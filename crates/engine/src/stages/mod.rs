//! Stages: act on frames between their arrival and the schedule.
//!
//! Each stage has one file, or one folder if it is large, with its documentation, configuration, state, effect and
//! tests, and one line in the list below. The list generates the configuration enum, its grammar, the help and the
//! conformance suite that every stage must pass.

mod decision;
mod timed;

use crate::Kind;
use crate::random::Random;
use crate::schedules::Files;
pub use decision::{Change, Decision, Fate, Log};
pub use limit::{Look, Metering, Settling};
use measure::{DropReason, Effects};
use packet::Frame;
use std::fmt;
pub use timed::Timed;
use units::{BitRate, ParseError, Span, Time, nearest};
pub use {
    delay::Amount,
    netem::{
        Aqm, Bottleneck, Chance, DelayStep, Delayed, LossModel, Mode, Opportunities, PROFILES, Pattern, Profile,
        QueueLimit, Slot, SlotTimes,
    },
    reorder::Until,
};

/// Expands the list of stages to modules, the enum of configurations, its grammar and the kinds.
macro_rules! stages {
    ($($module:ident :: $config:ident,)*) => {
        $(mod $module;)*
        $(pub use $module::$config;)*

        /// The configuration of a stage.
        #[derive(Clone, Debug, PartialEq)]
        pub enum StageConfig {
            $(#[expect(missing_docs, reason = "each configuration documents itself")] $config($config),)*
        }

        impl StageConfig {
            /// Every kind of stage.
            pub const KINDS: &'static [Kind] = &[$($config::KIND),*];

            /// Reads the files that the stage names.
            ///
            /// # Errors
            /// A file that cannot be read or has invalid content, with its line.
            pub fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
                match self {
                    $(StageConfig::$config(config) => config.load(files),)*
                }
            }

            /// Applies the line rate of the output, if it has one, to settings that depend on it.
            pub fn settle(&mut self, line: Option<BitRate>) {
                match self {
                    $(StageConfig::$config(config) => config.settle(line),)*
                }
            }

            /// Number of full-size frames that the stage may hold if its input is a line of 10 Gbit/s. Determines the
            /// number of buffers of a live run.
            #[must_use]
            pub fn room(&self) -> u64 {
                match self {
                    $(StageConfig::$config(config) => config.room(),)*
                }
            }

            /// Notes about how the configuration was interpreted.
            #[must_use]
            pub fn notes(&self) -> Vec<String> {
                match self {
                    $(StageConfig::$config(config) => config.notes(),)*
                }
            }

            /// True if the stage sends frames back to the sender.
            #[must_use]
            pub fn answers(&self) -> bool {
                match self {
                    $(StageConfig::$config(config) => config.answers(),)*
                }
            }

            /// Where other tools would interpret the same words differently.
            #[must_use]
            pub fn elsewhere(&self) -> Vec<String> {
                match self {
                    $(StageConfig::$config(config) => config.elsewhere(),)*
                }
            }

            /// Parses a stage: its name, then its grammar.
            ///
            /// # Errors
            /// An unknown name, or words outside the grammar.
            pub fn parse(text: &str) -> Result<Self, ParseError> {
                let words: Vec<&str> = text.split_whitespace().collect();
                let (name, rest) = words.split_first().unwrap_or((&"", &[]));
                $(if *name == $config::KIND.name {
                    return $config::parse(rest).map(StageConfig::$config);
                })*
                let names: Vec<&str> = Self::KINDS.iter().map(|kind| kind.name).collect();
                let meant = nearest(name, &names).map(|name| format!(", perhaps {name}")).unwrap_or_default();
                Err(ParseError::new(format!("'{name}' is not a stage{meant}"), format!("write one of: {}", names.join(", "))))
            }

            /// Creates the stage. `path` names its random stream in the run.
            #[must_use]
            pub fn build<F: Frame + Send + 'static>(&self, seed: u64, path: &str) -> Box<dyn Stage<F>> {
                let random = Random::stream(seed, path);
                match self {
                    $(StageConfig::$config(config) => config.build(random),)*
                }
            }
        }

        impl fmt::Display for StageConfig {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(StageConfig::$config(config) => config.fmt(f),)*
                }
            }
        }
    };
}

stages! {
    delay::Delay,
    limit::Limit,
    loss::Loss,
    netem::Netem,
    reorder::Reorder,
    replay::Replay,
}

/// A frame on its way through the stages.
#[derive(Debug)]
pub struct Item<F> {
    /// The frame.
    pub frame: F,
    /// When the frame arrived at this stage or left the preceding one. Exact, even if the driver is late.
    pub at: Time,
}

impl<F: Frame> Item<F> {
    /// When the frame arrived, for stages whose effect depends on arrivals. This is before `at` if the driver polled
    /// later and knows by how much. A frame that is not held is ready at `at`, since no frame departs before its poll.
    #[must_use]
    #[inline]
    pub fn arrived(&self) -> Time {
        arrived(&self.frame, self.at)
    }
}

/// The arrival time of a frame polled at `at`.
#[must_use]
#[inline]
pub fn arrived<F: Frame>(frame: &F, at: Time) -> Time {
    Time::ZERO + at.since(Time::ZERO + frame.waited())
}

/// A step that acts on frames.
///
/// Frames are pushed in batches: one dynamic call per batch, with a plain loop inside.
pub trait Stage<F: Frame>: Send {
    /// Takes all of `batch`. Releases, drops or holds each frame. No item is later than `now`.
    fn push(&mut self, now: Time, batch: &mut Vec<Item<F>>, out: &mut Outlet<F>);

    /// Releases the frames that are due by `now`.
    fn wake(&mut self, _now: Time, _out: &mut Outlet<F>) {}

    /// When to wake the stage next, if it holds anything that waits for an instant.
    fn deadline(&self) -> Option<Time> {
        None
    }

    /// Whether the stage decides how long it holds frames. Their delays then belong in the report.
    fn delays(&self) -> bool {
        false
    }

    /// Whether frames leave in the order of arrival. If the stage is replaced, frames of the new stage may then not
    /// overtake the frames that it still holds.
    fn keeps_order(&self) -> bool {
        true
    }

    /// Number of frames held.
    fn held(&self) -> usize {
        0
    }
}

/// Collects the output of stages.
pub struct Outlet<F> {
    pub(crate) released: Vec<Item<F>>,
    pub(crate) dropped: Vec<(F, DropReason)>,
    /// Number of copies requested, and of copies for which there was no buffer.
    pub(crate) copies: u64,
    pub(crate) not_copied: u64,
    /// Effects on frames that were not dropped.
    pub effects: Effects,
    pub(crate) log: Option<Log>,
    /// Frames for the opposite direction, if there is one.
    pub(crate) answers: Option<Vec<F>>,
}

impl<F> Default for Outlet<F> {
    fn default() -> Self {
        Outlet {
            released: Vec::new(),
            dropped: Vec::new(),
            copies: 0,
            not_copied: 0,
            effects: Effects::default(),
            log: None,
            answers: None,
        }
    }
}

impl<F> Outlet<F> {
    /// Passes a frame on; `item.at` is the time at which it leaves this stage.
    pub fn release(&mut self, item: Item<F>) {
        self.released.push(item);
    }

    /// Drops a frame for the given reason.
    pub fn discard(&mut self, frame: F, reason: DropReason) {
        self.dropped.push((frame, reason));
    }

    /// Takes the released and the dropped frames. For callers that drive a stage alone.
    pub fn drain(&mut self) -> (impl Iterator<Item = Item<F>> + '_, impl Iterator<Item = (F, DropReason)> + '_) {
        (self.released.drain(..), self.dropped.drain(..))
    }

    /// Passes a decision about a frame to the log, if there is one.
    pub(crate) fn decided(&mut self, decision: impl FnOnce() -> Decision) {
        if let Some(log) = &mut self.log {
            log(&decision());
        }
    }
}

impl<F: Frame> Outlet<F> {
    /// Sends a frame, built by `write` from the bytes of `frame`, back to the sender of `frame`. The receiving side
    /// counts it. False if there is no return path or no buffer, or if nothing was written.
    pub fn answer(&mut self, frame: &F, write: impl FnOnce(&[u8], &mut Vec<u8>) -> bool) -> bool {
        let Some(answers) = &mut self.answers else { return false };
        let mut bytes = Vec::new();
        if !write(frame.bytes(), &mut bytes) {
            return false;
        }
        let mut answer = frame.copy().and_then(|mut answer| answer.replace(&bytes).then_some(answer));
        answer.iter_mut().for_each(Frame::forget_wait);
        let made = answer.is_some();
        answers.extend(answer);
        made
    }

    /// Copies a frame. The stage must release or discard the copy. It is always counted as a copy. Without a free
    /// buffer it is also counted as dropped, and `None` is returned.
    pub fn copy(&mut self, frame: &F) -> Option<F> {
        self.copies += 1;
        let mut copy = frame.copy();
        // A copy is not traced, because it did not arrive.
        copy.iter_mut().for_each(|copy| copy.set_tag(0));
        self.not_copied += u64::from(copy.is_none());
        copy
    }
}

/// Number of full-size frames that arrive in this time on a line of 10 Gbit/s.
fn frames_of_10g(time: Span) -> u64 {
    time.as_ps() / (1_538 * 800)
}

/// Grammar and construction of a stage. Each stage's configuration implements it.
trait Configuration: Sized + Clone + fmt::Display {
    const KIND: Kind;
    /// Parses the text after the name.
    fn parse(words: &[&str]) -> Result<Self, ParseError>;
    /// Reads the files that the stage names.
    fn load(&mut self, _: &dyn Files) -> Result<(), ParseError> {
        Ok(())
    }
    /// Applies the line rate of the output, if it has one, to settings that depend on it.
    fn settle(&mut self, _: Option<BitRate>) {}
    /// Number of full-size frames that the stage may hold if its input is a line of 10 Gbit/s.
    fn room(&self) -> u64 {
        0
    }
    /// Notes about how the configuration was interpreted.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    /// True if the stage sends frames back to the sender.
    fn answers(&self) -> bool {
        false
    }
    /// Where other tools would interpret the same words differently.
    fn elsewhere(&self) -> Vec<String> {
        Vec::new()
    }
    /// Creates the stage with its own random stream.
    fn build<F: Frame + Send + 'static>(&self, random: Random) -> Box<dyn Stage<F>>;
}

#[cfg(test)]
mod conformance;
#[cfg(test)]
pub(crate) mod waits;
