//! Turns the text of a pipeline into a plan.

use crate::classes;
use crate::filler::FillerSpec;
use crate::gateway;
use crate::plan::{BackPlan, Pacer, PipelinePlan, PipelineText, SourcePlan};
use crate::ports::{PortSpec, line_rate};
use crate::problem::{Origin, Problems, Text};
use crate::replay::{Replay, Speed, parse_rewrite};
use crate::stream::parse_stream;
use crate::{ClassOptions, DEFAULT_CLASS};
use engine::Line;
use engine::schedules::{Files, Impossible, Target};
use engine::sources::{Stack, StreamSpec};
use engine::stages::{Limit, StageConfig};
use units::nearest;
use units::{ParseError, Span};

impl PipelineText {
    /// Creates a plan, or adds every problem. Named files are read from `files`. Without `files` they are not read, and
    /// the plan cannot be run.
    pub fn resolve(&self, files: Option<&dyn Files>, problems: &mut Problems) -> Option<PipelinePlan> {
        if self.options != ClassOptions::default() {
            let mut text = self.clone();
            let options = std::mem::take(&mut text.options);
            options.put(&mut text, problems);
            return text.resolve(files, problems);
        }
        let before = problems.0.len();
        let source = self.source(files, problems);
        let output = match &self.output {
            Some(text) => problems.read(text, PortSpec::parse),
            None => {
                problems.add(&self.missing("--out"), "the output is missing: name a port, pcap:FILE or wire:10G");
                None
            }
        };
        let target = classes::target(self.rate.as_ref(), self.gap.as_ref(), files, problems);
        let filler = self.filler.as_ref().and_then(|text| problems.read(text, FillerSpec::parse));
        let mut stages = classes::stages(&self.stages, files, problems);
        let mut back = self
            .back
            .as_ref()
            .map(|(name, texts)| BackPlan { name: name.clone(), stages: classes::stages(texts, files, problems) });
        let sync = self.sync.as_ref().and_then(|text| problems.read(text, str::parse));
        let default_class = self.default_class.as_ref().map_or(DEFAULT_CLASS, |name| name.value.as_str()).to_owned();
        let mut classes = classes::resolve(&self.classes, &default_class, files, problems);
        if let (Some(text), Some(sync), true) = (&self.sync, &sync, problems.0.len() == before) {
            classes::check_sources(text, sync, &classes, None, problems);
        }
        let (source, output, target) = (source?, output?, target?);
        let more_inputs = self.more_inputs(&source, &output, files, problems);
        let line = self.line(&output, problems);
        let catch_up = self.catch_up.as_ref().and_then(|text| problems.read(text, str::parse)).unwrap_or_default();
        let of_back = back.iter_mut().flat_map(|back| &mut back.stages);
        for stage in stages.iter_mut().chain(of_back).chain(classes.iter_mut().flat_map(|class| &mut class.stages)) {
            stage.settle(line.map(|line| line.rate()));
        }
        let mut plan = PipelinePlan {
            name: self.name.clone(),
            source,
            more_inputs,
            output,
            target,
            pacer: Pacer::Auto,
            filler: filler.unwrap_or_default(),
            line,
            catch_up,
            stages,
            sync,
            buffer: Span::ZERO,
            classes,
            default_class,
            one_way: self.one_way,
            back,
        };
        self.check(&plan, files, problems);
        plan.buffer = classes::buffer(self.buffer.as_ref(), &plan.target, problems);
        plan.pacer = self.pacer(plan.asks_nothing(), &plan.output, line, problems)?;
        if let Some(text) = self.filler.as_ref().filter(|_| plan.pacer != Pacer::Filler) {
            problems.add(
                &text.origin,
                format!(
                    "fillers are not sent by pacer '{}': add a rate or a gap and --pacer filler, or leave this out",
                    plan.pacer.name()
                ),
            );
        }
        (problems.0.len() == before).then_some(plan)
    }

    /// Prepares for a target that the plan gets while it runs: the pacer must exist from the start.
    pub(crate) fn will_ask(&self, plan: &mut PipelinePlan, problems: &mut Problems) {
        if plan.pacer == Pacer::Unpaced {
            plan.pacer = self.pacer(false, &plan.output, plan.line, problems).unwrap_or(plan.pacer);
        }
    }

