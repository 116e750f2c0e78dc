//! Stages: what happens to frames between their arrival and the schedule.
//!
//! A stage is one file, or one folder where it is large, with its documentation, configuration, state, effect and
//! tests, and one line in the list below. From the list come the configuration enum, its grammar, the help and the
//! conformance suite that every stage passes.

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
use units::{BitRate, ParseError, Span, Time};
pub use {
    delay::Amount,
    netem::{
        Aqm, Bottleneck, Chance, DelayStep, Delayed, LossModel, Mode, Opportunities, PROFILES, Pattern, Profile,
        QueueLimit, Slot, SlotTimes,
    },
    reorder::Until,
};

/// From the list of stages: modules, the enum of configurations, its grammar and the kinds.
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

            /// Reads the files that it names.
            ///
            /// # Errors
            /// A file that cannot be read, or does not hold what it should, with its line.
            pub fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
                match self {
                    $(StageConfig::$config(config) => config.load(files),)*
                }
            }

            /// Settles what depends on the line rate of the output, if it has one.
            pub fn settle(&mut self, line: Option<BitRate>) {
                match self {
                    $(StageConfig::$config(config) => config.settle(line),)*
                }
            }

            /// Frames of full size that it may hold behind a line of 10 Gbit/s: how many buffers a live run
            /// should have for it.
            #[must_use]
            pub fn room(&self) -> u64 {
                match self {
                    $(StageConfig::$config(config) => config.room(),)*
                }
            }

            /// What whoever runs it should know of how it was read.
            #[must_use]
            pub fn notes(&self) -> Vec<String> {
                match self {
                    $(StageConfig::$config(config) => config.notes(),)*
                }
            }

            /// It sends frames back to where others came from.
            #[must_use]
            pub fn answers(&self) -> bool {
                match self {
                    $(StageConfig::$config(config) => config.answers(),)*
                }
            }

            /// What another tool would have made of the same words, where that differs.
            #[must_use]
            pub fn elsewhere(&self) -> Vec<String> {
                match self {
                    $(StageConfig::$config(config) => config.elsewhere(),)*
                }
            }

            /// Reads a stage as people write it: its name, then what its grammar says.
            ///
            /// # Errors
            /// An unknown name, or words that its grammar does not have.
            pub fn parse(text: &str) -> Result<Self, ParseError> {
                let words: Vec<&str> = text.split_whitespace().collect();
                let (name, rest) = words.split_first().unwrap_or((&"", &[]));
                $(if *name == $config::KIND.name {
                    return $config::parse(rest).map(StageConfig::$config);
                })*
                let names: Vec<&str> = Self::KINDS.iter().map(|kind| kind.name).collect();
                let meant = nearest(name, &names).map(|name| format!(", perhaps {name}")).unwrap_or_default();
                Err(ParseError::new(format!("'{name}' is no stage{meant}"), format!("write one of: {}", names.join(", "))))
            }

            /// Makes the stage; `path` names its random stream within the run.
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
    /// When it arrived at this stage, or left the last one: exact, even if the driver is late.
    pub at: Time,
}

impl<F: Frame> Item<F> {
    /// When the frame came: before `at` if its driver looked later and can tell by how much. For stages that reckon
    /// with arrivals. What they do not hold is ready at `at`, since nothing departs before it was seen.
    #[must_use]
    #[inline]
    pub fn arrived(&self) -> Time {
        arrived(&self.frame, self.at)
    }
}

/// When a frame came that was seen at `at`.
#[must_use]
#[inline]
pub fn arrived<F: Frame>(frame: &F, at: Time) -> Time {
    Time::ZERO + at.since(Time::ZERO + frame.waited())
}

/// Something that happens to frames.
///
/// Frames come in batches: the call is dynamic once per batch, the loop inside is plain.
pub trait Stage<F: Frame>: Send {
    /// Takes all of `batch`; releases, drops or keeps each frame. No item is later than `now`.
    fn push(&mut self, now: Time, batch: &mut Vec<Item<F>>, out: &mut Outlet<F>);

