use crate::delays::Delays;
use crate::held::DelayFigures;
use crate::histogram::Counts;
use crate::moments::Moments;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::VecDeque;

/// Figures of a stream by its stamps at the receiver, and the number of frames from the sender.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct StreamReport {
    /// The stream number.
    pub stream: u16,
    /// Frames sent, if the sender is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// The received frames, if there is a receiver.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub received: Option<ReceivedStream>,
}

/// Received frames of a stream. Times in ns, signed.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ReceivedStream {
    /// Frames received, without duplicates.
    pub received: u64,
    /// Frames not received: out of those sent, or out of the numbers between the lowest and the highest seen if the
    /// number sent is unknown.
    pub lost: u64,
    /// `lost` ÷ (`received` + `lost`).
    pub loss_ratio: f64,
    /// Duplicates received.
    pub duplicates: u64,
    /// Frames received after one with a higher number (RFC 4737, Type-P-Reordered).
    pub reordered: u64,
    /// `reordered` ÷ `received`.
    pub reorder_ratio: f64,
    /// Largest reordering extent (RFC 4737 section 4.2.2) within the last 65 536 frames that were ahead.
    pub reorder_max_extent: u64,
    /// One-way delay: arrival minus departure, each by its own clock. None if nothing was received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<DelayFigures>,
    /// Delay minus the smallest delay (PDV, RFC 5481): valid even if the clocks differ. None if nothing was received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pdv: Option<Quantiles>,
    /// Absolute difference in delay between consecutively sent frames, in any order of arrival (IPDV, RFC 3393).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipdv: Option<IpdvReport>,
}

/// Quantiles in ns.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Quantiles {
    /// Median, to 0.1 %.
    pub p50_ns: f64,
    /// 99th percentile, to 0.1 %.
    pub p99_ns: f64,
    /// 99.9th percentile, to 0.1 %.
    pub p999_ns: f64,
    /// Largest.
    pub max_ns: f64,
}

/// Absolute differences in delay, in ns.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct IpdvReport {
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median, to 0.1 %.
    pub p50_ns: f64,
    /// 99th percentile, to 0.1 %.
    pub p99_ns: f64,
    /// Largest.
    pub max_ns: f64,
}

/// Frames sent per stream.
#[derive(Clone, Debug, Default)]
pub struct SentStreams(Vec<u64>);

impl SentStreams {
    /// Counts a sent frame of `stream`.
    #[inline]
    pub fn add(&mut self, stream: u16) {
        let stream = usize::from(stream);
        if stream >= self.0.len() {
            self.0.resize(stream + 1, 0);
        }
        self.0[stream] += 1;
    }

    /// Adds the frames of `other`.
    pub fn add_all(&mut self, other: &SentStreams) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(sent, more)| *sent += more);
    }

    /// A report with only the numbers sent.
    #[must_use]
    pub fn report(&self) -> Vec<StreamReport> {
        let sent = self.0.iter().enumerate().filter(|(_, sent)| **sent > 0);
        let report = |(stream, sent): (usize, &u64)| StreamReport {
            stream: stream as u16, // the index was a u16 when it was added
            sent: Some(*sent),
            received: None,
        };
        sent.map(report).collect()
    }
}

/// Counts the frames of streams by their stamps, in bounded memory, because anyone can send any number of streams.
#[derive(Debug)]
pub struct StreamMeter {
    /// The number of each stream received and its figures, in order of their first frames.
    streams: Vec<(u16, Figures)>,
    /// By stream number: its place in `streams` plus one; 0 for one that was not received. A tree costs more than all
    /// else that a frame takes.
    indices: Vec<u32>,
    /// Number of streams with full figures, and its limit.
    full: usize,
    most: usize,
    beyond: BeyondStreams,
}

/// Streams without their own figures, counted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct BeyondStreams {
    /// Number of streams.
    pub streams: u64,
    /// Number of their frames.
    pub frames: u64,
}

/// Number of recent frames in which duplicates are detected.
const WINDOW: u64 = 65_536;
/// A stream with at most this many frames takes some 100 bytes, a longer one 64 KiB.
const FEW: usize = 8;

