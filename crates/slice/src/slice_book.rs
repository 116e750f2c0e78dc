//! Statistics over many frames.

use crate::costs::Costs;
use crate::record::{Ended, Flow, Point, Record};
use crate::slices::{self, Part, Slice};
use hdrhistogram::Histogram;
use measure::slices::{SliceFigures, SliceTimes};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// One slice over all frames.
#[derive(Clone, Debug, Serialize)]
pub struct SliceReport {
    /// Its times, minus the cost of the probes.
    #[serde(flatten)]
    pub figures: SliceFigures,
    /// Mean as stamped.
    pub raw_mean_ns: f64,
}

/// How often an event occurred in a slice, on the CPU of the slice's two stamps, in any program that ran there.
#[derive(Clone, Debug, Serialize)]
pub struct Counted {
    /// The slice.
    pub name: &'static str,
    /// Occurrences of the slice that were counted: those with both stamps on one CPU.
    pub count: u64,
    /// Events per occurrence, minus the events of the probes: formulas (2) and (4).
    pub mean: f64,
    /// As counted.
    pub raw_mean: f64,
}

/// Round trips at user level: from one send call of a conversation's first sender to its next.
#[derive(Clone, Debug, Serialize)]
pub struct Loop {
    /// Rounds.
    pub count: u64,
    /// Mean, minus the cost of the probes per round.
    pub mean_ns: f64,
    /// Median, minus the cost of the probes per round.
    pub p50_ns: f64,
    /// Mean as stamped.
    pub raw_mean_ns: f64,
    /// Median as stamped.
    pub raw_p50_ns: f64,
}

impl Loop {
    /// The report of these rounds, if there were any. `raw` has the rounds as stamped.
    pub(crate) fn of(rounds: &Tally, raw: &Histogram<u64>) -> Option<Loop> {
        let SliceTimes { count, mean_ns, p50_ns, raw_mean_ns, .. } = rounds.total();
        let raw_p50_ns = raw.value_at_quantile(0.5) as f64;
        (count > 0).then_some(Loop { count, mean_ns, p50_ns, raw_mean_ns, raw_p50_ns })
    }
}

/// Counters of frames; seen = matched + lost. Datagrams that the kernel handles as one packet count individually.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Packets {
    /// Frames with payload that were traced and match the filter.
    pub seen: u64,
    /// Traced to the application, or out of the machine.
    pub matched: u64,
    /// Not traced to an end, for one of the three reasons below.
    pub lost: u64,
    /// Lost: the buffer appeared at the start of another journey, so the frame was dropped, merged with another or
    /// copied.
    pub reused: u64,
    /// Part of `reused`: packets that the receiver's TCP had taken. TCP merges data that waits at a socket into the
    /// buffer of the packet before, from which the program reads it. Data that no program read is counted here, too.
    pub arrived: u64,
    /// Lost: another frame needed the slot, or the ring of records was full.
    pub evicted: u64,
    /// Lost: in flight at the end of the run or of a window.
    pub unfinished: u64,
    /// Matched frames that left outside a traced send call. The cause is unknown: an acknowledgement, a timer, or
    /// another call such as setsockopt or io_uring.
    pub without_call: u64,
    /// Matched frames first seen on arrival: they came from outside, or a queue split them off a longer packet.
    pub without_sender: u64,
}

/// An empty histogram that grows to any value.
pub(crate) fn growing() -> Histogram<u64> {
    let mut histogram = Histogram::new(3).expect("one to five digits are possible");
    histogram.auto(true);
    histogram
}

