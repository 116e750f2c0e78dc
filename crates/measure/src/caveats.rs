//! Caveats of a run: what it could not resolve, or did differently from what was asked.

use crate::figures::{brief, counted, digits, share, thousands, time};
use schemars::JsonSchema;
use serde::Serialize;
use units::{PS_PER_NS, Span};

/// A caveat of a run, with its text.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Caveat {
    /// What it is, with its figures.
    #[serde(flatten)]
    pub kind: CaveatKind,
    /// The pipeline that it concerns; absent if it concerns the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// The caveat in words.
    pub text: String,
}

impl Caveat {
    /// A caveat of the whole run.
    #[must_use]
    pub fn new(kind: CaveatKind) -> Self {
        Caveat { text: kind.to_string(), pipeline: None, kind }
    }

    /// A caveat of one pipeline.
    #[must_use]
    pub fn of(pipeline: &str, kind: CaveatKind) -> Self {
        Caveat { pipeline: Some(pipeline.to_owned()), ..Caveat::new(kind) }
    }

    /// The line of a warning: the pipeline, if any, and the text.
    #[must_use]
    pub fn line(&self) -> String {
        match &self.pipeline {
            Some(pipeline) => format!("{pipeline}: {}", self.text),
            None => self.text.clone(),
        }
    }
}

/// Source of the stamps from which gaps and lateness are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockSource {
    /// Virtual time.
    Virtual,
    /// The stamps of a capture.
    Capture,
    /// The kernel's receive stamps.
    Kernel,
    /// The time stamp counter of the CPU.
    Tsc,
    /// The kernel's monotonic clock, read by probes.
    Monotonic,
}

/// Source of the frames that an output could not send.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrameSource {
    /// An interface of this machine.
    Interface,
    /// Another port.
    Port,
    /// Streams.
    Streams,
    /// A capture.
    Capture,
}

/// An event that the CPU counted only part of the time.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct SharedEvent {
    /// Name of the event.
    pub event: String,
    /// Share of the time in which it was counted.
    pub counted_ratio: f64,
}

