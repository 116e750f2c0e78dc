//! Changes in virtual time: exact, repeatable, and without loss of frames.

use engine::random::Random;
use engine::schedules::{Draw, Target};
use engine::stages::StageConfig;
use engine::{
    Change, Class, ClassName, DepartureChange, DepartureSetting, Pipeline, Schedule, Stage, StageChange, Token,
};
use measure::PipelineReport;
use packet::{Frame, HeapFrame};
use sim::{Limits, Observer, SimError, Sink, Source};
use std::hash::{DefaultHasher, Hash, Hasher};
use units::{Span, Time};

/// Numbered frames with these arrivals and lengths without FCS.
struct Frames {
    frames: Vec<(u64, u32, usize)>,
    next: usize,
    backlog: bool,
}

impl Source for Frames {
    fn arrival(&self) -> Option<Time> {
        self.frames.get(self.next).map(|(at, ..)| Time::from_ps(*at))
    }

    fn take(&mut self, frame: &mut HeapFrame) {
        let (_, number, length) = self.frames[self.next];
        let mut bytes = vec![0; length];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        // A source address for each of three classes.
        (bytes[6], bytes[11]) = (2, (number % 3) as u8);
        *frame = HeapFrame::new(bytes);
        self.next += 1;
    }

    fn is_backlog(&self) -> bool {
        self.backlog
    }

    fn wanted(&mut self, full: &dyn Fn(usize) -> bool) -> bool {
        !self.backlog || !full(0)
    }
}

/// Records each departure: the instant in ps, the number, and a hash of the bytes.
#[derive(Default)]
struct Notes(Departures);

type Departures = Vec<(u64, u32, u64)>;

impl Sink for Notes {
    fn send(&mut self, frame: &mut HeapFrame, _: &Token, at: Time) -> Result<Time, SimError> {
        let mut hasher = DefaultHasher::new();
        frame.bytes().hash(&mut hasher);
        let number = frame.bytes().first_chunk().copied().map_or(0, u32::from_be_bytes);
        self.0.push((at.as_ps(), number, hasher.finish()));
        Ok(at)
    }
}

struct Quiet;

impl Observer for Quiet {
    fn go_on(&mut self, _: u64, _: Time) -> bool {
        true
    }
}

const US: u64 = 1_000_000;

fn schedule(text: &str) -> Box<dyn Schedule> {
    let target = match text {
        "off" => Target::Nothing,
        rate if rate.contains("bps") => scenario_free_rate(rate),
        gap => Target::Gap(gap.parse().expect(gap)),
    };
    target.schedule(None, Draw { seed: 7, path: "test", frames: None }).expect(text)
}

fn scenario_free_rate(text: &str) -> Target {
    match engine::schedules::waves::Wave::parse(text) {
        Some(wave) => Target::Wave(std::sync::Arc::new(wave.expect(text))),
        None => Target::Rate(text.parse().expect(text)),
    }
}

fn stage(text: &str) -> Option<Box<dyn Stage<HeapFrame>>> {
    (text != "off").then(|| StageConfig::parse(text).expect(text).build(7, "test/0"))
}

/// A change of class 0: of its schedule, its stage 0, or its pause.
fn change(what: &str, value: &str) -> Change<HeapFrame> {
    let mut change = Change::default();
    match what {
        "stage" => change.stages.push(StageChange { class: 0, stage_index: 0, stage: stage(value) }),
        "schedule" => {
            change.departures.push(DepartureChange { class: 0, to: DepartureSetting::Schedule(schedule(value)) });
        }
        _ => change.departures.push(DepartureChange { class: 0, to: DepartureSetting::Paused(value == "on") }),
    }
    change.asked.push(measure::ChangeReport { path: what.to_owned(), value: value.to_owned(), ..Default::default() });
    change
}

