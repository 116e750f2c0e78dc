//! Slices of a pipeline: where sampled frames spend their time, from their arrival to the driver.

mod column;
mod end_to_end;
mod text;

use crate::ns;
use column::{Column, Part, Times};
use serde::Serialize;
use units::{Span, Time};

pub use end_to_end::{EndToEnd, EndToEndMeter};
pub use text::waterfall;

/// A boundary between two slices of a frame's way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// When the frame was there.
    pub at: Time,
    /// When it should have been there, by what stages and schedule decided.
    pub intended: Time,
}

/// Slices of one pipeline or class.
#[derive(Clone, Debug, Serialize)]
pub struct PipelineSlices {
    /// One frame in so many is followed.
    pub every: u64,
    /// What became of the frames that were followed.
    pub packets: SlicedPackets,
    /// The slices in the order of the way; they do not overlap, and sum to the total.
    pub slices: Vec<PipelineSlice>,
    /// From the arrival to the end of the hand-over to the driver.
    pub total: SliceTimes,
    /// What the measuring cost.
    pub overhead: SliceOverhead,
    /// The port does not tell how long frames were in its ring: their way begins at the look that found them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ring_untold: bool,
    /// Of the first frames the one whose way is nearest to the median.
    pub typical: Vec<SlicePart>,
}

/// What became of the frames that were followed; seen = matched + lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlicedPackets {
    /// Frames that were followed from their arrival.
    pub seen: u64,
    /// Those that departed.
    pub matched: u64,
    /// Those that did not: dropped by a stage, or held at the end.
    pub lost: u64,
}

/// One slice over all packets that had it, in ns; less what the measuring cost.
#[derive(Clone, Debug, Serialize)]
pub struct SliceFigures {
    /// Which.
    pub name: String,
    /// How often it came.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// Coefficient of variation: standard deviation ÷ mean.
    pub cv: f64,
    /// Share of the total of all packets.
    pub share: f64,
    /// One of those that do not overlap and sum to the total.
    pub top: bool,
    /// Occurrences per packet whose whole way is known.
    pub per_packet: f64,
}

impl SliceFigures {
    /// The name as it stands in a table: what overlaps with others is marked.
    #[must_use]
    pub fn shown(&self) -> String {
        if self.top { self.name.clone() } else { format!("· {}", self.name) }
    }
}

/// One slice of a pipeline: `ring`, `rx`, the name of a stage, `queueing`, `pacer` or `tx`.
#[derive(Clone, Debug, Serialize)]
pub struct PipelineSlice {
    /// What it was.
    #[serde(flatten)]
    pub figures: SliceFigures,
    /// Mean of what the stage or schedule meant it to be.
    pub intended_mean_ns: f64,
    /// What it was, less what it was meant to be.
    pub error: SliceError,
    /// Mean as stamped.
    pub raw_mean_ns: f64,
}

/// What a slice was, less what it was meant to be, in ns. `mean_ns` is signed, the rest is of the absolute error.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SliceError {
    /// Signed mean.
    pub mean_ns: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max_ns: f64,
}

/// How long a slice took, or a whole way from first to last stamp, in ns; less what the measuring cost.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "as those of a slice")]
pub struct SliceTimes {
    pub count: u64,
    pub mean_ns: f64,
    pub p50_ns: f64,
    pub p99_ns: f64,
    pub cv: f64,
    /// Mean as stamped.
    pub raw_mean_ns: f64,
}

impl SliceTimes {
    /// The figures of the slice that took this, a part of `whole`; `top` where it overlaps with no other such.
    #[must_use]
    pub fn slice(&self, name: &str, top: bool, whole: &SliceTimes) -> SliceFigures {
        let SliceTimes { count, mean_ns, p50_ns, p99_ns, cv, .. } = *self;
        let per_packet = count as f64 / whole.count.max(1) as f64;
        // Of what took no time, or ended before its time, nothing has a share.
        let share = if whole.mean_ns > 0.0 { mean_ns * per_packet / whole.mean_ns } else { 0.0 };
        SliceFigures { name: name.to_owned(), count, mean_ns, p50_ns, p99_ns, cv, share, top, per_packet }
    }
}

