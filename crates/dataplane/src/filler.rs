//! Filler pacing in real time: the queue of the port never drains, so the lengths of the frames in it
//! set when each of them starts (LightShaper §2.3).
//!
//! The clock of such a pipeline is the *head*: the place on the line up to which frames were handed
//! over. What arrives is ready at the head, so nothing is asked of the line that has gone already.

use crate::back::{Back, with_back};
use crate::rounds::Rounds;
use dpdk::{BURST, Burst, Mbuf, Pool, TxQueue};
use engine::filler::{FillerPlanner, next_filler};
use engine::{Departure, Line, Pipeline};
use measure::{DropReason, PipelineReport, SentStreams, Tally};
use packet::{FillerKind, Frame, Stamp};
use std::time::Duration;
use units::{FrameLen, PS_PER_NS, Span, Time, WireLen};

/// Slots of the transmit queue that a NIC is asked for.
pub(crate) const NIC_SLOTS: u32 = 4_096;

/// Byte times to the next departure from which on one more filler of any length fits in before it.
const NEAR: u64 = 2 * WireLen::MAX_STANDARD.bytes() as u64;

/// A queue that holds more than this lets its pacer sleep, for an eighth of what it holds but no longer
/// than `NAP`. A thread that always runs is interrupted, for a tick of the kernel's clock (1 to 10 ms) or
/// two, when its turn is over; one that sleeps by itself has turns left.
const NAP_ABOVE: Span = Span::from_ms(2);
const NAP: Span = Span::from_us(300);

/// Places on a line, told to whoever wants to compare them.
pub(crate) type Told = rtrb::Producer<u64>;

/// Makes the frames of a line, data and fillers, in the order of their places on it.
pub(crate) struct FillerPacer {
    tx: TxQueue,
    planner: FillerPlanner,
    queue: Queue,
    /// There is a line that takes its time. Without, nothing holds the pacer back but its own speed.
    bounded: bool,
    /// Buffers that hold a longest filler each: a filler is a buffer with a length.
    pool: Pool,
    spare: Burst,
    /// The next data frame and what is still to be filled before it.
    pending: Option<Placed>,
    fill: u64,
    /// The first frame that a schedule which has ended lets depart no more.
    never: Option<Departure<Mbuf>>,
    /// Frames that the port has not taken yet, and what they are.
    burst: Burst,
    in_burst: InBurst,
    /// The queue takes no more.
    full: bool,
    told: Option<Told>,
    fillers: Tally,
    carried: u64,
    crowded: u64,
    underruns: u64,
    /// Frames are stamped: the UNIX time in ns at which the clock began.
    stamps: Option<u64>,
    sent: SentStreams,
}

struct Placed {
    departure: Departure<Mbuf>,
    position: u64,
}

/// A frame on its way to the port.
struct Entry {
    position: u64,
    length: WireLen,
    /// When a data frame was asked to depart, and its class; none for a filler.
    ask: Option<(Time, u32)>,
}

/// What the frames of the burst are, in their order.
#[derive(Default)]
struct InBurst {
    entries: Vec<Entry>,
    /// Those before it were taken.
    first: usize,
}

impl InBurst {
    /// The first `count`, which are taken.
    fn take(&mut self, count: usize) -> &[Entry] {
        let first = self.first;
        self.first += count;
        &self.entries[first..self.first]
    }

    /// Those that were not taken.
    fn rest(&mut self) -> &mut [Entry] {
        &mut self.entries[self.first..]
    }

    /// Makes place once all were taken.
    fn clear(&mut self) {
        self.entries.clear();
        self.first = 0;
    }
}

/// How a line is filled.
pub(crate) struct Settings {
    pub(crate) planner: FillerPlanner,
    pub(crate) slots: usize,
    pub(crate) bounded: bool,
    pub(crate) told: Option<Told>,
}

impl FillerPacer {
    /// A pacer for a queue, with fillers out of `pool`, whose buffers were made by [`stock`].
    pub(crate) fn new(tx: TxQueue, pool: Pool, settings: Settings) -> Self {
        let Settings { planner, slots, bounded, told } = settings;
        let queue = Queue::new(*planner.line(), slots);
        FillerPacer {
            tx,
            planner,
            queue,
            bounded,
            pool,
            spare: Burst::new(),
            pending: None,
            fill: 0,
            never: None,
            burst: Burst::new(),
            in_burst: InBurst::default(),
            full: false,
            told,
            fillers: Tally::default(),
            carried: 0,
            crowded: 0,
            underruns: 0,
            stamps: None,
            sent: SentStreams::default(),
        }
    }

    /// Writes into each frame when it departs, by the wall clock, if frames are stamped.
    pub(crate) fn stamping(self, wall_at_zero: Option<u64>) -> Self {
        FillerPacer { stamps: wall_at_zero, ..self }
    }

