//! The settings that can be changed during a run. Checks, changes and the lists of clients all use this list of paths.
//!
//! A path is the name of a pipeline or direction, the name of a class if there are classes, and a setting: `rate`,
//! `gap`, `paused`, or a stage by its name. `down.delay` is the stage `delay …`; if there are several, they are
//! `down.delay.1`, `down.delay.2`. `down.limit.rate` is a part of a stage. Without the name of a class, a setting
//! applies to the class without a rule, and `paused` to all classes.

use crate::plan::{PipelinePlan, SourcePlan};
use crate::targets::{parse_gap, parse_wave};
use engine::schedules::{Files, Impossible, Target};
use engine::stages::{Limit, StageConfig};
use engine::{Kind, Line};
use units::{ParseError, nearest};

/// The current settings of the pipelines of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    directions: Vec<Direction>,
}

/// A setting, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its path.
    pub path: String,
    /// The current value, in scenario syntax.
    pub value: String,
    /// The values that are accepted.
    pub takes: String,
}

/// A checked change of a setting.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingChange {
    /// Its path, as written.
    pub path: String,
    /// The new value, as written.
    pub value: String,
    /// Index of the pipeline in the run.
    pub pipeline: usize,
    /// Whether the setting is one of the return path.
    pub back: bool,
    /// Index of the class; the class without a rule is the last one, or the only one. `None` for all.
    pub class: Option<usize>,
    /// The path that names the random streams of the class.
    pub draws: String,
    /// The new value.
    pub to: SettingValue,
}

/// A value of a setting.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one for each change, never in an array")]
pub enum SettingValue {
    /// The target of departures.
    Target(Target),
    /// A stage and its index in the chain, which is past the end for a new stage; `None` removes the stage.
    Stage(usize, Option<StageConfig>),
    /// Whether departures are paused.
    Paused(bool),
}

/// A pipeline, or a return path with stages.
#[derive(Clone, Debug)]
struct Direction {
    name: String,
    pipeline: usize,
    back: bool,
    /// The output's line, if it has a line rate.
    line: Option<Line>,
    /// Whether stages may send frames back to the sender.
    answers: bool,
    classes: Vec<ClassSettings>,
}

#[derive(Clone, Debug)]
struct ClassSettings {
    /// The name; `None` if the pipeline has no classes.
    name: Option<String>,
    draws: String,
    target: Target,
    stages: Vec<(&'static str, Option<StageConfig>)>,
    paused: bool,
}

const ON: &str = "on";
const OFF: &str = "off";
/// Parts of the stage `limit` that can be set separately.
const OF_LIMIT: [&str; 3] = ["rate", "burst", "queue"];

impl SettingChange {
    /// The stage that the change sets, if any.
    #[must_use]
    pub fn stage(&self) -> Option<&StageConfig> {
        match &self.to {
            SettingValue::Stage(_, stage) => stage.as_ref(),
            _ => None,
        }
    }

    /// True if the change sets a stage that sends frames back to the sender.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.stage().is_some_and(StageConfig::answers)
    }
}

impl Settings {
    /// The settings of these pipelines.
    #[must_use]
    pub fn of(plans: &[PipelinePlan]) -> Self {
        let mut directions = Vec::new();
        for (pipeline, plan) in plans.iter().enumerate() {
            let stages =
                |stages: &[StageConfig]| stages.iter().map(|stage| (kind(stage).name, Some(stage.clone()))).collect();
            let mut classes: Vec<ClassSettings> = Vec::new();
            for class in &plan.classes {
                classes.push(ClassSettings {
                    name: Some(class.name.clone()),
                    draws: format!("{}/{}", plan.name, class.name),
                    target: class.target.clone(),
                    stages: stages(&class.stages),
                    paused: false,
                });
            }
            classes.push(ClassSettings {
                name: (!plan.classes.is_empty()).then(|| plan.default_class.clone()),
                draws: plan.name.clone(),
                target: plan.target.clone(),
                stages: stages(&plan.stages),
                paused: false,
            });
            let live = |source: &SourcePlan| matches!(source, SourcePlan::Port(port) if !port.is_virtual());
            let answers = !plan.one_way && !plan.output.is_virtual() && live(&plan.source);
            let direction =
                Direction { name: plan.name.clone(), pipeline, back: false, line: plan.line, answers, classes };
            directions.push(direction);
            if let Some(back) = &plan.back {
                let class = ClassSettings {
                    name: None,
                    draws: back.name.clone(),
                    target: Target::Nothing,
                    stages: stages(&back.stages),
                    paused: false,
                };
                let name = back.name.clone();
                directions.push(Direction { name, pipeline, back: true, line: None, answers, classes: vec![class] });
            }
        }
        Settings { directions }
    }

