use crate::rounds::Rounds;
use dpdk::{Burst, TxQueue};
use engine::Departure;
use engine::schedules::Due;
use measure::DropReason;
use packet::Frame;
use units::{FrameLen, Time};

/// Frames of a stream that go straight to the schedule, which is asked for many of them at once.
#[derive(Default)]
pub(crate) struct Fresh {
    frames: Burst,
    /// Of all that were in the burst, and how many of these have gone.
    lengths: Vec<FrameLen>,
    dues: Vec<Due>,
    gone: usize,
    /// Since when all of them are ready.
    start: Option<Time>,
}

impl Fresh {
    /// The stream begins now, if it has not yet.
    pub(crate) fn begin(&mut self, now: Time) {
        self.start.get_or_insert(now);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The next frame, and when it should depart: never, once the schedule has ended.
    #[inline(always)]
    pub(crate) fn next(&mut self, tx: &TxQueue, rounds: &mut Rounds<'_>) -> Option<Departure<dpdk::Mbuf>> {
        if self.frames.is_empty() {
            self.make(tx, rounds);
        }
        let frame = self.frames.pop_front()?;
        let (length, at) = (self.lengths[self.gone], self.dues[self.gone].at);
        self.gone += 1;
        let ready = self.start.unwrap_or(Time::ZERO);
        Some(Departure { frame, length, class: 0, source: None, ready, at })
    }

    #[inline(never)]
    fn make(&mut self, tx: &TxQueue, rounds: &mut Rounds<'_>) {
        let (lengths, pipeline) = (&mut self.lengths, &mut rounds.pipeline);
        for _ in 0..rounds.intake.make(&mut self.frames) {
            pipeline.refuse(FrameLen::new(0), DropReason::TooLong);
        }
        self.frames.retain(|frame| {
            let carried = tx.carries(frame);
            if !carried {
                pipeline.refuse(frame.length(), DropReason::TooLong);
            }
            carried
        });
        lengths.clear();
        lengths.extend(self.frames.iter().map(Frame::length));
        self.dues.clear();
        self.gone = 0;
        pipeline.dues(self.start.unwrap_or(Time::ZERO), lengths, &mut self.dues);
    }
}
