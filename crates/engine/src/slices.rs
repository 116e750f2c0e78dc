//! Slices of a pipeline: sampled frames are followed from their arrival to the driver.
//!
//! A frame that is followed carries a number ([`Frame::tag`]); its marks lie in a table of its class. A mark holds when
//! the frame was there and when it should have been, which is what stages and schedule reckon with. Without a clock
//! both are the same: virtual time is exact. A driver in real time gives a reading of its clock, which is taken for
//! sampled frames only.

mod drawing;
mod passing;
mod table;

use crate::stages::{Item, arrived};
use drawing::Drawing;
use measure::{DropReason, Mark, PipelineSlices, SliceMeter};
use packet::{Frame, Identity};
use std::sync::Arc;
use table::Table;
use units::{Span, Time};

pub use passing::{Passage, Passing};

/// Without the feature no frame is followed, and nothing asks whether one is.
pub(crate) const COMPILED: bool = cfg!(feature = "slices");

/// A reading of a driver's clock.
pub type Reading = Arc<dyn Fn() -> Time + Send + Sync>;

/// Hears of each frame that departed, and what the clock of the marks read a moment ago.
pub type Listener = Arc<dyn Fn(&Way, &SliceMeter, Time) + Send + Sync>;

/// Which frames are followed, and how.
#[derive(Clone)]
pub struct Sampling {
    /// Of so many frames of each class one is followed, drawn among them: what comes in bursts, or goes round a mix, would
    /// else show the same few frames always. The very first is followed, too. Where many are, up to 32 neighbours are drawn
    /// together among as many times the number: followed in a row, they cost less.
    pub every: u64,
    /// Of the drawing.
    pub seed: u64,
    /// All frames are there from the start: they arrive when the one before departs.
    pub backlog: bool,
    /// Who hears of each frame that departed. Frames are then identified.
    pub listener: Option<Listener>,
}

/// The way of one frame.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// Its marks so far: when it came, where its port tells; at the look that found it, before the stages, behind each of
    /// them, first in the queue, at the departure, and behind the hand-over.
    pub marks: Vec<Mark>,
    /// Which packet it is, if somebody listens and it is one of TCP or UDP.
    pub identity: Option<Identity>,
    /// Its bytes with FCS when it arrived.
    pub length: u32,
}

/// The frames of one class that are followed.
///
/// Of the frames that nobody follows, which are nearly all, only what a look at these few fields takes is paid: where
/// none that is followed can be, no frame is asked.
#[derive(Default)]
pub(crate) struct Slices {
    /// That frame of the class is the next to be followed, counted as they come; `None` where no frame begins to be.
    next: Option<u64>,
    /// How many that are followed are in the stages.
    staged: u32,
    /// How many are behind the stages, and not handed over yet.
    queued: u32,
    /// When the last frame was to depart.
    last: Time,
    /// `None` where no frame is followed.
    ways: Option<Box<Ways>>,
}

/// The ways of the frames that are followed.
struct Ways {
    sampling: Sampling,
    /// That of a run in real time.
    clock: Option<Reading>,
    /// Another thread goes on to follow them, and makes the departures.
    handed_on: bool,
    /// Another thread began to follow them.
    taken_over: bool,
    /// Its port tells how long a frame was in its ring.
    ring: bool,
    /// So many marks, and a frame is behind the stages.
    behind: usize,
    drawing: Drawing,
    table: Table,
    meter: SliceMeter,
}

/// Marks at the look that found a frame, and before the stages.
const ARRIVAL: usize = 2;

impl Slices {
    /// For a class with stages of these names.
    pub(crate) fn new(stages: &[String], sampling: Sampling) -> Slices {
        let mut names = vec!["rx".to_owned()];
        for (i, stage) in stages.iter().enumerate() {
            let before = stages[..i].iter().filter(|other| *other == stage).count();
            names.push(if before == 0 { stage.clone() } else { format!("{stage}.{}", before + 1) });
        }
        names.extend(["queueing", "pacer", "tx"].map(str::to_owned));
        let ways = Ways {
            table: Table::new(names.len() + 1),
            meter: SliceMeter::new(names, sampling.every),
            clock: None,
            handed_on: false,
            taken_over: false,
            ring: false,
            behind: ARRIVAL + stages.len(),
            drawing: Drawing::new(sampling.every, sampling.seed),
            sampling,
        };
        Slices { next: Some(1), ways: Some(Box::new(ways)), ..Slices::default() }
    }

    /// Whether frames are followed.
    pub(crate) fn is_on(&self) -> bool {
        self.ways.is_some()
    }

    /// Whether somebody hears of each frame that is followed.
    pub(crate) fn is_heard(&self) -> bool {
        self.ways.as_ref().is_some_and(|ways| ways.sampling.listener.is_some())
    }

    /// Time is real: it is read by `clock`, which takes `cost`.
    pub(crate) fn read_by(&mut self, clock: &Reading, cost: Span) {
        if let Some(ways) = &mut self.ways {
            ways.clock = Some(Reading::clone(clock));
            ways.meter.in_real_time(cost);
        }
    }