    /// Releases what is due by `now`.
    fn wake(&mut self, _now: Time, _out: &mut Outlet<F>) {}

    /// When the stage must be woken next, if it holds anything that waits for time to pass.
    fn deadline(&self) -> Option<Time> {
        None
    }

    /// Whether it decides for how long it holds frames: then their delays are worth a report.
    fn delays(&self) -> bool {
        false
    }

    /// Frames that it holds.
    fn held(&self) -> usize {
        0
    }
}

/// Where stages put what they are done with, and say what they did.
pub struct Outlet<F> {
    pub(crate) released: Vec<Item<F>>,
    pub(crate) dropped: Vec<(F, DropReason)>,
    /// Copies made, and those for which there was no buffer.
    pub(crate) copies: u64,
    pub(crate) not_copied: u64,
    /// What was done to frames that were not dropped.
    pub effects: Effects,
    pub(crate) log: Option<Log>,
    /// Frames for the other direction, if there is one.
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
    /// Passes a frame on; `item.at` is when it leaves this stage.
    pub fn release(&mut self, item: Item<F>) {
        self.released.push(item);
    }

    /// Ends a frame's way, with the reason.
    pub fn discard(&mut self, frame: F, reason: DropReason) {
        self.dropped.push((frame, reason));
    }

    /// Takes out what was released and what was dropped, for whoever drives a stage by itself.
    pub fn drain(&mut self) -> (impl Iterator<Item = Item<F>> + '_, impl Iterator<Item = (F, DropReason)> + '_) {
        (self.released.drain(..), self.dropped.drain(..))
    }

    /// Tells whoever listens what was decided about a frame.
    pub(crate) fn decided(&mut self, decision: impl FnOnce() -> Decision) {
        if let Some(log) = &mut self.log {
            log(&decision());
        }
    }
}

impl<F: Frame> Outlet<F> {
    /// Sends another frame than `frame` back to where it came from: what `write` writes, if it writes anything. It
    /// is booked where it goes. False if there is no way back, or no buffer.
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

    /// Another frame of the same bytes, which the stage must release or discard. It is booked as a copy
    /// in any case: without a free buffer as one that was dropped for want of it, and there is none.
    pub fn copy(&mut self, frame: &F) -> Option<F> {
        self.copies += 1;
        let mut copy = frame.copy();
        // Nobody follows a copy: it did not arrive.
        copy.iter_mut().for_each(|copy| copy.set_tag(0));
        self.not_copied += u64::from(copy.is_none());
        copy
    }
}

/// Frames of full size that come in this time on a line of 10 Gbit/s.
fn frames_of_10g(time: Span) -> u64 {
    time.as_ps() / (1_538 * 800)
}

/// The word of `known` that `word` was probably meant to be.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let scored = known.iter().map(|name| (strsim::jaro_winkler(word, name), *name));
    scored.filter(|(score, _)| *score > 0.75).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// How a stage is written, read and made. Implemented by each stage's configuration.
trait Configuration: Sized + Clone + fmt::Display {
    const KIND: Kind;
    /// Reads what follows the name.
    fn parse(words: &[&str]) -> Result<Self, ParseError>;
    /// Reads the files that it names.
    fn load(&mut self, _: &dyn Files) -> Result<(), ParseError> {
        Ok(())
    }
    /// Settles what depends on the line rate of the output, if it has one.
    fn settle(&mut self, _: Option<BitRate>) {}
    /// Frames of full size that it may hold behind a line of 10 Gbit/s.
    fn room(&self) -> u64 {
        0
    }
    /// What whoever runs it should know of how it was read.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    /// It sends frames back to where others came from.
    fn answers(&self) -> bool {
        false
    }
    /// What another tool would have made of the same words, where that differs.
    fn elsewhere(&self) -> Vec<String> {
        Vec::new()
    }
    /// Makes the stage, with a random stream of its own.
    fn build<F: Frame + Send + 'static>(&self, random: Random) -> Box<dyn Stage<F>>;
}

#[cfg(test)]
mod conformance;
#[cfg(test)]
pub(crate) mod waits;