/// Kinds of caveats. Times are in ns.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum CaveatKind {
    /// The clock of the stamps.
    Clock {
        /// Source of the stamps.
        source: ClockSource,
    },
    /// Virtual time: written captures hold only ns.
    CaptureStamps,
    /// `measure --pcap`: the step of the stamps. No gap is known more precisely.
    StampStep {
        /// The capture.
        file: String,
        /// The step.
        step_ns: f64,
    },
    /// The fit to a law used only part of the gaps.
    FitSampled {
        /// Gaps used, kept at random by a fixed seed.
        gaps: u64,
        /// All gaps.
        sampled_from: u64,
    },
    /// Records of a capture that are not frames.
    SkippedRecords {
        /// The capture, or the pipeline that reads it.
        input: String,
        /// Number of records.
        records: u64,
        /// Name of the reason.
        reason: String,
        /// The reason in words.
        meaning: String,
    },
    /// Records of the input with a stamp earlier than that of the preceding record.
    DisorderedRecords {
        /// Number of records.
        records: u64,
    },
    /// The clock of the input was set back.
    ClockSteps {
        /// Number of times.
        steps: u64,
    },
    /// Single stamps of the input that were far off.
    StrayStamps {
        /// Number of stamps.
        stamps: u64,
    },
    /// Gaps of the input that exceeded the range of virtual time.
    ShortenedGaps {
        /// The capture, or the pipeline that reads it.
        input: String,
        /// Number of gaps.
        gaps: u64,
    },
    /// Gaps of a replay that `--max-gap` shortened.
    CappedGaps {
        /// Number of gaps.
        gaps: u64,
    },
    /// Records of the input that were captured without an Ethernet header and were given one.
    MadeHeaders {
        /// Number of records.
        records: u64,
    },
    /// Frames that a rewrite left as captured.
    UnrewrittenFrames {
        /// The capture, or the pipeline that reads it.
        input: String,
        /// Number of frames.
        frames: u64,
    },
    /// Live: truncated records of a capture, sent at their original length.
    CutRecords {
        /// Number of records.
        records: u64,
    },
    /// `measure --pcap`: records whose stamps of streams were cut off.
    CutStamps {
        /// The capture.
        file: String,
        /// Number of records.
        records: u64,
    },
    /// `measure --pcap`: records that are longer than any line carries, since offloads joined frames.
    MergedRecords {
        /// The capture.
        file: String,
        /// Number of records.
        records: u64,
        /// Length of the longest.
        longest_bytes: u32,
    },
    /// `measure`: streams above the limit of `--max-streams`, counted together.
    StreamsBeyond {
        /// Number of these streams.
        streams: u64,
        /// Their frames.
        frames: u64,
        /// The limit.
        most: u64,
    },
    /// A fixed gap is not a whole number of byte times of the line.
    GapBetweenByteTimes {
        /// The gap.
        gap_ns: f64,
        /// The byte time.
        byte_time_ns: f64,
    },
    /// A fixed gap is not a whole number of ns, which is all that a capture's stamps hold.
    GapBetweenStamps {
        /// The gap.
        gap_ns: f64,
    },
    /// The gap of `--expect` is not a whole number of ns, which is all that the receiver's stamps hold.
    ExpectedBetweenStamps {
        /// The gap.
        gap_ns: f64,
    },
    /// Live: a fixed gap has a fraction of a ns, which only the mean reflects.
    GapBelowClock {
        /// The gap.
        gap_ns: f64,
    },
    /// Gaps are so short that a capture's stamps hide a tenth of them or more.
    ShortGaps {
        /// The mean gap.
        mean_ns: f64,
    },
    /// Live: the arrivals of a port were stamped when it was polled.
    PolledStamps {
        /// The port.
        port: String,
        /// Longest interval between two polls, if the later one found frames.
        longest_pause_ns: f64,
    },
    /// Live: frames of streams arrived on several receive queues.
    StreamsOnQueues {
        /// Number of these streams.
        streams: u64,
    },
    /// Live: the machine cannot wait as exactly as the gaps need.
    GapsBelowFloor {
        /// Mean of the gaps asked.
        asked_mean_ns: f64,
        /// Median lateness of the waiting loop.
        floor_p50_ns: f64,
        /// Its 99th percentile.
        floor_p99_ns: f64,
    },
    /// Live, pacer `filler`: the port does not keep the line's rate.
    Pace {
        /// The port.
        port: String,
        /// Wire time of the frames that it took, or sent with a full queue.
        wire_ns: f64,
        /// Time in which it did so.
        elapsed_ns: f64,
    },
    /// Live: a bucket that overflows when this machine pauses.
    SmallBucket {
        /// Size of the bucket.
        burst_bytes: u64,
        /// Time in which it fills.
        fills_in_ns: f64,
        /// Driver of the input, which gives no stamps.
        driver: String,
        /// Size of the default bucket.
        default_bytes: u64,
    },
    /// Live: frames that the output could not send.
    TooLongFrames {
        /// Number of frames.
        frames: u64,
        /// Where they came from.
        source: FrameSource,
        /// The input port; empty for streams and captures.
        input: String,
        /// The output.
        output: String,
        /// Of a capture: length of the longest, without FCS.
        longest_bytes: u64,
    },
    /// `limit`: frames that are longer than the bucket of their user.
    LongerThanBucket {
        /// Number of frames.
        frames: u64,
        /// Length of the longest.
        longest_bytes: u32,
    },
    /// `limit`: many frames without a key, which passed unmetered.
    WithoutKey {
        /// Number of frames.
        frames: u64,
        /// All frames.
        of_frames: u64,
        /// The key.
        key: String,
        /// What they are, with counts.
        types: String,
    },
    /// `limit`: TCP users that got less than their rate, since a policer dropped their segments.
    PolicedTcp {
        /// Users that got less than 80 % of their rate.
        users: u64,
        /// TCP users policed.
        of_users: u64,
        /// Smallest obtained ÷ asked.
        min_ratio: f64,
    },
    /// Frames chosen for corruption with valid checksums that allow no such change.
    Incorruptible {
        /// Number of frames.
        frames: u64,
        /// Frames chosen.
        of_frames: u64,
        /// Why, with counts.
        reasons: String,
    },
    /// `emulate --on`: frames that passed unimpaired because the run carried none.
    PassedUnimpaired {
        /// Frames that the host sent.
        sent: u64,
        /// Frames that arrived for it.
        arrived: u64,
    },
    /// Live, pacer `filler` on ports other than `line:`: departures are planned, not measured.
    Planned {
        /// The port.
        port: String,
    },
    /// Live, pacer `filler`: whether the pacer has priority over other programs when it wakes.
    PriorityRaised {
        /// True if so.
        raised: bool,
    },
    /// Live, pacer `deadline`: lateness of a loop that only waits on this machine.
    Floor {
        /// Time between the instants that were waited for.
        gap_ns: f64,
        /// Number of instants.
        instants: u64,
        /// Median lateness.
        p50_ns: f64,
        /// 99th percentile of lateness.
        p99_ns: f64,
        /// Largest lateness.
        max_ns: f64,
        /// Share of instants met within 1 µs.
        within_1us_ratio: f64,
    },
    /// Live: a port, and what it lost before frames counted as `in`.
    Port {
        /// The port as written.
        port: String,
        /// Its driver.
        driver: String,
        /// Frames that found a ring full.
        rx_missed: u64,
        /// Frames or polls without a free buffer, as the driver counts.
        rx_no_buffer: u64,
        /// Frames whose checksum netlathe completed.
        rx_completed: u64,
    },
    /// `slice`: frames whose receive call continued for long after copying them; their last slice is missing.
    CrowdedFrames {
        /// Number of frames.
        frames: u64,
    },
    /// `slice`: frames evicted to make room for others.
    EvictedFrames {
        /// Number of frames, of any program.
        frames: u64,
    },
    /// `slice`: runs of probes that the kernel skipped.
    MissedProbes {
        /// Number of runs.
        runs: u64,
    },
    /// `slice`: other programs ran during the calibration, so that the subtraction may be wrong.
    Calibration {
        /// Share of the calibration's time that they took.
        others_ratio: f64,
    },
    /// `slice --counters`: events that the CPU counted only part of the time.
    SharedCounters {
        /// The events.
        events: Vec<SharedEvent>,
    },
    /// `measure --host`: how to read the counters.
    HostCounters,
    /// Live: the release of DPDK.
    Dpdk {
        /// The release.
        version: String,
    },
}

