use crate::Line;
use crate::catch_up::Forgiveness;
use crate::departure::{Departure, Settled, Token};
use crate::pipeline::Path;
use crate::schedules::{AsReady, Due, Lengths, Schedule};
use crate::slices::{self, ClassTraces};
use crate::stage_slot::StageSlot;
use crate::stages::{Item, Outlet, Stage};
use crate::sync::{SyncSpec, Synchroniser};
use measure::{BufferReport, DropReason, FrameCounters, Held, HeldMeter};
use packet::Frame;
use std::collections::VecDeque;
use units::{FrameLen, Span, Time};

/// The changes to undo when a settled departure is settled again.
#[derive(Clone, Copy, Default)]
struct Settling {
    lengths: Option<Lengths>,
    starved: bool,
    /// When the frame was ready for the schedule, and when it reached the ready queue.
    ready: Time,
    queued_at: Time,
    /// The `spare` of the lane before this frame.
    spare: Option<Span>,
}

/// The path of one class: its stages, its queue of ready frames, its schedule and its counters.
pub(crate) struct Lane<F> {
    pub(crate) class: u32,
    stages: Vec<StageSlot<F>>,
    /// Index of the next stage in the report of effects.
    next_number: usize,
    pub(crate) schedule: Box<dyn Schedule>,
    pub(crate) forgiveness: Forgiveness,
    /// Holds frames of sources back until their turn.
    pub(crate) sync: Option<Box<Synchroniser<F>>>,
    /// Delay of the schedule's start after the first frame is ready, and the resulting start.
    pub(crate) buffer: Span,
    opens: Option<Time>,
    /// Shortest time between arrival and departure of any frame: the buffer could have been shorter by this much.
    spare: Option<Span>,
    ready: VecDeque<Item<F>>,
    /// The next departure, once settled.
    head: Option<(F, Settled)>,
    /// The side effects of settling it, in case its schedule changes before it departs.
    settling: Settling,
    /// The last departure and its lengths, from which another schedule continues.
    last: Option<(Time, Lengths)>,
    /// No frame departs before this instant, because of a change.
    not_before: Time,
    /// When departures were paused, or when the schedule last changed during the pause.
    paused: Option<Time>,
    /// True if settings may change.
    changes: bool,
    /// The next departure never comes, so no later frame departs.
    over: bool,
    pub(crate) books: FrameCounters,
    pub(crate) starved: u64,
    /// Maximum number of ready frames at any time.
    pub(crate) depth: usize,
    batch: Vec<Item<F>>,
    /// True if the stages delay frames. The frames then carry their delays.
    delays: bool,
    /// True if the delay that frames carry is measured when they depart.
    pub(crate) measures: bool,
    pub(crate) held_for: HeldMeter,
    pub(crate) outlet: Outlet<F>,
    /// Traced frames, if any.
    pub(crate) slices: ClassTraces,
}

impl<F: Frame> Lane<F> {
    pub(crate) fn new(class: u32, stages: Vec<Box<dyn Stage<F>>>, schedule: Box<dyn Schedule>) -> Self {
        let stages: Vec<_> =
            stages.into_iter().enumerate().map(|(number, stage)| StageSlot::new(Some(stage), number)).collect();
        Lane::of_slots(class, stages, schedule)
    }

    fn of_slots(class: u32, stages: Vec<StageSlot<F>>, schedule: Box<dyn Schedule>) -> Self {
        let delays = stages.iter().any(StageSlot::delays);
        Lane {
            class,
            delays,
            measures: delays,
            held_for: HeldMeter::default(),
            next_number: stages.len(),
            stages,
            schedule,
            settling: Settling::default(),
            last: None,
            not_before: Time::ZERO,
            paused: None,
            changes: false,
            forgiveness: Forgiveness::default(),
            sync: None,
            buffer: Span::ZERO,
            opens: None,
            spare: None,
            ready: VecDeque::new(),
            head: None,
            over: false,
            books: FrameCounters::default(),
            starved: 0,
            depth: 0,
            batch: Vec::new(),
            outlet: Outlet::default(),
            slices: ClassTraces::default(),
        }
    }

