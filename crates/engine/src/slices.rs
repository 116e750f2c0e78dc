//! Slices of a pipeline: follows sampled frames from their arrival to the driver.
//!
//! A traced frame carries a trace number ([`Frame::tag`]); its marks are in a table of its class. A mark has two times:
//! when the frame was at this point, and when it should have been. The second time is the one that stages and schedule
//! compute with. Without a clock the two are equal, because virtual time is exact. A live driver supplies a clock,
//! which is read only for sampled frames.

mod drawing;
mod passing;
mod table;

use crate::stages::{Item, arrived};
use drawing::SampleDraw;
use measure::{DropReason, Mark, PipelineSlices, SliceMeter};
use packet::{Frame, Identity};
use std::sync::Arc;
use table::TraceTable;
use units::{Span, Time};

pub use passing::{Passage, Passing};

/// Without the feature no frame is traced, and the compiler removes all checks.
pub(crate) const COMPILED: bool = cfg!(feature = "slices");

/// A function that reads a driver's clock.
pub type Reading = Arc<dyn Fn() -> Time + Send + Sync>;

/// Called for each traced frame that departed, with the latest reading of the clock.
pub type Listener = Arc<dyn Fn(&FrameTrace, &SliceMeter, Time) + Send + Sync>;

/// Which frames are traced, and how.
#[derive(Clone)]
pub struct Sampling {
    /// Traces one frame in `every`, per class, at random. With a fixed stride, bursts or a mix could select the same
    /// kind of frame every time. The first frame is always traced. At high counts, up to 32 adjacent frames are drawn
    /// together from as many strata, because adjacent traces are cheaper.
    pub every: u64,
    /// Seed of the draws.
    pub seed: u64,
    /// All frames are present from the start: a frame arrives when the preceding one departs.
    pub backlog: bool,
    /// Called for each traced frame that departed. With a listener, traced frames are identified.
    pub listener: Option<Listener>,
}

/// The trace of one frame.
#[derive(Clone, Debug, Default)]
pub struct FrameTrace {
    /// Marks so far: at its arrival, if the port reports it; at the poll that found it; before the stages; after each
    /// stage; at the head of the queue; at the departure; and after the hand-over.
    pub marks: Vec<Mark>,
    /// The packet's identity, if there is a listener and the packet is TCP or UDP.
    pub identity: Option<Identity>,
    /// Length in bytes with FCS on arrival.
    pub length: u32,
}

/// The traced frames of one class.
///
/// Untraced frames, which are nearly all, cost one check of these fields. Frames are not checked in a part of the
/// pipeline that contains no traced frame.
#[derive(Default)]
pub(crate) struct ClassTraces {
    /// Number, in order of arrival, of the class's next frame to trace; `None` if no traces start here.
    next: Option<u64>,
    /// Traced frames in the stages.
    staged: u32,
    /// Traced frames after the stages that have not been handed over yet.
    queued: u32,
    /// Target of the last departure.
    last: Time,
    /// `None` if tracing is off.
    active: Option<Box<ActiveTraces>>,
}

/// The traces in progress.
struct ActiveTraces {
    sampling: Sampling,
    /// The clock of a run in real time.
    clock: Option<Reading>,
    /// Another thread continues the traces and executes the departures.
    handed_on: bool,
    /// Another thread started the traces.
    taken_over: bool,
    /// The port reports how long a frame was in its ring.
    ring: bool,
    /// Number of marks of a frame that has passed the stages.
    behind: usize,
    drawing: SampleDraw,
    table: TraceTable,
    meter: SliceMeter,
}

/// Marks at the poll that found a frame, and before the stages.
const ARRIVAL: usize = 2;

impl ClassTraces {
    /// Slices for a class with stages of these names.
    pub(crate) fn new(stages: &[String], sampling: Sampling) -> ClassTraces {
        let mut names = vec!["rx".to_owned()];
        for (i, stage) in stages.iter().enumerate() {
            let before = stages[..i].iter().filter(|other| *other == stage).count();
            names.push(if before == 0 { stage.clone() } else { format!("{stage}.{}", before + 1) });
        }
        names.extend(["queueing", "pacer", "tx"].map(str::to_owned));
        let active = ActiveTraces {
            table: TraceTable::new(names.len() + 1),
            meter: SliceMeter::new(names, sampling.every),
            clock: None,
            handed_on: false,
            taken_over: false,
            ring: false,
            behind: ARRIVAL + stages.len(),
            drawing: SampleDraw::new(sampling.every, sampling.seed),
            sampling,
        };
        ClassTraces { next: Some(1), active: Some(Box::new(active)), ..ClassTraces::default() }
    }

    /// Whether frames are traced.
    pub(crate) fn is_on(&self) -> bool {
        self.active.is_some()
    }

