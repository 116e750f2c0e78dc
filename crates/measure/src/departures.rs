use crate::conformance::ConformanceMeter;
use crate::fit::{FitMeter, Reference};
use crate::frame_counters::{FrameCounters, Tally};
use crate::gaps::GapMeter;
use crate::lateness::LatenessMeter;
use crate::octaves::{Distributions, OctavesReport};
use crate::plots::Plots;
use crate::rates::RateMeter;
use crate::report::{Histograms, PipelineReport, RateReport, Shortfall};
use crate::steps::{StepMeter, StepPlan};
use crate::timeline::Timeline;
use std::sync::Arc;
use units::{FrameLen, Span, Time};

/// All measurements of departures: gaps, rate, and deviations from the target.
pub struct DepartureMeter {
    meters: Meters,
    fit: Option<FitMeter>,
    /// A gap, and how often it occurred in a row. Exact departures repeat, and meters count many equal gaps at the cost
    /// of one.
    repeated: (Interval, u64),
    /// Target and start of the first departure.
    first: Option<(Time, Time)>,
    /// Target and start of the last departure, and its length.
    last: (Time, Time),
    last_length: FrameLen,
    /// Equal departures since then.
    run: RepeatedDepartures,
    /// One meter per class, if there are several.
    classes: Vec<ClassMeter>,
    /// Steps of a waveform.
    steps: Option<StepMeter>,
    /// The target changed during the run, so no gap, law or step holds for all of it.
    target_changed: bool,
    /// The departures are those of several queues.
    joined: bool,
    /// When a departure that never left was due, and the end of the run.
    overdue: Option<(Time, Time)>,
}

/// An output that has taken no frame for this long is stuck; less is a hiccup.
const STUCK: Span = Span::from_ms(10);

/// The meters that count many equal departures at once.
#[derive(Clone)]
struct Meters {
    gaps: GapMeter,
    conformance: ConformanceMeter,
    rate: RateMeter,
    lateness: LatenessMeter,
    timeline: Timeline,
}

impl Meters {
    /// Counts an interval that occurred `times` times.
    fn intervals(&mut self, interval: Interval, times: u64) {
        if times > 0 {
            self.gaps.count(interval.got, times);
            self.conformance.count(interval.asked, interval.got, interval.back_to_back, times);
        }
    }

    /// Counts a run of `times` departures of `length` that ended with `last`, its target and start. Does not count
    /// their intervals.
    fn run(&mut self, times: u64, (asked, start): (Time, Time), length: FrameLen) {
        if times > 0 {
            self.rate.record_burst(start, times * u64::from(length.bytes()), length);
            self.lateness.record_many(start.signed_ps_since(asked), times);
            self.timeline.repeat(times, length, start);
        }
    }
}

/// The meter of a class. With many classes it is created on first use, and so are its tables: a thousand with all
/// tables would exhaust the memory.
struct ClassMeter {
    make: Box<dyn Fn() -> DepartureMeter + Send>,
    meter: Option<Box<DepartureMeter>>,
}

/// Up to this many classes have all their memory allocated in advance, about 1.5 MB each.
const AT_HAND: usize = 32;

/// The target of a class: a fixed gap, gaps of a law, or the steps of a waveform.
pub type ClassTarget = (Option<Span>, Option<Arc<dyn Reference>>, Option<StepPlan>);

/// Departures that repeat the preceding one exactly as asked, as most do with fillers. Each costs a few comparisons,
/// and all meters receive them at once.
#[derive(Clone, Copy)]
struct RepeatedDepartures {
    /// Asked and measured time between two of them, in ps.
    step: i64,
    /// All are before this time, and so in the windows of the last departure recorded on its own.
    end: Time,
    times: u64,
}

impl RepeatedDepartures {
    /// A run that no departure continues.
    const NONE: RepeatedDepartures = RepeatedDepartures { step: i64::MIN, end: Time::ZERO, times: 0 };
}

/// Interval between two departures, in ps.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Interval {
    asked: i64,
    got: i64,
    back_to_back: bool,
}