    /// All settings with their current values. Removed stages have the value `off`.
    #[must_use]
    pub fn list(&self) -> Vec<Setting> {
        let mut all = Vec::new();
        for direction in &self.directions {
            let last = direction.classes.len() - 1;
            for (number, class) in direction.classes.iter().enumerate() {
                let prefix = match &class.name {
                    Some(name) if number < last => format!("{}.{name}", direction.name),
                    _ => direction.name.clone(),
                };
                all.extend(class.list(&prefix, direction.back));
            }
        }
        all
    }

    /// Checks a change without applying it. Named files are read from `files`, if given.
    ///
    /// # Errors
    /// There is no such path (the nearest one is suggested), or its grammar, the line or the ports do not allow the
    /// value.
    pub fn check(&self, path: &str, value: &str, files: Option<&dyn Files>) -> Result<SettingChange, ParseError> {
        let (path, value) = (path.trim(), value.trim());
        let direction = self.direction(path).ok_or_else(|| self.unknown(path))?;
        let rest = &path[direction.name.len() + 1..];
        let last = direction.classes.len() - 1;
        let named = rest.split_once('.').and_then(|(name, rest)| {
            let class = direction.classes.iter().position(|class| class.name.as_deref() == Some(name))?;
            Some((class, rest))
        });
        let all = named.is_none() && rest == "paused";
        let (number, setting) = named.unwrap_or((last, rest));
        let class = &direction.classes[number];
        let to = match setting {
            "rate" | "gap" if direction.back => {
                let what = format!(
                    "'{}' has no {setting}: its frames leave as soon as its stages release them",
                    direction.name
                );
                return Err(ParseError::new(what, "set a stage of it, such as netem"));
            }
            "rate" | "gap" => SettingValue::Target(target(setting, value, direction.line, files)?),
            "paused" => match value {
                ON => SettingValue::Paused(true),
                OFF => SettingValue::Paused(false),
                _ => return Err(ParseError::new(format!("'{value}' is neither on nor off"), "write on or off")),
            },
            stage => {
                let (index, mut stage) = class.stage(stage, value).ok_or_else(|| self.unknown(path))??;
                if let Some(stage) = &mut stage {
                    if let Some(files) = files {
                        stage.load(files)?;
                    }
                    stage.settle(direction.line.map(|line| line.rate()));
                    if stage.answers() && !direction.answers {
                        return Err(ParseError::new(
                            "icmp: no frames are carried back to the sender here",
                            "leave icmp out",
                        ));
                    }
                }
                SettingValue::Stage(index, stage)
            }
        };
        Ok(SettingChange {
            path: path.to_owned(),
            value: value.to_owned(),
            pipeline: direction.pipeline,
            back: direction.back,
            class: (!all).then_some(number),
            draws: class.draws.clone(),
            to,
        })
    }

    /// Applies a change to the current settings.
    pub fn apply(&mut self, change: &SettingChange) {
        let is_of = |direction: &&mut Direction| direction.pipeline == change.pipeline && direction.back == change.back;
        let Some(direction) = self.directions.iter_mut().find(is_of) else { return };
        for (number, class) in direction.classes.iter_mut().enumerate() {
            if change.class.is_some_and(|changed| changed != number) {
                continue;
            }
            match &change.to {
                SettingValue::Target(target) => class.target = target.clone(),
                SettingValue::Paused(paused) => class.paused = *paused,
                SettingValue::Stage(index, stage) => match class.stages.get_mut(*index) {
                    Some((_, present)) => present.clone_from(stage),
                    None => class.stages.extend(stage.clone().map(|stage| (kind(&stage).name, Some(stage)))),
                },
            }
        }
    }

