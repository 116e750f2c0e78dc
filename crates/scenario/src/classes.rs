//! Classes as text, from scenarios and the command line.

use crate::plan::PipelineText;
use crate::problem::{Origin, Problems, Text};
use crate::targets::{parse_gap, parse_wave};
use engine::classes::{Classifier, Condition, Prefix, Rule, Side, Test, Unusable};
use engine::schedules::{Files, Target};
use engine::stages::StageConfig;
use engine::sync::SyncSpec;
use units::Span;
use units::nearest;

/// A class as text.
#[derive(Clone, Debug, Default)]
pub struct ClassText {
    /// The name; `None` if omitted.
    pub name: Option<Text>,
    /// Its position in the scenario.
    pub origin: Option<Origin>,
    /// The rule.
    pub rule: Option<Text>,
    /// A WAVE.
    pub rate: Option<Text>,
    /// A GAP.
    pub gap: Option<Text>,
    /// Stages, first to last.
    pub stages: Vec<Text>,
    /// The synchronisation of sources (`sync`).
    pub sync: Option<Text>,
    /// Delay of the schedule's start.
    pub buffer: Option<Text>,
}

/// A class with a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassPlan {
    /// The name in reports.
    pub name: String,
    /// The rule.
    pub rule: Rule,
    /// The target of departures.
    pub target: Target,
    /// Stages, first to last.
    pub stages: Vec<StageConfig>,
    /// How frames of several sources are synchronised, if configured.
    pub sync: Option<SyncSpec>,
    /// Delay of the schedule's start after the first frame.
    pub buffer: Span,
}

/// Maximum buffer, reasonable for runs of up to 213 days.
const LONGEST_BUFFER: Span = Span::from_ms(86_400_000);

/// Default name of the class without a rule.
pub const DEFAULT_CLASS: &str = "default";

/// The report fields of a pipeline. Expectations use `down.gap.max_ns`, and `down.api.gap.max_ns` for a class.
pub(crate) const FIELDS: [&str; 50] = [
    "name", "match", "start", "in", "left_out", "skipped", "out", "return", "answers", "copies", "drops", "effects",
    "choices", "delay", "reorder", "held", "gap", "fit", "forfeited_ratio", "conformance", "rate", "lateness",
    "starved", "buffer", "forgiven", "carried", "crowded", "contended", "shortfall", "underruns", "fillers", "line",
    "pace", "depth", "pacer", "flow", "sources", "arrivals", "crest_gap", "classes", "limit", "streams",
    "streams_beyond", "replay", "changes", "segments", "slices", "histograms", "octaves", "rate_curve",
];

/// Creates the plans of classes, or adds every problem. `default` is the name of the class without a rule.
pub(crate) fn resolve(
    texts: &[ClassText],
    default: &str,
    files: Option<&dyn Files>,
    problems: &mut Problems,
) -> Vec<ClassPlan> {
    let before = problems.0.len();
    let mut plans: Vec<ClassPlan> = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let origin = text.origin();
        let name = text.name.as_ref().map_or_else(|| format!("class{}", number + 1), |name| name.value.clone());
        if !is_name(&name) {
            let remedy = "write letters, digits, - and _, with a letter first";
            problems.add(&origin, format!("'{name}' is not a valid class name: {remedy}"));
        } else if name == default || plans.iter().any(|other| other.name == name) {
            problems.add(&origin, format!("class '{name}' already exists: use another name"));
        }
        let rule = text.rule.as_ref().and_then(|rule| problems.read(rule, str::parse::<Rule>));
        let target = target(text.rate.as_ref(), text.gap.as_ref(), files, problems);
        let stages = stages(&text.stages, files, problems);
        let sync = text.sync.as_ref().and_then(|text| problems.read(text, str::parse));
        if let (Some(rule), Some(target)) = (rule, target) {
            let buffer = buffer(text.buffer.as_ref(), &target, problems);
            plans.push(ClassPlan { name, rule, target, stages, sync, buffer });
        }
    }
    if problems.0.len() == before {
        check_reach(texts, &plans, problems);
    }
    if problems.0.len() == before {
        for (number, (text, plan)) in texts.iter().zip(&plans).enumerate() {
            if let (Some(text), Some(sync)) = (&text.sync, &plan.sync) {
                check_sources(text, sync, &plans[..number], Some(plan), problems);
            }
        }
    }
    plans
}

