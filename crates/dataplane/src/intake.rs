use crate::maker::Maker;
use dpdk::{BURST, Burst, Mbuf, RxQueue, TscClock};
use engine::Pipeline;
use engine::slices::FrameTrace;
use measure::DropReason;
use packet::Frame;
use units::{FrameLen, Time};

/// Frames of a stream that are generated ahead.
const AHEAD: usize = 32;

/// Makes frames of these queues report how long they waited in the ring before the poll. Returns true if all queues
/// support it.
pub(crate) fn measure_waits(queues: &mut [RxQueue], clock: TscClock) -> bool {
    queues.iter_mut().map(|queue| queue.measure_waits(clock)).fold(true, |all, supported| all & supported)
}

/// The input side of a pipeline: receives the frames of a port, generates those of a stream, or takes those of another
/// thread, and accounts for them.
pub(crate) struct Intake {
    from: FrameSource,
    /// Frames that the pipeline may hold.
    limit: u64,
    received: Burst,
    segmented: u64,
    depth: u64,
}

enum FrameSource {
    Port { queues: Vec<RxQueue>, turn: usize, clock: TscClock },
    Stream { maker: Maker, start: Option<Time> },
    Replay { ring: rtrb::Consumer<CaptureItem>, ahead: bool, start: Option<Time> },
    Thread { ring: rtrb::Consumer<ReadyFrame>, made: bool },
}

/// A frame that has passed the stages on another thread, and when.
pub(crate) struct ReadyFrame {
    pub(crate) frame: Mbuf,
    pub(crate) at: Time,
    pub(crate) class: u32,
    /// Its trace so far, if it is traced.
    pub(crate) trace: Option<Box<FrameTrace>>,
}

/// A frame of a capture, ready at a time since the start, or the length of a frame that fits no buffer.
pub(crate) enum CaptureItem {
    Frame(ReadyFrame),
    TooLong(FrameLen),
}

impl CaptureItem {
    fn at(&self, start: Time) -> Time {
        match self {
            CaptureItem::Frame(ready) => start + ready.at.since(Time::ZERO),
            CaptureItem::TooLong(_) => start,
        }
    }
}

impl Intake {
    /// Takes frames from the queues of a port, in turn.
    pub(crate) fn of_port(queues: Vec<RxQueue>, limit: u64, clock: TscClock) -> Self {
        Intake::new(FrameSource::Port { queues, turn: 0, clock }, limit)
    }

    /// Takes the frames that `maker` generates. All are ready at `start`, or else from the first poll on.
    pub(crate) fn of_stream(maker: Maker, limit: u64, start: Option<Time>) -> Self {
        Intake::new(FrameSource::Stream { maker, start }, limit)
    }

    /// Takes frames that another thread received and ran through the stages; `made` if they are of a stream.
    pub(crate) fn of_thread(ring: rtrb::Consumer<ReadyFrame>, made: bool) -> Self {
        Intake::new(FrameSource::Thread { ring, made }, u64::MAX)
    }

    /// Takes frames from [`crate::replay::read`]. They are ready at their time, counted from `start` or else from the
    /// first poll; with `ahead` they may be taken earlier.
    pub(crate) fn of_replay(ring: rtrb::Consumer<CaptureItem>, ahead: bool, start: Option<Time>) -> Self {
        Intake::new(FrameSource::Replay { ring, ahead, start }, u64::MAX)
    }

    fn new(from: FrameSource, limit: u64) -> Self {
        Intake { from, limit, received: Burst::new(), segmented: 0, depth: 0 }
    }

    /// True if the stream was generated completely, or the other thread has ended and all its frames were taken. Ports
    /// never end.
    pub(crate) fn ended(&self) -> bool {
        match &self.from {
            FrameSource::Stream { maker, .. } => maker.left() == 0,
            FrameSource::Thread { ring, .. } => ring.is_abandoned() && ring.is_empty(),
            FrameSource::Replay { ring, .. } => ring.is_abandoned() && ring.is_empty(),
            FrameSource::Port { .. } => false,
        }
    }

    /// True if frames are generated on demand.
    pub(crate) fn makes(&self) -> bool {
        matches!(self.from, FrameSource::Stream { .. })
    }

    /// Generates some frames of a stream without the pipeline. Returns the lengths of frames that fit no buffer.
    pub(crate) fn make(&mut self, burst: &mut Burst) -> Vec<FrameLen> {
        match &mut self.from {
            FrameSource::Stream { maker, .. } => maker.make(burst, AHEAD),
            _ => Vec::new(),
        }
    }

