use crate::launch::{LEAD, Launch};
use crate::neighbour;
use dpdk::{BURST, Burst, Mbuf, TxQueue};
use engine::slices::Reading;
use engine::{Departure, Pipeline, Token};
use measure::{AnsweredTally, DropReason};
use packet::{AnsweredRequest, Frame, Stamp};
use units::{PS_PER_NS, Span, Time};

/// Cache line size in bytes on most CPUs.
const CACHE_LINE: usize = 64;

/// The output side of a pipeline: hands frames to the transmit queues of a port and accounts for each.
///
/// With several queues, the frames of a flow share one and so stay in order. The number of queues does not affect
/// departure times.
pub(crate) struct Outlet {
    lanes: Vec<Lane>,
    waiting: usize,
    /// Frames are handed over early, and the NIC sends them at their times.
    launch: Option<Launch>,
    /// The last departure given to a NIC.
    last: Time,
    /// Stamps frames; the UNIX time in ns at which the clock started.
    stamps: Option<u64>,
    /// Read before each hand-over, if frames are traced.
    clock: Option<Reading>,
    /// Answers to neighbours, which follow departures and do not count as such.
    answered: AnsweredTally,
    answers_waiting: u64,
}

struct Lane {
    tx: TxQueue,
    /// Frames to send, and the data of each.
    burst: Burst,
    asks: Vec<QueuedFrame>,
}

/// Kind of a frame that is handed over.
enum QueuedFrame {
    Departure(QueuedDeparture),
    Answer(AnsweredRequest),
}

/// Data of a departing frame.
struct QueuedDeparture {
    token: Token,
    /// Its stamp, and the end of the stamp in the frame.
    stamp: Option<(Stamp, usize)>,
    /// When it departed.
    start: Time,
}

impl Outlet {
    pub(crate) fn new(queues: Vec<TxQueue>, launch: Option<Launch>) -> Self {
        let lane = |tx| Lane { tx, burst: Burst::new(), asks: Vec::with_capacity(BURST) };
        let lanes = queues.into_iter().map(lane).collect();
        Outlet {
            lanes,
            waiting: 0,
            launch,
            last: Time::ZERO,
            stamps: None,
            clock: None,
            answered: AnsweredTally::default(),
            answers_waiting: 0,
        }
    }

    /// Writes the wall-clock departure time into each frame, if frames are stamped. `wall_at_zero` is the UNIX time in
    /// ns at which the run's clock started.
    pub(crate) fn stamping(self, wall_at_zero: Option<u64>) -> Self {
        Outlet { stamps: wall_at_zero, ..self }
    }

    /// Traces frames with `clock`, if given.
    pub(crate) fn slicing(self, clock: Option<Reading>) -> Self {
        Outlet { clock, ..self }
    }

    /// How early a frame is handed over.
    pub(crate) fn lead(&self) -> Span {
        if self.launch.is_some() { LEAD } else { Span::ZERO }
    }

    /// Tracks the NIC's clock, if the NIC times departures.
    pub(crate) fn keep_up(&mut self, now: Time) {
        if let Some(launch) = &mut self.launch {
            launch.keep_up(now);
        }
    }

    /// When the NIC sends the last frame.
    pub(crate) fn gone(&self) -> Time {
        self.last
    }

    /// Frames that are due and that no queue has taken.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// When the first of the frames that wait should have departed, if any waits.
    pub(crate) fn oldest(&self) -> Option<Time> {
        let waiting = self.lanes.iter().flat_map(|lane| &lane.asks).filter_map(|queued| match queued {
            QueuedFrame::Departure(QueuedDeparture { token, .. }) => Some(token.at()),
            QueuedFrame::Answer(_) => None,
        });
        waiting.min().filter(|at| *at < Time::MAX)
    }

    /// Whether any frame may be added. To keep the order, one full queue blocks all.
    pub(crate) fn has_room(&self) -> bool {
        self.lanes.iter().all(|lane| lane.burst.room() > 0)
    }

    /// Adds a frame whose hand-over is due.
    pub(crate) fn add(&mut self, departure: Departure<Mbuf>, now: Time, pipeline: &mut Pipeline<Mbuf>) {
        let Departure { mut frame, mut token } = departure;
        let lane = match self.lanes.len() {
            1 => 0,
            lanes => packet::flow_hash(frame.bytes()) as usize % lanes,
        };
        let lane = &mut self.lanes[lane];
        if !lane.tx.carries(&frame) {
            return token.discard(pipeline, DropReason::TooLong);
        }
        if let Some(launch) = &self.launch {
            launch.stamp(&mut frame, token.at(), now);
            self.last = self.last.max(token.at());
        }
        let stamp = self.stamps.and_then(|_| Stamp::find(frame.bytes()));
        if let Some((stamp, _)) = stamp {
            token.is_of_stream(stamp.stream);
        }
        lane.burst.push(frame).expect("frames are added while there is room");
        lane.asks.push(QueuedFrame::Departure(QueuedDeparture { token, stamp, start: Time::ZERO }));
        self.waiting += 1;
    }