pub(crate) struct Tally {
    raw: f64,
    net: f64,
    squares: f64,
    quantiles: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        Tally { raw: 0.0, net: 0.0, squares: 0.0, quantiles: growing() }
    }

    pub(crate) fn count(&mut self, raw: f64, net: f64) {
        self.count_times(raw, net, 1);
    }

    /// Counts the same times for each of `times` frames.
    fn count_times(&mut self, raw: f64, net: f64, times: u16) {
        let n = f64::from(times);
        self.raw += n * raw;
        self.net += n * net;
        self.squares += n * net * net;
        let value = net.max(0.0).round() as u64;
        self.quantiles.record_n(value, times.into()).expect("the histogram grows to any value");
    }

    pub(crate) fn len(&self) -> u64 {
        self.quantiles.len()
    }

    pub(crate) fn mean(&self) -> f64 {
        self.net / self.len().max(1) as f64
    }

    pub(crate) fn total(&self) -> SliceTimes {
        let frames = self.len().max(1) as f64;
        let mean = self.mean();
        let variance = (self.squares / frames - mean * mean).max(0.0);
        SliceTimes {
            count: self.len(),
            mean_ns: mean,
            p50_ns: self.quantile(0.5),
            p99_ns: self.quantile(0.99),
            cv: if mean > 0.0 { variance.sqrt() / mean } else { 0.0 },
            raw_mean_ns: self.raw / frames,
        }
    }

    pub(crate) fn quantile(&self, of_one: f64) -> f64 {
        self.quantiles.value_at_quantile(of_one) as f64
    }
}

/// Counts of one event in one slice.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    raw: f64,
    net: f64,
}

impl Sum {
    fn add(&mut self, (raw, net): (f64, f64), times: u16) {
        self.count += u64::from(times);
        self.raw += f64::from(times) * raw;
        self.net += f64::from(times) * net.max(0.0);
    }
}

/// Both ends of a conversation, the smaller address first.
type Ends = [(IpAddr, u16); 2];

struct Conversation {
    /// The end that sent first.
    first: (IpAddr, u16),
    /// Time of the first sender's last call, and the cost of the probes since then.
    last: Option<u64>,
    added: f64,
}

/// Collects records.
pub struct SliceBook {
    /// Costs as calibrated, and costs at the machine's present pace.
    calibrated: Costs,
    costs: Costs,
    /// Sum of the paces of the matched frames.
    paces: f64,
    pace: f64,
    slices: BTreeMap<Slice, Tally>,
    total: Tally,
    added: f64,
    packets: Packets,
    conversations: HashMap<Ends, Conversation>,
    rounds: Tally,
    raw_rounds: Histogram<u64>,
    /// By event and slice.
    counted: BTreeMap<(usize, Slice), Sum>,
}

