//! Filler pacing on live ports: the port's queue never drains, so the lengths of the frames in it set when each frame
//! starts (LightShaper §2.3).
//!
//! The clock of such a pipeline is the *head*: the position on the line up to which frames were handed over. Frames
//! that arrive are ready at the head, so no target is in the past of the line.

use crate::fillers::Fillers;
use crate::line::{NearEnd, Planned};
use crate::queue::Queue;
use crate::return_path::{ReturnPath, with_back};
use crate::rounds::Rounds;
use crate::stream_burst::StreamBurst;
use dpdk::{BURST, Mbuf, Outgoing, SharedFrame, TscClock, TxQueue};
use engine::filler::{FillerPlanner, MANY_FROM, longest_in_a_row, next_filler};
use engine::{Departure, Path, Pipeline, Placed};
use measure::{DropReason, PaceReport, PipelineReport, Tally};
use packet::{Frame, Stamp};
use std::collections::VecDeque;
use units::{FrameLen, PS_PER_NS, Span, Time, WireLen};

/// Transmit queue slots requested from a NIC.
pub(crate) const NIC_SLOTS: u32 = 4_096;

/// From this distance in byte times to the next departure, one more filler of any length fits before it.
const NEAR: u64 = 2 * WireLen::MAX_STANDARD.bytes() as u64;

/// Upper bound on the time to prepare a frame before the line starts.
const MAKING: Span = Span::from_ns(200);

/// Produces the frames of a line, data and fillers, in order of their positions.
pub(crate) struct FillerPacer {
    tx: TxQueue,
    planner: FillerPlanner,
    queue: Queue,
    /// Whether a line limits the pacer; otherwise only its own speed does.
    bounded: bool,
    fillers: Fillers,
    /// The next data frame, if it did not fit in the last burst.
    pending: Option<OnPlan>,
    /// The first frame that will not depart, and its departure: `MAX` if its schedule has ended.
    never: Option<Never>,
    /// End of data on the line; fillers follow. For data available on demand, a run is timed by the line and not by the
    /// clock, because the queue is ahead of the clock.
    ends: Time,
    fresh: StreamBurst,
    /// Frames that the port has not taken yet, and later bursts that were prepared before the line started.
    under_way: PartialBurst,
    ahead: VecDeque<PartialBurst>,
    /// The queue takes no more frames.
    full: bool,
    /// A line that reports where data frames were. For other ports only the plan is known.
    line: Option<NearEnd>,
    filled: Tally,
    carried: u64,
    crowded: u64,
    underruns: u64,
    /// Stamps frames; the UNIX time in ns at which the clock started.
    stamps: Option<u64>,
}

/// A data frame and its position.
struct OnPlan {
    frame: Mbuf,
    placed: Placed,
    position: u64,
    /// Byte times still to fill before it.
    fill: u64,
}

/// A frame that will not depart, and its target. Its departure is held.
struct Never {
    at: Time,
    _frame: Mbuf,
}

/// A data frame in a burst, by its number there.
struct Data {
    number: u16,
    length: FrameLen,
    /// Its departure, unless a line reports that.
    placed: Option<Placed>,
    position: u64,
}

/// A burst with its frames in order: each starts where the one before ends.
struct PartialBurst {
    out: Outgoing,
    /// Length of each frame in byte times.
    lengths: [u32; BURST],
    /// Frames before this one were taken.
    first: usize,
    /// Start of the first frame that was not taken.
    position: u64,
    data: Vec<Data>,
    /// Data frames before this one were taken.
    first_data: usize,
}

impl Default for PartialBurst {
    fn default() -> Self {
        PartialBurst {
            out: Outgoing::new(),
            lengths: [0; BURST],
            first: 0,
            position: 0,
            data: Vec::with_capacity(BURST),
            first_data: 0,
        }
    }
}