/// What measuring costs, in ns; 0 in virtual time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SliceOverhead {
    /// One reading of the clock: what lies between two stamps of it, τo.
    pub tau_o_ns: f64,
    /// What was subtracted from a frame's total, on the mean.
    pub per_packet_ns: f64,
}

/// A slice of one frame, in ns.
#[derive(Clone, Debug, Serialize)]
pub struct SlicePart {
    /// Which.
    pub name: String,
    /// Where it begins, from the arrival on.
    pub start_ns: f64,
    /// How long it was.
    pub length_ns: f64,
    /// How long it was meant to be.
    pub intended_ns: f64,
}

/// What a slice of a pipeline is, by its name.
#[must_use]
pub fn meaning(name: &str) -> &'static str {
    match name {
        RING => "in the port's ring, until the look at the port that found the frame",
        "rx" => "from the look at the port that found the frame to the first stage",
        "queueing" => "ready, behind frames that depart before it",
        "pacer" => "first in its queue, until its departure",
        "tx" => "the hand-over to the driver",
        _ => "held by the stage",
    }
}

/// The slice before a frame was looked for, where the port tells when it came.
pub const RING: &str = "ring";

/// Frames of which one is shown.
const FIRST: usize = 1_000;

/// So many ways are counted together at most. Counting touches some 50 lines of memory, which are far from the CPU when
/// frames are followed seldom; more at a time would keep the frames behind them waiting for more than about 1 µs.
pub const TOGETHER: usize = 32;

/// Gathers the ways of frames.
#[derive(Clone)]
pub struct SliceMeter {
    names: Vec<String>,
    every: u64,
    /// What a reading of the clock takes.
    reading: Span,
    /// Whether the port of the frames tells how long they were in its ring, if they come from a port.
    ring: Option<bool>,
    seen: u64,
    slices: Vec<Column>,
    total: Times,
    /// Marks of the first ways, one after the other.
    first: Vec<Mark>,
}

impl SliceMeter {
    /// A meter of slices with these names, of which a frame has one mark more; one frame in `every` is followed.
    #[must_use]
    pub fn new(names: Vec<String>, every: u64) -> SliceMeter {
        let slices = names.iter().map(|_| Column::default()).collect();
        let marks = names.len() + 1;
        SliceMeter {
            every,
            reading: Span::ZERO,
            ring: None,
            seen: 0,
            slices,
            total: Times::default(),
            first: Vec::with_capacity(FIRST * marks),
            names,
        }
    }

    /// Frames come from a port. Where it tells how long each was in its ring, that is a slice ahead of the others.
    pub fn come_from_port(&mut self, tells: bool) {
        let ring = tells.then(|| RING.to_owned());
        let names = ring.into_iter().chain(std::mem::take(&mut self.names)).collect();
        let reading = self.reading;
        *self = SliceMeter { ring: Some(tells), ..SliceMeter::new(names, self.every) };
        if reading > Span::ZERO {
            self.in_real_time(reading);
        }
    }

    /// Time is real: each mark from that before the first stage on takes `reading`, and there is room for all that may come, so that no frame
    /// waits for it.
    pub fn in_real_time(&mut self, reading: Span) {
        self.reading = reading;
        self.slices.iter_mut().for_each(Column::at_hand);
        self.total.at_hand();
    }

    /// Whether frames wait for nobody: time is real.
    #[must_use]
    pub fn is_real_time(&self) -> bool {
        self.reading > Span::ZERO
    }

    /// A meter of the same slices, of which nothing was seen.
    #[must_use]
    pub fn another(&self) -> SliceMeter {
        let mut other = SliceMeter { ring: self.ring, ..SliceMeter::new(self.names.clone(), self.every) };
        if self.is_real_time() {
            other.in_real_time(self.reading);
        }
        other
    }

    /// Names of the slices.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// A frame began to be followed.
    #[inline]
    pub fn seen(&mut self) {
        self.seen += 1;
    }

