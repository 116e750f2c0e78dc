//! Slices of a pipeline: sampled frames are followed from their arrival to the driver.
//!
//! A frame that is followed carries a number ([`Frame::tag`]); its marks lie in a table of its class. A mark holds when
//! the frame was there and when it should have been, which is what stages and schedule reckon with. Without a clock
//! both are the same: virtual time is exact. A driver in real time gives a reading of its clock, which is taken for
//! sampled frames only.

mod drawing;
mod passing;

use crate::stages::{Item, arrived};
use drawing::Drawing;
use measure::{DropReason, Mark, PipelineSlices, SliceMeter};
use packet::{Frame, Identity};
use std::sync::Arc;
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
    table: Vec<Way>,
    free: Vec<u32>,
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
            meter: SliceMeter::new(names, sampling.every),
            clock: None,
            handed_on: false,
            taken_over: false,
            ring: false,
            behind: ARRIVAL + stages.len(),
            drawing: Drawing::new(sampling.every, sampling.seed),
            sampling,
            table: Vec::new(),
            free: Vec::new(),
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
            table: Vec::new(),
            free: Vec::new(),
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
        let identity = ways.sampling.listener.is_some().then(|| Identity::of(frame.bytes())).flatten();
        let length = frame.length().bytes();
        let came = ways.ring.then(|| arrived(frame, from));
        let way = ways.place(frame);
        way.marks.clear();
        if let Some(came) = came {
            way.marks.push(Mark { at: came, intended: came });
        }
        way.marks.extend([Mark { at: from, intended: from }, Mark { at: entered, intended: from }]);
        (way.identity, way.length) = (identity, length);
        let marks = way.marks.len();
        *self.beside(marks) += 1;
    }

    /// How many frames are where one with so many marks is.
    fn beside(&mut self, marks: usize) -> &mut u32 {
        let staged = self.ways.as_ref().is_some_and(|ways| marks < ways.behind);
        if staged { &mut self.staged } else { &mut self.queued }
    }

    /// Frames have left a stage, and others were dropped there. False if none of them is followed.
    #[inline(always)]
    pub(crate) fn passed<F: Frame>(&mut self, items: &[Item<F>], dropped: &[(F, DropReason)]) -> bool {
        if self.staged == 0 {
            return false;
        }
        for item in items {
            if item.frame.tag() != 0 {
                self.behind_stage(item.frame.tag(), item.at, item.frame.waited());
            }
        }
        for (frame, _) in dropped {
            if frame.tag() != 0 {
                self.lost(frame.tag());
            }
        }
        true
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
        let Some(slot) = ways.slot(frame.tag()) else { return };
        let marks = &mut ways.table[slot].marks;
        if let Some(Mark { at, intended }) = marks.last().copied() {
            // It has not waited for anybody, so the clock need not be asked again.
            marks.push(Mark { at, intended: intended.max(ready).max(self.last) });
        }
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
        if ways.slot(tag).is_some_and(|slot| ways.table[slot].marks.len() == ways.behind) {
            ways.mark(tag, ready.max(self.last));
        }
    }

    /// A frame that is followed departed at `start` instead of `ask`, and is handed over.
    pub(crate) fn departed(&mut self, tag: u32, ask: Time, start: Time) {
        let Some(ways) = self.ways.as_deref_mut() else { return };
        let Some(slot) = ways.release(tag) else { return };
        let way = &mut ways.table[slot];
        let before = way.marks.last().copied().unwrap_or_default();
        let intended = before.intended.max(ask);
        let (start, end) = match &ways.clock {
            // The driver's look at the clock may be older than ours.
            Some(clock) => (start.max(before.at), clock().max(start)),
            None => (start, start),
        };
        way.marks.extend([Mark { at: start, intended }, Mark { at: end.max(start), intended }]);
        ways.meter.record(&way.marks);
        if let Some(listener) = &ways.sampling.listener {
            listener(way, &ways.meter, end);
        }
        self.queued -= 1;
    }

    /// A frame will not depart.
    #[cold]
    #[inline(never)]
    pub(crate) fn lost(&mut self, tag: u32) {
        let Some(ways) = &mut self.ways else { return };
        let Some(slot) = ways.release(tag) else { return };
        let marks = ways.table[slot].marks.len();
        *self.beside(marks) -= 1;
    }

    /// Takes out the way of a frame that goes on to another thread, if it is followed.
    pub(crate) fn take(&mut self, tag: u32) -> Option<Box<Way>> {
        let ways = self.ways.as_mut()?;
        let slot = ways.release(tag)?;
        let way = std::mem::take(&mut ways.table[slot]);
        *self.beside(way.marks.len()) -= 1;
        Some(Box::new(way))
    }

    /// Goes on with the way of a frame that came from another thread, if it is followed.
    pub(crate) fn put<F: Frame>(&mut self, frame: &mut F, way: Option<Box<Way>>) {
        let Some(ways) = &mut self.ways else { return };
        let Some(way) = way else { return frame.set_tag(0) };
        let marks = way.marks.len();
        *ways.place(frame) = *way;
        *self.beside(marks) += 1;
    }

    /// The clock, if there is one.
    pub(crate) fn clock(&self) -> Option<Reading> {
        self.ways.as_ref()?.clock.clone()
    }

    /// The figures, if frames are followed.
    pub(crate) fn report(&self) -> Option<PipelineSlices> {
        self.ways.as_ref().map(|ways| ways.meter.report())
    }
}

impl Ways {
    /// A place in the table, which the frame's tag says from now on.
    fn place<F: Frame>(&mut self, frame: &mut F) -> &mut Way {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.table.push(Way::default());
            self.table.len() as u32 - 1
        });
        frame.set_tag(slot + 1);
        &mut self.table[slot as usize]
    }

    fn slot(&self, tag: u32) -> Option<usize> {
        (tag as usize).checked_sub(1).filter(|slot| *slot < self.table.len())
    }

    /// The frame with `tag` is at the end of a slice, where it should have been at `intended`. Gives how many marks it has.
    fn mark(&mut self, tag: u32, intended: Time) -> Option<usize> {
        let slot = self.slot(tag)?;
        let marks = &mut self.table[slot].marks;
        let before = marks.last().map_or(Time::ZERO, |mark| mark.intended);
        // What should have been before the frame came is due at once.
        let intended = intended.max(before);
        let at = self.clock.as_ref().map_or(intended, |clock| clock());
        marks.push(Mark { at, intended });
        Some(marks.len())
    }

    /// A stage gave the frame with `tag` a time that it reckoned from when the frame came, and so made up for the wait in
    /// the ring: nobody meant it to be. Until then frames go by the look, which that wait comes before.
    #[cold]
    #[inline(never)]
    fn reckoned_from_arrival(&mut self, tag: u32) {
        let Some(slot) = self.slot(tag) else { return };
        if let [came, look, ..] = self.table[slot].marks[..] {
            let waited = look.intended.since(came.intended);
            for mark in &mut self.table[slot].marks[1..] {
                mark.intended = Time::ZERO + mark.intended.since(Time::ZERO + waited);
            }
        }
    }

    /// The frame with `tag` is gone. Gives where its way is until another frame begins to be followed.
    fn release(&mut self, tag: u32) -> Option<usize> {
        let slot = self.slot(tag)?;
        self.free.push(tag - 1);
        Some(slot)
    }
}

#[cfg(test)]
mod tests;
