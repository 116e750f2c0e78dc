//! Converts a report to the figures of a run in progress.

use measure::{Drops, OctavesReport, PipelineReport, ReturnReport, Tally};
use service::control::{FrameCount, Lateness, Octaves, PipelineFigures};
use std::collections::BTreeMap;

/// The figures of a pipeline that has ended.
pub(crate) fn of_report(report: &PipelineReport) -> PipelineFigures {
    let back = report.back.as_ref().map(|ReturnReport { arrived, left, drops, held }| {
        Box::new(PipelineFigures {
            arrived: count(*arrived),
            left: count(*left),
            drops: named(drops),
            held: *held,
            ..PipelineFigures::default()
        })
    });
    let lateness = report.lateness.as_ref();
    PipelineFigures {
        name: report.name.clone(),
        arrived: count(report.arrived),
        copies: report.copies,
        left: count(report.left),
        drops: named(&report.drops),
        held: report.held,
        starved: report.starved,
        lateness: lateness.map(|lateness| Lateness { p50_ns: lateness.p50_ns, max_ns: lateness.max_ns }),
        octaves: report.octaves.clone().map(octaves),
        back,
        ..PipelineFigures::default()
    }
}

/// Distributions of the report.
pub(crate) fn octaves(report: OctavesReport) -> Octaves {
    let OctavesReport { lateness, lateness_total_ns, gap_error, gap_error_total_ns, delay, delay_total_ns } = report;
    Octaves { lateness, lateness_total_ns, gap_error, gap_error_total_ns, delay, delay_total_ns }
}

/// A tally of the report.
pub(crate) fn count(tally: Tally) -> FrameCount {
    FrameCount { frames: tally.frames, bytes: tally.bytes }
}

fn named(drops: &Drops) -> BTreeMap<String, u64> {
    drops.iter().map(|(reason, frames)| (reason.name().to_owned(), frames)).collect()
}