    /// Adds a problem for each set of incompatible settings.
    fn check(&self, plan: &PipelinePlan, files: Option<&dyn Files>, problems: &mut Problems) {
        let PipelinePlan { source, output, line, .. } = plan;
        let before = problems.0.len();
        self.check_ports(source, output, problems);
        // The capture is opened only if the ports can use it, so otherwise it need not exist.
        if problems.0.len() == before
            && let SourcePlan::Port(PortSpec::Pcap(path)) | SourcePlan::Replay(Replay { path, .. }) = source
            && let (Some(files), Some(text)) = (files, self.input.as_ref().or(self.replay.as_ref()))
            && let Err(error) = files.capture(path)
        {
            problems.add(&text.origin, error.to_string());
        }
        gateway::check(&self.gateway, source, output, problems);
        let carries_back = self.carries_back(source, output);
        if let Some(text) = self.back.as_ref().and_then(|(_, texts)| texts.first()).filter(|_| !carries_back) {
            problems.add(
                &text.origin,
                "nothing is carried back here: name two live ports and leave one-way out, or run a pipeline for each direction",
            );
        }
        let mut forward = plan.stages.iter().chain(plan.classes.iter().flat_map(|class| &class.stages));
        if forward.any(StageConfig::answers) && !carries_back {
            problems.add(
                &self.stages.first().map_or(Origin::Option("--forward"), |text| text.origin.clone()),
                "mtu … icmp: no frames are carried back to the sender here: name two live ports, or leave icmp out",
            );
        }
        check_target(self.rate.as_ref().or(self.gap.as_ref()), &plan.target, *line, problems);
        for (text, class) in self.classes.iter().zip(&plan.classes) {
            check_target(text.rate.as_ref().or(text.gap.as_ref()), &class.target, *line, problems);
        }
        self.check_tables(plan, problems);
    }

    /// Adds a problem if the tables of all limits, which are allocated at the start, would exhaust memory.
    fn check_tables(&self, plan: &PipelinePlan, problems: &mut Problems) {
        let (count, users) = plan.limits().fold((0, 0), |(count, users), (_, limit)| (count + 1, users + limit.users));
        if users <= Limit::MOST_USERS {
            return;
        }
        let classes = self.classes.iter().zip(&plan.classes).map(|(text, class)| (&text.stages, &class.stages));
        let mut stages =
            classes.chain([(&self.stages, &plan.stages)]).flat_map(|(texts, stages)| texts.iter().zip(stages));
        if let Some((text, _)) = stages.find(|(_, stage)| matches!(stage, StageConfig::Limit(_))) {
            let most = Limit::MOST_USERS;
            problems.add(
                &text.origin,
                format!(
                    "the {count} limits of this pipeline have room for {users} users together, and {most} are possible: \
                     write users {} behind each",
                    most / count
                ),
            );
        }
    }

    /// The position to report for a missing setting.
    fn missing(&self, option: &'static str) -> Origin {
        self.origin.clone().unwrap_or(Origin::Option(option))
    }

    fn source(&self, files: Option<&dyn Files>, problems: &mut Problems) -> Option<SourcePlan> {
        if self.replay.is_none()
            && let Some(text) = self.speed.iter().chain(&self.rewrite).next()
        {
            problems.add(&text.origin, "it only applies to a replayed capture: leave it out, or add --pcap FILE");
        }
        match (&self.input, &self.streams[..], &self.replay) {
            (Some(port), [], None) => problems.read(port, PortSpec::parse).map(SourcePlan::Port),
            (None, [], Some(file)) => self.replay(file, problems),
            (None, [_, ..], None) => {
                let numbers = usize::from(u16::MAX) - usize::from(self.first_stream);
                if let Some(text) = self.streams.get(numbers) {
                    let remedy = match self.first_stream {
                        0 => "leave some out, or let fields walk instead".to_owned(),
                        first => format!("leave some out, or begin with a lower number than {first}"),
                    };
                    let what = format!("stamps have numbers for {} streams of a run", u16::MAX);
                    problems.add(&text.origin, format!("{what}: {remedy}"));
                    return None;
                }
                let mut read = |text| problems.read_with_files(text, files, parse_stream, load_stream);
                let specs: Vec<_> = self.streams.iter().filter_map(&mut read).collect();
                let gateway = gateway::read(&self.gateway, &specs, problems);
                (specs.len() == self.streams.len()).then_some(SourcePlan::Streams {
                    specs,
                    first: self.first_stream,
                    count: self.count,
                    gateway,
                })
            }
            (None, [], None) => {
                problems.add(&self.missing("--in"), "the input is missing: name a port or pcap:FILE");
                None
            }
            (_, streams, replay) => {
                let second = streams.first().or(replay.as_ref()).expect("two of three are there");
                problems.add(
                    &second.origin,
                    "frames come from a port, from streams or from a capture: leave the others out",
                );
                None
            }
        }
    }

