//! Creates the changes of settings that running pipelines apply.

use crate::output::{self, Failure};
use crate::plan::request::Request;
use engine::schedules::{Schedule, Target};
use engine::stages::StageConfig;
use engine::{Change, DepartureChange, DepartureSetting, Pipeline, Stage, StageChange};
use measure::{ChangeReport, PipelineReport};
use packet::Frame;
use scenario::{ClassPlan, PipelinePlan, SettingChange, SettingValue, TimelineChange};
use std::collections::BTreeMap;
use units::Time;

/// Reports name this as the author of changes that a scenario asks for.
pub(crate) const TIMELINE: &str = "timeline";

/// Names the random streams of stages that changes create. Stages that follow each other at one position get different
/// names. The first one draws the same numbers as in a run that starts with it.
#[derive(Default)]
pub(crate) struct DrawNames(BTreeMap<(String, usize), usize>);

impl DrawNames {
    fn next(&mut self, draws: &str, stage_index: usize) -> String {
        let times = self.0.entry((draws.to_owned(), stage_index)).or_default();
        *times += 1;
        if *times == 1 { format!("{draws}/{stage_index}") } else { format!("{draws}/{stage_index}/{times}") }
    }
}

/// Creates the stage or schedule of a setting. The path names its random stream.
type Maker<'a, Setting, Part> = &'a dyn Fn(&Setting, &str) -> Result<Box<Part>, Failure>;

/// Creates the stages and schedules of a pipeline.
pub(crate) struct Makers<'a, F> {
    pub(crate) stage: Maker<'a, StageConfig, dyn Stage<F>>,
    pub(crate) schedule: Maker<'a, Target, dyn Schedule>,
}

impl<F> Makers<'_, F> {
    /// Creates a change of a pipeline with `classes` classes. `by` says who asked for it.
    pub(crate) fn change(
        &self,
        change: &SettingChange,
        by: &str,
        classes: usize,
        names: &mut DrawNames,
    ) -> Result<Change<F>, Failure> {
        let asked = vec![ChangeReport {
            path: change.path.clone(),
            value: change.value.clone(),
            by: by.to_owned(),
            ..ChangeReport::default()
        }];
        let mut made = Change { asked, ..Change::default() };
        let of: Vec<usize> = change.class.map_or_else(|| (0..classes).collect(), |class| vec![class]);
        for class in of {
            match &change.to {
                SettingValue::Target(target) => {
                    let to = DepartureSetting::Schedule((self.schedule)(target, &change.draws)?);
                    made.departures.push(DepartureChange { class, to });
                }
                SettingValue::Paused(paused) => {
                    made.departures.push(DepartureChange { class, to: DepartureSetting::Paused(*paused) });
                }
                SettingValue::Stage(stage_index, stage) => {
                    let path = names.next(&change.draws, *stage_index);
                    let stage = stage.as_ref().map(|stage| (self.stage)(stage, &path)).transpose()?;
                    made.stages.push(StageChange { class, stage_index: *stage_index, stage });
                }
            }
        }
        Ok(made)
    }

    /// Plans the changes of a timeline in a pipeline, if there are any.
    pub(crate) fn plan_timeline(
        &self,
        mut pipeline: Pipeline<F>,
        timeline: &[(u64, &TimelineChange)],
        classes: usize,
    ) -> Result<Pipeline<F>, Failure>
    where
        F: Frame,
    {
        if timeline.is_empty() {
            return Ok(pipeline);
        }
        pipeline = pipeline.changing();
        let mut names = DrawNames::default();
        for (number, TimelineChange { at, change }) in timeline {
            let made = Change { number: *number, ..self.change(change, TIMELINE, classes, &mut names)? };
            pipeline.plan_change(Time::ZERO + *at, made);
        }
        Ok(pipeline)
    }
}

/// The timeline of pipeline number `pipeline`, or of its return path if `back`. Changes are numbered from 1 across all
/// pipelines.
pub(crate) fn timeline_of(request: &Request, pipeline: usize, back: bool) -> Vec<(u64, &TimelineChange)> {
    let is_of = |change: &SettingChange| change.pipeline == pipeline && change.back == back;
    (1..).zip(&request.timeline).filter(|(_, entry)| is_of(&entry.change)).collect()
}

