//! Runs pipelines whose ports are all virtual.

use crate::output::{self, Failure};
use crate::plan::capture_anomalies;
use crate::plan::request::Request;
use crate::render::progress::Progress;
use crate::run::asked_rates;
use crate::run::assemble;
use crate::run::changes::{self, Makers};
use crate::run::control::Control;
use crate::run::decision_log;
use crate::run::outcome::Outcome;
use crate::run::resolution;
use crate::run::stop::Stop;
use crate::run::user_limits;
use engine::Line;
use engine::schedules::{Draw, Schedule, Target};
use engine::stages::StageConfig;
use measure::{Caveat, CaveatKind, ClockSource, PipelineReport};
use scenario::{Pacer, PipelinePlan, PortSpec, SourcePlan, Speed, WireSpec};
use sim::{
    CaptureAnomalies, Limits, MANY, MergedSource, NullSink, Observer, PcapSink, PcapSource, Sink, Source, StreamSource,
    WhenFull, WireSink,
};
use units::{BitRate, Rate, Share, Time};

/// Runs one pipeline after the other.
pub(crate) fn run(request: &Request, stop: &Stop, control: Option<&Control>) -> Result<Outcome, Failure> {
    let mut outcome = Outcome { reports: Vec::new(), caveats: Vec::new(), clocks: Vec::new(), failure: None };
    let mut anomalies = CaptureAnomalies::default();
    let mut warnings = Vec::new();
    // Sources that cannot be opened fail before the first file is created.
    let open = |plan| open_source(plan, request.seed());
    let sources = request.pipelines.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    request.check_files()?;
    for ((number, plan), mut source) in request.pipelines.iter().enumerate().zip(sources) {
        let (mut report, failure) = run_one((number, plan), source.as_mut(), request, stop, control)?;
        warnings.extend(resolution::of_model(plan, &report));
        if let Some(odd) = source.anomalies() {
            warnings.extend(capture_anomalies::warnings(&plan.name, odd));
            report.skipped = odd.skipped_by_name();
            anomalies += odd;
        }
        say_what_did_not_fit(&report);
        asked_rates::say_what_was_forfeited(&report);
        asked_rates::put_beside(plan, &mut report);
        if let Some(control) = control {
            control.pipeline_ends(&report);
        }
        outcome.reports.push(report);
        outcome.failure = failure;
        if outcome.failure.is_some() {
            break;
        }
    }
    if request.pipelines.is_empty() {
        return Ok(outcome);
    }
    resolution::warn(&mut outcome.caveats, warnings);
    let always = [CaveatKind::Clock { source: ClockSource::Virtual }, CaveatKind::CaptureStamps];
    outcome.caveats.extend(always.map(Caveat::new));
    resolution::note_anomalies(&anomalies, &mut outcome.caveats);
    Ok(outcome)
}

