use crate::rounds::Rounds;
use dpdk::{Burst, Mbuf, TxQueue};
use engine::Placed;
use engine::filler::FillerPlanner;
use engine::schedules::Due;
use measure::DropReason;
use packet::Frame;
use units::{FrameLen, Time};

/// Frames of a stream that go straight to the schedule, which computes many departures at once.
#[derive(Default)]
pub(crate) struct StreamBurst {
    frames: Burst,
    /// Departures of all frames of the burst, and how many frames have gone.
    asks: Vec<PlannedDeparture>,
    gone: usize,
    // Empty except while frames are generated.
    lengths: Vec<FrameLen>,
    dues: Vec<Due>,
    /// Time at which all frames are ready.
    start: Option<Time>,
}

/// Departure of a frame.
#[derive(Clone, Copy)]
struct PlannedDeparture {
    length: FrameLen,
    at: Time,
    /// The nearest byte time.
    position: u64,
}

impl StreamBurst {
    /// Starts the stream now, if it has not started.
    pub(crate) fn begin(&mut self, now: Time) {
        self.start.get_or_insert(now);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The next frame, its departure (never, once the schedule has ended) and the departure's byte time.
    #[inline(always)]
    pub(crate) fn next(
        &mut self,
        to: (&TxQueue, &FillerPlanner),
        rounds: &mut Rounds<'_>,
    ) -> Option<(Mbuf, Placed, u64)> {
        if self.frames.is_empty() {
            self.make(to, rounds);
        }
        let frame = self.frames.pop_front()?;
        let PlannedDeparture { length, at, position } = self.asks[self.gone];
        self.gone += 1;
        Some((frame, rounds.pipeline.place(length, at), position))
    }

    /// When all frames are ready.
    #[inline]
    pub(crate) fn ready(&self) -> Time {
        self.start.unwrap_or(Time::ZERO)
    }

    #[inline(never)]
    fn make(&mut self, (tx, planner): (&TxQueue, &FillerPlanner), rounds: &mut Rounds<'_>) {
        let pipeline = &mut rounds.pipeline;
        for length in rounds.intake.make(&mut self.frames) {
            pipeline.refuse(length, DropReason::TooLong);
        }
        self.frames.retain(|frame| {
            let carried = tx.carries(frame);
            if !carried {
                pipeline.refuse(frame.length(), DropReason::TooLong);
            }
            carried
        });
        self.lengths.extend(self.frames.iter().map(Frame::length));
        pipeline.dues(self.ready(), &self.lengths, &mut self.dues);
        let asks = self.lengths.drain(..).zip(self.dues.drain(..));
        self.asks.clear();
        self.asks.extend(asks.map(|(length, Due { at, .. })| PlannedDeparture {
            length,
            at,
            position: planner.nearest_start(at),
        }));
        self.gone = 0;
    }
}
