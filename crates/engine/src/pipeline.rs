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
use measure::{Books, DepartureMeter, DropReason, PipelineReport, PipelineSlices, Tally};
use packet::Frame;
use units::{FrameLen, Span, Time};

/// Frames of a class that wait, at which a source makes none of it: so many are made at once.
const AHEAD: usize = 32;
/// Of all classes together: no more than a live pipeline has buffers for.
const MOST_AHEAD: usize = 1 << 15;

/// Classes of frames, each a chain of stages, a queue of frames that are ready, and the schedule of their
/// departure; mostly one class only.
///
/// Schedules of several classes know nothing of each other: what is due first goes first, and of what is
/// due at once the earlier class.
pub struct Pipeline<F> {
    lanes: Vec<Lane<F>>,
    /// Which class a frame is of; none where there is one, or where others tell.
    classifier: Option<Classifier>,
    classes: Vec<ClassName>,
    merge: Merge,
    books: Books,
}

/// A class of a pipeline.
pub struct Class<F> {
    /// Its name and rule in reports.
    pub name: ClassName,
    /// Its stages, first to last.
    pub stages: Vec<Box<dyn Stage<F>>>,
    /// When its frames depart.
    pub schedule: Box<dyn Schedule>,
    /// How frames of several sources follow each other, if that is asked.
    pub sync: Option<SyncSpec>,
    /// How long after its first frame the schedule starts.
    pub buffer: Span,
}

/// How a class is called, and what was asked of it.
#[derive(Clone, Debug, Default)]
pub struct ClassName {
    /// Its name in reports.
    pub name: String,
    /// Its rule; none for the default class.
    pub rule: Option<String>,
    /// The fixed gap that was asked, to measure against.
    pub asked_gap: Option<Span>,
    /// Nothing was asked of its departures.
    pub free: bool,
}

/// A frame whose departure is settled.
#[derive(Debug)]
pub struct Departure<F> {
    /// The frame.
    pub frame: F,
    /// Its length with FCS.
    pub length: FrameLen,
    /// Its class, by number.
    pub class: u32,
    /// Its source, by number, where sources are synchronised and it is of one.
    pub source: Option<u32>,
    /// When it had passed all stages.
    pub ready: Time,
    /// When it should depart: the start of its preamble. [`Time::MAX`] if it never should.
    pub at: Time,
    /// Its number if it is followed, 0 if not: who makes it depart then says so by [`Pipeline::sliced`], too.
    pub tag: u32,
}

impl<F: Frame> Pipeline<F> {
    /// A pipeline of one class: `stages`, first to last, then `schedule`.
    #[must_use]
    pub fn new(stages: Vec<Box<dyn Stage<F>>>, schedule: Box<dyn Schedule>) -> Self {
        Pipeline::of_lanes(vec![Lane::new(0, stages, schedule)], None, Vec::new(), None)
    }

