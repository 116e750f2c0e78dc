//! Caveats of a run: targets below the resolution, frames that did not fit, unusual captures.

use crate::output;
#[cfg(feature = "live")]
use engine::stages::{Limit, StageConfig};
#[cfg(feature = "live")]
use measure::DropReason;
#[cfg(feature = "live")]
use measure::FrameSource;
use measure::{Caveat, CaveatKind, Effect, PipelineReport};
#[cfg(feature = "live")]
use scenario::{Pacer, SourcePlan};
use scenario::{PipelinePlan, PortSpec};
use sim::CaptureAnomalies;
use std::path::Path;
use units::{PS_PER_NS, Span, Time};

/// Prints each of `warnings`, and adds them to the caveats of the report.
pub(crate) fn warn(caveats: &mut Vec<Caveat>, warnings: impl IntoIterator<Item = Caveat>) {
    for warning in warnings {
        output::warn(warning.line());
        caveats.push(warning);
    }
}

/// Below this gap, the rounding of stamps to whole nanoseconds is a tenth of the gap or more.
const SHORT_NS: f64 = 10.0;

/// Caveats for targets of a plan that a model line or a capture cannot resolve.
pub(crate) fn of_model(plan: &PipelinePlan, report: &PipelineReport) -> Vec<Caveat> {
    let captures = match &plan.output {
        PortSpec::Pcap(_) => true,
        PortSpec::Wire(wire) => wire.pcap.is_some(),
        _ => false,
    };
    let Some(gap) = plan.target.fixed_gap() else {
        // Frames that arrive and depart at one instant have no gap to round.
        let mean_ns = report.gap.as_ref().map_or(0.0, |gap| gap.mean_ns);
        let short = captures && !plan.asks_nothing() && mean_ns > 0.0 && mean_ns < SHORT_NS;
        return short.then(|| Caveat::of(&plan.name, CaveatKind::ShortGaps { mean_ns })).into_iter().collect();
    };
    let mut caveats = Vec::new();
    let gap_ns = gap.as_ns_f64();
    if let Some(line) = plan.output.line() {
        let start = Time::from_ps(gap.as_ps());
        if line.time(line.position(start)) != start {
            let byte_time_ns = line.byte_time().as_ns_f64();
            caveats.push(Caveat::of(&plan.name, CaveatKind::GapBetweenByteTimes { gap_ns, byte_time_ns }));
        }
    }
    if captures && !whole_ns(gap) {
        caveats.push(Caveat::of(&plan.name, CaveatKind::GapBetweenStamps { gap_ns }));
    }
    caveats
}

/// Caveats for targets of a plan that live departures cannot resolve on a machine with this floor.
#[cfg(feature = "live")]
pub(crate) fn of_machine(
    plan: &PipelinePlan,
    report: &PipelineReport,
    floor: Option<&dataplane::Floor>,
) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    let mut add = |kind| caveats.push(Caveat::of(&plan.name, kind));
    if let Some(pace) = &report.pace {
        add(CaveatKind::Pace { port: plan.output.to_string(), wire_ns: pace.wire_ns, elapsed_ns: pace.elapsed_ns });
    }
    if let Some(gap) =
        plan.target.fixed_gap().filter(|gap| matches!(plan.pacer, Pacer::Deadline | Pacer::Auto) && !whole_ns(*gap))
    {
        add(CaveatKind::GapBelowClock { gap_ns: gap.as_ns_f64() });
    }
    // With several queues there are no gaps, but there is a mean rate.
    let rate = report.rate.as_ref().filter(|_| report.gap.is_none() && report.lateness.is_some());
    let of_rate = || rate.and_then(|rate| rate.mean_fps).map(|fps| 1e9 / fps);
    let asked_mean = report.conformance.as_ref().map(|conformance| conformance.asked_mean_ns).or_else(of_rate);
    if let (Some(floor), Some(asked_mean_ns)) = (floor, asked_mean) {
        let asked = Span::from_ps((asked_mean_ns.max(0.0) * PS_PER_NS as f64) as u64);
        if floor.is_above(asked) {
            add(CaveatKind::GapsBelowFloor {
                asked_mean_ns,
                floor_p50_ns: floor.p50.as_ns_f64(),
                floor_p99_ns: floor.p99.as_ns_f64(),
            });
        }
    }
    caveats
}

/// Drivers that stamp arrivals.
#[cfg(feature = "live")]
const TELL: [&str; 3] = ["net_af_packet", "net_af_xdp", "net_tap"];

/// Caveats for buckets of a plan that overflow when this machine pauses, because `driver` does not stamp arrivals.
#[cfg(feature = "live")]
pub(crate) fn of_buckets(plan: &PipelinePlan, driver: &str) -> Vec<Caveat> {
    if TELL.contains(&driver) || !matches!(plan.source, SourcePlan::Port(_)) {
        return Vec::new();
    }
    let small = plan.all_stages().filter_map(|stage| match stage {
        StageConfig::Limit(limit) if limit.bucket_bytes() < Limit::default_burst(limit.rate) => Some(limit),
        _ => None,
    });
    let caveat = |limit: &Limit| {
        let kind = CaveatKind::SmallBucket {
            burst_bytes: limit.bucket_bytes(),
            fills_in_ns: limit.fills_in().as_ns_f64(),
            driver: driver.to_owned(),
            default_bytes: Limit::default_burst(limit.rate),
        };
        Caveat::of(&plan.name, kind)
    };
    small.map(caveat).collect()
}

