mod frame_filter;

use crate::options::{self, Common, NO_STATS};
use crate::output::{self, Failure};
use crate::plan::files::{self, Listed};
use crate::render::output_file;
use crate::render::progress::Progress;
use crate::run::pipelines::{self, Outcome};
use crate::run::resolution;
use crate::run::stop::Stop;
use engine::schedules::Ask;
use engine::schedules::laws::{Law, Placed};
use frame_filter::Only;
use measure::{
    Books, Caveat, CaveatKind, ClockSource, ConformanceMeter, FitMeter, GapMeter, PipelineReport, Plots, RateMeter,
    StreamMeter, Tally, Timeline,
};
use packet::{Frame, HeapFrame, Stamp};
use page::Verdict;
use scenario::{PortSpec, Problems, Text, parse_gap, parse_wave};
use sim::{CaptureWriter, PcapSource, Source, WhenFull, is_standard};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use units::{BitRate, FrameLen, Layer, PS_PER_S, Rate, Share, Span, Time, WireLen};

/// Measure gaps, rates, loss and delay of frames that arrive
#[derive(clap::Args)]
// Both are refused, with what to do instead.
#[command(mut_arg("slices", |option| option.hide(true)), mut_arg("cores", |option| option.hide(true)),
    mut_arg("take_over", |option| option.hide(true)))]
#[command(override_usage = "\
netlathe measure --in <PORT> [OPTIONS]
       netlathe measure --pcap <FILE> [OPTIONS]
       netlathe measure --host <INTERFACE,…> [OPTIONS]")]
#[command(after_help = "\
Examples:
  netlathe measure --pcap out.pcap --expect 'fixed 10us'
  netlathe measure --pcap out.pcap --expect 'chi2 df 6 in 80us..120us'
  netlathe measure --pcap out.pcap --only 'udp dport 2000' --expect 'fixed 10us'
  netlathe measure --in if:eth0 --duration 10s --write seen.pcap --json
  netlathe measure --pcap out.pcap --write out.pcapng.zst
  netlathe measure --pcap out.pcap --csv gaps.csv --svg gaps.svg
  netlathe measure --host eth0,eth1 --duration 10s

--expect fails (status 1) if the mean or the rate is off by more than --tolerance, or if less than 90 % of
the gaps are within 1 µs of a fixed gap. A law fails if p < 1e-4: gaps of that law would differ from it by
as much less than once in 10 000 runs.

--only takes the rules of classes: tcp udp icmp arp ip ip6 vlan, src A, dst A, host A, sport P, dport P,
port P, dscp D, flags F, dmac MAC, smac MAC, bytes HEX at N. Conditions side by side must all hold; or begins an
alternative, not negates the next condition. The report counts the frames that did not match.

--host receives no frames. It reads the counters of this machine's kernel and drivers while another
program receives. It reports how many frames arrived, where frames were lost (wire, ring, softnet,
interface, protocol, socket), how queues and CPUs shared the work, and commands that reduce the loss.")]
pub(crate) struct Measure {
    /// Input: a live port, or pcap:FILE
    #[arg(long = "in", value_name = "PORT", required_unless_present_any = ["pcap", "host"], conflicts_with = "pcap")]
    pub(crate) input: Option<String>,
    /// Capture to read, - for stdin; may be compressed with gzip, zstd, xz, bzip2 or lz4
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Interfaces of this machine whose kernel counters are watched while another program receives
    #[arg(long, value_name = "INTERFACE,…", value_delimiter = ',', conflicts_with_all =
        ["input", "pcap", "only", "stats", "write", "csv", "svg", "count", "expect", "tolerance", "folder", "cores", "seed", "window"])]
    pub(crate) host: Option<Vec<String>>,
    /// With --host: interval between two readings, and between lines on a terminal [default: 1s]
    #[arg(long, value_name = "TIME", conflicts_with_all = ["input", "pcap"], value_parser = parse_interval, allow_hyphen_values = true)]
    pub(crate) interval: Option<Span>,
    /// Measure, count and write only frames that match this class rule: 'udp dport 53', 'src 10.0.0.0/8 not arp'
    #[arg(long, value_name = "RULE")]
    pub(crate) only: Option<String>,
    /// Write the received frames to a capture, - for stdout: pcapng if the name ends in .pcapng, compressed if in .gz or .zst
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Write the distribution of gaps to a CSV: from_ns,to_ns,gaps,share,up_to
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the histogram of gaps to an SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// End after this number of frames
    #[arg(long, value_name = "N", value_parser = options::parse_count)]
    pub(crate) count: Option<u64>,
    /// Maximum number of streams (of more than 8 frames) with their own figures, 64 KiB each; others are counted together
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) max_streams: u32,
    /// The expected gap, law or rate: 'fixed 10us', 'exp mean 10us', 5Gbps, 50kpps
    #[arg(long, value_name = "GAP|WAVE")]
    pub(crate) expect: Option<String>,
    /// Allowed deviation of the mean
    #[arg(long, value_name = "SHARE", default_value = "0.1%", value_parser = options::parse::<Share>)]
    pub(crate) tolerance: Share,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Reads how often to look at counters: that costs some milliseconds.