    /// The current stages of a pipeline or return path, in the order of classes and chains.
    pub fn stages(&self, pipeline: usize, back: bool) -> impl Iterator<Item = &StageConfig> {
        let is_of = move |direction: &&Direction| direction.pipeline == pipeline && direction.back == back;
        let classes = self.directions.iter().filter(is_of).flat_map(|direction| &direction.classes);
        classes.flat_map(|class| class.stages.iter().filter_map(|(_, stage)| stage.as_ref()))
    }

    /// The direction with the longest name that is a prefix of the path.
    fn direction(&self, path: &str) -> Option<&Direction> {
        let is_of = |name: &str| path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        self.directions.iter().filter(|direction| is_of(&direction.name)).max_by_key(|direction| direction.name.len())
    }

    /// The error for a path that names no setting.
    fn unknown(&self, path: &str) -> ParseError {
        let all: Vec<String> = self.list().into_iter().map(|setting| setting.path).collect();
        let names: Vec<&str> = all.iter().map(String::as_str).collect();
        let remedy = match nearest(path, &names).filter(|_| path.contains('.')) {
            Some(meant) => format!("did you mean {meant}?"),
            None => {
                let directions: Vec<&str> = self.directions.iter().map(|direction| direction.name.as_str()).collect();
                let stages: Vec<&str> = StageConfig::KINDS.iter().map(|kind| kind.name).collect();
                format!(
                    "write NAME.SETTING or NAME.CLASS.SETTING, where NAME is {} and SETTING is rate, gap, paused, {}",
                    directions.join(" or "),
                    stages.join(", ")
                )
            }
        };
        ParseError::new(format!("'{path}' is not a setting of this run"), remedy)
    }
}

impl ClassSettings {
    fn list(&self, prefix: &str, back: bool) -> Vec<Setting> {
        let setting = |name: &str, value: String, takes: &str| Setting {
            path: format!("{prefix}.{name}"),
            value,
            takes: takes.to_owned(),
        };
        let mut all = Vec::new();
        if !back {
            let (rate, gap) = texts(&self.target);
            all.push(setting("rate", rate, "WAVE | off"));
            all.push(setting("gap", gap, "GAP | off"));
        }
        all.push(setting("paused", if self.paused { ON } else { OFF }.to_owned(), "on | off"));
        for (index, (name, stage)) in self.stages.iter().enumerate() {
            let path = self.name_of(index);
            let kind = StageConfig::KINDS.iter().find(|kind| kind.name == *name);
            let takes = kind.map(|kind| takes(*kind)).unwrap_or_default();
            all.push(setting(&path, stage.as_ref().map_or_else(|| OFF.to_owned(), words), &takes));
            if let Some(StageConfig::Limit(limit)) = stage {
                for part in OF_LIMIT {
                    all.extend(part_of(limit, part).map(|value| setting(&format!("{path}.{part}"), value, part)));
                }
            }
        }
        for kind in StageConfig::KINDS.iter().filter(|kind| !self.stages.iter().any(|(name, _)| *name == kind.name)) {
            all.push(setting(kind.name, OFF.to_owned(), &takes(*kind)));
        }
        all
    }

    /// The name of the stage at an index, with its number among the stages of its kind if there are several.
    fn name_of(&self, index: usize) -> String {
        let kind = self.stages[index].0;
        let of_kind = |stages: &[(&str, Option<StageConfig>)]| stages.iter().filter(|(name, _)| *name == kind).count();
        if of_kind(&self.stages) == 1 { kind.to_owned() } else { format!("{kind}.{}", of_kind(&self.stages[..=index])) }
    }