    /// Runs to the end and reports.
    pub(crate) fn run(mut self, mut rounds: Rounds<'_>, mut back: Option<Back>) -> PipelineReport {
        // The rings of a port are looked at without a pause.
        let naps = !rounds.intake.is_port();
        while let Some(now) = rounds.next() {
            let head = self.head(now);
            rounds.wake(head);
            rounds.intake.take(head, BURST, self.holds(), &mut rounds.pipeline);
            if let Some(back) = &mut back {
                back.carry(now, BURST);
                back.exchange(rounds.clock.now(), head, &mut rounds.pipeline);
            }
            self.fill(now, &mut rounds);
            let done = rounds.pipeline.due().is_none() && rounds.pipeline.deadline().is_none();
            let sent = rounds.intake.ended() && done && self.never.is_none();
            let never = rounds.intake.is_stream() && self.never.is_some();
            if (sent || never) && self.is_empty() {
                break;
            }
            if naps && self.full {
                std::thread::sleep(self.queue.nap(rounds.clock.now()));
            }
        }
        let report = PipelineReport {
            fillers: Some(self.fillers),
            underruns: Some(self.underruns),
            carried: Some(self.carried),
            crowded: Some(self.crowded),
            streams: self.sent.report(),
            ..rounds.report(self.holds())
        };
        with_back(report, back.as_ref())
    }

    /// Time for the pipeline: where the line is filled up to, or the clock before the first frame.
    fn head(&self, now: Time) -> Time {
        let line = self.planner.line();
        if self.planner.begun() { self.planner.free() } else { line.time(line.position(now)) }
    }

    /// Frames that are out of the pipeline and have not left.
    fn holds(&mut self) -> u64 {
        let data = self.in_burst.rest().iter().filter(|entry| entry.ask.is_some()).count();
        data as u64 + u64::from(self.pending.is_some()) + u64::from(self.never.is_some())
    }

    /// Hands a burst of frames over, as far as the port takes them.
    fn fill(&mut self, now: Time, rounds: &mut Rounds<'_>) {
        self.full = false;
        if self.bounded {
            self.look_for_underrun(now);
            if self.burst.is_empty() && self.queue.is_ahead(now) {
                self.full = true;
                return;
            }
        }
        if self.burst.is_empty() {
            self.in_burst.clear();
            self.compose(&mut rounds.pipeline);
        }
        if self.burst.is_empty() {
            return;
        }
        let taken = self.tx.send(&mut self.burst);
        // After the fact: a line that began cannot have begun later than this.
        let now = rounds.clock.now();
        let line = *self.planner.line();
        for entry in self.in_burst.take(taken) {
            self.queue.took(entry, now);
            let length = entry.length.frame();
            let Some((ask, class)) = entry.ask else {
                self.fillers.add(length);
                continue;
            };
            rounds.pipeline.sent(class, length);
            rounds.meter.record_of(class, ask, line.time(entry.position), length);
        }
        if !self.burst.is_empty() {
            self.full = self.bounded;
            self.queue.is_full(now);
        }
    }

    /// Whether every data frame has left.
    fn is_empty(&self) -> bool {
        self.pending.is_none() && self.burst.is_empty()
    }

    /// The next frames of the line, up to a burst of them.
    fn compose(&mut self, pipeline: &mut Pipeline<Mbuf>) {
        while self.burst.room() > 0 {
            if self.fill > 0 {
                let Some(blank) = self.blank() else { return };
                let length = next_filler(self.fill);
                let end = self.pending.as_ref().map_or(0, |placed| placed.position);
                self.push_filler(blank, end - self.fill, length);
                self.fill -= u64::from(length.bytes());
            } else if let Some(Placed { departure, position }) = self.pending.take() {
                let Departure { mut frame, length, class, at, .. } = departure;
                if let Some(wall) = self.stamps
                    && let Some(stamp) = Stamp::of(frame.bytes())
                {
                    let start = self.planner.line().time(position);
                    Stamp::set_time(frame.bytes_mut(), wall + start.as_ps() / PS_PER_NS);
                    self.sent.add(stamp.stream);
                }
                self.in_burst.entries.push(Entry { position, length: length.on_wire(), ask: Some((at, class)) });
                if let Some(told) = &mut self.told {
                    // Before the frame can be seen. There is room for all that are under way.
                    told.push(position).expect("the line reads one for each data frame");
                }
                self.burst.push(frame).expect("there is room");
            } else if !self.settle(pipeline) {
                if self.burst.is_empty() && self.planner.begun() {
                    self.idle(pipeline.due().into_iter().chain(pipeline.deadline()).min());
                }
                return;
            }
        }
    }