/// Runs a pipeline to its end. Returns its report, and the failure that ended it early, if any.
fn run_one(
    (number, plan): (usize, &PipelinePlan),
    source: &mut dyn Source,
    request: &Request,
    stop: &Stop,
    control: Option<&Control>,
) -> Result<(PipelineReport, Option<Failure>), Failure> {
    let mut sink = open_sink(plan, source.epoch_ns())?;
    let frames = assemble::frames(plan)?;
    let build = |stage: &StageConfig, path: &str| Ok(stage.build(request.seed(), path));
    let mut pipeline =
        assemble::pipeline(plan, build, |class, ask, path| schedule(plan, ask, path, request.seed(), frames[class]))?;
    let timeline = changes::timeline_of(request, number, false);
    let later = |ask: &Target, path: &str| schedule(plan, ask, path, request.seed(), None);
    let makers = Makers { stage: &build, schedule: &later };
    pipeline = makers.plan_timeline(pipeline, &timeline, plan.classes.len() + 1)?;
    if let Some(sampling) = assemble::sampling(request, &plan.name, source.is_backlog()) {
        pipeline = pipeline.slicing(&assemble::stage_names(plan), &sampling);
    }
    let logs = decision_log::attach(request, plan, &plan.name, &mut pipeline, WhenFull::Wait)?;
    let limits = Limits {
        duration: request.common.duration,
        window: request.common.window,
        asked_gap: plan.target.fixed_gap().filter(|_| plan.classes.is_empty()),
    };
    let mut watch = ProgressObserver {
        stop,
        control,
        progress: Progress::new(request.common.shows_progress(), [plan.name.as_str()]),
        name: &plan.name,
    };
    let run = sim::run(source, &mut pipeline, sink.as_mut(), limits, &mut watch);
    drop(watch);
    let mut failure = None;
    for log in logs {
        failure = failure.or(log.finish().err());
    }
    if run.failure.is_none() {
        for lack in sink.lacks() {
            output::warn_of_lacks(&lack.path, lack.records, lack.are);
        }
    }
    let mut report = run.report;
    if let Some(class) = run.outpaced.and_then(|class| report.classes.get(class as usize)) {
        output::warn(format!(
            "{}: class '{}' had to wait for its frames, because the read-ahead held only frames of another class: give \
             each class streams of its own, or streams weights in proportion to the rates of their classes",
            plan.name, class.name
        ));
    }
    report.name.clone_from(&plan.name);
    let last = changes::final_plan(plan, timeline.iter().map(|(_, entry)| &entry.change));
    user_limits::report(&last, &mut report);
    report.set_pacer(plan.pacer.name());
    if plan.asks_nothing() && !changes::will_ask(request, number) {
        report.forget_ask();
        if source.is_backlog() && plan.pacer == Pacer::Unpaced {
            // All frames are present from the start and leave back to back, so waiting for the preceding frame is
            // intended.
            (report.lateness, report.crowded, report.shortfall) = (None, None, None);
        }
    }
    // Departures of a model can wait for the line, but there are no hiccups.
    let classes = report.classes.iter_mut().filter_map(|class| class.lateness.as_mut());
    for lateness in classes.chain(&mut report.lateness) {
        lateness.hiccups = None;
    }
    Ok((report, failure.or(run.failure.map(Failure::new))))
}

/// Warns about gaps or rates that are too small for the frames.
fn say_what_did_not_fit(report: &PipelineReport) {
    let name = &report.name;
    let crowded = report.crowded.filter(|crowded| *crowded > 0).map_or(String::new(), |crowded| {
        format!(
            "{} of {} departures waited for the frame before to leave the line",
            output::thousands(crowded),
            output::thousands(report.left.frames)
        )
    });
    match &report.shortfall {
        Some(shortfall) => output::warn(format!(
            "{name}: the frames do not fit in what was asked: {crowded}, {:.4} % of the ask was obtained",
            shortfall.obtained_ratio * 100.0
        )),
        // Classes that share a line sometimes wait for each other. The report shows it, so it needs no warning.
        None if !crowded.is_empty() && report.pacer != Some("none") && report.classes.is_empty() => {
            output::warn(format!("{name}: {crowded}; later departures caught up"));
        }
        None => {}
    }
}

fn open_source(plan: &PipelinePlan, seed: u64) -> Result<Box<dyn Source>, Failure> {
    match &plan.source {
        SourcePlan::Port(PortSpec::Pcap(_)) if !plan.more_inputs.is_empty() => {
            let paths: Vec<_> = plan.captures().collect();
            Ok(Box::new(MergedSource::open(&paths).map_err(Failure::new)?))
        }
        SourcePlan::Port(PortSpec::Pcap(path)) => Ok(Box::new(PcapSource::open(path).map_err(Failure::new)?)),
        SourcePlan::Port(port) => Err(Failure::new(format!("{port} cannot be the input of a virtual run"))),
        SourcePlan::Streams { specs, first, count, .. } => {
            let streams = assemble::streams(plan, specs, seed, *first)?;
            Ok(Box::new(StreamSource::new(streams, count.unwrap_or(u64::MAX))))
        }
        SourcePlan::Replay(replay) => Ok(Box::new(assemble::open_replay(replay).map_err(Failure::new)?)),
    }
}