/// The caveat for frames that the output could not send. A sender on this machine leaves segmentation to its device, so
/// frames of up to 64 KiB occur, also in captures. `longest` is the longest frame of a capture, without FCS.
#[cfg(feature = "live")]
pub(crate) fn of_too_long(plan: &PipelinePlan, report: &PipelineReport, longest: usize) -> Option<Caveat> {
    let (_, frames) = report.drops.iter().find(|(reason, _)| *reason == DropReason::TooLong)?;
    let (source, input) = match &plan.source {
        SourcePlan::Port(PortSpec::Interface { name, .. }) => (FrameSource::Interface, name.clone()),
        SourcePlan::Port(from) => (FrameSource::Port, from.to_string()),
        SourcePlan::Streams { .. } => (FrameSource::Streams, String::new()),
        SourcePlan::Replay(_) => (FrameSource::Capture, String::new()),
    };
    let output = plan.output.to_string();
    let kind = CaveatKind::TooLongFrames { frames, source, input, output, longest_bytes: longest as u64 };
    Some(Caveat::of(&plan.name, kind))
}

/// The caveat for departures that are planned instead of measured.
#[cfg(feature = "live")]
pub(crate) fn of_departures(plan: &PipelinePlan) -> Option<Caveat> {
    let planned = plan.pacer == Pacer::Filler && !matches!(plan.output, PortSpec::Line(_));
    planned.then(|| Caveat::of(&plan.name, CaveatKind::Planned { port: plan.output.to_string() }))
}

/// The caveat for stamps of streams that a capture truncated.
pub(crate) fn of_cut(capture: &Path, records: u64) -> Caveat {
    Caveat::new(CaveatKind::CutStamps { file: capture.display().to_string(), records })
}

/// The caveat for frames that were captured before a NIC segmented them (TSO), or after the kernel merged them (GRO).
pub(crate) fn of_uncut(capture: &Path, records: u64, longest_bytes: u32) -> Caveat {
    Caveat::new(CaveatKind::MergedRecords { file: capture.display().to_string(), records, longest_bytes })
}

/// The caveat for an expected gap that the whole nanoseconds of a receiver's stamps cannot resolve.
pub(crate) fn of_stamps(gap: Span) -> Option<Caveat> {
    let kind = CaveatKind::ExpectedBetweenStamps { gap_ns: gap.as_ns_f64() };
    (!whole_ns(gap)).then(|| Caveat::of("measure", kind))
}

fn whole_ns(gap: Span) -> bool {
    gap.as_ps().is_multiple_of(PS_PER_NS)
}

/// The caveat for frames that were chosen for corruption with valid checksums but do not allow it, with the reasons.
pub(crate) fn of_corruption(report: &PipelineReport) -> Option<Caveat> {
    let effects = &report.effects;
    let left = effects.of(Effect::Incorruptible);
    let reasons = [
        (Effect::NoIp, "without an IP packet"),
        (Effect::Fragment, "fragments"),
        (Effect::NoTransport, "without TCP or UDP"),
        (Effect::Short, "with fewer than 4 bytes of payload"),
    ];
    let reasons = reasons.map(|(effect, what)| (effects.of(effect), what));
    let reasons: Vec<String> = reasons
        .iter()
        .filter(|(frames, _)| *frames > 0)
        .map(|(frames, what)| format!("{} {what}", output::thousands(*frames)))
        .collect();
    let kind = CaveatKind::Incorruptible {
        frames: left,
        of_frames: left + effects.of(Effect::Corrupted),
        reasons: reasons.join(", "),
    };
    (left > 0).then(|| Caveat::of(&report.name, kind))
}

/// Adds unusual capture records to the report, and warns if such records were used.
pub(crate) fn note_anomalies(anomalies: &CaptureAnomalies, caveats: &mut Vec<Caveat>) {
    let CaptureAnomalies { disordered, clock_steps, stray_stamps, capped_gaps, made_headers, .. } = *anomalies;
    let used = [
        (disordered, CaveatKind::DisorderedRecords { records: disordered }),
        (clock_steps, CaveatKind::ClockSteps { steps: clock_steps }),
        (stray_stamps, CaveatKind::StrayStamps { stamps: stray_stamps }),
        (made_headers, CaveatKind::MadeHeaders { records: made_headers }),
    ];
    warn(caveats, used.into_iter().filter(|(count, _)| *count > 0).map(|(_, kind)| Caveat::new(kind)));
    if capped_gaps > 0 {
        caveats.push(Caveat::new(CaveatKind::CappedGaps { gaps: capped_gaps }));
    }
}
