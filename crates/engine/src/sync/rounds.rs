use super::{How, SyncSpec};
use crate::Line;
use crate::stages::Item;
use measure::{CrestGapMeter, SourceCurve, SourceReport, Timeline};
use packet::{Frame, Headers};
use std::collections::VecDeque;
use units::{FrameLen, Span, Time};

/// Holds frames of sources back and releases them in rounds. Other frames pass at once.
///
/// Neither the next arrivals nor the departure of a crest's last frame are known in advance. Therefore the driver
/// reports every departure and wakes the synchroniser at its deadline.
pub(crate) struct Synchroniser<F> {
    spec: SyncSpec,
    /// The output's line, which determines the transmission time of a frame; `None` if frames take no time.
    line: Option<Line>,
    /// How long a crest is held back so that its end is known before the next one must start.
    hold: Span,
    sources: Vec<Source<F>>,
    /// Crests in progress, in order of their start. With gaps, only the first one is in progress; the others follow.
    members: VecDeque<Member>,
    /// Earliest start of the next round, or of the next crest of this round.
    free: Time,
    /// Number of frames of sources that were released and have not departed.
    outstanding: usize,
    /// End of the last departure of a frame of any source.
    end: Time,
    /// Time of the last release.
    now: Time,
    /// True if no more frames will arrive.
    ended: bool,
    /// Instant of the first frame of any source.
    origin: Option<Time>,
    /// End of the preceding crest in the same round, which is of another source.
    before: Option<Time>,
    gaps: CrestGapMeter,
}

struct Source<F> {
    queue: VecDeque<Item<F>>,
    /// True if it missed a round and its crests since then came between those of the others. They join the next round
    /// and open none of their own.
    behind: bool,
    report: SourceReport,
    skew_sum: f64,
    /// Its rate on arrival and on departure, from the first frame of any source on.
    curves: (Timeline, Timeline),
    /// The crest in this round: from first to last arrival, and from first start to last end.
    arrived: Option<(Time, Time)>,
    left: Option<(Time, Time)>,
}

/// A source that has a turn in this round, now or later.
struct Member {
    source: usize,
    /// Start of its crest; unknown until the preceding crests have ended.
    start: Option<Time>,
    /// Arrival of its first frame, and of the last released one.
    first: Time,
    last: Option<Time>,
}

impl<F: Frame> Synchroniser<F> {
    /// A synchroniser for `spec`. `line` is the line of the output, if it has one.
    pub(crate) fn new(spec: SyncSpec, line: Option<Line>) -> Self {
        let hold = match spec.how {
            How::Gap(gap) => Span::from_ps(spec.silence.as_ps().saturating_sub(gap.as_ps())),
            How::Offset(_) | How::RoundRobin(_) => Span::ZERO,
        };
        let asked = match spec.how {
            How::Gap(gap) | How::RoundRobin(gap) => Some(gap),
            How::Offset(_) => None,
        };
        let sources = spec.sources.iter().map(|source| Source {
            queue: VecDeque::new(),
            behind: false,
            report: SourceReport { source: source.to_string(), ..SourceReport::default() },
            skew_sum: 0.0,
            curves: <(Timeline, Timeline)>::default(),
            arrived: None,
            left: None,
        });
        Synchroniser {
            sources: sources.collect(),
            spec,
            line,
            hold,
            members: VecDeque::new(),
            free: Time::ZERO,
            outstanding: 0,
            end: Time::ZERO,
            now: Time::ZERO,
            ended: false,
            origin: None,
            before: None,
            gaps: CrestGapMeter::new(asked),
        }
    }

    /// Records that no more frames will arrive, so that late crests do not wait for a round. True at the first call.
    pub(crate) fn end(&mut self, now: Time) -> bool {
        if self.ended {
            return false;
        }
        self.ended = true;
        self.free = self.free.max(now);
        true
    }

    /// Takes an arriving frame.
    pub(crate) fn push(&mut self, item: Item<F>, ready: &mut VecDeque<Item<F>>) {
        match self.source_of(item.frame.bytes()) {
            Some(source) => {
                let origin = *self.origin.get_or_insert(item.at);
                let source = &mut self.sources[source as usize];
                source.report.arrived.add(item.frame.length());
                source.curves.0.begin(origin);
                source.curves.0.got(item.at, item.frame.length());
                source.queue.push_back(item);
            }
            None => ready.push_back(item),
        }
    }

    /// Index of the frame's source, if it has one.
    pub(crate) fn source_of(&self, frame: &[u8]) -> Option<u32> {
        let address = Headers::of(frame)?.ip?.source(frame)?;
        self.spec.sources.iter().position(|source| source.holds(address)).map(|number| number as u32)
    }

