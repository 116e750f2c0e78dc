use super::files::{self, RecordedFiles};
use super::frame_filter::FrameFilter;
use crate::options::common::{Common, NO_CLOCKS, NO_START, NO_STATS};
use crate::options::measure::Measure;
use crate::output::{self, Failure};
use engine::schedules::Target;
use engine::schedules::laws::Law;
use engine::sync::SourceList;
use measure::Caveat;
use scenario::{PortSpec, Problems, Text, parse_gap, parse_wave};
use sim::is_standard;
use std::path::PathBuf;
use units::{Layer, PS_PER_S, Rate, Span};

/// The plan of `measure`.
pub(crate) enum MeasurePlan {
    /// Read the counters of these interfaces.
    Counters {
        interfaces: Vec<String>,
        interval: Span,
        common: Box<Common>,
    },
    Frames(Box<MeasuredFrames>),
}

/// The frames to measure, and the expectation.
pub(crate) struct MeasuredFrames {
    pub(crate) port: PortSpec,
    pub(crate) expected: Option<Target>,
    pub(crate) only: Option<FrameFilter>,
    pub(crate) sources: Option<SourceList>,
    /// Caveats about the files that `expected` names.
    pub(crate) of_files: Vec<Caveat>,
    pub(crate) options: Measure,
}

/// The port, the expectation, the frames to count, the sources to compare, and the caveats about the files read.
type MeasuredInput = (PortSpec, Option<Target>, Option<FrameFilter>, Option<SourceList>, Vec<Caveat>);

impl Measure {
    /// Creates the plan.
    pub(crate) fn plan(mut self) -> Result<MeasurePlan, Failure> {
        if let Some(interfaces) = self.host.take() {
            if self.common.start_at.is_some() {
                return Err(Failure::new("--start-at: --host reads counters and counts no frames: leave it out"));
            }
            let interval = self.interval.unwrap_or(Span::from_ps(PS_PER_S));
            return Ok(MeasurePlan::Counters { interfaces, interval, common: Box::new(self.common) });
        }
        if self.common.slices.is_some() {
            return Err(Failure::new("--slices: measure has no stages to trace frames through: leave it out"));
        }
        #[cfg(feature = "service")]
        if self.common.control.is_some() {
            return Err(Failure::new(
                "--control: measure has nothing to change: use --stats for its figures while it runs",
            ));
        }
        if self.common.cores.is_some() {
            return Err(Failure::new("--cores: measure receives on one thread: write taskset -c 2 netlathe measure …"));
        }
        let (port, expected, only, sources, of_files) = self.read()?;
        Ok(MeasurePlan::Frames(Box::new(MeasuredFrames { port, expected, only, sources, of_files, options: self })))
    }

    /// Parses the input, the expectation, the filter and the sources. Refuses outputs that would overwrite a file in
    /// use.
    fn read(&self) -> Result<MeasuredInput, Failure> {
        let mut problems = Problems::default();
        let port = match (&self.input, &self.pcap) {
            (Some(input), _) => problems.read(&Text::option("--in", input.clone()), PortSpec::parse),
            (None, file) => file.clone().map(PortSpec::Pcap),
        };
        let listed = RecordedFiles::default();
        let parse = |text: &str| {
            let mut ask = parse_expected(text)?;
            ask.load(&listed)?;
            Ok(ask)
        };
        let expected =
            self.expect.as_ref().and_then(|text| problems.read(&Text::option("--expect", text.clone()), parse));
        if let Some(why) = expected.as_ref().and_then(not_comparable) {
            problems.add(&scenario::Origin::Option("--expect"), why);
        }
        let only = self.only.as_ref().and_then(|rule| problems.read(&Text::option("--only", rule.clone()), str::parse));
        let sources =
            self.sources.as_ref().and_then(|list| problems.read(&Text::option("--sources", list.clone()), str::parse));
        let port = problems.unless_any(port).map_err(Failure::new)?;
        let (mut read, of_files) = listed.into_parts();
        if let PortSpec::Pcap(path) = &port {
            read.push(path.clone());
        }
        if self.common.stats.is_some() && matches!(port, PortSpec::Pcap(_)) {
            return Err(Failure::new(NO_STATS));
        }
        if self.common.start_at.is_some() && matches!(port, PortSpec::Pcap(_)) {
            return Err(Failure::new(NO_START));
        }
        if self.common.take_over && matches!(port, PortSpec::Pcap(_)) {
            return Err(Failure::new("--take-over: a capture takes no traffic from the host: leave it out"));
        }
        if !self.common.clock_peers.is_empty() && matches!(port, PortSpec::Pcap(_)) {
            return Err(Failure::new(NO_CLOCKS));
        }
        if let Some(stats) = &self.common.stats
            && let Some(other) =
                self.write.iter().chain(&self.common.report_files()).chain(&read).find(|path| files::same(path, stats))
        {
            return Err(Failure::new(format!(
                "--stats: {} would be overwritten while it is in use: name another file",
                other.display()
            )));
        }
        if self.write.as_deref().is_some_and(is_standard) {
            output::leave_stdout();
            return Ok((port, expected, only, sources, of_files));
        }
        if let Some(write) = self.write.as_ref().filter(|write| read.iter().any(|path| files::same(path, write))) {
            return Err(Failure::new(format!(
                "--write: {} would be overwritten while it is in use: name another output",
                write.display()
            )));
        }
        let mut others: Vec<PathBuf> = read.iter().chain(&self.write).chain(&self.common.stats).cloned().collect();
        others.extend(self.common.report_files());
        for (option, path) in [("--csv", &self.csv), ("--svg", &self.svg)] {
            let Some(path) = path else { continue };
            if others.iter().any(|other| files::same(other, path)) {
                return Err(Failure::new(format!(
                    "{option}: {} would be overwritten while it is in use: name another file",
                    path.display()
                )));
            }
            others.push(path.clone());
        }
        Ok((port, expected, only, sources, of_files))
    }
}

/// Parses a gap if the text begins like one, otherwise a rate.
fn parse_expected(text: &str) -> Result<Target, units::ParseError> {
    let first = text.split_whitespace().next().unwrap_or_default();
    let law = first == "fixed" || Law::KINDS.iter().any(|kind| kind.name == first);
    let time = first.ends_with('s') && !first.ends_with("bps") && !first.ends_with("pps") && !first.ends_with("/s");
    if law || time && first.starts_with(|c: char| c.is_ascii_digit()) { parse_gap(text) } else { parse_wave(text) }
}

/// Returns why arriving frames cannot be compared with this target, or `None` if they can.
fn not_comparable(expected: &Target) -> Option<String> {
    let idle = "measure does not know the line rate, so it cannot compute idle time: leave idle out";
    match expected {
        Target::Rate(Rate::Line(_) | Rate::Bits(_, Layer::Ip)) => Some(
            "measure counts frames, not shares of a line or IP bytes: write 5Gbps, '5Gbps wire' or 50kpps".to_owned(),
        ),
        Target::Wave(wave) => {
            let name = wave.kind().name;
            Some(format!("measure compares with constant rates, not with a {name}: write 5Gbps"))
        }
        Target::Depth(_) => {
            Some("follow-depth depends on the sender's queue, which measure cannot see: write 5Gbps".to_owned())
        }
        Target::IdleGap(_) => Some(idle.to_owned()),
        Target::Law(law) => law.idle.then(|| idle.to_owned()),
        Target::Nothing | Target::Gap(_) | Target::Rate(_) => None,
    }
}
