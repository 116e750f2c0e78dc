use crate::books::{Drops, Tally};
use crate::buckets::Buckets;
use crate::effects::{ChoiceReports, EffectCounts, Effects, ReorderReport};
use crate::fit::FitReport;
use crate::held::{DelayReport, HeldMeter};
use crate::limit::LimitReport;
use crate::plots::Plots;
use crate::slices::{EndToEnd, PipelineSlices};
use crate::streams::StreamReport;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use units::Span;

/// The report of a run; its field names are stable within a schema version.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of the format.
    pub schema: u32,
    /// The command that ran.
    pub command: &'static str,
    /// One entry for each pipeline.
    pub pipelines: Vec<PipelineReport>,
    /// Packets' way from program to program, where the kernel was followed, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_to_end: Option<EndToEnd>,
    /// What this run could not resolve, and what the figures mean.
    pub limits: serde_json::Map<String, serde_json::Value>,
}

impl Report {
    /// Version of the format that this code writes.
    pub const SCHEMA: u32 = 1;
}

/// What one pipeline did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PipelineReport {
    /// Its name.
    pub name: String,
    /// Of a class: which frames are of it; absent for the default class. Of a receiver: which were to be measured.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Frames that came in.
    #[serde(rename = "in")]
    pub came: Tally,
    /// Frames that came to a receiver and were not to be measured: in no other figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<Tally>,
    /// Records of the input's capture that are no frames, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped: BTreeMap<String, u64>,
    /// Frames that left, without fillers.
    #[serde(rename = "out")]
    pub left: Tally,
    /// The way back, where there is one.
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub back: Option<ReturnReport>,
    /// What arrived on the port that a generator sends on, and what it answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<AnswersReport>,
    /// Frames made by duplication.
    pub copies: u64,
    /// Frames dropped, by reason.
    pub drops: Drops,
    /// What stages did to frames that they did not drop, and how often.
    #[serde(skip_serializing_if = "EffectCounts::is_empty")]
    pub effects: EffectCounts,
    /// Chances that were asked for, and what came of them.
    #[serde(skip_serializing_if = "ChoiceReports::is_empty")]
    pub choices: ChoiceReports,
    /// Delays by stages, obtained and asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<DelayReport>,
    /// The order of frames behind stages that may change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<ReorderReport>,
    /// Frames that were in the pipeline when it ended.
    pub held: u64,
    /// Inter-departure times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<GapReport>,
    /// Gaps against the law that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fit: Option<FitReport>,
    /// Share of a waveform's integral that no frame was there to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forfeited_share: Option<f64>,
    /// Each gap against the one that the schedule asked for just there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conformance: Option<ConformanceReport>,
    /// Rate of what left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateReport>,
    /// Departures against the schedule's ask, in ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness: Option<LatenessReport>,
    /// Times the schedule found no frame ready when one should have departed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starved: Option<u64>,
    /// What the schedule waited for at its start, and what would have been enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<BufferReport>,
    /// Lateness that was not made good, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forgiven: Option<Forgiven>,
    /// Departures for which less than the smallest filler was idle, so that the error was carried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried: Option<u64>,
    /// Departures that had to wait since the line was still busy with the frame before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crowded: Option<u64>,
    /// Of a class: departures that waited for a frame of another class to leave the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contended: Option<Contended>,
    /// How far the run fell behind an ask that the line or the frames did not allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortfall: Option<Shortfall>,
    /// Times the transmit queue ran empty where it should not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub underruns: Option<u64>,
    /// Filler frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fillers: Option<Tally>,
    /// What the far end of a line in real time saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<LineReport>,
    /// Of a live port that was filled and was seen not to keep the line's rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<PaceReport>,
    /// Frames waiting for their departure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<DepthReport>,
    /// The pacer that was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacer: Option<&'static str>,
    /// What came by flow of a measured port, where there is more than the frames themselves to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<Flow>,
    /// Each source by itself, where they were synchronised.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceReport>,
    /// Each class by itself, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<PipelineReport>,
    /// What a stage `limit` did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitReport>,
    /// Streams that are stamped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamReport>,
    /// Where sampled frames spent their time, with `--slices`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<PipelineSlices>,
    /// The way back as a direction of its own, to be reported beside this one.
    #[serde(skip)]
    pub backward: Option<Box<PipelineReport>>,
    /// What can be drawn; no part of the report on stdout.
    #[serde(skip)]
    pub plots: Option<Box<Plots>>,
}

impl PipelineReport {
    /// Adds what stages did, and how long the frames that left were delayed.
    pub fn add_effects(&mut self, effects: &Effects, held: &HeldMeter) {
        (self.effects, self.delay, self.reorder) = (effects.counts(), held.report(), effects.reorder());
        self.choices = effects.choices();
        if let Some(plots) = self.plots.as_mut().filter(|_| self.delay.is_some()) {
            plots.delay = held.plot(effects.law().as_ref());
        }
    }

    /// Names the pacer that was used, of all classes too.
    pub fn set_pacer(&mut self, name: &'static str) {
        self.pacer = Some(name);
        for class in &mut self.classes {
            class.pacer = Some(name);
        }
    }