/// Runs frames through a stage and a schedule with these changes, at instants in ps.
fn run(
    frames: &[(u64, u32, usize)],
    backlog: bool,
    (stages, rate): (&str, &str),
    changes: &[(u64, &str, &str)],
    until: Option<u64>,
) -> (Departures, PipelineReport) {
    let mut pipeline = Pipeline::new(stage(stages).into_iter().collect(), schedule(rate)).changing();
    for (at, what, value) in changes {
        pipeline.plan_change(Time::from_ps(*at), change(what, value));
    }
    let mut source = Frames { frames: frames.to_vec(), next: 0, backlog };
    let mut sink = Notes::default();
    let limits = Limits { duration: until.map(Span::from_ps), window: Span::from_ms(1), asked_gap: None };
    let result = sim::run(&mut source, &mut pipeline, &mut sink, limits, &mut Quiet);
    assert!(result.failure.is_none());
    let report = result.report;
    assert_eq!(report.arrived.frames, report.left.frames + report.drops.total() + report.held, "books balance");
    (sink.0, report)
}

/// Reports only the first difference, which is easier to read than all departures.
fn assert_same(one: &[(u64, u32, u64)], other: &[(u64, u32, u64)], what: &str) {
    let differ = one.iter().zip(other).enumerate().find(|(_, (one, other))| one != other);
    assert!(differ.is_none() && one.len() == other.len(), "{what}: {differ:?}, {} and {}", one.len(), other.len());
}

/// Frames of various lengths that are present from the start, or arrive with various gaps.
fn frames(count: u32, backlog: bool) -> Vec<(u64, u32, usize)> {
    let mut random = Random::stream(3, "frames");
    let mut at = 0;
    (0..count)
        .map(|number| {
            at += if backlog { 0 } else { random.below(2 * US) };
            (at, number, 60 + random.below(1_400) as usize)
        })
        .collect()
}

/// The second run starts at the last departure of the first.
#[test]
fn schedule_that_changes_equals_two_runs_glued_together() {
    let all = frames(4_000, true);
    for (before, after) in [
        ("10us", "3us"),
        ("3us", "10us"),
        ("5Gbps", "100Mbps"),
        ("100Mbps", "9.3Gbps"),
        ("50Mbps wire", "7us"),
        ("1us", "123Mbps ip"),
    ] {
        let at = 2_567 * US + 89;
        let (whole, report) = run(&all, true, ("off", before), &[(at, "schedule", after)], None);
        let (mut glued, _) = run(&all, true, ("off", before), &[], Some(at));
        let (last, ..) = glued.pop().expect("a departure");
        let rest = &all[glued.len()..];
        let (second, _) = run(rest, true, ("off", after), &[], None);
        let from = glued.len();
        glued.extend(second.into_iter().map(|(time, number, hash)| (time + last, number, hash)));
        // If the new setting puts a departure before the change, it happens at the change.
        let late = at.saturating_sub(glued.get(from + 1).map_or(at, |(time, ..)| *time));
        glued.iter_mut().skip(from + 1).for_each(|(time, ..)| *time += late);
        assert_eq!(whole.len(), 4_000, "{before} to {after}");
        assert_same(&whole, &glued, &format!("{before} to {after}"));
        let took: Vec<_> = report.changes.iter().map(|change| change.took_effect_at_ns).collect();
        assert_eq!(took, [Some(Span::from_ps(at).as_ns_f64())]);
        assert_eq!(report.segments.len(), 2);
        let out: u64 = report.segments.iter().map(|segment| segment.left.frames).sum();
        assert_eq!(out, 4_000);
    }
}