impl PartialBurst {
    /// Adds a frame and gives up its ownership.
    #[inline]
    fn add(&mut self, position: u64, length: WireLen, frame: Mbuf) {
        self.describe(position, length, 1);
        self.out.push(frame);
    }

    /// Adds a retained frame `times` times in a row. Returns its byte times.
    #[inline]
    fn add_kept(&mut self, position: u64, length: WireLen, frame: &SharedFrame, times: usize) -> u64 {
        self.describe(position, length, times);
        self.out.push_kept(frame, times);
        times as u64 * u64::from(length.bytes())
    }

    /// Records the length of the next `times` frames.
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

    /// Hands over the remaining frames. Returns how many the port took.
    fn hand_over(&mut self, tx: &mut TxQueue, queue: &mut Queue, clock: &TscClock) -> usize {
        let taken = tx.send_out(&mut self.out);
        // After the call, because the line cannot have started later than this.
        queue.took(self.position, &self.lengths[self.first..self.first + taken], clock.now());
        taken
    }

    /// Number of data frames that were not taken.
    fn rest(&self) -> usize {
        self.data.len() - self.first_data
    }

    /// Moves all frames that were not taken to later positions.
    fn slip(&mut self, bytes: u64) {
        self.position += bytes;
        for data in &mut self.data[self.first_data..] {
            data.position += bytes;
        }
    }

    /// Resets the burst once all frames were taken.
    fn clear(&mut self) {
        self.data.clear();
        (self.first, self.first_data) = (0, 0);
    }
}

