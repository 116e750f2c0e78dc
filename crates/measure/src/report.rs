use crate::Caveat;
use crate::arrivals::ArrivalsReport;
use crate::buckets::Buckets;
use crate::clock_offset::ClockReport;
use crate::crest_gaps::CrestGapReport;
use crate::effects::{ChoiceReports, EffectCounts, Effects, ReorderReport};
use crate::fit::FitReport;
use crate::frame_counters::{DropReason, Drops, Tally};
use crate::held::{DelayReport, HeldMeter};
use crate::limit::LimitReport;
use crate::octaves::{Octaves, OctavesReport};
use crate::plots::Plots;
use crate::programs::ProgramReport;
use crate::replay::ReplayReport;
use crate::segments::{ChangeReport, SegmentReport};
use crate::slices::{EndToEnd, PipelineSlices};
use crate::steps::StepReport;
use crate::streams::{BeyondStreams, StreamReport};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use units::{Span, Time};

/// The report of a run; its field names are stable within a schema version.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Report {
    /// Version of the format.
    pub schema: u32,
    /// The command that ran.
    pub command: &'static str,
    /// Limitations of the figures, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// One entry for each pipeline.
    pub pipelines: Vec<PipelineReport>,
    /// Paths of packets from program to program, if the kernel was traced as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_to_end: Option<EndToEnd>,
    /// Programs of the scenario.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramReport>,
    /// Expectations and what was obtained.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expectations: Vec<ExpectationReport>,
    /// Clocks of peers during the run, with `--clock-peer`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<ClockReport>,
    /// What this run could not resolve, or did differently from what was asked.
    pub caveats: Vec<Caveat>,
}

/// An expectation and its verdict.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct ExpectationReport {
    /// What was expected, as written.
    pub that: String,
    /// The figure, in the unit of the report; null if the run does not have it.
    pub value: Option<f64>,
    /// Whether it was met.
    pub ok: bool,
    /// Why it was missed, with the value and its unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
}

impl ExpectationReport {
    /// The verdict on `that`; `missed` says why it was missed.
    #[must_use]
    pub fn new(that: impl Into<String>, value: Option<f64>, missed: Option<String>) -> Self {
        ExpectationReport { that: that.into(), value, ok: missed.is_none(), missed }
    }
}

impl Report {
    /// The format version that this code writes.
    pub const SCHEMA: u32 = 2;
}

