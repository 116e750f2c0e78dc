mod parts;

use crate::Line;
use crate::catch_up::{CatchUp, Forgiveness};
use crate::classes::Classifier;
use crate::lane::Lane;
use crate::merge::Merge;
use crate::schedules::{Due, Schedule};
use crate::slices::{Passing, Reading, Sampling, Slices};
use crate::stages::{Log, Stage};
use crate::sync::SyncSpec;
use measure::{Books, DepartureMeter, DropReason, Held, PipelineReport, PipelineSlices, Tally};
use packet::Frame;
use units::{FrameLen, Span, Time};

/// A source stops making frames of a class while this many wait.
const AHEAD: usize = 32;
/// Limit over all classes: no more than a live pipeline has buffers for.
const MOST_AHEAD: usize = 1 << 15;

/// A pipeline: classes of frames, usually just one. Each class has a chain of stages, a queue of ready frames and a
/// departure schedule.
///
/// The schedules of classes are independent. The departure that is due first goes first; of several due at the same
/// instant, the one of the earlier class.
pub struct Pipeline<F> {
    lanes: Vec<Lane<F>>,
    /// Finds the class of a frame. `None` with one class, or if the caller knows the class.
    classifier: Option<Classifier>,
    classes: Vec<ClassName>,
    merge: Merge,
    books: Books,
}

/// A class of a pipeline.
pub struct Class<F> {
    /// Name and rule, for reports.
    pub name: ClassName,
    /// The stages, first to last.
    pub stages: Vec<Box<dyn Stage<F>>>,
    /// Decides when frames depart.
    pub schedule: Box<dyn Schedule>,
    /// How frames of several sources are synchronised, if asked.
    pub sync: Option<SyncSpec>,
    /// Delay of the schedule's start after the first frame.
    pub buffer: Span,
}

/// Name of a class and its target.
#[derive(Clone, Debug, Default)]
pub struct ClassName {
    /// The name in reports.
    pub name: String,
    /// The rule; `None` for the default class.
    pub rule: Option<String>,
    /// The fixed gap that was asked, as a reference for measured gaps.
    pub asked_gap: Option<Span>,
    /// No target was set for departures.
    pub free: bool,
}

/// A frame whose departure is settled.
#[derive(Debug)]
pub struct Departure<F> {
    /// The frame.
    pub frame: F,
    /// The length with FCS.
    pub length: FrameLen,
    /// Index of the class.
    pub class: u32,
    /// Index of the source, if sources are synchronised and the frame belongs to one.
    pub source: Option<u32>,
    /// When the frame had passed all stages.
    pub ready: Time,
    /// When the frame should depart: the start of its preamble. [`Time::MAX`] if never.
    pub at: Time,
    /// What the stages decided about the frame's delay.
    pub held: Held,
    /// Trace number, or 0 if the frame is not traced. The driver also reports departures of traced frames by
    /// [`Pipeline::sliced`].
    pub tag: u32,
}

impl<F: Frame> Pipeline<F> {
    /// A pipeline of one class with these stages, first to last, and this schedule.
    #[must_use]
    pub fn new(stages: Vec<Box<dyn Stage<F>>>, schedule: Box<dyn Schedule>) -> Self {
        Pipeline::of_lanes(vec![Lane::new(0, stages, schedule)], None, Vec::new(), None)
    }

    /// A pipeline of several classes, which `classifier` distinguishes; `line` is that of the output, if it has one.
    ///
    /// # Panics
    /// If there is no class.
    #[must_use]
    pub fn of_classes(classifier: Classifier, classes: Vec<Class<F>>, line: Option<Line>) -> Self {
        assert!(!classes.is_empty(), "a frame is of some class");
        let mut lanes = Vec::new();
        let mut names = Vec::new();
        for (i, class) in classes.into_iter().enumerate() {
            let mut lane = Lane::new(i as u32, class.stages, class.schedule);
            lane.buffer = class.buffer;
            if let Some(spec) = class.sync {
                lane.synchronise(spec, line);
            }
            lanes.push(lane);
            names.push(class.name);
        }
        Pipeline::of_lanes(lanes, Some(classifier), names, line)
    }

