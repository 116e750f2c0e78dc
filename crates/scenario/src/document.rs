//! Parses scenario files.

use crate::classes::{self, ClassOptions, ClassText};
use crate::expect::Expectation;
use crate::experiment::{LabPlan, ProgramPlan};
use crate::overrides::Override;
use crate::plan::{PipelinePlan, PipelineText};
use crate::problem::{Origin, Problem, Problems, Text};
use crate::reader::Reader;
use crate::settings::SettingValue;
use crate::sweep::{Sweep, SweepRun};
use crate::timeline::TimelineChange;
use engine::schedules::{Files, Target};
use std::ops::Range;
use toml::de::DeTable;
use units::Span;

/// A parsed scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Seed of all random numbers.
    pub seed: Option<u64>,
    /// Time limit.
    pub duration: Option<Span>,
    /// The program whose end ends the run.
    pub until: Option<String>,
    /// The values of a sweep, for several runs.
    pub sweep: Option<Sweep>,
    /// The lab that is built for the run.
    pub lab: Option<LabPlan>,
    /// Programs that run beside the pipelines.
    pub programs: Vec<ProgramPlan>,
    /// Pipelines, in file order.
    pub pipelines: Vec<PipelinePlan>,
    /// Expected results.
    pub expectations: Vec<Expectation>,
    /// Changes during the run, in time order.
    pub timeline: Vec<TimelineChange>,
}

/// The supported version of the format.
const SCHEMA: u64 = 1;

/// Parses a scenario. `file` is its name in messages. The tables, steps and captures that it names are read from
/// `files`. Without `files` they are not read, and the scenario cannot be run.
///
/// # Errors
/// All problems of the file, each with its line and column.
pub fn read(file: &str, source: &str, files: Option<&dyn Files>) -> Result<Scenario, Problems> {
    read_with(file, source, files, &[])
}

/// Parses a scenario like [`read`], with the values of `set` instead of those in the file.
///
/// # Errors
/// All problems of the file and of the values, each with its position.
pub fn read_with(file: &str, source: &str, files: Option<&dyn Files>, set: &[Override]) -> Result<Scenario, Problems> {
    parse(file, source, files, set).map(|(scenario, _)| scenario)
}

/// The runs of a scenario's `[sweep]`, each with its values; `None` if there is no sweep.
///
/// # Errors
/// As [`read_with`].
pub fn read_sweep(
    file: &str,
    source: &str,
    files: Option<&dyn Files>,
    set: &[Override],
) -> Result<Option<Vec<SweepRun>>, Problems> {
    parse(file, source, files, set).map(|(scenario, runs)| scenario.sweep.map(|_| runs))
}

/// A scenario, and the runs of its sweep.
fn parse(
    file: &str,
    source: &str,
    files: Option<&dyn Files>,
    set: &[Override],
) -> Result<(Scenario, Vec<SweepRun>), Problems> {
    let mut reader = Reader::new(file, source, files, set);
    let (mut document, errors) = DeTable::parse_recoverable(source);
    for error in errors {
        let origin = reader.origin(error.span().unwrap_or(0..0));
        let message = error.message().lines().collect::<Vec<_>>().join("; ");
        reader.problems.0.push(Problem { origin, message: format!("{message}: correct the TOML here") });
    }
    let mut parsed = None;
    if reader.problems.0.is_empty() {
        reader.set(document.get_mut());
        let document = document.get_ref();
        parsed = reader.scenario(document).map(|scenario| (scenario, Vec::new()));
        // The values of a sweep are checked only if the scenario is valid without them.
        let sweep = if reader.problems.0.is_empty() { reader.sweep(document) } else { None };
        if let (Some((scenario, runs)), Some(sweep)) = (&mut parsed, sweep) {
            *runs = reader.sweep_runs(document, &sweep);
            scenario.sweep = Some(sweep.plan());
        }
    }
    reader.problems.0.sort_by_key(|problem| match &problem.origin {
        Origin::File { line, column, .. } => (*line, *column),
        Origin::Option(_) | Origin::Set { .. } => (0, 0),
    });
    reader.problems.unless_any(parsed)
}

