//! Departures and the tokens that a driver must finish.
//!
//! ```text
//! Departure { frame, token } ──▶ complete(instant)                 it left: counters, meters, traces, schedule
//!                            ├─▶ place(instant) ──▶ complete       its start is settled before it leaves
//!                            ├─▶ discard(reason)                   it cannot leave
//!                            ├─▶ hand_on                           it goes to another part of the pipeline
//!                            └─▶ hold                              the run ended before it left
//! ```
//!
//! A token cannot be copied. With debug assertions, dropping an unfinished token panics. Without them, the frame stays
//! in the count of held frames.

use crate::pipeline::Pipeline;
use crate::slices::FrameTrace;
use measure::{DropReason, Held};
use packet::Frame;
use units::{FrameLen, Time};

/// A frame whose departure is settled, and the token for it.
#[derive(Debug)]
pub struct Departure<F> {
    /// The frame.
    pub frame: F,
    /// The token that the driver must finish.
    pub token: Token,
}

/// The pipeline's data about a departure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub(crate) length: FrameLen,
    pub(crate) class: u32,
    /// Index of the source, if sources are synchronised and the frame comes from one of them.
    pub(crate) source: Option<u32>,
    pub(crate) ready: Time,
    pub(crate) at: Time,
    pub(crate) held: Held,
    /// Trace number, or 0 if the frame is not traced.
    pub(crate) tag: u32,
}

/// A departure that a driver must finish, by one of the methods that take the token.
#[derive(Debug)]
#[must_use = "a departure is completed, discarded, handed on or held"]
pub struct Token {
    settled: Settled,
    stream: Option<u16>,
    /// Instant of the hand-over, if it was read; used by traces.
    handed: Time,
}

/// A departure whose start is settled but that has not left. A driver must finish this as well.
#[derive(Debug)]
#[must_use = "a departure is completed, discarded or held"]
pub struct Placed {
    at: Time,
    length: FrameLen,
    class: u32,
    stream: Option<u16>,
}

impl Token {
    #[inline]
    pub(crate) fn new(settled: Settled) -> Self {
        Token { settled, stream: None, handed: Time::ZERO }
    }

    /// When the frame should depart: the start of its preamble. [`Time::MAX`] if never.
    #[inline]
    #[must_use]
    pub fn at(&self) -> Time {
        self.settled.at
    }

    /// When the frame had passed all stages.
    #[inline]
    #[must_use]
    pub fn ready(&self) -> Time {
        self.settled.ready
    }

    /// The length with FCS.
    #[inline]
    #[must_use]
    pub fn length(&self) -> FrameLen {
        self.settled.length
    }

    /// Index of the class.
    #[inline]
    #[must_use]
    pub fn class(&self) -> u32 {
        self.settled.class
    }

    /// Counts the frame for this stream when the frame leaves.
    #[inline]
    pub fn is_of_stream(&mut self, stream: u16) {
        self.stream = Some(stream);
    }

    /// Sets the start of the hand-over for traces. Without it, traces use the start of the frame.
    #[inline]
    pub fn is_handed_over(&mut self, handed: Time) {
        self.handed = handed;
    }

    /// Records that the frame started at `start`. Call it before taking the next departure, so that forgiven lateness
    /// moves the next departure too.
    #[inline]
    pub fn complete<F: Frame>(self, pipeline: &mut Pipeline<F>, start: Time) {
        self.place(pipeline, start).complete(pipeline, start);
    }

    /// Settles the start before the frame leaves. Schedule, synchronisation and traces continue from this start.
    #[inline]
    pub fn place<F: Frame>(self, pipeline: &mut Pipeline<F>, start: Time) -> Placed {
        let Token { settled, stream, handed } = self;
        pipeline.settled_start(&settled, start, handed);
        std::mem::forget(self);
        Placed { at: settled.at, length: settled.length, class: settled.class, stream }
    }

    /// Counts the frame as dropped.
    pub fn discard<F: Frame>(self, pipeline: &mut Pipeline<F>, reason: DropReason) {
        pipeline.discarded(&self.settled, reason);
        std::mem::forget(self);
    }

    /// Hands the frame to the next part of the pipeline. Returns its trace if it is traced; see [`Pipeline::hand`].
    #[inline]
    pub fn hand_on<F: Frame>(self, pipeline: &mut Pipeline<F>) -> Option<Box<FrameTrace>> {
        let trace = pipeline.handed_on(&self.settled);
        std::mem::forget(self);
        trace
    }

    /// The run ended before the frame left: the pipeline counts it as held.
    pub fn hold(self) {
        std::mem::forget(self);
    }
}

impl Placed {
    #[inline]
    pub(crate) fn new(at: Time, length: FrameLen) -> Self {
        Placed { at, length, class: 0, stream: None }
    }

    /// When the frame should depart.
    #[inline]
    #[must_use]
    pub fn at(&self) -> Time {
        self.at
    }

    /// The length with FCS.
    #[inline]
    #[must_use]
    pub fn length(&self) -> FrameLen {
        self.length
    }

    /// Counts the frame for this stream when the frame leaves.
    #[inline]
    pub fn is_of_stream(&mut self, stream: u16) {
        self.stream = Some(stream);
    }

    /// Records that the frame left and that it started at `start`.
    #[inline]
    pub fn complete<F: Frame>(self, pipeline: &mut Pipeline<F>, start: Time) {
        let Placed { at, length, class, stream } = self;
        std::mem::forget(self);
        pipeline.left(class, length, stream, at, start);
    }

    /// Counts the frame as dropped: it did not leave after all.
    pub fn discard<F: Frame>(self, pipeline: &mut Pipeline<F>, reason: DropReason) {
        pipeline.did_not_leave(self.class, self.length, reason);
        std::mem::forget(self);
    }

    /// The run ended before the frame left: the pipeline counts it as held.
    pub fn hold(self) {
        std::mem::forget(self);
    }
}

#[cfg(debug_assertions)]
fn is_lost(what: &str) {
    assert!(std::thread::panicking(), "a driver lost {what}: finish each one");
}

#[cfg(debug_assertions)]
impl Drop for Token {
    fn drop(&mut self) {
        is_lost("a departure");
    }
}

#[cfg(debug_assertions)]
impl Drop for Placed {
    fn drop(&mut self) {
        is_lost("a departure that has its place");
    }
}
