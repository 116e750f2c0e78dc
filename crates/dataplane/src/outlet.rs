use crate::launch::{LEAD, Launch};
use crate::neighbour;
use dpdk::{BURST, Burst, Mbuf, TxQueue};
use engine::slices::Reading;
use engine::{Departure, Pipeline};
use measure::{AnsweredTally, DepartureMeter, DropReason, Held, SentStreams, StreamReport};
use packet::{Answered, Frame, Stamp};
use units::{FrameLen, PS_PER_NS, Span, Time};

/// Bytes that a cache holds together, on most CPUs.
const CACHE_LINE: usize = 64;

/// The way out: hands frames to the transmit queues of a port and books what became of each.
///
/// With several queues the frames of one flow share one, so that their order stays; how many there
/// are changes nothing about when frames depart.
pub(crate) struct Outlet {
    lanes: Vec<Lane>,
    waiting: usize,
    /// The NIC lets frames go at their time; they are handed over ahead.
    launch: Option<Launch>,
    /// The last departure that a NIC was given.
    last: Time,
    /// Frames are stamped: the UNIX time in ns at which the clock began.
    stamps: Option<u64>,
    sent: SentStreams,
    /// Read before each hand-over where frames are followed.
    clock: Option<Reading>,
    /// Answers to neighbours, which ride behind departures and are none.
    answered: AnsweredTally,
    answers_waiting: u64,
}

struct Lane {
    tx: TxQueue,
    /// Frames whose time has come, and what was asked of them.
    burst: Burst,
    asks: Vec<What>,
}

/// What a frame is that is handed over.
enum What {
    Departure(Ask),
    Answer(Answered),
}