    fn of_lanes(
        lanes: Vec<Lane<F>>,
        classifier: Option<Classifier>,
        classes: Vec<ClassName>,
        line: Option<Line>,
    ) -> Self {
        Pipeline { merge: Merge::new(lanes.len(), line), lanes, classifier, classes, books: Books::default() }
    }

    /// Delays the schedule by `buffer` after the first frame is ready. For pipelines of one class.
    #[must_use]
    pub fn buffering(mut self, buffer: Span) -> Self {
        self.lanes[0].buffer = buffer;
        self
    }

    /// Holds frames of sources back and releases them by `spec`; `line` is that of the output, if it has one. For
    /// pipelines of one class.
    #[must_use]
    pub fn synchronising(mut self, spec: SyncSpec, line: Option<Line>) -> Self {
        self.lanes[0].synchronise(spec, line);
        self
    }

    /// Traces a sample of the frames; `stages` are the stage names of each class.
    #[must_use]
    pub fn slicing(mut self, stages: &[Vec<String>], sampling: &Sampling) -> Self {
        for (lane, stages) in self.lanes.iter_mut().zip(stages) {
            lane.slices = Slices::new(stages, sampling.clone());
        }
        self
    }

    /// Exchanges the trace state with another pipeline of as many classes, so that a bench can measure the same
    /// pipeline with and without tracing. Both pipelines must be empty.
    #[doc(hidden)]
    pub fn exchange_slices(&mut self, other: &mut Self) {
        for (lane, other) in self.lanes.iter_mut().zip(&mut other.lanes) {
            std::mem::swap(&mut lane.slices, &mut other.slices);
        }
    }

    /// Timestamps traces with this clock, whose reading costs `cost`. Without it, traces use the time that stages see.
    pub fn slice_by(&mut self, clock: &Reading, cost: Span) {
        for lane in &mut self.lanes {
            lane.slices.read_by(clock, cost);
        }
    }

    /// Marks frames as coming from a port. If the port `tells` how long each frame was in its ring, the trace of a
    /// frame begins at its arrival, else at the poll that found it. Call before the first frame and before splitting
    /// the pipeline.
    pub fn slice_from_port(&mut self, tells: bool) {
        for lane in &mut self.lanes {
            lane.slices.come_from_port(tells);
        }
    }

    /// Sets how schedules continue after departures that are late by more than `tolerance`. By default they are
    /// absolute.
    #[must_use]
    pub fn catching_up(mut self, policy: CatchUp, tolerance: Span) -> Self {
        for lane in &mut self.lanes {
            lane.forgiveness = Forgiveness::new(policy, tolerance);
        }
        self
    }

    /// Takes a frame that arrived at `at`. The clock reads `now`, which is not earlier.
    pub fn push(&mut self, now: Time, at: Time, frame: F) {
        let class = self.classifier.as_mut().map_or(0, |classifier| classifier.class(frame.bytes()));
        self.push_to(class, now, at, frame);
    }

    /// Takes a frame of a known class.
    ///
    /// # Panics
    /// If there is no such class.
    pub(crate) fn push_to(&mut self, class: usize, now: Time, at: Time, frame: F) {
        self.books.came.add(frame.length());
        let lane = &mut self.lanes[class];
        lane.push(now, at, frame, &mut self.books);
        self.merge.touched(lane);
    }

    /// Records that a traced frame with target `ask` departed at `start` and is now handed over.
    #[cold]
    pub fn sliced(&mut self, class: u32, tag: u32, ask: Time, start: Time) {
        self.lanes[class as usize].slices.departed(tag, ask, start);
    }

    /// Whether frames are traced.
    #[must_use]
    pub fn is_slicing(&self) -> bool {
        self.lanes.iter().any(|lane| lane.slices.is_on())
    }