impl std::fmt::Display for CaveatKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CaveatKind::Clock { source } => f.write_str(source.meaning()),
            CaveatKind::CaptureStamps => f.write_str("stamps of written captures are rounded to the nearest ns"),
            CaveatKind::StampStep { file, step_ns } => match brief(*step_ns) {
                step if *step_ns > 1.0 => write!(
                    f,
                    "{file}: stamps have steps of {step}, so every gap is uncertain by ±{step}: capture with ns stamps, as tcpdump --time-stamp-precision=nano does"
                ),
                step => write!(f, "{file}: stamps have steps of {step}"),
            },
            CaveatKind::FitSampled { gaps, sampled_from } => {
                write!(f, "the fit used {gaps} of {sampled_from} gaps, kept at random by a fixed seed")
            }
            CaveatKind::SkippedRecords { input, records, reason, meaning } => {
                write!(f, "{input}: {} of the capture skipped ({reason}): {meaning}", counted(*records, "record"))
            }
            CaveatKind::DisorderedRecords { records } => write!(
                f,
                "the capture's stamps go backwards: {} stamped earlier than the preceding record",
                counted(*records, "record")
            ),
            CaveatKind::ClockSteps { steps } => write!(
                f,
                "the capture's stamps go backwards: clock set back {}: the gap there counts as 0",
                counted(*steps, "time")
            ),
            CaveatKind::StrayStamps { stamps } => write!(
                f,
                "the capture's stamps go backwards: {} far off: it counts with the preceding record",
                counted(*stamps, "lone stamp")
            ),
            CaveatKind::ShortenedGaps { input, gaps } => write!(
                f,
                "{input}: {} of the capture shortened to 1 s, since virtual time is limited to 213 days: split the capture with editcap -i 86400",
                counted(*gaps, "gap")
            ),
            CaveatKind::CappedGaps { gaps } => write!(f, "{} of the capture shortened by --max-gap", counted(*gaps, "gap")),
            CaveatKind::MadeHeaders { records } => write!(
                f,
                "{} of the capture had no Ethernet header and were given one: at most the sender's hardware address is the original",
                counted(*records, "record")
            ),
            CaveatKind::UnrewrittenFrames { input, frames } => write!(
                f,
                "{input}: {} with a compressed routing header (RFC 6554) left as captured: their checksums cover an address that the header holds only in compressed form, so address changes and 'checksums right' leave them as they are",
                counted(*frames, "frame")
            ),
            CaveatKind::CutRecords { records } => write!(
                f,
                "{records} records of the capture are truncated or lack an Ethernet header; their frames are sent at full length, with zeros for the missing bytes"
            ),
            CaveatKind::CutStamps { file, records } => write!(
                f,
                "{file}: {records} records were truncated at capture and lost their stamps, so streams count them as lost: capture whole frames, as tcpdump -s 0 does"
            ),
            CaveatKind::MergedRecords { file, records, longest_bytes } => write!(
                f,
                "{file}: {} longer than any line carries, up to {} B: offloads merged several frames into each, so their gaps and count differ from the line: turn offloads off at the capturing machine, ethtool -K DEVICE tso off gso off gro off",
                counted(*records, "record"),
                thousands((*longest_bytes).into())
            ),
            CaveatKind::StreamsBeyond { streams, frames, most } => write!(
                f,
                "{} streams beyond the first {most} have no figures of their own; their {} are counted together: raise --max-streams, up to 65536, at 64 KiB each",
                thousands(*streams),
                counted(*frames, "frame")
            ),
            CaveatKind::GapBetweenByteTimes { gap_ns, byte_time_ns } => write!(
                f,
                "a gap of {} is not a whole number of byte times of {}: each departure is within half a byte time of its target, and only the mean is exact",
                exact(*gap_ns),
                exact(*byte_time_ns)
            ),
            CaveatKind::GapBetweenStamps { gap_ns } => write!(
                f,
                "the capture's stamps are whole nanoseconds and cannot hold a gap of {}: each gap is rounded, and the mean stays exact",
                exact(*gap_ns)
            ),
            CaveatKind::ExpectedBetweenStamps { gap_ns } => write!(
                f,
                "stamps are whole nanoseconds and cannot hold a gap of {}: only the mean can match, not a single gap",
                exact(*gap_ns)
            ),
            CaveatKind::GapBelowClock { gap_ns } => {
                write!(f, "a gap of {} has a fraction of a nanosecond: in real time only the mean reflects it", exact(*gap_ns))
            }
            CaveatKind::PolledStamps { port, longest_pause_ns } => write!(
                f,
                "frames that arrive on {port} are stamped when it is polled: a stamp is up to {} late",
                brief(*longest_pause_ns)
            ),
            CaveatKind::StreamsOnQueues { streams } => write!(
                f,
                "{streams} streams arrived on several receive queues, whose relative order is unknown: order, duplicates and IPDV are those within each queue"
            ),
            CaveatKind::ShortGaps { mean_ns } => write!(
                f,
                "the capture's stamps are whole nanoseconds, and gaps were {} on average: each gap is rounded, and the mean stays exact",
                brief(*mean_ns)
            ),
            CaveatKind::GapsBelowFloor { asked_mean_ns, floor_p50_ns, floor_p99_ns } => write!(
                f,
                "gaps of {} on average are below what this machine can resolve now: an idle waiting loop is {} late at the median, {} at p99",
                brief(*asked_mean_ns),
                brief(*floor_p50_ns),
                brief(*floor_p99_ns)
            ),
            CaveatKind::Pace { port, wire_ns, elapsed_ns } => {
                let (took, full) = if wire_ns > elapsed_ns { ("took", "") } else { ("sent", " with a full queue") };
                write!(
                    f,
                    "{port} {took} {} of wire time in {}{full}, {} times the line's rate: it does not keep the line's rate, so these gaps are not what was sent",
                    brief(*wire_ns),
                    brief(*elapsed_ns),
                    digits(wire_ns / elapsed_ns, 3)
                )
            }
            CaveatKind::SmallBucket { burst_bytes, fills_in_ns, driver, default_bytes } => write!(
                f,
                "a bucket of {burst_bytes} B is full in {}, and {driver} does not stamp arrivals: users lose rate whenever this machine pauses for longer; write driver=af_packet at the input, or burst {default_bytes}B",
                brief(*fills_in_ns)
            ),
            CaveatKind::TooLongFrames { frames, source, input, output, longest_bytes } => {
                let frames = counted(*frames, "frame");
                match source {
                    FrameSource::Interface => write!(
                        f,
                        "{frames} from {input} dropped, longer than the output can send: give both interfaces the MTU of the sender; for a sender on this machine also turn off its offloads, ethtool -K DEVICE tx off tso off gso off gro off, or, up to an MTU of 3382, write driver=af_xdp, which does this on veth by itself"
                    ),
                    FrameSource::Port => write!(
                        f,
                        "{frames} from {input} dropped, longer than {output} can send: raise the MTU of the output"
                    ),
                    FrameSource::Streams => write!(
                        f,
                        "{frames} dropped, longer than {output} can send: write a smaller size, or raise its MTU"
                    ),
                    FrameSource::Capture => write!(
                        f,
                        "{frames} of the capture dropped, longer than {output} can send, and not replaced: offloads of the capturing machine merged several frames into one, up to {} B; raise the MTU at both ends to {} as ip link set DEVICE mtu does, or capture with ethtool -K DEVICE tso off gso off gro off",
                        thousands(*longest_bytes),
                        longest_bytes.saturating_sub(ETHERNET)
                    ),
                }
            }
            CaveatKind::LongerThanBucket { frames, longest_bytes } => write!(
                f,
                "{} of up to {} B {} longer than the user's bucket and can never pass: all were dropped; write burst {longest_bytes}B or more",
                counted(*frames, "frame"),
                thousands((*longest_bytes).into()),
                if *frames == 1 { "is" } else { "are" },
            ),
            CaveatKind::WithoutKey { frames, of_frames, key, types } => write!(
                f,
                "{} of {} have no {key} ({} %) and passed unmetered: {types}; limit them where they carry plain IP, or by a key that they have, such as vlan",
                thousands(*frames),
                counted(*of_frames, "frame"),
                digits(*frames as f64 * 100.0 / (*of_frames).max(1) as f64, 3),
            ),
            CaveatKind::PolicedTcp { users, of_users, min_ratio } => write!(
                f,
                "{} of {} with policed TCP got less than 80 % of their rate although they sent more, down to {} %: write mode shape, or a burst of several round trips at the rate",
                thousands(*users),
                counted(*of_users, "user"),
                digits(min_ratio * 100.0, 3),
            ),
            CaveatKind::Incorruptible { frames, of_frames, reasons } => write!(
                f,
                "{} of {} chosen for corruption passed unchanged, since mode checksum-valid only changes TCP and UDP payloads: {reasons}",
                thousands(*frames),
                counted(*of_frames, "frame"),
            ),
            CaveatKind::PassedUnimpaired { sent, arrived } => write!(
                f,
                "{} sent and {} received unimpaired while netlathe did not run for more than 1 s: it was stopped, or had no CPU",
                counted(*sent, "frame"),
                counted(*arrived, "frame")
            ),
            CaveatKind::Planned { port } => write!(
                f,
                "gap, delay, asked, kept, rate, late and the times in stamps are planned, not measured: the gaps on the wire depend on {port} taking frames at the line's rate"
            ),
            CaveatKind::PriorityRaised { raised: true } => f.write_str("the pacer has priority over other programs when it wakes"),
            CaveatKind::PriorityRaised { raised: false } => f.write_str("the pacer has the same priority as other programs when it wakes"),
            CaveatKind::Floor { p50_ns, p99_ns, max_ns, within_1us_ratio, .. } => write!(
                f,
                "before the run, a loop that only waits was late by {} at the median, {} at p99, {} at most; {} within 1 µs",
                time(*p50_ns),
                time(*p99_ns),
                time(*max_ns),
                share(*within_1us_ratio)
            ),
            CaveatKind::Port { port, driver, rx_missed, rx_no_buffer, rx_completed } => write!(
                f,
                "{port} by {driver}: {} lost in its ring before they counted as in, no buffer for {}, {} completed",
                counted(*rx_missed, "frame"),
                counted(*rx_no_buffer, "poll"),
                counted(*rx_completed, "checksum")
            ),
            CaveatKind::CrowdedFrames { frames } => write!(
                f,
                "{}: the receive call continued for long after copying them, or copied more than eight: their last slice is missing",
                counted(*frames, "frame")
            ),
            CaveatKind::EvictedFrames { frames } => write!(
                f,
                "{} evicted to make room, of any program; a requested frame counts only once its program is known",
                counted(*frames, "frame")
            ),
            CaveatKind::MissedProbes { runs } => write!(
                f,
                "{} skipped by the kernel because a thread was preempted in the same probe: frames may be lost or uncounted; the machine is overloaded",
                counted(*runs, "probe run")
            ),
            CaveatKind::Calibration { others_ratio } => write!(
                f,
                "other programs ran on the calibration's CPU for {} of its time: the subtracted cost may be far too high or too low",
                share(*others_ratio)
            ),
            CaveatKind::SharedCounters { events } => {
                let each: Vec<String> =
                    events.iter().map(|event| format!("{} {}", event.event, share(event.counted_ratio))).collect();
                write!(
                    f,
                    "{} of the time in which these events were counted: the CPU has fewer counters than requested; name fewer events",
                    each.join(", ")
                )
            }
            CaveatKind::HostCounters => f.write_str(
                "null means that no counter exists here or that it was reset meanwhile, not zero; softnet counts all interfaces and network namespaces; bytes are the driver's count and 4 B of FCS for each frame",
            ),
            CaveatKind::Dpdk { version } => f.write_str(version),
        }
    }
}