impl DepartureMeter {
    /// Creates a meter. `asked_gap` is the fixed gap that was asked, `byte_time` that of the line, if there is one, and
    /// `window` the length of the rate's windows. Allocates all its memory.
    #[must_use]
    pub fn new(asked_gap: Option<Span>, byte_time: Option<Span>, window: Span) -> Self {
        DepartureMeter::lean(asked_gap, byte_time, window).at_hand()
    }

    /// As [`new`](DepartureMeter::new), but allocates memory on first use.
    fn lean(asked_gap: Option<Span>, byte_time: Option<Span>, window: Span) -> Self {
        DepartureMeter {
            meters: Meters {
                gaps: GapMeter::new(asked_gap, byte_time),
                conformance: ConformanceMeter::new(byte_time),
                rate: RateMeter::new(window),
                lateness: LatenessMeter::default(),
                timeline: Timeline::default(),
            },
            fit: None,
            repeated: (Interval::default(), 0),
            first: None,
            last: (Time::ZERO, Time::ZERO),
            last_length: FrameLen::MIN,
            run: RepeatedDepartures::NONE,
            classes: Vec::new(),
            steps: None,
            target_changed: false,
            joined: false,
            overdue: None,
        }
    }

    /// A meter of one of several queues, for [`join`](DepartureMeter::join). Allocates all its memory.
    #[must_use]
    pub fn of_queue(window: Span) -> Self {
        let mut meter = DepartureMeter::new(None, None, window);
        meter.meters.rate = RateMeter::of_queue(window);
        meter
    }

    /// All queues send from `origin` on. Call before the first departure.
    pub fn begin_at(&mut self, origin: Time) {
        self.meters.rate.begin_at(origin);
        self.meters.timeline.begin(origin);
    }

    /// Adds the departures of another queue: their number, rate and lateness. Which frame followed which is unknown, so
    /// there are no gaps any more.
    pub fn join(&mut self, mut other: DepartureMeter) {
        self.end_run();
        other.end_run();
        let Meters { rate, lateness, timeline, .. } = other.meters;
        self.meters.rate.join(rate);
        self.meters.lateness.add(&lateness);
        self.meters.timeline.join(timeline);
        self.meters.gaps = GapMeter::new(None, None);
        self.meters.conformance = ConformanceMeter::new(None);
        self.repeated.1 = 0;
        self.joined = true;
        let later = |one: (Time, Time), other: (Time, Time)| if other.1 > one.1 { other } else { one };
        self.first = match (self.first, other.first) {
            (Some(one), Some(other)) => Some(if other.1 < one.1 { other } else { one }),
            (one, other) => one.or(other),
        };
        self.last = later(self.last, other.last);
        // The queue that fell behind furthest.
        let behind = |overdue: &(Time, Time)| overdue.1.since(overdue.0);
        self.overdue = self.overdue.into_iter().chain(other.overdue).max_by_key(behind);
    }

    /// The run ends at `end` although a departure due at `at` has not left, because the output takes no frames.
    pub fn ends_overdue(&mut self, at: Time, end: Time) {
        self.overdue = Some((at, end));
    }

    /// Allocates memory for all counts: a live departure has no time for the first access to a page.
    fn at_hand(mut self) -> Self {
        let Meters { gaps, conformance, lateness, .. } = self.meters;
        let (gaps, conformance, lateness) = (gaps.at_hand(), conformance.at_hand(), lateness.at_hand());
        self.meters = Meters { gaps, conformance, lateness, ..self.meters };
        self
    }

    /// Also measures each of several classes.
    #[must_use]
    pub fn of_classes(mut self, asks: Vec<ClassTarget>, byte_time: Option<Span>, window: Span) -> Self {
        let few = asks.len() <= AT_HAND;
        let meters = asks.into_iter().map(|(gap, law, steps)| {
            let make = move || {
                DepartureMeter::lean(gap, byte_time, window).judged_by(law.clone(), byte_time).stepped_by(steps.clone())
            };
            ClassMeter { meter: few.then(|| Box::new(make().at_hand())), make: Box::new(make) }
        });
        self.classes = meters.collect();
        self
    }