#[derive(Debug)]
enum Figures {
    /// Number and delay of each frame so far.
    Few(Vec<(u32, i64)>),
    Full(Box<Stream>),
    Beyond,
}

impl Default for StreamMeter {
    fn default() -> Self {
        StreamMeter::at_most(usize::MAX)
    }
}

impl StreamMeter {
    /// A meter with separate figures for at most this many streams of more than 8 frames, and for all shorter ones.
    /// Other streams are counted together.
    #[must_use]
    pub fn at_most(limit: usize) -> Self {
        let (streams, indices) = (Vec::new(), Vec::new());
        StreamMeter { streams, indices, full: 0, most: limit, beyond: BeyondStreams::default() }
    }

    /// Records frame `sequence` of `stream`, sent at `departed_ns`, received at `arrived_ns`. False for a duplicate.
    pub fn record(&mut self, stream: u16, sequence: u32, departed_ns: u64, arrived_ns: u64) -> bool {
        let delay = arrived_ns.wrapping_sub(departed_ns).cast_signed();
        let index = self.index_of(stream);
        let figures = &mut self.streams[index].1;
        if let Figures::Full(known) = figures {
            return known.record(sequence, delay);
        }
        if let Figures::Few(frames) = figures {
            if frames.len() < FEW {
                let fresh = frames.iter().all(|(known, _)| *known != sequence);
                frames.push((sequence, delay));
                return fresh;
            }
            if self.full < self.most {
                self.full += 1;
                *figures = Figures::Full(Box::new(Stream::of(frames)));
            } else {
                self.beyond.streams += 1;
                self.beyond.frames += frames.len() as u64;
                *figures = Figures::Beyond;
            }
        }
        if let Figures::Full(known) = figures {
            return known.record(sequence, delay);
        }
        self.beyond.frames += 1;
        true
    }

    /// The place of a stream's figures, which are made for its first frame.
    #[inline]
    fn index_of(&mut self, stream: u16) -> usize {
        match self.indices.get(usize::from(stream)) {
            Some(index @ 1..) => *index as usize - 1,
            _ => self.add(stream, Figures::Few(Vec::new())),
        }
    }

    #[cold]
    fn add(&mut self, stream: u16, figures: Figures) -> usize {
        let number = usize::from(stream);
        if number >= self.indices.len() {
            self.indices.resize(number + 1, 0);
        }
        self.streams.push((stream, figures));
        self.indices[number] = self.streams.len() as u32; // at most 2^16
        self.streams.len() - 1
    }

    fn figures(&self, stream: u16) -> Option<&Figures> {
        let index = *self.indices.get(usize::from(stream))? as usize;
        index.checked_sub(1).map(|index| &self.streams[index].1)
    }

    /// Adds what another queue of the same port received. Counts, losses and delays are those of all frames together.
    /// Order, duplicates and IPDV are those within each queue, because the order of frames on different queues is
    /// unknown. Returns the number of streams that came on both.
    pub fn merge(&mut self, other: StreamMeter) -> u64 {
        let mut on_both = 0;
        for (stream, figures) in other.streams {
            if self.figures(stream).is_none() {
                self.full += usize::from(matches!(figures, Figures::Full(_)));
                self.add(stream, figures);
                continue;
            }
            on_both += 1;
            let index = self.index_of(stream);
            let own = std::mem::replace(&mut self.streams[index].1, Figures::Beyond);
            self.full += usize::from(!matches!(own, Figures::Full(_)));
            self.streams[index].1 = match (own.into_stream(), figures.into_stream()) {
                (Some(mut own), Some(other)) => {
                    own.merge(&other);
                    Figures::Full(own)
                }
                _ => Figures::Beyond,
            };
        }
        self.beyond.streams += other.beyond.streams;
        self.beyond.frames += other.beyond.frames;
        on_both
    }

    /// True if no stamp was seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Frames received, without duplicates.
    #[must_use]
    pub fn received(&self) -> u64 {
        let of = |figures: &Figures| match figures {
            Figures::Few(frames) => Stream::of(frames).received,
            Figures::Full(stream) => stream.received,
            Figures::Beyond => 0,
        };
        self.streams.iter().map(|(_, figures)| of(figures)).sum::<u64>() + self.beyond.frames
    }

