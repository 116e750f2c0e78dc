//! Sends as fast as a port takes frames: in bursts, with accounting per burst.
//!
//! Such departures have no target and no stages before them, so frames need no queue, no schedule, and no individual
//! reading of the clock.

use crate::answers::Answers;
use crate::maker::{Maker, redate};
use crate::neighbour;
use crate::worker::RunContext;
use dpdk::{BURST, Burst, Outgoing, SharedFrame, TscClock, TxQueue};
use engine::BurstCounters;
use measure::{AnsweredTally, DepthReport, DropReason, FrameCounters, PipelineReport, RateReport, StreamReport};
use packet::{AnsweredRequest, Frame, Stamp};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::Duration;
use units::{FrameLen, PS_PER_NS, Span, Time};

/// After this time without progress, the port is left alone for a while.
const STUCK: Span = Span::from_ms(5);
const NAP: Duration = Duration::from_micros(50);

/// One queue and its sender.
pub(crate) struct Flood<'a> {
    tx: TxQueue,
    clock: TscClock,
    end: Time,
    run: RunContext<'a>,
    bursts: BurstCounters,
    /// The counters as last published.
    published: FrameCounters,
    round: u64,
    /// When the port last took a frame.
    busy_at: Time,
    answers: Option<Answers>,
    /// Answers that the port has not taken yet, with their kinds.
    replies: (Burst, VecDeque<AnsweredRequest>),
    answered: AnsweredTally,
}

impl<'a> Flood<'a> {
    pub(crate) fn new(tx: TxQueue, run: RunContext<'a>, bursts: BurstCounters) -> Self {
        let now = run.clock.now();
        let (replies, answered) = ((Burst::new(), VecDeque::new()), AnsweredTally::default());
        let (round, answers) = (0, None);
        Flood {
            tx,
            clock: run.clock,
            end: run.end(run.begin()),
            run,
            bursts,
            published: FrameCounters::default(),
            round,
            busy_at: now,
            answers,
            replies,
            answered,
        }
    }

    /// Answers requests for the port's addresses, between bursts.
    pub(crate) fn answering(self, answers: Option<Answers>) -> Self {
        Flood { answers, ..self }
    }

    /// Sends the frames of `maker`. Stamps use a clock that read `wall_at_zero` ns at the start.
    pub(crate) fn of_made(mut self, mut maker: Maker, wall_at_zero: u64) -> PipelineReport {
        let stamped = maker.streams().stamped();
        let wall = |time: Time| wall_at_zero + time.as_ps() / PS_PER_NS;
        let mut burst = Burst::new();
        let mut lengths = Vec::with_capacity(BURST);
        let mut sent = 0;
        let longest = maker.streams().longest();
        let mut left_out = BTreeMap::new();
        while let Some(now) = self.next() {
            if burst.is_empty() {
                maker.make(&mut burst, BURST);
                maker.lengths(&burst, &mut lengths);
                sent = 0;
                if burst.is_empty() && maker.left() == 0 {
                    break;
                }
                if stamped {
                    maker.date(&mut burst, wall(self.clock.now()));
                }
                self.bursts.arrived(&lengths, now, || self.clock.now());
            } else if stamped {
                redate(&mut burst, wall(now));
            }
            if self.tx.max_frame() < longest {
                lengths.drain(..std::mem::take(&mut sent));
                self.leave_out_too_long(&mut burst, &mut lengths, &mut left_out);
            }
            let handed = self.read(burst.len());
            let taken = self.tx.send(&mut burst);
            self.book(now, &lengths[sent..sent + taken], handed);
            sent += taken;
        }
        let mut streams: Vec<(u16, u64)> = maker.streams().made().collect();
        for held in burst.iter().filter_map(|frame| Stamp::of(frame.bytes())) {
            streams.iter_mut().filter(|(stream, _)| *stream == held.stream).for_each(|(_, made)| *made -= 1);
        }
        for (stream, made) in &mut streams {
            *made -= left_out.get(stream).copied().unwrap_or(0);
        }
        let stream = |(stream, sent)| StreamReport { stream, sent: Some(sent), received: None };
        let streams = streams.into_iter().map(stream).collect();
        PipelineReport { streams, ..self.report() }
    }

    /// Sends `frames` in order, repeatedly, `left` frames in total.
    pub(crate) fn of_kept(mut self, frames: &[SharedFrame], mut left: u64) -> PipelineReport {
        let lengths: Vec<FrameLen> = frames.iter().map(|frame| FrameLen::of_captured(frame.len() as u32)).collect();
        let longest = frames.iter().map(SharedFrame::len).max().unwrap_or(0);
        let mut burst = Outgoing::new();
        let mut at = 0;
        while let Some(now) = self.next() {
            if burst.is_empty() {
                let most = BURST.min(frames.len() - at).min(usize::try_from(left).unwrap_or(BURST));
                if most == 0 {
                    break;
                }
                let carried = match self.tx.max_frame() {
                    most_carried if most_carried >= longest => most,
                    most_carried => {
                        frames[at..at + most].iter().take_while(|frame| frame.len() <= most_carried).count()
                    }
                };
                if carried == 0 {
                    self.bursts.arrived(&lengths[at..=at], now, || now);
                    self.bursts.discard(DropReason::TooLong);
                    left -= 1;
                    at = (at + 1) % frames.len();
                    continue;
                }
                let most = carried;
                frames[at..at + most].iter().for_each(|frame| burst.push_kept(frame, 1));
                self.bursts.arrived(&lengths[at..at + most], now, || self.clock.now());
                left -= most as u64;
            }
            let handed = self.read(burst.len());
            let taken = self.tx.send_out(&mut burst);
            self.book(now, &lengths[at..at + taken], handed);
            at = if at + taken == frames.len() { 0 } else { at + taken };
        }
        self.report()
    }