    /// True where somebody said when frames depart: a pacer, or stages that hold them. Otherwise nothing is late.
    #[must_use]
    pub fn says_when(&self) -> bool {
        let holds = |report: &PipelineReport| report.delay.is_some();
        self.pacer.is_some_and(|pacer| pacer != "none") || holds(self) || self.classes.iter().any(holds)
    }

    /// Leaves out what compares with an ask, for a run that asked nothing. Where a stream goes into a file a schedule
    /// stands for the line, and nobody minds that stages keep it waiting.
    pub fn forget_ask(&mut self) {
        self.conformance = None;
        self.starved = self.starved.map(|_| 0);
        self.buffer = None;
        if let Some(plots) = &mut self.plots {
            plots.forget_ask();
        }
    }
}

/// Frames carried back from the output port to the input port; balances by itself.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReturnReport {
    /// Frames that came in at the output port.
    #[serde(rename = "in")]
    pub came: Tally,
    /// Frames that left at the input port.
    #[serde(rename = "out")]
    pub left: Tally,
    /// Frames dropped, by reason.
    pub drops: Drops,
    /// Frames still held when the run ended.
    pub held: u64,
}

/// Frames that arrived on the port that a generator sends on, and its answers to those who asked for the
/// addresses of its streams: in = answered + ignored + drops + held. No other count has any of them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AnswersReport {
    /// Frames that came in there.
    #[serde(rename = "in")]
    pub came: Tally,
    /// Answers that were sent.
    pub answered: AnsweredTally,
    /// Frames that asked for nothing of ours.
    pub ignored: u64,
    /// Frames that asked while too many answers waited.
    pub drops: Drops,
    /// Answers that were not sent when the run ended.
    pub held: u64,
    /// Of those ignored: questions for addresses of which no stream has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<Unanswered>,
    /// Of those ignored: refusals to pass on a packet, by ICMP or ICMPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
}

impl AnswersReport {
    /// Counts a question that is not answered. The first one is kept.
    pub fn ask_in_vain(&mut self, (asker, target): (IpAddr, IpAddr)) {
        self.unanswered.get_or_insert(Unanswered { asker, target, requests: 0 }).requests += 1;
    }

    /// Counts a refusal. The first one is kept.
    pub fn refuse(&mut self, (by, reason): (IpAddr, &'static str)) {
        self.refused.get_or_insert(Refused { by, reason, packets: 0 }).packets += 1;
    }
}

/// Requests of ARP and neighbour solicitations that were not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unanswered {
    /// Who asked first.
    pub asker: IpAddr,
    /// For which address.
    pub target: IpAddr,
    /// All of them.
    pub requests: u64,
}

/// Messages of routers and hosts that refuse packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Who refused first.
    pub by: IpAddr,
    /// Why, in its words.
    pub reason: &'static str,
    /// All of them.
    pub packets: u64,
}

/// Answers by what was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AnsweredTally {
    /// ARP requests.
    pub arp: u64,
    /// Neighbour solicitations.
    pub ndp: u64,
    /// Echo requests of ICMP and ICMPv6.
    pub echo: u64,
}

impl AnsweredTally {
    /// All together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.arp + self.ndp + self.echo
    }
}

/// Inter-departure times, start to start, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the names are the documentation: quantiles in ns")]
pub struct GapReport {
    pub count: u64,
    pub mean_ns: f64,
    pub std_ns: f64,
    pub min_ns: f64,
    pub max_ns: f64,
    pub p1: f64,
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    /// Against the gap that was asked, if it is a fixed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<GapError>,
}

/// Gaps against a fixed ask. `mean` is signed; `max`, `p50` and `p99` are of the absolute error; ns.
#[derive(Clone, Debug, Serialize)]
pub struct GapError {
    /// What was asked.
    pub ask_ns: f64,
    /// Signed mean error.
    pub mean_ns: f64,
    /// Largest absolute error.
    pub max_ns: f64,
    /// Median absolute error.
    pub p50: f64,
    /// 99th percentile of the absolute error.
    pub p99: f64,
    /// By the size of the error.
    #[serde(flatten)]
    pub shares: SharesWithin,
}

/// Shares of gaps whose absolute error is up to a bound.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(missing_docs, reason = "the names are the documentation; a byte time is that of the line, if there is one")]
pub struct SharesWithin {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_1_byte_time: Option<f64>,
    pub within_64ns: f64,
    pub within_256ns: f64,
    pub within_1us: f64,
}

/// Each gap against its own ask: e = gap obtained − gap asked between the same two departures; in ns.
#[derive(Clone, Debug, Serialize)]
pub struct ConformanceReport {
    /// Gaps compared.
    pub count: u64,
    /// Mean of the gaps asked.
    pub asked_mean_ns: f64,
    /// Least gap asked.
    pub asked_min_ns: f64,
    /// Largest gap asked.
    pub asked_max_ns: f64,
    /// Median of \|e\|.
    pub p50: f64,
    /// 99th percentile of \|e\|.
    pub p99: f64,
    /// Largest \|e\|.
    pub max_ns: f64,
    /// By \|e\|.
    #[serde(flatten)]
    pub shares: SharesWithin,
    /// Share of gaps without an idle line: on a line, up to the time of the frame before and one byte
    /// time; elsewhere, less than a tenth of the gap asked.
    pub back_to_back: f64,
}