    /// The streams that are counted together, if any.
    #[must_use]
    pub fn beyond(&self) -> Option<BeyondStreams> {
        Some(self.beyond).filter(|beyond| beyond.streams > 0)
    }

    /// The figures of each stream received, and of each stream in `sent`, except those that are counted together.
    #[must_use]
    pub fn report(&self, sent: &[StreamReport]) -> Vec<StreamReport> {
        let own = self.streams.iter().filter(|(_, figures)| !matches!(figures, Figures::Beyond));
        let mut numbers: Vec<u16> = own.map(|(number, _)| *number).chain(sent.iter().map(|sent| sent.stream)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let none = Stream::new(0, 0);
        let report = |stream: u16| {
            let sent = sent.iter().find(|sent| sent.stream == stream).and_then(|sent| sent.sent);
            let received = match self.figures(stream) {
                Some(Figures::Few(frames)) => Stream::of(frames).report(sent),
                Some(Figures::Full(known)) => known.report(sent),
                Some(Figures::Beyond) | None => none.report(sent),
            };
            StreamReport { stream, sent, received: Some(received) }
        };
        numbers.into_iter().map(report).collect()
    }
}

impl Figures {
    /// Full figures; `None` if the stream has none of its own.
    fn into_stream(self) -> Option<Box<Stream>> {
        match self {
            Figures::Few(frames) => Some(Box::new(Stream::of(&frames))),
            Figures::Full(stream) => Some(stream),
            Figures::Beyond => None,
        }
    }
}

#[derive(Debug)]
struct Stream {
    received: u64,
    duplicates: u64,
    reordered: u64,
    max_extent: u64,
    /// The lowest and highest number seen, unwrapped.
    lowest: u64,
    highest: u64,
    /// Bit set of recently received numbers, by number modulo the window.
    seen: Vec<u64>,
    /// Frames that were ahead of all before them.
    ahead: Ahead,
    delays: Delays,
    recent: Recent,
    ipdv: Counts,
    ipdv_moments: Moments,
}

/// Start of the unwrapped numbers, which leaves room for frames before the first one.
const ORIGIN: u64 = 1 << 33;

impl Stream {
    fn new(sequence: u32, delay: i64) -> Self {
        let first = ORIGIN + u64::from(sequence);
        Stream {
            received: 0,
            duplicates: 0,
            reordered: 0,
            max_extent: 0,
            lowest: first,
            highest: first - 1,
            seen: vec![0; (WINDOW / 64) as usize],
            ahead: Ahead::default(),
            delays: Delays::around(delay),
            recent: Recent::default(),
            ipdv: Counts::default(),
            ipdv_moments: Moments::default(),
        }
    }

    /// A stream with these frames, as numbers and delays in order of arrival.
    fn of(frames: &[(u32, i64)]) -> Self {
        let (sequence, delay) = frames.first().copied().unwrap_or_default();
        let mut stream = Stream::new(sequence, delay);
        for (sequence, delay) in frames {
            stream.record(*sequence, *delay);
        }
        stream
    }

    #[inline]
    fn record(&mut self, sequence: u32, delay: i64) -> bool {
        let off = sequence.wrapping_sub(self.highest as u32).cast_signed();
        let number = self.highest.saturating_add_signed(i64::from(off));
        if off == 1 {
            self.highest = number;
            self.mark(number);
            self.ahead.push(number, self.received);
        } else if !self.record_out_of_order(number) {
            return false;
        }
        self.received += 1;
        self.delays.record(delay);
        self.recent.keep(number, self.highest, delay);
        self.pair(number - 1, delay);
        if off != 1 {
            self.pair(number + 1, delay);
        }
        true
    }

    /// Records a frame that is not the next one. False for a duplicate.
    #[cold]
    fn record_out_of_order(&mut self, number: u64) -> bool {
        if number > self.highest {
            // The numbers in between have not arrived yet.
            for passed in (self.highest + 1..number).take(WINDOW as usize) {
                self.forget(passed);
            }
            self.highest = number;
            self.mark(number);
            self.ahead.push(number, self.received);
            return true;
        }
        if self.highest - number < WINDOW {
            if self.has(number) {
                self.duplicates += 1;
                return false;
            }
            self.mark(number);
        }
        self.reordered += 1;
        if let Some(index) = self.ahead.first_from(number) {
            self.max_extent = self.max_extent.max(self.received - index);
        }
        self.lowest = self.lowest.min(number);
        true
    }