#[test]
fn stage_that_changes_equals_two_runs_glued_together() {
    let all = frames(4_000, false);
    let at = 2_000 * US + 17;
    let (first, rest): (Vec<_>, Vec<_>) = all.iter().copied().partition(|(arrival, ..)| *arrival < at);
    for (before, after) in [
        ("delay 20us", "delay 80us"),
        ("off", "delay 35us"),
        ("loss 20%", "loss 1%"),
        ("loss 20%", "off"),
        ("delay 10us", "loss 30%"),
        ("delay 5us", "delay 90us 10us normal"),
        ("limit key dst-ip rate 1Mbps mode police", "netem loss 10% corrupt 5%"),
    ] {
        let (whole, report) = run(&all, false, (before, "off"), &[(at, "stage", after)], None);
        let (mut glued, _) = run(&first, false, (before, "off"), &[], None);
        glued.extend(run(&rest, false, (after, "off"), &[], None).0);
        glued.sort_by_key(|(time, ..)| *time);
        if before == "delay 10us" {
            // Frames of the new stage wait for frames held by the old one.
            let last = first.last().map_or(0, |(arrival, ..)| arrival + 10 * US);
            let new = |number: u32| number as usize >= first.len();
            glued.iter_mut().filter(|(_, number, _)| new(*number)).for_each(|(time, ..)| *time = last.max(*time));
            glued.sort_by_key(|(time, number, _)| (*time, *number));
        }
        assert_eq!(whole.len(), glued.len(), "{before} to {after}");
        assert_same(&whole, &glued, &format!("{before} to {after}"));
        assert_eq!(report.segments[0].arrived.frames, first.len() as u64, "{before} to {after}");
    }
}

#[test]
fn pause_stops_the_clock_of_the_schedule() {
    let all = frames(2_000, true);
    for rate in ["7us", "2Gbps", "burst 1Gbps for 200us every 700us"] {
        let (from, to) = (3_000 * US + 5, 5_500 * US);
        let (plain, _) = run(&all, true, ("off", rate), &[], None);
        let (paused, report) = run(&all, true, ("off", rate), &[(from, "paused", "on"), (to, "paused", "off")], None);
        let shifted: Departures = plain
            .into_iter()
            .map(|(time, number, hash)| (if time < from { time } else { time + to - from }, number, hash))
            .collect();
        assert_same(&paused, &shifted, rate);
        assert_eq!(report.starved, Some(0), "{rate}");
        assert_eq!(report.segments.len(), 3);
        assert_eq!(report.segments[1].left.frames, 0);
    }
}

#[test]
fn pause_without_end_holds_the_rest() {
    let (left, report) = run(&frames(500, true), true, ("off", "1us"), &[(100 * US, "paused", "on")], None);
    assert_eq!(left.len(), 100);
    assert!(report.held > 0);
    let (left, report) = run(&frames(500, false), false, ("off", "off"), &[(100 * US, "paused", "on")], Some(200 * US));
    assert_eq!(left.len() as u64 + report.held, report.arrived.frames);
    assert!(left.iter().all(|(at, ..)| *at < 100 * US));
}

#[test]
fn waveform_starts_at_the_change() {
    let all = frames(3_000, true);
    let at = 1_000 * US + 3;
    let wave = "burst 1Gbps for 50us every 300us";
    let (whole, _) = run(&all, true, ("off", "4us"), &[(at, "schedule", wave)], None);
    let before = whole.iter().take_while(|(time, ..)| *time < at).count();
    let (second, _) = run(&all[before..], true, ("off", wave), &[], None);
    let second: Departures = second.into_iter().map(|(time, number, hash)| (time + at, number, hash)).collect();
    assert_same(&whole[before..], &second, wave);
}

#[test]
fn later_change_revives_a_schedule_that_has_ended() {
    let wave = "burst 1Gbps for 100us every 200us count 1";
    let (left, report) = run(&frames(500, true), true, ("off", wave), &[(5_000 * US, "schedule", "1us")], None);
    assert_eq!((left.len(), report.held), (500, 0));
    assert!(left.iter().all(|(time, ..)| *time < 200 * US || *time >= 5_000 * US));
}