/// What was asked of a frame that is handed over.
struct Ask {
    at: Time,
    length: FrameLen,
    class: u32,
    source: Option<u32>,
    /// Its stamp, and where that ends.
    stamp: Option<(Stamp, usize)>,
    /// Of a frame that is followed.
    tag: u32,
    held: Held,
    /// When it departed.
    start: Time,
    /// When it was handed over, if it is followed.
    handed: Option<Time>,
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
            sent: SentStreams::default(),
            clock: None,
            answered: AnsweredTally::default(),
            answers_waiting: 0,
        }
    }

    /// Writes into each frame when it departs, by the wall clock: `wall_at_zero` is the UNIX time in ns
    /// at which the run's clock began, if frames are stamped.
    pub(crate) fn stamping(self, wall_at_zero: Option<u64>) -> Self {
        Outlet { stamps: wall_at_zero, ..self }
    }

    /// Frames are followed by `clock`, if they are.
    pub(crate) fn slicing(self, clock: Option<Reading>) -> Self {
        Outlet { clock, ..self }
    }

    /// How many frames of each stream were sent.
    pub(crate) fn sent(&self) -> Vec<StreamReport> {
        self.sent.report()
    }

    /// How far ahead of its departure a frame is handed over.
    pub(crate) fn lead(&self) -> Span {
        if self.launch.is_some() { LEAD } else { Span::ZERO }
    }

    /// Follows the NIC's clock where it lets frames go.
    pub(crate) fn keep_up(&mut self, now: Time) {
        if let Some(launch) = &mut self.launch {
            launch.keep_up(now);
        }
    }

    /// When the NIC has let the last frame go.
    pub(crate) fn gone(&self) -> Time {
        self.last
    }

    /// Frames whose time has come and which no queue has taken.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether any frame may be added: a queue that takes nothing stops all, for the sake of order.
    pub(crate) fn has_room(&self) -> bool {
        self.lanes.iter().all(|lane| lane.burst.room() > 0)
    }

    /// Adds a frame whose time to be handed over has come.
    pub(crate) fn add(&mut self, departure: Departure<Mbuf>, now: Time, pipeline: &mut Pipeline<Mbuf>) {
        let Departure { mut frame, length, class, source, at, held, tag, .. } = departure;
        let lane = match self.lanes.len() {
            1 => 0,
            lanes => packet::flow_hash(frame.bytes()) as usize % lanes,
        };
        let lane = &mut self.lanes[lane];
        if !lane.tx.carries(&frame) {
            pipeline.unfollow(class, &frame);
            pipeline.lost(class, source, DropReason::TooLong);
            return;
        }
        if let Some(launch) = &self.launch {
            launch.stamp(&mut frame, at, now);
            self.last = self.last.max(at);
        }
        let stamp = self.stamps.and_then(|_| Stamp::find(frame.bytes()));
        lane.burst.push(frame).expect("frames are added while there is room");
        let ask = Ask { at, length, class, source, stamp, tag, held, start: Time::ZERO, handed: None };
        lane.asks.push(What::Departure(ask));
        self.waiting += 1;
    }

    /// Adds an answer to a neighbour, behind the departures that are there.
    pub(crate) fn add_answer(&mut self, answered: Answered, frame: Mbuf) {
        let lane = &mut self.lanes[0];
        lane.burst.push(frame).expect("answers are added while there is room");
        lane.asks.push(What::Answer(answered));
        self.answers_waiting += 1;
    }

    /// Answers that were sent.
    pub(crate) fn answered(&self) -> AnsweredTally {
        self.answered
    }

    /// Answers that no queue has taken.
    pub(crate) fn answers_waiting(&self) -> u64 {
        self.answers_waiting
    }

    /// Brings what was added close to the CPU: a copy in the kernel then takes as long for a frame that
    /// has waited for long as for one that has just come.
    pub(crate) fn warm(&self) {
        for frame in self.lanes.iter().flat_map(|lane| &lane.burst) {
            let sum = frame.bytes().iter().step_by(CACHE_LINE).fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
            std::hint::black_box(sum);
        }
    }

    /// Sends what was added; `now` is asked right before each queue is given its frames, and may tell of an
    /// earlier look at the clock. Gives how many were taken.
    pub(crate) fn send(
        &mut self,
        now: impl Fn() -> Time,
        pipeline: &mut Pipeline<Mbuf>,
        meter: &mut DepartureMeter,
    ) -> usize {
        let mut taken = 0;
        self.follow_link(pipeline);
        for lane in self.lanes.iter_mut().filter(|lane| !lane.burst.is_empty()) {
            let sent = lane.hand_over(&now, self.launch.is_some(), self.stamps, self.clock.as_ref());
            for what in lane.asks.drain(..sent) {
                let Ask { at: ask, length, class, source, stamp, tag, held, start, handed } = match what {
                    What::Departure(ask) => ask,
                    What::Answer(answered) => {
                        neighbour::count(&mut self.answered, answered);
                        self.answers_waiting -= 1;
                        continue;
                    }
                };
                taken += 1;
                pipeline.sent(class, length);
                stamp.into_iter().for_each(|(stamp, _)| self.sent.add(stamp.stream));
                pipeline.departed(class, source, length, held, (ask, start));
                if tag != 0 {
                    pipeline.sliced(class, tag, ask, handed.map_or(start, |handed| start.max(handed)));
                }
                meter.record_of(class, ask, start, length);
            }
        }
        self.waiting -= taken;
        taken
    }

    /// Drops what was added and is longer than the link carries by now.
    fn follow_link(&mut self, pipeline: &mut Pipeline<Mbuf>) {
        for Lane { tx, burst, asks } in &mut self.lanes {
            if !tx.follow_link() {
                continue;
            }
            let mut frames = burst.iter();
            asks.retain(|what| {
                let frame = frames.next().expect("each ask is of a frame");
                let carried = tx.carries(frame);
                match what {
                    _ if carried => {}
                    What::Departure(Ask { class, source, .. }) => {
                        pipeline.unfollow(*class, frame);
                        pipeline.lost(*class, *source, DropReason::TooLong);
                        self.waiting -= 1;
                    }
                    What::Answer(_) => self.answers_waiting -= 1,
                }
                carried
            });
            burst.retain(|frame| tx.carries(frame));
        }
    }
}

impl Lane {
    /// Gives the queue its frames, at once or each by itself as they leave, and notes when they do. Frames are `launched`
    /// by the NIC, and get the UNIX time if they are stamped: `wall` is that of the clock's zero; `clock` is that of
    /// frames that are followed. Gives how many were taken.
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
                let What::Departure(ask) = what else { continue };
                // What a NIC was given in time departs when it was asked to, by all that can be seen here.
                ask.start = if launched { at.max(ask.at) } else { at };
                if let (Some(wall), Some((stamp, end))) = (wall, ask.stamp) {
                    let time_ns = wall + ask.start.as_ps() / PS_PER_NS;
                    Stamp { time_ns, ..stamp }.write(&mut frame.bytes_mut()[..end]);
                }
            }
            let handed = clock.map(|clock| clock());
            let taken = tx.send_up_to(burst, most);
            for what in &mut asks[sent..sent + taken] {
                if let What::Departure(ask) = what {
                    ask.handed = handed;
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
