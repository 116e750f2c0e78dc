//! Assigns the CPUs of --cores.

use crate::options::values::Cores;
use crate::output::{self, Failure};
use crate::plan::request::Request;
use dataplane::{Config, Device, Feed, Pacing, has_threads};
use engine::CatchUp;
use engine::schedules::Draw;
use engine::stages::StageConfig;
use scenario::{Pacer, PipelinePlan};

/// Divides the CPUs evenly among the pipelines, in order. Each part of a pipeline gets one CPU. Returns the remaining
/// CPUs of each pipeline, which are for the workers of `limit`.
pub(super) fn place(configs: &mut [Config], request: &Request) -> Result<Vec<Vec<usize>>, Failure> {
    let mut behind = vec![Vec::new(); configs.len()];
    let Some(Cores(cores)) = &request.common.cores else { return Ok(behind) };
    let each = cores.len() / configs.len();
    if each == 0 || !cores.len().is_multiple_of(configs.len()) {
        return Err(Failure::new(format!(
            "--cores: {} CPUs cannot be divided evenly among {} pipelines: name the same number for each",
            cores.len(),
            configs.len()
        )));
    }
    let plans = configs.iter_mut().zip(&mut behind).zip(&request.pipelines);
    for (((config, behind), plan), cores) in plans.zip(cores.chunks(each)) {
        // Without a rate or a stage, frames go directly from the source to the queue.
        let straight = config.pacing == Pacing::AsReady && plan.classes.is_empty() && plan.stages.is_empty();
        let straight = straight && request.listener.hears.is_none();
        let (mut parts, why) = match config.feed {
            Feed::Replay { whole: Some(_), .. } if straight => {
                (vec!["all of it"], ", since a capture that fits in memory is sent from memory")
            }
            _ => parts(plan, request.common.slices.is_some()),
        };
        parts.extend(matches!(config.output, Device::Line { .. }).then_some("the far end of the line"));
        let limits = plan.limits().map(|(_, limit)| limit);
        let workers = limits.filter(|limit| has_threads(limit)).map(|limit| limit.workers).max().unwrap_or(0);
        // The parts of the pipeline come first. Workers get their own CPUs only if there are enough for all.
        let own = if each > workers { each - workers } else { each };
        // Streams are generated on all CPUs, unless one thread must see all frames.
        let streams = matches!(config.feed, Feed::Stream(..));
        let on_queues = streams && (straight || has_shares(config, plan, request));
        if own > parts.len() && !on_queues {
            let beside = match workers {
                0 => String::new(),
                _ => format!(", or {} with the {workers} workers of limit", parts.len() + workers),
            };
            return Err(Failure::new(format!(
                "--cores: pipeline {} has {each} CPUs but only {} part{} ({}){why}: name at most {}{beside}",
                plan.name,
                parts.len(),
                if parts.len() == 1 { "" } else { "s" },
                parts.join(", "),
                parts.len(),
            )));
        }
        if straight && streams && own > 1 && matches!(config.output, Device::Vdev(_)) && !config.output.has_queues() {
            output::note(format!(
                "--cores: {} connects only if its other end has {own} receive queues: name one CPU otherwise",
                plan.output
            ));
        }
        config.cpus = cores[..own].to_vec();
        *behind = cores[own..].to_vec();
    }
    Ok(behind)
}

/// Whether the departures of streams can be divided among the queues, see [`engine::Pipeline::shares`].
fn has_shares(config: &Config, plan: &PipelinePlan, request: &Request) -> bool {
    let deadline = matches!(plan.pacer, Pacer::Auto | Pacer::Deadline) && matches!(config.pacing, Pacing::Deadline(_));
    let bare = config.output.has_queues() && plan.classes.is_empty() && plan.stages.is_empty() && plan.sync.is_none();
    let draw = Draw { seed: request.seed(), path: &plan.name, frames: None };
    let shared = || plan.target.schedule(plan.line, draw).is_ok_and(|schedule| schedule.share(0, 1).is_some());
    deadline && bare && request.common.slices.is_none() && plan.catch_up == CatchUp::All && shared()
}

/// The most parts into which a pipeline can be split, see [`engine::Pipeline::most_parts`], and the reason for the
/// limit.
fn parts(plan: &PipelinePlan, sliced: bool) -> (Vec<&'static str>, &'static str) {
    if sliced && plan.pacer == Pacer::Filler {
        return (vec!["all of it"], ", since with fillers --slices needs the position on the line");
    }
    if plan.all_stages().any(StageConfig::answers) {
        return (
            vec!["receiving and stages", "departures"],
            ", since stages that answer must run on the CPU of the return path",
        );
    }
    let has_classes = !plan.classes.is_empty();
    let mut parts = vec![if sliced && has_classes { "receiving and classes" } else { "receiving" }];
    parts.extend((has_classes && !sliced).then_some("classes"));
    let has_stages = !plan.stages.is_empty() || plan.classes.iter().any(|class| !class.stages.is_empty());
    parts.extend(has_stages.then_some("stages"));
    parts.push("departures");
    (parts, if sliced && has_classes { ", since --slices begins at the classifier" } else { "" })
}