    /// Releases the frames that may leave by `now`, in order.
    pub(crate) fn release(&mut self, now: Time, ready: &mut VecDeque<Item<F>>) {
        self.now = self.now.max(now);
        loop {
            if self.members.is_empty() && !self.open(now) {
                return;
            }
            self.let_go(now, ready);
            if !self.go_on(now) {
                return;
            }
        }
    }

    /// When to wake the synchroniser next.
    pub(crate) fn deadline(&self) -> Option<Time> {
        if self.members.is_empty() {
            return self.opening();
        }
        if self.may_go_on(self.now) {
            return Some(self.next_start());
        }
        let next = self.members.iter().filter_map(|member| match self.next_release(member) {
            Some(at) => Some(at),
            None if !self.is_over(member, self.now) => member.last.map(|last| last + self.spec.silence),
            // The crest has ended, but its frames have not departed yet. Their departures will be reported.
            None => None,
        });
        next.min()
    }

    /// When the next round may open, given the arrivals so far.
    fn opening(&self) -> Option<Time> {
        let fronts = || self.sources.iter().filter_map(|source| Some((source, source.queue.front()?.at)));
        let last = fronts().map(|(_, at)| at).max()?;
        let incomplete = fronts().map(|(source, at)| self.until(source, at)).min()?;
        let complete = self.sources.iter().all(|source| !source.queue.is_empty());
        let begun = if complete { last } else { last.max(incomplete) };
        Some(self.free.max(last + self.hold).max(begun))
    }

    /// Until when a crest of this source that arrived at `at` waits for the others.
    fn until(&self, source: &Source<F>, at: Time) -> Time {
        let turns = matches!(self.spec.how, How::RoundRobin(_));
        if source.behind && !self.ended && !turns { at.max(self.free) + self.spec.late() } else { at + self.spec.wait }
    }

    /// Opens a round if it is due.
    fn open(&mut self, now: Time) -> bool {
        let Some(at) = self.opening().filter(|at| *at <= now) else { return false };
        let fronts = self.sources.iter().filter_map(|source| source.queue.front().map(|item| item.at));
        let first = fronts.min().unwrap_or(at);
        let on_time = self.sources.iter().filter(|source| !source.behind);
        let lead = on_time.filter_map(|source| source.queue.front()).map(|item| item.at).min();
        for (number, source) in self.sources.iter_mut().enumerate() {
            (source.arrived, source.left) = (None, None);
            let Some(front) = source.queue.front() else {
                source.report.missed += 1;
                source.behind = true;
                continue;
            };
            source.behind &= lead.is_none_or(|lead| front.at < lead);
            source.report.crests += 1;
            let skew = front.at.since(first).as_ns_f64();
            source.skew_sum += skew;
            source.report.skew.max_ns = source.report.skew.max_ns.max(skew);
            let start = match &self.spec.how {
                How::Offset(offsets) => Some(at + offsets[number]),
                How::Gap(_) | How::RoundRobin(_) => self.members.is_empty().then_some(at),
            };
            self.members.push_back(Member { source: number, start, first: front.at, last: None });
        }
        if lead.is_none() {
            // The others have stopped, so the sources that have frames lead from now on.
            self.sources.iter_mut().for_each(|source| source.behind = source.queue.is_empty());
        }
        true
    }

    /// When the next frame of a crest is due; `None` if there is none, or if the crest has not started.
    fn next_release(&self, member: &Member) -> Option<Time> {
        let front = self.sources[member.source].queue.front()?;
        let start = member.start?;
        let belongs = member.last.is_none_or(|last| self.belongs(last, front.at));
        belongs.then(|| start + front.at.since(member.first))
    }

    /// Whether a frame that arrived at `at` belongs to the same crest as the one that arrived at `last`.
    fn belongs(&self, last: Time, at: Time) -> bool {
        !matches!(self.spec.how, How::RoundRobin(_)) && at.since(last) < self.spec.silence
    }

    /// Whether a crest is known to have ended by `now`.
    fn is_over(&self, member: &Member, now: Time) -> bool {
        let Some(last) = member.last else { return false };
        match self.sources[member.source].queue.front() {
            Some(front) => !self.belongs(last, front.at),
            None => matches!(self.spec.how, How::RoundRobin(_)) || now >= last + self.spec.silence,
        }
    }

    /// Number of crests in progress.
    fn current(&self) -> usize {
        match self.spec.how {
            How::Offset(_) => self.members.len(),
            How::Gap(_) | How::RoundRobin(_) => 1,
        }
    }

