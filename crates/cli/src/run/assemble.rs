//! Builds the pipeline of a plan, in virtual time and live: stages, schedules, classes and replay.

use crate::options::values::TraceInterval;
use crate::output::Failure;
use crate::plan::files;
use crate::plan::request::Request;
use engine::classes::{Classifier, Rule, classes_of_streams};
use engine::schedules::laws::Sampling as LawSampling;
use engine::schedules::{Schedule, Target};
use engine::slices::Sampling;
use engine::sources::{StreamSpec, Streams};
use engine::stages::StageConfig;
use engine::{Class, ClassName, Pipeline, Stage};
use packet::{Frame, HeapFrame};
use scenario::{ClassPlan, Pacer, PipelinePlan, PortSpec, Replay, SourcePlan, Speed};
use sim::{CaptureReader, Pauses, ReplaySource, Source};
use units::Span;

/// Builds the pipeline of a plan. `build` creates a stage from its configuration and the path that names its random
/// stream. `schedule` creates the schedule of a class from the number of the class, its target and the path of its
/// random stream.
pub(crate) fn pipeline<F: Frame + Send + 'static>(
    plan: &PipelinePlan,
    build: impl Fn(&StageConfig, &str) -> Result<Box<dyn Stage<F>>, Failure>,
    schedule: impl Fn(usize, &Target, &str) -> Result<Box<dyn Schedule>, Failure>,
) -> Result<Pipeline<F>, Failure> {
    let stages = |configs: &[StageConfig], path: &str| stages(configs, path, &build);
    let default = (stages(&plan.stages, &plan.name)?, schedule(plan.classes.len(), &plan.target, &plan.name)?);
    let pipeline = if plan.classes.is_empty() {
        let pipeline = Pipeline::new(default.0, default.1).buffering(plan.buffer);
        match &plan.sync {
            Some(sync) => pipeline.synchronising(sync.clone(), plan.line),
            None => pipeline,
        }
    } else {
        let mut classes = Vec::new();
        for (i, class) in plan.classes.iter().enumerate() {
            let ClassPlan { name, rule, target: ask, stages: configs, sync, buffer } = class;
            // Only the default class uses the bare name of the plan, so it draws the same numbers with and without
            // other classes.
            let path = format!("{}/{name}", plan.name);
            let schedule = schedule(i, ask, &path)?;
            let name = class_name(name, Some(rule), ask);
            classes.push(Class {
                name,
                stages: stages(configs, &path)?,
                schedule,
                sync: sync.clone(),
                buffer: *buffer,
            });
        }
        let name = class_name(&plan.default_class, None, &plan.target);
        let (stages, schedule) = default;
        classes.push(Class { name, stages, schedule, sync: plan.sync.clone(), buffer: plan.buffer });
        Pipeline::of_classes(classifier(plan)?, classes, plan.line)
    };
    Ok(pipeline.catching_up(plan.catch_up, tolerance(plan)))
}

/// Builds stages. The random stream of each stage is named by `path` and the index of the stage.
pub(crate) fn stages<F: Frame>(
    configs: &[StageConfig],
    path: &str,
    build: impl Fn(&StageConfig, &str) -> Result<Box<dyn Stage<F>>, Failure>,
) -> Result<Vec<Box<dyn Stage<F>>>, Failure> {
    configs.iter().enumerate().map(|(i, stage)| build(stage, &format!("{path}/{i}"))).collect()
}

/// Selects the frames of the pipeline or direction `name` to trace, if tracing was asked. `backlog` says that all
/// frames are present from the start.
pub(crate) fn sampling(request: &Request, name: &str, backlog: bool) -> Option<Sampling> {
    let TraceInterval(every) = request.common.slices?;
    let listener = request.listener.hears.as_ref().map(|hears| hears(name));
    Some(Sampling { every, seed: request.seed(), backlog, listener })
}

/// The stage names of each class, which are also the names of their slices. The default class is last.
pub(crate) fn stage_names(plan: &PipelinePlan) -> Vec<Vec<String>> {
    let classes = plan.classes.iter().map(|class| &class.stages).chain([&plan.stages]);
    classes.map(|stages| names(stages)).collect()
}

/// The kinds of `stages`, which are also the names of their slices.
pub(crate) fn names(stages: &[StageConfig]) -> Vec<String> {
    let kind = |stage: &StageConfig| stage.to_string().split(' ').next().unwrap_or_default().to_owned();
    stages.iter().map(kind).collect()
}