fn parse_interval(text: &str) -> Result<Span, units::ParseError> {
    let interval: Span = text.parse()?;
    if interval < Span::from_ps(PS_PER_S / 10) {
        return Err(units::ParseError::new(
            format!("'{text}' is too short an interval for reading counters"),
            "write 100ms or more",
        ));
    }
    Ok(interval)
}

/// What should be found: a gap, if it begins as one, else a rate.
fn parse_expected(text: &str) -> Result<Ask, units::ParseError> {
    let first = text.split_whitespace().next().unwrap_or_default();
    let law = first == "fixed" || Law::KINDS.iter().any(|kind| kind.name == first);
    let time = first.ends_with('s') && !first.ends_with("bps") && !first.ends_with("pps") && !first.ends_with("/s");
    if law || time && first.starts_with(|c: char| c.is_ascii_digit()) { parse_gap(text) } else { parse_wave(text) }
}

/// Why frames that arrive cannot be compared with such an ask, if so.
fn not_comparable(expected: &Ask) -> Option<String> {
    let idle = "measure does not know the line rate, so it cannot compute idle time: leave idle out";
    match expected {
        Ask::Rate(Rate::Line(_) | Rate::Bits(_, Layer::Ip)) => Some(
            "measure counts frames, not shares of a line or IP bytes: write 5Gbps, '5Gbps wire' or 50kpps".to_owned(),
        ),
        Ask::Wave(wave) => {
            let name = wave.kind().name;
            Some(format!("measure compares with constant rates, not with a {name}: write 5Gbps"))
        }
        Ask::Depth(_) => {
            Some("follow-depth depends on the sender's queue, which measure cannot see: write 5Gbps".to_owned())
        }
        Ask::IdleGap(_) => Some(idle.to_owned()),
        Ask::Law(law) => law.idle.then(|| idle.to_owned()),
        Ask::Nothing | Ask::Gap(_) | Ask::Rate(_) => None,
    }
}

/// The inter-departure time that should follow a frame of `length`, where that is known of each.
fn gap_after(expected: &Ask, length: FrameLen) -> Option<Span> {
    let at = |rate: BitRate, bytes: u32| {
        Span::from_ps((u128::from(bytes) * 8 * u128::from(PS_PER_S) / u128::from(rate.bps().max(1))) as u64)
    };
    match expected {
        Ask::Gap(gap) => Some(*gap),
        Ask::Rate(Rate::Frames(rate)) => Some(rate.gap()),
        Ask::Rate(Rate::Bits(rate, Layer::Frame)) => Some(at(*rate, length.bytes())),
        Ask::Rate(Rate::Bits(rate, Layer::Wire)) => Some(at(*rate, length.on_wire().bytes())),
        _ => None,
    }
}

/// Measures frames as they are given.
pub(crate) struct Receiver {
    /// Which frames are measured, if not all.
    only: Option<Only>,
    expected: Option<Ask>,
    gaps: GapMeter,
    conformance: ConformanceMeter,
    rate: RateMeter,
    fit: Option<FitMeter>,
    timeline: Timeline,
    streams: StreamMeter,
    books: Books,
    /// Records of a capture that are no frames, by reason.
    skipped: BTreeMap<String, u64>,
    /// Frames that were to be written and could not.
    unwritten: Tally,
    /// Length of the frame before.
    last: Option<FrameLen>,
}

