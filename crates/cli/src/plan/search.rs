//! The plan of `search`: device, sizes and goals, from options that depend on each other.

use crate::options::common::REPORT_FILES;
use crate::options::search::Search;
use crate::output::{self, Failure};
use crate::plan::files::{self, OnDisk};
use engine::Line;
use engine::random::Random;
use engine::schedules::Files as _;
use engine::search::Goal;
use engine::sources::{SizeSpec, Stack, StreamSpec};
use engine::stages::StageConfig;
use scenario::{PortSpec, Problems, Text, parse_stream};
use std::path::PathBuf;
use units::{BitRate, FrameRate, ParseError, Share, Span};

/// A size to search.
pub(crate) struct ToSearch {
    /// The size as written.
    pub(crate) size: String,
    /// The streams with this size.
    pub(crate) specs: Vec<StreamSpec>,
    /// Highest load to try.
    pub(crate) most: FrameRate,
}

/// The device under test.
#[derive(Debug)]
pub(crate) enum Device {
    /// Stages in virtual time, and the line on which frames arrive.
    Stages { stages: Vec<String>, line: BitRate },
    /// The network between two ports.
    Ports {
        out: String,
        input: String,
        /// The streams as written, without sizes.
        streams: Vec<String>,
        /// Options of `gen` that are the same for all trials.
        options: Vec<String>,
    },
}

/// The trials of a search.
pub(crate) struct SearchPlan {
    pub(crate) device: Device,
    pub(crate) sized: Vec<ToSearch>,
    pub(crate) goals: Vec<Goal>,
    pub(crate) options: Search,
}

/// A stage as written, with the files that it names, behind a line.
pub(crate) fn read_stage(text: &str, line: Line) -> Result<StageConfig, ParseError> {
    let mut stage = StageConfig::parse(text)?;
    stage.load(&OnDisk)?;
    stage.settle(Some(line.rate()));
    Ok(stage)
}

/// The sizes of frames on Ethernet (RFC 2544, 9.1).
const RFC_2544: [&str; 7] = ["64B", "128B", "256B", "512B", "1024B", "1280B", "1518B"];

impl Search {
    /// Creates the plan.
    pub(crate) fn plan(self) -> Result<SearchPlan, Failure> {
        let (device, sized) = self.read()?;
        let goals = self.goals()?;
        self.check_files()?;
        Ok(SearchPlan { device, sized, goals, options: self })
    }

    /// Parses the options that depend on each other.
    fn read(&self) -> Result<(Device, Vec<ToSearch>), Failure> {
        let mut problems = Problems::default();
        let device = self.read_device(&mut problems);
        let sized = self.read_sizes(&mut problems);
        if let Some(max) = self.max.filter(|max| *max < self.min) {
            let origin = Text::option("--max", max.to_string()).origin;
            problems.add(&origin, format!("{max} is below --min {}: write a larger load", self.min));
        }
        problems.unless_any(Some((device, sized))).map_err(Failure::new)
    }

    fn read_device(&self, problems: &mut Problems) -> Device {
        match (&self.output, &self.input) {
            (Some(out), Some(input)) => {
                for (option, port) in [("--out", out), ("--in", input)] {
                    let read = problems.read(&Text::option(option, port.clone()), PortSpec::parse);
                    if let Some(port) = read.filter(|port| port.is_virtual() || *port == PortSpec::Null) {
                        let text = Text::option(option, "");
                        problems
                            .add(&text.origin, format!("'{port}' is not a live port: name an interface, or use --dut"));
                    }
                }
                let mut options = vec!["--wait".to_owned(), self.wait.to_string()];
                for gateway in &self.gateways {
                    problems.read(&Text::option("--gateway", gateway.clone()), |text| {
                        text.parse::<std::net::IpAddr>().map_err(|_| {
                            units::ParseError::new(
                                format!("'{text}' is not an IP address"),
                                "write 10.0.0.1 or fd00::1",
                            )
                        })
                    });
                    options.extend(["--gateway".to_owned(), gateway.clone()]);
                }
                options.extend(self.take_over.then(|| "--take-over".to_owned()));
                Device::Ports { out: out.clone(), input: input.clone(), streams: self.streams.clone(), options }
            }
            _ => {
                for stage in &self.dut {
                    problems.read(&Text::option("--dut", stage.clone()), |text| {
                        read_stage(text, Line::new(self.line_rate))
                    });
                }
                Device::Stages { stages: self.dut.clone(), line: self.line_rate }
            }
        }
    }

