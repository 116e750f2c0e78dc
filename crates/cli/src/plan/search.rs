//! The plan of `search`: device, sizes and goals, from options that depend on each other.

use super::search_directions::DEFAULT_STREAM;
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
use scenario::{Problems, Text, parse_stream};
use std::fmt;
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
    /// The network between ports.
    Ports {
        /// All carry the load at the same time.
        directions: Vec<Direction>,
        /// Options of `gen` that are the same for all trials and directions.
        options: Vec<String>,
    },
}

/// A path through the device: frames enter at one port and should leave at another.
#[derive(Debug)]
pub(crate) struct Direction {
    /// The port that sends into the device, as written.
    pub(crate) out: String,
    /// The port at which the frames should arrive, as written.
    pub(crate) input: String,
    /// Both, as the processes of trials open them.
    pub(crate) ports: [String; 2],
    /// The streams as written, without sizes.
    pub(crate) streams: Vec<String>,
    /// The neighbours to send to.
    pub(crate) gateways: Vec<String>,
    /// Number of the first stream. Each direction has its own numbers, so that no receiver counts frames of another.
    pub(crate) first_stream: u16,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.out, self.input)
    }
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
    pub(crate) fn plan(mut self) -> Result<SearchPlan, Failure> {
        if self.streams.is_empty() && self.output.is_empty() {
            self.streams.push(DEFAULT_STREAM.to_owned());
        }
        let (device, sized) = self.read()?;
        let goals = self.goals()?;
        self.check_files()?;
        Ok(SearchPlan { device, sized, goals, options: self })
    }

    /// Parses the options that depend on each other.
    fn read(&self) -> Result<(Device, Vec<ToSearch>), Failure> {
        let mut problems = Problems::default();
        let device = self.read_device(&mut problems);
        let streams = match &device {
            Device::Stages { .. } => self.streams.clone(),
            Device::Ports { directions, .. } => directions.iter().flat_map(|one| one.streams.clone()).collect(),
        };
        let sized = self.read_sizes(&streams, &mut problems);
        if streams.len() > usize::from(u16::MAX) {
            let origin = Text::option("--stream", "").origin;
            problems.add(&origin, "stamps have numbers for 65535 streams of all directions: leave some out");
        }
        if let Some(max) = self.max.filter(|max| *max < self.min) {
            let origin = Text::option("--max", max.to_string()).origin;
            problems.add(&origin, format!("{max} is below --min {}: write a larger load", self.min));
        }
        problems.unless_any(Some((device, sized))).map_err(Failure::new)
    }

    fn read_device(&self, problems: &mut Problems) -> Device {
        match self.output.is_empty() {
            false => {
                let mut options = vec!["--wait".to_owned(), self.wait.to_string()];
                options.extend(self.take_over.then(|| "--take-over".to_owned()));
                Device::Ports { directions: self.directions(problems), options }
            }
            true => {
                for stage in &self.dut {
                    problems.read(&Text::option("--dut", stage.clone()), |text| {
                        read_stage(text, Line::new(self.line_rate))
                    });
                }
                Device::Stages { stages: self.dut.clone(), line: self.line_rate }
            }
        }
    }

    /// Reads the sizes, and checks all streams with each.
    fn read_sizes(&self, streams: &[String], problems: &mut Problems) -> Vec<ToSearch> {
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
            for stream in streams {
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