impl Receiver {
    fn new(only: Option<Only>, expected: Option<Ask>, law: Option<Placed>, window: Span, streams: u32) -> Self {
        Receiver {
            only,
            gaps: GapMeter::new(expected.as_ref().and_then(Ask::fixed_gap), None).at_hand(),
            expected,
            conformance: ConformanceMeter::new(None).at_hand(),
            rate: RateMeter::new(window),
            fit: law.map(|law| FitMeter::new(Arc::new(law), None)),
            timeline: Timeline::default(),
            streams: StreamMeter::at_most(streams as usize),
            books: Books::default(),
            skipped: BTreeMap::new(),
            unwritten: Tally::default(),
            last: None,
        }
    }

    /// Whether a frame is to be measured, without FCS and with its tags; one that is not counts as left out.
    pub(crate) fn takes(&mut self, frame: &[u8], length: FrameLen) -> bool {
        self.only.as_mut().is_none_or(|only| only.takes(frame, length))
    }

    pub(crate) fn record(&mut self, start: Time, length: FrameLen) {
        self.gaps.record(start);
        if let Some(expected) = &self.expected {
            // The first frame has no gap; any ask will do.
            let before = self.last.replace(length).unwrap_or(length);
            if let Some(gap) = gap_after(expected, before) {
                self.conformance.record_after(gap, start, length);
            }
        }
        self.rate.record(start, length);
        if let Some(fit) = &mut self.fit {
            fit.record(start, length);
        }
        self.timeline.got(start, length);
        self.books.came.add(length);
        self.books.left.add(length);
    }

    /// Counts the frame by its stamp; false if it has none. `frame` is without FCS, and arrived at this UNIX time.
    pub(crate) fn record_stamp(&mut self, frame: &[u8], arrived_ns: u64) -> bool {
        let Some(stamp) = Stamp::of(frame) else { return false };
        self.streams.record(stamp.stream, stamp.sequence, stamp.time_ns, arrived_ns);
        true
    }

    /// Frames measured.
    #[cfg(feature = "live")]
    pub(crate) fn came(&self) -> Tally {
        self.books.came
    }

    /// Frames left out by the rule, if there is one.
    pub(crate) fn left_out(&self) -> Option<Tally> {
        self.only.as_ref().map(Only::left_out)
    }

    pub(crate) fn frames(&self) -> u64 {
        self.books.came.frames
    }

    /// What has come in a run of which so much has passed, in a line.
    pub(crate) fn so_far(&self, passed: Duration) -> String {
        let (frames, bytes) = (self.books.came.frames, self.books.came.bytes);
        let rate = bytes as f64 * 8.0 / passed.as_secs_f64().max(1e-3);
        let rate = output::bits(output::digits(rate, 4));
        format!("{} s  {rate}  {}", passed.as_secs(), output::counted(frames, "frame"))
    }

    /// Ends the capture that was to be written. Frames that are not in it are not out.
    pub(crate) fn finish(&mut self, writer: Option<&mut CaptureWriter>) -> Result<(), Failure> {
        let Some(writer) = writer else { return Ok(()) };
        let ended = writer.finish().map_err(Failure::new);
        self.unwritten = writer.unwritten();
        if ended.is_ok() {
            output::warn_of_lacks(writer.path(), self.unwritten.frames, "frame");
        }
        ended
    }

    fn report(&self) -> PipelineReport {
        let mut report = self.report_of_all();
        report.take_back(self.unwritten);
        report
    }

    fn report_of_all(&self) -> PipelineReport {
        PipelineReport {
            name: "measure".into(),
            rule: self.only.as_ref().map(Only::rule),
            left_out: self.left_out(),
            skipped: self.skipped.clone(),
            came: self.books.came,
            left: self.books.left,
            drops: self.books.drops(),
            gap: self.gaps.report(),
            fit: self.fit.as_ref().and_then(FitMeter::report),
            conformance: self.conformance.report(),
            rate: self.rate.report().map(|rate| rate.with_frames(self.gaps.report().as_ref())),
            streams: self.streams.report(&[]),
            streams_beyond: self.streams.beyond(),
            plots: Some(Box::new(Plots::of(
                &self.gaps,
                self.expected.as_ref().map(|_| &self.conformance),
                &self.timeline,
            ))),
            ..PipelineReport::default()
        }
    }
}