    fn replay(&self, file: &Text, problems: &mut Problems) -> Option<SourcePlan> {
        let asked = self.rate.is_some() || self.gap.is_some();
        let speed = match &self.speed {
            Some(text) if asked => {
                problems.add(&text.origin, "a speed and a rate or gap both set the departures: leave one out");
                return None;
            }
            Some(text) => problems.read(text, str::parse)?,
            None if asked => Speed::Most,
            None => Speed::OWN,
        };
        let mut rewrite = Vec::new();
        for text in &self.rewrite {
            rewrite.extend(problems.read(text, parse_rewrite)?);
        }
        let mut time = |text: &Option<Text>| -> Option<Option<Span>> {
            let Some(text) = text else { return Some(None) };
            if speed == Speed::Most {
                problems.add(
                    &text.origin,
                    "this applies to a capture with its own timing: leave it out, or leave out the rate, the gap or the speed max",
                );
                return None;
            }
            problems.read(text, str::parse).map(Some)
        };
        let (loop_gap, max_gap) = (time(&self.loop_gap)?, time(&self.max_gap)?);
        // A `pcap:` prefix is accepted here as well.
        let path = file.value.strip_prefix("pcap:").unwrap_or(&file.value).into();
        let (times, count) = (self.times.unwrap_or(1), self.count);
        Some(SourcePlan::Replay(Replay { path, speed, times, loop_gap, max_gap, count, rewrite }))
    }

    /// Further inputs, without duplicates: captures in addition to a capture, live ports in addition to a live port.
    fn more_inputs(
        &self,
        source: &SourcePlan,
        output: &PortSpec,
        files: Option<&dyn Files>,
        problems: &mut Problems,
    ) -> Vec<PortSpec> {
        let (SourcePlan::Port(first), Some(second)) = (source, self.more_inputs.first()) else { return Vec::new() };
        let mut known = vec![first.clone()];
        for text in &self.more_inputs {
            let Some(port) = problems.read(text, PortSpec::parse) else { continue };
            let same = |other: &PortSpec| {
                port == *other || (port.interface().is_some() && port.interface() == other.interface())
            };
            let standard = matches!(&port, PortSpec::Pcap(path) if path.as_os_str() == "-");
            if let PortSpec::Wire(_) | PortSpec::Line(_) | PortSpec::Null = port {
                problems.add(&text.origin, format!("nothing comes from '{port}': read from an interface or pcap:FILE"));
            } else if port.is_virtual() != first.is_virtual() {
                let what = format!("one of the inputs '{first}' and '{port}' is live, and the other is a capture");
                let how = "write the live one to a capture (measure --in if:… --write FILE), or name ports of one kind";
                problems.add(&text.origin, format!("{what}: {how}"));
            } else if known.iter().any(same) {
                problems.add(&text.origin, format!("'{}' is already an input: leave one of them out", text.value));
            } else if same(output) && !standard {
                problems.add(&text.origin, format!("'{}' is the output too: name another one", text.value));
            } else if let (PortSpec::Pcap(path), Some(files)) = (&port, files)
                && let Err(error) = files.capture(path)
            {
                problems.add(&text.origin, error.to_string());
            }
            known.push(port);
        }
        if self.carries_back(source, output) {
            let what = format!("what arrives at '{output}' would have several ports to go back to");
            problems.add(&second.origin, format!("{what}: carry nothing back, by --one-way or one-way = true"));
        }
        known.split_off(1)
    }

