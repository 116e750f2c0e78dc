mod parts;

use crate::Line;
use crate::bursts::BurstCounters;
use crate::catch_up::{CatchUp, Forgiveness};
use crate::changes::Changes;
use crate::classes::Classifier;
use crate::departure::{Departure, Placed, Settled};
use crate::lane::Lane;
use crate::merge::Merge;
use crate::schedules::{Due, Schedule};
use crate::slices::{ClassTraces, FrameTrace, Passing, Reading, Sampling};
use crate::stages::{Log, Stage};
use crate::sync::SyncSpec;
use measure::{
    DepartureMeter, Distributions, DropReason, Forgiven, FrameCounters, Octaves, PipelineReport, SentStreams, Shortfall,
};
use packet::Frame;
use units::{FrameLen, Span, Time};

/// A source creates no more frames of a class while this many wait.
const AHEAD: usize = 32;
/// Maximum over all classes: a live pipeline has no buffers for more.
const MOST_AHEAD: usize = 1 << 15;

/// A pipeline: classes of frames, usually just one. Each class has a chain of stages, a queue of ready frames and a
/// departure schedule.
///
/// The schedules of classes are independent. The departure that is due first goes first. At the same instant, the
/// earlier class goes first.
pub struct Pipeline<F> {
    pub(crate) lanes: Vec<Lane<F>>,
    /// Finds the class of a frame. `None` with one class, or if the caller knows the class.
    classifier: Option<Classifier>,
    classes: Vec<ClassName>,
    pub(crate) merge: Merge,
    pub(crate) books: FrameCounters,
    /// Measures departures, if enabled.
    pub(crate) meter: Option<DepartureMeter>,
    /// Frames sent per stream.
    sent: SentStreams,
    /// Departures that drivers have taken but not finished.
    taken: u64,
    /// Changes of its settings, if it accepts any.
    pub(crate) changes: Option<Box<Changes<F>>>,
}

/// A class of a pipeline.
pub struct Class<F> {
    /// Name and rule, for reports.
    pub name: ClassName,
    /// The stages, first to last.
    pub stages: Vec<Box<dyn Stage<F>>>,
    /// Decides when frames depart.
    pub schedule: Box<dyn Schedule>,
    /// How frames of several sources are synchronised, if configured.
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
    /// The configured fixed gap, as a reference for measured gaps.
    pub asked_gap: Option<Span>,
    /// True if departures have no target.
    pub free: bool,
}

/// How much of a pipeline its frames need. A driver may take a shorter path than the whole pipeline. Each level also
/// allows the shortcuts of the levels before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Path {
    /// The whole pipeline: it has classes, stages or synchronisation.
    Whole,
    /// Frames depart unchanged, in order of arrival and with few waiting.
    Ordered,
    /// Departures depend only on ready times and lengths: [`Pipeline::dues`] computes those of many frames at once.
    Scheduled,
    /// Frames are only counted: there is no target, and no observer needs details. See [`Pipeline::bursts`].
    Counted,
}

/// Adds the sources that a lane synchronises, their curves, and the gaps between their crests.
fn add_sources<F: Frame>(report: &mut PipelineReport, lane: &Lane<F>) {
    let Some(sync) = &lane.sync else { return };
    report.sources = sync.report();
    report.crest_gap = sync.gaps().report();
    let plots = report.plots.get_or_insert_default();
    (plots.sources, plots.crest_gaps) = (sync.curves(), sync.gaps().plot());
}

impl<F: Frame> Pipeline<F> {
    /// A pipeline of one class with these stages, first to last, and this schedule.
    #[must_use]
    pub fn new(stages: Vec<Box<dyn Stage<F>>>, schedule: Box<dyn Schedule>) -> Self {
        Pipeline::of_lanes(vec![Lane::new(0, stages, schedule)], None, Vec::new(), None)
    }