/// Report of one pipeline.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct PipelineReport {
    /// The name.
    pub name: String,
    /// Of a class: its rule; absent for the default class. Of a receiver: the rule of measured frames.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The asked start and the obtained one, with `--start-at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<StartReport>,
    /// Frames received.
    #[serde(rename = "in")]
    pub arrived: Tally,
    /// Frames of a receiver that were excluded from the measurement, and so from all other figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<Tally>,
    /// Records of the input's capture that are not frames, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped: BTreeMap<String, u64>,
    /// Frames sent, without fillers.
    #[serde(rename = "out")]
    pub left: Tally,
    /// The return path, if there is one.
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub back: Option<ReturnReport>,
    /// Frames that arrived on a generator's sending port, and its answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<AnswersReport>,
    /// Frames made by duplication.
    pub copies: u64,
    /// Frames dropped, by reason.
    pub drops: Drops,
    /// Effects of stages on frames that were not dropped, with counts.
    #[serde(skip_serializing_if = "EffectCounts::is_empty")]
    pub effects: EffectCounts,
    /// Asked probabilities and their outcomes.
    #[serde(skip_serializing_if = "ChoiceReports::is_empty")]
    pub choices: ChoiceReports,
    /// Delays by stages, measured and asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<DelayReport>,
    /// Order of frames after stages that may change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<ReorderReport>,
    /// Frames in the pipeline at its end.
    pub held: u64,
    /// Inter-departure times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<GapReport>,
    /// Comparison of the gaps with the asked law.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fit: Option<FitReport>,
    /// Share of a waveform's integral that went unused because no frame was ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forfeited_ratio: Option<f64>,
    /// Comparison of each gap with its own target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conformance: Option<ConformanceReport>,
    /// Rate of sent frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateReport>,
    /// Lateness of departures, in ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness: Option<LatenessReport>,
    /// Times that a departure was due and no frame was ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("row" = "{time}: no frame was ready when one was due"))]
    pub starved: Option<u64>,
    /// The buffer at the start of the schedule, and the one that would have been enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<BufferReport>,
    /// Lateness that was forgiven, if asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forgiven: Option<Forgiven>,
    /// Departures before which less than the smallest filler was idle, so that the error was carried.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("row" = "{departure} closer than the smallest filler, corrected at the next"))]
    pub carried: Option<u64>,
    /// Departures that waited because the line was busy with the preceding frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("row" = "{departure} waited for the previous frame to leave the line"))]
    pub crowded: Option<u64>,
    /// Of a class: departures that waited for a frame of another class to leave the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contended: Option<Contended>,
    /// How far the run fell behind a target that the line or the frames did not allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortfall: Option<Shortfall>,
    /// Times that the transmit queue ran empty although it should not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("row" = "{time}: the queue was empty while the line could have sent"))]
    pub underruns: Option<u64>,
    /// Filler frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fillers: Option<Tally>,
    /// Figures from the far end of a line in real time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<LineReport>,
    /// Set for a filled live port that did not keep the line rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<PaceReport>,
    /// Frames waiting for their departure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<DepthReport>,
    /// The pacer that was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacer: Option<&'static str>,
    /// Further figures of a receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<Flow>,
    /// Each source, if sources were synchronised.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceReport>,
    /// Sources at a receiver, with `measure --sources`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<ArrivalsReport>,
    /// Gaps between the crests of different sources, of `--sync` and `--sources`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crest_gap: Option<CrestGapReport>,
    /// Each class, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<PipelineReport>,
    /// Report of a `limit` stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitReport>,
    /// Streams with stamps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamReport>,
    /// Streams beyond the limit of those with their own figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams_beyond: Option<BeyondStreams>,
    /// Frames of a replayed capture at its receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayReport>,
    /// Changes of settings during the run, in order of time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ChangeReport>,
    /// The figures between changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<SegmentReport>,
    /// Where sampled frames spent their time, with `--slices`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<PipelineSlices>,
    /// Whole histograms, with `--histograms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histograms: Option<Histograms>,
    /// Distributions by powers of two, as metrics have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub octaves: Option<OctavesReport>,
    /// The rate over time, with `--histograms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_curve: Option<RateCurve>,
    /// The way back as a separate direction, to be reported beside this one.
    #[serde(skip)]
    pub backward: Option<Box<PipelineReport>>,
    /// When the first frame departed, by the clock of the run.
    #[serde(skip)]
    pub first_departure: Option<Time>,
    /// Data for plots; not part of the report on stdout.
    #[serde(skip)]
    pub plots: Option<Box<Plots>>,
}

impl PipelineReport {
    /// Adds effects of stages, and the delays of departed frames.
    pub fn add_effects(&mut self, effects: &Effects, held: &HeldMeter) {
        (self.effects, self.delay, self.reorder) = (effects.counts(), held.report(), effects.reorder());
        self.choices = effects.choices();
        if self.delay.is_some() {
            self.histograms.get_or_insert_default().delay_ps = held.whole();
            self.add_delays(&held.octaves());
        }
        if let Some(plots) = self.plots.as_mut().filter(|_| self.delay.is_some()) {
            plots.delay = held.plot(effects.law().as_ref());
        }
    }

    /// Adds delays of departed frames to the distributions.
    pub fn add_delays(&mut self, delays: &Octaves) {
        let octaves = self.octaves.get_or_insert_default();
        (octaves.delay, octaves.delay_total_ns) = (delays.pairs(), delays.total_ns());
    }

    /// Moves frames from those sent to those dropped, because they could not be written to their file.
    pub fn take_back(&mut self, unwritten: Tally) {
        self.left = self.left.since(unwritten);
        self.drops.count(DropReason::Unwritten, unwritten.frames);
    }

    /// Sets the pacer that was used, also for all classes.
    pub fn set_pacer(&mut self, name: &'static str) {
        self.pacer = Some(name);
        for class in &mut self.classes {
            class.pacer = Some(name);
        }
    }

    /// True if a pacer or a delaying stage sets departure times. Otherwise no frame is late.
    #[must_use]
    pub fn says_when(&self) -> bool {
        let holds = |report: &PipelineReport| report.delay.is_some();
        self.pacer.is_some_and(|pacer| pacer != "none") || holds(self) || self.classes.iter().any(holds)
    }

    /// Removes whole histograms, also of all classes.
    pub fn forget_histograms(&mut self) {
        self.histograms = None;
        self.classes.iter_mut().for_each(PipelineReport::forget_histograms);
    }

