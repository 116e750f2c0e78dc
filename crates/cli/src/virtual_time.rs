//! Runs pipelines whose ports are all virtual.

use crate::assemble;
use crate::execute::{Outcome, Request};
use crate::limits;
use crate::output::{self, Failure};
use crate::progress::Progress;
use crate::resolution;
use crate::stop::Stop;
use engine::Line;
use engine::schedules::laws::Sampling;
use engine::schedules::{Ask, Draw, Schedule};
use engine::sources::Streams;
use engine::stages::StageConfig;
use measure::PipelineReport;
use packet::{Frame, HeapFrame};
use scenario::{Pacer, PipelinePlan, PortSpec, Replay, SourcePlan, Speed, WireSpec};
use serde_json::{Map, Value, json};
use sim::{
    CaptureReader, Limits, MANY, NullSink, Oddities, PcapSink, PcapSource, ReplaySource, Sink, Source, StreamSource,
    Watch, WireSink,
};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use units::{BitRate, Rate, Share, Span, Time};

/// Runs one pipeline after the other.
pub(crate) fn run(request: &Request, stop: &Stop) -> Result<Outcome, Failure> {
    let mut outcome = Outcome { reports: Vec::new(), limits: Map::new(), failure: None };
    let mut oddities = Oddities::default();
    let mut warnings = Vec::new();
    // Whatever fails should fail before the first file is made.
    let open = |plan| open_source(plan, request.seed());
    let sources = request.pipelines.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    check_files(request)?;
    for (plan, mut source) in request.pipelines.iter().zip(sources) {
        let mut sink = open_sink(plan, source.epoch_ns())?;
        let frames = frames(plan)?;
        let build = |stage: &StageConfig, path: &str| Ok(stage.build(request.seed(), path));
        let mut pipeline = assemble::pipeline(plan, build, |class, ask, path| {
            schedule(plan, ask, path, request.seed(), frames[class])
        })?;
        if let Some(sampling) = assemble::sampling(request, &plan.name, source.is_backlog()) {
            pipeline = pipeline.slicing(&assemble::stage_names(plan), &sampling);
        }
        let logs = request.log(plan, &plan.name, &mut pipeline)?;
        let limits = Limits {
            duration: request.common.duration,
            window: request.common.window,
            asked_gap: plan.ask.fixed_gap().filter(|_| plan.classes.is_empty()),
        };
        let mut watch =
            Onlooker { stop, progress: Progress::new(&request.common, [plan.name.as_str()]), name: &plan.name };
        let run = sim::run(source.as_mut(), &mut pipeline, sink.as_mut(), limits, &mut watch);
        drop(watch);
        for log in logs {
            outcome.failure = outcome.failure.or(log.finish().err());
        }
        let mut report = run.report;
        report.name.clone_from(&plan.name);
        limits::report(plan, &mut report);
        report.pacer = Some(plan.pacer.name());
        for class in &mut report.classes {
            class.pacer = report.pacer;
        }
        if plan.asks_nothing() {
            report.forget_ask();
            if source.is_backlog() && plan.pacer == Pacer::Unpaced {
                // All is there from the start, to go back to back: each waits for the one before, as it should.
                (report.lateness, report.crowded, report.shortfall) = (None, None, None);
            }
        }
        // A model has crowded lines, but no hiccups.
        if let Some(lateness) = &mut report.lateness {
            lateness.hiccups = None;
        }
        warnings.extend(resolution::of_model(plan));
        let Oddities { disordered, made_headers } = source.oddities();
        oddities.disordered += disordered;
        oddities.made_headers += made_headers;
        say_what_did_not_fit(&report);
        outcome.reports.push(report);
        outcome.failure = outcome.failure.or(run.failure.map(Failure::new));
        if outcome.failure.is_some() {
            break;
        }
    }
    resolution::warn(&mut outcome.limits, &warnings);
    outcome.limits.insert("clock".into(), json!("virtual, exact to 1 ps"));
    outcome.limits.insert("capture_stamps".into(), json!("rounded to the nearest ns"));
    note_oddities(oddities, &mut outcome.limits);
    Ok(outcome)
}

