//! Stages: what happens to frames between their arrival and the schedule.
//!
//! A stage is one file with its documentation, configuration, state, effect and tests, and one line
//! in the list below. From the list come the configuration enum, its grammar, the help and the
//! conformance suite that every stage passes.

use crate::random::Random;
use measure::DropReason;
use packet::Frame;
use std::fmt;
use units::{ParseError, Time};

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
                Err(ParseError::new(format!("'{name}' is no stage"), format!("write one of: {}", names.join(", "))))
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
}

/// A frame on its way through the stages.
#[derive(Debug)]
pub struct Item<F> {
    /// The frame.
    pub frame: F,
    /// When it arrived at this stage, or left the last one: exact, even if the driver is late.
    pub at: Time,
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

    /// Frames that it holds.
    fn held(&self) -> usize {
        0
    }
}

/// Where stages put what they are done with.
#[derive(Debug)]
pub struct Outlet<F> {
    pub(crate) released: Vec<Item<F>>,
    pub(crate) dropped: Vec<(F, DropReason)>,
}

impl<F> Default for Outlet<F> {
    fn default() -> Self {
        Outlet { released: Vec::new(), dropped: Vec::new() }
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
}

/// What people may know of a kind of stage.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The word that names it.
    pub name: &'static str,
    /// What follows the name.
    pub grammar: &'static str,
    /// One line of help.
    pub summary: &'static str,
    /// A valid text.
    pub example: &'static str,
}

/// How a stage is written, read and made. Implemented by each stage's configuration.
trait Configuration: Sized + Clone + fmt::Display {
    const KIND: Kind;
    /// Reads what follows the name.
    fn parse(words: &[&str]) -> Result<Self, ParseError>;
    /// Makes the stage, with a random stream of its own.
    fn build<F: Frame + Send + 'static>(&self, random: Random) -> Box<dyn Stage<F>>;
}

#[cfg(test)]
mod conformance;