    /// As [`DepartureMeter::record`], for a frame of a class.
    #[inline(always)]
    pub fn record_of(&mut self, class: u32, asked: Time, start: Time, length: FrameLen) {
        if let Some(ClassMeter { make, meter }) = self.classes.get_mut(class as usize) {
            meter.get_or_insert_with(|| Box::new(make())).record(asked, start, length);
        }
        self.record(asked, start, length);
    }

    /// The meter of a class; `None` before its first departure.
    #[must_use]
    pub fn class(&self, class: u32) -> Option<&DepartureMeter> {
        self.classes.get(class as usize)?.meter.as_deref()
    }

    /// A report of counters without departures.
    #[must_use]
    pub fn none(books: &FrameCounters, held: u64) -> PipelineReport {
        PipelineReport {
            arrived: books.arrived,
            left: books.left,
            copies: books.copies,
            drops: books.drops(),
            held,
            ..PipelineReport::default()
        }
    }

    /// Also compares gaps with this law, if there is one; `byte_time` is that of the line.
    #[must_use]
    pub fn judged_by(mut self, law: Option<Arc<dyn Reference>>, byte_time: Option<Span>) -> Self {
        self.fit = law.map(|law| FitMeter::new(law, byte_time));
        self
    }

    /// Also measures each step of a waveform, if there are any.
    #[must_use]
    pub fn stepped_by(mut self, plan: Option<StepPlan>) -> Self {
        self.steps = plan.and_then(StepMeter::new);
        self
    }

    /// Records that the target of a class changes. From now on nothing is compared with a gap, law or steps for the
    /// whole run; each departure is still compared with its own target.
    pub fn target_changes(&mut self, class: u32) {
        self.target_changed = true;
        if let Some(ClassMeter { make, meter }) = self.classes.get_mut(class as usize) {
            meter.get_or_insert_with(|| Box::new(make())).target_changed = true;
        }
    }

    /// Records that a frame of `length` with target `asked` started at `start`.
    #[inline(always)]
    pub fn record(&mut self, asked: Time, start: Time, length: FrameLen) {
        if let Some(steps) = &mut self.steps {
            steps.record(asked, start, length);
        }
        let step = start.signed_ps_since(self.last.1);
        let same = step == self.run.step && asked.signed_ps_since(self.last.0) == step;
        if same && length == self.last_length && start < self.run.end && asked < self.run.end {
            self.run.times += 1;
            self.last = (asked, start);
        } else {
            self.record_one(asked, start, length);
        }
    }

    // Out of line, so that the comparisons above are inlined at the call.
    #[inline(never)]
    fn record_one(&mut self, asked: Time, start: Time, length: FrameLen) {
        self.end_run();
        self.meters.rate.record(start, length);
        self.meters.lateness.record(asked, start);
        if let Some(fit) = &mut self.fit {
            fit.record(start, length);
        }
        self.meters.timeline.ask(asked, length);
        self.meters.timeline.got(start, length);
        if self.first.is_some() {
            let before = self.last_length;
            self.interval(asked, start);
            let Interval { asked: ask, got, .. } = self.repeated.0;
            // The next departure may repeat this one if this one repeats the preceding one, including its length.
            if self.fit.is_none()
                && ask == got
                && before == length
                && let Some(end) = self.meters.timeline.window_end(asked, start)
            {
                self.run = RepeatedDepartures { step: got, end: end.min(self.meters.rate.window_end()), times: 0 };
            }
        } else {
            self.first = Some((asked, start));
        }
        self.last = (asked, start);
        self.last_length = length;
    }

    /// Passes the counts of the run to the meters.
    fn end_run(&mut self) {
        let RepeatedDepartures { times, .. } = std::mem::replace(&mut self.run, RepeatedDepartures::NONE);
        self.meters.run(times, self.last, self.last_length);
        self.repeated.1 += times;
    }