impl SliceBook {
    /// A book that subtracts these costs.
    #[must_use]
    pub fn new(costs: Costs) -> SliceBook {
        SliceBook {
            calibrated: costs.clone(),
            costs,
            paces: 0.0,
            pace: 1.0,
            slices: BTreeMap::new(),
            total: Tally::new(),
            added: 0.0,
            packets: Packets::default(),
            conversations: HashMap::new(),
            rounds: Tally::new(),
            raw_rounds: growing(),
            counted: BTreeMap::new(),
        }
    }

    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        let times = record.packets;
        let packets = u64::from(times);
        self.packets.seen += packets;
        if !record.matched() {
            self.packets.lost += packets;
            match record.ended {
                Ended::Evicted => self.packets.evicted += packets,
                Ended::Unfinished => self.packets.unfinished += packets,
                _ => {
                    self.packets.reused += packets;
                    self.packets.arrived += if record.reached_tcp() { packets } else { 0 };
                }
            }
            return;
        }
        self.packets.matched += packets;
        self.paces += f64::from(times) * self.pace;
        let parts = slices::parts(record, &self.costs);
        // A finer stamp may split one slice of a frame into pieces. They count as one occurrence.
        let mut whole: Option<(Slice, f64, f64)> = None;
        for Part { slice, raw, net, .. } in &parts {
            whole = match whole.take() {
                Some((same, a, b)) if same == *slice => Some((same, a + *raw as f64, b + net)),
                other => {
                    self.note(other, times);
                    Some((*slice, *raw as f64, *net))
                }
            };
        }
        self.note(whole, times);
        for Part { slice, raw, net, .. } in slices::details(record, &self.costs) {
            self.note(Some((slice, raw as f64, net)), times);
        }
        for event in 0..self.costs.events.len() {
            self.count(record, event);
        }
        let net: f64 = parts.iter().map(|part| part.net).sum();
        self.total.count_times(record.whole() as f64, net, times);
        self.added += f64::from(times) * (record.whole() as f64 - net);
        let begins = |point| matches!(point, Point::SendEnter | Point::TcpSend);
        let started = record.stamps.first().filter(|first| begins(first.point));
        match started {
            Some(first) => self.round(record, first.at),
            None if record.stamps.first().is_some_and(|first| first.point == Point::Queue) => {
                // With few points there is no stamp of the call, but its process is known.
                self.packets.without_call += if record.sender[0] == 0 { packets } else { 0 };
            }
            None => self.packets.without_sender += packets,
        }
    }

    fn note(&mut self, part: Option<(Slice, f64, f64)>, times: u16) {
        if let Some((slice, raw, net)) = part {
            self.slices.entry(slice).or_insert_with(Tally::new).count_times(raw, net, times);
        }
    }

    /// Counts an event in the slices of a frame. If a slice has pieces, all their counts must be known.
    fn count(&mut self, record: &Record, event: usize) {
        let piece = |n: usize| {
            let raw = record.counted(n, event)? as f64;
            Some((raw, raw - self.costs.added(record, n, event)))
        };
        let mut found: Vec<(Slice, Option<(f64, f64)>)> = Vec::new();
        for (n, part) in slices::parts(record, &self.costs).iter().enumerate() {
            match found.last_mut().filter(|(slice, _)| *slice == part.slice) {
                Some((_, whole)) => *whole = whole.zip(piece(n)).map(|((a, b), (raw, net))| (a + raw, b + net)),
                None => found.push((part.slice, piece(n))),
            }
        }
        found.extend(slices::details(record, &self.costs).iter().map(|part| (part.slice, piece(part.from))));
        for (slice, counts) in found {
            if let Some(counts) = counts {
                self.counted.entry((event, slice)).or_default().add(counts, record.packets);
            }
        }
    }

    /// The counts of an event per slice, in path order.
    #[must_use]
    pub fn counted(&self, event: usize) -> Vec<Counted> {
        let report = |((_, slice), sum): (&(usize, Slice), &Sum)| Counted {
            name: slice.name(),
            count: sum.count,
            mean: sum.net / sum.count as f64,
            raw_mean: sum.raw / sum.count as f64,
        };
        self.counted.iter().filter(|((of, _), _)| *of == event).map(report).collect()
    }

    fn round(&mut self, record: &Record, at: u64) {
        let Flow { source, source_port, destination, destination_port, .. } = record.flow;
        let (from, to) = ((source, source_port), (destination, destination_port));
        let ends = if from <= to { [from, to] } else { [to, from] };
        let added = self.costs.whole(record);
        let conversation =
            self.conversations.entry(ends).or_insert(Conversation { first: from, last: None, added: 0.0 });
        // Packets of one call belong to one round, at the cost of all of them.
        if conversation.first == from && conversation.last.is_none_or(|last| last < at) {
            if let Some(last) = conversation.last {
                let raw = at - last;
                self.rounds.count(raw as f64, (raw as f64 - conversation.added).max(0.0));
                self.raw_rounds.record(raw).expect("the histogram grows to any value");
            }
            conversation.last = Some(at);
            conversation.added = 0.0;
        }
        conversation.added += added;
    }

    /// Sets the cost of the probes to `pace` times the calibrated cost from now on:
    /// [`Kernel::pace`](crate::Kernel::pace).
    pub fn at_pace(&mut self, pace: f64) {
        self.pace = pace;
        self.costs = self.calibrated.at_pace(pace);
    }

    /// The mean pace over the matched frames.
    #[must_use]
    pub fn pace(&self) -> f64 {
        if self.packets.matched > 0 { self.paces / self.packets.matched as f64 } else { 1.0 }
    }

    /// The calibrated cost of the probes.
    #[must_use]
    pub fn calibrated(&self) -> &Costs {
        &self.calibrated
    }

    /// Starts a new window. Nothing was traced between the windows, so no round spans the gap.
    pub fn window(&mut self) {
        self.conversations.clear();
    }

    /// Adds frames of which only the number is known: they were in flight when the probes were detached.
    pub fn given_up(&mut self, frames: u64) {
        self.packets.seen += frames;
        self.packets.lost += frames;
        self.packets.unfinished += frames;
    }

    /// Adds frames of which only the number is known: they did not fit into the ring.
    pub fn lost_records(&mut self, frames: u64) {
        self.packets.seen += frames;
        self.packets.lost += frames;
        self.packets.evicted += frames;
    }

    /// Frame counters so far.
    #[must_use]
    pub fn packets(&self) -> &Packets {
        &self.packets
    }

    /// The costs that are subtracted now.
    #[must_use]
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// The mean cost that was subtracted from a frame's total, in ns.
    #[must_use]
    pub fn added_ns(&self) -> f64 {
        self.added / self.total.len().max(1) as f64
    }

    /// The slices that occurred, in path order.
    #[must_use]
    pub fn slices(&self) -> Vec<SliceReport> {
        let whole = self.total();
        let report = |(slice, tally): (&Slice, &Tally)| {
            let all = tally.total();
            SliceReport { figures: all.slice(slice.name(), slice.top(), &whole), raw_mean_ns: all.raw_mean_ns }
        };
        self.slices.iter().map(report).collect()
    }

    /// A frame's whole path, over all matched frames, minus the cost of the probes.
    #[must_use]
    pub fn total(&self) -> SliceTimes {
        self.total.total()
    }

    /// Round trips, if there were any.
    #[must_use]
    pub fn rounds(&self) -> Option<Loop> {
        Loop::of(&self.rounds, &self.raw_rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::EventCost;
    use crate::costs::tests::costs;
    use crate::record::tests::record;

    fn frame(at: u64, back: bool) -> Record {
        let mut record = record(&[
            (Point::SendEnter, at),
            (Point::Queue, at + 1_000),
            (Point::Transmit, at + 1_500),
            (Point::Arrive, at + 1_700),
            (Point::Receive, at + 2_000),
        ]);
        if back {
            std::mem::swap(&mut record.flow.source_port, &mut record.flow.destination_port);
        }
        record
    }

    #[test]
    fn top_slices_sum_to_the_total() {
        let mut book = SliceBook::new(costs());
        for n in 0..100 {
            book.add(&frame(n * 10_000, false));
        }
        let total = book.total();
        let figures = book.slices().into_iter().map(|slice| slice.figures);
        let top: Vec<SliceFigures> = figures.filter(|slice| slice.top).collect();
        let sum: f64 = top.iter().map(|slice| slice.mean_ns * slice.per_packet).sum();
        assert!((sum - total.mean_ns).abs() < 1e-6, "{sum} {total:?}");
        assert!((total.raw_mean_ns - 2_000.0).abs() < 1e-9);
        assert!((book.added_ns() - (2_000.0 - total.mean_ns)).abs() < 1e-9);
        let shares: f64 = top.iter().map(|slice| slice.total_ratio).sum();
        assert!((shares - 1.0).abs() < 1e-9);
    }

    #[test]
    fn event_counts_exclude_the_probes_on_one_cpu() {
        let mut costs = costs();
        costs.events = vec![EventCost { event: "cycles".to_owned(), beta: 20.0, inside: 10.0, gamma: 0.0 }];
        let mut book = SliceBook::new(costs);
        let mut record = frame(0, false);
        record.counts = [1_000, 1_500, 1_700, 1_705, 2_000].map(|count| vec![Some(count)]).to_vec();
        book.add(&record);
        let counted = book.counted(0);
        let of = |name: &str| counted.iter().find(|counted| counted.name == name).map(|of| (of.count, of.mean));
        assert_eq!(of("syscall-tcp-ip"), Some((1, 490.0)), "formula (2)");
        assert_eq!(of("driver"), Some((1, 0.0)), "not below nothing");
        assert_eq!(of("receive-softirq"), Some((1, 275.0)), "another program ran there, too");
        // The next softirq runs on another CPU, which has its own counter.
        record.stamps[4].cpu = 1;
        record.counts[1][0] = None;
        book.add(&record);
        let counted = book.counted(0);
        let count = |name: &str| counted.iter().find(|counted| counted.name == name).map(|of| of.count);
        assert_eq!((count("receive-softirq"), count("driver")), (Some(1), Some(2)));
        assert_eq!((count("syscall-tcp-ip"), count("link")), (Some(1), Some(1)), "one was not read");
    }

    #[test]
    fn round_trips_exclude_the_cost_of_both_frames() {
        let mut book = SliceBook::new(costs());
        for n in 0..10 {
            book.add(&frame(n * 10_000, false));
            book.add(&frame(n * 10_000 + 5_000, true));
        }
        let rounds = book.rounds().expect("there are rounds");
        let cost = 2.0 * costs().whole(&frame(0, false));
        assert_eq!(rounds.count, 9);
        assert!((rounds.raw_mean_ns - 10_000.0).abs() < 1e-9);
        assert!((rounds.mean_ns - (10_000.0 - cost)).abs() < 1e-6, "{rounds:?} {cost}");
    }

    #[test]
    fn a_call_that_sends_several_packets_begins_one_round() {
        let mut book = SliceBook::new(costs());
        for n in 0..10 {
            book.add(&frame(n * 10_000, false));
            book.add(&frame(n * 10_000, false));
            book.add(&frame(n * 10_000 + 5_000, true));
        }
        let rounds = book.rounds().expect("there are rounds");
        let cost = 3.0 * costs().whole(&frame(0, false));
        assert_eq!(rounds.count, 9);
        assert!((rounds.mean_ns - (10_000.0 - cost)).abs() < 1e-6, "{rounds:?} {cost}");
    }

    #[test]
    fn datagrams_that_are_one_packet_count_one_by_one() {
        let mut book = SliceBook::new(costs());
        book.add(&Record { packets: 10, ..frame(0, false) });
        book.add(&Record { packets: 3, ended: Ended::Reused, ..frame(10_000, false) });
        book.add(&frame(20_000, false));
        let packets = book.packets();
        assert_eq!((packets.seen, packets.matched, packets.lost, packets.reused), (14, 11, 3, 3));
        assert_eq!((book.total().count, book.slices()[0].figures.count), (11, 11));
        assert!((book.total().raw_mean_ns - 2_000.0).abs() < 1e-9);
        assert_eq!(book.rounds().map(|rounds| rounds.count), Some(1), "one call, one round");
    }

    #[test]
    fn untraced_frames_are_counted_by_reason() {
        let mut book = SliceBook::new(Costs::default());
        for ended in [Ended::Reused, Ended::Evicted, Ended::Unfinished, Ended::Followed, Ended::Sent] {
            book.add(&Record { ended, ..frame(0, false) });
        }
        let mut gone = frame(0, false);
        gone.ended = Ended::Reused;
        gone.stamps.truncate(3);
        gone.stamps.push(crate::Stamp { point: Point::TransmitDone, at: 9_000, cpu: 0 });
        book.add(&gone);
        let mut arrived = frame(0, false);
        arrived.stamps.drain(..3);
        book.add(&arrived);
        // Merged with another in the queue of the receiver's socket.
        let mut merged = frame(0, false);
        merged.ended = Ended::Reused;
        merged.stamps.truncate(2);
        merged.stamps.push(crate::Stamp { point: Point::TcpReceive, at: 9_000, cpu: 0 });
        book.add(&merged);
        book.lost_records(2);
        let packets = book.packets();
        assert_eq!((packets.seen, packets.matched, packets.lost), (10, 4, 6));
        assert_eq!((packets.without_call, packets.without_sender), (0, 1));
        assert_eq!((packets.reused, packets.evicted, packets.unfinished), (2, 3, 1));
        assert_eq!(packets.arrived, 1);
    }
}