    /// Removes comparisons with a target, for a run without one. If a stream goes to a file, the schedule only models
    /// the line, and delays by stages do not affect it.
    pub fn forget_ask(&mut self) {
        self.conformance = None;
        self.starved = self.starved.map(|_| 0);
        self.buffer = None;
        if let Some(octaves) = &mut self.octaves {
            (octaves.gap_error, octaves.gap_error_total_ns) = (Vec::new(), 0);
        }
        if let Some(plots) = &mut self.plots {
            plots.forget_ask();
        }
    }
}

/// The rate of frames with FCS in consecutive windows since the first frame.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct RateCurve {
    /// Length of a window.
    pub window_ns: f64,
    /// Measured rate in each window.
    pub got_bps: Vec<f64>,
}

/// Whole histograms, so that reports of several hosts can be merged exactly: the smallest value of each bucket in ps, and
/// the number of values. Buckets are those of three significant digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Histograms {
    /// Inter-departure times.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gap_ps: Vec<(u64, u64)>,
    /// Lateness; early departures count as 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lateness_ps: Vec<(u64, u64)>,
    /// Measured delays by stages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub delay_ps: Vec<(u64, u64)>,
}

/// The start of a run that was asked for an instant, by the clock of its host.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct StartReport {
    /// The asked instant, as UNIX time.
    pub asked_unix_ns: u64,
    /// When the first frame departed; at a receiver, when the first counted frame arrived. Absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obtained_unix_ns: Option<u64>,
    /// The obtained instant minus the asked one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miss_ns: Option<i64>,
}

impl StartReport {
    /// A start that was obtained at this distance from the asked instant, if any frame came.
    #[must_use]
    pub fn of(asked_unix_ns: u64, miss_ns: Option<i64>) -> Self {
        let obtained_unix_ns = miss_ns.map(|miss| asked_unix_ns.saturating_add_signed(miss));
        StartReport { asked_unix_ns, obtained_unix_ns, miss_ns }
    }
}

/// Frames carried back from the output port to the input port. Balances on its own.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct ReturnReport {
    /// Frames received at the output port.
    #[serde(rename = "in")]
    pub arrived: Tally,
    /// Frames sent at the input port.
    #[serde(rename = "out")]
    pub left: Tally,
    /// Frames dropped, by reason.
    pub drops: Drops,
    /// Frames still held when the run ended.
    pub held: u64,
}

/// Frames that arrived on a generator's sending port, and the answers to requests for the addresses of its streams: in
/// = answered + ignored + drops + held. No other count includes them.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct AnswersReport {
    /// Frames received there.
    #[serde(rename = "in")]
    pub arrived: Tally,
    /// Answers sent.
    pub answered: AnsweredTally,
    /// Frames that needed no answer.
    pub ignored: u64,
    /// Requests that arrived while too many answers waited.
    pub drops: Drops,
    /// Answers not sent by the end of the run.
    pub held: u64,
    /// Part of the ignored frames: requests for addresses that no stream has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<Unanswered>,
    /// Part of the ignored frames: refusals of packets, by ICMP or ICMPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
}

impl AnswersReport {
    /// Counts an unanswered request. Keeps the first one.
    pub fn count_unanswered(&mut self, (asker, target): (IpAddr, IpAddr)) {
        self.unanswered.get_or_insert(Unanswered { asker, target, requests: 0 }).requests += 1;
    }

    /// Counts an ICMP or ICMPv6 error. Keeps the first one.
    pub fn count_icmp_error(&mut self, (by, reason): (IpAddr, &'static str)) {
        self.refused.get_or_insert(Refused { by, reason, packets: 0 }).packets += 1;
    }
}

/// Unanswered ARP requests and neighbour solicitations.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Unanswered {
    /// Sender of the first request.
    pub asker: IpAddr,
    /// The requested address.
    pub target: IpAddr,
    /// Number of requests.
    pub requests: u64,
}

/// Messages of routers and hosts that refuse packets.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Refused {
    /// Sender of the first refusal.
    pub by: IpAddr,
    /// The reason, in the words of the protocol.
    pub reason: &'static str,
    /// Number of messages.
    pub packets: u64,
}

/// Answers by kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct AnsweredTally {
    /// ARP requests.
    pub arp: u64,
    /// Neighbour solicitations.
    pub ndp: u64,
    /// Echo requests of ICMP and ICMPv6.
    pub echo: u64,
}

impl AnsweredTally {
    /// The sum.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.arp + self.ndp + self.echo
    }
}