#[test]
fn changes_behind_the_end_are_reported_as_not_reached() {
    let changes = [(10 * US, "schedule", "2us"), (900 * US, "schedule", "3us")];
    let (_, report) = run(&frames(20, true), true, ("off", "1us"), &changes, None);
    let took: Vec<_> = report.changes.iter().map(|change| change.took_effect_at_ns.is_some()).collect();
    assert_eq!(took, [true, false]);
    assert_eq!(report.segments.len(), 2);
    let (_, report) = run(&frames(20, true), true, ("off", "1us"), &changes, Some(1_000 * US));
    assert_eq!(report.segments.len(), 3, "with a time limit, the rest of the time is part of the run");
}

/// A thousand random changes of three classes: no frame is lost, and the same seed gives the same run.
#[test]
fn thousand_random_changes_keep_the_books_balanced() {
    let once = |seed: u64| {
        let mut random = Random::stream(seed, "changes");
        let class = |rule: Option<&str>| Class {
            name: ClassName { name: rule.unwrap_or("default").to_owned(), ..ClassName::default() },
            stages: stage("delay 20us").into_iter().collect(),
            schedule: schedule("off"),
            sync: None,
            buffer: Span::ZERO,
        };
        let rules = ["smac 02:00:00:00:00:00", "smac 02:00:00:00:00:01"].map(|rule| rule.parse().expect(rule));
        let classifier = engine::classes::Classifier::new(&rules.iter().collect::<Vec<_>>()).expect("rules");
        let classes = vec![class(Some("small")), class(Some("medium")), class(None)];
        let mut pipeline = Pipeline::of_classes(classifier, classes, None).changing();
        let mut at = 0;
        for _ in 0..1_000 {
            at += random.below(20 * US);
            let mut next = match random.below(4) {
                0 => {
                    let stages = [
                        "off",
                        "delay 10us",
                        "delay 300us",
                        "delay 50us 20us",
                        "loss 10%",
                        "netem delay 40us duplicate 10%",
                        "reorder 25% hold 30us",
                        "limit key dst-ip rate 500Mbps mode shape",
                    ];
                    change("stage", stages[random.below(stages.len() as u64) as usize])
                }
                1 => change("paused", if random.below(3) == 0 { "on" } else { "off" }),
                _ => {
                    let schedules = ["off", "1us", "5us", "900Mbps", "5Gbps", "burst 2Gbps for 20us every 50us"];
                    change("schedule", schedules[random.below(schedules.len() as u64) as usize])
                }
            };
            let class = random.below(3) as usize;
            next.stages.iter_mut().for_each(|stage| stage.class = class);
            next.departures.iter_mut().for_each(|departure| departure.class = class);
            pipeline.plan_change(Time::from_ps(at), next);
        }
        for class in 0..3 {
            let mut last = change("paused", "off");
            last.departures[0].class = class;
            pipeline.plan_change(Time::from_ps(at + 1), last);
        }
        let mut source = Frames { frames: frames(12_000, false), next: 0, backlog: false };
        let mut sink = Notes::default();
        let limits = Limits { duration: None, window: Span::from_ms(1), asked_gap: None };
        let report = sim::run(&mut source, &mut pipeline, &mut sink, limits, &mut Quiet).report;
        assert!(sink.0.is_sorted_by_key(|(at, ..)| *at));
        (sink.0, report)
    };
    let (left, report) = once(11);
    let sum = |count: fn(&measure::SegmentReport) -> u64| report.segments.iter().map(count).sum::<u64>();
    assert_eq!(report.arrived.frames + report.copies, report.left.frames + report.drops.total() + report.held);
    assert_eq!((report.arrived.frames, report.held), (12_000, 0));
    assert_eq!(sum(|segment| segment.arrived.frames), report.arrived.frames);
    assert_eq!(sum(|segment| segment.left.frames), report.left.frames);
    assert_eq!(sum(|segment| segment.drops.total()), report.drops.total());
    assert_eq!(report.changes.len(), 1_003);
    assert!(report.changes.iter().all(|change| change.took_effect_at_ns == Some(change.asked_at_ns)));
    let (again, _) = once(11);
    assert_same(&left, &again, "again");
}