/// A time with all its digits, in the notation of users.
fn exact(ns: f64) -> Span {
    Span::from_ps((ns * PS_PER_NS as f64).round() as u64)
}

/// Bytes of an Ethernet header, which an MTU does not count.
const ETHERNET: u64 = 14;

impl ClockSource {
    fn meaning(self) -> &'static str {
        match self {
            ClockSource::Virtual => "virtual, exact to 1 ps",
            ClockSource::Capture => "the capture's stamps",
            ClockSource::Kernel => {
                "kernel receive stamps, 1 ns steps; a stamp is taken when the kernel has the frame from the driver"
            }
            ClockSource::Monotonic => "CLOCK_MONOTONIC, by the kernel, 1 ns",
            ClockSource::Tsc => {
                "TSC, calibrated against CLOCK_MONOTONIC; a stamp is taken when a frame is handed to the driver; of line:, when it starts there"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_kind_fields_and_words() {
        let caveat = Caveat::of("down", CaveatKind::FitSampled { gaps: 4, sampled_from: 9 });
        let json = serde_json::to_value(&caveat).expect("JSON");
        let expected = serde_json::json!({
            "kind": "fit-sampled", "gaps": 4, "sampled_from": 9, "pipeline": "down",
            "text": "the fit used 4 of 9 gaps, kept at random by a fixed seed",
        });
        assert_eq!(json, expected);
        assert!(caveat.line().starts_with("down: the fit used"));
        let bare = serde_json::to_value(Caveat::new(CaveatKind::CaptureStamps)).expect("JSON");
        assert_eq!(bare["kind"], "capture-stamps");
        assert!(bare.get("pipeline").is_none());
    }
}
