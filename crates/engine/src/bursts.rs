use crate::slices::{Passage, Passing};
use measure::{DepartureMeter, DepthReport, DropReason, FrameCounters, PipelineReport, Tally};
use units::{FrameLen, Time};

/// Counters, meter and traces of a [counted](crate::Path::Counted) pipeline, or of one of its queues. The driver
/// creates and sends its frames in bursts. These frames have no target and no token: a frame that arrived and has not
/// left is held.
pub struct BurstCounters {
    books: FrameCounters,
    meter: DepartureMeter,
    passing: Option<Passing>,
    /// Start of the creation of the current burst, and the instant the burst was ready.
    made: (Time, Time),
}

impl BurstCounters {
    pub(crate) fn new(meter: DepartureMeter, passing: Option<Passing>) -> Self {
        BurstCounters { books: FrameCounters::default(), meter, passing, made: (Time::ZERO, Time::ZERO) }
    }

    /// Records that frames of these lengths are ready and that their creation began at `began`. Calls `now` only if one
    /// of them is traced.
    #[inline]
    pub fn arrived(&mut self, lengths: &[FrameLen], began: Time, now: impl Fn() -> Time) {
        self.books.arrived.add_all(tally(lengths));
        let ready = if self.is_traced(lengths.len()) { now() } else { began };
        self.made = (began, ready);
    }

    /// Counts a frame that arrived and cannot leave.
    pub fn discard(&mut self, reason: DropReason) {
        self.books.drop_one(reason);
    }

    /// Whether one of the next `frames` frames is traced. The driver then reads its clock before the hand-over.
    #[inline]
    #[must_use]
    pub fn is_traced(&self, frames: usize) -> bool {
        self.passing.as_ref().is_some_and(|passing| passing.is_among(frames))
    }

    /// Records that frames of these lengths left in one hand-over that began at `start`. If one of the offered frames
    /// is traced, `handed` is the clock reading before the hand-over, and `now` is called for the reading after it.
    #[inline]
    pub fn left(&mut self, lengths: &[FrameLen], start: Time, handed: Option<Time>, now: impl Fn() -> Time) {
        if let Some(passing) = &mut self.passing {
            let (began, ready) = self.made;
            let passage = handed.map(|handed| Passage { began, ready, handed, gone: now() });
            passing.passed(lengths.len(), passage);
        }
        if let Some(last) = lengths.last() {
            let left = tally(lengths);
            self.books.left.add_all(left);
            self.meter.record_burst(start, left, *last);
        }
    }

    /// The counters.
    #[must_use]
    pub fn books(&self) -> &FrameCounters {
        &self.books
    }

    /// The report.
    #[must_use]
    pub fn report(&self) -> PipelineReport {
        PipelineReport {
            depth: Some(DepthReport { max_frames: 0 }),
            slices: self.passing.as_ref().and_then(Passing::report),
            ..self.meter.report(&self.books, self.books.should_hold())
        }
    }
}

#[inline]
fn tally(lengths: &[FrameLen]) -> Tally {
    let bytes = lengths.iter().map(|length| u64::from(length.bytes())).sum();
    Tally { frames: lengths.len() as u64, bytes }
}