/// Whether the timeline sets a target for a pipeline.
pub(crate) fn will_ask(request: &Request, pipeline: usize) -> bool {
    let asks =
        |change: &SettingChange| matches!(&change.to, SettingValue::Target(target) if *target != Target::Nothing);
    timeline_of(request, pipeline, false).iter().any(|(_, entry)| asks(&entry.change))
}

/// Returns the plan with the stages that were in use at the end of the run, for the report.
pub(crate) fn final_plan<'a>(
    plan: &PipelinePlan,
    changes: impl IntoIterator<Item = &'a SettingChange>,
) -> PipelinePlan {
    let mut plan = plan.clone();
    for change in changes {
        let SettingValue::Stage(stage_index, Some(stage)) = &change.to else { continue };
        let stages = match (&mut plan.back, change.back, change.class) {
            (Some(back), true, _) => &mut back.stages,
            (_, _, Some(class)) => match plan.classes.get_mut(class) {
                Some(ClassPlan { stages, .. }) => stages,
                None => &mut plan.stages,
            },
            _ => &mut plan.stages,
        };
        match stages.get_mut(*stage_index) {
            Some(present) => present.clone_from(stage),
            None => stages.push(stage.clone()),
        }
    }
    plan
}

/// Warns about changes that the run did not reach.
pub(crate) fn say_what_was_not_reached(reports: &[PipelineReport]) {
    for report in reports {
        let missed = report.changes.iter().filter(|change| change.took_effect_at_ns.is_none()).count() as u64;
        if let Some(first) = report.changes.iter().find(|change| change.took_effect_at_ns.is_none()) {
            output::warn(format!(
                "{}: the run ended before {}, the first of them {} = {} at {}: give a longer --duration, or change earlier",
                report.name,
                measure::figures::counted(missed, "change"),
                first.path,
                first.value,
                measure::figures::time(first.asked_at_ns)
            ));
        }
    }
}

/// True if the target of departures changed during the run, so that there is no single asked value.
pub(crate) fn changed_target(report: &PipelineReport) -> bool {
    let sets_target = |path: &str| {
        let parts: Vec<&str> = path.rsplit('.').take(2).collect();
        matches!(parts[..], ["rate" | "gap", of] if of != "limit")
    };
    report.changes.iter().any(|change| change.took_effect_at_ns.is_some() && sets_target(&change.path))
}

/// Number of full-size frames that the stages of the timeline may hold, in addition to the stages of the plan. Of the
/// stages at one position, only the largest counts.
#[cfg(feature = "live")]
pub(crate) fn room(request: &Request, plan: &PipelinePlan) -> u64 {
    let mut most: BTreeMap<(bool, Option<usize>, usize), u64> = BTreeMap::new();
    let number = request.pipelines.iter().position(|other| other.name == plan.name);
    for TimelineChange { change, .. } in request.timeline.iter().filter(|entry| Some(entry.change.pipeline) == number) {
        if let SettingValue::Stage(stage_index, Some(stage)) = &change.to {
            let room = most.entry((change.back, change.class, *stage_index)).or_default();
            *room = stage.room().max(*room);
        }
    }
    most.into_values().fold(0, u64::saturating_add)
}

/// Refuses changes of a live pipeline that is split over CPUs, and changes to stages with their own threads.
#[cfg(feature = "live")]
pub(crate) fn check_live(
    plan: &PipelinePlan,
    timeline: &[(u64, &TimelineChange)],
    controlled: bool,
    config: &dataplane::Config,
) -> Result<(), Failure> {
    let line = usize::from(matches!(config.output, dataplane::Device::Line { .. }));
    if (controlled || !timeline.is_empty()) && config.cpus.len() > 1 + line {
        return Err(Failure::new(format!(
            "{}: stages and departures reach a change together, so a pipeline with a timeline or --control has one CPU: name {} with --cores",
            plan.name,
            1 + line
        )));
    }
    let threads = |stage: &StageConfig| matches!(stage, StageConfig::Limit(limit) if dataplane::has_threads(limit));
    if let Some((_, entry)) = timeline.iter().find(|(_, entry)| entry.change.stage().is_some_and(threads)) {
        return Err(Failure::new(format!(
            "timeline: {}: a limit with workers starts threads, which no change can do: write workers 1 and another algorithm than atomic-queue",
            entry.change.path
        )));
    }
    Ok(())
}