    pub(crate) fn has_stages(&self) -> bool {
        !self.stages.is_empty()
    }

    /// The shortest path that frames may take, if this is the only class.
    pub(crate) fn path(&self) -> Path {
        if !self.stages.is_empty() || self.sync.is_some() {
            return Path::Whole;
        }
        let schedule = &self.schedule;
        let observed = self.slices.has_listener() || self.outlet.log.is_some();
        if schedule.asks_nothing() && self.buffer == Span::ZERO && !observed {
            return Path::Counted;
        }
        let alone = !schedule.counts_packets() && !schedule.watches_depth() && !self.slices.is_on();
        if alone && !self.measures && self.forgiveness.total().is_none() { Path::Scheduled } else { Path::Ordered }
    }

    /// Splits the lane into a part with its stages, which releases frames at once, and a part with its schedule.
    pub(crate) fn split(self) -> (Self, Self) {
        let (arriving, departing) = self.slices.split(false);
        let stages = Lane {
            outlet: self.outlet,
            slices: arriving,
            ..Lane::of_slots(self.class, self.stages, Box::new(AsReady))
        };
        let stages = Lane { measures: false, ..stages };
        let schedule = Lane {
            forgiveness: self.forgiveness,
            sync: self.sync,
            buffer: self.buffer,
            slices: departing,
            measures: self.measures,
            ..Lane::new(self.class, Vec::new(), self.schedule)
        };
        (stages, schedule)
    }

    /// Splits off a front part without stages, which releases frames at once.
    pub(crate) fn split_before_stages(self) -> (Self, Self) {
        let (arriving, passing) = self.slices.split(true);
        let front = Lane { slices: arriving, ..Lane::new(self.class, Vec::new(), Box::new(AsReady)) };
        (front, Lane { slices: passing, ..self })
    }

    /// Holds frames back and releases them according to `spec`. `line` is the line of the output, if it has one.
    pub(crate) fn synchronise(&mut self, spec: SyncSpec, line: Option<Line>) {
        self.sync = Some(Box::new(Synchroniser::new(spec, line)));
    }

    /// Takes a frame that arrived at `at`. Counts it for this lane and in `total`.
    pub(crate) fn push(&mut self, now: Time, at: Time, mut frame: F, total: &mut FrameCounters) {
        self.books.arrived.add(frame.length());
        let followed = slices::COMPILED && self.slices.arrived(&mut frame, self.books.arrived.frames, now, at);
        if self.delays || self.changes {
            frame.set_stage_time(Span::ZERO);
        }
        let item = Item { frame, at };
        if self.stages.is_empty() {
            match &mut self.sync {
                None => {
                    self.ready.push_back(item);
                    if followed {
                        self.find_first(1);
                    }
                }
                Some(sync) => {
                    sync.push(item, &mut self.ready);
                    sync.release(now, &mut self.ready);
                }
            }
        } else {
            self.batch.push(item);
            self.run(now, 0, false, total);
        }
        if self.over {
            self.drop_waiting(total);
        }
        self.depth = self.depth.max(self.waiting());
    }

    /// Ends the lane because its next departure never comes. Drops waiting and future frames.
    pub(crate) fn end(&mut self, total: &mut FrameCounters) {
        self.over = true;
        self.drop_waiting(total);
    }

    #[cold]
    fn drop_waiting(&mut self, total: &mut FrameCounters) {
        while let Some(Item { frame, .. }) = self.ready.pop_front() {
            self.books.drop_one(DropReason::Ended);
            total.drop_one(DropReason::Ended);
            if let Some(sync) = &mut self.sync {
                sync.lost(sync.source_of(frame.bytes()));
            }
            self.slices.lost(frame.tag());
        }
    }

    /// Makes the stages release the frames that are due by `now`.
    pub(crate) fn wake(&mut self, now: Time, total: &mut FrameCounters) {
        for i in 0..self.stages.len() {
            if self.stages[i].deadline().is_some_and(|deadline| deadline <= now) {
                self.stages[i].wake(now, self.delays, &mut self.outlet);
                let followed = self.follow();
                self.collect(total);
                self.run(now, i + 1, followed, total);
            }
        }
        if let Some(sync) = &mut self.sync {
            sync.release(now, &mut self.ready);
        }
        if self.over {
            self.drop_waiting(total);
        }
        self.depth = self.depth.max(self.waiting());
    }