    /// Adds an answer to a neighbour after the present departures.
    pub(crate) fn add_answer(&mut self, answered: AnsweredRequest, frame: Mbuf) {
        let lane = &mut self.lanes[0];
        lane.burst.push(frame).expect("answers are added while there is room");
        lane.asks.push(QueuedFrame::Answer(answered));
        self.answers_waiting += 1;
    }

    /// Answers sent.
    pub(crate) fn answered(&self) -> AnsweredTally {
        self.answered
    }

    /// Answers that no queue has taken.
    pub(crate) fn answers_waiting(&self) -> u64 {
        self.answers_waiting
    }

    /// Loads the added frames into the cache, so that copying in the kernel takes equally long for frames that have
    /// waited and frames that have just arrived.
    pub(crate) fn warm(&self) {
        for frame in self.lanes.iter().flat_map(|lane| &lane.burst) {
            let sum = frame.bytes().iter().step_by(CACHE_LINE).fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
            std::hint::black_box(sum);
        }
    }

    /// Sends the added frames. `now` is called right before each queue gets its frames, and may return an earlier
    /// reading of the clock. Returns the number of frames taken.
    pub(crate) fn send(&mut self, now: impl Fn() -> Time, pipeline: &mut Pipeline<Mbuf>) -> usize {
        let mut taken = 0;
        self.follow_link(pipeline);
        for lane in self.lanes.iter_mut().filter(|lane| !lane.burst.is_empty()) {
            let sent = lane.hand_over(&now, self.launch.is_some(), self.stamps, self.clock.as_ref());
            for what in lane.asks.drain(..sent) {
                match what {
                    QueuedFrame::Departure(QueuedDeparture { token, start, .. }) => {
                        taken += 1;
                        token.complete(pipeline, start);
                    }
                    QueuedFrame::Answer(answered) => {
                        neighbour::count(&mut self.answered, answered);
                        self.answers_waiting -= 1;
                    }
                }
            }
        }
        self.waiting -= taken;
        taken
    }

    /// Ends the run: frames that no queue has taken stay with the pipeline.
    pub(crate) fn hold_rest(&mut self) {
        for what in self.lanes.iter_mut().flat_map(|lane| lane.asks.drain(..)) {
            if let QueuedFrame::Departure(QueuedDeparture { token, .. }) = what {
                token.hold();
            }
        }
    }

    /// Drops added frames that the link no longer carries.
    fn follow_link(&mut self, pipeline: &mut Pipeline<Mbuf>) {
        for Lane { tx, burst, asks } in &mut self.lanes {
            if !tx.follow_link() {
                continue;
            }
            let mut frames = burst.iter();
            let too_long = asks.extract_if(.., |_| {
                let frame = frames.next().expect("each ask is of a frame");
                !tx.carries(frame)
            });
            for what in too_long {
                match what {
                    QueuedFrame::Departure(QueuedDeparture { token, .. }) => {
                        token.discard(pipeline, DropReason::TooLong);
                        self.waiting -= 1;
                    }
                    QueuedFrame::Answer(_) => self.answers_waiting -= 1,
                }
            }
            burst.retain(|frame| tx.carries(frame));
        }
    }
}

impl Lane {
    /// Hands frames to the queue, at once or one by one as they leave, and records when they do. If `launched`, the NIC
    /// times them. Stamped frames get the UNIX time; `wall` is that of the clock's zero. `clock` timestamps traced
    /// frames. Returns the number of frames taken.
    fn hand_over(
        &mut self,
        now: impl Fn() -> Time,
        launched: bool,
        wall: Option<u64>,
        clock: Option<&Reading>,
    ) -> usize {
        let Lane { tx, burst, asks } = self;
        let most = if tx.calls_for_each() { 1 } else { BURST };
        let mut sent = 0;
        while !burst.is_empty() {
            let at = now();
            for (frame, what) in burst.iter_mut().zip(&mut asks[sent..]).take(most) {
                let QueuedFrame::Departure(ask) = what else { continue };
                // Assume that a NIC sends a frame on target if it got the frame in time.
                ask.start = if launched { at.max(ask.token.at()) } else { at };
                if let (Some(wall), Some((stamp, end))) = (wall, ask.stamp) {
                    let time_ns = wall + ask.start.as_ps() / PS_PER_NS;
                    Stamp { time_ns, ..stamp }.put(frame.bytes_mut(), end);
                }
            }
            let handed = clock.map(|clock| clock());
            let taken = tx.send_up_to(burst, most);
            for what in &mut asks[sent..sent + taken] {
                if let (QueuedFrame::Departure(ask), Some(handed)) = (what, handed) {
                    ask.token.is_handed_over(handed);
                }
            }
            sent += taken;
            if taken == 0 {
                break;
            }
        }
        sent
    }
}
