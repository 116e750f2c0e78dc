//! Warnings about targets below the resolution, as notes and in the report.

use crate::output;
#[cfg(feature = "live")]
use engine::stages::{Limit, StageConfig};
#[cfg(feature = "live")]
use measure::DropReason;
use measure::{Effect, PipelineReport};
#[cfg(feature = "live")]
use scenario::{Pacer, SourcePlan};
use scenario::{PipelinePlan, PortSpec};
use serde_json::{Map, Value, json};
use sim::Oddities;
use std::fmt;
use std::path::Path;
use units::{PS_PER_NS, Span, Time};

/// Says each warning, and lists them as `warnings` of the report's limits if there are any.
pub(crate) fn warn(limits: &mut Map<String, Value>, warnings: &[String]) {
    for warning in warnings {
        output::warn(warning);
    }
    if warnings.is_empty() {
        return;
    }
    let said = limits.entry("warnings").or_insert_with(|| json!([]));
    if let Some(said) = said.as_array_mut() {
        said.extend(warnings.iter().map(|warning| json!(warning)));
    }
}

/// Gaps of which stamps in whole nanoseconds hide a tenth or more.
const SHORT_NS: f64 = 10.0;

/// Targets of a plan that a model line or a capture cannot resolve.
pub(crate) fn of_model(plan: &PipelinePlan, report: &PipelineReport) -> Vec<String> {
    let captures = match &plan.output {
        PortSpec::Pcap(_) => true,
        PortSpec::Wire(wire) => wire.pcap.is_some(),
        _ => false,
    };
    let Some(gap) = plan.ask.fixed_gap() else {
        // Frames that came and went at one instant have no gap to be rounded.
        let mean_ns = report.gap.as_ref().map_or(0.0, |gap| gap.mean_ns);
        let short = captures && !plan.asks_nothing() && mean_ns > 0.0 && mean_ns < SHORT_NS;
        let told = short.then(|| {
            format!(
                "{}: the capture's stamps hold whole nanoseconds, and gaps were {} on average: each gap is rounded, and the mean stays exact",
                plan.name,
                output::brief(mean_ns)
            )
        });
        return told.into_iter().collect();
    };
    let mut warnings = Vec::new();
    if let Some(line) = plan.output.line() {
        let place = Time::from_ps(gap.as_ps());
        if line.time(line.position(place)) != place {
            warnings.push(format!(
                "{}: a gap of {gap} is no whole number of byte times of {}: each departure is within half a byte time of its target, and only the mean is exact",
                plan.name,
                line.byte_time()
            ));
        }
    }
    if captures && !whole_ns(gap) {
        warnings.push(format!(
            "{}: the capture's stamps hold whole nanoseconds, but not a gap of {gap}: each gap is rounded, and the mean stays exact",
            plan.name
        ));
    }
    warnings
}

/// Targets of a plan that real-time departures cannot resolve on a machine with this floor.
#[cfg(feature = "live")]
pub(crate) fn of_machine(
    plan: &PipelinePlan,
    report: &PipelineReport,
    floor: Option<&dataplane::Floor>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(pace) = &report.pace {
        let faster = pace.wire_ns > pace.elapsed_ns;
        let (took, full) = if faster { ("took", "") } else { ("sent", " with a full queue") };
        warnings.push(format!(
            "{}: {} {took} {} of wire time in {}{full}, {}: it does not keep the line's rate, so these gaps are not what was sent",
            plan.name,
            plan.output,
            output::brief(pace.wire_ns),
            output::brief(pace.elapsed_ns),
            times(pace.wire_ns / pace.elapsed_ns),
        ));
    }
    if let Some(gap) =
        plan.ask.fixed_gap().filter(|gap| matches!(plan.pacer, Pacer::Deadline | Pacer::Auto) && !whole_ns(*gap))
    {
        warnings.push(format!(
            "{}: in real time only the mean keeps the fraction of a nanosecond in a gap of {gap}",
            plan.name
        ));
    }
    if let (Some(floor), Some(conformance)) = (floor, &report.conformance) {
        let asked = Span::from_ps((conformance.asked_mean_ns.max(0.0) * PS_PER_NS as f64) as u64);
        if floor.is_above(asked) {
            warnings.push(format!(
                "{}: gaps of {} on average are below what this machine can resolve now: an idle waiting loop is {} late at the median, {} at p99",
                plan.name,
                output::brief(conformance.asked_mean_ns),
                output::brief(floor.p50.as_ns_f64()),
                output::brief(floor.p99.as_ns_f64())
            ));
        }
    }
    warnings
}