    /// Records the difference between this delay and that of frame `neighbour`, if it arrived and is recent enough.
    #[inline]
    fn pair(&mut self, neighbour: u64, delay: i64) {
        let known = self.recent.get(neighbour, self.highest).filter(|_| self.has(neighbour));
        let Some(other) = known else { return };
        let difference = delay.saturating_sub(other).unsigned_abs();
        self.ipdv.count(difference, 1);
        self.ipdv_moments.add(i64::try_from(difference).unwrap_or(i64::MAX));
    }

    /// Adds the figures of the same stream on another queue.
    fn merge(&mut self, other: &Stream) {
        self.received += other.received;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.max_extent = self.max_extent.max(other.max_extent);
        self.lowest = self.lowest.min(other.lowest);
        self.highest = self.highest.max(other.highest);
        self.delays.merge(&other.delays);
        other.ipdv.buckets().for_each(|(difference, times)| self.ipdv.count(difference, times));
        self.ipdv_moments.merge(&other.ipdv_moments);
    }

    fn bit_position(number: u64) -> (usize, u64) {
        let bit = number % WINDOW;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    fn mark(&mut self, number: u64) {
        let (word, bit) = Self::bit_position(number);
        self.seen[word] |= bit;
    }

    fn forget(&mut self, number: u64) {
        let (word, bit) = Self::bit_position(number);
        self.seen[word] &= !bit;
    }

    fn has(&self, number: u64) -> bool {
        let (word, bit) = Self::bit_position(number);
        self.seen[word] & bit != 0
    }

    fn report(&self, sent: Option<u64>) -> ReceivedStream {
        let between = if self.received == 0 { 0 } else { self.highest + 1 - self.lowest };
        let all = sent.unwrap_or(between).max(self.received);
        let lost = all - self.received;
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
        ReceivedStream {
            received: self.received,
            lost,
            loss_ratio: share(lost, all),
            duplicates: self.duplicates,
            reordered: self.reordered,
            reorder_ratio: share(self.reordered, self.received),
            reorder_max_extent: self.max_extent,
            delay: (self.received > 0).then(|| self.delays.report()),
            pdv: (self.received > 0).then(|| self.delays.variation()),
            ipdv: (self.ipdv_moments.count() > 0).then(|| {
                let max_ns = self.ipdv_moments.max() as f64;
                // The upper end of a bucket may exceed every value in it.
                let quantile = |share| (self.ipdv.at_quantile(share) as f64).min(max_ns);
                let (p50, p99) = (quantile(0.5), quantile(0.99));
                IpdvReport {
                    count: self.ipdv_moments.count(),
                    mean_ns: self.ipdv_moments.mean(),
                    p50_ns: p50,
                    p99_ns: p99,
                    max_ns,
                }
            }),
        }
    }
}

/// The last frames that were ahead of all before them, as runs of consecutive numbers: frames in order are one run.
#[derive(Debug, Default)]
struct Ahead {
    runs: VecDeque<Run>,
    /// Frames in all runs.
    frames: u64,
}

/// Frames with consecutive numbers that arrived one after the other.
#[derive(Debug)]
struct Run {
    number: u64,
    /// The arrival index of the first.
    index: u64,
    frames: u64,
}

impl Ahead {
    /// Adds frame `number`, which arrived as number `index`.
    #[inline]
    fn push(&mut self, number: u64, index: u64) {
        self.frames += 1;
        match self.runs.back_mut() {
            Some(run) if run.number + run.frames == number && run.index + run.frames == index => run.frames += 1,
            _ => self.begin_run(number, index),
        }
    }

    #[cold]
    fn begin_run(&mut self, number: u64, index: u64) {
        self.runs.push_back(Run { number, index, frames: 1 });
        self.drop_early();
    }