/// How to fill a line.
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
            fresh: StreamBurst::default(),
            under_way: PartialBurst::default(),
            ahead: VecDeque::new(),
            full: false,
            line,
            filled: Tally::default(),
            carried: 0,
            crowded: 0,
            underruns: 0,
            stamps: None,
        }
    }

    /// Writes the wall-clock departure time into each frame, if frames are stamped.
    pub(crate) fn stamping(self, wall_at_zero: Option<u64>) -> Self {
        FillerPacer { stamps: wall_at_zero, ..self }
    }

    /// Runs to the end and returns the report.
    pub(crate) fn run(self, rounds: Rounds<'_>, back: Option<ReturnPath>) -> PipelineReport {
        // Choose the path once. Frames that nothing can hold back need no queue.
        let pipeline = &rounds.pipeline;
        let direct = pipeline.path() >= Path::Scheduled && !pipeline.is_slicing() && pipeline.forgiven().is_none();
        if rounds.intake.makes() && direct {
            self.run_as::<true>(rounds, back)
        } else {
            self.run_as::<false>(rounds, back)
        }
    }

    /// With `DIRECT`, frames are generated when the line has room for them, and go straight to the schedule.
    fn run_as<const DIRECT: bool>(mut self, mut rounds: Rounds<'_>, mut back: Option<ReturnPath>) -> PipelineReport {
        // The rings of a port are polled without pause.
        let naps = !rounds.intake.is_port();
        if self.bounded && rounds.intake.is_stream() {
            self.begin::<DIRECT>(&mut rounds);
        }
        while let Some(now) = rounds.next() {
            rounds.change(self.head(now));
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
        // Frames in the queue still leave.
        let line = *self.planner.line();
        if let Some(near) = &mut self.line {
            near.hear_the_last(|placed, position| placed.complete(&mut rounds.pipeline, line.time(position)));
        }
        let pace = self.pace(rounds.clock.now());
        self.hold_rest();
        let report = PipelineReport {
            fillers: Some(self.filled),
            pace,
            underruns: Some(self.underruns),
            carried: Some(self.carried),
            crowded: Some(self.crowded),
            ..rounds.report()
        };
        with_back(report, back.as_mut())
    }

    /// Prepares as many frames as the queue holds before handing any over, so that the line starts with a full queue.
    /// The line runs from its first frame on, and the first frames are the slowest to prepare, because memory and code
    /// are not in the caches yet. The line starts when all this should be done.
    fn begin<const DIRECT: bool>(&mut self, rounds: &mut Rounds<'_>) {
        let bursts = self.queue.slots() / BURST;
        let made = rounds.clock.now() + MAKING * self.queue.slots() as u64;
        let start = rounds.begin().max(made).min(rounds.end);
        // The first frame starts at a byte time, possibly just before, so the time of the run starts there.
        rounds.begins(self.head(start));
        self.ends = rounds.end;
        while self.ahead.len() < bursts && !self.has_all::<DIRECT>(rounds) {
            self.take_in::<DIRECT>(start, rounds);
            // Frames that are read, or come from another thread, may not have arrived yet.
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
        rounds.await_start();
        rounds.clock.spin_until(start);
        let mut handed = Vec::with_capacity(self.ahead.len());
        for made in &mut self.ahead {
            handed.push(made.hand_over(&mut self.tx, &mut self.queue, &rounds.clock));
            if !made.out.is_empty() {
                break;
            }
        }
        // Accounts for them after the last hand-over, because the first accounting is slow, too.
        for taken in handed {
            self.under_way = self.ahead.pop_front().expect("it was handed over");
            self.book(taken, rounds);
        }
    }

    /// Takes frames that are ready by the head of the line.
    fn take_in<const DIRECT: bool>(&mut self, now: Time, rounds: &mut Rounds<'_>) {
        let head = self.head(now);
        if DIRECT {
            self.fresh.begin(head);
        } else {
            rounds.wake(head);
            rounds.intake.take(head, BURST, self.holds(), &mut rounds.pipeline);
        }
    }

    /// True if no frame is left to send, or none may be sent any more.
    fn has_ended<const DIRECT: bool>(&self, rounds: &mut Rounds<'_>) -> bool {
        self.under_way.out.is_empty() && self.ahead.is_empty() && self.has_all::<DIRECT>(rounds)
    }

    /// True if no frame is left to place, or none may be placed any more.
    fn has_all<const DIRECT: bool>(&self, rounds: &mut Rounds<'_>) -> bool {
        let never = self.never.as_ref().is_some_and(|never| never.at == Time::MAX);
        let over = never || !DIRECT && rounds.pipeline.ended();
        let mut all = || {
            let done = self.fresh.is_empty() && (DIRECT || rounds.pipeline.due().is_none());
            done && rounds.intake.ended() && rounds.pipeline.deadline().is_none()
        };
        self.pending.is_none() && (over || all())
    }

    /// Time of the pipeline: the position up to which the line is filled. Before the first frame it is the clock,
    /// rounded to a byte time at which a frame may start, so that the first frame starts exactly on target, as on the
    /// model line.
    fn head(&self, now: Time) -> Time {
        if self.planner.begun() { self.planner.free() } else { self.planner.first_start(now) }
    }

    /// The difference between the port's pace and the line's, if visible. The far end of a line knows more.
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
        let data: usize = self.ahead.iter().chain([&self.under_way]).map(PartialBurst::rest).sum();
        data as u64 + u64::from(self.pending.is_some()) + u64::from(self.never.is_some())
    }

    /// Ends the run: departures that have not happened stay with the pipeline.
    fn hold_rest(&mut self) {
        let bursts = self.ahead.iter_mut().chain([&mut self.under_way]);
        let rest = bursts.flat_map(|burst| burst.data.drain(..)).filter_map(|data| data.placed);
        rest.chain(self.pending.take().map(|next| next.placed)).for_each(Placed::hold);
    }

    /// Hands over a burst of frames, or as many of them as the port takes.
    fn fill<const DIRECT: bool>(&mut self, now: Time, rounds: &mut Rounds<'_>) {
        self.full = false;
        // Frames composed earlier keep their positions.
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
                self.complete_started(&mut rounds.pipeline);
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
        self.book(taken, rounds);
    }

    /// Records the departures that the line has reported.
    fn complete_started(&mut self, pipeline: &mut Pipeline<Mbuf>) {
        let line = self.planner.line();
        if let Some(near) = &mut self.line {
            near.take_started(|placed, position| placed.complete(pipeline, line.time(position)));
        }
    }

    /// Accounts for the first `taken` frames of the burst.
    fn book(&mut self, taken: usize, rounds: &mut Rounds<'_>) {
        let under_way = &mut self.under_way;
        let first = under_way.first;
        let bytes: u64 = under_way.lengths[first..first + taken].iter().map(|length| u64::from(*length)).sum();
        under_way.first += taken;
        under_way.position += bytes;
        let line = self.planner.line();
        let mut left = Tally::default();
        while let Some(data) = under_way.data.get_mut(under_way.first_data)
            && usize::from(data.number) < under_way.first
        {
            under_way.first_data += 1;
            left.add(data.length);
            if let Some(placed) = data.placed.take() {
                placed.complete(&mut rounds.pipeline, line.time(data.position));
            }
        }
        let frames = taken as u64 - left.frames;
        let overhead = taken as u64 * u64::from(WireLen::OVERHEAD);
        self.filled.add_all(Tally { frames, bytes: bytes - overhead - left.bytes });
    }

    /// Composes the next frames of the line, up to a burst.
    fn compose<const DIRECT: bool>(&mut self, rounds: &mut Rounds<'_>) {
        if let Some(next) = self.pending.take() {
            self.push(next);
        }
        while self.under_way.out.room() > 0 {
            let next = if DIRECT { self.settle_made(rounds) } else { self.settle_queued(&mut rounds.pipeline) };
            let Some(next) = next else {
                if self.under_way.out.is_empty() && self.planner.begun() {
                    let pipeline = &mut rounds.pipeline;
                    let wakes = pipeline.due().into_iter().chain(pipeline.deadline()).min();
                    self.idle(wakes.filter(|_| self.never.is_none()));
                }
                break;
            };
            self.push(next);
        }
    }

    /// Adds a data frame and the fillers before it to the burst. Stops when the burst is full.
    // Inlined like the whole path, because passing the frame through memory would take half as long again.
    #[inline(always)]
    fn push(&mut self, mut next: OnPlan) {
        while self.under_way.out.room() > 0 {
            if next.fill == 0 {
                return self.push_data(next);
            }
            let start = next.position - next.fill;
            next.fill -= if next.fill >= MANY_FROM {
                self.push_many(start, next.fill)
            } else {
                let length = next_filler(next.fill);
                self.push_filler(start, length, 1)
            };
        }
        self.pending = Some(next);
    }

    #[inline(always)]
    fn push_data(&mut self, next: OnPlan) {
        let OnPlan { mut frame, mut placed, position, .. } = next;
        if let Some(stream) = self.stamps.and_then(|wall| self.stamp(&mut frame, wall, position)) {
            placed.is_of_stream(stream);
        }
        let number = self.under_way.number() as u16;
        let length = placed.length();
        let placed = match &mut self.line {
            None => Some(placed),
            Some(line) => {
                line.plan(Planned { placed, position });
                None
            }
        };
        self.under_way.data.push(Data { number, length, placed, position });
        self.under_way.add(position, length.on_wire(), frame);
    }

    /// Writes the start time into a stamped frame. Returns its stream.
    #[inline(never)]
    fn stamp(&self, frame: &mut Mbuf, wall: u64, position: u64) -> Option<u16> {
        let (stamp, end) = Stamp::find(frame.bytes())?;
        let time_ns = wall + self.planner.line().time(position).as_ps() / PS_PER_NS;
        Stamp { time_ns, ..stamp }.put(frame.bytes_mut(), end);
        Some(stamp.stream)
    }

    /// Places the next generated frame.
    #[inline(always)]
    fn settle_made(&mut self, rounds: &mut Rounds<'_>) -> Option<OnPlan> {
        if self.never.is_some() {
            return None;
        }
        let (frame, placed, wanted) = self.fresh.next((&self.tx, &self.planner), rounds)?;
        if placed.at() >= self.ends {
            self.never = Some(Never { at: placed.at(), _frame: frame });
            placed.hold();
            return None;
        }
        let (position, fill) = self.position(wanted, self.fresh.ready(), placed.length());
        Some(OnPlan { frame, placed, position, fill })
    }

    /// Places the next departure. `None` if there is none, or if it is so far ahead that a frame of another class may
    /// still precede it.
    fn settle_queued(&mut self, pipeline: &mut Pipeline<Mbuf>) -> Option<OnPlan> {
        if self.planner.begun()
            && let Some(due) = pipeline.due()
            && !pipeline.is_settled()
            && self.planner.line().position(due) >= self.planner.line().position(self.planner.free()) + NEAR
        {
            return None;
        }
        while self.never.is_none()
            && let Some(Departure { frame, token }) = pipeline.next_departure()
        {
            if token.at() >= self.ends {
                self.never = Some(Never { at: token.at(), _frame: frame });
                token.hold();
                break;
            }
            if !self.tx.carries(&frame) {
                token.discard(pipeline, DropReason::TooLong);
                continue;
            }
            let wanted = self.planner.nearest_start(token.at());
            let (position, fill) = self.position(wanted, token.ready(), token.length());
            // Its position on the line is settled, whenever it is handed over.
            let placed = token.place(pipeline, self.planner.line().time(position));
            return Some(OnPlan { frame, placed, position, fill });
        }
        None
    }

    /// Places a frame on the line, at the byte time `wanted` if possible. Returns its position, and the byte times to
    /// fill before it.
    #[inline(always)]
    fn position(&mut self, wanted: u64, ready: Time, length: FrameLen) -> (u64, u64) {
        let slot = self.planner.place_at(wanted, ready, length.on_wire());
        self.carried += u64::from(slot.carried);
        self.crowded += u64::from(slot.crowded);
        (slot.position, slot.fill)
    }

    /// Adds one filler while nothing is due: the longest that ends before a stage wakes.
    fn idle(&mut self, wakes: Option<Time>) {
        let line = *self.planner.line();
        let free = self.planner.free();
        let left = wakes.map_or(u64::MAX, |at| line.position(at.max(free)) - line.position(free));
        let (least, most) = (u64::from(WireLen::MIN.bytes()), u64::from(WireLen::MAX_STANDARD.bytes()));
        let length = WireLen::new(left.clamp(least, most) as u32);
        let position = self.planner.idle_frame(length);
        self.push_filler(position, length, 1);
    }

    /// Adds a filler `times` times. Returns its byte times.
    #[inline]
    fn push_filler(&mut self, position: u64, length: WireLen, times: usize) -> u64 {
        self.under_way.add_kept(position, length, self.fillers.of(length), times)
    }

    /// Adds fillers before a distant departure. Returns their byte times.
    // Out of line, so that this rare case does not slow down the frequent one.
    #[inline(never)]
    fn push_many(&mut self, position: u64, fill: u64) -> u64 {
        if let Some((length, filler)) = self.fillers.long(fill) {
            return self.under_way.add_kept(position, length, filler, 1);
        }
        let room = self.under_way.out.room();
        self.push_filler(position, WireLen::MAX_STANDARD, longest_in_a_row(fill).min(room as u64) as usize)
    }

    /// Detects that the line idled because it passed the last frame handed over. Later frames start later by that time.
    fn look_for_underrun(&mut self, now: Time) {
        let idled = self.queue.idled(now);
        if idled == 0 {
            return;
        }
        self.underruns += 1;
        self.planner.slip(idled);
        self.under_way.slip(idled);
        self.ahead.iter_mut().for_each(|made| made.slip(idled));
        if let Some(next) = &mut self.pending {
            next.position += idled;
        }
    }
}