    /// What a reading adds to slice `n`: it is part of the slice that it begins. `rx` and what is before it begin with
    /// nothing that was read for the frame.
    fn reading_in(&self, n: usize) -> i64 {
        let rx = usize::from(self.ring == Some(true));
        if n <= rx { 0 } else { self.reading.as_ps().cast_signed() }
    }

    /// Frames departed; the marks of each. Counted slice by slice, several take less time than one by one.
    ///
    /// # Panics
    /// When the marks of one are not one more than the names, or there are more than [`TOGETHER`].
    #[inline(never)]
    pub fn record(&mut self, ways: &[&[Mark]]) {
        let last = self.names.len();
        assert!(ways.iter().all(|way| way.len() == last + 1), "a mark between any two slices");
        let none = Part { raw: 0, net: 0, intended: 0 };
        let (mut parts, mut wholes) = ([none; TOGETHER], [none; TOGETHER]);
        let (parts, wholes) = (&mut parts[..ways.len()], &mut wholes[..ways.len()]);
        for n in 0..last {
            let reading = self.reading_in(n);
            for ((way, part), whole) in ways.iter().zip(&mut *parts).zip(&mut *wholes) {
                *part = Part::between(way[n], way[n + 1], reading);
                whole.net = whole.net.saturating_add(part.net);
            }
            self.slices[n].count(parts);
        }
        for (way, whole) in ways.iter().zip(&mut *wholes) {
            *whole = Part { net: whole.net, ..Part::between(way[0], way[last], 0) };
        }
        self.total.count(wholes);
        let wanted = FIRST - self.first.len() / (last + 1);
        self.first.extend(ways.iter().take(wanted).copied().flatten());
    }

    /// Slice `n` of one frame.
    fn part(&self, marks: &[Mark], n: usize) -> Part {
        Part::between(marks[n], marks[n + 1], self.reading_in(n))
    }

    /// One frame's slices.
    #[must_use]
    pub fn parts(&self, marks: &[Mark]) -> Vec<SlicePart> {
        let mut start = 0;
        let part = |n: usize| {
            let part = self.part(marks, n);
            let begins = start;
            start += part.net;
            SlicePart {
                name: self.names[n].clone(),
                start_ns: ns(begins as f64),
                length_ns: ns(part.net as f64),
                intended_ns: ns(part.intended as f64),
            }
        };
        (0..self.names.len()).map(part).collect()
    }

    /// The figures.
    #[must_use]
    pub fn report(&self) -> PipelineSlices {
        let total = self.total.figures();
        let slice = |(name, column): (&String, &Column)| {
            let all = column.times();
            PipelineSlice {
                figures: all.slice(name, true, &total),
                intended_mean_ns: column.intended_mean(),
                error: column.error(),
                raw_mean_ns: all.raw_mean_ns,
            }
        };
        let off = |marks: &&[Mark]| {
            let whole: i64 = (0..self.names.len()).map(|n| self.part(marks, n).net).sum();
            (ns(whole as f64) - total.p50_ns).abs()
        };
        let ways = self.first.chunks(self.names.len() + 1).map(|marks| (off(&marks), marks));
        let typical = ways.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, marks)| marks);
        PipelineSlices {
            every: self.every,
            packets: SlicedPackets {
                seen: self.seen,
                matched: total.count,
                lost: self.seen - total.count.min(self.seen),
            },
            slices: self.names.iter().zip(&self.slices).map(slice).collect(),
            total,
            overhead: SliceOverhead {
                tau_o_ns: self.reading.as_ns_f64(),
                per_packet_ns: total.raw_mean_ns - total.mean_ns,
            },
            ring_untold: self.ring == Some(false),
            typical: typical.map_or_else(Vec::new, |marks| self.parts(marks)),
        }
    }
}