    /// Frames come from a port, which `tells` how long each was in its ring, or does not. Before any came.
    pub(crate) fn come_from_port(&mut self, tells: bool) {
        if let Some(ways) = &mut self.ways {
            ways.meter.come_from_port(tells);
            ways.behind += usize::from(tells);
            ways.ring = tells;
            ways.table = Table::new(ways.meter.names().len() + 1);
        }
    }

    /// For two threads: that which gives frames to the other, and that which goes on with them. The first one has the
    /// stages, or leaves them to the other.
    pub(crate) fn split(self, leaves_stages: bool) -> (Slices, Slices) {
        let Some(mut ways) = self.ways else { return Default::default() };
        let second = Ways {
            sampling: ways.sampling.clone(),
            clock: ways.clock.clone(),
            handed_on: ways.handed_on,
            taken_over: true,
            ring: ways.ring,
            behind: ways.behind,
            drawing: ways.drawing.clone(),
            table: Table::new(ways.meter.names().len() + 1),
            meter: ways.meter.another(),
        };
        ways.handed_on = true;
        if leaves_stages {
            ways.behind = ARRIVAL + usize::from(ways.ring);
        }
        (Slices { ways: Some(ways), ..self }, Slices { ways: Some(Box::new(second)), ..Slices::default() })
    }

    /// Frame `number` of the class arrived at `at`; the driver looked at `now`. As all that follows, a few instructions
    /// for a frame that nobody follows, and the rest apart from them: a call for each would cost more than they do. True
    /// if it is followed.
    #[inline(always)]
    pub(crate) fn arrived<F: Frame>(&mut self, frame: &mut F, number: u64, now: Time, at: Time) -> bool {
        let Some(next) = self.next else { return false };
        let follows = number >= next;
        if follows {
            self.begin(frame, number, now, at);
        } else if frame.tag() != 0 {
            // Written only where it must be: a frame that is moved right after it was written to has to wait for that.
            frame.set_tag(0);
        }
        follows
    }

    #[cold]
    #[inline(never)]
    fn begin<F: Frame>(&mut self, frame: &mut F, number: u64, now: Time, at: Time) {
        let Some(ways) = &mut self.ways else { return };
        self.next = Some(ways.drawing.after(number));
        ways.meter.seen();
        let (from, entered) = match &ways.clock {
            Some(clock) => {
                let read = clock();
                // A frame that was read ahead of its time has not arrived later than it is looked at.
                (now.min(read), read)
            }
            None => {
                let from = if ways.sampling.backlog { at.max(self.last) } else { at };
                (from, from)
            }
        };
        let (place, tag) = ways.table.begin();
        if ways.sampling.listener.is_some() {
            ways.table.name(place, Identity::of(frame.bytes()), frame.length().bytes());
        }
        let mut marks = ways.table.marks(place);
        if ways.ring {
            let came = arrived(frame, from);
            marks.make(Mark { at: came, intended: came });
        }
        marks.make(Mark { at: from, intended: from });
        let marks = marks.make(Mark { at: entered, intended: from });
        frame.set_tag(tag);
        *self.beside(marks) += 1;
    }

    /// How many frames are where one with so many marks is.
    fn beside(&mut self, marks: usize) -> &mut u32 {
        let staged = self.ways.as_ref().is_some_and(|ways| marks < ways.behind);
        if staged { &mut self.staged } else { &mut self.queued }
    }

    /// Frames have left a stage, and others were dropped there. True if one that left is followed.
    #[inline(always)]
    pub(crate) fn passed<F: Frame>(&mut self, items: &[Item<F>], dropped: &[(F, DropReason)]) -> bool {
        let mut followed = false;
        if self.staged == 0 {
            return followed;
        }
        for item in items {
            if item.frame.tag() != 0 {
                self.behind_stage(item.frame.tag(), item.at, item.frame.waited());
                followed = true;
            }
        }
        for (frame, _) in dropped {
            if frame.tag() != 0 {
                self.lost(frame.tag());
            }
        }
        followed
    }

    #[cold]
    #[inline(never)]
    fn behind_stage(&mut self, tag: u32, intended: Time, waits: Span) {
        if let Some(ways) = self.ways.as_mut().filter(|ways| ways.ring && waits == Span::ZERO) {
            ways.reckoned_from_arrival(tag);
        }
        if let Some(marks) = self.ways.as_mut().and_then(|ways| ways.mark(tag, intended)) {
            *self.beside(marks - 1) -= 1;
            *self.beside(marks) += 1;
        }
    }

    /// A frame that was ready at `ready` finds the queue of its class empty, and is first in it.
    pub(crate) fn found_nobody<F: Frame>(&mut self, frame: &F, ready: Time) {
        let Some(ways) = self.ways.as_mut().filter(|ways| ways.clock.is_some()) else { return };
        // What lies between two threads is part of the wait in the queue.
        if ways.handed_on || ways.taken_over {
            return;
        }
        let Some(place) = ways.table.place(frame.tag()) else { return };
        let mut marks = ways.table.marks(place);
        let Mark { at, intended } = marks.last();
        // It has not waited for anybody, so the clock need not be asked again.
        marks.make(Mark { at, intended: intended.max(ready).max(self.last) });
    }