/// Says which records of captures were not as one would expect, if any were.
pub(crate) fn note_oddities(Oddities { disordered, made_headers }: Oddities, limits: &mut Map<String, Value>) {
    if disordered > 0 {
        limits.insert("disordered_records".into(), json!(disordered));
        output::note(format!(
            "{disordered} records of the capture are stamped before the record ahead of them; they arrived together with it"
        ));
    }
    if made_headers > 0 {
        limits.insert("made_headers".into(), json!(made_headers));
        output::note(format!(
            "{} of the capture came without an Ethernet header, and got one: of hardware addresses, the sender's was known at most",
            output::counted(made_headers, "record")
        ));
    }
}

/// Gaps or rates that the frames do not fit in are said, not only counted.
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
        Some(shortfall) => output::note(format!(
            "{name}: the frames do not fit in what was asked: {crowded}, {:.4} % of the ask was obtained",
            shortfall.obtained_share * 100.0
        )),
        // Classes that share a line wait for each other now and then: that is in the report, and no fault.
        None if !crowded.is_empty() && report.pacer != Some("none") && report.classes.is_empty() => {
            output::note(format!("{name}: {crowded}; later ones made it good"));
        }
        None => {}
    }
    if let Some(share) = report.forfeited_share.filter(|share| *share > 0.0) {
        output::note(format!(
            "{name}: {:.4} % of the waveform was forfeited, since no frame was ready for it",
            share * 100.0
        ));
    }
}

fn open_source(plan: &PipelinePlan, seed: u64) -> Result<Box<dyn Source>, Failure> {
    match &plan.source {
        SourcePlan::Port(PortSpec::Pcap(path)) => Ok(Box::new(PcapSource::open(path).map_err(Failure::new)?)),
        SourcePlan::Port(port) => Err(Failure::new(format!("{port} is no input of a virtual run"))),
        SourcePlan::Streams { specs, first, count, .. } => {
            let streams = Streams::new(specs, seed, *first).map_err(Failure::new)?;
            Ok(Box::new(StreamSource::new(streams, count.unwrap_or(u64::MAX))))
        }
        SourcePlan::Replay(replay) => Ok(Box::new(open_replay(replay).map_err(Failure::new)?)),
    }
}

/// A capture that is sent again; at the most, all of its frames are there from the start.
pub(crate) fn open_replay(replay: &Replay) -> Result<ReplaySource, sim::SimError> {
    let speed = replay.speed;
    let scale = (speed != Speed::Most).then(|| Box::new(move |span| speed.scale(span)) as Box<_>);
    ReplaySource::open(&replay.path, replay.times, scale, replay.rewrite.clone())
}

