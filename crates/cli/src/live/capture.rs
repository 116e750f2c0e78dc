//! A capture that is sent again, as the data plane takes it.

use crate::assemble;
use crate::output::{self, Failure};
use crate::resolution;
use dataplane::{Supply, Whole};
use packet::{Frame, HeapFrame};
use scenario::Replay;
use serde_json::{Map, Value, json};
use sim::{Oddities, ReplaySource, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use units::Time;

/// A capture that is sent again, as the data plane takes it.
pub(super) struct FromCapture {
    source: ReplaySource,
    cut: u64,
    records: Arc<Records>,
}

/// Records of a capture that are not as they should be, so far.
#[derive(Default)]
pub(super) struct Records {
    /// Cut when they were captured.
    cut: AtomicU64,
    /// Stamped before the one ahead of them.
    disordered: AtomicU64,
    /// Without an Ethernet header.
    made_headers: AtomicU64,
}

impl Records {
    /// Says what was found in the captures of a run.
    pub(super) fn note(all: &[Arc<Records>], limits: &mut Map<String, Value>) {
        let sum = |of: fn(&Records) -> &AtomicU64| all.iter().map(|one| of(one).load(Ordering::Relaxed)).sum::<u64>();
        let cut = sum(|one| &one.cut);
        if cut > 0 {
            limits.insert("cut_records".into(), json!(cut));
            output::note(format!(
                "{cut} records of the capture had been cut, or lack an Ethernet header; their frames go out as long as they were, with zeros for what is missing"
            ));
        }
        let oddities = Oddities { disordered: sum(|one| &one.disordered), made_headers: sum(|one| &one.made_headers) };
        resolution::note_oddities(oddities, limits);
    }
}

impl FromCapture {
    pub(super) fn new(source: ReplaySource, records: Arc<Records>) -> Self {
        FromCapture { source, cut: 0, records }
    }
}

impl Supply for FromCapture {
    fn next(&mut self, frame: &mut HeapFrame) -> Option<Time> {
        let arrival = self.source.arrival()?;
        self.source.take(frame);
        self.cut += u64::from(frame.make_whole());
        self.records.cut.store(self.cut, Ordering::Relaxed);
        let Oddities { disordered, made_headers } = self.source.oddities();
        self.records.disordered.store(disordered, Ordering::Relaxed);
        self.records.made_headers.store(made_headers, Ordering::Relaxed);
        Some(arrival)
    }

    fn failure(&mut self) -> Option<String> {
        self.source.failure().map(|error| error.to_string())
    }
}

/// All frames of a capture, if they are few enough to be held, and all of it can be read.
pub(super) fn whole(replay: &Replay, records: &Records) -> Result<Option<Whole>, Failure> {
    // Rounds that are whole are all that is held.
    if replay.count.is_some() {
        return Ok(None);
    }
    let once = Replay { times: 1, ..replay.clone() };
    let mut source = assemble::open_replay(&once).map_err(Failure::new)?;
    let mut whole = Whole { frames: Vec::new(), times: replay.times };
    let mut next = HeapFrame::default();
    let mut cut = 0;
    while source.arrival().is_some() {
        if whole.frames.len() == Whole::MOST {
            return Ok(None);
        }
        source.take(&mut next);
        cut += u64::from(next.make_whole());
        whole.frames.push(next.bytes().to_vec());
    }
    records.cut.store(cut, Ordering::Relaxed);
    Ok(source.failure().is_none().then_some(whole))
}
