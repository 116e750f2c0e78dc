//! Filler pacing in real time: the queue of the port never drains, so the lengths of the frames in it
//! set when each of them starts (LightShaper §2.3).
//!
//! The clock of such a pipeline is the *head*: the place on the line up to which frames were handed
//! over. What arrives is ready at the head, so nothing is asked of the line that has gone already.

use crate::back::{Back, with_back};
use crate::fillers::Fillers;
use crate::fresh::Fresh;
use crate::line::{NearEnd, Planned};
use crate::queue::Queue;
use crate::rounds::Rounds;
use dpdk::{BURST, Kept, Mbuf, Outgoing, TscClock, TxQueue};
use engine::filler::{FillerPlanner, MANY_FROM, longest_in_a_row, next_filler};
use engine::{Departure, Pipeline};
use measure::{DepartureMeter, DropReason, PaceReport, PipelineReport, SentStreams, Tally};
use packet::{Frame, Stamp};
use std::collections::VecDeque;
use units::{FrameLen, PS_PER_NS, Span, Time, WireLen};

/// Slots of the transmit queue that a NIC is asked for.
pub(crate) const NIC_SLOTS: u32 = 4_096;

/// Byte times to the next departure from which on one more filler of any length fits in before it.
const NEAR: u64 = 2 * WireLen::MAX_STANDARD.bytes() as u64;

/// A frame that is made before the line begins takes no longer than this, with room to spare.
const MAKING: Span = Span::from_ns(200);

/// Makes the frames of a line, data and fillers, in the order of their places on it.
pub(crate) struct FillerPacer {
    tx: TxQueue,
    planner: FillerPlanner,
    queue: Queue,
    /// There is a line that takes its time. Without, nothing holds the pacer back but its own speed.
    bounded: bool,
    fillers: Fillers,
    /// The next data frame, where a burst was full before it.
    pending: Option<Placed>,
    /// The first frame that may depart no more, and when it would have: `MAX` if its schedule has ended.
    never: Option<(Time, Mbuf)>,
    /// From this time of the line on there are no data, but fillers: the time of a run is the line's, where data are there
    /// whenever they are asked for, and not the clock's, which the queue is ahead of.
    ends: Time,
    fresh: Fresh,
    /// Frames that the port has not taken yet, and those behind them that were made before the line began.
    under_way: UnderWay,
    ahead: VecDeque<UnderWay>,
    /// The queue takes no more.
    full: bool,
    /// The line tells where data frames were. Of other ports only the plan is known.
    line: Option<NearEnd>,
    filled: Tally,
    carried: u64,
    crowded: u64,
    underruns: u64,
    /// Frames are stamped: the UNIX time in ns at which the clock began.
    stamps: Option<u64>,
    sent: SentStreams,
}

/// A data frame and its place.
struct Placed {
    frame: Mbuf,
    length: FrameLen,
    class: u32,
    /// When it was asked to depart.
    at: Time,
    position: u64,
    /// Byte times that are still to be filled before it.
    fill: u64,
}

/// A data frame on its way to the port, by its number in the burst.
struct Data {
    number: u16,
    /// The stream that its stamp names.
    stream: Option<u16>,
    length: FrameLen,
    class: u32,
    at: Time,
    position: u64,
}

/// A burst, and what its frames are, in their order: each starts where the one before ends.
struct UnderWay {
    out: Outgoing,
    /// Byte times of each.
    lengths: [u32; BURST],
    /// Those before it were taken.
    first: usize,
    /// Where the first that was not taken starts.
    position: u64,
    data: Vec<Data>,
    /// Data frames before it were taken.
    first_data: usize,
}

impl Default for UnderWay {
    fn default() -> Self {
        UnderWay {
            out: Outgoing::new(),
            lengths: [0; BURST],
            first: 0,
            position: 0,
            data: Vec::with_capacity(BURST),
            first_data: 0,
        }
    }
}

impl UnderWay {
    /// Adds a frame that is given away.
    #[inline]
    fn add(&mut self, position: u64, length: WireLen, frame: Mbuf) {
        self.describe(position, length, 1);
        self.out.push(frame);
    }

    /// Adds a frame that is sent again later, so many times in a row. Gives the byte times that it takes.
    #[inline]
    fn add_kept(&mut self, position: u64, length: WireLen, frame: &Kept, times: usize) -> u64 {
        self.describe(position, length, times);
        self.out.push_kept(frame, times);
        times as u64 * u64::from(length.bytes())
    }