    /// The index of the stage that a setting names, and the stage with its new value. `None` if the setting names no
    /// stage.
    fn stage(&self, setting: &str, value: &str) -> Option<Result<(usize, Option<StageConfig>), ParseError>> {
        let name = setting.split('.').next().unwrap_or_default();
        let kind = StageConfig::KINDS.iter().find(|kind| kind.name == name)?;
        let indices: Vec<usize> = (0..self.stages.len()).filter(|index| self.stages[*index].0 == name).collect();
        let index = indices.iter().copied().find(|index| {
            let own = self.name_of(*index);
            setting == own || setting.strip_prefix(&own).is_some_and(|rest| rest.starts_with('.'))
        });
        let own = index.map_or_else(|| name.to_owned(), |index| self.name_of(index));
        let part = setting.strip_prefix(&own)?;
        let Some(index) = index else {
            if indices.len() > 1 {
                let names: Vec<String> = indices.iter().map(|index| self.name_of(*index)).collect();
                let what = format!("there are {} stages {name}", indices.len());
                return Some(Err(ParseError::new(what, format!("write one of {}", names.join(", ")))));
            }
            if !part.is_empty() {
                return None;
            }
            return Some(parse(kind, value).map(|stage| (self.stages.len(), stage)));
        };
        let Some(part) = part.strip_prefix('.') else {
            return Some(parse(kind, value).map(|stage| (index, stage)));
        };
        let StageConfig::Limit(limit) = self.stages[index].1.as_ref()? else { return None };
        let part = OF_LIMIT.into_iter().find(|known| *known == part)?;
        Some(with_part(limit, part, value).map(|stage| (index, Some(stage))))
    }
}

/// Parses a stage of this kind, or `off`.
fn parse(kind: &Kind, value: &str) -> Result<Option<StageConfig>, ParseError> {
    if value == OFF {
        return Ok(None);
    }
    StageConfig::parse(&format!("{} {value}", kind.name)).map(Some)
}

/// The value of a keyword of the stage `limit`, if it is present.
fn part_of(limit: &Limit, part: &str) -> Option<String> {
    let text = limit.to_string();
    let mut words = text.split_whitespace().skip_while(|word| *word != part).skip(1);
    words.next().map(str::to_owned)
}

/// The stage `limit` with a new value after one of its keywords.
fn with_part(limit: &Limit, part: &str, value: &str) -> Result<StageConfig, ParseError> {
    let text = limit.to_string();
    let mut words: Vec<&str> = text.split_whitespace().collect();
    match words.iter().position(|word| *word == part) {
        Some(at) => words[at + 1] = value,
        None => words.extend([part, value]),
    }
    StageConfig::parse(&words.join(" "))
}

fn target(setting: &str, value: &str, line: Option<Line>, files: Option<&dyn Files>) -> Result<Target, ParseError> {
    if value == OFF {
        return Ok(Target::Nothing);
    }
    let mut target = if setting == "rate" { parse_wave(value)? } else { parse_gap(value)? };
    if let Some(files) = files {
        target.load(files)?;
    }
    target.check(line).map_err(|impossible| match impossible {
        Impossible::Law(error) => error,
        Impossible::NoLine => ParseError::new(
            format!("'{value}' is a share of a line rate that is not known"),
            "write a rate such as 5Gbps",
        ),
        Impossible::AboveLine(line) => {
            ParseError::new(format!("'{value}' is above the line rate of {line}"), "write less")
        }
    })?;
    Ok(target)
}

/// A target as a rate and as a gap. At least one of them is `off`.
fn texts(target: &Target) -> (String, String) {
    let off = || OFF.to_owned();
    match target {
        Target::Nothing => (off(), off()),
        Target::Gap(gap) => (off(), format!("fixed {gap}")),
        Target::IdleGap(gap) => (off(), format!("fixed {gap} idle")),
        Target::Law(law) => (off(), law.to_string()),
        Target::Rate(rate) => (rate.to_string(), off()),
        Target::Wave(wave) => (wave.to_string(), off()),
        Target::Depth(follow) => (follow.to_string(), off()),
    }
}

fn kind(stage: &StageConfig) -> Kind {
    let text = stage.to_string();
    let name = text.split(' ').next().unwrap_or_default();
    *StageConfig::KINDS.iter().find(|kind| kind.name == name).expect("a stage prints its name first")
}