/// Adds a problem for each source of an order that never reaches its class, because earlier classes take its frames or
/// the rule excludes them. Without a plan, checks the default class.
pub(crate) fn check_sources(
    text: &Text,
    sync: &SyncSpec,
    before: &[ClassPlan],
    class: Option<&ClassPlan>,
    problems: &mut Problems,
) {
    if before.is_empty() && class.is_none() {
        return;
    }
    let of = |source: &Prefix| {
        let from = Condition { not: false, test: Test::Address(Side::Source, vec![*source]) };
        let mut rule = class.map_or_else(|| Rule { alternatives: vec![Vec::new()] }, |class| class.rule.clone());
        rule.alternatives.iter_mut().for_each(|alternative| alternative.push(from.clone()));
        rule
    };
    let rules: Vec<Rule> = sync.sources.iter().map(of).collect();
    let all: Vec<&Rule> = before.iter().map(|plan| &plan.rule).chain(&rules).collect();
    let Err(bad) = Classifier::new(&all) else { return };
    for bad in bad {
        let (number, why) = match bad {
            Unusable::Contradiction(number) => (number, "the rule of its class leaves it out".to_owned()),
            Unusable::Taken(number, by) => match before.get(by[0]) {
                Some(taker) => (number, format!("class '{}' takes its frames", taker.name)),
                None => continue,
            },
            Unusable::TooMany => continue,
        };
        if let Some(source) = number.checked_sub(before.len()).and_then(|number| sync.sources.get(number)) {
            let what =
                format!("source {source} can never arrive, since {why}: correct the rule, or leave the source out");
            problems.add(&text.origin, what);
        }
    }
}

/// Parses stages, first to last.
pub(crate) fn stages(texts: &[Text], files: Option<&dyn Files>, problems: &mut Problems) -> Vec<StageConfig> {
    let mut read = |text| problems.read_with_files(text, files, StageConfig::parse, StageConfig::load);
    texts.iter().filter_map(&mut read).collect()
}

/// Parses the target of departures.
pub(crate) fn target(
    rate: Option<&Text>,
    gap: Option<&Text>,
    files: Option<&dyn Files>,
    problems: &mut Problems,
) -> Option<Target> {
    match (rate, gap) {
        (None, None) => Some(Target::Nothing),
        (Some(rate), None) => problems.read_with_files(rate, files, parse_wave, Target::load),
        (None, Some(gap)) => problems.read_with_files(gap, files, parse_gap, Target::load),
        (Some(_), Some(gap)) => {
            problems.add(&gap.origin, "a rate and a gap both set the departures: leave one out");
            None
        }
    }
}

/// Parses the delay of a schedule.
pub(crate) fn buffer(text: Option<&Text>, target: &Target, problems: &mut Problems) -> Span {
    let Some(text) = text else { return Span::ZERO };
    if *target == Target::Nothing {
        let what = "a buffer needs a schedule: add a rate or a gap, or leave it out";
        problems.add(&text.origin, what);
    }
    let buffer = problems.read(text, str::parse::<Span>).unwrap_or_default();
    if buffer > LONGEST_BUFFER {
        problems.add(&text.origin, format!("a buffer of {buffer} is longer than a day: write at most 86400s"));
    }
    buffer
}

/// Adds a problem for each rule that no frame can reach.
fn check_reach(texts: &[ClassText], plans: &[ClassPlan], problems: &mut Problems) {
    let rules: Vec<&Rule> = plans.iter().map(|plan| &plan.rule).collect();
    let Err(bad) = Classifier::new(&rules) else { return };
    for bad in bad {
        let (number, message) = match bad {
            Unusable::Contradiction(number) => {
                let why = format!("{}, or leave the class out", plans[number].rule.correction());
                (number, format!("class '{}' can never match: {why}", plans[number].name))
            }
            Unusable::Taken(number, by) => {
                let names: Vec<String> = by.iter().take(3).map(|by| format!("'{}'", plans[*by].name)).collect();
                let more = if by.len() > 3 { " and others" } else { "" };
                let takes = if by.len() == 1 { "takes" } else { "take" };
                let (names, name, first) = (names.join(", "), &plans[number].name, &plans[by[0]].name);
                let what = format!("{names}{more} {takes} all its frames");
                (number, format!("class '{name}' can never match: {what}; put it before '{first}', or leave it out"))
            }
            Unusable::TooMany => {
                (plans.len() - 1, "the rules have more than 16384 alternatives: write lists and prefixes".to_owned())
            }
        };
        let origin = texts[number].rule.as_ref().map_or_else(|| texts[number].origin(), |rule| rule.origin.clone());
        problems.add(&origin, message);
    }
}