    /// Records that no more frames will arrive. Returns true if this changes the deadline of the lane.
    pub(crate) fn arrivals_end(&mut self, now: Time) -> bool {
        let Some(sync) = &mut self.sync else { return false };
        self.stages.iter().all(|stage| stage.deadline().is_none()) && sync.end(now)
    }

    /// Runs the batch through the stages from index `first` on. `followed` is true if some frames may be traced.
    fn run(&mut self, now: Time, first: usize, mut followed: bool, total: &mut FrameCounters) {
        for i in first..self.stages.len() {
            if self.batch.is_empty() {
                return;
            }
            self.stages[i].push(now, &mut self.batch, self.delays, &mut self.outlet);
            followed |= self.follow();
            debug_assert!(self.batch.is_empty(), "a stage takes the whole batch");
            book(&mut self.outlet, [&mut self.books, total]);
            std::mem::swap(&mut self.batch, &mut self.outlet.released);
        }
        match &mut self.sync {
            None if self.batch.is_empty() => {}
            None => {
                let frames = self.batch.len();
                self.ready.extend(self.batch.drain(..));
                if followed {
                    self.find_first(frames);
                }
            }
            Some(sync) => {
                for item in self.batch.drain(..) {
                    sync.push(item, &mut self.ready);
                }
                sync.release(now, &mut self.ready);
            }
        }
    }

    /// If the first of `frames` newly queued frames is now at the front, marks it as having found an empty queue.
    #[cold]
    #[inline(never)]
    fn find_first(&mut self, frames: usize) {
        if self.head.is_none()
            && self.ready.len() == frames
            && let Some(first) = self.ready.front()
        {
            self.slices.found_empty_queue(&first.frame, first.at);
        }
    }

    /// Updates traces with the frames that a stage released and dropped. True if a released frame is traced.
    #[inline]
    fn follow(&mut self) -> bool {
        slices::COMPILED && self.slices.passed(&self.outlet.released, &self.outlet.dropped)
    }

    /// Makes the output of a stage the input batch of the next one.
    fn collect(&mut self, total: &mut FrameCounters) {
        book(&mut self.outlet, [&mut self.books, total]);
        std::mem::swap(&mut self.batch, &mut self.outlet.released);
    }