    /// Drops all but the last frames, as many as the window has.
    fn drop_early(&mut self) {
        while let Some(first) = self.runs.front_mut().filter(|_| self.frames > WINDOW) {
            let dropped = first.frames.min(self.frames - WINDOW);
            (first.number, first.index, first.frames) =
                (first.number + dropped, first.index + dropped, first.frames - dropped);
            self.frames -= dropped;
            if first.frames == 0 {
                self.runs.pop_front();
            }
        }
    }

    /// The arrival index of the first frame with this number or a higher one.
    fn first_from(&mut self, number: u64) -> Option<u64> {
        self.drop_early();
        let run = self.runs.get(self.runs.partition_point(|run| run.number + run.frames <= number))?;
        Some(run.index + number.saturating_sub(run.number))
    }
}

/// Delays of recent numbers, so that consecutive frames are paired in any order of arrival. Pairs that arrived in order
/// alone would be biased towards those with little jitter.
#[derive(Debug)]
struct Recent {
    /// Indexed by number modulo the length, a power of two that grows with the lateness of frames.
    delays: Vec<i64>,
    /// Earlier numbers are not stored.
    from: u64,
}

impl Default for Recent {
    fn default() -> Self {
        const USUAL: usize = 1_024;
        Recent { delays: vec![0; USUAL], from: 0 }
    }
}

impl Recent {
    fn length(&self) -> u64 {
        self.delays.len() as u64
    }

    fn slot(&self, number: u64) -> usize {
        (number & (self.length() - 1)) as usize
    }

    /// Stores the delay of frame `number`; `highest` is the highest number so far.
    fn keep(&mut self, number: u64, highest: u64, delay: i64) {
        // The preceding frame is one further back.
        let reach = highest - number + 2;
        if (self.length() + 1..=WINDOW).contains(&reach) {
            let mut longer = Recent {
                delays: vec![0; reach.next_power_of_two() as usize],
                from: self.from.max(highest + 1 - self.length()),
            };
            for kept in longer.from..=highest {
                let slot = longer.slot(kept);
                longer.delays[slot] = self.delays[self.slot(kept)];
            }
            *self = longer;
        }
        if highest - number < self.length() {
            let slot = self.slot(number);
            self.delays[slot] = delay;
        }
    }