    /// Whether a listener receives each traced frame.
    pub(crate) fn has_listener(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.sampling.listener.is_some())
    }

    /// Uses real time from `clock`. One reading takes `cost`.
    pub(crate) fn read_by(&mut self, clock: &Reading, cost: Span) {
        if let Some(active) = &mut self.active {
            active.clock = Some(Reading::clone(clock));
            active.meter.in_real_time(cost);
        }
    }

    /// Records that frames come from a port. With `tells`, the port reports the time that each was in its ring. Call
    /// before the first frame.
    pub(crate) fn come_from_port(&mut self, tells: bool) {
        if let Some(active) = &mut self.active {
            active.meter.come_from_port(tells);
            active.behind += usize::from(tells);
            active.ring = tells;
            active.table = TraceTable::new(active.meter.names().len() + 1);
        }
    }

    /// Splits the traces for two threads: one that hands frames on, and one that continues. The stages go to the first,
    /// or with `leaves_stages` to the second.
    pub(crate) fn split(self, leaves_stages: bool) -> (ClassTraces, ClassTraces) {
        let Some(mut active) = self.active else { return Default::default() };
        let second = ActiveTraces {
            sampling: active.sampling.clone(),
            clock: active.clock.clone(),
            handed_on: active.handed_on,
            taken_over: true,
            ring: active.ring,
            behind: active.behind,
            drawing: active.drawing.clone(),
            table: TraceTable::new(active.meter.names().len() + 1),
            meter: active.meter.another(),
        };
        active.handed_on = true;
        if leaves_stages {
            active.behind = ARRIVAL + usize::from(active.ring);
        }
        (
            ClassTraces { active: Some(active), ..self },
            ClassTraces { active: Some(Box::new(second)), ..ClassTraces::default() },
        )
    }

    /// Records the arrival of frame `number` of the class at `at`, polled at `now`. True if it is traced. This and the
    /// functions below are inlined for untraced frames, a few instructions each; the rest is out of line. A call per
    /// frame would be more expensive.
    #[inline(always)]
    pub(crate) fn arrived<F: Frame>(&mut self, frame: &mut F, number: u64, now: Time, at: Time) -> bool {
        let Some(next) = self.next else { return false };
        let follows = number >= next;
        if follows {
            self.begin(frame, number, now, at);
        } else if frame.tag() != 0 {
            // Writes only if necessary, because moving a frame right after a write causes a stall.
            frame.set_tag(0);
        }
        follows
    }

    #[cold]
    #[inline(never)]
    fn begin<F: Frame>(&mut self, frame: &mut F, number: u64, now: Time, at: Time) {
        let Some(active) = &mut self.active else { return };
        self.next = Some(active.drawing.after(number));
        active.meter.seen();
        let (from, entered) = match &active.clock {
            Some(clock) => {
                let read = clock();
                // A frame cannot arrive later than the poll that found it, even if it was read ahead of time.
                (now.min(read), read)
            }
            None => {
                let from = if active.sampling.backlog { at.max(self.last) } else { at };
                (from, from)
            }
        };
        let (index, tag) = active.table.begin();
        if active.sampling.listener.is_some() {
            active.table.name(index, Identity::of(frame.bytes()), frame.length().bytes());
        }
        let mut marks = active.table.marks(index);
        if active.ring {
            let arrival = arrived(frame, from);
            marks.make(Mark { at: arrival, intended: arrival });
        }
        marks.make(Mark { at: from, intended: from });
        let marks = marks.make(Mark { at: entered, intended: from });
        frame.set_tag(tag);
        *self.beside(marks) += 1;
    }

    /// The counter of the part that a frame with this many marks is in.
    fn beside(&mut self, marks: usize) -> &mut u32 {
        let staged = self.active.as_ref().is_some_and(|active| marks < active.behind);
        if staged { &mut self.staged } else { &mut self.queued }
    }

    /// Records the output of a stage: the released and the dropped frames. True if a released frame is traced.
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
        if let Some(active) = self.active.as_mut().filter(|active| active.ring && waits == Span::ZERO) {
            active.reckoned_from_arrival(tag);
        }
        if let Some(marks) = self.active.as_mut().and_then(|active| active.mark(tag, intended)) {
            *self.beside(marks - 1) -= 1;
            *self.beside(marks) += 1;
        }
    }

    /// Records that a frame that became ready at `ready` found the queue of its class empty and is at its head.
    pub(crate) fn found_empty_queue<F: Frame>(&mut self, frame: &F, ready: Time) {
        let Some(active) = self.active.as_mut().filter(|active| active.clock.is_some()) else { return };
        // Time between two threads counts as time in the queue.
        if active.handed_on || active.taken_over {
            return;
        }
        let Some(index) = active.table.index(frame.tag()) else { return };
        let mut marks = active.table.marks(index);
        let Mark { at, intended } = marks.last();
        // The frame did not wait, so the last clock reading is still valid.
        marks.make(Mark { at, intended: intended.max(ready).max(self.last) });
    }

    /// Records that a frame that was ready at `ready` is the next of its class to depart, at `ask`. Returns its trace
    /// number, or 0 if it is not traced.
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
        // A frame that is handed on is not in a queue yet.
        let Some(active) = self.active.as_mut().filter(|active| !active.handed_on) else { return };
        let behind = active.behind;
        if active.table.index(tag).is_some_and(|index| active.table.marks(index).made().len() == behind) {
            active.mark(tag, ready.max(self.last));
        }
    }

    /// Records that a traced frame with target `ask` departed at `start` and is being handed over.
    pub(crate) fn departed(&mut self, tag: u32, ask: Time, start: Time) {
        let Some(active) = self.active.as_deref_mut() else { return };
        let Some(index) = active.table.index(tag) else { return };
        let mut marks = active.table.marks(index);
        let before = marks.last();
        let intended = before.intended.max(ask);
        let (start, end) = match &active.clock {
            // The driver's clock reading may be older than ours.
            Some(clock) => (start.max(before.at), clock().max(start)),
            None => (start, start),
        };
        marks.make(Mark { at: start, intended });
        marks.make(Mark { at: end.max(start), intended });
        if let Some(listener) = &active.sampling.listener {
            listener(&active.table.trace(index), &active.meter, end);
        }
        if active.table.depart(index) {
            active.table.count(&mut active.meter);
        }
        self.queued -= 1;
    }

    /// Ends the trace of a frame that will not depart.
    #[cold]
    #[inline(never)]
    pub(crate) fn lost(&mut self, tag: u32) {
        let Some(active) = &mut self.active else { return };
        let Some(index) = active.table.index(tag) else { return };
        active.table.release(index);
        let marks = active.table.marks(index).made().len();
        *self.beside(marks) -= 1;
    }

    /// Removes the trace of a frame that goes to another thread; `None` if the frame is not traced.
    pub(crate) fn take(&mut self, tag: u32) -> Option<Box<FrameTrace>> {
        let active = self.active.as_mut()?;
        let index = active.table.index(tag)?;
        let trace = active.table.trace(index);
        active.table.release(index);
        *self.beside(trace.marks.len()) -= 1;
        Some(Box::new(trace))
    }

    /// Continues the trace of a frame from another thread, if the frame is traced.
    pub(crate) fn put<F: Frame>(&mut self, frame: &mut F, trace: Option<Box<FrameTrace>>) {
        let Some(active) = &mut self.active else { return };
        let Some(trace) = trace else { return frame.set_tag(0) };
        let (index, tag) = active.table.begin();
        if active.sampling.listener.is_some() {
            active.table.name(index, trace.identity, trace.length);
        }
        let mut marks = active.table.marks(index);
        for mark in &trace.marks {
            marks.make(*mark);
        }
        frame.set_tag(tag);
        *self.beside(trace.marks.len()) += 1;
    }

    /// The clock, if there is one.
    pub(crate) fn clock(&self) -> Option<Reading> {
        self.active.as_ref()?.clock.clone()
    }

    /// The figures, if frames are traced.
    pub(crate) fn report(&self) -> Option<PipelineSlices> {
        self.active.as_ref().map(|active| {
            let mut meter = active.meter.clone();
            active.table.report_to(&mut meter);
            meter.report()
        })
    }
}

impl ActiveTraces {
    /// Adds a mark for the frame with `tag` and the intended time `intended`. Returns its number of marks.
    fn mark(&mut self, tag: u32, intended: Time) -> Option<usize> {
        let index = self.table.index(tag)?;
        let mut marks = self.table.marks(index);
        // Intended times never decrease.
        let intended = intended.max(marks.last().intended);
        let at = self.clock.as_ref().map_or(intended, |clock| clock());
        Some(marks.make(Mark { at, intended }))
    }

    /// Records that a stage computed the time of the frame with `tag` from the arrival of the frame, and so compensated
    /// for the wait in the ring. The wait is therefore not intended. Up to that stage, intended times count from the
    /// poll, after the wait.
    #[cold]
    #[inline(never)]
    fn reckoned_from_arrival(&mut self, tag: u32) {
        let Some(index) = self.table.index(tag) else { return };
        if let [arrival, rest @ ..] = self.table.marks(index).made()
            && let [look, ..] = *rest
        {
            let waited = look.intended.since(arrival.intended);
            for mark in rest {
                mark.intended = Time::ZERO + mark.intended.since(Time::ZERO + waited);
            }
        }
    }
}

#[cfg(test)]
mod tests;