    /// When to wake the lane next, if anything in it waits for an instant.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let stages = self.stages.iter().filter_map(|stage| stage.deadline()).min();
        match &self.sync {
            None => stages,
            Some(sync) => stages.into_iter().chain(sync.deadline()).min(),
        }
    }

    /// When the next departure is due. Queries the schedule if the departure is not settled yet.
    #[inline]
    pub(crate) fn due(&mut self) -> Option<Time> {
        if self.paused.is_some() {
            return None;
        }
        if self.head.is_none() {
            self.settle();
        }
        self.head.as_ref().map(|(_, settled)| settled.at)
    }

    fn settle(&mut self) {
        let Some(Item { mut frame, at }) = self.ready.pop_front() else { return };
        let ready = at.max(*self.opens.get_or_insert(at + self.buffer));
        let length = frame.length();
        let packet = if self.schedule.counts_packets() || self.changes {
            packet::ip_length(frame.bytes(), length).unwrap_or(length.bytes().saturating_sub(18))
        } else {
            0
        };
        let lengths = Lengths { frame: length, packet };
        self.settling = Settling { lengths: Some(lengths), starved: false, ready, queued_at: at, spare: self.spare };
        let due = self.schedule_next(&lengths);
        let tag = if slices::COMPILED { self.slices.settled(&frame, at, due.at) } else { 0 };
        let source = self.sync.as_ref().and_then(|sync| sync.source_of(frame.bytes()));
        let held = if self.measures {
            let asked = frame.stage_time();
            // The driver must not see the delay of the stages.
            frame.set_stage_time(Span::ZERO);
            Held { asked, waited: frame.waited() }
        } else {
            Held::default()
        };
        self.head = Some((frame, Settled { length, class: self.class, source, ready, at: due.at, held, tag }));
    }

    /// Queries the schedule for the departure of the frame that is being settled.
    #[inline]
    fn schedule_next(&mut self, lengths: &Lengths) -> Due {
        let Settling { ready, queued_at, .. } = self.settling;
        let mut due = self.schedule.depart(ready.max(self.not_before), lengths);
        // Waiting for a change does not count as starved.
        due.starved &= ready >= self.not_before;
        self.settling.starved = due.starved;
        self.starved += u64::from(due.starved);
        self.spares(due.at.since(queued_at));
        due
    }

    /// Discards the settled departure of the next frame, if any, and queries the schedule again.
    fn settle_again(&mut self) {
        let Some(lengths) = self.settling.lengths.filter(|_| self.head.is_some()) else { return };
        self.starved -= u64::from(self.settling.starved);
        self.spare = self.settling.spare;
        let due = self.schedule_next(&lengths);
        if let Some((_, settled)) = &mut self.head {
            settled.at = due.at;
        }
    }

    /// Prepares for changes of settings.
    pub(crate) fn may_change(&mut self) {
        self.changes = true;
    }

    /// Replaces the schedule from `at` on. The new one continues from the last departure. Returns the old one.
    pub(crate) fn change_schedule(&mut self, at: Time, schedule: Box<dyn Schedule>) -> Box<dyn Schedule> {
        let old = std::mem::replace(&mut self.schedule, schedule);
        self.over = false;
        self.not_before = self.not_before.max(at);
        if let Some((last, lengths)) = &self.last {
            self.schedule.follow(at.max(*last), *last, lengths);
        }
        if self.schedule.watches_depth() {
            self.schedule.waiting(self.ready.len() as u64);
        }
        if let Some(paused) = &mut self.paused {
            *paused = at;
        }
        self.settle_again();
        old
    }

    /// Pauses or resumes departures at `at`. The time of the pause does not count for the schedule.
    pub(crate) fn pause(&mut self, at: Time, paused: bool) {
        match (self.paused, paused) {
            (None, true) => self.paused = Some(at),
            (Some(since), false) => {
                self.paused = None;
                self.not_before = self.not_before.max(at);
                let pause = at.since(since);
                let shifts = !self.schedule.asks_nothing();
                self.schedule.forgive(pause);
                if let Some((_, settled)) = &mut self.head {
                    let shifted = if shifts { settled.at.checked_add(pause) } else { Some(settled.at) };
                    settled.at = shifted.unwrap_or(Time::MAX).max(at);
                }
            }
            _ => {}
        }
    }

    /// True while departures are paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Replaces the stage at index `stage_index`, or appends one after the last. Returns the old one if it holds no
    /// frame.
    pub(crate) fn change_stage(
        &mut self,
        stage_index: usize,
        stage: Option<Box<dyn Stage<F>>>,
    ) -> Option<Box<dyn Stage<F>>> {
        let number = self.next_number;
        self.next_number += 1;
        self.delays |= stage.as_ref().is_some_and(|stage| stage.delays());
        self.measures |= self.delays;
        match self.stages.get_mut(stage_index) {
            Some(slot) => slot.replace(stage, number),
            None => {
                self.stages.push(StageSlot::new(stage, number));
                None
            }
        }
    }

    /// True while replaced stages hold frames.
    pub(crate) fn is_changing(&self) -> bool {
        self.stages.iter().any(StageSlot::is_changing)
    }

    /// Takes a replaced stage that has become empty.
    pub(crate) fn take_empty(&mut self) -> Option<Box<dyn Stage<F>>> {
        self.stages.iter_mut().filter(|slot| slot.is_changing()).find_map(StageSlot::take_empty)
    }

    #[inline]
    fn spares(&mut self, waits: Span) {
        self.spare = Some(self.spare.map_or(waits, |least| least.min(waits)));
    }

    /// Takes the next departure. Settles it first if necessary.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Departure<F>> {
        if self.paused.is_some() {
            return None;
        }
        if self.head.is_none() {
            self.settle();
        }
        if self.head.is_some() && self.schedule.watches_depth() {
            self.schedule.waiting(self.ready.len() as u64);
        }
        let (frame, settled) = self.head.take()?;
        if let Some(lengths) = self.settling.lengths {
            self.last = Some((settled.at, lengths));
        }
        Some(Departure { frame, token: Token::new(settled) })
    }

    /// Computes the departures of frames of these lengths that are ready at `ready`, without queueing them.
    pub(crate) fn dues(&mut self, ready: Time, frames: &[FrameLen], dues: &mut Vec<Due>) {
        let at = ready;
        let ready = at.max(*self.opens.get_or_insert(at + self.buffer));
        let before = dues.len();
        self.schedule.depart_all(ready, frames, dues);
        for due in &dues[before..] {
            self.starved += u64::from(due.starved);
            self.spares(due.at.since(at));
        }
    }

    /// Ready frames, including the one whose departure is settled.
    pub(crate) fn waiting(&self) -> usize {
        self.ready.len() + usize::from(self.head.is_some())
    }

    /// True if `most` frames wait, or if no more frames will depart. For a schedule that follows the queue depth, true
    /// only at its end.
    pub(crate) fn is_full(&self, most: usize) -> bool {
        self.over || self.waiting() >= most && !self.schedule.watches_depth()
    }

    /// True if the next departure is settled.
    pub(crate) fn is_settled(&self) -> bool {
        self.head.is_some() && self.paused.is_none()
    }

    /// Records that the frame with target `ask` started at `start`; `source` is its source, if any.
    #[inline]
    pub(crate) fn departed(&mut self, source: Option<u32>, length: FrameLen, held: Held, ask: Time, start: Time) {
        if self.measures {
            self.held_for.departed(held, ask, start);
        }
        if let Some(sync) = &mut self.sync {
            sync.departed(source, length, start);
        }
        if let Some(late) = self.forgiveness.departed(ask, start) {
            self.schedule.forgive(late);
            if let Some((last, _)) = &mut self.last {
                *last += late;
            }
        }
    }

    /// Records that a taken frame will not depart; `source` is its source, if any.
    pub(crate) fn lost(&mut self, source: Option<u32>) {
        if let Some(sync) = &mut self.sync {
            sync.lost(source);
        }
    }

    /// Number of frames in the stages, in the synchroniser and in the ready queue.
    pub(crate) fn held(&self) -> usize {
        let kept = self.sync.as_ref().map_or(0, |sync| sync.held());
        self.stages.iter().map(|stage| stage.held()).sum::<usize>() + kept + self.waiting()
    }

    /// The shortest buffer with which no departure so far would have starved: the width of the wave. `None` if no
    /// target was set, or if the synchroniser keeps crests apart.
    pub(crate) fn width(&self) -> Option<Span> {
        let short = self.schedule.short().filter(|_| self.sync.is_none())?;
        // With a shorter buffer, all departures would be earlier by the difference.
        let spare = self.spare.filter(|_| self.starved == 0).unwrap_or(Span::ZERO);
        Some(self.buffer - self.buffer.min(spare) + short)
    }

    /// The configured buffer, and the shortest one that would have sufficed.
    pub(crate) fn buffer(&self) -> Option<BufferReport> {
        let width = self.width()?;
        Some(BufferReport { asked_ns: self.buffer.as_ns_f64(), width_ns: width.as_ns_f64(), enough: self.starved == 0 })
    }
}

/// Counts the frames that stages dropped and copied.
#[inline]
fn book<F>(outlet: &mut Outlet<F>, books: [&mut FrameCounters; 2]) {
    if !outlet.dropped.is_empty() || outlet.copies > 0 || outlet.not_copied > 0 {
        book_some(outlet, books);
    }
}

fn book_some<F>(outlet: &mut Outlet<F>, mut books: [&mut FrameCounters; 2]) {
    for (_, reason) in outlet.dropped.drain(..) {
        for books in &mut books {
            books.drop_one(reason);
        }
    }
    let (copies, not_copied) = (std::mem::take(&mut outlet.copies), std::mem::take(&mut outlet.not_copied));
    for books in books {
        books.copies += copies;
        books.drop_many(DropReason::Pool, not_copied);
    }
}