    /// Records a burst without a target that started at `start`; its last frame had length `last`.
    pub fn record_burst(&mut self, start: Time, burst: Tally, last: FrameLen) {
        if burst.frames == 0 {
            return;
        }
        self.end_run();
        self.meters.rate.record_burst(start, burst.bytes, last);
        self.meters.timeline.got_burst(start, burst.frames, burst.bytes);
        if self.first.is_some() {
            self.meters.gaps.count(start.signed_ps_since(self.last.1), 1);
        } else {
            self.first = Some((start, start));
        }
        if burst.frames > 1 {
            self.meters.gaps.count(0, burst.frames - 1);
        }
        self.last = (start, start);
        self.last_length = last;
    }

    #[inline]
    fn interval(&mut self, asked: Time, start: Time) {
        let (last_asked, last_start) = self.last;
        let (asked, got) = (asked.signed_ps_since(last_asked), start.signed_ps_since(last_start));
        let back_to_back = self.meters.conformance.is_back_to_back(asked, got, self.last_length);
        let interval = Interval { asked, got, back_to_back };
        if interval != self.repeated.0 {
            let (before, times) = std::mem::replace(&mut self.repeated, (interval, 0));
            self.meters.intervals(before, times);
        }
        self.repeated.1 += 1;
    }

    /// Median (with a resolution of one eighth) and largest lateness so far, in ns.
    #[must_use]
    pub fn lateness_so_far(&self) -> (u64, u64) {
        self.meters.lateness.so_far()
    }

    /// Lateness and gap errors so far, without departures that repeat the preceding one.
    #[must_use]
    pub fn distributions(&self) -> Distributions {
        let Meters { lateness, conformance, .. } = &self.meters;
        Distributions { lateness: lateness.octaves(), gap_error: conformance.octaves(), ..Distributions::default() }
    }

    /// A report of these figures and of the counters of the pipeline, in which `held` frames remain.
    #[must_use]
    pub fn report(&self, books: &FrameCounters, held: u64) -> PipelineReport {
        let mut meters = self.meters.clone();
        let (interval, times) = self.repeated;
        meters.run(self.run.times, self.last, self.last_length);
        meters.intervals(interval, times + self.run.times);
        let Meters { gaps, conformance, rate, lateness, timeline } = meters;
        let distributions = Distributions {
            lateness: lateness.octaves(),
            gap_error: conformance.octaves(),
            ..Distributions::default()
        };
        let gap = gaps.report();
        // A stuck output lowers the rate as long as frames are due.
        let overdue = self.overdue.filter(|(at, end)| end.since(*at) > STUCK);
        let sending = rate.elapsed();
        let elapsed = match (overdue, self.first) {
            (Some((_, end)), Some((_, first))) => end.since(first).max(sending),
            _ => sending,
        };
        let share = sending.as_ns_f64() / elapsed.as_ns_f64().max(1e-3);
        let elapsed = elapsed.as_ns_f64() / 1e9;
        let rate = rate.report().map(|rate| RateReport { mean_bps: rate.mean_bps * share, ..rate });
        let rate = rate.map(|rate| match self.joined || overdue.is_some() {
            true => RateReport { mean_fps: Some((lateness.len() - 1) as f64 / elapsed), ..rate },
            false => rate.with_frames(gap.as_ref()),
        });
        let whole = !self.target_changed;
        let gap = gap.map(|gap| crate::GapReport { error: gap.error.filter(|_| whole), ..gap });
        let steps = self.steps.as_ref().filter(|_| whole).map(StepMeter::report).unwrap_or_default();
        PipelineReport {
            gap,
            fit: self.fit.as_ref().filter(|_| whole).and_then(FitMeter::report),
            conformance: conformance.report(),
            rate: rate.map(|rate| RateReport { steps, ..rate }),
            lateness: lateness.report(),
            octaves: OctavesReport::of(&distributions),
            histograms: Some(Histograms { gap_ps: gaps.whole(), lateness_ps: lateness.whole(), delay_ps: Vec::new() }),
            first_departure: self.first.map(|(_, start)| start),
            plots: Some(Box::new(Plots::of(&gaps, Some(&conformance), &timeline))),
            ..DepartureMeter::none(books, held)
        }
    }