    /// True if the frames are of a stream, where ending early loses nothing.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(
            self.from,
            FrameSource::Stream { .. } | FrameSource::Replay { .. } | FrameSource::Thread { made: true, .. }
        )
    }

    /// True if the frames arrive at a port.
    pub(crate) fn is_port(&self) -> bool {
        matches!(self.from, FrameSource::Port { .. })
    }

    /// Largest number of frames that the pipeline held.
    pub(crate) fn depth(&self) -> u64 {
        self.depth
    }

    /// Takes or generates up to `most` frames, or as many of a stream as determine the next departure. The pipeline's
    /// clock reads `now`, and `elsewhere` frames have left the pipeline but not departed. Returns the number of frames
    /// taken.
    pub(crate) fn take(&mut self, now: Time, most: usize, elsewhere: u64, pipeline: &mut Pipeline<Mbuf>) -> usize {
        match &mut self.from {
            FrameSource::Stream { maker, start } => {
                let start = *start.get_or_insert(now);
                // A class whose frames are rare needs more frames generated ahead.
                let settled = pipeline.due().is_some() && pipeline.is_settled();
                let ahead = if settled { 0 } else { self.limit.saturating_sub(pipeline.held()) as usize };
                let wanted = match maker.wanted(|class| pipeline.is_full(class)) {
                    // Ready frames of one class say nothing about the others.
                    Some(true) if settled || ahead > 0 => AHEAD,
                    Some(_) => 0,
                    None => AHEAD.saturating_sub(pipeline.ready()).max(ahead.min(AHEAD)),
                };
                let wanted = if settled { wanted.min(most) } else { wanted };
                for length in maker.make(&mut self.received, wanted) {
                    pipeline.refuse(length, DropReason::TooLong);
                }
                let made = self.received.len();
                for frame in self.received.drain() {
                    // Before the asked start, the pipeline's clock reads that.
                    pipeline.push(now.max(start), start, frame);
                }
                made
            }
            FrameSource::Replay { ring, ahead, start } => {
                let start = *start.get_or_insert(now);
                let mut arrived = 0;
                while arrived < most
                    && pipeline.ready() < AHEAD
                    && let Ok(next) = ring.peek()
                {
                    let at = next.at(start);
                    if !*ahead && at > now {
                        break;
                    }
                    arrived += 1;
                    match ring.pop() {
                        Ok(CaptureItem::Frame(ReadyFrame { frame, .. })) => pipeline.push(now.max(at), at, frame),
                        Ok(CaptureItem::TooLong(length)) => pipeline.refuse(length, DropReason::TooLong),
                        Err(_) => break,
                    }
                }
                arrived
            }
            FrameSource::Thread { ring, .. } => {
                let mut arrived = 0;
                while arrived < most
                    && let Ok(ReadyFrame { frame, at, class, trace }) = ring.pop()
                {
                    // This thread's reading of the clock may be older than the other thread's.
                    pipeline.hand(class as usize, now.max(at), at, frame, trace);
                    arrived += 1;
                }
                arrived
            }
            FrameSource::Port { queues, turn, clock } => {
                let most = most.min(BURST);
                let (mut arrived, mut depth) = (0, self.depth);
                for _ in 0..queues.len() {
                    let queue = &mut queues[*turn];
                    let got = queue.poll_up_to(&mut self.received, most - arrived);
                    for length in queue.refused() {
                        pipeline.refuse(FrameLen::of_captured(*length), DropReason::TooLong);
                    }
                    if got > 0 {
                        // A frame may have arrived after `now`, and must not be held for less than asked.
                        let now = now.max(queue.read_at().unwrap_or_else(|| clock.now()));
                        let room = self.limit.saturating_sub(pipeline.held() + elsewhere);
                        admit(self.received.drain(), now, room, pipeline);
                        depth = depth.max(pipeline.held() + elsewhere);
                    }
                    arrived += got;
                    *turn = (*turn + 1) % queues.len();
                    if arrived >= most {
                        break;
                    }
                }
                let segmented = queues.iter().map(RxQueue::segmented).sum();
                for _ in self.segmented..segmented {
                    pipeline.refuse(FrameLen::new(0), DropReason::Segments);
                }
                (self.segmented, self.depth) = (segmented, depth);
                arrived
            }
        }
    }
}

/// Gives frames that were just polled to the pipeline, up to its limit.
fn admit(frames: impl Iterator<Item = Mbuf>, now: Time, room: u64, pipeline: &mut Pipeline<Mbuf>) {
    for (i, frame) in frames.enumerate() {
        if i as u64 >= room {
            pipeline.refuse(frame.length(), DropReason::Pool);
        } else {
            pipeline.push(now, now, frame);
        }
    }
}