    /// The delay of frame `number`, if it arrived and is recent enough.
    fn get(&self, number: u64, highest: u64) -> Option<i64> {
        let kept = (self.from..=highest).contains(&number) && highest - number < self.length();
        kept.then(|| self.delays[self.slot(number)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[u32], sent: Option<u64>) -> ReceivedStream {
        let mut meter = StreamMeter::default();
        for number in numbers {
            meter.record(5, *number, 1_000, 2_000);
        }
        let sent: Vec<_> =
            sent.map(|sent| StreamReport { stream: 5, sent: Some(sent), received: None }).into_iter().collect();
        meter.report(&sent).remove(0).received.expect("a receiver")
    }

    #[test]
    fn counts_losses_duplicates_and_reordering() {
        let got = of(&[0, 1, 3, 2, 2, 7, 6, 5, 9], None);
        assert_eq!((got.received, got.lost, got.duplicates), (8, 2, 1));
        // 2 came one place after 3; 6 one and 5 two places after 7.
        assert_eq!((got.reordered, got.reorder_max_extent), (3, 2));
        assert_eq!(of(&[0, 1, 2], Some(5)).lost, 2, "the tail is known to the sender");
        assert_eq!(of(&[10, 11], None).lost, 0, "what was before the capture is not lost");
        assert_eq!(of(&[], Some(3)).lost, 3);
    }

    #[test]
    fn short_streams_have_the_figures_of_full_ones() {
        for count in [1, 7, 8, 9, 20] {
            let numbers: Vec<u32> = (0..count).map(|i| [0, 2, 1, 3, 3][i as usize % 5] + i / 5 * 5).collect();
            let mut meter = StreamMeter::default();
            let fresh: Vec<bool> = numbers.iter().map(|number| meter.record(5, *number, 1_000, 2_000)).collect();
            let mut stream = Stream::new(numbers[0], 1_000);
            let expected: Vec<bool> = numbers.iter().map(|number| stream.record(*number, 1_000)).collect();
            assert_eq!(fresh, expected);
            assert_eq!(meter.received(), stream.received);
            let report = meter.report(&[]).remove(0).received.expect("a receiver");
            assert_eq!(serde_json::to_string(&report).ok(), serde_json::to_string(&stream.report(None)).ok());
        }
    }

    #[test]
    fn streams_beyond_the_limit_are_counted_together() {
        let mut meter = StreamMeter::at_most(2);
        for number in 0..20_u32 {
            for stream in 0..5 {
                assert!(meter.record(stream, number, 0, 10));
            }
        }
        meter.record(9, 0, 0, 10);
        let numbers: Vec<u16> = meter.report(&[]).iter().map(|report| report.stream).collect();
        assert_eq!(numbers, [0, 1, 9], "a short stream has figures of its own");
        assert_eq!(meter.beyond(), Some(BeyondStreams { streams: 3, frames: 60 }));
        assert_eq!(meter.received(), 101);
    }

    /// Frames that a NIC dealt to queues: flows of one stream on two of them, and a stream on one.
    #[test]
    fn queues_together_have_the_figures_of_all_frames() {
        let (mut all, mut even, mut odd) = (StreamMeter::default(), StreamMeter::default(), StreamMeter::default());
        for number in (0..4_000_u32).filter(|number| number % 100 != 7) {
            let (departed, arrived) =
                (u64::from(number) * 1_000, u64::from(number) * 1_000 + 5_000 + u64::from(number % 13));
            all.record(3, number, departed, arrived);
            let queue = if number.is_multiple_of(2) { &mut even } else { &mut odd };
            assert!(queue.record(3, number, departed, arrived));
        }
        for number in 0..5 {
            all.record(8, number, 0, 70);
            odd.record(8, number, 0, 70);
        }
        assert_eq!(even.merge(odd), 1, "stream 3 came on both");
        assert_eq!(even.received(), all.received());
        let sent = [StreamReport { stream: 3, sent: Some(4_000), received: None }];
        for (merged, whole) in even.report(&sent).into_iter().zip(all.report(&sent)) {
            let (merged, whole) = (merged.received.expect("a receiver"), whole.received.expect("a receiver"));
            assert_eq!((merged.received, merged.lost, merged.reordered), (whole.received, whole.lost, 0));
            let json = |figures: &Option<DelayFigures>| serde_json::to_string(figures).ok();
            assert_eq!(json(&merged.delay), json(&whole.delay));
        }
        assert_eq!(even.report(&sent)[1].received.as_ref().map(|got| got.received), Some(5));
    }

    #[test]
    fn unwraps_numbers_after_2_to_the_32() {
        let got = of(&[u32::MAX - 1, u32::MAX, 0, 2, 1], None);
        assert_eq!((got.received, got.lost, got.reordered, got.duplicates), (5, 0, 1, 0));
    }

    /// 2³³ frames of one stream: the numbers wrap twice, and most frames are lost here.
    #[test]
    fn counts_2_to_the_33_frames() {
        const STRIDE: u64 = 1 << 30;
        let mut numbers: Vec<u32> = (0..=8_u64).map(|i| (i * STRIDE) as u32).collect();
        let got = of(&numbers, None);
        assert_eq!((got.received, got.lost, got.reordered), (9, 8 * STRIDE + 1 - 9, 0));
        // At the end of the second round: one frame late by a place, and one duplicate.
        numbers.extend([2, 1, 2]);
        let got = of(&numbers, Some(8 * STRIDE + 3));
        assert_eq!((got.received, got.lost, got.reordered, got.duplicates), (11, 8 * STRIDE + 3 - 11, 1, 1));
        assert_eq!(got.reorder_max_extent, 1);
    }

    #[test]
    fn computes_the_extent_of_rfc_4737() {
        // Section 4.2.3: 1 2 3 7 8 4 5 6 9 has extents 2, 3 and 4.
        assert_eq!(of(&[1, 2, 3, 7, 8, 4, 5, 6, 9], None).reorder_max_extent, 4);
    }

    #[test]
    fn detects_duplicates_within_the_window() {
        let mut numbers: Vec<u32> = (0..70_000).collect();
        numbers.extend([69_999, 69_999 - 65_535, 0]);
        let got = of(&numbers, None);
        assert_eq!((got.received, got.duplicates), (70_001, 2), "what is older is taken for late");
    }

    #[test]
    fn no_quantile_exceeds_the_maximum() {
        let mut meter = StreamMeter::default();
        for (number, delay) in [(0, 1_000), (1, 20_300)] {
            meter.record(0, number, 0, delay);
        }
        let ipdv = meter.report(&[]).remove(0).received.and_then(|got| got.ipdv).expect("a pair");
        assert_eq!((ipdv.p50_ns, ipdv.p99_ns, ipdv.max_ns), (19_300.0, 19_300.0, 19_300.0));
    }

    #[test]
    fn pairs_consecutive_frames_in_any_order() {
        let of = |frames: &[(u32, u64)]| {
            let mut meter = StreamMeter::default();
            for (number, delay) in frames {
                meter.record(0, *number, 0, *delay);
            }
            let ipdv = meter.report(&[]).remove(0).received.and_then(|got| got.ipdv).expect("a pair");
            (ipdv.count, ipdv.mean_ns.round() as u64, ipdv.max_ns as u64)
        };
        // Differences of 100, 300 and 500; 7 has no neighbour, and a duplicate adds nothing.
        let sent = [(0, 1_000), (1, 1_100), (2, 800), (3, 1_300), (7, 9_000)];
        for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [0, 2, 4, 1, 3]] {
            assert_eq!(of(&order.map(|i| sent[i])), (3, 300, 500), "{order:?}");
        }
        assert_eq!(of(&[sent[0], sent[2], sent[1], sent[0], sent[3]]), (3, 300, 500));
        // Every second frame arrives 5 000 frames later, with 50 µs more. All differences are 50 µs, except those of
        // frames that arrived before the lateness was known.
        let mut late: Vec<(u32, u64)> =
            (0..40_000).map(|i: u32| (i, if i.is_multiple_of(2) { 1_000 } else { 51_000 })).collect();
        late.sort_by_key(|(number, delay)| if *delay > 1_000 { number + 5_000 } else { *number });
        let (count, mean, max) = of(&late);
        assert!((30_000..40_000).contains(&count) && mean == 50_000 && max == 50_000, "{count} {mean} {max}");
        // Within the initial length, no frame is left out.
        late.sort_by_key(|(number, delay)| if *delay > 1_000 { number + 1_000 } else { *number });
        assert_eq!(of(&late), (39_999, 50_000, 50_000));
    }

    #[test]
    fn computes_delays_and_their_variation() {
        let mut meter = StreamMeter::default();
        for i in 0..1_000_u64 {
            // 5 µs, every tenth frame 15 µs; the receiver's clock is 1 s behind.
            let delay = if i % 10 == 9 { 15_000 } else { 5_000 };
            meter.record(0, i as u32, 2_000_000_000 + i * 100_000, 1_000_000_000 + i * 100_000 + delay);
        }
        let got = meter.report(&[]).remove(0).received.expect("a receiver");
        let near = |value: f64, expected: f64| (value - expected).abs() <= expected.abs() * 1e-3;
        let (delay, pdv) = (got.delay.as_ref().expect("frames came"), got.pdv.as_ref().expect("frames came"));
        assert!(near(delay.min_ns, -999_995_000.0) && near(delay.mean_ns, -999_994_000.0), "{got:?}");
        assert!(near(pdv.p50_ns, 0.0) && near(pdv.p99_ns, 10_000.0) && near(pdv.max_ns, 10_000.0), "{got:?}");
        assert!(near(pdv.p999_ns, 10_000.0), "{got:?}");
        let ipdv = got.ipdv.expect("pairs");
        assert_eq!(ipdv.count, 999);
        assert!(
            near(ipdv.mean_ns, 10_000.0 * 199.0 / 999.0)
                && near(ipdv.p50_ns, 0.0)
                && near(ipdv.p99_ns, 10_000.0)
                && near(ipdv.max_ns, 10_000.0)
        );
    }
}