/// What is to be received, and until when.
pub(crate) struct Reception<'a> {
    pub(crate) common: &'a Common,
    pub(crate) write: Option<&'a Path>,
    /// Files that are made when all frames have come.
    #[cfg_attr(not(feature = "live"), expect(dead_code, reason = "ports are refused"))]
    pub(crate) later: Vec<PathBuf>,
    pub(crate) count: u64,
    pub(crate) duration: Option<Span>,
}

impl Measure {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if let Some(names) = &self.host {
            let second = Span::from_ps(PS_PER_S);
            return crate::run::host::watch(names, self.interval.unwrap_or(second), &self.common);
        }
        if self.common.slices.is_some() {
            return Err(Failure::new("--slices: measure has no stages to trace frames through: leave it out"));
        }
        if self.common.take_over {
            return Err(Failure::new(
                "--take-over: measure only listens and takes no traffic from the host: leave it out",
            ));
        }
        if self.common.cores.is_some() {
            return Err(Failure::new("--cores: measure receives on one thread: write taskset -c 2 netlathe measure …"));
        }
        let (port, expected, only) = self.read()?;
        let folder = self.common.page_folder()?;
        let stop = Stop::on_signals()?;
        let law = match &expected {
            Some(Ask::Law(law)) => Some(law.place().map_err(Failure::new)?),
            _ => None,
        };
        let mut receiver = Receiver::new(only, expected.clone(), law, self.common.window, self.max_streams);
        let reception = Reception {
            common: &self.common,
            write: self.write.as_deref(),
            later: self.csv.iter().chain(&self.svg).cloned().collect(),
            count: self.count.unwrap_or(u64::MAX),
            duration: self.common.duration,
        };
        let mut outcome = match &port {
            PortSpec::Pcap(path) => from_capture(path, &mut receiver, &reception, &stop)?,
            port if port.can_receive() => from_port(port, &mut receiver, &reception, &stop)?,
            port => {
                return Err(Failure::new(format!(
                    "--in: nothing can be received from {port}: name a live port (eth0, pci:, dpdk:, tap:) or pcap:FILE"
                )));
            }
        };
        let mut report = receiver.report();
        say_if_none_met(&report);
        report.flow = outcome.reports.pop().and_then(|partial| partial.flow);
        if let Some(Ask::Gap(gap)) = expected {
            resolution::warn(&mut outcome.caveats, resolution::of_stamps(gap));
        }
        if let Some(beyond) = report.streams_beyond {
            let kind = CaveatKind::StreamsBeyond {
                streams: beyond.streams,
                frames: beyond.frames,
                most: self.max_streams.into(),
            };
            resolution::warn(&mut outcome.caveats, [Caveat::new(kind)]);
        }
        let written = self.write_gaps(&receiver, &report);
        let failure = output::all([outcome.failure.take().map_or(Ok(()), Err), written]).err();
        let report = pipelines::report("measure", vec![report], outcome.caveats);
        let verdict = expected.zip(self.expect.as_ref()).map(|(expected, text)| Verdict {
            expected: text.clone(),
            missed: self.miss(&expected, &report.pipelines[0]),
        });
        pipelines::conclude(&report, verdict.as_slice(), &self.common, folder, failure)
    }

    /// Writes what was asked for of the gaps: their distribution, and their drawing.
    fn write_gaps(&self, receiver: &Receiver, report: &PipelineReport) -> Result<(), Failure> {
        let write = |option: &str, path: &Option<PathBuf>, text: &dyn Fn() -> String| match path {
            None => Ok(()),
            Some(path) => {
                output_file::write(path, &text()).map_err(|failure| Failure::new(format!("{option}: {failure}")))
            }
        };
        let drawing = || page::gaps(report).unwrap_or_else(|| NO_GAPS.to_owned());
        output::all([
            write("--csv", &self.csv, &|| distribution(&receiver.gaps.buckets())),
            write("--svg", &self.svg, &drawing),
        ])
    }

    /// Reads where frames come from and what is expected of them; refuses to overwrite what is read.
    fn read(&self) -> Result<(PortSpec, Option<Ask>, Option<Only>), Failure> {
        let mut problems = Problems::default();
        let port = match (&self.input, &self.pcap) {
            (Some(input), _) => problems.read(&Text::option("--in", input.clone()), PortSpec::parse),
            (None, file) => file.clone().map(PortSpec::Pcap),
        };
        let listed = Listed::default();
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
        let port = problems.unless_any(port).map_err(Failure::new)?;
        let mut read = listed.into_paths();
        if let PortSpec::Pcap(path) = &port {
            read.push(path.clone());
        }
        if self.common.stats.is_some() && matches!(port, PortSpec::Pcap(_)) {
            return Err(Failure::new(NO_STATS));
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
            return Ok((port, expected, only));
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
        Ok((port, expected, only))
    }

    /// Why the expectation is missed, if it is.
    fn miss(&self, expected: &Ask, report: &PipelineReport) -> Option<String> {
        let (Some(gap), Some(rate)) = (&report.gap, &report.rate) else {
            return Some("fewer than two frames arrived".into());
        };
        let frame_rate = 1e9 / gap.mean_ns;
        let frames: fn(f64) -> String = |rate| format!("{} frames/s", output::digits(rate, 10));
        let (asked, got, figure) = match expected {
            Ask::Gap(asked) => (asked.as_ns_f64(), gap.mean_ns, output::time as fn(f64) -> String),
            Ask::Rate(Rate::Frames(asked)) => (asked.millis() as f64 / 1_000.0, frame_rate, frames),
            Ask::Rate(Rate::Bits(asked, Layer::Wire)) => {
                let overhead = frame_rate * f64::from(WireLen::OVERHEAD) * 8.0;
                (asked.bps() as f64, rate.mean_bps + overhead, output::bits as fn(f64) -> String)
            }
            Ask::Rate(Rate::Bits(asked, _)) => (asked.bps() as f64, rate.mean_bps, output::bits as fn(f64) -> String),
            Ask::Law(_) => {
                let p = report.fit.as_ref().map_or(0.0, measure::FitReport::p);
                return (p < LEAST_P)
                    .then(|| format!("gaps of this law would fit this badly with a probability of only {p:.2e}"));
            }
            Ask::Nothing | Ask::IdleGap(_) | Ask::Wave(_) | Ask::Depth(_) | Ask::Rate(Rate::Line(_)) => return None,
        };
        let off = (got - asked).abs() / asked;
        if off > self.tolerance.as_f64() {
            return Some(format!("the mean is {}, {:.4} % off {}", figure(got), off * 100.0, figure(asked)));
        }
        let near = gap.error.as_ref().map(|error| error.shares.within_1us_ratio).filter(|share| *share < 0.9);
        near.map(|share| format!("{:.2} % of the gaps are within 1 µs, below the required 90 %", share * 100.0))
    }
}