    /// True if all crests in progress have ended and their frames have departed.
    fn may_go_on(&self, now: Time) -> bool {
        self.outstanding == 0 && self.members.iter().take(self.current()).all(|member| self.is_over(member, now))
    }

    /// When the next crest may start after the last departure.
    fn next_start(&self) -> Time {
        match self.spec.how {
            How::Gap(gap) | How::RoundRobin(gap) => self.end + gap,
            How::Offset(_) => self.end,
        }
    }

    fn let_go(&mut self, now: Time, ready: &mut VecDeque<Item<F>>) {
        loop {
            let next = self.members.iter().enumerate().filter_map(|(i, member)| Some((self.next_release(member)?, i)));
            let Some((at, i)) = next.min().filter(|(at, _)| *at <= now) else { return };
            let member = &mut self.members[i];
            let source = &mut self.sources[member.source];
            let Some(item) = source.queue.pop_front() else { return };
            member.last = Some(item.at);
            source.arrived = Some((member.first, item.at));
            self.outstanding += 1;
            ready.push_back(Item { frame: item.frame, at });
        }
    }

    /// Moves to the next crest, or closes the round, once all earlier frames have departed. True if it did.
    fn go_on(&mut self, now: Time) -> bool {
        if !self.may_go_on(now) {
            return false;
        }
        self.record_gap();
        self.members.drain(..self.current());
        self.free = self.next_start();
        match self.members.front_mut() {
            Some(next) => next.start = Some(self.free),
            None => self.close(),
        }
        true
    }

    /// Records the gap before the current crest, once its frames have departed. Crests with offsets may overlap and
    /// have no gap.
    fn record_gap(&mut self) {
        let Some(member) = self.members.front().filter(|_| !matches!(self.spec.how, How::Offset(_))) else { return };
        let left = self.sources[member.source].left;
        if let (Some(origin), Some(before), Some((start, _))) = (self.origin, self.before, left) {
            self.gaps.record(origin, before, start);
        }
        // A crest whose frames were all lost does not change the gap to the next one.
        self.before = left.map(|(_, end)| end).or(self.before).filter(|_| self.members.len() > 1);
    }

    /// Closes a round and records how its crests overlapped.
    fn close(&mut self) {
        let crests = |of: fn(&Source<F>) -> Option<(Time, Time)>| -> Vec<Option<(Time, Time)>> {
            self.sources.iter().map(of).collect()
        };
        let (arrived, left) = (crests(|source| source.arrived), crests(|source| source.left));
        for (i, source) in self.sources.iter_mut().enumerate() {
            source.report.overlap.in_ns += shared(&arrived, i).as_ns_f64();
            source.report.overlap.out_ns += shared(&left, i).as_ns_f64();
        }
    }

    /// Records that a released frame of this source departed at `start`. Departures may be reported in any order.
    pub(crate) fn departed(&mut self, source: Option<u32>, length: FrameLen, start: Time) {
        let Some(source) = source else { return };
        self.outstanding -= 1;
        let taken = self.line.map_or(Span::ZERO, |line| line.span(length.with_preamble().into()));
        self.end = self.end.max(start + taken);
        let source = &mut self.sources[source as usize];
        source.report.left.add(length);
        if let Some(origin) = self.origin {
            source.curves.1.begin(origin);
            source.curves.1.got(start, length);
        }
        let (first, last) = source.left.unwrap_or((start, start));
        source.left = Some((first.min(start), last.max(start + taken)));
    }

    /// Records that a released frame of this source will never depart.
    pub(crate) fn lost(&mut self, source: Option<u32>) {
        self.outstanding -= usize::from(source.is_some());
    }

    /// Number of frames held back.
    pub(crate) fn held(&self) -> usize {
        self.sources.iter().map(|source| source.queue.len()).sum()
    }

    /// The gaps between crests within rounds, from the end of the last frame of a crest to the start of the next one.
    pub(crate) fn gaps(&self) -> &CrestGapMeter {
        &self.gaps
    }

    /// The rates of all sources over time.
    pub(crate) fn curves(&self) -> Vec<SourceCurve> {
        let curve = |source: &Source<F>| SourceCurve {
            source: source.report.source.clone(),
            arrived: source.curves.0.crests(),
            left: source.curves.1.crests(),
        };
        self.sources.iter().map(curve).collect()
    }

    /// The report of each source.
    pub(crate) fn report(&self) -> Vec<SourceReport> {
        let report = |source: &Source<F>| {
            let mut report = source.report.clone();
            report.skew.mean_ns = source.skew_sum / report.crests.max(1) as f64;
            report
        };
        self.sources.iter().map(report).collect()
    }
}