impl ClassText {
    fn origin(&self) -> Origin {
        let name = self.name.as_ref().map(|name| name.origin.clone());
        name.or_else(|| self.origin.clone()).unwrap_or(Origin::Option("--class"))
    }
}

/// Whether a text is a valid class name.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
}

/// Splits `NAME = VALUE`, if the part before the first `=` may be a name.
fn assignment(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    Some((name.trim(), value.trim())).filter(|(name, _)| is_name(name))
}

/// Values of `--class`, `--rate`, `--gap` and `--stage`, for all classes including the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassOptions {
    /// `NAME = RULE`, in order.
    pub classes: Vec<String>,
    /// `WAVE`, or `NAME=WAVE`.
    pub rates: Vec<String>,
    /// `GAP`, or `NAME=GAP`.
    pub gaps: Vec<String>,
    /// `STAGE`, or `NAME=STAGE`.
    pub stages: Vec<String>,
    /// Stages from separate options, placed after the others: the option, the name of the stage, and the text after the
    /// name, optionally with `NAME=` in front.
    pub named_stages: Vec<(&'static str, &'static str, String)>,
    /// The synchronisation of sources, or `NAME=…`.
    pub syncs: Vec<String>,
    /// `TIME`, or `NAME=TIME`.
    pub buffers: Vec<String>,
}

impl ClassOptions {
    /// Applies the options to `pipeline`, or adds every problem.
    pub fn put(&self, pipeline: &mut PipelineText, problems: &mut Problems) {
        for text in &self.classes {
            match assignment(text) {
                Some((name, rule)) => pipeline.classes.push(ClassText {
                    name: Some(Text::option("--class", name)),
                    rule: Some(Text::option("--class", rule)),
                    ..ClassText::default()
                }),
                None => problems.add(
                    &Origin::Option("--class"),
                    format!(
                        "'{text}' has no class name: write --class 'api = tcp dport 8080'; a name starts with a letter a to z, then letters, digits, - and _"
                    ),
                ),
            }
        }
        for (option, texts) in [
            ("--rate", &self.rates),
            ("--gap", &self.gaps),
            ("--stage", &self.stages),
            ("--sync", &self.syncs),
            ("--buffer", &self.buffers),
        ] {
            for text in texts {
                put(pipeline, (option, ""), text, problems);
            }
        }
        for (option, stage, text) in &self.named_stages {
            put(pipeline, (option, stage), text, problems);
        }
    }
}

/// The fields that options of one class set.
struct ClassFields<'p> {
    rate: &'p mut Option<Text>,
    gap: &'p mut Option<Text>,
    stages: &'p mut Vec<Text>,
    sync: &'p mut Option<Text>,
    buffer: &'p mut Option<Text>,
}

impl ClassFields<'_> {
    /// Stores a value. True if the option has a value already and allows only one.
    fn take(&mut self, option: &str, value: Text) -> bool {
        let one = match option {
            "--rate" => &mut *self.rate,
            "--gap" => &mut *self.gap,
            "--sync" => &mut *self.sync,
            "--buffer" => &mut *self.buffer,
            _ => {
                self.stages.push(value);
                return false;
            }
        };
        one.replace(value).is_some()
    }
}