/// Inter-departure times, start to start, in nanoseconds.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct GapReport {
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Standard deviation.
    pub std_ns: f64,
    /// Smallest.
    pub min_ns: f64,
    /// Largest.
    pub max_ns: f64,
    /// 1st percentile, to 0.1 %.
    pub p1_ns: f64,
    /// Median, to 0.1 %.
    pub p50_ns: f64,
    /// 99th percentile, to 0.1 %.
    pub p99_ns: f64,
    /// 99.9th percentile, to 0.1 %.
    pub p999_ns: f64,
    /// Error against the fixed gap that was asked, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<GapError>,
}

/// Error of gaps against a fixed target. `mean` is signed; `max`, `p50` and `p99` refer to the absolute error; ns.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct GapError {
    /// The asked gap.
    pub asked_ns: f64,
    /// Signed mean error.
    pub mean_ns: f64,
    /// Largest absolute error.
    pub max_ns: f64,
    /// Median absolute error.
    pub p50_ns: f64,
    /// 99th percentile of the absolute error.
    pub p99_ns: f64,
    /// Shares by size of the error.
    #[serde(flatten)]
    pub shares: SharesWithin,
}

/// Shares of gaps whose absolute error is within a bound.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct SharesWithin {
    /// Share of gaps with an absolute error up to one byte time of the line, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_1_byte_time_ratio: Option<f64>,
    /// Share of gaps with an absolute error up to 64 ns.
    pub within_64ns_ratio: f64,
    /// Share of gaps with an absolute error up to 256 ns.
    pub within_256ns_ratio: f64,
    /// Share of gaps with an absolute error up to 1 µs.
    pub within_1us_ratio: f64,
}

/// Each gap compared with its own target: e = measured gap − asked gap between the same two departures; in ns.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ConformanceReport {
    /// Gaps compared.
    pub count: u64,
    /// Mean of the asked gaps.
    pub asked_mean_ns: f64,
    /// Smallest asked gap.
    pub asked_min_ns: f64,
    /// Largest asked gap.
    pub asked_max_ns: f64,
    /// Median of \|e\|.
    pub p50_ns: f64,
    /// 99th percentile of \|e\|.
    pub p99_ns: f64,
    /// Largest \|e\|.
    pub max_ns: f64,
    /// Shares by \|e\|.
    #[serde(flatten)]
    pub shares: SharesWithin,
    /// Share of gaps without an idle line: on a line, up to the duration of the preceding frame plus one byte time;
    /// otherwise less than a tenth of the asked gap.
    pub back_to_back_ratio: f64,
}

/// Rate of frames with FCS. The mean is (lengths of all frames except the last) ÷ (last start − first start); the other
/// figures cover complete windows since the first frame.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct RateReport {
    /// Length of a window.
    pub window_ns: f64,
    /// Number of complete windows.
    pub windows: u64,
    /// Mean over the run.
    pub mean_bps: f64,
    /// Slowest window.
    pub min_bps: Option<f64>,
    /// Fastest window.
    pub max_bps: Option<f64>,
    /// Fastest minus slowest, in bytes per second, as LightShaper's Fig. 5 states it.
    #[serde(rename = "range_Bps")]
    pub range_bytes_per_second: Option<f64>,
    /// Standard deviation over windows.
    pub std_bps: Option<f64>,
    /// Mean frames per second over the run: 1 ÷ the mean gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_fps: Option<f64>,
    /// The asked rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<AskedRate>,
    /// Each step of a waveform, or its bursts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepReport>,
}

impl RateReport {
    /// Adds the mean frames per second, from these gaps.
    #[must_use]
    pub fn with_frames(self, gap: Option<&GapReport>) -> Self {
        RateReport { mean_fps: gap.filter(|gap| gap.mean_ns > 0.0).map(|gap| 1e9 / gap.mean_ns), ..self }
    }
}

/// An asked rate, compared with the obtained one in the same unit.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct AskedRate {
    /// The rate as typed.
    pub text: String,
    /// Set if it is a constant frame rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fps: Option<f64>,
    /// Set if it is a constant bit rate, of the layer that it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bps: Option<f64>,
    /// Set if it is a share of the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line_ratio: Option<f64>,
    /// The obtained rate is that of the plan; nothing was measured.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub planned: bool,
    /// The obtained rate in words, in the same unit.
    #[serde(skip)]
    pub got: String,
}

/// Departure minus target in ns; early departures count as zero in the quantiles.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct LatenessReport {
    /// Median.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// Largest.
    pub max_ns: f64,
    /// Largest lead of a departure over its target, as a positive number.
    pub early_max_ns: f64,
    /// Departures by lateness, in steps of 1, 2, 5 × 10ⁿ ns; early ones are in the first bucket.
    pub histogram: Buckets,
    /// Interruptions, as seen in departures; real time only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hiccups: Option<Hiccups>,
}

