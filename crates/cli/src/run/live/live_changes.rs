//! Changes of live pipelines: checked and built here, applied by the workers between two frames.

use crate::output::Failure;
use crate::plan::files::OnDisk;
use crate::plan::request::Request;
use crate::run::changes::{DrawNames, Makers};
use dataplane::{ChangeReceiver, ChangeSender, change_queue, has_threads};
use dpdk::Mbuf;
use engine::Line;
use engine::schedules::{Draw, Target};
use engine::stages::StageConfig;
use scenario::{PipelinePlan, SettingChange, SettingValue, Settings};
use service::control::{Accepted, AppliedChange, Change, Changes, Refusal, Setting};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use units::{PS_PER_NS, ParseError, Span};

/// The settings of the pipelines of a live run, and the queues to their workers.
pub(super) struct LiveChanges(Mutex<State>);

struct State {
    seed: u64,
    /// A decision log numbers the frames of one stage, so changes of stages are refused.
    logs_decisions: bool,
    /// The settings with all accepted changes. `present` has only the changes that took effect.
    accepted: Settings,
    present: Settings,
    directions: Vec<Direction>,
    names: DrawNames,
    number: u64,
    planned: BTreeMap<u64, Planned>,
    applied: Vec<AppliedChange>,
    done: Vec<SettingChange>,
}

/// A pipeline or return path.
struct Direction {
    name: String,
    pipeline: usize,
    back: bool,
    line: Option<Line>,
    classes: usize,
    sender: ChangeSender,
}

/// An accepted change that has not taken effect in all directions.
struct Planned {
    settings: Vec<SettingChange>,
    asked_at_ns: u64,
    by: String,
    /// Directions that have not applied it yet.
    left: usize,
    took_effect_at_ns: u64,
}

impl LiveChanges {
    /// Creates the changes of a run. Those of its timeline have the first numbers.
    pub(super) fn new(request: &Request) -> Self {
        let settings = Settings::of(&request.pipelines);
        let mut accepted = settings.clone();
        let mut planned = BTreeMap::new();
        for (number, entry) in (1..).zip(&request.timeline) {
            accepted.apply(&entry.change);
            let planned_at = entry.at.as_ps() / PS_PER_NS;
            let by = crate::run::changes::TIMELINE.to_owned();
            let settings = vec![entry.change.clone()];
            planned.insert(number, Planned { settings, asked_at_ns: planned_at, by, left: 1, took_effect_at_ns: 0 });
        }
        LiveChanges(Mutex::new(State {
            seed: request.seed(),
            logs_decisions: request.decisions.is_some(),
            accepted,
            present: settings,
            directions: Vec::new(),
            names: DrawNames::default(),
            number: request.timeline.len() as u64,
            planned,
            applied: Vec::new(),
            done: Vec::new(),
        }))
    }

    /// Creates a queue to the worker of a pipeline, or of its return path if `back`.
    pub(super) fn queue(&self, pipeline: usize, plan: &PipelinePlan, back: bool) -> ChangeReceiver {
        let (sender, receiver) = change_queue();
        let name = plan.back.as_ref().filter(|_| back).map_or(&plan.name, |back| &back.name).clone();
        let (line, classes) = if back { (None, 1) } else { (plan.line, plan.classes.len() + 1) };
        self.state().directions.push(Direction { name, pipeline, back, line, classes, sender });
        receiver
    }

    /// Records changes that took effect, and drops what they replaced.
    pub(super) fn collect(&self) {
        self.state().collect();
    }