/// Drivers by which a frame counts from its arrival.
#[cfg(feature = "live")]
const TELL: [&str; 3] = ["net_af_packet", "net_af_xdp", "net_tap"];

/// Buckets of a plan that this machine's hiccups empty of rate, since its input by `driver` does not tell when frames came.
#[cfg(feature = "live")]
pub(crate) fn of_buckets(plan: &PipelinePlan, driver: &str) -> Vec<String> {
    if TELL.contains(&driver) || !matches!(plan.source, SourcePlan::Port(_)) {
        return Vec::new();
    }
    let small = plan.all_stages().filter_map(|stage| match stage {
        StageConfig::Limit(limit) if limit.bucket_bytes() < Limit::default_burst(limit.rate) => Some(limit),
        _ => None,
    });
    let told = small.map(|limit| {
        format!(
            "{}: a bucket of {} B is full in {}, and {driver} does not tell when frames came: users lose rate whenever this machine pauses for longer; write driver=af_packet at the input, or burst {}B",
            plan.name,
            limit.bucket_bytes(),
            output::brief(limit.fills_in().as_ns_f64()),
            Limit::default_burst(limit.rate),
        )
    });
    told.collect()
}

/// Frames that the output could not send, and what helps. A sender on this machine leaves segments together for its
/// device, up to 64 KiB; a capture keeps them so. `longest` is the longest frame of a capture, without FCS.
#[cfg(feature = "live")]
pub(crate) fn of_too_long(plan: &PipelinePlan, report: &PipelineReport, longest: usize) -> Option<String> {
    const ETHERNET: usize = 14;
    let (_, frames) = report.drops.iter().find(|(reason, _)| *reason == DropReason::TooLong)?;
    let (name, output, frames) = (&plan.name, &plan.output, output::counted(frames, "frame"));
    Some(match &plan.source {
        SourcePlan::Port(PortSpec::Interface { name: from, .. }) => format!(
            "{name}: {frames} from {from} dropped, longer than the output can send: give both interfaces the MTU of the sender; for a sender on this machine also turn off its offloads, ethtool -K DEVICE tx off tso off gso off gro off, or, up to an MTU of 3382, write driver=af_xdp, which does this on veth by itself"
        ),
        SourcePlan::Port(from) => {
            format!("{name}: {frames} from {from} dropped, longer than {output} can send: raise the MTU of the output")
        }
        SourcePlan::Streams { .. } => {
            format!("{name}: {frames} dropped, longer than {output} can send: write a smaller size, or raise its MTU")
        }
        SourcePlan::Replay(_) => format!(
            "{name}: {frames} of the capture dropped, longer than {output} can send, and not replaced: offloads of the capturing machine merged several frames into one, up to {} B; raise the MTU at both ends to {} as ip link set DEVICE mtu does, or capture with ethtool -K DEVICE tso off gso off gro off",
            output::thousands(longest as u64),
            longest.saturating_sub(ETHERNET)
        ),
    })
}

/// Why a plan's reported departures are planned instead of measured, if so.
#[cfg(feature = "live")]
pub(crate) fn of_departures(plan: &PipelinePlan) -> Option<String> {
    let planned = plan.pacer == Pacer::Filler && !matches!(plan.output, PortSpec::Line(_));
    planned.then(|| {
        format!(
            "gap, delay, asked, kept, rate, late and the times in stamps are planned, not measured: what the wire got depends on {} taking frames at the line's rate",
            plan.output
        )
    })
}

/// The ratio of a rate to the line's rate, as text.
#[cfg(feature = "live")]
fn times(factor: f64) -> String {
    format!("{} times the line's rate", output::digits(factor, 3))
}

/// What the steps of a capture's stamps hide of every gap.
pub(crate) fn of_steps(capture: &Path, step_ns: f64) -> Option<String> {
    (step_ns > 1.0).then(|| {
        format!(
            "{}: stamps have steps of {step}, so every gap is uncertain by ±{step}: capture with ns stamps, as tcpdump --time-stamp-precision=nano does",
            capture.display(),
            step = output::brief(step_ns)
        )
    })
}