/// A hiccup is a run of consecutive departures that are all later than `above_ns`.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize)]
pub struct Hiccups {
    /// Lateness from which a departure belongs to a hiccup.
    pub above_ns: f64,
    /// Number of hiccups.
    pub count: u64,
    /// Departures in them.
    pub frames: u64,
    /// Largest lateness in hiccups; 0 if there were none.
    pub longest_ns: f64,
}

/// Forgiven lateness, which moved the rest of the schedule.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Forgiven {
    /// Number of times.
    pub times: u64,
    /// Total in ns.
    pub total_ns: f64,
}

impl From<(u64, Span)> for Forgiven {
    fn from((times, total): (u64, Span)) -> Self {
        Forgiven { times, total_ns: total.as_ns_f64() }
    }
}

/// How far a run fell behind an impossible target.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Shortfall {
    /// Lateness of the last departure.
    pub behind_ns: f64,
    /// Planned duration of the run ÷ actual duration.
    pub obtained_ratio: f64,
}

/// Figures from the far end of a line in real time.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct LineReport {
    /// Capacity of the queue before the line, in frames.
    pub slots: u32,
    /// Data frames.
    pub data: Tally,
    /// Filler frames.
    pub fillers: Tally,
    /// Times that the line idled because the queue was empty.
    pub underruns: u64,
    /// Total idle time.
    pub idle_ns: f64,
    /// Data frames whose position was compared with the plan, relative to the first.
    pub compared: u64,
    /// Data frames that were not at their planned position.
    pub displaced: u64,
    /// Largest deviation.
    pub max_off_ns: f64,
}

/// A port that takes frames faster or slower than its stated line rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct PaceReport {
    /// Wire time of the frames that it took (if faster) or sent (if slower), in ns.
    pub wire_ns: f64,
    /// Elapsed time since its first frame, in ns.
    pub elapsed_ns: f64,
}

/// Delay of a schedule's start.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize)]
pub struct BufferReport {
    /// Delay after the first frame, as asked.
    pub asked_ns: f64,
    /// Width of the wave: the shortest buffer with which no departure would have starved.
    pub width_ns: f64,
    /// No departure was starved.
    pub enough: bool,
}

/// A synchronised source.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct SourceReport {
    /// The address or prefix.
    pub source: String,
    /// Frames received.
    #[serde(rename = "in")]
    pub arrived: Tally,
    /// Frames sent.
    #[serde(rename = "out")]
    pub left: Tally,
    /// Rounds with a crest of this source.
    pub crests: u64,
    /// Rounds without it.
    pub missed: u64,
    /// Delay of its first frame after the first frame of a round.
    pub skew: Skew,
    /// Total time for which its crests overlapped with those of other sources.
    pub overlap: Overlap,
}

/// Delay of a source relative to the first one of each round, in ns.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize)]
pub struct Skew {
    /// Mean.
    pub mean_ns: f64,
    /// Largest.
    pub max_ns: f64,
}

/// Overlap of crests of several sources in ns, at arrival and at departure.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize)]
pub struct Overlap {
    /// At arrival, from the first to the last arrival of a crest.
    pub in_ns: f64,
    /// At departure, from the first start to the last end of a crest.
    pub out_ns: f64,
}

/// Departures of a class that waited because the line was busy with a frame of another class.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct Contended {
    /// Number of departures.
    pub frames: u64,
    /// Longest wait, from target to start, in ns.
    pub max_ns: f64,
}

/// Frames waiting for their departure.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct DepthReport {
    /// Largest number at one time.
    pub max_frames: u64,
}

/// Figures of a receiver beyond its frames.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Flow {
    /// Frames that the kernel counted but could not deliver.
    pub kernel_drops: u64,
    /// Frames whose checksum was left to missing hardware: they were never on a wire in this form.
    pub partial_checksums: u64,
    /// Frames longer than the interface's MTU allows (GSO super-frames).
    pub super_frames: u64,
    /// Stamped frames that departed before the run. They belong to an earlier one and are in no other count. Only a
    /// receiver beside its sender can identify them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier: Option<u64>,
    /// Stamped frames of streams that this sender does not send. No other count includes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreign: Option<u64>,
    /// Of a receiver beside its sender: frames without a stamp, and its answers to requests for the destination
    /// addresses of the streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<AnswersReport>,
    /// What each receive queue of a polled port delivered. Empty if the kernel receives.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueReport>,
}

/// A receive queue.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct QueueReport {
    /// The queue number.
    pub queue: u16,
    /// Frames received on it, of any kind.
    pub frames: u64,
}