    /// The changes of a pipeline that have taken effect.
    pub(super) fn done(&self, pipeline: usize) -> Vec<SettingChange> {
        let mut state = self.state();
        state.collect();
        state.done.iter().filter(|change| change.pipeline == pipeline).cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn collect(&mut self) {
        let mut reached = Vec::new();
        for direction in &mut self.directions {
            for spent in direction.sender.spent() {
                let took =
                    |change: &engine::Change<Mbuf>| Some((change.number, change.took_effect?.as_ps() / PS_PER_NS));
                reached.extend(spent.changes.iter().filter_map(took));
            }
        }
        reached.sort_by_key(|(_, at)| *at);
        for (number, at) in reached {
            let Some(planned) = self.planned.get_mut(&number) else { continue };
            planned.left = planned.left.saturating_sub(1);
            planned.took_effect_at_ns = planned.took_effect_at_ns.max(at);
            if planned.left > 0 {
                continue;
            }
            let Some(Planned { settings, asked_at_ns, by, took_effect_at_ns, .. }) = self.planned.remove(&number)
            else {
                continue;
            };
            settings.iter().for_each(|setting| self.present.apply(setting));
            let set = settings.iter().map(|setting| (setting.path.clone(), setting.value.clone())).collect();
            self.applied.push(AppliedChange { number, set, asked_at_ns, took_effect_at_ns, by });
            self.done.extend(settings);
        }
    }

    fn change(&mut self, change: &Change) -> Result<Accepted, Refusal> {
        self.collect();
        if change.set.is_empty() {
            return Err(Refusal::invalid("set", "nothing is set", "name a path and its value"));
        }
        let mut accepted = self.accepted.clone();
        let mut settings = Vec::new();
        for (path, value) in &change.set {
            let setting = accepted.check(path, value, Some(&OnDisk)).map_err(|error| refusal(path, &error))?;
            if self.logs_decisions && matches!(setting.to, SettingValue::Stage(..)) {
                return Err(Refusal::unsupported(
                    format!("{path}: --decisions logs what one setting of the stages did"),
                    "change rates, gaps and pauses alone, or start the run without --decisions",
                ));
            }
            let threads = |stage: &StageConfig| matches!(stage, StageConfig::Limit(limit) if has_threads(limit));
            if setting.stage().is_some_and(threads) {
                let remedy = "write workers 1 and another algorithm than atomic-queue";
                return Err(Refusal::invalid(
                    path,
                    "a limit with workers starts threads, which no change can do",
                    remedy,
                ));
            }
            accepted.apply(&setting);
            settings.push(setting);
        }
        // Builds all parts before sending any, so that a change is applied completely or not at all.
        let number = self.number + 1;
        let mut made: Vec<(usize, engine::Change<Mbuf>)> = Vec::new();
        for setting in &settings {
            let is_of = |of: &Direction| of.pipeline == setting.pipeline && of.back == setting.back;
            let Some(direction) = self.directions.iter().position(is_of) else {
                return Err(Refusal::unsupported("this direction takes no changes", "change another setting"));
            };
            let Direction { line, classes, .. } = self.directions[direction];
            let seed = self.seed;
            let stage = |config: &StageConfig, path: &str| Ok(config.build::<Mbuf>(seed, path));
            let schedule = |target: &Target, path: &str| {
                target.schedule(line, Draw { seed, path, frames: None }).map_err(Failure::new)
            };
            let makers = Makers { stage: &stage, schedule: &schedule };
            let next = makers.change(setting, &change.by, classes, &mut self.names);
            let next = next.map_err(|error| Refusal::invalid(&setting.path, error.to_string(), "set another value"))?;
            match made.iter_mut().find(|(other, _)| *other == direction) {
                Some((_, all)) => {
                    all.asked.extend(next.asked);
                    all.stages.extend(next.stages);
                    all.departures.extend(next.departures);
                }
                None => made.push((direction, engine::Change { number, ..next })),
            }
        }
        let mut times = Vec::new();
        for (direction, _) in &made {
            let sender = &self.directions[*direction].sender;
            let Some(passed) = sender.passed() else {
                return Err(Refusal::early());
            };
            if !sender.has_room() {
                return Err(Refusal::conflict("the run has ended, or too many changes wait", "ask later"));
            }
            times.push(change.at_ns.map_or(passed, Span::from_ns));
        }
        let asked_at_ns = times.iter().max().map_or(0, |at| at.as_ps() / PS_PER_NS);
        let left = made.len();
        for ((direction, change), at) in made.into_iter().zip(times) {
            // The queue had room, and no other thread sends.
            let _sent = self.directions[direction].sender.send(at, change);
        }
        let took_effect_at_ns = 0;
        let by = change.by.clone();
        self.planned.insert(number, Planned { settings, asked_at_ns, by, left, took_effect_at_ns });
        (self.number, self.accepted) = (number, accepted);
        Ok(Accepted { number, at_ns: asked_at_ns })
    }

    fn pause(&mut self, by: &str, value: &str) -> Result<Accepted, Refusal> {
        let forward = self.directions.iter().filter(|direction| !direction.back);
        let set = forward.map(|direction| (format!("{}.paused", direction.name), value.to_owned())).collect();
        self.change(&Change { set, at_ns: None, by: by.to_owned() })
    }
}

fn refusal(path: &str, error: &ParseError) -> Refusal {
    let unknown = error.what().ends_with("is not a setting of this run");
    if unknown { Refusal::unknown(path, error.remedy()) } else { Refusal::invalid(path, error.what(), error.remedy()) }
}

impl Changes for LiveChanges {
    fn settings(&self) -> Vec<Setting> {
        let mut state = self.state();
        state.collect();
        let setting = |setting: scenario::Setting| {
            let scenario::Setting { path, value, takes } = setting;
            Setting { path, value, takes }
        };
        state.present.list().into_iter().map(setting).collect()
    }

    fn change(&self, change: Change) -> Result<Accepted, Refusal> {
        self.state().change(&change)
    }

    fn applied(&self, after: usize) -> Vec<AppliedChange> {
        let mut state = self.state();
        state.collect();
        state.applied.iter().skip(after).cloned().collect()
    }

    fn applied_count(&self) -> u64 {
        let mut state = self.state();
        state.collect();
        state.applied.len() as u64
    }

    fn pause(&self, by: &str) -> Result<Accepted, Refusal> {
        self.state().pause(by, "on")
    }

    fn resume(&self, by: &str) -> Result<Accepted, Refusal> {
        self.state().pause(by, "off")
    }
}