    /// A pipeline of several classes, which `classifier` distinguishes. `line` is the line of the output, if it has
    /// one.
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
        Pipeline {
            merge: Merge::new(lanes.len(), line),
            lanes,
            classifier,
            classes,
            books: FrameCounters::default(),
            meter: None,
            sent: SentStreams::default(),
            taken: 0,
            changes: None,
        }
    }

    /// Delays the schedule by `buffer` after the first frame is ready. Only for pipelines with one class.
    #[must_use]
    pub fn buffering(mut self, buffer: Span) -> Self {
        self.lanes[0].buffer = buffer;
        self
    }

    /// Holds frames of sources back and releases them according to `spec`. `line` is the line of the output, if it has
    /// one. Only for pipelines with one class.
    #[must_use]
    pub fn synchronising(mut self, spec: SyncSpec, line: Option<Line>) -> Self {
        self.lanes[0].synchronise(spec, line);
        self
    }

    /// Traces a sample of the frames; `stages` are the stage names of each class.
    #[must_use]
    pub fn slicing(mut self, stages: &[Vec<String>], sampling: &Sampling) -> Self {
        for (lane, stages) in self.lanes.iter_mut().zip(stages) {
            lane.slices = ClassTraces::new(stages, sampling.clone());
        }
        self
    }

    /// Exchanges the trace state with another pipeline with the same number of classes. A benchmark can then measure
    /// the same pipeline with and without tracing. Both pipelines must be empty.
    #[doc(hidden)]
    pub fn exchange_slices(&mut self, other: &mut Self) {
        for (lane, other) in self.lanes.iter_mut().zip(&mut other.lanes) {
            std::mem::swap(&mut lane.slices, &mut other.slices);
        }
    }

    /// Timestamps traces with this clock. One reading takes `cost`. Without a clock, traces use the time that stages
    /// see.
    pub fn slice_by(&mut self, clock: &Reading, cost: Span) {
        for lane in &mut self.lanes {
            lane.slices.read_by(clock, cost);
        }
    }

    /// Marks frames as coming from a port. With `tells`, the port knows how long each frame was in its ring and a trace
    /// begins at the arrival of the frame. Otherwise it begins at the poll that found the frame. Call before the first
    /// frame and before splitting the pipeline.
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
        self.books.arrived.add(frame.length());
        let lane = &mut self.lanes[class];
        lane.push(now, at, frame, &mut self.books);
        self.merge.touched(lane);
    }

    /// Whether frames are traced.
    #[must_use]
    pub fn is_slicing(&self) -> bool {
        self.lanes.iter().any(|lane| lane.slices.is_on())
    }

    /// The clock of the traces, if frames are traced.
    #[must_use]
    pub fn slice_clock(&self) -> Option<Reading> {
        self.lanes[0].slices.clock()
    }

    /// Makes the stages release the frames that are due by `now`.
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

    /// Records that no frames will arrive after `now`, so that no frame waits for later ones.
    pub fn arrivals_end(&mut self, now: Time) {
        for lane in &mut self.lanes {
            if lane.arrivals_end(now) {
                self.merge.touched(lane);
            }
        }
    }

    /// When to wake the stages next, if any of them waits for an instant.
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

    /// True if every class has a settled departure, so that no later frame can change which departure is next.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        match &self.lanes[..] {
            // A schedule that follows the queue depth needs to see all arrivals first.
            [lane] => lane.is_settled() && !lane.schedule.watches_depth(),
            lanes => self.merge.settled(lanes),
        }
    }

    /// Takes the next frame in departure order. The driver carries the departure out and finishes its token.
    #[inline]
    pub fn next_departure(&mut self) -> Option<Departure<F>> {
        let departure = match &mut self.lanes[..] {
            [lane] => lane.take(),
            lanes => self.merge.take(lanes, &mut self.books),
        };
        self.taken += u64::from(departure.is_some());
        departure
    }

    /// Records a settled start. `handed` is when the frame was handed over, if that was read.
    #[inline]
    pub(crate) fn settled_start(&mut self, settled: &Settled, start: Time, handed: Time) {
        let Settled { length, class, source, at, held, tag, .. } = *settled;
        let lane = &mut self.lanes[class as usize];
        if let Some(changes) = &mut self.changes {
            changes.segments().departed(length, lane.measures.then_some(held), at, start);
        }
        lane.departed(source, length, held, at, start);
        if lane.sync.is_some() {
            self.merge.touched(lane);
        }
        if !self.classes.is_empty() {
            self.merge.departed(class, length, at, start);
        }
        if tag != 0 {
            self.lanes[class as usize].slices.departed(tag, at, start.max(handed));
        }
    }

    /// Counts a frame that left.
    #[inline]
    pub(crate) fn left(&mut self, class: u32, length: FrameLen, stream: Option<u16>, at: Time, start: Time) {
        self.taken -= 1;
        self.books.left.add(length);
        self.lanes[class as usize].books.left.add(length);
        if let Some(stream) = stream {
            self.sent.add(stream);
        }
        if let Some(meter) = &mut self.meter {
            meter.record_of(class, at, start, length);
        }
    }

    /// Counts a frame whose departure was settled but that could not leave.
    pub(crate) fn discarded(&mut self, settled: &Settled, reason: DropReason) {
        self.count_drop(settled.class, reason);
        let lane = &mut self.lanes[settled.class as usize];
        lane.slices.lost(settled.tag);
        lane.lost(settled.source);
        self.merge.touched(lane);
    }

    /// Counts a frame whose start was settled but that did not leave after all.
    pub(crate) fn did_not_leave(&mut self, class: u32, length: FrameLen, reason: DropReason) {
        if let Some(changes) = &mut self.changes {
            changes.segments().take_back(length);
        }
        self.count_drop(class, reason);
    }

    fn count_drop(&mut self, class: u32, reason: DropReason) {
        self.taken -= 1;
        self.books.drop_one(reason);
        self.lanes[class as usize].books.drop_one(reason);
    }

    /// Hands a frame to the next part of the pipeline. Returns its trace.
    #[inline]
    pub(crate) fn handed_on(&mut self, settled: &Settled) -> Option<Box<FrameTrace>> {
        self.taken -= 1;
        self.lanes[settled.class as usize].slices.take(settled.tag)
    }

    /// Whether stages delay frames. Departures then need exact times.
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

    /// Records a frame of `length` that was dropped before it reached the stages and before it was classified.
    pub fn refuse(&mut self, length: FrameLen, reason: DropReason) {
        self.books.arrived.add(length);
        self.books.drop_one(reason);
    }

    /// Pipelines for `queues` queues that send at the same time, each on its own thread: queue k has departures k,
    /// k + `queues` and so on of this pipeline, which has taken no frame yet. All frames must be ready at the same
    /// time. `None` if departures depend on more than the schedule: on classes, stages, lateness, or on the lengths of
    /// frames unless they have `one_length`.
    #[must_use]
    pub fn shares(&self, queues: usize, one_length: bool) -> Option<Vec<Self>> {
        let [lane] = &self.lanes[..] else { return None };
        if self.path() != Path::Scheduled || !one_length && lane.schedule.counts_lengths() {
            return None;
        }
        let queues = queues as u64;
        let share = |queue| {
            let schedule = lane.schedule.share(queue, queues)?;
            Some(Pipeline::new(Vec::new(), schedule).buffering(lane.buffer))
        };
        (0..queues).map(share).collect()
    }

    /// Measures departures as one of several queues.
    pub fn measure_as_queue(&mut self, window: Span) {
        self.meter = Some(DepartureMeter::of_queue(window));
    }

    /// All queues send from `origin` on. Call after [`Pipeline::measure_as_queue`] and before the first frame.
    pub fn begin_at(&mut self, origin: Time) {
        if let Some(meter) = &mut self.meter {
            meter.begin_at(origin);
        }
    }

    /// Adds the frames of another queue, of [`Pipeline::shares`], for the report.
    pub fn join(&mut self, other: Self) {
        self.taken += other.held() + other.taken;
        self.books.add_all(&other.books);
        self.sent.add_all(&other.sent);
        self.lanes[0].starved += other.starved();
        match (&mut self.meter, other.meter) {
            (Some(meter), Some(other)) => meter.join(other),
            (meter, other) => *meter = meter.take().or(other),
        }
    }

    /// The counters of all classes together.
    #[must_use]
    pub fn books(&self) -> &FrameCounters {
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

    /// Passes every decision about frames of a class to `log` from now on. The class without a rule is the last or only
    /// one.
    pub fn log_decisions(&mut self, class: usize, log: Log) {
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

    /// Measures departures from now on. `asked_gap` is the fixed gap of all classes, `byte_time` the byte time of the
    /// line, if there is one, and `window` the window of the rate.
    #[must_use]
    pub fn measuring(mut self, asked_gap: Option<Span>, byte_time: Option<Span>, window: Span) -> Self {
        self.measure(asked_gap, byte_time, window);
        self
    }

    /// Like [`Pipeline::measuring`], in place.
    pub fn measure(&mut self, asked_gap: Option<Span>, byte_time: Option<Span>, window: Span) {
        let meter = DepartureMeter::new(asked_gap, byte_time, window);
        self.meter = Some(match &self.lanes[..] {
            [lane] => meter.judged_by(lane.schedule.law(), byte_time).stepped_by(lane.schedule.steps()),
            lanes => {
                let asks = lanes
                    .iter()
                    .zip(&self.classes)
                    .map(|(lane, class)| (class.asked_gap, lane.schedule.law(), lane.schedule.steps()));
                meter.of_classes(asks.collect(), byte_time, window)
            }
        });
    }

    /// Median (with a resolution of one eighth) and largest lateness so far, in ns; zero without a meter.
    #[must_use]
    pub fn lateness_so_far(&self) -> (u64, u64) {
        self.meter.as_ref().map_or((0, 0), DepartureMeter::lateness_so_far)
    }

    /// Lateness, gap errors and delays so far.
    #[must_use]
    pub fn distributions(&self) -> Distributions {
        let mut all = self.meter.as_ref().map_or_else(Distributions::default, DepartureMeter::distributions);
        all.delay = self.delays_so_far();
        all
    }

    /// Delays by stages of all classes.
    fn delays_so_far(&self) -> Octaves {
        let mut delays = Octaves::default();
        self.lanes.iter().for_each(|lane| delays.add(&lane.held_for.octaves()));
        delays
    }

    /// The run ends at `end` although a departure due at `at` has not left, because the output takes no frames.
    pub fn ends_overdue(&mut self, at: Time, end: Time) {
        if let Some(meter) = &mut self.meter {
            meter.ends_overdue(at, end);
        }
    }

    /// How far the run fell behind its target; see [`DepartureMeter::shortfall`].
    #[must_use]
    pub fn shortfall(&self, excused: Span) -> Option<Shortfall> {
        self.meter.as_ref()?.shortfall(excused)
    }

    /// The report. Frames in the pipeline and departures that are not finished count as held.
    #[must_use]
    pub fn report(&self) -> PipelineReport {
        let held = self.held() + self.taken;
        let mut report = match &self.meter {
            Some(meter) => meter.report(&self.books, held),
            None => DepartureMeter::none(&self.books, held),
        };
        report.streams = self.sent.report();
        report.starved = Some(self.starved());
        self.report_effects(&mut report);
        if let [lane] = &self.lanes[..] {
            report.forfeited_ratio = lane.schedule.forfeited();
        }
        report.forgiven = self.forgiven().map(Forgiven::from);
        self.report_classes(&mut report);
        if let Some(changes) = &self.changes {
            (report.changes, report.segments) = (changes.reports(), changes.segment_reports(&self.books));
            if let Some(rate) = report.plots.as_mut().and_then(|plots| plots.rate.as_mut()) {
                let start = self.start().signed_ps_since(rate.first) as f64 / units::PS_PER_NS as f64;
                rate.changes_ns = report.segments.iter().skip(1).map(|segment| segment.from_ns + start).collect();
            }
        }
        report
    }

    /// Adds the effects of stages on frames that they did not drop. With several classes, adds only counts; the class
    /// reports have the rest.
    fn report_effects(&self, report: &mut PipelineReport) {
        match &self.lanes[..] {
            [lane] => report.add_effects(&lane.outlet.effects, &lane.held_for),
            lanes => {
                lanes.iter().for_each(|lane| report.effects.add_all(&lane.outlet.effects.counts()));
                report.add_delays(&self.delays_so_far());
            }
        }
    }

    /// The width of the wave, as the maximum over all classes: the shortest buffer with which no departure so far would
    /// have starved. `None` if no target was set.
    #[must_use]
    pub fn width(&self) -> Option<Span> {
        self.lanes.iter().filter_map(Lane::width).max()
    }

    /// Adds reports of buffers, of sources, and of each class.
    fn report_classes(&self, report: &mut PipelineReport) {
        if let [lane] = &self.lanes[..] {
            report.buffer = lane.buffer();
            report.slices = lane.slices.report();
            add_sources(report, lane);
        }
        for (lane, class) in self.lanes.iter().zip(&self.classes) {
            let held = lane.books.should_hold();
            let mut of_class = match self.meter.as_ref().and_then(|meter| meter.class(lane.class)) {
                Some(meter) => meter.report(&lane.books, held),
                None => DepartureMeter::none(&lane.books, held),
            };
            of_class.add_effects(&lane.outlet.effects, &lane.held_for);
            of_class.octaves = None;
            of_class.name.clone_from(&class.name);
            of_class.rule.clone_from(&class.rule);
            of_class.starved = (!class.free).then_some(lane.starved);
            of_class.forfeited_ratio = lane.schedule.forfeited();
            of_class.forgiven = lane.forgiveness.total().map(Into::into);
            of_class.depth = Some(measure::DepthReport { max_frames: lane.depth as u64 });
            of_class.buffer = lane.buffer();
            of_class.slices = lane.slices.report();
            add_sources(&mut of_class, lane);
            of_class.contended = Some(self.merge.contended(lane.class));
            if class.free {
                of_class.forget_ask();
                of_class.lateness = None;
            }
            report.classes.push(of_class);
        }
    }

    /// The shortest path that frames may take.
    #[must_use]
    pub fn path(&self) -> Path {
        match &self.lanes[..] {
            [lane] if self.classes.is_empty() && self.changes.is_none() => lane.path(),
            _ => Path::Whole,
        }
    }

    /// Counters, meter and traces for `queues` queues that bypass this pipeline, whose path must be [`Path::Counted`].
    /// If tracing is on, the first queue traces its frames.
    pub fn bursts(&mut self, queues: usize, window: Span) -> Vec<BurstCounters> {
        let slices = std::mem::take(&mut self.lanes[0].slices);
        let mut passing = slices.is_on().then(|| Passing::new(slices));
        (0..queues).map(|_| BurstCounters::new(DepartureMeter::new(None, None, window), passing.take())).collect()
    }

    /// Computes the departures of frames of these lengths that are ready at `ready`, and appends them to `dues`. The
    /// frames wait outside the pipeline, whose path must be [`Path::Scheduled`] or shorter. Each frame that proceeds
    /// enters with [`Pipeline::place`].
    pub fn dues(&mut self, ready: Time, frames: &[FrameLen], dues: &mut Vec<Due>) {
        self.lanes[0].dues(ready, frames, dues);
    }

    /// Takes a frame of `length` that [`Pipeline::dues`] scheduled for `at`.
    #[inline]
    pub fn place(&mut self, length: FrameLen, at: Time) -> Placed {
        self.taken += 1;
        self.books.arrived.add(length);
        Placed::new(at, length)
    }

    /// True if enough frames of a class wait, or if none of them will depart any more. A source that has a choice then
    /// creates frames of other classes.
    #[must_use]
    pub fn is_full(&self, class: usize) -> bool {
        let most = (MOST_AHEAD / self.lanes.len()).clamp(1, AHEAD);
        self.lanes[class].is_full(most)
    }

    /// True if [enough frames](Pipeline::is_full) of every class wait.
    #[must_use]
    pub fn is_full_of_all(&self) -> bool {
        (0..self.lanes.len()).all(|class| self.is_full(class))
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