    /// A frame that was ready at `ready` is the next of its class to depart, at `ask`. Gives its number, 0 if it is not
    /// followed.
    #[inline(always)]
    pub(crate) fn settled<F: Frame>(&mut self, frame: &F, ready: Time, ask: Time) -> u32 {
        let tag = if self.queued > 0 { frame.tag() } else { 0 };
        if tag != 0 {
            self.first(tag, ready);
        }
        self.last = ask;
        tag
    }

    #[cold]
    #[inline(never)]
    fn first(&mut self, tag: u32, ready: Time) {
        // Handed on, it is in no queue yet.
        let Some(ways) = self.ways.as_mut().filter(|ways| !ways.handed_on) else { return };
        let behind = ways.behind;
        if ways.table.place(tag).is_some_and(|place| ways.table.marks(place).made().len() == behind) {
            ways.mark(tag, ready.max(self.last));
        }
    }

    /// A frame that is followed departed at `start` instead of `ask`, and is handed over.
    pub(crate) fn departed(&mut self, tag: u32, ask: Time, start: Time) {
        let Some(ways) = self.ways.as_deref_mut() else { return };
        let Some(place) = ways.table.place(tag) else { return };
        let mut marks = ways.table.marks(place);
        let before = marks.last();
        let intended = before.intended.max(ask);
        let (start, end) = match &ways.clock {
            // The driver's look at the clock may be older than ours.
            Some(clock) => (start.max(before.at), clock().max(start)),
            None => (start, start),
        };
        marks.make(Mark { at: start, intended });
        marks.make(Mark { at: end.max(start), intended });
        if let Some(listener) = &ways.sampling.listener {
            listener(&ways.table.way(place), &ways.meter, end);
        }
        if ways.table.depart(place) {
            ways.table.count(&mut ways.meter);
        }
        self.queued -= 1;
    }

    /// A frame will not depart.
    #[cold]
    #[inline(never)]
    pub(crate) fn lost(&mut self, tag: u32) {
        let Some(ways) = &mut self.ways else { return };
        let Some(place) = ways.table.place(tag) else { return };
        ways.table.release(place);
        let marks = ways.table.marks(place).made().len();
        *self.beside(marks) -= 1;
    }

    /// Takes out the way of a frame that goes on to another thread, if it is followed.
    pub(crate) fn take(&mut self, tag: u32) -> Option<Box<Way>> {
        let ways = self.ways.as_mut()?;
        let place = ways.table.place(tag)?;
        let way = ways.table.way(place);
        ways.table.release(place);
        *self.beside(way.marks.len()) -= 1;
        Some(Box::new(way))
    }

    /// Goes on with the way of a frame that came from another thread, if it is followed.
    pub(crate) fn put<F: Frame>(&mut self, frame: &mut F, way: Option<Box<Way>>) {
        let Some(ways) = &mut self.ways else { return };
        let Some(way) = way else { return frame.set_tag(0) };
        let (place, tag) = ways.table.begin();
        if ways.sampling.listener.is_some() {
            ways.table.name(place, way.identity, way.length);
        }
        let mut marks = ways.table.marks(place);
        for mark in &way.marks {
            marks.make(*mark);
        }
        frame.set_tag(tag);
        *self.beside(way.marks.len()) += 1;
    }

    /// The clock, if there is one.
    pub(crate) fn clock(&self) -> Option<Reading> {
        self.ways.as_ref()?.clock.clone()
    }

    /// The figures, if frames are followed.
    pub(crate) fn report(&self) -> Option<PipelineSlices> {
        self.ways.as_ref().map(|ways| {
            let mut meter = ways.meter.clone();
            ways.table.tell(&mut meter);
            meter.report()
        })
    }
}

impl Ways {
    /// The frame with `tag` is at the end of a slice, where it should have been at `intended`. Gives how many marks it has.
    fn mark(&mut self, tag: u32, intended: Time) -> Option<usize> {
        let place = self.table.place(tag)?;
        let mut marks = self.table.marks(place);
        // What should have been before the frame came is due at once.
        let intended = intended.max(marks.last().intended);
        let at = self.clock.as_ref().map_or(intended, |clock| clock());
        Some(marks.make(Mark { at, intended }))
    }

    /// A stage gave the frame with `tag` a time that it reckoned from when the frame came, and so made up for the wait in
    /// the ring: nobody meant it to be. Until then frames go by the look, which that wait comes before.
    #[cold]
    #[inline(never)]
    fn reckoned_from_arrival(&mut self, tag: u32) {
        let Some(place) = self.table.place(tag) else { return };
        if let [came, rest @ ..] = self.table.marks(place).made()
            && let [look, ..] = *rest
        {
            let waited = look.intended.since(came.intended);
            for mark in rest {
                mark.intended = Time::ZERO + mark.intended.since(Time::ZERO + waited);
            }
        }
    }
}

#[cfg(test)]
mod tests;