    /// Slices of a pipeline of one class, if frames are traced.
    #[must_use]
    pub fn slices(&self) -> Option<PipelineSlices> {
        self.lanes[0].slices.report()
    }

    /// The clock of the traces, if frames are traced.
    #[must_use]
    pub fn slice_clock(&self) -> Option<Reading> {
        self.lanes[0].slices.clock()
    }

    /// Ends the trace of a frame that will not depart, if it is traced.
    pub fn unfollow(&mut self, class: u32, frame: &F) {
        self.lanes[class as usize].slices.lost(frame.tag());
    }

    /// Lets the stages release what is due by `now`.
    pub fn wake(&mut self, now: Time) {
        if let [lane] = &mut self.lanes[..] {
            return lane.wake(now, &mut self.books);
        }
        while let Some(class) = self.merge.wakes(now) {
            let lane = &mut self.lanes[class];
            lane.wake(now, &mut self.books);
            self.merge.touched(lane);
        }
    }

    /// Says that no more frames will arrive after `now`, so that none waits for them.
    pub fn arrivals_end(&mut self, now: Time) {
        for lane in &mut self.lanes {
            if lane.arrivals_end(now) {
                self.merge.touched(lane);
            }
        }
    }

    /// When to wake the stages next, if any waits for time to pass.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.merge.deadline(&self.lanes)
    }

    /// When the next departure is due, if one is settled or can be. A later frame may be due earlier, unless the
    /// pipeline [is settled](Pipeline::is_settled).
    #[inline]
    pub fn due(&mut self) -> Option<Time> {
        match &mut self.lanes[..] {
            [lane] => lane.due(),
            lanes => self.merge.due(lanes, &mut self.books),
        }
    }

    /// True if no later frame can change which departure is next: every class has a settled one.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        match &self.lanes[..] {
            // A schedule that follows the queue depth needs to see all arrivals first.
            [lane] => lane.is_settled() && !lane.schedule.watches_depth(),
            lanes => self.merge.settled(lanes),
        }
    }

    /// Takes the next frame in departure order. The caller then carries out the departure and calls [`Pipeline::sent`]
    /// or [`Pipeline::lost`].
    #[inline]
    pub fn next_departure(&mut self) -> Option<Departure<F>> {
        match &mut self.lanes[..] {
            [lane] => lane.take(),
            lanes => self.merge.take(lanes, &mut self.books),
        }
    }

    /// Records that a frame of this class and length left.
    pub fn sent(&mut self, class: u32, length: FrameLen) {
        self.books.left.add(length);
        self.lanes[class as usize].books.left.add(length);
    }

    /// Records that a frame with target `ask`, `held` by stages, starts at `start`; `source` is its source, if any.
    /// Call before asking for the next departure, so that forgiven lateness moves it.
    #[inline]
    pub fn departed(
        &mut self,
        class: u32,
        source: Option<u32>,
        length: FrameLen,
        held: Held,
        (ask, start): (Time, Time),
    ) {
        let lane = &mut self.lanes[class as usize];
        lane.departed(source, length, held, ask, start);
        if lane.sync.is_some() {
            self.merge.touched(lane);
        }
        if !self.classes.is_empty() {
            self.merge.departed(class, length, ask, start);
        }
    }

    /// Whether stages delay frames, so that departures need exact times.
    #[must_use]
    pub fn delays(&self) -> bool {
        self.lanes.iter().any(|lane| lane.measures)
    }

    /// How often lateness was forgiven, and how much in total; `None` if schedules are absolute.
    #[must_use]
    pub fn forgiven(&self) -> Option<(u64, Span)> {
        let totals = self.lanes.iter().filter_map(|lane| lane.forgiveness.total());
        totals.reduce(|(n, a), (m, b)| (n + m, Span::from_ps(a.as_ps().saturating_add(b.as_ps()))))
    }

    /// Records that a frame with a settled departure could not leave; `source` is its source, if any.
    pub fn lost(&mut self, class: u32, source: Option<u32>, reason: DropReason) {
        self.books.drop_one(reason);
        let lane = &mut self.lanes[class as usize];
        lane.books.drop_one(reason);
        lane.lost(source);
        self.merge.touched(lane);
    }

    /// Records a frame of `length` that was dropped before it reached the stages and before it was classified.
    pub fn refuse(&mut self, length: FrameLen, reason: DropReason) {
        self.books.came.add(length);
        self.books.drop_one(reason);
    }

    /// The counters of all classes together.
    #[must_use]
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// How often schedules were starved.
    #[must_use]
    pub fn starved(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.starved).sum()
    }

    /// True once all schedules have ended: frames still held, including the last one returned, will never depart.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.lanes.iter().all(|lane| lane.schedule.ended())
    }

    /// The share of a waveform's integral that went unused because no frame was ready. `None` without a waveform, and
    /// with several classes.
    #[must_use]
    pub fn forfeited(&self) -> Option<f64> {
        match &self.lanes[..] {
            [lane] => lane.schedule.forfeited(),
            _ => None,
        }
    }

    /// Passes every decision about frames of a class to `log` from now on. The class without a rule is the last one, or
    /// the only one.
    pub fn tell(&mut self, class: usize, log: Log) {
        self.lanes[class].outlet.log = Some(log);
    }

    /// Enables answers: frames that stages send back become available from [`Pipeline::take_answers`].
    #[must_use]
    pub fn answering(mut self) -> Self {
        for lane in &mut self.lanes {
            lane.outlet.answers = Some(Vec::new());
        }
        self
    }

    /// Frames that stages send back to the sender.
    pub fn take_answers(&mut self) -> impl Iterator<Item = F> + '_ {
        self.lanes.iter_mut().filter_map(|lane| lane.outlet.answers.as_mut()).flat_map(|answers| answers.drain(..))
    }

    /// Adds the effects of stages on frames that they did not drop. With several classes, adds only counts; the class
    /// reports have the rest.
    pub fn report_effects(&self, report: &mut PipelineReport) {
        match &self.lanes[..] {
            [lane] => report.add_effects(&lane.outlet.effects, &lane.held_for),
            lanes => lanes.iter().for_each(|lane| report.effects.add_all(&lane.outlet.effects.counts())),
        }
    }

    /// A meter of the departures. `asked_gap` is the fixed gap asked of all classes, `byte_time` that of the line, if
    /// there is one, `window` the window of the rate.
    #[must_use]
    pub fn meter(&self, asked_gap: Option<Span>, byte_time: Option<Span>, window: Span) -> DepartureMeter {
        let meter = DepartureMeter::new(asked_gap, byte_time, window);
        match &self.lanes[..] {
            [lane] => meter.judged_by(lane.schedule.law(), byte_time).stepped_by(lane.schedule.steps()),
            lanes => {
                let asks = lanes
                    .iter()
                    .zip(&self.classes)
                    .map(|(lane, class)| (class.asked_gap, lane.schedule.law(), lane.schedule.steps()));
                meter.of_classes(asks.collect(), byte_time, window)
            }
        }
    }

    /// The width of the wave: the shortest buffer with which no departure so far would have starved, the largest of all
    /// classes. `None` if no target was set.
    #[must_use]
    pub fn width(&self) -> Option<Span> {
        self.lanes.iter().filter_map(Lane::width).max()
    }

    /// Adds reports of buffers, of sources, and of each class, from the meter that [`Pipeline::meter`] made.
    pub fn report_classes(&self, meter: &DepartureMeter, report: &mut PipelineReport) {
        if let [lane] = &self.lanes[..] {
            report.buffer = lane.buffer();
            report.slices = lane.slices.report();
            report.sources = lane.sync.as_ref().map_or_else(Vec::new, |sync| sync.report());
        }
        for (lane, class) in self.lanes.iter().zip(&self.classes) {
            let held = lane.books.should_hold();
            let mut of_class = match meter.class(lane.class) {
                Some(meter) => meter.report(&lane.books, held),
                None => DepartureMeter::none(&lane.books, held),
            };
            of_class.add_effects(&lane.outlet.effects, &lane.held_for);
            of_class.name.clone_from(&class.name);
            of_class.rule.clone_from(&class.rule);
            of_class.starved = (!class.free).then_some(lane.starved);
            of_class.forfeited_ratio = lane.schedule.forfeited();
            of_class.forgiven = lane.forgiveness.total().map(Into::into);
            of_class.depth = Some(measure::DepthReport { max_frames: lane.depth as u64 });
            of_class.buffer = lane.buffer();
            of_class.slices = lane.slices.report();
            of_class.sources = lane.sync.as_ref().map_or_else(Vec::new, |sync| sync.report());
            of_class.contended = Some(self.merge.contended(lane.class));
            if class.free {
                of_class.forget_ask();
                of_class.lateness = None;
            }
            report.classes.push(of_class);
        }
    }

    /// True if the pipeline only counts frames: one class, no stages and no target. Traces of such frames use
    /// [`passing`](Pipeline::passing), which has no details for a listener.
    #[must_use]
    pub fn is_straight(&self) -> bool {
        self.classes.is_empty() && matches!(&self.lanes[..], [lane] if lane.is_straight())
    }

    /// Continues tracing for frames that bypass this pipeline, which must be [straight](Pipeline::is_straight).
    pub fn passing(&mut self) -> Passing {
        Passing::new(std::mem::take(&mut self.lanes[0].slices))
    }

    /// True if frames depart unchanged, in order of arrival and with few waiting: one class, no stages and no
    /// synchronisation.
    #[must_use]
    pub fn leaves_frames(&self) -> bool {
        self.classes.is_empty() && matches!(&self.lanes[..], [lane] if lane.leaves_frames())
    }

    /// True if frames go straight to the schedule, which depends only on their ready times and lengths: one class, no
    /// stages, no synchronisation and no catch-up limit. See [`dues`](Pipeline::dues).
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        self.classes.is_empty() && matches!(&self.lanes[..], [lane] if lane.is_immediate())
    }

    /// Computes the departures of frames of these lengths, ready at `ready`, in an immediate pipeline. Appends them to
    /// `dues`. The frames never wait in the pipeline; report those taken by [`passed_in`](Pipeline::passed_in) and
    /// those sent by [`passed_on`](Pipeline::passed_on).
    pub fn dues(&mut self, ready: Time, frames: &[FrameLen], dues: &mut Vec<Due>) {
        self.lanes[0].dues(ready, frames, dues);
    }

    /// Counts frames that entered and bypass the pipeline.
    pub fn passed_in(&mut self, frames: Tally) {
        self.books.came.add_all(frames);
    }

    /// Counts frames that left and bypassed the pipeline.
    pub fn passed_on(&mut self, frames: Tally) {
        self.books.left.add_all(frames);
    }

    /// True if enough frames of a class wait, or none of them will depart any more. A source that can choose then makes
    /// frames of other classes.
    #[must_use]
    pub fn is_full(&self, class: usize) -> bool {
        let most = (MOST_AHEAD / self.lanes.len()).clamp(1, AHEAD);
        self.lanes[class].is_full(most)
    }

    /// Ready frames, settled or not.
    #[must_use]
    pub fn ready(&self) -> usize {
        match &self.lanes[..] {
            [lane] => lane.waiting(),
            lanes => lanes.iter().map(Lane::waiting).sum(),
        }
    }

    /// Frames in the stages and the ready queues.
    #[must_use]
    pub fn held(&self) -> u64 {
        match &self.lanes[..] {
            [lane] => lane.held() as u64,
            _ => self.merge.held(),
        }
    }
}

#[cfg(test)]
mod tests;