impl PipelineSlices {
    /// Of frames that `self` saw departing and `arriving` saw arriving, on another thread.
    #[must_use]
    pub fn arrived_by(mut self, arriving: Option<&PipelineSlices>) -> PipelineSlices {
        if let Some(arriving) = arriving {
            self.packets.seen = arriving.packets.seen;
            self.packets.lost = self.packets.seen - self.packets.matched.min(self.packets.seen);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(pairs: &[(u64, u64)]) -> Vec<Mark> {
        pairs.iter().map(|&(at, intended)| Mark { at: Time::from_ps(at), intended: Time::from_ps(intended) }).collect()
    }

    #[test]
    fn slices_sum_to_the_total_and_errors_to_the_lateness() {
        let names = ["rx", "delay", "tx"].map(str::to_owned).to_vec();
        let mut meter = SliceMeter::new(names, 4);
        for n in 0..100 {
            meter.seen();
            let at = n * 1_000_000_000;
            meter.record(&[&marks(&[
                (at, at),
                (at + 2_000, at),
                (at + 203_000_000, at + 200_000_000),
                (at + 203_005_000, at + 200_000_000),
            ])]);
        }
        meter.seen();
        let report = meter.report();
        assert_eq!(report.packets, SlicedPackets { seen: 101, matched: 100, lost: 1 });
        let means: Vec<f64> = report.slices.iter().map(|slice| slice.figures.mean_ns).collect();
        assert_eq!(means, [2.0, 202_998.0, 5.0]);
        assert!((report.slices.iter().map(|slice| slice.figures.share).sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((report.total.mean_ns - 203_005.0).abs() < 1e-9);
        let delay = &report.slices[1];
        assert!((delay.intended_mean_ns - 200_000.0).abs() < 1e-9);
        assert!((delay.error.mean_ns - 2_998.0).abs() < 1e-9 && (delay.error.max_ns - 2_998.0).abs() < 1e-9);
        let errors: f64 = report.slices.iter().map(|slice| slice.error.mean_ns).sum();
        assert!((errors - 3_005.0).abs() < 1e-9, "how late the frame left");
        assert_eq!(report.typical.len(), 3);
        assert!((report.typical[2].start_ns - 203_000.0).abs() < 1e-9);
        assert!(report.table(true).contains("1 frame in 4: 101 seen, 100 departed, 1 lost"));
        assert!(waterfall(&report.typical).lines().nth(1).is_some_and(|line| line.matches('█').count() == 48));
    }

    #[test]
    fn a_port_tells_of_its_ring_or_the_report_says_that_it_does_not() {
        let mut meter = SliceMeter::new(["rx", "delay", "tx"].map(str::to_owned).to_vec(), 1);
        assert!(!serde_json::to_string(&meter.report()).expect("JSON").contains("ring"), "there is no port");
        meter.in_real_time(Span::from_ns(20));
        let mut other = meter.clone();
        meter.come_from_port(true);
        let mut meter = meter.another();
        meter.seen();
        meter.record(&[&marks(&[(0, 0), (5_000_000, 0), (5_100_000, 0), (5_400_000, 0), (5_410_000, 0)])]);
        let report = meter.report();
        let figures: Vec<_> =
            report.slices.iter().map(|slice| (&slice.figures.name[..], slice.figures.mean_ns)).collect();
        assert_eq!(
            figures,
            [("ring", 5_000.0), ("rx", 100.0), ("delay", 280.0), ("tx", 0.0)],
            "neither reads the clock"
        );
        assert!((report.total.mean_ns - 5_380.0).abs() < 1e-9 && !report.table(false).contains("does not tell"));
        other.come_from_port(false);
        let report = other.another().report();
        assert!(report.ring_untold && report.slices.len() == 3);
        assert!(report.table(false).contains("the wait in the port's ring is not in it"));
    }

    #[test]
    fn readings_of_the_clock_are_subtracted_where_they_fall() {
        let names = ["rx", "delay", "tx"].map(str::to_owned).to_vec();
        let mut meter = SliceMeter::new(names, 1);
        meter.in_real_time(Span::from_ns(20));
        meter.seen();
        meter.record(&[&marks(&[(0, 0), (100_000, 0), (400_000, 0), (410_000, 0)])]);
        let report = meter.report();
        let means: Vec<f64> = report.slices.iter().map(|slice| slice.figures.mean_ns).collect();
        assert_eq!(means, [100.0, 280.0, 0.0], "what is shorter than a reading is none");
        assert!((report.overhead.per_packet_ns - 30.0).abs() < 1e-9);
    }
}