    /// How far the run fell behind its target. `None` unless the last departure, or one that never left, was later than
    /// `excused`, and later than a millionth of the run.
    #[must_use]
    pub fn shortfall(&self, excused: Span) -> Option<Shortfall> {
        let (first_ask, first_start) = self.first?;
        let (last_ask, last_start) = self.last;
        let asked = last_ask.since(first_ask);
        let at_last = (last_start.since(last_ask), last_start);
        let at_end = self.overdue.map(|(at, end)| (end.since(at), end));
        let (behind, end) = at_end.filter(|at_end| at_end.0 > at_last.0).unwrap_or(at_last);
        let took = end.since(first_start);
        let fell = behind > excused && u128::from(behind.as_ps()) * 1_000_000 > u128::from(took.as_ps());
        fell.then(|| Shortfall {
            behind_ns: behind.as_ns_f64(),
            obtained_ratio: asked.as_ps() as f64 / took.as_ps() as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fell_behind(slip: u64) -> Option<f64> {
        let mut meter = DepartureMeter::new(None, None, Span::from_ms(1));
        for i in 0..=1_000 {
            let asked = Time::from_ps(i * 1_000_000);
            meter.record(asked, asked + Span::from_ps(i * slip), FrameLen::MIN);
        }
        meter.shortfall(Span::from_us(1)).map(|shortfall| shortfall.obtained_ratio)
    }

    #[test]
    fn an_output_that_takes_no_more_frames_falls_behind() {
        let mut meter = DepartureMeter::new(None, None, Span::from_ms(1));
        for i in 0..=1_000 {
            let at = Time::from_ps(i * 1_000_000);
            meter.record(at, at, FrameLen::MIN);
        }
        let rates = |meter: &DepartureMeter| {
            let rate = meter.report(&FrameCounters::default(), 0).rate.expect("frames left");
            (rate.mean_fps.expect("a rate").round(), rate.mean_bps)
        };
        let (fps, bps) = rates(&meter);
        assert_eq!((fps, meter.shortfall(Span::from_us(1)).is_none()), (1e6, true));
        // The output took frames for 1 ms. The run took 100 ms.
        meter.ends_overdue(Time::from_ps(1_001_000_000), Time::from_ps(100_000_000_000));
        let shortfall = meter.shortfall(Span::from_us(1)).expect("it fell behind");
        assert!((shortfall.obtained_ratio - 0.01).abs() < 1e-9, "{shortfall:?}");
        assert!((shortfall.behind_ns - 98_999_000.0).abs() < 1.0, "{shortfall:?}");
        let (stuck_fps, stuck_bps) = rates(&meter);
        assert!((stuck_fps - 10_000.0).abs() < 1.0, "{stuck_fps}");
        assert!((stuck_bps / bps - 0.01).abs() < 1e-9);
    }

    /// Runs give the same figures as single records.
    #[test]
    fn counts_all_of_a_run_of_equal_gaps() {
        let (window, byte_time) = (Span::from_ms(1), Some(Span::from_ps(800)));
        let mut meter = DepartureMeter::new(Some(Span::from_us(1)), byte_time, window);
        let mut gaps = GapMeter::new(Some(Span::from_us(1)), byte_time);
        let mut conformance = ConformanceMeter::new(byte_time);
        let (mut asked, mut start) = (Time::ZERO, Time::ZERO);
        for got in [1_000, 1_000, 1_000, 67, 1_933, 1_000, 1_000, 68, 68, 1_000] {
            meter.record(asked, start, FrameLen::MIN);
            gaps.record(start);
            conformance.record(asked, start, FrameLen::MIN);
            asked += Span::from_us(1);
            start += Span::from_ns(got);
        }
        let report = meter.report(&FrameCounters::default(), 0);
        let text = |gap: Option<crate::GapReport>, conformance: Option<crate::ConformanceReport>| {
            serde_json::to_string(&(gap, conformance)).expect("JSON")
        };
        assert_eq!(text(report.gap, report.conformance), text(gaps.report(), conformance.report()));
        assert_eq!(conformance.report().map(|report| report.count), Some(9));
    }

    /// Runs end where a length, gap, target or window changes, without loss.
    #[test]
    fn counts_all_of_a_run_of_equal_departures() {
        let window = Span::from_us(40);
        let mut meter = DepartureMeter::new(Some(Span::from_us(1)), Some(Span::from_ps(800)), window);
        let mut rate = RateMeter::new(window);
        let mut lateness = LatenessMeter::default();
        let mut timeline = Timeline::default();
        let mut gaps = GapMeter::new(Some(Span::from_us(1)), Some(Span::from_ps(800)));
        let (mut asked, mut start) = (Time::from_ps(5_000), Time::from_ps(12_000));
        for i in 0..12_000_u64 {
            let length = FrameLen::new(if i % 100 < 80 { 64 } else { 64 + (i % 7) as u32 });
            meter.record(asked, start, length);
            rate.record(start, length);
            lateness.record(asked, start);
            timeline.ask(asked, length);
            timeline.got(start, length);
            gaps.record(start);
            asked += Span::from_us(1);
            // Some frames are late by part of a window or not at all, the last ones by whole windows; only the former
            // form runs.
            start += match i % 500 {
                37 => Span::from_ns(1_200),
                38 => Span::from_ns(800),
                498 => Span::from_ns(1_700),
                499 if i < 9_000 => Span::from_ns(300),
                499 => Span::from_us(30),
                _ => Span::from_us(1),
            };
            if i % 1_000 == 651 {
                assert_eq!(meter.run.times > 0, i < 9_000, "{i}");
                assert_eq!(meter.report(&FrameCounters::default(), 0).gap.map(|gap| gap.count), Some(i));
            }
        }
        let report = meter.report(&FrameCounters::default(), 0);
        let drawn = report.plots.and_then(|plots| plots.rate);
        let got = serde_json::to_value((report.rate, report.lateness, report.gap, drawn)).expect("JSON");
        let gap = gaps.report();
        let expected_rate = rate.report().map(|rate| rate.with_frames(gap.as_ref()));
        let expected = (expected_rate, lateness.report(), gap, timeline.report());
        assert_eq!(got, serde_json::to_value(expected).expect("JSON"));
    }

    /// Bursts without a target give the same figures as their single frames.
    #[test]
    fn counts_bursts_like_their_frames() {
        let window = Span::from_us(10);
        let (mut bursts, mut frames) =
            (DepartureMeter::new(None, None, window), DepartureMeter::new(None, None, window));
        let mut start = Time::from_ps(7_000);
        for (i, count) in (0..).zip([1_u64, 64, 1, 3, 64, 17, 64]) {
            let mut burst = Tally::default();
            let length = |k: u64| FrameLen::new(64 + ((i * 64 + k) % 7) as u32);
            for k in 0..count {
                burst.add(length(k));
                frames.record(start, start, length(k));
            }
            bursts.record_burst(start, burst, length(count - 1));
            start += Span::from_us(3 + i);
        }
        let text = |meter: &DepartureMeter| {
            let report = meter.report(&FrameCounters::default(), 0);
            let got = report.plots.and_then(|plots| plots.rate).map(|rate| rate.got_bps);
            serde_json::to_string(&(report.gap, report.rate, got)).expect("JSON")
        };
        assert_eq!(text(&bursts), text(&frames));
    }

    #[test]
    fn reports_a_shortfall_only_beyond_the_excused_lateness() {
        assert!(fell_behind(0).is_none());
        assert!(fell_behind(1_000).is_none(), "1 µs behind at the end is excused");
        let share = fell_behind(250_000).expect("250 µs behind");
        assert!((share - 0.8).abs() < 1e-9);
    }
}