fn open_sink(plan: &PipelinePlan, epoch_ns: u64) -> Result<Box<dyn Sink>, Failure> {
    Ok(match &plan.output {
        PortSpec::Pcap(path) => Box::new(PcapSink::create(path, epoch_ns).map_err(Failure::new)?),
        PortSpec::Wire(wire) => Box::new(open_wire(plan, wire, epoch_ns).map_err(Failure::new)?),
        PortSpec::Null => Box::new(NullSink),
        port => return Err(Failure::new(format!("{port} is no output of a virtual run"))),
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

/// How late a departure may be and still count as on time: the steps of a line, or of a clock.
pub(crate) fn tolerance(plan: &PipelinePlan) -> Span {
    match (plan.pacer, plan.line) {
        // Where fillers do not fit, 42 byte times are carried.
        (Pacer::Filler | Pacer::LaunchTime, Some(line)) => line.span(43),
        _ => Span::from_us(1),
    }
}

fn schedule(
    plan: &PipelinePlan,
    ask: &Ask,
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
    // A file has no line: frames are back to back as on a common one.
    let back_to_back = Ask::Rate(Rate::Line(Share::ONE));
    let (ask, line) = if stream_into_file && *ask == Ask::Nothing {
        (&back_to_back, Some(Line::new(BitRate::from_gbps(10))))
    } else {
        (ask, plan.output.line())
    };
    ask.schedule(line, Draw { seed, path, frames }).map_err(|error| Failure::new(format!("{}: {error}", plan.name)))
}

/// How many frames of each class will come, where that is asked for and can be told: strata span the
/// whole run.
pub(crate) fn frames(plan: &PipelinePlan) -> Result<Vec<Option<u64>>, Failure> {
    let stratified = |ask: &Ask| matches!(ask, Ask::Law(law) if law.sampling == Sampling::Stratified);
    let asks = plan.classes.iter().map(|class| &class.ask).chain([&plan.ask]);
    let counted = asks.clone().any(stratified);
    let mut records = vec![0_u64; plan.classes.len() + 1];
    let mut frame = HeapFrame::default();
    // What is no file (a pipe) can be read once only. A capture that breaks off is told by the run itself.
    match &plan.source {
        SourcePlan::Streams { count, .. } if plan.classes.is_empty() => return Ok(vec![*count]),
        SourcePlan::Port(PortSpec::Pcap(path)) if counted && path.is_file() => {
            let mut reader = CaptureReader::open(path).map_err(Failure::new)?;
            let mut classifier = assemble::classifier(plan)?;
            while let Ok(Some(_)) = reader.read(&mut frame) {
                records[classifier.class(frame.bytes())] += 1;
            }
        }
        SourcePlan::Replay(replay) if counted && replay.path.is_file() => {
            let mut source = open_replay(&Replay { times: 1, ..replay.clone() }).map_err(Failure::new)?;
            let mut classifier = assemble::classifier(plan)?;
            while source.arrival().is_some() {
                source.take(&mut frame);
                let class = &mut records[classifier.class(frame.bytes())];
                *class = class.saturating_add(replay.times);
            }
        }
        _ => return Ok(vec![None; plan.classes.len() + 1]),
    }
    Ok(records.into_iter().map(Some).collect())
}

/// Outputs have a place, and no file is written twice, or read and written.
pub(crate) fn check_files(request: &Request) -> Result<(), Failure> {
    let mut inputs: Vec<&Path> = request.read.iter().map(PathBuf::as_path).collect();
    let mut outputs: Vec<&Path> = request.decisions.iter().map(PathBuf::as_path).collect();
    for plan in &request.pipelines {
        match &plan.source {
            SourcePlan::Port(PortSpec::Pcap(path)) | SourcePlan::Replay(Replay { path, .. }) => inputs.push(path),
            SourcePlan::Port(_) | SourcePlan::Streams { .. } => {}
        }
        match &plan.output {
            PortSpec::Pcap(path) => outputs.push(path),
            PortSpec::Wire(wire) => outputs.extend(wire.pcap.iter().chain(&wire.frames).map(|path| path.as_path())),
            PortSpec::Line(line) => outputs.extend(line.frames.iter().map(|path| path.as_path())),
            _ => {}
        }
    }
    for (i, output) in outputs.iter().enumerate() {
        let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let place = if output.is_dir() { Err(ErrorKind::IsADirectory.into()) } else { folder.metadata() };
        place.map_err(|cause| Failure::new(sim::SimError::Write { path: output.to_path_buf(), cause }))?;
        // Devices such as /dev/null may be written by many.
        let special = std::fs::metadata(output).is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
        if !special
            && (outputs[..i].iter().any(|other| same(output, other)) || inputs.iter().any(|input| same(output, input)))
        {
            return Err(Failure::new(format!(
                "{} would be overwritten while it is in use: name another output",
                output.display()
            )));
        }
    }
    Ok(())
}

/// True if two names are of one file, also of one that is not there yet or has several names.
pub(crate) fn same(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    if let (Ok(a), Ok(b)) = (a.metadata(), b.metadata()) {
        return (a.dev(), a.ino()) == (b.dev(), b.ino());
    }
    let resolved = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        folder.canonicalize().ok().zip(path.file_name()).map(|(folder, name)| folder.join(name))
    };
    resolved(a).is_some_and(|a| resolved(b) == Some(a))
}

/// Shows how far a run is, and ends it when the user wants.
struct Onlooker<'a> {
    stop: &'a Stop,
    progress: Progress,
    name: &'a str,
}

impl Watch for Onlooker<'_> {
    fn go_on(&mut self, frames: u64, now: Time) -> bool {
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
        output::note(format!(
            "{}: more than {} frames are held in memory, which a live run could not: stages, sync, several classes and follow-depth take all that came up to the next departure; raise the rate, or take a part of the capture",
            self.name,
            output::thousands(MANY)
        ));
    }
}