/// Rate of frames with FCS. The mean is (lengths of all but the last) ÷ (last start − first start);
/// the other figures are over whole windows from the first frame on.
#[derive(Clone, Debug, Serialize)]
pub struct RateReport {
    /// Length of a window.
    pub window_ns: f64,
    /// Whole windows seen.
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
}

/// Departure minus ask, in nanoseconds; early departures count as zero in the quantiles.
#[derive(Clone, Debug, Serialize)]
pub struct LatenessReport {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
    /// Earliest departure before its ask, as a positive number.
    pub early_max: f64,
    /// Departures by lateness, in steps of 1, 2, 5 × 10ⁿ ns; early ones are in the first.
    pub histogram: Buckets,
    /// Interruptions, as departures show them; real time only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hiccups: Option<Hiccups>,
}

/// A hiccup is a run of consecutive departures that are all later than `above_ns`.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Hiccups {
    /// Lateness from which on a departure is part of one.
    pub above_ns: f64,
    /// How many.
    pub count: u64,
    /// Departures in them.
    pub frames: u64,
    /// The latest of these departures; 0 if there were none.
    pub longest_ns: f64,
}

/// Lateness that moved the rest of the schedule instead of being made good.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Forgiven {
    /// How often.
    pub times: u64,
    /// How much in all.
    pub ns: f64,
}

impl From<(u64, Span)> for Forgiven {
    fn from((times, total): (u64, Span)) -> Self {
        Forgiven { times, ns: total.as_ns_f64() }
    }
}

/// How far a run fell behind an ask that could not be had.
#[derive(Clone, Debug, Serialize)]
pub struct Shortfall {
    /// How late the last departure was.
    pub behind_ns: f64,
    /// Time that the ask wanted for the run ÷ time that it took.
    pub obtained_share: f64,
}

/// What the far end of a line in real time saw.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LineReport {
    /// Frames that the queue before the line holds.
    pub slots: u32,
    /// Data frames.
    pub data: Tally,
    /// Filler frames.
    pub fillers: Tally,
    /// Times that the line had to idle since the queue was empty.
    pub underruns: u64,
    /// How long it idled in all.
    pub idle_ns: f64,
    /// Data frames whose place was compared with the plan, counted from the first.
    pub compared: u64,
    /// Those of them that were not where the plan had them.
    pub displaced: u64,
    /// How far the worst of them was off.
    pub max_off_ns: f64,
}

/// A port that takes frames faster or slower than the line whose rate was said for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PaceReport {
    /// Time on the line of what it took (faster) or sent (slower), in ns.
    pub wire_ns: f64,
    /// Time in which it did so, from its first frame on, in ns.
    pub elapsed_ns: f64,
}

/// Buffering before a schedule starts.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct BufferReport {
    /// How long the schedule waited after the first frame.
    pub asked_ns: f64,
    /// The width of the wave: with a buffer this long no departure would have been starved.
    pub width_ns: f64,
    /// No departure was starved.
    pub enough: bool,
}

/// One of several sources that were synchronised.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SourceReport {
    /// Its address or prefix.
    pub source: String,
    /// Its frames that came.
    #[serde(rename = "in")]
    pub came: Tally,
    /// Its frames that left.
    #[serde(rename = "out")]
    pub left: Tally,
    /// Rounds in which it had a crest.
    pub crests: u64,
    /// Rounds that went without it.
    pub missed: u64,
    /// How long after the first frame of a round its first one came.
    pub skew: Skew,
    /// For how long its crests shared the time with those of other sources, in all.
    pub overlap: Overlap,
}

/// Delay of a source against the first one of each round, in ns.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct Skew {
    pub mean_ns: f64,
    pub max_ns: f64,
}

/// Time that crests of several sources shared, in ns: as frames came, and as they left.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct Overlap {
    pub in_ns: f64,
    pub out_ns: f64,
}

/// Departures of a class that waited since the line was busy with a frame of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Contended {
    /// How many.
    pub frames: u64,
    /// The longest that one of them waited, from its ask to its start, in ns.
    #[serde(rename = "max")]
    pub max_ns: f64,
}

/// Frames that waited for their departure.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DepthReport {
    /// Most at one time.
    pub max: u64,
}

/// What a receiver knows beyond the frames that it was given.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Flow {
    /// Frames that the kernel counted but could not deliver to us.
    pub kernel_drops: u64,
    /// Frames whose checksum was left to hardware that is not there: they never were on a wire like this.
    pub partial_checksums: u64,
    /// Frames longer than the interface's MTU allows (GSO super-frames).
    pub super_frames: u64,
    /// Stamped frames that had departed before the run: of an earlier one, and in no other count. Only a receiver
    /// beside its sender can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier: Option<u64>,
    /// Of a receiver beside its sender: frames that are no stamped ones, and its answers to those who asked for the
    /// addresses that the streams go to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<AnswersReport>,
}
