//! A replayed capture as a supply for the data plane.

use crate::output::Failure;
use crate::plan::capture_anomalies;
use crate::run::assemble;
use crate::run::resolution;
use dataplane::{BufferedReplay, FrameSupply};
use measure::{Caveat, CaveatKind};
use packet::{Frame, HeapFrame};
use scenario::Replay;
use sim::{CaptureAnomalies, ReplaySource, Source};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use units::Time;

/// A replayed capture as a supply for the data plane.
pub(super) struct FromCapture {
    source: ReplaySource,
    found: Found,
    records: Arc<Records>,
}

/// Anomalous records of a capture so far, counted by the thread that reads it.
#[derive(Default)]
pub(super) struct Records(Mutex<Found>);

#[derive(Clone, Default)]
struct Found {
    /// Records truncated by the capture.
    cut: u64,
    /// Length of the longest frame, without FCS.
    longest: usize,
    anomalies: CaptureAnomalies,
}

impl Records {
    fn found(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The skipped records of a pipeline's capture, by reason. Adds caveats about them to `warnings`.
    pub(super) fn skipped(&self, pipeline: &str, warnings: &mut Vec<Caveat>) -> BTreeMap<String, u64> {
        let found = self.found();
        warnings.extend(capture_anomalies::warnings(pipeline, &found.anomalies));
        found.anomalies.skipped_by_name()
    }

    /// The length of the longest frame so far, without FCS.
    pub(super) fn longest(&self) -> usize {
        self.found().longest
    }

    /// Reports the anomalies of a run's captures.
    pub(super) fn note(all: &[Arc<Records>], caveats: &mut Vec<Caveat>) {
        let mut sum = Found::default();
        for one in all {
            let found = one.found();
            sum.cut += found.cut;
            sum.anomalies += &found.anomalies;
        }
        let cut = sum.cut;
        if cut > 0 {
            resolution::warn(caveats, [Caveat::new(CaveatKind::CutRecords { records: cut })]);
        }
        resolution::note_anomalies(&sum.anomalies, caveats);
    }
}

impl FromCapture {
    pub(super) fn new(source: ReplaySource, records: Arc<Records>) -> Self {
        FromCapture { source, found: Found::default(), records }
    }
}

impl FrameSupply for FromCapture {
    fn next(&mut self, frame: &mut HeapFrame) -> Option<Time> {
        let arrival = self.source.arrival();
        let mut changed = false;
        if arrival.is_some() {
            self.source.take(frame);
            let (cut, length) = (frame.make_whole(), frame.bytes().len());
            changed = cut || length > self.found.longest;
            self.found.cut += u64::from(cut);
            self.found.longest = self.found.longest.max(length);
        }
        if let Some(anomalies) = self.source.anomalies().filter(|anomalies| **anomalies != self.found.anomalies) {
            self.found.anomalies.clone_from(anomalies);
            changed = true;
        }
        if changed {
            self.records.found().clone_from(&self.found);
        }
        arrival
    }

    fn failure(&mut self) -> Option<String> {
        self.source.failure().map(|error| error.to_string())
    }
}

/// All frames of a capture, if few enough to keep in memory, and if the capture can be read completely.
pub(super) fn whole(replay: &Replay, records: &Records) -> Result<Option<BufferedReplay>, Failure> {
    // Only complete rounds are kept in memory.
    if replay.count.is_some() {
        return Ok(None);
    }
    let once = Replay { times: 1, ..replay.clone() };
    let mut source = assemble::open_replay(&once).map_err(Failure::new)?;
    let mut whole = BufferedReplay { frames: Vec::new(), times: replay.rounds() };
    let mut next = HeapFrame::default();
    let mut cut = 0;
    while source.arrival().is_some() {
        if whole.frames.len() == BufferedReplay::MOST {
            return Ok(None);
        }
        source.take(&mut next);
        cut += u64::from(next.make_whole());
        whole.frames.push(next.bytes().to_vec());
    }
    let anomalies = source.anomalies().cloned().unwrap_or_default();
    let longest = whole.frames.iter().map(Vec::len).max().unwrap_or(0);
    *records.found() = Found { cut, longest, anomalies };
    Ok(source.failure().is_none().then_some(whole))
}