    /// Reads the clock if one of the next frames is traced.
    #[inline]
    fn read(&self, frames: usize) -> Option<Time> {
        self.bursts.is_traced(frames).then(|| self.clock.now())
    }

    /// Drops frames that the link no longer carries since its MTU was lowered, and counts them per stream.
    fn leave_out_too_long(&mut self, burst: &mut Burst, lengths: &mut Vec<FrameLen>, streams: &mut BTreeMap<u16, u64>) {
        let mut frames = burst.iter();
        lengths.retain(|_| {
            let frame = frames.next().expect("each length is of a frame");
            let carried = self.tx.carries(frame);
            if !carried {
                self.bursts.discard(DropReason::TooLong);
                if let Some(stamp) = Stamp::of(frame.bytes()) {
                    *streams.entry(stamp.stream).or_default() += 1;
                }
            }
            carried
        });
        burst.retain(|frame| self.tx.carries(frame));
    }

    /// Starts another round. Returns the clock's reading, or `None` at the end of the run.
    #[inline]
    fn next(&mut self) -> Option<Time> {
        let now = self.clock.now();
        self.tx.follow_link();
        if self.round.is_multiple_of(64) {
            self.publish();
            self.answer(now);
            if self.run.is_stopped() {
                return None;
            }
        }
        self.round += 1;
        (now < self.end).then_some(now)
    }

    /// Receives and answers requests.
    fn answer(&mut self, now: Time) {
        let Some(answers) = &mut self.answers else { return };
        if answers.must_poll(now) {
            answers.poll(now, BURST);
        }
        let (burst, what) = &mut self.replies;
        while burst.len() < BURST
            && let Some((answered, frame)) = answers.next()
        {
            burst.push(frame).expect("there is room");
            what.push_back(answered);
        }
        if !burst.is_empty() {
            let taken = self.tx.send(burst);
            what.drain(..taken).for_each(|answered| neighbour::count(&mut self.answered, answered));
        }
    }

    /// Accounts for frames of these lengths, which the port took at `now`; `handed` as in [`BurstCounters::left`].
    #[inline]
    fn book(&mut self, now: Time, taken: &[FrameLen], handed: Option<Time>) {
        self.bursts.left(taken, now, handed, || self.clock.now());
        if !taken.is_empty() {
            self.busy_at = now;
        } else if now.since(self.busy_at) > STUCK {
            std::thread::sleep(NAP);
        }
    }

    /// Publishes progress; several queues share the counters.
    fn publish(&mut self) {
        let books = self.bursts.books();
        self.run.counters.add_drops(&books.drops(), &self.published.drops());
        let (arrived, left) = (books.arrived.since(self.published.arrived), books.left.since(self.published.left));
        self.run.counters.running.store(true, Ordering::Relaxed);
        self.run.counters.arrived.fetch_add(arrived.frames, Ordering::Relaxed);
        self.run.counters.arrived_bytes.fetch_add(arrived.bytes, Ordering::Relaxed);
        self.run.counters.left.fetch_add(left.frames, Ordering::Relaxed);
        self.run.counters.left_bytes.fetch_add(left.bytes, Ordering::Relaxed);
        self.published = books.clone();
    }

    fn report(mut self) -> PipelineReport {
        self.publish();
        let not_taken = self.replies.0.len() as u64;
        let answers = self.answers.as_ref().map(|answers| answers.report(self.answered, not_taken));
        PipelineReport { answers, ..self.bursts.report() }
    }
}

/// The combined report of several concurrent queues: counters and rates. Gaps between frames of different queues are
/// unknown here.
pub(crate) fn joined(reports: Vec<PipelineReport>) -> PipelineReport {
    if reports.len() == 1 {
        return reports.into_iter().next().unwrap_or_default();
    }
    let mut all = PipelineReport { depth: Some(DepthReport { max_frames: 0 }), ..PipelineReport::default() };
    for report in reports {
        all.arrived.add_all(report.arrived);
        all.left.add_all(report.left);
        all.drops.add_all(&report.drops);
        all.held += report.held;
        all.first_departure = all.first_departure.into_iter().chain(report.first_departure).min();
        all.streams.extend(report.streams);
        all.answers = all.answers.or(report.answers);
        all.slices = all.slices.or(report.slices);
        all.rate = match (all.rate, report.rate) {
            (Some(one), Some(other)) => Some(RateReport {
                mean_bps: one.mean_bps + other.mean_bps,
                windows: 0,
                min_bps: None,
                max_bps: None,
                range_bytes_per_second: None,
                std_bps: None,
                mean_fps: one.mean_fps.zip(other.mean_fps).map(|(one, other)| one + other),
                ..one
            }),
            (one, other) => one.or(other),
        };
    }
    all.streams.sort_by_key(|stream| stream.stream);
    all
}