    /// Gives the next departure its place. False if there is none, or if it is so far ahead that a frame
    /// of another class may still come before it.
    fn settle(&mut self, pipeline: &mut Pipeline<Mbuf>) -> bool {
        if self.planner.begun()
            && let Some(due) = pipeline.due()
            && !pipeline.is_settled()
            && self.planner.line().position(due) >= self.planner.line().position(self.planner.free()) + NEAR
        {
            return false;
        }
        while self.never.is_none()
            && let Some(departure) = pipeline.next_departure()
        {
            if pipeline.ended() {
                self.never = Some(departure);
                break;
            }
            if !self.tx.carries(&departure.frame) {
                pipeline.unfollow(departure.class, &departure.frame);
                pipeline.lost(departure.class, DropReason::TooLong);
                continue;
            }
            let slot = self.planner.place(departure.at, departure.ready, departure.length.on_wire());
            let start = self.planner.line().time(slot.position);
            pipeline.departed(departure.class, departure.length, departure.at, start);
            let tag = pipeline.tag_of(departure.class, &departure.frame);
            if tag != 0 {
                // Its place on the line is settled, and when it is handed over changes nothing about it.
                pipeline.sliced(departure.class, tag, departure.at, start);
            }
            self.carried += u64::from(slot.carried);
            self.crowded += u64::from(slot.crowded);
            self.fill = slot.fill;
            self.pending = Some(Placed { departure, position: slot.position });
            return true;
        }
        false
    }

    /// One filler while nothing is due: the longest, but no further than to where a stage wakes.
    fn idle(&mut self, wakes: Option<Time>) {
        let Some(blank) = self.blank() else { return };
        let line = *self.planner.line();
        let free = self.planner.free();
        let left = wakes.map_or(u64::MAX, |at| line.position(at.max(free)) - line.position(free));
        let (least, most) = (u64::from(WireLen::MIN.bytes()), u64::from(WireLen::MAX_STANDARD.bytes()));
        let length = WireLen::new(left.clamp(least, most) as u32);
        let position = self.planner.idle_frame(length);
        self.push_filler(blank, position, length);
    }

    fn blank(&mut self) -> Option<Mbuf> {
        if self.spare.is_empty() {
            self.pool.alloc_up_to(&mut self.spare, BURST / 2);
        }
        self.spare.pop_front()
    }

    fn push_filler(&mut self, mut blank: Mbuf, position: u64, length: WireLen) {
        blank.set_len(length.frame().without_fcs() as usize).expect("a blank holds the longest");
        self.in_burst.entries.push(Entry { position, length, ask: None });
        self.burst.push(blank).expect("there is room");
    }

    /// The line idled if it has gone further than was handed over: what comes next comes later by that.
    fn look_for_underrun(&mut self, now: Time) {
        let idled = self.queue.idled(now);
        if idled == 0 {
            return;
        }
        self.underruns += 1;
        self.planner.slip(idled);
        for entry in self.in_burst.rest() {
            entry.position += idled;
        }
        if let Some(placed) = &mut self.pending {
            placed.position += idled;
        }
    }
}

/// Makes every buffer of a pool a filler of the longest kind, so that only its length is ever set.
///
/// # Panics
/// If a buffer has no room for a standard frame.
pub(crate) fn stock(pool: &Pool, kind: FillerKind) {
    let mut bytes = Vec::new();
    kind.write(&mut bytes, FrameLen::MAX_STANDARD);
    let mut all = Vec::new();
    while let Some(mut frame) = pool.alloc() {
        frame.copy_from(&bytes).expect("a blank holds the longest");
        all.push(frame);
    }
}

/// What the port's queue holds, as far as that can be known from outside: from what it took, from the
/// clock, and from the moments at which it is full.
struct Queue {
    line: Line,
    /// Frames that it holds at most.
    slots: usize,
    /// Starts of the last frames that it took, at least `slots` of them, by their number modulo a power of two.
    starts: Vec<u64>,
    /// Frames that it took since it was empty.
    taken: u64,
    /// The end of the last frame that it took.
    taken_to: Option<u64>,
    /// How far the line's time is behind the clock, in ps.
    lag: i64,
}

impl Queue {
    /// When it is full, up to so many frames may have left that the port does not know of yet: NICs
    /// look at what they have sent by the 32, and fetch ahead.
    const UNKNOWN: u64 = 64 * WireLen::MAX_STANDARD.bytes() as u64;

    fn new(line: Line, slots: usize) -> Self {
        Queue { line, slots, starts: vec![0; slots.next_power_of_two()], taken: 0, taken_to: None, lag: 0 }
    }

    fn took(&mut self, entry: &Entry, now: Time) {
        if self.taken_to.is_none() {
            // An empty line starts it at once.
            self.lag = now.signed_ps_since(self.line.time(entry.position));
        }
        self.taken_to = Some(entry.position + u64::from(entry.length.bytes()));
        let place = self.place(self.taken);
        self.starts[place] = entry.position;
        self.taken += 1;
    }