    fn check_ports(&self, source: &SourcePlan, output: &PortSpec, problems: &mut Problems) {
        if let (SourcePlan::Port(port @ (PortSpec::Wire(_) | PortSpec::Line(_) | PortSpec::Null)), Some(text)) =
            (source, &self.input)
        {
            problems.add(&text.origin, format!("nothing comes from '{port}': read from an interface or pcap:FILE"));
        }
        if let (SourcePlan::Port(port), Some(text)) = (source, &self.output) {
            let same_interface = port.interface().is_some() && port.interface() == output.interface();
            // Standard input and standard output share a name but are different files.
            let standard = matches!(output, PortSpec::Pcap(path) if path.as_os_str() == "-");
            if (port == output || same_interface) && *output != PortSpec::Null && !standard {
                problems.add(&text.origin, format!("'{}' is the input too: name another output", text.value));
            } else if port.is_virtual() != output.is_virtual() && *output != PortSpec::Null {
                problems.add(
                    &text.origin,
                    "one port is live and the other is not: capture with measure --in if:… --write FILE, or use two ports of one kind",
                );
            }
        }
    }

    /// Whether frames that arrive at the output are carried back to the input.
    fn carries_back(&self, source: &SourcePlan, output: &PortSpec) -> bool {
        !self.one_way
            && !output.is_virtual()
            && !matches!(output, PortSpec::Line(_))
            && matches!(source, SourcePlan::Port(port) if !port.is_virtual())
    }

    /// The line of the output, or the line rate that the user specifies.
    fn line(&self, output: &PortSpec, problems: &mut Problems) -> Option<Line> {
        let own = output.line();
        let Some(text) = &self.line_rate else { return own };
        if own.is_some() || output.is_virtual() {
            let says = if own.is_some() { "has its own line rate" } else { "has no line" };
            problems.add(&text.origin, format!("'{output}' {says}: leave the line rate out"));
            return own;
        }
        problems.read(text, |text| line_rate(text, "")).map(Line::new)
    }

    fn pacer(&self, nothing: bool, output: &PortSpec, line: Option<Line>, problems: &mut Problems) -> Option<Pacer> {
        const NAMES: [&str; 5] = ["auto", "filler", "launch-time", "deadline", "none"];
        let asked = self.pacer.as_ref().map_or("auto", |text| text.value.as_str());
        let origin = self.pacer.as_ref().map_or(&Origin::Option("--pacer"), |text| &text.origin);
        if !NAMES.contains(&asked) {
            let hint = nearest(asked, &NAMES).map(|name| format!(", perhaps {name}")).unwrap_or_default();
            let error =
                ParseError::new(format!("'{asked}' is not a pacer{hint}"), format!("write {}", NAMES.join(", ")));
            problems.add(origin, error.to_string());
            return None;
        }
        let mut refuse = |why: &str| {
            problems.add(origin, format!("pacer '{asked}' {why}"));
            None
        };
        match (asked, output) {
            ("none", _) if !nothing => refuse("would ignore the rate or gap: leave one of them out"),
            ("filler" | "launch-time" | "deadline", _) if nothing => refuse("needs a --rate or a --gap: add one"),
            ("auto" | "none", PortSpec::Wire(_)) if nothing => Some(Pacer::Unpaced),
            ("auto" | "filler", PortSpec::Wire(_)) => Some(Pacer::Filler),
            ("launch-time", PortSpec::Wire(_)) => Some(Pacer::LaunchTime),
            ("deadline", PortSpec::Wire(_)) => {
                refuse("watches a clock, which the model line does not have: write filler or launch-time")
            }
            ("auto" | "filler", PortSpec::Line(_)) if !nothing => Some(Pacer::Filler),
            (_, PortSpec::Line(_)) => refuse("leaves the line idle: write filler, with a --rate or a --gap to keep"),
            ("auto" | "none", PortSpec::Pcap(_) | PortSpec::Null) => Some(Pacer::Stamps),
            (_, PortSpec::Pcap(_) | PortSpec::Null) => {
                refuse("has no line to act on here: leave it out, departures are written as stamps")
            }
            ("auto" | "none", _) if nothing => Some(Pacer::Unpaced),
            ("filler", _) if line.is_some() => Some(Pacer::Filler),
            ("filler", _) => refuse("needs the line rate of the output: add --line-rate 10G, for example"),
            ("auto", _) if self.filler.is_some() && line.is_some() => Some(Pacer::Filler),
            ("launch-time", PortSpec::Pci { .. } | PortSpec::Dpdk(_)) => Some(Pacer::LaunchTime),
            ("launch-time", _) => refuse(
                "needs a NIC that sends at a given time: name one bound to DPDK, as pci:0000:03:00.0, or write deadline",
            ),
            ("auto", PortSpec::Pci { .. } | PortSpec::Dpdk(_)) => Some(Pacer::Auto),
            _ => Some(Pacer::Deadline),
        }
    }
}