/// Builds the streams of a plan, numbered from `first`. If every stream belongs to one class with a rate or a gap, and
/// frames wait only for their schedules, the schedules determine which stream is next.
pub(crate) fn streams(plan: &PipelinePlan, specs: &[StreamSpec], seed: u64, first: u16) -> Result<Streams, Failure> {
    let streams = Streams::new(specs, seed, first).map_err(Failure::new)?;
    let asks: Vec<&Target> = plan.classes.iter().map(|class| &class.target).chain([&plan.target]).collect();
    let bare = |class: &ClassPlan| class.stages.is_empty() && class.sync.is_none();
    let waits = !plan.stages.is_empty() || plan.sync.is_some() || !plan.classes.iter().all(bare);
    if specs.len() == 1 || plan.classes.is_empty() || waits {
        return Ok(streams);
    }
    let rules: Vec<&Rule> = plan.classes.iter().map(|class| &class.rule).collect();
    let classes = classes_of_streams(specs, &rules);
    let asked = classes.filter(|classes| classes.iter().all(|class| *asks[*class] != Target::Nothing));
    Ok(match asked {
        Some(classes) => streams.paced_by(classes),
        None => streams,
    })
}

/// Builds the classifier of a plan.
pub(crate) fn classifier(plan: &PipelinePlan) -> Result<Classifier, Failure> {
    let rules: Vec<&Rule> = plan.classes.iter().map(|class| &class.rule).collect();
    Classifier::new(&rules).map_err(|_| Failure::new(format!("{}: a class can never match", plan.name)))
}

fn class_name(name: &str, rule: Option<&Rule>, ask: &Target) -> ClassName {
    ClassName {
        name: name.to_owned(),
        rule: rule.map(ToString::to_string),
        asked_gap: ask.fixed_gap(),
        free: *ask == Target::Nothing,
    }
}

/// The largest lateness that counts as on time. It follows from the resolution of the pacer.
fn tolerance(plan: &PipelinePlan) -> Span {
    match (plan.pacer, plan.line) {
        // A plan with fillers is off by up to 42 byte times (see `engine::filler`), plus rounding.
        (Pacer::Filler | Pacer::LaunchTime, Some(line)) => line.span(43),
        _ => Span::from_us(1),
    }
}

/// Opens a replayed capture. At maximum speed, all of its frames are present from the start.
pub(crate) fn open_replay(replay: &Replay) -> Result<ReplaySource, sim::SimError> {
    let speed = replay.speed;
    let scale = (speed != Speed::Most).then(|| Box::new(move |span| speed.scale(span)) as Box<_>);
    let pauses = Pauses { loop_gap: replay.loop_gap, max_gap: replay.max_gap };
    let often = (replay.rounds(), replay.count.unwrap_or(u64::MAX));
    ReplaySource::open(&replay.path, often, scale, pauses, replay.rewrite.clone())
}

/// The number of frames of each class, if it is needed and known. Stratified laws need it, because their strata span
/// the whole run.
pub(crate) fn frames(plan: &PipelinePlan) -> Result<Vec<Option<u64>>, Failure> {
    let stratified = |ask: &Target| matches!(ask, Target::Law(law) if law.sampling == LawSampling::Stratified);
    let asks = plan.classes.iter().map(|class| &class.target).chain([&plan.target]);
    let counted = asks.clone().any(stratified);
    let mut records = vec![0_u64; plan.classes.len() + 1];
    let mut frame = HeapFrame::default();
    // A pipe can be read only once, so its frames are not counted. Read errors are ignored here, because the run itself
    // reports a truncated capture.
    match &plan.source {
        SourcePlan::Streams { count, .. } if plan.classes.is_empty() => return Ok(vec![*count]),
        SourcePlan::Port(PortSpec::Pcap(_)) if counted && plan.captures().all(files::is_read_again) => {
            let mut classifier = classifier(plan)?;
            for path in plan.captures() {
                let mut reader = CaptureReader::open(path).map_err(Failure::new)?;
                while let Ok(Some(_)) = reader.read(&mut frame) {
                    records[classifier.class(frame.bytes())] += 1;
                }
            }
        }
        SourcePlan::Replay(replay) if counted && !replay.is_endless() && files::is_read_again(&replay.path) => {
            // All rounds are equal, unless the last one ends early.
            let (read, rounds) = if replay.count.is_some() { (replay.times, 1) } else { (1, replay.times) };
            let mut source = open_replay(&Replay { times: read, ..replay.clone() }).map_err(Failure::new)?;
            let mut classifier = classifier(plan)?;
            while source.arrival().is_some() {
                source.take(&mut frame);
                let class = &mut records[classifier.class(frame.bytes())];
                *class = class.saturating_add(rounds);
            }
        }
        _ => return Ok(vec![None; plan.classes.len() + 1]),
    }
    Ok(records.into_iter().map(Some).collect())
}