    fn place(&self, frame: u64) -> usize {
        frame as usize & (self.starts.len() - 1)
    }

    /// Where the line is.
    fn reached(&self, now: Time) -> u64 {
        self.line.position(Time::from_ps(now.as_ps().saturating_add_signed(-self.lag)))
    }

    /// Byte times that the line has idled since it sent all that was taken.
    fn idled(&mut self, now: Time) -> u64 {
        let Some(taken_to) = self.taken_to else { return 0 };
        let reached = self.reached(now);
        if reached <= taken_to {
            return 0;
        }
        self.taken_to = Some(reached);
        self.taken = 0;
        reached - taken_to
    }

    /// It holds more than fits.
    fn is_ahead(&self, now: Time) -> bool {
        let most = self.slots as u64 * u64::from(WireLen::MAX_STANDARD.bytes());
        self.taken_to.is_some_and(|taken_to| taken_to >= self.reached(now) + most)
    }

    /// How long its pacer may sleep when it is full; nothing where it holds little.
    fn nap(&self, now: Time) -> Duration {
        let reached = self.line.time(self.reached(now));
        let holds = self.taken_to.map_or(Span::ZERO, |taken_to| self.line.time(taken_to).since(reached));
        let nap = if holds > NAP_ABOVE { Span::from_ps(holds.as_ps() / 8).min(NAP) } else { Span::ZERO };
        Duration::from_nanos(nap.as_ps() / PS_PER_NS)
    }

    /// It refused a frame, so it holds as many as it can: that tells where the line is, and how much
    /// faster or slower than this clock it goes.
    fn is_full(&mut self, now: Time) {
        if self.taken == 0 {
            return;
        }
        let oldest = self.taken.saturating_sub(self.slots as u64);
        let least = self.starts[self.place(oldest)];
        let reached = self.reached(now);
        let right = reached.clamp(least, least + Self::UNKNOWN);
        if right != reached {
            self.lag = now.signed_ps_since(self.line.time(right));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{BitRate, Span};

    const LINE: BitRate = BitRate::from_gbps(10);

    fn entry(position: u64, bytes: u32) -> Entry {
        Entry { position, length: WireLen::new(bytes), ask: None }
    }

    /// A queue of 4 slots that took frames of 1000 byte times back to back from 5 µs on.
    fn queue(frames: u64) -> (Queue, Time) {
        let mut queue = Queue::new(Line::new(LINE), 4);
        let start = Time::from_ps(5_000_000);
        for n in 0..frames {
            queue.took(&entry(n * 1_000, 1_000), start);
        }
        (queue, start)
    }

    #[test]
    fn a_line_that_has_sent_all_has_idled() {
        let (mut queue, start) = queue(4);
        assert_eq!(queue.idled(start + Span::from_ns(3_200)), 0, "just all");
        assert_eq!(queue.idled(start + Span::from_ns(3_280)), 100);
        assert_eq!(queue.idled(start + Span::from_ns(3_280)), 0, "counted once");
        assert_eq!(Queue::new(Line::new(LINE), 4).idled(start), 0, "nothing was to be sent");
    }

    #[test]
    fn a_full_queue_tells_where_the_line_is() {
        // By the clock 125 frames have gone, but the full queue holds four: the other 200 have.
        let (mut queue, start) = queue(204);
        let now = start + Span::from_us(100);
        queue.is_full(now);
        assert_eq!(queue.reached(now), 200_000, "it is not behind what has left the queue");
        queue.is_full(start + Span::from_us(500));
        assert_eq!(queue.reached(start + Span::from_us(500)), 200_000 + Queue::UNKNOWN);
    }

    #[test]
    fn only_a_queue_that_outlasts_a_tick_lets_its_pacer_sleep() {
        // 4 frames of 1000 byte times are 3.2 µs, 3000 are 2.4 ms.
        let (few, start) = queue(4);
        assert_eq!(few.nap(start), Duration::ZERO);
        let (many, start) = queue(3_000);
        assert_eq!(many.nap(start), Duration::from_micros(300));
        assert_eq!(many.nap(start + Span::from_us(399)), Duration::from_nanos(250_125));
        assert_eq!(many.nap(start + Span::from_us(400)), Duration::ZERO, "2 ms are left");
    }

    #[test]
    fn ports_that_refuse_nothing_are_bounded() {
        let (mut queue, start) = queue(4);
        assert!(!queue.is_ahead(start));
        queue.took(&entry(4_000, 1_538), start);
        queue.took(&entry(5_538, 1_538), start);
        assert!(queue.is_ahead(start) && !queue.is_ahead(start + Span::from_us(1)));
    }
}