/// Time during which crest `i` overlapped with at least one other.
fn shared(crests: &[Option<(Time, Time)>], i: usize) -> Span {
    let Some((from, to)) = crests[i] else { return Span::ZERO };
    let others = crests.iter().enumerate().filter(|(other, _)| *other != i).filter_map(|(_, crest)| *crest);
    let mut others: Vec<(Time, Time)> = others.map(|(a, b)| (a.max(from), b.min(to))).filter(|(a, b)| a < b).collect();
    others.sort_unstable();
    let (mut total, mut reached) = (Span::ZERO, from);
    for (a, b) in others {
        let a = a.max(reached);
        if a < b {
            total = total + b.since(a);
            reached = b;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::HeapFrame;

    fn frame(source: u8) -> HeapFrame {
        let mut bytes = vec![0; 60];
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        bytes[14..16].copy_from_slice(&[0x45, 0]);
        bytes[17] = 46;
        bytes[26..30].copy_from_slice(&[10, 0, 0, source]);
        HeapFrame::new(bytes)
    }

    fn us(us: u64) -> Time {
        Time::from_ps(us * 1_000_000)
    }

    /// Feeds arrivals (source, µs) and makes each frame depart when it is released. Returns the departures in the same
    /// form, and the reports.
    fn run(spec: &str, arrivals: &[(u8, u64)]) -> (Vec<(u8, u64)>, Vec<SourceReport>) {
        let mut sync = Synchroniser::new(spec.parse().expect(spec), None);
        let mut ready = VecDeque::new();
        let mut left = Vec::new();
        let mut arrivals = arrivals.iter().peekable();
        loop {
            while let Some(item) = ready.pop_front() {
                let Item { frame, at }: Item<HeapFrame> = item;
                sync.departed(sync.source_of(frame.bytes()), frame.length(), at);
                left.push((frame.bytes()[29], at.as_ps() / 1_000_000));
            }
            let deadline = sync.deadline();
            match arrivals.peek() {
                Some((source, at)) if deadline.is_none_or(|deadline| us(*at) <= deadline) => {
                    sync.push(Item { frame: frame(*source), at: us(*at) }, &mut ready);
                    sync.release(us(*at), &mut ready);
                    arrivals.next();
                }
                None if sync.end(sync.now) => {}
                _ => {
                    let Some(deadline) = deadline else { break };
                    sync.release(deadline, &mut ready);
                }
            }
        }
        assert_eq!((sync.held(), sync.outstanding, arrivals.count()), (0, 0, 0));
        (left, sync.report())
    }

    #[test]
    fn separates_overlapping_crests_in_order_at_the_gap() {
        let arrivals = [(3, 0), (1, 10), (2, 20), (1, 110), (3, 150), (2, 320), (1, 5_000), (2, 5_000), (3, 5_010)];
        let (left, sources) = run("order 10.0.0.1,10.0.0.2,10.0.0.3 gap 2ms", &arrivals);
        assert_eq!(
            left,
            [(1, 20), (1, 120), (2, 2_120), (2, 2_420), (3, 4_420), (3, 4_570), (1, 6_570), (2, 8_570), (3, 10_570)]
        );
        assert_eq!(sources.iter().map(|source| (source.crests, source.missed)).collect::<Vec<_>>(), [(2, 0); 3]);
        assert!((sources[1].skew.max_ns - 20_000.0).abs() < 1e-9 && (sources[1].skew.mean_ns - 10_000.0).abs() < 1e-9);
        // Source 1 ran from 10 to 110, 2 from 20 to 320, 3 from 0 to 150.
        assert!((sources[0].overlap.in_ns - 100_000.0).abs() < 1e-9, "{sources:?}");
        assert!((sources[1].overlap.in_ns - 130_000.0).abs() < 1e-9 && sources[1].overlap.out_ns.abs() < 1e-9);
    }

    #[test]
    fn gap_shorter_than_the_silence_is_exact() {
        let (left, _) = run("order 10.0.0.1,10.0.0.2 gap 10us silence 1ms", &[(1, 0), (2, 0), (2, 50), (1, 900)]);
        assert_eq!(left, [(1, 990), (1, 1_890), (2, 1_900), (2, 1_950)]);
    }

    #[test]
    fn waits_for_a_late_source_up_to_the_limit() {
        let spec = "order 10.0.0.1,10.0.0.2,10.0.0.3 gap 1ms wait 50ms";
        let (left, sources) = run(spec, &[(1, 0), (3, 5), (2, 40_000)]);
        assert_eq!(left, [(1, 40_000), (2, 41_000), (3, 42_000)]);
        assert!(sources.iter().all(|source| source.missed == 0));
        let (left, sources) = run(spec, &[(1, 0), (3, 5), (2, 60_000)]);
        assert_eq!(left, [(1, 50_000), (3, 51_000), (2, 110_000)], "the late crest is in the next round");
        assert_eq!(sources.iter().map(|source| source.missed).collect::<Vec<_>>(), [1, 1, 1]);
    }

    /// Sources in the order in which crests of one frame left.
    fn order(spec: &str, arrivals: &[(u8, u64)]) -> Vec<u8> {
        let mut arrivals = arrivals.to_vec();
        arrivals.sort_by_key(|(_, at)| *at);
        run(spec, &arrivals).0.iter().map(|(source, _)| *source).collect()
    }

    #[test]
    fn crests_later_than_the_wait_join_the_next_round() {
        for how in ["gap 1ms", "gap 10us", "offset 2ms"] {
            let spec = format!("order 10.0.0.1,10.0.0.2,10.0.0.3 {how} wait 30ms");
            // Each source in turn is late by the same time in each of 6 rounds, or by more than a round.
            for (late, by) in (1..=3).flat_map(|late| [40, 59, 71, 99, 140, 259, 371].map(|by| (late, by))) {
                let at = |source, round: u64| (round * 100 + if source == late { by } else { 0 }) * 1_000;
                let arrivals: Vec<_> =
                    (0..6).flat_map(|round| [1, 2, 3].map(|source| (source, at(source, round)))).collect();
                let others: Vec<u8> = [1, 2, 3].into_iter().filter(|source| *source != late).collect();
                let without = by.div_ceil(100) as usize;
                let mut asked = others.repeat(without);
                asked.extend([1, 2, 3].repeat(6 - without));
                asked.extend([late].repeat(without));
                assert_eq!(order(&spec, &arrivals), asked, "{spec}: {late} is late by {by} ms");
            }
            // Only the first crest is late.
            let mut arrivals: Vec<_> =
                (0..6).flat_map(|round| [1, 2, 3].map(|source| (source, round * 100_000))).collect();
            arrivals[1].1 = 59_000;
            assert_eq!(order(&spec, &arrivals), [1, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 2], "{spec}");
            // Two are late, by different times.
            let at = |source: u8, round: u64| (source, (round * 100 + [0, 59, 41][usize::from(source) - 1]) * 1_000);
            let arrivals: Vec<_> = (0..4).flat_map(|round| [1, 2, 3].map(|source| at(source, round))).collect();
            assert_eq!(order(&spec, &arrivals), [1, 1, 2, 3, 1, 2, 3, 1, 2, 3, 2, 3], "{spec}");
        }
    }

    #[test]
    fn a_late_source_departs_alone_after_the_others_have_stopped() {
        let spec = "order 10.0.0.1,10.0.0.2 gap 1ms wait 200ms";
        let arrivals = [(1, 0), (2, 500_000), (2, 4_000_000), (2, 4_100_000), (1, 4_250_000), (2, 4_300_000)];
        let (left, _) = run(spec, &arrivals);
        // The first source waits ten times as long, once. Then it leads, and the other one joins it.
        assert_eq!(
            left,
            [(1, 200_000), (2, 2_500_000), (2, 4_200_000), (1, 4_250_000), (2, 4_251_000), (2, 4_500_000)]
        );
    }

    #[test]
    fn offsets_count_from_the_start_of_the_round() {
        let (left, _) =
            run("order 10.0.0.1,10.0.0.2 offset 3ms", &[(2, 0), (1, 100), (2, 200), (1, 5_000), (2, 5_000)]);
        assert_eq!(left, [(1, 100), (2, 3_100), (2, 3_300), (1, 5_000), (2, 8_000)]);
    }

    #[test]
    fn round_robin_takes_one_frame_per_source() {
        let arrived = [(1, 0), (1, 1), (1, 2), (2, 10), (2, 11), (2, 12), (9, 13)];
        let (left, sources) = run("round-robin 10.0.0.1,10.0.0.2 gap 5us", &arrived);
        assert_eq!(left, [(1, 10), (9, 13), (2, 15), (1, 20), (2, 25), (1, 30), (2, 35)], "9 is none of them");
        assert_eq!(sources[0].arrived.frames + sources[1].left.frames, 6);
        let (left, _) = run("round-robin 10.0.0.1,10.0.0.2 wait 100us", &[(1, 0), (1, 1), (2, 10)]);
        assert_eq!(left, [(1, 10), (2, 10), (1, 101)], "each round waits");
    }
}