    /// What the next `times` frames are.
    #[inline]
    fn describe(&mut self, position: u64, length: WireLen, times: usize) {
        let number = self.number();
        if number == 0 {
            self.position = position;
        }
        self.lengths[number..number + times].fill(length.bytes());
    }

    /// The number of the next frame in the burst.
    #[inline]
    fn number(&self) -> usize {
        BURST - self.out.room()
    }

    /// Hands over what was not taken yet, and gives how many frames the port has taken now.
    fn hand_over(&mut self, tx: &mut TxQueue, queue: &mut Queue, clock: &TscClock) -> usize {
        let taken = tx.send_out(&mut self.out);
        // After the fact: a line that began cannot have begun later than this.
        queue.took(self.position, &self.lengths[self.first..self.first + taken], clock.now());
        taken
    }

    /// Data frames that were not taken.
    fn rest(&self) -> usize {
        self.data.len() - self.first_data
    }

    /// All that was not taken starts later.
    fn slip(&mut self, bytes: u64) {
        self.position += bytes;
        for data in &mut self.data[self.first_data..] {
            data.position += bytes;
        }
    }

    /// Makes place once all were taken.
    fn clear(&mut self) {
        self.data.clear();
        (self.first, self.first_data) = (0, 0);
    }
}

#[inline]
fn record(meter: &mut DepartureMeter, frame: &Planned, start: Time) {
    meter.record_of(frame.class, frame.at, start, frame.length);
}

/// How a line is filled.
pub(crate) struct Settings {
    pub(crate) planner: FillerPlanner,
    pub(crate) slots: usize,
    pub(crate) bounded: bool,
    pub(crate) line: Option<NearEnd>,
}