/// Stores the value of an option, prefixed by the name of the option's stage.
fn put(
    pipeline: &mut PipelineText,
    (option, stage): (&'static str, &'static str),
    text: &str,
    problems: &mut Problems,
) {
    let (name, value) = assignment(text).map_or((None, text), |(name, value)| (Some(name), value));
    let value = Text::option(option, if stage.is_empty() { value.to_owned() } else { format!("{stage} {value}") });
    let mut place = match name {
        None | Some(DEFAULT_CLASS) => ClassFields {
            rate: &mut pipeline.rate,
            gap: &mut pipeline.gap,
            stages: &mut pipeline.stages,
            sync: &mut pipeline.sync,
            buffer: &mut pipeline.buffer,
        },
        Some(name) => {
            let known = |class: &&mut ClassText| class.name.as_ref().is_some_and(|known| known.value == name);
            match pipeline.classes.iter_mut().find(known) {
                Some(ClassText { rate, gap, stages, sync, buffer, .. }) => {
                    ClassFields { rate, gap, stages, sync, buffer }
                }
                None => {
                    let names = pipeline.classes.iter().filter_map(|class| class.name.as_ref());
                    let names: Vec<&str> = names.map(|name| name.value.as_str()).collect();
                    let remedy = match nearest(name, &names) {
                        Some(meant) => format!("did you mean {meant}?"),
                        None if names.is_empty() && stage.is_empty() => {
                            format!("add --class '{name} = RULE', or leave '{name}=' out")
                        }
                        // Users of other tools write settings so.
                        None if names.is_empty() => {
                            let setting = text.replacen('=', " ", 1);
                            format!("write '{setting}' for a setting, or add --class '{name} = RULE'")
                        }
                        None => format!("write one of {}", names.join(", ")),
                    };
                    problems.add(&Origin::Option(option), format!("'{name}' is not a class: {remedy}"));
                    return;
                }
            }
        }
    };
    let twice = place.take(option, value);
    if twice {
        let of = name.map_or_else(String::new, |name| format!(" of class '{name}'"));
        problems.add(&Origin::Option(option), format!("this is given twice{of}: leave one out"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(classes: &[&str], rates: &[&str], gaps: &[&str]) -> Result<PipelineText, String> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let options =
            ClassOptions { classes: owned(classes), rates: owned(rates), gaps: owned(gaps), ..ClassOptions::default() };
        let mut pipeline = PipelineText {
            input: Some(Text::option("--in", "pcap:in.pcap")),
            output: Some(Text::option("--out", "wire:10G")),
            ..PipelineText::default()
        };
        let mut problems = Problems::default();
        options.put(&mut pipeline, &mut problems);
        let plan = pipeline.resolve(None, &mut problems);
        problems.unless_any(plan).map(|_| pipeline).map_err(|problems| problems.to_string())
    }

    #[test]
    fn fields_list_every_field_of_a_report() {
        let code = include_str!("../../measure/src/report.rs");
        let fields = code.split("pub struct PipelineReport {").nth(1).and_then(|rest| rest.split("\n}").next());
        let mut attribute = "";
        let mut names = Vec::new();
        for line in fields.expect("the report of a pipeline").lines().map(str::trim) {
            if let Some(field) = line.strip_prefix("pub ").filter(|_| attribute != "#[serde(skip)]") {
                let renamed = attribute.split("rename = \"").nth(1).and_then(|rest| rest.split('"').next());
                names.extend(renamed.or(field.split(':').next()));
            }
            attribute = line;
        }
        assert_eq!(names, FIELDS);
    }

    #[test]
    fn assigns_options_to_their_classes() {
        let classes = ["api = tcp dport 8080 src 10.0.0.0/8", "dns=udp port 53"];
        let pipeline = options(&classes, &["api=50Mbps"], &["chi2 df 6 in 80us..120us", "dns = 10us"]).expect("good");
        let texts = |text: &Option<Text>| text.as_ref().map(|text| text.value.clone());
        assert_eq!(texts(&pipeline.gap).as_deref(), Some("chi2 df 6 in 80us..120us"));
        assert_eq!(texts(&pipeline.classes[0].rate).as_deref(), Some("50Mbps"));
        assert_eq!(texts(&pipeline.classes[1].gap).as_deref(), Some("10us"));
    }

    #[test]
    fn reports_invalid_class_options() {
        for (classes, rates, gaps, word) in [
            (&["api tcp"][..], &[][..], &[][..], "has no class name"),
            (&["api = tcp", "api = udp"], &[], &[], "already"),
            (&["default = tcp"], &[], &[], "already"),
            (&["api = tpc"], &[], &[], "not a condition"),
            (&["api = tcp"], &["apj=1Gbps"], &[], "did you mean api"),
            (&[], &["api=1Gbps"], &[], "add --class"),
            (&["api = tcp"], &["api=1Gbps", "api=2Gbps"], &[], "twice"),
            (&["api = tcp"], &["api=1Gbps"], &["api=10us"], "both set"),
            (&["api = tcp"], &["api=11Gbps"], &[], "above the line rate"),
            (&["a = tcp"], &["a=follow-depth 1Gbps..11Gbps"], &[], "above the line rate"),
            (&["a = tcp", "b = dport 80 tcp"], &[], &[], "'a' takes all"),
            (&["a = tcp udp"], &[], &[], "exclude each other"),
        ] {
            let error = options(classes, rates, gaps).expect_err(word);
            assert!(error.contains(word), "{error}");
        }
    }
}
