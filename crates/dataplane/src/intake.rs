use crate::maker::Maker;
use dpdk::{BURST, Burst, Mbuf, RxQueue, TscClock};
use engine::Pipeline;
use engine::slices::Way;
use measure::DropReason;
use packet::Frame;
use units::{FrameLen, Time};

/// Frames of a stream that are made ahead.
const AHEAD: usize = 32;

/// From now on frames of these queues of a port say how long they were there before they were found. True if all tell.
pub(crate) fn tell_waits(queues: &mut [RxQueue]) -> bool {
    queues.iter_mut().map(RxQueue::tell_waits).fold(true, |all, tells| all & tells)
}

/// The way in: takes frames from the queues of a port, or makes those of a stream, and books each.
pub(crate) struct Intake {
    from: From,
    /// Frames that the pipeline may hold.
    limit: u64,
    /// The longest frame that arrives whole.
    longest: usize,
    received: Burst,
    segmented: u64,
    depth: u64,
}

enum From {
    Port { queues: Vec<RxQueue>, turn: usize, clock: TscClock },
    Stream { maker: Maker, start: Option<Time> },
    Replay { ring: rtrb::Consumer<Read>, ahead: bool, start: Option<Time> },
    Thread { ring: rtrb::Consumer<Ready>, made: bool },
}

/// A frame that has passed the stages on another thread, and when it had.
pub(crate) struct Ready {
    pub(crate) frame: Mbuf,
    pub(crate) at: Time,
    pub(crate) class: u32,
    /// Its way so far, if it is followed.
    pub(crate) way: Option<Box<Way>>,
}

/// A frame of a capture, ready at a time counted from the start, or the length of one that no buffer holds.
pub(crate) enum Read {
    Frame(Ready),
    TooLong(FrameLen),
}

impl Read {
    fn at(&self, start: Time) -> Time {
        match self {
            Read::Frame(ready) => start + ready.at.since(Time::ZERO),
            Read::TooLong(_) => start,
        }
    }
}

impl Intake {
    /// Takes from the queues of a port, in turn.
    pub(crate) fn of_port(queues: Vec<RxQueue>, limit: u64, clock: TscClock) -> Self {
        let longest = queues.first().map_or(usize::MAX, RxQueue::longest_whole);
        Intake { longest, ..Intake::new(From::Port { queues, turn: 0, clock }, limit) }
    }

    /// Takes the frames that `maker` makes. All are ready from the first look on.
    pub(crate) fn of_stream(maker: Maker, limit: u64) -> Self {
        Intake::new(From::Stream { maker, start: None }, limit)
    }

    /// Takes what another thread received, or `made` of a stream, and ran through the stages.
    pub(crate) fn of_thread(ring: rtrb::Consumer<Ready>, made: bool) -> Self {
        Intake::new(From::Thread { ring, made }, u64::MAX)
    }

    /// Takes what [`crate::replay::read`] reads. Frames are ready at their time, counted from the first
    /// look; `ahead` says that they may be taken before.
    pub(crate) fn of_replay(ring: rtrb::Consumer<Read>, ahead: bool) -> Self {
        Intake::new(From::Replay { ring, ahead, start: None }, u64::MAX)
    }

    fn new(from: From, limit: u64) -> Self {
        Intake { from, limit, longest: usize::MAX, received: Burst::new(), segmented: 0, depth: 0 }
    }

    /// The stream was made whole, or the other thread has ended and all of it was taken. Ports never end.
    pub(crate) fn ended(&self) -> bool {
        match &self.from {
            From::Stream { maker, .. } => maker.left() == 0,
            From::Thread { ring, .. } => ring.is_abandoned() && ring.is_empty(),
            From::Replay { ring, .. } => ring.is_abandoned() && ring.is_empty(),
            From::Port { .. } => false,
        }
    }

    /// Its frames are made, each when it is wanted.
    pub(crate) fn makes(&self) -> bool {
        matches!(self.from, From::Stream { .. })
    }