/// The text after the name of a stage.
fn words(stage: &StageConfig) -> String {
    let text = stage.to_string();
    text.split_once(' ').map_or_else(String::new, |(_, words)| words.to_owned())
}

fn takes(kind: Kind) -> String {
    let words = kind.grammar.strip_prefix(kind.name).unwrap_or(kind.grammar).trim();
    let words = words.replace(&format!("| {} ", kind.name), "| ");
    format!("{words} | off")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let text = r#"
            schema = 1
            [[pipeline]]
            name = "down"
            in = "pcap:in.pcap"
            out = "wire:10G"
            rate = "5Gbps"
            stages = ["delay 20ms", "loss 1%", "delay 3ms"]
            [[pipeline]]
            name = "up"
            in = "pcap:in.pcap"
            out = "null"
            [[pipeline.class]]
            name = "web"
            match = "tcp"
            gap = "10us"
            [[pipeline.class]]
            stages = ["limit key dst-ip rate 1Mbps mode police"]
        "#;
        Settings::of(&crate::read("a.toml", text, None).expect("a scenario").pipelines)
    }

    #[test]
    fn every_setting_takes_the_value_that_it_has() {
        let settings = settings();
        let all = settings.list();
        for Setting { path, value, takes } in &all {
            assert!(!takes.is_empty(), "{path}");
            let change = settings.check(path, value, None).unwrap_or_else(|error| panic!("{path} = {value}: {error}"));
            let mut same = settings.clone();
            // Setting the rate to off would remove the gap.
            if value != OFF {
                same.apply(&change);
                assert_eq!(same.list(), all, "{path} = {value}");
            }
        }
        let value = |path: &str| all.iter().find(|setting| setting.path == path).map(|setting| setting.value.as_str());
        assert_eq!(value("down.rate"), Some("5Gbps"));
        assert_eq!(value("down.delay.2"), Some("3ms"));
        assert_eq!(value("down.netem"), Some(OFF));
        assert_eq!(value("up.web.gap"), Some("fixed 10us"));
        assert_eq!(value("up.limit.rate"), Some("1Mbps"));
    }

    #[test]
    fn changes_become_the_present_settings() {
        let mut settings = settings();
        for (path, value, shown) in [
            ("down.rate", "burst 1Gbps for 2ms every 10ms", None),
            ("down.gap", "fixed 10us", None),
            ("down.loss", "off", None),
            ("down.loss", "2%", None),
            ("down.reorder", "25% hold 2ms", None),
            ("down.reorder", "off", None),
            ("down.delay.1", "80ms 5ms uniform", None),
            ("up.web.loss", "5%", None),
            ("up.limit.rate", "5Mbps", None),
            ("up.default.paused", "on", Some("up.paused")),
        ] {
            let change = settings.check(path, value, None).unwrap_or_else(|error| panic!("{path} = {value}: {error}"));
            settings.apply(&change);
            let path = shown.unwrap_or(path);
            let now = settings.list().into_iter().find(|setting| setting.path == path).map(|setting| setting.value);
            assert_eq!(now.as_deref(), Some(value), "{path}");
        }
    }

    #[test]
    fn errors_name_the_nearest_setting_or_the_spelling_to_use() {
        let settings = settings();
        for (path, value, expected) in [
            ("down.rat", "1Gbps", "did you mean down.rate?"),
            ("donw.rate", "1Gbps", "did you mean down.rate?"),
            ("down", "1Gbps", "NAME is down or up"),
            ("down.delay", "1ms", "write one of delay.1, delay.2"),
            ("down.rate", "10", "unit"),
            ("down.rate", "11Gbps", "above the line rate"),
            ("up.rate", "50%", "share of a line rate"),
            ("down.paused", "yes", "write on or off"),
            ("down.loss", "some", "some"),
            ("up.limit.rat", "1Mbps", "did you mean up.limit.rate?"),
            ("down.loss.share", "1%", "not a setting"),
        ] {
            let error = settings.check(path, value, None).expect_err(path).to_string();
            assert!(error.contains(expected), "{path} = {value}: {error}");
        }
    }
}