/// What is drawn where fewer than two frames arrived.
const NO_GAPS: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"920\" height=\"500\"><desc>No gap: fewer than two frames arrived.</desc></svg>\n";

/// Gaps by their size: each line has the least and the largest gap of a bucket, how many came, their share, and the share
/// of all up to there.
fn distribution(buckets: &[(u64, u64, u64)]) -> String {
    let all = buckets.iter().map(|(.., gaps)| gaps).sum::<u64>().max(1) as f64;
    let mut text = "from_ns,to_ns,gaps,share,up_to\n".to_owned();
    let mut sum = 0;
    for (from, to, gaps) in buckets {
        sum += gaps;
        let ns = |ps: u64| ps as f64 / units::PS_PER_NS as f64;
        let (share, up_to) = (*gaps as f64 / all, sum as f64 / all);
        text.push_str(&format!("{},{},{gaps},{share},{up_to}\n", ns(*from), ns(*to)));
    }
    text
}

/// A rule that no frame met is often another one than was meant.
fn say_if_none_met(report: &PipelineReport) {
    let Some((rule, left_out)) = report.rule.as_ref().zip(report.left_out) else { return };
    if report.came.frames == 0 && left_out.frames > 0 {
        let came = output::counted(left_out.frames, "frame");
        output::warn(format!("--only: {came} arrived, but none matches '{rule}': all were left out"));
    }
}