/// Reads the captured frame that a stream sends, if there is one.
fn load_stream(spec: &mut StreamSpec, files: &dyn Files) -> Result<(), ParseError> {
    if let Stack::Captured { path, frame, bytes } = &mut spec.stack {
        *bytes = Some(files.frame(path, *frame)?);
        spec.check()?;
    }
    Ok(())
}

/// Adds a problem if the line does not allow the target.
fn check_target(text: Option<&Text>, target: &Target, line: Option<Line>, problems: &mut Problems) {
    let Some(text) = text else { return };
    match target.check(line) {
        Ok(()) => {}
        Err(Impossible::Law(error)) => problems.add(&text.origin, error.to_string()),
        Err(Impossible::NoLine) => problems.add(
            &text.origin,
            format!(
                "'{}' is a share of line rate, which only wire: and line: report: write a rate such as 5Gbps, or give the output's --line-rate",
                text.value
            ),
        ),
        Err(Impossible::AboveLine(line)) => {
            problems.add(&text.origin, format!("'{}' is above the line rate of {line}: write less", text.value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(input: &str, output: &str, edit: impl FnOnce(&mut PipelineText)) -> Result<PipelinePlan, String> {
        let mut text = PipelineText {
            input: Some(Text::option("--in", input)),
            output: Some(Text::option("--out", output)),
            ..PipelineText::default()
        };
        edit(&mut text);
        let mut problems = Problems::default();
        let plan = text.resolve(None, &mut problems);
        problems.unless_any(plan).map_err(|problems| problems.to_string())
    }

    #[test]
    fn pacer_follows_from_the_output() {
        let pacer = |output: &str, gap: Option<&str>| {
            let input = if output.contains(':') { "pcap:in.pcap" } else { "eth7" };
            resolve(input, output, |text| text.gap = gap.map(|gap| Text::option("--gap", gap))).map(|plan| plan.pacer)
        };
        assert_eq!(pacer("wire:10G", Some("10us")), Ok(Pacer::Filler));
        assert_eq!(pacer("wire:10G", None), Ok(Pacer::Unpaced));
        assert_eq!(pacer("pcap:out.pcap", Some("10us")), Ok(Pacer::Stamps));
        assert_eq!(pacer("eth0", Some("10us")), Ok(Pacer::Deadline));
        assert_eq!(pacer("eth0", None), Ok(Pacer::Unpaced));
    }

    #[test]
    fn refuses_streams_beyond_the_last_number() {
        let of = |streams: usize| {
            resolve("", "null", |text| {
                text.input = None;
                text.first_stream = u16::MAX - 3;
                text.streams = vec![Text::option("--stream", "eth"); streams];
            })
        };
        assert!(of(3).is_ok());
        let error = of(4).expect_err("one too many");
        assert!(error.contains("--stream") && error.contains("65535"), "{error}");
    }

    #[test]
    fn collects_all_problems() {
        let errors = resolve("wire:10G", "wire:10X", |text| {
            text.gap = Some(Text::option("--gap", "10"));
            text.stages = vec![Text::option("--stage", "dely 10ms")];
        })
        .expect_err("three problems");
        assert_eq!(errors.lines().count(), 3, "{errors}");
        assert!(errors.contains("--gap: ") && errors.contains("--out: ") && errors.contains("--stage: "));
    }

    #[test]
    fn refuses_impossible_targets() {
        for (output, rate, word) in [
            ("wire:10G", "11Gbps", "above the line rate"),
            ("pcap:o.pcap", "50%", "share of line rate"),
            ("eth1", "50%", "share of line rate"),
            ("pcap:in.pcap", "1Gbps", "input too"),
        ] {
            let input = if output == "eth1" { "eth0" } else { "pcap:in.pcap" };
            let error = resolve(input, output, |text| text.rate = Some(Text::option("--rate", rate))).expect_err(rate);
            assert!(error.contains(word), "{error}");
        }
        assert!(resolve("pcap:in.pcap", "eth0", |_| {}).expect_err("live and file").contains("live"));
        assert!(
            resolve("eth0", "eth1", |text| text.pacer = Some(Text::option("--pacer", "filer")))
                .expect_err("no pacer")
                .contains("filler")
        );
    }
}