impl FillerPacer {
    /// A pacer for a queue.
    pub(crate) fn new(tx: TxQueue, fillers: Fillers, settings: Settings) -> Self {
        let Settings { planner, slots, bounded, line } = settings;
        let queue = Queue::new(*planner.line(), slots, fillers.longest());
        FillerPacer {
            tx,
            planner,
            queue,
            bounded,
            fillers,
            pending: None,
            never: None,
            ends: Time::MAX,
            fresh: Fresh::default(),
            under_way: UnderWay::default(),
            ahead: VecDeque::new(),
            full: false,
            line,
            filled: Tally::default(),
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
    pub(crate) fn run(self, rounds: Rounds<'_>, back: Option<Back>) -> PipelineReport {
        // Chosen once: what nothing can hold back needs no queue.
        if rounds.intake.makes() && rounds.pipeline.is_immediate() {
            self.run_as::<true>(rounds, back)
        } else {
            self.run_as::<false>(rounds, back)
        }
    }

    /// `DIRECT`: frames are made when the line has place for them, and go straight to the schedule.
    fn run_as<const DIRECT: bool>(mut self, mut rounds: Rounds<'_>, mut back: Option<Back>) -> PipelineReport {
        // The rings of a port are looked at without a pause.
        let naps = !rounds.intake.is_port();
        if self.bounded && rounds.intake.is_stream() {
            self.begin::<DIRECT>(&mut rounds);
        }
        while let Some(now) = rounds.next() {
            if rounds.intake.is_stream() && self.has_ended::<DIRECT>(&mut rounds) {
                break;
            }
            self.take_in::<DIRECT>(now, &mut rounds);
            if let Some(back) = &mut back {
                back.carry(now, BURST);
                let head = self.head(now);
                back.exchange(rounds.clock.now(), head, &mut rounds.pipeline);
            }
            self.fill::<DIRECT>(now, &mut rounds);
            if naps && self.full {
                std::thread::sleep(self.queue.nap(rounds.clock.now()));
            }
        }
        // What is in the queue still leaves it.
        let line = *self.planner.line();
        if let Some(near) = &mut self.line {
            near.hear_the_last(|frame, position| record(&mut rounds.meter, frame, line.time(position)));
        }
        let pace = self.pace(rounds.clock.now());
        let report = PipelineReport {
            fillers: Some(self.filled),
            pace,
            underruns: Some(self.underruns),
            carried: Some(self.carried),
            crowded: Some(self.crowded),
            streams: self.sent.report(),
            ..rounds.report(self.holds())
        };
        with_back(report, back.as_ref())
    }

    /// Makes what the queue has place for before any of it is handed over, so that the line begins with a full queue:
    /// it takes its time from its first frame on, and the first ones are made slowest, in memory and by code
    /// that no cache holds. The line begins when all this should be done.
    fn begin<const DIRECT: bool>(&mut self, rounds: &mut Rounds<'_>) {
        let bursts = self.queue.slots() / BURST;
        let start = (rounds.clock.now() + MAKING * self.queue.slots() as u64).min(rounds.end);
        // The first frame starts at a byte time, which may be the one before: so the time of a run begins there.
        rounds.begins(self.head(start));
        self.ends = rounds.end;
        while self.ahead.len() < bursts && !self.has_all::<DIRECT>(rounds) {
            self.take_in::<DIRECT>(start, rounds);
            // What is read, or made by another thread, may not have come yet.
            if !DIRECT && rounds.pipeline.due().is_none() {
                if rounds.clock.now() >= start {
                    break;
                }
                continue;
            }
            self.fillers.turn();
            self.compose::<DIRECT>(rounds);
            if self.under_way.out.is_empty() {
                break;
            }
            self.ahead.push_back(std::mem::take(&mut self.under_way));
        }
        rounds.clock.spin_until(start);
        let mut handed = Vec::with_capacity(self.ahead.len());
        for made in &mut self.ahead {
            handed.push(made.hand_over(&mut self.tx, &mut self.queue, &rounds.clock));
            if !made.out.is_empty() {
                break;
            }
        }
        // Booked behind the last one: that takes long, too, when it is done for the first time.
        for taken in handed {
            self.under_way = self.ahead.pop_front().expect("it was handed over");
            self.book::<DIRECT>(taken, rounds);
        }
    }

    /// Lets come in what is ready by the head of the line.
    fn take_in<const DIRECT: bool>(&mut self, now: Time, rounds: &mut Rounds<'_>) {
        let head = self.head(now);
        if DIRECT {
            self.fresh.begin(head);
        } else {
            rounds.wake(head);
            rounds.intake.take(head, BURST, self.holds(), &mut rounds.pipeline);
        }
    }

    /// Nothing is to be sent any more, or nothing may.
    fn has_ended<const DIRECT: bool>(&self, rounds: &mut Rounds<'_>) -> bool {
        self.under_way.out.is_empty() && self.ahead.is_empty() && self.has_all::<DIRECT>(rounds)
    }

    /// Nothing is to be placed any more, or nothing may.
    fn has_all<const DIRECT: bool>(&self, rounds: &mut Rounds<'_>) -> bool {
        let never = self.never.as_ref().is_some_and(|(at, _)| *at == Time::MAX);
        let over = never || !DIRECT && rounds.pipeline.ended();
        let mut all = || {
            let done = self.fresh.is_empty() && (DIRECT || rounds.pipeline.due().is_none());
            done && rounds.intake.ended() && rounds.pipeline.deadline().is_none()
        };
        self.pending.is_none() && (over || all())
    }

    /// Time for the pipeline: where the line is filled up to, or before the first frame the clock, at a byte time where
    /// a frame may start. So the first one starts when it is asked to, as on the model line.
    fn head(&self, now: Time) -> Time {
        if self.planner.begun() { self.planner.free() } else { self.planner.first_start(now) }
    }

    /// How the port's pace differs from the line's, where it can be seen to. Of a line its far end knows more.
    fn pace(&mut self, now: Time) -> Option<PaceReport> {
        if !self.bounded || self.line.is_some() {
            return None;
        }
        self.queue.judge(now);
        let (wire, elapsed) = self.queue.pace(now)?;
        Some(PaceReport { wire_ns: wire.as_ns_f64(), elapsed_ns: elapsed.as_ns_f64() })
    }

    /// Frames that are out of the pipeline and have not left.
    fn holds(&self) -> u64 {
        let data: usize = self.ahead.iter().chain([&self.under_way]).map(UnderWay::rest).sum();
        data as u64 + u64::from(self.pending.is_some()) + u64::from(self.never.is_some())
    }

    /// Hands a burst of frames over, as far as the port takes them.
    fn fill<const DIRECT: bool>(&mut self, now: Time, rounds: &mut Rounds<'_>) {
        self.full = false;
        // What was composed before keeps its place on the line.
        self.tx.follow_link();
        if self.bounded {
            self.look_for_underrun(now);
            if self.under_way.out.is_empty() && self.queue.is_ahead(now) {
                self.full = true;
                return;
            }
        }
        if self.under_way.out.is_empty() {
            if let Some(made) = self.ahead.pop_front() {
                self.under_way = made;
            } else {
                self.under_way.clear();
                self.fillers.turn();
                self.hear(&mut rounds.meter);
                self.compose::<DIRECT>(rounds);
            }
            if self.under_way.out.is_empty() {
                return;
            }
        }
        let taken = if self.bounded {
            let taken = self.under_way.hand_over(&mut self.tx, &mut self.queue, &rounds.clock);
            if !self.under_way.out.is_empty() {
                self.full = true;
                self.queue.is_full(rounds.clock.now());
            }
            taken
        } else {
            self.tx.send_out(&mut self.under_way.out)
        };
        self.book::<DIRECT>(taken, rounds);
    }

    /// Books the departures that the line has told of.
    fn hear(&mut self, meter: &mut DepartureMeter) {
        let line = self.planner.line();
        if let Some(near) = &mut self.line {
            near.hear(|frame, position| record(meter, frame, line.time(position)));
        }
    }

    /// Books the first `taken` frames of those under way.
    fn book<const DIRECT: bool>(&mut self, taken: usize, rounds: &mut Rounds<'_>) {
        let under_way = &mut self.under_way;
        let first = under_way.first;
        let bytes: u64 = under_way.lengths[first..first + taken].iter().map(|length| u64::from(*length)).sum();
        under_way.first += taken;
        under_way.position += bytes;
        let line = self.planner.line();
        let mut left = Tally::default();
        while let Some(data) = under_way.data.get(under_way.first_data)
            && usize::from(data.number) < under_way.first
        {
            under_way.first_data += 1;
            if let Some(stream) = data.stream {
                self.sent.add(stream);
            }
            left.add(data.length);
            if !DIRECT {
                rounds.pipeline.sent(data.class, data.length);
            }
            // The line tells itself where it was.
            if self.line.is_none() {
                rounds.meter.record_of(data.class, data.at, line.time(data.position), data.length);
            }
        }
        if DIRECT {
            rounds.pipeline.passed_on(left);
        }
        let frames = taken as u64 - left.frames;
        let overhead = taken as u64 * u64::from(WireLen::OVERHEAD);
        self.filled.add_all(Tally { frames, bytes: bytes - overhead - left.bytes });
    }

    /// The next frames of the line, up to a burst of them.
    fn compose<const DIRECT: bool>(&mut self, rounds: &mut Rounds<'_>) {
        if let Some(placed) = self.pending.take() {
            self.push(placed);
        }
        let mut came = Tally::default();
        while self.under_way.out.room() > 0 {
            let placed =
                if DIRECT { self.settle_made(rounds, &mut came) } else { self.settle_queued(&mut rounds.pipeline) };
            let Some(placed) = placed else {
                if self.under_way.out.is_empty() && self.planner.begun() {
                    let pipeline = &mut rounds.pipeline;
                    let wakes = pipeline.due().into_iter().chain(pipeline.deadline()).min();
                    self.idle(wakes.filter(|_| self.never.is_none()));
                }
                break;
            };
            self.push(placed);
        }
        if DIRECT {
            rounds.pipeline.passed_in(came);
        }
    }

    /// Adds a data frame and the fillers before it to the burst, as far as there is room.
    // Inlined, as all on its way is: a frame that goes through memory here takes half as long again.
    #[inline(always)]
    fn push(&mut self, mut placed: Placed) {
        while self.under_way.out.room() > 0 {
            if placed.fill == 0 {
                return self.push_data(placed);
            }
            let start = placed.position - placed.fill;
            placed.fill -= if placed.fill >= MANY_FROM {
                self.push_many(start, placed.fill)
            } else {
                let length = next_filler(placed.fill);
                self.push_filler(start, length, 1)
            };
        }
        self.pending = Some(placed);
    }

    #[inline(always)]
    fn push_data(&mut self, placed: Placed) {
        let Placed { mut frame, length, class, at, position, .. } = placed;
        let stream = self.stamps.and_then(|wall| self.stamp(&mut frame, wall, position));
        let number = self.under_way.number() as u16;
        self.under_way.data.push(Data { number, stream, length, class, at, position });
        if let Some(line) = &mut self.line {
            line.plan(Planned { at, class, length, position });
        }
        self.under_way.add(position, length.on_wire(), frame);
    }

    /// Writes into a frame when it starts, if it is one that says so, and gives its stream.
    #[inline(never)]
    fn stamp(&self, frame: &mut Mbuf, wall: u64, position: u64) -> Option<u16> {
        let (stamp, end) = Stamp::find(frame.bytes())?;
        let time_ns = wall + self.planner.line().time(position).as_ps() / PS_PER_NS;
        Stamp { time_ns, ..stamp }.write(&mut frame.bytes_mut()[..end]);
        Some(stamp.stream)
    }

    /// Gives the next frame that is made its place.
    #[inline(always)]
    fn settle_made(&mut self, rounds: &mut Rounds<'_>, came: &mut Tally) -> Option<Placed> {
        if self.never.is_some() {
            return None;
        }
        let (departure, position) = self.fresh.next((&self.tx, &self.planner), rounds)?;
        came.add(departure.length);
        if departure.at >= self.ends {
            self.never = Some((departure.at, departure.frame));
            return None;
        }
        Some(self.place(departure, position))
    }

    /// Gives the next departure its place. None if there is none, or if it is so far ahead that a frame of
    /// another class may still come before it.
    fn settle_queued(&mut self, pipeline: &mut Pipeline<Mbuf>) -> Option<Placed> {
        if self.planner.begun()
            && let Some(due) = pipeline.due()
            && !pipeline.is_settled()
            && self.planner.line().position(due) >= self.planner.line().position(self.planner.free()) + NEAR
        {
            return None;
        }
        while self.never.is_none()
            && let Some(departure) = pipeline.next_departure()
        {
            if departure.at >= self.ends {
                self.never = Some((departure.at, departure.frame));
                break;
            }
            if !self.tx.carries(&departure.frame) {
                pipeline.unfollow(departure.class, &departure.frame);
                pipeline.lost(departure.class, departure.source, DropReason::TooLong);
                continue;
            }
            let (tag, source, held) = (departure.tag, departure.source, departure.held);
            let position = self.planner.nearest_start(departure.at);
            let placed = self.place(departure, position);
            let start = self.planner.line().time(placed.position);
            pipeline.departed(placed.class, source, placed.length, held, (placed.at, start));
            if tag != 0 {
                // Its place on the line is settled, and when it is handed over changes nothing about it.
                pipeline.sliced(placed.class, tag, placed.at, start);
            }
            return Some(placed);
        }
        None
    }

    /// Gives a departure its place on the line, at this byte time if it can be had.
    #[inline(always)]
    fn place(&mut self, departure: Departure<Mbuf>, wanted: u64) -> Placed {
        let Departure { frame, length, class, ready, at, .. } = departure;
        let slot = self.planner.place_at(wanted, ready, length.on_wire());
        self.carried += u64::from(slot.carried);
        self.crowded += u64::from(slot.crowded);
        Placed { frame, length, class, at, position: slot.position, fill: slot.fill }
    }

    /// One filler while nothing is due: the longest, but no further than to where a stage wakes.
    fn idle(&mut self, wakes: Option<Time>) {
        let line = *self.planner.line();
        let free = self.planner.free();
        let left = wakes.map_or(u64::MAX, |at| line.position(at.max(free)) - line.position(free));
        let (least, most) = (u64::from(WireLen::MIN.bytes()), u64::from(WireLen::MAX_STANDARD.bytes()));
        let length = WireLen::new(left.clamp(least, most) as u32);
        let position = self.planner.idle_frame(length);
        self.push_filler(position, length, 1);
    }

    /// Adds a filler, so many times. Gives the byte times that it takes.
    #[inline]
    fn push_filler(&mut self, position: u64, length: WireLen, times: usize) -> u64 {
        self.under_way.add_kept(position, length, self.fillers.of(length), times)
    }

    /// Adds fillers before a departure that is far. Gives the byte times that they take.
    // Apart: what there are few of is not to cost those of which there are many.
    #[inline(never)]
    fn push_many(&mut self, position: u64, fill: u64) -> u64 {
        if let Some((length, filler)) = self.fillers.long(fill) {
            return self.under_way.add_kept(position, length, filler, 1);
        }
        let room = self.under_way.out.room();
        self.push_filler(position, WireLen::MAX_STANDARD, longest_in_a_row(fill).min(room as u64) as usize)
    }

    /// The line idled if it has gone further than was handed over: what comes next comes later by that.
    fn look_for_underrun(&mut self, now: Time) {
        let idled = self.queue.idled(now);
        if idled == 0 {
            return;
        }
        self.underruns += 1;
        self.planner.slip(idled);
        self.under_way.slip(idled);
        self.ahead.iter_mut().for_each(|made| made.slip(idled));
        if let Some(placed) = &mut self.pending {
            placed.position += idled;
        }
    }
}
