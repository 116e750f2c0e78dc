//! Anomalies of a capture, in words.

use measure::{Caveat, CaveatKind};
use sim::CaptureAnomalies;
use std::fmt;

/// Returns a caveat for each kind of anomaly of a capture.
pub(crate) fn warnings(name: impl fmt::Display, anomalies: &CaptureAnomalies) -> Vec<Caveat> {
    let input = name.to_string();
    let skipped = anomalies.skipped.iter().map(|(why, records)| CaveatKind::SkippedRecords {
        input: input.clone(),
        records: *records,
        reason: why.name(),
        meaning: why.meaning(),
    });
    let gaps = anomalies.shortened_gaps;
    let shortened = (gaps > 0).then(|| CaveatKind::ShortenedGaps { input: input.clone(), gaps });
    let frames = anomalies.unrewritten;
    let unrewritten = (frames > 0).then(|| CaveatKind::UnrewrittenFrames { input: input.clone(), frames });
    skipped.chain(shortened).chain(unrewritten).map(Caveat::new).collect()
}