fn open_sink(plan: &PipelinePlan, epoch_ns: u64) -> Result<Box<dyn Sink>, Failure> {
    Ok(match &plan.output {
        PortSpec::Pcap(path) => Box::new(PcapSink::create(path, epoch_ns).map_err(Failure::new)?),
        PortSpec::Wire(wire) => Box::new(open_wire(plan, wire, epoch_ns).map_err(Failure::new)?),
        PortSpec::Null => Box::new(NullSink),
        port => return Err(Failure::new(format!("{port} cannot be an output of a virtual run"))),
    })
}

fn open_wire(plan: &PipelinePlan, wire: &WireSpec, epoch_ns: u64) -> Result<WireSink, sim::SimError> {
    let line = Line::new(wire.rate);
    let mut sink = match plan.pacer {
        Pacer::Filler => WireSink::filled(line, plan.filler.kind, plan.filler.align, plan.filler.longest),
        _ => WireSink::idle(line),
    };
    if wire.deficit_idle_count {
        sink.count_deficit_idle();
    }
    if wire.keep_fillers {
        sink.keep_fillers();
    }
    if let Some(path) = &wire.pcap {
        sink.capture(path, epoch_ns)?;
    }
    if let Some(path) = &wire.frames {
        sink.list(path)?;
    }
    Ok(sink)
}

fn schedule(
    plan: &PipelinePlan,
    ask: &Target,
    path: &str,
    seed: u64,
    frames: Option<u64>,
) -> Result<Box<dyn Schedule>, Failure> {
    let all_there = match &plan.source {
        SourcePlan::Streams { .. } => true,
        SourcePlan::Replay(replay) => replay.speed == Speed::Most,
        SourcePlan::Port(_) => false,
    };
    let stream_into_file = all_there && matches!(plan.output, PortSpec::Pcap(_) | PortSpec::Null);
    // A file has no line, so back-to-back frames use 10 Gbit/s, a common line rate.
    let back_to_back = Target::Rate(Rate::Line(Share::ONE));
    let (ask, line) = if stream_into_file && *ask == Target::Nothing {
        (&back_to_back, Some(Line::new(BitRate::from_gbps(10))))
    } else {
        (ask, plan.output.line())
    };
    ask.schedule(line, Draw { seed, path, frames }).map_err(|error| Failure::new(format!("{}: {error}", plan.name)))
}

/// Shows the progress of a run, and ends it when the user asks.
struct ProgressObserver<'a> {
    stop: &'a Stop,
    control: Option<&'a Control>,
    progress: Progress,
    name: &'a str,
}

impl Observer for ProgressObserver<'_> {
    fn go_on(&mut self, frames: u64, now: Time) -> bool {
        if let Some(control) = self.control {
            control.reaches(self.name, frames, now);
        }
        if self.progress.is_due() {
            let passed = self.progress.passed();
            self.progress.say(
                0,
                format!(
                    "{} s  {} of virtual time  {:.2} million frames a second  {} out",
                    passed.as_secs(),
                    output::brief(now.as_ps() as f64 / 1_000.0),
                    frames as f64 / passed.as_secs_f64().max(1e-3) / 1e6,
                    output::thousands(frames)
                ),
            );
        }
        !self.stop.asked()
    }

    fn holds_many(&mut self) {
        output::warn(format!(
            "{}: more than {} frames are held in memory, which a live run could not do: stages, sync, several classes and follow-depth read all frames up to the next departure; raise the rate, or use a part of the capture",
            self.name,
            output::thousands(MANY)
        ));
    }
}