/// A law is missed when its gaps would fit it as badly as this, or worse, less often.
const LEAST_P: f64 = 1e-4;

/// Frames of a capture that no line carries: a NIC cut them after they were captured, or had joined them before.
#[derive(Default)]
struct Uncut {
    frames: u64,
    longest: u32,
}

impl Uncut {
    fn add(&mut self, length: FrameLen) {
        // Jumbo frames have up to 9216 B and tags.
        if length.bytes() > 9_300 {
            self.frames += 1;
            self.longest = self.longest.max(length.bytes());
        }
    }

    fn warning(&self, path: &Path) -> Option<Caveat> {
        (self.frames > 0).then(|| resolution::of_uncut(path, self.frames, self.longest))
    }
}

fn from_capture(
    path: &Path,
    receiver: &mut Receiver,
    reception: &Reception<'_>,
    stop: &Stop,
) -> Result<Outcome, Failure> {
    #[cfg(feature = "live")]
    crate::rights::keep_files();
    let mut source = PcapSource::open(path).map_err(Failure::new)?;
    let create = |path| CaptureWriter::create(path, WhenFull::Wait).map_err(Failure::new);
    let mut writer = reception.write.map(create).transpose()?;
    let mut frame = HeapFrame::default();
    // Records whose stamp was cut off, if they had one.
    let mut cut = 0;
    let mut uncut = Uncut::default();
    let mut failure = None;
    let mut progress = Progress::new(reception.common, ["measure"]);
    let end = reception.duration.map_or(Time::MAX, |duration| Time::from_ps(duration.as_ps()));
    while let Some(arrival) = source.arrival().filter(|arrival| *arrival < end) {
        if receiver.frames() >= reception.count || stop.asked() {
            break;
        }
        if progress.is_due() {
            progress.say(0, receiver.so_far(progress.passed()));
        }
        let arrived_ns = source.epoch_ns().saturating_add(arrival.as_ps() / units::PS_PER_NS);
        source.take(&mut frame);
        if !receiver.takes(frame.bytes(), frame.length()) {
            continue;
        }
        receiver.record(arrival, frame.length());
        uncut.add(frame.length());
        let is_cut = (frame.bytes().len() as u32) < frame.original();
        cut += u64::from(!receiver.record_stamp(frame.bytes(), arrived_ns) && is_cut);
        if let Some(writer) = &mut writer {
            failure = writer.write(arrived_ns, frame.bytes(), frame.original()).err().map(Failure::new);
            if failure.is_some() {
                break;
            }
        }
    }
    failure = failure.or(receiver.finish(writer.as_mut()).err());
    if let Some(fit) = &mut receiver.fit {
        fit.stamped_in_steps(source.step_ns());
    }
    let mut caveats = vec![Caveat::new(CaveatKind::Clock { source: ClockSource::Capture })];
    let step_ns = source.step_ns();
    let step = Caveat::new(CaveatKind::StampStep { file: path.display().to_string(), step_ns });
    let of_stamps = (cut > 0 && !receiver.streams.is_empty()).then(|| resolution::of_cut(path, cut));
    let oddities = source.oddities().cloned().unwrap_or_default();
    receiver.skipped = oddities.skipped_by_name();
    let of_oddities = resolution::of_oddities(path.display(), &oddities);
    let (of_steps, steps) = if step_ns > 1.0 { (Some(step), None) } else { (None, Some(step)) };
    caveats.extend(steps);
    let warnings = of_oddities.into_iter().chain(of_steps).chain(of_stamps).chain(uncut.warning(path));
    resolution::warn(&mut caveats, warnings);
    resolution::note_oddities(&oddities, &mut caveats);
    Ok(Outcome { reports: Vec::new(), caveats, failure: failure.or(source.failure().map(Failure::new)) })
}

#[cfg(feature = "live")]
fn from_port(
    port: &PortSpec,
    receiver: &mut Receiver,
    reception: &Reception<'_>,
    stop: &Stop,
) -> Result<Outcome, Failure> {
    crate::run::live::receive(port, receiver, reception, stop)
}

#[cfg(not(feature = "live"))]
fn from_port(_: &PortSpec, _: &mut Receiver, _: &Reception<'_>, _: &Stop) -> Result<Outcome, Failure> {
    Err(Failure::no_live_ports())
}