impl Reader<'_> {
    pub(crate) fn scenario(&mut self, table: &DeTable<'_>) -> Option<Scenario> {
        self.check_keys(table, "");
        match table.get("schema").map(|value| (value.span(), self.integer(value))) {
            Some((_, Some(SCHEMA) | None)) => {}
            Some((span, Some(other))) => {
                self.add(span, format!("schema {other} is unknown: write schema = {SCHEMA}"));
            }
            None => self.add(0..0, format!("the version of the format is missing: write schema = {SCHEMA}")),
        }
        let seed = table.get("seed").and_then(|value| self.integer(value));
        let duration = self.text(table, "duration").and_then(|text| self.problems.read(&text, str::parse::<Span>));
        let mut names: Vec<String> = Vec::new();
        let mut streams = 0_u16;
        let mut pipelines: Vec<PipelinePlan> = Vec::new();
        let mut texts = Vec::new();
        for (number, (span, table)) in self.tables(table, "pipeline").into_iter().enumerate() {
            let mut text = self.pipeline(table, number, span.clone());
            text.first_stream = streams;
            streams = streams.saturating_add(u16::try_from(text.streams.len()).unwrap_or(u16::MAX));
            if text.name.trim().is_empty() {
                self.add(span.clone(), "the pipeline's name is empty: give it one, or leave it out");
            }
            for name in [Some(&text.name), text.back.as_ref().map(|(name, _)| name)].into_iter().flatten() {
                if names.contains(name) {
                    self.add(span.clone(), format!("pipeline '{name}' already exists: use another name"));
                }
                names.push(name.clone());
            }
            let plan = text.resolve(self.files, &mut self.problems);
            texts.extend(plan.is_some().then_some(text));
            pipelines.extend(plan);
        }
        let lab = self.lab(table);
        let programs = self.programs(table, lab.as_ref(), &names);
        if names.is_empty() && !table.contains_key("program") {
            self.add(0..0, "there is no pipeline: write [[pipeline]] with in and out");
        }
        let timeline = if self.problems.0.is_empty() { self.timeline(table, &pipelines) } else { Vec::new() };
        for (number, (plan, text)) in pipelines.iter_mut().zip(&texts).enumerate() {
            let asks = |change: &TimelineChange| {
                change.change.pipeline == number
                    && matches!(&change.change.to, SettingValue::Target(target) if *target != Target::Nothing)
            };
            if timeline.iter().any(asks) {
                text.will_ask(plan, &mut self.problems);
            }
        }
        let all: Vec<String> = programs.iter().map(|program| program.name.clone()).collect();
        let until = self.text(table, "until").map(|text| {
            self.check_program(&text, &text.value, &all);
            text.value
        });
        let expectations = self.expectations(table, &names, &pipelines, &all);
        Some(Scenario { seed, duration, until, sweep: None, lab, programs, pipelines, expectations, timeline })
    }

    fn pipeline(&mut self, table: &DeTable<'_>, number: usize, span: Range<usize>) -> PipelineText {
        self.check_keys(table, "pipeline");
        let mut inputs = self.one_or_more(table, "in").into_iter();
        let mut pipeline = PipelineText {
            name: self.name(table).map_or_else(|| format!("pipeline{}", number + 1), |text| text.value),
            origin: Some(self.origin(span)),
            input: inputs.next(),
            more_inputs: inputs.collect(),
            streams: self.one_or_more(table, "stream"),
            gateway: self.one_or_more(table, "gateway"),
            count: table.get("count").and_then(|value| self.integer(value)),
            first_stream: 0,
            replay: self.text(table, "replay"),
            speed: self.number(table, "speed"),
            times: table.get("times").and_then(|value| self.integer(value)),
            loop_gap: self.text(table, "loop-gap"),
            max_gap: self.text(table, "max-gap"),
            rewrite: self.one_or_more(table, "rewrite"),
            output: self.text(table, "out"),
            rate: self.text(table, "rate"),
            gap: self.text(table, "gap"),
            pacer: self.text(table, "pacer"),
            filler: self.text(table, "filler"),
            line_rate: self.text(table, "line-rate"),
            catch_up: self.number(table, "catch-up"),
            stages: self.texts(table, "stages"),
            sync: self.text(table, "sync"),
            buffer: self.text(table, "buffer"),
            classes: Vec::new(),
            default_class: None,
            options: ClassOptions::default(),
            one_way: table.get("one-way").is_some_and(|value| self.boolean(value)),
            back: None,
        };
        if table.get("return").is_some() {
            pipeline.back = Some((format!("{}-return", pipeline.name), self.texts(table, "return")));
        }
        self.check_repeats(table, &pipeline);
        self.classes(table, &mut pipeline);
        pipeline
    }

    /// Adds a problem for a count or repetition that this input does not support.
    fn check_repeats(&mut self, table: &DeTable<'_>, pipeline: &PipelineText) {
        if let Some(count) = table.get("count").filter(|_| pipeline.streams.is_empty() && pipeline.replay.is_none()) {
            self.add(count.span(), "count is only for streams and replayed captures, not for a port: leave it out");
        }
        if let Some(count) = table.get("count").filter(|_| pipeline.count == Some(0)) {
            self.add(count.span(), "a count of 0 sends nothing: write 1 or more, or leave it out");
        }
        if let Some(times) = table.get("times").filter(|_| pipeline.replay.is_none()) {
            self.add(times.span(), "times is only for a replayed capture: leave it out");
        }
    }

    /// The classes of a pipeline, with the one without a rule last.
    fn classes(&mut self, table: &DeTable<'_>, pipeline: &mut PipelineText) {
        let mut default = false;
        for (span, class) in self.tables(table, "pipeline.class") {
            self.check_keys(class, "pipeline.class");
            if default {
                self.add(span, "this class can never match: the class without match is the last, put it at the end");
            } else if class.contains_key("match") {
                let class = self.class(class, span);
                pipeline.classes.push(class);
            } else {
                default = true;
                self.default_class(class, pipeline);
            }
        }
    }

    /// A name for reports, progress lines and notes. Control characters are rejected, because they could break lines or
    /// control the terminal.
    fn name(&mut self, table: &DeTable<'_>) -> Option<Text> {
        let text = self.text(table, "name")?;
        if text.value.contains(char::is_control) {
            let message = format!("the name '{}' has control characters: write it without them", text.value);
            self.problems.add(&text.origin, message);
        }
        Some(text)
    }

    /// Rejects class names that equal a field of the report: in an expectation, a class takes precedence over a field.
    fn hides_no_field(&mut self, name: Option<Text>) -> Option<Text> {
        if let Some(text) = name.as_ref().filter(|text| classes::FIELDS.contains(&text.value.as_str())) {
            let name = &text.value;
            let message =
                format!("class '{name}' hides the field {name} of reports from [[expect]]: give it another name");
            self.problems.add(&text.origin, message);
        }
        name
    }

    /// A class with a rule.
    fn class(&mut self, table: &DeTable<'_>, span: Range<usize>) -> ClassText {
        let name = self.text(table, "name");
        ClassText {
            name: self.hides_no_field(name),
            origin: Some(self.origin(span)),
            rule: self.text(table, "match"),
            rate: self.text(table, "rate"),
            gap: self.text(table, "gap"),
            stages: self.texts(table, "stages"),
            sync: self.text(table, "sync"),
            buffer: self.text(table, "buffer"),
        }
    }

    /// The class without a rule, which receives all remaining frames.
    fn default_class(&mut self, table: &DeTable<'_>, pipeline: &mut PipelineText) {
        let name = self.name(table);
        pipeline.default_class = self.hides_no_field(name);
        for key in ["rate", "gap", "stages", "sync", "buffer"] {
            let twice = match key {
                "rate" => pipeline.rate.is_some(),
                "gap" => pipeline.gap.is_some(),
                "sync" => pipeline.sync.is_some(),
                "buffer" => pipeline.buffer.is_some(),
                _ => !pipeline.stages.is_empty(),
            };
            if let Some(value) = table.get(key).filter(|_| twice) {
                self.add(value.span(), format!("{key} is already set: leave one of them out"));
            }
        }
        pipeline.rate = pipeline.rate.take().or_else(|| self.text(table, "rate"));
        pipeline.gap = pipeline.gap.take().or_else(|| self.text(table, "gap"));
        pipeline.sync = pipeline.sync.take().or_else(|| self.text(table, "sync"));
        pipeline.buffer = pipeline.buffer.take().or_else(|| self.text(table, "buffer"));
        pipeline.stages.extend(self.texts(table, "stages"));
    }

    fn expectations(
        &mut self,
        table: &DeTable<'_>,
        names: &[String],
        plans: &[PipelinePlan],
        programs: &[String],
    ) -> Vec<Expectation> {
        let mut expectations = Vec::new();
        for (span, table) in self.tables(table, "expect") {
            self.check_keys(table, "expect");
            let Some(text) = self.text(table, "that") else {
                self.add(span, "the expectation is missing: write that = \"down.gap.mean_ns < 11us\"");
                continue;
            };
            let Some(mut expectation) = self.problems.read(&text, Expectation::parse) else { continue };
            if programs.contains(&expectation.path[0]) {
                let checked = expectation.check_program();
                if self.problems.read(&text, |_| checked).is_some() {
                    expectations.push(expectation);
                }
                continue;
            }
            if let [first, .., second] = expectation.pipelines(names)[..] {
                let message = format!(
                    "'{}' may mean pipeline '{first}' or '{second}': rename one of them",
                    expectation.path.join(".")
                );
                self.problems.add(&text.origin, message);
                continue;
            }
            expectation.has_pipeline(names);
            if names.contains(&expectation.path[0]) {
                let is_of = |plan: &&PipelinePlan| {
                    let back = plan.back.as_ref().is_some_and(|back| back.name == expectation.path[0]);
                    back || plan.name == expectation.path[0]
                };
                // Skips the check if the pipeline has problems of its own.
                let checked = plans.iter().find(is_of).map_or(Ok(()), |plan| expectation.check(plan));
                if self.problems.read(&text, |_| checked).is_some() {
                    expectations.push(expectation);
                }
            } else {
                let known = [names, programs].concat().join(", ");
                let what = if programs.is_empty() { "not a pipeline" } else { "not a pipeline or program" };
                self.problems.add(&text.origin, format!("'{}' is {what}: write one of {known}", expectation.path[0]));
            }
        }
        expectations
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use units::ParseError;

    const GOOD: &str = r#"
schema = 1
seed   = 7

[[pipeline]]
name = "down"
in   = "pcap:in.pcap"
out  = "wire:10G,pcap=out.pcap"

  [[pipeline.class]]
  stages = ["delay 20ms", "loss 0.5%"]
  gap    = "fixed 10us"

[[expect]]
that = "down.gap.error.max_ns < 1ns"
"#;

    #[test]
    fn parses_a_complete_scenario() {
        let scenario = read("a.toml", GOOD, None).expect("a scenario");
        assert_eq!(scenario.seed, Some(7));
        let pipeline = &scenario.pipelines[0];
        assert_eq!((pipeline.name.as_str(), pipeline.stages.len()), ("down", 2));
        assert_eq!(pipeline.target, Target::Gap(Span::from_us(10)));
        assert_eq!(scenario.expectations.len(), 1);
    }

    #[test]
    fn errors_have_their_position() {
        let bad = GOOD
            .replace("fixed 10us", "fixed 10")
            .replace("seed ", "sead ")
            .replace("loss 0.5%", "lost 0.5%")
            .replace("down.gap", "up.gap");
        let problems = read("a.toml", &bad, None).expect_err("four problems");
        let text = problems.to_string();
        assert_eq!(problems.0.len(), 4, "{text}");
        for expected in
            ["a.toml:3:1: 'sead'", "did you mean seed", "a.toml:12:12:", "a.toml:11:27:", "a.toml:15:8: 'up'"]
        {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
    }

    #[test]
    fn quoted_text_in_errors_is_escaped() {
        let bad = GOOD.replace("\"down\"", "\"a\\u001b[31m\\nb\"");
        let problems = read("a.toml", &bad, None).expect_err("another name is expected");
        for problem in &problems.0 {
            let text = problem.to_string();
            assert!(text.contains(r"a\u{1b}[31m\nb") && !text.contains(char::is_control), "{text:?}");
        }
    }

    #[test]
    fn refuses_control_characters_in_names() {
        for bad in [r"\u001b[2Jx", r"x\r", r"x\ny", r"x\ty", r"\u009b2J", r"\u007f"] {
            let pipeline = GOOD.replace("\"down\"", &format!("\"{bad}\"")).replace("down.", "pipeline1.");
            let class = "schema = 1\n[[pipeline]]\nin = \"pcap:a\"\nout = \"null\"\n[[pipeline.class]]\n";
            for text in [pipeline, format!("{class}name = \"{bad}\"")] {
                let problems = read("a.toml", &text, None).expect_err(bad).to_string();
                assert!(problems.contains("control characters: write it without"), "{problems:?}");
            }
        }
        let odd = GOOD.replace("down", "größte Last №1");
        assert_eq!(read("a.toml", &odd, None).map(|scenario| scenario.pipelines.len()), Ok(1));
    }

    #[test]
    fn expectation_refers_to_one_pipeline() {
        let both = |names: [&str; 2], that: &str| {
            let pipeline = |name| format!("[[pipeline]]\nname = \"{name}\"\nin = \"pcap:{name}\"\nout = \"null\"\n");
            let pipelines = names.map(pipeline).concat();
            read("a.toml", &format!("schema = 1\n{pipelines}[[expect]]\nthat = \"{that}\"\n"), None)
        };
        for (names, that) in [(["a", "a.gap"], "a.gap.mean_ns > 1ns"), (["a.b", "a"], "a.b.gap.mean_ns > 1ns")] {
            let text = both(names, that).expect_err(that).to_string();
            assert!(text.starts_with("a.toml:") && text.contains("rename one of them"), "{text}");
        }
        // The part after the dots decides to which pipeline a figure belongs.
        for (names, that) in [(["a", "a.b"], "a.gap.mean_ns > 1ns"), (["a.b", "a.c"], "a.b.gap.mean_ns > 1ns")] {
            both(names, that).expect(that);
        }
    }

    #[test]
    fn class_names_must_not_hide_report_fields() {
        for rule in ["match = \"udp\"\n", ""] {
            let named = |name| {
                let named = GOOD.replace("  stages", &format!("  {rule}  name = \"{name}\"\n  stages"));
                named.replace("down.gap.error.max_ns < 1ns", "down.held == 0")
            };
            assert!(read("a.toml", &named("gaps"), None).is_ok());
            for name in ["gap", "rate", "in", "return", "slices"] {
                let problems = read("a.toml", &named(name), None).expect_err(name).to_string();
                let position = if rule.is_empty() { "a.toml:11:12: " } else { "a.toml:12:10: " };
                let expected = format!("{position}class '{name}' hides the field {name} of reports");
                assert!(problems.starts_with(&expected) && problems.contains("give it another name"), "{problems}");
            }
        }
    }

    #[test]
    fn refuses_a_count_of_zero() {
        for source in ["replay = \"pcap:a\"", "stream = \"udp 10.0.0.1:1 > 10.0.0.2:2\""] {
            let text = |count| format!("schema = 1\n[[pipeline]]\n{source}\nout = \"null\"\ncount = {count}\n");
            assert!(read("a.toml", &text(1), None).is_ok(), "{source}");
            let problems = read("a.toml", &text(0), None).expect_err(source).to_string();
            assert!(problems.starts_with("a.toml:5:9: a count of 0 sends nothing: write 1"), "{problems}");
        }
    }

    #[test]
    fn values_without_unit_may_be_numbers() {
        for number in ["3", "\"3\""] {
            let text = GOOD.replace("out  =", &format!("catch-up = {number}\nout  ="));
            let scenario = read("a.toml", &text, None).expect(number);
            assert_eq!(scenario.pipelines[0].catch_up, engine::CatchUp::AtMost(3), "{number}");
        }
        for number in ["-3", "1.5", "0x10"] {
            let text = GOOD.replace("out  =", &format!("catch-up = {number}\nout  ="));
            assert!(read("a.toml", &text, None).expect_err(number).to_string().contains("a.toml:8:12: "), "{number}");
        }
    }

    #[test]
    fn expectations_accept_pipeline_names_with_dots() {
        let text = GOOD.replace("\"down\"", "\"v1.2\"").replace("down.gap", "v1.2.gap");
        let scenario = read("a.toml", &text, None).expect("a scenario");
        assert_eq!(scenario.expectations[0].path, ["v1.2", "gap", "error", "max_ns"]);
    }

    #[test]
    fn refuses_empty_and_duplicate_pipeline_names() {
        let refused = |text: &str| read("a.toml", text, None).expect_err("a name").to_string();
        assert!(refused(&GOOD.replace("\"down\"", "\" \"")).contains("the pipeline's name is empty"));
        let pipeline = |more: &str| format!("[[pipeline]]\nin = \"eth0\"\nout = \"eth1\"\n{more}\n");
        let (way, back) = (pipeline("name = \"a\"\nreturn = [\"delay 1ms\"]"), pipeline("name = \"a-return\""));
        for text in [format!("{way}{back}"), format!("{back}{way}")] {
            let text = refused(&format!("schema = 1\n{text}"));
            assert!(text.contains("pipeline 'a-return' already exists"), "{text}");
        }
    }

    /// A source in which every file is missing.
    struct Nowhere;

    impl Files for Nowhere {
        fn text(&self, path: &Path) -> Result<String, ParseError> {
            match path.to_str() {
                Some("fast.txt") => Ok("0s 1Gbps\n1ms 11Gbps\n".to_owned()),
                _ => Err(ParseError::new(format!("no {}", path.display()), "check the path")),
            }
        }
        fn capture(&self, path: &Path) -> Result<(), ParseError> {
            self.text(path).map(drop)
        }
        fn capture_gaps(&self, path: &Path) -> Result<Vec<u64>, ParseError> {
            self.text(path).map(|_| Vec::new())
        }
        fn frame(&self, path: &Path, _: u64) -> Result<Vec<u8>, ParseError> {
            self.text(path).map(|_| Vec::new())
        }
    }

    #[test]
    fn errors_of_missing_and_unsuitable_files_have_their_position() {
        let text = r#"
schema = 1
[[pipeline]]
stream = ["udp 10.0.0.1:1 > 10.0.0.2:9", "pcap nope.pcap frame 3"]
out    = "wire:10G"
stages = ["loss 1%", "delay table nope.txt"]
gap    = "table gone.txt"
  [[pipeline.class]]
  name  = "a"
  match = "udp"
  rate  = "steps fast.txt"
  stages = ["limit key dst-ip rate 1Mbps rates users.txt"]
"#;
        assert!(read("a.toml", text, None).is_ok());
        let problems = read("a.toml", text, Some(&Nowhere)).expect_err("files").to_string();
        for expected in ["4:42: no nope.pcap", "6:22: no nope.txt", "7:10: no gone.txt", "12:13: no users.txt"] {
            assert!(problems.contains(&format!("a.toml:{expected}")), "{expected} in\n{problems}");
        }
        for (key, at) in [("in", "4:10: no a.pcap"), ("replay", "4:10: no a.pcap")] {
            let text = format!("schema = 1\n[[pipeline]]\nout = \"null\"\n{key:6} = \"pcap:a.pcap\"\n");
            assert!(read("a.toml", &text, None).is_ok(), "{key}");
            let problems = read("a.toml", &text, Some(&Nowhere)).expect_err(key).to_string();
            assert_eq!(problems, format!("a.toml:{at}: check the path"));
        }
        let rate = text.replace("table gone.txt", "1ms").replace(", \"delay table nope.txt\"", "");
        let rate = rate.replace(", \"pcap nope.pcap frame 3\"", "").replace(" rates users.txt", "");
        let problems = read("a.toml", &rate, Some(&Nowhere)).expect_err("rate").to_string();
        assert!(problems.starts_with("a.toml:11:11: 'steps fast.txt' is above the line rate"), "{problems}");
    }

    #[test]
    fn refuses_bare_numbers_and_broken_toml() {
        let text = read("a.toml", &GOOD.replace("\"fixed 10us\"", "10"), None).expect_err("bare").to_string();
        assert!(text.contains("a.toml:12:12: a bare number has no unit"), "{text}");
        let text = read("a.toml", "schema = 1\n[[pipeline]\n", None).expect_err("broken").to_string();
        assert!(text.starts_with("a.toml:2:"), "{text}");
        let nested = GOOD.replace("[[pipeline.class]]", "[pipeline.class]");
        let text = read("a.toml", &nested, None).expect_err("one class").to_string();
        assert!(text.contains("write [[pipeline.class]]"), "{text}");
        assert!(read("a.toml", "", None).is_err());
        assert!(read("a.toml", "schema = 2\n", None).expect_err("schema").to_string().contains("schema 2"));
    }
}
