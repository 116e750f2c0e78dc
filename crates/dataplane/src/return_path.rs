use crate::changes::{ChangeReceiver, ChangeSchedule};
use crate::counters::Counters;
use dpdk::{Burst, Mbuf, RxQueue, TscClock, TxQueue};
use engine::schedules::{Draw, Target};
use engine::{Departure, Pipeline, Token};
use measure::{DropReason, PipelineReport, ReturnReport};
use packet::Frame;
use std::sync::Arc;
use units::{FrameLen, Span, Time};

/// The return path: carries frames from the output port to the input port, unchanged and at once, or through its own
/// stages.
pub(crate) struct ReturnPath {
    queues: Vec<RxQueue>,
    turn: usize,
    clock: TscClock,
    tx: TxQueue,
    pipeline: Pipeline<Mbuf>,
    /// Its name, if it is a separate direction.
    direction: Option<String>,
    /// Frames that the stages may hold.
    limit: u64,
    received: Burst,
    /// Frames that the input has not taken yet, and their departures.
    burst: Burst,
    tokens: Vec<Token>,
    /// Progress, for observers.
    shown: Option<Arc<Counters>>,
    round: u64,
    /// Changes of its stages.
    changes: ChangeSchedule,
}

/// Stages of the return path.
pub(crate) struct ReturnStages {
    pub(crate) name: String,
    pub(crate) pipeline: Pipeline<Mbuf>,
    pub(crate) window: Span,
    pub(crate) limit: u64,
    /// Changes of these stages, if they take any.
    pub(crate) changes: Option<ChangeReceiver>,
}

impl ReturnPath {
    pub(crate) fn new(
        queues: Vec<RxQueue>,
        tx: TxQueue,
        stages: Option<ReturnStages>,
        clock: TscClock,
        shown: Option<Arc<Counters>>,
    ) -> Self {
        let (mut pipeline, direction, limit, changes) = match stages {
            Some(ReturnStages { name, pipeline, window, limit, changes }) => {
                (pipeline.measuring(None, None, window), Some(name), limit, changes)
            }
            None => {
                let draw = Draw { seed: 0, path: "return", frames: None };
                let at_once = Target::Nothing.schedule(None, draw).expect("nothing can always be had");
                (Pipeline::new(Vec::new(), at_once), None, u64::MAX, None)
            }
        };
        let mut changes = ChangeSchedule::new(changes);
        changes.begin(clock.now(), clock, &mut pipeline);
        let (received, burst) = (Burst::new(), Burst::new());
        ReturnPath {
            queues,
            turn: 0,
            clock,
            tx,
            pipeline,
            direction,
            limit,
            received,
            burst,
            tokens: Vec::new(),
            shown,
            round: 0,
            changes,
        }
    }

    /// Passes the answers of each direction's stages to the other direction, as if they had arrived there. The clock of
    /// the forward direction reads `there`.
    pub(crate) fn exchange(&mut self, now: Time, there: Time, forward: &mut Pipeline<Mbuf>) {
        for answer in forward.take_answers() {
            self.pipeline.push(now, now, answer);
        }
        for answer in self.pipeline.take_answers() {
            forward.push(there, there, answer);
        }
    }

    /// Carries up to `most` frames: those that have arrived, and those that the stages release. Reads nothing while the
    /// input port refuses frames. Arriving frames then queue in the driver's ring, and the driver counts those that it
    /// loses. Returns the number of frames handled.
    pub(crate) fn carry(&mut self, mut now: Time, most: usize) -> usize {
        if self.round.is_multiple_of(64)
            && let Some(shown) = &self.shown
        {
            shown.publish(&self.pipeline);
        }
        if self.round.is_multiple_of(64) {
            self.changes.poll(&mut self.pipeline);
        }
        self.changes.carry_out(now, &mut self.pipeline);
        self.round += 1;
        let mut arrived = 0;
        if self.burst.is_empty() {
            let queue = &mut self.queues[self.turn];
            arrived = queue.poll_up_to(&mut self.received, most);
            for length in queue.refused() {
                self.pipeline.refuse(FrameLen::of_captured(*length), DropReason::TooLong);
            }
            if arrived > 0 {
                // A frame may have arrived after `now`, and must not be held for less than asked.
                now = now.max(queue.read_at().unwrap_or_else(|| self.clock.now()));
            }
            self.turn = (self.turn + 1) % self.queues.len();
            for frame in self.received.drain() {
                if self.pipeline.held() >= self.limit {
                    self.pipeline.refuse(frame.length(), DropReason::Pool);
                } else {
                    self.pipeline.push(now, now, frame);
                }
            }
            if self.pipeline.deadline().is_some_and(|deadline| deadline <= now) {
                self.pipeline.wake(now);
            }
            while self.burst.room() > 0
                && let Some(Departure { frame, token }) = self.pipeline.next_departure()
            {
                if self.tx.carries(&frame) {
                    self.tokens.push(token);
                    self.burst.push(frame).expect("there is room");
                } else {
                    token.discard(&mut self.pipeline, DropReason::TooLong);
                }
            }
        }
        if self.tx.follow_link() {
            self.leave_out_too_long();
        }
        if self.burst.is_empty() {
            return arrived;
        }
        // Time may have passed since `now`: stages hold frames, or the driver took none before.
        let start = self.clock.now();
        let sent = self.tx.send(&mut self.burst);
        for token in self.tokens.drain(..sent) {
            token.complete(&mut self.pipeline, start);
        }
        arrived + sent
    }

    /// Drops accepted frames that the link no longer carries since its MTU was lowered.
    fn leave_out_too_long(&mut self) {
        let mut frames = self.burst.iter();
        let too_long = self.tokens.extract_if(.., |_| {
            let frame = frames.next().expect("each token is of a frame");
            !self.tx.carries(frame)
        });
        for token in too_long {
            token.discard(&mut self.pipeline, DropReason::TooLong);
        }
        self.burst.retain(|frame| self.tx.carries(frame));
    }

    /// True if something is due, or will be by `time`.
    pub(crate) fn is_due(&self, time: Time) -> bool {
        !self.burst.is_empty()
            || self.pipeline.ready() > 0
            || self.pipeline.deadline().is_some_and(|deadline| deadline < time)
    }

    /// Adds its figures to the pipeline's report: as the return path, or as a separate direction.
    pub(crate) fn report(&mut self, report: PipelineReport) -> PipelineReport {
        self.pipeline.ends(self.clock.now());
        let back = self.pipeline.report();
        if let Some(name) = &self.direction {
            // Without a schedule nothing is starved.
            let backward = PipelineReport { name: name.clone(), starved: None, ..back };
            return PipelineReport { backward: Some(Box::new(backward)), ..report };
        }
        let PipelineReport { arrived, left, drops, held, .. } = back;
        PipelineReport { back: Some(ReturnReport { arrived, left, drops, held }), ..report }
    }
}

impl Drop for ReturnPath {
    fn drop(&mut self) {
        // Frames that the input has not taken are in the report as held.
        self.tokens.drain(..).for_each(Token::hold);
    }
}

/// Adds the figures of the return path to `report`, if there is one.
pub(crate) fn with_back(report: PipelineReport, back: Option<&mut ReturnPath>) -> PipelineReport {
    match back {
        Some(back) => back.report(report),
        None => report,
    }
}