/// What a capture that was cut hides of the streams in it.
pub(crate) fn of_cut(capture: &Path, records: u64) -> String {
    format!(
        "{}: {records} records were truncated at capture and lost their stamps, so streams count them as lost: capture whole frames, as tcpdump -s 0 does",
        capture.display()
    )
}

/// What gaps of frames say that were captured before a NIC cut them (TSO), or after the kernel joined them (GRO).
pub(crate) fn of_uncut(capture: &Path, records: u64, longest: u32) -> String {
    format!(
        "{}: {} longer than any line carries, up to {} B: offloads merged several frames into each, so their gaps and count differ from the line: turn offloads off at the capturing machine, ethtool -K DEVICE tso off gso off gro off",
        capture.display(),
        output::counted(records, "record"),
        output::thousands(longest.into())
    )
}

/// What the stamps of a receiver, in whole ns, cannot resolve of a gap that is expected.
pub(crate) fn of_stamps(gap: Span) -> Option<String> {
    (!whole_ns(gap)).then(|| {
        format!(
            "measure: stamps hold whole nanoseconds, but not a gap of {gap}: only the mean can match, not a single gap"
        )
    })
}

fn whole_ns(gap: Span) -> bool {
    gap.as_ps().is_multiple_of(PS_PER_NS)
}

/// Frames that were to be corrupted with valid checksums and that allow no such change, with the reasons.
pub(crate) fn of_corruption(report: &PipelineReport) -> Option<String> {
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
    (left > 0).then(|| {
        format!(
            "{}: {} of {} chosen for corruption passed unchanged, since mode checksum-valid only changes TCP and UDP payloads: {}",
            report.name,
            output::thousands(left),
            output::counted(left + effects.of(Effect::Corrupted), "frame"),
            reasons.join(", ")
        )
    })
}

/// What of a capture was left out or changed: records that were skipped, and gaps that were shortened.
pub(crate) fn of_oddities(name: impl fmt::Display, oddities: &Oddities) -> Vec<String> {
    let skipped = oddities.skipped.iter().map(|(why, records)| {
        format!("{name}: {} of the capture skipped ({why}): {}", output::counted(*records, "record"), why.meaning())
    });
    let shortened = (oddities.shortened_gaps > 0).then(|| {
        format!(
            "{name}: {} of the capture shortened to 1 s, since virtual time reaches 213 days: editcap -i 86400 makes parts of it",
            output::counted(oddities.shortened_gaps, "gap")
        )
    });
    let unrewritten = (oddities.unrewritten > 0).then(|| {
        format!(
            "{name}: {} with a compressed routing header (RFC 6554) left as captured: their checksums cover an address that the header does not spell out, so changes of addresses and 'checksums right' do not touch them",
            output::counted(oddities.unrewritten, "frame")
        )
    });
    skipped.chain(shortened).chain(unrewritten).collect()
}

/// Adds unusual capture records to the report, and warns about those that were used.
pub(crate) fn note_oddities(oddities: &Oddities, limits: &mut Map<String, Value>) {
    let Oddities {
        disordered, clock_steps, stray_stamps, shortened_gaps, capped_gaps, made_headers, unrewritten, ..
    } = *oddities;
    for (name, records) in [
        ("disordered_records", disordered),
        ("clock_steps", clock_steps),
        ("stray_stamps", stray_stamps),
        ("shortened_gaps", shortened_gaps),
        ("capped_gaps", capped_gaps),
        ("made_headers", made_headers),
        ("unrewritten_frames", unrewritten),
    ] {
        if records > 0 {
            limits.insert(name.into(), json!(records));
        }
    }
    if disordered > 0 || stray_stamps > 0 {
        let early = format!("{} stamped before the record ahead", output::counted(disordered, "record"));
        let steps = format!("clock set back {}: the gap there counts as 0", output::counted(clock_steps, "time"));
        let strays =
            format!("{} far off: it counts with the record ahead", output::counted(stray_stamps, "lone stamp"));
        let said = [(disordered, early), (clock_steps, steps), (stray_stamps, strays)];
        let said: Vec<String> = said.into_iter().filter(|(records, _)| *records > 0).map(|(_, text)| text).collect();
        output::warn(format!("the capture's stamps go back: {}", said.join("; ")));
    }
    if made_headers > 0 {
        output::warn(format!(
            "{} of the capture had no Ethernet header and got one: at most the sender's hardware address is the original",
            output::counted(made_headers, "record")
        ));
    }
}
