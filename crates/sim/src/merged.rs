use crate::capture::CaptureAnomalies;
use crate::error::SimError;
use crate::source::{PcapSource, Source};
use packet::HeapFrame;
use std::path::Path;
use units::{PS_PER_NS, Span, Time};

/// Maximum time since the first frame. Virtual time ends soon after it.
const REACH_NS: u64 = 18_000_000_000_000_000;

/// The frames of several captures in timestamp order. Frames with equal timestamps are in the order of the captures.
/// The first frame of all captures starts the run.
///
/// All timestamps are treated as from one clock: offsets between the clocks of several hosts become part of the arrival
/// times.
pub struct MergedSource {
    inputs: Vec<Input>,
    anomalies: CaptureAnomalies,
}

struct Input {
    source: PcapSource,
    /// Start of the capture relative to the start of the run.
    after: Span,
    /// The anomalies of this capture that are already in the total.
    counted: CaptureAnomalies,
}

impl Input {
    fn arrival(&self) -> Option<Time> {
        self.source.arrival().map(|at| at + self.after)
    }
}

impl MergedSource {
    /// Opens captures.
    ///
    /// # Errors
    /// As [`PcapSource::open`], or [`SimError::FarApart`].
    pub fn open(paths: &[&Path]) -> Result<MergedSource, SimError> {
        let sources = paths.iter().map(|path| PcapSource::open(path)).collect::<Result<Vec<_>, _>>()?;
        // An empty capture has no start time.
        let starts = || sources.iter().filter(|source| source.arrival().is_some()).map(PcapSource::epoch_ns);
        let first = starts().min().unwrap_or(0);
        let last = starts().max().unwrap_or(0);
        if last - first > REACH_NS {
            return Err(SimError::FarApart { days: (last - first) / 86_400_000_000_000 });
        }
        let inputs = sources.into_iter().map(|source| {
            let after = source.epoch_ns().saturating_sub(first).min(REACH_NS);
            Input { after: Span::from_ps(after * PS_PER_NS), source, counted: CaptureAnomalies::default() }
        });
        let mut merged = MergedSource { inputs: inputs.collect(), anomalies: CaptureAnomalies::default() };
        for input in 0..merged.inputs.len() {
            merged.count(input);
        }
        Ok(merged)
    }

    /// The capture with the next frame.
    fn next(&self) -> Option<usize> {
        let arrivals = self.inputs.iter().enumerate().filter_map(|(number, input)| Some((input.arrival()?, number)));
        arrivals.min().map(|(_, number)| number)
    }

    /// Adds new anomalies to the total after a read from a capture.
    fn count(&mut self, number: usize) {
        let input = &mut self.inputs[number];
        let Some(found) = input.source.anomalies().filter(|found| **found != input.counted) else { return };
        input.counted = found.clone();
        self.anomalies = CaptureAnomalies::default();
        for input in &self.inputs {
            self.anomalies += &input.counted;
        }
    }
}

impl Source for MergedSource {
    fn arrival(&self) -> Option<Time> {
        self.inputs[self.next()?].arrival()
    }

    fn take(&mut self, frame: &mut HeapFrame) {
        let Some(next) = self.next() else { return };
        self.inputs[next].source.take(frame);
        self.count(next);
    }

    fn failure(&mut self) -> Option<SimError> {
        self.inputs.iter_mut().find_map(|input| input.source.failure())
    }

    fn epoch_ns(&self) -> u64 {
        let input = self.next().map_or(&self.inputs[0], |next| &self.inputs[next]);
        input.source.epoch_ns().saturating_sub(input.after.as_ps() / PS_PER_NS)
    }

    fn anomalies(&self) -> Option<&CaptureAnomalies> {
        Some(&self.anomalies)
    }
}