    /// Makes some frames of a stream, past the pipeline. Gives the lengths of those that no buffer holds.
    pub(crate) fn make(&mut self, burst: &mut Burst) -> Vec<FrameLen> {
        match &mut self.from {
            From::Stream { maker, .. } => maker.make(burst, AHEAD),
            _ => Vec::new(),
        }
    }

    /// A stream, of which nothing is missed when the run ends before it.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.from, From::Stream { .. } | From::Replay { .. } | From::Thread { made: true, .. })
    }

    /// What a port receives, when it likes.
    pub(crate) fn is_port(&self) -> bool {
        matches!(self.from, From::Port { .. })
    }

    /// Most frames that the pipeline held.
    pub(crate) fn depth(&self) -> u64 {
        self.depth
    }

    /// Takes or makes up to `most` frames, or as many of a stream as it takes to know which departs next;
    /// the pipeline's clock reads
    /// `now`, and `elsewhere` frames have left it and not yet departed. Gives how many came.
    pub(crate) fn take(&mut self, now: Time, most: usize, elsewhere: u64, pipeline: &mut Pipeline<Mbuf>) -> usize {
        match &mut self.from {
            From::Stream { maker, start } => {
                let start = *start.get_or_insert(now);
                // A class whose frames are rare needs a longer look ahead than one whose frames are all there is.
                let settled = pipeline.due().is_some() && pipeline.is_settled();
                let ahead = if settled { 0 } else { self.limit.saturating_sub(pipeline.held()) as usize };
                let wanted = match maker.wanted(|class| pipeline.is_full(class)) {
                    // What is ready of one class says nothing of the others.
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
                    pipeline.push(now, start, frame);
                }
                made
            }
            From::Replay { ring, ahead, start } => {
                let start = *start.get_or_insert(now);
                let mut came = 0;
                while came < most
                    && pipeline.ready() < AHEAD
                    && let Ok(next) = ring.peek()
                {
                    let at = next.at(start);
                    if !*ahead && at > now {
                        break;
                    }
                    came += 1;
                    match ring.pop() {
                        Ok(Read::Frame(Ready { frame, .. })) => pipeline.push(now.max(at), at, frame),
                        Ok(Read::TooLong(length)) => pipeline.refuse(length, DropReason::TooLong),
                        Err(_) => break,
                    }
                }
                came
            }
            From::Thread { ring, .. } => {
                let mut came = 0;
                while came < most
                    && let Ok(Ready { frame, at, class, way }) = ring.pop()
                {
                    // This thread's look at the clock may be older than the other's.
                    pipeline.hand(class as usize, now.max(at), at, frame, way);
                    came += 1;
                }
                came
            }
            From::Port { queues, turn, clock } => {
                let most = most.min(BURST);
                let mut came = 0;
                for _ in 0..queues.len() {
                    came += queues[*turn].poll_up_to(&mut self.received, most - came);
                    *turn = (*turn + 1) % queues.len();
                    if came >= most {
                        break;
                    }
                }
                let segmented = queues.iter().map(RxQueue::segmented).sum();
                for _ in self.segmented..segmented {
                    pipeline.refuse(FrameLen::new(0), DropReason::Segments);
                }
                self.segmented = segmented;
                if came > 0 {
                    // A frame may have come since `now`, and must not be held for less than was asked.
                    let now = now.max(clock.now());
                    self.admit(now, elsewhere, pipeline);
                }
                came
            }
        }
    }

    fn admit(&mut self, now: Time, elsewhere: u64, pipeline: &mut Pipeline<Mbuf>) {
        let room = self.limit.saturating_sub(pipeline.held() + elsewhere);
        for (i, frame) in self.received.drain().enumerate() {
            if i as u64 >= room {
                pipeline.refuse(frame.length(), DropReason::Pool);
            } else if frame.len() > self.longest {
                pipeline.refuse(frame.length(), DropReason::TooLong);
            } else {
                pipeline.push(now, now, frame);
            }
        }
        self.depth = self.depth.max(pipeline.held() + elsewhere);
    }
}
