//! Queues before a rate that drop or mark frames before they are full: active queue management (RFC 7567).
//!
//! Each queue has one file with its keywords, defaults and source, and one line in the list below.

mod line;

use super::grammar::Cursor;
use super::queue::Bottleneck;
use super::units_of_tc::Wrong;
use crate::random::Random;
use crate::stages::decision::mark;
use crate::stages::{Decision, Fate, Outlet};
pub(super) use line::Line;
use measure::{DropReason, Effect};
use packet::Frame;
use std::collections::VecDeque;
use std::fmt;
use units::{ParseError, Span, Time, nearest};

/// Expands the list of queues to modules, their enum and its grammar.
macro_rules! queues {
    ($($module:ident :: $config:ident,)*) => {
        $(mod $module;)*
        $(pub(in crate::stages) use $module::$config;)*

        /// The queue before the rate.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Aqm {
            $(#[expect(missing_docs, reason = "each documents itself")] $config($config),)*
        }

        impl Aqm {
            /// The names.
            pub const NAMES: &'static [&'static str] = &[$($config::NAME),*];

            /// Parses the name of a queue and its words.
            pub(super) fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
                type Read = fn(&mut Cursor<'_>) -> Result<Aqm, ParseError>;
                let named = |word: &str| -> Result<Read, Wrong> {
                    $(if word == $config::NAME {
                        return Ok(|cursor| $config::parse(cursor).map(Aqm::$config));
                    })*
                    let meant = nearest(word, Self::NAMES).map(|name| format!(", perhaps {name}")).unwrap_or_default();
                    let known = Self::NAMES.join(", ");
                    Err((
                        format!("is not a queue{meant}"),
                        format!("write one of {known}, or limit 50ms for one that drops at its tail"),
                    ))
                };
                cursor.value(named, "a queue such as codel")?(cursor)
            }

            fn build<F: Frame + Send + 'static>(&self, rate: &Bottleneck, random: Random) -> Box<dyn Queue<F>> {
                match self {
                    $(Aqm::$config(config) => config.build(rate, random),)*
                }
            }
        }

        impl fmt::Display for Aqm {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Aqm::$config(config) => config.fmt(f),)*
                }
            }
        }
    };
}

queues! {
    codel::Codel,
    fq_codel::FqCodel,
    pie::Pie,
    red::Red,
    step::Step,
}

/// Grammar and construction of a queue. Each configuration implements it.
trait Configuration: Sized + fmt::Display {
    const NAME: &'static str;
    /// Parses the text after the name.
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError>;
    fn build<F: Frame + Send + 'static>(&self, rate: &Bottleneck, random: Random) -> Box<dyn Queue<F>>;
}

/// A frame in the queue.
struct Waiting<F> {
    frame: F,
    /// The decisions so far.
    decision: Decision,
    /// When it arrived at the stage.
    arrived: Time,
    /// When it started to wait for the rate.
    since: Time,
    /// Length in bytes without FCS.
    bytes: u32,
}

/// Frames waiting for the rate.
trait Queue<F>: Send {
    /// Takes an arriving frame.
    fn push(&mut self, now: Time, frame: Waiting<F>, hits: &mut Hits<'_, F>);
    /// Returns the next frame for the link, which has become free.
    fn pop(&mut self, now: Time, hits: &mut Hits<'_, F>) -> Option<Waiting<F>>;
    /// Number of frames and bytes that wait.
    fn backlog(&self) -> Backlog;
    /// Called if the stage is full: drops queued frames instead of the arriving one. False if there are none to drop.
    fn makes_room(&mut self, _arriving: &F, _bytes: u32, _hits: &mut Hits<'_, F>) -> bool {
        false
    }
}

/// Drops or marks frames.
struct Hits<'a, F> {
    out: &'a mut Outlet<F>,
    ecn: bool,
}

impl<F: Frame> Hits<'_, F> {
    /// Carries out a verdict. Returns the frame unless it was dropped.
    fn carry_out(&mut self, verdict: Verdict, mut waiting: Waiting<F>) -> Option<Waiting<F>> {
        if verdict == Verdict::Stays {
            return Some(waiting);
        }
        if verdict == Verdict::Chosen && self.ecn && mark(&mut waiting.frame) {
            self.out.effects.count(Effect::Marked);
            waiting.decision.fate = Fate::Mark;
            return Some(waiting);
        }
        self.drop(waiting, DropReason::Early);
        None
    }

    fn drop(&mut self, Waiting { frame, mut decision, .. }: Waiting<F>, reason: DropReason) {
        decision.fate = Fate::Drop(reason);
        self.out.decided(|| decision);
        self.out.discard(frame, reason);
    }
}

/// Frames and bytes in a queue.
#[derive(Clone, Copy, Debug, Default)]
struct Backlog {
    frames: u64,
    bytes: u64,
}

/// Verdict on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Stays,
    /// Marked if requested and possible, else dropped.
    Chosen,
    /// Always dropped, because marks would not suffice.
    Dropped,
}

impl Verdict {
    fn chosen_if(is: bool) -> Self {
        if is { Verdict::Chosen } else { Verdict::Stays }
    }
}

/// Selects frames of one queue.
trait Manager: Send {
    /// Verdict on an arriving frame that finds `backlog`.
    fn enqueue(&mut self, _now: Time, _backlog: Backlog) -> Verdict {
        Verdict::Stays
    }
    /// Called if the frame selected at departure was marked, not dropped.
    fn marked(&mut self) {}
    /// Called if the link is free and the queue is empty.
    fn on_idle(&mut self) {}
    /// Verdict on a departing frame of `bytes` bytes that has `waited` and leaves `backlog` behind.
    fn dequeue(&mut self, _now: Time, _waited: Span, _bytes: u32, _backlog: Backlog) -> Verdict {
        Verdict::Stays
    }
}

/// Frames in order of arrival, except those that `manager` selects.
struct Fifo<F, M> {
    frames: VecDeque<Waiting<F>>,
    bytes: u64,
    manager: M,
}

impl<F: Frame, M: Manager> Fifo<F, M> {
    fn new(manager: M) -> Self {
        Fifo { frames: VecDeque::new(), bytes: 0, manager }
    }

    fn take(&mut self) -> Option<Waiting<F>> {
        let first = self.frames.pop_front()?;
        self.bytes -= u64::from(first.bytes);
        Some(first)
    }
}

impl<F: Frame + Send, M: Manager> Queue<F> for Fifo<F, M> {
    fn backlog(&self) -> Backlog {
        Backlog { frames: self.frames.len() as u64, bytes: self.bytes }
    }

    fn push(&mut self, now: Time, frame: Waiting<F>, hits: &mut Hits<'_, F>) {
        let verdict = self.manager.enqueue(now, self.backlog());
        if let Some(frame) = hits.carry_out(verdict, frame) {
            self.bytes += u64::from(frame.bytes);
            self.frames.push_back(frame);
        }
    }

    fn pop(&mut self, now: Time, hits: &mut Hits<'_, F>) -> Option<Waiting<F>> {
        while let Some(first) = self.take() {
            let verdict = self.manager.dequeue(now, now.since(first.since), first.bytes, self.backlog());
            let left = hits.carry_out(verdict, first);
            if left.is_some() {
                if verdict == Verdict::Chosen {
                    self.manager.marked();
                }
                return left;
            }
        }
        self.manager.on_idle();
        None
    }
}

/// True with this probability.
fn happens(random: &mut Random, probability: f64) -> bool {
    const ONE: u64 = 1 << 53;
    (random.below(ONE) as f64) < probability * ONE as f64
}

#[cfg(test)]
mod tests;