    /// A pipeline of several classes, of which `classifier` tells; `line` is that of the output, if it has
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
        Pipeline { merge: Merge::new(lanes.len(), line), lanes, classifier, classes, books: Books::default() }
    }

    /// The schedule starts so long after the first frame is ready; with one class.
    #[must_use]
    pub fn buffering(mut self, buffer: Span) -> Self {
        self.lanes[0].buffer = buffer;
        self
    }

    /// Frames of sources are kept back and let go as `spec` says; `line` is that of the output, if it has
    /// one. With one class.
    #[must_use]
    pub fn synchronising(mut self, spec: SyncSpec, line: Option<Line>) -> Self {
        self.lanes[0].synchronise(spec, line);
        self
    }

    /// One frame in some is followed; `stages` are the names of each class's stages.
    #[must_use]
    pub fn slicing(mut self, stages: &[Vec<String>], sampling: &Sampling) -> Self {
        for (lane, stages) in self.lanes.iter_mut().zip(stages) {
            lane.slices = Slices::new(stages, sampling.clone());
        }
        self
    }

    /// Exchanges who is followed with another pipeline of as many classes: a bench so has the same pipeline with and
    /// without. No frame may be in either.
    #[doc(hidden)]
    pub fn exchange_slices(&mut self, other: &mut Self) {
        for (lane, other) in self.lanes.iter_mut().zip(&mut other.lanes) {
            std::mem::swap(&mut lane.slices, &mut other.slices);
        }
    }

    /// Frames are followed by this clock, of which a reading takes `cost`; without, by what the stages reckon with.
    pub fn slice_by(&mut self, clock: &Reading, cost: Span) {
        for lane in &mut self.lanes {
            lane.slices.read_by(clock, cost);
        }
    }

    /// Frames come from a port. Where it `tells` how long each was in its ring, the way of one that is followed begins when
    /// it came, else at the look that found it. To be said before any comes, and before it is parted.
    pub fn slice_from_port(&mut self, tells: bool) {
        for lane in &mut self.lanes {
            lane.slices.come_from_port(tells);
        }
    }

    /// What becomes of the schedules when frames depart late, by more than `tolerance`; without, they are
    /// absolute.
    #[must_use]
    pub fn catching_up(mut self, policy: CatchUp, tolerance: Span) -> Self {
        for lane in &mut self.lanes {
            lane.forgiveness = Forgiveness::new(policy, tolerance);
        }
        self
    }

    /// A frame came in at `at`; the clock reads `now`, which is not earlier.
    pub fn push(&mut self, now: Time, at: Time, frame: F) {
        let class = self.classifier.as_mut().map_or(0, |classifier| classifier.class(frame.bytes()));
        self.push_to(class, now, at, frame);
    }

    /// A frame came in of which the class is known.
    ///
    /// # Panics
    /// If there is no such class.
    pub(crate) fn push_to(&mut self, class: usize, now: Time, at: Time, frame: F) {
        self.books.came.add(frame.length());
        let lane = &mut self.lanes[class];
        lane.push(now, at, frame, &mut self.books);
        self.merge.touched(lane);
    }

    /// A frame that is followed departed at `start` instead of `ask`, and is now handed over.
    #[cold]
    pub fn sliced(&mut self, class: u32, tag: u32, ask: Time, start: Time) {
        self.lanes[class as usize].slices.departed(tag, ask, start);
    }

    /// Whether frames are followed.
    #[must_use]
    pub fn is_slicing(&self) -> bool {
        self.lanes.iter().any(|lane| lane.slices.is_on())
    }

    /// Slices of a pipeline of one class, if frames are followed.
    #[must_use]
    pub fn slices(&self) -> Option<PipelineSlices> {
        self.lanes[0].slices.report()
    }

    /// The clock by which frames are followed, if they are.
    #[must_use]
    pub fn slice_clock(&self) -> Option<Reading> {
        self.lanes[0].slices.clock()
    }

    /// A frame that may be followed will not depart.
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

    /// When the stages must be woken next, if any waits for time to pass.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.merge.deadline(&self.lanes)
    }

    /// When the next departure is due, if one is settled or can be. A frame that is yet to come may be due
    /// before it, unless the pipeline [is settled](Pipeline::is_settled).
    #[inline]
    pub fn due(&mut self) -> Option<Time> {
        match &mut self.lanes[..] {
            [lane] => lane.due(),
            lanes => self.merge.due(lanes, &mut self.books),
        }
    }

    /// True if nothing that is yet to come can change which departure is next: every class has one.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        match &self.lanes[..] {
            // Who goes by how many wait has to know of all that came.
            [lane] => lane.is_settled() && !lane.schedule.watches_depth(),
            lanes => self.merge.settled(lanes),
        }
    }

    /// Takes the next frame in order, with the departure that its schedule asks for. The caller then makes
    /// it depart and says so by [`Pipeline::sent`] or [`Pipeline::lost`].
    #[inline]
    pub fn next_departure(&mut self) -> Option<Departure<F>> {
        match &mut self.lanes[..] {
            [lane] => lane.take(),
            lanes => self.merge.take(lanes, &mut self.books),
        }
    }

    /// A frame of a class and of `length` really left.
    pub fn sent(&mut self, class: u32, length: FrameLen) {
        self.books.left.add(length);
        self.lanes[class as usize].books.left.add(length);
    }

    /// The frame of a class, of a source if of any, and of `length` that was asked to depart at `ask` starts at
    /// `start`. To be said before the next departure is asked for, so that what is forgiven moves it.
    #[inline]
    pub fn departed(&mut self, class: u32, source: Option<u32>, length: FrameLen, ask: Time, start: Time) {
        let lane = &mut self.lanes[class as usize];
        lane.departed(source, length, ask, start);
        if lane.sync.is_some() {
            self.merge.touched(lane);
        }
        if !self.classes.is_empty() {
            self.merge.departed(class, length, ask, start);
        }
    }

    /// How often lateness was forgiven, and how much in all; `None` where the schedules are absolute.
    #[must_use]
    pub fn forgiven(&self) -> Option<(u64, Span)> {
        let totals = self.lanes.iter().filter_map(|lane| lane.forgiveness.total());
        totals.reduce(|(n, a), (m, b)| (n + m, Span::from_ps(a.as_ps().saturating_add(b.as_ps()))))
    }

    /// A frame of a class, and of a source if of any, whose departure was settled could not leave.
    pub fn lost(&mut self, class: u32, source: Option<u32>, reason: DropReason) {
        self.books.drop_one(reason);
        let lane = &mut self.lanes[class as usize];
        lane.books.drop_one(reason);
        lane.lost(source);
        self.merge.touched(lane);
    }

    /// A frame of `length` came and was dropped before it reached the stages, and before anybody saw of
    /// which class it was.
    pub fn refuse(&mut self, length: FrameLen, reason: DropReason) {
        self.books.came.add(length);
        self.books.drop_one(reason);
    }

    /// The books of all classes together.
    #[must_use]
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// How often the schedules were starved.
    #[must_use]
    pub fn starved(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.starved).sum()
    }

    /// True once all schedules have ended: what is left, and the last frame given, will never depart.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.lanes.iter().all(|lane| lane.schedule.ended())
    }

    /// The share of a waveform's integral that no frame was there to use; `None` without a waveform, or with
    /// several classes.
    #[must_use]
    pub fn forfeited(&self) -> Option<f64> {
        match &self.lanes[..] {
            [lane] => lane.schedule.forfeited(),
            _ => None,
        }
    }

    /// Tells `log` of every decision about frames of a class from now on; the class without a rule is the
    /// last, and the only one where there are no others.
    pub fn tell(&mut self, class: usize, log: Log) {
        self.lanes[class].outlet.log = Some(log);
    }

    /// There is a way back for frames that stages answer with: [`Pipeline::take_answers`] gives them from now on.
    #[must_use]
    pub fn answering(mut self) -> Self {
        for lane in &mut self.lanes {
            lane.outlet.answers = Some(Vec::new());
        }
        self
    }

    /// Frames that stages want to send back to where others came from.
    pub fn take_answers(&mut self) -> impl Iterator<Item = F> + '_ {
        self.lanes.iter_mut().filter_map(|lane| lane.outlet.answers.as_mut()).flat_map(|answers| answers.drain(..))
    }

    /// Adds what stages did to frames that they did not drop; of several classes how often only, the rest
    /// is told of each.
    pub fn report_effects(&self, report: &mut PipelineReport) {
        match &self.lanes[..] {
            [lane] => report.add_effects(&lane.outlet.effects),
            lanes => lanes.iter().for_each(|lane| report.effects.add_all(&lane.outlet.effects.counts())),
        }
    }

    /// A meter of its departures; `asked_gap` is the fixed gap that was asked of all, `byte_time` that of the
    /// line if there is one, `window` the length of the windows of the rate.
    #[must_use]
    pub fn meter(&self, asked_gap: Option<Span>, byte_time: Option<Span>, window: Span) -> DepartureMeter {
        let meter = DepartureMeter::new(asked_gap, byte_time, window);
        match &self.lanes[..] {
            [lane] => meter.judged_by(lane.schedule.law(), byte_time),
            lanes => {
                let asks = lanes.iter().zip(&self.classes).map(|(lane, class)| (class.asked_gap, lane.schedule.law()));
                meter.of_classes(asks.collect(), byte_time, window)
            }
        }
    }

    /// With how long a buffer no departure would have been starved, by what has come so far: the width of
    /// the wave, the widest of all classes. `None` where nothing is asked.
    #[must_use]
    pub fn width(&self) -> Option<Span> {
        self.lanes.iter().filter_map(Lane::width).max()
    }

    /// Adds what is known of buffers, of sources, and of each class by the meter that [`Pipeline::meter`]
    /// made.
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
            of_class.add_effects(&lane.outlet.effects);
            of_class.name.clone_from(&class.name);
            of_class.rule.clone_from(&class.rule);
            of_class.starved = (!class.free).then_some(lane.starved);
            of_class.forfeited_share = lane.schedule.forfeited();
            of_class.forgiven = lane.forgiveness.total().map(Into::into);
            of_class.depth = Some(measure::DepthReport { max: lane.depth as u64 });
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

    /// True if it does nothing to frames but to count them: one class, no stage, and nothing asked. Frames that are
    /// followed are so by [`passing`](Pipeline::passing), which knows nothing of each that a listener could hear.
    #[must_use]
    pub fn is_straight(&self) -> bool {
        self.classes.is_empty() && matches!(&self.lanes[..], [lane] if lane.is_straight())
    }

    /// Goes on to follow frames that never come into this pipeline, which is [straight](Pipeline::is_straight).
    pub fn passing(&mut self) -> Passing {
        Passing::new(std::mem::take(&mut self.lanes[0].slices))
    }

    /// True if frames depart as they came, and few of them wait: one class, no stage, which might change them or hold
    /// them, and nobody kept back.
    #[must_use]
    pub fn leaves_frames(&self) -> bool {
        self.classes.is_empty() && matches!(&self.lanes[..], [lane] if lane.leaves_frames())
    }

    /// True if frames go straight to the schedule, which goes by nothing but when they are ready and how
    /// long they are: one class, no stage, nobody kept back, and late is late. See [`dues`](Pipeline::dues).
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        self.classes.is_empty() && matches!(&self.lanes[..], [lane] if lane.is_immediate())
    }

    /// Frames of these lengths were ready at `ready` for an immediate pipeline. Appends when each should depart; they
    /// never wait in the pipeline, and [`passed_in`](Pipeline::passed_in) and [`passed_on`](Pipeline::passed_on) are to
    /// be told of those that are taken and that have left.
    pub fn dues(&mut self, ready: Time, frames: &[FrameLen], dues: &mut Vec<Due>) {
        self.lanes[0].dues(ready, frames, dues);
    }

    /// Frames that pass came.
    pub fn passed_in(&mut self, frames: Tally) {
        self.books.came.add_all(frames);
    }

    /// Frames that passed have left.
    pub fn passed_on(&mut self, frames: Tally) {
        self.books.left.add_all(frames);
    }

    /// Enough frames of a class wait, or no more of them will depart: a source that can choose makes those of others.
    #[must_use]
    pub fn is_full(&self, class: usize) -> bool {
        let most = (MOST_AHEAD / self.lanes.len()).clamp(1, AHEAD);
        self.lanes[class].is_full(most)
    }

    /// Frames that are ready, settled or not.
    #[must_use]
    pub fn ready(&self) -> usize {
        match &self.lanes[..] {
            [lane] => lane.waiting(),
            lanes => lanes.iter().map(Lane::waiting).sum(),
        }
    }

    /// Frames in the stages and in the ready queues.
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