    fn read_sizes(&self, problems: &mut Problems) -> Vec<ToSearch> {
        let mut sized = Vec::new();
        let named = |size: &String| match size.as_str() {
            "rfc2544" => RFC_2544.map(str::to_owned).to_vec(),
            _ => vec![size.clone()],
        };
        for size in &self.sizes.iter().flat_map(named).collect::<Vec<_>>() {
            let words: Vec<&str> = size.split_whitespace().collect();
            let read = problems.read(&Text::option("--size", size.clone()), |_| {
                let (size, used) = SizeSpec::parse(&words)?;
                if used < words.len() {
                    return Err(units::ParseError::new(format!("'{}' follows the size", words[used]), "leave it out"));
                }
                Ok(size)
            });
            let Some(sizes) = read else { continue };
            let mut specs = Vec::new();
            for stream in &self.streams {
                let text = Text::option("--stream", stream.clone());
                // The size is included from the start, because the requirements of a stream depend on it.
                let mut spec = problems.read(&text, |text| parse_stream(&format!("{text} size {size}")));
                if let Some(StreamSpec { stack: Stack::Captured { path, frame, bytes }, .. }) = &mut spec {
                    *bytes = problems.read(&text, |_| OnDisk.frame(path, *frame));
                }
                if spec.as_ref().is_some_and(|spec| spec.is_stamped().is_ok_and(|stamped| !stamped)) {
                    problems.add(&text.origin, format!("frames of {size} have no room for the stamp, so --in cannot recognise them: write larger sizes"));
                }
                specs.extend(spec);
            }
            let random = Random::stream(self.seed, "search/size");
            let line = sizes.line_rate(Line::new(self.line_rate), random);
            let most = self.max.unwrap_or(line);
            if most > line {
                output::warn(format!(
                    "--max {most} exceeds the {line} of {size} that a line of {} carries: write --line-rate if the line is faster",
                    self.line_rate
                ));
            }
            if self.max.is_none() && most < self.min {
                let origin = Text::option("--min", self.min.to_string()).origin;
                problems.add(
                    &origin,
                    format!(
                        "a line of {} carries {most} of {size}: write a smaller load, or a higher --line-rate",
                        self.line_rate
                    ),
                );
            }
            sized.push(ToSearch { size: size.clone(), specs, most });
        }
        sized
    }

    /// Extra trials at each bound. MLRsearch already runs many at each.
    pub(crate) fn confirmations(&self) -> u32 {
        self.confirm.unwrap_or(if self.method == "rfc2544" { 2 } else { 0 })
    }

    fn goals(&self) -> Result<Vec<Goal>, Failure> {
        let sum = self.sum.unwrap_or(self.trial * 21);
        let exceed = self.exceed.unwrap_or(Share::from_ppb(Share::ONE.ppb() / 2));
        if self.method == "rfc2544" {
            let other = [("--sum", self.sum.is_some()), ("--exceed", self.exceed.is_some())];
            if let Some((option, _)) = other.into_iter().find(|(_, said)| *said) {
                return Err(Failure::new(format!(
                    "{option}: with rfc2544 a single trial decides: add --method mlrsearch, or leave it out"
                )));
            }
        }
        if self.width == Share::default() || self.trial == Span::ZERO {
            return Err(Failure::new("--width: with a width or a trial of 0 the search never ends: write 0.5% and 1s"));
        }
        for (option, length) in [("--latency", self.latency), ("--longest-burst", Some(self.longest_burst))] {
            if length == Some(Span::ZERO) {
                return Err(Failure::new(format!("{option}: nothing can be sent in 0 s: write 1s, or leave it out")));
            }
        }
        if self.frame_loss == Some(Share::default()) {
            return Err(Failure::new("--frame-loss: with a step of 0 the search never ends: write 10%"));
        }
        if sum < self.trial || exceed >= Share::ONE {
            return Err(Failure::new(
                "--sum: the sum is shorter than a trial, or --exceed allows all trials to be bad: write --sum 21s --exceed 50%",
            ));
        }
        let goal = |loss: &Share| match self.method.as_str() {
            "rfc2544" => Goal::rfc2544(*loss, self.trial, self.width),
            _ => Goal::mlrsearch(*loss, exceed, self.trial, sum, self.width),
        };
        Ok(self.loss.iter().map(goal).collect())
    }

    /// Checks that no two options write to the same file.
    fn check_files(&self) -> Result<(), Failure> {
        let pages = self.folder.iter().flat_map(|folder| REPORT_FILES.map(|file| folder.join(file)));
        let pages: Vec<PathBuf> = pages.collect();
        let used = |option: &str, by: &str| Failure::new(format!("{option}: {by} uses the same file: name another"));
        for (option, path) in [("--csv", &self.csv), ("--trials", &self.trials)] {
            let Some(path) = path else { continue };
            if pages.iter().any(|page| files::same(page, path)) {
                return Err(used(option, "--report"));
            }
        }
        match (&self.csv, &self.trials) {
            (Some(csv), Some(trials)) if files::same(csv, trials) => Err(used("--csv", "--trials")),
            _ => Ok(()),
        }
    }
}
